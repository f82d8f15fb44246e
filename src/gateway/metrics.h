/* SPDX-License-Identifier: MIT
 *
 * Metrics: counters, gauges and histograms of metrics.def, counted in each thread by itself and summed when somebody
 * asks. Prometheus text format 0.0.4.
 *
 * What is always true:
 * (1) Counting takes no lock and allocates nothing: a relaxed add on memory that the thread has for itself.
 * (2) Labels come from closed sets (outcomes, problems, receipt answers, states, configured routes); what a caller
 *     sends never becomes a label. So the number of series is known when the configuration is.
 */
#ifndef SAMEKEY_GATEWAY_METRICS_H
#define SAMEKEY_GATEWAY_METRICS_H

#include "base/buffer.h"
#include "base/status.h"
#include "core/settings.h"

#include <stddef.h>
#include <stdint.h>

enum metric {
#define COUNTER(field, name, labels, help)    METRIC_##field,
#define GAUGE(field, name, labels, help)      METRIC_##field,
#define HISTOGRAM(field, name, buckets, help) METRIC_##field,
#include "gateway/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    METRIC_COUNT
};

/* Where a receipt may be told from: the loop's memory of ended ones, Redis, and the moment's memory of running ones. */
enum cache_layer { CACHE_LAYER_MEMORY, CACHE_LAYER_REDIS, CACHE_LAYER_RUNNING, CACHE_LAYER_COUNT };

/* All threads' numbers; and one thread's. */
struct metrics;
struct metrics_loop;

/* Threads that count at most. */
#define METRICS_LOOPS_MAX 512

/* Routes at most: those at the start and as many again from reloads, 64 at least. What comes later is counted together
 * under METRICS_ROUTE_OTHER. */
#define METRICS_ROUTE_OTHER "(other)"

/* Makes metrics for the routes of `s`, whose names are copied: route i of the settings has the index i. STATUS_NO_MEMORY. */
enum status metrics_new(struct metrics **out, const struct settings *s);

/* Frees them with all loops' parts; no thread may count any more. NULL is accepted. */
void metrics_free(struct metrics *m);

/*
 * Makes one thread's part; it stays the metrics' own. Only that thread counts in it. STATUS_FULL:
 * METRICS_LOOPS_MAX. STATUS_NO_MEMORY. Any thread may call it.
 */
enum status metrics_loop_new(struct metrics *m, struct metrics_loop **out);

/*
 * Adds to a counter or a gauge (gauges take negative numbers too). `route` is what metrics_route() says, and
 * `label` the value of the closed set: enum outcome, enum problem, enum receipt_answer, enum call_state or enum cache_layer. Either is 0
 * for a metric without that label. A route or label out of range is counted under no series: nothing happens.
 * A NULL part counts nothing.
 */
void metrics_add(struct metrics_loop *p, enum metric metric, size_t route, size_t label, int64_t n);

/*
 * The index that counts a route of this name: the same after a reload that reordered the routes. A new name gets a new
 * index, or that of METRICS_ROUTE_OTHER when there is no room. Any thread.
 */
size_t metrics_route(struct metrics *m, struct slice name);

/* Puts one observation into a histogram, in seconds or counts. */
void metrics_observe(struct metrics_loop *p, enum metric metric, double value);

/* The sum over all threads; for tests and for gauges that decide. */
int64_t metrics_sum(const struct metrics *m, enum metric metric, size_t route, size_t label);

/* A histogram as it stands: observations by bucket, not added up; the last count is of those above the last bound. */
#define METRICS_BOUNDS_MAX 24
struct metrics_histogram {
    const double *bounds; /* upper ends, rising; for ever */
    size_t bound_count;
    int64_t counts[METRICS_BOUNDS_MAX + 1];
};
void metrics_histogram(const struct metrics *m, enum metric metric, struct metrics_histogram *out);

/*
 * Sets a gauge or counter that is known as a whole (from the store, from the log), instead of adding it up. It is kept
 * in a part of its own. Any thread.
 */
void metrics_set(struct metrics *m, enum metric metric, size_t route, size_t label, int64_t value);

/* Adds the whole text for GET /metrics; its type is METRICS_CONTENT_TYPE. Any thread. */
void metrics_write(const struct metrics *m, struct buffer *out);
#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Adds docs' table of metrics. */
void metrics_document(struct buffer *out);

#endif
