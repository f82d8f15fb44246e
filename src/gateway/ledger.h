/* SPDX-License-Identifier: MIT
 *
 * A service's own receipts, read where its guard writes them (`receipt = "sql postgres://…"` or "sql sqlite:PATH"): no code
 * of the service takes part. Questions go through a bounded queue to threads of the ledger's own, each with a connection,
 * and come back to the loop that asked as letters.
 *
 * Always true:
 *  (1) No loop waits for the database. A full queue is an answer at once.
 *  (2) Every question that ledger_ask() took comes back once, at its deadline or soon after it.
 *  (3) A connection on which a question did not get its answer in time is closed and never used again.
 *  (4) Asking twice is no harm: a receipt is read, a fence is the same fence.
 */
#ifndef SAMEKEY_GATEWAY_LEDGER_H
#define SAMEKEY_GATEWAY_LEDGER_H

#include "base/buffer.h"
#include "net/loop.h"

#include <stdbool.h>

struct ledger;

/* One question, in the memory of whoever asks. */
struct ledger_ask {
    struct letter letter; /* `open` is called on the loop with the answer */
    struct net_loop *loop;
    struct list link;
    struct slice call_id, tenant; /* NUL-terminated, and the asker's until the letter is opened */
    bool fence;                   /* give the call up instead of reading its receipt */
    int64_t deadline_ms;          /* clock_monotonic_ms() */

    bool answered;          /* `document` is whole */
    struct buffer document; /* the receipt document; the asker frees it */
    char why[128];          /* why not answered */
};

/* Whether an address can be one: postgres://…, postgresql://… or sqlite:PATH. */
bool ledger_address_good(struct slice address);

/* Makes a ledger for an address; nothing is opened before the first question. STATUS_NO_MEMORY, or STATUS_INVALID for an
 * address that is none. */
enum status ledger_new(struct ledger **out, const char *address);
/* Takes a question. STATUS_FULL: it was not taken, and no letter comes. Callable from every thread. */
enum status ledger_ask(struct ledger *ledger, struct ledger_ask *ask);
/* Ends the threads. No question may be under way. NULL is accepted. */
void ledger_free(struct ledger *ledger);

/* ---- what the two kinds of database do, each on a thread of the ledger ---- */

/* A thread's connection. Zero bytes: none yet. */
struct ledger_link {
    const char *address;
    void *handle;
};
/* Answers one question: fills `answered` and `document`, or `why`. */
void ledger_postgres_ask(struct ledger_link *link, struct ledger_ask *ask);
void ledger_sqlite_ask(struct ledger_link *link, struct ledger_ask *ask);
void ledger_postgres_close(struct ledger_link *link);
void ledger_sqlite_close(struct ledger_link *link);

#endif
