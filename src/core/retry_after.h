/* SPDX-License-Identifier: MIT
 *
 * Retry-After (RFC 9110 section 10.2.3): digits, or one of the three HTTP date forms. Anything else is
 * ignored: negative numbers, fractions, signs, words, dates that do not exist (CONTRACT section 3). The
 * caller bounds the wait by retry_after_max and the deadline; a wait of 0 (`0`, or a date that is past) means
 * "your own backoff".
 */
#ifndef SAMEKEY_CORE_RETRY_AFTER_H
#define SAMEKEY_CORE_RETRY_AFTER_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

/* Reads one value into milliseconds to wait from now_ms (unix). More digits than fit give INT64_MAX.
 * STATUS_INVALID: to be ignored. */
enum status retry_after_parse(struct slice value, int64_t now_ms, int64_t *wait_ms);

/* The longest wait of several header lines; lines to be ignored are. STATUS_INVALID: all of them, or none
 * given. */
enum status retry_after_longest(const struct slice *values, size_t count, int64_t now_ms, int64_t *wait_ms);

#endif
