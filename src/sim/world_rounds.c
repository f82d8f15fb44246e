/* SPDX-License-Identifier: MIT
 *
 * The rounds of the world's gateway: a due task is taken from the real store, the real machine (core/compensation.h)
 * decides, and what it says is performed at the simulated callee, as src/gateway does it:
 *
 *   here        there
 *   taking      compensate.c
 *   doing       compensate_round.c
 *   writing     compensate_write.c
 *
 * Always true: what a round has learnt is in memory only until it is written; a process that dies before leaves a task that
 * is RUNNING, and the next process takes it again, as the next round. Not here: reversals, and telling a person of MANUAL
 * (some are told by lot, and want another round).
 */
#include "core/compensation.h"
#include "sim/world_gate_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 500,         /* as ROUND_LOOK_MS */
    WRITE_AGAIN_MS = 1000, /* as ROUND_WRITE_MS */
    SLACK_MS = 30000,      /* as ROUND_SLACK_MS */
};

struct round {
    struct gate *gate;
    uint32_t slot, call, kept_body;
    uint64_t serial;
    struct task_work work; /* of the operation that is out */
    struct task_row task;
    struct call_row row;
    bool has_kept, pending;
    int64_t store_now_ms, at_ms,
        until_ms; /* store's clock when it was taken; monotonic: then, and when its lease ends */
    int64_t holder_id, holder_fence;
    bool slot_free;
    struct compensation machine;
    struct compensation_effect effect;
    struct buffer asked; /* what was done, in words */
    enum receipt_answer answer;
    bool answered;
    struct call_row end; /* SETTLE: the ending, with the result of the receipt */
    struct buffer result;
    bool has_end, end_call;
    enum call_state theirs;
};

static void act(struct round *r);
static void write_round(struct round *r);

/* ---- taking -------------------------------------------------------------------------------------------------- */

static void release(struct round *r)
{
    struct gate *g = r->gate;
    g->rounds[r->slot] = NULL;
    buffer_fini(&r->asked);
    buffer_fini(&r->result);
    free(r);
    g->working--;
}

static void round_over(struct round *r)
{
    struct gate *g = r->gate;
    release(r);
    rounds_look(g);
}

static int64_t since(int64_t now_ms, int64_t then_ms)
{
    return then_ms && now_ms > then_ms ? now_ms - then_ms : 0;
}

static struct compensation_policy policy_of(const struct round *r)
{
    const struct rules *rules = &r->gate->world->rules;
    return (struct compensation_policy){
        .rounds = rules->rounds + r->task.granted + (HAS_BUG(r->gate, ROUND_ENDLESS) ? 1000 : 0),
        .has_receipts = rules->policy.has_receipts,
        .can_fence = rules->policy.can_fence,
        .runs_once = rules->policy.runs_once,
        .still_wanted = rules->still_wanted || HAS_BUG(r->gate, ROUND_UNWANTED),
        .resend_after_ms = rules->policy.resend_after_ms,
        .upstream_key_life_ms = rules->policy.upstream_key_life_ms,
        .round_gap_ms = rules->round_gap_ms,
        .round_gap_max_ms = rules->round_gap_max_ms,
    };
}

static struct compensation_facts facts_of(const struct round *r)
{
    const struct call_row *call = &r->row;
    return (struct compensation_facts){
        .cause = r->task.cause,
        .round = r->task.round,
        .state = call->state,
        .final = call->final,
        .never_sent = call->attempt_count == 0,
        .maybe_ran = call->maybe_ran,
        .pending = r->pending,
        .has_request = r->has_kept,
        .has_identity = call->has_key || !call->call_id_made,
        .slot_free = r->slot_free,
        .age_ms = since(r->store_now_ms, call->first_attempt_ms),
        .closed_age_ms = since(r->store_now_ms, call->updated_ms),
    };
}

static void feed(struct round *r, const struct compensation_event *event)
{
    compensation_step(&r->machine, event, &r->effect);
    act(r);
}

static uint32_t number_of(struct slice text)
{
    uint32_t number = 0;
    for (size_t i = 0; i < text.len; i++)
        number = number * 10 + (uint32_t)(text.data[i] - '0');
    return number;
}

static void look_later(struct gate *g)
{
    if (!g->looking)
        world_later(g->world, LOOK_MS, EVENT_ROUND_LOOK, 0, gate_value(g));
    g->looking = true;
}

