/* SPDX-License-Identifier: MIT */
#include "caller/run.h"

#include "core/deadline.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum status run_init(struct run *run, const struct intent *intent, const char *call_id)
{
    memset(run, 0, sizeof *run);
    run->result = result_new();
    if (!run->result)
        return STATUS_NO_MEMORY;
    run->intent = intent;
    run->safe_new_key = -1;
    snprintf(run->call_id, sizeof run->call_id, "%s", call_id);
    snprintf(run->result->call_id, sizeof run->result->call_id, "%s", call_id);
    snprintf(run->result->key, sizeof run->result->key, "%.*s", (int)intent->key_spelling.len,
             intent->key_spelling.len ? intent->key_spelling.data : "");
    call_init(&run->machine, &intent->policy);
    return STATUS_OK;
}

void run_fini(struct run *run)
{
    if (!run)
        return;
    samekey_result_free(run->result);
    run->result = NULL;
}

struct samekey_result *run_take_result(struct run *run)
{
    struct samekey_result *result = run->result;
    run->result = NULL;
    return result;
}

bool run_expects(const struct run *run, enum call_event_type type)
{
    switch (run->machine.phase) {
    case CALL_IDLE:
        return type == CALL_EV_START;
    case CALL_SENDING:
        return type == CALL_EV_ATTEMPT || type == CALL_EV_DENIED;
    case CALL_ASKING:
        return type == CALL_EV_ANSWER;
    case CALL_WAIT_ASK:
    case CALL_WAIT_SEND:
        return type == CALL_EV_TIMER;
    case CALL_FENCING:
        return type == CALL_EV_FENCED;
    case CALL_ENDED:
        return false;
    }
    return false;
}

bool run_maybe_ran(const struct run *run)
{
    return run->machine.maybe_ran;
}

void run_cancel(struct run *run, int64_t now_ms)
{
    if (run->machine.deadline_ms > now_ms)
        run->machine.deadline_ms = now_ms;
}

/* ---- an attempt --------------------------------------------------------------------------------------------- */

/* Adds what the reply says to what the wire proved. */
static void read_response(struct run *run, const struct run_event *ev, struct evidence *e)
{
    run->last = (struct response_words){.retry_after_ms = -1, .next_action = -1};
    if (e->end != EVIDENCE_ANSWER)
        return;
    if (ev->reply)
        response_read(ev->reply, slice_text(run->call_id), ev->unix_now_ms, &run->last);
    if (ev->outcome != OUTCOME_NONE && !run->last.has_outcome) {
        run->last.has_outcome = true;
        run->last.outcome = ev->outcome;
    }
    if (ev->echoed_call_id && strcmp(ev->echoed_call_id, run->call_id) != 0)
        run->last.other_call_id = true;
    e->has_callee_outcome = run->last.has_outcome;
    e->callee_outcome = run->last.outcome;
    e->other_call_id = run->last.other_call_id;
    /* Only that one has had its retries below us (CONTRACT section 5, "Layers"); a full queue there is worth ours. */
    e->status_is_ours = run->last.problem == PROBLEM_UPSTREAM_UNAVAILABLE;
}

/* Keeps the answer as the one to show, until a later attempt has a better one. */
static void keep_response(struct run *run, struct response *from)
{
    struct response *to = &run->result->reply;
    struct response swap = *to;
    *to = *from;
    *from = swap;
    response_clear(from);
    run->result->has_reply = true;
}

static void on_attempt(struct run *run, const struct run_event *ev, struct call_event *out)
{
    struct evidence e = *ev->evidence;
    e.success_when = -1;
    read_response(run, ev, &e);
    enum outcome outcome = outcome_classify(&e, &run->intent->rules);
    struct attempt a = {.n = run->effect.attempt,
                        .started_ms = run->sent_unix_ms,
                        .ended_ms = ev->unix_now_ms,
                        .outcome = outcome,
                        .status = e.end == EVIDENCE_ANSWER ? e.status : 0,
                        .sent_bytes = e.bytes_sent,
                        .wait_before_ms = run->effect.waited_ms};
    result_attempt(run->result, &a, &e);
    run->outcome = outcome;
    run->has_last = e.end == EVIDENCE_ANSWER && ev->reply;
    run->result->has_reply = false;
    if (run->has_last)
        keep_response(run, ev->reply);
    if (run->last.has_safe_new_key)
        run->safe_new_key = run->last.safe_new_key;
    if (outcome == OUTCOME_UNKNOWN || outcome == OUTCOME_PENDING)
        run->closed_unix_ms = ev->unix_now_ms;
    out->outcome = outcome;
    out->retry_allowed = outcome_retry_allowed(&e);
    out->elsewhere = false;
    out->status = a.status;
    out->retry_after_ms = run->last.retry_after_ms;
}

/* ---- an answer ---------------------------------------------------------------------------------------------- */

