/* SPDX-License-Identifier: MIT
 *
 * Compensation tasks, kept requests, reversals and what people changed: what store/tasks.h promises, in PostgreSQL.
 *
 * Several gateways take tasks, so a lease alone says whose a RUNNING task is, by the database's clock; a take skips the
 * tasks that another one is taking, and no round is run twice.
 *
 * Texts of tasks are gathered in the operation's memory as offsets, since it may still move; pg_task_told() reads the
 * call's rows after the COMMIT, and makes pointers of all.
 */
#include "store/postgres.h"

#include <stdio.h>

#define TASKS_GONE_MAX 16 /* tasks without a call that one take closes on its way */
#define TASK_COLUMNS                                                                                         \
    "id, call, status, cause, round, granted, due_ms, created_ms, updated_ms, lease_end_ms, fence, tell, "   \
    "tell_tries,"                                                                                            \
    " tell_due_ms, owner, last_answer"

/* ---- texts ---- */

static struct slice keep(struct buffer *memory, struct slice text)
{
    if (!text.len)
        return slice_of(NULL, 0);
    size_t offset = memory->len;
    buffer_slice(memory, text);
    return slice_of((const char *)(uintptr_t)offset, text.len);
}

static void point(struct slice *text, const struct buffer *memory)
{
    if (text->len)
        text->data = memory->data + (uintptr_t)text->data;
}

static void task_decode(const PGresult *result, int at, struct task_row *task, struct buffer *memory)
{
    *task = (struct task_row){
        .id = pg_number(result, at, 0),
        .call = pg_number(result, at, 1),
        .status = (enum task_status)pg_number(result, at, 2),
        .cause = (enum task_cause)pg_number(result, at, 3),
        .round = (int)pg_number(result, at, 4),
        .granted = (int)pg_number(result, at, 5),
        .due_ms = pg_number(result, at, 6),
        .created_ms = pg_number(result, at, 7),
        .updated_ms = pg_number(result, at, 8),
        .lease_end_ms = pg_number(result, at, 9),
        .fence = pg_number(result, at, 10),
        .tell = (enum task_tell)pg_number(result, at, 11),
        .tell_tries = (int)pg_number(result, at, 12),
        .tell_due_ms = pg_number(result, at, 13),
    };
    task->owner = keep(memory, pg_bytes(result, at, 14));
    task->last_answer = keep(memory, pg_bytes(result, at, 15));
}

static void task_point(struct task_row *task, const struct buffer *memory)
{
    struct slice *texts[] = {&task->owner,    &task->last_answer, &task->tenant,       &task->route,
                             &task->call_id,  &task->key,         &task->business_ref, &task->trace_id,
                             &task->reverses, &task->reversed_by};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        point(texts[i], memory);
}

/* What people see of the call beside its task. */
static void task_tell_call(struct task_row *task, const struct call_row *call, struct buffer *memory)
{
#define TEXT(name) task->name = keep(memory, call->name)
    TEXT(tenant), TEXT(route), TEXT(call_id), TEXT(key), TEXT(business_ref), TEXT(trace_id), TEXT(reverses);
    TEXT(reversed_by);
#undef TEXT
    task->call_state = call->state;
    task->call_final = call->final;
    task->call_reason = call->reason;
    task->call_created_ms = call->created_ms;
    task->call_ended_ms = call->ended_ms;
}

/* Runs a statement with arguments, which are emptied; *rows of it, where asked for. */
static enum pg_fault change(struct pg_link *l, const char *sql, struct pg_args *args, int *rows)
{
    PGresult *result = NULL;
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, sql, args, &result);
    if (fault == PG_OK && rows)
        *rows = PQntuples(result);
    PQclear(result);
    pg_args_fini(args);
    return fault;
}

static enum pg_fault change_number(struct pg_link *l, const char *sql, int64_t number)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, number);
    return change(l, sql, &args, NULL);
}

/* One task by a number; task->id 0: there is none. */
static enum pg_fault task_read(struct pg_link *l, const char *where, int64_t number, struct task_row *task,
                               struct buffer *memory)
{
    char sql[400];
    struct pg_args args = {0};
    PGresult *result = NULL;
    snprintf(sql, sizeof sql, "SELECT " TASK_COLUMNS " FROM samekey_store.compensation WHERE %s", where);
    (void)pg_arg_number(&args, number);
    memset(task, 0, sizeof *task);
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, sql, &args, &result);
    if (fault == PG_OK && PQntuples(result) == 1)
        task_decode(result, 0, task, memory);
    PQclear(result);
    pg_args_fini(&args);
    return fault;
}

/* What a task's operation has to know of its call: locked, without its texts. id 0: it is gone. */
static enum pg_fault call_lock(struct pg_link *l, int64_t id, struct call_row *call)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    memset(call, 0, sizeof *call);
    (void)pg_arg_number(&args, id);
    enum pg_fault fault = pg_run(l, PG_SQL_NONE,
                                 "SELECT id, state, final, original, reversed_by IS NOT NULL, result_day "
                                 "FROM samekey_store.call WHERE id = $1"
                                 " FOR UPDATE",
                                 &args, &result);
    if (fault == PG_OK && PQntuples(result) == 1) {
        call->id = pg_number(result, 0, 0);
        call->state = (enum call_state)pg_number(result, 0, 1);
        call->final = pg_number(result, 0, 2) != 0;
        call->original = pg_number(result, 0, 3);
        call->has_result = pg_number(result, 0, 4) != 0;   /* here: it has been reversed */
        call->result_expires_ms = pg_number(result, 0, 5); /* here: the day of its body */
    }
    PQclear(result);
    pg_args_fini(&args);
    return fault;
}

