/* SPDX-License-Identifier: MIT
 *
 * Asks the store, beside its work, to sketch what was written since (STORE_SKETCH), so that lists of calls stay fast. A
 * few blocks at a time, with a rest between: a store that is busy is not kept busier.
 */
#ifndef SAMEKEY_GATEWAY_SKETCHER_H
#define SAMEKEY_GATEWAY_SKETCHER_H

#include "gateway/shard.h"

struct sketcher;

/* On the home shard. STATUS_NO_MEMORY. *out is the caller's. */
enum status sketcher_start(struct sketcher **out, struct shard *home);
/* Asks no more. NULL is accepted. */
void sketcher_stop(struct sketcher *s);
/* After the store's worker has answered everything. NULL is accepted. */
void sketcher_free(struct sketcher *s);

#endif
