/* SPDX-License-Identifier: MIT
 *
 * One lock guards the queues and the watches; it is held for moving list links and nothing else. The writer takes
 * up to batch_max operations at a time, runs them without the lock, and answers in their order.
 *
 *  a watch:  QUEUED -> STANDING -> LEAVING (answered)
 *               |         |           ^
 *               '---------'-----------'   worker_cancel() moves it, and the writer answers STATUS_NOT_FOUND
 *
 * A watch is QUEUED with the writes, so that it sees what was submitted before it. When its turn comes, after the
 * batch in front of it, the writer reads the row once: ended, then it is answered; running, then it stands. If others
 * stand on the row already it is known to run, and a storm of watches on one call costs no reads.
 */
#include "store/worker.h"

#include "store/driver.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "store/watch.h"

/* So long nothing must have come before the store does its own work. Between two batches of a busy store the queue is
 * empty all the time, and a checkpoint then costs the next batch two syncs. */
#define IDLE_MS 20

#define READS_MAX 32 /* reads of one moment: the first waits for the last */

enum stage { STAGE_NONE, STAGE_QUEUED, STAGE_STANDING, STAGE_LEAVING };

struct reader_thread {
    struct worker *worker;
    struct store_reader *reader;
    pthread_t thread;
    bool started;
};

struct worker {
    struct store *store;
    struct worker_settings settings;
    pthread_mutex_t lock;
    pthread_cond_t writer_wake, reader_wake;

    /* Under the lock. */
    struct list writes, reads; /* waiting operations */
    struct list cancelled;     /* watches to be answered STATUS_NOT_FOUND */
    struct watches watches;
    size_t watches_count; /* queued, standing and cancelled */
    bool writer_sleeps, stopping, writer_ended;
    unsigned readers_asleep;

    atomic_size_t queued; /* operations waiting or running, watches apart */
    struct store_op **batch;
    pthread_t writer;
    bool writer_started;
    struct reader_thread *readers;
    struct store_op scratch; /* reads a row that watches wait for */
};

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

/* Answers the watches of a row that a batch has ended. `ending` carries a result that was not stored, or is NULL. */
static void wake(struct worker *w, int64_t id, const struct store_op *ending)
{
    struct list leaving;
    list_init(&leaving);
    pthread_mutex_lock(&w->lock);
    bool any = watches_any(&w->watches, id);
    pthread_mutex_unlock(&w->lock);
    if (!any)
        return;
    run_read(w, &w->scratch, id);
    if (w->scratch.status == STATUS_OK && state_running(w->scratch.rows.call.state))
        return;
    struct rows rows = w->scratch.rows;
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
        op->status = w->scratch.status;
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

static void run_batch(struct worker *w, size_t count)
{
    int64_t began = micros_now();
    enum status worst = STATUS_OK;
    store_batch(w->store, w->batch, count);
    int64_t micros = micros_now() - began;
    for (size_t i = 0; i < count; i++) {
        struct store_op *op = w->batch[i];
        if (op->status == STATUS_IO || op->status == STATUS_UNKNOWN || op->status == STATUS_NO_MEMORY)
            worst = op->status;
        if (!op->done)
            continue;
        if (op->kind == STORE_END)
            wake(w, op->id, op);
        else if (op->kind == STORE_FENCE)
            wake(w, op->rows.call.id, NULL);
        else if (op->kind == STORE_TASK_ROUND || op->kind == STORE_TASK_RESOLVE)
            wake(w, op->rows.call.id, NULL);
        else if (op->kind == STORE_EXPIRE)
            for (size_t j = 0; j < op->count; j++)
                wake(w, op->expired[j], NULL);
    }
    /* Only now: until here their slices may be copied to watchers. */
    for (size_t i = 0; i < count; i++)
        give_back(w, w->batch[i]);
    tell_answers(w);
    if (w->settings.on_batch)
        w->settings.on_batch(w->settings.context, count, micros, worst);
}

/* Takes the operations up to the first watch, or batch_max; or that watch alone. Under the lock. */
static size_t take_batch(struct worker *w, struct store_op **watch)
{
    size_t count = 0;
    *watch = NULL;
    while (count < w->settings.batch_max && !list_empty(&w->writes)) {
        struct store_op *op = LIST_ENTRY(w->writes.next, struct store_op, link);
        if (op->kind == STORE_WATCH) {
            if (count == 0) {
                list_remove(&op->link);
                *watch = op;
            }
            break;
        }
        list_remove(&op->link);
        w->batch[count++] = op;
    }
    return count;
}

static bool writer_has_none(const struct worker *w)
{
    return !w->stopping && list_empty(&w->writes) && list_empty(&w->cancelled);
}

/* Waits for work, under the lock; with a bound, at most IDLE_MS. */
static void writer_sleep(struct worker *w, bool bounded)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += IDLE_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    w->writer_sleeps = true;
    for (int rc = 0; rc == 0 && writer_has_none(w);)
        rc = bounded ? pthread_cond_clockwait(&w->writer_wake, &w->lock, CLOCK_MONOTONIC, &until)
                     : pthread_cond_wait(&w->writer_wake, &w->lock);
    w->writer_sleeps = false;
}

