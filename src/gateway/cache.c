/* SPDX-License-Identifier: MIT */
#include "gateway/cache.h"

#include "base/list.h"

#include <stdlib.h>

#define CACHE_BUCKETS 16384 /* a power of two */

struct entry {
    struct list chain, age;
    int64_t until_ms; /* monotonic */
    size_t bytes;
    int64_t now_ms, covers_since_ms; /* of the rows it came with */
    struct call_row row;             /* slices point behind this struct */
};

struct cache {
    size_t bytes, bytes_max;
    struct list by_age;                 /* the longest unused first */
    struct list buckets[CACHE_BUCKETS]; /* zero bytes until one is used: no memory until then */
};

enum status cache_new(struct cache **out, size_t bytes_max)
{
    struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return STATUS_NO_MEMORY;
    c->bytes_max = bytes_max;
    list_init(&c->by_age);
    *out = c;
    return STATUS_OK;
}

static void forget(struct cache *c, struct entry *e)
{
    list_remove(&e->chain);
    list_remove(&e->age);
    c->bytes -= e->bytes;
    free(e);
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    while (!list_empty(&c->by_age))
        forget(c, LIST_ENTRY(c->by_age.next, struct entry, age));
    free(c);
}

static struct list *bucket_of(struct cache *c, const struct digest *call)
{
    uint32_t h;
    memcpy(&h, call->bytes, sizeof h); /* a digest is its own hash */
    return &c->buckets[h % CACHE_BUCKETS];
}

static struct entry *find(struct cache *c, const struct digest *call)
{
    struct list *bucket = bucket_of(c, call);
    for (struct list *l = bucket->next; l && l != bucket; l = l->next) {
        struct entry *e = LIST_ENTRY(l, struct entry, chain);
        if (digest_equal(&e->row.call_digest, call))
            return e;
    }
    return NULL;
}

void cache_drop(struct cache *c, const struct digest *call)
{
    struct entry *e = find(c, call);
    if (e)
        forget(c, e);
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
    c->bytes += bytes;
    struct list *bucket = bucket_of(c, &row->call_digest);
    if (!bucket->next)
        list_init(bucket);
    list_push_back(bucket, &e->chain);
    list_push_back(&c->by_age, &e->age);
    while (c->bytes > c->bytes_max)
        forget(c, LIST_ENTRY(c->by_age.next, struct entry, age));
}

bool cache_get(struct cache *c, const struct digest *call, int64_t now_ms, struct rows *rows)
{
    struct entry *e = find(c, call);
    if (!e)
        return false;
    if (now_ms >= e->until_ms) {
        forget(c, e);
        return false;
    }
    list_remove(&e->age);
    list_push_back(&c->by_age, &e->age);
    *rows = (struct rows){.call = e->row, .now_ms = e->now_ms, .covers_since_ms = e->covers_since_ms};
    return true;
}
