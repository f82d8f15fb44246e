/* SPDX-License-Identifier: MIT */
#include "gateway/run_parts.h"

#include "core/deadline.h"
#include "gateway/answer.h"
#include "gateway/settle.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN_ARENA_BYTES_MAX (512u << 10) /* texts of one call: its head, its attempts' evidence */
#define RUNS_SPARE_MAX      256          /* runs of a shard that are over, kept for the next */
#define RUN_SPARE_BYTES_MAX (8u << 10)   /* of each of its buffers */

static void perform(struct run *run);

int64_t run_now(const struct run *run)
{
    return net_loop_now(run->shard->loop);
}

/* The store's clock, carried on by the monotonic one. */
int64_t run_store_now(const struct run *run)
{
    return run->store_now_ms + (run_now(run) - run->at_ms);
}

void reply_clear(struct reply *r)
{
    struct buffer *buffers[] = {&r->lines, &r->kept, &r->body, &r->held};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_rest(buffers[i], RUN_SPARE_BYTES_MAX);
    memset(r, 0, offsetof(struct reply, lines));
    r->retry_after_ms = -1;
}

static struct run *run_new(struct shard *shard)
{
    struct list *spare = list_pop_front(&shard->spare_runs);
    struct run *run = spare ? LIST_ENTRY(spare, struct run, link) : calloc(1, sizeof *run);
    if (!run)
        return NULL;
    if (spare) {
        shard->spare_run_count--;
        memset(run, 0, offsetof(struct run, arena));
    } else {
        arena_init(&run->arena, RUN_ARENA_BYTES_MAX);
    }
    return run;
}

static void run_fini(struct run *run)
{
    struct buffer *buffers[] = {&run->texts,         &run->caller_lines, &run->body,        &run->head,
                                &run->attempts_text, &run->result_lines, &run->result_body, &run->reply.lines,
                                &run->reply.kept,    &run->reply.body,   &run->reply.held};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_fini(buffers[i]);
    arena_fini(&run->arena);
    free(run);
}

static void run_keep(struct run *run)
{
    struct buffer *buffers[] = {&run->texts,         &run->caller_lines, &run->body,       &run->head,
                                &run->attempts_text, &run->result_lines, &run->result_body};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_rest(buffers[i], RUN_SPARE_BYTES_MAX);
    reply_clear(&run->reply);
    arena_rest(&run->arena, RUN_SPARE_BYTES_MAX);
    run->shard->spare_run_count++;
    list_push_front(&run->shard->spare_runs, &run->link);
}

void runs_forget(struct shard *shard)
{
    struct list *spare;
    while ((spare = list_pop_front(&shard->spare_runs)) != NULL)
        run_fini(LIST_ENTRY(spare, struct run, link));
}

void run_free(struct run *run)
{
    struct shard *shard = run->shard;
    assert(!run->exchange && !run->query && run->jobs == 0);
    void (*over)(void *owner) = run->over;
    void *owner = run->owner;
    list_remove(&run->link);
    if (run->watch) {
        run->watch->owner = NULL;
        worker_cancel(shard->worker, &run->watch->op);
    }
    net_timer_disarm(shard->loop, &run->timer);
    net_timer_disarm(shard->loop, &run->lease_timer);
    if (run->retry_out)
        admission_retry_done(run->lane->admission, run->client);
    admission_leave(run->lane->admission, &run->pass, run_now(run));
    metrics_add(shard->counts, METRIC_calls_running, run->lane->series, 0, -1);
    if (run->visit) {
        run->visit->run = NULL;
        visit_unlink_run(run->visit);
    }
    outlets_release(run->outlets);
    shard->runs--;
    if (shard->spare_run_count < RUNS_SPARE_MAX)
        run_keep(run);
    else
        run_fini(run);
    if (over)
        over(owner);
}

void run_feed(struct run *run, struct call_event *event)
{
    event->now_ms = run_now(run);
    event->random = shard_random(run->shard);
    call_step(&run->machine, event, &run->effect);
    perform(run);
}

/* ---- what the rows say -------------------------------------------------------------------------------------- */

