/* SPDX-License-Identifier: MIT */
#include "gateway/endings.h"
#include "gateway/run_parts.h"
#include "gateway/settle.h"

#define RUN_END_RETRY_MS 500 /* an ending that could not be written is tried again after this */

/* The answer that the ending is stored with, and replayed by. */
static void set_result(struct run *run)
{
    struct call_row *row = &run->row;
    const struct reply *r = &run->reply;
    enum reason reason = run->effect.reason;
    if (row->state == STATE_UNKNOWN)
        return;
    if (reason == REASON_RECEIPT && run->has_result) {
        row->has_result = row->body_kept = true;
        row->result_status = run->result_status;
        row->result_headers = buffer_view(&run->result_lines);
        row->result_body = buffer_view(&run->result_body);
    } else if (reason == REASON_RECEIPT || reason == REASON_FENCED_AT_CALLEE) {
        if (row->state != STATE_SUCCESS)
            return;
        /* A bare receipt said so: our own document is the answer, frozen now. */
        row_freeze_document(row, run_store_now(run), &run->arena);
    } else if (r->head) {
        row->has_result = true;
        row->body_kept = !r->too_large;
        row->result_status = r->status;
        row->result_headers = buffer_view(&r->kept);
        row->result_body = r->too_large ? slice_of("", 0) : buffer_view(&r->body);
    }
}

static bool answer_is_own(const struct run *run)
{
    return run->effect.reason != REASON_RECEIPT && run->effect.reason != REASON_FENCED_AT_CALLEE &&
           run->reply.head;
}

static const char *open_detail(enum reason reason)
{
    return reason_sentence(reason);
}

/* The ending is on disk. */
static void tell_visit(struct run *run, const struct rows *rows)
{
    struct visit *visit = run->visit;
    if (!visit || !visit->request)
        return;
    const struct call_effect *fx = &run->effect;
    struct reply *r = &run->reply;
    if (r->streaming) {
        (void)visit_stream_write(visit, buffer_view(&r->held));
        visit_stream_end(visit);
        return;
    }
    if (fx->state == STATE_UNKNOWN) {
        visit_answer_problem(visit, PROBLEM_OUTCOME_UNKNOWN,
                             run->machine.sent ? "no answer proves how it ended, and no receipt could tell"
                                               : "its receipt still does not tell how it ended",
                             1000, rows, run->machine.sent > 0);
        return;
    }
    bool whole = answer_is_own(run) && !r->too_large;
    if (fx->state == STATE_FAILED && !fx->final) {
        if (whole && run->attempt_count &&
            run->attempts[run->attempt_count - 1].outcome == OUTCOME_NOT_EXECUTED &&
            fx->reason != REASON_BREAKER)
            visit_answer_first(visit, r->status, buffer_view(&r->lines), buffer_view(&r->body),
                               OUTCOME_NOT_EXECUTED);
        else
            visit_answer_problem(visit, PROBLEM_UPSTREAM_UNAVAILABLE, open_detail(fx->reason),
                                 fx->retry_in_ms > 0 ? fx->retry_in_ms : 1000, rows, false);
        return;
    }
    if (whole) {
        enum outcome outcome = fx->state == STATE_SUCCESS           ? OUTCOME_SUCCESS
                               : fx->reason == REASON_CALLEE_FAILED ? OUTCOME_FAILED
                                                                    : OUTCOME_REJECTED;
        visit_answer_first(visit, r->status, buffer_view(&r->lines), buffer_view(&r->body), outcome);
    } else {
        visit_answer_row(visit, rows, true, true);
    }
}

static void on_end_again(struct net_timer *timer)
{
    run_end(LIST_ENTRY(timer, struct run, timer));
}

static void difference_kept(struct job *job)
{
    job_free(job);
}

/* Somebody settled the call meanwhile, and our own attempt proves the opposite: neither is to be believed by a caller, and
 * the difference is a task for the rounds and a person. */
static void contradict(struct run *run, const struct rows *rows)
{
    const struct call_row *stands = &rows->call;
    enum call_state proved = run->effect.state;
    bool opposite =
        stands->id && ((proved == STATE_SUCCESS && stands->state == STATE_FAILED) ||
                       (proved == STATE_FAILED && run->effect.final && stands->state == STATE_SUCCESS));
    if (!opposite)
        return;
    log_event(run->shard->log, LOG_LEVEL_ERROR, clock_wall_ms(), run->id.call_id, "ending_contradicted",
              LOG_STRING("on_record", state_text(stands->state)), LOG_STRING("proved", state_text(proved)),
              LOG_STRING("reason", reason_text(stands->reason)), LOG_TEXT("key", run->row.key),
              LOG_STRING("route", run->lane->s->name), LOG_TEXT("trace_id", run->id.trace_id));
    struct job *job = job_new(run->shard, STORE_TASK, NULL, difference_kept);
    if (job) {
        job->op.id = stands->id;
        job->op.task_cause = TASK_CAUSE_CONTRADICTED;
        job->op.task_due_ms = run_store_now(run);
        job_submit(job);
    }
    struct rows told = *rows;
    told.call.state = STATE_UNKNOWN; /* whatever the record says: nobody is invited to run it again */
    told.call.final = false;
    if (run->visit && run->visit->request && !run->reply.streaming)
        visit_answer_problem(run->visit, PROBLEM_OUTCOME_UNKNOWN,
                             "the record and the service's answer contradict each other; a person must look",
                             1000, &told, true);
}

