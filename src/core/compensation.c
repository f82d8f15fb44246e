/* SPDX-License-Identifier: MIT */
#include "core/compensation.h"

#include "core/deadline.h"

#include <assert.h>
#include <string.h>

const char *compensation_phase_text(enum compensation_phase phase)
{
    static const char *const texts[] = {"idle", "asking", "fencing", "sending", "over"};
    return texts[phase];
}

const char *compensation_effect_text(enum compensation_effect_type type)
{
    static const char *const texts[] = {"ask",  "fence",  "send",  "settle",
                                        "wait", "manual", "close", "reverse"};
    return texts[type];
}

int64_t compensation_gap_ms(const struct compensation_policy *policy, int round, double random)
{
    int64_t gap = policy->round_gap_ms;
    for (int i = 0; i < round && gap < policy->round_gap_max_ms; i++)
        gap = deadline_add(gap, gap);
    if (gap > policy->round_gap_max_ms)
        gap = policy->round_gap_max_ms;
    double factor = COMPENSATION_JITTER_LOW + (COMPENSATION_JITTER_HIGH - COMPENSATION_JITTER_LOW) * random;
    gap = (int64_t)((double)gap * factor);
    if (gap > policy->round_gap_max_ms)
        gap = policy->round_gap_max_ms;
    return gap > 0 ? gap : 1;
}

void compensation_init(struct compensation *c, const struct compensation_policy *policy)
{
    memset(c, 0, sizeof *c);
    c->policy = *policy;
}

static bool last_round(const struct compensation *c)
{
    return c->facts.round >= c->policy.rounds;
}

/* ---- the ways a round goes on or ends ----------------------------------------------------------------------- */

static void over(struct compensation *c, struct compensation_effect fx)
{
    c->phase = COMPENSATION_OVER;
    c->last = fx;
}

static void manual(struct compensation *c, const char *why, bool differs)
{
    over(c, (struct compensation_effect){
                .type = COMPENSATION_DO_MANUAL, .status = TASK_MANUAL, .why = why, .differs = differs});
}

static void wait_or_manual(struct compensation *c, const char *why)
{
    if (last_round(c)) {
        manual(c, why, false);
        return;
    }
    over(c,
         (struct compensation_effect){.type = COMPENSATION_DO_WAIT,
                                      .status = TASK_PENDING,
                                      .wait_ms = compensation_gap_ms(&c->policy, c->facts.round, c->random),
                                      .why = why});
}

/* Somebody works on the call, and that has a lease: it is waited for, after the last round too, and not for ever. */
static void at_work(struct compensation *c)
{
    over(c,
         (struct compensation_effect){.type = COMPENSATION_DO_WAIT,
                                      .status = TASK_PENDING,
                                      .wait_ms = compensation_gap_ms(&c->policy, c->facts.round, c->random),
                                      .why = "the call is at work now"});
}

static void close_as(struct compensation *c, enum task_status status, const char *why)
{
    over(c, (struct compensation_effect){.type = COMPENSATION_DO_CLOSE, .status = status, .why = why});
}

/* The task of a call that now ends. A reversal that failed undoes nothing, and somebody has to know. */
static void settle(struct compensation *c, enum call_state state, enum reason reason, const char *why)
{
    struct compensation_effect fx = {.type = COMPENSATION_DO_SETTLE,
                                     .state = state,
                                     .reason = reason,
                                     .status = TASK_RESOLVED,
                                     .why = why};
    if (c->facts.cause == TASK_CAUSE_REVERSAL)
        fx.status = state == STATE_SUCCESS ? TASK_REVERSED : TASK_MANUAL;
    over(c, fx);
}

static void go(struct compensation *c, enum compensation_phase phase, enum compensation_effect_type type)
{
    c->phase = phase;
    c->last = (struct compensation_effect){.type = type};
    c->asked = c->asked || phase == COMPENSATION_ASKING;
    c->fenced = c->fenced || phase == COMPENSATION_FENCING;
    c->sent = c->sent || phase == COMPENSATION_SENDING;
}

/* ---- what is allowed ---------------------------------------------------------------------------------------- */

static bool wanted(const struct compensation *c)
{
    return c->facts.cause == TASK_CAUSE_REVERSAL ||
           (c->facts.cause == TASK_CAUSE_UNKNOWN && c->policy.still_wanted);
}

/* Section 3, "When a repeat is safe". The receipt has just said that it is not there, or there are none. */
static bool may_send(const struct compensation *c)
{
    const struct compensation_facts *f = &c->facts;
    if (!wanted(c) || !f->has_request || !f->has_identity || !f->slot_free ||
        f->age_ms > c->policy.upstream_key_life_ms)
        return false;
    if (c->policy.runs_once)
        return true;
    return c->absent && !f->pending && f->closed_age_ms >= c->policy.resend_after_ms;
}

