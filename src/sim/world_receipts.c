/* SPDX-License-Identifier: MIT
 *
 * What is asked of the world's gateway beside calls, as receipts.c does it: reading a receipt, fencing a call, a service's
 * report.
 */
#include "core/receipt.h"
#include "sim/world_gate_parts.h"

static void looked_up(struct job *job)
{
    struct gate *g = job->gate;
    struct world *w = g->world;
    const struct world_call *c = gate_call(g, job->call);
    const struct rows *rows = &job->op.rows;
    bool beyond = !rows->call.id && c->id_time_ms && c->id_time_ms < rows->covers_since_ms;
    if (job->op.status == STATUS_OK && !beyond)
        judge_standing(w, job->call, rows, job->came_ms);
    gate_job_free(job);
}

void gate_begin_read(struct gate *g, uint32_t call)
{
    const struct world_call *c = gate_call(g, call);
    struct cache_entry *cached = gate_cache_find(g, &c->digest);
    if (cached && cached->rows.call.state == STATE_SUCCESS) {
        judge_standing(g->world, call, &cached->rows, gate_now(g));
        return;
    }
    struct job *job = gate_job(g, STORE_LOOKUP, NULL, call, looked_up);
    job->op.row.call_digest = c->digest;
    job->op.row.call_id = slice_text(c->id);
    gate_submit(job);
}

static void changed(struct job *job)
{
    struct gate *g = job->gate;
    struct world *w = g->world;
    const struct call_row *row = &job->op.rows.call;
    bool good = job->op.status == STATUS_OK || job->op.status == STATUS_CONFLICT;
    if (good && job->op.kind == STORE_FENCE) {
        if (job->op.done)
            gate_cache_drop(g, &gate_call(g, job->call)->digest);
        SAY(w, "gateway", "fence of %s: %s", gate_call(g, job->call)->id,
            job->op.done ? "done" : state_text(row->state));
        if (job->op.done || (row->state == STATE_FAILED && row->final))
            judge_answer(w, job->call, ANSWER_FAILED, slice_of("", 0), gate_now(g));
        else if (row->state == STATE_SUCCESS)
            judge_answer(w, job->call, ANSWER_SUCCESS, slice_of("", 0), gate_now(g));
    } else if (good && job->op.kind == STORE_END && job->op.status == STATUS_OK) {
        gate_cache_drop(g, &gate_call(g, job->call)->digest);
        SAY(w, "gateway", "takes the report on %s", gate_call(g, job->call)->id);
    }
    gate_job_free(job);
}

static void do_fence(struct gate *g, uint32_t call, bool names_key)
{
    struct world *w = g->world;
    const struct world_call *c = gate_call(g, call);
    const struct operation *o = &w->operations.list[c->operation];
    struct job *job = gate_job(g, STORE_FENCE, NULL, call, changed);
    struct call_row *row = &job->op.row;
    row->call_digest = c->digest;
    row->call_id = slice_text(c->id);
    row->owner = slice_text(g->owner);
    job->op.drop_kept = true;
    if (names_key && o->has_key) {
        row->has_key = true;
        row->route = slice_text("orders");
        row->scope = slice_text("orders /orders");
        row->key = slice_text(o->key);
        row->operation_digest = c->operation_digest;
    }
    row->result_expires_ms = row->key_expires_ms = row->tombstone_expires_ms =
        deadline_add(world_wall(w), w->rules.tombstone_life_ms);
    gate_submit(job);
}

static void fence_checked(struct job *job)
{
    if (job->op.status == STATUS_OK)
        do_fence(job->gate, job->call, job->owner != NULL);
    gate_job_free(job);
}

static void report_checked(struct job *job)
{
    struct gate *g = job->gate;
    const struct rules *r = &g->world->rules;
    const struct rows *rows = &job->op.rows;
    const struct call_row *row = &rows->call;
    enum call_state reported = job->owner ? STATE_SUCCESS : STATE_FAILED;
    bool ended_already = row->state == STATE_SUCCESS || row->state == STATE_FAILED;
    if (job->op.status == STATUS_OK && row->id && !(ended_already && row->state == reported)) {
        struct job *change = gate_job(g, ended_already ? STORE_TASK : STORE_END, NULL, job->call, changed);
        change->op.id = row->id;
        change->op.task_due_ms = rows->now_ms;
        change->op.task_cause = TASK_CAUSE_CONTRADICTED;
        change->op.drop_kept = true;
        if (!ended_already) {
            struct call_row *end = &change->op.row;
            end->state = reported;
            end->final = true;
            end->reason = REASON_REPORTED;
            end->attempt_count = row->attempt_count;
            end->result_expires_ms = deadline_add(rows->now_ms, r->result_life_ms);
            end->key_expires_ms = deadline_add(rows->now_ms, r->key_life_ms);
            end->tombstone_expires_ms = deadline_add(rows->now_ms, r->tombstone_life_ms);
            if (reported == STATE_SUCCESS) {
                end->has_result = end->body_kept = true;
                end->result_status = 200;
                end->result_headers = slice_text("Content-Type: application/json\r\n");
                end->result_body = slice_text("{\"reported\":true}");
            }
            change->op.any_fence = true;
            change->op.from_states = 1u << STATE_PROCESSING | 1u << STATE_UNKNOWN | 1u << STATE_RECEIVED;
        }
        gate_submit(change);
    }
    gate_job_free(job);
}

static void look_first(struct gate *g, uint32_t call, bool flag, void (*then)(struct job *))
{
    static char yes;
    const struct world_call *c = gate_call(g, call);
    struct job *job = gate_job(g, STORE_LOOKUP, flag ? &yes : NULL, call, then);
    job->op.row.call_digest = c->digest;
    job->op.row.call_id = slice_text(c->id);
    gate_submit(job);
}

void gate_report(struct gate *g, uint32_t call, bool success)
{
    SAY(g->world, "callee", "reports %s of %s", success ? "SUCCESS" : "FAILED", gate_call(g, call)->id);
    look_first(g, call, success, report_checked);
}

void gate_begin_fence(struct gate *g, uint32_t call, bool names_key)
{
    look_first(g, call, names_key, fence_checked);
}
