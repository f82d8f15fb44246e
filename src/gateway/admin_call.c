/* SPDX-License-Identifier: MIT
 *
 * GET /v1/calls/ID: the receipt document of one call with all that belongs to it; and POST …/erase.
 *
 *   find the call ──▶ its task, rounds and audit ──▶ other calls of its trace ──▶ answer
 *        └── erase: drop its bodies, then the same
 */
#include "core/id.h"
#include "gateway/admin_parts.h"
#include "gateway/endings.h"

#include <stdlib.h>

#define SAME_TRACE_MAX 50

struct view {
    struct job *call; /* holds the rows */
    struct job *task; /* holds the texts of the page */
    struct task_page page;
    struct store_list list;
    struct task_work work; /* of an erasure */
};

static void view_free(void *state)
{
    struct view *v = state;
    if (!v)
        return;
    job_free(v->call);
    job_free(v->task);
    free(v);
}

/* Without the member itself: what the receipt document of the call says stays as it is. */
static void open_document(struct buffer *out)
{
    while (out->len && out->data[out->len - 1] != '}')
        out->len--;
    if (out->len)
        out->len--;
}

static void add_standing(struct buffer *out, const struct call_row *row)
{
    char mark[CREDENTIAL_MARK_BYTES] = "";
    bool runs = row->state == STATE_PROCESSING;
    if (row->has_credential)
        credential_mark(&row->credential, mark);
    member_id(out, "id", row->id);
    member_tenant(out, row->tenant);
    member_text(out, "credential", slice_text(mark));
    member_bool(out, "maybe_ran", row->maybe_ran);
    member_text(out, "state_sentence", slice_text(state_sentence(row->state)));
    member_text(out, "reason_sentence", slice_text(row->reason ? reason_sentence(row->reason) : ""));
    member_text(out, "owner", runs ? row->owner : slice_of("", 0));
    member_number(out, "fence", row->fence);
    member_time(out, "lease_until", runs ? row->lease_end_ms : 0);
    member_time(out, "first_attempt_at", row->first_attempt_ms);
    member_time(out, "ended_at", row->ended_ms);
}

static void add_trace(struct buffer *out, const struct view *v, int64_t own)
{
    size_t told = 0;
    member_begin(out, "same_trace", '[');
    for (size_t i = 0; i < v->list.count && told < SAME_TRACE_MAX; i++) {
        if (v->list.rows[i].id == own)
            continue;
        buffer_text(out, told++ ? ",{" : "{");
        call_members(out, &v->list.rows[i]);
        buffer_byte(out, '}');
    }
    buffer_byte(out, ']');
}

static void answer(struct inquiry *q)
{
    struct view *v = q->state;
    const struct rows *rows = &v->call->op.rows;
    struct buffer out = {0};
    receipt_document(&out, rows, q->id);
    open_document(&out);
    add_standing(&out, &rows->call);
    if (v->page.count) {
        member_begin(&out, "compensation", '{');
        task_members(&out, q, &v->page.tasks[0]);
        task_history(&out, &v->page);
        buffer_byte(&out, '}');
    } else {
        member_text(&out, "compensation", slice_of("", 0));
    }
    audit_list(&out, &v->page);
    add_trace(&out, v, rows->call.id);
    buffer_text(&out, "}\n");
    inquiry_answer(q, rows->call.id ? 200 : 404, &out);
    buffer_fini(&out);
}

static void traced(struct job *job)
{
    struct inquiry *q = job->owner;
    if (inquiry_read_well(q, job))
        answer(q);
    inquiry_done(job);
}

static void task_read(struct job *job)
{
    struct inquiry *q = job->owner;
    struct view *v = q->state;
    if (!inquiry_read_well(q, job)) {
        inquiry_done(job);
        return;
    }
    v->task = job;
    struct slice trace = v->call->op.rows.call.trace_id;
    struct job *next = trace.len ? inquiry_job(q, STORE_LIST, traced) : NULL;
    if (next) {
        v->list.trace_id = trace;
        v->list.limit = SAME_TRACE_MAX + 1;
        v->list.look_max = CALLS_LOOK_MAX;
        next->op.list = &v->list;
        job_submit(next);
    } else if (!trace.len) {
        answer(q);
    }
    inquiry_drop(q);
}

