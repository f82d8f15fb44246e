/* SPDX-License-Identifier: MIT
 *
 * A bar with the time left, for long runs watched by a person: on stderr, only when it is a terminal, at most ten
 * times a second. It never touches the results, so a watched run prints what an unwatched one does.
 */
#ifndef SAMEKEY_SIM_PROGRESS_H
#define SAMEKEY_SIM_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    bool shown;       /* stderr is a terminal */
    bool drawn;       /* a line stands on the screen and must be wiped */
    int64_t start_ns; /* monotonic */
    int64_t last_ns;
};

/* Begins; shows nothing yet (a run under half a second never draws). */
void progress_begin(struct progress *p);

/* Tells the share done so far, 0 to 1. NULL is accepted and does nothing. */
void progress_tell(struct progress *p, double share);

/* Wipes the bar. */
void progress_end(struct progress *p);

/* The line itself, without terminal control, into text (size bytes): "[#####.....] 50 %  3 s left". */
void progress_line(char *text, size_t size, double share, double elapsed_s);

#endif
