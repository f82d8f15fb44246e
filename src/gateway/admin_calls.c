/* SPDX-License-Identifier: MIT
 *
 * GET /v1/calls: a page of calls by filter.
 */
#include "gateway/admin_parts.h"

static void listed(struct job *job)
{
    struct inquiry *q = job->owner;
    const struct store_list *list = q->state;
    if (inquiry_read_well(q, job)) {
        struct buffer out = {0};
        buffer_text(&out, "{\"items\":[");
        for (size_t i = 0; i < list->count; i++) {
            buffer_text(&out, i ? ",{" : "{");
            call_members(&out, &list->rows[i]);
            buffer_byte(&out, '}');
        }
        list_end(&out, list->next_before_id, list->reached_ms);
        inquiry_answer(q, 200, &out);
        buffer_fini(&out);
    }
    inquiry_done(job);
}

void admin_calls(struct inquiry *q)
{
    struct store_list *list = inquiry_state(q, sizeof *list);
    if (!list)
        return;
    const struct param params[] = {
        {"state", PARAM_STATE, &list->states, NULL},
        {"route", PARAM_TEXT, &list->route, NULL},
        {"key", PARAM_WORD, &list->key, NULL},
        {"call_id", PARAM_WORD, &list->call_id, NULL},
        {"business_ref", PARAM_TEXT, &list->business_ref, NULL},
        {"trace_id", PARAM_WORD, &list->trace_id, NULL},
        {"tenant", PARAM_TEXT, &list->tenant, &list->has_tenant},
        {"since", PARAM_TIME, &list->since_ms, NULL},
        {"until", PARAM_TIME, &list->until_ms, NULL},
        {"limit", PARAM_LIMIT, &list->limit, NULL},
        {"cursor", PARAM_CURSOR, &list->before_id, NULL},
    };
    if (!inquiry_params(q, params, sizeof params / sizeof *params))
        return;
    struct job *job = inquiry_job(q, STORE_LIST, listed);
    if (!job)
        return;
    list->look_max = CALLS_LOOK_MAX;
    job->op.list = list;
    job_submit(job);
}
