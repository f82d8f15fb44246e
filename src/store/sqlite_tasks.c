/* SPDX-License-Identifier: MIT
 *
 * Compensation tasks, their rounds, kept requests, reversals, and what people changed: what store/tasks.h promises, in
 * SQLite. As in sqlite_write.c each operation runs inside the batch's transaction and returns SQLite's code.
 *
 * One process owns the file, so a task that is RUNNING under another owner's name was left by a process that is gone, and
 * is taken at once; the lease counts for a round that this very process lost.
 *
 * While rows are gathered, texts are offsets into the operation's memory, which may still move; each operation makes
 * its own of them pointers at its end. rows.call and rows.holder stay offsets for rows_settle().
 */
#include "store/sqlite.h"

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

static struct slice keep(struct buffer *memory, const void *data, size_t len)
{
    if (!len)
        return slice_of(NULL, 0);
    size_t offset = memory->len;
    buffer_append(memory, data, len);
    return slice_of((const char *)(uintptr_t)offset, len);
}

static struct slice column(sqlite3_stmt *stmt, int at, struct buffer *memory)
{
    const void *data = sqlite3_column_blob(stmt, at);
    return keep(memory, data, data ? (size_t)sqlite3_column_bytes(stmt, at) : 0);
}

static void point(struct slice *text, const struct buffer *memory)
{
    if (text->len)
        text->data = memory->data + (uintptr_t)text->data;
}

static void bind(sqlite3_stmt *stmt, int at, struct slice text)
{
    if (text.len)
        sqlite3_bind_text64(stmt, at, text.data, text.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, at);
}

static void task_decode(sqlite3_stmt *stmt, struct task_row *task, struct buffer *memory)
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
    task->owner = column(stmt, T_owner, memory);
    task->last_answer = column(stmt, T_last_answer, memory);
}

static void task_point(struct task_row *task, const struct buffer *memory)
{
    struct slice *texts[] = {&task->owner,    &task->last_answer, &task->tenant,       &task->route,
                             &task->call_id,  &task->key,         &task->business_ref, &task->trace_id,
                             &task->reverses, &task->reversed_by};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        point(texts[i], memory);
}

/* Reads one task by the number a statement asks for; task->id 0: there is none. */
static int task_read(struct connection *c, enum statement which, int64_t number, struct task_row *task,
                     struct buffer *memory)
{
    task->id = 0;
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, number);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    task_decode(stmt, task, memory);
    return sqlite3_reset(stmt);
}

/* What people see of the call beside its task: texts are offsets into `memory`. `call` has pointers. */
static void task_tell_call(struct task_row *task, const struct call_row *call, struct buffer *memory)
{
#define TEXT(name) task->name = keep(memory, call->name.data, call->name.len)
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
static int call_read(struct sqlite_store *s, struct connection *c, struct store_op *op, int64_t id)
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

/* ---- kept requests ------------------------------------------------------------------------------------------ */

int kept_write(struct sqlite_store *s, int64_t call, const struct kept_request *kept)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_KEPT_WRITE);
    if (!stmt)
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, call);
    bind(stmt, 2, kept->method);
    bind(stmt, 3, kept->target);
    bind(stmt, 4, kept->lines);
    if (kept->has)
        sqlite3_bind_blob64(stmt, 5, kept->body.len ? kept->body.data : "", kept->body.len, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, 5);
    bind(stmt, 6, kept->reversal);
    return connection_step(stmt);
}

int kept_settle(struct sqlite_store *s, int64_t call, enum call_state state)
{
    if (state == STATE_FAILED)
        return connection_run(&s->writer, SQL_KEPT_DELETE, 1, &call);
    int rc = connection_run(&s->writer, SQL_KEPT_SETTLE_REST, 1, &call);
    return rc == SQLITE_OK ? connection_run(&s->writer, SQL_KEPT_SETTLE, 1, &call) : rc;
}

static int kept_read(struct connection *c, int64_t call, struct kept_request *kept, struct buffer *memory)
{
    memset(kept, 0, sizeof *kept);
    sqlite3_stmt *stmt = connection_statement(c, SQL_KEPT_READ);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, call);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    kept->method = column(stmt, 0, memory);
    kept->target = column(stmt, 1, memory);
    kept->lines = column(stmt, 2, memory);
    kept->has = sqlite3_column_type(stmt, 3) != SQLITE_NULL;
    kept->body = column(stmt, 3, memory);
    kept->reversal = column(stmt, 4, memory);
    return sqlite3_reset(stmt);
}

