/* SPDX-License-Identifier: MIT
 *
 * Lists of calls for people (STORE_LIST), newest first, without an index for it: ids rise with time, so a time is found
 * by bisection; calls without an ending lie in blocks that `unended` names; and texts are looked for in the sketches of
 * blocks (sketch.h) before any row is read. Rows too new to be sketched are looked at one by one.
 *
 *   hi ──▶ blocks that are not sketched yet ──▶ sketches, newest first ──▶ lo
 *              every row                        rows of the blocks that may fit
 *
 * Always true: (1) every row of the range that fits is given on some page, once; (2) a page looks at no more than
 * look_max rows and sketches and then says where to go on.
 */
#include "store/sketch.h"
#include "store/sqlite.h"

#define SKETCH_COST 2 /* a sketch looked at, in rows */
#define TERMS_MAX   7

struct search {
    struct sqlite_store *s;
    struct connection *c;
    struct store_list *list;
    struct buffer *memory;
    struct sketch_term terms[TERMS_MAX];
    size_t term_count;
    int64_t low, high; /* ids still to be looked at */
    int64_t sketched;  /* blocks before this one have sketches */
    size_t looked, look_max;
};

/* One row of numbers out of a statement with numbers; false: none. */
static int ask(struct connection *c, enum statement which, const int64_t *asked, int asked_count,
               int64_t *answer, int answer_count, bool *found)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    *found = false;
    if (!stmt)
        return sqlite_error(c->db);
    for (int i = 0; i < asked_count; i++)
        sqlite3_bind_int64(stmt, i + 1, asked[i]);
    int rc = connection_step(stmt);
    *found = rc == SQLITE_ROW;
    if (rc != SQLITE_ROW)
        return rc;
    for (int i = 0; i < answer_count; i++)
        answer[i] = sqlite3_column_int64(stmt, i);
    return sqlite3_reset(stmt);
}

/* The least id in [low, high] whose row was created at `when` or later; high + 1: none. */
static int bisect(struct connection *c, int64_t low, int64_t high, int64_t when, int64_t *id)
{
    int rc = SQLITE_OK;
    int64_t end = high + 1;
    while (rc == SQLITE_OK && low < end) {
        int64_t middle = low + (end - low) / 2, row[2] = {0, 0};
        bool found;
        rc = ask(c, SQL_LIST_FROM, &middle, 1, row, 2, &found);
        if (!found || row[0] >= end || row[1] >= when)
            end = middle; /* no row from the middle on, or one that is late enough */
        else
            low = row[0] + 1;
    }
    *id = end;
    return rc;
}

/* The range of ids that may fit by time and cursor. Empty: high < low. */
static int find_range(struct search *a)
{
    const struct store_list *list = a->list;
    int64_t ends[2] = {0, 0};
    bool found;
    int rc = ask(a->c, SQL_LIST_ENDS, NULL, 0, ends, 2, &found);
    a->low = ends[0];
    a->high = ends[1] ? ends[1] : a->low - 1;
    if (list->before_id && list->before_id <= a->high)
        a->high = list->before_id - 1;
    if (rc == SQLITE_OK && list->until_ms && a->low <= a->high) {
        rc = bisect(a->c, a->low, a->high, list->until_ms, &a->high);
        a->high--;
    }
    if (rc == SQLITE_OK && list->since_ms && a->low <= a->high)
        rc = bisect(a->c, a->low, a->high, list->since_ms, &a->low);
    return rc;
}

static bool column_is(sqlite3_stmt *stmt, int column, struct slice text)
{
    const void *data = sqlite3_column_blob(stmt, column);
    size_t len = data ? (size_t)sqlite3_column_bytes(stmt, column) : 0;
    return len == text.len && (!len || memcmp(data, text.data, len) == 0);
}

