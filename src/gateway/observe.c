/* SPDX-License-Identifier: MIT */
#include "gateway/observe.h"
#include "gateway/settle.h"

#include "core/deadline.h"

#include <stdlib.h>

#define OBSERVE_ARENA_BYTES_MAX (256u << 10)

struct observation {
    struct shard *shard;
    struct outlets *outlets;
    const struct lane *lane;
    struct route_match match;
    struct arena arena;
    struct buffer body;
    bool spoiled; /* it cannot be recorded: no identity, too large */
    struct identity id;
    struct arrival arrival;
    struct call_row row;
    bool asked, answered, claimed, over;
    struct evidence evidence;
};

struct observation *observe_begin(struct shard *shard, const struct lane *lane,
                                  const struct route_match *match)
{
    struct observation *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->shard = shard;
    o->outlets = outlets_hold(shard->outlets);
    o->lane = lane;
    o->match = *match;
    o->body.max = (size_t)lane->s->body_bytes_max;
    arena_init(&o->arena, OBSERVE_ARENA_BYTES_MAX);
    return o;
}

static void observation_free(struct observation *o)
{
    buffer_fini(&o->body);
    arena_fini(&o->arena);
    outlets_release(o->outlets);
    free(o);
}

void observe_body(struct observation *o, struct slice piece)
{
    if (o)
        buffer_slice(&o->body, piece);
}

static void say(struct observation *o, const char *would)
{
    log_event(o->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), o->id.call_id, "observed",
              LOG_STRING("would", would), LOG_TEXT("key", o->id.key), LOG_STRING("route", o->lane->s->name),
              LOG_TEXT("trace_id", o->id.trace_id));
}

static void end_answered(struct job *job)
{
    struct observation *o = job->owner;
    job_free(job);
    observation_free(o);
}

/* Both the claim's answer and the passage's end are there. */
static void write_ending(struct observation *o)
{
    struct job *job = o->claimed ? job_new(o->shard, STORE_END, o, end_answered) : NULL;
    if (!job) {
        observation_free(o);
        return;
    }
    enum outcome outcome = outcome_classify(&o->evidence, &o->lane->outcome_rules);
    const struct route_settings *s = o->lane->s;
    struct call_row *row = &job->op.row;
    int64_t now = shard_store_now(o->shard);
    *row = o->row;
    row->state = outcome == OUTCOME_SUCCESS                                 ? STATE_SUCCESS
                 : outcome == OUTCOME_UNKNOWN || outcome == OUTCOME_PENDING ? STATE_UNKNOWN
                                                                            : STATE_FAILED;
    row->final = row->state == STATE_SUCCESS || outcome == OUTCOME_REJECTED || outcome == OUTCOME_FAILED;
    row->reason = outcome == OUTCOME_REJECTED       ? REASON_REJECTED
                  : outcome == OUTCOME_FAILED       ? REASON_CALLEE_FAILED
                  : outcome == OUTCOME_NOT_EXECUTED ? REASON_NOT_EXECUTED
                  : outcome == OUTCOME_PENDING      ? REASON_ACCEPTED
                  : outcome == OUTCOME_UNKNOWN      ? REASON_ATTEMPT
                                                    : REASON_NONE;
    row->maybe_ran = row->state == STATE_UNKNOWN;
    bool ended = row->state != STATE_UNKNOWN;
    row->result_expires_ms = ended ? deadline_add(now, s->result_life_ms) : INT64_MAX;
    row->key_expires_ms = ended ? deadline_add(now, s->key_life_ms) : INT64_MAX;
    row->tombstone_expires_ms = ended ? tombstone_end(s, now) : INT64_MAX;
    job->op.id = row->id;
    job->op.fence = row->fence;
    job->op.from_states = 1u << STATE_PROCESSING;
    job_submit(job);
}

