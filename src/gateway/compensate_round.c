/* SPDX-License-Identifier: MIT
 *
 * What a round does: asks the receipt, fences, sends, or begins a reversal.
 */
#include "gateway/compensate_parts.h"

#include "gateway/query.h"
#include "gateway/reversal.h"
#include "gateway/run.h"
#include "gateway/settle.h"
#include "gateway/span.h"

static void note(struct round *r, const char *what)
{
    if (r->asked.len)
        buffer_text(&r->asked, ", ");
    buffer_text(&r->asked, what);
}

/* ---- doing --------------------------------------------------------------------------------------------------- */

static void feed_answer(struct round *r, bool fence, enum receipt_answer answer)
{
    struct compensation_event event = {.type = fence ? COMPENSATION_EV_FENCED : COMPENSATION_EV_ANSWER,
                                       .answer = answer};
    r->answer = answer;
    r->answered = true;
    round_feed(r, &event);
}

static void receipt_answered(void *owner, const struct receipt_reading *reading)
{
    struct round *r = owner;
    enum receipt_answer answer = reading->answer;
    bool ends = answer == RECEIPT_ANSWER_SUCCESS || answer == RECEIPT_ANSWER_FAILED_FINAL;
    bool absent = answer == RECEIPT_ANSWER_NOT_RECEIVED || answer == RECEIPT_ANSWER_FAILED_OPEN;
    if (absent && !r->by_caller) {
        /* A callee that keeps its callers apart has looked among nobody's calls. */
        answer = RECEIPT_ANSWER_QUERY_FAILED;
        r->for_nobody = true;
    }
    if (ends) {
        r->end = r->call;
        r->has_end = true;
        row_drop_result(&r->end);
        row_settle(&r->end, r->lane->s, reading, r->store_now_ms, &r->arena);
    }
    feed_answer(r, r->effect.type == COMPENSATION_DO_FENCE, answer);
}

