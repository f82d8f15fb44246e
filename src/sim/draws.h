/* SPDX-License-Identifier: MIT
 *
 * random.random() of CPython, taken from the generator in blocks: the same numbers in the same order as one by one,
 * several times faster.
 */
#ifndef SAMEKEY_SIM_DRAWS_H
#define SAMEKEY_SIM_DRAWS_H

#include "base/prng.h"

enum { DRAWS_BLOCK = PRNG_MT_WORDS / 2 };

struct draws {
    double block[DRAWS_BLOCK];
    size_t next;
    struct prng_mt generator;
};

/* Starts it as random.seed(seed) does. */
static inline void draws_seed(struct draws *d, uint64_t seed)
{
    prng_mt_seed(&d->generator, seed);
    d->next = DRAWS_BLOCK;
}

/* The next number, [0, 1). */
static inline double draws_next(struct draws *d)
{
    if (d->next == DRAWS_BLOCK) {
        prng_mt_fill(&d->generator, d->block, DRAWS_BLOCK);
        d->next = 0;
    }
    return d->block[d->next++];
}

#endif