/* ---- made, settled, removed ---- */

enum pg_fault pg_task_add(struct pg_link *l, int64_t call, int64_t due_ms, enum task_cause cause, int *rows)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, call);
    (void)pg_arg_number(&args, due_ms);
    (void)pg_arg_number(&args, (int64_t)cause);
    return change(
        l,
        "INSERT INTO samekey_store.compensation AS t(call, due_ms, created_ms, updated_ms, cause)"
        " SELECT $1, coalesce(nullif($2, 0), m.now), m.now, m.now, $3::smallint"
        " FROM (SELECT samekey_store.now_ms() AS now OFFSET 0) m ON CONFLICT(call) DO UPDATE SET status = 0,"
        " granted = t.round, due_ms = excluded.due_ms, updated_ms = excluded.updated_ms, cause = "
        "excluded.cause,"
        " tell = 0 WHERE t.status NOT IN (0, 1, 4) RETURNING 1",
        &args, rows);
}

enum pg_fault pg_task_settle(struct pg_link *l, int64_t call, enum call_state state)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, call);
    (void)pg_arg_number(&args, (int64_t)state);
    return change(l,
                  "UPDATE samekey_store.compensation SET status = CASE WHEN cause = 3 AND $2 = 3 THEN 3 WHEN "
                  "cause = 3 THEN 4"
                  " ELSE 2 END, tell = CASE WHEN cause = 3 AND $2 = 4 THEN 1 ELSE 0 END, tell_tries = 0,"
                  " tell_due_ms = samekey_store.now_ms(), updated_ms = samekey_store.now_ms()"
                  " WHERE call = $1 AND status IN (0, 1, 4)",
                  &args, NULL);
}

enum pg_fault pg_kept_write(struct pg_link *l, int64_t call, const struct kept_request *kept)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, call);
    (void)pg_arg_bytes(&args, kept->method);
    (void)pg_arg_bytes(&args, kept->target);
    (void)pg_arg_bytes(&args, kept->lines);
    (void)pg_arg_bytes(&args, kept->body);
    (void)pg_arg_bytes(&args, kept->reversal);
    (void)pg_arg_number(&args, kept->has);
    return change(
        l,
        "INSERT INTO samekey_store.kept(call, method, target, lines, body, reversal) VALUES($1, $2, $3, $4,"
        " CASE WHEN $7 <> 0 THEN $5 END, nullif($6, '')) ON CONFLICT(call) DO UPDATE SET method = "
        "excluded.method,"
        " target = excluded.target, lines = excluded.lines, body = excluded.body, reversal = "
        "excluded.reversal",
        &args, NULL);
}

enum pg_fault pg_kept_settle(struct pg_link *l, int64_t call, enum call_state state)
{
    if (state == STATE_FAILED)
        return change_number(l, "DELETE FROM samekey_store.kept WHERE call = $1", call);
    enum pg_fault fault =
        change_number(l, "DELETE FROM samekey_store.kept WHERE call = $1 AND reversal IS NULL", call);
    /* After SUCCESS only what a reversal needs stays. */
    return fault == PG_OK
               ? change_number(l, "UPDATE samekey_store.kept SET body = NULL WHERE call = $1", call)
               : fault;
}

static enum pg_fault kept_read(struct pg_link *l, int64_t call, struct kept_request *kept,
                               struct buffer *memory)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    memset(kept, 0, sizeof *kept);
    (void)pg_arg_number(&args, call);
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               "SELECT method, target, lines, body, reversal FROM samekey_store.kept WHERE call = $1", &args,
               &result);
    if (fault == PG_OK && PQntuples(result) == 1) {
        kept->method = keep(memory, pg_bytes(result, 0, 0));
        kept->target = keep(memory, pg_bytes(result, 0, 1));
        kept->lines = keep(memory, pg_bytes(result, 0, 2));
        kept->has = !PQgetisnull(result, 0, 3);
        kept->body = keep(memory, pg_bytes(result, 0, 3));
        kept->reversal = keep(memory, pg_bytes(result, 0, 4));
    }
    PQclear(result);
    pg_args_fini(&args);
    return fault;
}

static void kept_point(struct kept_request *kept, const struct buffer *memory)
{
    struct slice *texts[] = {&kept->method, &kept->target, &kept->lines, &kept->body, &kept->reversal};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        point(texts[i], memory);
}

/* ---- what people changed ---- */

static enum pg_fault audit_write(struct pg_link *l, const struct audit_row *audit)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, audit->call);
    (void)pg_arg_number(&args, audit->task);
    (void)pg_arg_bytes(&args, audit->who);
    (void)pg_arg_bytes(&args, audit->what);
    (void)pg_arg_bytes(&args, audit->tenant);
    (void)pg_arg_bytes(&args, audit->call_id);
    (void)pg_arg_bytes(&args, audit->evidence);
    return change(l,
                  "INSERT INTO samekey_store.audit(at_ms, call, task, who, what, tenant, call_id, evidence)"
                  " VALUES(samekey_store.now_ms(), $1, $2, $3, $4, $5, $6, $7)",
                  &args, NULL);
}

