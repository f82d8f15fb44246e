/* SPDX-License-Identifier: MIT */
#include "gateway/lookup.h"

#include "gateway/endings.h"
#include "gateway/redis.h"

#include <stdlib.h>

#define LOOKUP_BUCKETS 4096 /* a power of two */
#define LOOKUPS_KEPT   8192 /* running receipts kept at once */

enum lookup_phase { LOOKUP_ASKING, LOOKUP_READING, LOOKUP_KEPT };

struct lookup {
    struct list chain, age;
    struct shard *shard;
    struct digest call;
    enum lookup_phase phase;
    uint64_t number;        /* of its read of the store, once that has begun */
    int64_t until_ms;       /* kept until then */
    struct redis_ask redis; /* while ASKING */
    struct job *job;        /* holds the rows that are kept */
    struct list seekers;    /* who began it first; the texts that are asked for are his */
};

struct lookup_table {
    size_t kept;
    uint64_t reads; /* of the store begun so far */
    struct list by_age;
    struct list buckets[LOOKUP_BUCKETS];
};

static void join(struct shard *shard, struct seeker *seeker);

static struct list *bucket_of(struct lookup_table *t, const struct digest *call)
{
    uint32_t h;
    memcpy(&h, call->bytes, sizeof h);
    return &t->buckets[h % LOOKUP_BUCKETS];
}

static void lookup_free(struct lookup_table *t, struct lookup *l)
{
    list_remove(&l->chain);
    list_remove(&l->age);
    if (l->phase == LOOKUP_KEPT)
        t->kept--;
    job_free(l->job);
    free(l);
}

static struct lookup_table *table_of(struct shard *shard)
{
    if (!shard->lookups) {
        struct lookup_table *t = calloc(1, sizeof *t);
        if (!t)
            return NULL;
        list_init(&t->by_age);
        for (size_t i = 0; i < LOOKUP_BUCKETS; i++)
            list_init(&t->buckets[i]);
        shard->lookups = t;
    }
    return shard->lookups;
}

void lookups_free(struct shard *shard)
{
    struct lookup_table *t = shard->lookups;
    if (!t)
        return;
    while (!list_empty(&t->by_age))
        lookup_free(t, LIST_ENTRY(t->by_age.next, struct lookup, age));
    free(t);
    shard->lookups = NULL;
}

/* Tells everybody who waits for the lookup; those it cannot serve are looked up again, together. */
static void tell_seekers(struct lookup *l, const struct rows *rows, struct list *again)
{
    struct list *item;
    while ((item = list_pop_front(&l->seekers))) {
        struct seeker *s = LIST_ENTRY(item, struct seeker, link);
        if (rows && (s->fresh || !rows->call.id) && l->number <= s->came)
            list_push_back(again, item);
        else
            s->told(s, rows);
    }
}

static void again_all(struct shard *shard, struct list *again)
{
    struct list *item;
    while ((item = list_pop_front(again)))
        join(shard, LIST_ENTRY(item, struct seeker, link));
}

static void looked_up(struct job *job)
{
    struct lookup *l = job->owner;
    struct shard *shard = job->shard;
    struct lookup_table *t = shard->lookups;
    const struct rows *rows = job->op.status == STATUS_OK ? &job->op.rows : NULL;
    struct list again;
    list_init(&again);
    tell_seekers(l, rows, &again);
    if (rows)
        endings_keep(shard, rows);
    if (rows && state_running(rows->call.state) && t->kept < LOOKUPS_KEPT) {
        l->phase = LOOKUP_KEPT;
        l->until_ms = net_loop_now(shard->loop) + LOOKUP_RUNNING_MS;
        t->kept++;
    } else {
        lookup_free(t, l);
    }
    again_all(shard, &again);
}

/* Nobody knew better: the store is read. */
static void lookup_read(struct lookup *l)
{
    struct shard *shard = l->shard;
    struct lookup_table *t = shard->lookups;
    const struct seeker *first = LIST_ENTRY(l->seekers.next, struct seeker, link);
    struct job *job = job_new(shard, STORE_LOOKUP, l, looked_up);
    if (!job) {
        struct list none;
        list_init(&none);
        tell_seekers(l, NULL, &none);
        lookup_free(t, l);
        return;
    }
    metrics_add(shard->counts, METRIC_cache_misses, 0, CACHE_LAYER_RUNNING, 1);
    l->phase = LOOKUP_READING;
    l->number = ++t->reads;
    l->job = job;
    job->op.row.call_digest = first->call;
    job->op.row.tenant = first->tenant;
    job->op.row.call_id = first->call_id;
    job_submit(job);
}

static void redis_answered(struct redis_ask *ask, const struct rows *rows)
{
    struct lookup *l = LIST_ENTRY(ask, struct lookup, redis);
    struct shard *shard = l->shard;
    struct list again;
    if (!rows || !endings_document_stands(shard_setup(shard), &rows->call)) {
        lookup_read(l);
        return;
    }
    list_init(&again);
    tell_seekers(l, rows, &again);
    endings_keep_near(shard, rows);
    lookup_free(shard->lookups, l);
    again_all(shard, &again);
}

/* Forgets what has been kept long enough. */
static void expire(struct lookup_table *t, int64_t now_ms)
{
    while (!list_empty(&t->by_age)) {
        struct lookup *l = LIST_ENTRY(t->by_age.next, struct lookup, age);
        if (l->phase != LOOKUP_KEPT || l->until_ms > now_ms)
            break;
        lookup_free(t, l);
    }
}

static void join(struct shard *shard, struct seeker *s)
{
    struct lookup_table *t = shard->lookups;
    int64_t now = net_loop_now(shard->loop);
    struct lookup *l = NULL;
    expire(t, now);
    struct list *bucket = bucket_of(t, &s->call);
    for (struct list *item = bucket->next; item != bucket && !l; item = item->next) {
        struct lookup *other = LIST_ENTRY(item, struct lookup, chain);
        if (digest_equal(&other->call, &s->call))
            l = other;
    }
    if (l && (l->phase != LOOKUP_KEPT || (!s->fresh && now < l->until_ms))) {
        metrics_add(shard->counts, METRIC_cache_hits, 0, CACHE_LAYER_RUNNING, 1);
        if (l->phase == LOOKUP_KEPT)
            s->told(s, &l->job->op.rows);
        else
            list_push_back(&l->seekers, &s->link);
        return;
    }
    if (l)
        lookup_free(t, l);
    l = calloc(1, sizeof *l);
    if (!l) {
        s->told(s, NULL);
        return;
    }
    l->shard = shard;
    l->call = s->call;
    list_init(&l->seekers);
    list_push_back(bucket, &l->chain);
    list_push_back(&t->by_age, &l->age);
    list_push_back(&l->seekers, &s->link);
    l->redis = (struct redis_ask){
        .call = l->call, .tenant = s->tenant, .call_id = s->call_id, .then = redis_answered};
    if (s->fresh || !redis_ask(shard->redis, &l->redis))
        lookup_read(l);
}

void lookup_seek(struct shard *shard, struct seeker *s, bool fresh)
{
    struct lookup_table *t = table_of(shard);
    if (!t) {
        s->told(s, NULL);
        return;
    }
    list_init(&s->link);
    s->fresh = fresh;
    s->came = t->reads;
    join(shard, s);
}
