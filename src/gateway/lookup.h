/* SPDX-License-Identifier: MIT
 *
 * Reads of receipts that many share: one question to Redis and one read of the store serve all who asked meanwhile, and
 * what was read of a running call serves, for a moment, those who come after. A storm of askers about running calls costs
 * a few reads a second for each loop.
 *
 *   ASKING Redis --not here--> READING the store --running call--> KEPT for LOOKUP_RUNNING_MS
 *
 * Always true:
 *  (1) Reads of the store are numbered. Who must know what stands now (because he would be told NOT_RECEIVED, or has just
 *      changed it) is served by a read that began after he came, and never by one begun earlier.
 *  (2) NOT_RECEIVED and ended receipts are not kept here; running ones LOOKUP_RUNNING_MS at most (CONTRACT section 4).
 *  (3) What comes from Redis is told only where a document from a cache stands (endings.h); else the store is read.
 */
#ifndef SAMEKEY_GATEWAY_LOOKUP_H
#define SAMEKEY_GATEWAY_LOOKUP_H

#include "gateway/shard.h"

#define LOOKUP_RUNNING_MS 250

/* One who seeks, inside his own object until `told` is called: once, maybe before lookup_seek() returns. rows NULL: the
 * store could not be read; else good until it returns. */
struct seeker {
    struct list link;
    struct digest call;
    struct slice tenant, call_id; /* of the row; borrowed until `told` */
    void (*told)(struct seeker *seeker, const struct rows *rows);
    uint64_t came; /* how many reads of the store had begun by then */
    bool fresh;    /* no earlier read will do */
};

/* Joins a read that is on its way or was just made, or begins one. `fresh`: only one that begins from now on will do. */
void lookup_seek(struct shard *shard, struct seeker *seeker, bool fresh);
/* Forgets what is kept; for a shard that ends, when no read is on its way. */
void lookups_free(struct shard *shard);

#endif