enum list_column {
    LIST_ID,
    LIST_STATE,
    LIST_FINAL,
    LIST_REASON,
    LIST_FLAGS,
    LIST_CREATED,
    LIST_UPDATED,
    LIST_ENDED,
    LIST_FIRST_ATTEMPT,
    LIST_ATTEMPT_COUNT,
    LIST_RESULT_STATUS,
    LIST_ORIGINAL,
    LIST_FENCE,
    LIST_CREDENTIAL,
    LIST_TENANT,
    LIST_ROUTE,
    LIST_CALL_ID,
    LIST_KEY,
    LIST_BUSINESS_REF,
    LIST_TRACE_ID,
    LIST_REVERSES,
    LIST_REVERSED_BY,
};

static bool fits(const struct store_list *list, sqlite3_stmt *stmt)
{
    if (list->states && !(list->states & 1u << sqlite3_column_int(stmt, LIST_STATE)))
        return false;
    int64_t created = sqlite3_column_int64(stmt, LIST_CREATED);
    if ((list->since_ms && created < list->since_ms) || (list->until_ms && created >= list->until_ms))
        return false;
    return (!list->has_tenant || column_is(stmt, LIST_TENANT, list->tenant)) &&
           (!list->route.len || column_is(stmt, LIST_ROUTE, list->route)) &&
           (!list->call_id.len || column_is(stmt, LIST_CALL_ID, list->call_id)) &&
           (!list->key.len || column_is(stmt, LIST_KEY, list->key)) &&
           (!list->business_ref.len || column_is(stmt, LIST_BUSINESS_REF, list->business_ref)) &&
           (!list->trace_id.len || column_is(stmt, LIST_TRACE_ID, list->trace_id));
}

/* While a page is gathered its memory may still move: a slice holds an offset until settle(). */
static struct slice gather(struct buffer *memory, sqlite3_stmt *stmt, int column)
{
    const void *data = sqlite3_column_blob(stmt, column);
    size_t len = data ? (size_t)sqlite3_column_bytes(stmt, column) : 0, offset = memory->len;
    if (!len)
        return slice_of(NULL, 0);
    buffer_append(memory, data, len);
    return slice_of((const char *)(uintptr_t)offset, len);
}

static struct slice *texts_of(struct call_row *row, size_t i)
{
    struct slice *const texts[] = {&row->tenant,   &row->route,        &row->call_id,
                                   &row->key,      &row->business_ref, &row->trace_id,
                                   &row->reverses, &row->reversed_by,  &row->original_call_id};
    return i < sizeof texts / sizeof *texts ? texts[i] : NULL;
}

static void settle(struct store_list *list, const struct buffer *memory)
{
    for (size_t i = 0; i < list->count; i++) {
        struct slice *text;
        for (size_t k = 0; (text = texts_of(&list->rows[i], k)) != NULL; k++)
            if (text->len)
                text->data = memory->data + (uintptr_t)text->data;
    }
}

static void take(struct search *a, sqlite3_stmt *stmt)
{
    struct call_row *row = &a->list->rows[a->list->count++];
    memset(row, 0, sizeof *row);
    row->id = sqlite3_column_int64(stmt, LIST_ID);
    row->state = (enum call_state)sqlite3_column_int(stmt, LIST_STATE);
    row->final = sqlite3_column_int(stmt, LIST_FINAL) != 0;
    row->reason = (enum reason)sqlite3_column_int(stmt, LIST_REASON);
    int flags = sqlite3_column_int(stmt, LIST_FLAGS);
    row->call_id_made = flags & ROW_FLAG_CALL_ID_MADE;
    row->maybe_ran = flags & ROW_FLAG_MAYBE_RAN;
    row->created_ms = sqlite3_column_int64(stmt, LIST_CREATED);
    row->updated_ms = sqlite3_column_int64(stmt, LIST_UPDATED);
    row->ended_ms = sqlite3_column_int64(stmt, LIST_ENDED);
    row->first_attempt_ms = sqlite3_column_int64(stmt, LIST_FIRST_ATTEMPT);
    row->attempt_count = sqlite3_column_int(stmt, LIST_ATTEMPT_COUNT);
    row->result_status = sqlite3_column_int(stmt, LIST_RESULT_STATUS);
    row->has_result = row->result_status != 0;
    row->original = sqlite3_column_int64(stmt, LIST_ORIGINAL);
    row->fence = sqlite3_column_int64(stmt, LIST_FENCE);
    const void *credential = sqlite3_column_blob(stmt, LIST_CREDENTIAL);
    row->has_credential =
        credential && sqlite3_column_bytes(stmt, LIST_CREDENTIAL) == sizeof row->credential.bytes;
    if (row->has_credential)
        memcpy(row->credential.bytes, credential, sizeof row->credential.bytes);
    struct slice *text;
    for (size_t i = 0; LIST_TENANT + (int)i <= LIST_REVERSED_BY && (text = texts_of(row, i)) != NULL; i++)
        *text = gather(a->memory, stmt, LIST_TENANT + (int)i);
    row->has_key = row->key.len > 0;
}

