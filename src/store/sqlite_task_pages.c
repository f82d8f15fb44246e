/* SPDX-License-Identifier: MIT
 *
 * The pages that people read of tasks, rounds and changes. Their work is bounded, whatever is asked.
 */
#include "store/sqlite_tasks.h"

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
        return sqlite_error(c->db);
    sqlite3_bind_int64(stmt, 1, page->before_id ? page->before_id : INT64_MAX);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        if (page->count == limit || looked == look_max) {
            page->next_before_id = last;
            rc = sqlite3_reset(stmt);
            break;
        }
        struct task_row task = {0};
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
        task.owner = text_keep(&op->memory, task.owner.data, task.owner.len);
        task.last_answer = text_keep(&op->memory, task.last_answer.data, task.last_answer.len);
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
        return sqlite_error(c->db);
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
            *texts[i] = text_column(stmt, 3 + i, &op->memory);
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
            text_point(texts[j], memory);
    }
    for (size_t i = 0; i < page->audit_count; i++)
        audit_point(&page->audits[i], memory);
}

static int audits_of_call(struct connection *c, struct store_op *op, int64_t call)
{
    struct task_page *page = op->page;
    sqlite3_stmt *stmt = connection_statement(c, SQL_AUDIT_OF_CALL);
    if (!stmt)
        return sqlite_error(c->db);
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
        rc = task_call(s, c, op, call);
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
        return sqlite_error(c->db);
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
        return sqlite_error(c->db);
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
        text_point(&tenant, &op->memory);
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
