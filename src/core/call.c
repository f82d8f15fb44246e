/* SPDX-License-Identifier: MIT */
#include "core/call.h"

#include "core/deadline.h"

#include <assert.h>
#include <string.h>

const char *call_phase_text(enum call_phase phase)
{
    static const char *const texts[] = {"idle",      "sending", "asking", "wait_ask",
                                        "wait_send", "fencing", "ended"};
    return texts[phase];
}

void call_init(struct call *call, const struct call_policy *policy)
{
    memset(call, 0, sizeof *call);
    call->policy = *policy;
    call->last_retryable = true;
}

bool call_invariant(const struct call *call)
{
    if (call->sent - call->spared > call->policy.retries + 1 || call->sent > call->attempts)
        return false;
    if (call->phase == CALL_SENDING && call->sent == 0)
        return false;
    if (call->pending && !call->maybe_ran)
        return false;
    if (call->phase != CALL_ENDED)
        return true;
    if (call->end_state == STATE_FAILED && call->maybe_ran &&
        (!call->end_final || (call->ending != REASON_RECEIPT && call->ending != REASON_FENCED_AT_CALLEE)))
        return false;
    if (call->end_state == STATE_FAILED && !call->end_final && call->any_failed)
        return false;
    return call->end_state == STATE_SUCCESS || call->end_state == STATE_FAILED ||
           call->end_state == STATE_UNKNOWN;
}

/* ---- endings ------------------------------------------------------------------------------------------------ */

static void end(struct call *call, struct call_effect *fx, enum call_state state, bool final,
                enum reason reason, enum next_action next)
{
    call->phase = CALL_ENDED;
    call->end_state = state;
    call->end_final = final;
    call->ending = reason;
    fx->type = CALL_DO_END;
    fx->state = state;
    fx->final = final;
    fx->reason = reason;
    fx->next = next;
}

static void end_success(struct call *call, struct call_effect *fx, enum reason reason)
{
    end(call, fx, STATE_SUCCESS, true, reason, NEXT_NONE);
}

/* The call stops here with what is proved so far: UNKNOWN where anything may have run, else FAILED. */
static void end_as_joined(struct call *call, struct call_effect *fx, enum reason why)
{
    if (call->maybe_ran) {
        end(call, fx, STATE_UNKNOWN, false, call->pending ? REASON_ACCEPTED : REASON_ATTEMPT,
            NEXT_QUERY_RECEIPT);
    } else if (call->any_failed) {
        end(call, fx, STATE_FAILED, true, REASON_CALLEE_FAILED, NEXT_NONE);
    } else {
        end(call, fx, STATE_FAILED, false, why, NEXT_RETRY_SAME_CALL);
    }
}

/* ---- the moves ---------------------------------------------------------------------------------------------- */

/* Nothing more may be sent: where something may have run and a receipt has said that it did not, the callee is fenced if
 * it can be, else it stays unknown. */
static void give_up(struct call *call, const struct call_event *ev, struct call_effect *fx, enum reason why)
{
    int64_t timeout = call->policy.receipt_timeout_ms;
    int64_t left = deadline_left(call->deadline_ms, ev->now_ms);
    if (left < timeout && !call->policy.ask_past_deadline)
        timeout = left;
    if (call->maybe_ran && !call->pending && call->policy.can_fence && call->asked && timeout > 0) {
        call->phase = CALL_FENCING;
        fx->type = CALL_DO_FENCE;
        fx->timeout_ms = timeout;
        return;
    }
    end_as_joined(call, fx, why);
}

/* Past this the callee may have forgotten the key, and would run the request as a new one. */
static bool key_life_over(const struct call *call, int64_t now)
{
    return call->attempts > 0 && now - call->first_ms > call->policy.upstream_key_life_ms;
}

static void send_now(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    int64_t timeout = call->policy.attempt_timeout_ms;
    if (call->policy.shorten_attempts) {
        timeout = deadline_attempt_ms(call->deadline_ms, ev->now_ms, timeout);
        if (timeout == 0) {
            give_up(call, ev, fx, REASON_DEADLINE);
            return;
        }
    } else if (ev->type != CALL_EV_START &&
               deadline_left(call->deadline_ms, ev->now_ms) < DEADLINE_ATTEMPT_MIN_MS) {
        give_up(call, ev, fx, REASON_DEADLINE); /* a timer may ring late, after a suspend for example */
        return;
    }
    if (ev->type != CALL_EV_START && key_life_over(call, ev->now_ms)) {
        give_up(call, ev, fx, REASON_DEADLINE);
        return;
    }
    fx->waited_ms = ev->type == CALL_EV_TIMER ? ev->now_ms - call->wait_began_ms : 0;
    fx->is_retry = call->attempts > 0;
    fx->spare = call->to_spare;
    call->to_spare = false;
    call->attempts++;
    call->sent++;
    if (call->attempts == 1)
        call->first_ms = ev->now_ms;
    call->queries = 0;
    call->repeat_pointless = false;
    call->last_retryable = true;
    call->not_before_ms = 0;
    call->phase = CALL_SENDING;
    fx->type = CALL_DO_SEND;
    fx->attempt = call->attempts;
    fx->timeout_ms = timeout;
}