void run_encode_attempts(struct run *run)
{
    buffer_clear(&run->attempts_text);
    attempts_encode(&run->attempts_text, run->attempts, run->attempt_count);
    run->row.attempts = buffer_view(&run->attempts_text);
}

struct rows run_rows(struct run *run)
{
    struct rows rows = {
        .call = run->row, .now_ms = run_store_now(run), .covers_since_ms = run->covers_since_ms};
    if (run->row.has_key)
        rows.holder = run->row;
    return rows;
}

/* Somebody else owns the call now: nothing more is sent or written, and the visit hears what stands. */
void run_lose(struct run *run, const struct rows *rows)
{
    log_event(run->shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), run->id.call_id, "ownership_lost",
              LOG_NUMBER("fence", run->row.fence), LOG_TEXT("key", run->row.key),
              LOG_STRING("route", run->lane->s->name), LOG_TEXT("trace_id", run->id.trace_id));
    run_trace_end(run, "another owner took the call, or it was settled elsewhere");
    run->lost = true;
    if (run->visit && run->visit->request) {
        if (run->reply.streaming)
            visit_stream_abort(run->visit);
        else if (rows->call.id && !state_running(rows->call.state))
            visit_answer_row(run->visit, rows, true, false);
        else
            visit_answer_problem(run->visit, PROBLEM_OUTCOME_UNKNOWN, "another process took this call over",
                                 1000, rows, true);
    }
    if (run->exchange)
        exchange_abort(run->exchange);
    else if (run->jobs == 0 && !run->query)
        run_free(run);
}

/* ---- store operations of the owner -------------------------------------------------------------------------- */

struct job *run_owner_job(struct run *run, enum store_kind kind, void (*then)(struct job *))
{
    struct job *job = job_new(run->shard, kind, run, then);
    if (!job)
        return NULL;
    run->jobs++;
    job->op.row = run->row;
    job->op.id = run->row.id;
    job->op.fence = run->row.fence;
    return job;
}

/* The end of a lease from now on, by the store's clock. */
static int64_t lease_end(const struct run *run)
{
    int64_t now = worker_shared(run->shard->worker) ? shard_store_now(run->shard) : run_store_now(run);
    return now + run->lane->s->lease_ms;
}

/* A lease that ends then is on disk. Where others may take over, what is left of it counts from when it was asked for, and
 * not from an answer that may have come late: by then they may have taken over already. */
static void lease_moved(struct run *run, int64_t end_ms)
{
    int64_t left = run->lane->s->lease_ms;
    if (worker_shared(run->shard->worker) && end_ms - shard_store_now(run->shard) < left)
        left = end_ms - shard_store_now(run->shard);
    run->lease_until_ms = run_now(run) + left;
}

static void on_lease_timer(struct net_timer *timer);

static void arm_lease(struct run *run)
{
    net_timer_arm(run->shard->loop, &run->lease_timer, run_now(run) + run->lane->s->lease_ms / 3,
                  on_lease_timer);
}

static void renewed(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    if (job->op.status == STATUS_OK)
        lease_moved(run, job->op.row.lease_end_ms);
    bool conflict = job->op.status == STATUS_CONFLICT;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange && !run->query)
            run_free(run);
    } else if (conflict && !run->ending) {
        run_lose(run, &job->op.rows);
    }
    job_free(job);
}

static void on_lease_timer(struct net_timer *timer)
{
    struct run *run = LIST_ENTRY(timer, struct run, lease_timer);
    if (run->lost || run->ending)
        return;
    struct job *job = run_owner_job(run, STORE_RENEW, renewed);
    if (job) {
        job->op.row.lease_end_ms = lease_end(run);
        job_submit(job);
    }
    arm_lease(run);
}

static bool store_attempt(struct run *run);