static void on_answer(struct run *run, const struct run_event *ev, struct call_event *out)
{
    struct receipt_reading reading;
    run->why[0] = 0;
    if (ev->answer_status == 0) {
        memset(&reading, 0, sizeof reading);
        reading.answer = RECEIPT_ANSWER_QUERY_FAILED;
        snprintf(run->why, sizeof run->why, "%s", ev->answer_detail ? ev->answer_detail : "no answer");
    } else {
        receipt_read(&reading, ev->answer_status, ev->answer_body, slice_text(run->call_id),
                     run->first_unix_ms, run->intent->receipt_map);
        snprintf(run->why, sizeof run->why, "%s", reading.why);
    }
    run->answer = reading.answer;
    if (ev->type == CALL_EV_ANSWER)
        result_query(run->result, reading.answer, run->machine.attempts);
    bool settles = reading.answer == RECEIPT_ANSWER_SUCCESS || reading.answer == RECEIPT_ANSWER_FAILED_FINAL;
    if (settles) {
        bool safe;
        if (response_receipt_safe_new_key(ev->answer_body, &safe))
            run->safe_new_key = safe;
        /* An attempt's own answer left it open: what is shown from here on is the receipt's. */
        run->result->has_reply = reading.has_result;
        if (reading.has_result) {
            response_fini(&run->result->reply);
            run->result->reply = (struct response){.status = reading.result_status,
                                                   .headers = reading.result_headers,
                                                   .body = reading.result_body,
                                                   .body_bytes = reading.result_body.len,
                                                   .body_kept = true};
            memset(&reading.result_headers, 0, sizeof reading.result_headers);
            memset(&reading.result_body, 0, sizeof reading.result_body);
        }
    }
    receipt_reading_fini(&reading);
    out->answer = run->answer;
}

/* ---- the ending --------------------------------------------------------------------------------------------- */

/* Over the whole operation, as far as this side can know it (CONTRACT section 4). */
static bool may_use_new_key(const struct run *run)
{
    const struct samekey_result *r = run->result;
    if (r->state != STATE_FAILED || !r->final)
        return false;
    if (run->last.problem != PROBLEM_NONE && problem_about_other(run->last.problem))
        return false;
    if (run->safe_new_key >= 0)
        return run->safe_new_key;
    return r->reason != REASON_FENCED_AT_CALLEE || !run->intent->has_key;
}

static void on_end(struct run *run, int64_t now_ms)
{
    const struct call_effect *fx = &run->effect;
    struct samekey_result *r = run->result;
    r->state = fx->state;
    r->final = fx->final;
    r->reason = fx->reason;
    r->next = fx->next;
    r->retry_in_ms = fx->retry_in_ms;
    r->elapsed_ms = now_ms - run->began_ms;
    if (r->state == STATE_UNKNOWN) {
        r->has_reply = false; /* an answer that proves nothing is not shown as if it did */
        if (!run->intent->policy.has_receipts)
            r->next = NEXT_ASK_OPERATOR;
    }
    if (r->state == STATE_FAILED && run->has_last && run->last.next_action >= 0)
        r->next = (enum next_action)run->last.next_action;
    r->safe_new_key = may_use_new_key(run);
    buffer_clear(&r->sentence);
    buffer_clear(&r->json);
}

void run_step(struct run *run, const struct run_event *ev, const struct call_effect **effect)
{
    struct call_event event = {
        .type = ev->type,
        .now_ms = ev->now_ms,
        .random = ev->random,
        .past = ev->past,
        .deadline_ms = ev->deadline_ms ? ev->deadline_ms : deadline_add(ev->now_ms, run->intent->deadline_ms),
        .retry_after_ms = -1,
        .denial = ev->denial,
        .retry_in_ms = ev->type == CALL_EV_DENIED ? ev->retry_in_ms : -1};
    assert(run_expects(run, ev->type));
    switch (ev->type) {
    case CALL_EV_START:
        run->began_ms = ev->now_ms;
        run->unix_began_ms = ev->unix_now_ms;
        if (ev->past.attempts)
            run->first_unix_ms = ev->unix_now_ms - ev->past.age_ms;
        break;
    case CALL_EV_ATTEMPT:
        on_attempt(run, ev, &event);
        break;
    case CALL_EV_ANSWER:
    case CALL_EV_FENCED:
        on_answer(run, ev, &event);
        break;
    case CALL_EV_DENIED:
        run->result->refusal = ev->refusal;
        break;
    case CALL_EV_TIMER:
        break;
    }
    call_step(&run->machine, &event, &run->effect);
    bool deaf =
        !run->intent->policy.has_receipts || run->machine.queries >= run->intent->policy.receipt_queries;
    if (run->effect.type == CALL_DO_WAIT && run->effect.pending && deaf) {
        /* Accepted work that nobody can be asked about any more: unlike a gateway, no report can reach us, so the rest
         * of the deadline would be waited for nothing. */
        run_cancel(run, ev->now_ms);
        event.type = CALL_EV_TIMER;
        call_step(&run->machine, &event, &run->effect);
    }
    if (run->effect.type == CALL_DO_SEND) {
        run->sent_unix_ms = ev->unix_now_ms;
        if (run->first_unix_ms == 0)
            run->first_unix_ms = ev->unix_now_ms;
    }
    if (run->effect.type == CALL_DO_END)
        on_end(run, ev->now_ms);
    *effect = &run->effect;
}
