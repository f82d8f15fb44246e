/* SPDX-License-Identifier: MIT */
#include "core/deadline.h"

#include <assert.h>

int64_t deadline_add(int64_t a, int64_t b)
{
    int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum))
        return sum;
    return b > 0 ? INT64_MAX : INT64_MIN;
}

int64_t deadline_from(int64_t now_ms, int64_t setting_ms, int64_t budget_ms)
{
    assert(setting_ms >= 0);
    int64_t allowed = budget_ms >= 0 && budget_ms < setting_ms ? budget_ms : setting_ms;
    return allowed == INT64_MAX ? DEADLINE_NONE : deadline_add(now_ms, allowed);
}

int64_t deadline_left(int64_t deadline_ms, int64_t now_ms)
{
    if (deadline_ms == DEADLINE_NONE)
        return DEADLINE_NONE;
    if (deadline_ms <= now_ms)
        return 0;
    int64_t left = 0;
    return __builtin_sub_overflow(deadline_ms, now_ms, &left) ? INT64_MAX : left;
}

bool deadline_fits(int64_t deadline_ms, int64_t now_ms, int64_t need_ms)
{
    assert(need_ms >= 0);
    if (deadline_ms == DEADLINE_NONE)
        return true;
    return deadline_ms >= now_ms && deadline_left(deadline_ms, now_ms) >= need_ms;
}

int64_t deadline_attempt_ms(int64_t deadline_ms, int64_t now_ms, int64_t attempt_timeout_ms)
{
    int64_t left = deadline_left(deadline_ms, now_ms);
    if (left < DEADLINE_ATTEMPT_MIN_MS)
        return 0;
    return left < attempt_timeout_ms ? left : attempt_timeout_ms;
}

bool deadline_fits_wait(int64_t deadline_ms, int64_t now_ms, int64_t wait_ms)
{
    return deadline_fits(deadline_ms, now_ms, deadline_add(wait_ms, DEADLINE_ATTEMPT_MIN_MS));
}

enum status deadline_parse_budget(struct slice value, int64_t *budget_ms)
{
    value = slice_trim(value);
    int64_t ms = 0;
    if (value.len == 0)
        return STATUS_INVALID;
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return STATUS_INVALID;
        int64_t digit = value.data[i] - '0';
        ms = ms > (INT64_MAX - digit) / 10 ? INT64_MAX : ms * 10 + digit;
    }
    *budget_ms = ms;
    return STATUS_OK;
}
