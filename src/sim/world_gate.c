/* SPDX-License-Identifier: MIT
 *
 * The world's gateway. Decisions are the core's (keeper_arrive, call_step) and rows the store's; this file performs them
 * as src/gateway does, section by section, so that the two can be read side by side:
 *
 *   here               there
 *   cache              cache.c
 *   visits             visit.c, visit_decide.c, visit_holder.c, visit_answer.c
 *   runs               run.c, run_attempt.c, run_ending.c, settle.c
 *   asking             query.c
 *   upkeep             upkeep.c
 *   process            gateway.c: start, stop; and what no process does itself, its death
 *
 * World_jobs.c, world_receipts.c and world_rounds.c go on with it.
 *
 * Left out, since they decide nothing about a call: HTTP, admission (its denials are drawn), streaming, metrics, logs.
 * With SAMEKEY_PLANTED_BUGS the mistakes of world_bugs.def can be made here.
 */
#include "base/civil.h"
#include "core/fingerprint.h"
#include "core/problem.h"
#include "sim/world_gate_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void decide(struct visit *v, const struct rows *rows);
static void ask_store(struct visit *v, bool peek);
static void perform(struct run *run);
static void run_free(struct run *run);
static void run_begin(struct visit *v, const struct call_row *row, const struct rows *rows, bool resumed);
static void visit_drop(struct visit *v);

/* ---- cache -------------------------------------------------------------------------------------------------- */

static void copy_texts(struct call_row *row, struct buffer *memory, bool offsets)
{
    struct slice *texts[] = {&row->tenant,
                             &row->route,
                             &row->scope,
                             &row->call_id,
                             &row->key,
                             &row->attempts,
                             &row->trace_id,
                             &row->owner,
                             &row->business_ref,
                             &row->key_spelling,
                             &row->reverses,
                             &row->reversed_by,
                             &row->fingerprint_rules,
                             &row->result_headers,
                             &row->result_body,
                             &row->original_call_id};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (offsets) {
            size_t at = memory->len;
            buffer_append(memory, texts[i]->data, texts[i]->len);
            texts[i]->data = (const char *)at;
        } else {
            texts[i]->data = memory->data + (size_t)texts[i]->data;
        }
    }
}

static void cache_put(struct gate *g, const struct rows *rows)
{
    const struct call_row *row = &rows->call;
    bool ended = row->id && row->final && (row->state == STATE_SUCCESS || row->state == STATE_FAILED);
    if (HAS_BUG(g, TRUST_CACHE))
        ended = row->id && !state_running(row->state);
    if (!ended || row->reversed_by.len)
        return;
    int64_t life = CACHE_LIFE_MS;
    if (row->result_expires_ms - rows->now_ms < life)
        life = row->result_expires_ms - rows->now_ms;
    if (life <= 0)
        return;
    uint32_t hash;
    memcpy(&hash, row->call_digest.bytes, sizeof hash);
    struct cache_entry *e = &g->cache[hash % CACHE_ENTRIES];
    struct call_row copy = *row;
    struct buffer memory = {0};
    copy_texts(&copy, &memory, true);
    copy_texts(&copy, &memory, false);
    buffer_fini(&e->memory);
    *e = (struct cache_entry){
        .used = !memory.failed,
        .memory = memory,
        .until_ms = gate_now(g) + life,
        .rows = {.call = copy, .now_ms = rows->now_ms, .covers_since_ms = rows->covers_since_ms}};
}

struct cache_entry *gate_cache_find(struct gate *g, const struct digest *call)
{
    uint32_t hash;
    memcpy(&hash, call->bytes, sizeof hash);
    struct cache_entry *e = &g->cache[hash % CACHE_ENTRIES];
    bool here = e->used && digest_equal(&e->rows.call.call_digest, call) && gate_now(g) < e->until_ms;
    return here ? e : NULL;
}

void gate_cache_drop(struct gate *g, const struct digest *call)
{
    struct cache_entry *e = gate_cache_find(g, call);
    if (e)
        e->used = false;
}

/* ---- visits: answers ---------------------------------------------------------------------------------------- */

static struct visit *visit_hold(struct visit *v)
{
    v->holds++;
    return v;
}

static void visit_drop(struct visit *v)
{
    assert(v->holds > 0);
    if (--v->holds)
        return;
    v->gate->visits[v->slot] = NULL;
    v->next_dead = v->gate->dead;
    v->gate->dead = v;
}

/* Visits that nothing refers to any more go when nobody is at work with one. */
static void sweep(struct gate *g)
{
    while (g->dead) {
        struct visit *v = g->dead;
        g->dead = v->next_dead;
        free(v);
    }
}

static bool take_request(struct visit *v)
{
    bool listens = v->listens;
    if (listens)
        visit_drop(v); /* the request's hold; whoever answers holds the visit by something else */
    v->listens = false;
    v->phase = VISIT_ANSWERED;
    return listens;
}

static void tell(struct visit *v, enum answer_kind kind, struct slice body, const char *why)
{
    struct gate *g = v->gate;
    uint32_t call = v->call;
    visit_hold(v);
    if (take_request(v)) {
        SAY(g->world, "gateway", "answers %s: %s (%s)", gate_call(g, call)->id, answer_kind_text(kind), why);
        judge_answer(g->world, call, kind, body, v->came_ms);
        callers_hear(g->world, call, kind == ANSWER_SUCCESS || kind == ANSWER_FAILED);
    }
    visit_drop(v);
}

static enum answer_kind kind_of(enum problem problem)
{
    switch (problem) {
    case PROBLEM_RESULT_NOT_KEPT:
        return ANSWER_SUCCESS;
    case PROBLEM_CALL_FENCED:
    case PROBLEM_CALL_FAILED:
        return ANSWER_FAILED;
    case PROBLEM_CALL_IN_PROGRESS:
    case PROBLEM_OPERATION_IN_PROGRESS:
        return ANSWER_PENDING;
    case PROBLEM_OUTCOME_UNKNOWN:
        return ANSWER_UNKNOWN;
    case PROBLEM_UPSTREAM_UNAVAILABLE:
        return ANSWER_NOT_EXECUTED;
    default:
        return ANSWER_REFUSED;
    }
}

static void visit_answer_problem(struct visit *v, enum problem problem)
{
    tell(v, kind_of(problem), slice_of("", 0), problem_slug(problem));
}

static void visit_answer_row(struct visit *v, const struct call_row *row)
{
    enum problem problem = keeper_replay_problem(row);
    if (problem != PROBLEM_NONE)
        visit_answer_problem(v, problem);
    else
        tell(v, row->state == STATE_SUCCESS ? ANSWER_SUCCESS : ANSWER_FAILED, row->result_body, "stored");
}

/* ---- visits: waiting for another's run ---------------------------------------------------------------------- */

static void unjoin(struct visit *v)
{
    if (v->watch) {
        struct job *watch = v->watch;
        v->watch = NULL;
        gate_cancel_watch(watch);
    }
}

static void join_over(struct job *job)
{
    struct visit *v = job->owner;
    const struct rows *rows = &job->op.rows;
    bool current = v->watch == job && v->listens && v->phase == VISIT_JOINED;
    v->watch = NULL;
    if (!current) {
        /* answered meanwhile, or its caller went */
    } else if (job->op.status != STATUS_OK) {
        visit_answer_problem(v,
                             v->joined_operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS);
    } else if (v->joined_operation) {
        v->phase = VISIT_DECIDING;
        if (rows->call.state == STATE_UNKNOWN)
            visit_answer_problem(v, PROBLEM_OUTCOME_UNKNOWN);
        else
            ask_store(v, true);
    } else {
        const struct call_row *row = &rows->call;
        if (row->state == STATE_FAILED && !row->final)
            visit_answer_problem(v, PROBLEM_UPSTREAM_UNAVAILABLE);
        else
            visit_answer_row(v, row);
        cache_put(v->gate, rows);
    }
    gate_job_free(job);
    visit_drop(v);
}

static void arm_visit(struct visit *v, int64_t until_ms)
{
    world_later(v->gate->world, until_ms > gate_now(v->gate) ? until_ms - gate_now(v->gate) : 0,
                EVENT_VISIT_TIMER, v->slot, v->serial);
}

