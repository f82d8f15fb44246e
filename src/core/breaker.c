/* SPDX-License-Identifier: MIT */
#include "core/breaker.h"

#include <assert.h>
#include <string.h>

static int64_t slot_of(const struct breaker *b, int64_t now_ms)
{
    int64_t slot_ms = b->rule.window_ms / BREAKER_SLOTS;
    return now_ms / (slot_ms > 0 ? slot_ms : 1);
}

static void forget(struct breaker *b)
{
    memset(b->good, 0, sizeof b->good);
    memset(b->bad, 0, sizeof b->bad);
}

/* Clears the slots that have left the window. */
static void advance(struct breaker *b, int64_t now_ms)
{
    int64_t slot = slot_of(b, now_ms);
    if (slot - b->slot >= BREAKER_SLOTS) {
        forget(b);
        b->slot = slot;
    }
    while (b->slot < slot) {
        b->slot++;
        b->good[b->slot % BREAKER_SLOTS] = 0;
        b->bad[b->slot % BREAKER_SLOTS] = 0;
    }
}

void breaker_init(struct breaker *b, const struct breaker_rule *rule, int64_t now_ms)
{
    assert(rule->probes >= 1 && rule->window_ms >= 0 && rule->open_ms >= 0);
    *b = (struct breaker){.rule = *rule, .state = BREAKER_CLOSED};
    b->slot = slot_of(b, now_ms);
}

/* The one place that changes the state. */
static void move(struct breaker *b, enum breaker_state to)
{
    b->state = to;
    b->generation++;
    b->probes_running = 0;
    b->probes_good = 0;
    if (to == BREAKER_CLOSED)
        forget(b); /* what happened before the outage says nothing about the time after it */
    assert(breaker_invariant(b));
}

static void trip(struct breaker *b, int64_t now_ms, double u)
{
    int64_t open_ms = b->rule.open_ms, stretch = (int64_t)((double)open_ms * BREAKER_JITTER * u);
    b->open_until_ms = now_ms > INT64_MAX - open_ms - stretch ? INT64_MAX : now_ms + open_ms + stretch;
    move(b, BREAKER_OPEN);
}

bool breaker_admit(struct breaker *b, int64_t now_ms, struct breaker_ticket *ticket)
{
    if (b->state == BREAKER_OPEN && now_ms >= b->open_until_ms)
        move(b, BREAKER_HALF_OPEN);
    if (b->state == BREAKER_OPEN)
        return false;
    if (b->state == BREAKER_HALF_OPEN) {
        if (b->probes_running + b->probes_good >= b->rule.probes)
            return false;
        b->probes_running++;
    }
    ticket->generation = b->generation;
    return true;
}

static bool over_limit(const struct breaker *b)
{
    uint64_t good = 0, bad = 0;
    for (int i = 0; i < BREAKER_SLOTS; i++) {
        good += b->good[i];
        bad += b->bad[i];
    }
    return good + bad >= b->rule.calls_min && bad > 0 && bad * 100 >= (good + bad) * b->rule.failures_percent;
}

bool breaker_report(struct breaker *b, int64_t now_ms, struct breaker_ticket ticket,
                    enum breaker_verdict verdict, double u)
{
    if (b->rule.failures_percent == 0 || ticket.generation != b->generation)
        return false;
    if (b->state == BREAKER_HALF_OPEN) {
        assert(b->probes_running > 0);
        b->probes_running--;
        if (verdict == BREAKER_BAD) {
            trip(b, now_ms, u);
            return true;
        }
        if (verdict == BREAKER_GOOD && ++b->probes_good == b->rule.probes) {
            move(b, BREAKER_CLOSED);
            return true;
        }
        return false;
    }
    if (verdict == BREAKER_NEUTRAL)
        return false;
    advance(b, now_ms);
    uint32_t *count = verdict == BREAKER_BAD ? b->bad : b->good;
    count[b->slot % BREAKER_SLOTS]++;
    if (verdict != BREAKER_BAD || !over_limit(b))
        return false;
    trip(b, now_ms, u);
    return true;
}

enum breaker_state breaker_state_now(const struct breaker *b, int64_t now_ms)
{
    return b->state == BREAKER_OPEN && now_ms >= b->open_until_ms ? BREAKER_HALF_OPEN : b->state;
}

int64_t breaker_wait_ms(const struct breaker *b, int64_t now_ms)
{
    return b->state == BREAKER_OPEN && b->open_until_ms > now_ms ? b->open_until_ms - now_ms : 1;
}

enum breaker_verdict breaker_judge(bool own_refusal, int status, bool unknown)
{
    if (own_refusal || status == 429)
        return BREAKER_NEUTRAL;
    if (status == 409)
        return BREAKER_GOOD; /* its outcome may be unknown; the callee that says so works */
    return unknown || status == 0 || status >= 500 ? BREAKER_BAD : BREAKER_GOOD;
}

bool breaker_invariant(const struct breaker *b)
{
    if (b->state != BREAKER_HALF_OPEN)
        return b->probes_running == 0 && b->probes_good == 0;
    return b->probes_running + b->probes_good <= b->rule.probes;
}
