/* SPDX-License-Identifier: MIT
 *
 * A token bucket for `rate`: so many calls a second, in bursts of one second's worth. 0 is no limit.
 */
#ifndef SAMEKEY_CORE_RATE_H
#define SAMEKEY_CORE_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define RATE_A_SECOND_MAX 10000000u

struct rate {
    uint32_t a_second;
    int64_t parts;   /* thousandths of a call in the bucket */
    int64_t last_ms; /* when it was last filled */
};

/* Starts full. now_ms is monotonic here and below; a clock that goes back is taken as standing still.
 * a_second is at most RATE_A_SECOND_MAX. */
void rate_init(struct rate *r, uint32_t a_second, int64_t now_ms);

/* Changes the rate at a reload; what is in the bucket stays, up to the new size. */
void rate_change(struct rate *r, uint32_t a_second, int64_t now_ms);

/* Takes one call; false, with nothing taken, when the bucket is empty. */
bool rate_take(struct rate *r, int64_t now_ms);

/* Milliseconds until one call will be there; 0 if there is one now. For Retry-After. */
int64_t rate_wait_ms(const struct rate *r, int64_t now_ms);

#endif
