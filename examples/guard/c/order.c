/* SPDX-License-Identifier: MIT
 *
 * Places one order, once, in PostgreSQL: the guard in C, with a COMMIT that is never taken for a failure.
 *
 *     order CONNINFO CALL_ID ORDER AMOUNT
 *
 * Says on stdout what it does, a line each. Exit: 0 placed, now or before; 3 refused; 4 not known; 69 no database.
 */
#include <samekey/guard_postgres.h>

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACED = 0, REFUSED = 3, UNKNOWN = 4, NO_DATABASE = 69, TRIES = 5, WAIT_MS = 2000 };

/* The business change: one row. */
static int place(PGconn *conn, const char *order, const char *amount)
{
    const char *values[] = {order, amount};
    PGresult *result =
        PQexecParams(conn, "INSERT INTO orders VALUES ($1, $2::bigint)", 2, NULL, values, NULL, NULL, 0);
    int good = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    puts("handler ran");
    return good;
}

static const char *word(int committed)
{
    return committed == SAMEKEY_GUARD_COMMITTED       ? "committed"
           : committed == SAMEKEY_GUARD_NOT_COMMITTED ? "not committed"
                                                      : "unknown";
}

/* One transaction. Returns an exit code, or -1: nothing of it happened, run it again. */
static int try_once(PGconn *conn, const char *conninfo, const struct samekey_guard_call *call,
                    const char *order, const char *amount)
{
    struct samekey_guard_answer answer = {0};
    struct samekey_guard_error error = {0};
    PQclear(PQexec(conn, "BEGIN"));
    if (samekey_guard_postgres_begin(conn, call, &answer, &error) != SAMEKEY_GUARD_OK) {
        fprintf(stderr, "order: begin: %s\n", error.text);
        return -1; /* no COMMIT was sent, so there is nothing to find out */
    }
    int code = -1;
    switch (answer.verdict) {
    case SAMEKEY_GUARD_RUN:
        break;
    case SAMEKEY_GUARD_REPLAY:
        printf("replay %d %s\n", answer.status, answer.body ? (char *)answer.body : "");
        code = PLACED;
        PQclear(PQexec(conn, "COMMIT"));
        goto done;
    case SAMEKEY_GUARD_RETRY_TRANSACTION:
        goto done;
    default:
        printf("refused %d\n", answer.verdict);
        code = REFUSED;
        goto done;
    }
    const char *body = "{\"placed\":true}";
    const struct samekey_guard_ending ending = {
        .state = SAMEKEY_GUARD_STATE_SUCCESS, .status = 201, .body = body, .body_len = strlen(body)};
    if (!place(conn, order, amount) ||
        samekey_guard_postgres_finish(conn, call, &ending, &error) != SAMEKEY_GUARD_OK) {
        fprintf(stderr, "order: %s%s\n", PQerrorMessage(conn), error.text);
        goto done;
    }
    const struct samekey_guard_reopen reopen = {.conninfo = conninfo, .wait_ms = WAIT_MS};
    struct samekey_guard_commit commit;
    if (samekey_guard_postgres_commit(conn, call, &answer, &reopen, &commit) != SAMEKEY_GUARD_OK)
        goto done;
    printf("commit %s, then %s\n", word(commit.first), word(commit.settled));
    if (commit.settled == SAMEKEY_GUARD_COMMITTED)
        code = PLACED;
    else if (commit.settled == SAMEKEY_GUARD_COMMIT_UNKNOWN) {
        /* To be written where it is looked at later: samekey_guard_postgres_settle() with this run. */
        printf("unsettled %s %s\n", call->call_id, answer.run);
        code = UNKNOWN;
    }
done:
    samekey_guard_postgres_answer_clear(&answer);
    return code;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: order CONNINFO CALL_ID ORDER AMOUNT\n", stderr);
        return 64;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    char key[256];
    snprintf(key, sizeof key, "order:%s", argv[3]);
    const struct samekey_guard_call call = {
        .call_id = argv[2], .key = key, .fingerprint = argv[4], .route = "orders", .wait_ms = WAIT_MS};
    for (int i = 0; i < TRIES; i++) {
        PGconn *conn = PQconnectdb(argv[1]);
        int code = PQstatus(conn) == CONNECTION_OK ? try_once(conn, argv[1], &call, argv[3], argv[4]) : -1;
        PQfinish(conn);
        if (code >= 0)
            return code;
    }
    return NO_DATABASE;
}
