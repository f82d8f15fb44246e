/* SPDX-License-Identifier: MIT
 *
 * The guard's functions in PostgreSQL, asked with a deadline: libpq is driven without blocking, and what is late is closed.
 * Statements are unnamed, so a pooler in transaction mode may stand in between.
 */
#include "gateway/ledger.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define RUNNING_WAIT_MS                                                                                      \
    50 /* a transaction that has the call: how long to wait for its end before it is told as running */

/* Whether the socket is ready before the deadline. */
static bool ready(PGconn *conn, short events, int64_t deadline_ms)
{
    int64_t left = deadline_ms - clock_monotonic_ms();
    struct pollfd fd = {.fd = PQsocket(conn), .events = events};
    return left > 0 && fd.fd >= 0 && poll(&fd, 1, (int)(left > 60000 ? 60000 : left)) > 0;
}

static void tell(struct ledger_ask *ask, const char *why)
{
    snprintf(ask->why, sizeof ask->why, "%s", why);
    ask->why[strcspn(ask->why, "\n")] = '\0';
}

void ledger_postgres_close(struct ledger_link *link)
{
    PQfinish(link->handle);
    link->handle = NULL;
}

static bool connected(struct ledger_link *link, struct ledger_ask *ask)
{
    static const char *const names[] = {"dbname", "fallback_application_name", NULL};
    const char *const values[] = {link->address, "samekey gateway", NULL};
    PGconn *conn = PQconnectStartParams(names, values, 1);
    link->handle = conn;
    PostgresPollingStatusType step =
        PQstatus(conn) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (step == PGRES_POLLING_WRITING || step == PGRES_POLLING_READING) {
        if (!ready(conn, step == PGRES_POLLING_WRITING ? POLLOUT : POLLIN, ask->deadline_ms)) {
            tell(ask, "the database did not take the connection in time");
            return false;
        }
        step = PQconnectPoll(conn);
    }
    if (step == PGRES_POLLING_OK && PQsetnonblocking(conn, 1) == 0)
        return true;
    tell(ask, conn ? PQerrorMessage(conn) : "out of memory");
    return false;
}

static bool send_question(PGconn *conn, const struct ledger_ask *ask)
{
    int64_t left = ask->deadline_ms - clock_monotonic_ms();
    char wait[24];
    snprintf(wait, sizeof wait, "%lld",
             (long long)(ask->fence                   ? left / 2 + 1
                         : left / 4 < RUNNING_WAIT_MS ? left / 4 + 1
                                                      : RUNNING_WAIT_MS));
    const char *values[] = {ask->call_id.data, ask->tenant.data, wait};
    return PQsendQueryParams(conn,
                             ask->fence ? "SELECT samekey.fence($1, $2, wait_ms => $3::integer)"
                                        : "SELECT samekey.receipt($1, $2, $3::integer)",
                             3, NULL, values, NULL, NULL, 0) == 1;
}

/* Waits for the end of what is asked; false: late or lost. */
static bool wait_idle(PGconn *conn, int64_t deadline_ms)
{
    int rest = PQflush(conn);
    while (rest > 0 || PQisBusy(conn)) {
        if (rest < 0 || !ready(conn, (short)(POLLIN | (rest > 0 ? POLLOUT : 0)), deadline_ms) ||
            !PQconsumeInput(conn))
            return false;
        if (rest > 0)
            rest = PQflush(conn);
    }
    return rest == 0;
}

/* One try on the connection there is. False: the connection is of no more use. */
static bool ask_once(PGconn *conn, struct ledger_ask *ask)
{
    if (!send_question(conn, ask)) {
        tell(ask, PQerrorMessage(conn));
        return false;
    }
    for (;;) {
        if (!wait_idle(conn, ask->deadline_ms)) {
            tell(ask, PQstatus(conn) == CONNECTION_OK ? "the database did not answer in time"
                                                      : PQerrorMessage(conn));
            return false;
        }
        PGresult *result = PQgetResult(conn);
        if (!result)
            return PQstatus(conn) == CONNECTION_OK;
        if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1) {
            buffer_append(&ask->document, PQgetvalue(result, 0, 0), (size_t)PQgetlength(result, 0, 0));
            ask->answered = !ask->document.failed;
        } else if (!ask->answered) {
            const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
            tell(ask, text ? text : PQerrorMessage(conn));
        }
        PQclear(result);
    }
}

void ledger_postgres_ask(struct ledger_link *link, struct ledger_ask *ask)
{
    /* A connection that idled may have been closed long ago: then the question goes once over a new one. */
    for (int old = link->handle != NULL; old >= 0; old--) {
        if ((link->handle || connected(link, ask)) && ask_once(link->handle, ask))
            return;
        ledger_postgres_close(link);
        if (ask->answered || clock_monotonic_ms() >= ask->deadline_ms)
            return;
    }
}
