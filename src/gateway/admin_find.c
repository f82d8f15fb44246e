/* SPDX-License-Identifier: MIT
 *
 * Which call, which task a path names.
 */
#include "core/id.h"
#include "gateway/admin_parts.h"
#include "gateway/identity.h"

static void looked_up(struct job *job)
{
    struct inquiry *q = job->owner;
    if (q->request && job->op.any_tenant && job->op.status == STATUS_CONFLICT)
        inquiry_refuse(q, PROBLEM_AMBIGUOUS_CALL_ID, "tenant",
                       "several tenants have this callId: name one with ?tenant=");
    if (inquiry_read_well(q, job))
        q->found(job);
    else
        inquiry_done(job);
}

void inquiry_find_call(struct inquiry *q, void (*found)(struct job *job))
{
    const struct setup *setup = q->outlets->setup;
    struct hasher *hasher = &q->admin->shard->print.hasher;
    struct identity who = {0};
    bool named = false;
    const struct param params[] = {{"tenant", PARAM_TEXT, &who.tenant, &named}};
    if (callid_check(q->id) != STATUS_OK) {
        inquiry_refuse(q, PROBLEM_CALL_ID_INVALID, NULL, "a callId is 1 to 128 bytes of A-Z a-z 0-9 . _ : -");
        return;
    }
    if (!inquiry_params(q, params, 1))
        return;
    bool any = false;
    if (!named && (setup->has_tenant || setup->has_credential)) {
        /* The header that names a tenant serves as well; without either the callId must be one tenant's alone. */
        struct identity_inputs in = {
            .setup = setup, .head = request_head(q->request), .hasher = hasher, .arena = &q->arena};
        any = identity_read_principal(&who, &in) != PROBLEM_NONE;
        if (any)
            who.tenant = slice_of("", 0);
    }
    q->found = found;
    struct job *job = inquiry_job(q, STORE_LOOKUP, looked_up);
    if (!job)
        return;
    job->op.row.tenant = who.tenant;
    job->op.row.call_id = q->id;
    job->op.row.call_digest = digest_call(hasher, who.tenant, q->id);
    job->op.any_tenant = any;
    job_submit(job);
}

bool inquiry_task_id(struct inquiry *q, int64_t *id)
{
    if (!param_number(q->id, 1, INT64_MAX, id)) {
        inquiry_refuse(q, PROBLEM_NO_SUCH_TASK, NULL,
                       "a task is named by its number, as GET /v1/compensations lists it");
        return false;
    }
    return true;
}