static void kept_point(struct kept_request *kept, const struct buffer *memory)
{
    struct slice *texts[] = {&kept->method, &kept->target, &kept->lines, &kept->body, &kept->reversal};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        point(texts[i], memory);
}

/* ---- audit -------------------------------------------------------------------------------------------------- */

int audit_write(struct sqlite_store *s, const struct audit_row *audit)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_AUDIT_ADD);
    if (!stmt)
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, s->now);
    sqlite3_bind_int64(stmt, 2, audit->call);
    sqlite3_bind_int64(stmt, 3, audit->task);
    bind(stmt, 4, audit->who);
    bind(stmt, 5, audit->what);
    bind(stmt, 6, audit->tenant);
    bind(stmt, 7, audit->call_id);
    bind(stmt, 8, audit->evidence);
    return connection_step(stmt);
}

/* The audit of a change on the operation's call, whose row stands in rows.call, still with offsets. */
static int audit_change(struct sqlite_store *s, const struct store_op *op, const struct task_row *task)
{
    struct rows found = op->rows;
    rows_settle(&found, &op->memory);
    struct audit_row audit = op->work->audit;
    audit.call = task->call;
    audit.task = task->id;
    audit.tenant = found.call.tenant;
    audit.call_id = found.call.call_id;
    return audit_write(s, &audit);
}

static void audit_decode(sqlite3_stmt *stmt, struct audit_row *audit, struct buffer *memory)
{
    *audit = (struct audit_row){
        .id = sqlite3_column_int64(stmt, 0),
        .at_ms = sqlite3_column_int64(stmt, 1),
        .call = sqlite3_column_int64(stmt, 2),
        .task = sqlite3_column_int64(stmt, 3),
    };
    audit->who = column(stmt, 4, memory);
    audit->what = column(stmt, 5, memory);
    audit->tenant = column(stmt, 6, memory);
    audit->call_id = column(stmt, 7, memory);
    audit->evidence = column(stmt, 8, memory);
}

static void audit_point(struct audit_row *audit, const struct buffer *memory)
{
    struct slice *texts[] = {&audit->who, &audit->what, &audit->tenant, &audit->call_id, &audit->evidence};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        point(texts[i], memory);
}

/* ---- rounds ------------------------------------------------------------------------------------------------- */

static int round_write(struct sqlite_store *s, const struct round_row *round)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_ROUND_ADD);
    if (!stmt)
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, round->task);
    sqlite3_bind_int(stmt, 2, round->n);
    sqlite3_bind_int64(stmt, 3, round->at_ms);
    sqlite3_bind_int64(stmt, 4, round->ended_ms);
    bind(stmt, 5, round->asked);
    bind(stmt, 6, round->answer);
    bind(stmt, 7, round->ours);
    bind(stmt, 8, round->difference);
    bind(stmt, 9, round->decision);
    bind(stmt, 10, round->evidence);
    bind(stmt, 11, round->owner);
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

static int task_status(struct sqlite_store *s, int64_t id, enum task_status status)
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
        return sqlite3_extended_errcode(s->writer.db);
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
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    bind(stmt, 2, asked->owner);
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
        struct task_row task;
        rc = next_id(s, SQL_TASK_NEXT, true, &id);
        if (rc != SQLITE_OK || !id)
            return rc;
        rc = task_read(&s->writer, SQL_TASK_READ, id, &task, &op->memory);
        if (rc == SQLITE_OK)
            rc = call_read(s, &s->writer, op, task.call);
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
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, next->id);
    sqlite3_bind_int(stmt, 2, (int)next->status);
    sqlite3_bind_int64(stmt, 3, next->due_ms);
    sqlite3_bind_int(stmt, 4, (int)next->tell);
    sqlite3_bind_int64(stmt, 5, next->tell_due_ms);
    sqlite3_bind_int64(stmt, 6, s->now);
    bind(stmt, 7, round->answer);
    return connection_step(stmt);
}

static int task_answer(struct sqlite_store *s, int64_t id, struct slice answer)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_TASK_ANSWER);
    if (!stmt)
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    bind(stmt, 2, answer);
    return connection_step(stmt);
}

