/* SPDX-License-Identifier: MIT
 *
 * The events of one operation, in the order they happened: clocks corrected, lines that were shipped twice counted and
 * taken out, lines that stand for two events (a request and its answer) taken apart. The order depends on what the lines
 * say and never on where they stood.
 */
#ifndef SAMEKEY_FORENSICS_GROUP_H
#define SAMEKEY_FORENSICS_GROUP_H

#include "forensics/event.h"
#include "forensics/spill.h"

/* Events of one operation that are looked at; a key with more is told so. */
#define GROUP_EVENTS_MAX 50000

struct group {
    struct event *event;
    size_t count, capacity;
    size_t shipped_twice; /* lines taken out */
    size_t left_out;      /* beyond GROUP_EVENTS_MAX */
};

/* offset_us[origin] is added to each time; MOMENT_NONE: that clock cannot be placed. NULL: all zero. */
struct group_clock {
    const int64_t *offset_us;
};

/*
 * Gives the operations of one part of by_group, one after another, in an order that depends only on their names.
 * Texts are good until `take` returns. memory_bytes bounds the records held at once. Stops at a status of `take` that is
 * not STATUS_OK and returns it. STATUS_IO, STATUS_NO_MEMORY.
 */
enum status group_each(struct spill *by_group, size_t part, size_t memory_bytes,
                       const struct group_clock *clock,
                       enum status (*take)(void *context, struct group *group), void *context);

void group_fini(struct group *g);

#endif
