/* SPDX-License-Identifier: MIT */
#include "gateway/upkeep.h"

#include "base/arena.h"
#include "core/deadline.h"
#include "gateway/compensate.h"
#include "gateway/gateway.h"
#include "gateway/query.h"
#include "gateway/settle.h"
#include "gateway/tell.h"
#include "store/archive.h"

#include <stdlib.h>

#define UPKEEP_STEP_MS         600000 /* how far ahead of the trusted clock is a step */
#define UPKEEP_DRIFT_PARTS     1000   /* a clock may gain one part in so many */
#define UPKEEP_TICK_MS         1000
#define COUNT_GAP_MS           5000   /* between two counts of the open tasks */
#define UPKEEP_ASKING_MAX      32     /* receipts asked at once */
#define UPKEEP_PURGE_GAP_MS    20     /* between two batches, so that calls go first */
#define UPKEEP_ARCHIVE_TELL_MS 600000 /* so often the log hears of an archive that fails */
#define UPKEEP_WAITING_MAX                                                                                   \
    65536 /* left-over calls remembered for asking; later ones are asked when their caller repeats */

struct upkeep {
    struct shard *shard;
    struct net_timer tick, purge;
    bool stopped, expiring, purging;
    int64_t trusted_ms; /* wall clock minus monotonic clock, as far as it drifts and does not step */
    int64_t trusted_at_ms;
    bool archive_fails; /* as the log was told, at archive_told_ms of the loop */
    int64_t archive_told_ms;
    bool stepped; /* the wall clock is ahead of what is trusted: nothing is purged */
    size_t asking;
    int64_t *waiting; /* row ids to be asked about */
    size_t waiting_count, waiting_capacity;
    struct compensator *compensator;
    struct teller *teller;
    struct net_timer count; /* of the open tasks */
    bool counting;
    struct task_page *page;
};

/* One left-over call that is being asked about. */
struct leftover {
    struct upkeep *upkeep;
    struct outlets *outlets;
    const struct lane *lane;
    struct job *end; /* a STORE_END that waits for what it is to say */
    struct arena arena;
};

static void ask_next(struct upkeep *u);

static void leftover_free(struct leftover *l)
{
    struct upkeep *u = l->upkeep;
    job_free(l->end);
    arena_fini(&l->arena);
    outlets_release(l->outlets);
    free(l);
    u->asking--;
    ask_next(u);
}

static void settled(struct job *job)
{
    struct leftover *l = job->owner;
    if (job->op.status == STATUS_OK)
        log_event(l->upkeep->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), job->op.row.call_id,
                  "settled_by_receipt", LOG_STRING("state", state_text(job->op.row.state)),
                  LOG_TEXT("key", job->op.row.key), LOG_STRING("route", l->lane->s->name),
                  LOG_TEXT("trace_id", job->op.row.trace_id));
    leftover_free(l);
}

static void answered(void *owner, const struct receipt_reading *reading)
{
    struct leftover *l = owner;
    bool success = reading->answer == RECEIPT_ANSWER_SUCCESS;
    if (!success && reading->answer != RECEIPT_ANSWER_FAILED_FINAL) {
        leftover_free(l); /* it stays UNKNOWN; its caller's repeat, or a round, goes on */
        return;
    }
    row_settle(&l->end->op.row, l->lane->s, reading, shard_store_now(l->upkeep->shard), &l->arena);
    l->end->op.from_states = 1u << STATE_UNKNOWN;
    l->end->op.drop_kept = true;
    job_submit(l->end);
}

static const struct lane *lane_of(const struct outlets *outlets, struct slice route)
{
    for (size_t i = 0; i < outlets->setup->settings->route_count; i++) {
        if (slice_is(route, outlets->setup->lanes[i].s->name))
            return &outlets->setup->lanes[i];
    }
    return NULL;
}