/* Of a change on a stored call, whose texts the statement takes from its row. */
static enum pg_fault audit_change(struct pg_link *l, const struct store_op *op, int64_t call, int64_t task)
{
    struct pg_args args = {0};
    const struct audit_row *audit = &op->work->audit;
    (void)pg_arg_number(&args, call);
    (void)pg_arg_number(&args, task);
    (void)pg_arg_bytes(&args, audit->who);
    (void)pg_arg_bytes(&args, audit->what);
    (void)pg_arg_bytes(&args, audit->evidence);
    return change(
        l,
        "INSERT INTO samekey_store.audit(at_ms, call, task, who, what, tenant, call_id, evidence)"
        " SELECT samekey_store.now_ms(), $1, $2, $3, $4, c.tenant, c.call_id, $5 FROM (SELECT $1 AS id) a"
        " LEFT JOIN samekey_store.call c ON c.id = a.id",
        &args, NULL);
}

#define AUDIT_COLUMNS "id, at_ms, call, task, who, what, tenant, call_id, evidence"

static void audit_decode(const PGresult *result, int at, struct audit_row *audit, struct buffer *memory)
{
    *audit = (struct audit_row){
        .id = pg_number(result, at, 0),
        .at_ms = pg_number(result, at, 1),
        .call = pg_number(result, at, 2),
        .task = pg_number(result, at, 3),
    };
    struct slice *texts[] = {&audit->who, &audit->what, &audit->tenant, &audit->call_id, &audit->evidence};
    for (int i = 0; i < 5; i++)
        *texts[i] = keep(memory, pg_bytes(result, at, 4 + i));
}

/* ---- rounds ---- */

static enum pg_fault round_write(struct pg_link *l, const struct round_row *round)
{
    struct pg_args args = {0};
    const struct slice texts[] = {round->asked,    round->answer,   round->ours, round->difference,
                                  round->decision, round->evidence, round->owner};
    (void)pg_arg_number(&args, round->task);
    (void)pg_arg_number(&args, round->n);
    (void)pg_arg_number(&args, round->at_ms);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        (void)pg_arg_bytes(&args, texts[i]);
    return change(l,
                  "INSERT INTO samekey_store.compensation_round(task, n, at_ms, ended_ms, asked, answer, "
                  "ours, difference,"
                  " decision, evidence, owner) VALUES($1, $2::int, $3, samekey_store.now_ms(), $4, $5, $6, "
                  "$7, $8, $9, $10)"
                  " ON CONFLICT DO NOTHING",
                  &args, NULL);
}

/* The row of a round whose process died or lost it. */
static enum pg_fault round_interrupted(struct pg_link *l, const struct task_row *task,
                                       const struct buffer *memory)
{
    struct task_row was = *task;
    task_point(&was, memory);
    struct round_row round = {
        .task = was.id,
        .n = was.round,
        .at_ms = was.updated_ms,
        .answer = slice_text("interrupted"),
        .decision = slice_text("next round"),
        .evidence =
            slice_text("The process that worked on this round stopped before it could write what it found."),
        .owner = was.owner,
    };
    return round_write(l, &round);
}

static enum pg_fault task_status(struct pg_link *l, int64_t id, enum task_status status)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, id);
    (void)pg_arg_number(&args, (int64_t)status);
    return change(l,
                  "UPDATE samekey_store.compensation SET status = $2::smallint, updated_ms = "
                  "samekey_store.now_ms(), tell = 0,"
                  " owner = NULL, lease_end_ms = 0 WHERE id = $1",
                  &args, NULL);
}

/* The number one statement gives, or 0. */
static enum pg_fault next_id(struct pg_link *l, const char *sql, int64_t *id)
{
    PGresult *result = NULL;
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, sql, NULL, &result);
    *id = fault == PG_OK && PQntuples(result) ? pg_number(result, 0, 0) : 0;
    PQclear(result);
    return fault;
}

static enum pg_fault take(struct pg_link *l, struct store_op *op)
{
    struct task_work *work = op->work;
    enum pg_fault fault = PG_OK;
    memset(&work->now, 0, sizeof work->now);
    for (int gone = 0; fault == PG_OK && gone < TASKS_GONE_MAX; gone++) {
        int64_t id = 0;
        struct task_row task;
        struct call_row call;
        fault = next_id(
            l,
            "WITH m AS MATERIALIZED (SELECT samekey_store.now_ms() AS now)"
            " SELECT t.id FROM m, samekey_store.compensation t WHERE t.status IN (0, 1) AND t.due_ms <= m.now"
            " AND (t.status = 0 OR t.lease_end_ms <= m.now) ORDER BY t.due_ms LIMIT 1 FOR UPDATE OF t SKIP "
            "LOCKED",
            &id);
        if (fault != PG_OK || !id)
            return fault;
        fault = task_read(l, "id = $1", id, &task, &op->memory);
        if (fault == PG_OK)
            fault = call_lock(l, task.call, &call);
        if (fault == PG_OK && !call.id) {
            fault = task_status(l, id, TASK_CLOSED);
            continue;
        }
        if (fault == PG_OK && task.status == TASK_RUNNING)
            fault = round_interrupted(l, &task, &op->memory);
        struct pg_args args = {0};
        (void)pg_arg_number(&args, id);
        (void)pg_arg_bytes(&args, work->task.owner);
        (void)pg_arg_number(&args, work->task.lease_end_ms);
        if (fault == PG_OK)
            fault = change(
                l,
                "UPDATE samekey_store.compensation SET status = 1, owner = $2, lease_end_ms = $3,"
                " fence = fence + 1, round = round + 1, updated_ms = samekey_store.now_ms() WHERE id = $1",
                &args, NULL);
        else
            pg_args_fini(&args);
        if (fault == PG_OK)
            fault = task_read(l, "id = $1", id, &work->now, &op->memory);
        if (fault == PG_OK)
            fault = kept_read(l, task.call, &work->kept, &op->memory);
        op->done = fault == PG_OK;
        break;
    }
    return fault;
}

