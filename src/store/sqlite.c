/* SPDX-License-Identifier: MIT
 *
 * The SQLite store: receipts in one file that one process owns.
 *
 * Always true:
 *  (1) A batch is one transaction; an operation is answered STATUS_OK only after its COMMIT returned and the log was
 *      synced after that (sqlite_sync.c).
 *  (2) One process writes the file. Its lock is a flock on PATH.lock, which ends with the process however it ends.
 *  (3) Memory (last id, unresolved calls, notes) mirrors what is committed, or what the running transaction wrote.
 *      A transaction that fails throws it away with the connection, and both are made anew from the disk: there is
 *      no undo that could be wrong.
 *  (4) Nothing is written into a file that is not at its path any more (sqlite_file.c).
 *  (5) STATUS_IO means that the operation is not in the file and will not appear there, even after a crash.
 *
 * Why (5) needs care: a COMMIT that fails while syncing has already written its frames. SQLite forgets them, but a
 * crash before the next write would find them in the log and take them for committed. So after such a COMMIT a small
 * write is committed first, over those frames; only then is the answer "not written".
 */
#include "store/sqlite.h"
#include "store/sqlite_cache.h"
#include "store/sqlite_wait.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READ_TRIES      4   /* of a read that identities slipped away from */
#define READS_NOW_PAGES 256 /* that a look reads which must not take long: about half a millisecond */
#define IDLE_STEPS      4   /* towards the filter of identities, in a pause */

struct sqlite_reader {
    struct store_reader reader;
    struct sqlite_store *store;
    unsigned share; /* 0: it may wait */
    struct connection connection;
};

static int64_t clock_ms(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- memory of the disk ---- */

int meta_read(struct connection *c, const char *name, int64_t *value)
{
    sqlite3_stmt *stmt = connection_statement(c, SQL_META_READ);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_OK ? SQLITE_CORRUPT : rc;
    *value = sqlite3_column_int64(stmt, 0);
    return sqlite3_reset(stmt);
}

int meta_write(struct sqlite_store *s, const char *name, int64_t value)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_META_WRITE);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, value);
    return connection_step(stmt);
}

static struct slice column_slice(sqlite3_stmt *stmt, int column)
{
    const char *data = sqlite3_column_blob(stmt, column);
    return slice_of(data, data ? (size_t)sqlite3_column_bytes(stmt, column) : 0);
}

/* Reads the unresolved rows, of which there are few however many are stored. */
static int load_unresolved(struct sqlite_store *s)
{
    size_t capacity = 0;
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_UNRESOLVED);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_text(stmt, 1, s->owner, -1, SQLITE_STATIC);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(stmt, 0);
        struct slice fingerprint = column_slice(stmt, 3);
        struct digest32 digest;
        if (fingerprint.len == sizeof digest.bytes) {
            memcpy(digest.bytes, fingerprint.data, sizeof digest.bytes);
            uint64_t hash = unresolved_hash(column_slice(stmt, 4), column_slice(stmt, 5), &digest);
            pthread_mutex_lock(&s->unresolved_lock);
            (void)unresolved_add(&s->unresolved, id, hash);
            pthread_mutex_unlock(&s->unresolved_lock);
        }
        if (sqlite3_column_int(stmt, 1) != STATE_PROCESSING || !sqlite3_column_int(stmt, 2))
            continue;
        if (s->foreign_count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            int64_t *more = realloc(s->foreign, capacity * sizeof *more);
            if (!more) {
                sqlite3_reset(stmt);
                return SQLITE_NOMEM;
            }
            s->foreign = more;
        }
        s->foreign[s->foreign_count++] = id;
    }
    return rc;
}

static void forget(struct sqlite_store *s)
{
    pthread_mutex_lock(&s->unresolved_lock);
    unresolved_fini(&s->unresolved);
    pthread_mutex_unlock(&s->unresolved_lock);
    free(s->foreign);
    s->foreign = NULL;
    s->foreign_count = s->foreign_next = 0;
    memset(s->noted, 0, sizeof s->noted);
    s->merge_debt = 0;
    s->recent = -1;
    standing_forget(s);
    s->unended_noted = s->unended_cursor = -1;
    s->loaded = false;
}

