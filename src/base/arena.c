/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <assert.h>
#include <stdalign.h>
#include <stdlib.h>

#define ARENA_ALIGN       alignof(max_align_t)
#define ARENA_BLOCK_BYTES ((size_t)4096) /* the smallest block asked of the machine */

struct arena_block {
    struct arena_block *older;
    size_t size; /* bytes behind this header */
    size_t used;
    alignas(max_align_t) char bytes[];
};

void arena_init(struct arena *a, size_t max)
{
    assert(max > 0);
    *a = (struct arena){.max = max};
}

void *arena_take(struct arena *a, size_t size)
{
    if (size > a->max)
        return NULL;
    size_t padded = (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
    if (padded > a->max - a->used)
        return NULL;
    struct arena_block *block = a->blocks;
    if (!block || padded > block->size - block->used) {
        /* Doubling keeps the number of blocks small; the bound is on what is handed out, not on a block's
         * slack. */
        size_t wanted = block ? block->size * 2 : ARENA_BLOCK_BYTES;
        if (wanted > a->max)
            wanted = a->max;
        if (wanted < padded)
            wanted = padded;
        block = malloc(sizeof *block + wanted);
        if (!block)
            return NULL;
        block->older = a->blocks;
        block->size = wanted;
        block->used = 0;
        a->blocks = block;
    }
    void *p = block->bytes + block->used;
    block->used += padded;
    a->used += padded;
    return p;
}

void *arena_take_zero(struct arena *a, size_t size)
{
    void *p = arena_take(a, size);
    if (p)
        memset(p, 0, size);
    return p;
}

bool arena_copy(struct arena *a, struct slice s, struct slice *out)
{
    char *p = s.len < a->max ? arena_take(a, s.len + 1) : NULL;
    if (!p)
        return false;
    if (s.len)
        memcpy(p, s.data, s.len);
    p[s.len] = '\0';
    *out = slice_of(p, s.len);
    return true;
}

void arena_clear(struct arena *a)
{
    struct arena_block *largest = NULL;
    for (struct arena_block *b = a->blocks; b; b = b->older)
        if (!largest || b->size > largest->size)
            largest = b;
    for (struct arena_block *b = a->blocks, *older; b; b = older) {
        older = b->older;
        if (b != largest)
            free(b);
    }
    if (largest) {
        largest->older = NULL;
        largest->used = 0;
    }
    a->blocks = largest;
    a->used = 0;
}

void arena_rest(struct arena *a, size_t kept_max)
{
    if (a->used > kept_max)
        arena_fini(a);
    else
        arena_clear(a);
}

void arena_fini(struct arena *a)
{
    if (!a)
        return;
    arena_clear(a);
    free(a->blocks);
    a->blocks = NULL;
}
