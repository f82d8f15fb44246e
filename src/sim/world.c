/* SPDX-License-Identifier: MIT */
#include "sim/world.h"

#include "sim/world_disk.h"
#include "sim/world_inside.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLD_NAMES_BYTES (1u << 30) /* callIds and keys of one world, at most */
enum { FOREVER_MS = 24 * 3600 * 1000, TROUBLE_MS = 400 };

/* ---- names -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *text, *sentence;
} faults[] = {
#define FAULT(name, text, sentence) {text, sentence},
#include "sim/world_faults.def"
#undef FAULT
};

const char *world_fault_text(enum world_fault fault)
{
    return faults[fault].text;
}

const char *world_fault_sentence(enum world_fault fault)
{
    return faults[fault].sentence;
}

enum status world_faults_parse(const char *list, unsigned *mask)
{
    unsigned got = 0;
    while (*list) {
        size_t len = strcspn(list, ",");
        int fault = 0;
        while (fault < WORLD_FAULTS && !slice_is(slice_of(list, len), faults[fault].text))
            fault++;
        if (fault == WORLD_FAULTS)
            return STATUS_INVALID;
        got |= 1u << fault;
        list += len + (list[len] == ',');
    }
    *mask = got;
    return STATUS_OK;
}

static const char *const bugs[] = {
    "none",
#define BUG(name, text, sentence) text,
#include "sim/world_bugs.def"
#undef BUG
};

const char *world_bug_text(enum world_bug bug)
{
    return bugs[bug];
}

enum status world_bug_parse(const char *text, enum world_bug *bug)
{
#ifdef SAMEKEY_PLANTED_BUGS
    for (int i = 1; i < WORLD_BUGS; i++)
        if (strcmp(text, bugs[i]) == 0) {
            *bug = (enum world_bug)i;
            return STATUS_OK;
        }
#endif
    (void)text, (void)bug;
    return STATUS_NOT_FOUND;
}

void world_defaults(struct world_parameters *p)
{
    *p = (struct world_parameters){.seed = 42, .steps = 5000, .faults = WORLD_ALL_FAULTS};
}

/* ---- what the parts share ----------------------------------------------------------------------------------- */

bool world_has(const struct world *w, enum world_fault fault)
{
    return !w->quiet && (w->p.faults & 1u << fault);
}

int64_t world_wall(const struct world *w)
{
    return WORLD_START_MS + w->now_ms + w->wall_offset_ms;
}

void world_later(struct world *w, int64_t after_ms, enum world_event kind, uint32_t who, uint64_t value)
{
    assert(after_ms >= 0);
    if (agenda_add(&w->agenda, (double)(w->now_ms + after_ms), kind, who, value) != STATUS_OK)
        w->failed = true;
}

void world_say(struct world *w, const char *who, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    buffer_format(w->transcript, "[%7lld] %-9s %s\n", (long long)w->now_ms, who, line);
}

void *world_grow(struct world *w, void *list, uint32_t *count, uint32_t *capacity, size_t size)
{
    char **at = list;
    if (*count == *capacity) {
        uint32_t more = *capacity ? *capacity * 2 : 256;
        char *bytes = realloc(*at, more * size);
        if (!bytes) {
            w->failed = true;
            return NULL;
        }
        *at = bytes;
        *capacity = more;
    }
    void *item = *at + (size_t)(*count)++ * size;
    memset(item, 0, size);
    return item;
}

bool world_chance(struct prng *g, unsigned permille)
{
    return permille && prng_below(g, 1000) < permille;
}

int64_t world_between(struct prng *g, int64_t low, int64_t high)
{
    return high > low ? low + (int64_t)prng_below(g, (uint64_t)(high - low) + 1) : low;
}

static const char *keep_name(struct world *w, const char *name)
{
    char *kept = arena_take(&w->names, strlen(name) + 1);
    if (!kept) {
        w->failed = true;
        return "";
    }
    memcpy(kept, name, strlen(name) + 1);
    return kept;
}

