/* SPDX-License-Identifier: MIT
 *
 * What keeps many calls from hurting a service together: the retry budget, a breaker for each origin, and how many
 * attempts and retries are in flight at once (CONTRACT section 3; issue of the retry storm). The rules are core/budget.h
 * and core/breaker.h; here is where their counts live:
 *
 *   in memory    for one handle without a journal
 *   limits.db    beside the journal, for all processes of a user: a shell loop of a thousand calls is one caller. Not
 *                synced: what a power cut takes away is a few counts. A file that is damaged is made anew.
 *
 * Always true: (1) what a killed process held is free again: attempts in flight and the breaker's probe are locks that
 * die with their holder (caller/slot.h); (2) a limits.db that cannot be used is as none: this process then keeps its own
 * counts, since limits protect the service and must not stop the call; (3) the clock is the one that all processes of one
 * boot share; counts of an earlier boot are forgotten.
 */
#ifndef SAMEKEY_CALLER_LIMITS_H
#define SAMEKEY_CALLER_LIMITS_H

#include "base/slice.h"
#include "base/status.h"
#include "caller/slot.h"
#include "core/breaker.h"
#include "core/budget.h"
#include "core/call.h"

#define LIMITS_ORIGINS_MAX   256 /* breakers kept in memory; the one unused for longest makes room */
#define LIMITS_IN_FLIGHT_MAX 4096

struct limits_rule {
    unsigned budget_percent, budget_floor;
    unsigned retries_in_flight, calls_in_flight; /* 0: no limit */
    struct breaker_rule breaker;
};

struct limits;

/* path: of limits.db, or NULL for memory. STATUS_NO_MEMORY. */
enum status limits_open(struct limits **out, const struct limits_rule *rule, const char *path);
void limits_close(struct limits *l); /* NULL is accepted */

/* An attempt that was let out. */
struct limits_pass {
    struct breaker_ticket ticket;
    bool shared; /* counted in limits.db */
    bool retry;
    struct slot call, retry_slot, probe;
};

/* Asks to let one attempt out. Any thread. true: send, then limits_leave() exactly once. false: *denial,
 * *retry_in_ms (or -1) and *why, a constant sentence without its full stop. */
bool limits_enter(struct limits *l, struct slice origin, bool is_retry, int64_t now_ms,
                  struct limits_pass *pass, enum call_denial *denial, int64_t *retry_in_ms, const char **why);

/* Tells how it ended; u in [0, 1) is the jitter of an open time. */
void limits_leave(struct limits *l, struct slice origin, int64_t now_ms, struct limits_pass *pass,
                  enum breaker_verdict verdict, double u);

#endif
