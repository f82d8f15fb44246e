/* SPDX-License-Identifier: MIT */
#include "review/pool.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK_BYTES ((size_t)64 << 10)

struct pool_block {
    struct pool_block *next;
    size_t used, size;
    alignas(max_align_t) char data[];
};

void *pool_alloc(struct pool *p, size_t bytes)
{
    size_t align = alignof(max_align_t);
    if (p->failed || bytes > POOL_BYTES_MAX - p->bytes) {
        p->failed = true;
        return NULL;
    }
    bytes = (bytes + align - 1) / align * align;
    struct pool_block *b = p->blocks;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = calloc(1, sizeof *b + size);
        if (!b) {
            p->failed = true;
            return NULL;
        }
        b->size = size;
        b->next = p->blocks;
        p->blocks = b;
    }
    void *result = b->data + b->used;
    b->used += bytes;
    p->bytes += bytes;
    return result;
}

const char *pool_copy(struct pool *p, struct slice s)
{
    char *copy = pool_alloc(p, s.len + 1);
    if (!copy)
        return "";
    if (s.len)
        memcpy(copy, s.data, s.len);
    copy[s.len] = '\0';
    return copy;
}

const char *pool_vformat(struct pool *p, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = n < 0 ? NULL : pool_alloc(p, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text ? text : "";
}

const char *pool_format(struct pool *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = pool_vformat(p, format, args);
    va_end(args);
    return text;
}

void pool_fini(struct pool *p)
{
    while (p->blocks) {
        struct pool_block *next = p->blocks->next;
        free(p->blocks);
        p->blocks = next;
    }
    *p = (struct pool){0};
}
