/* SPDX-License-Identifier: MIT
 *
 * One lock guards the queues and the watches; it is held for moving list links and nothing else. A writer takes
 * up to batch_max operations at a time, runs them without the lock, and answers in their order.
 *
 * A store that takes several batches at once (store_writers()) gets as many lanes, each a queue with a writer: operations
 * of one row, or of one callId or key, always go through the same lane, so their order stays. What is not a call's (leases,
 * purging, tasks) has a lane to itself, since it may take its time.
 *
 *  a watch:  QUEUED -> STANDING -> LEAVING (answered)
 *               |         |           ^
 *               '---------'-----------'   worker_cancel() moves it, and the writer answers STATUS_NOT_FOUND
 *
 * A watch is QUEUED with the writes, so that it sees what was submitted before it. When its turn comes, after the
 * batch in front of it, the writer reads the row once: ended, then it is answered; running, then it stands. If others
 * stand on the row already it is known to run, and a storm of watches on one call costs no reads. On a store that other
 * processes write too, a row may end without anybody here knowing: then all rows that are watched are asked about together,
 * every WATCH_POLL_MS.
 */
#include "store/worker.h"

#include "store/driver.h"
#include "store/readers.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "store/watch.h"

/* So long nothing must have come before the store does its own work. Between two batches of a busy store the queue is
 * empty all the time, and a checkpoint then costs the next batch two syncs. */
#define IDLE_MS 20

#define LANES_MAX      8
#define WATCH_POLL_MS  100
#define WATCH_POLL_IDS 256 /* asked about in one go */

enum stage { STAGE_NONE, STAGE_QUEUED, STAGE_STANDING, STAGE_LEAVING };

struct batch {
    struct store_op **ops; /* room for batch_max */
    size_t count;
    int64_t began; /* monotonic microseconds */
    bool ended;    /* answered by the store */
};

/* A queue of writes with its writer. */
struct lane {
    struct worker *worker;
    pthread_cond_t wake;
    struct list writes;    /* waiting operations; under the worker's lock, as what follows */
    struct list cancelled; /* watches to be answered STATUS_NOT_FOUND */
    bool sleeps;

    struct batch batches[2];
    struct batch *begun;     /* committed, not durable yet: beside it the next one runs */
    struct store_op scratch; /* reads a row that watches wait for */
    pthread_t thread;
    bool started;
};

/* Asks about the rows that are watched, where others write them too. */
struct poller {
    struct store_reader *reader;
    pthread_cond_t wake;
    struct store_op scratch;
    pthread_t thread;
    bool started;
};

struct worker {
    struct store *store;
    struct worker_settings settings;
    pthread_mutex_t lock;

    /* Under the lock. */
    struct watches watches;
    size_t watches_count; /* queued, standing and cancelled */
    bool stopping;
    unsigned writing; /* writers that have not ended */

    atomic_size_t queued; /* operations waiting or running, watches apart */
    struct lane lanes[LANES_MAX];
    unsigned lanes_count;
    pthread_mutex_t told; /* on_batch is called by one thread at a time */
    struct readers *readers;
    struct poller poller;
};

/* The lane of an operation: by what it is about. */
static struct lane *lane_of(struct worker *w, const struct store_op *op)
{
    unsigned calls = w->lanes_count > 1 ? w->lanes_count - 1 : 1;
    const struct digest *digest = op->row.has_key ? &op->row.operation_digest : &op->row.call_digest;
    switch (op->kind) {
    case STORE_ATTEMPT:
    case STORE_RENEW:
    case STORE_END:
    case STORE_WATCH:
        return &w->lanes[(uint64_t)op->id % calls];
    case STORE_CLAIM:
    case STORE_TAKE:
    case STORE_ATTACH:
    case STORE_FENCE:
        return &w->lanes[digest->bytes[15] % calls];
    default:
        return &w->lanes[w->lanes_count - 1];
    }
}

static int64_t micros_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void tell_answers(const struct worker *w)
{
    if (w->settings.on_answers)
        w->settings.on_answers(w->settings.context);
}

