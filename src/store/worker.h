/* SPDX-License-Identifier: MIT
 *
 * The store's threads: a writer (of a store that takes several batches at once: several) that takes whatever has queued
 * since its last commit and runs it as one transaction (group commit: nothing waits for a timer), and readers for LOOKUP
 * and READ. Loops hand over operations and get them back through store_op.answered.
 *
 * Always true:
 *  (1) Every operation that worker_submit() took is answered exactly once, also at the stop.
 *  (2) The queue is bounded; a full one is STATUS_FULL at once, never a wait.
 *  (3) Watches of a row are answered after the commit that ended it, in the order they came; where another process ended
 *      it, within about a tenth of a second.
 */
#ifndef SAMEKEY_STORE_WORKER_H
#define SAMEKEY_STORE_WORKER_H

#include "store/store.h"

struct worker;

struct worker_settings {
    size_t queue_max;   /* operations waiting or running, watches apart */
    size_t watches_max; /* watches standing */
    size_t batch_max;   /* operations in one transaction */
    unsigned readers; /* that read at once, at least 1; a store that wants more (store_readers()) gets them */
    /* Called on a writer thread after each batch, by one at a time, for metrics; may be NULL. */
    void (*on_batch)(void *context, size_t operations, int64_t micros, enum status status);
    /* Called after one or more operations were answered, on the thread that did: whoever waits for them is woken once
     * here and not in each `answered`. May be NULL. */
    void (*on_answers)(void *context);
    void *context;
};

/* Starts the threads on an open store, which stays the caller's and must outlive the worker. */
enum status worker_start(struct worker **out, struct store *store, const struct worker_settings *settings,
                         struct buffer *error);
/* Takes an operation, or answers STATUS_FULL without taking it (then `answered` is not called). Reads go to the
 * readers, everything else to the writer, in the order submitted. Callable from every thread. */
enum status worker_submit(struct worker *worker, struct store_op *op);
/* The same for a list of operations, linked by `link` and in its order, with one lock and one wake-up for all. Those
 * that were not taken stay in the list. */
void worker_submit_all(struct worker *worker, struct list *ops);
/* Ends a watch early: its `answered` comes with STATUS_NOT_FOUND, unless it is already on its way. The operation's
 * memory must stay until then. Callable from every thread. NULL, for a worker that has stopped, is accepted: it has
 * answered every watch. */
void worker_cancel(struct worker *worker, struct store_op *watch);
/* The store's clock, and whether other processes write the store too: store_clock_ms(), store_shared(). Callable from every
 * thread. */
int64_t worker_clock_ms(const struct worker *worker);
bool worker_shared(const struct worker *worker);
/* Operations waiting now. */
size_t worker_queued(const struct worker *worker);
/* Runs what is queued, answers all (watches: STATUS_NOT_FOUND), stops the threads. NULL is accepted. */
void worker_stop(struct worker *worker);

#endif
