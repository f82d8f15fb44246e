/* SPDX-License-Identifier: MIT */
#include "gateway/receipts.h"

#include "base/base64.h"
#include "base/civil.h"
#include "base/duration.h"
#include "core/deadline.h"
#include "core/key.h"
#include "gateway/answer.h"
#include "gateway/endings.h"
#include "gateway/reversal.h"
#include "gateway/lookup.h"
#include "gateway/settle.h"
#include "gateway/visit.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define ASKER_ARENA_MAX (64u << 10)
/* Of a report, in bytes. */
#define EVIDENCE_BYTES_MAX 4000
#define OPERATOR_BYTES_MAX 255

enum asker_verb { ASK_READ, ASK_FENCE, ASK_CANCEL, ASK_REPORT };

struct asker {
    struct guest guest;
    struct shard *shard;
    struct outlets *outlets;
    struct request *request;
    unsigned holds;
    bool admin;
    bool any_tenant; /* a person, or a reporting service, who does not name the tenant */
    enum asker_verb verb;
    const char *allow; /* 405: what the address knows */
    struct arena arena;
    struct buffer body;
    struct identity id;
    struct seeker seeker;
    int64_t wait_until_ms; /* monotonic; 0: does not wait */
    int64_t since_ms;      /* ?since=, or 0 */
    struct net_timer timer;
    struct job *watch;
    /* A report. */
    enum call_state reported;
    struct slice evidence, reporter; /* of a report: why it is believed, and who says so; may be empty */
    struct task_work work;           /* of the audit row that keeps them */
    bool contradicts;                /* the report does, what is on record */
    enum call_state on_record;
    bool has_result;
    int result_status;
    struct slice result_headers, result_body;
};

static void look_up(struct asker *a, bool fresh);
static void tell(struct asker *a, const struct rows *rows);

static int64_t now_of(const struct asker *a)
{
    return net_loop_now(a->shard->loop);
}

static struct asker *hold(struct asker *a)
{
    a->holds++;
    return a;
}

static void drop(struct asker *a)
{
    assert(a->holds > 0);
    if (--a->holds)
        return;
    net_timer_disarm(a->shard->loop, &a->timer);
    buffer_fini(&a->body);
    arena_fini(&a->arena);
    outlets_release(a->outlets);
    a->shard->visits--;
    free(a);
}

static struct request *take_request(struct asker *a)
{
    struct request *request = a->request;
    a->request = NULL;
    net_timer_disarm(a->shard->loop, &a->timer);
    return request;
}

/* ---- answers ------------------------------------------------------------------------------------------------ */

static void answer_document(struct asker *a, int status, struct slice document)
{
    struct request *request = take_request(a);
    if (request)
        request_answer(request, status,
                       slice_text("Content-Type: application/json\r\nCache-Control: no-store\r\n"), document);
}