static void join(struct visit *v, const struct call_row *row, bool operation)
{
    struct gate *g = v->gate;
    if (v->wait_end_ms == 0)
        v->wait_end_ms = gate_now(g) + g->world->rules.wait_ms;
    int64_t until = v->wait_end_ms < v->budget_end_ms ? v->wait_end_ms : v->budget_end_ms;
    v->joined_operation = operation;
    if (until <= gate_now(g)) {
        visit_answer_problem(v, operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS);
        return;
    }
    struct job *job = gate_job(g, STORE_WATCH, visit_hold(v), v->call, join_over);
    job->op.id = row->id;
    v->watch = job;
    v->phase = VISIT_JOINED;
    arm_visit(v, until);
    gate_submit(job);
}

/* ---- visits: the store's word ------------------------------------------------------------------------------- */

static void fill_row(const struct visit *v, struct call_row *row)
{
    const struct gate *g = v->gate;
    const struct world *w = g->world;
    const struct world_call *c = gate_call(g, v->call);
    const struct operation *o = &w->operations.list[c->operation];
    static const enum proof proofs[CALLEE_KINDS] = {
        [CALLEE_BESIDE] = PROOF_BESIDE, [CALLEE_ONCE] = PROOF_TRANSACTION};
    *row = (struct call_row){
        .call_digest = c->digest,
        .operation_digest = c->operation_digest,
        .has_key = o->has_key,
        .call_id_made = c->made,
        .route = SLICE_LITERAL("orders"),
        .scope = SLICE_LITERAL("orders /orders"),
        .call_id = slice_text(c->id),
        .key = slice_text(o->has_key ? o->key : ""),
        .has_fingerprint = true,
        .fingerprint = c->fingerprint,
        .fingerprint_version = FINGERPRINT_VERSION,
        .state = STATE_PROCESSING,
        .proof = proofs[w->rules.callee],
        .owner = slice_text(g->owner),
        .fence = 1,
        .attempt_count = 1,
        .window_ms = v->window_ms,
        .result_expires_ms = INT64_MAX,
        .key_expires_ms = INT64_MAX,
        .tombstone_expires_ms = INT64_MAX,
        .lease_end_ms = world_wall(w) + w->rules.lease_ms,
        .first_attempt_ms = world_wall(w),
    };
}

static void store_failed(struct visit *v, enum status status)
{
    visit_answer_problem(v, status == STATUS_FULL      ? PROBLEM_OVERLOADED
                            : status == STATUS_INVALID ? PROBLEM_CALL_ID_INVALID
                                                       : PROBLEM_STORE_UNAVAILABLE);
}

static void store_answered(struct job *job)
{
    struct visit *v = job->owner;
    struct store_op *op = &job->op;
    if (op->status != STATUS_OK && op->status != STATUS_CONFLICT) {
        store_failed(v, op->status);
    } else if (op->done && op->kind == STORE_CLAIM) {
        run_begin(v, &op->rows.call, &op->rows, false);
    } else if (op->done && op->kind == STORE_TAKE) {
        run_begin(v, &op->rows.call, &op->rows, op->expect_call_id != 0);
    } else if (op->done && op->kind == STORE_ATTACH) {
        cache_put(v->gate, &op->rows);
        visit_answer_row(v, &op->rows.call);
    } else if (v->listens) {
        decide(v, &op->rows);
    }
    gate_job_free(job);
    visit_drop(v);
}

/* The request as it would be sent, where it may be sent again without its caller. */
static const struct kept_request *keep(struct visit *v)
{
    struct kept_request *kept = &v->kept;
    if (!v->gate->world->rules.still_wanted && !HAS_BUG(v->gate, ROUND_UNWANTED))
        return NULL;
    snprintf(v->kept_body, sizeof v->kept_body, "%u", gate_call(v->gate, v->call)->body);
    kept->has = true;
    kept->method = slice_text("POST");
    kept->target = slice_text("/orders");
    kept->lines = slice_text("Content-Type: application/json\r\n");
    kept->body = slice_text(v->kept_body);
    return kept;
}

static struct job *store_job(struct visit *v, enum store_kind kind)
{
    struct job *job = gate_job(v->gate, kind, visit_hold(v), v->call, store_answered);
    fill_row(v, &job->op.row);
    return job;
}

static void ask_store(struct visit *v, bool peek)
{
    const struct rules *r = &v->gate->world->rules;
    struct job *job = store_job(v, STORE_CLAIM);
    job->op.peek = peek || HAS_BUG(v->gate, CLAIM_LATE);
    job->op.keep = job->op.peek ? NULL : keep(v);
    job->op.want_suspect = r->watch_suspects && job->op.row.has_key;
    job->op.block_suspect = v->arrival.block_suspects;
    job->op.id_time_ms = v->arrival.id_time_ms;
    v->phase = VISIT_DECIDING;
    gate_submit(job);
}

static void take(struct visit *v, const struct rows *rows)
{
    struct job *job = store_job(v, STORE_TAKE);
    job->op.keep = keep(v);
    job->op.expect_call_id = rows->call.id;
    job->op.expect_call_fence = rows->call.fence;
    job->op.expect_holder_id = rows->holder.id;
    job->op.expect_holder_fence = rows->holder.fence;
    gate_submit(job);
}

static void attach(struct visit *v, const struct rows *rows)
{
    struct job *job = store_job(v, STORE_ATTACH);
    job->op.row.attempt_count = 0;
    job->op.row.first_attempt_ms = 0;
    job->op.expect_call_id = rows->call.id;
    job->op.expect_call_fence = rows->call.fence;
    job->op.expect_holder_id = rows->holder.id;
    gate_submit(job);
}

/* ---- visits: the holder's receipt --------------------------------------------------------------------------- */

/* As settle.c. */
void gate_settle_row(const struct world *w, struct call_row *row, struct buffer *text,
                     const struct receipt_reading *reading)
{
    bool success = reading->answer == RECEIPT_ANSWER_SUCCESS;
    int64_t now = world_wall(w);
    row->state = success ? STATE_SUCCESS : STATE_FAILED;
    row->final = true;
    row->reason = REASON_RECEIPT;
    row->ended_ms = row->updated_ms = now;
    row->maybe_ran = false;
    row->result_expires_ms = deadline_add(now, w->rules.result_life_ms);
    row->key_expires_ms = deadline_add(now, w->rules.key_life_ms);
    row->tombstone_expires_ms = deadline_add(now, w->rules.tombstone_life_ms);
    row->has_result = false;
    buffer_clear(text);
    if (reading->has_result) {
        buffer_slice(text, buffer_view(&reading->result_body));
        row->has_result = row->body_kept = true;
        row->result_status = reading->result_status;
        row->result_headers = slice_text("Content-Type: application/json\r\n");
        row->result_body = buffer_view(text);
    } else if (success) {
        struct rows told = {.call = *row, .now_ms = now};
        receipt_document(text, &told, row->call_id);
        row->has_result = row->body_kept = true;
        row->result_status = 200;
        row->result_headers = slice_text("Content-Type: application/json\r\n");
        row->result_body = buffer_view(text);
    }
}

static void settle(struct job *job, const struct receipt_reading *reading)
{
    gate_settle_row(job->gate->world, &job->op.row, &job->text, reading);
    job->op.from_states = 1u << STATE_UNKNOWN;
    job->op.drop_kept = true;
    list_remove(&job->link);
    list_init(&job->link);
    gate_submit(job);
}

uint32_t gate_call_of_row(const struct gate *g, const struct call_row *row)
{
    const struct world *w = g->world;
    for (uint32_t i = w->calls.count; i-- > 0;)
        if (!w->calls.list[i].alias_of && digest_equal(&w->calls.list[i].digest, &row->call_digest))
            return i;
    return WORLD_NONE;
}

void gate_keep_row(const struct gate *g, struct call_row *row, uint32_t call)
{
    const struct world_call *c = gate_call(g, call);
    row->tenant = row->key_spelling = row->business_ref = row->trace_id = row->attempts =
        row->fingerprint_rules = (struct slice){0};
    row->route = slice_text("orders");
    row->scope = slice_text("orders /orders");
    row->call_id = slice_text(c->id);
    row->key = slice_text(row->has_key ? g->world->operations.list[c->operation].key : "");
    row->owner = row->result_headers = row->result_body = row->original_call_id = (struct slice){0};
    row->reverses = row->reversed_by = (struct slice){0};
}

