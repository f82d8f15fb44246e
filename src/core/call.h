/* SPDX-License-Identifier: MIT
 *
 * The caller machine: "an attempt ended like this; what may I do now?" (CONTRACT section 3). It decides and touches
 * nothing. Its driver (gateway, library, simulator) performs the one effect that each step returns and feeds back
 * the one event that came of it.
 *
 *                        +-------------- timer --------------+
 *                        v                                   |
 *   START --SEND--> SENDING --unknown, pending, 429, 503--> ASKING --running, unknown, failed query--> WAIT_ASK
 *     |                |  \                                  |  ^                                          |
 *     |                |   `--definite--> ENDED <------------+  +------------- timer ----------------------+
 *     |                |                    ^   SUCCESS,     |
 *     |                `--not executed--+   |   FAILED final |
 *     |                                 v   |                v
 *     |                            WAIT_SEND <--not received, and a repeat is safe
 *     |                                     |                |
 *     |                                     |                `--not received, not safe--> FENCING --> ENDED
 *     `--resume: ASK--> ASKING              `- no time, no budget -> FENCING or ENDED
 *
 *   state      event                         next
 *   IDLE       START fresh                   SENDING
 *   IDLE       START resumed                 ASKING; without receipts: WAIT_SEND if the callee runs once, else ENDED
 *   SENDING    ATTEMPT success               ENDED SUCCESS
 *   SENDING    ATTEMPT rejected, failed      ENDED FAILED (failed: WAIT_SEND first); ASKING if an earlier one may have run
 *   SENDING    ATTEMPT not_executed          WAIT_SEND, ASKING (429 where receipts exist), ENDED FAILED not final
 *   SENDING    ATTEMPT unknown               ASKING; without receipts as START resumed
 *   SENDING    ATTEMPT pending               WAIT_ASK
 *   SENDING    DENIED                        ENDED; FENCING where the last receipt said not received; lost: UNKNOWN
 *   ASKING     ANSWER ...                    ENDED, WAIT_ASK, WAIT_SEND, FENCING
 *   WAIT_ASK   TIMER                         ASKING, or ENDED at the deadline
 *   WAIT_SEND  TIMER                         SENDING, or ASKING where the wait was for a request that may still travel;
 *                                            rung too late: as DENIED
 *   FENCING    FENCED yes                    ENDED FAILED final; no: ENDED UNKNOWN
 *
 * Always true (call_invariant()):
 *  (1) Join rule: once an attempt was unknown or pending (maybe_ran), the call ends SUCCESS, FAILED with a reason that
 *      is a receipt's or a fence's, or UNKNOWN; nothing else.
 *  (2) Ask first: between an attempt that was unknown or pending and the next SEND lies a receipt answer, unless the
 *      callee has no receipts and runs a key once.
 *  (3) Attempts are numbered upwards and never more than retries + 1 are sent by one run, other upstreams apart
 *      (each at most once).
 *  (4) FAILED not final: every attempt was proved not executed.
 *  (5) ENDED is left by nothing.
 */
#ifndef SAMEKEY_CORE_CALL_H
#define SAMEKEY_CORE_CALL_H

#include "core/backoff.h"
#include "core/outcome.h"
#include "core/receipt.h"

#include <stdbool.h>
#include <stdint.h>

/* What a route, or the options of a library call, allow. Times in milliseconds. */
struct call_policy {
    int retries; /* attempts after the first, in one run */
    int spares;  /* further upstreams that may be tried at once where an attempt did not run */
    int64_t attempt_timeout_ms;
    struct backoff backoff;
    int64_t retry_after_max_ms;
    bool has_receipts; /* somebody can be asked */
    bool runs_once;    /* the callee runs a callId or key once: a repeat is safe at once */
    bool can_fence;    /* the callee can fence a callId */
    bool has_identity; /* a key, or a callId made by the caller: without both nothing is repeated */
    bool
        never_after_doubt; /* what may have run is asked about, never sent again (a call without a key, CONTRACT 8) */
    int64_t receipt_timeout_ms;
    int receipt_queries;     /* at most this many after one attempt */
    int64_t resend_after_ms; /* a request may still be travelling this long after its connection was closed */
    int64_t upstream_key_life_ms; /* nothing is sent again later than this after the first attempt */
    bool
        shorten_attempts; /* the deadline shortens the last attempt (library); else only keeps it from starting */
    bool
        ask_past_deadline; /* one query after an attempt is allowed even when the deadline is over (gateway) */
};

