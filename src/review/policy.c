/* SPDX-License-Identifier: MIT */
#include "review/policy.h"

/* No more steps of a sum than this are added one by one; beyond, the cap is multiplied. */
#define STEPS_MAX 64

bool policy_retries(const struct review_policy *p)
{
    return !p->attempts.known || p->attempts.value > 1;
}

bool policy_may_mutate(const struct review_policy *p)
{
    return !fact_is(p->mutating, 0);
}

/* count waits from base, growing by growth percent each, none above cap. */
static int64_t sum_waits(int64_t count, int64_t base, int64_t growth, int64_t cap)
{
    int64_t total = 0, wait = base;
    int64_t i = 0;
    for (; i < count && i < STEPS_MAX; i++) {
        int64_t step = wait < cap ? wait : cap;
        total = span_add(total, step);
        wait = span_multiply(wait, growth) / 100;
    }
    if (i < count)
        total = span_add(total, span_multiply(count - i, wait < cap ? wait : cap));
    return total;
}

int64_t policy_waits(const struct review_policy *p)
{
    if (!p->attempts.known || !p->wait_base_ms.known || p->attempts.value < 2)
        return 0;
    int64_t growth = p->wait_growth_percent.known ? p->wait_growth_percent.value : 100;
    int64_t cap = p->wait_cap_ms.known ? p->wait_cap_ms.value : SPAN_MAX_MS;
    int64_t count = p->attempts.value - 1;
    if (p->attempts.value == ATTEMPTS_ENDLESS)
        return SPAN_FOREVER;
    int64_t total = sum_waits(count, p->wait_base_ms.value, growth, cap);
    if (p->jitter_high_percent.known && p->jitter_high_percent.value > 0)
        total = span_multiply(total, p->jitter_high_percent.value) / 100;
    return total;
}

static int64_t query_time(const struct review_policy *p)
{
    if (!p->query_timeout_ms.known || !p->attempts.known || p->attempts.value < 2)
        return 0;
    return span_multiply(p->attempts.value - 1, p->query_timeout_ms.value);
}

bool policy_worst_case(const struct review_policy *p, int64_t *out_ms)
{
    if (!p->attempts.known || !p->attempt_timeout_ms.known)
        return false;
    int64_t total = span_multiply(p->attempts.value, p->attempt_timeout_ms.value);
    *out_ms = span_add(span_add(total, policy_waits(p)), query_time(p));
    return true;
}

bool policy_longest(const struct review_policy *p, int64_t *out_ms)
{
    int64_t worst;
    bool known = policy_worst_case(p, &worst);
    if (!known && p->attempt_timeout_ms.known) {
        worst = p->attempt_timeout_ms.value; /* one attempt at least */
        known = true;
    }
    if (p->budget_ms.known && (!known || p->budget_ms.value < worst)) {
        *out_ms = p->budget_ms.value;
        return true;
    }
    if (known)
        *out_ms = worst;
    return known;
}

int64_t policy_compensation(const struct review_policy *p)
{
    if (!p->rounds.known || !p->round_gap_ms.known)
        return 0;
    int64_t cap = p->round_gap_max_ms.known ? p->round_gap_max_ms.value : SPAN_MAX_MS;
    return sum_waits(p->rounds.value, p->round_gap_ms.value, 200, cap);
}

int64_t policy_resend_span(const struct review_policy *p)
{
    int64_t span = 0;
    if (!policy_longest(p, &span))
        span = policy_waits(p);
    span = span_add(span, policy_compensation(p));
    if (p->redelivery_ms.known)
        span = span_add(span, p->redelivery_ms.value);
    if (p->tolerated_delay_ms.known)
        span = span_add(span, p->tolerated_delay_ms.value);
    return span;
}

void policy_worst_text(struct buffer *out, const struct review_policy *p)
{
    int64_t worst, waits = policy_waits(p), queries = query_time(p);
    if (!policy_worst_case(p, &worst))
        return;
    if (p->attempts.value == ATTEMPTS_ENDLESS) {
        buffer_text(out, "attempts without end");
        return;
    }
    buffer_format(out, "%lld x ", (long long)p->attempts.value);
    span_text(out, p->attempt_timeout_ms.value);
    if (waits) {
        buffer_text(out, " + waits ");
        span_text(out, waits);
    }
    if (queries) {
        buffer_format(out, " + %lld queries x ", (long long)(p->attempts.value - 1));
        span_text(out, p->query_timeout_ms.value);
    }
    buffer_text(out, " = ");
    span_text(out, worst);
}

static void separate(struct buffer *out, size_t start)
{
    if (out->len > start)
        buffer_text(out, "; ");
}

void policy_figures(struct buffer *out, const struct review_policy *p)
{
    size_t start = out->len;
    int64_t worst;
    if (p->attempts.known && p->attempts.value == ATTEMPTS_ENDLESS)
        buffer_text(out, "attempts without end");
    else if (p->attempts.known)
        buffer_format(out, "%lld attempt%s", (long long)p->attempts.value, p->attempts.value == 1 ? "" : "s");
    if (policy_worst_case(p, &worst)) {
        separate(out, start);
        buffer_text(out, "worst case ");
        policy_worst_text(out, p);
    } else if (p->attempt_timeout_ms.known) {
        separate(out, start);
        span_text(out, p->attempt_timeout_ms.value);
        buffer_text(out, " an attempt");
    }
    if (p->budget_ms.known) {
        separate(out, start);
        buffer_text(out, "budget ");
        span_text(out, p->budget_ms.value);
    }
    if (p->lease_ms.known) {
        separate(out, start);
        buffer_text(out, "lease ");
        span_text(out, p->lease_ms.value);
    }
    if (p->rounds.known) {
        separate(out, start);
        buffer_format(out, "%lld rounds over ", (long long)p->rounds.value);
        span_text(out, policy_compensation(p));
    }
    if (p->key_life_ms.known) {
        separate(out, start);
        buffer_text(out, "key lives ");
        span_text(out, p->key_life_ms.value);
    }
    if (p->tombstone_life_ms.known && p->tombstone_life_ms.value != SPAN_FOREVER) {
        separate(out, start);
        buffer_text(out, "a key without a time window could run again after ");
        span_text(out, p->tombstone_life_ms.value);
    }
    if (p->row_bytes_max.known) {
        bool rated = p->calls_per_s.known && p->calls_per_s.value > 0;
        int64_t rows = span_multiply(rated ? p->calls_per_s.value : 1, 86400);
        separate(out, start);
        buffer_format(out, "at %s%lld call%s a second %lld rows and at most %lld MiB a day",
                      rated ? "the allowed " : "", (long long)(rated ? p->calls_per_s.value : 1),
                      rated && p->calls_per_s.value > 1 ? "s" : "", (long long)rows,
                      (long long)(span_multiply(rows, p->row_bytes_max.value) >> 20));
    }
}