static int log_grew(void *context, sqlite3 *db, const char *name, int pages)
{
    (void)db, (void)name;
    struct sqlite_store *s = context;
    if (pages < s->wal_pages) /* the log began anew */
        s->wal_moved = 0;
    s->wal_pages = pages;
    return SQLITE_OK;
}

int sqlite_load(struct sqlite_store *s)
{
    int64_t newest = 0;
    forget(s);
    int rc = SQLITE_OK;
    if (!s->writer.db)
        rc = file_gone(s, true) ? SQLITE_READONLY_DBMOVED : connection_open(&s->writer, s, CONNECTION_WRITE);
    if (rc == SQLITE_OK) {
        sqlite3_wal_hook(s->writer.db, log_grew, s);
        rc = meta_read(&s->writer, "last_id", &s->last_id);
    }
    if (rc == SQLITE_OK)
        rc = meta_read(&s->writer, "removed", &s->removed);
    if (rc == SQLITE_OK)
        rc = meta_read(&s->writer, "covers_since_ms", &s->covers_since_ms);
    if (rc == SQLITE_OK)
        rc = meta_read(&s->writer, "refuse_before_ms", &s->refuse_before_ms);
    if (rc == SQLITE_OK)
        rc = connection_number(&s->writer, SQL_LAST_ID, &newest);
    if (rc == SQLITE_OK && newest > s->last_id)
        s->last_id = newest;
    s->claimed_after = s->last_id;
    if (rc == SQLITE_OK)
        rc = load_unresolved(s);
    if (rc == SQLITE_OK)
        rc = identity_load(s);
    known_begin(s);
    if (rc == SQLITE_OK)
        file_log_opened(s);
    s->loaded = rc == SQLITE_OK;
    return rc;
}

/* After a failure: nothing in memory and nothing of the connection is believed any more. Readers go on with the tail as
 * it is until there is a new one: what it has too much names rows that no reader can see. */
void sqlite_lose(struct sqlite_store *s)
{
    for (size_t i = 0; i < s->orphan_count; i++)
        s->orphans[i].settled = false;
    forget(s);
    if (!s->writer.db)
        return;
    file_log_closes(s);
    connection_leave_log(&s->writer);
    connection_close(&s->writer);
}

/* ---- work between batches ---- */

static bool sqlite_idle(struct store *store)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    if (!file_gone(s, false))
        (void)sync_sure(s);
    checkpoint_look(s, true);
    bool more = true;
    for (int i = 0; i < IDLE_STEPS && more; i++)
        more = known_step(s);
    return more;
}

static int64_t file_bytes(const char *path, const char *more)
{
    struct stat about;
    struct buffer name = {0};
    buffer_text(&name, path);
    buffer_text(&name, more);
    int64_t bytes = stat(buffer_cstring(&name), &about) == 0 ? (int64_t)about.st_size : 0;
    buffer_fini(&name);
    return bytes;
}

static void sqlite_stats(struct store *store, struct store_stats *out)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    out->rows = atomic_load_explicit(&s->rows, memory_order_relaxed);
    out->bytes_on_disk = file_bytes(s->path, "") + file_bytes(s->path, "-wal");
}

static enum status sqlite_raise_covers_since(struct store *store, int64_t covers_since_ms)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    if (file_gone(s, true))
        return STATUS_IO;
    int rc = s->loaded ? SQLITE_OK : sqlite_load(s);
    if (rc == SQLITE_OK && !sync_sure(s))
        return STATUS_IO;
    if (rc == SQLITE_OK && covers_since_ms <= s->covers_since_ms && covers_since_ms <= s->refuse_before_ms)
        return STATUS_OK;
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_BEGIN_WRITE, 0, NULL);
    if (rc == SQLITE_OK) {
        if (s->covers_since_ms < covers_since_ms)
            s->covers_since_ms = covers_since_ms;
        s->refuse_before_ms = s->covers_since_ms;
        rc = covers_since_write(s);
    }
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_COMMIT, 0, NULL);
    if (rc == SQLITE_OK && sync_now(s) == SQLITE_OK)
        return STATUS_OK;
    if (rc == SQLITE_OK)
        sync_doubt(s, s->now_ms(s->context));
    sqlite_lose(s);
    return STATUS_IO;
}

