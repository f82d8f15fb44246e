/* SPDX-License-Identifier: MIT
 *
 * Requests that are not guarded: passed through to the upstream, streamed both ways, stored nowhere, repeated never.
 * And `mode = observe`: the same passage, with a record made beside it that never refuses and never replays.
 *
 * Always true:
 *  (1) Memory for one passage is bounded by the sockets' buffers and one write mark on each side.
 *  (2) What fails before a byte of the answer went out is 502 or 504 with a problem; after that the connection is cut.
 *  (3) In observe mode the answer is the upstream's, whatever the store does; the record says what guard would have
 *      done.
 */
#ifndef SAMEKEY_GATEWAY_PASS_H
#define SAMEKEY_GATEWAY_PASS_H

#include "gateway/identity.h"
#include "gateway/shard.h"

/* Takes the request over as its guest. */
void pass_begin(struct shard *shard, struct request *request, const struct lane *lane,
                const struct route_match *match);

#endif