/* Asks the receipt, or ends where no query is left. */
static void ask_now(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    int64_t timeout = call->policy.receipt_timeout_ms;
    int64_t left = deadline_left(call->deadline_ms, ev->now_ms);
    bool first = call->queries == 0;
    if (call->queries >= call->policy.receipt_queries) {
        end_as_joined(call, fx, REASON_RETRIES);
        return;
    }
    if (left < timeout && !(first && call->policy.ask_past_deadline))
        timeout = left;
    if (timeout <= 0) {
        end_as_joined(call, fx, REASON_DEADLINE);
        return;
    }
    call->queries++;
    call->query_began_ms = ev->now_ms;
    call->phase = CALL_ASKING;
    fx->type = CALL_DO_ASK;
    fx->timeout_ms = timeout;
}

static void wait_until(struct call *call, struct call_effect *fx, enum call_phase phase, int64_t now,
                       int64_t until)
{
    call->phase = phase;
    call->wait_began_ms = now;
    fx->type = CALL_DO_WAIT;
    fx->until_ms = until;
    fx->pending = call->pending;
}

static int64_t next_backoff(struct call *call, double random)
{
    int n = call->waits < 62 ? call->waits : 62;
    call->waits++;
    return backoff_wait_ms(&call->policy.backoff, (unsigned)n, random);
}

/* Nothing new is known: ask again after a backoff. A pending call rests until its deadline when its queries are used up,
 * since a report may still come. */
static void ask_later(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    int64_t until = deadline_add(ev->now_ms, next_backoff(call, ev->random));
    bool queries_left = call->policy.has_receipts && call->queries < call->policy.receipt_queries;
    if (queries_left && until < call->deadline_ms) {
        wait_until(call, fx, CALL_WAIT_ASK, ev->now_ms, until);
        return;
    }
    if (call->pending && ev->now_ms < call->deadline_ms) {
        call->queries = call->policy.receipt_queries;
        wait_until(call, fx, CALL_WAIT_ASK, ev->now_ms, call->deadline_ms);
        return;
    }
    end_as_joined(call, fx, queries_left ? REASON_DEADLINE : REASON_RETRIES);
}

/* Whether the rules let the same call be sent once more at all ("When a repeat is safe"). */
static bool may_send_again(const struct call *call, int64_t now)
{
    const struct call_policy *p = &call->policy;
    if (!p->has_identity || call->sent - call->spared > p->retries || call->repeat_pointless ||
        !call->last_retryable)
        return false;
    if (key_life_over(call, now))
        return false;
    if (!call->maybe_ran)
        return true;
    if (p->never_after_doubt)
        return false;
    if (call->pending)
        return p->runs_once;
    return p->runs_once || p->has_receipts;
}

/* Whether another upstream may be tried for an attempt that did not run: it counts as no retry. */
static bool may_go_elsewhere(const struct call *call, int64_t now)
{
    const struct call_policy *p = &call->policy;
    return p->has_identity && call->last_retryable && !call->maybe_ran &&
           !(call->attempts > 0 && now - call->first_ms > p->upstream_key_life_ms);
}

/* Waits for the moment of the next attempt: the backoff, what Retry-After asked for, and for a callee that does not run a
 * callId once, the time a first request may still be travelling (CONTRACT section 3: a judgement, not a proof). */