uint32_t world_operation(struct world *w, bool has_key)
{
    char name[WORLD_NAME];
    uint32_t number = w->operations.count;
    struct operation *o = ADD(w, operations);
    if (!o)
        return WORLD_NONE;
    o->has_key = has_key;
    o->body = number;
    o->low_wall_ms = INT64_MAX;
    o->safe_since_ms = -1;
    snprintf(name, sizeof name, "order-%u", number);
    o->key = has_key ? keep_name(w, name) : "";
    return number;
}

static const struct slice SCOPE = SLICE_LITERAL("orders /orders");

uint32_t world_call(struct world *w, uint32_t operation, uint32_t body, uint32_t caller, bool made)
{
    char name[WORLD_NAME];
    uint32_t number = w->calls.count;
    struct world_call *c = ADD(w, calls);
    if (!c)
        return WORLD_NONE;
    c->operation = operation;
    c->body = body;
    c->caller = caller;
    c->made = made;
    c->low_wall_ms = INT64_MAX;
    /* Callers' clocks are right; only the gateway's machine is set wrongly. */
    if (w->rules.times_in_ids && !made) {
        c->id_time_ms = WORLD_START_MS + w->now_ms;
        snprintf(name, sizeof name, "ord-%lld-%012x-n", (long long)c->id_time_ms, number);
    } else {
        snprintf(name, sizeof name, made ? "made-%u" : "call-%u", number);
    }
    c->id = keep_name(w, name);
    struct operation *o = &w->operations.list[operation];
    c->digest = digest_call(&w->hasher, slice_of("", 0), slice_text(c->id));
    if (o->has_key)
        c->operation_digest = digest_operation(&w->hasher, slice_of("", 0), SCOPE, slice_text(o->key));
    hasher_begin(&w->hasher);
    hasher_add(&w->hasher, &body, sizeof body);
    hasher_end(&w->hasher, &c->fingerprint);
    w->result->calls++;
    return number;
}

/* ---- a seed's rules ----------------------------------------------------------------------------------------- */

