/* SPDX-License-Identifier: MIT
 *
 * The spans of a run. The call's own span stands under what the caller sent in traceparent; its attempts and receipt
 * questions stand under the call, each with the very id that the upstream got as parent-id, so that the spans the
 * upstream makes hang where they belong.
 */
#include "gateway/run_parts.h"

void run_trace_begin(struct run *run)
{
    if (!run->id.has_trace)
        return;
    run->span = run->id.trace;
    run->begun_us = clock_monotonic_us();
    if (run->resumed) { /* the first run has the id that is made from the callId */
        traceparent_child(&run->id.trace, prng_next(&run->shard->random), &run->span);
        return;
    }
    span_id_of_call(&run->row.call_digest, run->span.parent_id);
    if (run->row.reverses.len) { /* nobody sent it: it stands under the call that it undoes */
        struct digest undone = digest_call(&run->shard->print.hasher, run->row.tenant, run->row.reverses);
        span_id_of_call(&undone, run->id.trace.parent_id);
    } else if (memcmp(run->span.parent_id, run->id.trace.parent_id, SPAN_ID_BYTES) == 0) {
        memset(run->id.trace.parent_id, 0, SPAN_ID_BYTES); /* never its own parent */
    }
}

void run_trace_attempt(const struct run *run, const struct attempt *attempt)
{
    if (!run->shard->tracer || !run->id.has_trace)
        return;
    const struct origin *origin = &run->lane->origins[run->pass.origin];
    bool good = attempt->outcome == OUTCOME_SUCCESS || attempt->outcome == OUTCOME_PENDING;
    const struct log_field list[] = {
        LOG_TEXT("samekey.call_id", run->row.call_id),
        LOG_NUMBER("samekey.attempt", attempt->n),
        LOG_STRING("samekey.outcome", outcome_json(attempt->outcome)),
        LOG_TEXT("samekey.evidence", attempt->evidence),
        LOG_NUMBER("samekey.wait_before_ms", attempt->wait_before_ms),
        LOG_TEXT("http.request.method", run->method),
        attempt->status ? LOG_NUMBER("http.response.status_code", attempt->status)
                        : LOG_STRING("http.response.status_code", ""),
        LOG_STRING("server.address", origin->host),
        LOG_STRING("server.port", origin->port),
        LOG_END,
    };
    struct span span = {
        .self = run->attempt_span,
        .kind = SPAN_CLIENT,
        .verb = "attempt",
        .route = run->lane->s->name,
        .start_us = span_instant_us(run->sent_us),
        .end_us = span_now_us(),
        .error = good ? slice_of("", 0) : attempt->evidence,
        .list = list,
    };
    memcpy(span.parent, run->span.parent_id, sizeof span.parent);
    tracer_add(run->shard->tracer, &span);
}

void run_trace_end(const struct run *run, const char *lost)
{
    if (!run->shard->tracer || !run->id.has_trace)
        return;
    bool good = !lost && run->effect.state == STATE_SUCCESS;
    const struct log_field list[] = {
        LOG_TEXT("samekey.call_id", run->row.call_id),
        LOG_STRING("samekey.call_id_source", run->row.call_id_made ? "gateway" : "caller"),
        LOG_TEXT("samekey.key", run->row.key),
        LOG_TEXT("samekey.business_ref", run->row.business_ref),
        LOG_STRING("samekey.route", run->lane->s->name),
        LOG_STRING("samekey.state", lost ? "" : state_text(run->effect.state)),
        LOG_BOOL("samekey.final", !lost && run->effect.final),
        LOG_STRING("samekey.reason", lost ? "" : reason_text(run->effect.reason)),
        LOG_NUMBER("samekey.attempts", run->row.attempt_count),
        LOG_BOOL("samekey.resumed", run->resumed),
        LOG_TEXT("http.request.method", run->method),
        LOG_END,
    };
    struct span span = {
        .self = run->span,
        .kind = SPAN_SERVER,
        .verb = "call",
        .route = run->lane->s->name,
        .start_us = span_instant_us(run->begun_us),
        .end_us = span_now_us(),
        .error = good ? slice_of("", 0) : slice_text(lost ? lost : reason_sentence(run->effect.reason)),
        .list = list,
    };
    memcpy(span.parent, run->id.trace.parent_id, sizeof span.parent);
    tracer_add(run->shard->tracer, &span);
}
