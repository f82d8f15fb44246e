/* SPDX-License-Identifier: MIT
 *
 * A filter of digests in memory: "no" is certain, "perhaps" has to be looked up. Nearly every claim is of a callId and a
 * key that nobody has seen, and without it each would descend two times into an index on disk to find nothing.
 *
 * A Bloom filter whose four bits of an entry stand in one word (https://doi.org/10.1145/362686.362692; one word: one
 * cache miss): at FILTER_BITS bits an entry about one "no" of a hundred is told as "perhaps". It knows digests by 32 of
 * their bits, so that it can be made again from four bytes an entry.
 */
#ifndef SAMEKEY_STORE_FILTER_H
#define SAMEKEY_STORE_FILTER_H

#include "core/digest.h"

#include <stdbool.h>
#include <stdint.h>

#define FILTER_BITS       12 /* of memory an entry */
#define FILTER_HASH_BYTES 4
#define FILTER_BYTES_MAX                                                                                     \
    (64 * 1024 * 1024L) /* more entries than this has room for are told as "perhaps" more often */

/* Zeroed is a valid value: it has no memory and must not be asked. */
struct filter {
    uint64_t *words;
    uint64_t word_count, room, added; /* room: entries it was made for; added: calls of filter_add() */
};

/* Room for so many entries, as far as FILTER_BYTES_MAX goes. STATUS_NO_MEMORY: `f` is zeroed. */
enum status filter_init(struct filter *f, uint64_t entries);
/* Frees it; `f` is zeroed. */
void filter_fini(struct filter *f);

/* A hash as it is stored: FILTER_HASH_BYTES bytes, little endian. */
static inline uint32_t filter_hash_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static inline void filter_hash_put(uint8_t *bytes, uint32_t hash)
{
    for (int i = 0; i < FILTER_HASH_BYTES; i++)
        bytes[i] = (uint8_t)(hash >> 8 * i);
}

/* The bits of a digest that it is known by: the end, since its beginning may be shared by the tenants of a callId. */
static inline uint32_t filter_hash(const struct digest *digest)
{
    return filter_hash_at(digest->bytes + sizeof digest->bytes - FILTER_HASH_BYTES);
}

void filter_add(struct filter *f, uint32_t hash);
/* The word of a hash that is added soon: it is fetched meanwhile. */
void filter_ahead(const struct filter *f, uint32_t hash);
/* True when it holds twice what it was made for, and a larger one may be made. */
bool filter_full(const struct filter *f);
/* False: no digest of this hash was added. */
bool filter_has(const struct filter *f, uint32_t hash);

#endif
