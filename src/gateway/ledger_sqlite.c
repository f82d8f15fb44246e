/* SPDX-License-Identifier: MIT
 *
 * The guard's views in a SQLite file. The file is never made here, and each statement is a transaction of its own.
 */
#include "gateway/ledger.h"

#include "core/id.h"

#include <sqlite3.h>
#include <stdio.h>

#define RECEIPT_SQL "SELECT document FROM samekey_receipt WHERE tenant = ?2 AND call_id = ?1"
#define ABSENT_SQL                                                                                           \
    "SELECT json_object('call_id', ?1, 'state', iif(?3 > 0 AND ?3 < refuse_before_ms, 'UNKNOWN', "           \
    "'NOT_RECEIVED'), "                                                                                      \
    "'covers_since', covers_since) FROM samekey_absent"
#define FENCE_SQL "INSERT INTO samekey_fence(call_id, tenant) VALUES (?1, ?2)"

static void tell(sqlite3 *db, struct ledger_ask *ask)
{
    snprintf(ask->why, sizeof ask->why, "%s", db ? sqlite3_errmsg(db) : "out of memory");
}

void ledger_sqlite_close(struct ledger_link *link)
{
    sqlite3_close(link->handle);
    link->handle = NULL;
}

/* Runs one statement. SQLITE_ROW: the document was taken; SQLITE_DONE: there was no row; else what went wrong. */
static int run(sqlite3 *db, const char *sql, struct ledger_ask *ask)
{
    sqlite3_stmt *s = NULL;
    int64_t made_ms = 0;
    (void)callid_time(ask->call_id, &made_ms);
    int code = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_text(s, 1, ask->call_id.data, (int)ask->call_id.len, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, ask->tenant.data, (int)ask->tenant.len, SQLITE_STATIC);
        if (sqlite3_bind_parameter_count(s) == 3)
            sqlite3_bind_int64(s, 3, made_ms);
        code = sqlite3_step(s);
    }
    if (code == SQLITE_ROW) {
        buffer_append(&ask->document, (const char *)sqlite3_column_text(s, 0),
                      (size_t)sqlite3_column_bytes(s, 0));
        ask->answered = !ask->document.failed;
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        tell(db, ask);
    sqlite3_finalize(s);
    return code;
}

void ledger_sqlite_ask(struct ledger_link *link, struct ledger_ask *ask)
{
    sqlite3 *db = link->handle;
    if (!db) {
        int code = sqlite3_open_v2(link->address, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
        link->handle = db;
        if (code != SQLITE_OK) {
            tell(db, ask);
            ledger_sqlite_close(link);
            return;
        }
    }
    int64_t left = ask->deadline_ms - clock_monotonic_ms();
    sqlite3_busy_timeout(db, (int)(left > 60000 ? 30000 : left / 2));
    int code = ask->fence ? run(db, FENCE_SQL, ask) : SQLITE_DONE;
    if (code == SQLITE_DONE)
        code = run(db, RECEIPT_SQL, ask);
    if (code == SQLITE_DONE)
        code = run(db, ABSENT_SQL, ask);
    if (code != SQLITE_ROW)
        ledger_sqlite_close(link); /* the file may have been replaced: look anew next time */
}