/* ---- readers ---- */

static int reader_connect(struct sqlite_reader *r)
{
    if (r->connection.db)
        return SQLITE_OK;
    if (atomic_load(&r->store->gone))
        return SQLITE_READONLY_DBMOVED;
    int rc = connection_open(&r->connection, r->store, r->share ? CONNECTION_READ_NOW : CONNECTION_READ);
    if (rc != SQLITE_OK || !r->share)
        return rc;
    unsigned kib = SQLITE_INNER_KIB / r->share;
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA cache_size = -%u",
             kib > SQLITE_INNER_KIB_MIN ? kib : SQLITE_INNER_KIB_MIN);
    return sqlite3_exec(r->connection.db, sql, NULL, NULL, NULL);
}

static enum status reader_open(struct store_reader **out, struct store *store, unsigned share,
                               struct buffer *error)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    *out = NULL;
    if (share && !sqlite_wait_can())
        return STATUS_OK;
    struct sqlite_reader *r = calloc(1, sizeof *r);
    if (!r)
        return STATUS_NO_MEMORY;
    r->reader.driver = store->driver;
    r->store = s;
    r->share = share;
    int rc = reader_connect(r);
    if (rc == SQLITE_OK) {
        *out = &r->reader;
        return STATUS_OK;
    }
    enum status status = sqlite_words(error, s->path, rc, r->connection.db);
    connection_close(&r->connection);
    free(r);
    return status;
}

/* When the newest of the rows that were found was last written, and whether one that was asked for was not. What other
 * operations find tells no such time. */
static int64_t newest(struct store_op *const *ops, size_t count, bool *absent)
{
    int64_t when = 0;
    *absent = false;
    for (size_t i = 0; i < count; i++) {
        const struct rows *rows = &ops[i]->rows;
        if (ops[i]->kind != STORE_LOOKUP && ops[i]->kind != STORE_READ && ops[i]->kind != STORE_CLAIM)
            return INT64_MAX;
        *absent = *absent || !rows->call.id || (ops[i]->kind == STORE_CLAIM && !rows->holder.id);
        const struct call_row *found[] = {&rows->call, &rows->holder, &rows->suspect};
        for (size_t j = 0; j < sizeof found / sizeof *found; j++)
            if (found[j]->id && found[j]->updated_ms > when)
                when = found[j]->updated_ms;
    }
    return when;
}

/* What a read transaction has seen besides its rows. */
struct moment {
    uint64_t epoch; /* of the tail */
    int64_t covers, refuse_before;
};

/* One read transaction: the call and the holder of its key as they stood at one moment. covers_since is read in it too:
 * "no such row" and "everything since then is known" must not come from two moments. SQLITE_BUSY: identities are leaving
 * the memory. */
static int read_begin(struct sqlite_reader *r, struct moment *m)
{
    struct sqlite_store *s = r->store;
    int rc = reader_connect(r);
    if (rc == SQLITE_OK && !s->read_only && !tail_epoch(&s->tail, &m->epoch))
        rc = SQLITE_BUSY;
    if (rc == SQLITE_OK)
        rc = connection_run(&r->connection, SQL_BEGIN_READ, 0, NULL);
    if (rc == SQLITE_OK)
        rc = meta_read(&r->connection, "covers_since_ms", &m->covers);
    return rc == SQLITE_OK ? meta_read(&r->connection, "refuse_before_ms", &m->refuse_before) : rc;
}

/* SQLITE_BUSY: identities left the memory meanwhile and may be in neither place that these reads have seen; or a row that
 * was found is not known to be on disk, after waiting for it if `patient`. */
static int read_check(struct sqlite_store *s, const struct moment *m, struct store_op *const *ops,
                      size_t count, bool patient)
{
    uint64_t after = 0;
    bool absent;
    if (s->read_only)
        return SQLITE_OK;
    int64_t when = newest(ops, count, &absent);
    if (!tail_epoch(&s->tail, &after) || after != m->epoch || !sync_seen(s, when, absent, patient))
        return SQLITE_BUSY;
    return SQLITE_OK;
}