static void row_read(struct job *job)
{
    struct upkeep *u = job->owner;
    struct shard *shard = u->shard;
    const struct call_row *row = &job->op.rows.call;
    const struct lane *lane = row->id ? lane_of(shard->outlets, row->route) : NULL;
    struct leftover *l = NULL;
    bool askable = !u->stopped && job->op.status == STATUS_OK && lane && row->state == STATE_UNKNOWN &&
                   lane->s->receipt.kind != RECEIPT_NONE;
    if (askable)
        l = calloc(1, sizeof *l);
    if (!l) {
        job_free(job);
        u->asking--;
        ask_next(u);
        return;
    }
    l->upkeep = u;
    l->outlets = outlets_hold(shard->outlets);
    l->lane = lane;
    arena_init(&l->arena, 8u << 20);
    l->end = job_new(shard, STORE_END, l, settled);
    if (l->end)
        l->end->op.row = *row;
    if (!l->end || !row_keep(&l->end->op.row, &l->arena)) {
        job_free(job);
        leftover_free(l);
        return;
    }
    l->end->op.id = row->id;
    l->end->op.fence = row->fence;
    job_free(job);
    row = &l->end->op.row;
    struct query_ask ask = {
        .outlets = l->outlets,
        .lane = lane,
        .origin = 0,
        .call_id = row->call_id,
        .key = row->key,
        .tenant = row->tenant,
        .first_attempt_ms = row->first_attempt_ms ? row->first_attempt_ms : row->created_ms,
        .timeout_ms = lane->s->receipt_timeout_ms,
    };
    ask.has_trace = span_context_of_row(row, &ask.trace);
    struct query *query;
    if (query_start(&query, shard, &ask, answered, l) != STATUS_OK)
        leftover_free(l);
}

static void ask_next(struct upkeep *u)
{
    while (!u->stopped && u->waiting_count && u->asking < UPKEEP_ASKING_MAX) {
        struct job *job = job_new(u->shard, STORE_READ, u, row_read);
        if (!job)
            return;
        job->op.id = u->waiting[--u->waiting_count];
        u->asking++;
        job_submit(job);
    }
}

static void remember(struct upkeep *u, int64_t id)
{
    if (u->waiting_count == u->waiting_capacity) {
        size_t capacity = u->waiting_capacity ? u->waiting_capacity * 2 : 256;
        int64_t *more = capacity <= UPKEEP_WAITING_MAX ? realloc(u->waiting, capacity * sizeof *more) : NULL;
        if (!more)
            return;
        u->waiting = more;
        u->waiting_capacity = capacity;
    }
    u->waiting[u->waiting_count++] = id;
}

static void expired(struct job *job)
{
    struct upkeep *u = job->owner;
    struct shard *shard = u->shard;
    u->expiring = false;
    if (job->op.status == STATUS_OK) {
        for (size_t i = 0; i < job->op.count; i++)
            remember(u, job->op.expired[i]);
        if (job->op.count) {
            metrics_add(shard->counts, METRIC_leases_expired, 0, 0, (int64_t)job->op.count);
            log_event(shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), slice_of("", 0), "leases_expired",
                      LOG_NUMBER("calls", job->op.count));
        }
        ask_next(u);
    }
    job_free(job);
}

static void gauges(struct upkeep *u)
{
    struct shard *shard = u->shard;
    struct setup *setup = shard_setup(shard);
    int64_t now = net_loop_now(shard->loop);
    metrics_set(shard->metrics, METRIC_log_dropped, 0, 0, gateway_log_dropped(shard->gateway));
    metrics_set(shard->metrics, METRIC_trace_spans, 0, 0, (int64_t)tracer_delivered(shard->tracer));
    metrics_set(shard->metrics, METRIC_trace_dropped, 0, 0, (int64_t)tracer_dropped(shard->tracer));
    if (shard->archive) {
        struct archive_state archive;
        archive_state(shard->archive, &archive);
        metrics_set(shard->metrics, METRIC_archived, 0, 0, archive.lines);
        metrics_set(shard->metrics, METRIC_archive_errors, 0, 0, archive.failures);
    }
    metrics_set(shard->metrics, METRIC_store_queue, 0, 0, (int64_t)worker_queued(shard->worker));
    metrics_set(shard->metrics, METRIC_store_queue_limit, 0, 0, setup->settings->store_queue);
    for (size_t i = 0; i < setup->settings->route_count; i++) {
        struct admission_counts counts;
        admission_counts(setup->lanes[i].admission, now, &counts);
        metrics_set(shard->metrics, METRIC_calls_queued, i, 0, counts.waiting);
        metrics_set(shard->metrics, METRIC_breaker_open, i, 0, counts.breaker_open);
    }
}