static void give_back(struct worker *w, struct store_op *op)
{
    atomic_fetch_sub_explicit(&w->queued, 1, memory_order_relaxed);
    op->answered(op);
}

static void give_back_watches(struct worker *w, struct list *leaving)
{
    struct list *l;
    size_t count = 0;
    for (l = leaving->next; l != leaving; l = l->next)
        count++;
    if (!count)
        return;
    pthread_mutex_lock(&w->lock);
    w->watches_count -= count;
    pthread_mutex_unlock(&w->lock);
    while ((l = list_pop_front(leaving)) != NULL) {
        struct store_op *op = LIST_ENTRY(l, struct store_op, link);
        op->answered(op);
    }
    tell_answers(w);
}

static void run_read(struct worker *w, struct store_op *op, int64_t id)
{
    enum store_kind kind = op->kind;
    op->kind = STORE_READ;
    op->id = id;
    store_batch(w->store, &op, 1);
    op->kind = kind;
}

static void mark_leaving(const struct list *leaving)
{
    for (const struct list *l = leaving->next; l != leaving; l = l->next)
        LIST_ENTRY(l, struct store_op, link)->stage = STAGE_LEAVING;
}

/* Makes the batch that has begun durable; its operations have their answers and are not given back. */
static void end_begun(struct lane *lane)
{
    if (!lane->begun || lane->begun->ended)
        return;
    store_batch_end(lane->worker->store);
    lane->begun->ended = true;
}

/* Answers the watches of a row that has ended. `ending` carries a result that was not stored, or is NULL; `reader` reads
 * the row, or with NULL the store as a writer. */
static void wake(struct worker *w, struct store_op *scratch, struct store_reader *reader, int64_t id,
                 const struct store_op *ending)
{
    struct list leaving;
    list_init(&leaving);
    pthread_mutex_lock(&w->lock);
    bool any = watches_any(&w->watches, id);
    pthread_mutex_unlock(&w->lock);
    if (!any)
        return;
    scratch->id = id;
    if (reader)
        store_reader_run(reader, scratch);
    else
        run_read(w, scratch, id);
    if (reader && scratch->status != STATUS_OK)
        return; /* it is asked about again */
    if (scratch->status == STATUS_OK && scratch->rows.call.id && state_running(scratch->rows.call.state))
        return;
    struct rows rows = scratch->rows;
    if (ending && ending->answer_only && rows.call.id) {
        rows.call.has_result = rows.call.body_kept = true;
        rows.call.result_status = ending->row.result_status;
        rows.call.result_headers = ending->row.result_headers;
        rows.call.result_body = ending->row.result_body;
    }
    pthread_mutex_lock(&w->lock);
    watches_take(&w->watches, id, &leaving);
    mark_leaving(&leaving);
    pthread_mutex_unlock(&w->lock);
    for (struct list *l = leaving.next; l != &leaving; l = l->next) {
        struct store_op *op = LIST_ENTRY(l, struct store_op, link);
        store_op_reset(op);
        op->status = scratch->status;
        rows_copy(&op->rows, &op->memory, &rows);
        if (op->memory.failed) {
            store_op_reset(op);
            op->status = STATUS_NO_MEMORY;
        }
        op->done = op->status == STATUS_OK;
    }
    give_back_watches(w, &leaving);
}

