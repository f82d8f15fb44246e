/* SPDX-License-Identifier: MIT */
#include "review/judge.h"

#define DAY_MS INT64_C(86400000)
/* A spread of waits narrower than this share of the wait does not part the clients. */
#define JITTER_PERCENT_MIN 10

/* Adds the finding at the fact that shows it, or where the policy begins. */
#define FIND(rule, fact, ...)                                                                                \
    review_find(r, rule, (fact).known ? (fact).source : p->source, (fact).known ? (fact).line : p->line,     \
                p->name, __VA_ARGS__)

static void judge_repeats(struct review *r, const struct review_policy *p)
{
    if (!fact_is(p->repeats_unknown, 1) || !policy_may_mutate(p) || !policy_retries(p))
        return;
    const char *on = p->repeats_on ? p->repeats_on : "an unknown ending";
    if (fact_is(p->has_key, 0)) {
        FIND(RULE_RETRY_WITHOUT_KEY, p->repeats_unknown, "repeats after %s, and sends no Idempotency-Key",
             on);
        return;
    }
    if (fact_is(p->asks_first, 1) || fact_is(p->callee_once, 1))
        return;
    if (fact_is(p->has_key, 1) && !p->asks_first.known)
        return; /* a caller that keeps its key: whether the callee runs it once is not in this file */
    FIND(RULE_RETRY_WITHOUT_ASKING, p->repeats_unknown, "repeats after %s", on);
}

static void judge_count(struct review *r, const struct review_policy *p)
{
    if (!policy_may_mutate(p) || !p->attempts.known)
        return;
    int64_t attempts = p->attempts.value;
    if (attempts == ATTEMPTS_ENDLESS)
        FIND(RULE_ENDLESS_RETRIES, p->attempts, "no bound is set");
    else if (attempts - 1 > RETRIES_MAX)
        FIND(RULE_TOO_MANY_RETRIES, p->attempts, "%lld retries, %lld attempts in all",
             (long long)(attempts - 1), (long long)attempts);
}

static void judge_time(struct review *r, const struct review_policy *p)
{
    struct buffer text = {0};
    int64_t worst, waits = policy_waits(p);
    if (p->budget_ms.known && policy_worst_case(p, &worst) && p->attempts.value > 1 &&
        worst > p->budget_ms.value) {
        policy_worst_text(&text, p);
        buffer_text(&text, ", the budget is ");
        span_text(&text, p->budget_ms.value);
        FIND(RULE_OVER_BUDGET, p->budget_ms, "%s", buffer_cstring(&text));
    } else if (p->budget_ms.known && !p->attempt_timeout_ms.known && waits >= p->budget_ms.value &&
               waits > 0) {
        buffer_text(&text, "the waits alone take ");
        span_text(&text, waits);
        buffer_text(&text, ", the budget is ");
        span_text(&text, p->budget_ms.value);
        FIND(RULE_OVER_BUDGET, p->budget_ms, "%s", buffer_cstring(&text));
    }
    if (fact_is(p->no_attempt_timeout, 1) && policy_retries(p) && policy_may_mutate(p))
        FIND(RULE_NO_ATTEMPT_TIMEOUT, p->no_attempt_timeout, "retries without an attempt timeout");
    if (p->lease_ms.known && p->attempt_timeout_ms.known && p->lease_ms.value < p->attempt_timeout_ms.value) {
        buffer_clear(&text);
        buffer_text(&text, "the lease is ");
        span_text(&text, p->lease_ms.value);
        buffer_text(&text, ", an attempt may take ");
        span_text(&text, p->attempt_timeout_ms.value);
        FIND(RULE_LEASE_SHORT, p->lease_ms, "%s", buffer_cstring(&text));
    }
    if (p->rounds.known && (p->rounds.value < 3 || p->rounds.value > 5))
        FIND(RULE_ROUNDS_OUTSIDE, p->rounds, "%lld rounds", (long long)p->rounds.value);
    buffer_fini(&text);
}