static void read_back(struct sqlite_reader *r)
{
    if (r->connection.db && !sqlite3_get_autocommit(r->connection.db))
        sqlite3_exec(r->connection.db, "ROLLBACK", NULL, NULL, NULL);
}

static int read_once(struct sqlite_reader *r, struct store_op **ops, size_t count, struct moment *m)
{
    pthread_rwlock_rdlock(&r->store->checkpointer.readers);
    int rc = read_begin(r, m);
    for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
        store_op_reset(ops[i]);
        rc = sqlite_read(r->store, &r->connection, ops[i]);
    }
    if (rc == SQLITE_OK)
        rc = connection_run(&r->connection, SQL_COMMIT, 0, NULL);
    if (rc != SQLITE_OK)
        read_back(r);
    pthread_rwlock_unlock(
        &r->store->checkpointer.readers); /* the writer may be waited for, which may wait for it */
    return rc == SQLITE_OK ? read_check(r->store, m, ops, count, true) : rc;
}

static void read_answer(struct sqlite_store *s, const struct moment *m, struct store_op **ops, size_t count,
                        int rc)
{
    int64_t now = s->now_ms(s->context);
    for (size_t i = 0; i < count; i++) {
        struct store_op *op = ops[i];
        if (rc != SQLITE_OK) {
            store_op_reset(op);
            op->status = (rc & 0xff) == SQLITE_NOMEM ? STATUS_NO_MEMORY : STATUS_IO;
        }
        rows_settle(&op->rows, &op->memory);
        op->rows.now_ms = now;
        op->rows.covers_since_ms = rc == SQLITE_OK ? m->covers : 0;
        op->rows.refuse_before_ms = rc == SQLITE_OK && op->kind == STORE_CLAIM ? m->refuse_before : 0;
    }
}

static void reader_run_all(struct store_reader *reader, struct store_op **ops, size_t count)
{
    struct sqlite_reader *r = (struct sqlite_reader *)reader;
    struct moment m = {0};
    int rc = SQLITE_BUSY;
    sqlite_wait_tell(reader->waits, reader->waits_context);
    for (int tries = 0; rc == SQLITE_BUSY && tries < READ_TRIES; tries++)
        rc = read_once(r, ops, count, &m);
    sqlite_wait_tell(NULL, NULL);
    if (rc != SQLITE_OK)
        connection_close(&r->connection); /* the next read opens it anew */
    if (rc != SQLITE_OK && count > 1) {   /* what one of them met is not its neighbours' */
        for (size_t i = 0; i < count; i++)
            reader_run_all(reader, &ops[i], 1);
        return;
    }
    read_answer(r->store, &m, ops, count, rc);
}

/* A page that would have to be waited for fails its operation, and SQLite takes the transaction back; those before it have
 * what they found. */
static size_t reader_run_now(struct store_reader *reader, struct store_op **ops, size_t count)
{
    struct sqlite_reader *r = (struct sqlite_reader *)reader;
    struct moment m = {0};
    size_t done = 0;
    if (!sqlite_wait_can())
        return 0;
    int rc = reader_connect(r); /* waits, once after a failure */
    if (pthread_rwlock_tryrdlock(&r->store->checkpointer.readers) != 0)
        return 0;
    sqlite_wait_refuse(READS_NOW_PAGES);
    if (rc == SQLITE_OK)
        rc = read_begin(r, &m);
    while (rc == SQLITE_OK && done < count) {
        store_op_reset(ops[done]);
        rc = sqlite_read(r->store, &r->connection, ops[done]);
        done += rc == SQLITE_OK;
    }
    if (rc == SQLITE_OK)
        rc = connection_run(&r->connection, SQL_COMMIT, 0, NULL);
    bool waits = sqlite_wait_refuse(0);
    if (rc != SQLITE_OK)
        read_back(r);
    pthread_rwlock_unlock(&r->store->checkpointer.readers);
    if (rc != SQLITE_OK && !waits && rc != SQLITE_BUSY)
        connection_close(&r->connection);
    if (!done || read_check(r->store, &m, ops, done, false) != SQLITE_OK)
        return 0;
    read_answer(r->store, &m, ops, done, SQLITE_OK);
    return done;
}

