/* SPDX-License-Identifier: MIT
 *
 * Bytes as a policy and as the luck of one call: which events come, when, and what they say. Judged from outside by the
 * few rules that cost money: the join rule, ask first, the bound on sends, and that every call ends.
 */
#include "core/call.h"

#include <stdint.h>
#include <stdlib.h>

struct luck {
    const uint8_t *data;
    size_t left;
};

static uint8_t draw(struct luck *l)
{
    if (!l->left)
        return 0;
    l->left--;
    return *l->data++;
}

static int64_t draw_ms(struct luck *l, int64_t most)
{
    int64_t n = draw(l);
    n = n << 8 | draw(l);
    return n * most / 65535;
}

static void must(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct luck l = {data, size};
    uint8_t bits = draw(&l), more = draw(&l);
    struct call_policy p = {
        .retries = more & 3,
        .spares = more >> 2 & 3,
        .attempt_timeout_ms = 1 + draw_ms(&l, 5000),
        .backoff = {draw_ms(&l, 2000), draw_ms(&l, 8000), 0, 1},
        .retry_after_max_ms = draw_ms(&l, 300000),
        .has_receipts = bits & 1,
        .runs_once = bits & 2,
        .can_fence = (bits & 5) == 5,
        .has_identity = !(bits & 8),
        .never_after_doubt = (bits & 48) == 48,
        .shorten_attempts = bits & 64,
        .ask_past_deadline = bits & 128,
        .receipt_timeout_ms = 1 + draw_ms(&l, 2000),
        .receipt_queries = 1 + (more >> 4 & 7),
        .resend_after_ms = draw_ms(&l, 6000),
        .upstream_key_life_ms = draw_ms(&l, 86400000),
    };
    struct call call;
    struct call_effect fx;
    call_init(&call, &p);
    struct call_event ev = {.type = CALL_EV_START, .now_ms = draw_ms(&l, 1000000)};
    ev.deadline_ms = ev.now_ms + draw_ms(&l, 60000);
    if (more & 128) {
        ev.past.attempts = 1 + draw(&l) % 5;
        ev.past.maybe_ran = draw(&l) & 1;
        ev.past.pending = ev.past.maybe_ran && (draw(&l) & 1);
        ev.past.age_ms = draw_ms(&l, 100000);
    }
    bool doubt = ev.past.maybe_ran, accepted = ev.past.pending, permitted = false, all_idle = true;
    int sends = 0, steps = 0, number = ev.past.attempts;
    for (;;) {
        call_step(&call, &ev, &fx);
        must(++steps < 400);
        bool settled = ev.type == CALL_EV_ANSWER || ev.type == CALL_EV_FENCED;
        int64_t now = ev.now_ms;
        ev.retry_after_ms = ev.retry_in_ms = -1;
        ev.random = (double)draw(&l) / 256;
        switch (fx.type) {
        case CALL_DO_SEND:
            must(++sends <= p.retries + 1 + p.spares && fx.attempt == ++number);
            if (doubt) {
                must(p.has_identity && !p.never_after_doubt);
                must(permitted || (!p.has_receipts && p.runs_once));
                must(!accepted || p.runs_once);
            }
            ev.now_ms = now + draw_ms(&l, fx.timeout_ms);
            ev.type = draw(&l) % 16 ? CALL_EV_ATTEMPT : CALL_EV_DENIED;
            ev.denial = (enum call_denial)(draw(&l) % 3);
            ev.outcome =
                (enum outcome)(OUTCOME_NOT_EXECUTED + draw(&l) % (OUTCOME_COUNT - OUTCOME_NOT_EXECUTED));
            ev.retry_allowed = draw(&l) % 4;
            ev.elsewhere = ev.outcome == OUTCOME_NOT_EXECUTED && (draw(&l) & 1);
            ev.status = draw(&l) & 1 ? 429 : draw(&l) & 1 ? 503 : 0;
            ev.retry_after_ms = draw(&l) & 1 ? -1 : draw_ms(&l, 600000);
            if (ev.type == CALL_EV_ATTEMPT) {
                permitted = false;
                doubt = doubt || ev.outcome == OUTCOME_UNKNOWN || ev.outcome == OUTCOME_PENDING;
                accepted = accepted || ev.outcome == OUTCOME_PENDING;
                all_idle = all_idle && ev.outcome == OUTCOME_NOT_EXECUTED;
            }
            break;
        case CALL_DO_ASK:
        case CALL_DO_FENCE:
            must(fx.type == CALL_DO_ASK ? p.has_receipts : p.can_fence && !accepted && permitted);
            ev.type = fx.type == CALL_DO_ASK ? CALL_EV_ANSWER : CALL_EV_FENCED;
            ev.answer = (enum receipt_answer)(draw(&l) % (RECEIPT_ANSWER_UNKNOWN + 1));
            ev.now_ms = now + draw_ms(&l, fx.timeout_ms);
            permitted = ev.answer == RECEIPT_ANSWER_NOT_RECEIVED || ev.answer == RECEIPT_ANSWER_FAILED_OPEN;
            doubt = doubt || (fx.type == CALL_DO_ASK && ev.answer == RECEIPT_ANSWER_RUNNING);
            break;
        case CALL_DO_WAIT:
            must(fx.until_ms > now);
            ev.type = CALL_EV_TIMER;
            ev.now_ms = fx.until_ms + (draw(&l) & 1 ? draw_ms(&l, 100000) : 0);
            break;
        case CALL_DO_END:
            if (fx.state == STATE_FAILED && doubt)
                must(fx.final && settled && ev.answer == RECEIPT_ANSWER_FAILED_FINAL);
            if (fx.state == STATE_FAILED && !fx.final)
                must(all_idle);
            must(fx.state == STATE_FAILED || fx.final == (fx.state == STATE_SUCCESS));
            return 0;
        }
    }
}
