/* SPDX-License-Identifier: MIT
 *
 * A circuit breaker for one upstream: stop sending to a callee that fails, and let few probes find out when it
 * is well.
 *
 *              failures >= percent of >= calls in window
 *     CLOSED ────────────────────────────────────────────▶ OPEN ◀───────────┐
 *        ▲                                                   │ open time     │ a probe
 *        │                                                   │ is over       │ was BAD
 *        │         as many probes GOOD as configured         ▼               │
 *        └─────────────────────────────────────────────── HALF_OPEN ────────┘
 *
 * What counts (DESIGN section 6; OUTCOMES): BAD is an unknown outcome, a 5xx, and an upstream that could not
 * be reached; GOOD is every other complete answer, a rejection and a 409 too: the callee works. NEUTRAL is our
 * own refusals and 429: they say nothing about its health. A refusal by the breaker itself is final for the
 * attempt and must not be retried against it.
 *
 * Always true: (1) probes are in flight only in HALF_OPEN, and never more than configured (breaker_invariant);
 * (2) nothing passes while OPEN; (3) a report of an attempt admitted in an earlier state moves nothing.
 */
#ifndef SAMEKEY_CORE_BREAKER_H
#define SAMEKEY_CORE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define BREAKER_SLOTS 10
#define BREAKER_JITTER                                                                                       \
    0.2 /* the open time is stretched by up to this share, so that fleets do not probe as one */

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };
enum breaker_verdict { BREAKER_GOOD, BREAKER_BAD, BREAKER_NEUTRAL };

struct breaker_rule {
    unsigned failures_percent; /* 0 switches the breaker off */
    unsigned calls_min;        /* fewer in the window decide nothing */
    int64_t window_ms;
    int64_t open_ms;
    unsigned probes; /* at once in HALF_OPEN, and GOOD in a row to close; at least 1 */
};

/* Given by breaker_admit, handed back to breaker_report. */
struct breaker_ticket {
    uint64_t generation;
};

struct breaker {
    struct breaker_rule rule;
    enum breaker_state state;
    uint64_t generation; /* grows with every change of state */
    int64_t slot;        /* number of the newest slot */
    uint32_t good[BREAKER_SLOTS], bad[BREAKER_SLOTS];
    int64_t open_until_ms;
    unsigned probes_running, probes_good;
};

/* Starts CLOSED. now_ms is monotonic here and below. */
void breaker_init(struct breaker *b, const struct breaker_rule *rule, int64_t now_ms);

/* Asks to send one attempt. true: send, and report exactly once with the ticket. false: refused; report
 * nothing. */
bool breaker_admit(struct breaker *b, int64_t now_ms, struct breaker_ticket *ticket);

/* Tells how an admitted attempt ended. u in [0, 1) is the jitter of an open time that may begin now. Returns
 * true if the state changed. */
bool breaker_report(struct breaker *b, int64_t now_ms, struct breaker_ticket ticket,
                    enum breaker_verdict verdict, double u);

/* The state a call would meet now (an open time that is over reads HALF_OPEN). */
enum breaker_state breaker_state_now(const struct breaker *b, int64_t now_ms);

/* Milliseconds until a refused call may be tried again, at least 1; for Retry-After. */
int64_t breaker_wait_ms(const struct breaker *b, int64_t now_ms);

/* The verdict on an attempt. own_refusal: we never asked for a connection. status: of the complete answer, 0
 * if there was none. unknown: the attempt's outcome is `unknown`. */
enum breaker_verdict breaker_judge(bool own_refusal, int status, bool unknown);

/* Whether promise (1) holds; for tests and asserts. */
bool breaker_invariant(const struct breaker *b);

#endif
