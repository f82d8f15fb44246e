/* SPDX-License-Identifier: MIT
 *
 * callIds and keys of the load generator: 32 hex digits that look random and come from a seed and an index, so
 * that two processes which share a seed know the same calls without a file between them. Within one seed no two
 * indexes give the same id: every step of the mixing of the upper half is a bijection.
 */
#ifndef SAMEKEY_BENCH_IDS_H
#define SAMEKEY_BENCH_IDS_H

#include <stdint.h>

enum { IDS_LENGTH = 32 };

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014), one to one on 64 bits. */
static inline uint64_t ids_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Writes IDS_LENGTH digits, no NUL. */
static inline void ids_write(char *out, uint64_t seed, uint64_t index)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t halves[2];
    halves[0] = ids_mix(ids_mix(seed) ^ index);
    halves[1] = ids_mix(halves[0] ^ seed);
    for (int i = 0; i < IDS_LENGTH; i++)
        out[i] = digits[(halves[i / 16] >> (60 - 4 * (i % 16))) & 15];
}

#endif
