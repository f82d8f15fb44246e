/* SPDX-License-Identifier: MIT */
#include "base/prng.h"

#include <assert.h>

/* MT19937: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998; seeding from an array by the
 * same authors, 2002. */
#define MT_MIDDLE 397
#define MT_TWIST  UINT32_C(0x9908b0df)

static void mt_seed_word(struct prng_mt *g, uint32_t seed)
{
    g->word[0] = seed;
    for (uint32_t i = 1; i < PRNG_MT_WORDS; i++) {
        uint32_t previous = g->word[i - 1];
        g->word[i] = UINT32_C(1812433253) * (previous ^ previous >> 30) + i;
    }
    g->next = PRNG_MT_WORDS;
}

void prng_mt_seed(struct prng_mt *g, uint64_t seed)
{
    /* CPython gives the integer's 32-bit words, lowest first, without leading zero words but at least one. */
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    unsigned length = key[1] ? 2 : 1;

    mt_seed_word(g, 19650218);
    uint32_t *w = g->word;
    unsigned i = 1, j = 0;
    for (unsigned k = PRNG_MT_WORDS; k > 0; k--) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * UINT32_C(1664525)) + key[j] + j;
        if (++i == PRNG_MT_WORDS) {
            w[0] = w[PRNG_MT_WORDS - 1];
            i = 1;
        }
        if (++j == length)
            j = 0;
    }
    for (unsigned k = PRNG_MT_WORDS - 1; k > 0; k--) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * UINT32_C(1566083941)) - i;
        if (++i == PRNG_MT_WORDS) {
            w[0] = w[PRNG_MT_WORDS - 1];
            i = 1;
        }
    }
    w[0] = UINT32_C(0x80000000);
}

static uint32_t mt_twist(uint32_t upper, uint32_t lower, uint32_t middle)
{
    uint32_t joined = (upper & UINT32_C(0x80000000)) | (lower & UINT32_C(0x7fffffff));
    return middle ^ joined >> 1 ^ (MT_TWIST & (0 - (joined & 1)));
}

/* Three loops without wrapping indices, which a compiler turns into vector code. */
static void mt_renew(struct prng_mt *g)
{
    uint32_t *w = g->word;
    const unsigned wraps = PRNG_MT_WORDS - MT_MIDDLE;
    for (unsigned i = 0; i < wraps; i++)
        w[i] = mt_twist(w[i], w[i + 1], w[i + MT_MIDDLE]);
    for (unsigned i = wraps; i < PRNG_MT_WORDS - 1; i++)
        w[i] = mt_twist(w[i], w[i + 1], w[i - wraps]);
    w[PRNG_MT_WORDS - 1] = mt_twist(w[PRNG_MT_WORDS - 1], w[0], w[MT_MIDDLE - 1]);
    g->next = 0;
}

static uint32_t mt_temper(uint32_t y)
{
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    y ^= y >> 18;
    return y;
}

static double mt_join(uint32_t first, uint32_t second)
{
    uint32_t high = first >> 5; /* 27 bits */
    uint32_t low = second >> 6; /* 26 bits */
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

uint32_t prng_mt_next(struct prng_mt *g)
{
    if (g->next >= PRNG_MT_WORDS)
        mt_renew(g);
    return mt_temper(g->word[g->next++]);
}

double prng_mt_random(struct prng_mt *g)
{
    uint32_t first = prng_mt_next(g);
    return mt_join(first, prng_mt_next(g));
}

void prng_mt_fill(struct prng_mt *g, double *out, size_t count)
{
    while (count > 0) {
        if (g->next >= PRNG_MT_WORDS)
            mt_renew(g);
        size_t whole = (PRNG_MT_WORDS - g->next) / 2;
        if (whole == 0) { /* an odd word is left before the state is renewed */
            *out++ = prng_mt_random(g);
            count--;
            continue;
        }
        if (whole > count)
            whole = count;
        const uint32_t *w = g->word + g->next;
        for (size_t i = 0; i < whole; i++)
            out[i] = mt_join(mt_temper(w[2 * i]), mt_temper(w[2 * i + 1]));
        g->next += (unsigned)(2 * whole);
        out += whole;
        count -= whole;
    }
}

double prng_mt_uniform(struct prng_mt *g, double a, double b)
{
    return a + (b - a) * prng_mt_random(g);
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void prng_seed(struct prng *g, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        g->word[i] = splitmix(&seed);
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* xoshiro256**: Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018. */
uint64_t prng_next(struct prng *g)
{
    uint64_t *w = g->word;
    uint64_t result = rotate(w[1] * 5, 7) * 9, shifted = w[1] << 17;
    w[2] ^= w[0];
    w[3] ^= w[1];
    w[1] ^= w[2];
    w[0] ^= w[3];
    w[2] ^= shifted;
    w[3] = rotate(w[3], 45);
    return result;
}

double prng_double(struct prng *g)
{
    return (double)(prng_next(g) >> 11) * (1.0 / 9007199254740992.0);
}

uint64_t prng_below(struct prng *g, uint64_t bound)
{
    assert(bound > 0);
    /* Draws below 2^64 mod bound are thrown away, so that no remainder is likelier than another. */
    uint64_t uneven = (0 - bound) % bound, draw;
    do {
        draw = prng_next(g);
    } while (draw < uneven);
    return draw % bound;
}

void prng_split(struct prng *g, uint64_t name, struct prng *child)
{
    uint64_t seed = prng_next(g) ^ splitmix(&name);
    prng_seed(child, seed);
}