static void taken(struct job *job)
{
    struct round *r = job->owner;
    struct gate *g = r->gate;
    struct world *w = g->world;
    const struct rows *rows = &job->op.rows;
    g->taking = false;
    if (job->op.status != STATUS_OK || !job->op.done) {
        gate_job_free(job);
        release(r);
        look_later(g);
        return;
    }
    r->call = gate_call_of_row(g, &rows->call);
    if (r->call == WORLD_NONE) {
        judge_break(w, "a task is about a call that nobody made");
        gate_job_free(job);
        release(r);
        return;
    }
    r->task = r->work.now;
    r->task.owner = r->task.last_answer = slice_of("", 0); /* they stand in the job's memory */
    r->has_kept = r->work.kept.has;
    r->kept_body = number_of(r->work.kept.body);
    r->row = rows->call;
    r->pending = call_was_accepted(&r->row);
    gate_keep_row(g, &r->row, r->call);
    r->row.has_result = r->row.body_kept = false;
    r->store_now_ms = rows->now_ms;
    r->at_ms = gate_now(g);
    r->until_ms = r->at_ms + (r->task.lease_end_ms - r->store_now_ms);
    r->holder_id = rows->holder.id;
    r->holder_fence = rows->holder.fence;
    r->slot_free = !rows->holder.id || rows->holder.id == rows->call.id || rows->holder.state == STATE_FAILED;
    gate_job_free(job);
    SAY(w, "gateway", "round %d of %s begins: %s", r->task.round, gate_call(g, r->call)->id,
        state_text(r->row.state));
    judge_round_begins(w, r->call, r->serial);
    struct compensation_policy policy = policy_of(r);
    compensation_init(&r->machine, &policy);
    struct compensation_event event = {
        .type = COMPENSATION_EV_START, .facts = facts_of(r), .random = prng_double(&w->luck)};
    feed(r, &event);
    rounds_look(g);
}

/* Longer than the longest round may take. */
static int64_t lease_of(const struct gate *g)
{
    const struct rules *rules = &g->world->rules;
    if (HAS_BUG(g, ROUND_TWICE))
        return 0;
    return rules->deadline_ms + 2 * rules->policy.receipt_timeout_ms + SLACK_MS;
}

void rounds_look(struct gate *g)
{
    uint32_t slot = 0;
    if (!gate_up(g) || g->taking)
        return;
    while (slot < ROUNDS_MAX && g->rounds[slot])
        slot++;
    if (slot == ROUNDS_MAX)
        return; /* whichever ends first looks again */
    struct round *r = calloc(1, sizeof *r);
    if (!r)
        abort();
    r->gate = g;
    r->slot = slot;
    r->serial = ++g->serial;
    r->call = WORLD_NONE;
    g->rounds[slot] = r;
    g->working++;
    g->taking = true;
    r->work.task.owner = slice_text(g->owner);
    r->work.task.lease_end_ms = world_wall(g->world) + lease_of(g);
    struct job *job = gate_job(g, STORE_TASK_TAKE, r, WORLD_NONE, taken);
    job->op.work = &r->work;
    gate_submit(job);
}

/* ---- doing --------------------------------------------------------------------------------------------------- */

static void note(struct round *r, const char *what)
{
    if (r->asked.len)
        buffer_text(&r->asked, ", ");
    buffer_text(&r->asked, what);
    judge_round_acts(r->gate->world, r->call, what, r->task.round, r->task.granted);
}

static void feed_answer(struct round *r, bool fence, enum receipt_answer answer)
{
    struct compensation_event event = {.type = fence ? COMPENSATION_EV_FENCED : COMPENSATION_EV_ANSWER,
                                       .answer = answer};
    r->answer = answer;
    r->answered = true;
    feed(r, &event);
}

void rounds_answered(void *owner, const struct receipt_reading *reading)
{
    struct round *r = owner;
    if (reading->answer == RECEIPT_ANSWER_SUCCESS || reading->answer == RECEIPT_ANSWER_FAILED_FINAL) {
        r->end = r->row;
        r->has_end = true;
        gate_settle_row(r->gate->world, &r->end, &r->result, reading);
    }
    feed_answer(r, r->effect.type == COMPENSATION_DO_FENCE, reading->answer);
}

