/* SPDX-License-Identifier: MIT */
#include "store/tail.h"

#include <assert.h>
#include <stdlib.h>

#define FIRST_CAPACITY 1024
#define PREFIXES       65536 /* sorting looks at two bytes: enough to bring neighbours of a page together */

static uint32_t slot_of(const struct tail_generation *g, const struct digest *digest)
{
    uint64_t hash; /* the end of a digest: its beginning decides the order */
    memcpy(&hash, digest->bytes + sizeof digest->bytes - sizeof hash, sizeof hash);
    uint32_t mask = g->capacity * 2 - 1, at = (uint32_t)hash & mask;
    while (g->slots[at] && !digest_equal(&g->entries[g->slots[at] - 1].digest, digest))
        at = (at + 1) & mask;
    return at;
}

static struct tail_entry *entry_of(const struct tail_generation *g, const struct digest *digest)
{
    if (!g->count)
        return NULL;
    uint32_t at = g->slots[slot_of(g, digest)];
    return at ? &g->entries[at - 1] : NULL;
}

static void generation_fini(struct tail_generation *g)
{
    free(g->entries);
    free(g->slots);
    memset(g, 0, sizeof *g);
}

static enum status generation_grow(struct tail_generation *g)
{
    struct tail_generation more = {.capacity = g->capacity ? g->capacity * 2 : FIRST_CAPACITY,
                                   .count = g->count};
    more.entries = malloc(more.capacity * sizeof *more.entries);
    more.slots = calloc((size_t)more.capacity * 2, sizeof *more.slots);
    if (!more.entries || !more.slots) {
        generation_fini(&more);
        return STATUS_NO_MEMORY;
    }
    for (uint32_t i = 0; i < g->count; i++) {
        more.entries[i] = g->entries[i];
        more.slots[slot_of(&more, &g->entries[i].digest)] = i + 1;
    }
    generation_fini(g);
    *g = more;
    return STATUS_OK;
}

enum status tail_init(struct tail *t, uint32_t limit)
{
    memset(t, 0, sizeof *t);
    t->limit = limit;
    return pthread_mutex_init(&t->lock, NULL) == 0 ? STATUS_OK : STATUS_NO_MEMORY;
}

void tail_fini(struct tail *t)
{
    generation_fini(&t->young);
    generation_fini(&t->sealed);
    free(t->order);
    pthread_mutex_destroy(&t->lock);
}

void tail_replace(struct tail *t, struct tail *from)
{
    pthread_mutex_lock(&t->lock);
    generation_fini(&t->young);
    generation_fini(&t->sealed);
    free(t->order);
    t->young = from->young;
    t->sealed = from->sealed;
    t->order = from->order;
    t->merged = from->merged;
    t->epoch++;
    t->ready = true;
    pthread_mutex_unlock(&t->lock);
    memset(&from->young, 0, sizeof from->young);
    memset(&from->sealed, 0, sizeof from->sealed);
    from->order = NULL;
}

static struct tail_entry *find(const struct tail *t, const struct digest *digest)
{
    struct tail_entry *e = entry_of(&t->young, digest);
    return e && e->id ? e : entry_of(&t->sealed, digest);
}

int64_t tail_find(const struct tail *t, const struct digest *digest)
{
    const struct tail_entry *e = find(t, digest);
    return e ? e->id : 0;
}

bool tail_read(struct tail *t, const struct digest *digest, int64_t *id)
{
    pthread_mutex_lock(&t->lock);
    bool ready = t->ready;
    *id = ready ? tail_find(t, digest) : 0;
    pthread_mutex_unlock(&t->lock);
    return ready;
}

bool tail_epoch(struct tail *t, uint64_t *epoch)
{
    pthread_mutex_lock(&t->lock);
    bool ready = t->ready;
    *epoch = t->epoch;
    pthread_mutex_unlock(&t->lock);
    return ready;
}

enum status tail_add(struct tail *t, const struct digest *digest, int64_t id)
{
    struct tail_generation *g = &t->young;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&t->lock);
    if (g->count == g->capacity)
        status = generation_grow(g);
    if (status == STATUS_OK) {
        uint32_t at = slot_of(g, digest);
        if (!g->slots[at]) /* else it was removed and comes again */
            g->slots[at] = ++g->count;
        struct tail_entry *e = &g->entries[g->slots[at] - 1];
        e->digest = *digest;
        e->id = id;
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

void tail_change(struct tail *t, const struct digest *digest, int64_t id)
{
    struct tail_entry *e = find(t, digest);
    if (!e)
        return;
    pthread_mutex_lock(&t->lock);
    e->id = id;
    pthread_mutex_unlock(&t->lock);
}

static unsigned prefix(const struct tail_entry *e)
{
    return (unsigned)e->digest.bytes[0] << 8 | e->digest.bytes[1];
}

enum status tail_seal(struct tail *t, int64_t newest)
{
    if (t->young.count < t->limit || t->sealed.count)
        return STATUS_OK;
    uint32_t count = t->young.count;
    uint32_t *order = malloc(count * sizeof *order), *starts = calloc(PREFIXES + 1, sizeof *starts);
    if (!order || !starts) {
        free(order);
        free(starts);
        return STATUS_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++)
        starts[prefix(&t->young.entries[i]) + 1]++;
    for (unsigned i = 0; i < PREFIXES; i++)
        starts[i + 1] += starts[i];
    for (uint32_t i = 0; i < count; i++)
        order[starts[prefix(&t->young.entries[i])]++] = i;
    free(starts);
    pthread_mutex_lock(&t->lock);
    t->sealed = t->young;
    memset(&t->young, 0, sizeof t->young);
    t->order = order;
    t->merged = 0;
    t->sealed_newest = newest;
    pthread_mutex_unlock(&t->lock);
    return STATUS_OK;
}

const struct tail_entry *tail_next(struct tail *t)
{
    return t->merged < t->sealed.count ? &t->sealed.entries[t->order[t->merged++]] : NULL;
}

bool tail_merged(const struct tail *t)
{
    return t->sealed.count && t->merged == t->sealed.count;
}

void tail_drop(struct tail *t)
{
    assert(tail_merged(t));
    pthread_mutex_lock(&t->lock);
    generation_fini(&t->sealed);
    free(t->order);
    t->order = NULL;
    t->merged = 0;
    t->epoch++;
    pthread_mutex_unlock(&t->lock);
}

size_t tail_prefix(const struct tail *t, const struct digest *digest, int64_t *ids, size_t max)
{
    const struct tail_generation *generations[] = {&t->young, &t->sealed};
    size_t count = 0;
    for (size_t g = 0; g < 2; g++) {
        for (uint32_t i = 0; i < generations[g]->count && count < max; i++) {
            const struct tail_entry *e = &generations[g]->entries[i];
            if (e->id && memcmp(e->digest.bytes, digest->bytes, DIGEST_CALL_PREFIX) == 0)
                ids[count++] = e->id;
        }
    }
    return count;
}