static void answer_problem(struct asker *a, enum problem problem, const char *detail, enum call_state state)
{
    struct problem_facts facts = {
        .detail = slice_text(detail),
        .call_id = a->id.call_id,
        .state = state,
        .next = problem == PROBLEM_CALL_IN_PROGRESS || problem == PROBLEM_OUTCOME_UNKNOWN ? NEXT_QUERY_RECEIPT
                : problem == PROBLEM_CREDENTIAL_MISMATCH || problem == PROBLEM_REPORT_CONTRADICTS
                    ? NEXT_ASK_OPERATOR
                    : NEXT_FIX_REQUEST,
        .retry_after_s = problem == PROBLEM_CALL_IN_PROGRESS || problem == PROBLEM_OUTCOME_UNKNOWN ? 1 : -1,
        .allow = slice_text(problem == PROBLEM_METHOD_NOT_ALLOWED ? a->allow : NULL),
    };
    struct answer_facts own = {.outcome = problem_outcome(problem)};
    struct request *request = take_request(a);
    metrics_add(a->shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    if (request)
        problem_answer(request, problem, &facts, &own);
}

static void answer_unknown(struct asker *a, int status, enum reason reason, int64_t covers_since_ms)
{
    struct buffer document = {0};
    receipt_unknown_document(&document, a->id.call_id, reason, covers_since_ms);
    metrics_add(a->shard->counts, METRIC_receipt_reads, 0, STATE_UNKNOWN, 1);
    answer_document(a, status, buffer_view(&document));
    buffer_fini(&document);
}

static void answer_rows(struct asker *a, const struct rows *rows)
{
    struct buffer document = {0};
    receipt_document(&document, rows, a->id.call_id);
    metrics_add(a->shard->counts, METRIC_receipt_reads, 0, rows->call.id ? (size_t)rows->call.state : 0, 1);
    answer_document(a, rows->call.id ? 200 : 404, buffer_view(&document));
    buffer_fini(&document);
}

static bool other_credential(const struct asker *a, const struct call_row *row)
{
    if (a->admin || !row->id)
        return false;
    if (a->id.has_credential != row->has_credential)
        return true;
    return row->has_credential && !digest_equal(&row->credential, &a->id.credential);
}

static void store_trouble(struct asker *a, int64_t covers_since_ms)
{
    metrics_add(a->shard->counts, METRIC_store_errors, 0, 0, 1);
    if (a->verb == ASK_READ)
        answer_unknown(a, 503, REASON_STORE_UNAVAILABLE, covers_since_ms);
    else
        answer_problem(a, PROBLEM_STORE_UNAVAILABLE, "nothing was changed", STATE_UNKNOWN);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void watched(struct job *job)
{
    struct asker *a = job->owner;
    bool current = a->watch == job;
    a->watch = NULL;
    if (current && a->request) {
        a->wait_until_ms = 0;
        /* What woke it is what stands now; only a FAILED one needs the key's holder beside it. */
        if (job->op.status == STATUS_OK && job->op.rows.call.state != STATE_FAILED)
            tell(a, &job->op.rows);
        else
            look_up(a, true); /* what stands now, whatever was read before */
    }
    job_free(job);
    drop(a);
}

static void on_wait_over(struct net_timer *timer)
{
    struct asker *a = LIST_ENTRY(timer, struct asker, timer);
    if (!a->request || !a->watch)
        return;
    struct job *watch = a->watch;
    a->watch = NULL;
    a->wait_until_ms = 0;
    worker_cancel(a->shard->worker, &watch->op);
    look_up(a, true); /* what stands now, whatever was read before */
}

static bool begin_wait(struct asker *a, const struct call_row *row)
{
    if (!a->wait_until_ms || !state_running(row->state) || a->wait_until_ms <= now_of(a))
        return false;
    struct job *job = job_new(a->shard, STORE_WATCH, hold(a), watched);
    if (!job) {
        drop(a);
        return false;
    }
    job->op.id = row->id;
    a->watch = job;
    net_timer_arm(a->shard->loop, &a->timer, a->wait_until_ms, on_wait_over);
    job_submit(job);
    return true;
}

/* What a read says to one asker. */
static void tell(struct asker *a, const struct rows *rows)
{
    if (!a->request)
        return;
    const struct call_row *row = &rows->call;
    if (other_credential(a, row)) {
        answer_problem(a, PROBLEM_CREDENTIAL_MISMATCH, NULL, STATE_UNKNOWN);
    } else if (!row->id && ((a->id.id_time_ms && a->id.id_time_ms < rows->covers_since_ms) ||
                            (a->since_ms && a->since_ms < rows->covers_since_ms))) {
        answer_unknown(a, 410, REASON_BEYOND_RETENTION, rows->covers_since_ms);
    } else if (!begin_wait(a, row)) {
        answer_rows(a, rows);
    }
}

static void looked_up(struct seeker *seeker, const struct rows *rows)
{
    struct asker *a = LIST_ENTRY(seeker, struct asker, seeker);
    if (rows)
        tell(a, rows);
    else if (a->request)
        store_trouble(a, 0);
    drop(a);
}

static void look_up(struct asker *a, bool fresh)
{
    a->seeker = (struct seeker){
        .call = a->id.call_digest, .tenant = a->id.tenant, .call_id = a->id.call_id, .told = looked_up};
    lookup_seek(a->shard, &hold(a)->seeker, fresh);
}

static void begin_read(struct asker *a)
{
    struct rows rows;
    if (endings_near(a->shard, &a->id.call_digest, &rows) &&
        endings_document_stands(a->outlets->setup, &rows.call))
        tell(a, &rows);
    else
        look_up(a, false);
}

/* ---- fence, cancel, report ---------------------------------------------------------------------------------- */

static const struct lane *lane_named(const struct asker *a, struct slice name)
{
    const struct setup *setup = a->outlets->setup;
    for (size_t i = 0; i < setup->settings->route_count; i++) {
        if (slice_is(name, setup->lanes[i].s->name))
            return &setup->lanes[i];
    }
    return NULL;
}

static int64_t longest_tombstone(const struct setup *setup)
{
    int64_t longest = 0;
    for (size_t i = 0; i < setup->settings->route_count; i++) {
        if (setup->lanes[i].s->tombstone_life_ms > longest)
            longest = setup->lanes[i].s->tombstone_life_ms;
    }
    return longest;
}

static void no_reversal(struct asker *a)
{
    answer_problem(a, PROBLEM_REVERSAL_MISSING,
                   "the call took effect, and no reversal was kept with it (the route's `reversal`); nothing "
                   "was changed",
                   STATE_SUCCESS);
}

static struct job *change_job(struct asker *a, enum store_kind kind);

/* The call took effect: what undoes it was rendered and kept at its claim. Once, however many ask. */
static void begin_reversal(struct asker *a, const struct rows *rows)
{
    const struct lane *lane = lane_named(a, rows->call.route);
    if (!lane || rows->call.reverses.len) {
        no_reversal(a);
        return;
    }
    struct job *job = change_job(a, STORE_REVERSE);
    if (!job)
        return;
    if (reversal_row(&job->op.row, &rows->call, lane, a->shard, &a->arena) != STATUS_OK) {
        job_free(job);
        drop(a);
        store_trouble(a, 0);
        return;
    }
    job->op.id = rows->call.id;
    job->op.from_states = 1u << STATE_SUCCESS;
    job_submit(job);
}

static void report_contradicts(struct asker *a)
{
    answer_problem(a, PROBLEM_REPORT_CONTRADICTS,
                   "nothing was changed; a compensation task was made of the difference", a->on_record);
}

static void evidence_kept(struct job *job)
{
    struct asker *a = job->owner;
    if (job->op.status != STATUS_OK) /* the line `reported` has it */
        log_event(a->shard->log, LOG_LEVEL_ERROR, clock_wall_ms(), a->id.call_id, "evidence_not_stored",
                  LOG_TEXT("evidence", a->evidence), LOG_TEXT("key", job->op.row.key),
                  LOG_TEXT("route", job->op.row.route), LOG_TEXT("trace_id", job->op.row.trace_id));
    if (a->request && a->contradicts) {
        report_contradicts(a);
    } else if (a->request) {
        a->verb = ASK_READ;
        look_up(a, true); /* what stands now, whatever was read before */
    }
    job_free(job);
    drop(a);
}

/* A report was followed, or contradicts what stands. Whoever gave evidence finds it among what people changed, also when
 * he has hung up. */
static void reported(struct asker *a, const struct job *done, bool contradicts)
{
    const struct call_row *row = &done->op.row;
    char what[32];
    if (!contradicts) {
        log_event(a->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), a->id.call_id, "reported",
                  LOG_STRING("state", state_text(a->reported)), LOG_TEXT("evidence", a->evidence),
                  LOG_TEXT("by", a->reporter), LOG_TEXT("key", row->key), LOG_TEXT("route", row->route),
                  LOG_TEXT("trace_id", row->trace_id));
        cache_drop(a->shard->cache, &a->id.call_digest);
    }
    struct job *job = a->evidence.len ? job_new(a->shard, STORE_AUDIT, hold(a), evidence_kept) : NULL;
    if (!job) {
        if (a->evidence.len)
            drop(a);
        if (a->request && contradicts) {
            report_contradicts(a);
        } else if (a->request) {
            a->verb = ASK_READ;
            look_up(a, true); /* what stands now, whatever was read before */
        }
        return;
    }
    snprintf(what, sizeof what, "%s %s", contradicts ? "contradict" : "report", state_text(a->reported));
    a->work.audit = (struct audit_row){.call = done->op.id,
                                       .tenant = a->id.tenant,
                                       .call_id = a->id.call_id,
                                       .who = a->reporter.len ? a->reporter : slice_text("report token"),
                                       .evidence = a->evidence};
    (void)arena_copy(&a->arena, slice_text(what), &a->work.audit.what);
    a->contradicts = contradicts;
    job->op.row.key = row->key;
    job->op.row.route = row->route;
    job->op.row.trace_id = row->trace_id;
    job->op.work = &a->work;
    job_submit(job);
}

static void changed(struct job *job)
{
    struct asker *a = job->owner;
    const struct rows *rows = &job->op.rows;
    const struct call_row *row = &rows->call;
    struct shard *shard = a->shard;
    if ((job->op.kind == STORE_END || job->op.kind == STORE_TASK) && job->op.status == STATUS_OK) {
        reported(a, job, job->op.kind == STORE_TASK);
    } else if (!a->request) {
        /* nobody listens */
    } else if (job->op.kind == STORE_REVERSE && job->op.status == STATUS_NOT_FOUND) {
        no_reversal(a);
    } else if (job->op.status != STATUS_OK && job->op.status != STATUS_CONFLICT) {
        store_trouble(a, 0);
    } else if (job->op.kind == STORE_FENCE) {
        if (job->op.done) {
            metrics_add(shard->counts, METRIC_fences, 0, 0, 1);
            cache_drop(shard->cache, &a->id.call_digest);
            log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), a->id.call_id, "fenced",
                      LOG_STRING("by", a->verb == ASK_CANCEL ? "cancel" : "fence"), LOG_TEXT("key", row->key),
                      LOG_TEXT("route", row->route), LOG_TEXT("trace_id", row->trace_id));
            answer_rows(a, rows);
        } else if (row->state == STATE_PROCESSING) {
            answer_problem(a, PROBLEM_CALL_IN_PROGRESS,
                           "the call is being worked on and cannot be fenced; nothing was changed",
                           row->state);
        } else if (row->state == STATE_UNKNOWN) {
            answer_problem(a, PROBLEM_OUTCOME_UNKNOWN,
                           "the call may have run and cannot be fenced; nothing was changed", row->state);
        } else if (a->verb == ASK_CANCEL && row->state == STATE_SUCCESS && !row->reversed_by.len) {
            begin_reversal(a, rows);
        } else {
            answer_rows(a, rows);
        }
    } else if (job->op.kind == STORE_REVERSE) {
        if (job->op.done) {
            endings_forget(shard, &a->id.call_digest);
            log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), a->id.call_id, "reversal_begun",
                      LOG_TEXT("reversed_by", row->reversed_by), LOG_TEXT("key", row->key),
                      LOG_TEXT("route", row->route), LOG_TEXT("trace_id", row->trace_id));
        }
        answer_rows(a, rows);
    } else {
        answer_problem(a, PROBLEM_REPORT_CONTRADICTS,
                       "the call ended otherwise meanwhile; nothing was changed", row->state);
    }
    job_free(job);
    drop(a);
}

