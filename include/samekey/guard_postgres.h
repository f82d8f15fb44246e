/* SPDX-License-Identifier: MIT
 *
 * The guard for PostgreSQL, over the service's own libpq connection (guard.h says what holds). The same functions are
 * there in SQL for every other language; this library calls them.
 *
 * A connection belongs to one thread at a time, is blocking here, and must have nothing pending. Statements are unnamed and
 * nothing stays in the session, so a pooler in transaction mode may stand in between.
 */
#ifndef SAMEKEY_GUARD_POSTGRES_H
#define SAMEKEY_GUARD_POSTGRES_H

#include <samekey/guard.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pg_conn; /* libpq's PGconn */

/* Installs or completes schema `samekey` in a transaction of its own; again is no harm. SAMEKEY_GUARD_NO_TRANSACTION: a
 * transaction is open here, which it would have to end. */
SAMEKEY_API int samekey_guard_postgres_install(struct pg_conn *conn, struct samekey_guard_error *error);

/* Begins a call in the open transaction. SAMEKEY_GUARD_OK with a verdict; _INVALID, _NO_MEMORY, _DATABASE,
 * _NO_TRANSACTION. */
SAMEKEY_API int samekey_guard_postgres_begin(struct pg_conn *conn, const struct samekey_guard_call *call,
                                             struct samekey_guard_answer *answer,
                                             struct samekey_guard_error *error);

/* Ends a call that this transaction began (call_id and tenant count). _INVALID: the ending is out of form, found before
 * anything was sent; _DATABASE with 55000: the call was not begun here. */
SAMEKEY_API int samekey_guard_postgres_finish(struct pg_conn *conn, const struct samekey_guard_call *call,
                                              const struct samekey_guard_ending *ending,
                                              struct samekey_guard_error *error);

/* Where a lost COMMIT is looked for. */
struct samekey_guard_reopen {
    const char *conninfo; /* libpq's; a new connection is made with it and closed again */
    /* Instead of conninfo, when not NULL: gives a connection that is not in a transaction, or NULL. It is closed with
     * `close`, or with PQfinish() when that is NULL. */
    struct pg_conn *(*open)(void *context);
    void (*close)(void *context, struct pg_conn *conn);
    void *context;
    int wait_ms; /* how long to wait for the lost transaction to end; 0 is 5000 */
};

/* Sends COMMIT and says what became of it. `begun` is the answer of a call that this transaction began: its row is the
 * witness if the answer gets lost; NULL: then UNKNOWN stays. `reopen` NULL: do not look, ask samekey_guard_postgres_settle()
 * later. A COMMIT is never sent twice and never cancelled. Also UNKNOWN: a COMMIT whose wait for a synchronous standby was
 * broken off (it is visible here and may be lost at a failover); a service with a notice receiver of its own on the
 * connection gets that warning, SQLSTATE class 01, itself. SAMEKEY_GUARD_OK with `out` filled; _NO_TRANSACTION: nothing was
 * sent. */
SAMEKEY_API int samekey_guard_postgres_commit(struct pg_conn *conn, const struct samekey_guard_call *call,
                                              const struct samekey_guard_answer *begun,
                                              const struct samekey_guard_reopen *reopen,
                                              struct samekey_guard_commit *out);

/* Looks what became of the transaction that began `call` with `run`, on a connection without a transaction:
 * SAMEKEY_GUARD_COMMITTED or _NOT_COMMITTED are proved, _COMMIT_UNKNOWN: it has not ended within wait_ms (0 is 5000). */
SAMEKEY_API int samekey_guard_postgres_settle(struct pg_conn *conn, const struct samekey_guard_call *call,
                                              const char *run, int wait_ms, int *settled,
                                              struct samekey_guard_error *error);

/* The receipt of a call. wait_ms over 0: a transaction that has not ended is looked for too, and told as PROCESSING; 0:
 * NOT_RECEIVED says only that nothing is committed. */
SAMEKEY_API int samekey_guard_postgres_receipt(struct pg_conn *conn, const char *call_id, const char *tenant,
                                               int wait_ms, struct samekey_guard_receipt *out,
                                               struct samekey_guard_error *error);

/* Gives a call up (route and key, when known, make safe_new_key true). Effective once committed; outside of a transaction
 * at once. */
SAMEKEY_API int samekey_guard_postgres_fence(struct pg_conn *conn, const struct samekey_guard_call *call,
                                             struct samekey_guard_receipt *out,
                                             struct samekey_guard_error *error);

/* Writes down an event that is sent when, and only when, the open transaction commits. call_id and tenant of `call` count;
 * call_id may be NULL. headers: a JSON object, or NULL. message_id, when not NULL, gets the message's callId. */
SAMEKEY_API int samekey_guard_postgres_outbox_add(struct pg_conn *conn, const struct samekey_guard_call *call,
                                                  const char *topic, const char *headers, const void *payload,
                                                  size_t payload_len, char message_id[129],
                                                  struct samekey_guard_error *error);

/* Frees what an answer or a receipt holds, and zeroes it. NULL is accepted. */
SAMEKEY_API void samekey_guard_postgres_answer_clear(struct samekey_guard_answer *answer);
SAMEKEY_API void samekey_guard_postgres_receipt_clear(struct samekey_guard_receipt *receipt);

#ifdef __cplusplus
}
#endif
#endif
