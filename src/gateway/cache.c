/* SPDX-License-Identifier: MIT */
#include "gateway/cache.h"

#include "base/list.h"

#include <stdlib.h>

#define CACHE_ENTRY_BYTES 512 /* a small entry: so many buckets that few share one */
#define CACHE_BUCKETS_MAX (1u << 20)

struct entry {
    struct entry *next; /* in its bucket */
    struct list age;
    int64_t until_ms; /* monotonic */
    size_t bytes;
    int64_t now_ms, covers_since_ms; /* of the rows it came with */
    struct call_row row;             /* slices point behind this struct */
};

struct cache {
    size_t bytes, bytes_max;
    struct list by_age; /* the longest unused first */
    size_t mask;        /* buckets - 1, which are a power of two */
    struct entry **buckets;
};

enum status cache_new(struct cache **out, size_t bytes_max)
{
    size_t count = 1;
    while (count < CACHE_BUCKETS_MAX && count < bytes_max / CACHE_ENTRY_BYTES)
        count *= 2;
    struct cache *c = malloc(sizeof *c);
    struct entry **buckets = calloc(count, sizeof *buckets); /* no memory until one is used */
    if (!c || !buckets) {
        free(c);
        free(buckets);
        return STATUS_NO_MEMORY;
    }
    *c = (struct cache){.bytes_max = bytes_max, .mask = count - 1, .buckets = buckets};
    list_init(&c->by_age);
    *out = c;
    return STATUS_OK;
}

/* Where the call's entry is pointed at, or a new one would be. */
static struct entry **place_of(struct cache *c, const struct digest *call)
{
    uint32_t h;
    memcpy(&h, call->bytes, sizeof h); /* a digest is its own hash */
    struct entry **place = &c->buckets[h & c->mask];
    while (*place && !digest_equal(&(*place)->row.call_digest, call))
        place = &(*place)->next;
    return place;
}

static void forget(struct cache *c, struct entry **place)
{
    struct entry *e = *place;
    *place = e->next;
    list_remove(&e->age);
    c->bytes -= e->bytes;
    free(e);
}

static void forget_oldest(struct cache *c)
{
    const struct entry *e = LIST_ENTRY(c->by_age.next, struct entry, age);
    forget(c, place_of(c, &e->row.call_digest));
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    while (!list_empty(&c->by_age))
        forget_oldest(c);
    free(c->buckets);
    free(c);
}

void cache_drop(struct cache *c, const struct digest *call)
{
    struct entry **place = place_of(c, call);
    if (*place)
        forget(c, place);
}

/* The slices of a row that a cached copy needs. */
#define CACHED_SLICES 14
static size_t row_slices(struct call_row *row, struct slice *list[CACHED_SLICES])
{
    struct slice *all[CACHED_SLICES] = {&row->tenant,
                                        &row->route,
                                        &row->scope,
                                        &row->call_id,
                                        &row->key,
                                        &row->business_ref,
                                        &row->trace_id,
                                        &row->key_spelling,
                                        &row->fingerprint_rules,
                                        &row->attempts,
                                        &row->result_headers,
                                        &row->result_body,
                                        &row->original_call_id,
                                        &row->reverses};
    memcpy(list, all, sizeof all);
    return CACHED_SLICES;
}

void cache_put(struct cache *c, const struct rows *rows, int64_t now_ms)
{
    const struct call_row *row = &rows->call;
    bool ended = row->id && row->final && (row->state == STATE_SUCCESS || row->state == STATE_FAILED);
    /* What is kept of this call is older than this, also where this is not kept: a reversal may have begun. */
    if (row->id)
        cache_drop(c, &row->call_digest);
    if (!ended || c->bytes_max == 0 || row->reversed_by.len)
        return;
    int64_t life = CACHE_LIFE_MS;
    if (row->result_expires_ms - rows->now_ms < life)
        life = row->result_expires_ms - rows->now_ms;
    if (life <= 0)
        return;
    struct call_row copy = *row;
    copy.owner = (struct slice){0};
    copy.reversed_by = (struct slice){0};
    struct slice *slices[CACHED_SLICES];
    size_t count = row_slices(&copy, slices), bytes = sizeof(struct entry);
    for (size_t i = 0; i < count; i++)
        bytes += slices[i]->len;
    if (bytes > c->bytes_max / 16)
        return; /* one large answer must not push everybody else out */
    struct entry *e = malloc(bytes);
    if (!e)
        return;
    char *at = (char *)(e + 1);
    for (size_t i = 0; i < count; i++) {
        struct slice *s = slices[i];
        if (s->len)
            memcpy(at, s->data, s->len);
        s->data = at;
        at += s->len;
    }
    e->row = copy;
    e->now_ms = rows->now_ms;
    e->covers_since_ms = rows->covers_since_ms;
    e->until_ms = now_ms + life;
    e->bytes = bytes;
    e->next = NULL;
    c->bytes += bytes;
    *place_of(c, &row->call_digest) = e;
    list_push_back(&c->by_age, &e->age);
    while (c->bytes > c->bytes_max)
        forget_oldest(c);
}

bool cache_get(struct cache *c, const struct digest *call, int64_t now_ms, struct rows *rows)
{
    struct entry **place = place_of(c, call), *e = *place;
    if (!e)
        return false;
    if (now_ms >= e->until_ms) {
        forget(c, place);
        return false;
    }
    list_remove(&e->age);
    list_push_back(&c->by_age, &e->age);
    *rows = (struct rows){.call = e->row, .now_ms = e->now_ms, .covers_since_ms = e->covers_since_ms};
    return true;
}
