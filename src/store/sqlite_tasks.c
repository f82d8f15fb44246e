/* SPDX-License-Identifier: MIT
 *
 * Compensation tasks, their rounds, and who is told of them: what store/tasks.h promises, in
 * SQLite. As in sqlite_write.c each operation runs inside the batch's transaction and returns SQLite's code.
 *
 * One process owns the file, so a task that is RUNNING under another owner's name was left by a process that is gone, and
 * is taken at once; the lease counts for a round that this very process lost.
 *
 * While rows are gathered, texts are offsets into the operation's memory, which may still move; each operation makes
 * its own of them pointers at its end. rows.call and rows.holder stay offsets for rows_settle().
 */
#include "store/sqlite_tasks.h"

const char sqlite_tasks_schema[] =
    "ALTER TABLE compensation RENAME TO compensation_1;"
    "DROP INDEX compensation_due;"
    "CREATE TABLE compensation(id INTEGER PRIMARY KEY, call INTEGER NOT NULL UNIQUE, status INTEGER NOT NULL "
    "DEFAULT 0,"
    " cause INTEGER NOT NULL DEFAULT 0, round INTEGER NOT NULL DEFAULT 0, granted INTEGER NOT NULL DEFAULT 0,"
    " due_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
    " lease_end_ms INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0, tell INTEGER NOT NULL "
    "DEFAULT 0,"
    " tell_tries INTEGER NOT NULL DEFAULT 0, tell_due_ms INTEGER NOT NULL DEFAULT 0, owner TEXT, last_answer "
    "TEXT);"
    "INSERT INTO compensation(id, call, status, round, due_ms, created_ms, updated_ms)"
    " SELECT id, call, status, round, due_ms, created_ms, created_ms FROM compensation_1;"
    "DROP TABLE compensation_1;"
    "CREATE INDEX compensation_due ON compensation(due_ms) WHERE status IN (0, 1);"
    "CREATE INDEX compensation_open ON compensation(status, cause, created_ms) WHERE status IN (0, 1, 4);"
    "CREATE INDEX compensation_tell ON compensation(tell_due_ms) WHERE tell = 1;"
    "CREATE TABLE compensation_round(task INTEGER NOT NULL, n INTEGER NOT NULL, at_ms INTEGER NOT NULL,"
    " ended_ms INTEGER NOT NULL, asked TEXT, answer TEXT, ours TEXT, difference TEXT, decision TEXT, "
    "evidence TEXT,"
    " owner TEXT, PRIMARY KEY(task, n)) WITHOUT ROWID;"
    "CREATE TABLE kept(call INTEGER PRIMARY KEY, method TEXT, target TEXT, lines BLOB, body BLOB, reversal "
    "TEXT);"
    "CREATE TABLE audit(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, call INTEGER NOT NULL, task INTEGER "
    "NOT NULL,"
    " who TEXT, what TEXT, tenant TEXT, call_id TEXT, evidence TEXT);"
    "CREATE INDEX audit_call ON audit(call) WHERE call <> 0;";

#define TASKS_GONE_MAX 16 /* tasks without a call that one take closes on its way */

/* In the order of TASK_COLUMNS. */
enum task_column {
    T_id,
    T_call,
    T_status,
    T_cause,
    T_round,
    T_granted,
    T_due_ms,
    T_created_ms,
    T_updated_ms,
    T_lease_end_ms,
    T_fence,
    T_tell,
    T_tell_tries,
    T_tell_due_ms,
    T_owner,
    T_last_answer
};

struct slice text_keep(struct buffer *memory, const void *data, size_t len)
{
    if (!len)
        return slice_of(NULL, 0);
    size_t offset = memory->len;
    buffer_append(memory, data, len);
    return slice_of((const char *)(uintptr_t)offset, len);
}

struct slice text_column(sqlite3_stmt *stmt, int at, struct buffer *memory)
{
    const void *data = sqlite3_column_blob(stmt, at);
    return text_keep(memory, data, data ? (size_t)sqlite3_column_bytes(stmt, at) : 0);
}

void text_point(struct slice *text, const struct buffer *memory)
{
    if (text->len)
        text->data = memory->data + (uintptr_t)text->data;
}

void text_bind(sqlite3_stmt *stmt, int at, struct slice text)
{
    if (text.len)
        sqlite3_bind_text64(stmt, at, text.data, text.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, at);
}

