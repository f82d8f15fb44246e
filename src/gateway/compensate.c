/* SPDX-License-Identifier: MIT */
#include "gateway/compensate.h"

#include "base/arena.h"
#include "core/compensation.h"
#include "core/deadline.h"
#include "core/template.h"
#include "gateway/query.h"
#include "gateway/reversal.h"
#include "gateway/run.h"
#include "gateway/settle.h"
#include "gateway/span.h"

#include <assert.h>
#include <stdlib.h>

#define ROUND_LOOK_MS     500         /* between two looks for due tasks, when there was none */
#define ROUNDS_AT_ONCE    32          /* rounds at work */
#define ROUND_ARENA_BYTES (16u << 20) /* texts of one round: the kept request, the result of a receipt */
#define ROUND_SLACK_MS    30000       /* a lease outlasts what a round may do by this much */
#define ROUND_WRITE_MS    1000        /* a round that could not be written is tried again after this */
#define ROUNDS_DEFAULT    5           /* of a call whose route is gone: nobody can be asked */
#define ROUND_GAP_DEFAULT 60000

struct compensator {
    struct shard *shard;
    struct net_timer look;
    bool stopped, taking;
    size_t working; /* rounds, that which is being taken too */
};

/* One round of one task. */
struct round {
    struct compensator *c;
    struct outlets *outlets;
    const struct lane *lane; /* NULL: the route is gone */
    struct arena arena;
    struct task_work work; /* of the operation that is out */
    struct task_row task;
    struct call_row call;
    struct kept_request kept;
    int64_t store_now_ms;
    int64_t holder_id, holder_fence;
    bool slot_free;
    struct compensation machine;
    struct compensation_effect effect;
    struct buffer asked; /* what was done, in words */
    enum receipt_answer answer;
    bool answered;
    struct call_row end; /* SETTLE: the ending, with the result of the receipt */
    bool has_end;
    enum call_state theirs; /* what the callee or the run said of the call */
    bool end_call;          /* the ROUND that is out ends the call */
    struct net_timer timer;
    int64_t began_ms, until_ms; /* monotonic: when it was taken, when its lease is over */
};

static void take_next(struct compensator *c);
static void write_round(struct round *r);

static int64_t now_of(const struct compensator *c)
{
    return net_loop_now(c->shard->loop);
}

static void round_free(struct round *r)
{
    struct compensator *c = r->c;
    net_timer_disarm(c->shard->loop, &r->timer);
    outlets_release(r->outlets);
    buffer_fini(&r->asked);
    arena_fini(&r->arena);
    free(r);
    c->working--;
    take_next(c);
}

static void note(struct round *r, const char *what)
{
    if (r->asked.len)
        buffer_text(&r->asked, ", ");
    buffer_text(&r->asked, what);
}

/* ---- what is known when it begins ---------------------------------------------------------------------------- */

static const struct lane *lane_of(const struct outlets *outlets, struct slice route)
{
    for (size_t i = 0; i < outlets->setup->settings->route_count; i++) {
        if (slice_is(route, outlets->setup->lanes[i].s->name))
            return &outlets->setup->lanes[i];
    }
    return NULL;
}

static struct compensation_policy policy_of(const struct round *r)
{
    struct compensation_policy policy = {.rounds = ROUNDS_DEFAULT + r->task.granted,
                                         .round_gap_ms = ROUND_GAP_DEFAULT,
                                         .round_gap_max_ms = ROUND_GAP_DEFAULT * 60};
    if (!r->lane)
        return policy;
    const struct route_settings *s = r->lane->s;
    return (struct compensation_policy){
        .rounds = (int)s->rounds + r->task.granted,
        .has_receipts = r->lane->policy.has_receipts,
        .can_fence = r->lane->policy.can_fence,
        .runs_once = r->lane->policy.runs_once,
        .still_wanted = s->still_wanted,
        .has_reversal = r->kept.reversal.len > 0,
        .resend_after_ms = s->resend_after_ms,
        .upstream_key_life_ms = s->upstream_key_life_ms,
        .round_gap_ms = s->round_gap_ms,
        .round_gap_max_ms = s->round_gap_max_ms,
    };
}

static bool was_accepted(const struct call_row *call)
{
    struct attempt attempts[ATTEMPTS_MAX];
    struct buffer memory = {0};
    size_t count = 0;
    bool pending = call->reason == REASON_ACCEPTED;
    if (attempts_decode(call->attempts, attempts, &count, &memory) == STATUS_OK)
        for (size_t i = 0; i < count; i++)
            pending = pending || attempts[i].outcome == OUTCOME_PENDING;
    buffer_fini(&memory);
    return pending;
}