/* ---- events ------------------------------------------------------------------------------------------------- */

/* The call has ended: by its own owner, by a report, by a person, or before there was a task. */
static void start_ended(struct compensation *c)
{
    const struct compensation_facts *f = &c->facts;
    switch (f->cause) {
    case TASK_CAUSE_REVERSAL:
        if (f->state == STATE_SUCCESS)
            close_as(c, TASK_REVERSED, "the reversal took effect");
        else if (f->final)
            manual(c, "the reversal failed: the effect stands", false);
        else if (f->round > c->policy.rounds || !f->has_request)
            manual(c, "the reversal could not be sent", false);
        else
            go(c, COMPENSATION_SENDING, COMPENSATION_DO_SEND);
        return;
    case TASK_CAUSE_UNKNOWN:
        close_as(c, TASK_RESOLVED, "the call has ended meanwhile");
        return;
    case TASK_CAUSE_CONTRADICTED:
    case TASK_CAUSE_FAILED:
        if (f->cause == TASK_CAUSE_FAILED && f->state == STATE_SUCCESS)
            close_as(c, TASK_RESOLVED, "the call took effect after all");
        else if (f->round > c->policy.rounds)
            manual(c, "the rounds are used up", false);
        else if (c->policy.has_receipts)
            go(c, COMPENSATION_ASKING, COMPENSATION_DO_ASK);
        else
            manual(c, "nobody can be asked: this route has no receipts", false);
        return;
    }
}

static void start(struct compensation *c, const struct compensation_event *ev)
{
    const struct compensation_facts *f = &c->facts;
    c->facts = ev->facts;
    c->random = ev->random;
    if (f->state == STATE_PROCESSING) {
        at_work(c);
    } else if (f->state == STATE_SUCCESS || f->state == STATE_FAILED) {
        start_ended(c);
    } else if (f->round > c->policy.rounds) {
        manual(c, "the rounds are used up", false);
    } else if (f->state == STATE_RECEIVED || (f->never_sent && !f->maybe_ran)) {
        if (f->has_request)
            go(c, COMPENSATION_SENDING, COMPENSATION_DO_SEND);
        else
            manual(c, "its request is not kept, so it cannot be sent", false);
    } else if (c->policy.has_receipts) {
        go(c, COMPENSATION_ASKING, COMPENSATION_DO_ASK);
    } else if (may_send(c)) {
        go(c, COMPENSATION_SENDING, COMPENSATION_DO_SEND);
    } else {
        wait_or_manual(c, "nobody can be asked: this route has no receipts");
    }
}

/* The callee's word about a call whose ending is on record. */
static void answer_ended(struct compensation *c, enum receipt_answer answer)
{
    const struct compensation_facts *f = &c->facts;
    bool success = answer == RECEIPT_ANSWER_SUCCESS, failed = answer == RECEIPT_ANSWER_FAILED_FINAL;
    bool absent = answer == RECEIPT_ANSWER_NOT_RECEIVED || answer == RECEIPT_ANSWER_FAILED_OPEN;
    if (!success && !failed && !absent) {
        wait_or_manual(c, "the callee's receipt does not tell");
    } else if ((f->state == STATE_SUCCESS) != success) {
        manual(c,
               success ? "our record says FAILED, and the callee's receipt says SUCCESS"
                       : "our record says SUCCESS, and the callee knows of no effect",
               true);
    } else if (f->cause == TASK_CAUSE_FAILED && c->policy.can_fence && !f->pending && !c->fenced) {
        go(c, COMPENSATION_FENCING, COMPENSATION_DO_FENCE);
    } else {
        close_as(c, TASK_RESOLVED, "the callee's receipt agrees with our record");
    }
}

static void answer(struct compensation *c, const struct compensation_event *ev)
{
    const struct compensation_facts *f = &c->facts;
    enum receipt_answer said = ev->answer;
    c->absent = said == RECEIPT_ANSWER_NOT_RECEIVED || said == RECEIPT_ANSWER_FAILED_OPEN;
    if (f->state != STATE_UNKNOWN) {
        answer_ended(c, said);
    } else if (said == RECEIPT_ANSWER_SUCCESS) {
        settle(c, STATE_SUCCESS, REASON_RECEIPT, "the callee's receipt says that it took effect");
    } else if (said == RECEIPT_ANSWER_FAILED_FINAL) {
        settle(c, STATE_FAILED, REASON_RECEIPT, "the callee's receipt says that it failed for good");
    } else if (!c->absent) {
        wait_or_manual(c, said == RECEIPT_ANSWER_RUNNING ? "the callee still works on it"
                                                         : "the callee's receipt does not tell");
    } else if (may_send(c)) {
        go(c, COMPENSATION_SENDING, COMPENSATION_DO_SEND);
    } else if (c->policy.can_fence && !f->pending) {
        go(c, COMPENSATION_FENCING, COMPENSATION_DO_FENCE);
    } else {
        wait_or_manual(c, f->pending ? "the callee accepted it: its receipt may still come"
                                     : "the callee does not know it, and it may still arrive there");
    }
}

