/* SPDX-License-Identifier: MIT
 *
 * Rows of a call in and out: of table `asked`, written once, and of table `standing`, which tells what stands since
 * something changed (row.def). An empty text is NULL in the file. While an operation's rows are gathered, its memory may
 * still move, so a slice holds its offset there instead of a pointer until rows_settle().
 */
#include "store/sqlite.h"

#include <assert.h>

/* Parameters of the two inserts, which are the columns of the read as well: `asked` first, `standing` behind it. */
enum {
    ASKED_BEFORE = 0,
#define ASKED(name) ASKED_##name,
#define BOTH(name)  ASKED_##name,
#define STANDING(name)
#include "store/row.def"
    ASKED_END
};
enum {
    STANDING_BEFORE = 0,
#define ASKED(name)
#define BOTH(name)     STANDING_##name,
#define STANDING(name) STANDING_##name,
#include "store/row.def"
};
#define READ_ASKED(name)    (ASKED_##name - 1)
#define READ_STANDING(name) (ASKED_END - 1 + STANDING_##name - 1)

#define TEXTS(X)                                                                                             \
    X(owner)                                                                                                 \
    X(tenant)                                                                                                \
    X(route)                                                                                                 \
    X(scope)                                                                                                 \
    X(call_id)                                                                                               \
    X(key)                                                                                                   \
    X(key_spelling)                                                                                          \
    X(business_ref)                                                                                          \
    X(trace_id)                                                                                              \
    X(fingerprint_rules)                                                                                     \
    X(reverses) X(reversed_by) X(attempts) X(result_headers) X(result_body) X(original_call_id)

static void bind_text(sqlite3_stmt *stmt, int parameter, struct slice text)
{
    if (text.len)
        sqlite3_bind_text64(stmt, parameter, text.data, text.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, parameter);
}

static void bind_bytes(sqlite3_stmt *stmt, int parameter, bool has, const void *bytes, int len)
{
    if (has)
        sqlite3_bind_blob(stmt, parameter, bytes, len, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, parameter);
}

void result_bind(sqlite3_stmt *stmt, int headers, int body, const struct call_row *row, bool kept)
{
    if (!kept) {
        sqlite3_bind_null(stmt, headers);
        sqlite3_bind_null(stmt, body);
        return;
    }
    sqlite3_bind_blob64(stmt, headers, row->result_headers.len ? row->result_headers.data : "",
                        row->result_headers.len, SQLITE_STATIC);
    sqlite3_bind_blob64(stmt, body, row->result_body.len ? row->result_body.data : "", row->result_body.len,
                        SQLITE_STATIC);
}

static int asked_insert(struct connection *c, const struct call_row *row, int flags)
{
    sqlite3_stmt *stmt = connection_statement(c, SQL_ASKED_INSERT);
    if (!stmt)
        return sqlite_error(c->db);
#define NUMBER(name) sqlite3_bind_int64(stmt, ASKED_##name, (int64_t)row->name)
    NUMBER(id), NUMBER(state), NUMBER(proof), NUMBER(created_ms), NUMBER(lease_end_ms), NUMBER(window_ms);
    NUMBER(first_attempt_ms), NUMBER(attempt_count), NUMBER(fingerprint_version);
#undef NUMBER
    sqlite3_bind_int(stmt, ASKED_flags, flags);
    bind_bytes(stmt, ASKED_call_digest, true, row->call_digest.bytes, sizeof row->call_digest.bytes);
    bind_bytes(stmt, ASKED_operation_digest, row->has_key, row->operation_digest.bytes,
               sizeof row->operation_digest.bytes);
    bind_bytes(stmt, ASKED_fingerprint, row->has_fingerprint, row->fingerprint.bytes,
               sizeof row->fingerprint.bytes);
    bind_bytes(stmt, ASKED_credential, row->has_credential, row->credential.bytes,
               sizeof row->credential.bytes);
#define TEXT(name) bind_text(stmt, ASKED_##name, row->name)
    TEXT(owner), TEXT(tenant), TEXT(route), TEXT(scope), TEXT(call_id), TEXT(key), TEXT(key_spelling);
    TEXT(business_ref), TEXT(trace_id), TEXT(fingerprint_rules), TEXT(reverses);
#undef TEXT
    return connection_step(stmt);
}