/* Ends the call inside the operation, as an outsider; op->status CONFLICT where it stands otherwise. */
static enum pg_fault end_call(struct pg_link *l, struct store_op *op, int64_t call, unsigned from_states,
                              int64_t now_ms)
{
    int64_t id = op->id;
    unsigned from = op->from_states;
    bool any = op->any_fence, make = op->make_task, drop = op->drop_kept;
    op->id = call;
    op->from_states = from_states;
    op->any_fence = true;
    op->make_task = false;
    op->drop_kept = true;
    enum pg_fault fault = pg_end_one(l, op, now_ms);
    op->id = id;
    op->from_states = from;
    op->any_fence = any;
    op->make_task = make;
    op->drop_kept = drop;
    op->done = false;
    return fault;
}

static enum pg_fault write_round(struct pg_link *l, struct store_op *op, int64_t now_ms)
{
    struct task_work *work = op->work;
    const struct task_row *next = &work->task;
    struct task_row task;
    enum pg_fault fault = task_read(l, "id = $1 FOR UPDATE", next->id, &task, &op->memory);
    if (fault != PG_OK)
        return fault;
    work->now = task;
    if (!task.id || task.fence != next->fence) {
        op->status = STATUS_CONFLICT;
        return PG_OK;
    }
    if (work->end_call) {
        fault = end_call(l, op, op->id, op->from_states, now_ms);
        if (fault != PG_OK || op->status != STATUS_OK)
            return fault;
        /* The ending settled the task's row, which is still this owner's to write. */
        fault = task_read(l, "id = $1", next->id, &work->now, &op->memory);
    } else if (op->drop_kept) {
        fault = change_number(l, "DELETE FROM samekey_store.kept WHERE call = $1", task.call);
    }
    struct round_row round = work->round;
    round.task = next->id;
    round.n = task.round;
    if (!round.at_ms)
        round.at_ms = task.updated_ms;
    round.owner = next->owner;
    if (fault == PG_OK)
        fault = round_write(l, &round);
    struct pg_args args = {0};
    (void)pg_arg_number(&args, next->id);
    (void)pg_arg_bytes(&args, round.answer);
    if (task.status == TASK_RUNNING) {
        (void)pg_arg_number(&args, (int64_t)next->status);
        (void)pg_arg_number(&args, next->due_ms);
        (void)pg_arg_number(&args, (int64_t)next->tell);
        (void)pg_arg_number(&args, next->tell_due_ms);
    }
    if (fault == PG_OK)
        fault = change(
            l,
            task.status == TASK_RUNNING
                ? "UPDATE samekey_store.compensation SET status = $3::smallint, due_ms = $4, tell = "
                  "$5::smallint,"
                  " tell_due_ms = $6, tell_tries = 0, updated_ms = samekey_store.now_ms(), owner = NULL,"
                  " lease_end_ms = 0, last_answer = $2 WHERE id = $1"
                : "UPDATE samekey_store.compensation SET last_answer = $2 WHERE id = $1",
            &args, NULL);
    else
        pg_args_fini(&args);
    if (fault == PG_OK && task.status == TASK_RESOLVED && next->status == TASK_REVERSED)
        fault = task_status(l, next->id, TASK_REVERSED);
    if (fault == PG_OK)
        fault = task_read(l, "id = $1", next->id, &work->now, &op->memory);
    op->done = fault == PG_OK;
    return fault;
}

/* ---- people ---- */

static enum pg_fault person(struct pg_link *l, struct store_op *op, int64_t now_ms)
{
    struct task_work *work = op->work;
    struct call_row call;
    bool run = op->kind == STORE_TASK_RUN;
    enum pg_fault fault = task_read(l, "id = $1 FOR UPDATE", op->id, &work->now, &op->memory);
    if (fault != PG_OK)
        return fault;
    const struct task_row task = work->now;
    if (!task.id) {
        op->status = STATUS_NOT_FOUND;
        return PG_OK;
    }
    fault = call_lock(l, task.call, &call);
    bool open = task.status == TASK_PENDING || task.status == TASK_MANUAL;
    if (fault == PG_OK && (!open || (!run && call.id && call.state == STATE_PROCESSING))) {
        op->status = STATUS_CONFLICT;
        return PG_OK;
    }
    if (fault == PG_OK && run) {
        struct pg_args args = {0};
        (void)pg_arg_number(&args, task.id);
        (void)pg_arg_number(&args, work->task.granted);
        fault = change(
            l,
            "UPDATE samekey_store.compensation"
            " SET granted = CASE WHEN status = 4 THEN greatest(granted + 1, $2::int) ELSE granted END, "
            "status = 0,"
            " due_ms = samekey_store.now_ms(), updated_ms = samekey_store.now_ms(), tell = 0 WHERE id = $1",
            &args, NULL);
    } else if (fault == PG_OK) {
        enum task_status status = TASK_RESOLVED;
        if (call.id && !call.final) {
            op->row.final = true;
            op->row.reason = REASON_PERSON;
            fault = end_call(l, op, call.id, 1u << STATE_RECEIVED | 1u << STATE_UNKNOWN | 1u << STATE_FAILED,
                             now_ms);
            if (fault != PG_OK || op->status != STATUS_OK)
                return fault;
        } else if (!call.id || call.state != op->row.state) {
            status = TASK_CLOSED;
        }
        if (fault == PG_OK)
            fault = task_status(l, task.id, status);
    }
    if (fault == PG_OK)
        fault = audit_change(l, op, task.call, task.id);
    if (fault == PG_OK)
        fault = task_read(l, "id = $1", task.id, &work->now, &op->memory);
    op->done = fault == PG_OK;
    return fault;
}