static bool page_full(const struct search *a)
{
    return a->list->count >= a->list->limit || a->looked >= a->look_max;
}

/* Looks at the rows of [low, high], newest first; `high` of the search moves below what was looked at. */
static int scan(struct search *a, int64_t low, int64_t high)
{
    sqlite3_stmt *stmt = connection_statement(a->c, SQL_LIST_SCAN);
    if (!stmt)
        return sqlite_error(a->c->db);
    sqlite3_bind_int64(stmt, 1, low);
    sqlite3_bind_int64(stmt, 2, high);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        a->looked++;
        a->high = sqlite3_column_int64(stmt, LIST_ID) - 1;
        a->list->reached_ms = sqlite3_column_int64(stmt, LIST_CREATED);
        if (fits(a->list, stmt))
            take(a, stmt);
        if (page_full(a))
            return sqlite3_reset(stmt);
    }
    a->high = low - 1;
    return rc;
}

static int scan_block(struct search *a, int64_t block)
{
    int64_t low = block * SQLITE_BLOCK_ROWS, high = low + SQLITE_BLOCK_ROWS - 1;
    return scan(a, low > a->low ? low : a->low, high < a->high ? high : a->high);
}

static bool may_have(const struct search *a, const void *bits, int len)
{
    for (size_t i = 0; len == SKETCH_BYTES && i < a->term_count; i++)
        if (!sketch_may_have(bits, &a->terms[i]))
            return false;
    return true; /* a sketch of another size tells nothing */
}

static int search_sketches(struct search *a)
{
    sqlite3_stmt *stmt = connection_statement(a->c, SQL_SKETCHES);
    if (!stmt)
        return sqlite_error(a->c->db);
    sqlite3_bind_int64(stmt, 1, a->low / SQLITE_BLOCK_ROWS);
    sqlite3_bind_int64(stmt, 2, a->high / SQLITE_BLOCK_ROWS);
    int rc = SQLITE_ROW;
    while (rc == SQLITE_ROW && !page_full(a) && (rc = connection_step(stmt)) == SQLITE_ROW) {
        int64_t block = sqlite3_column_int64(stmt, 0);
        const void *bits = sqlite3_column_blob(stmt, 2);
        a->looked += SKETCH_COST;
        a->list->reached_ms = sqlite3_column_int64(stmt, 1);
        if (!may_have(a, bits, sqlite3_column_bytes(stmt, 2)))
            a->high = block * SQLITE_BLOCK_ROWS - 1;
        else if ((rc = scan_block(a, block)) == SQLITE_OK)
            rc = SQLITE_ROW;
    }
    if (rc == SQLITE_OK) {
        a->high = a->low - 1; /* no sketch is left */
        return rc;
    }
    sqlite3_reset(stmt);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* Calls without an ending, through the blocks that may have any. */
static int search_unended(struct search *a)
{
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && a->high >= a->low && !page_full(a)) {
        int64_t last = a->high / SQLITE_BLOCK_ROWS, block = 0;
        bool found;
        rc = ask(a->c, SQL_UNENDED_BEFORE, &last, 1, &block, 1, &found);
        a->looked += SKETCH_COST;
        if (rc == SQLITE_OK && found && (block + 1) * SQLITE_BLOCK_ROWS > a->low)
            rc = scan_block(a, block);
        else
            a->high = a->low - 1;
    }
    return rc;
}