/* A watch whose turn has come. */
static void begin_watch(struct worker *w, struct store_op *op)
{
    struct list leaving;
    bool stand;
    list_init(&leaving);
    pthread_mutex_lock(&w->lock);
    if (op->stage == STAGE_LEAVING) { /* cancelled meanwhile; it hangs in `cancelled` */
        pthread_mutex_unlock(&w->lock);
        return;
    }
    stand = watches_any(&w->watches, op->id);
    if (!stand)
        op->stage = STAGE_LEAVING; /* for the time of the read it is the writer's */
    else
        op->stage = STAGE_STANDING, watches_add(&w->watches, op);
    pthread_mutex_unlock(&w->lock);
    if (stand)
        return;
    run_read(w, op, op->id);
    op->done = op->status == STATUS_OK && op->rows.call.id && !state_running(op->rows.call.state);
    if (op->status == STATUS_OK && !op->rows.call.id)
        op->status = STATUS_NOT_FOUND;
    pthread_mutex_lock(&w->lock);
    if (op->status == STATUS_OK && !op->done && !op->cancelled) {
        op->stage = STAGE_STANDING;
        watches_add(&w->watches, op);
        stand = true;
    }
    pthread_mutex_unlock(&w->lock);
    if (stand)
        return;
    if (op->status == STATUS_OK && !op->done) {
        store_op_reset(op);
        op->status = STATUS_NOT_FOUND;
    }
    list_push_back(&leaving, &op->link);
    give_back_watches(w, &leaving);
}

static void answer_cancelled(struct worker *w, struct list *cancelled)
{
    for (struct list *l = cancelled->next; l != cancelled; l = l->next) {
        struct store_op *op = LIST_ENTRY(l, struct store_op, link);
        store_op_reset(op);
        op->status = STATUS_NOT_FOUND;
    }
    give_back_watches(w, cancelled);
}

static void move_all(struct list *to, struct list *from)
{
    struct list *l;
    while ((l = list_pop_front(from)) != NULL)
        list_push_back(to, l);
}

/* Answers the watches of a row that a batch has ended. */
static void wake_watches(struct lane *lane, int64_t id, const struct store_op *ending)
{
    struct worker *w = lane->worker;
    pthread_mutex_lock(&w->lock);
    bool any = watches_any(&w->watches, id);
    pthread_mutex_unlock(&w->lock);
    if (!any)
        return;
    end_begun(lane); /* the row may be in that batch too, and watchers hear only of what is durable */
    wake(w, &lane->scratch, NULL, id, ending);
}

/* Gives back a batch that the store has answered. */
static void give_back_batch(struct lane *lane, struct batch *b)
{
    struct worker *w = lane->worker;
    int64_t micros = micros_now() - b->began;
    enum status worst = STATUS_OK;
    size_t count = b->count;
    for (size_t i = 0; i < count; i++) {
        struct store_op *op = b->ops[i];
        if (op->status == STATUS_IO || op->status == STATUS_UNKNOWN || op->status == STATUS_NO_MEMORY)
            worst = op->status;
        if (!op->done)
            continue;
        if (op->kind == STORE_END)
            wake_watches(lane, op->id, op);
        else if (op->kind == STORE_FENCE || op->kind == STORE_TASK_ROUND || op->kind == STORE_TASK_RESOLVE)
            wake_watches(lane, op->rows.call.id, NULL);
        else if (op->kind == STORE_EXPIRE)
            for (size_t j = 0; j < op->count; j++)
                wake_watches(lane, op->expired[j], NULL);
    }
    /* Only now: until here their slices may be copied to watchers. */
    for (size_t i = 0; i < count; i++)
        give_back(w, b->ops[i]);
    tell_answers(w);
    if (w->settings.on_batch) {
        pthread_mutex_lock(&w->told);
        w->settings.on_batch(w->settings.context, count, micros, worst);
        pthread_mutex_unlock(&w->told);
    }
}

/* Ends the batch that has begun, if there is one, and gives it back. */
static void finish_begun(struct lane *lane)
{
    struct batch *b = lane->begun;
    if (!b)
        return;
    end_begun(lane);
    lane->begun = NULL;
    give_back_batch(lane, b);
}

/* Whether a whole batch waits. For less, a batch beside a sync is not worth its cost: batches become more and smaller, and
 * threads wake each other more often (two cores, one sync 0.1 ms: 5 to 20 % fewer calls at 16 and 64 connections). */
static bool batch_waits(struct lane *lane)
{
    size_t count = 0, enough = lane->worker->settings.batch_max;
    pthread_mutex_lock(&lane->worker->lock);
    for (const struct list *l = lane->writes.next; l != &lane->writes && count < enough; l = l->next)
        count++;
    pthread_mutex_unlock(&lane->worker->lock);
    return count == enough;
}