static void holder_settled(struct job *job)
{
    struct visit *v = job->owner;
    if (v->listens)
        ask_store(v, true);
    gate_job_free(job);
    visit_drop(v);
}

static void holder_answered(struct job *job, const struct receipt_reading *reading)
{
    struct visit *v = job->owner;
    v->arrival.holder_asked = true;
    if (reading->answer == RECEIPT_ANSWER_SUCCESS || reading->answer == RECEIPT_ANSWER_FAILED_FINAL)
        settle(job, reading);
    else
        holder_settled(job);
}

static void ask_holder(struct visit *v, const struct rows *rows)
{
    struct gate *g = v->gate;
    const struct call_policy *p = &g->world->rules.policy;
    if (!p->has_receipts) {
        v->arrival.holder_asked = true;
        decide(v, rows);
        return;
    }
    uint32_t call = gate_call_of_row(g, &rows->holder);
    assert(call != WORLD_NONE);
    struct job *job = gate_job(g, STORE_END, visit_hold(v), call, holder_settled);
    job->op.row = rows->holder;
    job->op.id = rows->holder.id;
    job->op.fence = rows->holder.fence;
    gate_keep_row(g, &job->op.row, call);
    int64_t first = rows->holder.first_attempt_ms ? rows->holder.first_attempt_ms : rows->holder.created_ms;
    list_push_back(&g->asking, &job->link);
    (void)gate_ask(g, QUERY_HOLDER, job, call, false, first, p->receipt_timeout_ms);
}

/* ---- visits: the decision ----------------------------------------------------------------------------------- */

#ifdef SAMEKEY_PLANTED_BUGS
static void claim_late(struct visit *v);
#endif

static void decide(struct visit *v, const struct rows *rows)
{
    struct gate *g = v->gate;
    struct verdict verdict;
    if (++v->decisions > DECISIONS_MAX) {
        visit_answer_problem(v, PROBLEM_OPERATION_IN_PROGRESS);
        return;
    }
    keeper_arrive(&v->arrival, rows, &verdict);
    SAY(g->world, "gateway", "%s: %s%s%s", gate_call(g, v->call)->id, keeper_verb_text(verdict.verb),
        verdict.verb == KEEPER_REFUSE ? " " : "",
        verdict.verb == KEEPER_REFUSE ? problem_slug(verdict.problem) : "");
    switch (verdict.verb) {
    case KEEPER_CLAIM:
#ifdef SAMEKEY_PLANTED_BUGS
        if (HAS_BUG(g, CLAIM_LATE)) {
            claim_late(v);
            break;
        }
#endif
        ask_store(v, false);
        break;
    case KEEPER_TAKE:
    case KEEPER_RESUME:
        take(v, rows);
        break;
    case KEEPER_REPLAY:
        cache_put(g, rows);
        visit_answer_row(v, &rows->call);
        break;
    case KEEPER_ATTACH:
        attach(v, rows);
        break;
    case KEEPER_JOIN_CALL:
        join(v, &rows->call, false);
        break;
    case KEEPER_JOIN_OPERATION:
        join(v, &rows->holder, true);
        break;
    case KEEPER_ASK_HOLDER:
        ask_holder(v, rows);
        break;
    case KEEPER_REFUSE:
        visit_answer_problem(v, verdict.problem);
        break;
    case KEEPER_ASK_REVERSAL: /* nobody reverses anything here */
        judge_break(g->world, "%s meets a reversal", gate_call(g, v->call)->id);
        break;
    case KEEPER_COMPARE_AGAIN: /* one version and one set of rules here */
        judge_break(g->world, "%s is to be compared under other rules", gate_call(g, v->call)->id);
        break;
    }
}

/* ---- visits: arrival and departure -------------------------------------------------------------------------- */

static void visit_begin(struct gate *g, const struct caller_request *request)
{
    struct world *w = g->world;
    const struct world_call *c = gate_call(g, request->call);
    const struct operation *o = &w->operations.list[c->operation];
    uint32_t slot = 0;
    while (slot < VISITS_MAX && g->visits[slot])
        slot++;
    struct visit *v = slot < VISITS_MAX ? calloc(1, sizeof *v) : NULL;
    if (!v)
        return; /* overloaded: nothing was begun */
    *v = (struct visit){.gate = g,
                        .slot = slot,
                        .call = request->call,
                        .serial = ++g->serial,
                        .holds = 1, /* the request's */
                        .listens = true,
                        .phase = VISIT_DECIDING,
                        .came_ms = gate_now(g),
                        .budget_end_ms =
                            request->budget_ms >= 0 ? gate_now(g) + request->budget_ms : INT64_MAX,
                        .window_ms = world_wall(w)};
    v->arrival = (struct arrival){.has_key = o->has_key,
                                  .operation = c->operation_digest,
                                  .scope = SLICE_LITERAL("orders /orders"),
                                  .fingerprint = c->fingerprint,
                                  .fingerprint_version = FINGERPRINT_VERSION,
                                  .call_id_made = c->made,
                                  .id_time_ms = c->made ? 0 : c->id_time_ms,
                                  .block_suspects = w->rules.block_suspects};
    g->visits[slot] = v;
    if (request->hangs_up_ms)
        world_later(w, request->hangs_up_ms, EVENT_HANGUP, slot, v->serial);
    struct cache_entry *cached = c->made ? NULL : gate_cache_find(g, &c->digest);
    if (cached) {
        struct verdict verdict;
        keeper_arrive(&v->arrival, &cached->rows, &verdict);
        if ((verdict.verb == KEEPER_REPLAY && keeper_replay_problem(&cached->rows.call) == PROBLEM_NONE) ||
            HAS_BUG(g, TRUST_CACHE)) {
            SAY(w, "gateway", "%s: from memory", c->id);
            visit_answer_row(v, &cached->rows.call);
            return;
        }
    }
    ask_store(v, false);
}

static struct visit *visit_at(struct gate *g, uint32_t slot, uint64_t serial)
{
    struct visit *v = slot < VISITS_MAX ? g->visits[slot] : NULL;
    return v && v->serial == serial ? v : NULL;
}

/* The caller's patience is over. */
static void visit_timer(struct visit *v)
{
    if (!v->listens)
        return;
    if (v->phase == VISIT_JOINED) {
        visit_hold(v);
        unjoin(v);
        visit_answer_problem(v,
                             v->joined_operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS);
        visit_drop(v);
    } else if (v->phase == VISIT_RUNNING && gate_now(v->gate) >= v->budget_end_ms) {
        visit_answer_problem(v, PROBLEM_CALL_IN_PROGRESS);
    }
}

static void visit_gone(struct visit *v)
{
    if (!v->listens)
        return;
    SAY(v->gate->world, "caller", "hangs up on %s", gate_call(v->gate, v->call)->id);
    visit_hold(v);
    unjoin(v);
    (void)take_request(v);
    if (v->run) {
        v->run->visit = NULL;
        v->run = NULL;
        visit_drop(v);
    }
    visit_drop(v);
}

/* ---- runs --------------------------------------------------------------------------------------------------- */

static int64_t store_now(const struct run *run)
{
    return run->store_now_ms + (gate_now(run->gate) - run->at_ms);
}

static void reply_clear(struct reply *r)
{
    buffer_fini(&r->body);
    memset(r, 0, sizeof *r);
}

static void run_release(struct run *run)
{
    run->gate->runs[run->slot] = NULL;
    buffer_fini(&run->past_words);
    buffer_fini(&run->attempts_text);
    buffer_fini(&run->result_body);
    reply_clear(&run->reply);
    free(run);
}

static void run_free(struct run *run)
{
    assert(run->message == WORLD_NONE && run->query == WORLD_NONE && run->jobs == 0);
    struct visit *v = run->visit;
    if (run->watch) {
        run->watch->owner = NULL;
        gate_cancel_watch(run->watch);
    }
    void (*over)(void *) = run->over;
    void *owner = run->owner;
    run_release(run);
    if (v) {
        v->run = NULL;
        visit_drop(v);
    }
    if (over)
        over(owner);
}