static void judge_storm(struct review *r, const struct review_policy *p)
{
    if (!p->attempts.known || p->attempts.value < 2)
        return;
    if (fact_is(p->wait_base_ms, 0)) {
        FIND(RULE_NO_WAIT, p->wait_base_ms, "the first retry waits 0 ms");
    } else if (p->wait_base_ms.known && p->jitter_low_percent.known && p->jitter_high_percent.known &&
               p->jitter_high_percent.value - p->jitter_low_percent.value < JITTER_PERCENT_MIN) {
        struct buffer text = {0};
        int64_t spread = p->jitter_high_percent.value - p->jitter_low_percent.value;
        span_text(&text, p->wait_base_ms.value * (spread > 0 ? spread : 0) / 100);
        FIND(RULE_NO_JITTER, p->jitter_low_percent.line ? p->jitter_low_percent : p->wait_base_ms,
             "all first retries fall within %s", buffer_cstring(&text));
        buffer_fini(&text);
    }
    if (fact_is(p->retry_limited, 0))
        FIND(RULE_NO_RETRY_BUDGET, p->retry_limited, "in an outage up to %lld times the load",
             (long long)(p->attempts.value == ATTEMPTS_ENDLESS ? 999 : p->attempts.value));
}

static void judge_life(struct review *r, const struct review_policy *p)
{
    struct buffer text = {0};
    int64_t life = p->key_life_ms.value, span = policy_resend_span(p);
    if (p->key_life_ms.known && life != SPAN_FOREVER) {
        if (life < span) {
            buffer_text(&text, "the key lives ");
            span_text(&text, life);
            buffer_text(&text, ", the same work may come again after ");
            span_text(&text, span);
            FIND(RULE_KEY_LIFE_SHORT, p->key_life_ms, "%s", buffer_cstring(&text));
        }
        if (life < DAY_MS) {
            buffer_clear(&text);
            buffer_text(&text, "the key lives ");
            span_text(&text, life);
            FIND(RULE_KEY_LIFE_DAY, p->key_life_ms, "%s", buffer_cstring(&text));
        }
    }
    if (p->key_life_ms.known && p->result_life_ms.known && p->result_life_ms.value < life) {
        buffer_clear(&text);
        buffer_text(&text, "the result lives ");
        span_text(&text, p->result_life_ms.value);
        buffer_text(&text, ", the key ");
        span_text(&text, life);
        FIND(RULE_RESULT_LIFE_SHORT, p->result_life_ms, "%s", buffer_cstring(&text));
    }
    if (p->key_life_ms.known && life != SPAN_FOREVER && p->tombstone_life_ms.known &&
        p->tombstone_life_ms.value < life) {
        buffer_clear(&text);
        buffer_text(&text, "the tombstone lives ");
        span_text(&text, p->tombstone_life_ms.value);
        buffer_text(&text, ", the key ");
        span_text(&text, life);
        FIND(RULE_TOMBSTONE_SHORT, p->tombstone_life_ms, "%s", buffer_cstring(&text));
    }
    if (p->key_life_ms.known && life == SPAN_FOREVER && fact_is(p->archived, 0))
        FIND(RULE_STORAGE_ENDLESS, p->key_life_ms, "key_life is forever and archive is empty");
    if (p->calls_per_s.known && p->calls_per_s.value > 0 && p->purge_every_ms.known &&
        p->purge_every_ms.value > 0 && p->purge_batch.known) {
        int64_t written = span_multiply(p->calls_per_s.value, 86400);
        int64_t purged = span_multiply(p->purge_batch.value, DAY_MS / p->purge_every_ms.value);
        if (purged < written)
            FIND(RULE_PURGE_SLOW, p->purge_batch, "up to %lld rows a day are written, %lld are purged",
                 (long long)written, (long long)purged);
    }
    buffer_fini(&text);
}

void judge_policy(struct review *r, const struct review_policy *p)
{
    judge_repeats(r, p);
    judge_count(r, p);
    judge_time(r, p);
    judge_storm(r, p);
    judge_life(r, p);
    if (fact_is(p->five_xx_failed, 1) && fact_is(p->asks_first, 0))
        FIND(RULE_FIVE_XX_FAILED, p->five_xx_failed,
             "every 5xx ends the call FAILED, and no receipt is asked");
    if (fact_is(p->has_principal, 0))
        FIND(RULE_ONE_PRINCIPAL, p->has_principal, "neither tenant nor credential is set");
}
