/* SPDX-License-Identifier: MIT
 *
 * Times as logs write them, into unix microseconds: RFC 3339 and its relatives (a space for the T, a comma before the
 * fraction), the common log format (01/Mar/2026:10:00:00 +0100), and numbers since 1970 in s, ms, us or ns, told apart
 * by their size (years 2001 to 2100). A time without a zone is local: it is placed by the zone the user names for its
 * file, and by nothing else.
 */
#ifndef SAMEKEY_FORENSICS_MOMENT_H
#define SAMEKEY_FORENSICS_MOMENT_H

#include "base/slice.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define MOMENT_NONE INT64_MIN /* no time, or none that can be placed */

/* The zone of local times in one file: an offset, or the name of a zone of the system's time zone database. */
struct zone {
    bool known;
    bool fixed;
    int minutes;       /* fixed: east of UTC */
    const char *name;  /* not fixed; borrowed */
    int64_t hour;      /* the local hour whose offset is remembered, or -1 */
    int64_t offset_us; /* of that hour */
};

/* `UTC`, `+08:00` or `Europe/Berlin`; text stays borrowed. STATUS_INVALID: the system has no such zone. */
enum status zone_parse(const char *text, struct zone *out);

struct moment {
    int64_t us;       /* unix microseconds; of a local time without a zone, as if its zone were UTC */
    bool local;       /* it had no zone */
    bool fine;        /* it has milliseconds or better */
    bool wrong_local; /* local, and no zone is known */
};

/* The day last read, so that a run of lines of one day costs one calendar. Zero it to begin. */
struct moment_cache {
    char date[10];
    int64_t day_us;
};

/* Reads a whole text. zone may be NULL. STATUS_INVALID: not a time. */
enum status moment_parse(struct slice text, struct zone *zone, struct moment_cache *cache,
                         struct moment *out);

/* Reads a time at the beginning of a line and says how many bytes it takes. STATUS_INVALID: none is there. */
enum status moment_prefix(struct slice line, struct zone *zone, struct moment_cache *cache,
                          struct moment *out, size_t *taken);

#endif
