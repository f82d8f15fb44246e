/* SPDX-License-Identifier: MIT
 *
 * Look-ups go through the list: requests carry a dozen fields, and a table would cost more to fill than it saves.
 */
#include "net/header.h"

struct slice headers_get(const struct headers *h, const char *name, bool *found)
{
    struct slice wanted = slice_text(name);
    for (size_t i = 0; i < h->count; i++) {
        if (slice_equal_nocase(h->list[i].name, wanted)) {
            if (found)
                *found = true;
            return h->list[i].value;
        }
    }
    if (found)
        *found = false;
    return slice_of(NULL, 0);
}

size_t headers_count(const struct headers *h, const char *name)
{
    struct slice wanted = slice_text(name);
    size_t count = 0;
    for (size_t i = 0; i < h->count; i++)
        count += slice_equal_nocase(h->list[i].name, wanted);
    return count;
}

bool headers_has_token(const struct headers *h, const char *name, const char *token)
{
    struct slice wanted = slice_text(name), sought = slice_text(token);
    for (size_t i = 0; i < h->count; i++) {
        if (!slice_equal_nocase(h->list[i].name, wanted))
            continue;
        struct slice rest = h->list[i].value;
        while (rest.len) {
            const char *comma = memchr(rest.data, ',', rest.len);
            size_t len = comma ? (size_t)(comma - rest.data) : rest.len;
            if (slice_equal_nocase(slice_trim(slice_of(rest.data, len)), sought))
                return true;
            size_t step = comma ? len + 1 : len;
            rest = slice_of(rest.data + step, rest.len - step);
        }
    }
    return false;
}

/* SECONDS of one parameter of Keep-Alive as milliseconds, or INT64_MAX. */
static int64_t keep_alive_parameter(struct slice one)
{
    const char *sign = one.len ? memchr(one.data, '=', one.len) : NULL;
    if (!sign || !slice_is_nocase(slice_trim(slice_of(one.data, (size_t)(sign - one.data))), "timeout"))
        return INT64_MAX;
    struct slice digits = slice_trim(slice_of(sign + 1, one.len - (size_t)(sign + 1 - one.data)));
    int64_t seconds = 0;
    for (size_t i = 0; i < digits.len; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9' || seconds > INT32_MAX)
            return INT64_MAX;
        seconds = seconds * 10 + (digits.data[i] - '0');
    }
    return seconds ? seconds * 1000 : INT64_MAX;
}

int64_t headers_keep_alive_ms(const struct headers *h)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < h->count; i++) {
        struct slice rest = h->list[i].value;
        if (!slice_is_nocase(h->list[i].name, "Keep-Alive"))
            continue;
        while (rest.len) {
            const char *comma = memchr(rest.data, ',', rest.len);
            size_t n = comma ? (size_t)(comma - rest.data) : rest.len;
            int64_t one = keep_alive_parameter(slice_of(rest.data, n));
            if (one < least)
                least = one;
            rest = comma ? slice_of(comma + 1, rest.len - n - 1) : slice_of(NULL, 0);
        }
    }
    return least;
}