static enum pg_fault tell_take(struct pg_link *l, struct store_op *op)
{
    struct task_work *work = op->work;
    int64_t id = 0;
    memset(&work->now, 0, sizeof work->now);
    enum pg_fault fault =
        next_id(l,
                "SELECT t.id FROM samekey_store.compensation t WHERE t.tell = 1"
                " AND t.tell_due_ms <= samekey_store.now_ms() ORDER BY t.tell_due_ms LIMIT 1"
                " FOR UPDATE OF t SKIP LOCKED",
                &id);
    if (fault != PG_OK || !id)
        return fault;
    struct pg_args args = {0};
    (void)pg_arg_number(&args, id);
    (void)pg_arg_number(&args, work->task.tell_due_ms);
    fault = change(
        l,
        "UPDATE samekey_store.compensation SET tell_tries = tell_tries + 1, tell_due_ms = $2 WHERE id = $1",
        &args, NULL);
    if (fault == PG_OK)
        fault = task_read(l, "id = $1", id, &work->now, &op->memory);
    op->done = fault == PG_OK;
    return fault;
}

static enum pg_fault tell_done(struct pg_link *l, struct store_op *op)
{
    const struct task_row *task = &op->work->task;
    struct pg_args args = {0};
    int rows = 0;
    (void)pg_arg_number(&args, op->id);
    (void)pg_arg_number(&args, (int64_t)task->tell);
    (void)pg_arg_number(&args, task->tell_due_ms);
    (void)pg_arg_number(&args, task->tell_tries);
    enum pg_fault fault = change(l,
                                 "UPDATE samekey_store.compensation SET tell = $2::smallint, tell_due_ms = $3"
                                 " WHERE id = $1 AND tell = 1 AND tell_tries = $4 RETURNING 1",
                                 &args, &rows);
    op->done = fault == PG_OK && rows == 1;
    return fault;
}

/* ---- reversal, erasing ---- */

static enum pg_fault set_reversed(struct pg_link *l, int64_t id, struct slice reversed_by)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, id);
    (void)pg_arg_bytes(&args, reversed_by);
    return change(l,
                  "UPDATE samekey_store.call SET reversed_by = $2, updated_ms = samekey_store.now_ms(), "
                  "fence = fence + 1"
                  " WHERE id = $1", /* the fence rises, so that nobody takes the key who has not seen it */
                  &args, NULL);
}

/* What was kept of the effect's own call, made the request of its reversal: its header lines, no body. */
static enum pg_fault reversal_kept(struct pg_link *l, int64_t effect, struct kept_request *out,
                                   struct buffer *memory)
{
    enum pg_fault fault = kept_read(l, effect, out, memory);
    if (fault != PG_OK || memory->failed)
        return fault == PG_OK ? PG_FAILED : fault;
    kept_point(out, memory);
    const char *space = out->reversal.len ? memchr(out->reversal.data, ' ', out->reversal.len) : NULL;
    out->has = space != NULL;
    if (space) {
        out->method = slice_of(out->reversal.data, (size_t)(space - out->reversal.data));
        out->target = slice_of(space + 1, out->reversal.len - out->method.len - 1);
    }
    out->body = out->reversal = slice_of(NULL, 0);
    return PG_OK;
}

static enum pg_fault reverse(struct pg_link *l, struct store_op *op)
{
    struct call_row call, effect;
    struct kept_request kept;
    struct buffer memory = {0};
    const struct kept_request *keeps = op->keep;
    int64_t id = 0;
    enum pg_fault fault = call_lock(l, op->id, &call);
    effect = call;
    if (fault == PG_OK && call.id && call.original)
        fault = call_lock(l, call.original, &effect);
    if (fault == PG_OK && !effect.id) {
        op->status = STATUS_NOT_FOUND;
        goto done;
    }
    /* Where the key of a call that FAILED is another's by now, what undoes the one would undo the other. */
    int64_t taken = 0;
    if (fault == PG_OK && effect.state == STATE_FAILED) {
        char sql[160];
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM samekey_store.call WHERE id = %lld AND slot_digest IS NULL"
                 " AND operation_digest IS NOT NULL",
                 (long long)effect.id);
        fault = next_id(l, sql, &taken);
    }
    if (fault == PG_OK && effect.has_result) {
        if (!call.has_result) {
            struct pg_args args = {0};
            (void)pg_arg_number(&args, call.id);
            (void)pg_arg_number(&args, effect.id);
            fault = change(l,
                           "UPDATE samekey_store.call c SET reversed_by = e.reversed_by, updated_ms = "
                           "samekey_store.now_ms()"
                           " FROM samekey_store.call e WHERE c.id = $1 AND e.id = $2",
                           &args, NULL);
        }
    } else if (fault == PG_OK && 1u << effect.state & op->from_states && !taken) {
        if (!keeps) {
            fault = reversal_kept(l, effect.id, &kept, &memory);
            if (fault == PG_OK && !kept.has) {
                op->status = STATUS_NOT_FOUND;
                goto done;
            }
            keeps = &kept;
        }
        struct call_row row = op->row;
        row.state = STATE_RECEIVED;
        if (fault == PG_OK)
            fault = pg_claim_one(l, &row, row.has_key, &id);
        if (fault == PG_OK && id)
            fault = pg_kept_write(l, id, keeps);
        if (fault == PG_OK && id)
            fault = pg_task_add(l, id, 0, TASK_CAUSE_REVERSAL, NULL);
        if (fault == PG_OK && id)
            fault = set_reversed(l, effect.id, op->row.call_id);
        if (fault == PG_OK && id && call.id != effect.id)
            fault = set_reversed(l, call.id, op->row.call_id);
        op->done = fault == PG_OK && id;
    }