/* Ends the call inside the operation, as an outsider; op->status CONFLICT and rows.call where it stands otherwise. */
static int end_call(struct sqlite_store *s, struct store_op *op, int64_t call, unsigned from_states)
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
    struct task_row task;
    int rc = task_read(&s->writer, SQL_TASK_READ, next->id, &task, &op->memory);
    if (rc != SQLITE_OK)
        return rc;
    bool mine = task.id && task.fence == next->fence;
    if (!mine) {
        op->status = STATUS_CONFLICT;
        return task.id ? call_read(s, &s->writer, op, task.call) : SQLITE_OK;
    }
    if (work->end_call) {
        rc = end_call(s, op, op->id, op->from_states);
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
        rc = call_read(s, &s->writer, op, task.call);
    task_point(&work->now, &op->memory);
    op->done = rc == SQLITE_OK;
    return rc;
}

/* ---- people ------------------------------------------------------------------------------------------------- */

/* The task `op->id` and its call; op->status says where there is none. */
static int person_reads(struct sqlite_store *s, struct store_op *op, struct task_row *task)
{
    int rc = task_read(&s->writer, SQL_TASK_READ, op->id, task, &op->memory);
    if (rc == SQLITE_OK && !task->id)
        op->status = STATUS_NOT_FOUND;
    else if (rc == SQLITE_OK)
        rc = call_read(s, &s->writer, op, task->call);
    return rc;
}

/* What stands after a person's change, or instead of it. */
static int person_told(struct sqlite_store *s, struct store_op *op)
{
    struct task_work *work = op->work;
    int rc = task_read(&s->writer, SQL_TASK_READ, op->id, &work->now, &op->memory);
    if (rc == SQLITE_OK)
        rc = call_read(s, &s->writer, op, work->now.call);
    if (rc == SQLITE_OK && op->memory.failed)
        return SQLITE_NOMEM;
    if (rc != SQLITE_OK)
        return rc;
    struct rows found = op->rows;
    rows_settle(&found, &op->memory);
    if (found.call.id) {
        struct call_row call = found.call;
        /* The texts stand in the memory that grows now. */
        struct buffer texts = {0};
        struct rows apart;
        rows_copy(&apart, &texts, &(struct rows){.call = call});
        if (!texts.failed)
            task_tell_call(&work->now, &apart.call, &op->memory);
        buffer_fini(&texts);
    }
    task_point(&work->now, &op->memory);
    return op->memory.failed ? SQLITE_NOMEM : SQLITE_OK;
}

static int resolve(struct sqlite_store *s, struct store_op *op)
{
    struct task_row task;
    int rc = person_reads(s, op, &task);
    if (rc != SQLITE_OK || op->status != STATUS_OK)
        return rc;
    const struct call_row *call = &op->rows.call;
    bool open = task.status == TASK_PENDING || task.status == TASK_MANUAL;
    if (!open || (call->id && call->state == STATE_PROCESSING)) {
        op->status = STATUS_CONFLICT;
        return person_told(s, op);
    }
    enum task_status status = TASK_RESOLVED;
    if (call->id && !call->final) {
        op->row.final = true;
        op->row.reason = REASON_PERSON;
        rc = end_call(s, op, call->id, 1u << STATE_RECEIVED | 1u << STATE_UNKNOWN | 1u << STATE_FAILED);
        if (rc != SQLITE_OK || op->status != STATUS_OK)
            return rc;
        op->done = false;
    } else if (!call->id || call->state != op->row.state) {
        status = TASK_CLOSED;
    }
    rc = task_status(s, task.id, status);
    if (rc == SQLITE_OK)
        rc = audit_change(s, op, &task);
    if (rc == SQLITE_OK)
        rc = person_told(s, op);
    op->done = rc == SQLITE_OK;
    return rc;
}

static int run_now(struct sqlite_store *s, struct store_op *op)
{
    struct task_row task;
    int rc = person_reads(s, op, &task);
    if (rc != SQLITE_OK || op->status != STATUS_OK)
        return rc;
    if (task.status != TASK_PENDING && task.status != TASK_MANUAL) {
        op->status = STATUS_CONFLICT;
        return person_told(s, op);
    }
    const int64_t numbers[] = {task.id, s->now};
    rc = connection_run(&s->writer, SQL_TASK_RUN, 2, numbers);
    if (rc == SQLITE_OK)
        rc = audit_change(s, op, &task);
    if (rc == SQLITE_OK)
        rc = person_told(s, op);
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

/* ---- reversal ----------------------------------------------------------------------------------------------- */

static int set_reversed(struct sqlite_store *s, int64_t id, struct slice reversed_by)
{
    int rc = standing_make(s, id);
    sqlite3_stmt *stmt = rc == SQLITE_OK ? connection_statement(&s->writer, SQL_REVERSED) : NULL;
    if (!stmt)
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, id);
    bind(stmt, 2, reversed_by);
    sqlite3_bind_int64(stmt, 3, s->now);
    return connection_step(stmt);
}

