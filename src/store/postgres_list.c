/* SPDX-License-Identifier: MIT
 *
 * Lists of calls for people (STORE_LIST), newest first. An id holds the time at which its call was claimed, so bounds of
 * time are bounds of ids; calls without an ending have a table of their own; everything else is looked at row by row, and
 * a page looks at no more than its bound and then says where to go on.
 */
#include "store/postgres.h"

#include <stdio.h>

#define LOOK_FACTOR                                                                                          \
    5 /* rows looked at for one page, times STORE_LOOK_MAX: the database reads them, not this process */

static const char columns[] = "c.id, c.state, c.final, c.reason, c.flags, c.created_ms, c.updated_ms, "
                              "c.ended_ms, c.first_attempt_ms, c.attempt_count,"
                              " CASE WHEN c.original <> 0 THEN coalesce(o.result_status, c.result_status) "
                              "ELSE c.result_status END, c.original, c.fence,"
                              " c.credential, c.tenant, c.route, c.call_id, c.key, c.business_ref, "
                              "c.trace_id, c.reverses, c.reversed_by, o.call_id";

static struct slice *text_of(struct call_row *row, int i)
{
    struct slice *const texts[] = {&row->tenant,   &row->route,        &row->call_id,
                                   &row->key,      &row->business_ref, &row->trace_id,
                                   &row->reverses, &row->reversed_by,  &row->original_call_id};
    return i < (int)(sizeof texts / sizeof *texts) ? texts[i] : NULL;
}

static void decode(const PGresult *result, int at, struct call_row *row, struct buffer *memory)
{
    int flags = (int)pg_number(result, at, 4);
    *row = (struct call_row){
        .id = pg_number(result, at, 0),
        .state = (enum call_state)pg_number(result, at, 1),
        .final = pg_number(result, at, 2) != 0,
        .reason = (enum reason)pg_number(result, at, 3),
        .call_id_made = flags & PG_FLAG_CALL_ID_MADE,
        .maybe_ran = flags & PG_FLAG_MAYBE_RAN,
        .created_ms = pg_number(result, at, 5),
        .updated_ms = pg_number(result, at, 6),
        .ended_ms = pg_number(result, at, 7),
        .first_attempt_ms = pg_number(result, at, 8),
        .attempt_count = (int)pg_number(result, at, 9),
        .result_status = (int)pg_number(result, at, 10),
        .original = pg_number(result, at, 11),
        .fence = pg_number(result, at, 12),
    };
    row->has_result = row->result_status != 0;
    struct slice credential = pg_bytes(result, at, 13), *text;
    row->has_credential = credential.len == sizeof row->credential.bytes;
    if (row->has_credential)
        memcpy(row->credential.bytes, credential.data, credential.len);
    for (int i = 0; (text = text_of(row, i)) != NULL; i++) {
        struct slice data = pg_bytes(result, at, 14 + i);
        size_t offset = memory->len;
        buffer_slice(memory, data);
        *text = data.len ? slice_of((const char *)(uintptr_t)offset, data.len) : slice_of(NULL, 0);
    }
    row->has_key = row->key.len > 0;
}

enum pg_fault pg_list(struct pg_link *l, struct store_op *op)
{
    static const unsigned unended = 1u << STATE_RECEIVED | 1u << STATE_PROCESSING | 1u << STATE_UNKNOWN;
    struct store_list *list = op->list;
    struct pg_args args = {0};
    PGresult *result = NULL;
    struct buffer sql = {0};
    bool open = list->states && !(list->states & ~unended);
    int64_t look = list->look_max ? (int64_t)list->look_max : (int64_t)STORE_LOOK_MAX * LOOK_FACTOR;
    list->count = 0;
    list->next_before_id = list->reached_ms = 0;
    if (list->limit < 1 || list->limit > STORE_PAGE_MAX) {
        op->status = STATUS_INVALID;
        return PG_OK;
    }
    int64_t before = list->before_id ? list->before_id : INT64_MAX;
    if (list->until_ms && list->until_ms < INT64_MAX >> 20 && list->until_ms << 20 < before)
        before = list->until_ms << 20;
    (void)pg_arg_number(&args, before);
    (void)pg_arg_number(&args,
                        list->since_ms > 0 && list->since_ms < INT64_MAX >> 20 ? list->since_ms << 20 : 0);
    (void)pg_arg_number(&args, look);
    (void)pg_arg_number(&args, (int64_t)list->limit + 1);
    (void)pg_arg_number(&args, list->states ? (int64_t)list->states : -1);
    /* The ids that are looked at come first, and of them the last one: where to go on. */
    buffer_format(
        &sql,
        "WITH looked AS MATERIALIZED (SELECT id FROM samekey_store.%s WHERE id < $1 AND id >= $2 ORDER BY id "
        "DESC"
        " LIMIT $3), edge AS (SELECT min(id) AS id, count(*) AS n FROM looked)"
        " SELECT %s, e.id, e.n FROM edge e LEFT JOIN (SELECT c.* FROM samekey_store.call c JOIN "
        "samekey_store.%s k"
        " ON k.id = c.id WHERE k.id < $1 AND k.id >= coalesce((SELECT id FROM edge), 0) AND k.id >= $2"
        " AND (1 << c.state) & $5::int <> 0",
        open ? "open_call" : "call", columns, open ? "open_call" : "call");
    const struct {
        const char *column;
        bool asked;
        struct slice text;
    } filters[] = {
        {"tenant", list->has_tenant, list->tenant},
        {"route", list->route.len > 0, list->route},
        {"call_id", list->call_id.len > 0, list->call_id},
        {"key", list->key.len > 0, list->key},
        {"business_ref", list->business_ref.len > 0, list->business_ref},
        {"trace_id", list->trace_id.len > 0, list->trace_id},
    };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (filters[i].asked)
            buffer_format(&sql, " AND coalesce(c.%s, '') = $%d", filters[i].column,
                          pg_arg_bytes(&args, filters[i].text) + 1);
    buffer_text(
        &sql,
        " ORDER BY c.id DESC LIMIT $4) c ON true LEFT JOIN samekey_store.call o ON o.id = c.original AND"
        " c.original <> 0 ORDER BY c.id DESC");
    enum pg_fault fault =
        sql.failed ? PG_FAILED : pg_read(l, PG_SQL_NONE, buffer_cstring(&sql), &args, &result);
    buffer_fini(&sql);
    pg_args_fini(&args);
    if (fault != PG_OK)
        return fault;
    int rows = PQntuples(result), edge = 23;
    if (rows && pg_number(result, 0, edge + 1) == look)
        list->next_before_id = pg_number(result, 0, edge);
    if (rows && !PQgetisnull(result, 0, edge))
        list->reached_ms = pg_number(result, 0, edge) >> 20;
    for (int i = 0; i < rows && !PQgetisnull(result, i, 0); i++) {
        if (list->count == list->limit) { /* there is another: the next page begins with it */
            list->next_before_id = list->rows[list->count - 1].id;
            list->reached_ms = list->rows[list->count - 1].created_ms;
            break;
        }
        decode(result, i, &list->rows[list->count++], &op->memory);
    }
    PQclear(result);
    for (size_t i = 0; i < list->count && !op->memory.failed; i++) {
        struct slice *text;
        for (int k = 0; (text = text_of(&list->rows[i], k)) != NULL; k++)
            if (text->len)
                text->data = op->memory.data + (uintptr_t)text->data;
    }
    op->count = list->count;
    return PG_OK;
}
