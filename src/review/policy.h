/* SPDX-License-Identifier: MIT
 *
 * The common form every reader maps to: what one place in a configuration (a route, a location, a command, a
 * queue) says about the six questions. A fact that the file does not state is not known, which differs from
 * zero: rules speak only on evidence.
 */
#ifndef SAMEKEY_REVIEW_POLICY_H
#define SAMEKEY_REVIEW_POLICY_H

#include "review/span.h"
#include "review/source.h"

#include <stdint.h>

/* A number that somebody wrote (or that a program applies by default), and where. */
struct fact {
    int64_t value;
    const struct source *source;
    unsigned line;
    bool known;
};

/* Attempts without an end. */
#define ATTEMPTS_ENDLESS SPAN_FOREVER
/* The article's bound: more retries than this are a finding. */
#define RETRIES_MAX 3

struct review_policy {
    const char *format; /* the reader's name, "nginx" */
    const char *name;   /* for people: "location /orders" */
    const struct source *source;
    unsigned line;

    /* Question 1. */
    struct fact mutating;        /* 1 may have effects, 0 reads only */
    struct fact repeats_unknown; /* 1: an attempt of unknown ending is repeated */
    const char *repeats_on;      /* the conditions, in the file's words; or NULL */
    struct fact asks_first;      /* 1: a receipt is asked before a repeat, 0: no receipt source */
    struct fact callee_once;     /* 1: the callee runs a key once */
    struct fact five_xx_failed;  /* 1: a 5xx counts as "nothing happened" */

    /* Question 2. */
    struct fact has_key;       /* 1: sent with every attempt, 0: seen not to be there */
    struct fact has_principal; /* 0: neither tenant nor credential */

    /* Question 3. */
    struct fact attempts; /* in all, 1 is no retry, ATTEMPTS_ENDLESS */
    struct fact attempt_timeout_ms;
    struct fact no_attempt_timeout; /* 1: retried attempts may hang for ever */
    struct fact budget_ms;          /* after which this layer gives up */
    struct fact query_timeout_ms;   /* of one receipt query; one is asked before each retry */
    struct fact lease_ms;           /* after which the work counts as abandoned */
    struct fact rounds, round_gap_ms, round_gap_max_ms;
    struct fact tolerated_delay_ms;

    /* Question 4. */
    struct fact wait_base_ms, wait_cap_ms;
    struct fact wait_growth_percent;                     /* 100: fixed, 200: doubling */
    struct fact jitter_low_percent, jitter_high_percent; /* of the wait; equal is no jitter */
    struct fact retry_limited;                           /* 0: no retry budget and no breaker */

    /* Question 5. */
    struct fact key_life_ms, result_life_ms, tombstone_life_ms;
    struct fact redelivery_ms; /* longest time after which the same work may come again */
    struct fact archived;      /* 0: ended receipts are archived nowhere */
    struct fact calls_per_s;   /* the allowed rate */
    struct fact purge_every_ms, purge_batch;
    struct fact row_bytes_max;
};

/* A fact at a place. */
static inline struct fact fact_at(int64_t value, const struct source *source, unsigned line)
{
    struct fact f = {value, source, line, true};
    return f;
}

static inline bool fact_is(struct fact f, int64_t value)
{
    return f.known && f.value == value;
}

/* True when the policy sends more than one attempt, as far as the file says. */
bool policy_retries(const struct review_policy *p);

/* True unless the file shows that only reads pass here. */
bool policy_may_mutate(const struct review_policy *p);

/* The longest all waits together can take; 0 where no wait is known. */
int64_t policy_waits(const struct review_policy *p);

/* attempts x timeout + waits + queries. False when attempts or timeout are not known. */
bool policy_worst_case(const struct review_policy *p, int64_t *out_ms);

/* How long this layer keeps its caller waiting at most: the worst case, or the budget where that ends it. */
bool policy_longest(const struct review_policy *p, int64_t *out_ms);

/* How long after the first attempt this layer may send the same work again: retries, then redelivery or
 * compensation, and the delay the business tolerates. */
int64_t policy_resend_span(const struct review_policy *p);

/* The sum of the gaps between compensation rounds. */
int64_t policy_compensation(const struct review_policy *p);

/* Appends the arithmetic of the worst case ("3 x 5 s + waits 1.5 s = 16.5 s") or nothing. */
void policy_worst_text(struct buffer *out, const struct review_policy *p);

/* Appends one line of figures: attempts, worst case, key's life, storage. */
void policy_figures(struct buffer *out, const struct review_policy *p);

#endif