/* Runs a batch while the one before it is synced. Where less than a batch waits, its own sync is done at once, here. */
static void run_batch(struct lane *lane, struct batch *b)
{
    struct store *store = lane->worker->store;
    struct batch *before = lane->begun;
    b->began = micros_now();
    b->ended = false;
    enum batch_begun begun = store_batch_begin(store, b->ops, b->count);
    if (before) {
        end_begun(lane);
        lane->begun = begun == BATCH_BEGUN ? b : NULL;
        if (lane->begun && batch_waits(lane))
            store_batch_sync(store); /* it is the oldest now */
        give_back_batch(lane, before);
    }
    if (begun == BATCH_AGAIN) {
        store_batch(store, b->ops, b->count);
        give_back_batch(lane, b);
        return;
    }
    lane->begun = b;
    if (b->ended || !batch_waits(lane))
        finish_begun(lane);
    else
        store_batch_sync(store);
}

/* Takes the operations up to the first watch, or batch_max; or that watch alone. Under the lock. */
static struct batch *take_batch(struct lane *lane, struct store_op **watch)
{
    struct batch *b = &lane->batches[lane->begun == &lane->batches[0]];
    size_t count = 0;
    *watch = NULL;
    while (count < lane->worker->settings.batch_max && !list_empty(&lane->writes)) {
        struct store_op *op = LIST_ENTRY(lane->writes.next, struct store_op, link);
        if (op->kind == STORE_WATCH) {
            if (count == 0) {
                list_remove(&op->link);
                *watch = op;
            }
            break;
        }
        list_remove(&op->link);
        b->ops[count++] = op;
    }
    b->count = count;
    return b;
}

static bool lane_has_none(const struct lane *lane)
{
    return !lane->worker->stopping && list_empty(&lane->writes) && list_empty(&lane->cancelled);
}

static struct timespec in_ms(long ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return until;
}

/* Waits for work, under the lock; with a bound, at most IDLE_MS. */
static void lane_sleep(struct lane *lane, bool bounded)
{
    struct worker *w = lane->worker;
    struct timespec until = in_ms(IDLE_MS);
    lane->sleeps = true;
    for (int rc = 0; rc == 0 && lane_has_none(lane);)
        rc = bounded ? pthread_cond_clockwait(&lane->wake, &w->lock, CLOCK_MONOTONIC, &until)
                     : pthread_cond_wait(&lane->wake, &w->lock);
    lane->sleeps = false;
}

static void *write_loop(void *argument)
{
    struct lane *lane = argument;
    struct worker *w = lane->worker;
    bool rested = false,
         more = false; /* the store has done its own work since the last batch; or has more of it */
    struct list cancelled;
    list_init(&cancelled);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct store_op *watch;
        move_all(&cancelled, &lane->cancelled);
        struct batch *batch = take_batch(lane, &watch);
        if (!batch->count && !watch && list_empty(&cancelled)) {
            if (lane->begun) {
                pthread_mutex_unlock(&w->lock);
                finish_begun(lane);
                pthread_mutex_lock(&w->lock);
                continue;
            }
            if (w->stopping)
                break;
            if (!more)
                lane_sleep(lane, !rested);
            if (!rested && lane_has_none(lane)) {
                pthread_mutex_unlock(&w->lock);
                more = store_idle(w->store);
                pthread_mutex_lock(&w->lock);
                rested = !more;
            }
            continue;
        }
        rested = more = false;
        pthread_mutex_unlock(&w->lock);
        answer_cancelled(w, &cancelled);
        if (batch->count)
            run_batch(lane, batch);
        if (watch) {
            finish_begun(lane); /* it reads a row, and must not hear of what is not durable */
            begin_watch(w, watch);
        }
        pthread_mutex_lock(&w->lock);
    }
    /* Stopping, and everything queued has run: the last writer tells whoever still waits. */
    if (--w->writing == 0) {
        watches_take_all(&w->watches, &cancelled);
        mark_leaving(&cancelled);
        for (unsigned i = 0; i < w->lanes_count; i++) /* cancelled when their writer had ended */
            move_all(&cancelled, &w->lanes[i].cancelled);
    }
    pthread_mutex_unlock(&w->lock);
    answer_cancelled(w, &cancelled);
    return NULL;
}

