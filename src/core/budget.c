/* SPDX-License-Identifier: MIT */
#include "core/budget.h"

void budget_init(struct budget *b, unsigned percent, unsigned floor_a_second, int64_t now_ms)
{
    *b = (struct budget){
        .percent = percent,
        .floor_a_second = floor_a_second,
        .slot = now_ms / BUDGET_SLOT_MS,
        .floor_parts = (int64_t)floor_a_second * 1000,
        .floor_ms = now_ms,
    };
}

/* Forgets the slots that have left the window and fills the floor. */
static void advance(struct budget *b, int64_t now_ms)
{
    int64_t slot = now_ms / BUDGET_SLOT_MS;
    for (int64_t cleared = 0; b->slot < slot && cleared < BUDGET_SLOTS; cleared++) {
        b->slot++;
        b->calls[b->slot % BUDGET_SLOTS] = 0;
        b->retries[b->slot % BUDGET_SLOTS] = 0;
    }
    if (b->slot < slot)
        b->slot = slot; /* every slot was cleared on the way */

    if (now_ms > b->floor_ms) {
        int64_t full = (int64_t)b->floor_a_second * 1000, passed = now_ms - b->floor_ms;
        /* A second fills it; no longer time needs to be multiplied out. */
        b->floor_parts += passed >= 1000 ? full : passed * b->floor_a_second;
        if (b->floor_parts > full)
            b->floor_parts = full;
        b->floor_ms = now_ms;
    }
}

void budget_call(struct budget *b, int64_t now_ms)
{
    advance(b, now_ms);
    uint32_t *calls = &b->calls[b->slot % BUDGET_SLOTS];
    if (*calls < UINT32_MAX)
        ++*calls;
}

/* Whether the percentage has a whole retry left, in hundredths. */
static bool percent_has(const struct budget *b)
{
    uint64_t earned = 0, spent = 0;
    for (int i = 0; i < BUDGET_SLOTS; i++) {
        earned += (uint64_t)b->calls[i] * b->percent;
        spent += (uint64_t)b->retries[i] * 100;
    }
    return earned >= spent + 100;
}

bool budget_has(struct budget *b, int64_t now_ms)
{
    advance(b, now_ms);
    return percent_has(b) || b->floor_parts >= 1000;
}

bool budget_take(struct budget *b, int64_t now_ms)
{
    advance(b, now_ms);
    /* The percentage first: what it does not spend is lost with its window, the floor keeps. */
    if (percent_has(b)) {
        b->retries[b->slot % BUDGET_SLOTS]++;
        return true;
    }
    if (b->floor_parts < 1000)
        return false;
    b->floor_parts -= 1000;
    return true;
}
