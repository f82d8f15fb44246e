/* SPDX-License-Identifier: MIT */
#include "gateway/answer.h"
#include "gateway/suspects.h"
#include "gateway/visit_parts.h"

/* An answer that no run of its own brought: a replay, a joined call's ending, a refusal. */
static void trace_answer(const struct visit *visit, int status, enum outcome outcome, const char *how)
{
    struct shard *shard = visit->shard;
    if (!shard->tracer || !visit->id.has_trace || visit->run)
        return;
    const struct log_field list[] = {
        LOG_TEXT("samekey.call_id", visit->id.call_id),
        LOG_TEXT("samekey.key", visit->id.key),
        LOG_STRING("samekey.route", visit->lane->s->name),
        LOG_STRING("samekey.answered", how),
        LOG_STRING("samekey.outcome", outcome_json(outcome)),
        LOG_NUMBER("http.response.status_code", status),
        LOG_END,
    };
    struct span span = {
        .kind = SPAN_SERVER,
        .verb = "answer",
        .route = visit->lane->s->name,
        .start_us = span_instant_us(visit->came_us),
        .end_us = span_now_us(),
        .error = outcome == OUTCOME_SUCCESS || outcome == OUTCOME_PENDING ? slice_of("", 0) : slice_text(how),
        .list = list,
    };
    traceparent_child(&visit->id.trace, prng_next(&shard->random), &span.self);
    memcpy(span.parent, visit->id.trace.parent_id, sizeof span.parent);
    tracer_add(shard->tracer, &span);
}

static void note_answer(struct visit *visit, int status, enum outcome outcome, const char *how)
{
    struct shard *shard = visit->shard;
    metrics_add(shard->counts, METRIC_calls, visit->lane->series, (size_t)outcome, 1);
    metrics_observe(shard->counts, METRIC_request_seconds,
                    (double)(clock_monotonic_us() - visit->came_us) / 1e6);
    /* A call's first answer is told by the line of its ending; one line a request is enough. */
    bool told = visit->run && visit->run_ended;
    log_event(shard->log, told ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, clock_wall_ms(), visit->id.call_id,
              "answered", LOG_STRING("how", how), LOG_STRING("outcome", outcome_json(outcome)),
              LOG_NUMBER("status", status), LOG_TEXT("key", visit->id.key),
              LOG_STRING("route", visit->lane->s->name), LOG_TEXT("trace_id", visit->id.trace_id),
              LOG_STRING("call_id_source", visit->id.call_id_made ? "gateway" : "caller"));
    trace_answer(visit, status, outcome, how);
}

static struct answer_facts own_facts(const struct visit *visit, enum outcome outcome)
{
    return (struct answer_facts){
        .call_id = visit->id.call_id,
        .call_id_made = visit->id.call_id_made,
        .outcome = outcome,
        .suspect = visit->suspect,
        .expose = visit->lane->s->expose_headers,
    };
}

/* Whether there is still somebody to answer; from here on there is not. */
static struct request *take_request(struct visit *visit)
{
    struct request *request = visit->request;
    visit->request = NULL;
    visit->phase = VISIT_ANSWERED;
    net_timer_disarm(visit->shard->loop, &visit->timer);
    return request;
}

void visit_answer_first(struct visit *visit, int status, struct slice lines, struct slice body,
                        enum outcome outcome)
{
    struct request *request = take_request(visit);
    if (!request)
        return;
    struct buffer head = {0};
    buffer_slice(&head, lines);
    struct answer_facts facts = own_facts(visit, outcome);
    answer_own_lines(&head, &facts);
    note_answer(visit, status, outcome, "upstream");
    request_answer(request, status, buffer_view(&head), body);
    buffer_fini(&head);
}

void visit_stream_begin(struct visit *visit, int status, struct slice lines, int64_t content_length,
                        enum outcome outcome)
{
    if (!visit->request)
        return;
    struct buffer head = {0};
    buffer_slice(&head, lines);
    struct answer_facts facts = own_facts(visit, outcome);
    answer_own_lines(&head, &facts);
    net_timer_disarm(visit->shard->loop, &visit->timer);
    note_answer(visit, status, outcome, "streamed");
    request_begin(visit->request, status, NULL, buffer_view(&head), content_length, true);
    buffer_fini(&head);
}