static struct job *change_job(struct asker *a, enum store_kind kind)
{
    struct job *job = job_new(a->shard, kind, hold(a), changed);
    if (!job) {
        drop(a);
        store_trouble(a, 0);
    }
    return job;
}

/* The fence's body may name {"route","key"}: the operation whose slot decides about safe_new_key. A route with several
 * patterns is named "ROUTE PATTERN", since each pattern is a scope of its own. */
static void read_fence_body(struct asker *a, struct call_row *row)
{
    json_t *root = a->body.len ? json_loadb(a->body.data, a->body.len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_t *route = json_object_get(root, "route"), *key = json_object_get(root, "key");
    struct key parsed;
    if (json_is_string(route) && json_is_string(key) &&
        key_parse(slice_of(json_string_value(key), json_string_length(key)), &parsed, NULL) == STATUS_OK) {
        struct slice name = slice_of(json_string_value(route), json_string_length(route)), scope = {0};
        const char *space = memchr(name.data, ' ', name.len);
        if (space) {
            scope = name;
            name.len = (size_t)(space - name.data);
        }
        const struct lane *lane = lane_named(a, name);
        char text[1200];
        if (lane && !scope.len && lane->s->path.count == 1) {
            int len = snprintf(text, sizeof text, "%s %s", lane->s->name, lane->s->path.items[0]);
            scope = slice_of(text, len > 0 && (size_t)len < sizeof text ? (size_t)len : 0);
        }
        if (lane && scope.len && arena_copy(&a->arena, scope, &row->scope) &&
            arena_copy(&a->arena, key_view(&parsed), &row->key) && arena_copy(&a->arena, name, &row->route)) {
            row->has_key = true;
            row->operation_digest =
                digest_operation(&a->shard->print.hasher, a->id.tenant, row->scope, row->key);
        }
    }
    json_decref(root);
}

static void do_fence(struct asker *a)
{
    struct job *job = change_job(a, STORE_FENCE);
    if (!job)
        return;
    struct call_row *row = &job->op.row;
    row->call_digest = a->id.call_digest;
    row->tenant = a->id.tenant;
    row->call_id = a->id.call_id;
    row->has_credential = a->id.has_credential;
    row->credential = a->id.credential;
    row->owner = slice_text(a->shard->owner);
    read_fence_body(a, row);
    job->op.drop_kept = true;
    int64_t now = shard_store_now(a->shard);
    row->result_expires_ms = row->key_expires_ms = row->tombstone_expires_ms =
        deadline_add(now, longest_tombstone(a->outlets->setup));
    job_submit(job);
}

static void do_report(struct asker *a, const struct rows *rows)
{
    const struct call_row *row = &rows->call;
    if (!row->id) {
        answer_rows(a, rows);
        return;
    }
    bool ended = row->state == STATE_SUCCESS || row->state == STATE_FAILED;
    if (ended && row->state == a->reported) {
        answer_rows(a, rows); /* told twice is told once */
        return;
    }
    struct job *job = change_job(a, ended ? STORE_TASK : STORE_END);
    if (!job)
        return;
    int64_t now = rows->now_ms;
    job->op.id = row->id;
    job->op.task_due_ms = now;
    job->op.task_cause = TASK_CAUSE_CONTRADICTED;
    job->op.drop_kept = true;
    if (ended) {
        a->on_record = row->state;
        (void)arena_copy(&a->arena, row->key, &job->op.row.key);
        (void)arena_copy(&a->arena, row->route, &job->op.row.route);
        (void)arena_copy(&a->arena, row->trace_id, &job->op.row.trace_id);
        log_event(a->shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), a->id.call_id, "report_contradicts",
                  LOG_STRING("reported", state_text(a->reported)),
                  LOG_STRING("on_record", state_text(row->state)), LOG_TEXT("key", row->key),
                  LOG_TEXT("route", row->route), LOG_TEXT("trace_id", row->trace_id));
        job_submit(job);
        return;
    }
    const struct lane *lane = lane_named(a, row->route);
    const struct route_settings *s = lane ? lane->s : a->outlets->setup->lanes[0].s;
    struct call_row *end = &job->op.row;
    /* Only what an ending writes is filled; the identity of the row stays. */
    end->state = a->reported;
    end->final = true;
    end->reason = REASON_REPORTED;
    end->attempt_count = row->attempt_count;
    end->result_expires_ms = deadline_add(now, s->result_life_ms);
    end->key_expires_ms = deadline_add(now, s->key_life_ms);
    end->tombstone_expires_ms = tombstone_end(s, now);
    (void)arena_copy(&a->arena, row->attempts, &end->attempts);
    /* For the log. */
    (void)arena_copy(&a->arena, row->key, &end->key);
    (void)arena_copy(&a->arena, row->route, &end->route);
    (void)arena_copy(&a->arena, row->trace_id, &end->trace_id);
    if (a->has_result) {
        end->has_result = end->body_kept = true;
        end->result_status = a->result_status;
        end->result_headers = a->result_headers;
        end->result_body = a->result_body;
    } else if (a->reported == STATE_SUCCESS) {
        struct rows told = *rows;
        struct buffer document = {0};
        told.call.state = a->reported;
        told.call.final = true;
        told.call.reason = REASON_REPORTED;
        told.call.ended_ms = told.call.updated_ms = now;
        receipt_document(&document, &told, row->call_id);
        end->has_result = end->body_kept = true;
        end->result_status = 200;
        end->result_headers = slice_text("Content-Type: application/json\r\n");
        (void)arena_copy(&a->arena, buffer_view(&document), &end->result_body);
        buffer_fini(&document);
    }
    job->op.any_fence = true;
    job->op.from_states = 1u << STATE_PROCESSING | 1u << STATE_UNKNOWN | 1u << STATE_RECEIVED;
    job_submit(job);
}