static void answer_nothing_known(struct inquiry *q, const struct rows *rows)
{
    int64_t made_ms = 0;
    (void)callid_time(q->id, &made_ms);
    if (!made_ms || made_ms >= rows->covers_since_ms) {
        answer(q);
        return;
    }
    struct buffer out = {0};
    receipt_unknown_document(&out, q->id, REASON_BEYOND_RETENTION, rows->covers_since_ms);
    inquiry_answer(q, 410, &out);
    buffer_fini(&out);
}

static void call_found(struct job *job)
{
    struct inquiry *q = job->owner;
    struct view *v = q->state;
    if (!inquiry_read_well(q, job)) {
        inquiry_done(job);
        return;
    }
    job_free(v->call);
    v->call = job;
    if (!job->op.rows.call.id) {
        answer_nothing_known(q, &job->op.rows);
    } else {
        struct job *next = inquiry_job(q, STORE_TASK_READ, task_read);
        if (next) {
            next->op.row.id = job->op.rows.call.id;
            next->op.page = &v->page;
            job_submit(next);
        }
    }
    inquiry_drop(q);
}

static struct view *view_new(struct inquiry *q)
{
    struct view *v = inquiry_state(q, sizeof *v);
    if (v)
        q->state_free = view_free;
    return v;
}

void admin_call(struct inquiry *q)
{
    if (view_new(q))
        inquiry_find_call(q, call_found);
}

/* ---- erase -------------------------------------------------------------------------------------------------- */

static void erased(struct job *job)
{
    struct inquiry *q = job->owner;
    struct view *v = q->state;
    const struct call_row *row = &job->op.rows.call;
    struct shard *shard = q->admin->shard;
    if (job->op.status == STATUS_CONFLICT) {
        inquiry_refuse_state(
            q, PROBLEM_CALL_IN_PROGRESS,
            "the call has no final ending, so its bodies are still needed; nothing was changed", row->state);
    } else if (inquiry_read_well(q, job)) {
        endings_forget(shard, &row->call_digest);
        if (row->original_call_id.len) {
            struct digest original = digest_call(&shard->print.hasher, row->tenant, row->original_call_id);
            endings_forget(shard, &original);
        }
        log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), row->call_id, "erased",
                  LOG_TEXT("operator", v->work.audit.who), LOG_TEXT("peer", request_peer(q->request)),
                  LOG_TEXT("key", row->key), LOG_TEXT("route", row->route),
                  LOG_TEXT("trace_id", row->trace_id));
        struct job *again = inquiry_job(q, STORE_READ, call_found);
        if (again) {
            again->op.id = row->id;
            job_submit(again);
        }
    }
    inquiry_done(job);
}

static void erase_found(struct job *job)
{
    struct inquiry *q = job->owner;
    struct view *v = q->state;
    if (q->request && !job->op.rows.call.id) {
        v->call = job;
        answer_nothing_known(q, &job->op.rows);
        inquiry_drop(q);
        return;
    }
    if (q->request) {
        struct job *next = inquiry_job(q, STORE_ERASE, erased);
        if (next) {
            next->op.id = job->op.rows.call.id;
            next->op.work = &v->work;
            job_submit(next);
        }
    }
    inquiry_done(job);
}

void admin_call_erase(struct inquiry *q)
{
    static const char *const members[] = {"operator", "evidence", NULL};
    struct view *v = view_new(q);
    if (!v || !inquiry_members(q, q->json, "the body", members) ||
        !inquiry_text(q, "operator", &v->work.audit.who) ||
        !inquiry_text(q, "evidence", &v->work.audit.evidence))
        return;
    v->work.audit.what = slice_text("erase");
    inquiry_find_call(q, erase_found);
}
