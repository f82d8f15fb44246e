/* SPDX-License-Identifier: MIT */
#include "gateway/visit.h"

#include "core/deadline.h"
#include "gateway/answer.h"
#include "gateway/query.h"
#include "gateway/run.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define VISIT_ARENA_BYTES_MAX (256u << 10) /* texts of one request's identity */
#define VISIT_ROUNDS_MAX      24           /* decisions about one request; each lost race costs one */

static void decide(struct visit *visit, const struct rows *rows);
static void ask_store(struct visit *visit, bool peek);

static struct visit *visit_hold(struct visit *visit)
{
    visit->holds++;
    return visit;
}

static void visit_drop(struct visit *visit)
{
    assert(visit->holds > 0);
    if (--visit->holds)
        return;
    struct shard *shard = visit->shard;
    net_timer_disarm(shard->loop, &visit->timer);
    admission_leave(visit->lane->admission, &visit->pass, net_loop_now(shard->loop));
    buffer_fini(&visit->body);
    arena_fini(&visit->arena);
    outlets_release(visit->outlets);
    shard->visits--;
    free(visit);
}

static int64_t now_of(const struct visit *visit)
{
    return net_loop_now(visit->shard->loop);
}

/* Gives back what was taken for a run that does not come to be. */
static void leave_admission(struct visit *visit)
{
    visit->refusal = ADMIT_YES; /* whoever needs a place again asks again */
    if (!visit->queued) {
        admission_leave(visit->lane->admission, &visit->pass, now_of(visit));
    } else if (admission_withdraw(visit->lane->admission, &visit->waiter)) {
        visit->queued = false;
        visit_drop(visit); /* the waiter's hold */
    }
}

/* ---- answers ------------------------------------------------------------------------------------------------ */

static void note_answer(struct visit *visit, int status, enum outcome outcome, const char *how)
{
    struct shard *shard = visit->shard;
    metrics_add(shard->counts, METRIC_calls, visit->lane->series, (size_t)outcome, 1);
    metrics_observe(shard->counts, METRIC_request_seconds,
                    (double)(clock_monotonic_us() - visit->came_us) / 1e6);
    log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), visit->id.call_id, "answered",
              LOG_STRING("how", how), LOG_STRING("outcome", outcome_json(outcome)),
              LOG_NUMBER("status", status), LOG_TEXT("key", visit->id.key),
              LOG_STRING("route", visit->lane->s->name), LOG_TEXT("trace_id", visit->id.trace_id),
              LOG_STRING("call_id_source", visit->id.call_id_made ? "gateway" : "caller"));
}

static struct answer_facts own_facts(const struct visit *visit, enum outcome outcome)
{
    return (struct answer_facts){
        .call_id = visit->id.call_id,
        .call_id_made = visit->id.call_id_made,
        .outcome = outcome,
        .suspect = visit->suspect,
        .expose = visit->lane->s->expose_headers,
    };
}

/* Whether there is still somebody to answer; from here on there is not. */
static struct request *take_request(struct visit *visit)
{
    struct request *request = visit->request;
    visit->request = NULL;
    visit->phase = VISIT_ANSWERED;
    net_timer_disarm(visit->shard->loop, &visit->timer);
    return request;
}

void visit_answer_first(struct visit *visit, int status, struct slice lines, struct slice body,
                        enum outcome outcome)
{
    struct request *request = take_request(visit);
    if (!request)
        return;
    struct buffer head = {0};
    buffer_slice(&head, lines);
    struct answer_facts facts = own_facts(visit, outcome);
    answer_own_lines(&head, &facts);
    note_answer(visit, status, outcome, "upstream");
    request_answer(request, status, buffer_view(&head), body);
    buffer_fini(&head);
}

void visit_stream_begin(struct visit *visit, int status, struct slice lines, int64_t content_length,
                        enum outcome outcome)
{
    if (!visit->request)
        return;
    struct buffer head = {0};
    buffer_slice(&head, lines);
    struct answer_facts facts = own_facts(visit, outcome);
    answer_own_lines(&head, &facts);
    net_timer_disarm(visit->shard->loop, &visit->timer);
    note_answer(visit, status, outcome, "streamed");
    request_begin(visit->request, status, NULL, buffer_view(&head), content_length, true);
    buffer_fini(&head);
}

