/* SPDX-License-Identifier: MIT */
#include "base/heap.h"

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->sequence < b->sequence;
}

/* Joins two trees, roots without siblings; either may be NULL. */
static struct heap_node *meld(struct heap_node *a, struct heap_node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (before(b, a)) {
        struct heap_node *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->child;
    if (b->next)
        b->next->back = b;
    b->back = a;
    a->child = b;
    return a;
}

/* The two passes that give the pairing heap its cost: join neighbours left to right, then all of them right
 * to left. Loops, not recursion: after a million adds the root has a million children. */
static struct heap_node *join_siblings(struct heap_node *first)
{
    struct heap_node *pairs = NULL;
    while (first) {
        struct heap_node *a = first, *b = a->next;
        first = b ? b->next : NULL;
        a->next = a->back = NULL;
        if (b)
            b->next = b->back = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    struct heap_node *root = NULL;
    while (pairs) {
        struct heap_node *rest = pairs->next;
        pairs->next = NULL;
        root = meld(pairs, root);
        pairs = rest;
    }
    return root;
}

void heap_add(struct heap *h, struct heap_node *n, int64_t at_ms)
{
    heap_remove(h, n);
    *n = (struct heap_node){.at_ms = at_ms, .sequence = h->sequence++, .queued = true};
    h->root = meld(h->root, n);
    h->count++;
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    if (!n->queued)
        return;
    struct heap_node *below = join_siblings(n->child);
    if (n == h->root) {
        h->root = below;
    } else {
        if (n->back->child == n)
            n->back->child = n->next;
        else
            n->back->next = n->next;
        if (n->next)
            n->next->back = n->back;
        h->root = meld(h->root, below);
    }
    n->child = n->next = n->back = NULL;
    n->queued = false;
    h->count--;
}

struct heap_node *heap_first(const struct heap *h)
{
    return h->root;
}

struct heap_node *heap_pop_due(struct heap *h, int64_t now_ms)
{
    struct heap_node *n = h->root;
    if (!n || n->at_ms > now_ms)
        return NULL;
    heap_remove(h, n);
    return n;
}