static void *poll_loop(void *argument)
{
    struct worker *w = argument;
    struct poller *p = &w->poller;
    int64_t ids[WATCH_POLL_IDS], ended[WATCH_POLL_IDS];
    size_t place = 0, count, ended_count = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        struct timespec until = in_ms(WATCH_POLL_MS);
        while (!w->stopping && pthread_cond_clockwait(&p->wake, &w->lock, CLOCK_MONOTONIC, &until) == 0)
            ;
        do {
            count = w->stopping ? 0 : watches_ids(&w->watches, &place, ids, WATCH_POLL_IDS);
            if (!count)
                break;
            pthread_mutex_unlock(&w->lock);
            if (store_reader_ended(p->reader, ids, count, ended, &ended_count) != STATUS_OK)
                ended_count = 0;
            for (size_t i = 0; i < ended_count; i++)
                wake(w, &p->scratch, p->reader, ended[i], NULL);
            pthread_mutex_lock(&w->lock);
        } while (place);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void give_back_reads(void *context, struct store_op **ops, size_t count)
{
    struct worker *w = context;
    for (size_t i = 0; i < count; i++)
        give_back(w, ops[i]);
    tell_answers(w);
}

/* Whether there is room for the operation, which is then counted. Under the lock. */
static bool let_in(struct worker *w, struct store_op *op)
{
    assert(op->answered);
    if (w->stopping)
        return false;
    if (op->kind == STORE_WATCH) {
        if (w->watches_count >= w->settings.watches_max)
            return false;
        w->watches_count++;
        op->stage = STAGE_QUEUED;
        op->cancelled = false;
        return true;
    }
    if (atomic_load_explicit(&w->queued, memory_order_relaxed) >= w->settings.queue_max)
        return false;
    atomic_fetch_add_explicit(&w->queued, 1, memory_order_relaxed);
    op->stage = STAGE_NONE;
    return true;
}

void worker_submit_all(struct worker *w, struct list *ops)
{
    struct list reads;
    unsigned wake_lanes = 0; /* bit mask */
    list_init(&reads);
    pthread_mutex_lock(&w->lock);
    for (struct list *l = ops->next, *next; l != ops; l = next) {
        struct store_op *op = LIST_ENTRY(l, struct store_op, link);
        next = l->next;
        if (!let_in(w, op))
            continue;
        list_remove(l);
        if (store_op_reads(op)) {
            list_push_back(&reads, l);
        } else {
            struct lane *lane = lane_of(w, op);
            list_push_back(&lane->writes, l);
            if (lane->sleeps)
                wake_lanes |= 1u << (lane - w->lanes);
            lane->sleeps = false; /* one wake for all that queue until it runs */
        }
    }
    if (!list_empty(&reads)) /* a stop comes after it */
        readers_submit(w->readers, &reads);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; wake_lanes; i++, wake_lanes >>= 1)
        if (wake_lanes & 1)
            pthread_cond_signal(&w->lanes[i].wake);
}

enum status worker_submit(struct worker *w, struct store_op *op)
{
    struct list alone;
    list_init(&alone);
    list_push_back(&alone, &op->link);
    worker_submit_all(w, &alone);
    if (list_empty(&alone))
        return STATUS_OK;
    list_remove(&op->link);
    return STATUS_FULL;
}

void worker_cancel(struct worker *w, struct store_op *watch)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    if (watch->stage == STAGE_QUEUED || watch->stage == STAGE_STANDING) {
        if (watch->stage == STAGE_STANDING)
            watches_remove(&w->watches, watch);
        else
            list_remove(&watch->link);
        watch->stage = STAGE_LEAVING;
        struct lane *lane = lane_of(w, watch);
        list_push_back(&lane->cancelled, &watch->link);
        lane->sleeps = false;
        pthread_cond_signal(&lane->wake);
    } else {
        watch->cancelled = true; /* the writer is reading its row: it will not let it stand */
    }
    pthread_mutex_unlock(&w->lock);
}

