/* SPDX-License-Identifier: MIT */
#include "histogram.h"

#include <assert.h>
#include <math.h>

static size_t bucket_of(uint64_t value)
{
    if (value < HISTOGRAM_EXACT)
        return (size_t)value;
    int exponent = 63 - __builtin_clzll(value);
    uint64_t part = (value >> (exponent - 7)) - HISTOGRAM_PARTS;
    return HISTOGRAM_EXACT + (size_t)(exponent - HISTOGRAM_EXACT_LOG) * HISTOGRAM_PARTS + (size_t)part;
}

static uint64_t middle_of(size_t bucket)
{
    if (bucket < HISTOGRAM_EXACT)
        return bucket;
    size_t above = bucket - HISTOGRAM_EXACT;
    unsigned shift = (unsigned)(above / HISTOGRAM_PARTS) + 1;
    uint64_t low = (uint64_t)(above % HISTOGRAM_PARTS + HISTOGRAM_PARTS) << shift;
    return low + ((uint64_t)1 << shift) / 2;
}

void histogram_add(struct histogram *h, uint64_t value)
{
    h->buckets[bucket_of(value)]++;
    h->count++;
    h->sum += (double)value;
    if (value > h->max)
        h->max = value;
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
    assert(q > 0 && q <= 1);
    if (h->count == 0)
        return 0;
    uint64_t rank = (uint64_t)ceil(q * (double)h->count);
    if (rank < 1)
        rank = 1;
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= rank) {
            uint64_t value = middle_of(i);
            return value < h->max ? value : h->max;
        }
    }
    return h->max;
}

double histogram_mean(const struct histogram *h)
{
    return h->count ? h->sum / (double)h->count : 0;
}