void task_decode(sqlite3_stmt *stmt, struct task_row *task, struct buffer *memory)
{
    memset(task, 0, sizeof *task);
#define NUMBER(name) sqlite3_column_int64(stmt, T_##name)
    task->id = NUMBER(id);
    task->call = NUMBER(call);
    task->status = (enum task_status)NUMBER(status);
    task->cause = (enum task_cause)NUMBER(cause);
    task->round = (int)NUMBER(round);
    task->granted = (int)NUMBER(granted);
    task->due_ms = NUMBER(due_ms);
    task->created_ms = NUMBER(created_ms);
    task->updated_ms = NUMBER(updated_ms);
    task->lease_end_ms = NUMBER(lease_end_ms);
    task->fence = NUMBER(fence);
    task->tell = (enum task_tell)NUMBER(tell);
    task->tell_tries = (int)NUMBER(tell_tries);
    task->tell_due_ms = NUMBER(tell_due_ms);
#undef NUMBER
    task->owner = text_column(stmt, T_owner, memory);
    task->last_answer = text_column(stmt, T_last_answer, memory);
}

void task_point(struct task_row *task, const struct buffer *memory)
{
    struct slice *texts[] = {&task->owner,    &task->last_answer, &task->tenant,       &task->route,
                             &task->call_id,  &task->key,         &task->business_ref, &task->trace_id,
                             &task->reverses, &task->reversed_by};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        text_point(texts[i], memory);
}

/* Reads one task by the number a statement asks for; task->id 0: there is none. */
int task_read(struct connection *c, enum statement which, int64_t number, struct task_row *task,
              struct buffer *memory)
{
    task->id = 0;
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_int64(stmt, 1, number);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    task_decode(stmt, task, memory);
    return sqlite3_reset(stmt);
}

/* What people see of the call beside its task: texts are offsets into `memory`. `call` has pointers. */
void task_tell_call(struct task_row *task, const struct call_row *call, struct buffer *memory)
{
#define TEXT(name) task->name = text_keep(memory, call->name.data, call->name.len)
    TEXT(tenant), TEXT(route), TEXT(call_id), TEXT(key), TEXT(business_ref), TEXT(trace_id), TEXT(reverses);
    TEXT(reversed_by);
#undef TEXT
    task->call_state = call->state;
    task->call_final = call->final;
    task->call_reason = call->reason;
    task->call_created_ms = call->created_ms;
    task->call_ended_ms = call->ended_ms;
}

/* The call of an operation's task into rows.call, with who holds its key. */
int task_call(struct sqlite_store *s, struct connection *c, struct store_op *op, int64_t id)
{
    int rc = row_read(c, id, &op->rows.call, &op->memory);
    int64_t holder = 0;
    if (rc == SQLITE_OK && op->rows.call.id && op->rows.call.has_key)
        rc = identity_find(s, c, &op->rows.call.operation_digest, &holder);
    if (rc == SQLITE_OK && holder == id)
        op->rows.holder = op->rows.call;
    else if (rc == SQLITE_OK && holder)
        rc = row_read(c, holder, &op->rows.holder, &op->memory);
    return rc;
}

/* ---- made, settled, removed --------------------------------------------------------------------------------- */

int task_add(struct sqlite_store *s, int64_t call, int64_t due_ms, enum task_cause cause)
{
    const int64_t numbers[] = {call, due_ms ? due_ms : s->now, s->now, (int64_t)cause};
    return connection_run(&s->writer, SQL_TASK_ADD, 4, numbers);
}

int task_settle(struct sqlite_store *s, int64_t call, enum call_state state)
{
    const int64_t numbers[] = {call, (int64_t)state, s->now};
    return connection_run(&s->writer, SQL_TASK_SETTLE, 3, numbers);
}

int task_remove(struct sqlite_store *s, int64_t call)
{
    int rc = connection_run(&s->writer, SQL_ROUNDS_DELETE, 1, &call);
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_TASK_DELETE, 1, &call);
    return rc == SQLITE_OK ? connection_run(&s->writer, SQL_KEPT_DELETE, 1, &call) : rc;
}

/* ---- rounds ------------------------------------------------------------------------------------------------- */

static int round_write(struct sqlite_store *s, const struct round_row *round)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_ROUND_ADD);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, round->task);
    sqlite3_bind_int(stmt, 2, round->n);
    sqlite3_bind_int64(stmt, 3, round->at_ms);
    sqlite3_bind_int64(stmt, 4, round->ended_ms);
    text_bind(stmt, 5, round->asked);
    text_bind(stmt, 6, round->answer);
    text_bind(stmt, 7, round->ours);
    text_bind(stmt, 8, round->difference);
    text_bind(stmt, 9, round->decision);
    text_bind(stmt, 10, round->evidence);
    text_bind(stmt, 11, round->owner);
    return connection_step(stmt);
}

