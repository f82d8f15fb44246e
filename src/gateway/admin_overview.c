/* SPDX-License-Identifier: MIT
 *
 * GET /v1/overview: what the live page shows, out of the metrics; the store is asked only how many tasks are open.
 */
#include "gateway/admin_parts.h"
#include "gateway/gateway.h"

static int64_t over_routes(const struct metrics *m, const struct setup *setup, enum metric metric,
                           size_t label)
{
    int64_t sum = 0;
    for (size_t i = 0; i < setup->settings->route_count; i++)
        sum += metrics_sum(m, metric, setup->lanes[i].series, label);
    return sum;
}

/* `route`: its series; SIZE_MAX: all routes. */
static void outcomes(struct buffer *out, const struct metrics *m, const struct setup *setup, size_t route)
{
    member_begin(out, "outcomes", '{');
    for (int i = OUTCOME_NONE + 1; i < OUTCOME_COUNT; i++)
        member_number(out, outcome_json((enum outcome)i),
                      route == SIZE_MAX ? over_routes(m, setup, METRIC_calls, (size_t)i)
                                        : metrics_sum(m, METRIC_calls, route, (size_t)i));
    buffer_byte(out, '}');
}

static void totals(struct buffer *out, const struct metrics *m, const struct setup *setup)
{
    static const struct {
        const char *name;
        enum metric metric;
    } rows[] = {
        {"requests", METRIC_requests},         {"passed", METRIC_passed},
        {"replays", METRIC_replays},           {"joins", METRIC_joins},
        {"retries", METRIC_retries},           {"retries_denied", METRIC_retries_denied},
        {"swapped_keys", METRIC_swapped_keys},
    };
    int64_t attempts = 0, refusals = 0;
    for (size_t i = 0; i < OUTCOME_COUNT; i++)
        attempts += over_routes(m, setup, METRIC_attempts, i);
    for (size_t i = PROBLEM_NONE + 1; i < PROBLEM_COUNT; i++)
        refusals += metrics_sum(m, METRIC_refusals, 0, i);
    member_begin(out, "totals", '{');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        member_number(out, rows[i].name, over_routes(m, setup, rows[i].metric, 0));
    member_number(out, "attempts", attempts);
    member_number(out, "refusals", refusals);
    member_number(out, "store_errors", metrics_sum(m, METRIC_store_errors, 0, 0));
    outcomes(out, m, setup, SIZE_MAX);
    buffer_byte(out, '}');
}

static void now_members(struct buffer *out, struct inquiry *q)
{
    const struct shard *shard = q->admin->shard;
    const struct metrics *m = shard->metrics;
    const struct setup *setup = q->outlets->setup;
    struct store_stats stats = {0};
    gateway_store_stats(shard->gateway, &stats);
    int64_t oldest_s = metrics_sum(m, METRIC_unknown_oldest, 0, 0),
            unknown = metrics_sum(m, METRIC_unknown_calls, 0, 0);
    member_begin(out, "now", '{');
    member_number(out, "unknown_calls", unknown);
    if (unknown)
        member_number(out, "oldest_unknown_s", oldest_s);
    else
        member_text(out, "oldest_unknown_s", slice_of("", 0));
    member_number(out, "calls_running", over_routes(m, setup, METRIC_calls_running, 0));
    member_number(out, "calls_queued", over_routes(m, setup, METRIC_calls_queued, 0));
    member_number(out, "store_queue", (int64_t)worker_queued(shard->worker));
    member_number(out, "connections", metrics_sum(m, METRIC_connections, 0, 0));
    member_number(out, "calls_stored", stats.rows);
    member_number(out, "bytes_on_disk", stats.bytes_on_disk);
    buffer_byte(out, '}');
}

static void tasks(struct buffer *out, const struct task_page *page)
{
    member_begin(out, "tasks", '{');
    for (int i = 0; i < TASK_STATUSES; i++) {
        if ((TASK_OPEN_MASK >> i & 1) && page)
            member_number(out, task_status_text((enum task_status)i), page->by_status[i]);
        else if (TASK_OPEN_MASK >> i & 1)
            member_text(out, task_status_text((enum task_status)i), slice_of("", 0));
    }
    buffer_byte(out, '}');
}

