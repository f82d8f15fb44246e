/* SPDX-License-Identifier: MIT */
#include "gateway/visit_parts.h"

#include "core/deadline.h"
#include "gateway/endings.h"
#include "gateway/run.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define VISIT_ARENA_BYTES_MAX                                                                                \
    (256u << 10)                         /* texts of one request's identity; a holder's result comes on top */
#define VISITS_SPARE_MAX      256        /* visits of a shard that are over, kept for the next */
#define VISIT_SPARE_BYTES_MAX (8u << 10) /* of the arena, and of the body */

static struct visit *visit_new(struct shard *shard, size_t arena_max)
{
    struct list *spare = list_pop_front(&shard->spare_visits);
    struct visit *visit = spare ? LIST_ENTRY(spare, struct visit, spare) : calloc(1, sizeof *visit);
    if (!visit)
        return NULL;
    if (spare) {
        shard->spare_visit_count--;
        memset(visit, 0, offsetof(struct visit, arena));
        visit->arena.max = arena_max;
    } else {
        arena_init(&visit->arena, arena_max);
    }
    return visit;
}

static void visit_fini(struct visit *visit)
{
    buffer_fini(&visit->body);
    arena_fini(&visit->arena);
    free(visit);
}

static void visit_keep(struct visit *visit)
{
    buffer_rest(&visit->body, VISIT_SPARE_BYTES_MAX);
    arena_rest(&visit->arena, VISIT_SPARE_BYTES_MAX);
    visit->shard->spare_visit_count++;
    list_push_front(&visit->shard->spare_visits, &visit->spare);
}

void visits_forget(struct shard *shard)
{
    struct list *spare;
    while ((spare = list_pop_front(&shard->spare_visits)) != NULL)
        visit_fini(LIST_ENTRY(spare, struct visit, spare));
}

struct visit *visit_hold(struct visit *visit)
{
    visit->holds++;
    return visit;
}

void visit_drop(struct visit *visit)
{
    assert(visit->holds > 0);
    if (--visit->holds)
        return;
    struct shard *shard = visit->shard;
    net_timer_disarm(shard->loop, &visit->timer);
    admission_leave(visit->lane->admission, &visit->pass, net_loop_now(shard->loop));
    outlets_release(visit->outlets);
    shard->visits--;
    if (shard->spare_visit_count < VISITS_SPARE_MAX)
        visit_keep(visit);
    else
        visit_fini(visit);
}

int64_t visit_now(const struct visit *visit)
{
    return net_loop_now(visit->shard->loop);
}

/* Gives back what was taken for a run that does not come to be. */
void visit_leave_admission(struct visit *visit)
{
    visit->refusal = ADMIT_YES; /* whoever needs a place again asks again */
    if (!visit->queued) {
        admission_leave(visit->lane->admission, &visit->pass, visit_now(visit));
    } else if (admission_withdraw(visit->lane->admission, &visit->waiter)) {
        visit->queued = false;
        visit_drop(visit); /* the waiter's hold */
    }
}
/* ---- arrival ------------------------------------------------------------------------------------------------ */

static void refuse_arrival(struct visit *visit, enum problem problem)
{
    char detail[512];
    const struct identity *id = &visit->id;
    if (id->where.len)
        snprintf(detail, sizeof detail, "%s: {%.*s}", id->why ? id->why : "missing", (int)id->where.len,
                 id->where.data);
    else
        snprintf(detail, sizeof detail, "%s", id->why ? id->why : "");
    /* A callId that breaks the rules is not echoed. */
    if (problem == PROBLEM_CALL_ID_INVALID)
        visit->id.call_id = (struct slice){0};
    visit_answer_problem(visit, problem, detail, -1, NULL, false);
}

static struct identity_inputs inputs_of(struct visit *visit)
{
    return (struct identity_inputs){
        .setup = visit->outlets->setup,
        .lane = visit->lane,
        .match = &visit->match,
        .head = request_head(visit->request),
        .body = buffer_view(&visit->body),
        .hasher = &visit->shard->print.hasher,
        .arena = &visit->arena,
    };
}

