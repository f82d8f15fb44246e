/* SPDX-License-Identifier: MIT */
#include "sim/storm.h"
#include "sim/agenda.h"
#include "sim/keeping.h"
#include "sim/number.h"

#include "base/prng.h"
#include "core/breaker.h"
#include "core/budget.h"
#include "core/call.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum waiting { WAIT_NONE, WAIT_FIXED, WAIT_PLAIN, WAIT_JITTER, WAIT_TWENTY };

static const struct {
    const char *name, *sentence;
    enum waiting waiting;
    bool budget, breaker, queue_limit, receipts;
} STRATEGIES[STORM_STRATEGY_COUNT] = {
    [STORM_NO_BACKOFF] = {.name = "no_backoff", .sentence = "tries again at once", .waiting = WAIT_NONE},
    [STORM_FIXED] = {.name = "fixed", .sentence = "waits a fixed delay", .waiting = WAIT_FIXED},
    [STORM_EXPONENTIAL] = {.name = "exponential", .sentence = "waits base x 2^n", .waiting = WAIT_PLAIN},
    [STORM_JITTER] = {.name = "jitter",
                      .sentence = "waits base x 2^n times the jitter",
                      .waiting = WAIT_JITTER},
    [STORM_TWENTY] = {.name = "twenty_percent",
                      .sentence = "waits base x 2^n, give or take 20 %",
                      .waiting = WAIT_TWENTY},
    [STORM_BUDGET] = {.name = "retry_budget",
                      .sentence = "at once, within a budget of retries",
                      .budget = true},
    [STORM_BREAKER] = {.name = "breaker", .sentence = "at once, behind a circuit breaker", .breaker = true},
    [STORM_QUEUE_LIMIT] = {.name = "queue_limit",
                           .sentence = "at once, and the server refuses what it could not do in time",
                           .queue_limit = true},
    [STORM_RECEIPT_FIRST] = {.name = "receipt_first",
                             .sentence = "asks the receipt, sends again only what never arrived",
                             .waiting = WAIT_JITTER,
                             .receipts = true},
    [STORM_ALL_TOGETHER] = {.name = "all_together",
                            .sentence = "jitter, budget, breaker, queue limit and receipt first",
                            .waiting = WAIT_JITTER,
                            .budget = true,
                            .breaker = true,
                            .queue_limit = true,
                            .receipts = true},
};

static const double RECOVERED_SHARE = 0.95, TAIL_SHARE = 0.2;
static const int64_t NO_DEADLINE_MS = INT64_C(1) << 60;

enum happening { CALL_BEGINS, TIMER_RINGS, ATTEMPT_TIMES_OUT, WORK_IS_DONE };

struct client {
    struct call call;
    int64_t began_ms;
    enum kept kept; /* what a receipt-keeping server holds */
    unsigned effects;
    int attempt; /* the one it waits for, 0: none */
    struct breaker_ticket ticket;
    bool ended, confirmed;
};

struct request {
    uint32_t client;
    int attempt;
};

struct storm {
    const struct storm_parameters *p;
    enum storm_strategy strategy;
    struct call_policy policy;
    struct agenda agenda;
    struct client *clients;
    size_t client_count;
    struct request *queue; /* a ring; its head is at work */
    size_t queue_capacity, queue_first, queue_count;
    struct budget budget;
    struct breaker breaker;
    struct prng random;
    struct storm_run *run;
    double now_ms;
    size_t second; /* the last one written */
};

void storm_defaults(struct storm_parameters *p)
{
    *p = (struct storm_parameters){.rate = 40,
                                   .spike_rate = 80,
                                   .capacity = 49,
                                   .length_s = 60,
                                   .spike_start_s = 18,
                                   .spike_length_s = 5,
                                   .timeout_s = 3,
                                   .tries = 3,
                                   .fixed_delay_s = 0.5,
                                   .base_s = 5,
                                   .cap_s = 30,
                                   .jitter_low = 0.5,
                                   .jitter_high = 1,
                                   .budget_percent = 10,
                                   .queue_limit = 100,
                                   .layers = 3,
                                   .layer_tries = 4,
                                   .seed = 42};
}

const char *storm_name(enum storm_strategy s)
{
    return STRATEGIES[s].name;
}

const char *storm_sentence(enum storm_strategy s)
{
    return STRATEGIES[s].sentence;
}

