/* SPDX-License-Identifier: MIT */
#include "samekey/guard_postgres.h"

#include "guard/postgres.h"
#include "guard/schema.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS_DEFAULT = 5000, FENCE_WAIT_MS_DEFAULT = 1000 };

void postgres_text(struct postgres_params *p, const char *text)
{
    p->values[p->count] = text;
    p->lengths[p->count] = 0;
    p->formats[p->count++] = 0;
}

void postgres_bytes(struct postgres_params *p, const void *bytes, size_t len)
{
    p->values[p->count] = len ? bytes : "";
    p->lengths[p->count] = (int)len;
    p->formats[p->count++] = 1;
}

PGresult *postgres_ask(PGconn *conn, const char *sql, const struct postgres_params *p, int columns,
                       int *status, struct samekey_guard_error *error)
{
    PGresult *result = PQexecParams(conn, sql, p->count, NULL, p->values, p->lengths, p->formats, 0);
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 && PQnfields(result) == columns)
        return result;
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    *status = guard_fail(error, result ? SAMEKEY_GUARD_DATABASE : SAMEKEY_GUARD_NO_MEMORY, code,
                         text ? text : PQerrorMessage(conn));
    PQclear(result);
    return NULL;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static int open_transaction(PGconn *conn, struct samekey_guard_error *error)
{
    switch (PQtransactionStatus(conn)) {
    case PQTRANS_INTRANS:
        return SAMEKEY_GUARD_OK;
    case PQTRANS_INERROR:
        return guard_fail(error, SAMEKEY_GUARD_NO_TRANSACTION, "",
                          "the transaction is aborted by an earlier error; roll back");
    case PQTRANS_UNKNOWN:
        return guard_fail(error, SAMEKEY_GUARD_DATABASE, "", "the connection is gone");
    default:
        return guard_fail(error, SAMEKEY_GUARD_NO_TRANSACTION, "",
                          "no transaction is open; send BEGIN first");
    }
}

int samekey_guard_postgres_install(PGconn *conn, struct samekey_guard_error *error)
{
    if (PQtransactionStatus(conn) != PQTRANS_IDLE)
        return guard_fail(error, SAMEKEY_GUARD_NO_TRANSACTION, "",
                          "install outside of a transaction, on a connection that is idle");
    /* Several statements in one simple query are one transaction. */
    PGresult *result = PQexec(conn, guard_schema_postgres);
    int status = SAMEKEY_GUARD_OK;
    ExecStatusType how = PQresultStatus(result);
    if (how != PGRES_COMMAND_OK && how != PGRES_TUPLES_OK) {
        const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        status = guard_fail(error, result ? SAMEKEY_GUARD_DATABASE : SAMEKEY_GUARD_NO_MEMORY,
                            PQresultErrorField(result, PG_DIAG_SQLSTATE), text ? text : PQerrorMessage(conn));
    }
    PQclear(result);
    return status;
}

/* The columns of `begin`, in the order they are asked for. */
enum { VERDICT, STATE, REASON, STATUS, HEADERS, BODY, KEPT, ORIGINAL, RUN, BEGIN_COLUMNS };
#define BEGIN_SQL                                                                                            \
    "SELECT verdict, state, reason, result_status, result_headers, encode(result_body, 'hex'), "             \
    "result_kept, "                                                                                          \
    "original_call_id, run FROM samekey.begin($1, $2, $3, $4, $5, $6::integer)"

