/* SPDX-License-Identifier: MIT
 *
 * The reversal of an operation (CONTRACT sections 2, 4, 6): a call of its own with its own callId and receipt, linked to
 * the call it undoes, at most once for an operation however many ask. Here it is named; the store sees to "once", and
 * the compensation sends and follows it.
 */
#ifndef SAMEKEY_GATEWAY_REVERSAL_H
#define SAMEKEY_GATEWAY_REVERSAL_H

#include "gateway/shard.h"

/* Makes `row`, all texts in the arena: the reversal of the call `of`, with a callId made now and a key that is one for the
 * operation. STATUS_NO_MEMORY. */
enum status reversal_row(struct call_row *row, const struct call_row *of, const struct lane *lane,
                         struct shard *shard, struct arena *arena);

#endif
