/* SPDX-License-Identifier: MIT
 *
 * An arena hands out memory that is given back all at once: one request, one arena, one arena_clear(). It
 * never hands out more than `max` bytes between two clears, so a hostile request meets a bound and not the
 * machine's memory. Start it with arena_init() and end it with arena_fini().
 *
 * Always true: (1) what arena_take() returned stays where it is until clear or fini; (2) `used` never exceeds
 * `max`; (3) a refused take changes nothing.
 */
#ifndef SAMEKEY_BASE_ARENA_H
#define SAMEKEY_BASE_ARENA_H

#include "base/slice.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; /* the newest first */
    size_t used;                /* bytes handed out since the last clear, with padding */
    size_t max;                 /* bound on used, in bytes */
};

/* Makes an empty arena bounded by max bytes (at least 1). Allocates nothing yet. */
void arena_init(struct arena *a, size_t max);

/* Returns `size` bytes, not zeroed, aligned for any type, borrowed until clear or fini. NULL when the bound
 * or the machine's memory is reached; the arena is then as before. A size of 0 gives a pointer that must not
 * be read. */
void *arena_take(struct arena *a, size_t size);

/* As arena_take, with every byte zero. */
void *arena_take_zero(struct arena *a, size_t size);

/* Copies the bytes of s, and a NUL behind them that is not counted. On success *out borrows from the arena;
 * returns false, with *out untouched, when arena_take would return NULL. */
bool arena_copy(struct arena *a, struct slice s, struct slice *out);

/* Takes everything back. The largest block is kept for the next round, so a steady load allocates nothing. */
void arena_clear(struct arena *a);

/* The same for an arena that rests before it is used again: if more than kept_max bytes were used, all memory is given
 * back. */
void arena_rest(struct arena *a, size_t kept_max);

/* Frees all memory; the arena is then empty, with its bound. NULL is accepted. */
void arena_fini(struct arena *a);

#endif