static void reader_run(struct store_reader *reader, struct store_op *op)
{
    reader_run_all(reader, &op, 1);
}

static void reader_free(struct store_reader *reader)
{
    struct sqlite_reader *r = (struct sqlite_reader *)reader;
    connection_close(&r->connection);
    free(r);
}

/* ---- opening and closing ---- */

static void sqlite_store_close(struct store *store)
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    checkpoint_end(s);
    sync_end(s);
    free(s->orphans);
    forget(s);
    if (s->writer.db && s->syncer.doubt)
        connection_leave_log(&s->writer);
    if (s->writer.db)
        connection_close(&s->writer);
    file_end(s);
    if (s->lock >= 0)
        close(s->lock); /* ends the flock; the file stays, since removing it would race with the next owner */
    tail_fini(&s->tail);
    known_fini(s);
    pthread_mutex_destroy(&s->unresolved_lock);
    pthread_mutex_destroy(&s->checkpointer.lock);
    pthread_cond_destroy(&s->checkpointer.changed);
    pthread_rwlock_destroy(&s->checkpointer.readers);
    pthread_mutex_destroy(&s->syncer.lock);
    pthread_cond_destroy(&s->syncer.asked);
    pthread_cond_destroy(&s->syncer.done);
    pthread_cond_destroy(&s->syncer.readers);
    free(s->path);
    free(s->log_path);
    free(s->owner);
    free(s->vfs);
    free(s);
}

static const struct store_driver sqlite_driver = {
    .batch = sqlite_batch,
    .batch_begin = sqlite_batch_begin,
    .batch_sync = sqlite_batch_sync,
    .batch_end = sqlite_batch_end,
    .reader_open = reader_open,
    .reader_run = reader_run,
    .reader_run_all = reader_run_all,
    .reader_run_now = reader_run_now,
    .reader_free = reader_free,
    .idle = sqlite_idle,
    .stats = sqlite_stats,
    .raise_covers_since = sqlite_raise_covers_since,
    .secret = sqlite_secret,
    .close = sqlite_store_close,
};

/* The path with its folder resolved, so that two spellings of one file meet in one lock. */
static char *resolve(const char *path)
{
    char *whole = realpath(path, NULL);
    if (whole || errno != ENOENT)
        return whole ? whole : strdup(path);
    const char *slash = strrchr(path, '/');
    char *folder = slash == path ? strdup("/") : slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    char *real = folder ? realpath(folder, NULL) : NULL;
    if (!real || asprintf(&whole, "%s/%s", strcmp(real, "/") == 0 ? "" : real, slash ? slash + 1 : path) < 0)
        whole = strdup(path);
    free(folder);
    free(real);
    return whole;
}

