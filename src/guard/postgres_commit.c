/* SPDX-License-Identifier: MIT
 *
 * COMMIT, and what became of it. The one rule: only the server's word counts. "COMMIT" is committed; "ROLLBACK" and an
 * error of a connection that lives on are not committed; everything else, a lost connection above all, is unknown until the
 * row that the transaction itself wrote is looked for on another connection. That look waits for a transaction that is
 * still there (its row is locked), so that "not committed" is a proof and not a guess about the network.
 */
#include "samekey/guard_postgres.h"

#include "guard/postgres.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SETTLE_WAIT_MS_DEFAULT = 5000 };

/* Whether the server warned while it committed: a wait for a synchronous standby that was broken off is told this way. */
static void on_notice(void *context, const PGresult *notice)
{
    bool *warned = context;
    const char *code = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    *warned = *warned || (code && strncmp(code, "01", 2) == 0);
}

/* libpq tells the receiver that is set but not its context, so only the default one, which has none, can be put back. */
static PQnoticeReceiver default_receiver(PGconn *conn)
{
    PGconn *blank = PQconnectStart("="); /* not a connection string: an object, and no network */
    PQnoticeReceiver usual = PQsetNoticeReceiver(blank, NULL, NULL);
    PQfinish(blank);
    return PQsetNoticeReceiver(conn, NULL, NULL) == usual ? usual : NULL;
}

/* Errors after which the server itself does not say whether the transaction was committed: lost connections, shutdowns and
 * crashes, and the two codes whose meaning is "unknown". */
static bool says_nothing(const char *code)
{
    static const char *const codes[] = {"40003", "57P01", "57P02", "57P03",
                                        "57P05", "58000", "58030", "XX000"};
    if (!code || strncmp(code, "08", 2) == 0)
        return true;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return false;
}

static int classify(PGconn *conn, const PGresult *result, bool warned, char text[240])
{
    const char *tag = PQresultStatus(result) == PGRES_COMMAND_OK ? PQcmdStatus((PGresult *)result) : "";
    if (strcmp(tag, "COMMIT") == 0 && !warned)
        return SAMEKEY_GUARD_COMMITTED;
    if (strcmp(tag, "COMMIT") == 0) {
        guard_copy(text, 240, "committed here, and not confirmed by the standby");
        return SAMEKEY_GUARD_COMMIT_UNKNOWN;
    }
    if (strcmp(tag, "ROLLBACK") == 0) {
        guard_copy(text, 240, "the transaction was aborted, and is rolled back");
        return SAMEKEY_GUARD_NOT_COMMITTED;
    }
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    guard_copy(text, 240, message ? message : PQerrorMessage(conn));
    bool alive = PQstatus(conn) == CONNECTION_OK && PQtransactionStatus(conn) == PQTRANS_IDLE;
    return alive && !says_nothing(code) ? SAMEKEY_GUARD_NOT_COMMITTED : SAMEKEY_GUARD_COMMIT_UNKNOWN;
}

int samekey_guard_postgres_settle(PGconn *conn, const struct samekey_guard_call *call, const char *run,
                                  int wait_ms, int *settled, struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (!wrong && (!run || !*run || wait_ms < 0))
        wrong = "run is the one that begin answered, and wait_ms is 0 or more";
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    char wait[POSTGRES_INT_TEXT];
    snprintf(wait, sizeof wait, "%d", wait_ms ? wait_ms : SETTLE_WAIT_MS_DEFAULT);
    struct postgres_params p = {0};
    postgres_text(&p, call->call_id);
    postgres_text(&p, run);
    postgres_text(&p, call->tenant ? call->tenant : "");
    postgres_text(&p, wait);
    int status = SAMEKEY_GUARD_OK;
    PGresult *result =
        postgres_ask(conn, "SELECT samekey.settled($1, $2, $3, $4::integer)", &p, 1, &status, error);
    if (!result)
        return status;
    const char *word = PQgetvalue(result, 0, 0);
    *settled = strcmp(word, "committed") == 0       ? SAMEKEY_GUARD_COMMITTED
               : strcmp(word, "not_committed") == 0 ? SAMEKEY_GUARD_NOT_COMMITTED
                                                    : SAMEKEY_GUARD_COMMIT_UNKNOWN;
    PQclear(result);
    return SAMEKEY_GUARD_OK;
}

static void look(const struct samekey_guard_call *call, const char *run,
                 const struct samekey_guard_reopen *reopen, struct samekey_guard_commit *out)
{
    PGconn *conn = reopen->open       ? reopen->open(reopen->context)
                   : reopen->conninfo ? PQconnectdb(reopen->conninfo)
                                      : NULL;
    struct samekey_guard_error error = {0};
    int settled = SAMEKEY_GUARD_COMMIT_UNKNOWN;
    if (conn && PQstatus(conn) == CONNECTION_OK) {
        if (samekey_guard_postgres_settle(conn, call, run, reopen->wait_ms, &settled, &error) ==
            SAMEKEY_GUARD_OK) {
            out->looked_up = 1;
            out->settled = settled;
            if (settled == SAMEKEY_GUARD_COMMIT_UNKNOWN)
                guard_copy(out->text, sizeof out->text,
                           "the transaction has not ended yet; look again later");
        } else {
            guard_copy(out->text, sizeof out->text, error.text);
        }
    } else {
        guard_copy(out->text, sizeof out->text, conn ? PQerrorMessage(conn) : "no connection to look with");
    }
    if (conn && reopen->open && reopen->close)
        reopen->close(reopen->context, conn);
    else
        PQfinish(conn);
}

int samekey_guard_postgres_commit(PGconn *conn, const struct samekey_guard_call *call,
                                  const struct samekey_guard_answer *begun,
                                  const struct samekey_guard_reopen *reopen, struct samekey_guard_commit *out)
{
    PGTransactionStatusType before = PQtransactionStatus(conn);
    if (before == PQTRANS_IDLE || before == PQTRANS_ACTIVE)
        return SAMEKEY_GUARD_NO_TRANSACTION;
    struct samekey_guard_commit said = {0};
    bool warned = false;
    PQnoticeReceiver usual = default_receiver(conn);
    if (usual)
        PQsetNoticeReceiver(conn, on_notice, &warned);
    PGresult *result = PQexec(conn, "COMMIT");
    if (usual)
        PQsetNoticeReceiver(conn, usual, NULL);
    said.first = said.settled = classify(conn, result, warned, said.text);
    PQclear(result);
    /* What is visible here is no proof of what a standby has: there is nothing to look for. */
    if (said.first == SAMEKEY_GUARD_COMMIT_UNKNOWN && !warned && reopen && call && begun && begun->run[0])
        look(call, begun->run, reopen, &said);
    *out = said;
    return SAMEKEY_GUARD_OK;
}
