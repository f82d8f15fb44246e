/* SPDX-License-Identifier: MIT
 *
 * The retry budget: retries may be at most `percent` of the calls of the last ten seconds, plus `floor` a
 * second in bursts of one second's worth. Without it an outage doubles its own load. Each call deposits, each
 * retry withdraws, both forgotten after the window.
 *
 * Always true: over any window, retries allowed <= percent/100 x calls + floor x (seconds + 1), give or take
 * what the one-second slots round.
 */
#ifndef SAMEKEY_CORE_BUDGET_H
#define SAMEKEY_CORE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_SLOT_MS 1000
#define BUDGET_SLOTS   10 /* a window of 10 s */

struct budget {
    unsigned percent; /* of calls */
    unsigned floor_a_second;
    int64_t slot; /* number of the newest slot since the clock's zero */
    uint32_t calls[BUDGET_SLOTS];
    uint32_t retries[BUDGET_SLOTS]; /* paid by the percentage */
    int64_t floor_parts;            /* thousandths of a retry left of the floor */
    int64_t floor_ms;               /* when the floor was last filled */
};

/* Starts full: one second's worth of floor. now_ms is monotonic here and below; a clock that goes back is
 * taken as standing still. */
void budget_init(struct budget *b, unsigned percent, unsigned floor_a_second, int64_t now_ms);

/* Counts a call (its first attempt). */
void budget_call(struct budget *b, int64_t now_ms);

/* Takes one retry out of the budget; false, with nothing taken, when it is used up. */
bool budget_take(struct budget *b, int64_t now_ms);

/* Whether budget_take would say yes now. */
bool budget_has(struct budget *b, int64_t now_ms);

#endif