static void ended(struct job *job)
{
    struct run *run = job->owner;
    struct shard *shard = run->shard;
    enum status status = job->op.status;
    run->jobs--;
    if (status == STATUS_OK) {
        /* What is told from memory is what the store would tell. */
        run->row.ended_ms = run->row.updated_ms = job->op.rows.now_ms;
        run->covers_since_ms = job->op.rows.covers_since_ms;
    }
    if (status == STATUS_OK) {
        struct rows rows = run_rows(run);
        if (run->effect.final)
            endings_keep(shard, &rows);
        if (run->effect.state == STATE_UNKNOWN)
            metrics_add(shard->counts, METRIC_compensations, run->lane->series, 0, 1);
        log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), run->id.call_id, "call_ended",
                  LOG_STRING("state", state_text(run->effect.state)), LOG_BOOL("final", run->effect.final),
                  LOG_STRING("reason", reason_text(run->effect.reason)),
                  LOG_NUMBER("status", run->row.result_status),
                  LOG_NUMBER("attempts", run->row.attempt_count),
                  LOG_NUMBER("took_ms", run_now(run) - run->at_ms), LOG_TEXT("key", run->row.key),
                  LOG_STRING("route", run->lane->s->name), LOG_TEXT("trace_id", run->row.trace_id),
                  LOG_STRING("call_id_source", run->row.call_id_made ? "gateway" : "caller"));
        run_trace_end(run, NULL);
        if (run->visit)
            run->visit->run_ended = true;
        tell_visit(run, &rows);
        job_free(job);
        run_free(run);
        return;
    }
    if (status == STATUS_CONFLICT) {
        contradict(run, &job->op.rows);
        run_lose(run, &job->op.rows);
        job_free(job);
        return;
    }
    /* The ending is known and not on disk: nobody may rely on it. It is written as soon as the disk takes it. */
    metrics_add(shard->counts, METRIC_store_errors, 0, 0, 1);
    log_event(shard->log, LOG_LEVEL_ERROR, clock_wall_ms(), run->id.call_id, "ending_not_stored",
              LOG_STRING("state", state_text(run->effect.state)), LOG_TEXT("key", run->row.key),
              LOG_STRING("route", run->lane->s->name), LOG_TEXT("trace_id", run->id.trace_id));
    if (run->visit && run->visit->request) {
        if (run->reply.streaming)
            visit_stream_abort(run->visit);
        else
            visit_answer_problem(run->visit, PROBLEM_OUTCOME_UNKNOWN,
                                 "the ending could not be written to the store; ask its receipt", 1000, NULL,
                                 true);
    }
    run->reply.streaming = false;
    admission_leave(run->lane->admission, &run->pass, run_now(run));
    if (shard->draining) {
        job_free(job);
        run_free(run);
        return;
    }
    net_timer_arm(shard->loop, &run->timer, run_now(run) + RUN_END_RETRY_MS, on_end_again);
    job_free(job);
}

void run_end(struct run *run)
{
    struct call_row *row = &run->row;
    const struct call_effect *fx = &run->effect;
    run->ending = true;
    net_timer_disarm(run->shard->loop, &run->lease_timer);
    row->state = fx->state;
    row->final = fx->final;
    row->reason = fx->reason;
    if (run->reply.too_large && fx->state == STATE_SUCCESS && answer_is_own(run))
        row->reason = REASON_RESULT_TOO_LARGE;
    if (fx->reason == REASON_REJECTED && problem_about_other(reply_problem(&run->reply)))
        row->reason = REASON_BOUND_ELSEWHERE;
    row->maybe_ran = fx->state == STATE_UNKNOWN;
    run_encode_attempts(run);
    /* A clock that was set forward while the call ran must not end its life at once. */
    int64_t now = run_store_now(run), store = shard_store_now(run->shard);
    row_set_lives(row, run->lane->s, store > now ? store : now);
    set_result(run);
    struct job *job = run_owner_job(run, STORE_END, ended);
    if (!job) {
        net_timer_arm(run->shard->loop, &run->timer, run_now(run) + RUN_END_RETRY_MS, on_end_again);
        return;
    }
    /* A call that was UNKNOWN before has a compensation task, which its ending closes. */
    job->op.from_states = 1u << STATE_PROCESSING | (run->resumed ? 1u << STATE_UNKNOWN : 0);
    job->op.answer_only = fx->state == STATE_FAILED && !fx->final;
    bool compensate = fx->state == STATE_FAILED && fx->final &&
                      run->lane->s->on_failed == ON_FAILED_COMPENSATE && !row->reverses.len;
    job->op.make_task = fx->state == STATE_UNKNOWN || compensate;
    job->op.task_cause = compensate ? TASK_CAUSE_FAILED : TASK_CAUSE_UNKNOWN;
    job->op.task_due_ms = run_store_now(run) + run->lane->s->round_gap_ms;
    job->op.drop_kept = (run->lane->keeps_requests || row->reverses.len) && !compensate;
    job_submit(job);
}
