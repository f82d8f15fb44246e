/* SPDX-License-Identifier: MIT
 *
 * Durations and sizes as people write them in the configuration and on the command line (CONTRACT section 7):
 * `250ms 3s 5m 24h 7d forever` and `64k 1m`. One whole number and one unit; no fraction, sign, space or
 * second unit, so that a slip is an error and never a surprise. `0` needs no unit for a duration; a size
 * without a unit is bytes.
 */
#ifndef SAMEKEY_BASE_DURATION_H
#define SAMEKEY_BASE_DURATION_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define DURATION_FOREVER INT64_MAX              /* milliseconds: no end */
#define DURATION_MS_MAX  INT64_C(3153600000000) /* 36,500 days: the longest that is not `forever` */
#define SIZE_BYTES_MAX   (INT64_C(1) << 50)     /* one pebibyte */
#define DURATION_FORMS   "250ms, 3s, 5m, 24h, 7d or forever" /* for error messages */
#define SIZE_FORMS       "512, 64k, 1m or 2g"                /* for error messages; k is 1,024 bytes */

/* Reads a duration into milliseconds. STATUS_INVALID: not one of DURATION_FORMS. STATUS_FULL: over
 * DURATION_MS_MAX. */
enum status duration_parse(struct slice text, int64_t *ms);

/* Adds the shortest exact form that duration_parse reads back: 90000 is `90s`, 3600000 is `1h`. ms is not
 * negative. */
void duration_print(int64_t ms, struct buffer *out);

/* Reads a size into bytes; units k, m, g (1,024 each), upper or lower case. STATUS_INVALID: not one of
 * SIZE_FORMS. STATUS_FULL: over SIZE_BYTES_MAX. */
enum status size_parse(struct slice text, int64_t *bytes);

/* Adds the shortest exact form that size_parse reads back. bytes is not negative. */
void size_print(int64_t bytes, struct buffer *out);

#endif