static int nibble(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void *body_of(const char *hex, size_t *len)
{
    *len = strlen(hex) / 2;
    unsigned char *body = malloc(*len + 1);
    if (!body)
        return NULL;
    for (size_t i = 0; i < *len; i++)
        body[i] = (unsigned char)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
    body[*len] = '\0';
    return body;
}

static int read_answer(const PGresult *result, struct samekey_guard_answer *out)
{
    struct samekey_guard_answer a = {.verdict = guard_verdict(PQgetvalue(result, 0, VERDICT))};
    guard_copy(a.run, sizeof a.run, PQgetvalue(result, 0, RUN));
    if (a.verdict == SAMEKEY_GUARD_REPLAY) {
        a.state = guard_state(PQgetvalue(result, 0, STATE));
        a.final = 1;
        guard_copy(a.reason, sizeof a.reason, PQgetvalue(result, 0, REASON));
        guard_copy(a.original_call_id, sizeof a.original_call_id, PQgetvalue(result, 0, ORIGINAL));
        a.result_kept = PQgetvalue(result, 0, KEPT)[0] == 't';
        if (a.result_kept) {
            a.status = (int)strtol(PQgetvalue(result, 0, STATUS), NULL, 10);
            const char *headers = PQgetvalue(result, 0, HEADERS);
            a.headers = guard_bytes(headers, strlen(headers));
            a.body = body_of(PQgetvalue(result, 0, BODY), &a.body_len);
            if (!a.headers || !a.body) {
                guard_answer_clear(&a);
                return SAMEKEY_GUARD_NO_MEMORY;
            }
        }
    }
    *out = a;
    return a.verdict ? SAMEKEY_GUARD_OK : SAMEKEY_GUARD_DATABASE;
}

int samekey_guard_postgres_begin(PGconn *conn, const struct samekey_guard_call *call,
                                 struct samekey_guard_answer *answer, struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    int status = open_transaction(conn, error);
    if (status != SAMEKEY_GUARD_OK)
        return status;
    char wait[POSTGRES_INT_TEXT];
    snprintf(wait, sizeof wait, "%d", call->wait_ms ? call->wait_ms : WAIT_MS_DEFAULT);
    struct postgres_params p = {0};
    postgres_text(&p, call->call_id);
    postgres_text(&p, call->key);
    postgres_text(&p, call->fingerprint);
    postgres_text(&p, or_empty(call->route));
    postgres_text(&p, or_empty(call->tenant));
    postgres_text(&p, wait);
    PGresult *result = postgres_ask(conn, BEGIN_SQL, &p, BEGIN_COLUMNS, &status, error);
    if (!result)
        return status;
    status = read_answer(result, answer);
    PQclear(result);
    if (status != SAMEKEY_GUARD_OK)
        guard_fail(error, status, "",
                   status == SAMEKEY_GUARD_NO_MEMORY ? "out of memory"
                                                     : "the installed schema is of another version");
    return status;
}

int samekey_guard_postgres_finish(PGconn *conn, const struct samekey_guard_call *call,
                                  const struct samekey_guard_ending *ending,
                                  struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (!wrong)
        wrong = guard_ending_wrong(ending);
    if (!wrong && ending->body_len > INT_MAX)
        wrong = "the body is too large to keep";
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    int status = open_transaction(conn, error);
    if (status != SAMEKEY_GUARD_OK)
        return status;
    char code[POSTGRES_INT_TEXT];
    snprintf(code, sizeof code, "%d", ending->status);
    struct postgres_params p = {0};
    postgres_text(&p, call->call_id);
    postgres_text(&p, ending->state == SAMEKEY_GUARD_STATE_SUCCESS ? "SUCCESS" : "FAILED");
    postgres_text(&p, ending->status ? code : NULL);
    if (ending->status)
        postgres_bytes(&p, ending->body, ending->body_len);
    else
        postgres_text(&p, NULL);
    postgres_text(&p, ending->headers);
    postgres_text(&p, or_empty(call->tenant));
    postgres_text(&p, ending->may_run_again ? "false" : "true");
    PGresult *result = postgres_ask(
        conn, "SELECT samekey.finish($1, $2, $3::integer, $4::bytea, $5::jsonb, $6, $7::boolean)", &p, 1,
        &status, error);
    PQclear(result);
    return result ? SAMEKEY_GUARD_OK : status;
}

#define RECEIPT_COLUMNS "SELECT d->>'state', d->>'final', d->>'safe_new_key', d FROM "

static int ask_receipt(PGconn *conn, const char *sql, const struct postgres_params *p,
                       struct samekey_guard_receipt *out, struct samekey_guard_error *error)
{
    int status = SAMEKEY_GUARD_OK;
    PGresult *result = postgres_ask(conn, sql, p, 4, &status, error);
    if (!result)
        return status;
    struct samekey_guard_receipt r = {
        .state = guard_state(PQgetvalue(result, 0, 0)),
        .final = PQgetvalue(result, 0, 1)[0] == 't',
        .safe_new_key = PQgetvalue(result, 0, 2)[0] == 't',
        .document = guard_bytes(PQgetvalue(result, 0, 3), strlen(PQgetvalue(result, 0, 3)))};
    PQclear(result);
    if (!r.document)
        return guard_fail(error, SAMEKEY_GUARD_NO_MEMORY, "", "out of memory");
    *out = r;
    return SAMEKEY_GUARD_OK;
}

int samekey_guard_postgres_receipt(PGconn *conn, const char *call_id, const char *tenant, int wait_ms,
                                   struct samekey_guard_receipt *out, struct samekey_guard_error *error)
{
    struct samekey_guard_call call = {.call_id = call_id, .tenant = tenant, .wait_ms = wait_ms};
    const char *wrong = guard_call_wrong(&call);
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    char wait[POSTGRES_INT_TEXT];
    snprintf(wait, sizeof wait, "%d", wait_ms);
    struct postgres_params p = {0};
    postgres_text(&p, call_id);
    postgres_text(&p, or_empty(tenant));
    postgres_text(&p, wait);
    return ask_receipt(conn, RECEIPT_COLUMNS "samekey.receipt($1, $2, $3::integer) d", &p, out, error);
}

int samekey_guard_postgres_fence(PGconn *conn, const struct samekey_guard_call *call,
                                 struct samekey_guard_receipt *out, struct samekey_guard_error *error)
{
    const char *wrong = guard_call_wrong(call);
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    char wait[POSTGRES_INT_TEXT];
    snprintf(wait, sizeof wait, "%d", call->wait_ms ? call->wait_ms : FENCE_WAIT_MS_DEFAULT);
    struct postgres_params p = {0};
    postgres_text(&p, call->call_id);
    postgres_text(&p, or_empty(call->tenant));
    postgres_text(&p, call->route);
    postgres_text(&p, call->key);
    postgres_text(&p, wait);
    return ask_receipt(conn, RECEIPT_COLUMNS "samekey.fence($1, $2, $3, $4, $5::integer) d", &p, out, error);
}

int samekey_guard_postgres_outbox_add(PGconn *conn, const struct samekey_guard_call *call, const char *topic,
                                      const char *headers, const void *payload, size_t payload_len,
                                      char message_id[129], struct samekey_guard_error *error)
{
    struct samekey_guard_call checked = *call;
    if (!checked.call_id)
        checked.call_id = "none";
    const char *wrong = guard_call_wrong(&checked);
    if (!wrong && (!topic || payload_len > INT_MAX || (payload_len && !payload)))
        wrong = "an event has a topic, and a payload below 2 GiB";
    if (wrong)
        return guard_fail(error, SAMEKEY_GUARD_INVALID, "", wrong);
    int status = open_transaction(conn, error);
    if (status != SAMEKEY_GUARD_OK)
        return status;
    struct postgres_params p = {0};
    postgres_text(&p, topic);
    postgres_bytes(&p, payload, payload_len);
    postgres_text(&p, call->call_id);
    postgres_text(&p, headers ? headers : "{}");
    postgres_text(&p, or_empty(call->tenant));
    PGresult *result = postgres_ask(conn, "SELECT samekey.outbox_add($1, $2::bytea, $3, $4::jsonb, $5)", &p,
                                    1, &status, error);
    if (!result)
        return status;
    if (message_id)
        guard_copy(message_id, 129, PQgetvalue(result, 0, 0));
    PQclear(result);
    return SAMEKEY_GUARD_OK;
}

void samekey_guard_postgres_answer_clear(struct samekey_guard_answer *answer)
{
    guard_answer_clear(answer);
}

void samekey_guard_postgres_receipt_clear(struct samekey_guard_receipt *receipt)
{
    guard_receipt_clear(receipt);
}
