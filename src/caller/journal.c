/* SPDX-License-Identifier: MIT */
#include "caller/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUSY_MS        5000
#define SCHEMA_VERSION 1

struct journal {
    sqlite3 *db;
    pthread_mutex_t mutex;
    char *lock_path;
};

/* The columns in their order: of the request, written once, and of the progress. */
#define REQUEST_COLUMNS                                                                                      \
    "call_id, operation, method, url, key, business_ref, traceparent, headers, policy, fingerprint, body, "  \
    "created_ms"
#define PROGRESS_COLUMNS                                                                                     \
    "state, final, reason, next, safe_new_key, attempt_count, attempts, maybe_ran, pending, first_ms, "      \
    "closed_ms, "                                                                                            \
    "rounds, result_status, result_headers, result_body, result_kept, updated_ms"
enum { REQUEST_COUNT = 12, PROGRESS_COUNT = 17 };

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS calls("
    " id INTEGER PRIMARY KEY, call_id TEXT NOT NULL UNIQUE, operation BLOB, method TEXT NOT NULL, url TEXT "
    "NOT NULL,"
    " key TEXT, business_ref TEXT, traceparent TEXT, headers BLOB, policy TEXT NOT NULL, fingerprint BLOB "
    "NOT NULL,"
    " body BLOB, created_ms INT NOT NULL,"
    " state INT NOT NULL, final INT NOT NULL, reason INT NOT NULL, next INT NOT NULL, safe_new_key INT NOT "
    "NULL,"
    " attempt_count INT NOT NULL, attempts TEXT, maybe_ran INT NOT NULL, pending INT NOT NULL,"
    " first_ms INT NOT NULL, closed_ms INT NOT NULL, rounds INT NOT NULL, result_status INT, result_headers "
    "BLOB,"
    " result_body BLOB, result_kept INT, updated_ms INT NOT NULL);"
    /* state 3 is SUCCESS, 4 FAILED: of one operation only one entry may be open (promise 3). */
    "CREATE UNIQUE INDEX IF NOT EXISTS calls_open ON calls(operation)"
    " WHERE operation IS NOT NULL AND state <> 3 AND NOT (state = 4 AND final);"
    "CREATE INDEX IF NOT EXISTS calls_operation ON calls(operation, id) WHERE operation IS NOT NULL;"
    "CREATE INDEX IF NOT EXISTS calls_updated ON calls(updated_ms);"
    "PRAGMA user_version=1;";

/* ---- files -------------------------------------------------------------------------------------------------- */

enum status journal_default_path(struct buffer *out)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && state[0] == '/') /* the specification: a relative one is to be ignored */
        buffer_format(out, "%s/samekey/journal.db", state);
    else if (home && home[0] == '/')
        buffer_format(out, "%s/.local/state/samekey/journal.db", home);
    else
        return STATUS_NOT_FOUND;
    return out->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

/* Makes the directories above a path, each its owner's only. */
static bool make_directories(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return false;
    for (char *p = copy + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = 0;
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) {
            free(copy);
            return false;
        }
        *p = '/';
    }
    free(copy);
    return true;
}

