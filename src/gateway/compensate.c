/* SPDX-License-Identifier: MIT */
#include "gateway/compensate_parts.h"

#include "gateway/settle.h"

#include <stdlib.h>

#define ROUND_LOOK_MS     500         /* between two looks for due tasks, when there was none */
#define ROUNDS_AT_ONCE    32          /* rounds at work */
#define ROUND_ARENA_BYTES (16u << 20) /* texts of one round: the kept request, the result of a receipt */
#define ROUND_SLACK_MS    30000       /* a lease outlasts what a round may do by this much */
#define ROUNDS_DEFAULT    5           /* of a call whose route is gone: nobody can be asked */
#define ROUND_GAP_DEFAULT 60000

static void take_next(struct compensator *c);

int64_t compensator_now(const struct compensator *c)
{
    return net_loop_now(c->shard->loop);
}

void round_free(struct round *r)
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

int64_t round_since(int64_t now_ms, int64_t then_ms)
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
        .pending = call_was_accepted(call),
        .has_request = r->kept.has && r->lane,
        .has_identity = call->has_key || !call->call_id_made,
        .slot_free = r->slot_free,
        .age_ms = round_since(r->store_now_ms, call->first_attempt_ms),
        .closed_age_ms = round_since(r->store_now_ms, call->updated_ms),
    };
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
            net_timer_arm(c->shard->loop, &c->look, compensator_now(c) + ROUND_LOOK_MS, on_look);
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
    r->began_ms = compensator_now(c);
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
    round_feed(r, &event);
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
        net_timer_arm(c->shard->loop, &c->look, compensator_now(c) + ROUND_LOOK_MS, on_look);
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