bool visit_stream_write(struct visit *visit, struct slice piece)
{
    return visit->request ? request_write(visit->request, piece) : true;
}

void visit_stream_end(struct visit *visit)
{
    struct request *request = take_request(visit);
    if (request)
        request_end(request);
}

void visit_stream_abort(struct visit *visit)
{
    struct request *request = take_request(visit);
    if (request)
        request_abort(request);
}

void problem_answer(struct request *request, enum problem problem, const struct problem_facts *facts,
                    const struct answer_facts *own)
{
    struct buffer lines = {0}, body = {0};
    buffer_text(&lines, "Content-Type: application/problem+json\r\n");
    if (facts->retry_after_s >= 0) {
        buffer_text(&lines, "Retry-After: ");
        buffer_number(&lines, facts->retry_after_s);
        buffer_text(&lines, "\r\n");
    }
    answer_own_lines(&lines, own);
    problem_document(&body, problem, facts);
    request_answer(request, problem_answer_status(problem, facts), buffer_view(&lines), buffer_view(&body));
    buffer_fini(&lines);
    buffer_fini(&body);
}

/* What a caller should do next when nothing else tells. */
static enum next_action next_for(enum problem problem)
{
    switch (problem) {
    case PROBLEM_CALL_IN_PROGRESS:
    case PROBLEM_OPERATION_IN_PROGRESS:
    case PROBLEM_OUTCOME_UNKNOWN:
        return NEXT_QUERY_RECEIPT;
    case PROBLEM_RATE_LIMITED:
    case PROBLEM_OVERLOADED:
    case PROBLEM_UPSTREAM_UNAVAILABLE:
    case PROBLEM_STORE_UNAVAILABLE:
        return NEXT_RETRY_SAME_CALL;
    case PROBLEM_RESULT_NOT_KEPT:
    case PROBLEM_CALL_FAILED:
    case PROBLEM_CALL_FENCED:
    case PROBLEM_OPERATION_REVERSED:
        return NEXT_NONE;
    case PROBLEM_CREDENTIAL_MISMATCH:
        return NEXT_ASK_OPERATOR;
    default:
        return NEXT_FIX_REQUEST;
    }
}

