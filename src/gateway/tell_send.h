/* SPDX-License-Identifier: MIT
 *
 * One notification on its way: a signed POST by libcurl, or a command that gets the body on its standard input. Blocks
 * its thread for a bounded time.
 */
#ifndef SAMEKEY_GATEWAY_TELL_SEND_H
#define SAMEKEY_GATEWAY_TELL_SEND_H

#include "base/slice.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define TELL_TIMEOUT_MS 10000 /* of a webhook, and of a command, which is killed then */

struct tell_letter {
    const char *target; /* "https://...", or "command /path" */
    struct slice secret;
    struct slice body;
    const char *key; /* the same on every try */
    int64_t now_s;   /* unix seconds, signed with the body */
};

/* Has at hand what telling this target needs: the program loads libcurl at its first call, which should not be the first
 * notification of an outage. */
void tell_ready(const char *target);

/* STATUS_OK: it was taken. STATUS_IO: it was not, or may not have been; `why` says what was seen. */
enum status tell_send(const struct tell_letter *letter, char *why, size_t why_size);

/* "t=SECONDS,v1=HEX" of a body. STATUS_IO: the digest could not be made. */
enum status tell_sign(struct slice secret, int64_t now_s, struct slice body, char *out, size_t out_size);

#endif