static void feed(struct run *run, struct call_event *event)
{
    event->now_ms = gate_now(run->gate);
    event->random = prng_double(&run->gate->world->luck);
    call_step(&run->machine, event, &run->effect);
    perform(run);
}

static void encode_attempts(struct run *run)
{
    buffer_clear(&run->attempts_text);
    attempts_encode(&run->attempts_text, run->attempts, run->attempt_count);
    run->row.attempts = buffer_view(&run->attempts_text);
}

static struct rows rows_of(struct run *run)
{
    struct rows rows = {.call = run->row, .now_ms = store_now(run), .covers_since_ms = run->covers_since_ms};
    if (run->row.has_key)
        rows.holder = run->row;
    return rows;
}

static void lose(struct run *run, const struct rows *rows)
{
    SAY(run->gate->world, "gateway", "has lost %s to another", gate_call(run->gate, run->call)->id);
    run->lost = true;
    if (run->visit && run->visit->listens) {
        if (rows->call.id && !state_running(rows->call.state))
            visit_answer_row(run->visit, &rows->call);
        else
            visit_answer_problem(run->visit, PROBLEM_OUTCOME_UNKNOWN);
    }
    run->message = WORLD_NONE; /* exchange_abort(): its end is of no interest */
    if (run->jobs == 0 && run->query == WORLD_NONE)
        run_free(run);
}

static bool lost_and_done(struct run *run)
{
    if (!run->lost)
        return false;
    if (run->jobs == 0 && run->query == WORLD_NONE)
        run_free(run);
    return true;
}

/* ---- runs: an attempt --------------------------------------------------------------------------------------- */

static void feed_denied(struct run *run, enum call_denial denial, int64_t retry_ms)
{
    struct call_event event = {.type = CALL_EV_DENIED, .denial = denial, .retry_in_ms = retry_ms};
    feed(run, &event);
}

static const char *const words[] = {
    [EVIDENCE_ANSWER] = "answered",   [EVIDENCE_REFUSED] = "refused", [EVIDENCE_TIMEOUT] = "no reply",
    [EVIDENCE_RESET] = "reset",       [EVIDENCE_EOF] = "closed",      [EVIDENCE_MALFORMED] = "malformed",
    [EVIDENCE_LOST] = "process lost",
};

static void attempt_over(struct run *run, const struct evidence *evidence, int64_t retry_after_ms)
{
    struct gate *g = run->gate;
    struct world *w = g->world;
    struct message *m = &w->messages.list[run->message];
    run->message = WORLD_NONE;
    enum outcome outcome = outcome_classify(evidence, &w->rules.outcome);
    judge_attempt(w, m, outcome);
    if (run->attempt_count == ATTEMPTS_MAX) {
        memmove(run->attempts, run->attempts + 1, (ATTEMPTS_MAX - 1) * sizeof *run->attempts);
        run->attempt_count--;
    }
    run->attempts[run->attempt_count++] = (struct attempt){
        .n = run->effect.attempt,
        .started_ms = store_now(run) - (gate_now(g) - run->sent_ms),
        .ended_ms = store_now(run),
        .outcome = outcome,
        .status = evidence->status,
        .sent_bytes = evidence->bytes_sent,
        .wait_before_ms = run->effect.waited_ms,
        .evidence = slice_text(words[evidence->end]),
    };
    bool answered = evidence->end == EVIDENCE_ANSWER;
    struct call_event event = {
        .type = CALL_EV_ATTEMPT,
        .outcome = outcome,
        .retry_allowed = outcome_retry_allowed(evidence),
        .elsewhere = evidence->end == EVIDENCE_REFUSED,
        .status = answered ? evidence->status : 0,
        .retry_after_ms = answered ? retry_after_ms : -1,
    };
    feed(run, &event);
}

/* The run whose attempt this message is; NULL: nobody waits for it any more. */
static struct run *run_of(struct gate *g, uint32_t message)
{
    const struct message *m = &g->world->messages.list[message];
    struct run *run = m->run < RUNS_MAX ? g->runs[m->run] : NULL;
    return run && run->serial == m->run_serial && run->message == message ? run : NULL;
}

static void answer_came(struct gate *g, uint32_t number)
{
    const struct callee_answer *a = &g->world->answers.list[number];
    struct run *run = run_of(g, a->message);
    if (!run)
        return;
    struct reply *r = &run->reply;
    r->head = true;
    r->status = a->status;
    r->too_large = a->too_large;
    buffer_text(&r->body, a->body);
    struct evidence evidence = {.end = EVIDENCE_ANSWER,
                                .bytes_sent = 100,
                                .request_complete = true,
                                .status = a->status,
                                .has_callee_outcome = a->said != OUTCOME_NONE,
                                .callee_outcome = a->said,
                                .other_call_id = a->other_call,
                                .success_when = -1};
    attempt_over(run, &evidence, a->retry_after_ms);
}

static void connection_over(struct gate *g, enum end_kind kind, uint32_t message)
{
    static const enum evidence_end ends[] = {
        [END_REFUSED] = EVIDENCE_REFUSED,  [END_RESET] = EVIDENCE_RESET,
        [END_CUT] = EVIDENCE_EOF,          [END_GARBLED] = EVIDENCE_MALFORMED,
        [END_PROXY_502] = EVIDENCE_ANSWER, [END_PROXY_503] = EVIDENCE_ANSWER,
        [END_PROXY_504] = EVIDENCE_ANSWER};
    struct run *run = run_of(g, message);
    if (!run)
        return;
    struct evidence evidence = {.end = ends[kind],
                                .bytes_sent = kind == END_REFUSED ? 0 : 100,
                                .request_complete = kind != END_REFUSED,
                                .success_when = -1};
    if (kind >= END_PROXY_502) {
        run->reply.head = true;
        run->reply.status = evidence.status = 502 + (int)(kind - END_PROXY_502);
    }
    attempt_over(run, &evidence, -1);
}

static void attempt_silent(struct gate *g, uint32_t message)
{
    struct run *run = run_of(g, message);
    if (!run)
        return;
    struct evidence evidence = {
        .end = EVIDENCE_TIMEOUT, .bytes_sent = 100, .request_complete = true, .success_when = -1};
    attempt_over(run, &evidence, -1);
}

static void put_on_wire(struct run *run)
{
    struct gate *g = run->gate;
    struct world *w = g->world;
    uint32_t number = w->messages.count;
    struct message *m = ADD(w, messages);
    if (!m)
        abort();
    reply_clear(&run->reply);
    run->sent_ms = gate_now(g);
    run->message = number;
    m->call = run->call;
    m->run = run->slot;
    m->run_serial = run->serial;
    m->body = run->body;
    m->by_round = run->over != NULL;
    m->attempt = run->effect.attempt;
    m->fence = run->row.fence;
    m->has_key = run->row.has_key;
    /* As the store has it, so that a row that changed on the way shows. */
    snprintf(m->key, sizeof m->key, "%.*s%s", (int)run->row.key.len,
             run->row.key.data ? run->row.key.data : "",
             HAS_BUG(g, NEW_KEY) && run->effect.is_retry ? "-again" : "");
    world_later(w, run->effect.timeout_ms, EVENT_RUN_SILENCE, 0, number);
    world_send(w, number);
}

/* ---- runs: store operations of the owner -------------------------------------------------------------------- */

static struct job *owner_job(struct run *run, enum store_kind kind, void (*then)(struct job *))
{
    struct job *job = gate_job(run->gate, kind, run, run->call, then);
    run->jobs++;
    job->op.row = run->row;
    job->op.id = run->row.id;
    job->op.fence = run->row.fence;
    return job;
}

static void lease_moved(struct run *run)
{
    run->lease_until_ms = gate_now(run->gate) + run->gate->world->rules.lease_ms;
}

static void arm_lease(struct run *run)
{
    world_later(run->gate->world, run->gate->world->rules.lease_ms / 3, EVENT_RUN_LEASE, run->slot,
                run->serial);
}

static void renewed(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    if (job->op.status == STATUS_OK)
        lease_moved(run);
    bool conflict = job->op.status == STATUS_CONFLICT;
    if (!lost_and_done(run) && conflict && !run->ending)
        lose(run, &job->op.rows);
    gate_job_free(job);
}