void visit_answer_problem(struct visit *visit, enum problem problem, const char *detail, int64_t retry_ms,
                          const struct rows *rows, bool waited)
{
    struct problem_facts facts = {
        .detail = slice_text(detail),
        .call_id = visit->id.call_id,
        .state = STATE_NOT_RECEIVED,
        .next = next_for(problem),
        .retry_after_s = -1,
        .waited = waited,
    };
    enum outcome outcome = problem_outcome(problem);
    bool show = problem != PROBLEM_CREDENTIAL_MISMATCH;
    if (rows && rows->call.id && show) {
        struct standing standing;
        receipt_standing(rows, &standing);
        facts.state = standing.state;
        facts.safe_new_key = standing.safe_new_key;
        facts.with_receipt = true;
        facts.original_call_id = rows->call.original_call_id;
        if (problem == PROBLEM_CALL_FAILED || problem == PROBLEM_CALL_FENCED)
            facts.next = NEXT_NONE;
    } else if (rows && rows->holder.id && show && problem_about_other(problem)) {
        facts.original_call_id = rows->holder.call_id;
    } else if (rows && rows->holder.id && show &&
               (problem == PROBLEM_OPERATION_IN_PROGRESS || problem == PROBLEM_OUTCOME_UNKNOWN)) {
        facts.original_call_id = rows->holder.call_id;
        facts.state = rows->holder.state;
    } else if (rows && rows->suspect.id && problem == PROBLEM_SUSPECTED_DUPLICATE) {
        facts.original_call_id = rows->suspect.call_id;
    }
    if (problem == PROBLEM_CALL_IN_PROGRESS && facts.state == STATE_NOT_RECEIVED) {
        facts.state = STATE_PROCESSING;
        facts.with_receipt = true;
    }
    if (problem == PROBLEM_CREDENTIAL_MISMATCH)
        facts.state = STATE_UNKNOWN;
    if (retry_ms >= 0)
        facts.retry_after_s = (retry_ms + 999) / 1000 > 0 ? (retry_ms + 999) / 1000 : 1;
    struct request *request = take_request(visit);
    if (!request)
        return;
    struct answer_facts own = own_facts(visit, outcome);
    own.original = facts.original_call_id;
    if (problem == PROBLEM_CALL_ID_REUSED || problem == PROBLEM_SUSPECTED_DUPLICATE ||
        problem == PROBLEM_KEY_REUSED)
        metrics_add(visit->shard->counts, METRIC_swapped_keys, visit->lane->series, 0, 1);
    metrics_add(visit->shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    note_answer(visit, problem_answer_status(problem, &facts), outcome, problem_slug(problem));
    problem_answer(request, problem, &facts, &own);
}

void visit_answer_row(struct visit *visit, const struct rows *rows, bool waited, bool first)
{
    const struct call_row *row = &rows->call;
    enum problem problem = keeper_replay_problem(row);
    if (problem == PROBLEM_OUTCOME_UNKNOWN || problem == PROBLEM_CALL_IN_PROGRESS) {
        visit_answer_problem(visit, problem, state_sentence(row->state), 1000, rows, waited);
        return;
    }
    if (problem != PROBLEM_NONE) {
        visit_answer_problem(visit, problem, reason_sentence(row->reason), -1, rows, waited);
        return;
    }
    struct request *request = take_request(visit);
    if (!request)
        return;
    enum outcome outcome = row->state == STATE_SUCCESS           ? OUTCOME_SUCCESS
                           : row->reason == REASON_CALLEE_FAILED ? OUTCOME_FAILED
                           : row->reason == REASON_REJECTED      ? OUTCOME_REJECTED
                                                                 : OUTCOME_FAILED;
    struct answer_facts own = own_facts(visit, outcome);
    own.replayed = !first;
    own.original = row->original_call_id;
    struct buffer lines = {0};
    buffer_slice(&lines, row->result_headers);
    answer_own_lines(&lines, &own);
    if (own.replayed)
        metrics_add(visit->shard->counts, METRIC_replays, visit->lane->series, 0, 1);
    note_answer(visit, row->result_status, outcome, own.replayed ? "replay" : "receipt");
    request_answer(request, row->result_status, buffer_view(&lines), row->result_body);
    buffer_fini(&lines);
}

/* ---- waiting for another's run ------------------------------------------------------------------------------ */

static void unjoin(struct visit *visit)
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
            ask_store(visit, true);
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
        cache_put(visit->shard->cache, &rows, now_of(visit));
    }
    job_free(job);
    visit_drop(visit);
}

static void on_timer(struct net_timer *timer);

static void join(struct visit *visit, const struct call_row *row, bool operation)
{
    int64_t now = now_of(visit);
    leave_admission(visit);
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
              LOG_TEXT("running", row->call_id), LOG_STRING("route", visit->lane->s->name));
    job->op.id = row->id;
    visit->watch = job;
    visit->phase = VISIT_JOINED;
    net_timer_arm(visit->shard->loop, &visit->timer, until, on_timer);
    job_submit(job);
}

/* ---- the store's word --------------------------------------------------------------------------------------- */

/* The call's row as it is to be written by a claim, a take or an attachment. */
static void fill_row(const struct visit *visit, struct call_row *row)
{
    const struct identity *id = &visit->id;
    *row = (struct call_row){
        .call_digest = id->call_digest,
        .operation_digest = id->operation,
        .has_key = id->has_key,
        .call_id_made = id->call_id_made,
        .tenant = id->tenant,
        .route = id->route,
        .scope = id->scope,
        .call_id = id->call_id,
        .key = id->key,
        .key_spelling = id->key_spelling,
        .business_ref = id->business_ref,
        .trace_id = id->trace_id,
        .has_credential = id->has_credential,
        .credential = id->credential,
        .has_fingerprint = true,
        .fingerprint = visit->arrival.fingerprint,
        .fingerprint_version = FINGERPRINT_VERSION,
        .fingerprint_rules = fingerprint_rules_text(&visit->lane->rules),
        .state = STATE_PROCESSING,
        .proof = visit->lane->proof,
        .owner = slice_text(visit->shard->owner),
        .fence = 1,
        .attempt_count = 1,
        .window_ms = visit->window_ms,
        .result_expires_ms = INT64_MAX,
        .key_expires_ms = INT64_MAX,
        .tombstone_expires_ms = INT64_MAX,
    };
    row->lease_end_ms = clock_wall_ms() + visit->lane->s->lease_ms;
    row->first_attempt_ms = clock_wall_ms();
}

