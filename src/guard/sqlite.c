/* SPDX-License-Identifier: MIT */
#include "samekey/guard_sqlite.h"

#include "guard/answer.h"
#include "guard/schema.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_of(sqlite3 *db, struct samekey_guard_error *error)
{
    int code = sqlite3_extended_errcode(db);
    char text[8];
    snprintf(text, sizeof text, "%d", code);
    /* RAISE(ABORT) of the schema: one of our own rules, and the statement alone was undone. */
    int status = code == SQLITE_CONSTRAINT_TRIGGER ? SAMEKEY_GUARD_INVALID
                 : (code & 0xff) == SQLITE_NOMEM   ? SAMEKEY_GUARD_NO_MEMORY
                                                   : SAMEKEY_GUARD_DATABASE;
    return guard_fail(error, status, status == SAMEKEY_GUARD_INVALID ? "" : text, sqlite3_errmsg(db));
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s = NULL;
    return sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK ? s : NULL;
}

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    if (text)
        sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

/* Runs a statement that gives no rows and ends it. */
static bool done(sqlite3_stmt *s)
{
    bool good = s && sqlite3_step(s) == SQLITE_DONE;
    return sqlite3_finalize(s) == SQLITE_OK && good;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static int open_transaction(sqlite3 *db, struct samekey_guard_error *error)
{
    if (!sqlite3_get_autocommit(db))
        return SAMEKEY_GUARD_OK;
    return guard_fail(error, SAMEKEY_GUARD_NO_TRANSACTION, "",
                      "no transaction is open; run BEGIN IMMEDIATE first");
}

int samekey_guard_sqlite_install(sqlite3 *db, struct samekey_guard_error *error)
{
    if (!sqlite3_get_autocommit(db))
        return guard_fail(error, SAMEKEY_GUARD_NO_TRANSACTION, "", "install outside of a transaction");
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return fail_of(db, error);
    int status = SAMEKEY_GUARD_OK;
    if (sqlite3_exec(db, guard_schema_sqlite, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        status = fail_of(db, error);
        if (!sqlite3_get_autocommit(db))
            sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
    return status;
}

/* ---- begin -------------------------------------------------------------------------------------------------- */

static int busy_timeout(sqlite3 *db)
{
    sqlite3_stmt *s = prepare(db, "PRAGMA busy_timeout");
    int ms = s && sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int(s, 0) : 0;
    sqlite3_finalize(s);
    return ms;
}

/* The statement that decides. SQLITE_OK, or the extended code it failed with. */
static int ask_begin(sqlite3 *db, const struct samekey_guard_call *call)
{
    sqlite3_stmt *s = prepare(
        db,
        "INSERT INTO samekey_begin(call_id, key, fingerprint, route, tenant) VALUES (?1, ?2, ?3, ?4, ?5)");
    if (!s)
        return sqlite3_extended_errcode(db);
    bind_text(s, 1, call->call_id);
    bind_text(s, 2, call->key);
    bind_text(s, 3, call->fingerprint);
    bind_text(s, 4, or_empty(call->route));
    bind_text(s, 5, or_empty(call->tenant));
    return done(s) ? SQLITE_OK : sqlite3_extended_errcode(db);
}

static char *column_text(sqlite3_stmt *s, int at)
{
    return (char *)sqlite3_column_text(s, at);
}

static int read_begun(sqlite3 *db, struct samekey_guard_answer *out, struct samekey_guard_error *error)
{
    sqlite3_stmt *s =
        prepare(db, "SELECT verdict, run, state, reason, original_call_id, result_kept, result_status, "
                    "result_headers, result_body FROM samekey_begun");
    if (!s || sqlite3_step(s) != SQLITE_ROW) {
        int status = fail_of(db, error);
        sqlite3_finalize(s);
        return status;
    }
    struct samekey_guard_answer a = {.verdict = guard_verdict(or_empty(column_text(s, 0)))};
    int status = a.verdict ? SAMEKEY_GUARD_OK : SAMEKEY_GUARD_DATABASE;
    guard_copy(a.run, sizeof a.run, column_text(s, 1));
    if (a.verdict == SAMEKEY_GUARD_REPLAY) {
        a.state = guard_state(or_empty(column_text(s, 2)));
        a.final = 1;
        guard_copy(a.reason, sizeof a.reason, column_text(s, 3));
        guard_copy(a.original_call_id, sizeof a.original_call_id, column_text(s, 4));
        a.result_kept = sqlite3_column_int(s, 5);
    }
    if (a.result_kept) {
        a.status = sqlite3_column_int(s, 6);
        const char *headers = or_empty(column_text(s, 7));
        a.headers = guard_bytes(headers, strlen(headers));
        const void *body = sqlite3_column_blob(s, 8);
        a.body_len = (size_t)sqlite3_column_bytes(s, 8);
        a.body = guard_bytes(body, a.body_len);
        if (!a.headers || !a.body)
            status = SAMEKEY_GUARD_NO_MEMORY;
    }
    sqlite3_finalize(s);
    if (status != SAMEKEY_GUARD_OK) {
        guard_answer_clear(&a);
        return guard_fail(error, status, "",
                          status == SAMEKEY_GUARD_NO_MEMORY ? "out of memory" : "samekey_begun is empty");
    }
    *out = a;
    return SAMEKEY_GUARD_OK;
}

int samekey_guard_sqlite_begin(sqlite3 *db, const struct samekey_guard_call *call,
                               struct samekey_guard_answer *answer, struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    int status = open_transaction(db, error);
    if (status != SAMEKEY_GUARD_OK)
        return status;
    bool has_read = sqlite3_txn_state(db, NULL) == SQLITE_TXN_READ;
    int usual = call->wait_ms ? busy_timeout(db) : 0;
    if (call->wait_ms)
        sqlite3_busy_timeout(db, call->wait_ms);
    int code = ask_begin(db, call);
    status = code == SQLITE_OK ? SAMEKEY_GUARD_OK : fail_of(db, error);
    if (call->wait_ms)
        sqlite3_busy_timeout(db, usual);
    if (code == SQLITE_OK)
        return read_begun(db, answer, error);
    if ((code & 0xff) != SQLITE_BUSY && (code & 0xff) != SQLITE_LOCKED)
        return status;
    /* What this transaction has read is older than what the other one writes: waiting here would not help. */
    struct samekey_guard_answer a = {.verdict = has_read || code == SQLITE_BUSY_SNAPSHOT
                                                    ? SAMEKEY_GUARD_RETRY_TRANSACTION
                                                    : SAMEKEY_GUARD_IN_PROGRESS};
    *answer = a;
    return SAMEKEY_GUARD_OK;
}

/* ---- the ending --------------------------------------------------------------------------------------------- */

int samekey_guard_sqlite_finish(sqlite3 *db, const struct samekey_guard_call *call,
                                const struct samekey_guard_ending *ending, struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (!wrong)
        wrong = guard_ending_wrong(ending);
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    int status = open_transaction(db, error);
    if (status != SAMEKEY_GUARD_OK)
        return status;
    sqlite3_stmt *s = prepare(db, "INSERT INTO samekey_finish(call_id, state, result_status, result_body, "
                                  "result_headers, tenant, final) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
    if (!s)
        return fail_of(db, error);
    bind_text(s, 1, call->call_id);
    bind_text(s, 2, ending->state == SAMEKEY_GUARD_STATE_SUCCESS ? "SUCCESS" : "FAILED");
    if (ending->status) {
        sqlite3_bind_int(s, 3, ending->status);
        sqlite3_bind_blob64(s, 4, ending->body_len ? ending->body : "", ending->body_len, SQLITE_STATIC);
    }
    bind_text(s, 5, ending->headers);
    bind_text(s, 6, or_empty(call->tenant));
    sqlite3_bind_int(s, 7, !ending->may_run_again);
    return done(s) ? SAMEKEY_GUARD_OK : fail_of(db, error);
}

int samekey_guard_sqlite_settle(sqlite3 *db, const struct samekey_guard_call *call, const char *run,
                                int *settled, struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (!wrong && (!run || !*run))
        wrong = "run is the one that begin answered";
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    sqlite3_stmt *s =
        prepare(db, "SELECT 1 FROM samekey_call WHERE tenant = ?1 AND call_id = ?2 AND run = ?3");
    if (!s)
        return fail_of(db, error);
    bind_text(s, 1, or_empty(call->tenant));
    bind_text(s, 2, call->call_id);
    bind_text(s, 3, run);
    int code = sqlite3_step(s);
    int status = code == SQLITE_ROW || code == SQLITE_DONE ? SAMEKEY_GUARD_OK : fail_of(db, error);
    if (status == SAMEKEY_GUARD_OK)
        *settled = code == SQLITE_ROW ? SAMEKEY_GUARD_COMMITTED : SAMEKEY_GUARD_NOT_COMMITTED;
    sqlite3_finalize(s);
    return status;
}

static void look(const char *file, const struct samekey_guard_call *call, const char *run,
                 struct samekey_guard_commit *out)
{
    sqlite3 *other = NULL;
    struct samekey_guard_error error = {0};
    if (sqlite3_open_v2(file, &other, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
        int settled = 0;
        if (samekey_guard_sqlite_settle(other, call, run, &settled, &error) == SAMEKEY_GUARD_OK) {
            out->settled = settled;
            out->looked_up = 1;
        } else {
            guard_copy(out->text, sizeof out->text, error.text);
        }
    }
    sqlite3_close(other);
}

static bool anything_unfinished(sqlite3 *db)
{
    sqlite3_stmt *s = prepare(db, "SELECT 1 FROM samekey_call WHERE state = 'PROCESSING' AND unfinished");
    bool any = s && sqlite3_step(s) == SQLITE_ROW;
    sqlite3_finalize(s);
    return any;
}

int samekey_guard_sqlite_commit(sqlite3 *db, const struct samekey_guard_call *call,
                                const struct samekey_guard_answer *begun, struct samekey_guard_commit *out,
                                struct samekey_guard_error *error)
{
    int status = open_transaction(db, error);
    if (status != SAMEKEY_GUARD_OK)
        return status;
    if (begun && begun->verdict == SAMEKEY_GUARD_RUN && anything_unfinished(db))
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "",
                          "a call was begun and not finished; finish it, or roll back");
    struct samekey_guard_commit said = {.first = SAMEKEY_GUARD_COMMITTED};
    if (sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        if (!sqlite3_get_autocommit(db))
            return fail_of(db, error); /* it stands as before */
        /* Rolled back as far as this connection knows; what the disk took is another question. */
        said.first = SAMEKEY_GUARD_COMMIT_UNKNOWN;
        guard_copy(said.text, sizeof said.text, sqlite3_errmsg(db));
    }
    said.settled = said.first;
    const char *file = sqlite3_db_filename(db, "main");
    if (said.first == SAMEKEY_GUARD_COMMIT_UNKNOWN && call && begun && begun->run[0] && file && *file)
        look(file, call, begun->run, &said);
    *out = said;
    return SAMEKEY_GUARD_OK;
}

/* ---- receipts and events ------------------------------------------------------------------------------------ */

/* A call without a row. */
#define ABSENT_SQL                                                                                           \
    "SELECT iif(gone, 'UNKNOWN', 'NOT_RECEIVED'), 0, 0, json_object('call_id', ?2, 'state', iif(gone, "      \
    "'UNKNOWN', "                                                                                            \
    "'NOT_RECEIVED'), 'final', json('false'), 'reason', iif(gone, 'beyond-retention', NULL), 'received', "   \
    "json(iif(gone, 'null', 'false')), 'executed', json(iif(gone, 'null', 'false')), 'key', NULL, 'route', " \
    "NULL, 'business_ref', NULL, 'trace_id', NULL, 'call_id_source', NULL, 'attempts', json('[]'), "         \
    "'result', "                                                                                             \
    "NULL, 'original_call_id', NULL, 'reverses', NULL, 'reversed_by', NULL, 'proof', 'transaction', "        \
    "'safe_new_key', json('false'), 'next_action', iif(gone, 'ask_operator', 'retry_same_call'), "           \
    "'covers_since', covers_since, 'created_at', NULL, 'updated_at', NULL, 'expires_at', NULL) "             \
    "FROM (SELECT covers_since, ?3 > 0 AND ?3 < refuse_before_ms AS gone FROM samekey_absent)"

static int read_receipt(sqlite3_stmt *s, struct samekey_guard_receipt *out)
{
    const char *text = or_empty(column_text(s, 3));
    struct samekey_guard_receipt r = {.state = guard_state(or_empty(column_text(s, 0))),
                                      .final = sqlite3_column_int(s, 1),
                                      .safe_new_key = sqlite3_column_int(s, 2),
                                      .document = guard_bytes(text, strlen(text))};
    if (!r.document)
        return SAMEKEY_GUARD_NO_MEMORY;
    *out = r;
    return SAMEKEY_GUARD_OK;
}

int samekey_guard_sqlite_receipt(sqlite3 *db, const char *call_id, const char *tenant,
                                 struct samekey_guard_receipt *out, struct samekey_guard_error *error)
{
    struct samekey_guard_call call = {.call_id = call_id, .tenant = tenant};
    const char *wrong = guard_call_wrong(&call);
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    static const char *const queries[] = {
        "SELECT state, document ->> 'final', document ->> 'safe_new_key', document FROM samekey_receipt "
        "WHERE tenant = ?1 AND call_id = ?2",
        ABSENT_SQL};
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        sqlite3_stmt *s = prepare(db, queries[i]);
        if (!s)
            return fail_of(db, error);
        bind_text(s, 1, or_empty(tenant));
        bind_text(s, 2, call_id);
        if (i)
            sqlite3_bind_int64(s, 3, guard_id_time(call_id));
        int code = sqlite3_step(s);
        int status = code == SQLITE_ROW    ? read_receipt(s, out)
                     : code == SQLITE_DONE ? -1
                                           : fail_of(db, error);
        sqlite3_finalize(s);
        if (status >= 0)
            return status == SAMEKEY_GUARD_NO_MEMORY ? guard_fail(error, status, "", "out of memory")
                                                     : status;
    }
    return guard_fail(error, SAMEKEY_GUARD_DATABASE, "",
                      "the guard's settings row is missing; install it again");
}

int samekey_guard_sqlite_fence(sqlite3 *db, const struct samekey_guard_call *call,
                               struct samekey_guard_receipt *out, struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    sqlite3_stmt *s =
        prepare(db, "INSERT INTO samekey_fence(call_id, tenant, route, key) VALUES (?1, ?2, ?3, ?4)");
    if (!s)
        return fail_of(db, error);
    bind_text(s, 1, call->call_id);
    bind_text(s, 2, or_empty(call->tenant));
    bind_text(s, 3, or_empty(call->route));
    bind_text(s, 4, call->key);
    if (!done(s))
        return fail_of(db, error);
    return samekey_guard_sqlite_receipt(db, call->call_id, call->tenant, out, error);
}

int samekey_guard_sqlite_outbox_add(sqlite3 *db, const struct samekey_guard_call *call, const char *topic,
                                    const char *headers, const void *payload, size_t payload_len,
                                    char message_id[129], struct samekey_guard_error *error)
{
    struct samekey_guard_call checked = *call;
    if (!checked.call_id)
        checked.call_id = "none";
    const char *wrong = guard_call_wrong(&checked);
    if (!wrong && (!topic || (payload_len && !payload)))
        wrong = "an event has a topic and a payload";
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    int status = open_transaction(db, error);
    if (status != SAMEKEY_GUARD_OK)
        return status;
    sqlite3_stmt *s = prepare(db, "INSERT INTO samekey_outbox(tenant, call_id, topic, headers, payload) "
                                  "VALUES (?1, ?2, ?3, ?4, ?5)");
    if (!s)
        return fail_of(db, error);
    bind_text(s, 1, or_empty(call->tenant));
    bind_text(s, 2, call->call_id);
    bind_text(s, 3, topic);
    bind_text(s, 4, headers ? headers : "{}");
    sqlite3_bind_blob64(s, 5, payload_len ? payload : "", payload_len, SQLITE_STATIC);
    if (!done(s))
        return fail_of(db, error);
    if (!message_id)
        return SAMEKEY_GUARD_OK;
    s = prepare(db, "SELECT message_id FROM samekey_outbox WHERE id = ?1");
    if (s)
        sqlite3_bind_int64(s, 1, sqlite3_last_insert_rowid(db));
    status = s && sqlite3_step(s) == SQLITE_ROW ? SAMEKEY_GUARD_OK : fail_of(db, error);
    if (status == SAMEKEY_GUARD_OK)
        guard_copy(message_id, 129, column_text(s, 0));
    sqlite3_finalize(s);
    return status;
}

void samekey_guard_sqlite_answer_clear(struct samekey_guard_answer *answer)
{
    guard_answer_clear(answer);
}

void samekey_guard_sqlite_receipt_clear(struct samekey_guard_receipt *receipt)
{
    guard_receipt_clear(receipt);
}