static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool run_sql(struct journal *j, const char *sql)
{
    return sqlite3_exec(j->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static int user_version(struct journal *j)
{
    sqlite3_stmt *s = NULL;
    int version = -1;
    if (sqlite3_prepare_v2(j->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return version;
}

/* Old endings leave in small batches; what is open stays, however old. */
static void purge(struct journal *j)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(j->db,
                           "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE updated_ms < ?1 AND"
                           " (state = 3 OR (state = 4 AND final)) ORDER BY updated_ms LIMIT ?2)",
                           -1, &s, NULL) == SQLITE_OK) {
        sqlite3_bind_int64(s, 1, wall_ms() - JOURNAL_KEEP_MS);
        sqlite3_bind_int(s, 2, JOURNAL_PURGE_ROWS);
        sqlite3_step(s);
    }
    sqlite3_finalize(s);
}

static bool has_old_endings(struct journal *j)
{
    sqlite3_stmt *s = NULL;
    bool has = false;
    if (sqlite3_prepare_v2(j->db, "SELECT 1 FROM calls WHERE updated_ms < ?1 LIMIT 1", -1, &s, NULL) ==
        SQLITE_OK) {
        sqlite3_bind_int64(s, 1, wall_ms() - JOURNAL_KEEP_MS);
        has = sqlite3_step(s) == SQLITE_ROW;
    }
    sqlite3_finalize(s);
    return has;
}

static enum status fail(struct journal *j, const char **why, const char *sentence)
{
    if (why)
        *why = sentence;
    journal_close(j);
    return STATUS_IO;
}

enum status journal_open(struct journal **out, const char *path, const char *vfs, const char **why)
{
    struct journal *j = calloc(1, sizeof *j);
    size_t len = strlen(path) + 8;
    if (!j)
        return STATUS_NO_MEMORY;
    pthread_mutex_init(&j->mutex, NULL);
    j->lock_path = malloc(len);
    if (!j->lock_path) {
        journal_close(j);
        return STATUS_NO_MEMORY;
    }
    snprintf(j->lock_path, len, "%s.lock", path);
    if (!make_directories(path))
        return fail(j, why, "its directory cannot be made");
    /* Made here and not by SQLite, which would make it readable by others. Its -wal and -shm take over the mode. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail(j, why, "the file cannot be opened for writing");
    close(fd);
    if (sqlite3_open_v2(path, &j->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, vfs) != SQLITE_OK)
        return fail(j, why, "SQLite cannot open the file");
    sqlite3_busy_timeout(j->db, BUSY_MS);
    if (!run_sql(j, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"))
        return fail(j, why, "the file is not an SQLite database, or cannot be written");
    int version = user_version(j);
    if (version > SCHEMA_VERSION)
        return fail(j, why, "the file is of a newer samekey");
    if (version < SCHEMA_VERSION &&
        (!run_sql(j, "BEGIN IMMEDIATE") || !run_sql(j, schema) || !run_sql(j, "COMMIT")))
        return fail(j, why, "the file is not a journal, or cannot be written");
    if (has_old_endings(j))
        purge(j);
    *out = j;
    return STATUS_OK;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    sqlite3_close(j->db);
    pthread_mutex_destroy(&j->mutex);
    free(j->lock_path);
    free(j);
}

enum status journal_lock(struct journal *j, const struct digest *digest, struct slot *slot)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number = number << 8 | digest->bytes[i];
    return slot_take(slot, j->lock_path, number >> 2);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static bool take_slice(sqlite3_stmt *s, int column, struct arena *memory, struct slice *out)
{
    const void *bytes = sqlite3_column_blob(s, column);
    int len = sqlite3_column_bytes(s, column);
    return arena_copy(memory, slice_of(bytes, bytes ? (size_t)len : 0), out);
}

static enum status read_entry(sqlite3_stmt *s, struct arena *memory, struct journal_entry *e)
{
    memset(e, 0, sizeof *e);
    int c = 0;
    e->id = sqlite3_column_int64(s, c++);
    if (!take_slice(s, c++, memory, &e->call_id))
        return STATUS_NO_MEMORY;
    e->has_key = sqlite3_column_bytes(s, c) == (int)sizeof e->operation.bytes;
    if (e->has_key)
        memcpy(e->operation.bytes, sqlite3_column_blob(s, c), sizeof e->operation.bytes);
    c++;
    struct slice *texts[] = {&e->method,      &e->url,     &e->key,   &e->business_ref,
                             &e->traceparent, &e->headers, &e->policy};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!take_slice(s, c++, memory, texts[i]))
            return STATUS_NO_MEMORY;
    }
    if (sqlite3_column_bytes(s, c) != (int)sizeof e->fingerprint.bytes)
        return STATUS_IO;
    memcpy(e->fingerprint.bytes, sqlite3_column_blob(s, c++), sizeof e->fingerprint.bytes);
    e->body_kept = sqlite3_column_type(s, c) != SQLITE_NULL;
    if (!take_slice(s, c++, memory, &e->body))
        return STATUS_NO_MEMORY;
    e->created_ms = sqlite3_column_int64(s, c++);
    e->state = (enum call_state)sqlite3_column_int(s, c++);
    e->final = sqlite3_column_int(s, c++);
    e->reason = (enum reason)sqlite3_column_int(s, c++);
    e->next = (enum next_action)sqlite3_column_int(s, c++);
    e->safe_new_key = sqlite3_column_int(s, c++);
    e->attempt_count = sqlite3_column_int(s, c++);
    if (!take_slice(s, c++, memory, &e->attempts))
        return STATUS_NO_MEMORY;
    e->maybe_ran = sqlite3_column_int(s, c++);
    e->pending = sqlite3_column_int(s, c++);
    e->first_ms = sqlite3_column_int64(s, c++);
    e->closed_ms = sqlite3_column_int64(s, c++);
    e->rounds = sqlite3_column_int(s, c++);
    e->has_result = sqlite3_column_type(s, c) != SQLITE_NULL;
    e->result_status = sqlite3_column_int(s, c++);
    if (!take_slice(s, c++, memory, &e->result_headers) || !take_slice(s, c++, memory, &e->result_body))
        return STATUS_NO_MEMORY;
    e->result_kept = sqlite3_column_int(s, c++);
    e->updated_ms = sqlite3_column_int64(s, c++);
    return STATUS_OK;
}

static enum status find(struct journal *j, const char *sql, const void *bytes, size_t len, bool text,
                        struct arena *memory, struct journal_entry *out)
{
    sqlite3_stmt *s = NULL;
    struct journal_entry entry;
    enum status status = STATUS_IO;
    pthread_mutex_lock(&j->mutex);
    if (sqlite3_prepare_v2(j->db, sql, -1, &s, NULL) != SQLITE_OK)
        goto done;
    if (text)
        sqlite3_bind_text(s, 1, bytes, (int)len, SQLITE_STATIC);
    else
        sqlite3_bind_blob(s, 1, bytes, (int)len, SQLITE_STATIC);
    int rc = sqlite3_step(s);
    status = rc == SQLITE_ROW    ? read_entry(s, memory, &entry)
             : rc == SQLITE_DONE ? STATUS_NOT_FOUND
                                 : STATUS_IO;
    if (status == STATUS_OK)
        *out = entry;
done:
    sqlite3_finalize(s);
    pthread_mutex_unlock(&j->mutex);
    return status;
}

enum status journal_find_operation(struct journal *j, const struct digest *operation, struct arena *memory,
                                   struct journal_entry *out)
{
    return find(j,
                "SELECT id, " REQUEST_COLUMNS ", " PROGRESS_COLUMNS " FROM calls WHERE operation = ?1"
                " ORDER BY (state = 3 OR (state = 4 AND final)), id DESC LIMIT 1",
                operation->bytes, sizeof operation->bytes, false, memory, out);
}

enum status journal_find_call(struct journal *j, struct slice call_id, struct arena *memory,
                              struct journal_entry *out)
{
    return find(j, "SELECT id, " REQUEST_COLUMNS ", " PROGRESS_COLUMNS " FROM calls WHERE call_id = ?1",
                call_id.data, call_id.len, true, memory, out);
}

enum status journal_each(struct journal *j, bool open_only,
                         bool (*each)(void *context, const struct journal_entry *e), void *context)
{
    /* By steps of one entry, so that nothing is held while `each` works. */
    static const char sql[] =
        "SELECT id, call_id, operation, method, url, key, business_ref, traceparent, headers, policy, "
        "fingerprint, NULL,"
        " created_ms, state, final, reason, next, safe_new_key, attempt_count, attempts, maybe_ran, pending, "
        "first_ms,"
        " closed_ms, rounds, result_status, NULL, NULL, result_kept, updated_ms FROM calls"
        " WHERE id > ?1 AND (NOT ?2 OR NOT (state = 3 OR (state = 4 AND final))) ORDER BY id LIMIT 1";
    struct arena memory;
    int64_t after = 0;
    enum status status = STATUS_OK;
    arena_init(&memory, JOURNAL_ENTRY_BYTES_MAX);
    for (;;) {
        struct journal_entry entry;
        sqlite3_stmt *s = NULL;
        arena_clear(&memory);
        pthread_mutex_lock(&j->mutex);
        int rc = sqlite3_prepare_v2(j->db, sql, -1, &s, NULL);
        if (rc == SQLITE_OK) {
            sqlite3_bind_int64(s, 1, after);
            sqlite3_bind_int(s, 2, open_only);
            rc = sqlite3_step(s);
        }
        status = rc == SQLITE_ROW    ? read_entry(s, &memory, &entry)
                 : rc == SQLITE_DONE ? STATUS_NOT_FOUND
                                     : STATUS_IO;
        sqlite3_finalize(s);
        pthread_mutex_unlock(&j->mutex);
        if (status != STATUS_OK)
            break;
        after = entry.id;
        if (!each(context, &entry))
            break;
    }
    arena_fini(&memory);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

static void bind_text(sqlite3_stmt *s, int *n, struct slice text)
{
    sqlite3_bind_text(s, (*n)++, text.data ? text.data : "", (int)text.len, SQLITE_STATIC);
}

static void bind_blob(sqlite3_stmt *s, int *n, struct slice bytes)
{
    sqlite3_bind_blob(s, (*n)++, bytes.data ? bytes.data : "", (int)bytes.len, SQLITE_STATIC);
}

static void bind_request(sqlite3_stmt *s, int *n, const struct journal_entry *e)
{
    bind_text(s, n, e->call_id);
    if (e->has_key)
        bind_blob(s, n, slice_of((const char *)e->operation.bytes, sizeof e->operation.bytes));
    else
        sqlite3_bind_null(s, (*n)++);
    bind_text(s, n, e->method);
    bind_text(s, n, e->url);
    bind_text(s, n, e->key);
    bind_text(s, n, e->business_ref);
    bind_text(s, n, e->traceparent);
    bind_blob(s, n, e->headers);
    bind_text(s, n, e->policy);
    bind_blob(s, n, slice_of((const char *)e->fingerprint.bytes, sizeof e->fingerprint.bytes));
    if (e->body_kept)
        bind_blob(s, n, e->body);
    else
        sqlite3_bind_null(s, (*n)++);
    sqlite3_bind_int64(s, (*n)++, e->created_ms);
}

static void bind_progress(sqlite3_stmt *s, int *n, const struct journal_entry *e)
{
    sqlite3_bind_int(s, (*n)++, (int)e->state);
    sqlite3_bind_int(s, (*n)++, e->final);
    sqlite3_bind_int(s, (*n)++, (int)e->reason);
    sqlite3_bind_int(s, (*n)++, (int)e->next);
    sqlite3_bind_int(s, (*n)++, e->safe_new_key);
    sqlite3_bind_int(s, (*n)++, e->attempt_count);
    bind_text(s, n, e->attempts);
    sqlite3_bind_int(s, (*n)++, e->maybe_ran);
    sqlite3_bind_int(s, (*n)++, e->pending);
    sqlite3_bind_int64(s, (*n)++, e->first_ms);
    sqlite3_bind_int64(s, (*n)++, e->closed_ms);
    sqlite3_bind_int(s, (*n)++, e->rounds);
    if (e->has_result)
        sqlite3_bind_int(s, (*n)++, e->result_status);
    else
        sqlite3_bind_null(s, (*n)++);
    bind_blob(s, n, e->result_headers);
    bind_blob(s, n, e->result_body);
    sqlite3_bind_int(s, (*n)++, e->result_kept);
    sqlite3_bind_int64(s, (*n)++, e->updated_ms);
}

enum status journal_write(struct journal *j, struct journal_entry *e)
{
    static const char insert[] = "INSERT INTO calls(" REQUEST_COLUMNS ", " PROGRESS_COLUMNS ") VALUES("
                                 "?,?,?,?,?,?,?,?,?,?,?,?, ?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    static const char update[] =
        "UPDATE calls SET (" PROGRESS_COLUMNS ") = (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
        " WHERE id = ?";
    _Static_assert(REQUEST_COUNT == 12 && PROGRESS_COUNT == 17, "the placeholders above");
    sqlite3_stmt *s = NULL;
    enum status status = STATUS_IO;
    int n = 1;
    e->updated_ms = wall_ms();
    pthread_mutex_lock(&j->mutex);
    if (sqlite3_prepare_v2(j->db, e->id ? update : insert, -1, &s, NULL) != SQLITE_OK)
        goto done;
    if (!e->id)
        bind_request(s, &n, e);
    bind_progress(s, &n, e);
    if (e->id)
        sqlite3_bind_int64(s, n, e->id);
    int rc = sqlite3_step(s);
    /* In autocommit the step is the commit: DONE says that it is on disk. */
    if (rc == SQLITE_DONE && (!e->id || sqlite3_changes(j->db) == 1)) {
        status = STATUS_OK;
        if (!e->id)
            e->id = sqlite3_last_insert_rowid(j->db);
    } else if (rc == SQLITE_CONSTRAINT) {
        status = STATUS_CONFLICT;
    }
done:
    sqlite3_finalize(s);
    pthread_mutex_unlock(&j->mutex);
    return status;
}

enum status journal_forget(struct journal *j, struct slice call_id)
{
    sqlite3_stmt *s = NULL;
    enum status status = STATUS_IO;
    pthread_mutex_lock(&j->mutex);
    if (sqlite3_prepare_v2(j->db, "DELETE FROM calls WHERE call_id = ?", -1, &s, NULL) == SQLITE_OK) {
        sqlite3_bind_text(s, 1, call_id.data, (int)call_id.len, SQLITE_STATIC);
        if (sqlite3_step(s) == SQLITE_DONE)
            status = sqlite3_changes(j->db) ? STATUS_OK : STATUS_NOT_FOUND;
    }
    sqlite3_finalize(s);
    pthread_mutex_unlock(&j->mutex);
    return status;
}