int standing_insert(struct connection *c, const struct call_row *row, int flags)
{
    sqlite3_stmt *stmt = connection_statement(c, SQL_STANDING_INSERT);
    if (!stmt)
        return sqlite_error(c->db);
#define NUMBER(name) sqlite3_bind_int64(stmt, STANDING_##name, (int64_t)row->name)
    NUMBER(id), NUMBER(state), NUMBER(final), NUMBER(fence), NUMBER(reason), NUMBER(updated_ms);
    NUMBER(ended_ms), NUMBER(lease_end_ms), NUMBER(first_attempt_ms), NUMBER(attempt_count);
    NUMBER(result_expires_ms), NUMBER(key_expires_ms), NUMBER(tombstone_expires_ms), NUMBER(original);
#undef NUMBER
    sqlite3_bind_int(stmt, STANDING_flags, flags);
    sqlite3_bind_int(stmt, STANDING_result_status, row->has_result ? row->result_status : 0);
    bind_text(stmt, STANDING_owner, row->owner);
    bind_text(stmt, STANDING_reversed_by, row->reversed_by);
    bind_text(stmt, STANDING_attempts, row->attempts);
    result_bind(stmt, STANDING_result_headers, STANDING_result_body, row, flags & ROW_FLAG_BODY_KEPT);
    return connection_step(stmt);
}

int row_insert(struct connection *c, const struct call_row *row, int flags, bool as_claimed)
{
    int rc = asked_insert(c, row, flags);
    return rc == SQLITE_OK && !as_claimed ? standing_insert(c, row, flags) : rc;
}

/* Copies the bytes behind those already gathered. A status of SQLite's own memory shows as a NULL pointer with a
 * length; the caller sees it in memory->failed as well. */
static struct slice gather(struct buffer *memory, const void *data, size_t len)
{
    if (!len)
        return slice_of(NULL, 0);
    size_t offset = memory->len;
    buffer_append(memory, data, len);
    return slice_of((const char *)(uintptr_t)offset, len);
}

static struct slice read_text(sqlite3_stmt *stmt, int column, struct buffer *memory)
{
    const void *data = sqlite3_column_blob(stmt, column); /* the bytes as they are, whatever their type */
    return gather(memory, data, data ? (size_t)sqlite3_column_bytes(stmt, column) : 0);
}

static bool read_bytes(sqlite3_stmt *stmt, int column, void *bytes, size_t len)
{
    const void *data = sqlite3_column_blob(stmt, column);
    if (!data || (size_t)sqlite3_column_bytes(stmt, column) != len)
        return false;
    memcpy(bytes, data, len);
    return true;
}

/* What was asked, and how it stood then. */
static int decode_asked(sqlite3_stmt *stmt, struct call_row *row, struct buffer *memory)
{
    memset(row, 0, sizeof *row);
#define NUMBER(name) sqlite3_column_int64(stmt, READ_ASKED(name))
    row->id = NUMBER(id);
    row->proof = (enum proof)NUMBER(proof);
    row->created_ms = row->updated_ms = NUMBER(created_ms);
    row->window_ms = NUMBER(window_ms);
    row->fingerprint_version = (int)NUMBER(fingerprint_version);
    row->state = (enum call_state)NUMBER(state);
    row->fence = 1;
    row->result_expires_ms = row->key_expires_ms = row->tombstone_expires_ms = INT64_MAX; /* it runs */
    row->lease_end_ms = NUMBER(lease_end_ms);
    row->first_attempt_ms = NUMBER(first_attempt_ms);
    row->attempt_count = (int)NUMBER(attempt_count);
    int flags = (int)NUMBER(flags);
#undef NUMBER
    read_bytes(stmt, READ_ASKED(call_digest), row->call_digest.bytes, sizeof row->call_digest.bytes);
    row->has_key = read_bytes(stmt, READ_ASKED(operation_digest), row->operation_digest.bytes,
                              sizeof row->operation_digest.bytes);
    row->has_fingerprint =
        read_bytes(stmt, READ_ASKED(fingerprint), row->fingerprint.bytes, sizeof row->fingerprint.bytes);
    row->has_credential =
        read_bytes(stmt, READ_ASKED(credential), row->credential.bytes, sizeof row->credential.bytes);
#define TEXT(name) row->name = read_text(stmt, READ_ASKED(name), memory)
    TEXT(tenant), TEXT(route), TEXT(scope), TEXT(call_id), TEXT(key), TEXT(key_spelling);
    TEXT(business_ref), TEXT(trace_id), TEXT(fingerprint_rules), TEXT(reverses);
#undef TEXT
    return flags;
}