int64_t worker_clock_ms(const struct worker *w)
{
    return store_clock_ms(w->store);
}

bool worker_shared(const struct worker *w)
{
    return store_shared(w->store);
}

size_t worker_queued(const struct worker *w)
{
    return atomic_load_explicit(&w->queued, memory_order_relaxed);
}

enum status worker_start(struct worker **out, struct store *store, const struct worker_settings *settings,
                         struct buffer *error)
{
    assert(settings->readers >= 1 && settings->batch_max >= 1 && settings->queue_max >= 1);
    enum status status = STATUS_NO_MEMORY;
    struct worker *w = calloc(1, sizeof *w);
    if (!w) {
        buffer_text(error, "There is no memory for the store's threads.");
        return status;
    }
    w->store = store;
    w->settings = *settings;
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->told, NULL);
    pthread_cond_init(&w->poller.wake, NULL);
    w->poller.scratch.kind = STORE_READ;
    w->lanes_count = store_writers(store) < LANES_MAX ? store_writers(store) : LANES_MAX;
    bool lanes = true;
    for (unsigned i = 0; i < w->lanes_count; i++) {
        struct lane *lane = &w->lanes[i];
        lane->worker = w;
        pthread_cond_init(&lane->wake, NULL);
        list_init(&lane->writes);
        list_init(&lane->cancelled);
        lane->scratch.kind = STORE_READ;
        for (struct batch *b = lane->batches; b < lane->batches + 2; b++) {
            b->ops = calloc(settings->batch_max, sizeof(struct store_op *));
            lanes = lanes && b->ops;
        }
    }
    if (!lanes || watches_init(&w->watches, settings->watches_max) != STATUS_OK) {
        buffer_text(error, "There is no memory for the store's threads.");
        goto done;
    }
    const struct readers_settings reads = {
        .at_once = settings->readers > store_readers(store) ? settings->readers : store_readers(store),
        .give_back = give_back_reads,
        .context = w};
    status = readers_start(&w->readers, store, &reads, error);
    if (status != STATUS_OK)
        goto done;
    bool started = true;
    if (store_shared(store)) {
        status = store_reader_open(&w->poller.reader, store, error);
        if (status != STATUS_OK)
            goto done;
        started = w->poller.started = pthread_create(&w->poller.thread, NULL, poll_loop, w) == 0;
    }
    w->writing = w->lanes_count;
    for (unsigned i = 0; started && i < w->lanes_count; i++)
        started = w->lanes[i].started =
            pthread_create(&w->lanes[i].thread, NULL, write_loop, &w->lanes[i]) == 0;
    if (started) {
        *out = w;
        return STATUS_OK;
    }
    buffer_text(error, "The store's threads cannot be started: raise the limit of threads.");
    status = STATUS_IO;
done:
    worker_stop(w);
    return status;
}

void worker_stop(struct worker *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    for (unsigned i = 0; i < w->lanes_count; i++)
        pthread_cond_broadcast(&w->lanes[i].wake);
    pthread_cond_broadcast(&w->poller.wake);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->lanes_count; i++)
        if (w->lanes[i].started)
            pthread_join(w->lanes[i].thread, NULL);
    readers_stop(w->readers);
    if (w->poller.started)
        pthread_join(w->poller.thread, NULL);
    store_reader_free(w->poller.reader);
    store_op_fini(&w->poller.scratch);
    pthread_cond_destroy(&w->poller.wake);
    watches_fini(&w->watches);
    for (unsigned i = 0; i < w->lanes_count; i++) {
        store_op_fini(&w->lanes[i].scratch);
        free(w->lanes[i].batches[0].ops);
        free(w->lanes[i].batches[1].ops);
        pthread_cond_destroy(&w->lanes[i].wake);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->told);
    free(w);
}