/* The store could not be asked, or could not write. Nothing was sent. */
static void store_failed(struct visit *visit, enum status status)
{
    leave_admission(visit);
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

static void claimed(struct visit *visit, const struct rows *rows, bool resumed)
{
    if (rows->suspect.id && !resumed) {
        (void)arena_copy(&visit->arena, rows->suspect.call_id, &visit->suspect);
        metrics_add(visit->shard->counts, METRIC_swapped_keys, visit->lane->series, 0, 1);
        log_event(visit->shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), visit->id.call_id,
                  "suspected_duplicate", LOG_TEXT("earlier", rows->suspect.call_id),
                  LOG_TEXT("key", visit->id.key), LOG_TEXT("earlier_key", rows->suspect.key),
                  LOG_STRING("route", visit->lane->s->name));
    }
    run_begin(visit, &rows->call, rows->now_ms, rows->covers_since_ms, resumed);
}

static void store_answered(struct job *job)
{
    struct visit *visit = job->owner;
    struct store_op *op = &job->op;
    if (op->status != STATUS_OK && op->status != STATUS_CONFLICT) {
        store_failed(visit, op->status);
    } else if (op->done && op->kind == STORE_CLAIM) {
        /* rows.call of a won claim is what was asked for, with the store's numbers. */
        claimed(visit, &op->rows, false);
    } else if (op->done && op->kind == STORE_TAKE) {
        claimed(visit, &op->rows, op->expect_call_id != 0);
    } else if (op->done && op->kind == STORE_ATTACH) {
        cache_put(visit->shard->cache, &op->rows, now_of(visit));
        leave_admission(visit);
        visit_answer_row(visit, &op->rows, false, false);
    } else if (!visit->request) {
        leave_admission(visit); /* its caller went before anything was begun */
    } else {
        decide(visit, &op->rows);
    }
    job_free(job);
    visit_drop(visit);
}

static struct job *store_job(struct visit *visit, enum store_kind kind)
{
    struct job *job = job_new(visit->shard, kind, visit_hold(visit), store_answered);
    if (!job) {
        visit_drop(visit);
        store_failed(visit, STATUS_FULL);
        return NULL;
    }
    fill_row(visit, &job->op.row);
    return job;
}

static void ask_store(struct visit *visit, bool peek)
{
    struct job *job = store_job(visit, STORE_CLAIM);
    if (!job)
        return;
    job->op.peek = peek;
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
    job->op.expect_call_id = rows->call.id;
    job->op.expect_call_fence = rows->call.fence;
    job->op.expect_holder_id = rows->holder.id;
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
            admission_pick(visit->lane->admission, now_of(visit), &visit->pass, &visit->refusal_retry_ms);
        if (visit->refusal == ADMIT_YES) {
            ask_store(visit, false);
        } else {
            leave_admission(visit);
            visit_answer_problem(visit, PROBLEM_UPSTREAM_UNAVAILABLE, "the breaker of this service is open",
                                 visit->refusal_retry_ms, NULL, false);
        }
    } else if (visit->phase == VISIT_DECIDING && visit->request) {
        /* The store was asked meanwhile; the place is kept for its answer. */
        visit->refusal =
            admission_pick(visit->lane->admission, now_of(visit), &visit->pass, &visit->refusal_retry_ms);
        if (visit->refusal != ADMIT_YES)
            admission_leave(visit->lane->admission, &visit->pass, now_of(visit));
    } else {
        admission_leave(visit->lane->admission, &visit->pass, now_of(visit));
    }
    visit_drop(visit);
}