static void lease_timer(struct run *run)
{
    if (run->lost || run->ending)
        return;
    struct job *job = owner_job(run, STORE_RENEW, renewed);
    job->op.row.lease_end_ms = store_now(run) + run->gate->world->rules.lease_ms;
    gate_submit(job);
    arm_lease(run);
}

static void attempt_stored(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    enum status status = job->op.status;
    if (lost_and_done(run)) {
        /* nothing is sent any more */
    } else if (status == STATUS_OK) {
        lease_moved(run);
        run->row.attempt_count = job->op.row.attempt_count;
        run->row.first_attempt_ms = job->op.row.first_attempt_ms;
        put_on_wire(run);
    } else if (status == STATUS_CONFLICT) {
        lose(run, &job->op.rows);
    } else {
        feed_denied(run, CALL_DENIED_BUDGET, 1000);
    }
    gate_job_free(job);
}

static void store_attempt(struct run *run)
{
    encode_attempts(run);
    struct job *job = owner_job(run, STORE_ATTEMPT, attempt_stored);
    job->op.row.attempt_count = run->effect.attempt;
    job->op.row.maybe_ran = run->machine.maybe_ran;
    job->op.row.lease_end_ms = store_now(run) + run->gate->world->rules.lease_ms;
    if (!job->op.row.first_attempt_ms)
        job->op.row.first_attempt_ms = store_now(run);
    gate_submit(job);
}

static void do_send(struct run *run)
{
    struct gate *g = run->gate;
    struct world *w = g->world;
    /* The admission's place: its budget and breaker are somebody else's proof, here they deny by lot. */
    if (run->effect.is_retry && world_has(w, WORLD_DENY) && world_chance(&w->luck, w->rules.deny)) {
        feed_denied(run, world_chance(&w->luck, 500) ? CALL_DENIED_BUDGET : CALL_DENIED_BREAKER, 1000);
        return;
    }
    bool lease_holds = run->lease_until_ms >= gate_now(g) + run->effect.timeout_ms;
    if ((run->effect.attempt <= run->row.attempt_count && lease_holds) || HAS_BUG(g, NEW_NUMBERS))
        put_on_wire(run);
    else
        store_attempt(run);
}

/* ---- runs: asking ------------------------------------------------------------------------------------------- */

static void run_answered(struct run *run, const struct receipt_reading *reading)
{
    run->query = WORLD_NONE;
    if (lost_and_done(run))
        return;
    run->has_result = false;
    if (reading->has_result &&
        (reading->answer == RECEIPT_ANSWER_SUCCESS || reading->answer == RECEIPT_ANSWER_FAILED_FINAL)) {
        run->has_result = true;
        run->result_status = reading->result_status;
        buffer_clear(&run->result_body);
        buffer_slice(&run->result_body, buffer_view(&reading->result_body));
    }
    struct call_event event = {.type = run->effect.type == CALL_DO_FENCE ? CALL_EV_FENCED : CALL_EV_ANSWER,
                               .answer = reading->answer};
    feed(run, &event);
}

static void do_ask(struct run *run)
{
    bool fence = run->effect.type == CALL_DO_FENCE;
    if (HAS_BUG(run->gate, SKIP_QUERY) && !fence) {
        struct call_event event = {.type = CALL_EV_ANSWER, .answer = RECEIPT_ANSWER_NOT_RECEIVED};
        feed(run, &event);
        return;
    }
    run->query = gate_ask(run->gate, QUERY_RUN, run, run->call, fence, run->row.first_attempt_ms,
                          run->effect.timeout_ms);
}

/* ---- runs: waiting ------------------------------------------------------------------------------------------ */

static void arm_run(struct run *run, int64_t until_ms)
{
    struct gate *g = run->gate;
    run->timer = ++g->serial;
    world_later(g->world, until_ms > gate_now(g) ? until_ms - gate_now(g) : 0, EVENT_RUN_TIMER, run->slot,
                run->timer);
}

static void pending_stored(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    if (lost_and_done(run)) {
        /* somebody else's now */
    } else if (job->op.status == STATUS_CONFLICT) {
        lose(run, &job->op.rows);
    } else if (run->visit && run->visit->listens) {
        tell(run->visit, ANSWER_PENDING, slice_of("", 0), "accepted");
    }
    gate_job_free(job);
}

/* Its row ended without us: the service reported. */
static void ended_elsewhere(struct job *job)
{
    struct run *run = job->owner;
    if (run)
        run->watch = NULL;
    if (run && !run->lost && !run->ending && job->op.status == STATUS_OK)
        lose(run, &job->op.rows);
    gate_job_free(job);
}

static void do_wait(struct run *run)
{
    arm_run(run, run->effect.until_ms);
    bool accepted =
        run->effect.pending && run->reply.head && run->reply.status >= 200 && run->reply.status <= 299;
    if (!accepted || run->pending_stored)
        return;
    run->pending_stored = true;
    encode_attempts(run);
    struct job *job = owner_job(run, STORE_ATTEMPT, pending_stored);
    job->op.row.maybe_ran = true;
    job->op.row.lease_end_ms = store_now(run) + run->gate->world->rules.lease_ms;
    gate_submit(job);
    run->watch = gate_job(run->gate, STORE_WATCH, run, run->call, ended_elsewhere);
    run->watch->op.id = run->row.id;
    gate_submit(run->watch);
}

/* ---- runs: the ending --------------------------------------------------------------------------------------- */

static void set_lives(struct run *run)
{
    const struct rules *r = &run->gate->world->rules;
    int64_t now = store_now(run), wall = world_wall(run->gate->world);
    run->row.ended_ms = now;
    if (run->row.state == STATE_UNKNOWN) {
        run->row.result_expires_ms = run->row.key_expires_ms = run->row.tombstone_expires_ms = INT64_MAX;
        return;
    }
    /* A clock that was set forward while the call ran must not end its life at once. */
    now = wall > now ? wall : now;
    run->row.result_expires_ms = deadline_add(now, r->result_life_ms);
    run->row.key_expires_ms = deadline_add(now, r->key_life_ms);
    run->row.tombstone_expires_ms = deadline_add(now, r->tombstone_life_ms);
}

static bool answer_is_own(const struct run *run)
{
    return run->effect.reason != REASON_RECEIPT && run->effect.reason != REASON_FENCED_AT_CALLEE &&
           run->reply.head;
}

static void set_result(struct run *run)
{
    struct call_row *row = &run->row;
    const struct reply *r = &run->reply;
    enum reason reason = run->effect.reason;
    if (row->state == STATE_UNKNOWN)
        return;
    row->result_headers = slice_text("Content-Type: application/json\r\n");
    if (reason == REASON_RECEIPT && run->has_result) {
        row->has_result = row->body_kept = true;
        row->result_status = run->result_status;
        row->result_body = buffer_view(&run->result_body);
    } else if (reason == REASON_RECEIPT || reason == REASON_FENCED_AT_CALLEE) {
        if (row->state != STATE_SUCCESS)
            return;
        struct rows rows = rows_of(run);
        rows.call.has_result = false;
        buffer_clear(&run->result_body);
        receipt_document(&run->result_body, &rows, row->call_id);
        row->has_result = row->body_kept = true;
        row->result_status = 200;
        row->result_body = buffer_view(&run->result_body);
    } else if (r->head) {
        row->has_result = true;
        row->body_kept = !r->too_large;
        row->result_status = r->status;
        row->result_body = r->too_large ? slice_of("", 0) : buffer_view(&r->body);
    }
}

static void tell_visit(struct run *run)
{
    struct visit *v = run->visit;
    const struct call_effect *fx = &run->effect;
    if (!v || !v->listens)
        return;
    if (fx->state == STATE_UNKNOWN)
        visit_answer_problem(v, PROBLEM_OUTCOME_UNKNOWN);
    else if (fx->state == STATE_FAILED && !fx->final)
        visit_answer_problem(v, PROBLEM_UPSTREAM_UNAVAILABLE);
    else if (answer_is_own(
                 run)) /* streamed where it is too large: then its bytes are not kept, nor compared */
        tell(v, fx->state == STATE_SUCCESS ? ANSWER_SUCCESS : ANSWER_FAILED,
             run->reply.too_large ? slice_of("", 0) : buffer_view(&run->reply.body), "the callee's answer");
    else
        visit_answer_row(v, &run->row);
}