static void fenced(struct compensation *c, const struct compensation_event *ev)
{
    const struct compensation_facts *f = &c->facts;
    if (f->state != STATE_UNKNOWN) {
        if (ev->answer == RECEIPT_ANSWER_SUCCESS)
            manual(c, "our record says FAILED, and the callee says that it took effect", true);
        else if (ev->answer != RECEIPT_ANSWER_FAILED_FINAL)
            wait_or_manual(c, "the callee did not fence it");
        else if (c->policy.has_reversal)
            over(c, (struct compensation_effect){.type = COMPENSATION_DO_REVERSE,
                                                 .status = TASK_RESOLVED,
                                                 .why = "fenced at the callee: the reversal follows"});
        else
            close_as(c, TASK_RESOLVED, "fenced at the callee: it can never run");
    } else if (ev->answer == RECEIPT_ANSWER_FAILED_FINAL) {
        settle(c, STATE_FAILED, REASON_FENCED_AT_CALLEE, "fenced at the callee: it can never run");
    } else if (ev->answer == RECEIPT_ANSWER_SUCCESS) {
        settle(c, STATE_SUCCESS, REASON_RECEIPT, "it took effect before the fence");
    } else {
        wait_or_manual(c, "the callee did not fence it");
    }
}

/* What the call became. Its owner wrote the ending; here only the task follows. */
static void sent(struct compensation *c, const struct compensation_event *ev)
{
    bool reversal = c->facts.cause == TASK_CAUSE_REVERSAL;
    if (ev->state == STATE_PROCESSING)
        at_work(c); /* accepted, or let go by a process that ends */
    else if (ev->state == STATE_SUCCESS)
        close_as(c, reversal ? TASK_REVERSED : TASK_RESOLVED,
                 reversal ? "the reversal took effect" : "sent again, and it took effect");
    else if (ev->state == STATE_FAILED && ev->final && reversal)
        manual(c, "the reversal failed: the effect stands", false);
    else if (ev->state == STATE_FAILED && ev->final)
        close_as(c, TASK_RESOLVED, "sent again, and it failed for good");
    else
        wait_or_manual(c, ev->state == STATE_FAILED ? "it could not be sent"
                                                    : "sent, and how it ended is not known");
}

void compensation_step(struct compensation *c, const struct compensation_event *event,
                       struct compensation_effect *effect)
{
    switch (event->type) {
    case COMPENSATION_EV_START:
        assert(c->phase == COMPENSATION_IDLE);
        start(c, event);
        break;
    case COMPENSATION_EV_ANSWER:
        assert(c->phase == COMPENSATION_ASKING);
        answer(c, event);
        break;
    case COMPENSATION_EV_FENCED:
        assert(c->phase == COMPENSATION_FENCING);
        fenced(c, event);
        break;
    case COMPENSATION_EV_SENT:
        assert(c->phase == COMPENSATION_SENDING);
        sent(c, event);
        break;
    }
    *effect = c->last;
    assert(compensation_invariant(c));
}

bool compensation_invariant(const struct compensation *c)
{
    const struct compensation_effect *fx = &c->last;
    bool acts = c->asked || c->fenced || c->sent;
    if (c->phase == COMPENSATION_IDLE)
        return !acts;
    bool failed =
        c->phase == COMPENSATION_OVER && fx->type == COMPENSATION_DO_SETTLE && fx->state == STATE_FAILED;
    if (failed && !(fx->reason == REASON_RECEIPT && c->asked) &&
        !(fx->reason == REASON_FENCED_AT_CALLEE && c->fenced)) /* (1) */
        return false;
    if (c->fenced && c->facts.pending) /* (2) */
        return false;
    if (c->fenced && (c->sent || !c->asked)) /* (3) */
        return false;
    bool may_have_run = c->facts.maybe_ran && c->facts.state == STATE_UNKNOWN;
    if (c->sent && may_have_run && !(c->asked && c->absent) &&
        !(c->policy.runs_once && !c->policy.has_receipts)) /* (4) */
        return false;
    if (acts && c->facts.round > c->policy.rounds) /* (5) */
        return false;
    return c->phase != COMPENSATION_OVER || fx->why != NULL;
}