enum status storm_check(const struct storm_parameters *p, char *message)
{
    double calls = p->rate * p->length_s + fmax(0, p->spike_rate - p->rate) * p->spike_length_s;
    if (calls > STORM_CALLS_MAX) {
        snprintf(message, NUMBER_MESSAGE_BYTES,
                 "--rate, --spike and --length make about %.0f calls; at most %d", calls, STORM_CALLS_MAX);
        return STATUS_INVALID;
    }
    if (p->spike_start_s + p->spike_length_s > p->length_s) {
        snprintf(message, NUMBER_MESSAGE_BYTES, "the spike ends at %g s, after --length %g s",
                 p->spike_start_s + p->spike_length_s, p->length_s);
        return STATUS_INVALID;
    }
    return STATUS_OK;
}

static int64_t whole_ms(double seconds)
{
    return llround(seconds * 1000);
}

static void set_policy(struct storm *s)
{
    const struct storm_parameters *p = s->p;
    struct backoff wait = {
        .base_ms = whole_ms(p->base_s), .cap_ms = whole_ms(p->cap_s), .jitter_low = 1, .jitter_high = 1};
    switch (STRATEGIES[s->strategy].waiting) {
    case WAIT_NONE:
        wait.base_ms = wait.cap_ms = 0;
        break;
    case WAIT_FIXED:
        wait.base_ms = wait.cap_ms = whole_ms(p->fixed_delay_s);
        break;
    case WAIT_PLAIN:
        break;
    case WAIT_JITTER:
        wait.jitter_low = p->jitter_low;
        wait.jitter_high = p->jitter_high;
        break;
    case WAIT_TWENTY:
        wait.jitter_low = 0.8;
        wait.jitter_high = 1.2;
        break;
    }
    s->policy = (struct call_policy){
        .retries = (int)p->tries - 1,
        .attempt_timeout_ms = whole_ms(p->timeout_s),
        .backoff = wait,
        .has_receipts = STRATEGIES[s->strategy].receipts,
        /* The naive strategies only believe so; their server does everything that it is told. */
        .runs_once = true,
        .has_identity = true,
        .receipt_timeout_ms = 1000,
        .receipt_queries = 5,
        .upstream_key_life_ms = NO_DEADLINE_MS,
    };
}

static bool in_spike(const struct storm_parameters *p, double at_s)
{
    return at_s >= p->spike_start_s && at_s < p->spike_start_s + p->spike_length_s;
}

/* Writes the seconds that are over. */
static void tick(struct storm *s, double until_ms)
{
    size_t seconds = (size_t)s->p->length_s;
    while (s->second < seconds && (double)(s->second + 1) * 1000 <= until_ms) {
        s->run->second[s->second].queue = (double)s->queue_count;
        s->run->second[s->second].duplicates = (double)s->run->duplicates;
        s->second++;
    }
}

static struct storm_second *this_second(struct storm *s)
{
    size_t at = (size_t)(s->now_ms / 1000);
    return at < (size_t)s->p->length_s ? &s->run->second[at] : NULL;
}

static enum status begin_work(struct storm *s)
{
    return agenda_add(&s->agenda, s->now_ms + 1000 / s->p->capacity, WORK_IS_DONE, 0, 0);
}

static enum status step(struct storm *s, uint32_t who, struct call_event *event);

/* The attempt that the client waits for has ended with this outcome. */
static enum status attempt_ends(struct storm *s, uint32_t who, enum outcome outcome, int http_status)
{
    struct client *c = &s->clients[who];
    struct call_event event = {.type = CALL_EV_ATTEMPT,
                               .outcome = outcome,
                               .retry_allowed = true,
                               .status = http_status,
                               .retry_after_ms = -1,
                               .random = prng_double(&s->random)};
    c->attempt = 0;
    if (STRATEGIES[s->strategy].breaker)
        breaker_report(&s->breaker, (int64_t)s->now_ms, c->ticket,
                       breaker_judge(false, http_status, outcome == OUTCOME_UNKNOWN),
                       prng_double(&s->random));
    return step(s, who, &event);
}

