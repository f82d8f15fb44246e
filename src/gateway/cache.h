/* SPDX-License-Identifier: MIT
 *
 * Ended receipts of this loop's recent past, so that replays and receipt queries of what just happened cost no read of
 * the store.
 *
 * Always true:
 *  (1) Only rows in SUCCESS or FAILED final are kept, and they never change their meaning (core/receipt.h).
 *  (2) A row is served for at most CACHE_LIFE_MS, and never past its own result_expires; the keeper makes every check
 *      on it that it makes on a row of the store: tenant (by the digest), credential, route, key, fingerprint.
 *  (3) The bytes held are bounded; the longest unused goes first.
 * It can cost time when it forgets, and nothing else.
 */
#ifndef SAMEKEY_GATEWAY_CACHE_H
#define SAMEKEY_GATEWAY_CACHE_H

#include "core/receipt.h"

#define CACHE_LIFE_MS 60000 /* CONTRACT section 5: memory at most 60 s */

struct cache;

/* bytes_max 0 keeps nothing. *out is the caller's. */
enum status cache_new(struct cache **out, size_t bytes_max);
void cache_free(struct cache *cache);
/* Keeps a copy of rows->call if it is ended for good and not reversed; an older copy is dropped in any case. now_ms is
 * monotonic. */
void cache_put(struct cache *cache, const struct rows *rows, int64_t now_ms);
/* Fills `rows` with borrowed slices, good until the cache is next called; false: not here. */
bool cache_get(struct cache *cache, const struct digest *call, int64_t now_ms, struct rows *rows);
void cache_drop(struct cache *cache, const struct digest *call);

#endif
