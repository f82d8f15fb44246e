/* SPDX-License-Identifier: MIT */
#include "forensics/group.h"

#include <stdlib.h>

struct chain {
    uint64_t group;
    uint32_t first, last, count; /* record numbers */
};

struct loader {
    const struct group_clock *clock;
    enum status (*take)(void *context, struct group *group);
    void *context;
    struct group group;
    size_t pass,
        passes; /* a part too large for memory is read several times, a share of its groups each time */
    struct buffer kept;
    char **record;
    uint32_t *next;
    size_t records, record_capacity;
    struct chain *slot;
    size_t slots, chains;
};

static int texts_compare(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : a.len < b.len ? -1 : a.len > b.len;
}

#define COMPARE(x, y)                                                                                        \
    do {                                                                                                     \
        if ((x) != (y))                                                                                      \
            return (x) < (y) ? -1 : 1;                                                                       \
    } while (0)

static int compare(const void *left, const void *right)
{
    const struct event *a = left, *b = right;
    uint64_t at = (uint64_t)a->us - (uint64_t)MOMENT_NONE - 1,
             bt = (uint64_t)b->us - (uint64_t)MOMENT_NONE - 1;
    COMPARE(at, bt); /* without a time: behind all others */
    COMPARE(event_kind_order(a->kind), event_kind_order(b->kind));
    COMPARE(a->kind, b->kind);
    for (int t = 0; t < TEXT_COUNT; t++) {
        int c = texts_compare(a->text[t], b->text[t]);
        if (c)
            return c;
    }
    COMPARE(a->attempt, b->attempt);
    COMPARE(a->status, b->status);
    COMPARE(a->state, b->state);
    COMPARE(a->nth, b->nth);
    COMPARE(a->place, b->place);
    COMPARE(a->raw, b->raw);
    COMPARE(a->flags & EVENT_SHIPPED, b->flags & EVENT_SHIPPED);
    COMPARE(a->file, b->file);
    COMPARE(a->line, b->line);
    return 0;
}

/* Whether b is a second copy of a's line: the same place at its origin, or the same bytes at the same millisecond, or
 * the same but for what a shipper added. Bytes that agree at a coarse time may be two events. */
static bool same_line(const struct event *a, const struct event *b)
{
    if (a->kind != b->kind || a->kind == KIND_DAMAGED || a->us != b->us)
        return false;
    if (a->place && b->place)
        return a->place == b->place && slice_equal(a->text[TEXT_CALL], b->text[TEXT_CALL]);
    if (!(a->flags & b->flags & EVENT_FINE))
        return false;
    if (a->raw == b->raw)
        return true;
    if (!((a->flags ^ b->flags) & EVENT_SHIPPED) || a->attempt != b->attempt || a->status != b->status ||
        a->state != b->state || a->nth != b->nth)
        return false;
    for (int t = 0; t < TEXT_COUNT; t++)
        if (!slice_equal(a->text[t], b->text[t]))
            return false;
    return true;
}

static void drop_copies(struct group *g)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->count; i++) {
        struct event *first = NULL;
        for (size_t k = kept; k-- > 0 && g->event[k].us == g->event[i].us && !first;)
            first = same_line(&g->event[k], &g->event[i]) ? &g->event[k] : NULL;
        if (first) {
            g->shipped_twice++;
            first->copies++;
        } else {
            g->event[kept++] = g->event[i];
        }
    }
    g->count = kept;
}

static bool room(struct group *g, size_t more)
{
    if (g->count + more <= g->capacity)
        return true;
    size_t capacity = g->capacity ? g->capacity * 2 : 64;
    while (capacity < g->count + more)
        capacity *= 2;
    struct event *grown = realloc(g->event, capacity * sizeof *grown);
    if (!grown)
        return false;
    g->event = grown;
    g->capacity = capacity;
    return true;
}

/* Most logs are in order already. */
static void put_in_order(struct group *g)
{
    for (size_t i = 1; i < g->count; i++) {
        if (compare(&g->event[i - 1], &g->event[i]) > 0) {
            qsort(g->event, g->count, sizeof *g->event, compare);
            return;
        }
    }
}

static enum event_kind ending_of(const struct event *e)
{
    if (e->status)
        return KIND_ANSWERED;
    return e->state == EVENT_STATE_NOT_RECEIVED ? KIND_REFUSED : KIND_TIMEOUT;
}

/* One line that tells of a beginning and an end becomes two events. */
static bool take_apart(struct group *g, bool *changed)
{
    for (size_t i = 0, n = g->count; i < n; i++) {
        struct event *e = &g->event[i];
        if (e->kind != KIND_ACCESS && e->kind != KIND_ATTEMPT_ENDED)
            continue;
        if (!room(g, 1))
            return false;
        e = &g->event[i];
        struct event *end = &g->event[g->count++];
        *end = *e;
        end->kind =
            (uint8_t)(e->kind == KIND_ACCESS ? (e->status ? KIND_ANSWERED : KIND_TIMEOUT) : ending_of(e));
        e->kind = (uint8_t)(e->kind == KIND_ACCESS ? KIND_REQUEST : KIND_SENT);
        e->status = 0;
        e->state = EVENT_STATE_ABSENT;
        if (e->us != MOMENT_NONE && e->took_ms >= 0) {
            int64_t took = (int64_t)e->took_ms * 1000;
            if (e->flags & EVENT_TIME_ENDS)
                e->us -= took;
            else
                end->us += took;
        }
        if (end->kind == KIND_ANSWERED &&
            end->status == 499) /* nginx: the client went away before the answer */
            end->kind = KIND_TIMEOUT;
        *changed = true;
    }
    return true;
}