/* What was kept of the effect's own call, made the request of its reversal: its header lines, no body. `memory` is its. */
static int reversal_kept(struct sqlite_store *s, int64_t effect, struct kept_request *out,
                         struct buffer *memory)
{
    int rc = kept_read(&s->writer, effect, out, memory);
    if (rc != SQLITE_OK)
        return rc;
    if (memory->failed)
        return SQLITE_NOMEM;
    kept_point(out, memory);
    const char *space = out->reversal.len ? memchr(out->reversal.data, ' ', out->reversal.len) : NULL;
    out->has = space != NULL;
    if (space) {
        out->method = slice_of(out->reversal.data, (size_t)(space - out->reversal.data));
        out->target = slice_of(space + 1, out->reversal.len - out->method.len - 1);
    }
    out->body = out->reversal = slice_of(NULL, 0);
    return SQLITE_OK;
}

/* Writes the reversal's row, its request and its task, and names it in the two rows it is about. */
static int reversal_write(struct sqlite_store *s, struct store_op *op, int64_t effect, int64_t asked)
{
    int64_t id = s->last_id + 1;
    struct call_row given = op->row;
    op->row.state = STATE_RECEIVED;
    int rc = op->row.has_key ? identity_add(s, &op->row.operation_digest, id) : SQLITE_OK;
    if (rc == SQLITE_OK)
        rc = sqlite_insert(s, op, id);
    op->row = given;
    op->done = false;
    if (rc == SQLITE_OK)
        rc = task_add(s, id, s->now, TASK_CAUSE_REVERSAL);
    if (rc == SQLITE_OK)
        rc = set_reversed(s, effect, given.call_id);
    if (rc == SQLITE_OK && asked != effect)
        rc = set_reversed(s, asked, given.call_id);
    return rc;
}

static int reverse(struct sqlite_store *s, struct store_op *op)
{
    struct rows found = {0};
    struct buffer memory = {0}, kept_memory = {0};
    struct kept_request kept;
    const struct kept_request *asked = op->keep;
    int64_t call = 0, holder = 0;
    int rc = row_read(&s->writer, op->id, &found.call, &memory);
    if (rc == SQLITE_OK && found.call.id)
        rc = row_read(&s->writer, found.call.original ? found.call.original : found.call.id, &found.holder,
                      &memory);
    if (rc == SQLITE_OK)
        rc = identities_find(s, &s->writer, &op->row, &call, &holder);
    if (rc != SQLITE_OK)
        goto done;
    rows_settle(&found, &memory);
    const struct call_row *effect = &found.holder;
    if (!effect->id) {
        op->status = STATUS_NOT_FOUND;
        goto done;
    }
    if (effect->reversed_by.len) {
        if (!found.call.reversed_by.len)
            rc = set_reversed(s, found.call.id, effect->reversed_by);
    } else if (1u << effect->state & op->from_states && !call && !holder) {
        if (!asked) {
            rc = reversal_kept(s, effect->id, &kept, &kept_memory);
            if (rc != SQLITE_OK || !kept.has) {
                op->status = rc == SQLITE_OK ? STATUS_NOT_FOUND : op->status;
                goto done;
            }
            op->keep = &kept;
        }
        rc = reversal_write(s, op, effect->id, found.call.id);
        op->keep = asked;
        op->done = rc == SQLITE_OK;
    }
    buffer_clear(&op->memory);
    memset(&op->rows, 0, sizeof op->rows);
    if (rc == SQLITE_OK)
        rc = call_read(s, &s->writer, op, op->id);
done:
    buffer_fini(&memory);
    buffer_fini(&kept_memory);
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static bool asked_for(const struct task_page *page, const struct task_row *task, const struct call_row *call)
{
    return (!page->has_tenant || slice_equal(page->tenant, call->tenant)) &&
           (!page->route.len || slice_equal(page->route, call->route)) &&
           (!page->since_ms || task->created_ms >= page->since_ms) &&
           (!page->until_ms || task->created_ms < page->until_ms);
}

static int list(struct connection *c, struct store_op *op)
{
    struct task_page *page = op->page;
    size_t limit = page->limit && page->limit < STORE_PAGE_MAX ? page->limit : STORE_PAGE_MAX;
    size_t look_max = page->look_max ? page->look_max : STORE_LOOK_MAX, looked = 0;
    struct buffer texts = {0}, call_texts = {0};
    int64_t last = 0;
    page->count = 0;
    page->next_before_id = page->reached_ms = 0;
    sqlite3_stmt *stmt = connection_statement(c, SQL_TASK_BEFORE);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, page->before_id ? page->before_id : INT64_MAX);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        if (page->count == limit || looked == look_max) {
            page->next_before_id = last;
            rc = sqlite3_reset(stmt);
            break;
        }
        struct task_row task;
        struct rows one = {0};
        buffer_clear(&texts), buffer_clear(&call_texts);
        task_decode(stmt, &task, &texts);
        last = task.id;
        looked++;
        page->reached_ms = task.created_ms;
        if (page->statuses && !(1u << task.status & page->statuses))
            continue;
        rc = row_read(c, task.call, &one.call, &call_texts);
        if (rc != SQLITE_OK)
            break;
        rows_settle(&one, &call_texts);
        if (!one.call.id || !asked_for(page, &task, &one.call))
            continue;
        task_point(&task, &texts);
        task.owner = keep(&op->memory, task.owner.data, task.owner.len);
        task.last_answer = keep(&op->memory, task.last_answer.data, task.last_answer.len);
        task_tell_call(&task, &one.call, &op->memory);
        page->tasks[page->count++] = task;
    }
    if (rc != SQLITE_OK)
        sqlite3_reset(stmt);
    for (size_t i = 0; i < page->count; i++)
        task_point(&page->tasks[i], &op->memory);
    buffer_fini(&texts), buffer_fini(&call_texts);
    return rc == SQLITE_OK && op->memory.failed ? SQLITE_NOMEM : rc;
}