static void enter_admission(struct visit *visit)
{
    visit->waiter.letter.open = place_came;
    visit->waiter.loop = visit->shard->loop;
    visit_hold(visit); /* the waiter's, if it must wait */
    visit->refusal = admission_enter(visit->lane->admission, visit->id.tenant, now_of(visit), &visit->pass,
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
        enter_admission(visit); /* had been given back while it waited for somebody else */
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

/* ---- the holder's receipt ----------------------------------------------------------------------------------- */

static void holder_settled(struct job *job)
{
    struct visit *visit = job->owner;
    if (visit->request)
        ask_store(visit, true);
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
            ask_store(visit, true);
        job_free(job);
        visit_drop(visit);
        return;
    }
    const struct route_settings *s = visit->lane->s;
    struct call_row *row = &job->op.row;
    int64_t now = clock_wall_ms();
    row->state = success ? STATE_SUCCESS : STATE_FAILED;
    row->final = true;
    row->reason = REASON_RECEIPT;
    row->result_expires_ms = deadline_add(now, s->result_life_ms);
    row->key_expires_ms = deadline_add(now, s->key_life_ms);
    row->tombstone_expires_ms = deadline_add(now, s->tombstone_life_ms);
    if (reading->has_result) {
        row->has_result = true;
        row->body_kept = true;
        row->result_status = reading->result_status;
        (void)arena_copy(&visit->arena, buffer_view(&reading->result_headers), &row->result_headers);
        (void)arena_copy(&visit->arena, buffer_view(&reading->result_body), &row->result_body);
        if ((reading->result_body.len && !row->result_body.len) ||
            (reading->result_headers.len && !row->result_headers.len))
            row->body_kept = false; /* too large for a visit's memory: done, and not kept */
    } else if (success) {
        /* Frozen now: the receipt itself is the answer from here on. */
        struct rows told = {.call = *row, .now_ms = now};
        struct buffer document = {0};
        receipt_document(&document, &told, row->call_id);
        row->has_result = row->body_kept = true;
        row->result_status = 200;
        row->result_headers = slice_text("Content-Type: application/json\r\n");
        (void)arena_copy(&visit->arena, buffer_view(&document), &row->result_body);
        buffer_fini(&document);
    }
    job->op.from_states = 1u << STATE_UNKNOWN;
    job_submit(job);
}

/* Copies the texts of a row that outlive the operation that read it. */
static void keep_row(struct visit *visit, struct call_row *row)
{
    struct slice *texts[] = {
        &row->tenant,       &row->route,    &row->scope,        &row->call_id,  &row->key,
        &row->business_ref, &row->trace_id, &row->key_spelling, &row->attempts, &row->fingerprint_rules};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!arena_copy(&visit->arena, *texts[i], texts[i]))
            *texts[i] = (struct slice){0};
    }
    row->owner = row->result_headers = row->result_body = row->original_call_id = (struct slice){0};
    row->reverses = row->reversed_by = (struct slice){0};
}

