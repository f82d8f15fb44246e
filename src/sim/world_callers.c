/* SPDX-License-Identifier: MIT
 *
 * The callers: each begins new calls, repeats those that it has heard no ending of, asks for receipts, gives up, and
 * does what people do wrong: another callId for the same order, the same callId for another, a new key for what may
 * have run. They are many and impatient, and they never look into the gateway.
 */
#include "sim/world_inside.h"

enum { OPERATIONS_RECENT = 12, CALLS_RECENT = 30, MADE_EVERY = 12 };

static void request(struct world *w, uint32_t call, enum request_kind kind)
{
    struct prng *g = &w->people;
    struct caller_request r = {.call = call, .budget_ms = -1};
    r.kind = kind;
    /* Only a call can be made by mistake; about a callId itself there is nothing to mistake. */
    if (kind != REQUEST_CALL && w->calls.list[call].alias_of)
        r.call = call = w->calls.list[call].alias_of - 1;
    if (kind == REQUEST_CALL) {
        if (world_chance(g, 300))
            r.budget_ms = world_between(g, 50, 8000);
        if (world_has(w, WORLD_HANGUP) && world_chance(g, 200))
            r.hangs_up_ms = world_between(g, 1, 2000);
        w->calls.list[call].tries++;
    } else {
        r.names_key = world_chance(g, 500);
    }
    uint32_t number = w->requests.count;
    struct caller_request *at = ADD(w, requests);
    if (!at)
        return;
    *at = r;
    const struct operation *o = &w->operations.list[w->calls.list[call].operation];
    SAY(w, "caller", "%u: %s %s, key %s", w->calls.list[call].caller,
        kind == REQUEST_CALL    ? "calls"
        : kind == REQUEST_FENCE ? "gives up"
                                : "asks for",
        w->calls.list[call].id, o->has_key ? o->key : "none");
    if (world_has(w, WORLD_LOSS) && world_chance(g, w->rules.loss))
        return;
    world_later(w, world_quick(w), EVENT_REQUEST, 0, number);
    if (world_has(w, WORLD_COPY) && world_chance(g, w->rules.copy))
        world_later(w, world_quick(w), EVENT_REQUEST, 0, number);
}

/* One of the newest `reach`; WORLD_NONE when there is none. */
static uint32_t recent(struct prng *g, uint32_t count, uint32_t reach)
{
    if (!count)
        return WORLD_NONE;
    reach = reach < count ? reach : count;
    return count - 1 - (uint32_t)prng_below(g, reach);
}

/* A recent call with a callId of its caller's, over or not. */
static uint32_t known_call(struct world *w, bool settled)
{
    for (int tries = 0; tries < 8; tries++) {
        uint32_t call = recent(&w->people, w->calls.count, CALLS_RECENT);
        if (call != WORLD_NONE && !w->calls.list[call].made && w->calls.list[call].settled == settled)
            return call;
    }
    return WORLD_NONE;
}

static void new_call(struct world *w, uint32_t caller)
{
    struct prng *g = &w->people;
    uint32_t operation = world_operation(w, !world_chance(g, 80));
    if (operation == WORLD_NONE)
        return;
    uint32_t call =
        world_call(w, operation, w->operations.list[operation].body, caller, prng_below(g, MADE_EVERY) == 0);
    if (call != WORLD_NONE)
        request(w, call, REQUEST_CALL);
}

/* A further call on an operation that exists: with the same request, or another one under its key. */
static void same_key(struct world *w, uint32_t caller, bool other_body)
{
    uint32_t operation = recent(&w->people, w->operations.count, OPERATIONS_RECENT);
    if (operation == WORLD_NONE || !w->operations.list[operation].has_key)
        return;
    uint32_t body = w->operations.list[operation].body + (other_body ? 1000000 : 0);
    uint32_t call = world_call(w, operation, body, caller, prng_below(&w->people, MADE_EVERY) == 0);
    if (call != WORLD_NONE)
        request(w, call, REQUEST_CALL);
}

/* A known request under a new callId and a new key. */
static void new_key(struct world *w, uint32_t caller)
{
    uint32_t old = recent(&w->people, w->operations.count, OPERATIONS_RECENT);
    uint32_t operation = old == WORLD_NONE ? old : world_operation(w, true);
    if (operation == WORLD_NONE)
        return;
    w->operations.list[operation].body = w->operations.list[old].body;
    uint32_t call = world_call(w, operation, w->operations.list[old].body, caller, false);
    if (call != WORLD_NONE)
        request(w, call, REQUEST_CALL);
}

/* A known callId for another operation: the call's identity stays, only this one request is wrong. */
static void swap(struct world *w, uint32_t caller)
{
    uint32_t call = known_call(w, world_chance(&w->people, 500));
    uint32_t operation = recent(&w->people, w->operations.count, OPERATIONS_RECENT);
    if (call == WORLD_NONE || operation == WORLD_NONE || operation == w->calls.list[call].operation)
        return;
    /* Only a callId that is taken for sure: else the mistake would be the first to bear it. */
    if (!w->calls.list[call].on_wire || w->calls.list[call].alias_of || w->rules.short_lives)
        return;
    struct world_call like = w->calls.list[call];
    uint32_t wrong = world_call(w, operation, w->operations.list[operation].body, caller, false);
    if (wrong == WORLD_NONE)
        return;
    struct world_call *c = &w->calls.list[wrong];
    c->alias_of = call + 1;
    c->id = like.id;
    c->digest = like.digest;
    c->id_time_ms = like.id_time_ms;
    request(w, wrong, REQUEST_CALL);
}

void callers_act(struct world *w, uint32_t caller)
{
    struct prng *g = &w->people;
    if (w->quiet)
        return;
    world_later(w, world_between(g, 1, 2 * w->rules.pace_ms), EVENT_CALLER, caller, 0);
    uint64_t what = prng_below(g, 100);
    bool swaps = world_has(w, WORLD_SWAP), changes = world_has(w, WORLD_CHANGE);
    uint32_t call;
    if (what < 35) {
        new_call(w, caller);
    } else if (what < 62) {
        if ((call = known_call(w, false)) != WORLD_NONE)
            request(w, call, REQUEST_CALL);
    } else if (what < 70) {
        if ((call = known_call(w, true)) != WORLD_NONE)
            request(w, call, REQUEST_CALL);
    } else if (what < 80) {
        same_key(w, caller, false);
    } else if (what < 88) {
        if ((call = known_call(w, world_chance(g, 500))) != WORLD_NONE)
            request(w, call, REQUEST_READ);
    } else if (what < 91 && changes) {
        if ((call = known_call(w, false)) != WORLD_NONE)
            request(w, call, REQUEST_FENCE);
    } else if (what < 93 && swaps) {
        same_key(w, caller, true);
    } else if (what < 95 && swaps) {
        new_key(w, caller);
    } else if (what < 97 && swaps) {
        swap(w, caller);
    }
}

void callers_hear(struct world *w, uint32_t call, bool over)
{
    if (over)
        w->calls.list[call].settled = true;
}

void callers_begin(struct world *w)
{
    for (uint32_t i = 0; i < w->rules.callers; i++)
        world_later(w, world_between(&w->people, 1, w->rules.pace_ms), EVENT_CALLER, i, 0);
}

void callers_finish(struct world *w)
{
    uint32_t count = w->calls.count;
    for (uint32_t i = 0; i < count; i++)
        if (!w->calls.list[i].settled && !w->calls.list[i].made && !w->calls.list[i].alias_of &&
            w->calls.list[i].tries)
            request(w, i, REQUEST_CALL);
}
