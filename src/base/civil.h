/* SPDX-License-Identifier: MIT
 *
 * Civil time: calendar dates and clock times to and from unix milliseconds, always UTC inside, in the
 * proleptic Gregorian calendar, without the C library's time zone. Years 0 to 9999. A leap second `:60` is
 * read as the second after it (unix time cannot say it).
 *
 * Readers are strict: 31 February is refused, never 3 March. HTTP dates: the three forms of RFC 9110 section
 * 5.6.7, with their exact spaces, case and lengths. A weekday name must be a weekday's name, but one that
 * does not belong to the date is tolerated: the weekday says nothing that the date has not said, and a server
 * whose table is off by one still means its date.
 */
#ifndef SAMEKEY_BASE_CIVIL_H
#define SAMEKEY_BASE_CIVIL_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define CIVIL_MS_MIN INT64_C(-62167219200000) /* 0000-01-01T00:00:00.000Z */
#define CIVIL_MS_MAX INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

struct civil {
    int year;        /* 0 to 9999 */
    int month;       /* 1 to 12 */
    int day;         /* 1 to 31 */
    int hour;        /* 0 to 23 */
    int minute;      /* 0 to 59 */
    int second;      /* 0 to 60 when read, 0 to 59 when made */
    int millisecond; /* 0 to 999 */
    int weekday;     /* 0 is Sunday; made by civil_from_ms, not read by civil_to_ms */
};

/* Splits unix milliseconds into UTC fields. Times outside CIVIL_MS_MIN..MAX are brought to the nearer end. */
void civil_from_ms(int64_t unix_ms, struct civil *out);

/* STATUS_INVALID: there is no such date or time. */
enum status civil_to_ms(const struct civil *c, int64_t *unix_ms);

/* Reads an RFC 3339 date-time with its offset (`Z`, `z`, `+08:00`); `T`, `t` or one space between date and
 * time; a fraction of any length, cut after milliseconds. STATUS_INVALID: anything else. */
enum status civil_parse_rfc3339(struct slice text, int64_t *unix_ms);

/* Adds `2026-03-01T12:00:00.250Z`, always with three digits of fraction, so that texts sort as times do. */
void civil_print_rfc3339(int64_t unix_ms, struct buffer *out);

/* Reads an IMF-fixdate, an RFC 850 date or an asctime date. now_ms decides the century of a two-digit year:
 * one that would lie more than 50 years ahead is in the past (RFC 9110 section 5.6.7). STATUS_INVALID:
 * anything else. */
enum status civil_parse_http(struct slice text, int64_t now_ms, int64_t *unix_ms);

/* Adds `Sun, 01 Mar 2026 12:00:00 GMT` (IMF-fixdate); milliseconds are cut. */
void civil_print_http(int64_t unix_ms, struct buffer *out);

/* Reads `Z`, `z` or `+08:00`, -23:59 to +23:59, into minutes east of UTC. STATUS_INVALID: anything else. */
enum status civil_parse_offset(struct slice text, int *minutes);

#endif
