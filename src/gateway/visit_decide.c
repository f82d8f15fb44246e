/* SPDX-License-Identifier: MIT */
#include "gateway/endings.h"
#include "gateway/forward.h"
#include "gateway/run.h"
#include "gateway/visit_parts.h"

#define VISIT_ROUNDS_MAX 24 /* decisions about one request; each lost race costs one */

static void take(struct visit *visit, const struct rows *rows);

/* ---- waiting for another's run ------------------------------------------------------------------------------ */

void visit_unjoin(struct visit *visit)
{
    if (visit->watch) {
        struct job *watch = visit->watch;
        visit->watch = NULL;
        worker_cancel(visit->shard->worker, &watch->op);
    }
}

static void join_over(struct job *job)
{
    struct visit *visit = job->owner;
    struct rows rows = job->op.rows;
    bool current = visit->watch == job && visit->request && visit->phase == VISIT_JOINED;
    visit->watch = NULL;
    if (!current) {
        /* answered meanwhile, or its caller went */
    } else if (job->op.status == STATUS_FULL) {
        visit_answer_problem(
            visit, visit->joined_operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS,
            "too many wait for running calls", 1000, NULL, false);
    } else if (job->op.status != STATUS_OK) {
        visit_answer_problem(
            visit, visit->joined_operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS, NULL,
            1000, NULL, false);
    } else if (visit->joined_operation) {
        visit->phase = VISIT_DECIDING;
        /* Somebody waited for its ending and it is not known: asking once more for each who waits helps nobody. */
        if (rows.call.state == STATE_UNKNOWN) {
            struct rows told = {.holder = rows.call, .now_ms = rows.now_ms};
            visit_answer_problem(visit, PROBLEM_OUTCOME_UNKNOWN, state_sentence(STATE_UNKNOWN), 1000, &told,
                                 true);
        } else {
            metrics_add(visit->shard->counts, METRIC_joins, visit->lane->series, 0, 1);
            visit_ask_store(visit, true);
        }
    } else {
        metrics_add(visit->shard->counts, METRIC_joins, visit->lane->series, 0, 1);
        const struct call_row *row = &rows.call;
        if (row->state == STATE_FAILED && !row->final) {
            if (row->has_result && row->result_status)
                visit_answer_first(visit, row->result_status, row->result_headers, row->result_body,
                                   OUTCOME_NOT_EXECUTED);
            else
                visit_answer_problem(visit, PROBLEM_UPSTREAM_UNAVAILABLE, reason_sentence(row->reason), 1000,
                                     &rows, true);
        } else {
            visit_answer_row(visit, &rows, true, false);
        }
        endings_keep_near(visit->shard, &rows); /* who ended it has kept it for all */
    }
    job_free(job);
    visit_drop(visit);
}

static void join(struct visit *visit, const struct call_row *row, bool operation)
{
    int64_t now = visit_now(visit);
    visit_leave_admission(visit);
    if (visit->wait_end_ms == 0)
        visit->wait_end_ms = now + visit->lane->s->wait_in_progress_ms;
    int64_t until = visit->wait_end_ms < visit->budget_end_ms ? visit->wait_end_ms : visit->budget_end_ms;
    visit->joined_operation = operation;
    if (until <= now) {
        struct rows told = {0};
        if (operation)
            told.holder = *row;
        else
            told.call = *row;
        visit_answer_problem(visit, operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS,
                             NULL, 1000, &told, false);
        return;
    }
    struct job *job = job_new(visit->shard, STORE_WATCH, visit_hold(visit), join_over);
    if (!job) {
        visit_drop(visit);
        visit_answer_problem(visit, PROBLEM_OVERLOADED, NULL, 1000, NULL, false);
        return;
    }
    log_event(visit->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), visit->id.call_id, "joined",
              LOG_TEXT("running", row->call_id), LOG_TEXT("key", visit->id.key),
              LOG_STRING("route", visit->lane->s->name), LOG_TEXT("trace_id", visit->id.trace_id));
    job->op.id = row->id;
    visit->watch = job;
    visit->phase = VISIT_JOINED;
    net_timer_arm(visit->shard->loop, &visit->timer, until, visit_on_timer);
    job_submit(job);
}

/* ---- the store's word --------------------------------------------------------------------------------------- */

