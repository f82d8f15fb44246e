/* SPDX-License-Identifier: MIT
 *
 * The receipt API (CONTRACT section 4): GET and HEAD /.samekey/receipts/ID (with ?wait=), POST .../fence and
 * .../cancel, PUT to report an ending. Reading never calls upstream and never waits behind calls.
 *
 * Always true:
 *  (1) Another tenant's receipt is answered like one that never was.
 *  (2) Equal reads are merged, and what is read of a running call serves others for a moment (lookup.h).
 *  (3) safe_new_key is worked out from the store's rows, never from a cache.
 */
#ifndef SAMEKEY_GATEWAY_RECEIPTS_H
#define SAMEKEY_GATEWAY_RECEIPTS_H

#include "gateway/identity.h"
#include "gateway/shard.h"

#define RECEIPTS_PREFIX   "/.samekey/"
#define RECEIPTS_BODY_MAX (1u << 20) /* bytes of a fence's or a report's body */

/* Takes over a request whose path begins with RECEIPTS_PREFIX. `admin`: it came over the admin listener, so the tenant is
 * ?tenant= and a report needs no further token. */
void receipts_begin(struct shard *shard, struct request *request, bool admin);

#endif