enum call_phase {
    CALL_IDLE,
    CALL_SENDING,
    CALL_ASKING,
    CALL_WAIT_ASK,
    CALL_WAIT_SEND,
    CALL_FENCING,
    CALL_ENDED
};

enum call_event_type {
    CALL_EV_START,
    CALL_EV_ATTEMPT,
    CALL_EV_DENIED,
    CALL_EV_ANSWER,
    CALL_EV_TIMER,
    CALL_EV_FENCED
};

/* Why the driver's admission would not let an attempt out. */
enum call_denial {
    CALL_DENIED_BUDGET,
    CALL_DENIED_BREAKER,
    CALL_DENIED_LOST /* no longer the owner of the call */
};

/* What a START goes on from. */
struct call_past {
    int attempts;          /* begun so far; 0: fresh */
    bool maybe_ran;        /* one of them was unknown or pending, or was lost with its process */
    bool pending;          /* the callee had accepted it */
    int64_t age_ms;        /* since the first attempt began; 0 when fresh */
    int64_t closed_age_ms; /* since the last attempt's connection was closed; 0 where that is not known */
};

struct call_event {
    enum call_event_type type;
    int64_t now_ms;             /* a monotonic clock */
    double random;              /* in [0, 1), for jitter */
    struct call_past past;      /* START */
    int64_t deadline_ms;        /* START: when the whole call must have ended, on the same clock */
    enum outcome outcome;       /* ATTEMPT */
    bool retry_allowed;         /* ATTEMPT: outcome_retry_allowed() */
    bool elsewhere;             /* ATTEMPT: it did not run there, and another upstream may be tried at once */
    int status;                 /* ATTEMPT: HTTP status, or 0 */
    int64_t retry_after_ms;     /* ATTEMPT: from Retry-After, or -1 */
    enum call_denial denial;    /* DENIED */
    int64_t retry_in_ms;        /* DENIED: when it may be tried again, or -1 */
    enum receipt_answer answer; /* ANSWER; FENCED: what the fence said (FAILED_FINAL: fenced) */
};

enum call_effect_type { CALL_DO_SEND, CALL_DO_ASK, CALL_DO_WAIT, CALL_DO_FENCE, CALL_DO_END };

struct call_effect {
    enum call_effect_type type;
    int attempt;           /* SEND: its number */
    bool is_retry;         /* SEND: the retry budget and the breaker are to be asked */
    bool spare;            /* SEND: at another upstream, since this one did not run it: no retry */
    int64_t timeout_ms;    /* SEND, ASK, FENCE */
    int64_t waited_ms;     /* SEND: the wait before it */
    int64_t until_ms;      /* WAIT: feed TIMER at or after this */
    bool pending;          /* WAIT: the callee has accepted it; the caller may be told */
    enum call_state state; /* END: SUCCESS, FAILED or UNKNOWN */
    bool final;
    enum reason reason;
    enum next_action next;
    int64_t retry_in_ms; /* END: when it may be tried again, or -1 */
};

struct call {
    struct call_policy policy;
    enum call_phase phase;
    int attempts;  /* begun, over all runs */
    int sent;      /* of them, in this run */
    int spared;    /* of those, attempts at another upstream, which count as no retry */
    bool to_spare; /* the next attempt is one */
    int queries;   /* since the last attempt */
    bool maybe_ran, pending;
    bool asked;            /* a receipt answer came since the last attempt */
    bool may_travel;       /* the last attempt's request may still be on its way */
    bool repeat_pointless; /* the last attempt was refused for good */
    bool any_failed;       /* an attempt ran and failed without effect */
    bool last_retryable;   /* the last not_executed may be repeated by us */
    bool recheck;          /* WAIT_SEND ends in a query */
    int64_t deadline_ms, first_ms, closed_ms, not_before_ms, wait_began_ms, query_began_ms;
    int waits; /* backoffs so far in this run */
    enum reason ending;
    enum call_state end_state;
    bool end_final;
};

/* A machine that has not started. The policy is copied. */
void call_init(struct call *call, const struct call_policy *policy);

/* Moves the machine by one event and says the one thing to do. A misuse (an event that its phase does not know) is an
 * assert. */
void call_step(struct call *call, const struct call_event *event, struct call_effect *effect);

/* Whether all that the top of this file promises holds. */
bool call_invariant(const struct call *call);
const char *call_phase_text(enum call_phase phase);

#endif