static int64_t since(int64_t now_ms, int64_t then_ms)
{
    return then_ms && now_ms > then_ms ? now_ms - then_ms : 0;
}

static struct compensation_facts facts_of(const struct round *r)
{
    const struct call_row *call = &r->call;
    return (struct compensation_facts){
        .cause = r->task.cause,
        .round = r->task.round,
        .state = call->state,
        .final = call->final,
        .never_sent = call->attempt_count == 0,
        .maybe_ran = call->maybe_ran,
        .pending = was_accepted(call),
        .has_request = r->kept.has && r->lane,
        .has_identity = call->has_key || !call->call_id_made,
        .slot_free = r->slot_free,
        .age_ms = since(r->store_now_ms, call->first_attempt_ms),
        .closed_age_ms = since(r->store_now_ms, call->updated_ms),
    };
}

/* ---- doing --------------------------------------------------------------------------------------------------- */

static void perform(struct round *r);

static void feed(struct round *r, struct compensation_event *event)
{
    compensation_step(&r->machine, event, &r->effect);
    perform(r);
}

static void feed_answer(struct round *r, bool fence, enum receipt_answer answer)
{
    struct compensation_event event = {.type = fence ? COMPENSATION_EV_FENCED : COMPENSATION_EV_ANSWER,
                                       .answer = answer};
    r->answer = answer;
    r->answered = true;
    feed(r, &event);
}

static void receipt_answered(void *owner, const struct receipt_reading *reading)
{
    struct round *r = owner;
    enum receipt_answer answer = reading->answer;
    bool ends = answer == RECEIPT_ANSWER_SUCCESS || answer == RECEIPT_ANSWER_FAILED_FINAL;
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
    query_principal_kept(&lines, r->outlets->setup, r->kept.lines);
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
    if (r->kept.has) {
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
    feed(r, &event);
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
        .closed_age_ms = since(r->store_now_ms, r->call.updated_ms),
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
    }
    job_free(job);
    write_round(r);
}

static void do_reverse(struct round *r)
{
    note(r, "reversal");
    struct job *job = job_new(r->c->shard, STORE_REVERSE, r, reversed);
    if (!job || reversal_row(&job->op.row, &r->call, r->lane, r->c->shard, &r->arena) != STATUS_OK) {
        job_free(job);
        r->effect.status = TASK_MANUAL;
        r->effect.why = "fenced at the callee; there was no memory to begin the reversal";
        write_round(r);
        return;
    }
    job->op.id = r->call.id;
    job->op.from_states = 1u << STATE_FAILED;
    job_submit(job);
}

/* ---- writing it down ------------------------------------------------------------------------------------------ */

/* The state that the callee's word means; false where it gave none. */
static bool state_of_answer(const struct round *r, enum call_state *state)
{
    if (r->theirs != STATE_NOT_RECEIVED) {
        *state = r->theirs;
        return true;
    }
    if (!r->answered)
        return false;
    switch (r->answer) {
    case RECEIPT_ANSWER_NOT_RECEIVED:
        *state = STATE_NOT_RECEIVED;
        return true;
    case RECEIPT_ANSWER_RUNNING:
        *state = STATE_PROCESSING;
        return true;
    case RECEIPT_ANSWER_SUCCESS:
        *state = STATE_SUCCESS;
        return true;
    case RECEIPT_ANSWER_FAILED_FINAL:
    case RECEIPT_ANSWER_FAILED_OPEN:
        *state = STATE_FAILED;
        return true;
    case RECEIPT_ANSWER_QUERY_FAILED:
    case RECEIPT_ANSWER_UNKNOWN:
        return false;
    }
    return false;
}

static void tell_log(const struct round *r)
{
    const struct compensation_effect *fx = &r->effect;
    log_event(r->c->shard->log, fx->status == TASK_MANUAL ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
              clock_wall_ms(), r->call.call_id, "compensation_round", LOG_NUMBER("task", r->task.id),
              LOG_NUMBER("round", r->task.round), LOG_TEXT("asked", buffer_view(&r->asked)),
              LOG_STRING("answer", r->answered ? receipt_answer_text(r->answer) : ""),
              LOG_STRING("decision", compensation_effect_text(fx->type)),
              LOG_STRING("status", task_status_text(fx->status)), LOG_STRING("why", fx->why),
              LOG_BOOL("differs", fx->differs), LOG_STRING("cause", task_cause_text(r->task.cause)),
              LOG_TEXT("key", r->call.key), LOG_TEXT("route", r->call.route),
              LOG_TEXT("trace_id", r->call.trace_id));
}