static void routes(struct buffer *out, struct inquiry *q)
{
    const struct metrics *m = q->admin->shard->metrics;
    const struct setup *setup = q->outlets->setup;
    int64_t now = net_loop_now(q->admin->shard->loop);
    member_begin(out, "routes", '[');
    for (size_t i = 0; i < setup->settings->route_count; i++) {
        const struct lane *lane = &setup->lanes[i];
        struct admission_counts counts;
        admission_counts(lane->admission, now, &counts);
        buffer_text(out, i ? ",{" : "{");
        member_text(out, "route", slice_text(lane->s->name));
        member_number(out, "requests", metrics_sum(m, METRIC_requests, lane->series, 0));
        member_number(out, "replays", metrics_sum(m, METRIC_replays, lane->series, 0));
        member_number(out, "swapped_keys", metrics_sum(m, METRIC_swapped_keys, lane->series, 0));
        member_number(out, "running", counts.at_work);
        member_number(out, "queued", counts.waiting);
        outcomes(out, m, setup, lane->series);
        member_text(out, "breaker",
                    slice_text(!counts.breakers_open                        ? "closed"
                               : counts.breakers_open == lane->origin_count ? "open"
                                                                            : "partly"));
        member_number(out, "upstreams", (int64_t)lane->origin_count);
        member_number(out, "breakers_open", (int64_t)counts.breakers_open);
        buffer_byte(out, '}');
    }
    buffer_byte(out, ']');
}

static void refusals(struct buffer *out, const struct metrics *m)
{
    member_begin(out, "refusals", '{');
    for (size_t i = PROBLEM_NONE + 1; i < PROBLEM_COUNT; i++) {
        int64_t n = metrics_sum(m, METRIC_refusals, 0, i);
        if (n)
            member_number(out, problem_slug((enum problem)i), n);
    }
    buffer_byte(out, '}');
}

static void member_seconds(struct buffer *out, const char *name, bool known, double seconds)
{
    if (known)
        buffer_format(out, ",\"%s\":%.6g", name, seconds);
    else
        member_text(out, name, slice_of("", 0));
}

static void latencies(struct buffer *out, const struct admin *admin)
{
    static const char *const names[LATENCY_COUNT] = {
        [LATENCY_REQUEST] = "request", [LATENCY_COMMIT] = "commit", [LATENCY_UPSTREAM] = "upstream"};
    member_begin(out, "latency", '{');
    member_number(out, "window_s", LATENCY_WINDOW_MS / 1000);
    for (int i = 0; i < LATENCY_COUNT; i++) {
        struct percentiles p;
        latency_read(&admin->latency, admin->shard->metrics, (enum latency_of)i, &p);
        member_begin(out, names[i], '{');
        member_number(out, "count", p.count);
        member_seconds(out, "p50_s", p.count > 0, p.p50);
        member_seconds(out, "p95_s", p.count > 0, p.p95);
        member_seconds(out, "p99_s", p.count > 0, p.p99);
        buffer_byte(out, '}');
    }
    buffer_byte(out, '}');
}

static void answer(struct inquiry *q, const struct task_page *page)
{
    const struct admin *admin = q->admin;
    const struct metrics *m = admin->shard->metrics;
    const char *slash = strchr(admin->shard->owner, '/');
    struct buffer out = {0};
    buffer_byte(&out, '{');
    member_time(&out, "at", clock_wall_ms());
    member_time(&out, "started_at", admin->started_ms);
    member_text(&out, "version", slice_text(SAMEKEY_VERSION));
    member_text(&out, "node",
                slice_of(admin->shard->owner, slash ? (size_t)(slash - admin->shard->owner) : 0));
    member_bool(&out, "ready", gateway_ready(admin->shard->gateway));
    totals(&out, m, q->outlets->setup);
    now_members(&out, q);
    tasks(&out, page);
    routes(&out, q);
    refusals(&out, m);
    latencies(&out, admin);
    buffer_text(&out, "}\n");
    inquiry_answer(q, 200, &out);
    buffer_fini(&out);
}

/* A store that cannot be read is no reason to show nothing: the counts are null then. */
static void counted(struct job *job)
{
    struct inquiry *q = job->owner;
    if (q->request)
        answer(q, job->op.status == STATUS_OK ? q->state : NULL);
    inquiry_done(job);
}

void admin_overview(struct inquiry *q)
{
    struct task_page *page;
    if (!inquiry_params(q, NULL, 0) || !(page = inquiry_state(q, sizeof *page)))
        return;
    struct job *job = inquiry_job(q, STORE_TASK_COUNTS, counted);
    if (!job)
        return;
    job->op.page = page;
    job_submit(job);
}