static void ask_holder(struct visit *visit, const struct rows *rows)
{
    leave_admission(visit);
    if (visit->lane->s->receipt.kind == RECEIPT_NONE) {
        visit->arrival.holder_asked = true;
        decide(visit, rows);
        return;
    }
    struct job *job = job_new(visit->shard, STORE_END, visit_hold(visit), holder_settled);
    if (!job) {
        visit_drop(visit);
        store_failed(visit, STATUS_FULL);
        return;
    }
    job->op.row = rows->holder;
    job->op.id = rows->holder.id;
    job->op.fence = rows->holder.fence;
    keep_row(visit, &job->op.row);
    struct buffer lines = {0};
    query_principal_lines(&lines, visit->outlets->setup, &request_head(visit->request)->headers);
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
    struct query *query;
    enum status status = query_start(&query, visit->shard, &ask, holder_answered, job);
    buffer_fini(&lines);
    if (status != STATUS_OK) {
        job_free(job);
        visit_drop(visit);
        store_failed(visit, STATUS_FULL);
    }
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

static void decide(struct visit *visit, const struct rows *rows)
{
    struct verdict verdict;
    for (;;) {
        if (++visit->rounds > VISIT_ROUNDS_MAX) {
            leave_admission(visit);
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
            leave_admission(visit);
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
            ask_store(visit, false);
        break;
    case KEEPER_TAKE:
    case KEEPER_RESUME:
        if (have_place(visit))
            take(visit, rows);
        break;
    case KEEPER_REPLAY:
        leave_admission(visit);
        cache_put(visit->shard->cache, rows, now_of(visit));
        visit_answer_row(visit, rows, false, false);
        break;
    case KEEPER_ATTACH:
        leave_admission(visit);
        attach(visit, rows);
        break;
    case KEEPER_JOIN_CALL:
        join(visit, &rows->call, false);
        break;
    case KEEPER_JOIN_OPERATION:
        join(visit, &rows->holder, true);
        break;
    case KEEPER_ASK_HOLDER:
        ask_holder(visit, rows);
        break;
    case KEEPER_REFUSE:
        leave_admission(visit);
        visit_answer_problem(visit, verdict.problem, NULL,
                             verdict.problem == PROBLEM_OUTCOME_UNKNOWN ? 1000 : -1, rows, false);
        break;
    case KEEPER_COMPARE_AGAIN:
        break;
    }
}

/* ---- arrival ------------------------------------------------------------------------------------------------ */

static void refuse_arrival(struct visit *visit, enum problem problem)
{
    char detail[512];
    const struct identity *id = &visit->id;
    if (id->where.len)
        snprintf(detail, sizeof detail, "%s: {%.*s}", id->why ? id->why : "missing", (int)id->where.len,
                 id->where.data);
    else
        snprintf(detail, sizeof detail, "%s", id->why ? id->why : "");
    /* A callId that breaks the rules is not echoed. */
    if (problem == PROBLEM_CALL_ID_INVALID)
        visit->id.call_id = (struct slice){0};
    visit_answer_problem(visit, problem, detail, -1, NULL, false);
}

static struct identity_inputs inputs_of(struct visit *visit)
{
    return (struct identity_inputs){
        .setup = visit->outlets->setup,
        .lane = visit->lane,
        .match = &visit->match,
        .head = request_head(visit->request),
        .body = buffer_view(&visit->body),
        .hasher = &visit->shard->print.hasher,
        .arena = &visit->arena,
    };
}

/* Everything is known: the cache is looked at, then the store is asked. */
static void arrive(struct visit *visit)
{
    struct identity *id = &visit->id;
    struct shard *shard = visit->shard;
    if (!id->call_id.len) {
        char made[CALLID_BYTES_MAX + 1];
        size_t len = callid_make(shard->ids, clock_wall_ms(), made);
        if (!arena_copy(&visit->arena, slice_of(made, len), &id->call_id)) {
            store_failed(visit, STATUS_FULL);
            return;
        }
        id->call_id_made = true;
    }
    identity_digest(id, &shard->print.hasher);
    visit->arrival = (struct arrival){
        .has_key = id->has_key,
        .operation = id->operation,
        .has_credential = id->has_credential,
        .credential = id->credential,
        .scope = id->scope,
        .fingerprint = visit->arrival.fingerprint,
        .fingerprint_version = FINGERPRINT_VERSION,
        .fingerprint_rules = fingerprint_rules_text(&visit->lane->rules),
        .call_id_made = id->call_id_made,
        .id_time_ms = id->call_id_made ? 0 : id->id_time_ms,
        .block_suspects = visit->lane->s->swapped_keys == SWAPPED_KEYS_BLOCK,
    };
    visit->phase = VISIT_DECIDING;
    struct rows rows;
    if (!id->call_id_made && cache_get(shard->cache, &id->call_digest, now_of(visit), &rows)) {
        struct verdict verdict;
        keeper_arrive(&visit->arrival, &rows, &verdict);
        if (verdict.verb == KEEPER_REPLAY && keeper_replay_problem(&rows.call) == PROBLEM_NONE) {
            visit_answer_row(visit, &rows, false, false);
            return;
        }
    }
    enter_admission(visit);
    ask_store(visit, visit->refusal != ADMIT_YES);
}

static void read_body_identity(struct visit *visit)
{
    struct identity_inputs in = inputs_of(visit);
    enum problem problem = identity_read_body(&visit->id, &in, visit->window_ms);
    if (problem)
        refuse_arrival(visit, problem);
    else
        arrive(visit);
}

/* A key with a time window: a known callId keeps the window of its first claim. */
static void window_answered(struct job *job)
{
    struct visit *visit = job->owner;
    if (!visit->request) {
        /* gone */
    } else if (job->op.status != STATUS_OK) {
        store_failed(visit, job->op.status);
    } else {
        if (job->op.rows.call.id && job->op.rows.call.window_ms)
            visit->window_ms = job->op.rows.call.window_ms;
        read_body_identity(visit);
    }
    job_free(job);
    visit_drop(visit);
}

static void ask_window(struct visit *visit)
{
    struct job *job = job_new(visit->shard, STORE_LOOKUP, visit_hold(visit), window_answered);
    if (!job) {
        visit_drop(visit);
        store_failed(visit, STATUS_FULL);
        return;
    }
    job->op.row.call_digest = digest_call(&visit->shard->print.hasher, visit->id.tenant, visit->id.call_id);
    job->op.row.tenant = visit->id.tenant;
    job->op.row.call_id = visit->id.call_id;
    visit->phase = VISIT_DECIDING;
    job_submit(job);
}

static void on_body_end(struct guest *guest)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    if (visit->phase != VISIT_READING || !visit->request)
        return;
    if (visit->body.failed) {
        store_failed(visit, STATUS_FULL);
        return;
    }
    visit->came_us = clock_monotonic_us();
    const struct request_head *head = request_head(visit->request);
    struct fingerprint_input in = {
        .method = head->method,
        .target = head->target,
        .content_type = headers_get(&head->headers, "Content-Type", NULL),
        .content_encoding = headers_get(&head->headers, "Content-Encoding", NULL),
        .body = buffer_view(&visit->body),
    };
    struct canon_fault fault = {0};
    enum status status = fingerprint_make(&visit->shard->print, FINGERPRINT_VERSION, &visit->lane->rules, &in,
                                          &visit->arrival.fingerprint, &fault);
    if (status == STATUS_INVALID || status == STATUS_FULL) {
        char detail[256];
        if (status == STATUS_FULL)
            snprintf(detail, sizeof detail, "the JSON body is larger than can be compared");
        else
            snprintf(detail, sizeof detail, "at byte %zu: %s", fault.position, fault.message);
        visit_answer_problem(visit, PROBLEM_BODY_INVALID, detail, -1, NULL, false);
        return;
    }
    if (status != STATUS_OK) {
        store_failed(visit, STATUS_FULL);
        return;
    }
    visit->window_ms = clock_wall_ms();
    bool windowed = !visit->lane->key_in_header && template_has_window(&visit->lane->key);
    if (windowed && visit->lane->call_id_in_header && visit->id.call_id.len)
        ask_window(visit);
    else
        read_body_identity(visit);
}

static void on_body(struct guest *guest, struct slice piece)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    if (visit->phase != VISIT_READING || !visit->request)
        return;
    if (piece.len > (size_t)visit->lane->s->body_bytes_max - visit->body.len) {
        char detail[128];
        snprintf(detail, sizeof detail, "body_bytes_max of this route is %lld",
                 (long long)visit->lane->s->body_bytes_max);
        visit_answer_problem(visit, PROBLEM_BODY_TOO_LARGE, detail, -1, NULL, false);
        return;
    }
    buffer_slice(&visit->body, piece);
}

