/* SPDX-License-Identifier: MIT
 *
 * What a failed sync leaves of a file, as on Linux: the pages that could not be written count as written from then on.
 * Everybody reads them as they should be, no later sync writes them, and a power cut shows what the disk held before. Only
 * a page that is written again goes to the disk with the next sync, as a whole.
 * Sources: https://lwn.net/Articles/752063/; Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
 *
 *   written ──sync fails──▶ lost ──written again──▶ dirty ──sync──▶ forgotten
 *                            ▲                        │
 *                            └───────sync fails───────┘
 */
#ifndef SAMEKEY_SIM_LOST_PAGES_H
#define SAMEKEY_SIM_LOST_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOST_PAGE_BYTES 4096

struct lost_page {
    int64_t offset; /* a multiple of LOST_PAGE_BYTES */
    bool dirty;     /* written since the sync that failed */
    unsigned char
        was[LOST_PAGE_BYTES]; /* what the disk holds; zeros behind the end that the file had there */
};

/* All zeros is a list of no pages. */
struct lost_pages {
    struct lost_page *pages;
    size_t count, capacity;
};

void lost_pages_fini(struct lost_pages *l);
void lost_pages_clear(struct lost_pages *l);

/* A sync failed: no page of the list is dirty any more. Then lost_pages_add() for each page that it should have written:
 * `was` is its `len` bytes on disk (LOST_PAGE_BYTES at most). One that is listed already keeps the bytes it has. Aborts when
 * there is no memory: a simulation without it has no result. */
void lost_pages_failed(struct lost_pages *l);
void lost_pages_add(struct lost_pages *l, int64_t offset, const unsigned char *was, size_t len);

/* `len` bytes from `offset` on have been written, and are not on disk yet. */
void lost_pages_write(struct lost_pages *l, int64_t offset, size_t len);
/* The file ends at `size` now: what lies behind is forgotten. */
void lost_pages_cut(struct lost_pages *l, int64_t size);
/* A sync succeeded: the dirty ones are on disk. */
void lost_pages_synced(struct lost_pages *l);

#endif