/* The store could not be asked, or could not write. Nothing was sent. */
void visit_store_failed(struct visit *visit, enum status status)
{
    visit_leave_admission(visit);
    metrics_add(visit->shard->counts, METRIC_store_errors, 0, 0, 1);
    if (status == STATUS_FULL)
        visit_answer_problem(visit, PROBLEM_OVERLOADED, "the store's queue is full; nothing was sent", 1000,
                             NULL, false);
    else if (status == STATUS_INVALID)
        visit_answer_problem(visit, PROBLEM_CALL_ID_INVALID,
                             "this id meets the digest of another; choose a new one", -1, NULL, false);
    else
        visit_answer_problem(
            visit, PROBLEM_STORE_UNAVAILABLE,
            "no durable claim could be written; nothing was sent, the same call may be sent again", 1000,
            NULL, false);
}

static void claimed(struct visit *visit, struct store_op *op, bool resumed)
{
    const struct rows *rows = &op->rows;
    if (rows->suspect.id && !resumed) {
        (void)arena_copy(&visit->arena, rows->suspect.call_id, &visit->suspect);
        metrics_add(visit->shard->counts, METRIC_swapped_keys, visit->lane->series, 0, 1);
        visit_note_suspicion(visit, visit->request, PROBLEM_SUSPECTED_DUPLICATE, &rows->suspect);
        log_event(visit->shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), visit->id.call_id,
                  "suspected_duplicate", LOG_TEXT("earlier", rows->suspect.call_id),
                  LOG_TEXT("key", visit->id.key), LOG_TEXT("earlier_key", rows->suspect.key),
                  LOG_STRING("route", visit->lane->s->name), LOG_TEXT("trace_id", visit->id.trace_id));
    }
    run_begin(visit, rows, &op->memory, resumed);
}

static void store_answered(struct job *job)
{
    struct visit *visit = job->owner;
    struct store_op *op = &job->op;
    if (op->status != STATUS_OK && op->status != STATUS_CONFLICT) {
        visit_store_failed(visit, op->status);
    } else if (op->done && op->kind == STORE_CLAIM) {
        /* rows.call of a won claim is what was asked for, with the store's numbers. */
        claimed(visit, op, false);
    } else if (op->done && op->kind == STORE_TAKE) {
        claimed(visit, op, op->expect_call_id != 0);
    } else if (op->done && op->kind == STORE_ATTACH) {
        endings_keep(visit->shard, &op->rows);
        visit_leave_admission(visit);
        visit_answer_row(visit, &op->rows, false, false);
    } else if (!visit->request) {
        visit_leave_admission(visit); /* its caller went before anything was begun */
    } else {
        visit_decide(visit, &op->rows);
    }
    job_free(job);
    visit_drop(visit);
}

/* The request as it would be sent, for a store that keeps it; its body only where it may be sent again, since a reversal is
 * rendered already. NULL: no memory, or nothing is kept on this route. */
static const struct kept_request *keep(struct visit *visit)
{
    struct kept_request *kept = &visit->kept;
    if (!visit->lane->keeps_requests || !visit->request)
        return NULL;
    if (kept->method.len)
        return kept;
    const struct request_head *head = request_head(visit->request);
    struct buffer lines = {0};
    forward_lines(&lines, visit->request, true);
    bool good = !lines.failed && arena_copy(&visit->arena, buffer_view(&lines), &kept->lines) &&
                arena_copy(&visit->arena, head->target, &kept->target) &&
                arena_copy(&visit->arena, head->method, &kept->method);
    buffer_fini(&lines);
    kept->has = visit->lane->s->still_wanted;
    if (kept->has)
        kept->body = buffer_view(&visit->body);
    kept->reversal = visit->id.reversal;
    return good ? kept : NULL;
}

static struct job *store_job(struct visit *visit, enum store_kind kind)
{
    struct job *job = job_new(visit->shard, kind, visit_hold(visit), store_answered);
    if (!job) {
        visit_drop(visit);
        visit_store_failed(visit, STATUS_FULL);
        return NULL;
    }
    identity_row(&visit->id, visit->lane, &visit->own_print, visit->shard->owner,
                 shard_store_now(visit->shard), visit->window_ms, &job->op.row);
    return job;
}

void visit_ask_store(struct visit *visit, bool peek)
{
    struct job *job = store_job(visit, STORE_CLAIM);
    if (!job)
        return;
    job->op.peek = peek;
    job->op.keep = peek ? NULL : keep(visit);
    job->op.want_suspect = visit->lane->s->swapped_keys != SWAPPED_KEYS_OFF && visit->id.has_key;
    job->op.block_suspect = visit->arrival.block_suspects;
    job->op.id_time_ms = visit->arrival.id_time_ms;
    visit->phase = VISIT_DECIDING;
    job_submit(job);
}