static void on_write_again(struct net_timer *timer)
{
    write_round(LIST_ENTRY(timer, struct round, timer));
}

static void written(struct job *job)
{
    struct round *r = job->owner;
    struct compensator *c = r->c;
    enum status status = job->op.status;
    if (status == STATUS_OK) {
        metrics_add(c->shard->counts, METRIC_rounds, 0,
                    (size_t)(r->answered ? r->answer : RECEIPT_ANSWER_QUERY_FAILED), r->answered);
        tell_log(r);
    } else if (status == STATUS_CONFLICT && r->end_call) {
        /* The call moved meanwhile: what the round saw is kept, and the call stays as it stands. */
        const struct call_row *call = &job->op.rows.call;
        r->end_call = r->has_end = false;
        r->effect.type = call->final ? COMPENSATION_DO_CLOSE : COMPENSATION_DO_WAIT;
        r->effect.status = call->final ? TASK_RESOLVED : TASK_PENDING;
        r->effect.wait_ms = compensation_gap_ms(&r->machine.policy, r->task.round, shard_random(c->shard));
        r->effect.why = call->final ? "the call has ended meanwhile" : "the call is at work now";
        job_free(job);
        write_round(r);
        return;
    } else if (status != STATUS_CONFLICT && now_of(c) + ROUND_WRITE_MS < r->until_ms && !c->stopped) {
        metrics_add(c->shard->counts, METRIC_store_errors, 0, 0, 1);
        net_timer_arm(c->shard->loop, &r->timer, now_of(c) + ROUND_WRITE_MS, on_write_again);
        job_free(job);
        return;
    }
    job_free(job);
    round_free(r);
}

static void write_round(struct round *r)
{
    struct compensator *c = r->c;
    const struct compensation_effect *fx = &r->effect;
    struct job *job = c->shard->worker ? job_new(c->shard, STORE_TASK_ROUND, r, written) : NULL;
    if (!job) {
        round_free(r); /* the next taker writes that it was cut short */
        return;
    }
    enum call_state theirs;
    struct buffer words = {0};
    struct slice difference = {0};
    bool said = state_of_answer(r, &theirs);
    if (said && theirs != r->call.state) {
        buffer_format(&words, "our record says %s, the callee %s", state_text(r->call.state),
                      state_text(theirs));
        (void)arena_copy(&r->arena, buffer_view(&words), &difference);
        buffer_fini(&words);
    }
    int64_t now = r->store_now_ms + (now_of(c) - r->began_ms);
    r->work = (struct task_work){
        .task = {.id = r->task.id,
                 .fence = r->task.fence,
                 .owner = slice_text(c->shard->owner),
                 .status = fx->status,
                 .due_ms = deadline_add(now, fx->wait_ms)},
        .round = {.asked = buffer_view(&r->asked),
                  .answer = slice_text(r->answered ? receipt_answer_text(r->answer)
                                       : said      ? state_text(theirs)
                                                   : "none"),
                  .ours = slice_text(state_text(r->call.state)),
                  .difference = difference,
                  .decision = slice_text(compensation_effect_text(fx->type)),
                  .evidence = slice_text(fx->why)},
    };
    if (fx->status == TASK_MANUAL) {
        r->work.task.tell = TASK_TELL_OWED;
        r->work.task.tell_due_ms = now;
    }
    job->op.work = &r->work;
    job->op.drop_kept = fx->type == COMPENSATION_DO_CLOSE && r->task.cause == TASK_CAUSE_FAILED;
    r->end_call = fx->type == COMPENSATION_DO_SETTLE && r->has_end;
    if (r->end_call) {
        r->end.state = fx->state;
        r->end.final = true;
        r->end.reason = fx->reason;
        r->work.end_call = true;
        job->op.row = r->end;
        job->op.id = r->call.id;
        job->op.from_states = 1u << STATE_UNKNOWN;
    }
    job_submit(job);
}

static void perform(struct round *r)
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
        write_round(r);
        break;
    }
}

/* ---- taking --------------------------------------------------------------------------------------------------- */