static void *write_loop(void *argument)
{
    struct worker *w = argument;
    bool rested = false; /* the store has done its own work since the last batch */
    struct list cancelled;
    list_init(&cancelled);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct store_op *watch;
        move_all(&cancelled, &w->cancelled);
        size_t count = take_batch(w, &watch);
        if (!count && !watch && list_empty(&cancelled)) {
            if (w->stopping)
                break;
            writer_sleep(w, !rested);
            if (!rested && writer_has_none(w)) {
                pthread_mutex_unlock(&w->lock);
                store_idle(w->store);
                pthread_mutex_lock(&w->lock);
                rested = true;
            }
            continue;
        }
        rested = false;
        pthread_mutex_unlock(&w->lock);
        answer_cancelled(w, &cancelled);
        if (count)
            run_batch(w, count);
        if (watch)
            begin_watch(w, watch);
        pthread_mutex_lock(&w->lock);
    }
    /* Stopping, and everything queued has run: whoever still waits is told. */
    watches_take_all(&w->watches, &cancelled);
    mark_leaving(&cancelled);
    pthread_mutex_unlock(&w->lock);
    answer_cancelled(w, &cancelled);
    return NULL;
}

/* Takes the reads that wait, at most READS_MAX; one whose work is not small goes alone. Under the lock. */
static size_t take_reads(struct worker *w, struct store_op *ops[READS_MAX])
{
    size_t count = 0;
    while (count < READS_MAX && !list_empty(&w->reads)) {
        struct store_op *op = LIST_ENTRY(w->reads.next, struct store_op, link);
        bool small = op->kind == STORE_LOOKUP || op->kind == STORE_READ || op->kind == STORE_CLAIM;
        if (!small && count)
            break;
        list_remove(&op->link);
        ops[count++] = op;
        if (!small)
            break;
    }
    return count;
}

static void *read_loop(void *argument)
{
    struct reader_thread *r = argument;
    struct worker *w = r->worker;
    struct store_op *ops[READS_MAX];
    pthread_mutex_lock(&w->lock);
    for (;;) {
        size_t count = take_reads(w, ops);
        if (!count) {
            if (w->stopping)
                break;
            w->readers_asleep++;
            pthread_cond_wait(&w->reader_wake, &w->lock);
            w->readers_asleep--;
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        store_reader_run_all(r->reader, ops, count);
        for (size_t i = 0; i < count; i++)
            give_back(w, ops[i]);
        tell_answers(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
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
    size_t reads = 0;
    bool wake_writer = false;
    pthread_mutex_lock(&w->lock);
    for (struct list *l = ops->next, *next; l != ops; l = next) {
        struct store_op *op = LIST_ENTRY(l, struct store_op, link);
        next = l->next;
        if (!let_in(w, op))
            continue;
        list_remove(l);
        if (store_op_reads(op)) {
            list_push_back(&w->reads, l);
            reads++;
        } else {
            list_push_back(&w->writes, l);
            wake_writer = wake_writer || w->writer_sleeps;
            w->writer_sleeps = false; /* one wake for all that queue until it runs */
        }
    }
    if (reads > w->readers_asleep)
        reads = w->readers_asleep;
    pthread_mutex_unlock(&w->lock);
    if (wake_writer)
        pthread_cond_signal(&w->writer_wake);
    while (reads-- > 0)
        pthread_cond_signal(&w->reader_wake);
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
        list_push_back(&w->cancelled, &watch->link);
        w->writer_sleeps = false;
        pthread_cond_signal(&w->writer_wake);
    } else {
        watch->cancelled = true; /* the writer is reading its row: it will not let it stand */
    }
    pthread_mutex_unlock(&w->lock);
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
    pthread_cond_init(&w->writer_wake, NULL);
    pthread_cond_init(&w->reader_wake, NULL);
    list_init(&w->writes);
    list_init(&w->reads);
    list_init(&w->cancelled);
    w->scratch.kind = STORE_READ;
    w->batch = calloc(settings->batch_max, sizeof *w->batch);
    w->readers = calloc(settings->readers, sizeof *w->readers);
    if (!w->batch || !w->readers || watches_init(&w->watches, settings->watches_max) != STATUS_OK) {
        buffer_text(error, "There is no memory for the store's threads.");
        goto done;
    }
    for (unsigned i = 0; i < settings->readers; i++) {
        struct reader_thread *r = &w->readers[i];
        r->worker = w;
        status = store_reader_open(&r->reader, store, error);
        if (status != STATUS_OK)
            goto done;
        r->started = pthread_create(&r->thread, NULL, read_loop, r) == 0;
        if (!r->started)
            break;
    }
    w->writer_started =
        w->readers[settings->readers - 1].started && pthread_create(&w->writer, NULL, write_loop, w) == 0;
    if (w->writer_started) {
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
    pthread_cond_broadcast(&w->writer_wake);
    pthread_cond_broadcast(&w->reader_wake);
    pthread_mutex_unlock(&w->lock);
    if (w->writer_started)
        pthread_join(w->writer, NULL);
    for (unsigned i = 0; w->readers && i < w->settings.readers; i++) {
        if (w->readers[i].started)
            pthread_join(w->readers[i].thread, NULL);
        store_reader_free(w->readers[i].reader);
    }
    watches_fini(&w->watches);
    store_op_fini(&w->scratch);
    free(w->batch);
    free(w->readers);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->writer_wake);
    pthread_cond_destroy(&w->reader_wake);
    free(w);
}
