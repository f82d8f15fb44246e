/* SPDX-License-Identifier: MIT
 *
 * Redis in front of the store: ended receipts that any gateway of this store put there, behind the memory cache
 * (cache.h). One connection a loop, asynchronous (hiredis) on the loop's libuv.
 *
 *   DOWN --timer--> RESOLVING --> CONNECTING --> GREETING (AUTH, SELECT, PING) --> UP
 *     ^                 |              |              |                             |
 *     `--- backoff with jitter --------'--------------'--- error, end, silence -----'
 *
 * Always true:
 *  (1) It is written after the store, and nothing is decided by its absence: a miss, an eviction, a flush, a stop, a
 *      failover cost a look at the store.
 *  (2) What it says is believed only if the entry is sealed by this store's secret for the very call that is asked for
 *      (redis_entry.h); the keeper then makes every check on the row that it makes on a row of the store.
 *  (3) Nobody waits longer than `patience_ms`, and nobody waits at all while the link is not UP, or is slow: after one ask
 *      that timed out, no more are sent until an answer comes. A silence of REDIS_SILENCE_MS ends the connection.
 *  (4) What waits to be sent is bounded; what finds no room is not written, or asked of the store.
 *
 * Keys are named by call digest only. A replay by key to another callId needs that callId's own durable row first, and
 * so is the store's work anyway.
 *
 * What a row may lose while it is kept (its body, by erasure) or win (a reversal) is made known by redis_forget(): it
 * puts a mark of the same life where the entry was, and since entries are written only where nothing is, a gateway that
 * read the row a moment earlier does not bring it back. A mark that cannot be sent waits for the link.
 */
#ifndef SAMEKEY_GATEWAY_REDIS_H
#define SAMEKEY_GATEWAY_REDIS_H

#include "base/prng.h"
#include "core/cache_address.h"
#include "gateway/metrics.h"
#include "gateway/redis_entry.h"
#include "net/loop.h"

#define REDIS_CONNECT_MS     2000 /* for name, connection and greeting */
#define REDIS_SILENCE_MS     1000 /* an asked server that says nothing for so long is left */
#define REDIS_PING_MS        1000 /* so long nothing was asked: then it is asked whether it is still there */
#define REDIS_BACKOFF_MS     100  /* the first pause before connecting again; doubled, with jitter */
#define REDIS_BACKOFF_MAX_MS 5000
#define REDIS_FLIGHTS_MAX    4096       /* commands on the way at once */
#define REDIS_SENDING_MAX    (4u << 20) /* bytes of entries on the way at once */
#define REDIS_FORGOTTEN_MAX  1024       /* marks that wait for the link */

struct redis;

struct redis_settings {
    struct cache_address address;
    int64_t life_ms, patience_ms;
    const uint8_t *secret; /* REDIS_SECRET_BYTES; copied */
    struct prng *random;   /* for the jitter */
    struct metrics_loop *counts;
    /* The link came up, or went (also: could not be had at first). `why` is a sentence, or "". */
    void (*on_link)(void *context, bool up, const char *why);
    /* An entry was not to be believed. */
    void (*on_lie)(void *context);
    void *context;
};

/* Begins to connect; on the loop's thread, or before the loop runs. *out is the caller's. STATUS_NO_MEMORY. */
enum status redis_new(struct redis **out, struct net_loop *loop, const struct redis_settings *settings);
/* Ends the link; everybody who waits is told "not here", and from now on nobody waits. On the loop's thread. */
void redis_close(struct redis *redis);
/* After redis_close(). NULL is accepted. */
void redis_free(struct redis *redis);

/* One look-up, inside its owner's object until `then` is called: once, on the loop, never inside redis_ask(). rows NULL:
 * not here; else good until it returns. */
struct redis_ask {
    struct digest call;
    struct slice tenant, call_id; /* the row must have these texts; borrowed until `then` */
    void (*then)(struct redis_ask *ask, const struct rows *rows);
};
/* False: it was not asked, and `then` will not be called: go to the store. */
bool redis_ask(struct redis *redis, struct redis_ask *ask);

/* Keeps rows->call, if it is wanted there (redis_entry.h) and the link takes it. The rows are fresh from the store. */
void redis_put(struct redis *redis, const struct rows *rows);
/* From now on nothing is told of this call from there. */
void redis_forget(struct redis *redis, const struct digest *call);

#endif
