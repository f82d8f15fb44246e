/* SPDX-License-Identifier: MIT
 *
 * The record that `mode = observe` makes beside a passage: who the request was, what guard would have done with it, and
 * how it ended. It never holds anything up: when it cannot be made, it is not made.
 */
#ifndef SAMEKEY_GATEWAY_OBSERVE_H
#define SAMEKEY_GATEWAY_OBSERVE_H

#include "core/keeper.h"
#include "gateway/identity.h"
#include "gateway/shard.h"

struct observation;

/* NULL: no memory, and nothing is recorded. */
struct observation *observe_begin(struct shard *shard, const struct lane *lane,
                                  const struct route_match *match);
/* A piece of the body on its way through. */
void observe_body(struct observation *o, struct slice piece);
/* The request is whole: its identity is read and a claim is written beside the passage. */
void observe_arrived(struct observation *o, struct request *request);
/* The passage ended; frees the observation when the store has answered. NULL is accepted. */
void observe_end(struct observation *o, const struct evidence *evidence);

#endif