/* A request reaches the server. */
static enum status arrive(struct storm *s, uint32_t who, int attempt)
{
    struct client *c = &s->clients[who];
    if (this_second(s))
        this_second(s)->attempts++;
    if (STRATEGIES[s->strategy].receipts) {
        enum keeping_verdict verdict = KEEPING_RUN;
        if (keeping_arrive(c->kept, false, &verdict))
            return STATUS_INVALID;
        if (verdict == KEEPING_REPLAY)
            return attempt_ends(s, who, OUTCOME_SUCCESS, 201);
        if (verdict == KEEPING_WAIT)
            return attempt_ends(s, who, OUTCOME_PENDING, 409);
    }
    if (STRATEGIES[s->strategy].queue_limit && s->queue_count >= s->p->queue_limit) {
        s->run->refused++;
        return attempt_ends(s, who, OUTCOME_NOT_EXECUTED, 503);
    }
    if (s->queue_count == s->queue_capacity)
        return STATUS_FULL;
    s->queue[(s->queue_first + s->queue_count++) % s->queue_capacity] =
        (struct request){.client = who, .attempt = attempt};
    c->kept = KEPT_RUNNING;
    enum status status = STATUS_OK;
    if (s->queue_count == 1)
        status = begin_work(s);
    if (!status)
        status = agenda_add(&s->agenda, s->now_ms + (double)s->policy.attempt_timeout_ms, ATTEMPT_TIMES_OUT,
                            who, (uint64_t)attempt);
    return status;
}

static enum status send(struct storm *s, uint32_t who, const struct call_effect *effect)
{
    struct client *c = &s->clients[who];
    int64_t now = (int64_t)s->now_ms;
    struct call_event denied = {.type = CALL_EV_DENIED, .retry_in_ms = -1, .random = prng_double(&s->random)};
    if (STRATEGIES[s->strategy].budget) {
        if (!effect->is_retry)
            budget_call(&s->budget, now);
        else if (!budget_take(&s->budget, now)) {
            denied.denial = CALL_DENIED_BUDGET;
            return step(s, who, &denied);
        }
    }
    if (STRATEGIES[s->strategy].breaker && !breaker_admit(&s->breaker, now, &c->ticket)) {
        denied.denial = CALL_DENIED_BREAKER;
        return step(s, who, &denied);
    }
    c->attempt = effect->attempt;
    s->run->attempts++;
    return arrive(s, who, effect->attempt);
}

static void end(struct storm *s, struct client *c, const struct call_effect *effect)
{
    c->ended = true;
    c->confirmed = effect->state == STATE_SUCCESS;
    s->run->confirmed += c->confirmed;
    if (c->confirmed && this_second(s))
        this_second(s)->goodput++;
}

/* Gives the client's machine one event and does the one thing that it says. */
static enum status step(struct storm *s, uint32_t who, struct call_event *event)
{
    struct client *c = &s->clients[who];
    struct call_effect effect;
    for (;;) {
        event->now_ms = (int64_t)s->now_ms;
        call_step(&c->call, event, &effect);
        if (!call_invariant(&c->call))
            return STATUS_INVALID;
        if (effect.type != CALL_DO_ASK)
            break;
        s->run->receipt_queries++;
        *event = (struct call_event){.type = CALL_EV_ANSWER,
                                     .answer = keeping_receipt(c->kept),
                                     .retry_after_ms = -1,
                                     .random = prng_double(&s->random)};
    }
    switch (effect.type) {
    case CALL_DO_SEND:
        return send(s, who, &effect);
    case CALL_DO_WAIT:
        return agenda_add(&s->agenda, fmax(s->now_ms, (double)effect.until_ms), TIMER_RINGS, who, 0);
    case CALL_DO_END:
        end(s, c, &effect);
        return STATUS_OK;
    case CALL_DO_ASK:
    case CALL_DO_FENCE:
        break;
    }
    return STATUS_INVALID;
}

/* The server has finished the request at the head of its queue. */
static enum status work_done(struct storm *s)
{
    struct request r = s->queue[s->queue_first];
    struct client *c = &s->clients[r.client];
    s->queue_first = (s->queue_first + 1) % s->queue_capacity;
    s->queue_count--;
    c->effects++;
    c->kept = KEPT_SUCCESS;
    if (c->effects > 1) {
        if (STRATEGIES[s->strategy].receipts)
            return STATUS_INVALID; /* the real keeper let one call run twice */
        s->run->duplicates++;
    }
    enum status status = s->queue_count ? begin_work(s) : STATUS_OK;
    if (!status && c->attempt == r.attempt)
        status = attempt_ends(s, r.client, OUTCOME_SUCCESS, 201);
    return status;
}

static enum status happen(struct storm *s, const struct agenda_event *e)
{
    struct client *c = &s->clients[e->who];
    switch ((enum happening)e->kind) {
    case CALL_BEGINS: {
        struct call_event start = {.type = CALL_EV_START, .deadline_ms = NO_DEADLINE_MS};
        call_init(&c->call, &s->policy);
        return step(s, e->who, &start);
    }
    case TIMER_RINGS: {
        struct call_event timer = {.type = CALL_EV_TIMER, .random = prng_double(&s->random)};
        return step(s, e->who, &timer);
    }
    case ATTEMPT_TIMES_OUT:
        if (c->attempt == (int)e->value)
            return attempt_ends(s, e->who, OUTCOME_UNKNOWN, 0);
        return STATUS_OK;
    case WORK_IS_DONE:
        return work_done(s);
    }
    return STATUS_INVALID;
}