void visit_arm_budget(struct visit *visit)
{
    if (visit->budget_end_ms != INT64_MAX)
        net_timer_arm(visit->shard->loop, &visit->timer, visit->budget_end_ms, on_timer);
}

static void on_drain(struct guest *guest)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    if (visit->run)
        run_drain(visit->run);
}

void visit_unlink_run(struct visit *visit)
{
    visit->run = NULL;
    visit_drop(visit);
}

static void on_finished(struct guest *guest, bool gone)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    (void)gone;
    visit->request = NULL;
    net_timer_disarm(visit->shard->loop, &visit->timer);
    unjoin(visit);
    if (visit->phase == VISIT_QUEUED)
        leave_admission(visit);
    if (visit->run)
        run_unlink_visit(visit->run);
    visit->phase = VISIT_ANSWERED;
    visit_drop(visit);
}

/* The caller's patience is over: for a running call of another, or with its own budget. */
static void on_timer(struct net_timer *timer)
{
    struct visit *visit = LIST_ENTRY(timer, struct visit, timer);
    if (!visit->request)
        return;
    bool budget = now_of(visit) >= visit->budget_end_ms;
    switch (visit->phase) {
    case VISIT_JOINED:
        visit_hold(visit);
        unjoin(visit);
        visit_answer_problem(
            visit, visit->joined_operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS, NULL,
            1000, NULL, budget);
        visit_drop(visit);
        break;
    case VISIT_RUNNING:
        visit_hold(visit);
        visit_answer_problem(visit, PROBLEM_CALL_IN_PROGRESS,
                             "the caller's budget is over; the call goes on, and its receipt will tell", 1000,
                             NULL, true);
        visit_drop(visit);
        break;
    case VISIT_QUEUED:
        visit_hold(visit);
        leave_admission(visit);
        visit_answer_problem(visit, PROBLEM_OVERLOADED,
                             "no place came within the caller's budget; nothing was sent", 1000, NULL, false);
        visit_drop(visit);
        break;
    case VISIT_READING:
    case VISIT_DECIDING:
    case VISIT_ANSWERED:
        break;
    }
}

