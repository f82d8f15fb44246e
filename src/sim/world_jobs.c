/* SPDX-License-Identifier: MIT
 *
 * The queues before the store of the world's gateway, as shard.c and store/worker.c are before the real one: a writer that
 * takes what has queued, a reader, and watches. A process may die in every write.
 */
#include "sim/world_gate_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct job *gate_job(struct gate *g, enum store_kind kind, void *owner, uint32_t call,
                     void (*then)(struct job *))
{
    struct job *job;
    if (g->idle) {
        job = g->idle;
        g->idle = job->next_idle;
        struct buffer memory = job->op.memory;
        memset(&job->op, 0, sizeof job->op);
        job->op.memory = memory;
        buffer_clear(&job->op.memory);
        buffer_clear(&job->text);
    } else {
        job = calloc(1, sizeof *job);
        if (!job)
            abort(); /* a simulation without memory has no result */
    }
    list_init(&job->link);
    job->gate = g;
    job->owner = owner;
    job->call = call;
    job->then = then;
    job->came_ms = g->world->now_ms;
    job->op.kind = kind;
    return job;
}

void gate_job_free(struct job *job)
{
    if (!job)
        return;
    list_remove(&job->link);
    job->next_idle = job->gate->idle;
    job->gate->idle = job;
}

static bool job_reads(const struct job *job)
{
    return job->op.kind == STORE_LOOKUP || job->op.kind == STORE_READ || job->op.kind == STORE_WATCH ||
           (job->op.kind == STORE_CLAIM && job->op.peek);
}

void gate_submit(struct job *job)
{
    struct gate *g = job->gate;
    struct world *w = g->world;
    if (job_reads(job)) {
        list_push_back(&g->reads, &job->link);
        if (!g->reading)
            world_later(w, world_between(&w->luck, 0, 2), EVENT_READER, 0, gate_value(g));
        g->reading = true;
    } else {
        list_push_back(&g->queue, &job->link);
        if (!g->writing)
            world_later(w, world_between(&w->luck, 0, COMMIT_MS), EVENT_STORE, 0, gate_value(g));
        g->writing = true;
    }
}

static void answer_later(struct gate *g, struct job *job)
{
    struct world *w = g->world;
    if (list_empty(&g->answered))
        world_later(w, world_between(&w->luck, 0, 2), EVENT_STORE_ANSWERS, 0, gate_value(g));
    list_push_back(&g->answered, &job->link);
}

void gate_deliver(struct gate *g)
{
    unsigned incarnation = g->incarnation;
    struct list now;
    list_init(&now);
    while (!list_empty(&g->answered)) {
        struct list *item = g->answered.next;
        list_remove(item);
        list_push_back(&now, item);
    }
    while (!list_empty(&now)) {
        struct job *job = LIST_ENTRY(now.next, struct job, link);
        list_remove(&job->link);
        list_init(&job->link);
        assert(incarnation == g->incarnation);
        job->then(job);
    }
}

/* Whoever waits for the row is answered when it does not run any more. */
static void look_after_watches(struct gate *g)
{
    for (struct list *item = g->watches.next, *next; item != &g->watches; item = next) {
        next = item->next;
        struct job *watch = LIST_ENTRY(item, struct job, link);
        watch->op.kind = STORE_READ;
        store_reader_run(g->reader, &watch->op);
        watch->op.kind = STORE_WATCH;
        if (watch->op.status == STATUS_OK && state_running(watch->op.rows.call.state))
            continue;
        list_remove(item);
        answer_later(g, watch);
    }
}

static bool changes_rows(const struct job *job)
{
    return job->op.done && (job->op.kind == STORE_END || job->op.kind == STORE_FENCE ||
                            job->op.kind == STORE_EXPIRE || job->op.kind == STORE_TASK_ROUND);
}

/* As the store's worker does when more has queued meanwhile: the second half runs before the first is on disk. */
static void write_halves(struct gate *g, struct store_op **ops, size_t count)
{
    size_t half = count / 2;
    enum batch_begun first = store_batch_begin(g->store, ops, half), second = BATCH_AGAIN;
    if (first == BATCH_BEGUN) {
        second = store_batch_begin(g->store, ops + half, count - half);
        store_batch_end(g->store);
    } else {
        store_batch(g->store, ops, half);
    }
    if (second == BATCH_BEGUN)
        store_batch_end(g->store);
    else
        store_batch(g->store, ops + half, count - half);
}

/* The writer: what has queued is one transaction, or two of which one runs into the other. The process may die in it. */
void gate_write_queue(struct gate *g)
{
    struct world *w = g->world;
    struct store_op *ops[BATCH_MAX];
    struct job *jobs[BATCH_MAX];
    size_t count = 0;
    g->writing = false;
    while (count < BATCH_MAX && !list_empty(&g->queue)) {
        jobs[count] = LIST_ENTRY(g->queue.next, struct job, link);
        list_remove(&jobs[count]->link);
        list_init(&jobs[count]->link);
        ops[count] = &jobs[count]->op;
        count++;
    }
    if (!count)
        return;
    if (count > 1 && w->result->commits % 2)
        write_halves(g, ops, count);
    else
        store_batch(g->store, ops, count);
    w->result->commits++;
    bool changed = false;
    for (size_t i = 0; i < count; i++) {
        changed = changed || changes_rows(jobs[i]);
        answer_later(g, jobs[i]);
        if (jobs[i]->op.status != STATUS_OK && jobs[i]->op.status != STATUS_CONFLICT)
            SAY(w, "store", "%s: operation %d for %s",
                jobs[i]->op.status == STATUS_UNKNOWN ? "cannot tell" : "not written", (int)jobs[i]->op.kind,
                jobs[i]->call == WORLD_NONE ? "nobody" : gate_call(g, jobs[i]->call)->id);
    }
    if (disk_is_off()) {
        gate_crash(g, world_has(w, WORLD_POWER) && world_chance(&w->machine, 500));
        return;
    }
    if (changed)
        look_after_watches(g);
    if (!list_empty(&g->queue)) {
        g->writing = true;
        world_later(w, world_between(&w->luck, 0, COMMIT_MS), EVENT_STORE, 0, gate_value(g));
    } else if (world_chance(&w->luck, 20)) {
        store_idle(g->store);
        if (disk_is_off())
            gate_crash(g, world_has(w, WORLD_POWER));
    }
}

void gate_read_queue(struct gate *g)
{
    g->reading = false;
    while (!list_empty(&g->reads)) {
        struct job *job = LIST_ENTRY(g->reads.next, struct job, link);
        list_remove(&job->link);
        list_init(&job->link);
        bool watch = job->op.kind == STORE_WATCH;
        if (watch)
            job->op.kind = STORE_READ;
        store_reader_run(g->reader, &job->op);
        if (watch)
            job->op.kind = STORE_WATCH;
        if (watch && job->op.status == STATUS_OK && state_running(job->op.rows.call.state))
            list_push_back(&g->watches, &job->link);
        else
            answer_later(g, job);
    }
    if (disk_is_off())
        gate_crash(g, world_has(g->world, WORLD_POWER));
}

/* worker_cancel(): the watch's answer is STATUS_NOT_FOUND. */
void gate_cancel_watch(struct job *watch)
{
    for (struct list *item = watch->gate->watches.next; item != &watch->gate->watches; item = item->next)
        if (item == &watch->link) {
            list_remove(item);
            watch->op.status = STATUS_NOT_FOUND;
            answer_later(watch->gate, watch);
            return;
        }
    /* its answer is on the way */
}
