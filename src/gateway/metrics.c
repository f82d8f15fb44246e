/* SPDX-License-Identifier: MIT
 *
 * Each part is one array of numbers, the same layout for all: a metric's series stand together, and a histogram has
 * its buckets, then the sum of its values in its own small unit. Only the owner of a part writes to it, so an add is
 * a load and a store; the scrape reads beside it, relaxed, and may see one number of a moment later than another.
 */
#include "gateway/metrics.h"

#include "core/problem.h"
#include "core/task.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };
enum labels {
    LABELS_NONE,
    LABELS_ROUTE,
    LABELS_ROUTE_OUTCOME,
    LABELS_PROBLEM,
    LABELS_ANSWER,
    LABELS_STATE,
    LABELS_TASK,
    LABELS_LAYER,
};

#define ANSWER_COUNT (RECEIPT_ANSWER_UNKNOWN + 1)
#define STATE_COUNT  (STATE_UNKNOWN + 1)

/* Bounds of a histogram's buckets; values are summed in `unit` so that no precision is lost to a double. */
struct buckets {
    size_t count;
    double bounds[16];
    double unit;
};
static const struct buckets seconds = {
    14, {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}, 1e-6};
static const struct buckets fine_seconds = {
    13, {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5}, 1e-6};
static const struct buckets counts = {10, {1, 2, 4, 8, 16, 32, 64, 128, 256, 1024}, 1};
#define BUCKETS_SECONDS      &seconds
#define BUCKETS_FINE_SECONDS &fine_seconds
#define BUCKETS_COUNTS       &counts

static const struct row {
    const char *name;
    enum kind kind;
    enum labels labels;
    const struct buckets *buckets;
    const char *help;
} rows[METRIC_COUNT] = {
#define COUNTER(field, name, labels, help)  {name, KIND_COUNTER, LABELS_##labels, NULL, help},
#define GAUGE(field, name, labels, help)    {name, KIND_GAUGE, LABELS_##labels, NULL, help},
#define HISTOGRAM(field, name, which, help) {name, KIND_HISTOGRAM, LABELS_NONE, BUCKETS_##which, help},
#include "gateway/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

/* Routes that reloads may add, at least. */
#define SPARE_ROUTES 64

struct metrics_loop {
    const struct metrics *metrics;
    _Atomic(int64_t) slots[];
};

struct metrics {
    pthread_mutex_t lock; /* over the making of parts and of routes */
    size_t route_max;     /* the last one is METRICS_ROUTE_OTHER */
    _Atomic(size_t) route_count;
    char (*routes)[SETTINGS_ROUTE_NAME_MAX + 1];
    size_t first[METRIC_COUNT]; /* where a metric's numbers begin */
    size_t slot_count;
    _Atomic(size_t) part_count;
    struct metrics_loop *parts[METRICS_LOOPS_MAX];
    struct metrics_loop *whole; /* of metrics_set() */
};

static size_t label_count(enum labels labels)
{
    switch (labels) {
    case LABELS_ROUTE_OUTCOME:
        return OUTCOME_COUNT;
    case LABELS_PROBLEM:
        return PROBLEM_COUNT;
    case LABELS_ANSWER:
        return ANSWER_COUNT;
    case LABELS_STATE:
        return STATE_COUNT;
    case LABELS_TASK:
        return TASK_CLOSED + 1;
    case LABELS_LAYER:
        return CACHE_LAYER_COUNT;
    default:
        return 1;
    }
}

static bool by_route(enum labels labels)
{
    return labels == LABELS_ROUTE || labels == LABELS_ROUTE_OUTCOME;
}

static size_t slots_of(const struct metrics *m, const struct row *row)
{
    if (row->kind == KIND_HISTOGRAM)
        return row->buckets->count + 2;
    return label_count(row->labels) * (by_route(row->labels) ? m->route_max : 1);
}

static struct metrics_loop *part_new(const struct metrics *m)
{
    struct metrics_loop *p = calloc(1, sizeof(*p) + m->slot_count * sizeof(p->slots[0]));
    if (p)
        p->metrics = m;
    return p;
}

enum status metrics_new(struct metrics **out, const struct settings *s)
{
    struct metrics *m = calloc(1, sizeof(*m));
    if (!m)
        return STATUS_NO_MEMORY;
    pthread_mutex_init(&m->lock, NULL);
    m->route_max = s->route_count + (s->route_count > SPARE_ROUTES ? s->route_count : SPARE_ROUTES) + 1;
    m->routes = calloc(m->route_max, sizeof(m->routes[0]));
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        m->first[i] = m->slot_count;
        m->slot_count += slots_of(m, &rows[i]);
    }
    m->whole = part_new(m);
    if (!m->routes || !m->whole) {
        metrics_free(m);
        return STATUS_NO_MEMORY;
    }
    memcpy(m->routes[m->route_max - 1], METRICS_ROUTE_OTHER, sizeof(METRICS_ROUTE_OTHER));
    for (size_t i = 0; i < s->route_count; i++)
        (void)metrics_route(m, slice_text(s->routes[i]->name));
    *out = m;
    return STATUS_OK;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->part_count; i++)
        free(m->parts[i]);
    free(m->whole);
    free(m->routes);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