static int rounds_read(struct connection *c, struct store_op *op, int64_t task)
{
    struct task_page *page = op->page;
    sqlite3_stmt *stmt = connection_statement(c, SQL_ROUNDS);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, task);
    sqlite3_bind_int64(stmt, 2, STORE_ROUNDS_MAX);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        struct round_row *round = &page->rounds[page->round_count++];
        struct slice *texts[] = {&round->asked,    &round->answer,   &round->ours, &round->difference,
                                 &round->decision, &round->evidence, &round->owner};
        round->task = task;
        round->n = sqlite3_column_int(stmt, 0);
        round->at_ms = sqlite3_column_int64(stmt, 1);
        round->ended_ms = sqlite3_column_int64(stmt, 2);
        for (int i = 0; i < (int)(sizeof texts / sizeof *texts); i++)
            *texts[i] = column(stmt, 3 + i, &op->memory);
    }
    /* The newest were read first. */
    for (size_t i = 0; i < page->round_count / 2; i++) {
        struct round_row round = page->rounds[i];
        page->rounds[i] = page->rounds[page->round_count - 1 - i];
        page->rounds[page->round_count - 1 - i] = round;
    }
    return rc;
}

static void page_point(struct task_page *page, const struct buffer *memory)
{
    for (size_t i = 0; i < page->count; i++)
        task_point(&page->tasks[i], memory);
    for (size_t i = 0; i < page->round_count; i++) {
        struct round_row *round = &page->rounds[i];
        struct slice *texts[] = {&round->asked,    &round->answer,   &round->ours, &round->difference,
                                 &round->decision, &round->evidence, &round->owner};
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
            point(texts[j], memory);
    }
    for (size_t i = 0; i < page->audit_count; i++)
        audit_point(&page->audits[i], memory);
}

static int audits_of_call(struct connection *c, struct store_op *op, int64_t call)
{
    struct task_page *page = op->page;
    sqlite3_stmt *stmt = connection_statement(c, SQL_AUDIT_OF_CALL);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, call);
    sqlite3_bind_int64(stmt, 2, STORE_PAGE_MAX);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW)
        audit_decode(stmt, &page->audits[page->audit_count++], &op->memory);
    for (size_t i = 0; i < page->audit_count / 2; i++) {
        struct audit_row audit = page->audits[i];
        page->audits[i] = page->audits[page->audit_count - 1 - i];
        page->audits[page->audit_count - 1 - i] = audit;
    }
    return rc;
}