done:
    buffer_fini(&memory);
    return fault;
}

static enum pg_fault erase(struct pg_link *l, struct store_op *op)
{
    struct call_row call, owner;
    char sql[120];
    enum pg_fault fault = call_lock(l, op->id, &call);
    if (fault == PG_OK && (!call.id || !call.final))
        op->status = call.id ? STATUS_CONFLICT : STATUS_NOT_FOUND; /* its bodies are still needed */
    if (fault != PG_OK || op->status != STATUS_OK)
        return fault;
    owner = call;
    if (call.original)
        fault = call_lock(l, call.original, &owner);
    int64_t day = owner.result_expires_ms, there = 0;
    snprintf(sql, sizeof sql, "SELECT (to_regclass('samekey_store.result_%lld') IS NOT NULL)::int",
             (long long)day);
    if (fault == PG_OK && day)
        fault = next_id(l, sql, &there);
    snprintf(sql, sizeof sql, "DELETE FROM samekey_store.result_%lld WHERE id = $1", (long long)day);
    if (fault == PG_OK && there)
        fault = change_number(l, sql, owner.id);
    if (fault == PG_OK)
        fault = change_number(
            l, "UPDATE samekey_store.call SET flags = (flags & ~4)::smallint, result_day = 0 WHERE id = $1",
            owner.id);
    if (fault == PG_OK)
        fault = change_number(l, "UPDATE samekey_store.kept SET lines = NULL, body = NULL WHERE call = $1",
                              call.id);
    if (fault == PG_OK && owner.id != call.id)
        fault = change_number(l, "UPDATE samekey_store.kept SET lines = NULL, body = NULL WHERE call = $1",
                              owner.id);
    if (fault == PG_OK)
        fault = audit_change(l, op, call.id, 0);
    op->done = fault == PG_OK;
    return fault;
}

enum pg_fault pg_task_write(struct pg_link *l, struct store_op *op, int64_t now_ms)
{
    enum pg_fault fault;
    switch (op->kind) {
    case STORE_TASK_TAKE:
        return take(l, op);
    case STORE_TASK_ROUND:
        return write_round(l, op, now_ms);
    case STORE_TASK_RESOLVE:
    case STORE_TASK_RUN:
        return person(l, op, now_ms);
    case STORE_TELL_TAKE:
        return tell_take(l, op);
    case STORE_TELL_DONE:
        return tell_done(l, op);
    case STORE_REVERSE:
        return reverse(l, op);
    case STORE_ERASE:
        return erase(l, op);
    case STORE_AUDIT:
        fault = audit_write(l, &op->work->audit);
        op->done = fault == PG_OK;
        return fault;
    case STORE_SKETCH: /* lists need none here */
        return PG_OK;
    default:
        op->status = STATUS_INVALID;
        return PG_OK;
    }
}

/* The row of a call with its holder, into rows; the texts of tasks before it stay. */
static enum pg_fault call_told(struct pg_link *l, struct store_op *op, int64_t id, struct task_row *task)
{
    struct pg_rows found;
    struct rows rows = {0};
    pg_rows_begin(&found);
    pg_rows_id(&found, id);
    enum pg_fault fault = pg_rows_read(&found, l, false, true);
    const struct call_row *call = fault == PG_OK ? pg_rows_find_id(&found, id) : NULL;
    const struct call_row *holder =
        call && call->has_key ? pg_rows_find_slot(&found, &call->operation_digest) : NULL;
    if (fault == PG_OK) {
        rows.now_ms = found.moment.now_ms;
        rows.covers_since_ms = found.moment.covers_since_ms;
        rows.refuse_before_ms = found.moment.refuse_before_ms;
        if (call)
            rows.call = *call;
        if (holder)
            rows.holder = *holder;
        if (call && task)
            task_tell_call(task, call, &op->memory);
        rows_copy(&op->rows, &op->memory, &rows);
    }
    pg_rows_end(&found);
    return fault;
}

enum pg_fault pg_task_told(struct pg_link *l, struct store_op *op)
{
    struct task_work *work = op->work;
    enum pg_fault fault = PG_OK;
    bool by_call = op->kind == STORE_REVERSE || op->kind == STORE_ERASE;
    bool by_task = op->kind == STORE_TASK_TAKE || op->kind == STORE_TASK_ROUND ||
                   op->kind == STORE_TASK_RESOLVE || op->kind == STORE_TASK_RUN ||
                   op->kind == STORE_TELL_TAKE;
    int64_t call = by_call                                                      ? op->id
                   : by_task && work->end_call && op->status == STATUS_CONFLICT ? op->id
                   : by_task                                                    ? work->now.call
                                                                                : 0;
    if (call)
        fault = call_told(l, op, call, by_task ? &work->now : NULL);
    if (by_task && !op->memory.failed)
        task_point(&work->now, &op->memory);
    if (op->kind == STORE_TASK_TAKE && op->done && !op->memory.failed)
        kept_point(&work->kept, &op->memory);
    return fault;
}

/* ---- reading ---- */

