/* SPDX-License-Identifier: MIT */
#include "sim/lost_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void lost_pages_fini(struct lost_pages *l)
{
    free(l->pages);
    *l = (struct lost_pages){0};
}

void lost_pages_clear(struct lost_pages *l)
{
    l->count = 0;
}

void lost_pages_failed(struct lost_pages *l)
{
    for (size_t i = 0; i < l->count; i++)
        l->pages[i].dirty = false;
}

void lost_pages_add(struct lost_pages *l, int64_t offset, const unsigned char *was, size_t len)
{
    assert(offset % LOST_PAGE_BYTES == 0 && len <= LOST_PAGE_BYTES);
    for (size_t i = 0; i < l->count; i++)
        if (l->pages[i].offset == offset)
            return;
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? l->capacity * 2 : 16;
        struct lost_page *more = realloc(l->pages, l->capacity * sizeof *more);
        if (!more)
            abort();
        l->pages = more;
    }
    struct lost_page *lost = &l->pages[l->count++];
    memset(lost, 0, sizeof *lost);
    lost->offset = offset;
    memcpy(lost->was, was, len);
}

void lost_pages_write(struct lost_pages *l, int64_t offset, size_t len)
{
    for (size_t i = 0; i < l->count; i++) {
        struct lost_page *lost = &l->pages[i];
        if (len && lost->offset < offset + (int64_t)len && offset < lost->offset + LOST_PAGE_BYTES)
            lost->dirty = true;
    }
}

void lost_pages_cut(struct lost_pages *l, int64_t size)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->pages[i].offset < size)
            l->pages[kept++] = l->pages[i];
    l->count = kept;
}

void lost_pages_synced(struct lost_pages *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (!l->pages[i].dirty)
            l->pages[kept++] = l->pages[i];
    l->count = kept;
}
