/* SPDX-License-Identifier: MIT
 *
 * The guard for SQLite 3.40 or later, over the service's own connection (guard.h says what holds). The same is there in SQL
 * for every other language; this library runs it.
 *
 * Open the transaction with BEGIN IMMEDIATE: then the wait for another writer is BEGIN's, and ..._begin() never waits. In a
 * transaction opened with BEGIN that has read already, a lost race is SAMEKEY_GUARD_RETRY_TRANSACTION.
 */
#ifndef SAMEKEY_GUARD_SQLITE_H
#define SAMEKEY_GUARD_SQLITE_H

#include <samekey/guard.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sqlite3;

/* Makes the guard's tables and views where they are missing, in a transaction of its own. _NO_TRANSACTION: one is open. */
SAMEKEY_API int samekey_guard_sqlite_install(struct sqlite3 *db, struct samekey_guard_error *error);

/* Begins a call in the open transaction. A file that another writer holds for longer than the busy timeout (or wait_ms,
 * which replaces a busy timeout for this one statement; leave it 0 with a busy handler of your own) is _IN_PROGRESS.
 * SAMEKEY_GUARD_OK with a verdict; _INVALID, _NO_MEMORY, _DATABASE, _NO_TRANSACTION. */
SAMEKEY_API int samekey_guard_sqlite_begin(struct sqlite3 *db, const struct samekey_guard_call *call,
                                           struct samekey_guard_answer *answer,
                                           struct samekey_guard_error *error);

/* Ends a call that this transaction began (call_id and tenant count). _INVALID: the ending is out of form, or the call was
 * not begun here. */
SAMEKEY_API int samekey_guard_sqlite_finish(struct sqlite3 *db, const struct samekey_guard_call *call,
                                            const struct samekey_guard_ending *ending,
                                            struct samekey_guard_error *error);

/* Commits. A transaction with a call that is not finished is not committed: SAMEKEY_GUARD_INVALID, and it stays open. A file
 * that is busy: _DATABASE, and it stays open. When the disk fails under a COMMIT, a new connection is asked for the row of
 * `begun`. SAMEKEY_GUARD_OK with `out` filled. */
SAMEKEY_API int samekey_guard_sqlite_commit(struct sqlite3 *db, const struct samekey_guard_call *call,
                                            const struct samekey_guard_answer *begun,
                                            struct samekey_guard_commit *out,
                                            struct samekey_guard_error *error);

/* Looks whether the transaction that began `call` with `run` was committed. */
SAMEKEY_API int samekey_guard_sqlite_settle(struct sqlite3 *db, const struct samekey_guard_call *call,
                                            const char *run, int *settled, struct samekey_guard_error *error);

/* The receipt of a call. UNKNOWN: it was committed without having been finished, or is older than what is remembered. */
SAMEKEY_API int samekey_guard_sqlite_receipt(struct sqlite3 *db, const char *call_id, const char *tenant,
                                             struct samekey_guard_receipt *out,
                                             struct samekey_guard_error *error);

/* Gives a call up (route and key, when known, make safe_new_key true). A busy file: _DATABASE, and nothing changed. */
SAMEKEY_API int samekey_guard_sqlite_fence(struct sqlite3 *db, const struct samekey_guard_call *call,
                                           struct samekey_guard_receipt *out,
                                           struct samekey_guard_error *error);

/* Writes down an event that is sent when, and only when, the open transaction commits. call_id and tenant of `call` count;
 * call_id may be NULL. headers: a JSON object, or NULL. message_id, when not NULL, gets the message's callId. */
SAMEKEY_API int samekey_guard_sqlite_outbox_add(struct sqlite3 *db, const struct samekey_guard_call *call,
                                                const char *topic, const char *headers, const void *payload,
                                                size_t payload_len, char message_id[129],
                                                struct samekey_guard_error *error);

/* Frees what an answer or a receipt holds, and zeroes it. NULL is accepted. */
SAMEKEY_API void samekey_guard_sqlite_answer_clear(struct samekey_guard_answer *answer);
SAMEKEY_API void samekey_guard_sqlite_receipt_clear(struct samekey_guard_receipt *receipt);

#ifdef __cplusplus
}
#endif
#endif
