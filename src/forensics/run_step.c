/* SPDX-License-Identifier: MIT
 *
 * Step 2: did one operation take effect more than once? Counted by executions, never by lines.
 */
#include "forensics/judge_inside.h"

/* One request with more runs than this is a batch that commits piece by piece. */
#define BATCH_RUNS 3

static struct slice runs_cause(struct judge *j, const struct verdict *v, bool *likely)
{
    const struct operation *op = &j->op;
    const struct call *first = NULL, *second = NULL;
    for (size_t i = 0; i < op->runs; i++) {
        if (op->run[i].rolled_back || op->run[i].reversed)
            continue;
        const struct call *c = &op->call[op->call_of[op->run[i].event]];
        if (!first)
            first = c;
        else if (!second || second == first)
            second = c;
    }
    if (v->any && !v->quiet && v->cause.len)
        return v->cause;
    if (!first || !second || first == second || !first->id.len || !second->id.len) {
        *likely = true;
        return judge_sayf(j, "the service ran one request %zu times", op->committed);
    }
    *likely = true;
    return judge_say(j, slice_text("two callIds ran the same business key"));
}

void judge_runs(struct judge *j, const struct verdict *v)
{
    struct operation *op = &j->op;
    struct diagnosis *d = j->d;
    if (op->committed < 2 || op->weak)
        return;
    if (v->quiet && op->posts >= op->committed)
        return; /* other occasions, one run each */
    if (op->posts <= 1 && !op->proxied && !op->posts_unseen && op->committed > BATCH_RUNS)
        return;
    if (op->posts_unseen && !op->run_ids)
        return; /* lines that speak of an effect, and nothing that tells runs apart */
    bool likely = !op->run_ids;
    struct slice cause = runs_cause(j, v, &likely);
    d->double_run_count++;
    if (d->double_runs.count >= DIAGNOSIS_FINDINGS_MAX) {
        d->double_runs.left_out++;
        d->by_code[FINDING_RAN_TWICE]++;
        d->finding_count++;
        d->findings.left_out++;
        return;
    }
    struct double_run r = {.key = diagnosis_copy(d, op->key), .cause = diagnosis_copy(d, cause)};
    r.certainty = likely ? LIKELY : CERTAIN;
    size_t n = op->committed < 64 ? op->committed : 64;
    r.exec = arena_take(&d->arena, n * sizeof *r.exec);
    r.call = arena_take(&d->arena, n * sizeof *r.call);
    if (!r.exec || !r.call) {
        d->failed = true;
        return;
    }
    struct line_refs lines = {0};
    for (size_t i = 0; i < op->runs && r.execs < n; i++) {
        if (op->run[i].rolled_back || op->run[i].reversed)
            continue;
        const struct event *e = operation_event(op, op->run[i].event);
        line_refs_add(&lines, e);
        r.exec[r.execs++] = diagnosis_copy(d, e->text[TEXT_EXEC]);
        bool known = !e->text[TEXT_CALL].len;
        for (size_t c = 0; c < r.calls && !known; c++)
            known = slice_equal(r.call[c], e->text[TEXT_CALL]);
        if (!known)
            r.call[r.calls++] = diagnosis_copy(d, e->text[TEXT_CALL]);
    }
    /* The order in which two runs committed says nothing; their names are put in order so that reports compare. */
    for (size_t i = 1; i < r.execs; i++)
        for (size_t k = i; k > 0; k--) {
            struct slice a = r.exec[k - 1], b = r.exec[k];
            size_t m = a.len < b.len ? a.len : b.len;
            int c = m ? memcmp(a.data, b.data, m) : 0;
            if (c < 0 || (c == 0 && a.len <= b.len))
                break;
            r.exec[k - 1] = b;
            r.exec[k] = a;
        }
    for (size_t i = 0; i < v->lines.count; i++) {
        struct event e = {.file = v->lines.ref[i].file, .line = v->lines.ref[i].line};
        line_refs_add(&lines, &e);
    }
    r.lines = diagnosis_lines(d, &lines);
    diagnosis_add_double_run(d, &r);
    judge_find(
        j, FINDING_RAN_TWICE, r.certainty,
        diagnosis_format(d, "it took effect %zu times: %.*s", op->committed, (int)r.cause.len, r.cause.data),
        &lines);
}