static void add_term(struct search *a, enum sketch_kind kind, struct slice text)
{
    a->terms[a->term_count++] = sketch_term(kind, text);
}

static void make_terms(struct search *a)
{
    const struct store_list *list = a->list;
    if (list->has_tenant)
        add_term(a, SKETCH_TENANT, list->tenant);
    if (list->route.len)
        add_term(a, SKETCH_ROUTE, list->route);
    if (list->call_id.len)
        add_term(a, SKETCH_CALL_ID, list->call_id);
    if (list->key.len)
        add_term(a, SKETCH_KEY, list->key);
    if (list->business_ref.len)
        add_term(a, SKETCH_BUSINESS_REF, list->business_ref);
    if (list->trace_id.len)
        add_term(a, SKETCH_TRACE_ID, list->trace_id);
    for (int state = STATE_RECEIVED; state <= STATE_UNKNOWN; state++)
        if (list->states == 1u << state) /* one state; several are seldom rare together */
            add_term(a, SKETCH_STATE, slice_text(state_text((enum call_state)state)));
}

/* The callIds of the calls whose results the rows share. */
static int read_originals(struct search *a)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < a->list->count; i++) {
        struct call_row *row = &a->list->rows[i];
        if (!row->original)
            continue;
        sqlite3_stmt *stmt = connection_statement(a->c, SQL_LIST_ORIGINAL);
        if (!stmt)
            return sqlite_error(a->c->db);
        sqlite3_bind_int64(stmt, 1, row->original);
        rc = connection_step(stmt);
        if (rc != SQLITE_ROW)
            continue;
        row->original_call_id = gather(a->memory, stmt, 0);
        row->result_status = sqlite3_column_int(stmt, 1);
        row->has_result = row->result_status != 0;
        rc = sqlite3_reset(stmt);
    }
    return rc;
}

int sqlite_list(struct sqlite_store *s, struct connection *c, struct store_op *op)
{
    static const unsigned unended = 1u << STATE_RECEIVED | 1u << STATE_PROCESSING | 1u << STATE_UNKNOWN;
    struct store_list *list = op->list;
    struct search a = {.s = s, .c = c, .list = list, .memory = &op->memory};
    a.look_max = list->look_max ? list->look_max : STORE_LOOK_MAX;
    list->count = 0;
    list->next_before_id = list->reached_ms = 0;
    if (list->limit < 1 || list->limit > STORE_PAGE_MAX) {
        op->status = STATUS_INVALID;
        return SQLITE_OK;
    }
    int rc = meta_read(c, "sketched", &a.sketched);
    if (rc == SQLITE_OK)
        rc = find_range(&a);
    make_terms(&a);
    if (rc == SQLITE_OK && list->states && !(list->states & ~unended)) {
        rc = search_unended(&a);
    } else if (rc == SQLITE_OK && !a.term_count && a.low <= a.high) {
        rc = scan(&a, a.low, a.high);
    } else if (rc == SQLITE_OK) {
        int64_t edge = a.sketched * SQLITE_BLOCK_ROWS;
        if (a.low <= a.high && a.high >= edge)
            rc = scan(&a, a.low > edge ? a.low : edge, a.high);
        if (rc == SQLITE_OK && a.low <= a.high && !page_full(&a))
            rc = search_sketches(&a);
    }
    if (rc == SQLITE_OK)
        rc = read_originals(&a);
    if (rc != SQLITE_OK)
        return rc;
    if (a.low <= a.high)
        list->next_before_id = a.high + 1;
    settle(list, &op->memory);
    op->count = list->count;
    return op->memory.failed ? SQLITE_NOMEM : SQLITE_OK;
}