static int read_one(struct sqlite_store *s, struct connection *c, struct store_op *op)
{
    struct task_page *page = op->page;
    struct task_row *task = &page->tasks[0];
    struct buffer texts = {0};
    struct rows one = {0};
    page->count = page->round_count = page->audit_count = 0;
    int rc = op->id ? task_read(c, SQL_TASK_READ, op->id, task, &op->memory)
                    : task_read(c, SQL_TASK_BY_CALL, op->row.id, task, &op->memory);
    int64_t call = task->id ? task->call : op->row.id;
    page->count = rc == SQLITE_OK && task->id;
    if (rc == SQLITE_OK && op->id && !task->id) {
        op->status = STATUS_NOT_FOUND;
        return rc;
    }
    if (rc == SQLITE_OK && page->count)
        rc = rounds_read(c, op, task->id);
    if (rc == SQLITE_OK)
        rc = audits_of_call(c, op, call);
    if (rc == SQLITE_OK)
        rc = row_read(c, call, &one.call, &texts);
    if (rc == SQLITE_OK)
        rows_settle(&one, &texts);
    if (rc == SQLITE_OK && page->count && one.call.id)
        task_tell_call(task, &one.call, &op->memory);
    buffer_fini(&texts);
    if (rc == SQLITE_OK)
        rc = call_read(s, c, op, call);
    if (rc == SQLITE_OK && op->memory.failed)
        rc = SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        page_point(page, &op->memory);
    return rc;
}

static int counts(struct connection *c, struct store_op *op)
{
    struct task_page *page = op->page;
    memset(page->by_status, 0, sizeof page->by_status);
    page->unknown = page->oldest_unknown_ms = 0;
    sqlite3_stmt *stmt = connection_statement(c, SQL_TASK_COUNTS);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        int status = sqlite3_column_int(stmt, 0);
        int64_t number = sqlite3_column_int64(stmt, 2), oldest = sqlite3_column_int64(stmt, 3);
        if (status >= 0 && status < TASK_STATUSES)
            page->by_status[status] += number;
        if (sqlite3_column_int(stmt, 1) != TASK_CAUSE_UNKNOWN)
            continue;
        page->unknown += number;
        if (!page->oldest_unknown_ms || oldest < page->oldest_unknown_ms)
            page->oldest_unknown_ms = oldest;
    }
    return rc;
}

static int audit_list(struct connection *c, struct store_op *op)
{
    struct task_page *page = op->page;
    size_t limit = page->limit && page->limit < STORE_PAGE_MAX ? page->limit : STORE_PAGE_MAX;
    size_t look_max = page->look_max ? page->look_max : STORE_LOOK_MAX, looked = 0;
    int64_t last = 0;
    page->count = page->round_count = page->audit_count = 0;
    page->next_before_id = 0;
    sqlite3_stmt *stmt = connection_statement(c, SQL_AUDIT_BEFORE);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, page->before_id ? page->before_id : INT64_MAX);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        if (page->audit_count == limit || looked == look_max) {
            page->next_before_id = last;
            rc = sqlite3_reset(stmt);
            break;
        }
        struct audit_row *audit = &page->audits[page->audit_count];
        size_t before = op->memory.len;
        audit_decode(stmt, audit, &op->memory);
        last = audit->id;
        looked++;
        struct slice tenant = audit->tenant;
        point(&tenant, &op->memory);
        if (page->has_tenant && !slice_equal(tenant, page->tenant))
            op->memory.len = before;
        else
            page->audit_count++;
    }
    if (rc == SQLITE_OK && op->memory.failed)
        rc = SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        page_point(page, &op->memory);
    return rc;
}

int sqlite_task_read(struct sqlite_store *s, struct connection *c, struct store_op *op)
{
    switch (op->kind) {
    case STORE_TASK_LIST:
        return list(c, op);
    case STORE_TASK_READ:
        return read_one(s, c, op);
    case STORE_TASK_COUNTS:
        return counts(c, op);
    case STORE_AUDIT_LIST:
        return audit_list(c, op);
    default:
        return SQLITE_MISUSE;
    }
}

int sqlite_task_write(struct sqlite_store *s, struct store_op *op)
{
    int rc;
    switch (op->kind) {
    case STORE_TASK_TAKE:
        return take(s, op);
    case STORE_TASK_ROUND:
        return write_round(s, op);
    case STORE_TASK_RESOLVE:
        return resolve(s, op);
    case STORE_TASK_RUN:
        return run_now(s, op);
    case STORE_REVERSE:
        return reverse(s, op);
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
