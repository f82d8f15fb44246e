/* SPDX-License-Identifier: MIT
 *
 * Admission of one route: how many calls are at work, who waits, and what may be repeated. Shared by all loops.
 *
 * This is the one place in the gateway where loops share mutable state, under a mutex held for a few dozen
 * instructions: limits that are split over loops are not the limits that were configured (a concurrency of 1 over two
 * loops is 2, or sometimes 0).
 *
 * Always true:
 *  (1) places_used <= concurrency, and waiting <= queue.
 *  (2) Every pass that was given is given back exactly once (admission_leave), and with it the breaker hears how the
 *      attempt ended.
 *  (3) Who waits gets a place in the order of asking.
 */
#ifndef SAMEKEY_GATEWAY_ADMISSION_H
#define SAMEKEY_GATEWAY_ADMISSION_H

#include "base/list.h"
#include "core/breaker.h"
#include "core/settings.h"
#include "net/loop.h"

#define ADMISSION_TENANTS_MAX                                                                                \
    16384 /* tenants whose rate is watched at once; past it the longest unused is dropped */

struct admission;

/* How a request to be let in was answered. */
enum admit { ADMIT_YES, ADMIT_WAIT, ADMIT_RATE, ADMIT_FULL, ADMIT_BREAKER };

/* A place at work and the leave to send one attempt. */
struct pass {
    bool place;    /* holds a place */
    bool admitted; /* a breaker's ticket is out */
    size_t origin; /* which upstream */
    struct breaker_ticket ticket;
};

/* One who waits for a place; lives in its owner. `letter.open` runs on its loop when the place is there (then
 * pass.place is set). */
struct waiter {
    struct list link;
    struct letter letter;
    struct net_loop *loop;
    bool waiting; /* in the queue */
    bool called;  /* its letter is on the way */
    struct pass *pass;
};

/* origins: upstreams of the route. *out is the caller's. */
enum status admission_new(struct admission **out, const struct route_settings *route, size_t origins,
                          int64_t now_ms);
void admission_free(struct admission *a);

/* Asks to begin a call. YES: pass holds a place, an upstream and its breaker's leave. WAIT: `waiter` is queued. RATE,
 * FULL, BREAKER: nothing is held (FULL and BREAKER have counted in the rate); *retry_ms says when to come back.
 * `count_rate` is false for one who has been counted already (a call woken from the queue). */
enum admit admission_enter(struct admission *a, struct slice tenant, int64_t now_ms, struct pass *pass,
                           struct waiter *waiter, bool count_rate, int64_t *retry_ms);
/* Picks an upstream and asks its breaker for a call that holds a place but was queued. YES or BREAKER. */
enum admit admission_pick(struct admission *a, int64_t now_ms, struct pass *pass, int64_t *retry_ms);
/* Takes a waiter out of the queue. False: its letter is already on the way and must still be awaited. */
bool admission_withdraw(struct admission *a, struct waiter *waiter);

/* Asks to send one more attempt of a call that is at work. `client` is who retries, for retries_in_flight. On YES the
 * pass has a new upstream and ticket, and admission_retry_done() must follow when the attempt ended.
 * `next_origin`: prefer another upstream than the last. */
enum retry_leave { RETRY_YES, RETRY_BUDGET, RETRY_BREAKER };
enum retry_leave admission_retry(struct admission *a, uint64_t client, int64_t now_ms, struct pass *pass,
                                 bool next_origin, bool costs_budget, int64_t *retry_ms);
void admission_retry_done(struct admission *a, uint64_t client);

/* Tells the breaker how the attempt of this pass ended. Returns true if the breaker changed its state. */
bool admission_report(struct admission *a, struct pass *pass, int64_t now_ms, enum breaker_verdict verdict,
                      double random);
/* Gives the place back and wakes the next in the queue; a ticket that is still out is given back as neutral. */
void admission_leave(struct admission *a, struct pass *pass, int64_t now_ms);

/* For metrics. */
struct admission_counts {
    int64_t at_work, waiting;
    size_t breakers_open; /* of the upstreams */
    bool breaker_open;    /* any */
};
void admission_counts(struct admission *a, int64_t now_ms, struct admission_counts *out);
/* A hash of a client's name for admission_retry(). */
uint64_t admission_client(struct slice name);

#endif