static void do_end(struct run *run);

static void ended(struct job *job)
{
    struct run *run = job->owner;
    struct gate *g = run->gate;
    enum status status = job->op.status;
    run->jobs--;
    if (status == STATUS_OK) {
        run->row.ended_ms = run->row.updated_ms = job->op.rows.now_ms;
        run->covers_since_ms = job->op.rows.covers_since_ms;
        struct rows rows = rows_of(run);
        if (run->effect.final || HAS_BUG(g, TRUST_CACHE))
            cache_put(g, &rows);
        tell_visit(run);
        run_free(run); /* what it asked of the store before was answered before */
    } else if (status == STATUS_CONFLICT) {
        lose(run, &job->op.rows);
    } else {
        if (run->visit && run->visit->listens)
            visit_answer_problem(run->visit, PROBLEM_OUTCOME_UNKNOWN);
        arm_run(run, gate_now(g) + END_AGAIN_MS);
    }
    gate_job_free(job);
}

static void do_end(struct run *run)
{
    struct call_row *row = &run->row;
    const struct call_effect *fx = &run->effect;
    SAY(run->gate->world, "gateway", "%s ends %s%s%s%s", gate_call(run->gate, run->call)->id,
        state_text(fx->state), fx->final ? ", final" : "", fx->reason ? ": " : "", reason_text(fx->reason));
    run->ending = true;
    row->state = fx->state;
    row->final = fx->final;
    row->reason = fx->reason;
    if (run->reply.too_large && fx->state == STATE_SUCCESS && answer_is_own(run))
        row->reason = REASON_RESULT_TOO_LARGE;
    row->maybe_ran = fx->state == STATE_UNKNOWN;
    encode_attempts(run);
    set_lives(run);
    row->updated_ms = row->ended_ms;
    set_result(run);
    if (HAS_BUG(run->gate, EARLY_ENDING))
        tell_visit(run);
    struct job *job = owner_job(run, STORE_END, ended);
    job->op.from_states = 1u << STATE_PROCESSING | (run->resumed ? 1u << STATE_UNKNOWN : 0);
    job->op.answer_only = fx->state == STATE_FAILED && !fx->final;
    const struct rules *r = &run->gate->world->rules;
    bool compensate = fx->state == STATE_FAILED && fx->final && r->compensates;
    job->op.make_task = fx->state == STATE_UNKNOWN || compensate;
    job->op.task_cause = compensate ? TASK_CAUSE_FAILED : TASK_CAUSE_UNKNOWN;
    job->op.drop_kept = r->still_wanted && !compensate;
    job->op.task_due_ms = store_now(run) + r->round_gap_ms;
    gate_submit(job);
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
        do_end(run);
        break;
    }
}

static void run_timer(struct run *run)
{
    run->timer = 0;
    if (run->lost)
        return;
    if (run->ending) {
        do_end(run);
        return;
    }
    struct call_event event = {.type = CALL_EV_TIMER};
    feed(run, &event);
}

/* ---- runs: beginning ---------------------------------------------------------------------------------------- */

static void read_past(struct run *run, struct call_past *past)
{
    size_t count = 0;
    past->attempts = run->row.attempt_count;
    past->maybe_ran = run->row.maybe_ran;
    past->age_ms = run->row.first_attempt_ms ? run->store_now_ms - run->row.first_attempt_ms : 0;
    if (past->age_ms < 0)
        past->age_ms = 0;
    int64_t last_ms = run->row.updated_ms;
    if (attempts_decode(run->row.attempts, run->attempts, &count, &run->past_words) == STATUS_OK) {
        for (size_t i = 0; i < count; i++)
            past->pending = past->pending || run->attempts[i].outcome == OUTCOME_PENDING;
        run->attempt_count = count;
    }
    if (past->maybe_ran && count < (size_t)run->row.attempt_count && count < ATTEMPTS_MAX) {
        struct attempt *a = &run->attempts[run->attempt_count++];
        *a = (struct attempt){.n = run->row.attempt_count,
                              .ended_ms = last_ms,
                              .outcome = OUTCOME_UNKNOWN,
                              .evidence = slice_text(words[EVIDENCE_LOST])};
        a->started_ms = a->n == 1 ? run->row.first_attempt_ms : 0;
    }
    past->closed_age_ms = run->store_now_ms > last_ms ? run->store_now_ms - last_ms : 0;
}

static struct run *run_make(struct gate *g, uint32_t call, const struct call_row *row,
                            const struct rows *rows, bool resumed)
{
    struct world *w = g->world;
    const struct operation *o = &w->operations.list[gate_call(g, call)->operation];
    uint32_t slot = 0;
    while (slot < RUNS_MAX && g->runs[slot])
        slot++;
    struct run *run = slot < RUNS_MAX ? calloc(1, sizeof *run) : NULL;
    if (!run)
        abort(); /* more runs than this world can have callers' patience for */
    run->gate = g;
    run->slot = slot;
    run->call = call;
    run->body = gate_call(g, call)->body;
    run->serial = ++g->serial;
    run->message = run->query = WORLD_NONE;
    run->store_now_ms = rows->now_ms;
    run->covers_since_ms = rows->covers_since_ms;
    run->resumed = resumed;
    run->at_ms = gate_now(g);
    g->runs[slot] = run;
    run->row = *row;
    buffer_slice(&run->attempts_text, row->attempts);
    gate_keep_row(g, &run->row, call);
    run->row.attempts = buffer_view(&run->attempts_text);
    run->row.owner = slice_text(g->owner);
    run->row.key = slice_text(o->has_key ? o->key : "");
    run->row.has_result = run->row.body_kept = false;
    run->row.state = STATE_PROCESSING;
    struct call_policy policy = w->rules.policy;
    policy.has_identity = run->row.has_key || !run->row.call_id_made;
    if (HAS_BUG(g, NO_WAIT))
        policy.resend_after_ms = 0;
    call_init(&run->machine, &policy);
    return run;
}

void gate_run_alone(struct gate *g, const struct run_alone *ask, const struct rows *rows, bool resumed)
{
    struct run *run = run_make(g, ask->call, &rows->call, rows, resumed);
    run->body = ask->body;
    run->over = ask->over;
    run->owner = ask->owner;
    run->machine.policy.retries = ask->retries;
    lease_moved(run);
    arm_lease(run);
    struct call_event event = {.type = CALL_EV_START,
                               .deadline_ms = deadline_add(gate_now(g), g->world->rules.deadline_ms)};
    if (resumed)
        read_past(run, &event.past);
    event.past.closed_age_ms = ask->closed_age_ms;
    if (HAS_BUG(g, ROUND_BLIND))
        event.past.maybe_ran = event.past.pending = false;
    feed(run, &event);
}

static void run_begin(struct visit *v, const struct call_row *row, const struct rows *rows, bool resumed)
{
    struct gate *g = v->gate;
    struct world *w = g->world;
    struct run *run = run_make(g, v->call, row, rows, resumed);
    if (!v->listens) {
        /* Claimed, and its caller is gone with the request: it ends as not executed. */
        bool maybe_ran = run->row.maybe_ran;
        run->effect = (struct call_effect){.type = CALL_DO_END,
                                           .state = maybe_ran ? STATE_UNKNOWN : STATE_FAILED,
                                           .reason = maybe_ran ? REASON_ATTEMPT : REASON_NOT_EXECUTED,
                                           .retry_in_ms = -1};
        perform(run);
        return;
    }
    run->visit = visit_hold(v);
    v->run = run;
    v->phase = VISIT_RUNNING;
    if (v->budget_end_ms != INT64_MAX)
        arm_visit(v, v->budget_end_ms);
    lease_moved(run);
    arm_lease(run);
    int64_t budget = v->budget_end_ms == INT64_MAX ? DEADLINE_NO_BUDGET : v->budget_end_ms - gate_now(g);
    struct call_event event = {.type = CALL_EV_START,
                               .deadline_ms =
                                   deadline_from(gate_now(g), w->rules.deadline_ms, budget > 0 ? budget : 0)};
    if (budget == DEADLINE_NO_BUDGET)
        event.deadline_ms = deadline_from(gate_now(g), w->rules.deadline_ms, DEADLINE_NO_BUDGET);
    if (resumed)
        read_past(run, &event.past);
    feed(run, &event);
}