/* Lives are judged by the store's clock, and one that steps forward would end them all at once. A step is what moves faster
 * against the monotonic clock than any drift: then purging rests until the clock is back or the process starts anew, since
 * keeping too long costs disk and forgetting too early costs a second effect. */
static void watch_clock(struct upkeep *u)
{
    int64_t now = clock_monotonic_ms(), offset = shard_store_now(u->shard) - now;
    int64_t drift = (now - u->trusted_at_ms) / UPKEEP_DRIFT_PARTS;
    bool stepped = offset > u->trusted_ms + drift + UPKEEP_STEP_MS;
    if (stepped != u->stepped) {
        u->stepped = stepped;
        log_event(u->shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), slice_of("", 0),
                  stepped ? "clock_stepped" : "clock_back", LOG_NUMBER("ahead_ms", offset - u->trusted_ms),
                  LOG_STRING("detail",
                             stepped ? "nothing is purged until the clock is back or the gateway is restarted"
                                     : "purging goes on"));
    }
    if (!stepped && offset <= u->trusted_ms + drift) {
        u->trusted_ms = offset;
        u->trusted_at_ms = now;
    }
}

static int64_t shortest_gap(const struct settings *settings)
{
    int64_t shortest = INT64_MAX;
    for (size_t i = 0; i < settings->route_count; i++)
        if (settings->routes[i]->round_gap_ms < shortest)
            shortest = settings->routes[i]->round_gap_ms;
    return shortest;
}

static void on_tick(struct net_timer *timer)
{
    struct upkeep *u = LIST_ENTRY(timer, struct upkeep, tick);
    struct shard *shard = u->shard;
    if (u->stopped)
        return;
    watch_clock(u);
    if (!u->expiring) {
        struct job *job = job_new(shard, STORE_EXPIRE, u, expired);
        if (job) {
            job->op.limit = STORE_IDS_MAX;
            job->op.row.owner = slice_text(shard->owner);
            /* Its receipt is asked at once, below; a round, which may fence or send, leaves its caller time to repeat. */
            job->op.task_due_ms =
                deadline_add(shard_store_now(shard), shortest_gap(shard_setup(shard)->settings));
            u->expiring = true;
            job_submit(job);
        }
    }
    gauges(u);
    net_timer_arm(shard->loop, &u->tick, net_loop_now(shard->loop) + UPKEEP_TICK_MS, on_tick);
}

static void on_count(struct net_timer *timer);

static void counted(struct job *job)
{
    struct upkeep *u = job->owner;
    struct metrics *metrics = u->shard->metrics;
    const struct task_page *page = u->page;
    u->counting = false;
    if (job->op.status == STATUS_OK) {
        int64_t oldest = page->oldest_unknown_ms ? job->op.rows.now_ms - page->oldest_unknown_ms : 0;
        metrics_set(metrics, METRIC_unknown_calls, 0, 0, page->unknown);
        metrics_set(metrics, METRIC_unknown_oldest, 0, 0, oldest > 0 ? oldest / 1000 : 0);
        for (size_t i = 0; i < TASK_STATUSES; i++)
            metrics_set(metrics, METRIC_tasks_open, 0, i, page->by_status[i]);
    }
    job_free(job);
    if (!u->stopped)
        net_timer_arm(u->shard->loop, &u->count, net_loop_now(u->shard->loop) + COUNT_GAP_MS, on_count);
}

static void on_count(struct net_timer *timer)
{
    struct upkeep *u = LIST_ENTRY(timer, struct upkeep, count);
    struct job *job = u->stopped || u->counting ? NULL : job_new(u->shard, STORE_TASK_COUNTS, u, counted);
    if (!job)
        return;
    job->op.page = u->page;
    u->counting = true;
    job_submit(job);
}

static void on_purge(struct net_timer *timer);

/* A line when the archive stops taking what is past its life, one in a while as long as it does, and one when it takes it
 * again. */