/* The tenant that was not named is the one whose call it is. */
static bool know_tenant(struct asker *a, const struct call_row *row)
{
    if (!row->id)
        return true;
    a->id.call_digest = row->call_digest;
    return arena_copy(&a->arena, row->tenant, &a->id.tenant);
}

/* The row before a change: its credential must fit. */
static void checked(struct job *job)
{
    struct asker *a = job->owner;
    if (!a->request) {
        /* nobody listens */
    } else if (a->any_tenant && job->op.status == STATUS_CONFLICT) {
        answer_problem(a, PROBLEM_AMBIGUOUS_CALL_ID,
                       "several tenants have this callId: name one with ?tenant=", STATE_NOT_RECEIVED);
    } else if (job->op.status != STATUS_OK || (a->any_tenant && !know_tenant(a, &job->op.rows.call))) {
        store_trouble(a, 0);
    } else if (other_credential(a, &job->op.rows.call)) {
        answer_problem(a, PROBLEM_CREDENTIAL_MISMATCH, NULL, STATE_UNKNOWN);
    } else if (a->verb == ASK_READ) {
        tell(a, &job->op.rows);
    } else if (a->any_tenant && !job->op.rows.call.id && a->verb != ASK_REPORT) {
        answer_problem(
            a, PROBLEM_AMBIGUOUS_CALL_ID,
            "no tenant has this callId yet: name the one to fence it for with ?tenant=", STATE_NOT_RECEIVED);
    } else if (a->verb == ASK_REPORT) {
        do_report(a, &job->op.rows);
    } else {
        do_fence(a);
    }
    job_free(job);
    drop(a);
}

