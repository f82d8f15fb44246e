/* SPDX-License-Identifier: MIT
 *
 * Bodies on their way from PostgreSQL into the archive (store/archive.h). Purging has locked the rows; here they are read
 * with their bodies, one by one, since one may have 64 MiB, and written with one sync. The transaction that says they are
 * gone commits after it.
 *
 * Always true: a day's table is dropped only when no note of that day is left and nothing of it was refused by the archive,
 * or what was refused has been taken since. Gateways of one store must agree on whether there is an archive: one without
 * drops what another would keep.
 */
#include "store/postgres.h"

#include <stdio.h>

#define DAY_MINUTES (PG_DAY_MS / PG_MINUTE_MS)

/* Adds one row; `full`: there is no room. */
static enum pg_fault add_row(struct pg_link *l, struct archive_batch *batch, int64_t id,
                             const struct pg_moment *moment, bool *full)
{
    struct pg_rows found;
    struct rows rows = {.now_ms = moment->now_ms, .covers_since_ms = moment->covers_since_ms};
    pg_rows_begin(&found);
    pg_rows_id(&found, id);
    enum pg_fault fault = pg_rows_read(&found, l, true, true);
    const struct call_row *row = fault == PG_OK ? pg_rows_find_id(&found, id) : NULL;
    if (row && row->body_kept) { /* without: there is nothing to be kept */
        rows.call = *row;
        *full = !archive_batch_add(batch, l->store->archive, &rows, moment->now_ms);
    }
    pg_rows_end(&found);
    return fault;
}

static enum pg_fault mark_days(struct pg_link *l, const int64_t *ids, size_t count)
{
    struct pg_args args = {0};
    int at = pg_arg_numbers(&args);
    for (size_t i = 0; i < count; i++)
        pg_add_number(&args, at, ids[i]);
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               "INSERT INTO samekey_store.due(minute, block) SELECT DISTINCT -result_day::bigint, 0 FROM"
               " samekey_store.call WHERE id = ANY($1) AND result_day > 0 ORDER BY 1 ON CONFLICT DO NOTHING",
               &args, NULL);
    pg_args_fini(&args);
    return fault;
}

enum pg_fault pg_archive_rows(struct pg_link *l, const int64_t *ids, size_t count,
                              const struct pg_moment *moment, struct pg_archived *out)
{
    struct archive_batch batch = {0};
    enum pg_fault fault = PG_OK;
    bool full = false;
    out->rows = 0;
    while (fault == PG_OK && out->rows < count) {
        fault = add_row(l, &batch, ids[out->rows], moment, &full);
        if (full)
            break;
        out->rows++;
    }
    out->failed =
        fault == PG_OK && (!out->rows || archive_batch_write(&batch, l->store->archive) != STATUS_OK);
    archive_batch_fini(&batch);
    return fault == PG_OK && out->failed ? mark_days(l, ids, count) : fault;
}

static enum pg_fault is_there(struct pg_link *l, const char *sql, int64_t number, bool *there)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    (void)pg_arg_number(&args, number);
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, sql, &args, &result);
    *there = fault == PG_OK && PQntuples(result) > 0;
    pg_args_fini(&args);
    PQclear(result);
    return fault;
}

enum pg_fault pg_archive_day_over(struct pg_link *l, int64_t day, bool *over)
{
    char sql[400];
    bool there;
    *over = false;
    enum pg_fault fault = is_there(
        l,
        "SELECT 1::bigint FROM samekey_store.due WHERE minute >= 0 AND minute < $1 ORDER BY minute LIMIT 1",
        (day + 1) * DAY_MINUTES, &there);
    if (fault != PG_OK || there)
        return fault;
    fault = is_there(l, "SELECT 1::bigint FROM samekey_store.due WHERE minute = $1 LIMIT 1", -day, &there);
    if (fault != PG_OK || !there) {
        *over = fault == PG_OK;
        return fault;
    }
    snprintf(
        sql, sizeof sql,
        "SELECT 1::bigint FROM samekey_store.result_%lld r JOIN samekey_store.call c ON c.id = r.id WHERE"
        " c.result_day = %lld AND c.flags & 4 <> 0 AND c.key_expires_ms = $1 LIMIT 1",
        (long long)day, (long long)day);
    fault = is_there(l, sql, INT64_MAX, &there);
    if (fault != PG_OK || there)
        return fault;
    fault = is_there(l, "DELETE FROM samekey_store.due WHERE minute = $1 RETURNING 1::bigint", -day, &there);
    *over = fault == PG_OK;
    return fault;
}