/* Not on the database itself: closing any other descriptor of it would drop SQLite's own locks. */
static enum status lock_take(struct sqlite_store *s, struct buffer *error)
{
    char *name = NULL, pid[SQLITE_LOCK_PID_BYTES + 1];
    enum status status = STATUS_OK;
    if (asprintf(&name, "%s.lock", s->path) < 0)
        return STATUS_NO_MEMORY;
    s->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (s->lock < 0) {
        if (errno == EACCES || errno == ENOENT || errno == ENOTDIR || errno == EROFS)
            status = sqlite_words(error, s->path, SQLITE_CANTOPEN, NULL);
        else {
            buffer_format(error, "%s cannot be made (%s): check its disk.", name, strerror(errno));
            status = STATUS_IO;
        }
    } else if (flock(s->lock, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(s->lock, pid, sizeof pid - 1, 0);
        pid[n > 0 ? n : 0] = '\0';
        pid[strcspn(pid, " \n")] = '\0';
        buffer_format(
            error,
            "Another samekey (process %s) owns %s: stop it first, or give this gateway a file of its own; "
            "gateways on several machines need one store that they can share.",
            n > 0 ? pid : "unknown", s->path);
        status = STATUS_CONFLICT;
    } else {
        int len = snprintf(pid, sizeof pid, "%-*ld\n", SQLITE_LOCK_PID_BYTES - 1, (long)getpid());
        if (pwrite(s->lock, pid, (size_t)len, 0) != len)
            (void)0; /* the number is only for the message above */
    }
    free(name);
    return status;
}

/* A new file must still be there after a power cut: SQLite syncs the folder for its log, not for the file. */
static int sync_folder(const struct sqlite_store *s)
{
    char *folder = strdup(s->path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (!slash) {
        free(folder);
        return SQLITE_OK;
    }
    slash[slash == folder] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 && fsync(fd) != 0 && errno != EINVAL ? SQLITE_IOERR_DIR_FSYNC : SQLITE_OK;
    if (fd >= 0)
        close(fd);
    free(folder);
    return rc;
}

/* SQLite counts every byte it takes under one lock; nobody asks for the sums. Too late, after another part of the
 * process began to use SQLite, it is refused and nothing is lost but time. */
static void set_up_once(void)
{
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    (void)sqlite_cache_install();
    (void)sqlite_wait_can(); /* the last: from here on SQLite takes no configuration */
}

enum status sqlite_store_open(struct store **out, const char *rest, const struct store_settings *settings,
                              struct buffer *error)
{
    enum status status = STATUS_NO_MEMORY;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up_once);
    if (!*rest) {
        buffer_text(error, "\"sqlite:\" names no file: use store = \"sqlite:PATH\".");
        return STATUS_INVALID;
    }
    struct sqlite_store *s = calloc(1, sizeof *s);
    if (!s)
        return status;
    s->store.driver = &sqlite_driver;
    s->lock = s->held = -1;
    pthread_mutex_init(&s->unresolved_lock, NULL);
    pthread_mutex_init(&s->checkpointer.lock, NULL);
    pthread_cond_init(&s->checkpointer.changed, NULL);
    checkpoint_init(s);
    pthread_mutex_init(&s->syncer.lock, NULL);
    pthread_cond_init(&s->syncer.asked, NULL);
    pthread_cond_init(&s->syncer.done, NULL);
    pthread_cond_init(&s->syncer.readers, NULL);
    bool told = settings->tail_entries && settings->tail_entries < TAIL_ENTRIES;
    tail_init(&s->tail, told ? (uint32_t)settings->tail_entries : TAIL_ENTRIES);
    s->now_ms = settings->now_ms ? settings->now_ms : clock_ms;
    s->context = settings->context;
    s->read_only = settings->read_only;
    s->archive = settings->archive;
    s->path = settings->vfs ? strdup(rest) : resolve(rest);
    s->owner = strdup(settings->owner ? settings->owner : "");
    s->vfs = settings->vfs ? strdup(settings->vfs) : NULL;
    if (s->path && asprintf(&s->log_path, "%s-wal", s->path) < 0)
        s->log_path = NULL;
    if (!s->log_path || !s->owner || (settings->vfs && !s->vfs))
        goto done;
    status = file_check_new(s, error);
    if (status != STATUS_OK)
        goto done;
    /* A simulated disk has one simulated owner, who sees to it. */
    status = s->read_only || s->vfs ? STATUS_OK : lock_take(s, error);
    if (status != STATUS_OK)
        goto done;
    int rc = connection_open(&s->writer, s, CONNECTION_WRITE);
    bool renewed = rc == SQLITE_OK && (s->read_only || sync_renew_log(s) == SQLITE_OK);
    if (rc == SQLITE_OK)
        rc =
            sqlite_schema_migrate(s->writer.db, s->path, s->read_only, s->now_ms(s->context), &status, error);
    if (rc == SQLITE_OK && status == STATUS_OK)
        rc = s->vfs ? SQLITE_OK : sync_folder(s);
    if (rc == SQLITE_OK && status == STATUS_OK) {
        file_begin(s);
        rc = sqlite_load(s);
        if (rc == SQLITE_OK && !s->read_only && (!renewed || sync_now(s) != SQLITE_OK))
            sync_doubt(s, INT64_MIN); /* what a process that died has committed may not be on disk */
    }
    if (rc != SQLITE_OK)
        status = sqlite_words(error, s->path, rc, s->writer.db);
    if (status == STATUS_OK) {
        file_opened(s);
        sqlite_publish(s);
        checkpoint_begin(s);
        sync_begin(s);
        *out = &s->store;
        return STATUS_OK;
    }
done:
    sqlite_store_close(&s->store);
    return status;
}