static void do_ask(struct round *r)
{
    struct gate *g = r->gate;
    bool fence = r->effect.type == COMPENSATION_DO_FENCE;
    note(r, fence ? "fence" : "ask");
    if (HAS_BUG(g, ROUND_BLIND) && !fence) {
        feed_answer(r, false, RECEIPT_ANSWER_NOT_RECEIVED);
        return;
    }
    (void)gate_ask(g, QUERY_ROUND, r, r->call, fence,
                   r->row.first_attempt_ms ? r->row.first_attempt_ms : r->row.created_ms,
                   g->world->rules.policy.receipt_timeout_ms);
}

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
    gate_job_free(job);
    feed_sent(r, &call);
}

/* The run is over; the store knows how. */
static void run_over(void *owner)
{
    struct round *r = owner;
    struct job *job = gate_job(r->gate, STORE_READ, r, r->call, sent_read);
    job->op.id = r->row.id;
    gate_submit(job);
}

static void taken_to_send(struct job *job)
{
    struct round *r = job->owner;
    if (job->op.status != STATUS_OK || !job->op.done) {
        struct call_row stands = job->op.status == STATUS_OK ? job->op.rows.call : r->row;
        gate_job_free(job);
        feed_sent(r, &stands);
        return;
    }
    struct run_alone ask = {.call = r->call,
                            .body = r->kept_body,
                            .closed_age_ms = since(r->store_now_ms, r->row.updated_ms),
                            .over = run_over,
                            .owner = r};
    gate_run_alone(r->gate, &ask, &job->op.rows, r->row.attempt_count > 0);
    gate_job_free(job);
}

static void do_send(struct round *r)
{
    struct gate *g = r->gate;
    note(r, r->row.attempt_count ? "send again" : "send");
    struct job *job = gate_job(g, STORE_TAKE, r, r->call, taken_to_send);
    job->op.row = r->row;
    job->op.row.owner = slice_text(g->owner);
    job->op.row.lease_end_ms = r->store_now_ms + g->world->rules.lease_ms;
    job->op.expect_call_id = r->row.id;
    job->op.expect_call_fence = r->row.fence;
    job->op.expect_holder_id = r->holder_id;
    job->op.expect_holder_fence = r->holder_fence;
    gate_submit(job);
}

#ifdef SAMEKEY_PLANTED_BUGS
/* Where the callee cannot fence, its NOT_RECEIVED is taken for a fence. */
static void fence_in_the_mind(struct round *r)
{
    struct receipt_reading reading = {.answer = RECEIPT_ANSWER_FAILED_FINAL};
    bool waits = r->effect.type == COMPENSATION_DO_WAIT || r->effect.type == COMPENSATION_DO_MANUAL;
    if (!waits || !r->machine.absent || r->machine.policy.can_fence || r->row.state != STATE_UNKNOWN)
        return;
    r->end = r->row;
    r->has_end = true;
    gate_settle_row(r->gate->world, &r->end, &r->result, &reading);
    r->effect = (struct compensation_effect){.type = COMPENSATION_DO_SETTLE,
                                             .state = STATE_FAILED,
                                             .reason = REASON_FENCED_AT_CALLEE,
                                             .status = TASK_RESOLVED,
                                             .why = "by mistake"};
}
#endif

