/* SPDX-License-Identifier: MIT
 *
 * What people change about compensation tasks, and the rows that say who, when and why: written in one commit with the
 * change, so that there is neither without the other.
 */
#include "store/sqlite_tasks.h"

/* ---- audit -------------------------------------------------------------------------------------------------- */

int audit_write(struct sqlite_store *s, const struct audit_row *audit)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_AUDIT_ADD);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, s->now);
    sqlite3_bind_int64(stmt, 2, audit->call);
    sqlite3_bind_int64(stmt, 3, audit->task);
    text_bind(stmt, 4, audit->who);
    text_bind(stmt, 5, audit->what);
    text_bind(stmt, 6, audit->tenant);
    text_bind(stmt, 7, audit->call_id);
    text_bind(stmt, 8, audit->evidence);
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

void audit_decode(sqlite3_stmt *stmt, struct audit_row *audit, struct buffer *memory)
{
    *audit = (struct audit_row){
        .id = sqlite3_column_int64(stmt, 0),
        .at_ms = sqlite3_column_int64(stmt, 1),
        .call = sqlite3_column_int64(stmt, 2),
        .task = sqlite3_column_int64(stmt, 3),
    };
    audit->who = text_column(stmt, 4, memory);
    audit->what = text_column(stmt, 5, memory);
    audit->tenant = text_column(stmt, 6, memory);
    audit->call_id = text_column(stmt, 7, memory);
    audit->evidence = text_column(stmt, 8, memory);
}

void audit_point(struct audit_row *audit, const struct buffer *memory)
{
    struct slice *texts[] = {&audit->who, &audit->what, &audit->tenant, &audit->call_id, &audit->evidence};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        text_point(texts[i], memory);
}

/* ---- people ------------------------------------------------------------------------------------------------- */

/* The task `op->id` and its call; op->status says where there is none. */
static int person_reads(struct sqlite_store *s, struct store_op *op, struct task_row *task)
{
    int rc = task_read(&s->writer, SQL_TASK_READ, op->id, task, &op->memory);
    if (rc == SQLITE_OK && !task->id)
        op->status = STATUS_NOT_FOUND;
    else if (rc == SQLITE_OK)
        rc = task_call(s, &s->writer, op, task->call);
    return rc;
}

/* What stands after a person's change, or instead of it. */
int person_told(struct sqlite_store *s, struct store_op *op)
{
    struct task_work *work = op->work;
    int rc = task_read(&s->writer, SQL_TASK_READ, op->id, &work->now, &op->memory);
    if (rc == SQLITE_OK)
        rc = task_call(s, &s->writer, op, work->now.call);
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

int person_resolve(struct sqlite_store *s, struct store_op *op)
{
    struct task_row task = {0};
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
        rc = task_end_call(s, op, call->id, 1u << STATE_RECEIVED | 1u << STATE_UNKNOWN | 1u << STATE_FAILED);
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

int person_run(struct sqlite_store *s, struct store_op *op)
{
    struct task_row task = {0};
    int rc = person_reads(s, op, &task);
    if (rc != SQLITE_OK || op->status != STATUS_OK)
        return rc;
    if (task.status != TASK_PENDING && task.status != TASK_MANUAL) {
        op->status = STATUS_CONFLICT;
        return person_told(s, op);
    }
    const int64_t numbers[] = {task.id, s->now, op->work->task.granted};
    rc = connection_run(&s->writer, SQL_TASK_RUN, 3, numbers);
    if (rc == SQLITE_OK)
        rc = audit_change(s, op, &task);
    if (rc == SQLITE_OK)
        rc = person_told(s, op);
    op->done = rc == SQLITE_OK;
    return rc;
}
