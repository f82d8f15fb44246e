/* SPDX-License-Identifier: MIT
 *
 * A heap of timers that lives inside its members: a pairing heap keyed by a time in milliseconds. Adding
 * never allocates, so a timer can always be armed. Two timers of the same time come out in the order in which
 * they were armed: the simulator's runs must be the same on every machine.
 *
 * Cost: add O(1); first O(1); remove and pop O(log n) amortised.
 */
#ifndef SAMEKEY_BASE_HEAP_H
#define SAMEKEY_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One timer. Start it as zero bytes; it is the heap's while it is queued and must not move then. */
struct heap_node {
    int64_t at_ms;
    uint64_t sequence;
    struct heap_node *child, *next;
    struct heap_node *back; /* the elder sibling, or the parent for an eldest child */
    bool queued;
};

/* The heap. Start it as zero bytes; nothing to end. */
struct heap {
    struct heap_node *root;
    size_t count;
    uint64_t sequence;
};

#define HEAP_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* Queues a node for at_ms; a node already queued in this heap is moved (and goes behind others of that time).
 */
void heap_add(struct heap *h, struct heap_node *n, int64_t at_ms);

/* Takes a node out; one that is not queued is left alone. */
void heap_remove(struct heap *h, struct heap_node *n);

/* The node that is due first, still queued; NULL when empty. */
struct heap_node *heap_first(const struct heap *h);

/* Takes out and returns the first node whose time is not later than now_ms; NULL when there is none. */
struct heap_node *heap_pop_due(struct heap *h, int64_t now_ms);

#endif