#ifdef SAMEKEY_PLANTED_BUGS
static void claimed_late(struct job *job)
{
    struct run *run = job->owner;
    run->jobs--;
    if (lost_and_done(run)) {
        /* it did not matter */
    } else if (job->op.done) {
        run->row.id = job->op.rows.call.id;
        run->row.fence = job->op.rows.call.fence;
    } else {
        lose(run, &job->op.rows);
    }
    gate_job_free(job);
}

static void claim_late(struct visit *v)
{
    struct gate *g = v->gate;
    struct call_row row;
    struct rows rows = {.now_ms = world_wall(g->world)};
    fill_row(v, &row);
    run_begin(v, &row, &rows, false);
    struct run *run = v->run;
    if (!run)
        return;
    struct job *job = gate_job(g, STORE_CLAIM, run, v->call, claimed_late);
    fill_row(v, &job->op.row);
    run->jobs++;
    gate_submit(job);
}
#endif

/* ---- asking ------------------------------------------------------------------------------------------------- */

uint32_t gate_ask(struct gate *g, enum query_owner kind, void *owner, uint32_t call, bool fence,
                  int64_t first_attempt_ms, int64_t timeout_ms)
{
    struct world *w = g->world;
    uint32_t number = w->queries.count;
    struct query *q = ADD(w, queries);
    if (!q)
        abort();
    q->call = call;
    q->kind = kind;
    q->owner = owner;
    q->incarnation = g->incarnation;
    q->fence = fence;
    q->first_attempt_ms = first_attempt_ms;
    world_later(w, timeout_ms, EVENT_QUERY_SILENCE, 0, number);
    world_ask(w, number);
    return number;
}

static void leftover_answered(struct job *job, const struct receipt_reading *reading);

/* The callee's document, read by the core as any other. */
static void query_over(struct gate *g, uint32_t number, bool answered)
{
    struct world *w = g->world;
    struct query *q = &w->queries.list[number];
    if (q->over || q->incarnation != g->incarnation)
        return;
    q->over = true;
    const struct callee_receipt *told = &q->told;
    const char *id = gate_call(g, q->call)->id;
    struct buffer body = {0};
    if (answered && q->garbled) {
        buffer_text(&body, "<html>404</html>");
    } else if (answered && q->status == 409) {
        buffer_format(&body, "{\"type\":\"urn:samekey:call-in-progress\",\"call_id\":\"%s\"}", id);
    } else if (answered) {
        buffer_format(&body, "{\"call_id\":\"%s%s\",\"state\":\"%s\",\"final\":%s", q->other_call ? "x" : "",
                      id, told->exists ? state_text(told->state) : "NOT_RECEIVED",
                      told->final ? "true" : "false");
        if (q->covers_since_ms) {
            buffer_text(&body, ",\"covers_since\":\"");
            civil_print_rfc3339(q->covers_since_ms, &body);
            buffer_text(&body, "\"");
        }
        if (told->exists && told->state == STATE_SUCCESS && !w->rules.bare_receipts)
            buffer_format(&body,
                          ",\"result\":{\"status\":201,\"headers\":[],\"body\":\"{\\\"effect\\\":%u}\","
                          "\"body_encoding\":\"utf8\"}",
                          told->effect);
        buffer_text(&body, "}");
    }
    struct receipt_reading reading;
    receipt_read(&reading, answered ? q->status : 0, buffer_view(&body), slice_text(id), q->first_attempt_ms,
                 slice_of("", 0));
    buffer_fini(&body);
    judge_receipt(w, q->call, reading.answer, q->kind, q->fence, q->asked_ms);
    switch (q->kind) {
    case QUERY_RUN:
        run_answered(q->owner, &reading);
        break;
    case QUERY_HOLDER:
        holder_answered(q->owner, &reading);
        break;
    case QUERY_LEFTOVER:
        leftover_answered(q->owner, &reading);
        break;
    case QUERY_ROUND:
        rounds_answered(q->owner, &reading);
        break;
    }
    receipt_reading_fini(&reading);
}
/* ---- upkeep ------------------------------------------------------------------------------------------------- */

static void leftover_settled(struct job *job)
{
    gate_job_free(job);
}

static void leftover_answered(struct job *job, const struct receipt_reading *reading)
{
    if (reading->answer == RECEIPT_ANSWER_SUCCESS || reading->answer == RECEIPT_ANSWER_FAILED_FINAL)
        settle(job, reading);
    else
        leftover_settled(job); /* it stays UNKNOWN; its caller's repeat, or a round, goes on */
}

static void row_read(struct job *job)
{
    struct gate *g = job->gate;
    const struct call_row *row = &job->op.rows.call;
    const struct call_policy *p = &g->world->rules.policy;
    bool askable = job->op.status == STATUS_OK && row->id && row->state == STATE_UNKNOWN && p->has_receipts;
    uint32_t call = askable ? gate_call_of_row(g, row) : WORLD_NONE;
    if (call != WORLD_NONE) {
        struct job *end = gate_job(g, STORE_END, NULL, call, leftover_settled);
        end->op.row = *row;
        end->op.id = row->id;
        end->op.fence = row->fence;
        gate_keep_row(g, &end->op.row, call);
        list_push_back(&g->asking, &end->link);
        (void)gate_ask(g, QUERY_LEFTOVER, end, call, false,
                       row->first_attempt_ms ? row->first_attempt_ms : row->created_ms,
                       p->receipt_timeout_ms);
    }
    gate_job_free(job);
}

static void ask_next(struct gate *g)
{
    while (g->leftover_count) {
        struct job *job = gate_job(g, STORE_READ, NULL, WORLD_NONE, row_read);
        job->op.id = g->leftovers[--g->leftover_count];
        gate_submit(job);
    }
}

#ifdef SAMEKEY_PLANTED_BUGS
static void freed(struct job *job)
{
    gate_job_free(job);
}
#endif

static void expired(struct job *job)
{
    struct gate *g = job->gate;
    g->expiring = false;
    for (size_t i = 0; job->op.status == STATUS_OK && i < job->op.count; i++) {
        if (g->leftover_count < LEFTOVERS_MAX)
            g->leftovers[g->leftover_count++] = job->op.expired[i];
#ifdef SAMEKEY_PLANTED_BUGS
        if (HAS_BUG(g, FREE_LEASE)) {
            struct job *end = gate_job(g, STORE_END, NULL, WORLD_NONE, freed);
            end->op.id = job->op.expired[i];
            end->op.any_fence = true;
            end->op.from_states = 1u << STATE_UNKNOWN;
            end->op.row.state = STATE_FAILED;
            end->op.row.reason = REASON_NOT_EXECUTED;
            end->op.row.key_expires_ms = end->op.row.tombstone_expires_ms = INT64_MAX;
            gate_submit(end);
        }
#endif
    }
    if (job->op.count)
        SAY(g->world, "gateway", "%zu leases of an earlier process have run out", job->op.count);
    ask_next(g);
    gate_job_free(job);
}

static void tick(struct gate *g)
{
    struct world *w = g->world;
    if (!g->expiring) {
        struct job *job = gate_job(g, STORE_EXPIRE, NULL, WORLD_NONE, expired);
        job->op.limit = STORE_IDS_MAX;
        job->op.row.owner = slice_text(g->owner);
        job->op.task_due_ms = deadline_add(world_wall(w), w->rules.round_gap_ms);
        g->expiring = true;
        gate_submit(job);
    }
    world_later(w, w->rules.tick_ms, EVENT_TICK, 0, gate_value(g));
}

static void purged(struct job *job)
{
    struct gate *g = job->gate;
    bool more = job->op.status == STATUS_OK && job->op.count >= job->op.limit;
    g->purging = false;
    if (job->op.count)
        SAY(g->world, "gateway", "purges %zu rows", job->op.count);
    world_later(g->world, more ? 20 : g->world->rules.purge_every_ms, EVENT_PURGE, 0, gate_value(g));
    gate_job_free(job);
}