static void send_later(struct call *call, const struct call_event *ev, struct call_effect *fx, bool at_once)
{
    int64_t until = at_once ? ev->now_ms : deadline_add(ev->now_ms, next_backoff(call, ev->random));
    if (call->not_before_ms > until)
        until = call->not_before_ms;
    call->recheck = false;
    if (call->may_travel && !call->policy.runs_once) {
        int64_t safe = deadline_add(call->closed_ms, call->policy.resend_after_ms);
        if (safe > until)
            until = safe;
        /* The answer just heard may have been read before that moment, when its query began: it is asked once more. */
        call->recheck = safe > call->query_began_ms && call->policy.has_receipts;
        if (call->recheck && call->queries >= call->policy.receipt_queries) {
            give_up(call, ev, fx, REASON_RETRIES);
            return;
        }
    }
    if (!deadline_fits(call->deadline_ms, until, DEADLINE_ATTEMPT_MIN_MS)) {
        fx->retry_in_ms = until - ev->now_ms;
        give_up(call, ev, fx, REASON_DEADLINE);
        return;
    }
    if (key_life_over(call, until)) {
        give_up(call, ev, fx, REASON_DEADLINE);
        return;
    }
    if (until <= ev->now_ms) {
        send_now(call, ev, fx);
        return;
    }
    wait_until(call, fx, CALL_WAIT_SEND, ev->now_ms, until);
}

/* Something may have run, and nobody can be asked or the asking is still to come. */
static void after_doubt(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    if (call->pending)
        ask_later(call, ev, fx);
    else if (call->policy.has_receipts)
        ask_now(call, ev, fx);
    else if (may_send_again(call, ev->now_ms))
        send_later(call, ev, fx, false);
    else
        end_as_joined(call, fx, REASON_RETRIES);
}

static enum reason why_no_more(const struct call *call)
{
    return call->last_retryable ? REASON_RETRIES : REASON_NOT_EXECUTED;
}

static void on_start(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    const struct call_past *past = &ev->past;
    call->deadline_ms = ev->deadline_ms;
    call->attempts = past->attempts;
    call->maybe_ran = past->maybe_ran;
    call->pending = past->pending && past->maybe_ran;
    call->first_ms = ev->now_ms - past->age_ms;
    call->closed_ms = ev->now_ms - past->closed_age_ms;
    call->may_travel = past->maybe_ran;
    if (!past->maybe_ran) {
        send_now(call, ev, fx);
    } else if (call->pending && call->policy.has_receipts) {
        ask_now(call, ev, fx);
    } else {
        after_doubt(call, ev, fx);
    }
}

static void on_attempt(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    call->last_retryable = ev->retry_allowed;
    call->asked = false;
    if (ev->retry_after_ms >= 0) {
        int64_t wait = ev->retry_after_ms < call->policy.retry_after_max_ms ? ev->retry_after_ms
                                                                            : call->policy.retry_after_max_ms;
        call->not_before_ms = deadline_add(ev->now_ms, wait);
    }
    switch (ev->outcome) {
    case OUTCOME_SUCCESS:
        end_success(call, fx, REASON_NONE);
        return;
    case OUTCOME_REJECTED:
        call->repeat_pointless = true;
        if (call->maybe_ran)
            after_doubt(call, ev, fx);
        else
            end(call, fx, STATE_FAILED, true, REASON_REJECTED, NEXT_FIX_REQUEST);
        return;
    case OUTCOME_FAILED:
        if (call->maybe_ran) {
            after_doubt(call, ev, fx);
            return;
        }
        call->any_failed = true;
        break;
    case OUTCOME_NOT_EXECUTED:
        if (call->maybe_ran) {
            /* The join rule: this attempt proves nothing about the earlier one. A callee without receipts that runs a
             * key once is simply tried again. */
            after_doubt(call, ev, fx);
            return;
        }
        /* 429 and 503 are asked about first, where there are receipts. */
        if (ev->elsewhere && call->policy.spares > 0 && may_go_elsewhere(call, ev->now_ms) &&
            !(call->policy.has_receipts && (ev->status == 429 || ev->status == 503))) {
            call->policy.spares--;
            call->spared++;
            call->to_spare = true;
            send_later(call, ev, fx, true);
            return;
        }
        break;
    case OUTCOME_PENDING:
        call->maybe_ran = call->pending = true;
        call->may_travel = false;
        call->closed_ms = ev->now_ms;
        ask_later(call, ev, fx);
        return;
    case OUTCOME_UNKNOWN:
    case OUTCOME_NONE:
    case OUTCOME_COUNT:
        call->maybe_ran = true;
        /* An answer does not end the travelling: whoever stands between may have written it. */
        call->may_travel = true;
        call->closed_ms = ev->now_ms;
        after_doubt(call, ev, fx);
        return;
    }
    /* Proved to be without effect, like all attempts before it. */
    if (!may_send_again(call, ev->now_ms)) {
        fx->retry_in_ms = ev->retry_after_ms >= 0 ? call->not_before_ms - ev->now_ms : -1;
        end_as_joined(call, fx, why_no_more(call));
    } else if ((ev->status == 429 || ev->status == 503) && call->policy.has_receipts) {
        /* Ask first, but not where the answer could not lead to an attempt in time: say at once when to come back. */
        if (!deadline_fits(call->deadline_ms,
                           call->not_before_ms > ev->now_ms ? call->not_before_ms : ev->now_ms,
                           DEADLINE_ATTEMPT_MIN_MS)) {
            fx->retry_in_ms = call->not_before_ms - ev->now_ms;
            end_as_joined(call, fx, REASON_DEADLINE);
            return;
        }
        ask_now(call, ev, fx);
    } else {
        send_later(call, ev, fx, false);
    }
}

