/* SPDX-License-Identifier: MIT */
#include "store/unresolved.h"

#include <stdlib.h>

#define FIRST_CAPACITY 256

struct unresolved_entry {
    int64_t id;
    uint64_t hash;
    uint32_t next_id, next_hash; /* in the chains; next_id also links free entries */
};

uint64_t unresolved_hash(struct slice tenant, struct slice scope, const struct digest32 *fingerprint)
{
    uint64_t h; /* the fingerprint is a SHA-256: it spreads by itself. FNV-1a brings the texts in. */
    memcpy(&h, fingerprint->bytes, sizeof h);
    for (size_t i = 0; i < tenant.len; i++)
        h = (h ^ (unsigned char)tenant.data[i]) * 1099511628211u;
    h = (h ^ 0x100) * 1099511628211u;
    for (size_t i = 0; i < scope.len; i++)
        h = (h ^ (unsigned char)scope.data[i]) * 1099511628211u;
    return h;
}

static uint32_t bucket_id(const struct unresolved *u, int64_t id)
{
    return (uint32_t)((uint64_t)id & (u->capacity - 1));
}

static uint32_t bucket_hash(const struct unresolved *u, uint64_t hash)
{
    return (uint32_t)((hash >> 32 ^ hash) & (u->capacity - 1));
}

static void link_in(struct unresolved *u, uint32_t at)
{
    struct unresolved_entry *e = &u->entries[at];
    uint32_t *id = &u->by_id[bucket_id(u, e->id)], *hash = &u->by_hash[bucket_hash(u, e->hash)];
    e->next_id = *id, e->next_hash = *hash;
    *id = *hash = at;
}

static enum status grow(struct unresolved *u)
{
    uint32_t capacity = u->capacity ? u->capacity * 2 : FIRST_CAPACITY;
    if (capacity == 0)
        return STATUS_NO_MEMORY;
    struct unresolved_entry *entries = realloc(u->entries, capacity * sizeof *entries);
    if (entries)
        u->entries = entries;
    uint32_t *by_id = calloc(capacity, sizeof *by_id), *by_hash = calloc(capacity, sizeof *by_hash);
    if (!entries || !by_id || !by_hash) {
        free(by_id);
        free(by_hash);
        return STATUS_NO_MEMORY;
    }
    free(u->by_id);
    free(u->by_hash);
    uint32_t used = u->capacity ? u->capacity : 1;
    u->by_id = by_id, u->by_hash = by_hash, u->capacity = capacity;
    for (uint32_t i = 1; i < used; i++) /* the table was full: every entry is in use */
        link_in(u, i);
    for (uint32_t i = used; i < capacity; i++)
        entries[i].next_id = i + 1 < capacity ? i + 1 : 0;
    u->free = used;
    return STATUS_OK;
}

enum status unresolved_add(struct unresolved *u, int64_t id, uint64_t hash)
{
    if (!u->free && grow(u) != STATUS_OK)
        return STATUS_NO_MEMORY;
    uint32_t at = u->free;
    u->free = u->entries[at].next_id;
    u->entries[at].id = id;
    u->entries[at].hash = hash;
    link_in(u, at);
    u->count++;
    return STATUS_OK;
}

void unresolved_remove(struct unresolved *u, int64_t id)
{
    if (!u->count)
        return;
    uint32_t *from = &u->by_id[bucket_id(u, id)];
    while (*from && u->entries[*from].id != id)
        from = &u->entries[*from].next_id;
    uint32_t at = *from;
    if (!at)
        return;
    *from = u->entries[at].next_id;
    from = &u->by_hash[bucket_hash(u, u->entries[at].hash)];
    while (*from != at)
        from = &u->entries[*from].next_hash;
    *from = u->entries[at].next_hash;
    u->entries[at].next_id = u->free;
    u->free = at;
    u->count--;
}

size_t unresolved_find(const struct unresolved *u, uint64_t hash, int64_t *ids, size_t max)
{
    size_t found = 0;
    if (!u->count)
        return 0;
    for (uint32_t at = u->by_hash[bucket_hash(u, hash)]; at && found < max; at = u->entries[at].next_hash)
        if (u->entries[at].hash == hash)
            ids[found++] = u->entries[at].id;
    return found;
}

void unresolved_fini(struct unresolved *u)
{
    free(u->entries);
    free(u->by_id);
    free(u->by_hash);
    memset(u, 0, sizeof *u);
}