/* The row of a round whose process died or lost it. */
static int round_interrupted(struct sqlite_store *s, const struct task_row *task, const struct buffer *memory)
{
    struct task_row was = *task;
    task_point(&was, memory);
    struct round_row round = {
        .task = was.id,
        .n = was.round,
        .at_ms = was.updated_ms,
        .ended_ms = s->now,
        .answer = slice_text("interrupted"),
        .decision = slice_text("next round"),
        .evidence =
            slice_text("The process that worked on this round stopped before it could write what it found."),
        .owner = was.owner,
    };
    return round_write(s, &round);
}

int task_status(struct sqlite_store *s, int64_t id, enum task_status status)
{
    const int64_t numbers[] = {id, (int64_t)status, s->now};
    return connection_run(&s->writer, SQL_TASK_STATUS, 3, numbers);
}

/* The number one statement gives, or 0. */
static int next_id(struct sqlite_store *s, enum statement which, bool with_owner, int64_t *id)
{
    *id = 0;
    sqlite3_stmt *stmt = connection_statement(&s->writer, which);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, s->now);
    if (with_owner)
        sqlite3_bind_text(stmt, 2, s->owner, -1, SQLITE_STATIC);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    *id = sqlite3_column_int64(stmt, 0);
    return sqlite3_reset(stmt);
}

static int task_own(struct sqlite_store *s, const struct task_row *asked, int64_t id)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_TASK_TAKE);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    text_bind(stmt, 2, asked->owner);
    sqlite3_bind_int64(stmt, 3, asked->lease_end_ms);
    sqlite3_bind_int64(stmt, 4, s->now);
    return connection_step(stmt);
}

static int take(struct sqlite_store *s, struct store_op *op)
{
    struct task_work *work = op->work;
    int64_t id = 0;
    int rc = SQLITE_OK;
    memset(&work->now, 0, sizeof work->now);
    for (int gone = 0; rc == SQLITE_OK && gone < TASKS_GONE_MAX; gone++) {
        struct task_row task = {0};
        rc = next_id(s, SQL_TASK_NEXT, true, &id);
        if (rc != SQLITE_OK || !id)
            return rc;
        rc = task_read(&s->writer, SQL_TASK_READ, id, &task, &op->memory);
        if (rc == SQLITE_OK)
            rc = task_call(s, &s->writer, op, task.call);
        if (rc == SQLITE_OK && !op->rows.call.id) {
            rc = task_status(s, id, TASK_CLOSED);
            continue;
        }
        if (rc == SQLITE_OK && task.status == TASK_RUNNING)
            rc = round_interrupted(s, &task, &op->memory);
        if (rc == SQLITE_OK)
            rc = task_own(s, &work->task, id);
        if (rc == SQLITE_OK)
            rc = task_read(&s->writer, SQL_TASK_READ, id, &work->now, &op->memory);
        if (rc == SQLITE_OK)
            rc = kept_read(&s->writer, task.call, &work->kept, &op->memory);
        if (rc != SQLITE_OK)
            return rc;
        task_point(&work->now, &op->memory);
        kept_point(&work->kept, &op->memory);
        op->done = true;
        break;
    }
    return rc;
}

static int task_write_round(struct sqlite_store *s, const struct task_row *next,
                            const struct round_row *round)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_TASK_ROUND);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, next->id);
    sqlite3_bind_int(stmt, 2, (int)next->status);
    sqlite3_bind_int64(stmt, 3, next->due_ms);
    sqlite3_bind_int(stmt, 4, (int)next->tell);
    sqlite3_bind_int64(stmt, 5, next->tell_due_ms);
    sqlite3_bind_int64(stmt, 6, s->now);
    text_bind(stmt, 7, round->answer);
    return connection_step(stmt);
}

static int task_answer(struct sqlite_store *s, int64_t id, struct slice answer)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_TASK_ANSWER);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    text_bind(stmt, 2, answer);
    return connection_step(stmt);
}

