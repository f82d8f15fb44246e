/* SPDX-License-Identifier: MIT
 *
 * The calls whose ending is not known (RECEIVED, PROCESSING, UNKNOWN), in memory: id and a hash of tenant, scope and
 * fingerprint. With it a claim sees at once whether the same request is on its way under another key (CONTRACT
 * section 5, `swapped_keys`), and no index for that has to be kept on disk. The one process that owns the store
 * fills it at the start. A hash only proposes: the caller reads the row and compares.
 */
#ifndef SAMEKEY_STORE_UNRESOLVED_H
#define SAMEKEY_STORE_UNRESOLVED_H

#include "core/receipt.h"

struct unresolved_entry;

struct unresolved {                   /* starts as zero bytes */
    struct unresolved_entry *entries; /* [0] is never used: index 0 is "none" */
    uint32_t *by_id, *by_hash;        /* heads of chains */
    uint32_t capacity, count, free;   /* entries; buckets are as many */
};

uint64_t unresolved_hash(struct slice tenant, struct slice scope, const struct digest32 *fingerprint);
/* Adds an id that is not there. STATUS_NO_MEMORY: not added. */
enum status unresolved_add(struct unresolved *u, int64_t id, uint64_t hash);
/* Removes it, if it is there. */
void unresolved_remove(struct unresolved *u, int64_t id);
/* Writes up to `max` ids under the hash; returns how many. */
size_t unresolved_find(const struct unresolved *u, uint64_t hash, int64_t *ids, size_t max);
void unresolved_fini(struct unresolved *u);

#endif
