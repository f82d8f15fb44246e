/* SPDX-License-Identifier: MIT */
#include "forensics/database.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Keys that are there more than once: this many are named. */
#define EXAMPLES_MAX 5

struct database {
    sqlite3 *sqlite;
    PGconn *postgres;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

enum status database_open(struct database **out, const char *url, struct buffer *error)
{
    struct database *db = calloc(1, sizeof *db);
    if (!db)
        return STATUS_NO_MEMORY;
    if (begins(url, "postgres://") || begins(url, "postgresql://")) {
        db->postgres = PQconnectdb(url);
        if (PQstatus(db->postgres) != CONNECTION_OK) {
            buffer_text(error, PQerrorMessage(db->postgres));
            database_close(db);
            return STATUS_IO;
        }
        PQclear(PQexec(db->postgres, "SET default_transaction_read_only = on"));
        PQclear(PQexec(db->postgres, "SET client_encoding = 'UTF8'"));
    } else if (strstr(url, "://")) {
        buffer_format(error, "%s: only SQLite and PostgreSQL are known here", url);
        database_close(db);
        return STATUS_INVALID;
    } else {
        const char *path = begins(url, "sqlite:") ? url + strlen("sqlite:") : url;
        if (sqlite3_open_v2(path, &db->sqlite, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
            sqlite3_exec(db->sqlite, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL) != SQLITE_OK) {
            buffer_format(error, "%s: %s", path, sqlite3_errmsg(db->sqlite));
            database_close(db);
            return STATUS_IO;
        }
        sqlite3_busy_timeout(db->sqlite, 5000);
    }
    *out = db;
    return STATUS_OK;
}

void database_close(struct database *db)
{
    if (!db)
        return;
    sqlite3_close(db->sqlite);
    if (db->postgres)
        PQfinish(db->postgres);
    free(db);
}

static enum status sqlite_rows(struct database *db, const char *sql,
                               enum status (*take)(void *context, const struct row *row), void *context,
                               struct buffer *error)
{
    sqlite3_stmt *stmt = NULL;
    enum status status = STATUS_OK;
    int rc = sqlite3_prepare_v2(db->sqlite, sql, -1, &stmt, NULL);
    while (rc == SQLITE_OK && status == STATUS_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct row row;
        int n = sqlite3_column_count(stmt);
        n = n < DATABASE_COLUMNS_MAX ? n : DATABASE_COLUMNS_MAX;
        row.columns = (size_t)n;
        for (int i = 0; i < n; i++) {
            const char *text = (const char *)sqlite3_column_text(stmt, i);
            row.name[i] = slice_text(sqlite3_column_name(stmt, i));
            row.value[i] = slice_of(text, text ? (size_t)sqlite3_column_bytes(stmt, i) : 0);
        }
        status = take(context, &row);
        rc = SQLITE_OK;
    }
    if (rc != SQLITE_OK && rc != SQLITE_DONE) {
        buffer_text(error, sqlite3_errmsg(db->sqlite));
        status = STATUS_IO;
    }
    sqlite3_finalize(stmt);
    return status;
}

static enum status postgres_rows(struct database *db, const char *sql,
                                 enum status (*take)(void *context, const struct row *row), void *context,
                                 struct buffer *error)
{
    enum status status = STATUS_OK;
    PGresult *result;
    /* Row by row: a result of ten million rows is never in memory. */
    if (!PQsendQuery(db->postgres, sql) || !PQsetSingleRowMode(db->postgres)) {
        buffer_text(error, PQerrorMessage(db->postgres));
        return STATUS_IO;
    }
    while ((result = PQgetResult(db->postgres)) != NULL) {
        ExecStatusType is = PQresultStatus(result);
        if (is == PGRES_SINGLE_TUPLE && status == STATUS_OK) {
            struct row row;
            int n = PQnfields(result);
            n = n < DATABASE_COLUMNS_MAX ? n : DATABASE_COLUMNS_MAX;
            row.columns = (size_t)n;
            for (int i = 0; i < n; i++) {
                row.name[i] = slice_text(PQfname(result, i));
                row.value[i] = PQgetisnull(result, 0, i)
                                   ? slice_of(NULL, 0)
                                   : slice_of(PQgetvalue(result, 0, i), (size_t)PQgetlength(result, 0, i));
            }
            status = take(context, &row);
            if (status != STATUS_OK) { /* the rest is not wanted */
                PGcancel *cancel = PQgetCancel(db->postgres);
                char why[256];
                if (cancel)
                    PQcancel(cancel, why, sizeof why);
                PQfreeCancel(cancel);
            }
        } else if (is != PGRES_SINGLE_TUPLE && is != PGRES_TUPLES_OK && is != PGRES_COMMAND_OK &&
                   status == STATUS_OK) {
            buffer_text(error, PQresultErrorMessage(result));
            status = STATUS_IO;
        }
        PQclear(result);
    }
    return status;
}

enum status database_rows(struct database *db, const char *sql,
                          enum status (*take)(void *context, const struct row *row), void *context,
                          struct buffer *error)
{
    return db->sqlite ? sqlite_rows(db, sql, take, context, error)
                      : postgres_rows(db, sql, take, context, error);
}

struct counting {
    int64_t end_ms;
    uint64_t count;
};

static int64_t monotonic_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int takes_too_long(void *context)
{
    const struct counting *counting = context;
    return monotonic_ms() > counting->end_ms;
}

static enum status take_count(void *context, const struct row *row)
{
    struct counting *counting = context;
    struct slice s = row->value[0];
    for (size_t i = 0; i < s.len && s.data[i] >= '0' && s.data[i] <= '9'; i++)
        counting->count = counting->count * 10 + (uint64_t)(s.data[i] - '0');
    return STATUS_OK;
}

/* The first line of a plan: "Seq Scan on orders  (cost=0.00..22.70 rows=1270 width=36)". */
static enum status take_plan(void *context, const struct row *row)
{
    struct counting *counting = context;
    struct slice s = row->value[0];
    const char *at = counting->count || !s.len ? NULL : memmem(s.data, s.len, " rows=", 6);
    if (at) {
        size_t skip = (size_t)(at - s.data) + 6;
        struct row rest = {.columns = 1, .value = {slice_of(s.data + skip, s.len - skip)}};
        return take_count(counting, &rest);
    }
    return STATUS_OK;
}

uint64_t database_rows_expected(struct database *db, const char *sql, int64_t ms_max)
{
    struct counting counting = {.end_ms = monotonic_ms() + ms_max};
    struct buffer text = {0}, error = {0};
    enum status status;
    if (db->sqlite) {
        buffer_format(&text, "SELECT count(*) FROM (%s)", sql);
        sqlite3_progress_handler(db->sqlite, 10000, takes_too_long, &counting);
        status = sqlite_rows(db, buffer_cstring(&text), take_count, &counting, &error);
        sqlite3_progress_handler(db->sqlite, 0, NULL, NULL);
    } else {
        buffer_format(&text, "EXPLAIN %s", sql);
        status = postgres_rows(db, buffer_cstring(&text), take_plan, &counting, &error);
    }
    buffer_fini(&text);
    buffer_fini(&error);
    return status == STATUS_OK ? counting.count : 0;
}

static enum status take_application(void *context, const struct row *row)
{
    *(bool *)context = slice_is(row->value[0], "1397441881"); /* "SKEY", written by the store's schema */
    return STATUS_OK;
}

static enum status take_yes(void *context, const struct row *row)
{
    *(bool *)context = slice_is(row->value[0], "t");
    return STATUS_OK;
}

bool database_is_postgres(const struct database *db)
{
    return db->postgres != NULL;
}

bool database_is_store(struct database *db)
{
    struct buffer error = {0};
    bool is = false;
    if (db->sqlite)
        database_rows(db, "PRAGMA application_id", take_application, &is, &error);
    else
        database_rows(db, "SELECT to_regclass('samekey_store.call') IS NOT NULL", take_yes, &is, &error);
    buffer_fini(&error);
    return is;
}

/* ---- the key's column ---- */

/* A name in double quotes, as SQL has it; a dot parts a schema from its table. */
static void put_name(struct buffer *out, const char *name, bool dotted)
{
    buffer_byte(out, '"');
    for (; *name; name++) {
        if (*name == '"')
            buffer_byte(out, '"');
        if (*name == '.' && dotted)
            buffer_text(out, "\".\"");
        else
            buffer_byte(out, *name);
    }
    buffer_byte(out, '"');
}

static void put_text(struct buffer *out, const char *text)
{
    buffer_byte(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            buffer_byte(out, '\'');
        buffer_byte(out, *text);
    }
    buffer_byte(out, '\'');
}

static enum status take_duplicate(void *context, const struct row *row)
{
    struct key_column *k = context;
    const struct slice *column = row->value;
    if (row->columns == 2 && k->duplicates++ < EXAMPLES_MAX)
        buffer_format(&k->examples, "%s%.*s (%.*s times)", k->examples.len ? ", " : "", (int)column[0].len,
                      column[0].data ? column[0].data : "", (int)column[1].len, column[1].data);
    return STATUS_OK;
}

/* One unique index: name, columns joined by commas, whether it covers only some rows. */
struct index_search {
    struct key_column *out;
    const char *column;
};

static enum status take_index(void *context, const struct row *row)
{
    struct index_search *s = context;
    const struct slice *c = row->value;
    if (row->columns < 3)
        return STATUS_OK;
    bool exact = slice_is(c[1], s->column), partial = slice_is(c[2], "1") || slice_is(c[2], "t");
    bool has = exact;
    for (size_t at = 0; at <= c[1].len && !has;) {
        const char *comma = at < c[1].len ? memchr(c[1].data + at, ',', c[1].len - at) : NULL;
        size_t end = comma ? (size_t)(comma - c[1].data) : c[1].len;
        has = slice_is(slice_of(c[1].data + at, end - at), s->column);
        at = end + 1;
    }
    if (exact && !partial)
        s->out->unique = true;
    else if (has)
        buffer_format(&s->out->near_misses, "%s%.*s is unique on (%.*s)%s",
                      s->out->near_misses.len ? "; " : "", (int)c[0].len, c[0].data, (int)c[1].len, c[1].data,
                      partial ? ", and only over some rows" : "");
    return STATUS_OK;
}

static enum status take_one(void *context, const struct row *row)
{
    (void)row;
    *(bool *)context = true;
    return STATUS_OK;
}

enum status database_key_column(struct database *db, const char *table, const char *column,
                                struct key_column *out, struct buffer *error)
{
    struct buffer sql = {0};
    struct index_search search = {out, column};
    bool there = false;
    if (db->sqlite) {
        buffer_text(&sql, "SELECT 1 FROM pragma_table_info(");
        put_text(&sql, table);
        buffer_text(&sql, ") WHERE name = ");
        put_text(&sql, column);
    } else {
        buffer_text(&sql, "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(");
        struct buffer name = {0};
        put_name(&name, table, true);
        put_text(&sql, buffer_cstring(&name));
        buffer_fini(&name);
        buffer_text(&sql, ") AND attnum > 0 AND NOT attisdropped AND attname = ");
        put_text(&sql, column);
    }
    enum status status = database_rows(db, buffer_cstring(&sql), take_one, &there, error);
    if (status == STATUS_OK && !there) {
        buffer_format(error, "there is no column %s in a table %s", column, table);
        status = STATUS_NOT_FOUND;
    }
    buffer_clear(&sql);
    if (db->sqlite) {
        /* A primary key that is the row id has no index of its own and is unique all the same. */
        buffer_text(&sql, "SELECT l.name, (SELECT group_concat(coalesce(i.name, '?'), ',') FROM "
                          "(SELECT name FROM pragma_index_info(l.name) ORDER BY seqno) i), l.partial "
                          "FROM pragma_index_list(");
        put_text(&sql, table);
        buffer_text(
            &sql,
            ") l WHERE l.\"unique\" UNION ALL SELECT 'the primary key', name, 0 FROM pragma_table_info(");
        put_text(&sql, table);
        buffer_text(&sql, ") t WHERE pk = 1 AND lower(type) = 'integer' AND "
                          "(SELECT count(*) FROM pragma_table_info(");
        put_text(&sql, table);
        buffer_text(&sql, ") WHERE pk) = 1");
    } else {
        buffer_text(&sql,
                    "SELECT c.relname, (SELECT string_agg(coalesce(a.attname, '?'), ',' ORDER BY k.n) FROM "
                    "unnest(x.indkey::int2[]) WITH ORDINALITY AS k(attnum, n) LEFT JOIN pg_attribute a ON "
                    "a.attrelid = x.indrelid AND a.attnum = k.attnum WHERE k.n <= x.indnkeyatts), "
                    "x.indpred IS NOT NULL OR NOT x.indisvalid FROM pg_index x JOIN pg_class c ON c.oid = "
                    "x.indexrelid WHERE x.indisunique AND x.indrelid = to_regclass(");
        struct buffer name = {0};
        put_name(&name, table, true);
        put_text(&sql, buffer_cstring(&name));
        buffer_fini(&name);
        buffer_text(&sql, ")");
    }
    if (status == STATUS_OK)
        status = database_rows(db, buffer_cstring(&sql), take_index, &search, error);
    buffer_clear(&sql);
    buffer_text(&sql, "SELECT ");
    put_name(&sql, column, false);
    buffer_text(&sql, ", count(*) FROM ");
    put_name(&sql, table, true);
    buffer_text(&sql, " WHERE ");
    put_name(&sql, column, false);
    buffer_text(&sql, " IS NOT NULL GROUP BY 1 HAVING count(*) > 1 ORDER BY 2 DESC, 1");
    if (status == STATUS_OK && !out->unique)
        status = database_rows(db, buffer_cstring(&sql), take_duplicate, out, error);
    buffer_fini(&sql);
    return status;
}
