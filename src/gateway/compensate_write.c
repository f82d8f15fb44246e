/* SPDX-License-Identifier: MIT
 *
 * How a round is written down: its row, the task's next status, and the ending of its call, in one commit. What cannot
 * be written now is tried again for as long as the round's lease lasts; then the next taker writes that it was cut short.
 */
#include "gateway/compensate_parts.h"

#define ROUND_WRITE_MS 1000 /* a round that could not be written is tried again after this */
#define FOR_NOBODY                                                                                           \
    "the callee does not know it, but was asked without the header that says who called, which is not "      \
    "kept: that proves nothing"

/* ---- writing it down ------------------------------------------------------------------------------------------ */

/* The state that the callee's word means; false where it gave none. */
static bool state_of_answer(const struct round *r, enum call_state *state)
{
    if (r->theirs != STATE_NOT_RECEIVED) {
        *state = r->theirs;
        return true;
    }
    if (!r->answered)
        return false;
    switch (r->answer) {
    case RECEIPT_ANSWER_NOT_RECEIVED:
        *state = STATE_NOT_RECEIVED;
        return true;
    case RECEIPT_ANSWER_RUNNING:
        *state = STATE_PROCESSING;
        return true;
    case RECEIPT_ANSWER_SUCCESS:
        *state = STATE_SUCCESS;
        return true;
    case RECEIPT_ANSWER_FAILED_FINAL:
    case RECEIPT_ANSWER_FAILED_OPEN:
        *state = STATE_FAILED;
        return true;
    case RECEIPT_ANSWER_QUERY_FAILED:
    case RECEIPT_ANSWER_UNKNOWN:
        return false;
    }
    return false;
}

static void tell_log(const struct round *r)
{
    const struct compensation_effect *fx = &r->effect;
    log_event(r->c->shard->log, fx->status == TASK_MANUAL ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
              clock_wall_ms(), r->call.call_id, "compensation_round", LOG_NUMBER("task", r->task.id),
              LOG_NUMBER("round", r->task.round), LOG_TEXT("asked", buffer_view(&r->asked)),
              LOG_STRING("answer", r->answered ? receipt_answer_text(r->answer) : ""),
              LOG_STRING("decision", compensation_effect_text(fx->type)),
              LOG_STRING("status", task_status_text(fx->status)), LOG_STRING("why", fx->why),
              LOG_BOOL("differs", fx->differs), LOG_STRING("cause", task_cause_text(r->task.cause)),
              LOG_TEXT("key", r->call.key), LOG_TEXT("route", r->call.route),
              LOG_TEXT("trace_id", r->call.trace_id));
}

static void on_write_again(struct net_timer *timer)
{
    round_write(LIST_ENTRY(timer, struct round, timer));
}

static void written(struct job *job)
{
    struct round *r = job->owner;
    struct compensator *c = r->c;
    enum status status = job->op.status;
    if (status == STATUS_OK) {
        metrics_add(c->shard->counts, METRIC_rounds, 0,
                    (size_t)(r->answered ? r->answer : RECEIPT_ANSWER_QUERY_FAILED), r->answered);
        tell_log(r);
    } else if (status == STATUS_CONFLICT && r->end_call) {
        /* The call moved meanwhile: what the round saw is kept, and the call stays as it stands. */
        const struct call_row *call = &job->op.rows.call;
        r->end_call = r->has_end = false;
        r->effect.type = call->final ? COMPENSATION_DO_CLOSE : COMPENSATION_DO_WAIT;
        r->effect.status = call->final ? TASK_RESOLVED : TASK_PENDING;
        r->effect.wait_ms = compensation_gap_ms(&r->machine.policy, r->task.round, shard_random(c->shard));
        r->effect.why = call->final ? "the call has ended meanwhile" : "the call is at work now";
        job_free(job);
        round_write(r);
        return;
    } else if (status != STATUS_CONFLICT && compensator_now(c) + ROUND_WRITE_MS < r->until_ms &&
               !c->stopped) {
        metrics_add(c->shard->counts, METRIC_store_errors, 0, 0, 1);
        net_timer_arm(c->shard->loop, &r->timer, compensator_now(c) + ROUND_WRITE_MS, on_write_again);
        job_free(job);
        return;
    }
    job_free(job);
    round_free(r);
}

void round_write(struct round *r)
{
    struct compensator *c = r->c;
    const struct compensation_effect *fx = &r->effect;
    struct job *job = c->shard->worker ? job_new(c->shard, STORE_TASK_ROUND, r, written) : NULL;
    if (!job) {
        round_free(r); /* the next taker writes that it was cut short */
        return;
    }
    enum call_state theirs;
    struct buffer words = {0};
    struct slice difference = {0};
    bool said = state_of_answer(r, &theirs);
    if (said && theirs != r->call.state) {
        buffer_format(&words, "our record says %s, the callee %s", state_text(r->call.state),
                      state_text(theirs));
        (void)arena_copy(&r->arena, buffer_view(&words), &difference);
        buffer_fini(&words);
    }
    int64_t now = r->store_now_ms + (compensator_now(c) - r->began_ms);
    r->work = (struct task_work){
        .task = {.id = r->task.id,
                 .fence = r->task.fence,
                 .owner = slice_text(c->shard->owner),
                 .status = fx->status,
                 .due_ms = deadline_add(now, fx->wait_ms)},
        .round = {.asked = buffer_view(&r->asked),
                  .answer = slice_text(r->answered ? receipt_answer_text(r->answer)
                                       : said      ? state_text(theirs)
                                                   : "none"),
                  .ours = slice_text(state_text(r->call.state)),
                  .difference = difference,
                  .decision = slice_text(compensation_effect_text(fx->type)),
                  .evidence = slice_text(r->for_nobody ? FOR_NOBODY : fx->why)},
    };
    if (fx->status == TASK_MANUAL) {
        r->work.task.tell = TASK_TELL_OWED;
        r->work.task.tell_due_ms = now;
    }
    job->op.work = &r->work;
    job->op.drop_kept = fx->type == COMPENSATION_DO_CLOSE && r->task.cause == TASK_CAUSE_FAILED;
    r->end_call = fx->type == COMPENSATION_DO_SETTLE && r->has_end;
    if (r->end_call) {
        r->end.state = fx->state;
        r->end.final = true;
        r->end.reason = fx->reason;
        r->work.end_call = true;
        job->op.row = r->end;
        job->op.id = r->call.id;
        job->op.from_states = 1u << STATE_UNKNOWN;
    }
    job_submit(job);
}
