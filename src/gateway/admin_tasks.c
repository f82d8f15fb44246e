/* SPDX-License-Identifier: MIT
 *
 * GET /v1/compensations: tasks in a list, one task with what happened in it, and the wish for its next round.
 */
#include "gateway/admin_parts.h"

/* A task's rounds at most: its route's and those a person gave it. A route that is not configured any more has none. */
static void member_rounds(struct buffer *out, const struct inquiry *q, const struct task_row *task)
{
    const struct lane *lane = inquiry_lane(q, task->route);
    if (lane)
        member_number(out, "rounds", lane->s->rounds + task->granted);
    else
        member_text(out, "rounds", slice_of("", 0));
}

void task_members(struct buffer *out, const struct inquiry *q, const struct task_row *task)
{
    member_id(out, "id", task->id);
    member_text(out, "call_id", task->call_id);
    member_tenant(out, task->tenant);
    member_text(out, "route", task->route);
    member_text(out, "key", task->key);
    member_text(out, "business_ref", task->business_ref);
    member_text(out, "trace_id", task->trace_id);
    member_text(out, "call_state", slice_text(state_text(task->call_state)));
    member_text(out, "call_reason", slice_text(reason_text(task->call_reason)));
    member_text(out, "status", slice_text(task_status_text(task->status)));
    member_text(out, "status_sentence", slice_text(task_status_sentence(task->status)));
    member_text(out, "cause", slice_text(task_cause_text(task->cause)));
    member_number(out, "round", task->round);
    member_rounds(out, q, task);
    member_time(out, "due_at", task->status == TASK_PENDING ? task->due_ms : 0);
    member_time(out, "created_at", task->created_ms);
    member_time(out, "updated_at", task->updated_ms);
    member_text(out, "last_answer", task->last_answer);
    member_text(out, "told", slice_text(task_tell_text(task->tell)));
    member_text(out, "reverses", task->reverses);
    member_text(out, "reversal_call_id", task->reversed_by);
}

void task_history(struct buffer *out, const struct task_page *page)
{
    member_begin(out, "history", '[');
    for (size_t i = 0; i < page->round_count; i++) {
        const struct round_row *round = &page->rounds[i];
        buffer_text(out, i ? ",{" : "{");
        member_time(out, "at", round->at_ms);
        member_time(out, "ended_at", round->ended_ms);
        member_number(out, "round", round->n);
        member_text(out, "action", round->asked);
        member_text(out, "answer", round->answer);
        member_text(out, "ours", round->ours);
        member_text(out, "difference", round->difference);
        member_text(out, "decision", round->decision);
        member_text(out, "detail", round->evidence);
        member_text(out, "by", round->owner);
        buffer_byte(out, '}');
    }
    buffer_byte(out, ']');
}

/* ---- the list ----------------------------------------------------------------------------------------------- */

static void listed(struct job *job)
{
    struct inquiry *q = job->owner;
    const struct task_page *page = q->state;
    if (inquiry_read_well(q, job)) {
        struct buffer out = {0};
        buffer_text(&out, "{\"items\":[");
        for (size_t i = 0; i < page->count; i++) {
            buffer_text(&out, i ? ",{" : "{");
            task_members(&out, q, &page->tasks[i]);
            buffer_byte(&out, '}');
        }
        list_end(&out, page->next_before_id, page->reached_ms);
        inquiry_answer(q, 200, &out);
        buffer_fini(&out);
    }
    inquiry_done(job);
}

void admin_tasks(struct inquiry *q)
{
    struct task_page *page = inquiry_state(q, sizeof *page);
    if (!page)
        return;
    const struct param params[] = {
        {"status", PARAM_STATUS, &page->statuses, NULL},
        {"route", PARAM_TEXT, &page->route, NULL},
        {"tenant", PARAM_TEXT, &page->tenant, &page->has_tenant},
        {"since", PARAM_TIME, &page->since_ms, NULL},
        {"until", PARAM_TIME, &page->until_ms, NULL},
        {"limit", PARAM_LIMIT, &page->limit, NULL},
        {"cursor", PARAM_CURSOR, &page->before_id, NULL},
    };
    if (!inquiry_params(q, params, sizeof params / sizeof *params))
        return;
    struct job *job = inquiry_job(q, STORE_TASK_LIST, listed);
    if (!job)
        return;
    if (page->route.len || page->has_tenant) /* otherwise no call is read for a task that does not fit */
        page->look_max = TASKS_LOOK_MAX;
    job->op.page = page;
    job_submit(job);
}

/* ---- one task ----------------------------------------------------------------------------------------------- */