size_t metrics_route(struct metrics *m, struct slice name)
{
    size_t found = m->route_max - 1;
    pthread_mutex_lock(&m->lock);
    size_t count = atomic_load(&m->route_count), i = 0;
    while (i < count && !slice_is(name, m->routes[i]))
        i++;
    if (i < count) {
        found = i;
    } else if (count + 1 < m->route_max && name.len <= SETTINGS_ROUTE_NAME_MAX) {
        assert(m->routes[count]);
        memcpy(m->routes[count], name.data, name.len);
        found = count;
        atomic_store(&m->route_count, count + 1);
    }
    pthread_mutex_unlock(&m->lock);
    return found;
}

enum status metrics_loop_new(struct metrics *m, struct metrics_loop **out)
{
    enum status status = STATUS_OK;
    pthread_mutex_lock(&m->lock);
    size_t n = atomic_load(&m->part_count);
    struct metrics_loop *p = n < METRICS_LOOPS_MAX ? part_new(m) : NULL;
    if (p) {
        m->parts[n] = p;
        atomic_store(&m->part_count, n + 1);
        *out = p;
    } else {
        status = n < METRICS_LOOPS_MAX ? STATUS_NO_MEMORY : STATUS_FULL;
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

/* Where a series is; false when route or label is out of range. */
static bool find_slot(const struct metrics *m, enum metric metric, size_t route, size_t label, size_t *slot)
{
    const struct row *row = &rows[metric];
    size_t labels = label_count(row->labels);
    assert(row->kind != KIND_HISTOGRAM);
    if (!by_route(row->labels))
        route = 0;
    if (route >= m->route_max || label >= labels)
        return false;
    *slot = m->first[metric] + route * labels + label;
    return true;
}

static void add(_Atomic(int64_t) *slot, int64_t n)
{
    int64_t now = atomic_load_explicit(slot, memory_order_relaxed);
    atomic_store_explicit(slot, now + n, memory_order_relaxed);
}

void metrics_add(struct metrics_loop *p, enum metric metric, size_t route, size_t label, int64_t n)
{
    size_t slot;
    if (p && find_slot(p->metrics, metric, route, label, &slot))
        add(&p->slots[slot], n);
}

void metrics_observe(struct metrics_loop *p, enum metric metric, double value)
{
    if (!p || !(value >= 0))
        return;
    const struct row *row = &rows[metric];
    assert(row->kind == KIND_HISTOGRAM);
    size_t i = 0, first = p->metrics->first[metric];
    while (i < row->buckets->count && value > row->buckets->bounds[i])
        i++;
    add(&p->slots[first + i], 1);
    add(&p->slots[first + row->buckets->count + 1], (int64_t)(value / row->buckets->unit + 0.5));
}

static int64_t sum_slot(const struct metrics *m, size_t slot)
{
    int64_t sum = atomic_load_explicit(&m->whole->slots[slot], memory_order_relaxed);
    size_t n = atomic_load(&m->part_count);
    for (size_t i = 0; i < n; i++)
        sum += atomic_load_explicit(&m->parts[i]->slots[slot], memory_order_relaxed);
    return sum;
}

int64_t metrics_sum(const struct metrics *m, enum metric metric, size_t route, size_t label)
{
    size_t slot;
    return find_slot(m, metric, route, label, &slot) ? sum_slot(m, slot) : 0;
}

void metrics_histogram(const struct metrics *m, enum metric metric, struct metrics_histogram *out)
{
    const struct row *row = &rows[metric];
    assert(row->kind == KIND_HISTOGRAM && row->buckets->count <= METRICS_BOUNDS_MAX);
    out->bounds = row->buckets->bounds;
    out->bound_count = row->buckets->count;
    for (size_t i = 0; i <= row->buckets->count; i++)
        out->counts[i] = sum_slot(m, m->first[metric] + i);
}

void metrics_set(struct metrics *m, enum metric metric, size_t route, size_t label, int64_t value)
{
    size_t slot;
    if (find_slot(m, metric, route, label, &slot))
        atomic_store_explicit(&m->whole->slots[slot], value, memory_order_relaxed);
}

static const char *const layer_texts[CACHE_LAYER_COUNT] = {"memory", "redis", "running"};

static const char *label_text(enum labels labels, size_t label)
{
    switch (labels) {
    case LABELS_ROUTE_OUTCOME:
        return outcome_json((enum outcome)label);
    case LABELS_PROBLEM:
        return problem_slug((enum problem)label);
    case LABELS_ANSWER:
        return receipt_answer_text((enum receipt_answer)label);
    case LABELS_STATE:
        return state_text((enum call_state)label);
    case LABELS_TASK:
        return task_status_text((enum task_status)label);
    case LABELS_LAYER:
        return layer_texts[label];
    default:
        return "";
    }
}

/* Besides the route, of each of enum labels. */
static const char *const label_names[] = {
    [LABELS_NONE] = "",           [LABELS_ROUTE] = "",        [LABELS_ROUTE_OUTCOME] = "outcome",
    [LABELS_PROBLEM] = "problem", [LABELS_ANSWER] = "answer", [LABELS_STATE] = "state",
    [LABELS_TASK] = "status",     [LABELS_LAYER] = "layer"};

/* The first values of two sets mean "none": no request ends so. */
static size_t first_label(enum labels labels)
{
    return labels == LABELS_ROUTE_OUTCOME || labels == LABELS_PROBLEM ? 1 : 0;
}

static void write_series(const struct metrics *m, struct buffer *out, enum metric metric, size_t route)
{
    const struct row *row = &rows[metric];
    size_t labels = label_count(row->labels);
    for (size_t label = first_label(row->labels); label < labels; label++) {
        buffer_text(out, row->name);
        if (row->labels != LABELS_NONE) {
            buffer_byte(out, '{');
            if (by_route(row->labels))
                buffer_format(out, "route=\"%s\"", m->routes[route]);
            if (label_names[row->labels][0])
                buffer_format(out, "%s%s=\"%s\"", by_route(row->labels) ? "," : "", label_names[row->labels],
                              label_text(row->labels, label));
            buffer_byte(out, '}');
        }
        buffer_byte(out, ' ');
        buffer_number(out, metrics_sum(m, metric, route, label));
        buffer_byte(out, '\n');
    }
}

static void write_histogram(const struct metrics *m, struct buffer *out, enum metric metric)
{
    const struct row *row = &rows[metric];
    int64_t total = 0;
    for (size_t i = 0; i <= row->buckets->count; i++) {
        total += sum_slot(m, m->first[metric] + i);
        if (i < row->buckets->count)
            buffer_format(out, "%s_bucket{le=\"%g\"} ", row->name, row->buckets->bounds[i]);
        else
            buffer_format(out, "%s_bucket{le=\"+Inf\"} ", row->name);
        buffer_number(out, total);
        buffer_byte(out, '\n');
    }
    double sum = (double)sum_slot(m, m->first[metric] + row->buckets->count + 1) * row->buckets->unit;
    buffer_format(out, "%s_sum %.9g\n%s_count %lld\n", row->name, sum, row->name, (long long)total);
}

void metrics_write(const struct metrics *m, struct buffer *out)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    size_t routes = atomic_load(&m->route_count);
    for (int i = 0; i < METRIC_COUNT; i++) {
        const struct row *row = &rows[i];
        buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, kinds[row->kind]);
        if (row->kind == KIND_HISTOGRAM) {
            write_histogram(m, out, (enum metric)i);
        } else if (!by_route(row->labels)) {
            write_series(m, out, (enum metric)i, 0);
        } else {
            for (size_t route = 0; route < routes; route++)
                write_series(m, out, (enum metric)i, route);
            write_series(m, out, (enum metric)i, m->route_max - 1);
        }
    }
}

void metrics_document(struct buffer *out)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buffer_text(out, "| metric | type | labels | |\n|---|---|---|---|\n");
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const char *label = label_names[rows[i].labels];
        buffer_format(out, "| `%s` | %s | ", rows[i].name, kinds[rows[i].kind]);
        if (by_route(rows[i].labels))
            buffer_text(out, label[0] ? "`route`, " : "`route`");
        if (label[0])
            buffer_format(out, "`%s`", label);
        buffer_format(out, " | %s |\n", rows[i].help);
    }
}
