/* SPDX-License-Identifier: MIT
 *
 * Compensation at work (CONTRACT section 6): takes tasks that are due from the store, one round each, performs what
 * core/compensation.h says, and writes down what came of it. Part of the maintenance, on its loop.
 *
 *   STORE_TASK_TAKE --> ask the receipt --> fence | send | nothing --> STORE_TASK_ROUND (the row, the next due, the ending)
 *
 * Always true:
 *  (1) A round works only on a task that this process owns: the store gave it out once, with a fencing number.
 *  (2) Nothing is sent before the call's own row went into PROCESSING by compare-and-set, with its key's slot.
 *  (3) A round that was begun is written down; where the process dies before, the next taker writes that it was cut short.
 */
#ifndef SAMEKEY_GATEWAY_COMPENSATE_H
#define SAMEKEY_GATEWAY_COMPENSATE_H

#include "gateway/shard.h"

struct compensator;

/* Begins to look for due tasks. STATUS_NO_MEMORY. */
enum status compensator_start(struct compensator **out, struct shard *shard);
/* Takes no more tasks; the rounds at work go on to their end. */
void compensator_stop(struct compensator *compensator);
/* Rounds at work, and what the store still has for them. */
size_t compensator_busy(const struct compensator *compensator);
/* Frees it when it is not busy. NULL is accepted. */
void compensator_free(struct compensator *compensator);

#endif