static void attempt_stored(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    enum status status = job->op.status;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange && !run->query)
            run_free(run);
    } else if (status == STATUS_OK) {
        lease_moved(run, job->op.row.lease_end_ms);
        run->row.attempt_count = job->op.row.attempt_count;
        run->row.first_attempt_ms = job->op.row.first_attempt_ms;
        if (run->lease_until_ms > run_now(run))
            run_put_on_wire(run);
        else if (!store_attempt(run)) /* the answer took longer than the lease: it is asked for anew */
            run_feed_denied(run, CALL_DENIED_BUDGET, 1000);
    } else if (status == STATUS_CONFLICT) {
        run_lose(run, &job->op.rows);
    } else {
        metrics_add(run->shard->counts, METRIC_store_errors, 0, 0, 1);
        run_feed_denied(run, CALL_DENIED_BUDGET, 1000); /* what is not on disk is not sent */
    }
    job_free(job);
}

static bool store_attempt(struct run *run)
{
    run_encode_attempts(run);
    struct job *job = run_owner_job(run, STORE_ATTEMPT, attempt_stored);
    if (!job)
        return false;
    job->op.row.attempt_count = run->effect.attempt;
    job->op.row.maybe_ran = run->machine.maybe_ran;
    job->op.row.lease_end_ms = lease_end(run);
    if (!job->op.row.first_attempt_ms)
        job->op.row.first_attempt_ms = run_store_now(run);
    job_submit(job);
    return true;
}

static void do_send(struct run *run)
{
    bool first = run->machine.sent == 1; /* of this run: it has its leave from the admission */
    if (!first || !run->pass.admitted) {
        int64_t retry_ms = -1;
        switch (admission_retry(run->lane->admission, run->client, run_now(run), &run->pass, run->try_next,
                                !run->effect.spare && !first, &retry_ms)) {
        case RETRY_YES:
            run->retry_out = true;
            metrics_add(run->shard->counts, METRIC_retries, run->lane->series, 0, 1);
            break;
        case RETRY_BUDGET:
            metrics_add(run->shard->counts, METRIC_retries_denied, run->lane->series, 0, 1);
            run_feed_denied(run, CALL_DENIED_BUDGET, retry_ms);
            return;
        case RETRY_BREAKER:
            run_feed_denied(run, CALL_DENIED_BREAKER, retry_ms);
            return;
        }
    }
    /* Before a first byte the lease must outlast the attempt, judged on a monotonic clock. */
    bool lease_holds = run->lease_until_ms >= run_now(run) + run->effect.timeout_ms;
    if (run->effect.attempt <= run->row.attempt_count && lease_holds)
        run_put_on_wire(run);
    else if (!store_attempt(run))
        run_feed_denied(run, CALL_DENIED_BUDGET, 1000);
}

/* ---- asking ------------------------------------------------------------------------------------------------- */

static void take_result(struct run *run, const struct receipt_reading *reading)
{
    buffer_clear(&run->result_lines);
    buffer_clear(&run->result_body);
    run->has_result =
        reading->has_result && (int64_t)reading->result_body.len <= run->lane->s->result_bytes_max;
    if (!run->has_result)
        return;
    run->result_status = reading->result_status;
    /* The document's header list may hold more than a replay bears. */
    struct slice lines = buffer_view(&reading->result_headers);
    while (lines.len) {
        const char *stop = memchr(lines.data, '\n', lines.len);
        size_t len = stop ? (size_t)(stop - lines.data) + 1 : lines.len;
        const char *colon = memchr(lines.data, ':', len);
        struct slice name = slice_of(lines.data, colon ? (size_t)(colon - lines.data) : 0);
        if (name.len && field_is_kept(name, &run->lane->s->replay_headers))
            buffer_append(&run->result_lines, lines.data, len);
        lines.data += len;
        lines.len -= len;
    }
    buffer_slice(&run->result_body, buffer_view(&reading->result_body));
}

static void receipt_answered(void *owner, const struct receipt_reading *reading)
{
    struct run *run = owner;
    run->query = NULL;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange)
            run_free(run);
        return;
    }
    if (reading->answer == RECEIPT_ANSWER_SUCCESS || reading->answer == RECEIPT_ANSWER_FAILED_FINAL)
        take_result(run, reading);
    struct call_event event = {.type = run->effect.type == CALL_DO_FENCE ? CALL_EV_FENCED : CALL_EV_ANSWER,
                               .answer = reading->answer};
    run_feed(run, &event);
}

