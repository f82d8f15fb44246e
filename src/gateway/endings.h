/* SPDX-License-Identifier: MIT
 *
 * What the caches know of ended calls: the memory of this loop (cache.h), then Redis (redis.h), then the store. This is
 * the one door through which an ending is kept or forgotten.
 *
 * Always true:
 *  (1) An ending is kept only after the store has it.
 *  (2) Only SUCCESS and FAILED final are kept, and NOT_RECEIVED never: there is no entry to say it.
 *  (3) A receipt document is told from a cache only for SUCCESS, since `safe_new_key` of a FAILED one is the store's to
 *      say, and only on routes without a reversal, since `reversed_by` may be set at any moment. A replay to the same
 *      callId does not change with a reversal.
 */
#ifndef SAMEKEY_GATEWAY_ENDINGS_H
#define SAMEKEY_GATEWAY_ENDINGS_H

#include "gateway/shard.h"

/* Begins the shard's link to Redis where the settings name one. STATUS_NO_MEMORY. */
enum status endings_open(struct shard *shard, const struct settings *settings, const uint8_t *secret);

/* Looks into the loop's memory, and counts. The rows are good until the cache is next called. */
bool endings_near(struct shard *shard, const struct digest *call, struct rows *rows);
/* Keeps rows->call, fresh from the store, if it is ended for good; drops what is kept of it otherwise. */
void endings_keep(struct shard *shard, const struct rows *rows);
/* The same for rows that somebody else has kept already, or that came from Redis: in memory only. */
void endings_keep_near(struct shard *shard, const struct rows *rows);
/* Nothing kept of this call is told any more: by this loop from now on, by the others and from Redis soon. The memory of
 * another gateway ends by itself within CACHE_LIFE_MS. For what changes an ended row: erasure, a reversal. */
void endings_forget(struct shard *shard, const struct digest *call);

/* Whether a receipt document may be told from rows that a cache has (3). */
bool endings_document_stands(const struct setup *setup, const struct call_row *row);

/* Sets the hit ratio of each layer from its counters; before a scrape. */
void endings_ratios(struct metrics *metrics);

#endif
