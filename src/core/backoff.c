/* SPDX-License-Identifier: MIT */
#include "core/backoff.h"

#include <assert.h>

#define FACTOR_DIGITS 9 /* digits of a factor, before and behind the point together */

/* A plain decimal without sign and exponent; the C library's reader would ask the locale for the point. */
static bool read_factor(struct slice text, double *out)
{
    int64_t number = 0, scale = 1;
    size_t digits = 0;
    bool point = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '.' && !point && digits > 0 && i + 1 < text.len) {
            point = true;
            continue;
        }
        if (c < '0' || c > '9' || ++digits > FACTOR_DIGITS)
            return false;
        number = number * 10 + (c - '0');
        if (point)
            scale *= 10;
    }
    /* One division of two exact numbers gives the double nearest to what was written. */
    *out = (double)number / (double)scale;
    return digits > 0;
}

enum status backoff_parse_jitter(struct slice text, double *low, double *high)
{
    const char *colon = text.len ? memchr(text.data, ':', text.len) : NULL;
    double a = 0, b = 0;
    if (!colon || !read_factor(slice_of(text.data, (size_t)(colon - text.data)), &a) ||
        !read_factor(slice_of(colon + 1, (size_t)(text.data + text.len - colon - 1)), &b) || a > b ||
        b > BACKOFF_JITTER_MAX)
        return STATUS_INVALID;
    *low = a;
    *high = b;
    return STATUS_OK;
}

/* base x 2^n, at most cap. */
static int64_t span(const struct backoff *b, unsigned n)
{
    int64_t ms = b->base_ms;
    for (; n > 0 && ms < b->cap_ms; n--)
        ms = ms > b->cap_ms / 2 ? b->cap_ms : ms * 2;
    return ms < b->cap_ms ? ms : b->cap_ms;
}

double backoff_exact_ms(const struct backoff *b, unsigned n, double u)
{
    assert(u >= 0 && u < 1);
    return (b->jitter_low + (b->jitter_high - b->jitter_low) * u) * (double)span(b, n);
}

static int64_t round_up(double ms)
{
    if (ms >= 9.2e18)
        return INT64_MAX;
    int64_t whole = (int64_t)ms;
    whole += (double)whole < ms;
    return whole < 1 ? 1 : whole;
}

int64_t backoff_wait_ms(const struct backoff *b, unsigned n, double u)
{
    return round_up(backoff_exact_ms(b, n, u));
}

int64_t backoff_longest_ms(const struct backoff *b, unsigned n)
{
    return round_up(b->jitter_high * (double)span(b, n));
}
