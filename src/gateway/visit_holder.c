/* SPDX-License-Identifier: MIT */
#include "gateway/query.h"
#include "gateway/settle.h"
#include "gateway/visit_parts.h"

static void holder_settled(struct job *job)
{
    struct visit *visit = job->owner;
    if (visit->request)
        visit_ask_store(visit, true);
    job_free(job);
    visit_drop(visit);
}

static void holder_answered(void *owner, const struct receipt_reading *reading)
{
    struct job *job = owner; /* a STORE_END that waits for what it is to say */
    struct visit *visit = job->owner;
    bool success = reading->answer == RECEIPT_ANSWER_SUCCESS;
    visit->arrival.holder_asked = true;
    if (!success && reading->answer != RECEIPT_ANSWER_FAILED_FINAL) {
        if (visit->request)
            visit_ask_store(visit, true);
        job_free(job);
        visit_drop(visit);
        return;
    }
    row_settle(&job->op.row, visit->lane->s, reading, shard_store_now(visit->shard), &visit->arena);
    job->op.from_states = 1u << STATE_UNKNOWN;
    job->op.drop_kept = true;
    job_submit(job);
}

void visit_ask_holder(struct visit *visit, const struct rows *rows)
{
    visit_leave_admission(visit);
    if (visit->lane->s->receipt.kind == RECEIPT_NONE) {
        visit->arrival.holder_asked = true;
        visit_decide(visit, rows);
        return;
    }
    struct job *job = job_new(visit->shard, STORE_END, visit_hold(visit), holder_settled);
    if (!job) {
        visit_drop(visit);
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    job->op.row = rows->holder;
    job->op.id = rows->holder.id;
    job->op.fence = rows->holder.fence;
    (void)row_keep(&job->op.row, &visit->arena);
    struct buffer lines = {0};
    (void)query_principal_lines(&lines, visit->outlets->setup, &request_head(visit->request)->headers,
                                &visit->lane->s->receipt_header);
    const struct request_head *head = request_head(visit->request);
    struct query_ask ask = {
        .outlets = visit->outlets,
        .lane = visit->lane,
        .origin = visit->shard->index % visit->lane->origin_count,
        .call_id = job->op.row.call_id,
        .key = job->op.row.key,
        .tenant = job->op.row.tenant,
        .method = head->method,
        .target = head->target,
        .header_lines = buffer_view(&lines),
        .first_attempt_ms =
            job->op.row.first_attempt_ms ? job->op.row.first_attempt_ms : job->op.row.created_ms,
        .timeout_ms = visit->lane->s->receipt_timeout_ms,
    };
    ask.has_trace = span_context_of_row(&job->op.row, &ask.trace);
    struct query *query;
    enum status status = query_start(&query, visit->shard, &ask, holder_answered, job);
    buffer_fini(&lines);
    if (status != STATUS_OK) {
        job_free(job);
        visit_drop(visit);
        visit_store_failed(visit, STATUS_FULL);
    }
}
