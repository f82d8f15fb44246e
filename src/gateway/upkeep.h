/* SPDX-License-Identifier: MIT
 *
 * Maintenance: what must happen without anybody asking. It runs on a loop of its own (a shard without listeners), so it
 * shares the ways of the other shards and delays none of them.
 *
 *   every second   leases that ran out become UNKNOWN, and their receipts are asked once
 *   purge_every    bodies and tombstones past their life go, in bounded batches
 *   every 5 s      calls that ended UNKNOWN are counted, and asked about when a round of theirs is due: that reads a receipt and
 *                  writes down a clear answer, and sends nothing
 *   every second   gauges that belong to the store are brought up to date
 */
#ifndef SAMEKEY_GATEWAY_UPKEEP_H
#define SAMEKEY_GATEWAY_UPKEEP_H

#include "gateway/shard.h"

struct upkeep;

enum status upkeep_start(struct upkeep **out, struct shard *shard);
/* Stops its timers; what it has asked the store for may still come back. */
void upkeep_stop(struct upkeep *upkeep);
void upkeep_free(struct upkeep *upkeep);

#endif