bool visit_stream_write(struct visit *visit, struct slice piece)
{
    return visit->request ? request_write(visit->request, piece) : true;
}

void visit_stream_end(struct visit *visit)
{
    struct request *request = take_request(visit);
    if (request)
        request_end(request);
}

void visit_stream_abort(struct visit *visit)
{
    struct request *request = take_request(visit);
    if (request)
        request_abort(request);
}

void problem_answer(struct request *request, enum problem problem, const struct problem_facts *facts,
                    const struct answer_facts *own)
{
    struct buffer lines = {0}, body = {0};
    buffer_text(&lines, "Content-Type: application/problem+json\r\n");
    if (facts->retry_after_s >= 0) {
        buffer_text(&lines, "Retry-After: ");
        buffer_number(&lines, facts->retry_after_s);
        buffer_text(&lines, "\r\n");
    }
    if (facts->allow.len) /* RFC 9110 section 15.5.6 */
        line_append(&lines, "Allow", facts->allow);
    answer_own_lines(&lines, own);
    problem_document(&body, problem, facts);
    request_answer(request, problem_answer_status(problem, facts), buffer_view(&lines), buffer_view(&body));
    buffer_fini(&lines);
    buffer_fini(&body);
}

void visit_note_suspicion(struct visit *visit, const struct request *request, enum problem problem,
                          const struct call_row *other)
{
    struct suspicion seen = {
        .has_credential = visit->id.has_credential,
        .credential = visit->id.credential,
        .address = request ? request_peer(request) : slice_of("", 0),
        .tenant = visit->id.tenant,
        .route = slice_text(visit->lane->s->name),
        .problem = problem,
        .call_id = visit->id.call_id,
        .key = visit->id.key,
    };
    if (other && other->id) {
        seen.other_call_id = other->call_id;
        seen.other_key = other->key;
    }
    suspects_note(visit->shard->suspects, &seen, clock_wall_ms());
}

/* What a caller should do next when nothing else tells. */
static enum next_action next_for(enum problem problem)
{
    switch (problem) {
    case PROBLEM_CALL_IN_PROGRESS:
    case PROBLEM_OPERATION_IN_PROGRESS:
        return NEXT_QUERY_RECEIPT;
    case PROBLEM_OUTCOME_UNKNOWN: /* the same call again asks first */
    case PROBLEM_RATE_LIMITED:
    case PROBLEM_OVERLOADED:
    case PROBLEM_UPSTREAM_UNAVAILABLE:
    case PROBLEM_STORE_UNAVAILABLE:
        return NEXT_RETRY_SAME_CALL;
    case PROBLEM_RESULT_NOT_KEPT:
    case PROBLEM_CALL_FAILED:
    case PROBLEM_CALL_FENCED:
    case PROBLEM_OPERATION_REVERSED:
        return NEXT_NONE;
    case PROBLEM_CREDENTIAL_MISMATCH:
        return NEXT_ASK_OPERATOR;
    default:
        return NEXT_FIX_REQUEST;
    }
}

