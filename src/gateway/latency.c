/* SPDX-License-Identifier: MIT */
#include "gateway/latency.h"

static const enum metric metric_of[LATENCY_COUNT] = {
    [LATENCY_REQUEST] = METRIC_request_seconds,
    [LATENCY_COMMIT] = METRIC_commit_seconds,
    [LATENCY_UPSTREAM] = METRIC_upstream_seconds,
};

void latency_keep(struct latency *l, const struct metrics *m)
{
    for (int i = 0; i < LATENCY_COUNT; i++)
        metrics_histogram(m, metric_of[i], &l->kept[l->next][i]);
    l->next = (l->next + 1) % LATENCY_SNAPSHOTS;
    if (l->count < LATENCY_SNAPSHOTS)
        l->count++;
}

static int64_t grown(const struct metrics_histogram *before, const struct metrics_histogram *after,
                     size_t bucket)
{
    return after->counts[bucket] - before->counts[bucket];
}

double latency_quantile(const struct metrics_histogram *before, const struct metrics_histogram *after,
                        double part)
{
    int64_t total = 0, below = 0;
    for (size_t i = 0; i <= after->bound_count; i++)
        total += grown(before, after, i);
    if (total <= 0)
        return 0;
    double rank = part * (double)total;
    for (size_t i = 0; i < after->bound_count; i++) {
        int64_t here = grown(before, after, i);
        if (here > 0 && (double)(below + here) >= rank) {
            double low = i ? after->bounds[i - 1] : 0;
            double within = (rank - (double)below) / (double)here;
            return low + (after->bounds[i] - low) * (within > 0 ? within : 0);
        }
        below += here;
    }
    return after->bound_count ? after->bounds[after->bound_count - 1] : 0;
}

void latency_read(const struct latency *l, const struct metrics *m, enum latency_of which,
                  struct percentiles *out)
{
    static const struct metrics_histogram nothing;
    struct metrics_histogram now;
    const struct metrics_histogram *before = &nothing;
    if (l->count)
        before = &l->kept[l->count < LATENCY_SNAPSHOTS ? 0 : l->next][which];
    metrics_histogram(m, metric_of[which], &now);
    out->count = 0;
    for (size_t i = 0; i <= now.bound_count; i++)
        out->count += grown(before, &now, i);
    out->p50 = latency_quantile(before, &now, 0.5);
    out->p95 = latency_quantile(before, &now, 0.95);
    out->p99 = latency_quantile(before, &now, 0.99);
}