static void claim_answered(struct job *job)
{
    struct observation *o = job->owner;
    struct store_op *op = &job->op;
    o->answered = true;
    if (op->status != STATUS_OK) {
        say(o, "store-unavailable");
    } else if (op->done) {
        o->claimed = true;
        o->row.id = op->rows.call.id;
        o->row.fence = op->rows.call.fence;
        say(o, op->rows.suspect.id ? "suspected-duplicate" : "claim");
    } else {
        struct verdict verdict;
        keeper_arrive(&o->arrival, &op->rows, &verdict);
        say(o,
            verdict.verb == KEEPER_REFUSE ? problem_slug(verdict.problem) : keeper_verb_text(verdict.verb));
        if (verdict.verb == KEEPER_REFUSE &&
            (verdict.problem == PROBLEM_CALL_ID_REUSED || verdict.problem == PROBLEM_KEY_REUSED))
            metrics_add(o->shard->counts, METRIC_swapped_keys, o->lane->series, 0, 1);
    }
    job_free(job);
    if (o->over)
        write_ending(o);
}

static bool identify(struct observation *o, struct request *request)
{
    struct shard *shard = o->shard;
    const struct request_head *head = request_head(request);
    struct identity_inputs in = {
        .setup = o->outlets->setup,
        .lane = o->lane,
        .match = &o->match,
        .head = head,
        .body = buffer_view(&o->body),
        .hasher = &shard->print.hasher,
        .arena = &o->arena,
    };
    struct fingerprint_input print = {
        .method = head->method,
        .target = head->target,
        .content_type = headers_get(&head->headers, "Content-Type", NULL),
        .content_encoding = headers_get(&head->headers, "Content-Encoding", NULL),
        .body = buffer_view(&o->body),
    };
    struct canon_fault fault;
    int64_t window = shard_store_now(o->shard);
    enum problem problem = o->body.failed ? PROBLEM_BODY_TOO_LARGE : identity_read_head(&o->id, &in);
    if (!problem)
        problem = identity_read_body(&o->id, &in, window);
    if (!problem && fingerprint_make(&shard->print, FINGERPRINT_VERSION, &o->lane->rules, &print,
                                     &o->arrival.fingerprint, &fault) != STATUS_OK)
        problem = PROBLEM_BODY_INVALID;
    if (problem) {
        if (problem == PROBLEM_CALL_ID_INVALID)
            o->id.call_id = (struct slice){0};
        say(o, problem_slug(problem));
        return false;
    }
    struct slice *texts[] = {&o->id.call_id, &o->id.business_ref, &o->id.key_spelling};
    if (!o->id.call_id.len) {
        char made[CALLID_BYTES_MAX + 1];
        size_t len = callid_make(shard->ids, window, made);
        o->id.call_id_made = true;
        if (!arena_copy(&o->arena, slice_of(made, len), &o->id.call_id))
            return false;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        /* They borrow from the request, which may go before the store has answered. */
        if (texts[i]->len && !arena_copy(&o->arena, *texts[i], texts[i]))
            return false;
    }
    identity_digest(&o->id, &shard->print.hasher);
    return true;
}

void observe_arrived(struct observation *o, struct request *request)
{
    if (!o)
        return;
    struct job *job = identify(o, request) ? job_new(o->shard, STORE_CLAIM, o, claim_answered) : NULL;
    if (!job) {
        o->spoiled = true;
        return;
    }
    o->arrival.has_key = o->id.has_key;
    o->arrival.operation = o->id.operation;
    o->arrival.has_credential = o->id.has_credential;
    o->arrival.credential = o->id.credential;
    o->arrival.scope = o->id.scope;
    o->arrival.fingerprint_version = FINGERPRINT_VERSION;
    o->arrival.fingerprint_rules = fingerprint_rules_text(&o->lane->rules);
    int64_t now = shard_store_now(o->shard);
    identity_row(&o->id, o->lane, &o->arrival.fingerprint, o->shard->owner, now, now, &o->row);
    job->op.row = o->row;
    job->op.want_suspect = o->lane->s->swapped_keys != SWAPPED_KEYS_OFF && o->id.has_key;
    o->asked = true;
    job_submit(job);
}

void observe_end(struct observation *o, const struct evidence *evidence)
{
    if (!o)
        return;
    o->over = true;
    o->evidence = *evidence;
    if (!o->asked)
        observation_free(o);
    else if (o->answered)
        write_ending(o);
}