/* Whether rows of a cache answer the visit. The keeper makes every check on them that it makes on rows of the store, and
 * whatever it says but "replay" is the store's to say. */
static bool replay_cached(struct visit *visit, const struct rows *rows)
{
    struct verdict verdict;
    keeper_arrive(&visit->arrival, rows, &verdict);
    if (verdict.verb != KEEPER_REPLAY || keeper_replay_problem(&rows->call) != PROBLEM_NONE)
        return false;
    visit_answer_row(visit, rows, false, false);
    return true;
}

static void arrive_at_store(struct visit *visit)
{
    visit_enter_admission(visit);
    visit_ask_store(visit, visit->refusal != ADMIT_YES);
}

/* The texts that point into the request's head: it goes with the caller, and what is asked for outlives it. */
static bool own_texts(struct visit *visit)
{
    struct identity *id = &visit->id;
    struct slice *texts[] = {&id->call_id, &id->key_spelling, &id->business_ref};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i]->len && !arena_copy(&visit->arena, *texts[i], texts[i]))
            return false;
    }
    return true;
}

static void cache_answered(struct redis_ask *ask, const struct rows *rows)
{
    struct visit *visit = LIST_ENTRY(ask, struct visit, cached);
    if (visit->request) {
        if (rows && replay_cached(visit, rows))
            endings_keep_near(visit->shard, rows);
        else
            arrive_at_store(visit);
    }
    visit_drop(visit);
}

