/* SPDX-License-Identifier: MIT
 *
 * Percentiles of the last minute, read off histograms that only ever rise: a few snapshots are kept, and the oldest of
 * them is taken from what stands now. One thread's own.
 */
#ifndef SAMEKEY_GATEWAY_LATENCY_H
#define SAMEKEY_GATEWAY_LATENCY_H

#include "gateway/metrics.h"

#define LATENCY_STEP_MS   10000
#define LATENCY_SNAPSHOTS 7 /* the newest six steps, so a window is 50 to 60 seconds */
#define LATENCY_WINDOW_MS ((LATENCY_SNAPSHOTS - 1) * LATENCY_STEP_MS)

enum latency_of { LATENCY_REQUEST, LATENCY_COMMIT, LATENCY_UPSTREAM, LATENCY_COUNT };

struct latency { /* starts as zero bytes */
    struct metrics_histogram kept[LATENCY_SNAPSHOTS][LATENCY_COUNT];
    size_t count, next; /* snapshots kept; where the next goes */
};

/* Keeps what stands now: to be called every LATENCY_STEP_MS. */
void latency_keep(struct latency *l, const struct metrics *m);

struct percentiles {
    int64_t count;        /* observations of the window */
    double p50, p95, p99; /* seconds; of no use when count is 0 */
};
/* What came since the oldest snapshot, or since the start where there is none. */
void latency_read(const struct latency *l, const struct metrics *m, enum latency_of which,
                  struct percentiles *out);

/* The value under which `part` (0 to 1) of the observations between two readings lie, interpolated inside its bucket; what
 * lies above the last bound is said to be that bound. 0 when there are none. */
double latency_quantile(const struct metrics_histogram *before, const struct metrics_histogram *after,
                        double part);

#endif
