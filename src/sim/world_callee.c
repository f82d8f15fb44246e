/* SPDX-License-Identifier: MIT
 *
 * The callee: it takes requests, makes effects and keeps honest receipts, in the way of its kind (world_inside.h).
 *
 * Always true: (1) a receipt never lies: SUCCESS has its effect in the same step, FAILED final is never followed by one,
 * PROCESSING is there from a request's arrival until then (late_receipts: of queued work only from its commit, which
 * only a callee that runs a callId once may do); (2) every copy of one attempt meets the same fate: a request that was
 * refused is refused again, or "it was refused" would prove nothing.
 */
#include "sim/world_inside.h"

#include <stdio.h>
#include <string.h>

enum fate {
    FATE_DONE,         /* effect, 201 */
    FATE_DONE_LARGE,   /* the same with an answer too large to keep */
    FATE_REJECT,       /* 422, for good */
    FATE_BUSY,         /* 429 with Retry-After, before anything */
    FATE_UNAUTHORIZED, /* 401 */
    FATE_FAIL,         /* 500 with Call-Outcome: failed; nothing done */
    FATE_ERROR_BEFORE, /* a bare 500; nothing done */
    FATE_ERROR_AFTER,  /* a bare 500 after the commit */
    FATE_HANG,         /* nothing is done, nothing is said */
    FATE_SLOW,         /* effect after a long time */
    FATE_QUEUE,        /* 202, the effect later */
    FATE_QUEUE_FAIL,   /* 202, and it comes to nothing, finally */
};

static bool keeps_receipts(const struct world *w)
{
    return w->rules.callee == CALLEE_BESIDE || w->rules.callee == CALLEE_ONCE;
}

unsigned callee_fate(struct world *w, const struct message *m)
{
    (void)m;
    struct prng *g = &w->service;
    if (!world_has(w, WORLD_CALLEE) || !world_chance(g, w->rules.callee_trouble))
        return world_chance(g, 20) ? FATE_DONE_LARGE : FATE_DONE;
    static const enum fate fates[] = {FATE_REJECT,       FATE_BUSY,        FATE_UNAUTHORIZED, FATE_FAIL,
                                      FATE_ERROR_BEFORE, FATE_ERROR_AFTER, FATE_HANG,         FATE_SLOW,
                                      FATE_QUEUE,        FATE_QUEUE_FAIL};
    enum fate fate = fates[prng_below(g, sizeof fates / sizeof *fates)];
    /* Where a 500 is said to mean that nothing was done, it does. */
    if (fate == FATE_ERROR_AFTER && w->rules.outcome.server_error_failed)
        fate = FATE_ERROR_BEFORE;
    return fate;
}

/* ---- receipts ----------------------------------------------------------------------------------------------- */

static bool forgotten(const struct world *w, const struct callee_receipt *r)
{
    return w->rules.memory_ms && r->final && w->now_ms - r->at_ms > w->rules.memory_ms;
}

const struct callee_receipt *callee_receipt_of(const struct world *w, uint32_t call)
{
    static const struct callee_receipt none;
    const struct callee_receipt *r = &w->calls.list[call].receipt;
    return !r->exists || forgotten(w, r) ? &none : r;
}

static void write_receipt(struct world *w, uint32_t call, enum call_state state, bool final)
{
    struct callee_receipt *r = &w->calls.list[call].receipt;
    r->exists = true;
    r->state = state;
    r->final = final;
    r->at_ms = w->now_ms;
}

/* A callee that runs once: the ending by which this request is answered instead, or NULL. */
static const struct callee_receipt *ended_before(const struct world *w, const struct message *m)
{
    const struct callee_receipt *own = callee_receipt_of(w, m->call);
    if (w->rules.callee == CALLEE_ONCE)
        return own->exists && own->final ? own : NULL;
    if (w->rules.callee != CALLEE_IDEMPOTENT)
        return NULL;
    if (own->exists && own->final)
        return own;
    if (!m->has_key)
        return NULL;
    /* By the key as it came on the wire. */
    for (uint32_t i = w->calls.count; i-- > 0;) {
        const struct callee_receipt *r = callee_receipt_of(w, i);
        if (r->exists && r->state == STATE_SUCCESS && strcmp(w->calls.list[i].wire_key, m->key) == 0)
            return r;
    }
    return NULL;
}