/* All arrivals are set down beforehand, from a stream of their own: every strategy meets the same calls. */
static enum status plan_arrivals(struct storm *s)
{
    struct prng lots;
    prng_seed(&lots, s->p->seed);
    double at_s = 0;
    for (;;) {
        double gap = 1 / (in_spike(s->p, at_s) ? s->p->spike_rate : s->p->rate);
        at_s += s->p->poisson ? -log(1 - prng_double(&lots)) * gap : gap;
        if (at_s > s->p->length_s)
            return STATUS_OK;
        if (s->client_count == STORM_CALLS_MAX)
            return STATUS_FULL;
        s->clients[s->client_count].began_ms = (int64_t)(at_s * 1000);
        enum status status = agenda_add(&s->agenda, at_s * 1000, CALL_BEGINS, (uint32_t)s->client_count, 0);
        if (status)
            return status;
        s->client_count++;
    }
}

static void sum_up(struct storm *s)
{
    struct storm_run *run = s->run;
    uint64_t tail = 0, tail_confirmed = 0;
    int64_t tail_start_ms = whole_ms(s->p->length_s * (1 - TAIL_SHARE));
    run->calls = s->client_count;
    for (size_t i = 0; i < s->client_count; i++) {
        const struct client *c = &s->clients[i];
        assert(c->ended);
        run->effective_unconfirmed += c->effects > 0 && !c->confirmed;
        if (c->began_ms >= tail_start_ms) {
            tail++;
            tail_confirmed += c->confirmed;
        }
    }
    run->tail_success = tail ? (double)tail_confirmed / (double)tail : 1;
    run->recovered = run->tail_success >= RECOVERED_SHARE;
}

enum status storm_run(const struct storm_parameters *p, enum storm_strategy strategy, struct storm_run *out)
{
    struct storm s = {.p = p, .strategy = strategy};
    enum status status = STATUS_NO_MEMORY;
    double calls = p->rate * p->length_s + fmax(0, p->spike_rate - p->rate) * p->spike_length_s;
    /* Poisson arrivals scatter around their mean; ten deviations are never reached. */
    size_t room = (size_t)(calls + 10 * sqrt(calls)) + 16;
    room = room > STORM_CALLS_MAX ? STORM_CALLS_MAX : room;
    s.queue_capacity = room * p->tries;
    s.clients = calloc(room, sizeof *s.clients);
    s.queue = calloc(s.queue_capacity, sizeof *s.queue);
    s.run = calloc(1, sizeof *s.run);
    if (!s.clients || !s.queue || !s.run)
        goto done;
    prng_seed(&s.random, p->seed ^ UINT64_C(0x9e3779b97f4a7c15) * (strategy + 1u));
    set_policy(&s);
    budget_init(&s.budget, p->budget_percent, 0, 0);
    breaker_init(
        &s.breaker,
        &(struct breaker_rule){
            .failures_percent = 50, .calls_min = 20, .window_ms = 10000, .open_ms = 5000, .probes = 1},
        0);
    status = plan_arrivals(&s);
    for (struct agenda_event e; !status && agenda_take(&s.agenda, &e);) {
        tick(&s, e.time);
        s.now_ms = e.time;
        status = happen(&s, &e);
    }
    if (status)
        goto done;
    tick(&s, p->length_s * 1000);
    sum_up(&s);
    *out = *s.run;
done:
    agenda_fini(&s.agenda);
    free(s.clients);
    free(s.queue);
    free(s.run);
    return status;
}

/* A layer passes each try on to the one below; the bottom counts and fails. */
static uint64_t layer_tries(unsigned layers_below, unsigned tries, bool one_owner)
{
    uint64_t bottom = 0;
    for (unsigned n = 0; n < tries; n++)
        bottom += layers_below ? layer_tries(layers_below - 1, one_owner ? 1 : tries, one_owner) : 1;
    return bottom;
}

uint64_t storm_layers(unsigned layers, unsigned tries, bool one_owner)
{
    assert(layers >= 1 && layers <= STORM_LAYERS_MAX && tries >= 1 && tries <= STORM_TRIES_MAX);
    return layer_tries(layers - 1, tries, one_owner);
}