static enum pg_fault list(struct pg_link *l, struct store_op *op)
{
    struct task_page *page = op->page;
    struct pg_args args = {0};
    PGresult *result = NULL;
    int64_t limit = page->limit && page->limit < STORE_PAGE_MAX ? (int64_t)page->limit : STORE_PAGE_MAX;
    int64_t look = page->look_max ? (int64_t)page->look_max : STORE_LOOK_MAX;
    page->count = 0;
    page->next_before_id = page->reached_ms = 0;
    (void)pg_arg_number(&args, page->before_id ? page->before_id : INT64_MAX);
    (void)pg_arg_number(&args, look);
    (void)pg_arg_number(&args, page->statuses ? (int64_t)page->statuses : -1);
    (void)pg_arg_number(&args, page->has_tenant);
    (void)pg_arg_bytes(&args, page->tenant);
    (void)pg_arg_bytes(&args, page->route);
    (void)pg_arg_number(&args, page->since_ms);
    (void)pg_arg_number(&args, page->until_ms ? page->until_ms : INT64_MAX);
    (void)pg_arg_number(&args, limit);
    /* A row for each that fits, and one, the last, for where the looking ended. */
    enum pg_fault fault = pg_read(
        l, PG_SQL_NONE,
        "WITH looked AS MATERIALIZED (SELECT * FROM samekey_store.compensation WHERE id < $1 ORDER BY id "
        "DESC LIMIT $2),"
        " fits AS MATERIALIZED (SELECT t.*, c.tenant, c.route, c.call_id, c.key, c.business_ref, c.trace_id, "
        "c.reverses,"
        " c.reversed_by, c.state, c.final, c.reason, c.created_ms AS call_created_ms, c.ended_ms FROM looked "
        "t"
        " JOIN samekey_store.call c ON c.id = t.call WHERE (1 << t.status) & $3::int <> 0"
        " AND ($4 = 0 OR coalesce(c.tenant, '') = $5) AND (length($6) = 0 OR coalesce(c.route, '') = $6)"
        " AND t.created_ms >= $7 AND t.created_ms < $8 ORDER BY t.id DESC LIMIT $9 + 1)"
        " SELECT 0 AS kind, " TASK_COLUMNS
        ", tenant, route, call_id, key, business_ref, trace_id, reverses, reversed_by,"
        " state, final, reason, call_created_ms, ended_ms FROM fits"
        " UNION ALL SELECT 1, min(id), count(*), 0, 0, 0, 0, 0, min(created_ms), 0, 0, 0, 0, 0, 0, NULL, "
        "NULL, NULL, NULL, NULL,"
        " NULL, NULL, NULL, NULL, NULL, 0, false, 0, 0, 0 FROM looked ORDER BY kind, id DESC",
        &args, &result);
    pg_args_fini(&args);
    if (fault != PG_OK)
        return fault;
    int rows = PQntuples(result);
    for (int i = 0; i < rows; i++) {
        if (pg_number(result, i, 0)) {
            if (!page->next_before_id && pg_number(result, i, 2) == look)
                page->next_before_id = pg_number(result, i, 1);
            if (!page->reached_ms)
                page->reached_ms = pg_number(result, i, 8);
            continue;
        }
        if ((int64_t)page->count == limit) { /* there is another: the next page begins with it */
            page->next_before_id = page->tasks[page->count - 1].id;
            page->reached_ms = page->tasks[page->count - 1].created_ms;
            break;
        }
        struct task_row *task = &page->tasks[page->count++];
        *task = (struct task_row){
            .id = pg_number(result, i, 1),
            .call = pg_number(result, i, 2),
            .status = (enum task_status)pg_number(result, i, 3),
            .cause = (enum task_cause)pg_number(result, i, 4),
            .round = (int)pg_number(result, i, 5),
            .granted = (int)pg_number(result, i, 6),
            .due_ms = pg_number(result, i, 7),
            .created_ms = pg_number(result, i, 8),
            .updated_ms = pg_number(result, i, 9),
            .lease_end_ms = pg_number(result, i, 10),
            .fence = pg_number(result, i, 11),
            .tell = (enum task_tell)pg_number(result, i, 12),
            .tell_tries = (int)pg_number(result, i, 13),
            .tell_due_ms = pg_number(result, i, 14),
            .call_state = (enum call_state)pg_number(result, i, 25),
            .call_final = pg_number(result, i, 26) != 0,
            .call_reason = (enum reason)pg_number(result, i, 27),
            .call_created_ms = pg_number(result, i, 28),
            .call_ended_ms = pg_number(result, i, 29),
        };
        struct slice *texts[] = {&task->owner,    &task->last_answer, &task->tenant,       &task->route,
                                 &task->call_id,  &task->key,         &task->business_ref, &task->trace_id,
                                 &task->reverses, &task->reversed_by};
        for (int j = 0; j < 10; j++)
            *texts[j] = keep(&op->memory, pg_bytes(result, i, 15 + j));
    }
    PQclear(result);
    for (size_t i = 0; i < page->count && !op->memory.failed; i++)
        task_point(&page->tasks[i], &op->memory);
    return PG_OK;
}

static enum pg_fault rounds_read(struct pg_link *l, struct store_op *op, int64_t task)
{
    struct task_page *page = op->page;
    struct pg_args args = {0};
    PGresult *result = NULL;
    (void)pg_arg_number(&args, task);
    (void)pg_arg_number(&args, STORE_ROUNDS_MAX);
    enum pg_fault fault = pg_read(
        l, PG_SQL_NONE,
        "SELECT * FROM (SELECT n, at_ms, ended_ms, asked, answer, ours, difference, decision, evidence,"
        " owner FROM samekey_store.compensation_round WHERE task = $1 ORDER BY n DESC LIMIT $2) r"
        " ORDER BY n",
        &args, &result);
    for (int i = 0; fault == PG_OK && i < PQntuples(result); i++) {
        struct round_row *round = &page->rounds[page->round_count++];
        struct slice *texts[] = {&round->asked,    &round->answer,   &round->ours, &round->difference,
                                 &round->decision, &round->evidence, &round->owner};
        round->task = task;
        round->n = (int)pg_number(result, i, 0);
        round->at_ms = pg_number(result, i, 1);
        round->ended_ms = pg_number(result, i, 2);
        for (int j = 0; j < 7; j++)
            *texts[j] = keep(&op->memory, pg_bytes(result, i, 3 + j));
    }
    PQclear(result);
    pg_args_fini(&args);
    return fault;
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
    for (size_t i = 0; i < page->audit_count; i++) {
        struct audit_row *audit = &page->audits[i];
        struct slice *texts[] = {&audit->who, &audit->what, &audit->tenant, &audit->call_id,
                                 &audit->evidence};
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
            point(texts[j], memory);
    }
}