static void look_at_archive(struct upkeep *u)
{
    struct archive_state state;
    int64_t now = net_loop_now(u->shard->loop);
    if (!u->shard->archive)
        return;
    archive_state(u->shard->archive, &state);
    if (state.fails == u->archive_fails &&
        (!state.fails || now < u->archive_told_ms + UPKEEP_ARCHIVE_TELL_MS))
        return;
    u->archive_fails = state.fails;
    u->archive_told_ms = now;
    if (state.fails)
        log_event(u->shard->log, LOG_LEVEL_ERROR, clock_wall_ms(), slice_of("", 0), "archive_unavailable",
                  LOG_STRING("why", state.why),
                  LOG_STRING("detail", "answers past their result_life stay in the store until the archive "
                                       "takes them"));
    else
        log_event(u->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "archive_back",
                  LOG_STRING("detail", "writing again"));
}

static void purged(struct job *job)
{
    struct upkeep *u = job->owner;
    struct shard *shard = u->shard;
    bool more =
        job->op.status == STATUS_OK && job->op.count && (job->op.more || job->op.count >= job->op.limit);
    u->purging = false;
    look_at_archive(u);
    if (job->op.status == STATUS_OK && job->op.count)
        metrics_add(shard->counts, METRIC_purged, 0, 0, (int64_t)job->op.count);
    if (!u->stopped)
        net_timer_arm(shard->loop, &u->purge,
                      net_loop_now(shard->loop) +
                          (more ? UPKEEP_PURGE_GAP_MS : shard_setup(shard)->settings->purge_every_ms),
                      on_purge);
    job_free(job);
}

static void on_purge(struct net_timer *timer)
{
    struct upkeep *u = LIST_ENTRY(timer, struct upkeep, purge);
    if (u->stopped || u->purging)
        return;
    watch_clock(u);
    if (u->stepped) {
        net_timer_arm(u->shard->loop, &u->purge, net_loop_now(u->shard->loop) + UPKEEP_TICK_MS, on_purge);
        return;
    }
    struct job *job = job_new(u->shard, STORE_PURGE, u, purged);
    if (!job) {
        net_timer_arm(u->shard->loop, &u->purge, net_loop_now(u->shard->loop) + UPKEEP_TICK_MS, on_purge);
        return;
    }
    job->op.limit = (size_t)shard_setup(u->shard)->settings->purge_batch;
    u->purging = true;
    job_submit(job);
}

enum status upkeep_start(struct upkeep **out, struct shard *shard)
{
    struct upkeep *u = calloc(1, sizeof *u);
    if (!u)
        return STATUS_NO_MEMORY;
    u->shard = shard;
    u->trusted_at_ms = clock_monotonic_ms();
    u->trusted_ms = shard_store_now(shard) - u->trusted_at_ms;
    u->page = calloc(1, sizeof *u->page);
    if (!u->page || compensator_start(&u->compensator, shard) != STATUS_OK ||
        teller_start(&u->teller, shard) != STATUS_OK) {
        compensator_stop(u->compensator);
        upkeep_free(u);
        return STATUS_NO_MEMORY;
    }
    net_timer_arm(shard->loop, &u->count, net_loop_now(shard->loop), on_count);
    net_timer_arm(shard->loop, &u->tick, net_loop_now(shard->loop), on_tick);
    net_timer_arm(shard->loop, &u->purge,
                  net_loop_now(shard->loop) + shard_setup(shard)->settings->purge_every_ms, on_purge);
    *out = u;
    return STATUS_OK;
}

void upkeep_stop(struct upkeep *u)
{
    if (!u)
        return;
    u->stopped = true;
    net_timer_disarm(u->shard->loop, &u->tick);
    net_timer_disarm(u->shard->loop, &u->purge);
    net_timer_disarm(u->shard->loop, &u->count);
    compensator_stop(u->compensator);
    teller_stop(u->teller);
}

size_t upkeep_busy(const struct upkeep *u)
{
    return u ? u->asking + compensator_busy(u->compensator) + teller_busy(u->teller) : 0;
}

void upkeep_free(struct upkeep *u)
{
    if (!u)
        return;
    compensator_free(u->compensator);
    teller_free(u->teller);
    free(u->page);
    free(u->waiting);
    free(u);
}
