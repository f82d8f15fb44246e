/* SPDX-License-Identifier: MIT */
#include "store/sketch.h"

#define PROBES 6
#define BITS   (SKETCH_BYTES * 8u)

/* FNV-1a, then a mixing of its high bits into the low ones: FNV alone leaves short texts that differ in their last byte
 * close together. */
static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 33;
    h *= UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

struct sketch_term sketch_term(enum sketch_kind kind, struct slice text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)kind;
    h *= UINT64_C(0x100000001b3);
    for (size_t i = 0; i < text.len; i++) {
        h ^= (unsigned char)text.data[i];
        h *= UINT64_C(0x100000001b3);
    }
    h = mix(h);
    return (struct sketch_term){.first = h, .step = mix(h + 1) | 1};
}

static uint32_t probe(const struct sketch_term *term, unsigned i)
{
    return (uint32_t)((term->first + i * term->step) % BITS);
}

void sketch_add(struct sketch *sketch, enum sketch_kind kind, struct slice text)
{
    struct sketch_term term = sketch_term(kind, text);
    for (unsigned i = 0; i < PROBES; i++) {
        uint32_t bit = probe(&term, i);
        sketch->bits[bit / 8] |= (uint8_t)(1u << bit % 8);
    }
}

bool sketch_may_have(const uint8_t *bits, const struct sketch_term *term)
{
    for (unsigned i = 0; i < PROBES; i++) {
        uint32_t bit = probe(term, i);
        if (!(bits[bit / 8] & 1u << bit % 8))
            return false;
    }
    return true;
}