static void act(struct round *r)
{
#ifdef SAMEKEY_PLANTED_BUGS
    if (HAS_BUG(r->gate, ROUND_FENCES))
        fence_in_the_mind(r);
#endif
    switch (r->effect.type) {
    case COMPENSATION_DO_ASK:
    case COMPENSATION_DO_FENCE:
        do_ask(r);
        break;
    case COMPENSATION_DO_SEND:
        do_send(r);
        break;
    case COMPENSATION_DO_REVERSE: /* no route of this world has one */
        judge_break(r->gate->world, "%s is to be reversed", gate_call(r->gate, r->call)->id);
        break;
    case COMPENSATION_DO_SETTLE:
    case COMPENSATION_DO_WAIT:
    case COMPENSATION_DO_MANUAL:
    case COMPENSATION_DO_CLOSE:
        write_round(r);
        break;
    }
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

/* Somebody is told, and now and then wants one round more. */
static void tell_person(struct round *r)
{
    struct world *w = r->gate->world;
    if (world_has(w, WORLD_CHANGE) && world_chance(&w->people, 300))
        world_later(w, world_between(&w->people, 200, 20000), EVENT_PERSON, 0, (uint64_t)r->task.id);
}

static void written(struct job *job)
{
    struct round *r = job->owner;
    struct gate *g = r->gate;
    struct world *w = g->world;
    enum status status = job->op.status;
    const struct call_row *stands = &job->op.rows.call;
    if (status == STATUS_OK) {
        SAY(w, "gateway", "round %d of %s: %s, %s", r->task.round, gate_call(g, r->call)->id,
            task_status_text(r->effect.status), r->effect.why);
        if (r->end_call)
            judge_round_ends(w, r->call, r->effect.state == STATE_SUCCESS);
        if (r->effect.status == TASK_MANUAL)
            tell_person(r);
    } else if (status == STATUS_CONFLICT && r->end_call) {
        /* The call moved meanwhile: what the round saw is kept, and the call stays as it stands. */
        bool final = stands->final;
        r->end_call = r->has_end = false;
        r->effect.type = final ? COMPENSATION_DO_CLOSE : COMPENSATION_DO_WAIT;
        r->effect.status = final ? TASK_RESOLVED : TASK_PENDING;
        r->effect.wait_ms = compensation_gap_ms(&r->machine.policy, r->task.round, prng_double(&w->luck));
        r->effect.why = final ? "the call has ended meanwhile" : "the call is at work now";
        gate_job_free(job);
        write_round(r);
        return;
    } else if (status != STATUS_CONFLICT && gate_now(g) + WRITE_AGAIN_MS < r->until_ms) {
        world_later(w, WRITE_AGAIN_MS, EVENT_ROUND_WRITE, r->slot, r->serial);
        gate_job_free(job);
        return;
    }
    gate_job_free(job);
    round_over(r);
}

static void write_round(struct round *r)
{
    struct gate *g = r->gate;
    const struct compensation_effect *fx = &r->effect;
    int64_t now = r->store_now_ms + (gate_now(g) - r->at_ms);
    /* From here on it only writes. A write of which the store cannot tell may have let the next round go. */
    judge_round_over(g->world, r->call, r->serial);
    struct job *job = gate_job(g, STORE_TASK_ROUND, r, r->call, written);
    r->work = (struct task_work){
        .task = {.id = r->task.id,
                 .fence = r->task.fence,
                 .owner = slice_text(g->owner),
                 .status = fx->status,
                 .due_ms = deadline_add(now, fx->wait_ms)},
        .round = {.asked = buffer_view(&r->asked),
                  .answer = slice_text(r->answered ? receipt_answer_text(r->answer) : "none"),
                  .ours = slice_text(state_text(r->row.state)),
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
        job->op.id = r->row.id;
        job->op.from_states = 1u << STATE_UNKNOWN;
    }
    gate_submit(job);
}

void rounds_write_again(struct gate *g, uint32_t slot, uint64_t serial)
{
    struct round *r = slot < ROUNDS_MAX ? g->rounds[slot] : NULL;
    if (r && r->serial == serial)
        write_round(r);
}

void rounds_forget(struct gate *g)
{
    for (int i = 0; i < ROUNDS_MAX; i++)
        if (g->rounds[i]) {
            if (g->rounds[i]->call != WORLD_NONE)
                judge_round_over(g->world, g->rounds[i]->call, g->rounds[i]->serial);
            release(g->rounds[i]);
        }
    g->taking = g->looking = false;
}

/* ---- people -------------------------------------------------------------------------------------------------- */

static void person_answered(struct job *job)
{
    if (job->op.status == STATUS_OK && job->op.done) {
        SAY(job->gate->world, "person", "wants another round of task %lld", (long long)job->op.id);
        job->gate->world->granted++;
    }
    gate_job_free(job);
}

void rounds_person(struct gate *g, int64_t task)
{
    struct job *job = gate_job(g, STORE_TASK_RUN, NULL, WORLD_NONE, person_answered);
    job->work = (struct task_work){.audit = {.who = slice_text("a person"),
                                             .what = slice_text("run"),
                                             .evidence = slice_text("asked again")}};
    job->op.work = &job->work;
    job->op.id = task;
    gate_submit(job);
}
