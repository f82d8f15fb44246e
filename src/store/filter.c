/* SPDX-License-Identifier: MIT */
#include "store/filter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MIN 1024

enum status filter_init(struct filter *f, uint64_t entries)
{
    uint64_t most = FILTER_BYTES_MAX / sizeof *f->words;
    memset(f, 0, sizeof *f);
    f->word_count = entries < most * 64 / FILTER_BITS ? entries * FILTER_BITS / 64 : most;
    if (f->word_count < WORDS_MIN)
        f->word_count = WORDS_MIN;
    f->room = f->word_count * 64 / FILTER_BITS;
    f->words = calloc(f->word_count, sizeof *f->words);
    if (!f->words)
        memset(f, 0, sizeof *f);
    return f->words ? STATUS_OK : STATUS_NO_MEMORY;
}

void filter_fini(struct filter *f)
{
    free(f->words);
    memset(f, 0, sizeof *f);
}

/* Its upper half chooses the word. */
static uint64_t *word_of(const struct filter *f, uint32_t hash)
{
    return &f->words[hash * f->word_count >> 32];
}

/* Four groups of six bits of a product that all bits of the hash have gone into choose the bits (Knuth, The Art of Computer
 * Programming, 6.4: multiplicative hashing). */
static uint64_t bits_of(uint32_t hash)
{
    uint64_t product = hash * UINT64_C(0x9E3779B97F4A7C15);
    return UINT64_C(1) << (product >> 58) | UINT64_C(1) << (product >> 52 & 63) |
           UINT64_C(1) << (product >> 46 & 63) | UINT64_C(1) << (product >> 40 & 63);
}

void filter_add(struct filter *f, uint32_t hash)
{
    assert(f->words);
    *word_of(f, hash) |= bits_of(hash);
    f->added++;
}

void filter_ahead(const struct filter *f, uint32_t hash)
{
    __builtin_prefetch(word_of(f, hash), 1);
}

bool filter_full(const struct filter *f)
{
    return f->added > f->room * 2 && f->word_count < FILTER_BYTES_MAX / sizeof *f->words;
}

bool filter_has(const struct filter *f, uint32_t hash)
{
    uint64_t bits = bits_of(hash);
    return (*word_of(f, hash) & bits) == bits;
}