static enum pg_fault audits_of_call(struct pg_link *l, struct store_op *op, int64_t call)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    (void)pg_arg_number(&args, call);
    (void)pg_arg_number(&args, STORE_PAGE_MAX);
    enum pg_fault fault = pg_read(l, PG_SQL_NONE,
                                  "SELECT * FROM (SELECT " AUDIT_COLUMNS
                                  " FROM samekey_store.audit WHERE call = $1 AND call <> 0"
                                  " ORDER BY id DESC LIMIT $2) a ORDER BY id",
                                  &args, &result);
    for (int i = 0; fault == PG_OK && i < PQntuples(result); i++)
        audit_decode(result, i, &op->page->audits[op->page->audit_count++], &op->memory);
    PQclear(result);
    pg_args_fini(&args);
    return fault;
}

static enum pg_fault read_one(struct pg_link *l, struct store_op *op)
{
    struct task_page *page = op->page;
    struct task_row *task = &page->tasks[0];
    page->count = page->round_count = page->audit_count = 0;
    enum pg_fault fault = op->id ? task_read(l, "id = $1", op->id, task, &op->memory)
                                 : task_read(l, "call = $1", op->row.id, task, &op->memory);
    if (fault != PG_OK)
        return fault;
    page->count = task->id != 0;
    if (op->id && !task->id) {
        op->status = STATUS_NOT_FOUND;
        return PG_OK;
    }
    int64_t call = task->id ? task->call : op->row.id;
    if (page->count)
        fault = rounds_read(l, op, task->id);
    if (fault == PG_OK)
        fault = audits_of_call(l, op, call);
    if (fault == PG_OK)
        fault = call_told(l, op, call, page->count ? task : NULL);
    if (fault == PG_OK && !op->memory.failed)
        page_point(page, &op->memory);
    return fault;
}

static enum pg_fault counts(struct pg_link *l, struct store_op *op)
{
    struct task_page *page = op->page;
    PGresult *result = NULL;
    memset(page->by_status, 0, sizeof page->by_status);
    page->unknown = page->oldest_unknown_ms = 0;
    enum pg_fault fault =
        pg_read(l, PG_SQL_NONE,
                "SELECT status, cause, count(*), min(created_ms) FROM samekey_store.compensation"
                " WHERE status IN (0, 1, 4) GROUP BY status, cause",
                NULL, &result);
    for (int i = 0; fault == PG_OK && i < PQntuples(result); i++) {
        int64_t status = pg_number(result, i, 0), number = pg_number(result, i, 2),
                oldest = pg_number(result, i, 3);
        if (status >= 0 && status < TASK_STATUSES)
            page->by_status[status] += number;
        if (pg_number(result, i, 1) != TASK_CAUSE_UNKNOWN)
            continue;
        page->unknown += number;
        if (!page->oldest_unknown_ms || oldest < page->oldest_unknown_ms)
            page->oldest_unknown_ms = oldest;
    }
    PQclear(result);
    return fault;
}

static enum pg_fault audit_list(struct pg_link *l, struct store_op *op)
{
    struct task_page *page = op->page;
    struct pg_args args = {0};
    PGresult *result = NULL;
    int64_t limit = page->limit && page->limit < STORE_PAGE_MAX ? (int64_t)page->limit : STORE_PAGE_MAX;
    page->count = page->round_count = page->audit_count = 0;
    page->next_before_id = 0;
    (void)pg_arg_number(&args, page->before_id ? page->before_id : INT64_MAX);
    (void)pg_arg_number(&args, page->has_tenant);
    (void)pg_arg_bytes(&args, page->tenant);
    (void)pg_arg_number(&args, limit);
    enum pg_fault fault = pg_read(l, PG_SQL_NONE,
                                  "SELECT " AUDIT_COLUMNS " FROM samekey_store.audit WHERE id < $1"
                                  " AND ($2 = 0 OR coalesce(tenant, '') = $3) ORDER BY id DESC LIMIT $4 + 1",
                                  &args, &result);
    pg_args_fini(&args);
    for (int i = 0; fault == PG_OK && i < PQntuples(result); i++) {
        if ((int64_t)page->audit_count == limit) {
            page->next_before_id = page->audits[page->audit_count - 1].id;
            break;
        }
        audit_decode(result, i, &page->audits[page->audit_count++], &op->memory);
    }
    PQclear(result);
    if (fault == PG_OK && !op->memory.failed)
        page_point(page, &op->memory);
    return fault;
}

enum pg_fault pg_task_read(struct pg_link *l, struct store_op *op)
{
    switch (op->kind) {
    case STORE_TASK_LIST:
        return list(l, op);
    case STORE_TASK_READ:
        return read_one(l, op);
    case STORE_TASK_COUNTS:
        return counts(l, op);
    default:
        return audit_list(l, op);
    }
}