/* Features that do not exist yet are refused by name, and never run at once by mistake. */
static const char *not_available(const struct headers *headers)
{
    bool found;
    if (headers_has_token(headers, "Prefer", "respond-async"))
        return "Prefer: respond-async is not available yet; nothing was run";
    (void)headers_get(headers, "X-Call-Not-Before", &found);
    if (found)
        return "X-Call-Not-Before is not available yet; nothing was run";
    (void)headers_get(headers, "X-Call-Notify", &found);
    return found ? "X-Call-Notify is not available yet; nothing was run" : NULL;
}

void visit_begin(struct shard *shard, struct request *request, const struct lane *lane,
                 const struct route_match *match)
{
    const struct request_head *head = request_head(request);
    struct visit *visit = calloc(1, sizeof *visit);
    if (!visit) {
        request_abort(request);
        return;
    }
    visit->shard = shard;
    visit->outlets = outlets_hold(shard->outlets);
    visit->lane = lane;
    visit->request = request;
    visit->match = *match;
    visit->phase = VISIT_READING;
    visit->holds = 1; /* the request's, until visit_finished() */
    visit->came_ms = net_loop_now(shard->loop);
    visit->came_us = clock_monotonic_us();
    visit->budget_end_ms = INT64_MAX;
    arena_init(&visit->arena, VISIT_ARENA_BYTES_MAX);
    shard->visits++;
    visit->guest = (struct guest){on_body, on_body_end, on_drain, on_finished};
    request_set_user(request, &visit->guest);
    metrics_add(shard->counts, METRIC_requests, lane->series, 0, 1);

    struct identity_inputs in = inputs_of(visit);
    enum problem problem = identity_read_head(&visit->id, &in);
    if (problem) {
        refuse_arrival(visit, problem);
        return;
    }
    if (visit->id.budget_ms != DEADLINE_NO_BUDGET)
        visit->budget_end_ms = deadline_add(visit->came_ms, visit->id.budget_ms);
    const char *missing = not_available(&head->headers);
    if (missing) {
        visit_answer_problem(visit, PROBLEM_NOT_AVAILABLE, missing, -1, NULL, false);
        return;
    }
    if (head->content_length > lane->s->body_bytes_max) {
        char detail[128];
        snprintf(detail, sizeof detail, "the body has %lld bytes; body_bytes_max of this route is %lld",
                 (long long)head->content_length, (long long)lane->s->body_bytes_max);
        visit_answer_problem(visit, PROBLEM_BODY_TOO_LARGE, detail, -1, NULL, false);
        return;
    }
    if (head->has_body)
        request_read_body(request);
    else
        on_body_end(&visit->guest);
}