static void do_ask(struct run *run)
{
    struct query_ask ask = {
        .outlets = run->outlets,
        .lane = run->lane,
        /* Another node may know what the last one does not answer. */
        .origin = (run->pass.origin + (size_t)(run->machine.queries > 0 ? run->machine.queries - 1 : 0)) %
                  run->lane->origin_count,
        .call_id = run->row.call_id,
        .key = run->row.key,
        .tenant = run->row.tenant,
        .method = run->method,
        .target = run->target,
        .header_lines = run->principal_lines,
        .first_attempt_ms = run->row.first_attempt_ms,
        .timeout_ms = run->effect.timeout_ms,
        .fence = run->effect.type == CALL_DO_FENCE,
        .has_trace = run->id.has_trace,
        .trace = run->span,
    };
    if (query_start(&run->query, run->shard, &ask, receipt_answered, run) != STATUS_OK) {
        struct call_event event = {.type = ask.fence ? CALL_EV_FENCED : CALL_EV_ANSWER,
                                   .answer = RECEIPT_ANSWER_QUERY_FAILED};
        run_feed(run, &event);
    }
}

/* ---- waiting ------------------------------------------------------------------------------------------------ */

static void on_wait_over(struct net_timer *timer)
{
    struct run *run = LIST_ENTRY(timer, struct run, timer);
    if (run->lost || (run->shard->draining && run->machine.pending))
        return; /* what the callee works on is asked about by the next process */
    struct call_event event = {.type = CALL_EV_TIMER};
    run_feed(run, &event);
}

/* Its row ended without us: the service reported, or a person spoke. */
static void ended_elsewhere(struct job *job)
{
    struct run *run = job->owner;
    if (run)
        run->watch = NULL;
    if (run && !run->lost && !run->ending && job->op.status == STATUS_OK)
        run_lose(run, &job->op.rows);
    job_free(job);
}

static void watch_row(struct run *run)
{
    run->watch = job_new(run->shard, STORE_WATCH, run, ended_elsewhere);
    if (run->watch) {
        run->watch->op.id = run->row.id;
        job_submit(run->watch);
    }
}

/* The callee accepted it: its 202 goes to the caller once that is on disk. */
static void pending_stored(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    if (run->lost) {
        if (run->jobs == 0 && !run->exchange && !run->query)
            run_free(run);
    } else if (job->op.status == STATUS_CONFLICT) {
        run_lose(run, &job->op.rows);
    } else if (run->visit && run->visit->request) {
        if (job->op.status == STATUS_OK)
            visit_answer_first(run->visit, run->reply.status, buffer_view(&run->reply.lines),
                               buffer_view(&run->reply.body), OUTCOME_PENDING);
        else
            visit_answer_problem(run->visit, PROBLEM_CALL_IN_PROGRESS, "accepted by the service", 1000, NULL,
                                 true);
    }
    job_free(job);
}

static void do_wait(struct run *run)
{
    net_timer_arm(run->shard->loop, &run->timer, run->effect.until_ms, on_wait_over);
    /* A 202 is the service's own word for it. With another status it is passed on where nobody can be asked. */
    bool plain = run->reply.status >= 200 && run->reply.status <= 299;
    bool accepted = run->effect.pending && run->reply.head && (plain || !run->machine.policy.has_receipts);
    if (!accepted || run->pending_stored)
        return;
    run->pending_stored = true;
    run_encode_attempts(run);
    struct job *job = run_owner_job(run, STORE_ATTEMPT, pending_stored);
    if (!job)
        return;
    job->op.row.attempt_count = run->row.attempt_count;
    job->op.row.maybe_ran = true;
    job->op.row.lease_end_ms = lease_end(run);
    job_submit(job);
    watch_row(run);
    /* What is worked on elsewhere holds no place here. */
    admission_leave(run->lane->admission, &run->pass, run_now(run));
}

static void perform(struct run *run)
{
    switch (run->effect.type) {
    case CALL_DO_SEND:
        do_send(run);
        break;
    case CALL_DO_ASK:
    case CALL_DO_FENCE:
        do_ask(run);
        break;
    case CALL_DO_WAIT:
        do_wait(run);
        break;
    case CALL_DO_END:
        run_end(run);
        break;
    }
}

