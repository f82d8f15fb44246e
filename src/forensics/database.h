/* SPDX-License-Identifier: MIT
 *
 * Rows of a table of the user's, read only, one after another, whatever the database: SQLite by the path of its file (or
 * sqlite:PATH), PostgreSQL by its URL. Nothing is ever written through this.
 */
#ifndef SAMEKEY_FORENSICS_DATABASE_H
#define SAMEKEY_FORENSICS_DATABASE_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

struct database;

/* STATUS_IO, STATUS_NOT_FOUND: *error says why. STATUS_INVALID: a kind of database this build does not know. */
enum status database_open(struct database **out, const char *url, struct buffer *error);

#define DATABASE_COLUMNS_MAX 16 /* further columns of a row are not handed over */

struct row {
    size_t columns;
    struct slice name[DATABASE_COLUMNS_MAX];
    struct slice value[DATABASE_COLUMNS_MAX]; /* NULL has data NULL */
};

/* Runs one query and hands over each row; texts are good until `take` returns. Stops at a status of `take` that is not
 * STATUS_OK and returns it. STATUS_IO: the query failed; *error says why. */
enum status database_rows(struct database *db, const char *sql,
                          enum status (*take)(void *context, const struct row *row), void *context,
                          struct buffer *error);

/* About how many rows the query will give, for a progress bar: counted by SQLite for at most `ms_max`, guessed by
 * PostgreSQL's planner. 0: it cannot be told. */
uint64_t database_rows_expected(struct database *db, const char *sql, int64_t ms_max);

/* Whether a samekey gateway's own receipts are in it. */
bool database_is_store(struct database *db);

/* What is the matter with a key's column. */
struct key_column {
    bool unique;               /* an index that is unique on exactly this column, over all rows */
    struct buffer near_misses; /* other unique indexes that contain it, in words; owned by the caller */
    uint64_t duplicates;       /* keys that are there more than once */
    struct buffer examples;    /* of them, in words */
};

/* Looks. table and column are names, not SQL. STATUS_IO, STATUS_NOT_FOUND (no such table or column): *error. */
enum status database_key_column(struct database *db, const char *table, const char *column,
                                struct key_column *out, struct buffer *error);

bool database_is_postgres(const struct database *db);

void database_close(struct database *db);

#endif