/* What stands since. */
static int decode_standing(sqlite3_stmt *stmt, struct call_row *row, struct buffer *memory)
{
#define NUMBER(name) sqlite3_column_int64(stmt, READ_STANDING(name))
    row->state = (enum call_state)NUMBER(state);
    row->final = NUMBER(final) != 0;
    row->fence = NUMBER(fence);
    row->reason = (enum reason)NUMBER(reason);
    row->updated_ms = NUMBER(updated_ms);
    row->ended_ms = NUMBER(ended_ms);
    row->lease_end_ms = NUMBER(lease_end_ms);
    row->first_attempt_ms = NUMBER(first_attempt_ms);
    row->attempt_count = (int)NUMBER(attempt_count);
    row->result_expires_ms = NUMBER(result_expires_ms);
    row->key_expires_ms = NUMBER(key_expires_ms);
    row->tombstone_expires_ms = NUMBER(tombstone_expires_ms);
    row->original = NUMBER(original);
    row->result_status = (int)NUMBER(result_status);
    int flags = (int)NUMBER(flags);
#undef NUMBER
    row->reversed_by = read_text(stmt, READ_STANDING(reversed_by), memory);
    row->attempts = read_text(stmt, READ_STANDING(attempts), memory);
    return flags;
}

/* `headers` is the column of the headers, with the body behind it. */
static void decode_result(sqlite3_stmt *stmt, int headers, int flags, struct call_row *row,
                          struct buffer *memory)
{
    row->has_result = row->result_status != 0;
    row->body_kept = row->has_result && (flags & ROW_FLAG_BODY_KEPT) &&
                     sqlite3_column_type(stmt, headers + 1) != SQLITE_NULL;
    if (!row->body_kept)
        return;
    row->result_headers = read_text(stmt, headers, memory);
    row->result_body = read_text(stmt, headers + 1, memory);
}

static int row_decode(sqlite3_stmt *stmt, struct call_row *row, struct buffer *memory)
{
    int flags = decode_asked(stmt, row, memory);
    int owner = READ_ASKED(owner);
    if (sqlite3_column_type(stmt, READ_STANDING(id)) != SQLITE_NULL) {
        flags = decode_standing(stmt, row, memory);
        if (sqlite3_column_type(stmt, READ_STANDING(owner)) != SQLITE_NULL)
            owner = READ_STANDING(owner);
    }
    row->owner = read_text(stmt, owner, memory);
    row->call_id_made = flags & ROW_FLAG_CALL_ID_MADE;
    row->maybe_ran = flags & ROW_FLAG_MAYBE_RAN;
    decode_result(stmt, READ_STANDING(result_headers), flags, row, memory);
    return flags;
}

/* The result of a shared effect is its original's, where that still stands. */
static int original_read(struct connection *c, struct call_row *row, struct buffer *memory)
{
    sqlite3_stmt *stmt = connection_statement(c, SQL_ORIGINAL_READ);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_int64(stmt, 1, row->original);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    row->original_call_id = read_text(stmt, 0, memory);
    if (sqlite3_column_int(stmt, 1)) {
        row->result_status = sqlite3_column_int(stmt, 1);
        decode_result(stmt, 3, sqlite3_column_int(stmt, 2), row, memory);
    }
    return sqlite3_reset(stmt);
}

int row_read(struct connection *c, int64_t id, struct call_row *row, struct buffer *memory)
{
    int flags;
    return row_read_flags(c, id, row, memory, &flags);
}

int row_read_flags(struct connection *c, int64_t id, struct call_row *row, struct buffer *memory, int *flags)
{
    row->id = 0;
    *flags = 0;
    if (!id)
        return SQLITE_OK;
    sqlite3_stmt *stmt = connection_statement(c, SQL_ROW_READ);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_int64(stmt, 1, id);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    *flags = row_decode(stmt, row, memory);
    rc = sqlite3_reset(stmt);
    if (rc == SQLITE_OK && row->original)
        rc = original_read(c, row, memory);
    return rc == SQLITE_OK && memory->failed ? SQLITE_NOMEM : rc;
}

void row_take_over(struct call_row *to, const struct call_row *from, struct buffer *memory)
{
    *to = *from;
#define TEXT(name) to->name = gather(memory, from->name.data, from->name.len);
    TEXTS(TEXT)
#undef TEXT
}

static void settle(struct call_row *row, const char *base)
{
#define TEXT(name)                                                                                           \
    if (row->name.len)                                                                                       \
        row->name.data = base + (uintptr_t)row->name.data;
    TEXTS(TEXT)
#undef TEXT
}

void rows_settle(struct rows *rows, const struct buffer *memory)
{
    settle(&rows->call, memory->data);
    settle(&rows->holder, memory->data);
    settle(&rows->suspect, memory->data);
}

void rows_copy(struct rows *to, struct buffer *memory, const struct rows *from)
{
    *to = *from;
    row_take_over(&to->call, &from->call, memory);
    row_take_over(&to->holder, &from->holder, memory);
    row_take_over(&to->suspect, &from->suspect, memory);
    if (!memory->failed)
        rows_settle(to, memory);
}