/* ---- beginning ---------------------------------------------------------------------------------------------- */

/* What earlier owners of the call left behind. */
static void read_past(struct run *run, struct call_past *past)
{
    struct buffer memory = {0};
    size_t count = 0;
    past->attempts = run->row.attempt_count;
    past->maybe_ran = run->row.maybe_ran;
    past->age_ms = run->row.first_attempt_ms ? run->store_now_ms - run->row.first_attempt_ms : 0;
    if (past->age_ms < 0)
        past->age_ms = 0;
    int64_t last_ms = run->row.updated_ms;
    if (attempts_decode(run->row.attempts, run->attempts, &count, &memory) == STATUS_OK) {
        for (size_t i = 0; i < count; i++) {
            (void)arena_copy(&run->arena, run->attempts[i].evidence, &run->attempts[i].evidence);
            past->pending = past->pending || run->attempts[i].outcome == OUTCOME_PENDING;
        }
        run->attempt_count = count;
    }
    /* An attempt that nobody saw end was lost with its process. */
    if (past->maybe_ran && count < (size_t)run->row.attempt_count && count < ATTEMPTS_MAX) {
        struct evidence lost = {.end = EVIDENCE_LOST};
        struct buffer words = {0};
        evidence_sentence(&words, &lost);
        struct attempt *a = &run->attempts[run->attempt_count++];
        *a = (struct attempt){.n = run->row.attempt_count, .ended_ms = last_ms, .outcome = OUTCOME_UNKNOWN};
        a->started_ms = a->n == 1 ? run->row.first_attempt_ms : 0;
        (void)arena_copy(&run->arena, buffer_view(&words), &a->evidence);
        buffer_fini(&words);
    }
    buffer_fini(&memory);
    past->closed_age_ms = run->store_now_ms > last_ms ? run->store_now_ms - last_ms : 0;
}

static void swap(struct buffer *a, struct buffer *b)
{
    struct buffer was = *a;
    *a = *b;
    *b = was;
}

/* What every run begins with: the row as it was taken, and its place among the shard's runs. */
static struct run *run_make(struct shard *shard, struct outlets *outlets, const struct lane *lane,
                            const struct rows *rows, struct buffer *texts, bool resumed)
{
    struct run *run = run_new(shard);
    if (!run)
        return NULL;
    run->shard = shard;
    run->outlets = outlets_hold(outlets);
    run->lane = lane;
    run->reply.retry_after_ms = -1;
    run->store_now_ms = rows->now_ms;
    run->at_ms = net_loop_now(shard->loop);
    run->covers_since_ms = rows->covers_since_ms;
    run->resumed = resumed;
    run->row = rows->call;
    run->row.state = STATE_PROCESSING;
    row_drop_result(&run->row);
    swap(&run->texts, texts);
    shard->runs++;
    list_push_back(&shard->run_list, &run->link);
    metrics_add(shard->counts, METRIC_calls_running, lane->series, 0, 1);
    return run;
}

/* `closed_age_ms`: since the last attempt's connection was closed, where that is known better than by the row, which was
 * just taken; -1: it is not. */
static void start_machine(struct run *run, int retries, int64_t closed_age_ms)
{
    struct call_policy policy = run->lane->policy;
    lease_moved(run, run->row.lease_end_ms);
    arm_lease(run);
    policy.has_identity = run->row.has_key || !run->row.call_id_made;
    policy.retries = retries;
    call_init(&run->machine, &policy);
    struct call_event event = {
        .type = CALL_EV_START,
        .deadline_ms = deadline_add(run_now(run), run->lane->s->deadline_ms),
    };
    if (event.deadline_ms > run->budget_end_ms)
        event.deadline_ms = run->budget_end_ms; /* counted from the request's arrival */
    if (run->resumed)
        read_past(run, &event.past);
    if (closed_age_ms >= 0)
        event.past.closed_age_ms = closed_age_ms;
    run_feed(run, &event);
}

