/* SPDX-License-Identifier: MIT
 *
 * Rows of table `call` in and out. The order of columns is row.def's; an empty text is NULL in the file. While an
 * operation's rows are gathered, its memory may still move, so a slice holds its offset there instead of a pointer
 * until rows_settle().
 */
#include "store/sqlite.h"

#include <assert.h>

enum column {
#define COLUMN(name) COL_##name,
#include "store/row.def"
#undef COLUMN
    COL_COUNT,
    COL_result_headers = COL_COUNT,
    COL_result_body,
    COL_original_call_id,
    COL_original_status,
    COL_original_flags,
};

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

static void bind_text(sqlite3_stmt *stmt, int column, struct slice text)
{
    if (text.len)
        sqlite3_bind_text64(stmt, column + 1, text.data, text.len, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(stmt, column + 1);
}

static void bind_bytes(sqlite3_stmt *stmt, int column, bool has, const void *bytes, int len)
{
    if (has)
        sqlite3_bind_blob(stmt, column + 1, bytes, len, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, column + 1);
}

int result_write(struct connection *c, int64_t id, const struct call_row *row)
{
    sqlite3_stmt *stmt = connection_statement(c, SQL_RESULT_WRITE);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, id);
    sqlite3_bind_blob64(stmt, 2, row->result_headers.len ? row->result_headers.data : "",
                        row->result_headers.len, SQLITE_STATIC);
    sqlite3_bind_blob64(stmt, 3, row->result_body.len ? row->result_body.data : "", row->result_body.len,
                        SQLITE_STATIC);
    return connection_step(stmt);
}

int row_insert(struct connection *c, const struct call_row *row, bool slot)
{
    sqlite3_stmt *stmt = connection_statement(c, SQL_ROW_INSERT);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    bool stored = row->has_result && row->body_kept && !row->original;
#define NUMBER(name) sqlite3_bind_int64(stmt, COL_##name + 1, (int64_t)row->name)
    NUMBER(id), NUMBER(state), NUMBER(final), NUMBER(fence), NUMBER(reason), NUMBER(proof);
    sqlite3_bind_int(stmt, COL_flags + 1,
                     (row->call_id_made ? ROW_FLAG_CALL_ID_MADE : 0) |
                         (row->maybe_ran ? ROW_FLAG_MAYBE_RAN : 0) | (stored ? ROW_FLAG_BODY_KEPT : 0) |
                         (slot ? ROW_FLAG_SLOT : 0));
    NUMBER(created_ms), NUMBER(updated_ms), NUMBER(ended_ms), NUMBER(lease_end_ms), NUMBER(window_ms);
    NUMBER(first_attempt_ms), NUMBER(attempt_count);
    sqlite3_bind_int(stmt, COL_result_status + 1, row->has_result ? row->result_status : 0);
    NUMBER(result_expires_ms), NUMBER(key_expires_ms), NUMBER(tombstone_expires_ms), NUMBER(original);
    NUMBER(fingerprint_version);
#undef NUMBER
    bind_bytes(stmt, COL_call_digest, true, row->call_digest.bytes, sizeof row->call_digest.bytes);
    bind_bytes(stmt, COL_operation_digest, row->has_key, row->operation_digest.bytes,
               sizeof row->operation_digest.bytes);
    bind_bytes(stmt, COL_fingerprint, row->has_fingerprint, row->fingerprint.bytes,
               sizeof row->fingerprint.bytes);
    bind_bytes(stmt, COL_credential, row->has_credential, row->credential.bytes,
               sizeof row->credential.bytes);
#define TEXT(name) bind_text(stmt, COL_##name, row->name)
    TEXT(owner), TEXT(tenant), TEXT(route), TEXT(scope), TEXT(call_id), TEXT(key), TEXT(key_spelling);
    TEXT(business_ref), TEXT(trace_id), TEXT(fingerprint_rules), TEXT(reverses), TEXT(reversed_by),
        TEXT(attempts);
#undef TEXT
    int rc = connection_step(stmt);
    return rc == SQLITE_OK && stored ? result_write(c, row->id, row) : rc;
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

static void row_decode(sqlite3_stmt *stmt, struct call_row *row, struct buffer *memory)
{
    memset(row, 0, sizeof *row);
#define NUMBER(name) sqlite3_column_int64(stmt, COL_##name)
    row->id = NUMBER(id);
    row->state = (enum call_state)NUMBER(state);
    row->final = NUMBER(final) != 0;
    row->fence = NUMBER(fence);
    row->reason = (enum reason)NUMBER(reason);
    row->proof = (enum proof)NUMBER(proof);
    int flags = (int)NUMBER(flags);
    row->call_id_made = flags & ROW_FLAG_CALL_ID_MADE;
    row->maybe_ran = flags & ROW_FLAG_MAYBE_RAN;
    row->created_ms = NUMBER(created_ms);
    row->updated_ms = NUMBER(updated_ms);
    row->ended_ms = NUMBER(ended_ms);
    row->lease_end_ms = NUMBER(lease_end_ms);
    row->window_ms = NUMBER(window_ms);
    row->first_attempt_ms = NUMBER(first_attempt_ms);
    row->attempt_count = (int)NUMBER(attempt_count);
    row->result_expires_ms = NUMBER(result_expires_ms);
    row->key_expires_ms = NUMBER(key_expires_ms);
    row->tombstone_expires_ms = NUMBER(tombstone_expires_ms);
    row->original = NUMBER(original);
    row->fingerprint_version = (int)NUMBER(fingerprint_version);
    row->result_status = (int)NUMBER(result_status);
    if (row->original && NUMBER(original_status)) {
        row->result_status = (int)NUMBER(original_status);
        flags = (int)NUMBER(original_flags);
    }
#undef NUMBER
    row->has_result = row->result_status != 0;
    row->body_kept = row->has_result && (flags & ROW_FLAG_BODY_KEPT) &&
                     sqlite3_column_type(stmt, COL_result_body) != SQLITE_NULL;
    read_bytes(stmt, COL_call_digest, row->call_digest.bytes, sizeof row->call_digest.bytes);
    row->has_key = read_bytes(stmt, COL_operation_digest, row->operation_digest.bytes,
                              sizeof row->operation_digest.bytes);
    row->has_fingerprint =
        read_bytes(stmt, COL_fingerprint, row->fingerprint.bytes, sizeof row->fingerprint.bytes);
    row->has_credential =
        read_bytes(stmt, COL_credential, row->credential.bytes, sizeof row->credential.bytes);
#define TEXT(name) row->name = read_text(stmt, COL_##name, memory);
    TEXTS(TEXT)
#undef TEXT
    if (!row->body_kept)
        row->result_headers = row->result_body = slice_of(NULL, 0);
}

int row_read(struct connection *c, int64_t id, struct call_row *row, struct buffer *memory)
{
    row->id = 0;
    if (!id)
        return SQLITE_OK;
    sqlite3_stmt *stmt = connection_statement(c, SQL_ROW_READ);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_int64(stmt, 1, id);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    row_decode(stmt, row, memory);
    rc = sqlite3_reset(stmt);
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
