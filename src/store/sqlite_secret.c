/* SPDX-License-Identifier: MIT
 *
 * The secret in the table of numbers: eight bytes a row, `secret_0` to `secret_3`, all written in one transaction.
 */
#include "store/sqlite.h"

static int put(struct sqlite_store *s, const int64_t parts[4])
{
    int rc = connection_run(&s->writer, SQL_BEGIN_WRITE, 0, NULL);
    for (int64_t i = 0; rc == SQLITE_OK && i < 4; i++)
        rc = connection_run(&s->writer, SQL_SECRET_PUT, 2, (const int64_t[]){i, parts[i]});
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_COMMIT, 0, NULL);
    else
        (void)sqlite3_exec(s->writer.db, "ROLLBACK", NULL, NULL, NULL);
    if (rc == SQLITE_OK && sync_now(s) != SQLITE_OK) {
        sync_doubt(s, s->now_ms(s->context));
        rc = SQLITE_IOERR_FSYNC;
    }
    return rc;
}

static int get(struct sqlite_store *s, int64_t parts[4], int *found)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_SECRET_GET);
    int rc = stmt ? SQLITE_OK : SQLITE_ERROR;
    *found = 0;
    while (rc == SQLITE_OK && *found < 4 && (rc = connection_step(stmt)) == SQLITE_ROW) {
        parts[(*found)++] = sqlite3_column_int64(stmt, 0);
        rc = SQLITE_OK;
    }
    if (stmt)
        (void)sqlite3_reset(stmt);
    return rc;
}

enum status sqlite_secret(struct store *store, bool anew, uint8_t secret[STORE_SECRET_BYTES])
{
    struct sqlite_store *s = (struct sqlite_store *)store;
    int64_t parts[4];
    int found = 0;
    if (file_gone(s, true) || !sync_sure(s) || !s->writer.db)
        return STATUS_IO;
    int rc = anew ? SQLITE_OK : get(s, parts, &found);
    if (rc == SQLITE_OK && found < 4) {
        if (!secret_make(secret))
            return STATUS_IO;
        memcpy(parts, secret, sizeof parts);
        rc = put(s, parts);
    }
    if (rc != SQLITE_OK)
        return STATUS_IO;
    memcpy(secret, parts, sizeof parts);
    return STATUS_OK;
}
