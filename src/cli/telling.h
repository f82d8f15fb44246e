/* SPDX-License-Identifier: MIT
 *
 * What `samekey call` and `samekey calls` have in common: the exit codes, telling how a call goes on stderr, and
 * writing its result.
 */
#ifndef SAMEKEY_CLI_TELLING_H
#define SAMEKEY_CLI_TELLING_H

#include <samekey/samekey.h>

#include <stdbool.h>
#include <stdio.h>

enum caller_exit {
    CALLER_SUCCESS = 0,
    CALLER_FAILED = 3,
    CALLER_UNKNOWN = 4,  /* or still running */
    CALLER_USAGE = 64,   /* or the same key with another body; nothing was sent */
    CALLER_NO_CALL = 66, /* the journal has no such call */
    CALLER_INSIDE = 70,  /* libcurl cannot be started; nothing was sent */
    CALLER_MEMORY = 71,  /* nothing was sent */
    CALLER_OUTPUT = 73,  /* the result cannot be written; what the call ended as is said on stderr */
    CALLER_JOURNAL = 74, /* the journal cannot be written; nothing was sent */
};

/* How a call is told on stderr while it runs. */
struct caller_talk {
    bool verbose;  /* every step is a line */
    bool terminal; /* one line that is written over */
    bool colour;
    bool line_open; /* that line stands there now */
};

/* Looks at stderr and NO_COLOR. */
void caller_talk_init(struct caller_talk *talk, bool verbose);
/* For samekey_options.progress, with the talk as its context. */
void caller_talk_progress(void *context, const struct samekey_progress *progress);
/* For samekey_options.cancelled: SIGINT or SIGTERM came. A second signal ends the program at once. */
int caller_cancelled(void *context);
void caller_catch_signals(void);

enum caller_format { CALLER_BODY, CALLER_JSON };

/* Writes the result to `to` and, where it is no plain success or was resumed, says on stderr what to know. Returns the
 * exit code. */
int caller_finish(const struct samekey_result *result, enum caller_format format, FILE *to,
                  struct caller_talk *talk);

/* The exit code of a status that is not SAMEKEY_OK, with its sentence on stderr. */
int caller_refused(const struct samekey_error *error, int status);

#endif