static enum status give(struct loader *l, const struct chain *c)
{
    struct group *g = &l->group;
    g->count = g->shipped_twice = g->left_out = 0;
    uint32_t at = c->first;
    for (uint32_t i = 0; i < c->count; i++, at = l->next[at]) {
        if (g->count == GROUP_EVENTS_MAX) {
            g->left_out++;
            continue;
        }
        if (!room(g, 1))
            return STATUS_NO_MEMORY;
        struct event *e = &g->event[g->count++];
        event_read(e, l->record[at]);
        int64_t offset = l->clock && l->clock->offset_us ? l->clock->offset_us[e->origin] : 0;
        if (offset == MOMENT_NONE)
            e->us = MOMENT_NONE;
        else if (e->us != MOMENT_NONE)
            e->us += offset;
    }
    bool changed = false;
    put_in_order(g);
    drop_copies(g);
    if (!take_apart(g, &changed))
        return STATUS_NO_MEMORY;
    if (changed)
        put_in_order(g);
    return l->take(l->context, g);
}

/* ---- which records belong together ---- */

static struct chain *chain_at(struct loader *l, uint64_t group)
{
    size_t at = (size_t)(group * UINT64_C(0x9e3779b97f4a7c15) >> 24) & (l->slots - 1);
    while (l->slot[at].count && l->slot[at].group != group)
        at = (at + 1) & (l->slots - 1);
    return &l->slot[at];
}

static bool grow_slots(struct loader *l)
{
    size_t slots = l->slots, wanted = slots ? slots * 2 : 1024;
    struct chain *old = l->slot;
    l->slot = calloc(wanted, sizeof *l->slot);
    if (!l->slot) {
        l->slot = old;
        return false;
    }
    l->slots = wanted;
    for (size_t i = 0; i < slots; i++)
        if (old[i].count)
            *chain_at(l, old[i].group) = old[i];
    free(old);
    return true;
}

static enum status index_records(struct loader *l, char *records, size_t len)
{
    for (size_t at = 0; at < len; at += event_record_size(records + at)) {
        if (l->records == l->record_capacity) {
            size_t capacity = l->record_capacity ? l->record_capacity * 2 : 4096;
            char **record = realloc(l->record, capacity * sizeof *record);
            if (record)
                l->record = record;
            uint32_t *next = record ? realloc(l->next, capacity * sizeof *next) : NULL;
            if (!next)
                return STATUS_NO_MEMORY;
            l->next = next;
            l->record_capacity = capacity;
        }
        if ((l->chains + 1) * 4 > l->slots * 3 && !grow_slots(l))
            return STATUS_NO_MEMORY;
        uint32_t number = (uint32_t)l->records++;
        uint64_t group = event_record_group(records + at);
        struct chain *c = chain_at(l, group);
        if (c->count == 0) {
            c->group = group;
            c->first = number;
            l->chains++;
        } else {
            l->next[c->last] = number;
        }
        c->last = number;
        c->count++;
        l->record[number] = records + at;
    }
    return STATUS_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct chain *x = a, *y = b;
    COMPARE(x->group, y->group);
    return 0;
}

static enum status give_all(struct loader *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->slots; i++)
        if (l->slot[i].count)
            l->slot[n++] = l->slot[i];
    qsort(l->slot, n, sizeof *l->slot, by_name);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < n && status == STATUS_OK; i++)
        status = give(l, &l->slot[i]);
    l->records = l->chains = 0;
    memset(l->slot, 0, l->slots * sizeof *l->slot);
    return status;
}

static enum status take_whole(void *context, char *records, size_t len)
{
    enum status status = index_records(context, records, len);
    return status == STATUS_OK ? give_all(context) : status;
}

static enum status take_share(void *context, char *records, size_t len)
{
    struct loader *l = context;
    for (size_t at = 0; at < len; at += event_record_size(records + at))
        if ((event_record_group(records + at) >> 32 & 0xffffff) % l->passes == l->pass)
            buffer_append(&l->kept, records + at, event_record_size(records + at));
    return l->kept.failed ? STATUS_NO_MEMORY : STATUS_OK;
}

enum status group_each(struct spill *by_group, size_t part, size_t memory_bytes,
                       const struct group_clock *clock,
                       enum status (*take)(void *context, struct group *group), void *context)
{
    struct loader l = {.clock = clock, .take = take, .context = context};
    uint64_t bytes = spill_part_bytes(by_group, part);
    enum status status = STATUS_OK;
    if (bytes == 0)
        return STATUS_OK;
    if (bytes <= memory_bytes) {
        status = spill_read(by_group, part, (size_t)bytes, take_whole, &l);
    } else {
        l.passes = (size_t)(bytes / (memory_bytes / 2)) + 1;
        for (l.pass = 0; l.pass < l.passes && status == STATUS_OK; l.pass++) {
            buffer_clear(&l.kept);
            status = spill_read(by_group, part, memory_bytes / 4, take_share, &l);
            if (status == STATUS_OK && l.kept.len)
                status = take_whole(&l, l.kept.data, l.kept.len);
        }
    }
    group_fini(&l.group);
    buffer_fini(&l.kept);
    free(l.record);
    free(l.next);
    free(l.slot);
    return status;
}

void group_fini(struct group *g)
{
    free(g->event);
    *g = (struct group){0};
}
