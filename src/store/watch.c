/* SPDX-License-Identifier: MIT */
#include "store/watch.h"

#include <assert.h>
#include <stdlib.h>

#define BUCKETS_MIN 64
#define BUCKETS_MAX 65536

static struct list *bucket(const struct watches *w, int64_t id)
{
    return &w->buckets[(size_t)id & w->mask]; /* ids are consecutive, or end in numbers that are */
}

enum status watches_init(struct watches *w, size_t expected)
{
    size_t buckets = BUCKETS_MIN;
    while (buckets < expected && buckets < BUCKETS_MAX)
        buckets *= 2;
    w->buckets = malloc(buckets * sizeof *w->buckets);
    if (!w->buckets)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < buckets; i++)
        list_init(&w->buckets[i]);
    w->mask = buckets - 1;
    w->count = 0;
    return STATUS_OK;
}

void watches_add(struct watches *w, struct store_op *op)
{
    list_push_back(bucket(w, op->id), &op->link);
    w->count++;
}

void watches_remove(struct watches *w, struct store_op *op)
{
    list_remove(&op->link);
    w->count--;
}

bool watches_any(const struct watches *w, int64_t id)
{
    if (!w->count)
        return false;
    const struct list *head = bucket(w, id);
    for (const struct list *l = head->next; l != head; l = l->next)
        if (LIST_ENTRY(l, struct store_op, link)->id == id)
            return true;
    return false;
}

size_t watches_ids(const struct watches *w, size_t *place, int64_t *ids, size_t max)
{
    size_t count = 0, at = *place;
    *place = 0;
    if (!w->count)
        return 0;
    for (; at <= w->mask; at++) {
        size_t first = count;
        for (const struct list *l = w->buckets[at].next; l != &w->buckets[at]; l = l->next) {
            int64_t id = LIST_ENTRY(l, struct store_op, link)->id;
            bool known = false;
            for (size_t i = first; !known && i < count; i++)
                known = ids[i] == id;
            if (known)
                continue;
            if (count ==
                max) { /* this bucket comes again: whole, unless it alone is more than can be asked */
                *place = first ? at : at + 1;
                return first ? first : count;
            }
            ids[count++] = id;
        }
    }
    return count;
}

size_t watches_take(struct watches *w, int64_t id, struct list *to)
{
    size_t taken = 0;
    if (!w->count)
        return 0;
    struct list *head = bucket(w, id);
    for (struct list *l = head->next, *next; l != head; l = next) {
        next = l->next;
        if (LIST_ENTRY(l, struct store_op, link)->id != id)
            continue;
        list_remove(l);
        list_push_back(to, l);
        taken++;
    }
    w->count -= taken;
    return taken;
}

size_t watches_take_all(struct watches *w, struct list *to)
{
    size_t taken = 0;
    struct list *l;
    for (size_t i = 0; w->count > taken && i <= w->mask; i++)
        while ((l = list_pop_front(&w->buckets[i])) != NULL) {
            list_push_back(to, l);
            taken++;
        }
    w->count -= taken;
    return taken;
}

void watches_fini(struct watches *w)
{
    if (!w)
        return;
    assert(!w->buckets || w->count == 0);
    free(w->buckets);
    w->buckets = NULL;
}
