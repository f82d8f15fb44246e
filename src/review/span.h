/* SPDX-License-Identifier: MIT
 *
 * Times and whole numbers as other people's configurations write them: `250ms`, `1.5s`, `2m`, `1h30m`, `7d`,
 * `PT1.5S`, or a bare number in the reader's own unit. All results are milliseconds.
 */
#ifndef SAMEKEY_REVIEW_SPAN_H
#define SAMEKEY_REVIEW_SPAN_H

#include "base/buffer.h"

/* "No end": what `forever` and endless retries read as. Larger than any parsed value. */
#define SPAN_FOREVER INT64_MAX
/* The most a text may say, about 285 years; anything above reads as this. */
#define SPAN_MAX_MS INT64_C(9000000000000)

/* Reads a duration; a bare number counts `unit_ms` each (0: a unit is required). False when it is not one. */
bool span_parse(int64_t *out_ms, struct slice text, int64_t unit_ms);

/* Reads a whole number of at most 18 digits, with an optional sign. */
bool number_parse(int64_t *out, struct slice text);

/* a + b and a * b for values >= 0, stopping at SPAN_MAX_MS; forever stays forever (0 * forever is 0). */
int64_t span_add(int64_t a, int64_t b);
int64_t span_multiply(int64_t a, int64_t b);

/* Appends it for people: "250 ms", "1.5 s", "90 s", "24 h", "7 d", "for ever". */
void span_text(struct buffer *out, int64_t ms);

#endif