static void draw_rules(struct world *w, struct prng *g)
{
    struct rules *r = &w->rules;
    struct call_policy *p = &r->policy;
    r->callee = (enum callee_kind)prng_below(g, CALLEE_KINDS);
    r->callers = (unsigned)world_between(g, 2, WORLD_CALLERS);
    if (w->p.callers && w->p.callers < r->callers)
        r->callers = w->p.callers;
    p->attempt_timeout_ms = world_between(g, 150, 1500);
    p->retries = (int)world_between(g, world_chance(g, 200) ? 0 : 2, 4);
    p->spares = world_chance(g, 200) ? 1 : 0;
    p->backoff = (struct backoff){
        .base_ms = world_between(g, 20, 300), .cap_ms = 1000, .jitter_low = 0.5, .jitter_high = 1};
    p->retry_after_max_ms = world_between(g, 500, 5000);
    p->has_receipts = r->callee == CALLEE_BESIDE || r->callee == CALLEE_ONCE;
    p->runs_once = r->callee == CALLEE_ONCE || r->callee == CALLEE_IDEMPOTENT;
    p->can_fence = r->callee == CALLEE_ONCE && world_chance(g, 600);
    p->receipt_timeout_ms = world_between(g, 100, 600);
    p->receipt_queries = (int)world_between(g, 1, 6);
    r->resend_ms = p->attempt_timeout_ms;
    if (world_chance(g, 500))
        r->resend_ms = world_between(g, 100, 2500);
    p->resend_after_ms = r->resend_ms;
    p->upstream_key_life_ms = FOREVER_MS;
    p->ask_past_deadline = true;
    r->outcome.server_error_failed = world_chance(g, 300);
    r->deadline_ms = world_between(g, 1000, 12000);
    r->lease_ms = p->attempt_timeout_ms + world_between(g, 100, 8000);
    r->wait_ms = world_chance(g, 200) ? 0 : world_between(g, 100, 2000);
    r->tick_ms = 1000;
    r->purge_every_ms = world_between(g, 2000, 20000);
    r->short_lives = world_chance(g, 300);
    r->result_life_ms = r->key_life_ms = r->tombstone_life_ms = 30 * (int64_t)FOREVER_MS;
    if (r->short_lives) {
        r->result_life_ms = world_between(g, 1000, 60000);
        r->key_life_ms = r->result_life_ms + world_between(g, 0, 60000);
        r->tombstone_life_ms = r->key_life_ms + world_between(g, 0, 60000);
    }
    r->delay_max_ms = world_between(g, 200, 20000);
    if (r->callee == CALLEE_BESIDE) /* the promise that its receipts rest on */
        r->delay_max_ms = r->resend_ms - 1;
    if (p->runs_once && world_chance(g, 150)) {
        r->memory_ms = 90000;
        p->upstream_key_life_ms = 40000;
        r->delay_max_ms = r->delay_max_ms < 30000 ? r->delay_max_ms : 30000;
    }
    r->late_receipts = r->callee == CALLEE_ONCE && world_chance(g, 300);
    r->bare_receipts = world_chance(g, 300);
    r->watch_suspects = world_chance(g, 700);
    r->block_suspects = r->watch_suspects && world_chance(g, 300);
    r->times_in_ids = world_chance(g, 500);
    r->quick_ms = world_between(g, 1, 40);
    r->loss = (unsigned)world_between(g, 0, 120);
    r->copy = (unsigned)world_between(g, 0, 150);
    r->cut = (unsigned)world_between(g, 0, 100);
    r->refuse = (unsigned)world_between(g, 0, 100);
    r->proxy = (unsigned)world_between(g, 0, 80);
    r->callee_trouble = (unsigned)world_between(g, 0, 400);
    r->deny = (unsigned)world_between(g, 0, 100);
    r->crash = (unsigned)world_between(g, 0, 80);
    r->disk = (unsigned)world_between(g, 0, 60);
    r->clock = world_chance(g, 300) && !r->memory_ms ? (unsigned)world_between(g, 5, 30) : 0;
    r->tail_entries = world_chance(g, 700) ? (size_t)world_between(g, 2, 64) : 512;
    r->pace_ms = world_between(g, 40, 800);
    r->rounds = (int)world_between(g, 1, 5);
    r->round_gap_ms = world_between(g, 200, 8000);
    r->round_gap_max_ms = r->round_gap_ms * world_between(g, 1, 4);
    r->still_wanted = world_chance(g, 600);
    r->compensates = world_chance(g, 250);
    static const char *const kinds[] = {"plain", "receipts beside", "runs a call once", "runs a key once"};
    SAY(w, "world",
        "seed %llu: callee %s, %u callers, attempts %lld ms x %d, deadline %lld ms, lease %lld ms%s%s",
        (unsigned long long)w->p.seed, kinds[r->callee], r->callers, (long long)p->attempt_timeout_ms,
        p->retries + 1, (long long)r->deadline_ms, (long long)r->lease_ms,
        r->short_lives ? ", short lives" : "", r->memory_ms ? ", a forgetful callee" : "");
}

/* ---- the network -------------------------------------------------------------------------------------------- */

int64_t world_quick(struct world *w)
{
    return world_between(&w->network, 1, w->rules.quick_ms);
}

static int64_t travel(struct world *w, int64_t longest)
{
    int64_t quick = world_quick(w);
    if (world_has(w, WORLD_DELAY) && world_chance(&w->network, 150))
        return world_between(&w->network, 1, longest);
    return quick < longest ? quick : longest;
}

void world_send(struct world *w, uint32_t message)
{
    struct message *m = &w->messages.list[message];
    const struct rules *r = &w->rules;
    struct prng *g = &w->network;
    m->sent_ms = w->now_ms;
    m->fate = callee_fate(w, m);
    judge_sent(w, m);
    if (world_has(w, WORLD_REFUSE) && world_chance(g, r->refuse)) {
        SAY(w, "network", "refuses the connection for %s", w->calls.list[m->call].id);
        world_later(w, world_quick(w), EVENT_RUN_END, END_REFUSED, message);
        return;
    }
    if (world_has(w, WORLD_CUT) && world_chance(g, r->cut)) {
        enum end_kind kind = world_chance(g, 500) ? END_RESET : END_CUT;
        world_later(w, world_between(g, 1, r->policy.attempt_timeout_ms), EVENT_RUN_END, kind, message);
    }
    if (world_has(w, WORLD_PROXY) && world_chance(g, r->proxy))
        world_later(w, world_between(g, 1, r->policy.attempt_timeout_ms), EVENT_RUN_END,
                    END_PROXY_502 + (uint32_t)prng_below(g, 3), message);
    if (world_has(w, WORLD_LOSS) && world_chance(g, r->loss)) {
        SAY(w, "network", "loses attempt %d of %s", m->attempt, w->calls.list[m->call].id);
        return;
    }
    world_later(w, travel(w, r->delay_max_ms), EVENT_CALLEE_REQUEST, 0, message);
    /* A callee that runs whatever comes cannot be helped against a network that makes two of one. */
    if (r->policy.runs_once && world_has(w, WORLD_COPY) && world_chance(g, r->copy))
        world_later(w, travel(w, r->delay_max_ms), EVENT_CALLEE_REQUEST, 0, message);
}