static void told(struct job *job)
{
    struct inquiry *q = job->owner;
    const struct task_page *page = q->state;
    if (job->op.status == STATUS_NOT_FOUND || (job->op.status == STATUS_OK && !page->count)) {
        inquiry_refuse(q, PROBLEM_NO_SUCH_TASK, NULL, "no compensation task has this number");
    } else if (inquiry_read_well(q, job)) {
        struct buffer out = {0};
        buffer_byte(&out, '{');
        task_members(&out, q, &page->tasks[0]);
        task_history(&out, page);
        audit_list(&out, page);
        if (job->op.rows.call.id) {
            member_begin(&out, "call", '{');
            call_members(&out, &job->op.rows.call);
            buffer_byte(&out, '}');
        } else {
            member_text(&out, "call", slice_of("", 0));
        }
        buffer_text(&out, "}\n");
        inquiry_answer(q, 200, &out);
        buffer_fini(&out);
    }
    inquiry_done(job);
}

void inquiry_tell_task(struct inquiry *q, int64_t id, struct task_page *page)
{
    struct job *job = inquiry_job(q, STORE_TASK_READ, told);
    if (!job)
        return;
    job->op.id = id;
    job->op.page = page;
    job_submit(job);
}

void admin_task(struct inquiry *q)
{
    int64_t id;
    struct task_page *page;
    if (inquiry_params(q, NULL, 0) && inquiry_task_id(q, &id) && (page = inquiry_state(q, sizeof *page)))
        inquiry_tell_task(q, id, page);
}

/* ---- the next round, now ------------------------------------------------------------------------------------ */

struct running {
    struct task_page page; /* first, for told() */
    struct task_work work;
};

void inquiry_refuse_task(struct inquiry *q, const struct job *job)
{
    const struct task_row *now = &job->op.work->now;
    const struct call_row *call = &job->op.rows.call;
    if (now->status == TASK_RUNNING || (call->id && call->state == STATE_PROCESSING))
        inquiry_refuse_state(q, PROBLEM_CALL_IN_PROGRESS,
                             "a round or the call itself is at work; nothing was changed", call->state);
    else
        inquiry_refuse_state(q, PROBLEM_ALREADY_SETTLED, task_status_sentence(now->status), call->state);
}

static void run_asked(struct job *job)
{
    struct inquiry *q = job->owner;
    struct running *r = q->state;
    if (job->op.status == STATUS_NOT_FOUND) {
        inquiry_refuse(q, PROBLEM_NO_SUCH_TASK, NULL, "no compensation task has this number");
    } else if (job->op.status == STATUS_CONFLICT) {
        inquiry_refuse_task(q, job);
    } else if (inquiry_read_well(q, job)) {
        log_event(q->admin->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), r->work.now.call_id,
                  "round_asked_for", LOG_TEXT("operator", r->work.audit.who), LOG_NUMBER("task", job->op.id),
                  LOG_TEXT("key", r->work.now.key), LOG_TEXT("route", r->work.now.route),
                  LOG_TEXT("trace_id", r->work.now.trace_id));
        inquiry_tell_task(q, job->op.id, &r->page);
    }
    inquiry_done(job);
}

/* A MANUAL task gets one round more, also where it has had more than its route gives now: the route's rounds were lowered
 * since, or rounds only waited for a call at work. */
static void run_read(struct job *job)
{
    struct inquiry *q = job->owner;
    struct running *r = q->state;
    if (job->op.status == STATUS_NOT_FOUND || (job->op.status == STATUS_OK && !r->page.count)) {
        inquiry_refuse(q, PROBLEM_NO_SUCH_TASK, NULL, "no compensation task has this number");
    } else if (inquiry_read_well(q, job)) {
        const struct task_row *task = &r->page.tasks[0];
        const struct lane *lane = inquiry_lane(q, task->route);
        struct job *run = inquiry_job(q, STORE_TASK_RUN, run_asked);
        if (run) {
            r->work.task.granted = lane ? task->round + 1 - (int)lane->s->rounds : 0;
            r->work.audit.what = slice_text("run");
            run->op.id = job->op.id;
            run->op.work = &r->work;
            job_submit(run);
        }
    }
    inquiry_done(job);
}

void admin_task_run(struct inquiry *q)
{
    static const char *const members[] = {"operator", NULL};
    int64_t id;
    struct running *r;
    if (!inquiry_params(q, NULL, 0) || !inquiry_task_id(q, &id) || !(r = inquiry_state(q, sizeof *r)) ||
        !inquiry_members(q, q->json, "the body", members) || !inquiry_text(q, "operator", &r->work.audit.who))
        return;
    struct job *job = inquiry_job(q, STORE_TASK_READ, run_read);
    if (!job)
        return;
    job->op.id = id;
    job->op.page = &r->page;
    job_submit(job);
}
