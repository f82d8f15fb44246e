/* SPDX-License-Identifier: MIT
 *
 * A run is one claimed call at work: it drives the caller machine (core/call.h), sends attempts, asks receipts, and
 * writes the ending. It belongs to the shard that claimed the call and outlives the visit that began it.
 *
 * Always true:
 *  (1) The first byte of attempt 1 leaves after the claim was on disk, and of every later attempt after its
 *      STORE_ATTEMPT was.
 *  (2) The visit hears an ending only when it is on disk; the last bytes of a streamed answer are held until then.
 *  (3) A run that is no longer the owner (a fencing number that rose) sends and writes nothing more, and tells its
 *      visit what stands.
 *  (4) A place in the admission is given back exactly once.
 */
#ifndef SAMEKEY_GATEWAY_RUN_H
#define SAMEKEY_GATEWAY_RUN_H

#include "gateway/visit.h"

/* Starts the call that `visit` has just claimed or taken: rows->call is as the store has it now, with its texts in
 * `texts`, which is taken over. So is the visit's pass. The visit's phase is RUNNING from here on. */
void run_begin(struct visit *visit, const struct rows *rows, struct buffer *texts, bool resumed);
/* A call that runs without a caller: a kept request, for a compensation round or a reversal. */
struct run_alone {
    struct shard *shard;
    struct outlets *outlets; /* held while it runs */
    const struct lane *lane;
    struct slice method, target, lines, body; /* copied */
    int retries;                              /* attempts after the first */
    int64_t closed_age_ms; /* since the last attempt's connection was closed, at the latest */
    /* Called once, when the run is over, however it ended; the row in the store tells. Never inside run_begin_alone(). */
    void (*over)(void *owner);
    void *owner;
};
/* Starts the call that was just taken: rows->call as the store has it now, its texts in `texts`, which is taken over.
 * `resumed`: earlier attempts may have run, so its receipt is asked first. False: no memory, nothing was begun and `over`
 * is not called; the row's lease frees it. */
bool run_begin_alone(const struct run_alone *ask, const struct rows *rows, struct buffer *texts,
                     bool resumed);
/* The visit was answered or went; the run goes on alone. */
void run_unlink_visit(struct run *run);
/* The caller takes streamed bytes again. */
void run_drain(struct run *run);
/* Runs that a shard which ends must wait for: all but those that only wait for a callee that has accepted the call. */
size_t runs_busy(const struct shard *shard);
/* Lets the others go: their rows stay PROCESSING, and the next process asks their receipts. */
void runs_abandon(struct shard *shard);
/* Frees the memory of runs that are over, kept for the next ones. */
void runs_forget(struct shard *shard);

#endif