void world_answer(struct world *w, const struct callee_answer *answer)
{
    struct prng *g = &w->network;
    uint32_t number = w->answers.count;
    struct callee_answer *a = ADD(w, answers);
    if (!a)
        return;
    *a = *answer;
    int64_t after = travel(w, 2 * w->rules.policy.attempt_timeout_ms);
    if (world_has(w, WORLD_LOSS) && world_chance(g, w->rules.loss)) {
        SAY(w, "network", "loses the answer %d to %s", a->status,
            w->calls.list[w->messages.list[a->message].call].id);
        return;
    }
    if (world_has(w, WORLD_CUT) && world_chance(g, w->rules.cut / 2)) {
        world_later(w, after, EVENT_RUN_END, world_chance(g, 500) ? END_CUT : END_GARBLED, a->message);
        return;
    }
    a->other_call = world_has(w, WORLD_CUT) && world_chance(g, w->rules.cut / 10);
    world_later(w, after, EVENT_ANSWER, 0, number);
}

void world_ask(struct world *w, uint32_t query)
{
    struct query *q = &w->queries.list[query];
    q->asked_ms = w->now_ms;
    if (world_has(w, WORLD_LOSS) && world_chance(&w->network, w->rules.loss))
        return;
    world_later(w, travel(w, 2 * w->rules.policy.receipt_timeout_ms), EVENT_QUERY, 0, query);
}

static void query_answered(struct world *w, uint32_t query)
{
    struct query *q = &w->queries.list[query];
    if (world_has(w, WORLD_LOSS) && world_chance(&w->network, w->rules.loss))
        return;
    if (world_has(w, WORLD_CUT)) {
        q->garbled = world_chance(&w->network, w->rules.cut / 2);
        q->other_call = world_chance(&w->network, w->rules.cut / 10);
    }
    world_later(w, travel(w, 2 * w->rules.policy.receipt_timeout_ms), EVENT_QUERY_ANSWER, 0, query);
}

/* ---- process, disk and clock -------------------------------------------------------------------------------- */

static void set_clock(struct world *w)
{
    static const int64_t reach_ms[] = {500, 20000, 120000, 3600000};
    int64_t reach = reach_ms[prng_below(&w->machine, sizeof reach_ms / sizeof *reach_ms)];
    int64_t by = world_between(&w->machine, -reach, reach);
    w->wall_offset_ms += by;
    SAY(w, "clock", "jumps by %lld ms", (long long)by);
    judge_clock(w);
}

static void disk_fails(struct world *w)
{
    static const enum disk_trouble kinds[] = {DISK_WRITE_ERROR, DISK_TORN_ERROR, DISK_SYNC_ERROR,
                                              DISK_OPEN_ERROR};
    struct prng *g = &w->machine;
    enum disk_trouble kind = kinds[prng_below(g, sizeof kinds / sizeof *kinds)];
    bool lasting = world_chance(g, 400);
    disk_arm(kind, 1 + prng_below(g, 20), lasting);
    SAY(w, "disk", "%s soon%s", disk_trouble_text(kind), lasting ? ", and then for a while" : "");
    if (lasting)
        world_later(w, world_between(g, 20, 3000), EVENT_DISK_WELL, 0, 0);
}