static void answer_ended(struct callee_answer *a, const struct callee_receipt *r, const struct world *w,
                         uint32_t call)
{
    if (r->state == STATE_SUCCESS) {
        a->status = 201;
        snprintf(a->body, sizeof a->body, "{\"effect\":%u}", r->effect);
        return;
    }
    a->status = 409;
    a->said = OUTCOME_REJECTED;
    snprintf(a->body, sizeof a->body, "{\"refused\":\"%s\"}", w->calls.list[call].id);
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

void callee_request(struct world *w, uint32_t message)
{
    struct message *m = &w->messages.list[message];
    struct prng *g = &w->service;
    uint32_t number = w->works.count;
    struct work *work = ADD(w, works);
    if (!work)
        return;
    work->message = message;
    struct callee_answer *a = &work->answer;
    a->message = message;
    a->retry_after_ms = -1;
    int64_t soon = world_between(g, 1, 60);
    const struct callee_receipt *ended = ended_before(w, m), *own = callee_receipt_of(w, m->call);
    enum fate fate = (enum fate)m->fate;
    SAY(w, "callee", "attempt %d of %s arrives, %lld ms after it was sent", m->attempt,
        w->calls.list[m->call].id, (long long)(w->now_ms - m->sent_ms));
    if (ended) {
        answer_ended(a, ended, w, m->call);
        world_later(w, soon, EVENT_CALLEE_ANSWER, 0, number);
        return;
    }
    if (w->rules.callee == CALLEE_ONCE && own->exists && own->state == STATE_PROCESSING) {
        a->status = 409; /* it runs: as a samekey would say it */
        a->said = OUTCOME_PENDING;
        world_later(w, soon, EVENT_CALLEE_ANSWER, 0, number);
        return;
    }
    bool late = w->rules.late_receipts && (fate == FATE_QUEUE || fate == FATE_QUEUE_FAIL);
    if (fate != FATE_BUSY && fate != FATE_UNAUTHORIZED && keeps_receipts(w) && !late)
        write_receipt(w, m->call, STATE_PROCESSING, false);
    switch (fate) {
    case FATE_DONE:
    case FATE_DONE_LARGE:
    case FATE_ERROR_AFTER:
        world_later(w, soon, EVENT_CALLEE_COMMIT, 0, number);
        return;
    case FATE_SLOW:
        world_later(w, world_between(g, 100, 3 * w->rules.policy.attempt_timeout_ms), EVENT_CALLEE_COMMIT, 0,
                    number);
        return;
    case FATE_QUEUE:
    case FATE_QUEUE_FAIL:
        world_later(w, world_between(g, 500, 6000), EVENT_CALLEE_COMMIT, 0, number);
        work->accepted = true;
        a->status = 202;
        break;
    case FATE_REJECT:
        a->status = 422;
        if (keeps_receipts(w))
            write_receipt(w, m->call, STATE_FAILED, true);
        break;
    case FATE_BUSY:
        a->status = 429;
        a->retry_after_ms = 1000 * world_between(g, 0, 3);
        break;
    case FATE_UNAUTHORIZED:
        a->status = 401;
        break;
    case FATE_FAIL:
        a->status = 500;
        a->said = OUTCOME_FAILED;
        if (keeps_receipts(w))
            write_receipt(w, m->call, STATE_FAILED, false);
        break;
    case FATE_ERROR_BEFORE:
        a->status = 500;
        if (keeps_receipts(w))
            write_receipt(w, m->call, STATE_FAILED, false);
        break;
    case FATE_HANG:
        return;
    }
    world_later(w, soon, EVENT_CALLEE_ANSWER, 0, number);
}

/* The transaction: the effect with its receipt, or what a commit that comes second finds. */
void callee_commit(struct world *w, uint32_t number)
{
    struct work *work = &w->works.list[number];
    struct message *m = &w->messages.list[work->message];
    struct world_call *c = &w->calls.list[m->call];
    struct callee_answer *a = &work->answer;
    const struct callee_receipt *ended = ended_before(w, m);
    enum fate fate = (enum fate)m->fate;
    if (ended) {
        answer_ended(a, ended, w, m->call);
    } else if (fate == FATE_QUEUE_FAIL) {
        write_receipt(w, m->call, STATE_FAILED, true); /* without receipts: remembered for the report */
        SAY(w, "callee", "%s comes to nothing", c->id);
    } else {
        c->receipt.effect = ++w->effects;
        write_receipt(w, m->call, STATE_SUCCESS, true);
        SAY(w, "callee", "effect #%u: %s, key %s", w->effects, c->id, m->has_key ? m->key : "none");
        judge_effect(w, m);
        a->status = fate == FATE_ERROR_AFTER ? 500 : 201;
        a->too_large = fate == FATE_DONE_LARGE;
        snprintf(a->body, sizeof a->body, "{\"effect\":%u}", w->effects);
    }
    if (!work->accepted)
        world_later(w, world_between(&w->service, 0, 20), EVENT_CALLEE_ANSWER, 0, number);
    else if (world_has(w, WORLD_CHANGE) && world_chance(&w->service, 600))
        world_later(w, world_quick(w), EVENT_CALLEE_REPORT, 0, m->call);
}

void callee_answer_now(struct world *w, uint32_t work)
{
    struct callee_answer answer = w->works.list[work].answer;
    world_answer(w, &answer);
}

/* ---- queries ------------------------------------------------------------------------------------------------ */

void callee_query(struct world *w, uint32_t query)
{
    struct query *q = &w->queries.list[query];
    const struct callee_receipt *r = callee_receipt_of(w, q->call);
    q->status = 200;
    if (q->fence) {
        if (r->exists && r->state == STATE_PROCESSING) {
            q->status = 409;
        } else if (!r->exists || !r->final) {
            write_receipt(w, q->call, STATE_FAILED, true);
            w->calls.list[q->call].receipt.fenced = true;
            r = &w->calls.list[q->call].receipt;
        }
    }
    q->told = *r;
    if (w->rules.memory_ms)
        q->covers_since_ms = WORLD_START_MS + w->now_ms - w->rules.memory_ms;
    SAY(w, "callee", "%s %s: %s%s", q->fence ? "is to fence" : "is asked for the receipt of",
        w->calls.list[q->call].id, r->exists ? state_text(r->state) : "NOT_RECEIVED",
        r->exists && r->final ? ", final" : "");
}