static void take(struct visit *visit, const struct rows *rows)
{
    struct job *job = store_job(visit, STORE_TAKE);
    if (!job)
        return;
    job->op.keep = keep(visit);
    job->op.expect_call_id = rows->call.id;
    job->op.expect_call_fence = rows->call.fence;
    job->op.expect_holder_id = rows->holder.id;
    job->op.expect_holder_fence = rows->holder.fence;
    job_submit(job);
}

static void attach(struct visit *visit, const struct rows *rows)
{
    struct job *job = store_job(visit, STORE_ATTACH);
    if (!job)
        return;
    job->op.row.attempt_count = 0;
    job->op.row.first_attempt_ms = 0;
    if (!arena_copy(&visit->arena, rows->holder.reversed_by, &job->op.row.reversed_by)) {
        job_free(job);
        visit_drop(visit);
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    job->op.expect_call_id = rows->call.id;
    job->op.expect_call_fence = rows->call.fence;
    job->op.expect_holder_id = rows->holder.id;
    job_submit(job);
}

/* The reversal's own state decides what is told of its operation. */
static void reversal_read(struct job *job)
{
    struct visit *visit = job->owner;
    if (job->op.status != STATUS_OK) {
        visit_store_failed(visit, job->op.status);
    } else if (visit->request) {
        const struct call_row *reversal = &job->op.rows.call;
        visit->arrival.reversal_read = true;
        /* Purged with its life over: it ended, or its task would have kept it. */
        visit->arrival.reversal = reversal->id ? reversal->state : STATE_SUCCESS;
        if (reversal->state == STATE_FAILED && !reversal->final)
            visit->arrival.reversal = STATE_PROCESSING; /* it is tried again */
        visit_ask_store(visit, true);
    }
    job_free(job);
    visit_drop(visit);
}

static void ask_reversal(struct visit *visit, const struct call_row *holder)
{
    struct job *job = job_new(visit->shard, STORE_LOOKUP, visit_hold(visit), reversal_read);
    struct slice call_id;
    if (!job || !arena_copy(&visit->arena, holder->reversed_by, &call_id)) {
        job_free(job);
        visit_drop(visit);
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    job->op.row.tenant = visit->id.tenant;
    job->op.row.call_id = call_id;
    job->op.row.call_digest = digest_call(&visit->shard->print.hasher, visit->id.tenant, call_id);
    job_submit(job);
}

/* ---- a place to work ---------------------------------------------------------------------------------------- */

static void place_came(struct letter *letter)
{
    struct waiter *waiter = LIST_ENTRY(letter, struct waiter, letter);
    struct visit *visit = LIST_ENTRY(waiter, struct visit, waiter);
    visit->queued = false;
    if (visit->phase == VISIT_QUEUED && visit->request) {
        visit->refusal =
            admission_pick(visit->lane->admission, visit_now(visit), &visit->pass, &visit->refusal_retry_ms);
        if (visit->refusal == ADMIT_YES) {
            visit_ask_store(visit, false);
        } else {
            visit_leave_admission(visit);
            visit_answer_problem(visit, PROBLEM_UPSTREAM_UNAVAILABLE, "the breaker of this service is open",
                                 visit->refusal_retry_ms, NULL, false);
        }
    } else if (visit->phase == VISIT_DECIDING && visit->request) {
        /* The store was asked meanwhile; the place is kept for its answer. */
        visit->refusal =
            admission_pick(visit->lane->admission, visit_now(visit), &visit->pass, &visit->refusal_retry_ms);
        if (visit->refusal != ADMIT_YES)
            admission_leave(visit->lane->admission, &visit->pass, visit_now(visit));
    } else {
        admission_leave(visit->lane->admission, &visit->pass, visit_now(visit));
    }
    visit_drop(visit);
}

void visit_enter_admission(struct visit *visit)
{
    visit->waiter.letter.open = place_came;
    visit->waiter.loop = visit->shard->loop;
    visit_hold(visit); /* the waiter's, if it must wait */
    visit->refusal = admission_enter(visit->lane->admission, visit->id.tenant, visit_now(visit), &visit->pass,
                                     &visit->waiter, !visit->asked_admission, &visit->refusal_retry_ms);
    visit->asked_admission = true;
    visit->queued = visit->refusal == ADMIT_WAIT;
    if (!visit->queued)
        visit_drop(visit);
}

/* The keeper says that this request is to be worked on: true when there is a place, else it was queued or refused. */
static bool have_place(struct visit *visit)
{
    if (visit->queued)
        visit->refusal = ADMIT_WAIT;
    else if (visit->refusal == ADMIT_YES && !visit->pass.place)
        visit_enter_admission(visit); /* had been given back while it waited for somebody else */
    switch (visit->refusal) {
    case ADMIT_YES:
        return true;
    case ADMIT_WAIT:
        visit->phase = VISIT_QUEUED;
        visit_arm_budget(visit);
        return false;
    case ADMIT_RATE:
        visit_answer_problem(visit, PROBLEM_RATE_LIMITED, NULL, visit->refusal_retry_ms, NULL, false);
        return false;
    case ADMIT_FULL:
        visit_answer_problem(visit, PROBLEM_OVERLOADED,
                             "all places are taken and the queue is full; nothing was sent",
                             visit->refusal_retry_ms, NULL, false);
        return false;
    case ADMIT_BREAKER:
        visit_answer_problem(visit, PROBLEM_UPSTREAM_UNAVAILABLE,
                             "the breaker of this service is open; nothing was sent", visit->refusal_retry_ms,
                             NULL, false);
        return false;
    }
    return false;
}

/* ---- the decision ------------------------------------------------------------------------------------------- */

static bool fingerprint_under(struct visit *visit, int version, struct slice rules_text, struct digest32 *out)
{
    struct fingerprint_rules rules = {0};
    struct canon_fault fault;
    if (fingerprint_rules_parse(&rules, rules_text) != STATUS_OK)
        return false;
    const struct request_head *head = request_head(visit->request);
    struct fingerprint_input in = {
        .method = head->method,
        .target = head->target,
        .content_type = headers_get(&head->headers, "Content-Type", NULL),
        .content_encoding = headers_get(&head->headers, "Content-Encoding", NULL),
        .body = buffer_view(&visit->body),
    };
    enum status status = fingerprint_make(&visit->shard->print, version, &rules, &in, out, &fault);
    fingerprint_rules_fini(&rules);
    return status == STATUS_OK;
}

void visit_decide(struct visit *visit, const struct rows *rows)
{
    struct verdict verdict;
    for (;;) {
        if (++visit->rounds > VISIT_ROUNDS_MAX) {
            visit_leave_admission(visit);
            visit_answer_problem(visit, PROBLEM_OPERATION_IN_PROGRESS, "others keep changing this operation",
                                 1000, rows, false);
            return;
        }
        keeper_arrive(&visit->arrival, rows, &verdict);
        if (verdict.verb != KEEPER_COMPARE_AGAIN)
            break;
        /* The first request was compared under other rules: so is this one. */
        if (!arena_copy(&visit->arena, verdict.compare_rules, &visit->arrival.fingerprint_rules) ||
            !fingerprint_under(visit, verdict.compare_version, verdict.compare_rules,
                               &visit->arrival.fingerprint)) {
            visit_leave_admission(visit);
            visit_answer_problem(visit, PROBLEM_STORE_UNAVAILABLE,
                                 "the stored fingerprint follows rules that this program does not know", 1000,
                                 NULL, false);
            return;
        }
        visit->arrival.fingerprint_version = verdict.compare_version;
    }
    switch (verdict.verb) {
    case KEEPER_CLAIM:
        if (have_place(visit))
            visit_ask_store(visit, false);
        break;
    case KEEPER_TAKE:
    case KEEPER_RESUME:
        if (have_place(visit))
            take(visit, rows);
        break;
    case KEEPER_REPLAY:
        visit_leave_admission(visit);
        endings_keep(visit->shard, rows);
        visit_answer_row(visit, rows, false, false);
        break;
    case KEEPER_ATTACH:
        visit_leave_admission(visit);
        attach(visit, rows);
        break;
    case KEEPER_JOIN_CALL:
        join(visit, &rows->call, false);
        break;
    case KEEPER_JOIN_OPERATION:
        join(visit, &rows->holder, true);
        break;
    case KEEPER_ASK_HOLDER:
        visit_ask_holder(visit, rows);
        break;
    case KEEPER_ASK_REVERSAL:
        visit_leave_admission(visit);
        ask_reversal(visit, &rows->holder);
        break;
    case KEEPER_REFUSE:
        visit_leave_admission(visit);
        visit_answer_problem(visit, verdict.problem, NULL,
                             verdict.problem == PROBLEM_OUTCOME_UNKNOWN ? 1000 : -1, rows, false);
        break;
    case KEEPER_COMPARE_AGAIN:
        break;
    }
}