bool run_begin_alone(const struct run_alone *ask, const struct rows *rows, struct buffer *texts, bool resumed)
{
    struct slice reverses = rows->call.reverses;
    struct run *run = run_make(ask->shard, ask->outlets, ask->lane, rows, texts, resumed);
    if (!run)
        return false;
    run->row.reverses = reverses; /* it is part of what a reversal is */
    run->id = (struct identity){.call_id = run->row.call_id,
                                .tenant = run->row.tenant,
                                .key = run->row.key,
                                .has_key = run->row.has_key,
                                .trace_id = run->row.trace_id,
                                .budget_ms = DEADLINE_NO_BUDGET};
    run->id.has_trace = span_context_of_row(&run->row, &run->id.trace);
    run_trace_begin(run);
    struct buffer *lines = &run->caller_lines;
    buffer_slice(lines, ask->lines);
    size_t content = lines->len;
    (void)query_principal_kept(lines, run->outlets->setup, ask->lines, &run->row,
                               &run->lane->s->receipt_header);
    buffer_slice(&run->body, ask->body);
    run->budget_end_ms = INT64_MAX;
    run->client = admission_client(
        run->row.has_credential ? slice_of((const char *)run->row.credential.bytes, sizeof(struct digest))
                                : run->row.tenant);
    if (lines->failed || run->body.failed || !arena_copy(&run->arena, ask->method, &run->method) ||
        !arena_copy(&run->arena, ask->target, &run->target)) {
        run_free(run);
        return false;
    }
    run->content_lines = slice_of(lines->data, content);
    run->principal_lines = slice_of(lines->data + content, lines->len - content);
    run->over = ask->over;
    run->owner = ask->owner;
    start_machine(run, ask->retries, ask->closed_age_ms);
    return true;
}

void run_begin(struct visit *visit, const struct rows *rows, struct buffer *texts, bool resumed)
{
    struct run *run = run_make(visit->shard, visit->outlets, visit->lane, rows, texts, resumed);
    bool good = run != NULL;
    if (good) {
        run->id = visit->id;
        run->id.call_id = run->row.call_id;
        run_trace_begin(run);
        run->pass = visit->pass; /* taken over */
        memset(&visit->pass, 0, sizeof visit->pass);
        /* A caller that went between the claim and now leaves a call that was never sent: the body is still here, its
         * head is not. Only then is there nothing to send with. */
        good = visit->request && run_copy_request(run, visit);
    }
    if (!good) {
        /* Claimed, and nothing can be sent: it ends as not executed, so that its caller's repeat runs it. */
        if (!run) {
            visit_answer_problem(visit, PROBLEM_OVERLOADED, NULL, 1000, NULL, false);
            return; /* the lease frees the row */
        }
        struct call_policy policy = run->lane->policy;
        call_init(&run->machine, &policy);
        run->effect =
            (struct call_effect){.type = CALL_DO_END,
                                 .state = run->row.maybe_ran ? STATE_UNKNOWN : STATE_FAILED,
                                 .reason = run->row.maybe_ran ? REASON_ATTEMPT : REASON_NOT_EXECUTED,
                                 .retry_in_ms = -1};
        perform(run);
        return;
    }
    swap(&run->body, &visit->body); /* taken over */
    run->visit = visit;
    visit->run = run;
    visit->holds++;
    visit->phase = VISIT_RUNNING;
    visit_arm_budget(visit);
    start_machine(run, run->lane->policy.retries, -1);
}

void run_unlink_visit(struct run *run)
{
    struct visit *visit = run->visit;
    if (!visit)
        return;
    run->visit = NULL;
    if (run->reply.streaming) {
        run->reply.streaming = false;
        run->reply.wanted_head_only = true;
        run_resume_reply(run);
    }
    visit_unlink_run(visit);
}

size_t runs_busy(const struct shard *shard)
{
    size_t busy = 0;
    for (const struct list *l = shard->run_list.next; l != &shard->run_list; l = l->next) {
        const struct run *run = LIST_ENTRY(l, struct run, link);
        bool resting = run->machine.pending && !run->visit && !run->exchange && !run->query && run->jobs == 0;
        busy += !resting;
    }
    return busy;
}

void runs_abandon(struct shard *shard)
{
    while (!list_empty(&shard->run_list))
        run_free(LIST_ENTRY(shard->run_list.next, struct run, link));
}
