/* SPDX-License-Identifier: MIT
 *
 * Telling a person that a call needs one: a compensation task that went to MANUAL, by the `notify` of its route, as a
 * signed webhook or to a command. The store remembers who is still to be told, so a restart in between tells all the same.
 *
 * Always true:
 *  (1) Who is slow or down delays nothing but other notifications: they leave one by one, on a thread of their own.
 *  (2) One task is told at most TELL_TRIES times; then it is logged, counted and given up. It stays MANUAL.
 *  (3) A notification that its receiver took is not repeated, unless the process died before the store heard of it: each
 *      carries an Idempotency-Key, the same on every try.
 *
 * A webhook is a POST with Content-Type application/json. Its header
 *   X-Samekey-Signature: t=UNIX_SECONDS,v1=HEX
 * carries HMAC-SHA256, keyed with the first line of notify_secret_file, over UNIX_SECONDS, a dot, and the body's bytes.
 * A command gets the same body on its standard input. Taken is a 2xx, and exit status 0.
 */
#ifndef SAMEKEY_GATEWAY_TELL_H
#define SAMEKEY_GATEWAY_TELL_H

#include "gateway/shard.h"

#define TELL_TRIES 6

struct teller;

/* STATUS_NO_MEMORY, STATUS_IO: no thread. */
enum status teller_start(struct teller **out, struct shard *shard);
/* Looks for no more; what is being told is waited for by teller_busy(). */
void teller_stop(struct teller *teller);
/* 1 while something is on its way to the store or to a person. */
size_t teller_busy(const struct teller *teller);
/* Ends the thread and frees. NULL is accepted. */
void teller_free(struct teller *teller);

#endif
