/* SPDX-License-Identifier: MIT
 *
 * The PostgreSQL library as a service meets it; test_guard_library.py runs it against a server. Says what went wrong and ends with
 * 1, or ends with 0.
 *
 *     tool_postgres CONNINFO api         install, endings, receipts, fences, events, and what is refused
 *     tool_postgres CONNINFO decisions   the table of decisions
 *     tool_postgres CONNINFO standby     a COMMIT whose wait for a standby is broken off; says its backend's pid first
 */
#include "decisions.h"
#include "samekey/guard_postgres.h"

#include <libpq-fe.h>
#include <stdlib.h>

#define SHOULD(what)                                                                                         \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "tool_postgres.c:%d: not so: %s (%s)\n", __LINE__, #what, error.text);           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static struct samekey_guard_error error;
static const char *conninfo;

static PGconn *opened(void)
{
    PGconn *conn = PQconnectdb(conninfo);
    SHOULD(PQstatus(conn) == CONNECTION_OK);
    return conn;
}

static void run(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK) {
        fprintf(stderr, "%s: %s", sql, PQerrorMessage(conn));
        exit(1);
    }
    PQclear(result);
}

static const struct samekey_guard_call CALL = {
    .call_id = "c-1", .key = "k", .fingerprint = "f", .route = "r"};
static const struct samekey_guard_ending DONE = {.state = SAMEKEY_GUARD_STATE_SUCCESS,
                                                 .status = 201,
                                                 .body = "a\0b",
                                                 .body_len = 3,
                                                 .headers = "[[\"x\", \"y\"]]"};

static int begin(PGconn *conn, const struct samekey_guard_call *call)
{
    struct samekey_guard_answer answer = {0};
    SHOULD(samekey_guard_postgres_begin(conn, call, &answer, &error) == SAMEKEY_GUARD_OK);
    int verdict = answer.verdict;
    samekey_guard_postgres_answer_clear(&answer);
    return verdict;
}

