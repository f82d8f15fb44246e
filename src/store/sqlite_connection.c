/* SPDX-License-Identifier: MIT
 *
 * One connection of the SQLite store: how it is set up, and the statements it keeps prepared.
 */
#include "store/sqlite.h"
#include "store/sqlite_cache.h"
#include "store/sqlite_log.h"
#include "store/sqlite_moved.h"

#include <assert.h>
#include <stdio.h>

#define TEXT_OF(x)  TEXT_OF_(x)
#define TEXT_OF_(x) #x

/* The column lists come from row.def; the first column has no comma before it. */
#define ASKED(name)    ", " #name
#define BOTH(name)     ", " #name
#define STANDING(name) ""
static const char asked_columns[] =
#include "store/row.def"
    ;
#define ASKED(name)    ", ?"
#define BOTH(name)     ", ?"
#define STANDING(name) ""
static const char asked_values[] =
#include "store/row.def"
    ;
#define ASKED(name)    ""
#define BOTH(name)     ", " #name
#define STANDING(name) ", " #name
static const char standing_columns[] =
#include "store/row.def"
    ;
#define ASKED(name)    ""
#define BOTH(name)     ", ?"
#define STANDING(name) ", ?"
static const char standing_values[] =
#include "store/row.def"
    ;
#define ASKED(name)    ", c." #name
#define BOTH(name)     ", c." #name
#define STANDING(name) ""
static const char read_asked[] =
#include "store/row.def"
    ;
#define ASKED(name)    ""
#define BOTH(name)     ", s." #name
#define STANDING(name) ", s." #name
static const char read_standing[] =
#include "store/row.def"
    ;

static const char *const statements[] = {
#define STATEMENT(name, sql) sql,
#include "store/sqlite_statements.def"
#undef STATEMENT
};

static char *statement_text(enum statement which)
{
    switch (which) {
    case SQL_ASKED_INSERT:
        return sqlite3_mprintf("INSERT INTO asked(%s) VALUES(%s)", asked_columns + 2, asked_values + 2);
    case SQL_STANDING_INSERT:
        return sqlite3_mprintf("INSERT INTO standing(%s) VALUES(%s)", standing_columns + 2,
                               standing_values + 2);
    case SQL_ROW_READ:
        return sqlite3_mprintf("SELECT %s%s FROM asked c LEFT JOIN standing s ON s.id = c.id WHERE c.id = ?1",
                               read_asked + 2, read_standing);
    default:
        return sqlite3_mprintf("%s", statements[which]);
    }
}

static const char setup_write[] =
    "PRAGMA page_size = " TEXT_OF(SQLITE_PAGE_BYTES) ";"
                                                     "PRAGMA journal_mode = WAL;"
                                                     "PRAGMA synchronous = NORMAL;" /* sqlite_sync.c */
                                                     "PRAGMA wal_autocheckpoint = 0;"
                                                     "PRAGMA cache_spill = OFF;"
                                                     "PRAGMA secure_delete = FAST;"
                                                     "PRAGMA temp_store = MEMORY;"
                                                     "PRAGMA cache_size = -" TEXT_OF(SQLITE_CACHE_KIB);
/* It copies pages without its cache. FULL: the log is synced before the file is changed. */
static const char setup_checkpoint[] = "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;"
                                       "PRAGMA cache_size = 8";
static const char setup_read[] = "PRAGMA query_only = ON;"
                                 "PRAGMA cache_size = -" TEXT_OF(SQLITE_READER_CACHE_KIB);
static const char *setup(enum connection_use use, bool write)
{
    if (write)
        return setup_write;
    return use == CONNECTION_CHECKPOINT ? setup_checkpoint : setup_read;
}

int connection_open(struct connection *c, const struct sqlite_store *s, enum connection_use use)
{
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    bool write = use == CONNECTION_WRITE && !s->read_only;
    flags |= s->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    if (write)
        flags |= SQLITE_OPEN_CREATE;
    bool inner = sqlite_cache_install() && use == CONNECTION_READ_NOW;
    const char *vfs = write ? sqlite_log_vfs(s->vfs) : s->vfs;
    if (write && !vfs)
        return SQLITE_NOMEM;
    sqlite_cache_keep_inner(inner);
    int rc = sqlite3_open_v2(s->path, &c->db, flags, vfs);
    sqlite_cache_keep_inner(false);
    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(c->db, use == CONNECTION_READ_NOW ? 0 : SQLITE_BUSY_MS);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(c->db, setup(use, write), NULL, NULL, NULL);
    if (rc == SQLITE_OK && (write || use == CONNECTION_CHECKPOINT))
        rc = sqlite_moved_watch(c->db);
    if (rc == SQLITE_OK && !write)
        connection_leave_log(c); /* the writer knows whether it may be moved */
    if (rc == SQLITE_OK && write) {
        int grow = SQLITE_GROW_BYTES;
        sqlite3_file_control(c->db, NULL, SQLITE_FCNTL_CHUNK_SIZE, &grow);
        sqlite3_int64 kept = SQLITE_WAL_KEPT_BYTES;
        char sql[64];
        snprintf(sql, sizeof sql, "PRAGMA journal_size_limit = %lld", (long long)kept);
        rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
    }
    return rc;
}

void connection_leave_log(struct connection *c)
{
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

void connection_close(struct connection *c)
{
    for (size_t i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(c->kept[i]);
        c->kept[i] = NULL;
    }
    int rc = sqlite3_close(c->db);
    assert(rc == SQLITE_OK);
    (void)rc;
    c->db = NULL;
}

sqlite3_stmt *connection_statement(struct connection *c, enum statement which)
{
    if (!c->kept[which]) {
        char *sql = statement_text(which);
        if (sql)
            sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &c->kept[which], NULL);
        sqlite3_free(sql);
    }
    return c->kept[which];
}

int sqlite_error(sqlite3 *db)
{
    int rc = sqlite3_extended_errcode(db);
    return rc == SQLITE_OK ? SQLITE_MISUSE : rc;
}

int connection_step(sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        return rc;
    int again = sqlite3_reset(stmt);
    return rc == SQLITE_DONE ? again : rc;
}

int connection_run(struct connection *c, enum statement which, int count, const int64_t *numbers)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite_error(c->db);
    for (int i = 0; i < count; i++)
        sqlite3_bind_int64(stmt, i + 1, numbers[i]);
    int rc = connection_step(stmt);
    assert(rc != SQLITE_ROW);
    return rc;
}

int connection_number(struct connection *c, enum statement which, int64_t *number)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite_error(c->db);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_OK ? SQLITE_CORRUPT : rc;
    *number = sqlite3_column_int64(stmt, 0);
    return sqlite3_reset(stmt);
}
