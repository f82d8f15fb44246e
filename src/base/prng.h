/* SPDX-License-Identifier: MIT
 *
 * Two generators, neither for secrets. `prng_mt` is MT19937 seeded and read exactly as CPython 3 does,
 * because the article's table is only reproduced by the very same numbers (CONTRACT section 11). `prng` is
 * xoshiro256**, small and fast, that can be split: a simulated world gives each actor its own stream, so that
 * adding a draw in one actor does not change what the others draw.
 */
#ifndef SAMEKEY_BASE_PRNG_H
#define SAMEKEY_BASE_PRNG_H

#include <stddef.h>
#include <stdint.h>

#define PRNG_MT_WORDS 624 /* 32-bit words of state */

struct prng_mt {
    uint32_t word[PRNG_MT_WORDS];
    unsigned next; /* words read since the state was last renewed */
};

/* Seeds as random.seed(seed) does for an int of 0 to 2^64-1: init_by_array over its 32-bit words, lowest
 * first. */
void prng_mt_seed(struct prng_mt *g, uint64_t seed);

/* The next 32 bits: random.getrandbits(32). */
uint32_t prng_mt_next(struct prng_mt *g);

/* random.random(): [0, 1), 53 bits, from two words. */
double prng_mt_random(struct prng_mt *g);

/* random.uniform(a, b): a + (b - a) * random(), in that order of operations. */
double prng_mt_uniform(struct prng_mt *g, double a, double b);

/* The next `count` numbers of random(), the same ones in the same order, at several times the speed. */
void prng_mt_fill(struct prng_mt *g, double *out, size_t count);

struct prng {
    uint64_t word[4];
};

/* Seeds by splitmix64; every seed is good, 0 too. */
void prng_seed(struct prng *g, uint64_t seed);

/* The next 64 bits. */
uint64_t prng_next(struct prng *g);

/* [0, 1), 53 bits. */
double prng_double(struct prng *g);

/* A whole number from 0 to bound - 1, each as likely; bound is at least 1. */
uint64_t prng_below(struct prng *g, uint64_t bound);

/* Makes *child an independent stream; `name` tells streams of one parent apart. The parent advances by one
 * draw. */
void prng_split(struct prng *g, uint64_t name, struct prng *child);

#endif