static void play_api(void)
{
    PGconn *conn = opened();
    struct samekey_guard_answer answer = {0};
    struct samekey_guard_commit commit = {0};
    struct samekey_guard_receipt receipt = {0};
    SHOULD(samekey_guard_postgres_install(conn, &error) == SAMEKEY_GUARD_OK);
    SHOULD(samekey_guard_postgres_install(conn, &error) == SAMEKEY_GUARD_OK);
    /* Outside of a transaction nothing is begun and nothing committed. */
    SHOULD(samekey_guard_postgres_begin(conn, &CALL, &answer, &error) == SAMEKEY_GUARD_NO_TRANSACTION);
    SHOULD(samekey_guard_postgres_commit(conn, &CALL, NULL, NULL, &commit) == SAMEKEY_GUARD_NO_TRANSACTION);
    run(conn, "BEGIN");
    SHOULD(samekey_guard_postgres_install(conn, &error) == SAMEKEY_GUARD_NO_TRANSACTION);
    /* What is out of form is found before it is sent: the transaction stays usable. */
    struct samekey_guard_call wrong = CALL;
    wrong.key = "a b";
    SHOULD(samekey_guard_postgres_begin(conn, &wrong, &answer, &error) == SAMEKEY_GUARD_INVALID);
    struct samekey_guard_ending odd = DONE;
    odd.status = 20;
    SHOULD(samekey_guard_postgres_finish(conn, &CALL, &odd, &error) == SAMEKEY_GUARD_INVALID);
    SHOULD(PQtransactionStatus(conn) == PQTRANS_INTRANS);
    /* Begun and not finished: the database itself refuses the COMMIT. */
    SHOULD(begin(conn, &CALL) == SAMEKEY_GUARD_RUN);
    SHOULD(samekey_guard_postgres_commit(conn, &CALL, NULL, NULL, &commit) == SAMEKEY_GUARD_OK);
    SHOULD(commit.first == SAMEKEY_GUARD_NOT_COMMITTED && strstr(commit.text, "not finished"));
    /* An aborted transaction: COMMIT is answered ROLLBACK. */
    run(conn, "BEGIN");
    PQclear(PQexec(conn, "SELECT 1 / 0"));
    SHOULD(samekey_guard_postgres_begin(conn, &CALL, &answer, &error) == SAMEKEY_GUARD_NO_TRANSACTION);
    SHOULD(samekey_guard_postgres_commit(conn, &CALL, NULL, NULL, &commit) == SAMEKEY_GUARD_OK);
    SHOULD(commit.first == SAMEKEY_GUARD_NOT_COMMITTED && commit.settled == SAMEKEY_GUARD_NOT_COMMITTED);
    /* The whole way. */
    char id[129] = "";
    run(conn, "BEGIN");
    SHOULD(samekey_guard_postgres_begin(conn, &CALL, &answer, &error) == SAMEKEY_GUARD_OK);
    SHOULD(answer.verdict == SAMEKEY_GUARD_RUN && strlen(answer.run) == 36);
    SHOULD(samekey_guard_postgres_outbox_add(conn, &CALL, "orders", "{\"a\": 1}", "\0x", 2, id, &error) ==
           SAMEKEY_GUARD_OK);
    SHOULD(strncmp(id, "c-1:", 4) == 0);
    SHOULD(samekey_guard_postgres_finish(conn, &CALL, &DONE, &error) == SAMEKEY_GUARD_OK);
    SHOULD(samekey_guard_postgres_commit(conn, &CALL, &answer, NULL, &commit) == SAMEKEY_GUARD_OK);
    SHOULD(commit.settled == SAMEKEY_GUARD_COMMITTED && !commit.looked_up);
    int settled = 0;
    SHOULD(samekey_guard_postgres_settle(conn, &CALL, answer.run, 0, &settled, &error) == SAMEKEY_GUARD_OK);
    SHOULD(settled == SAMEKEY_GUARD_COMMITTED);
    /* And again: the bytes of the first answer. */
    run(conn, "BEGIN");
    SHOULD(samekey_guard_postgres_begin(conn, &CALL, &answer, &error) == SAMEKEY_GUARD_OK);
    SHOULD(answer.verdict == SAMEKEY_GUARD_REPLAY && answer.state == SAMEKEY_GUARD_STATE_SUCCESS &&
           answer.status == 201);
    SHOULD(answer.body_len == 3 && memcmp(answer.body, "a\0b", 4) == 0);
    SHOULD(strcmp(answer.headers, "[[\"x\", \"y\"]]") == 0);
    samekey_guard_postgres_answer_clear(&answer);
    /* A second finish is the database's to refuse, and aborts. */
    SHOULD(samekey_guard_postgres_finish(conn, &CALL, &DONE, &error) == SAMEKEY_GUARD_DATABASE);
    SHOULD(strcmp(error.code, "55000") == 0);
    run(conn, "ROLLBACK");
    SHOULD(samekey_guard_postgres_receipt(conn, "c-1", NULL, 0, &receipt, &error) == SAMEKEY_GUARD_OK);
    SHOULD(receipt.state == SAMEKEY_GUARD_STATE_SUCCESS && receipt.final && strstr(receipt.document, "YQBi"));
    samekey_guard_postgres_receipt_clear(&receipt);
    const struct samekey_guard_call other = {.call_id = "c-2", .key = "k2", .route = "r"};
    SHOULD(samekey_guard_postgres_fence(conn, &other, &receipt, &error) == SAMEKEY_GUARD_OK);
    SHOULD(receipt.state == SAMEKEY_GUARD_STATE_FAILED && receipt.safe_new_key);
    samekey_guard_postgres_receipt_clear(&receipt);
    run(conn, "BEGIN");
    SHOULD(begin(conn, &other) == SAMEKEY_GUARD_FENCED);
    run(conn, "ROLLBACK; BEGIN");
    /* Another connection has it: in progress after the wait, and above READ COMMITTED to be run again. */
    PGconn *late = opened();
    struct samekey_guard_call held = {.call_id = "c-3", .key = "k3", .route = "r", .wait_ms = 50};
    SHOULD(begin(conn, &held) == SAMEKEY_GUARD_RUN);
    run(late, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM samekey.call");
    SHOULD(begin(late, &held) == SAMEKEY_GUARD_IN_PROGRESS);
    SHOULD(samekey_guard_postgres_finish(conn, &held, &DONE, &error) == SAMEKEY_GUARD_OK);
    run(conn, "COMMIT");
    SHOULD(begin(late, &held) == SAMEKEY_GUARD_RETRY_TRANSACTION);
    run(late, "ROLLBACK; BEGIN");
    SHOULD(begin(late, &held) == SAMEKEY_GUARD_REPLAY);
    PQfinish(late);
    PQfinish(conn);
}

/* ---- the table ---------------------------------------------------------------------------------------------- */

#define OLD_ID "c-1700000000000-0123456789ab-n"

static const char *or_null(char c, char text[8])
{
    snprintf(text, 8, c == '-' ? "NULL" : "'%c'", c);
    return text;
}

static void put(PGconn *conn, const char *call_id, const char *kind, char key, char print, char route,
                int holds)
{
    if (strcmp(kind, "none") == 0)
        return;
    int success = strcmp(kind, "done") == 0 || strcmp(kind, "shared") == 0 || strcmp(kind, "expired") == 0;
    int running = strcmp(kind, "running") == 0;
    char sql[1024], a[8], b[8];
    snprintf(sql, sizeof sql,
             "INSERT INTO samekey.call(tenant, call_id, route, key, fingerprint, state, final, holds, came, "
             "reason, run, "
             "result_kept, original_call_id, ended_at, key_expires_at) VALUES ('', '%s', '%c', %s, %s, '%s', "
             "%s, %s, %s, %s, "
             "gen_random_uuid(), false, %s, now(), '%sinfinity')",
             call_id, route == '-' ? 'r' : route, or_null(key, a), or_null(print, b),
             success   ? "SUCCESS"
             : running ? "PROCESSING"
                       : "FAILED",
             !running && strcmp(kind, "open") != 0 ? "true" : "false", holds && key != '-' ? "true" : "false",
             strcmp(kind, "fence") != 0 ? "true" : "false", *kind == 'f' ? "'fenced'" : "NULL",
             strcmp(kind, "shared") == 0 ? "'h'" : "NULL", strcmp(kind, "expired") == 0 ? "-" : "");
    run(conn, sql);
}

static void play(void *context, const struct decision *d)
{
    static const char *const words[] = {"",         "run",    "replay",  "in_progress",
                                        "mismatch", "fenced", "expired", "retry_transaction"};
    PGconn *conn = context;
    const char *call_id = d->old ? OLD_ID : "c-9";
    run(conn, "BEGIN; UPDATE samekey.setting SET refuse_before = to_timestamp(1700000000.001)");
    put(conn, "h", d->holder, 'A', d->holder_fingerprint, 'r', 1);
    put(conn, call_id, d->own, d->own_key, d->own_fingerprint, d->own_route,
        strcmp(d->own, "done") == 0 || strcmp(d->own, "running") == 0);
    char key[2] = {d->key}, print[2] = {d->fingerprint}, route[2] = {d->route};
    const struct samekey_guard_call call = {.call_id = call_id,
                                            .key = d->key == '-' ? NULL : key,
                                            .fingerprint = d->fingerprint == '-' ? NULL : print,
                                            .route = route};
    int verdict = begin(conn, &call);
    if (strcmp(words[verdict], d->verdict) != 0) {
        fprintf(stderr, "decisions.txt:%d: the library says %s, not %s\n", d->line, words[verdict],
                d->verdict);
        exit(1);
    }
    run(conn, "ROLLBACK");
}

static void play_decisions(void)
{
    PGconn *conn = opened();
    SHOULD(samekey_guard_postgres_install(conn, &error) == SAMEKEY_GUARD_OK);
    SHOULD(decisions_play(play, conn) > 300);
    PQfinish(conn);
}

/* ---- a standby that does not answer -------------------------------------------------------------------------- */

static void play_standby(void)
{
    PGconn *conn = opened();
    struct samekey_guard_answer answer = {0};
    struct samekey_guard_commit commit = {0};
    const struct samekey_guard_reopen reopen = {.conninfo = conninfo};
    run(conn, "BEGIN");
    SHOULD(samekey_guard_postgres_begin(conn, &CALL, &answer, &error) == SAMEKEY_GUARD_OK);
    SHOULD(samekey_guard_postgres_finish(conn, &CALL, &DONE, &error) == SAMEKEY_GUARD_OK);
    printf("%d\n", PQbackendPID(conn));
    fflush(stdout);
    SHOULD(samekey_guard_postgres_commit(conn, &CALL, &answer, &reopen, &commit) == SAMEKEY_GUARD_OK);
    /* It is visible on this server, and may be lost with it: nothing that is looked up here proves more. */
    SHOULD(commit.first == SAMEKEY_GUARD_COMMIT_UNKNOWN && commit.settled == SAMEKEY_GUARD_COMMIT_UNKNOWN);
    SHOULD(strstr(commit.text, "standby"));
    PQfinish(conn);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    conninfo = argv[1];
    if (strcmp(argv[2], "api") == 0)
        play_api();
    else if (strcmp(argv[2], "decisions") == 0)
        play_decisions();
    else if (strcmp(argv[2], "standby") == 0)
        play_standby();
    else
        return 64;
    return 0;
}
