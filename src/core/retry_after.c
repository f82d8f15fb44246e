/* SPDX-License-Identifier: MIT */
#include "core/retry_after.h"

#include "base/civil.h"

enum status retry_after_parse(struct slice value, int64_t now_ms, int64_t *wait_ms)
{
    value = slice_trim(value);
    size_t digits = 0;
    int64_t seconds = 0;
    for (; digits < value.len && value.data[digits] >= '0' && value.data[digits] <= '9'; digits++) {
        /* Held, not wrapped: twenty nines are a very long wait, not a negative one. */
        if (seconds > INT64_MAX / 10000)
            seconds = INT64_MAX / 1000;
        else
            seconds = seconds * 10 + (value.data[digits] - '0');
    }
    if (digits > 0 && digits == value.len) {
        *wait_ms = seconds >= INT64_MAX / 1000 ? INT64_MAX : seconds * 1000;
        return STATUS_OK;
    }
    int64_t at_ms = 0;
    if (civil_parse_http(value, now_ms, &at_ms) != STATUS_OK)
        return STATUS_INVALID;
    *wait_ms = at_ms > now_ms ? at_ms - now_ms : 0;
    return STATUS_OK;
}

enum status retry_after_longest(const struct slice *values, size_t count, int64_t now_ms, int64_t *wait_ms)
{
    enum status found = STATUS_INVALID;
    int64_t longest = 0, one = 0;
    for (size_t i = 0; i < count; i++) {
        if (retry_after_parse(values[i], now_ms, &one) != STATUS_OK)
            continue;
        found = STATUS_OK;
        if (one > longest)
            longest = one;
    }
    if (found == STATUS_OK)
        *wait_ms = longest;
    return found;
}
