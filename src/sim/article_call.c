/* SPDX-License-Identifier: MIT */
#include "sim/article_call.h"
#include "sim/keeping.h"

#include "core/call.h"

#include <math.h>

/* A thousand waits of a day fit well below this; the experiment has no deadline. */
static const int64_t NO_DEADLINE_MS = INT64_C(1) << 60;

static int64_t whole_ms(double seconds)
{
    return llround(seconds * 1000);
}

/* Both sides of the one rule that matters here. */
static bool ending_is_true(enum call_state state, unsigned effects)
{
    if (state == STATE_SUCCESS)
        return effects == 1;
    return state == STATE_FAILED ? effects == 0 : effects <= 1;
}

enum status article_call_run(const struct article_parameters *p, struct draws *d, struct article_call *out)
{
    const struct call_policy policy = {
        .retries = (int)p->attempts - 1,
        .attempt_timeout_ms = 3000,
        .backoff = {.base_ms = whole_ms(p->base_s),
                    .cap_ms = whole_ms(p->cap_s),
                    .jitter_low = p->jitter_low,
                    .jitter_high = p->jitter_high},
        .has_receipts = true,
        .runs_once = true,
        .has_identity = true,
        .receipt_timeout_ms = 1000,
        .receipt_queries = 5,
        .upstream_key_life_ms = NO_DEADLINE_MS,
    };
    struct call call;
    struct call_effect effect;
    struct call_event event = {.type = CALL_EV_START, .deadline_ms = NO_DEADLINE_MS};
    struct article_call sum = {0};
    enum kept kept = KEPT_NOTHING;

    call_init(&call, &policy);
    call_step(&call, &event, &effect);
    while (effect.type != CALL_DO_END) {
        event = (struct call_event){.now_ms = event.now_ms, .retry_after_ms = -1, .retry_in_ms = -1};
        switch (effect.type) {
        case CALL_DO_SEND: {
            enum keeping_verdict verdict = KEEPING_RUN;
            if (keeping_arrive(kept, false, &verdict))
                return STATUS_INVALID;
            double r = draws_next(d);
            bool lost = r < p->timeout, failed = !lost && r < p->timeout + p->fail;
            sum.attempts++;
            if (verdict == KEEPING_RUN) {
                sum.effects += !failed;
                kept = failed ? KEPT_FAILED : KEPT_SUCCESS;
            }
            event.type = CALL_EV_ATTEMPT;
            event.outcome = lost ? OUTCOME_UNKNOWN : failed ? OUTCOME_FAILED : OUTCOME_SUCCESS;
            event.retry_allowed = true;
            event.now_ms += lost ? effect.timeout_ms : 0;
            event.random = lost || failed ? draws_next(d) : 0;
            break;
        }
        case CALL_DO_ASK:
            sum.receipt_queries++;
            event.type = CALL_EV_ANSWER;
            event.answer = keeping_receipt(kept);
            break;
        case CALL_DO_WAIT:
            sum.wait_s += (double)(effect.until_ms - event.now_ms) / 1000;
            event.type = CALL_EV_TIMER;
            event.now_ms = effect.until_ms;
            break;
        case CALL_DO_FENCE:
        case CALL_DO_END:
            return STATUS_INVALID; /* the policy has no fence */
        }
        call_step(&call, &event, &effect);
        if (!call_invariant(&call))
            return STATUS_INVALID;
    }
    if (!ending_is_true(effect.state, sum.effects))
        return STATUS_INVALID;
    sum.confirmed = effect.state == STATE_SUCCESS;
    *out = sum;
    return STATUS_OK;
}