static void check_then_act(struct asker *a)
{
    struct job *job = job_new(a->shard, STORE_LOOKUP, hold(a), checked);
    if (!job) {
        drop(a);
        store_trouble(a, 0);
        return;
    }
    job->op.row.call_digest = a->id.call_digest;
    job->op.row.tenant = a->id.tenant;
    job->op.row.call_id = a->id.call_id;
    job->op.any_tenant = a->any_tenant;
    job_submit(job);
}

/* Result of a report: {"status","headers","body","body_encoding"}, read like any receipt's. */
/* A member that may be missing. False: it is no text, or too long. */
static bool report_text(struct asker *a, const json_t *root, const char *name, size_t max, struct slice *out)
{
    const json_t *text = json_object_get(root, name);
    if (!text || json_is_null(text))
        return true;
    return json_is_string(text) && json_string_length(text) <= max &&
           arena_copy(&a->arena, slice_of(json_string_value(text), json_string_length(text)), out);
}

static enum problem read_report(struct asker *a, const char **why)
{
    json_error_t error;
    json_t *root = json_loadb(a->body.data ? a->body.data : "", a->body.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    json_t *state = json_object_get(root, "state");
    enum problem problem = PROBLEM_BODY_INVALID;
    *why =
        "a report is {\"state\": \"SUCCESS\" or \"FAILED\", \"result\": {\"status\", \"headers\", \"body\"}}";
    if (!json_is_string(state))
        goto done;
    if (!state_parse(slice_text(json_string_value(state)), &a->reported) ||
        (a->reported != STATE_SUCCESS && a->reported != STATE_FAILED))
        goto done;
    *why = "evidence and operator are texts, of at most 4000 and 255 bytes";
    if (!report_text(a, root, "evidence", EVIDENCE_BYTES_MAX, &a->evidence) ||
        !report_text(a, root, "operator", OPERATOR_BYTES_MAX, &a->reporter))
        goto done;
    json_t *result = json_object_get(root, "result");
    if (result && !json_is_null(result)) {
        /* The same reader that judges a callee's receipt judges this one: wrap it as such. */
        json_t *document = json_pack("{s:s, s:s#, s:O}", "state", json_string_value(state), "call_id",
                                     a->id.call_id.data, (int)a->id.call_id.len, "result", result);
        char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
        struct receipt_reading reading;
        receipt_read(&reading, 200, slice_text(text ? text : ""), a->id.call_id, INT64_MAX, slice_of("", 0));
        a->has_result = reading.has_result &&
                        arena_copy(&a->arena, buffer_view(&reading.result_headers), &a->result_headers) &&
                        arena_copy(&a->arena, buffer_view(&reading.result_body), &a->result_body);
        a->result_status = reading.result_status;
        receipt_reading_fini(&reading);
        json_decref(document);
        free(text);
        *why = "the result needs an integer status, a body, and headers as pairs of names and values";
        if (!a->has_result)
            goto done;
    }
    problem = PROBLEM_NONE;
done:
    json_decref(root);
    return problem;
}

/* ---- the request -------------------------------------------------------------------------------------------- */

static bool hex_value(char c, unsigned *out)
{
    if (c >= '0' && c <= '9')
        *out = (unsigned)(c - '0');
    else if (c >= 'a' && c <= 'f')
        *out = (unsigned)(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
        *out = (unsigned)(c - 'A' + 10);
    else
        return false;
    return true;
}

/* A query parameter, percent-decoded into the arena. */
static bool query_param(struct asker *a, const char *name, struct slice *out)
{
    struct slice query = request_head(a->request)->query;
    size_t name_len = strlen(name);
    while (query.len) {
        const char *stop = memchr(query.data, '&', query.len);
        size_t len = stop ? (size_t)(stop - query.data) : query.len;
        struct slice pair = slice_of(query.data, len);
        query.data += stop ? len + 1 : len;
        query.len -= stop ? len + 1 : len;
        if (pair.len <= name_len || memcmp(pair.data, name, name_len) != 0 || pair.data[name_len] != '=')
            continue;
        char *text = arena_take(&a->arena, pair.len);
        size_t n = 0;
        for (size_t i = name_len + 1; text && i < pair.len; i++) {
            unsigned high, low;
            if (pair.data[i] == '%' && i + 2 < pair.len && hex_value(pair.data[i + 1], &high) &&
                hex_value(pair.data[i + 2], &low)) {
                text[n++] = (char)(high << 4 | low);
                i += 2;
            } else {
                text[n++] = pair.data[i];
            }
        }
        *out = slice_of(text, n);
        return text != NULL;
    }
    return false;
}

/* Whether this gateway guards what the asker asks about; who does not know it must not say NOT_RECEIVED. */
static bool guards(struct asker *a)
{
    struct slice method, path;
    if (!query_param(a, "method", &method) || !query_param(a, "path", &path))
        return true;
    struct route_match match;
    return routes_match(a->outlets->setup->routes, method, path, &match) == STATUS_OK && match.guarded &&
           match.route->mode == MODE_GUARD;
}

static bool read_principal(struct asker *a)
{
    struct identity_inputs in = {
        .setup = a->outlets->setup,
        .head = request_head(a->request),
        .hasher = &a->shard->print.hasher,
        .arena = &a->arena,
    };
    bool report = a->verb == ASK_REPORT;
    if (!a->admin && !report) {
        enum problem problem = identity_read_principal(&a->id, &in);
        if (problem)
            answer_problem(a, problem, a->id.why, STATE_NOT_RECEIVED);
        return problem == PROBLEM_NONE;
    }
    if (!a->admin && !bearer_fits(&in.head->headers, buffer_view(&a->outlets->setup->report_token))) {
        answer_problem(a, PROBLEM_UNAUTHORIZED,
                       "a report needs Authorization: Bearer with the token of report_token_file",
                       STATE_NOT_RECEIVED);
        return false;
    }
    a->admin = true; /* a reporting service is no caller: it has no credential of the call's */
    if (query_param(a, "tenant", &a->id.tenant))
        return true;
    /* The header that names a tenant serves as well; without either the callId must be one tenant's alone. */
    if (a->outlets->setup->has_tenant || a->outlets->setup->has_credential)
        a->any_tenant = identity_read_principal(&a->id, &in) != PROBLEM_NONE;
    return true;
}

static void act(struct asker *a)
{
    if (!a->request)
        return;
    const char *why;
    enum problem problem = a->verb == ASK_REPORT ? read_report(a, &why) : PROBLEM_NONE;
    if (problem)
        answer_problem(a, problem, why, STATE_NOT_RECEIVED);
    else if (a->verb == ASK_READ && !a->any_tenant)
        begin_read(a);
    else
        check_then_act(a);
}

static void on_body(struct guest *guest, struct slice piece)
{
    struct asker *a = LIST_ENTRY(guest, struct asker, guest);
    if (!a->request)
        return;
    if (piece.len > RECEIPTS_BODY_MAX - a->body.len)
        answer_problem(a, PROBLEM_BODY_TOO_LARGE, NULL, STATE_NOT_RECEIVED);
    else
        buffer_slice(&a->body, piece);
}

static void on_body_end(struct guest *guest)
{
    act(LIST_ENTRY(guest, struct asker, guest));
}

static void on_drain(struct guest *guest)
{
    (void)guest;
}

static void on_finished(struct guest *guest, bool gone)
{
    struct asker *a = LIST_ENTRY(guest, struct asker, guest);
    (void)gone;
    a->request = NULL;
    net_timer_disarm(a->shard->loop, &a->timer);
    if (a->watch) {
        struct job *watch = a->watch;
        a->watch = NULL;
        worker_cancel(a->shard->worker, &watch->op);
    }
    drop(a);
}

/* Reads "/.samekey/receipts/ID[/fence|/cancel]" and the method into the verb. */
static enum problem read_address(struct asker *a, const struct request_head *head)
{
    static const char public[] = RECEIPTS_PREFIX "receipts/", own[] = "/v1/calls/";
    const char *prefix = a->admin && head->path.len > 2 && head->path.data[1] == 'v' ? own : public;
    size_t skip = strlen(prefix);
    struct slice path = head->path;
    if (path.len < skip || memcmp(path.data, prefix, skip) != 0)
        return PROBLEM_NO_ROUTE;
    struct slice id = slice_of(path.data + skip, path.len - skip), tail = {0};
    const char *slash = memchr(id.data, '/', id.len);
    if (slash) {
        tail = slice_of(slash, id.len - (size_t)(slash - id.data));
        id.len = (size_t)(slash - id.data);
    }
    if (callid_check(id) != STATUS_OK) {
        a->id.why = "a callId is 1 to 128 bytes of A-Z a-z 0-9 . _ : -";
        return PROBLEM_CALL_ID_INVALID;
    }
    a->id.call_id = id;
    (void)callid_time(id, &a->id.id_time_ms);
    bool reads = slice_is(head->method, "GET") || slice_is(head->method, "HEAD");
    bool posts = slice_is(head->method, "POST"), puts = slice_is(head->method, "PUT");
    if (!tail.len && (reads || puts))
        a->verb = puts ? ASK_REPORT : ASK_READ;
    else if (slice_is(tail, "/fence") && posts)
        a->verb = ASK_FENCE;
    else if (slice_is(tail, "/cancel") && posts)
        a->verb = ASK_CANCEL;
    else {
        a->allow = tail.len ? "POST" : "GET, HEAD, PUT";
        return tail.len && !slice_is(tail, "/fence") && !slice_is(tail, "/cancel")
                   ? PROBLEM_NO_ROUTE
                   : PROBLEM_METHOD_NOT_ALLOWED;
    }
    return PROBLEM_NONE;
}

static bool read_waits(struct asker *a)
{
    struct slice text;
    if (query_param(a, "wait", &text)) {
        int64_t wait_ms;
        if (duration_parse(text, &wait_ms) != STATUS_OK) {
            answer_problem(a, PROBLEM_REQUEST_INVALID, "wait is a duration such as 5s, at most 60s",
                           STATE_NOT_RECEIVED);
            return false;
        }
        int64_t most = a->outlets->setup->settings->receipt_wait_max_ms;
        a->wait_until_ms = wait_ms > 0 ? now_of(a) + (wait_ms < most ? wait_ms : most) : 0;
    }
    if (query_param(a, "since", &text) && civil_parse_rfc3339(text, &a->since_ms) != STATUS_OK) {
        answer_problem(a, PROBLEM_REQUEST_INVALID, "since is a time such as 2026-03-01T12:00:00Z",
                       STATE_NOT_RECEIVED);
        return false;
    }
    return true;
}

void receipts_begin(struct shard *shard, struct request *request, bool admin)
{
    struct asker *a = calloc(1, sizeof *a);
    if (!a) {
        request_abort(request);
        return;
    }
    const struct request_head *head = request_head(request);
    a->guest = (struct guest){on_body, on_body_end, on_drain, on_finished};
    a->shard = shard;
    a->outlets = outlets_hold(shard->outlets);
    a->request = request;
    a->holds = 1;
    a->admin = admin;
    arena_init(&a->arena, ASKER_ARENA_MAX + (admin ? RECEIPTS_BODY_MAX : 0) + RECEIPTS_BODY_MAX);
    shard->visits++;
    request_set_user(request, &a->guest);
    enum problem problem = read_address(a, head);
    if (problem) {
        answer_problem(a, problem, a->id.why, STATE_NOT_RECEIVED);
        return;
    }
    if (!read_principal(a) || !read_waits(a))
        return;
    /* The address goes with the asker's connection; who shares its read goes on needing the id. */
    if (!arena_copy(&a->arena, a->id.call_id, &a->id.call_id)) {
        answer_problem(a, PROBLEM_OVERLOADED, NULL, STATE_UNKNOWN);
        return;
    }
    a->id.call_digest = digest_call(&shard->print.hasher, a->id.tenant, a->id.call_id);
    if (a->verb == ASK_READ && !guards(a)) {
        answer_unknown(a, 503, REASON_NOT_GUARDED, 0);
        return;
    }
    if (head->has_body)
        request_read_body(request);
    else
        act(a);
}
