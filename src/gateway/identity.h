/* SPDX-License-Identifier: MIT
 *
 * Who a request is: callId, key, tenant, credential, business reference, trace, read from its head and body by a
 * route's rules. Every text lives in the arena that was given.
 */
#ifndef SAMEKEY_GATEWAY_IDENTITY_H
#define SAMEKEY_GATEWAY_IDENTITY_H

#include "base/arena.h"
#include "base/prng.h"
#include "core/problem.h"
#include "core/traceparent.h"
#include "gateway/setup.h"
#include "net/server.h"

struct identity {
    struct slice
        reversal; /* "POST /orders/42/cancel", rendered now; empty: the route has none, or a part is missing */
    struct slice tenant, call_id, key, key_spelling, business_ref, trace_id, scope, route;
    bool call_id_made, has_key, has_credential, has_trace;
    struct digest credential, call_digest, operation;
    struct traceparent trace; /* a parent_id of zero bytes: begun here, nothing stands above it */
    int64_t budget_ms;        /* X-Call-Budget-Ms, or DEADLINE_NO_BUDGET */
    int64_t id_time_ms;       /* the time inside the callId, or 0 */
    const char *why;          /* a sentence about the problem that was returned; may be NULL */
    struct slice where;       /* the part of a template it is about, or empty */
};

/* What the reading needs. */
struct identity_inputs {
    const struct setup *setup;
    const struct lane *lane;         /* NULL: only tenant and credential are wanted */
    const struct route_match *match; /* NULL as above */
    const struct request_head *head;
    struct slice body;
    struct hasher *hasher;
    struct arena *arena;
};

/* The parts that need no body: the callId and the key where headers hold them, tenant, credential, trace, budget. The
 * order of refusals is the order of CONTRACT section 5. PROBLEM_NONE, or the problem with id->why. */
enum problem identity_read_head(struct identity *id, const struct identity_inputs *in);
/* The rest, once the body is there: callId and key from templates, business reference. `window_ms` is the instant of
 * time windows. A callId that nobody made is left empty. */
enum problem identity_read_body(struct identity *id, const struct identity_inputs *in, int64_t window_ms);
/* The digests of callId and operation. */
void identity_digest(struct identity *id, struct hasher *hasher);
/* The row a claim writes for this request: PROCESSING, attempt 1, owned by `owner` from now_ms (unix ms) on. The row
 * borrows everything. */
void identity_row(const struct identity *id, const struct lane *lane, const struct digest32 *fingerprint,
                  const char *owner, int64_t now_ms, int64_t window_ms, struct call_row *row);
/* Begins a sampled trace for a request that came without one. Without memory it stays without. */
void identity_begin_trace(struct identity *id, struct prng *random, struct arena *arena);
/* Tenant and credential alone, for the receipt API. */
enum problem identity_read_principal(struct identity *id, const struct identity_inputs *in);

#endif