static void trouble(struct world *w)
{
    struct prng *g = &w->machine;
    const struct rules *r = &w->rules;
    if (w->quiet)
        return;
    world_later(w, world_between(g, 1, 2 * TROUBLE_MS), EVENT_TROUBLE, 0, 0);
    if (world_has(w, WORLD_CLOCK) && world_chance(g, r->clock))
        set_clock(w);
    if (!gate_up(w->gate))
        return;
    if (world_has(w, WORLD_DISK) && world_chance(g, r->disk)) {
        disk_fails(w);
    } else if (world_has(w, WORLD_FULL) && world_chance(g, r->disk / 2)) {
        disk_arm(DISK_FULL, 1, true);
        SAY(w, "disk", "is full");
        world_later(w, world_between(g, 20, 3000), EVENT_DISK_WELL, 0, 0);
    } else if (world_has(w, WORLD_KILL) && world_chance(g, r->crash)) {
        if (world_chance(g, 500))
            disk_arm(DISK_POWER_CUT, 1 + prng_below(g, 12), true); /* within a commit; the gateway notices */
        else
            gate_crash(w->gate, world_has(w, WORLD_POWER) && world_chance(g, 500));
    } else if (world_has(w, WORLD_STOP) && world_chance(g, r->crash / 4)) {
        gate_stop(w->gate);
        world_later(w, world_between(g, 5, 1000), EVENT_START, 0, 0);
    }
}

/* ---- the events --------------------------------------------------------------------------------------------- */

static void happen(struct world *w, const struct agenda_event *e)
{
    uint32_t number = (uint32_t)e->value;
    switch ((enum world_event)e->kind) {
    case EVENT_CALLER:
        callers_act(w, e->who);
        break;
    case EVENT_REQUEST: {
        struct caller_request request = w->requests.list[number];
        gate_request(w->gate, &request);
        break;
    }
    case EVENT_CALLEE_REQUEST:
        callee_request(w, number);
        break;
    case EVENT_CALLEE_COMMIT:
        callee_commit(w, number);
        break;
    case EVENT_CALLEE_ANSWER:
        callee_answer_now(w, number);
        break;
    case EVENT_CALLEE_REPORT:
        if (gate_up(w->gate) && callee_receipt_of(w, number)->final)
            gate_report(w->gate, number, callee_receipt_of(w, number)->state == STATE_SUCCESS);
        break;
    case EVENT_QUERY:
        callee_query(w, number);
        query_answered(w, number);
        break;
    case EVENT_START:
        if (!gate_up(w->gate))
            gate_start(w->gate);
        break;
    case EVENT_TROUBLE:
        trouble(w);
        break;
    case EVENT_DISK_WELL:
        disk_arm(DISK_WELL, 0, false);
        SAY(w, "disk", "is well");
        break;
    default:
        gate_event(w->gate, (enum world_event)e->kind, e->who, e->value);
    }
}

static bool goes_on(const struct world *w)
{
    return !w->result->broken && !w->failed;
}

/* Runs until `until_ms`, or until `steps` events are done. */
static void run(struct world *w, int64_t until_ms, uint64_t steps)
{
    struct agenda_event e;
    while (goes_on(w) && w->result->steps < steps && w->agenda.count &&
           w->agenda.heap[0].time <= (double)until_ms && agenda_take(&w->agenda, &e)) {
        w->now_ms = (int64_t)e.time;
        if (world_wall(w) > w->high_wall_ms)
            w->high_wall_ms = world_wall(w);
        w->result->steps++;
        happen(w, &e);
    }
}

/* No more faults; what was begun must come to its end. */
static void finish(struct world *w)
{
    const struct rules *r = &w->rules;
    int64_t settle = 2 * (r->deadline_ms + r->lease_ms + r->wait_ms) + r->policy.attempt_timeout_ms +
                     r->delay_max_ms + r->resend_ms + 5000;
    SAY(w, "world", "the faults stop");
    w->quiet = true;
    disk_arm(DISK_WELL, 0, false);
    /* A clock that had been ahead made tasks due in what is now a far future: it is put right. */
    if (world_wall(w) < w->high_wall_ms) {
        w->wall_offset_ms += w->high_wall_ms - world_wall(w);
        judge_clock(w);
    }
    for (int round = 0; round < 2 && goes_on(w); round++) {
        if (!gate_up(w->gate))
            gate_start(w->gate);
        callers_finish(w);
        run(w, w->now_ms + settle, UINT64_MAX);
    }
    /* Rounds go on by themselves; a person may have asked for some more. */
    int64_t round_ms = r->round_gap_max_ms * 2 + settle;
    uint64_t rounds = (uint64_t)r->rounds + w->granted + 2;
    for (uint64_t i = 0; i < rounds && goes_on(w) && judge_open_tasks(w); i++)
        run(w, w->now_ms + round_ms, UINT64_MAX);
    if (goes_on(w) && !gate_up(w->gate))
        judge_break(w, "the gateway does not start although its disk is well");
    if (goes_on(w) && !gate_idle(w->gate))
        judge_break(w, "calls are still under way long after the faults have stopped");
    if (!goes_on(w))
        return;
    gate_stop(w->gate);
    judge_file(w, true);
}

