/* SPDX-License-Identifier: MIT
 *
 * Wrong tokens, by the address they came from: how long the answer to the next one waits. Whoever tries tokens out is
 * slowed; nobody else is, and nothing here blocks a loop.
 *
 * Always true:
 *  (1) Memory is bounded: the GUESS_ADDRESSES_MAX addresses that were wrong last.
 *  (2) The wait doubles with each wrong token of an address, from GUESS_WAIT_MS to GUESS_WAIT_MAX_MS, and starts anew after
 *      GUESS_FORGET_MS without one.
 *  (3) While GUESS_WAITING_MAX wrong ones of an address wait, no further token of it is looked at: many connections
 *      at once try no faster than that.
 *
 * An IPv6 address counts by its first 64 bits: one line has as many addresses as it likes.
 */
#ifndef SAMEKEY_GATEWAY_ADMIN_GUESS_H
#define SAMEKEY_GATEWAY_ADMIN_GUESS_H

#include "base/slice.h"

#include <stdint.h>

#define GUESS_ADDRESSES_MAX 1024
#define GUESS_WAITING_MAX   8
#define GUESS_WAIT_MS       100
#define GUESS_WAIT_MAX_MS   5000
#define GUESS_FORGET_MS     600000
#define GUESS_NAME_BYTES    48

struct guess {
    char name[GUESS_NAME_BYTES]; /* of the address; "" for a free place */
    unsigned wrong, waiting;
    int64_t last_ms;
};

struct guesses { /* starts as zero bytes */
    struct guess list[GUESS_ADDRESSES_MAX];
    unsigned waiting; /* of all */
};

/* Whether this address has too many wrong ones waiting: do not look at its token. */
bool guess_crowded(const struct guesses *g, struct slice peer);
/* A wrong token: returns how long its answer waits, in milliseconds, and counts it as waiting. guess_over() must follow. */
int64_t guess_wrong(struct guesses *g, struct slice peer, int64_t now_ms);
void guess_over(struct guesses *g, struct slice peer);

#endif
