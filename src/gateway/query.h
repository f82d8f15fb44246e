/* SPDX-License-Identifier: MIT
 *
 * One receipt query to an upstream: built from the route's receipt source, bounded in time and bytes, judged by
 * core/receipt. Also the fence at a callee that can be fenced: a samekey, a service that has a request for it
 * (receipt_fence), or one whose guard tables are read (ledger.h). Who asks need not know which: lane->policy.can_fence says
 * whether `fence` may be set.
 */
#ifndef SAMEKEY_GATEWAY_QUERY_H
#define SAMEKEY_GATEWAY_QUERY_H

#include "gateway/identity.h"
#include "gateway/shard.h"

struct query;

struct query_ask {
    struct outlets *outlets; /* of the setup the call is served under; held while the query runs */
    const struct lane *lane;
    size_t origin; /* which upstream */
    struct slice call_id, key, tenant;
    struct slice method, target; /* of the call, for a samekey below; may be empty */
    struct slice header_lines;   /* complete lines that name tenant and credential; may be empty */
    int64_t first_attempt_ms;    /* unix ms */
    int64_t timeout_ms;
    bool fence; /* ask for a fence instead of the receipt */
    bool has_trace;
    struct traceparent trace; /* the call's own span (span.h): the question is a child of it, upstream too */
};

/* Called once, never inside query_start(). The reading is the query's and goes when the call returns. */
typedef void query_done(void *owner, const struct receipt_reading *reading);

/* STATUS_NO_MEMORY, or STATUS_FULL: nothing was asked and `done` is not called. Everything in `ask` is copied. *out may be given to
 * query_forget() until `done` was called. */
enum status query_start(struct query **out, struct shard *shard, const struct query_ask *ask,
                        query_done *done, void *owner);
/* The owner goes: `done` is not called any more. */
void query_forget(struct query *query);

/* Appends the header lines that the tenant's and the credential's templates read, taken from a request; each name once, and
 * none of `own`, the lines that are sent with the question anyway (receipt_header). Returns whether all of them are in the
 * question: where not, a callee that keeps its callers apart is asked by nobody, and a NOT_RECEIVED speaks of nobody's
 * call. */
bool query_principal_lines(struct buffer *out, const struct setup *setup, const struct headers *headers,
                           const struct text_list *own);
/* The same from the header lines of a kept request; where nothing was kept (empty), from the tenant of the call's row as far
 * as that tells it. A credential's header is never known from a row, which has its digest only. False too where the
 * settings of tenant and credential are not those that the call was made under. */
bool query_principal_kept(struct buffer *out, const struct setup *setup, struct slice lines,
                          const struct call_row *call, const struct text_list *own);

#endif