static void on_look(struct net_timer *timer)
{
    take_next(LIST_ENTRY(timer, struct compensator, look));
}

static bool keep_texts(struct round *r)
{
    struct slice *texts[] = {&r->kept.method, &r->kept.target, &r->kept.lines, &r->kept.body,
                             &r->kept.reversal};
    bool good = row_keep(&r->call, &r->arena);
    for (size_t i = 0; good && i < sizeof texts / sizeof *texts; i++)
        good = arena_copy(&r->arena, *texts[i], texts[i]);
    return good;
}

static void taken(struct job *job)
{
    struct round *r = job->owner;
    struct compensator *c = r->c;
    const struct rows *rows = &job->op.rows;
    c->taking = false;
    if (job->op.status != STATUS_OK || !job->op.done) {
        job_free(job);
        if (!c->stopped)
            net_timer_arm(c->shard->loop, &c->look, now_of(c) + ROUND_LOOK_MS, on_look);
        c->taking = true; /* round_free() must not look again at once */
        round_free(r);
        c->taking = false;
        return;
    }
    r->task = r->work.now;
    r->task.owner = r->task.last_answer = slice_of("", 0); /* they stand in the job's memory */
    r->kept = r->work.kept;
    r->call = rows->call;
    r->store_now_ms = rows->now_ms;
    r->began_ms = now_of(c);
    r->until_ms = r->began_ms + (r->task.lease_end_ms - r->store_now_ms);
    r->holder_id = rows->holder.id;
    r->holder_fence = rows->holder.fence;
    r->slot_free = !rows->holder.id || rows->holder.id == rows->call.id || rows->holder.state == STATE_FAILED;
    struct slice reverses = r->call.reverses;
    bool good = arena_copy(&r->arena, reverses, &reverses) && keep_texts(r);
    r->call.reverses = reverses;
    job_free(job);
    if (!good) {
        round_free(r); /* the lease ends the round */
        return;
    }
    r->lane = lane_of(r->outlets, r->call.route);
    struct compensation_policy policy = policy_of(r);
    compensation_init(&r->machine, &policy);
    struct compensation_event event = {
        .type = COMPENSATION_EV_START, .facts = facts_of(r), .random = shard_random(c->shard)};
    feed(r, &event);
    take_next(c);
}

/* Longer than the longest round of any route may take: asking, fencing, and a run with its waits. */
static int64_t lease_of(const struct setup *setup)
{
    int64_t longest = 0;
    for (size_t i = 0; i < setup->settings->route_count; i++) {
        const struct route_settings *s = setup->lanes[i].s;
        int64_t whole = deadline_add(s->deadline_ms, 2 * s->receipt_timeout_ms);
        longest = whole > longest ? whole : longest;
    }
    return deadline_add(longest, ROUND_SLACK_MS);
}

static void take_next(struct compensator *c)
{
    if (c->stopped || c->taking || c->working >= ROUNDS_AT_ONCE)
        return;
    struct round *r = calloc(1, sizeof *r);
    struct job *job = r ? job_new(c->shard, STORE_TASK_TAKE, r, taken) : NULL;
    if (!job) {
        free(r);
        net_timer_arm(c->shard->loop, &c->look, now_of(c) + ROUND_LOOK_MS, on_look);
        return;
    }
    net_timer_disarm(c->shard->loop, &c->look);
    r->c = c;
    r->outlets = outlets_hold(c->shard->outlets);
    arena_init(&r->arena, ROUND_ARENA_BYTES);
    r->work.task.owner = slice_text(c->shard->owner);
    r->work.task.lease_end_ms = deadline_add(shard_store_now(c->shard), lease_of(r->outlets->setup));
    job->op.work = &r->work;
    c->taking = true;
    c->working++;
    job_submit(job);
}

enum status compensator_start(struct compensator **out, struct shard *shard)
{
    struct compensator *c = calloc(1, sizeof *c);
    if (!c)
        return STATUS_NO_MEMORY;
    c->shard = shard;
    net_timer_arm(shard->loop, &c->look, net_loop_now(shard->loop), on_look);
    *out = c;
    return STATUS_OK;
}

void compensator_stop(struct compensator *c)
{
    if (!c)
        return;
    c->stopped = true;
    net_timer_disarm(c->shard->loop, &c->look);
}

size_t compensator_busy(const struct compensator *c)
{
    return c ? c->working : 0;
}

void compensator_free(struct compensator *c)
{
    free(c);
}