void visit_answer_problem(struct visit *visit, enum problem problem, const char *detail, int64_t retry_ms,
                          const struct rows *rows, bool waited)
{
    struct problem_facts facts = {
        .detail = slice_text(detail),
        .call_id = visit->id.call_id,
        .state = STATE_NOT_RECEIVED,
        .next = next_for(problem),
        .retry_after_s = -1,
        .waited = waited,
    };
    enum outcome outcome = problem_outcome(problem);
    bool show = problem != PROBLEM_CREDENTIAL_MISMATCH;
    if (rows && rows->call.id && show) {
        struct standing standing;
        receipt_standing(rows, &standing);
        facts.state = standing.state;
        facts.safe_new_key = standing.safe_new_key;
        facts.with_receipt = true;
        facts.original_call_id = rows->call.original_call_id;
        if (problem == PROBLEM_CALL_FAILED || problem == PROBLEM_CALL_FENCED)
            facts.next = NEXT_NONE;
    } else if (rows && rows->holder.id && show && problem_about_other(problem)) {
        facts.original_call_id = rows->holder.call_id;
    } else if (rows && rows->holder.id && show &&
               (problem == PROBLEM_OPERATION_IN_PROGRESS || problem == PROBLEM_OUTCOME_UNKNOWN)) {
        facts.original_call_id = rows->holder.call_id;
        facts.state = rows->holder.state;
    } else if (rows && rows->suspect.id && problem == PROBLEM_SUSPECTED_DUPLICATE) {
        facts.original_call_id = rows->suspect.call_id;
    }
    if (problem == PROBLEM_CALL_IN_PROGRESS && facts.state == STATE_NOT_RECEIVED) {
        facts.state = STATE_PROCESSING;
        facts.with_receipt = true;
    }
    if (problem == PROBLEM_CREDENTIAL_MISMATCH ||
        (problem == PROBLEM_OUTCOME_UNKNOWN && facts.state == STATE_NOT_RECEIVED))
        facts.state = STATE_UNKNOWN;
    if (retry_ms >= 0)
        facts.retry_after_s = (retry_ms + 999) / 1000 > 0 ? (retry_ms + 999) / 1000 : 1;
    struct request *request = take_request(visit);
    if (!request)
        return;
    struct answer_facts own = own_facts(visit, outcome);
    own.original = facts.original_call_id;
    if (problem == PROBLEM_CALL_ID_REUSED || problem == PROBLEM_SUSPECTED_DUPLICATE ||
        problem == PROBLEM_KEY_REUSED) {
        metrics_add(visit->shard->counts, METRIC_swapped_keys, visit->lane->series, 0, 1);
        visit_note_suspicion(visit, request, problem,
                             !rows                                    ? NULL
                             : problem == PROBLEM_SUSPECTED_DUPLICATE ? &rows->suspect
                             : problem == PROBLEM_CALL_ID_REUSED      ? &rows->call
                                                                      : &rows->holder);
    }
    metrics_add(visit->shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    note_answer(visit, problem_answer_status(problem, &facts), outcome, problem_slug(problem));
    problem_answer(request, problem, &facts, &own);
}

void visit_answer_row(struct visit *visit, const struct rows *rows, bool waited, bool first)
{
    const struct call_row *row = &rows->call;
    enum problem problem = keeper_replay_problem(row);
    if (problem == PROBLEM_OUTCOME_UNKNOWN || problem == PROBLEM_CALL_IN_PROGRESS) {
        visit_answer_problem(visit, problem, state_sentence(row->state), 1000, rows, waited);
        return;
    }
    if (problem != PROBLEM_NONE) {
        visit_answer_problem(visit, problem, reason_sentence(row->reason), -1, rows, waited);
        return;
    }
    struct request *request = take_request(visit);
    if (!request)
        return;
    enum outcome outcome = row->state == STATE_SUCCESS           ? OUTCOME_SUCCESS
                           : row->reason == REASON_CALLEE_FAILED ? OUTCOME_FAILED
                           : row->reason == REASON_REJECTED || row->reason == REASON_BOUND_ELSEWHERE
                               ? OUTCOME_REJECTED
                               : OUTCOME_FAILED;
    struct answer_facts own = own_facts(visit, outcome);
    own.replayed = !first;
    own.original = row->original_call_id;
    struct buffer lines = {0};
    buffer_slice(&lines, row->result_headers);
    answer_own_lines(&lines, &own);
    if (own.replayed)
        metrics_add(visit->shard->counts, METRIC_replays, visit->lane->series, 0, 1);
    note_answer(visit, row->result_status, outcome, own.replayed ? "replay" : "receipt");
    request_answer(request, row->result_status, buffer_view(&lines), row->result_body);
    buffer_fini(&lines);
}