static void do_ask(struct round *r)
{
    bool fence = r->effect.type == COMPENSATION_DO_FENCE;
    struct buffer lines = {0};
    note(r, fence ? "fence" : "ask");
    r->by_caller = query_principal_kept(&lines, r->outlets->setup, r->kept.lines, &r->call,
                                        &r->lane->s->receipt_header) ||
                   r->lane->ledger; /* that one is asked for the tenant itself */
    struct query_ask ask = {
        .outlets = r->outlets,
        .lane = r->lane,
        /* Another node may know what the last one does not answer. */
        .origin = (size_t)r->task.round % r->lane->origin_count,
        .call_id = r->call.call_id,
        .key = r->call.key,
        .tenant = r->call.tenant,
        .header_lines = buffer_view(&lines),
        .first_attempt_ms = r->call.first_attempt_ms ? r->call.first_attempt_ms : r->call.created_ms,
        .timeout_ms = r->lane->s->receipt_timeout_ms,
        .fence = fence,
    };
    if (r->kept.target.len) {
        ask.method = r->kept.method;
        ask.target = r->kept.target;
    }
    ask.has_trace = span_context_of_row(&r->call, &ask.trace);
    struct query *query;
    enum status status = query_start(&query, r->c->shard, &ask, receipt_answered, r);
    buffer_fini(&lines);
    if (status != STATUS_OK)
        feed_answer(r, fence, RECEIPT_ANSWER_QUERY_FAILED);
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

static void feed_sent(struct round *r, const struct call_row *call)
{
    struct compensation_event event = {
        .type = COMPENSATION_EV_SENT, .state = call->state, .final = call->final};
    r->theirs = call->state;
    round_feed(r, &event);
}

static void sent_read(struct job *job)
{
    struct round *r = job->owner;
    struct call_row call = {.state = STATE_UNKNOWN};
    if (job->op.status == STATUS_OK && job->op.rows.call.id)
        call = job->op.rows.call;
    job_free(job);
    feed_sent(r, &call);
}

/* The run is over; the store knows how. */
static void run_over(void *owner)
{
    struct round *r = owner;
    struct job *job = r->c->shard->worker ? job_new(r->c->shard, STORE_READ, r, sent_read) : NULL;
    if (!job) {
        round_free(r); /* the lease ends the round */
        return;
    }
    job->op.id = r->call.id;
    job_submit(job);
}

/* The header lines of a reversal have no body to tell of. */
static struct slice lines_without_content(struct round *r)
{
    struct buffer out = {0};
    struct slice lines = r->kept.lines, kept = {0};
    while (lines.len) {
        const char *stop = memchr(lines.data, '\n', lines.len);
        size_t len = stop ? (size_t)(stop - lines.data) + 1 : lines.len;
        bool content = len > 8 && slice_is_nocase(slice_of(lines.data, 8), "Content-");
        if (!content)
            buffer_append(&out, lines.data, len);
        lines = slice_of(lines.data + len, lines.len - len);
    }
    (void)arena_copy(&r->arena, buffer_view(&out), &kept);
    buffer_fini(&out);
    return kept;
}

static void taken_to_send(struct job *job)
{
    struct round *r = job->owner;
    bool reversal = r->task.cause == TASK_CAUSE_REVERSAL;
    if (job->op.status != STATUS_OK || !job->op.done) {
        struct call_row stands = job->op.status == STATUS_OK ? job->op.rows.call : r->call;
        job_free(job);
        feed_sent(r, &stands);
        return;
    }
    struct run_alone ask = {
        .shard = r->c->shard,
        .outlets = r->outlets,
        .lane = r->lane,
        .method = r->kept.method,
        .target = r->kept.target,
        .lines = reversal ? lines_without_content(r) : r->kept.lines,
        .body = r->kept.body,
        .closed_age_ms = round_since(r->store_now_ms, r->call.updated_ms),
        .retries = reversal ? (int)r->lane->s->retries : 0,
        .over = run_over,
        .owner = r,
    };
    bool resumed = r->call.attempt_count > 0;
    if (!run_begin_alone(&ask, &job->op.rows, &job->op.memory, resumed)) {
        struct call_row stands = {.state = STATE_UNKNOWN};
        job_free(job);
        feed_sent(r, &stands);
        return;
    }
    job_free(job);
}

static void do_send(struct round *r)
{
    note(r, r->call.attempt_count ? "send again" : "send");
    struct job *job = job_new(r->c->shard, STORE_TAKE, r, taken_to_send);
    if (!job) {
        feed_sent(r, &r->call);
        return;
    }
    job->op.row = r->call;
    job->op.row.owner = slice_text(r->c->shard->owner);
    job->op.row.lease_end_ms = deadline_add(r->store_now_ms, r->lane->s->lease_ms);
    job->op.expect_call_id = r->call.id;
    job->op.expect_call_fence = r->call.fence;
    job->op.expect_holder_id = r->holder_id;
    job->op.expect_holder_fence = r->holder_fence;
    job_submit(job);
}

/* ---- the reversal of a FAILED call --------------------------------------------------------------------------- */

static void reversed(struct job *job)
{
    struct round *r = job->owner;
    if (job->op.status != STATUS_OK) {
        r->effect.status = TASK_MANUAL;
        r->effect.why = "fenced at the callee; the reversal could not be begun";
    } else if (!job->op.done && !job->op.rows.call.reversed_by.len) {
        r->effect.type = COMPENSATION_DO_CLOSE;
        r->effect.why = "fenced at the callee; another call has its key, and a reversal would undo that one";
    }
    job_free(job);
    round_write(r);
}

static void do_reverse(struct round *r)
{
    note(r, "reversal");
    struct job *job = job_new(r->c->shard, STORE_REVERSE, r, reversed);
    if (!job || reversal_row(&job->op.row, &r->call, r->lane, r->c->shard, &r->arena) != STATUS_OK) {
        job_free(job);
        r->effect.status = TASK_MANUAL;
        r->effect.why = "fenced at the callee; there was no memory to begin the reversal";
        round_write(r);
        return;
    }
    job->op.id = r->call.id;
    job->op.from_states = 1u << STATE_FAILED;
    job_submit(job);
}

void round_act(struct round *r)
{
    switch (r->effect.type) {
    case COMPENSATION_DO_ASK:
    case COMPENSATION_DO_FENCE:
        do_ask(r);
        break;
    case COMPENSATION_DO_SEND:
        do_send(r);
        break;
    case COMPENSATION_DO_REVERSE:
        do_reverse(r);
        break;
    case COMPENSATION_DO_SETTLE:
    case COMPENSATION_DO_WAIT:
    case COMPENSATION_DO_MANUAL:
    case COMPENSATION_DO_CLOSE:
        round_write(r);
        break;
    }
}

void round_feed(struct round *r, struct compensation_event *event)
{
    compensation_step(&r->machine, event, &r->effect);
    round_act(r);
}
