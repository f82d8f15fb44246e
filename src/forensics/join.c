/* SPDX-License-Identifier: MIT */
#include "forensics/join.h"

#include "forensics/event.h"

#include <stdlib.h>

/* ---- a map from digest to digest, open addressing; digests are never 0 ---- */

struct map {
    struct pair {
        uint64_t from, to;
    } * slot;
    size_t size, used;
};

static uint64_t *map_at(struct map *m, uint64_t from, bool make)
{
    if (make && (m->used + 1) * 4 > m->size * 3) {
        struct map grown = {.size = m->size ? m->size * 2 : 1024};
        grown.slot = calloc(grown.size, sizeof *grown.slot);
        if (!grown.slot)
            return NULL;
        for (size_t i = 0; i < m->size; i++)
            if (m->slot[i].from)
                *map_at(&grown, m->slot[i].from, true) = m->slot[i].to;
        free(m->slot);
        *m = grown;
    }
    if (m->size == 0)
        return NULL;
    size_t at = (size_t)(from * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (m->size - 1);
    while (m->slot[at].from && m->slot[at].from != from)
        at = (at + 1) & (m->size - 1);
    if (m->slot[at].from)
        return &m->slot[at].to;
    if (!make)
        return NULL;
    m->slot[at].from = from;
    m->used++;
    return &m->slot[at].to;
}

static void map_clear(struct map *m)
{
    free(m->slot);
    *m = (struct map){0};
}

/* ---- joined keys: each points towards the smallest of its set, so the result knows no order ---- */

static uint64_t root(struct map *m, uint64_t key)
{
    uint64_t *up;
    while ((up = map_at(m, key, false)) != NULL && *up != key)
        key = *up;
    return key;
}

/* False: no memory. */
static bool unite(struct map *m, uint64_t a, uint64_t b)
{
    a = root(m, a);
    b = root(m, b);
    if (a == b || m->used >= JOIN_PAIRS_MAX)
        return true;
    uint64_t *up = map_at(m, a > b ? a : b, true);
    if (!up)
        return false;
    *up = a > b ? b : a;
    return true;
}

/* A record that only tells which business key a callId or a key belongs to. */
#define KIND_TELLS KIND_COUNT
/* Pairs lately told, so that the many events of one call tell it once. */
enum { RECENT = 4096 };

struct joiner {
    struct spill *by_call, *by_group;
    struct map business; /* callId or key -> its smallest business key, as digest */
    struct map text;     /* callId or key -> offset + 1 of that business key's text in texts */
    struct map key;      /* callId -> the smallest key of its events */
    struct map joined;   /* key -> a smaller key of the same operation; over all parts */
    struct buffer texts;
    uint64_t recent[RECENT];
};

/* What a record of by_call is sorted by. */
static uint64_t name_of(const struct event *e)
{
    return e->text[TEXT_CALL].len ? event_digest(e->text[TEXT_CALL], JOIN_SEED_CALL)
                                  : event_digest(e->text[TEXT_KEY], JOIN_SEED_KEY);
}

static enum status append(struct spill *s, const struct event *e)
{
    struct buffer *to = spill_at(s, e->group);
    size_t before = to->len;
    event_write(to, e);
    return spill_wrote(s, e->group, to->len - before);
}

static enum status tell(struct joiner *j, const struct event *e, enum event_text name)
{
    struct event told = {.kind = KIND_TELLS, .place = e->group};
    if (!e->text[name].len)
        return STATUS_OK;
    told.text[name] = e->text[name];
    told.text[TEXT_BUSINESS] = e->text[TEXT_BUSINESS];
    told.group = name_of(&told);
    uint64_t pair = told.group ^ e->group * 31;
    if (j->recent[pair % RECENT] == pair)
        return STATUS_OK;
    j->recent[pair % RECENT] = pair;
    return append(j->by_call, &told);
}

static enum status tell_business(void *context, char *records, size_t len)
{
    struct joiner *j = context;
    enum status status = STATUS_OK;
    for (size_t at = 0; at < len && status == STATUS_OK;) {
        struct event e;
        at += event_read(&e, records + at);
        if (e.flags & EVENT_WEAK_KEY)
            continue;
        status = tell(j, &e, TEXT_CALL);
        if (status == STATUS_OK)
            status = tell(j, &e, TEXT_KEY);
    }
    return status;
}

static enum status learn_business(struct joiner *j, const struct event *e)
{
    uint64_t *before = map_at(&j->business, e->group, true), *text = map_at(&j->text, e->group, true);
    if (!before || !text)
        return STATUS_NO_MEMORY;
    if (*before && *before <= e->place)
        return STATUS_OK;
    *before = e->place;
    *text = j->texts.len + 1;
    buffer_byte(&j->texts, (char)e->text[TEXT_BUSINESS].len);
    buffer_slice(&j->texts, e->text[TEXT_BUSINESS]);
    return j->texts.failed ? STATUS_NO_MEMORY : STATUS_OK;
}

static enum status learn(void *context, char *records, size_t len)
{
    struct joiner *j = context;
    for (size_t at = 0; at < len;) {
        struct event e;
        at += event_read(&e, records + at);
        if (e.kind == KIND_TELLS) {
            enum status status = learn_business(j, &e);
            if (status != STATUS_OK)
                return status;
            continue;
        }
        if (!e.text[TEXT_CALL].len || !e.text[TEXT_KEY].len)
            continue;
        uint64_t key = event_digest(e.text[TEXT_KEY], JOIN_SEED_KEY);
        uint64_t *before = map_at(&j->key, e.group, true);
        if (!before || (*before && *before != key && !unite(&j->joined, *before, key)))
            return STATUS_NO_MEMORY;
        if (*before == 0 || key < *before)
            *before = key;
    }
    return STATUS_OK;
}

static enum status move(void *context, char *records, size_t len)
{
    struct joiner *j = context;
    enum status status = STATUS_OK;
    for (size_t at = 0; at < len && status == STATUS_OK;) {
        struct event e;
        at += event_read(&e, records + at);
        if (e.kind == KIND_TELLS)
            continue;
        const uint64_t *business = map_at(&j->business, e.group, false);
        const uint64_t *key = map_at(&j->key, e.group, false);
        if (business) {
            const char *text = j->texts.data + (*map_at(&j->text, e.group, false) - 1);
            e.group = *business;
            e.text[TEXT_BUSINESS] = slice_of(text + 1, (unsigned char)*text);
        } else if (e.text[TEXT_KEY].len) {
            e.group = root(&j->joined, event_digest(e.text[TEXT_KEY], JOIN_SEED_KEY));
        } else if (key) {
            e.group = root(&j->joined, *key);
        }
        status = append(j->by_group, &e);
    }
    return status;
}

enum { CHUNK_BYTES = 32 << 20 };

static enum status each_part(struct joiner *j, bool moving)
{
    enum status status = STATUS_OK;
    for (size_t p = 0; p < SPILL_PARTS && status == STATUS_OK; p++) {
        if (spill_part_bytes(j->by_call, p) == 0)
            continue;
        status = spill_read(j->by_call, p, CHUNK_BYTES, learn, j);
        if (status == STATUS_OK && moving)
            status = spill_read(j->by_call, p, CHUNK_BYTES, move, j);
        map_clear(&j->business);
        map_clear(&j->key);
        map_clear(&j->text);
        buffer_clear(&j->texts);
        if (moving)
            spill_forget(j->by_call, p);
    }
    return status;
}

enum status join_calls(struct spill *by_call, struct spill *by_group)
{
    if (by_call->records == 0)
        return STATUS_OK;
    struct joiner *j = calloc(1, sizeof *j);
    if (!j)
        return STATUS_NO_MEMORY;
    j->by_call = by_call;
    j->by_group = by_group;
    enum status status = STATUS_OK;
    for (size_t p = 0; p < SPILL_PARTS && status == STATUS_OK; p++)
        status = spill_read(by_group, p, CHUNK_BYTES, tell_business, j);
    /* Twice: which keys belong together is known only when every part has been seen. */
    if (status == STATUS_OK)
        status = each_part(j, false);
    if (status == STATUS_OK)
        status = each_part(j, true);
    buffer_fini(&j->texts);
    map_clear(&j->joined);
    free(j);
    return status;
}