/* Everything is known: the caches are looked at, then the store is asked. */
static void arrive(struct visit *visit)
{
    struct identity *id = &visit->id;
    struct shard *shard = visit->shard;
    if (!own_texts(visit)) {
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    if (!id->call_id.len) {
        char made[CALLID_BYTES_MAX + 1];
        size_t len = callid_make(shard->ids, shard_store_now(shard), made);
        if (!arena_copy(&visit->arena, slice_of(made, len), &id->call_id)) {
            visit_store_failed(visit, STATUS_FULL);
            return;
        }
        id->call_id_made = true;
    }
    identity_digest(id, &shard->print.hasher);
    visit->arrival = (struct arrival){
        .has_key = id->has_key,
        .operation = id->operation,
        .has_credential = id->has_credential,
        .credential = id->credential,
        .scope = id->scope,
        .fingerprint = visit->own_print,
        .fingerprint_version = FINGERPRINT_VERSION,
        .fingerprint_rules = fingerprint_rules_text(&visit->lane->rules),
        .call_id_made = id->call_id_made,
        .id_time_ms = id->call_id_made ? 0 : id->id_time_ms,
        .block_suspects = visit->lane->s->swapped_keys == SWAPPED_KEYS_BLOCK,
    };
    visit->phase = VISIT_DECIDING;
    struct rows rows;
    if (!id->call_id_made && endings_near(shard, &id->call_digest, &rows) && replay_cached(visit, &rows))
        return;
    if (!id->call_id_made) {
        visit->cached = (struct redis_ask){
            .call = id->call_digest, .tenant = id->tenant, .call_id = id->call_id, .then = cache_answered};
        visit_hold(visit);
        if (redis_ask(shard->redis, &visit->cached))
            return;
        visit_drop(visit);
    }
    arrive_at_store(visit);
}

static void read_body_identity(struct visit *visit)
{
    struct identity_inputs in = inputs_of(visit);
    enum problem problem = identity_read_body(&visit->id, &in, visit->window_ms);
    if (problem)
        refuse_arrival(visit, problem);
    else
        arrive(visit);
}

/* A key with a time window: a known callId keeps the window of its first claim. */
static void window_answered(struct job *job)
{
    struct visit *visit = job->owner;
    if (!visit->request) {
        /* gone */
    } else if (job->op.status != STATUS_OK) {
        visit_store_failed(visit, job->op.status);
    } else {
        if (job->op.rows.call.id && job->op.rows.call.window_ms)
            visit->window_ms = job->op.rows.call.window_ms;
        read_body_identity(visit);
    }
    job_free(job);
    visit_drop(visit);
}

static void ask_window(struct visit *visit)
{
    if (!own_texts(visit)) {
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    struct job *job = job_new(visit->shard, STORE_LOOKUP, visit_hold(visit), window_answered);
    if (!job) {
        visit_drop(visit);
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    job->op.row.call_digest = digest_call(&visit->shard->print.hasher, visit->id.tenant, visit->id.call_id);
    job->op.row.tenant = visit->id.tenant;
    job->op.row.call_id = visit->id.call_id;
    visit->phase = VISIT_DECIDING;
    job_submit(job);
}

static void on_body_end(struct guest *guest)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    if (visit->phase != VISIT_READING || !visit->request)
        return;
    if (visit->body.failed) {
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    visit->came_us = clock_monotonic_us();
    const struct request_head *head = request_head(visit->request);
    struct fingerprint_input in = {
        .method = head->method,
        .target = head->target,
        .content_type = headers_get(&head->headers, "Content-Type", NULL),
        .content_encoding = headers_get(&head->headers, "Content-Encoding", NULL),
        .body = buffer_view(&visit->body),
    };
    struct canon_fault fault = {0};
    enum status status = fingerprint_make(&visit->shard->print, FINGERPRINT_VERSION, &visit->lane->rules, &in,
                                          &visit->own_print, &fault);
    if (status == STATUS_INVALID || status == STATUS_FULL) {
        char detail[256];
        if (status == STATUS_FULL)
            snprintf(detail, sizeof detail, "the JSON body is larger than can be compared");
        else
            snprintf(detail, sizeof detail, "at byte %zu: %s", fault.position, fault.message);
        visit_answer_problem(visit, PROBLEM_BODY_INVALID, detail, -1, NULL, false);
        return;
    }
    if (status != STATUS_OK) {
        visit_store_failed(visit, STATUS_FULL);
        return;
    }
    visit->window_ms = shard_store_now(visit->shard);
    bool windowed = !visit->lane->key_in_header && template_has_window(&visit->lane->key);
    if (windowed && visit->lane->call_id_in_header && visit->id.call_id.len)
        ask_window(visit);
    else
        read_body_identity(visit);
}

static void on_body(struct guest *guest, struct slice piece)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    if (visit->phase != VISIT_READING || !visit->request)
        return;
    if (piece.len > (size_t)visit->lane->s->body_bytes_max - visit->body.len) {
        char detail[128];
        snprintf(detail, sizeof detail, "body_bytes_max of this route is %lld",
                 (long long)visit->lane->s->body_bytes_max);
        visit_answer_problem(visit, PROBLEM_BODY_TOO_LARGE, detail, -1, NULL, false);
        return;
    }
    buffer_slice(&visit->body, piece);
}

void visit_arm_budget(struct visit *visit)
{
    if (visit->budget_end_ms != INT64_MAX)
        net_timer_arm(visit->shard->loop, &visit->timer, visit->budget_end_ms, visit_on_timer);
}

static void on_drain(struct guest *guest)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    if (visit->run)
        run_drain(visit->run);
}

void visit_unlink_run(struct visit *visit)
{
    visit->run = NULL;
    visit_drop(visit);
}

static void on_finished(struct guest *guest, bool gone)
{
    struct visit *visit = LIST_ENTRY(guest, struct visit, guest);
    (void)gone;
    visit->request = NULL;
    net_timer_disarm(visit->shard->loop, &visit->timer);
    visit_unjoin(visit);
    if (visit->phase == VISIT_QUEUED)
        visit_leave_admission(visit);
    if (visit->run)
        run_unlink_visit(visit->run);
    visit->phase = VISIT_ANSWERED;
    visit_drop(visit);
}

/* The caller's patience is over: for a running call of another, or with its own budget. */
void visit_on_timer(struct net_timer *timer)
{
    struct visit *visit = LIST_ENTRY(timer, struct visit, timer);
    if (!visit->request)
        return;
    bool budget = visit_now(visit) >= visit->budget_end_ms;
    switch (visit->phase) {
    case VISIT_JOINED:
        visit_hold(visit);
        visit_unjoin(visit);
        visit_answer_problem(
            visit, visit->joined_operation ? PROBLEM_OPERATION_IN_PROGRESS : PROBLEM_CALL_IN_PROGRESS, NULL,
            1000, NULL, budget);
        visit_drop(visit);
        break;
    case VISIT_RUNNING:
        visit_hold(visit);
        visit_answer_problem(visit, PROBLEM_CALL_IN_PROGRESS,
                             "the caller's budget is over; the call goes on, and its receipt will tell", 1000,
                             NULL, true);
        visit_drop(visit);
        break;
    case VISIT_QUEUED:
        visit_hold(visit);
        visit_leave_admission(visit);
        visit_answer_problem(visit, PROBLEM_OVERLOADED,
                             "no place came within the caller's budget; nothing was sent", 1000, NULL, false);
        visit_drop(visit);
        break;
    case VISIT_READING:
    case VISIT_DECIDING:
    case VISIT_ANSWERED:
        break;
    }
}

/* Features that do not exist yet are refused by name, and never run at once by mistake. */
static const char *not_available(const struct headers *headers)
{
    bool found;
    if (headers_has_token(headers, "Prefer", "respond-async"))
        return "Prefer: respond-async is not available yet; nothing was run";
    (void)headers_get(headers, "X-Call-Not-Before", &found);
    if (found)
        return "X-Call-Not-Before is not available yet; nothing was run";
    (void)headers_get(headers, "X-Call-Notify", &found);
    return found ? "X-Call-Notify is not available yet; nothing was run" : NULL;
}

void visit_begin(struct shard *shard, struct request *request, const struct lane *lane,
                 const struct route_match *match)
{
    const struct request_head *head = request_head(request);
    struct visit *visit = visit_new(shard, VISIT_ARENA_BYTES_MAX + (size_t)lane->s->result_bytes_max);
    if (!visit) {
        request_abort(request);
        return;
    }
    visit->shard = shard;
    visit->outlets = outlets_hold(shard->outlets);
    visit->lane = lane;
    visit->request = request;
    visit->match = *match;
    visit->phase = VISIT_READING;
    visit->holds = 1; /* the request's, until visit_finished() */
    visit->came_ms = net_loop_now(shard->loop);
    visit->came_us = clock_monotonic_us();
    visit->budget_end_ms = INT64_MAX;
    shard->visits++;
    visit->guest = (struct guest){on_body, on_body_end, on_drain, on_finished};
    request_set_user(request, &visit->guest);
    metrics_add(shard->counts, METRIC_requests, lane->series, 0, 1);

    struct identity_inputs in = inputs_of(visit);
    enum problem problem = identity_read_head(&visit->id, &in);
    if (problem) {
        refuse_arrival(visit, problem);
        return;
    }
    if (shard->tracer && !visit->id.has_trace)
        identity_begin_trace(&visit->id, &shard->random, &visit->arena);
    if (visit->id.budget_ms != DEADLINE_NO_BUDGET)
        visit->budget_end_ms = deadline_add(visit->came_ms, visit->id.budget_ms);
    const char *missing = not_available(&head->headers);
    if (missing) {
        visit_answer_problem(visit, PROBLEM_NOT_AVAILABLE, missing, -1, NULL, false);
        return;
    }
    if (head->content_length > lane->s->body_bytes_max) {
        char detail[128];
        snprintf(detail, sizeof detail, "the body has %lld bytes; body_bytes_max of this route is %lld",
                 (long long)head->content_length, (long long)lane->s->body_bytes_max);
        visit_answer_problem(visit, PROBLEM_BODY_TOO_LARGE, detail, -1, NULL, false);
        return;
    }
    if (head->has_body)
        request_read_body(request);
    else
        on_body_end(&visit->guest);
}
