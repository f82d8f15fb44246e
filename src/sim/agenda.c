/* SPDX-License-Identifier: MIT */
#include "sim/agenda.h"

#include <stdlib.h>

static bool earlier(const struct agenda_event *a, const struct agenda_event *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

enum status agenda_add(struct agenda *a, double time, uint32_t kind, uint32_t who, uint64_t value)
{
    if (a->count == a->capacity) {
        size_t capacity = a->capacity ? a->capacity * 2 : 256;
        struct agenda_event *heap = realloc(a->heap, capacity * sizeof *heap);
        if (!heap)
            return STATUS_NO_MEMORY;
        a->heap = heap;
        a->capacity = capacity;
    }
    struct agenda_event event = {
        .time = time, .order = a->next_order++, .kind = kind, .who = who, .value = value};
    size_t at = a->count++;
    while (at > 0 && earlier(&event, &a->heap[(at - 1) / 2])) {
        a->heap[at] = a->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    a->heap[at] = event;
    return STATUS_OK;
}

bool agenda_take(struct agenda *a, struct agenda_event *out)
{
    if (a->count == 0)
        return false;
    *out = a->heap[0];
    struct agenda_event last = a->heap[--a->count];
    size_t at = 0;
    for (size_t child = 1; child < a->count; child = 2 * at + 1) {
        if (child + 1 < a->count && earlier(&a->heap[child + 1], &a->heap[child]))
            child++;
        if (!earlier(&a->heap[child], &last))
            break;
        a->heap[at] = a->heap[child];
        at = child;
    }
    if (a->count)
        a->heap[at] = last;
    return true;
}

void agenda_clear(struct agenda *a)
{
    a->count = 0;
    a->next_order = 0;
}

void agenda_fini(struct agenda *a)
{
    free(a->heap);
    *a = (struct agenda){0};
}
