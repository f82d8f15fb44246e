/* SPDX-License-Identifier: MIT
 *
 * GET /v1/audit: what people changed. The store gives all of a page's rows; the filters leave some out here.
 */
#include "gateway/admin_parts.h"

#include <stdio.h>

struct audit_filter {
    struct task_page page;
    struct slice call_id, operator, task;
    int64_t since_ms, until_ms;
    size_t limit;
};

void audit_members(struct buffer *out, const struct audit_row *audit)
{
    /* "resolve SUCCESS": what was done, and the ending it gave. */
    struct slice action = audit->what, outcome = {0};
    const char *space = action.len ? memchr(action.data, ' ', action.len) : NULL;
    if (space) {
        outcome = slice_of(space + 1, action.len - (size_t)(space + 1 - action.data));
        action.len = (size_t)(space - action.data);
    }
    member_id(out, "id", audit->id);
    member_time(out, "at", audit->at_ms);
    member_text(out, "operator", audit->who);
    member_text(out, "action", action);
    member_text(out, "outcome", outcome);
    member_text(out, "call_id", audit->call_id);
    member_tenant(out, audit->tenant);
    member_id(out, "task", audit->task);
    member_text(out, "evidence", audit->evidence);
}

void audit_list(struct buffer *out, const struct task_page *page)
{
    member_begin(out, "audit", '[');
    for (size_t i = 0; i < page->audit_count; i++) {
        buffer_text(out, i ? ",{" : "{");
        audit_members(out, &page->audits[i]);
        buffer_byte(out, '}');
    }
    buffer_byte(out, ']');
}

static bool wanted(const struct audit_filter *f, const struct audit_row *audit)
{
    char task[24];
    int len = snprintf(task, sizeof task, "%lld", (long long)audit->task);
    return (!f->call_id.len || slice_equal(f->call_id, audit->call_id)) &&
           (!f->operator.len || slice_equal(f->operator, audit->who)) &&
           (!f->task.len || slice_equal(f->task, slice_of(task, (size_t)len))) &&
           (!f->since_ms || audit->at_ms >= f->since_ms) && (!f->until_ms || audit->at_ms < f->until_ms);
}

static void listed(struct job *job)
{
    struct inquiry *q = job->owner;
    const struct audit_filter *f = q->state;
    if (inquiry_read_well(q, job)) {
        struct buffer out = {0};
        size_t told = 0, i = 0;
        buffer_text(&out, "{\"items\":[");
        for (; i < f->page.audit_count && told < f->limit; i++) {
            if (!wanted(f, &f->page.audits[i]))
                continue;
            buffer_text(&out, told++ ? ",{" : "{");
            audit_members(&out, &f->page.audits[i]);
            buffer_byte(&out, '}');
        }
        /* Rows of the store's page that did not fit any more begin the next one. */
        int64_t next = i < f->page.audit_count ? f->page.audits[i].id + 1 : f->page.next_before_id;
        list_end(&out, next, i ? f->page.audits[i - 1].at_ms : 0);
        inquiry_answer(q, 200, &out);
        buffer_fini(&out);
    }
    inquiry_done(job);
}

void admin_audit(struct inquiry *q)
{
    struct audit_filter *f = inquiry_state(q, sizeof *f);
    if (!f)
        return;
    const struct param params[] = {{"call_id", PARAM_WORD, &f->call_id, NULL},
                                   {"task", PARAM_WORD, &f->task, NULL},
                                   {
                                       "operator",
                                       PARAM_TEXT,
                                       &f->operator,
                                       NULL },
                                       {"tenant", PARAM_TEXT, &f->page.tenant, &f->page.has_tenant},
                                       {"since", PARAM_TIME, &f->since_ms, NULL},
                                       {"until", PARAM_TIME, &f->until_ms, NULL},
                                       {"limit", PARAM_LIMIT, &f->limit, NULL},
                                       {"cursor", PARAM_CURSOR, &f->page.before_id, NULL},
    };
    if (!inquiry_params(q, params, sizeof params / sizeof *params))
        return;
    struct job *job = inquiry_job(q, STORE_AUDIT_LIST, listed);
    if (!job)
        return;
    f->page.limit = STORE_PAGE_MAX;
    job->op.page = &f->page;
    job_submit(job);
}
