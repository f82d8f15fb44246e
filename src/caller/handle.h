/* SPDX-License-Identifier: MIT
 *
 * The handle behind `struct samekey`: what calls of one program share. Every part guards itself, so any number of
 * threads may use it.
 */
#ifndef SAMEKEY_CALLER_HANDLE_H
#define SAMEKEY_CALLER_HANDLE_H

#include "caller/ids.h"
#include "caller/journal.h"
#include "caller/limits.h"
#include "caller/intent.h"
#include "caller/transport.h"

struct samekey {
    char prefix[CALLID_NAMES_BYTES_MAX + 1];
    char node[CALLID_NAMES_BYTES_MAX + 1];
    struct transport *transport;
    struct journal *journal;       /* or NULL */
    struct limits *limits;         /* shared with other processes where there is a journal */
    struct limits *process_limits; /* for runs by the step interface, which do no I/O */
};

/* CLOCK_BOOTTIME: waits count the time that the machine slept. */
int64_t handle_clock_ms(void);
int64_t handle_unix_ms(void);
/* In [0, 1), from the system. */
double handle_random(void);

/* A callId for an intent: its own, or a new one. SAMEKEY_OK or SAMEKEY_INVALID with *error filled. */
int handle_call_id(struct samekey *handle, const struct intent *intent, int64_t unix_ms,
                   char out[CALLID_BYTES_MAX + 1], struct samekey_error *error);

#endif