static void on_answer(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    switch (ev->answer) {
    case RECEIPT_ANSWER_SUCCESS:
        call->asked = true;
        end_success(call, fx, REASON_RECEIPT);
        return;
    case RECEIPT_ANSWER_FAILED_FINAL:
        call->asked = true;
        end(call, fx, STATE_FAILED, true, REASON_RECEIPT, NEXT_NONE);
        return;
    case RECEIPT_ANSWER_RUNNING:
        call->asked = true;
        /* The callee has it: whatever we thought, it may run now. */
        call->maybe_ran = true;
        ask_later(call, ev, fx);
        return;
    case RECEIPT_ANSWER_NOT_RECEIVED:
    case RECEIPT_ANSWER_FAILED_OPEN:
        call->asked = true;
        if (call->pending && !call->policy.runs_once) {
            ask_later(call, ev, fx); /* queued work may write its receipt only at its commit */
        } else if (may_send_again(call, ev->now_ms)) {
            send_later(call, ev, fx, false);
        } else {
            give_up(call, ev, fx, why_no_more(call));
        }
        return;
    case RECEIPT_ANSWER_UNKNOWN:
    case RECEIPT_ANSWER_QUERY_FAILED:
        ask_later(call, ev, fx);
        return;
    }
}

static void on_timer(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    if (call->phase == CALL_WAIT_ASK) {
        if (ev->now_ms >= call->deadline_ms || call->queries >= call->policy.receipt_queries)
            end_as_joined(call, fx, REASON_DEADLINE);
        else
            ask_now(call, ev, fx);
    } else if (call->recheck) {
        call->recheck = false;
        call->may_travel = false; /* the time it may have travelled is over */
        ask_now(call, ev, fx);
    } else {
        send_now(call, ev, fx);
    }
}

static void on_denied(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    static const enum reason reasons[] = {[CALL_DENIED_BUDGET] = REASON_BUDGET,
                                          [CALL_DENIED_BREAKER] = REASON_BREAKER,
                                          [CALL_DENIED_LOST] = REASON_LEASE_EXPIRED};
    /* The number was given out and nothing was sent under it; it is not used again. */
    fx->retry_in_ms = ev->retry_in_ms;
    if (ev->denial == CALL_DENIED_LOST)
        end(call, fx, STATE_UNKNOWN, false, REASON_LEASE_EXPIRED, NEXT_QUERY_RECEIPT);
    else
        give_up(call, ev, fx, reasons[ev->denial]);
}

static void on_fenced(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    if (ev->answer == RECEIPT_ANSWER_SUCCESS)
        end_success(call, fx, REASON_RECEIPT);
    else if (ev->answer == RECEIPT_ANSWER_FAILED_FINAL)
        end(call, fx, STATE_FAILED, true, REASON_FENCED_AT_CALLEE, NEXT_NONE);
    else
        end_as_joined(call, fx, REASON_RETRIES);
}

void call_step(struct call *call, const struct call_event *ev, struct call_effect *fx)
{
    memset(fx, 0, sizeof *fx);
    fx->retry_in_ms = -1;
    assert(call->phase != CALL_ENDED);
    switch (ev->type) {
    case CALL_EV_START:
        assert(call->phase == CALL_IDLE);
        on_start(call, ev, fx);
        break;
    case CALL_EV_ATTEMPT:
        assert(call->phase == CALL_SENDING);
        on_attempt(call, ev, fx);
        break;
    case CALL_EV_DENIED:
        assert(call->phase == CALL_SENDING);
        on_denied(call, ev, fx);
        break;
    case CALL_EV_ANSWER:
        assert(call->phase == CALL_ASKING);
        on_answer(call, ev, fx);
        break;
    case CALL_EV_TIMER:
        assert(call->phase == CALL_WAIT_ASK || call->phase == CALL_WAIT_SEND);
        on_timer(call, ev, fx);
        break;
    case CALL_EV_FENCED:
        assert(call->phase == CALL_FENCING);
        on_fenced(call, ev, fx);
        break;
    }
    assert(call_invariant(call));
}