static void end(struct world *w)
{
    if (w->gate)
        gate_free(w->gate);
    agenda_fini(&w->agenda);
    hasher_fini(&w->hasher);
    arena_fini(&w->names);
    free(w->operations.list);
    free(w->calls.list);
    free(w->messages.list);
    free(w->requests.list);
    free(w->answers.list);
    free(w->queries.list);
    free(w->works.list);
    disk_end();
}

enum status world_run(const struct world_parameters *p, struct buffer *transcript,
                      struct world_result *result)
{
    struct world w = {.p = *p, .result = result, .transcript = transcript};
    struct prng root, rules;
    memset(result, 0, sizeof *result);
    prng_seed(&root, p->seed);
    prng_split(&root, 1, &w.network);
    prng_split(&root, 2, &w.service);
    prng_split(&root, 3, &w.people);
    prng_split(&root, 4, &w.machine);
    prng_split(&root, 5, &w.luck);
    prng_split(&root, 6, &rules);
    enum status status = disk_begin(prng_next(&root));
    if (status == STATUS_OK)
        status = hasher_init(&w.hasher);
    arena_init(&w.names, WORLD_NAMES_BYTES);
    w.high_wall_ms = world_wall(&w);
    draw_rules(&w, &rules);
    if (status == STATUS_OK)
        status = gate_new(&w);
    if (status == STATUS_OK) {
        gate_start(w.gate);
        callers_begin(&w);
        world_later(&w, TROUBLE_MS, EVENT_TROUBLE, 0, 0);
        run(&w, INT64_MAX, p->steps);
        finish(&w);
        if (w.failed)
            status = STATUS_NO_MEMORY;
    }
    result->virtual_ms = w.now_ms;
    result->effects = w.effects;
    end(&w);
    return status;
}

/* ---- less that still breaks --------------------------------------------------------------------------------- */

static bool breaks(const struct world_parameters *p, struct world_result *result, unsigned *runs)
{
    ++*runs;
    return world_run(p, NULL, result) == STATUS_OK && result->broken;
}

static bool try_less(struct world_parameters *p, const struct world_parameters *less,
                     struct world_result *result, unsigned *runs)
{
    struct world_result got;
    if (!breaks(less, &got, runs))
        return false;
    *p = *less;
    *result = got;
    if (got.steps < p->steps)
        p->steps = got.steps; /* what came after it does not matter */
    return true;
}

unsigned world_minimise(struct world_parameters *p, struct world_result *result)
{
    unsigned runs = 0;
    if (!breaks(p, result, &runs))
        return runs;
    if (result->steps < p->steps)
        p->steps = result->steps;
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (int fault = 0; fault < WORLD_FAULTS; fault++) {
            struct world_parameters less = *p;
            less.faults &= ~(1u << fault);
            if (less.faults != p->faults)
                smaller = try_less(p, &less, result, &runs) || smaller;
        }
        for (unsigned callers = 1; callers < (p->callers ? p->callers : WORLD_CALLERS); callers++) {
            struct world_parameters less = *p;
            less.callers = callers;
            if (try_less(p, &less, result, &runs)) {
                smaller = true;
                break;
            }
        }
        /* Faults that stop earlier leave another ending; the step at which it breaks may come down with that. */
        for (uint64_t cut = p->steps / 2; cut > 0; cut /= 2) {
            struct world_parameters less = *p;
            less.steps = p->steps - cut;
            if (less.steps)
                smaller = try_less(p, &less, result, &runs) || smaller;
        }
    }
    return runs;
}