static void purge(struct gate *g)
{
    if (g->purging)
        return;
    struct job *job = gate_job(g, STORE_PURGE, NULL, WORLD_NONE, purged);
    job->op.limit = PURGE_BATCH;
    g->purging = true;
    gate_submit(job);
}

/* ---- what comes ---------------------------------------------------------------------------------------------- */

void gate_request(struct gate *g, const struct caller_request *request)
{
    if (!gate_up(g))
        return; /* connection refused */
    judge_asked(g->world, request->call);
    if (request->kind == REQUEST_CALL)
        visit_begin(g, request);
    else if (request->kind == REQUEST_READ)
        gate_begin_read(g, request->call);
    else
        gate_begin_fence(g, request->call, request->names_key);
}

/* ---- the process -------------------------------------------------------------------------------------------- */

enum status gate_new(struct world *w)
{
    struct gate *g = calloc(1, sizeof *g);
    if (!g)
        return STATUS_NO_MEMORY;
    g->world = w;
    list_init(&g->queue);
    list_init(&g->reads);
    list_init(&g->answered);
    list_init(&g->watches);
    list_init(&g->asking);
    w->gate = g;
    return STATUS_OK;
}

bool gate_up(const struct gate *g)
{
    return g->store != NULL;
}

unsigned gate_incarnation(const struct gate *g)
{
    return g->incarnation;
}

bool gate_idle(const struct gate *g)
{
    for (int i = 0; i < VISITS_MAX; i++)
        if (g->visits[i])
            return false;
    for (int i = 0; i < RUNS_MAX; i++)
        if (g->runs[i])
            return false;
    return g->working == (g->taking ? 1 : 0); /* it looks for tasks for ever */
}

void gate_start(struct gate *g)
{
    struct world *w = g->world;
    struct buffer error = {0};
    g->incarnation++;
    snprintf(g->owner, sizeof g->owner, "gateway-%u", g->incarnation);
    struct store_settings settings = {.url = "sqlite:world.db",
                                      .owner = g->owner,
                                      .now_ms = (int64_t(*)(void *))world_wall,
                                      .context = w,
                                      .vfs = WORLD_DISK_VFS,
                                      .tail_entries = w->rules.tail_entries};
    enum status status = store_open(&g->store, &settings, &error);
    if (status == STATUS_OK)
        status = store_reader_open(&g->reader, g->store, &error);
    if (status != STATUS_OK) {
        SAY(w, "gateway", "does not start: %s", buffer_cstring(&error));
        store_close(g->store);
        g->store = NULL;
        if (disk_is_off())
            disk_power_on((enum disk_loss)prng_below(&w->machine, DISK_LOSSES));
        world_later(w, world_between(&w->machine, 50, 500), EVENT_START, 0, 0);
        if (status == STATUS_INVALID)
            judge_break(w, "the store does not open: %s", buffer_cstring(&error));
        buffer_fini(&error);
        return;
    }
    buffer_fini(&error);
    SAY(w, "gateway", "starts as %s", g->owner);
    judge_file(w, false);
    tick(g);
    rounds_look(g);
    world_later(w, w->rules.purge_every_ms, EVENT_PURGE, 0, gate_value(g));
}

static void forget_jobs(struct list *jobs)
{
    while (!list_empty(jobs))
        gate_job_free(LIST_ENTRY(jobs->next, struct job, link));
}

/* What a process has in memory goes with it: those who waited hear nothing. */
static void forget_all(struct gate *g)
{
    forget_jobs(&g->queue);
    forget_jobs(&g->reads);
    forget_jobs(&g->answered);
    forget_jobs(&g->watches);
    forget_jobs(&g->asking);
    rounds_forget(g);
    for (int i = 0; i < RUNS_MAX; i++)
        if (g->runs[i])
            run_release(g->runs[i]);
    for (int i = 0; i < VISITS_MAX; i++)
        if (g->visits[i]) {
            free(g->visits[i]);
            g->visits[i] = NULL;
        }
    for (int i = 0; i < CACHE_ENTRIES; i++) {
        buffer_fini(&g->cache[i].memory);
        g->cache[i].used = false;
    }
    sweep(g);
    g->leftover_count = 0;
    g->writing = g->reading = g->expiring = g->purging = false;
    g->incarnation++;
}

static void go_down(struct gate *g, enum disk_loss loss)
{
    forget_all(g);
    store_reader_free(g->reader);
    store_close(g->store);
    g->reader = NULL;
    g->store = NULL;
    if (disk_is_off())
        disk_power_on(loss);
}

void gate_crash(struct gate *g, bool power)
{
    struct world *w = g->world;
    static const char *const words_of[DISK_LOSSES] = {"nothing", "all that was not synced", "the last writes",
                                                      "some sectors"};
    enum disk_loss loss = power ? DISK_LOSES_ALL + (enum disk_loss)prng_below(&w->machine, DISK_LOSSES - 1)
                                : DISK_LOSES_NOTHING;
    SAY(w, "gateway", power ? "loses its power; the disk loses %s" : "is killed; the disk loses %s",
        words_of[loss]);
    w->result->crashes++;
    disk_power_off();
    go_down(g, loss);
    world_later(w, world_between(&w->machine, 5, world_chance(&w->machine, 200) ? 10000 : 500), EVENT_START,
                0, 0);
}

void gate_stop(struct gate *g)
{
    SAY(g->world, "gateway", "stops");
    while (!list_empty(&g->queue)) {
        struct job *job = LIST_ENTRY(g->queue.next, struct job, link);
        struct store_op *op = &job->op;
        list_remove(&job->link);
        list_init(&job->link);
        store_batch(g->store, &op, 1);
        gate_job_free(job);
    }
    go_down(g, DISK_LOSES_ALL);
}

void gate_free(struct gate *g)
{
    if (gate_up(g))
        go_down(g, DISK_LOSES_NOTHING);
    sweep(g);
    while (g->idle) {
        struct job *job = g->idle;
        g->idle = job->next_idle;
        buffer_fini(&job->op.memory);
        buffer_fini(&job->text);
        free(job);
    }
    free(g);
}

void gate_event(struct gate *g, enum world_event kind, uint32_t who, uint64_t value)
{
    sweep(g);
    struct run *run = who < RUNS_MAX ? g->runs[who] : NULL;
    struct visit *v = visit_at(g, who, value);
    bool ours = gate_up(g) && value == gate_value(g);
    switch (kind) {
    case EVENT_HANGUP:
        if (v)
            visit_gone(v);
        break;
    case EVENT_VISIT_TIMER:
        if (v)
            visit_timer(v);
        break;
    case EVENT_RUN_TIMER:
        if (run && run->timer == value)
            run_timer(run);
        break;
    case EVENT_RUN_LEASE:
        if (run && run->serial == value)
            lease_timer(run);
        break;
    case EVENT_RUN_SILENCE:
        attempt_silent(g, (uint32_t)value);
        break;
    case EVENT_RUN_END:
        connection_over(g, (enum end_kind)who, (uint32_t)value);
        break;
    case EVENT_ANSWER:
        answer_came(g, (uint32_t)value);
        break;
    case EVENT_QUERY_ANSWER:
    case EVENT_QUERY_SILENCE:
        query_over(g, (uint32_t)value, kind == EVENT_QUERY_ANSWER);
        break;
    case EVENT_STORE:
        if (ours)
            gate_write_queue(g);
        break;
    case EVENT_STORE_ANSWERS:
        if (ours)
            gate_deliver(g);
        break;
    case EVENT_READER:
        if (ours)
            gate_read_queue(g);
        break;
    case EVENT_TICK:
        if (ours)
            tick(g);
        break;
    case EVENT_PURGE:
        if (ours)
            purge(g);
        break;
    case EVENT_ROUND_LOOK:
        if (ours) {
            g->looking = false;
            rounds_look(g);
        }
        break;
    case EVENT_ROUND_WRITE:
        if (gate_up(g))
            rounds_write_again(g, who, value);
        break;
    case EVENT_PERSON:
        if (gate_up(g))
            rounds_person(g, (int64_t)value);
        break;
    default:
        abort(); /* an event that nobody knows */
    }
}
