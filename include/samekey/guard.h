/* SPDX-License-Identifier: MIT
 *
 * samekey's guard: a receipt inside the service's own transaction. What guard_postgres.h and guard_sqlite.h share.
 *
 *   BEGIN
 *     ..._begin()    RUN: this transaction has the call. Anything else: the handler is not run.
 *     the service's own rows
 *     ..._finish()   SUCCESS or FAILED, with the answer to replay
 *   ..._commit()     or the service's own COMMIT
 *
 * Always true:
 *  (1) A receipt that can be seen is committed with its effect.
 *  (2) Of two transactions that begin one call, or calls with one key, one runs. The other waits, and gets the receipt if
 *      the first commits, and the call if it rolls back.
 *  (3) Nothing but ..._commit() commits, and nothing rolls back. An answer, whatever it says, leaves the transaction
 *      usable; only SAMEKEY_GUARD_DATABASE may mean that the database has aborted it.
 *  (4) Results are written only when SAMEKEY_GUARD_OK is returned.
 *
 * The tables and functions come from `samekey schema`, or from ..._install(). Texts are NUL-terminated UTF-8, times
 * milliseconds. Nothing here keeps a thing between two functions, logs, or exits.
 */
#ifndef SAMEKEY_GUARD_H
#define SAMEKEY_GUARD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SAMEKEY_API
#if defined(__GNUC__)
#define SAMEKEY_API __attribute__((visibility("default")))
#else
#define SAMEKEY_API
#endif
#endif

enum samekey_guard_status {
    SAMEKEY_GUARD_OK = 0,
    SAMEKEY_GUARD_INVALID =
        1, /* an argument breaks a rule; nothing was changed and the transaction is usable */
    SAMEKEY_GUARD_NO_MEMORY = 2,     /* nothing is known of the answer: roll back */
    SAMEKEY_GUARD_DATABASE = 3,      /* the database refused or is gone; the error says how: roll back */
    SAMEKEY_GUARD_NO_TRANSACTION = 4 /* there is no open transaction, or it is aborted; nothing was sent */
};

/* What ..._begin() decided. */
enum samekey_guard_verdict {
    SAMEKEY_GUARD_RUN = 1,    /* do the work, then finish */
    SAMEKEY_GUARD_REPLAY = 2, /* it ended before: give the stored answer; commit, the asking call has a row */
    SAMEKEY_GUARD_IN_PROGRESS = 3, /* another transaction works on it, longer than wait_ms */
    SAMEKEY_GUARD_MISMATCH = 4,    /* the callId or the key belongs to another request */
    SAMEKEY_GUARD_FENCED = 5,      /* its caller gave it up: it can never run */
    SAMEKEY_GUARD_EXPIRED = 6,     /* a new call on a key past its life, or older than what is remembered */
    SAMEKEY_GUARD_RETRY_TRANSACTION =
        7 /* a race was lost above READ COMMITTED: roll back, run the transaction again */
};

/* How a call stands; the numbers of samekey.h. */
enum samekey_guard_state {
    SAMEKEY_GUARD_STATE_NOT_RECEIVED = 0,
    SAMEKEY_GUARD_STATE_PROCESSING = 2,
    SAMEKEY_GUARD_STATE_SUCCESS = 3,
    SAMEKEY_GUARD_STATE_FAILED = 4,
    SAMEKEY_GUARD_STATE_UNKNOWN = 5
};

/* Why a function did not return SAMEKEY_GUARD_OK. The caller's own; every function accepts NULL for it. */
struct samekey_guard_error {
    char code[8]; /* SQLSTATE, or SQLite's extended result code in digits; "" when it is not the database's */
    char text[240]; /* a sentence */
};

/* A call that arrives. Zero what you do not set. Borrowed while a function runs. */
struct samekey_guard_call {
    const char *call_id; /* 1 to 128 of A-Z a-z 0-9 . _ : - */
    const char *key; /* idempotency key, 1 to 255 bytes of visible ASCII; NULL: guarded by its callId alone */
    const char *fingerprint; /* a digest of the request, at most 255 bytes; NULL: not compared */
    const char *route;       /* the key's scope, at most 255 bytes; NULL is "" */
    const char *tenant;      /* at most 255 bytes; NULL is "" */
    int wait_ms; /* for another transaction; 0: the default, 5000 (SQLite: the connection's busy timeout) */
};

/* What ..._begin() answers. Free what it holds with ..._answer_clear(); zero bytes are an empty one. */
struct samekey_guard_answer {
    int verdict;     /* enum samekey_guard_verdict */
    int state;       /* REPLAY: SAMEKEY_GUARD_STATE_SUCCESS or _FAILED; else 0 */
    int final;       /* REPLAY: 1 */
    int result_kept; /* REPLAY: there is an answer: status, headers, body */
    int status;      /* HTTP status */
    char *headers;   /* JSON, a list of pairs; NULL without a result */
    void *body;      /* body_len bytes and a NUL behind them; NULL without a result */
    size_t body_len;
    char reason[32];            /* "rejected", "shared", ...; "" for none */
    char original_call_id[129]; /* REPLAY: the call whose effect it is, when another's; else "" */
    char run[40]; /* names this beginning, for ..._commit(); "" when nothing of the call was written */
};

/* How a call ended. */
struct samekey_guard_ending {
    int state;           /* SAMEKEY_GUARD_STATE_SUCCESS, or _FAILED: nothing of it took effect */
    int may_run_again;   /* with _FAILED: the same call may be sent again and runs then */
    int status;          /* HTTP status of the answer to replay, 100 to 999; 0: none is kept */
    const char *headers; /* JSON, a list of pairs; NULL is [] */
    const void *body;
    size_t body_len;
};

/* What became of a COMMIT. */
enum samekey_guard_committed {
    SAMEKEY_GUARD_COMMITTED = 1,
    SAMEKEY_GUARD_NOT_COMMITTED = 2, /* proved: nothing of it happened; the same call may run again */
    SAMEKEY_GUARD_COMMIT_UNKNOWN = 3 /* never to be taken for a failure: look again later with ..._settle() */
};

struct samekey_guard_commit {
    int first;     /* what the COMMIT itself proved */
    int settled;   /* what is known after the look on a new connection; `first` where none was needed */
    int looked_up; /* 1: a new connection was asked */
    char text[240];
};

/* A receipt, for a service's own receipts endpoint. Free with ..._receipt_clear(). */
struct samekey_guard_receipt {
    int state; /* enum samekey_guard_state. A fence that answers PROCESSING or UNKNOWN changed nothing: HTTP 409 */
    int final;
    int safe_new_key;
    char *document; /* the JSON document; HTTP 404 when NOT_RECEIVED, else 200 */
};

#ifdef __cplusplus
}
#endif
#endif
