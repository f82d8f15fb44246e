/* SPDX-License-Identifier: MIT */
#include "core/rate.h"

#include <assert.h>

#define CALL_PARTS 1000 /* a millisecond at one call a second fills one part */

void rate_init(struct rate *r, uint32_t a_second, int64_t now_ms)
{
    assert(a_second <= RATE_A_SECOND_MAX);
    *r = (struct rate){.a_second = a_second, .parts = (int64_t)a_second * CALL_PARTS, .last_ms = now_ms};
}

static int64_t filled(const struct rate *r, int64_t now_ms)
{
    int64_t full = (int64_t)r->a_second * CALL_PARTS, passed = now_ms - r->last_ms;
    if (passed <= 0)
        return r->parts;
    int64_t parts = passed >= 1000 ? full : r->parts + passed * r->a_second;
    return parts < full ? parts : full;
}

static void fill(struct rate *r, int64_t now_ms)
{
    r->parts = filled(r, now_ms);
    if (now_ms > r->last_ms)
        r->last_ms = now_ms;
}

void rate_change(struct rate *r, uint32_t a_second, int64_t now_ms)
{
    assert(a_second <= RATE_A_SECOND_MAX);
    /* From "no limit" there is no bucket to keep. */
    if (r->a_second == 0) {
        rate_init(r, a_second, now_ms);
        return;
    }
    fill(r, now_ms);
    r->a_second = a_second;
    int64_t full = (int64_t)a_second * CALL_PARTS;
    if (r->parts > full)
        r->parts = full;
}

bool rate_take(struct rate *r, int64_t now_ms)
{
    if (r->a_second == 0)
        return true;
    fill(r, now_ms);
    if (r->parts < CALL_PARTS)
        return false;
    r->parts -= CALL_PARTS;
    return true;
}

int64_t rate_wait_ms(const struct rate *r, int64_t now_ms)
{
    if (r->a_second == 0)
        return 0;
    int64_t missing = CALL_PARTS - filled(r, now_ms);
    return missing <= 0 ? 0 : (missing + r->a_second - 1) / r->a_second;
}
