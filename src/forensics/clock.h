/* SPDX-License-Identifier: MIT
 *
 * How far the clocks of the sources are apart. A request is sent before it is seen, and seen before its answer is known
 * to its sender: each such pair bounds the offset between two clocks from one side. The bounds of many operations leave
 * an interval; where zero is in it, nothing is corrected, else its middle is taken. Bounds that contradict each other
 * mean that a clock jumped or ran: it cannot be placed.
 */
#ifndef SAMEKEY_FORENSICS_CLOCK_H
#define SAMEKEY_FORENSICS_CLOCK_H

#include "forensics/gather.h"
#include "forensics/group.h"

#define CLOCK_ORIGINS_MAX                                                                                    \
    64 /* clocks that are compared with each other; further ones are taken as they are */

struct clocks {
    size_t count;
    int64_t *offset_us; /* of each origin: add it; MOMENT_NONE: cannot be placed. Owned */
    bool *bounded;      /* whether messages tell of it. Owned */
    struct clock_bound {
        int64_t least,
            most; /* of (time of b - time of a) corrections: add to b's times to compare with a's */
        uint64_t n;
    } * bound; /* [a * count + b]; owned */
};

/* STATUS_NO_MEMORY. */
enum status clocks_init(struct clocks *c, const struct gather *g);

/* Learns from one operation (times not corrected). */
void clocks_learn(struct clocks *c, const struct group *group);

/* Works out the offsets. The origin with the most events is the one the others are compared with. */
void clocks_settle(struct clocks *c, const struct gather *g);

void clocks_fini(struct clocks *c);

#endif
