/* SPDX-License-Identifier: MIT
 *
 * How long to wait between attempts: base x 2^n, at most cap, times a random factor between jitter_low and
 * jitter_high. The random number arrives as data.
 */
#ifndef SAMEKEY_CORE_BACKOFF_H
#define SAMEKEY_CORE_BACKOFF_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define BACKOFF_JITTER_MAX 10.0 /* the largest factor accepted */

struct backoff {
    int64_t base_ms;   /* the first wait before jitter */
    int64_t cap_ms;    /* the longest wait before jitter */
    double jitter_low; /* 0 <= low <= high <= BACKOFF_JITTER_MAX */
    double jitter_high;
};

/* Reads `0.5:1` (`0.8:1.2` is plus or minus 20 %, `0:1` full, `1:1` none). STATUS_INVALID: not two plain
 * decimals in order and within bounds. */
enum status backoff_parse_jitter(struct slice text, double *low, double *high);

/* The wait after `n` earlier waits (0 for the first), u in [0, 1); not rounded: (low + (high - low) * u) *
 * span, the article's order of operations. */
double backoff_exact_ms(const struct backoff *b, unsigned n, double u);

/* The same, rounded up to whole milliseconds, and at least 1, so that no wait is a hot loop. */
int64_t backoff_wait_ms(const struct backoff *b, unsigned n, double u);

/* The longest that wait n can be: what a deadline must hold. */
int64_t backoff_longest_ms(const struct backoff *b, unsigned n);

#endif
