/* SPDX-License-Identifier: MIT
 *
 * Maintenance: what must happen without anybody asking. It runs on a loop of its own (a shard without listeners), so it
 * shares the ways of the other shards and delays none of them.
 *
 *   every second   leases that ran out become UNKNOWN, and their receipts are asked once
 *   purge_every    bodies and tombstones past their life go, in bounded batches
 *   always         compensation tasks that are due get their round (compensate.h), and people are told (tell.h)
 *   every 5 s      open tasks are counted
 *   every second   gauges that belong to the store are brought up to date
 */
#ifndef SAMEKEY_GATEWAY_UPKEEP_H
#define SAMEKEY_GATEWAY_UPKEEP_H

#include "gateway/shard.h"

struct upkeep;

enum status upkeep_start(struct upkeep **out, struct shard *shard);
/* Stops its timers; what it has asked the store for may still come back. */
void upkeep_stop(struct upkeep *upkeep);
/* What is asked of receipts, of the store and of those who are told, and has not come back. */
size_t upkeep_busy(const struct upkeep *upkeep);
void upkeep_free(struct upkeep *upkeep);

#endif