/* Ends the call inside the operation, as an outsider; op->status CONFLICT and rows.call where it stands otherwise. */
int task_end_call(struct sqlite_store *s, struct store_op *op, int64_t call, unsigned from_states)
{
    int64_t id = op->id;
    unsigned from = op->from_states;
    bool any = op->any_fence, make = op->make_task, drop = op->drop_kept;
    op->id = call;
    op->from_states = from_states;
    op->any_fence = true;
    op->make_task = false;
    op->drop_kept = true;
    int rc = sqlite_end(s, op);
    op->id = id;
    op->from_states = from;
    op->any_fence = any;
    op->make_task = make;
    op->drop_kept = drop;
    return rc;
}

static int write_round(struct sqlite_store *s, struct store_op *op)
{
    struct task_work *work = op->work;
    const struct task_row *next = &work->task;
    struct task_row task = {0};
    int rc = task_read(&s->writer, SQL_TASK_READ, next->id, &task, &op->memory);
    if (rc != SQLITE_OK)
        return rc;
    bool mine = task.id && task.fence == next->fence;
    if (!mine) {
        op->status = STATUS_CONFLICT;
        return task.id ? task_call(s, &s->writer, op, task.call) : SQLITE_OK;
    }
    if (work->end_call) {
        rc = task_end_call(s, op, op->id, op->from_states);
        if (rc != SQLITE_OK || op->status != STATUS_OK)
            return rc;
        op->done = false;
    }
    if (op->drop_kept && !work->end_call)
        rc = connection_run(&s->writer, SQL_KEPT_DELETE, 1, &task.call);
    if (rc != SQLITE_OK)
        return rc;
    struct round_row round = work->round;
    round.task = next->id;
    round.n = task.round;
    if (!round.at_ms)
        round.at_ms = task.updated_ms;
    round.ended_ms = s->now;
    round.owner = next->owner;
    rc = round_write(s, &round);
    if (rc == SQLITE_OK && task.status == TASK_RUNNING)
        rc = task_write_round(s, next, &round);
    else if (rc == SQLITE_OK) {
        rc = task_answer(s, next->id, round.answer);
        if (rc == SQLITE_OK && task.status == TASK_RESOLVED && next->status == TASK_REVERSED)
            rc = task_status(s, next->id, TASK_REVERSED);
    }
    if (rc == SQLITE_OK)
        rc = task_read(&s->writer, SQL_TASK_READ, next->id, &work->now, &op->memory);
    if (rc == SQLITE_OK)
        rc = task_call(s, &s->writer, op, task.call);
    task_point(&work->now, &op->memory);
    op->done = rc == SQLITE_OK;
    return rc;
}

/* ---- telling ------------------------------------------------------------------------------------------------ */

static int tell_take(struct sqlite_store *s, struct store_op *op)
{
    struct task_work *work = op->work;
    int64_t id;
    int rc = next_id(s, SQL_TELL_NEXT, false, &id);
    memset(&work->now, 0, sizeof work->now);
    if (rc != SQLITE_OK || !id)
        return rc;
    const int64_t numbers[] = {id, work->task.tell_due_ms};
    rc = connection_run(&s->writer, SQL_TELL_TAKE, 2, numbers);
    if (rc == SQLITE_OK) {
        int64_t asked = op->id;
        op->id = id;
        rc = person_told(s, op);
        op->id = asked;
    }
    op->done = rc == SQLITE_OK;
    return rc;
}

static int tell_done(struct sqlite_store *s, struct store_op *op)
{
    const struct task_row *task = &op->work->task;
    const int64_t numbers[] = {op->id, (int64_t)task->tell, task->tell_due_ms, task->tell_tries};
    int rc = connection_run(&s->writer, SQL_TELL_DONE, 4, numbers);
    op->done = rc == SQLITE_OK && sqlite3_changes(s->writer.db) == 1;
    return rc;
}

/* ---- operations ---------------------------------------------------------------------------------------------- */

int sqlite_task_write(struct sqlite_store *s, struct store_op *op)
{
    int rc;
    switch (op->kind) {
    case STORE_TASK_TAKE:
        return take(s, op);
    case STORE_TASK_ROUND:
        return write_round(s, op);
    case STORE_TASK_RESOLVE:
        return person_resolve(s, op);
    case STORE_TASK_RUN:
        return person_run(s, op);
    case STORE_REVERSE:
        return reversal_make(s, op);
    case STORE_TELL_TAKE:
        return tell_take(s, op);
    case STORE_TELL_DONE:
        return tell_done(s, op);
    case STORE_AUDIT:
        rc = audit_write(s, &op->work->audit);
        op->done = rc == SQLITE_OK;
        return rc;
    default:
        return SQLITE_MISUSE;
    }
}
