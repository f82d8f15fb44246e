/* SPDX-License-Identifier: MIT
 *
 * Step 3: do receipts and effects agree, and does the order of writes explain where they do not?
 */
#include "forensics/judge_inside.h"

/* A receipt read this soon after the commit may have been on its way before it. */
#define RECEIPT_SLACK_US INT64_C(1000000)

void judge_receipt_of(struct judge *j, const struct call *call)
{
    const struct operation *op = &j->op;
    const struct event *effect = NULL, *written = NULL, *open = NULL, *lost = NULL;
    bool mended = false;
    for (size_t i = call->first; i < call->first + call->count; i++) {
        const struct event *e = operation_event(op, op->order[i]);
        if (e->kind == KIND_EFFECT && !effect)
            effect = e;
        if (e->kind == KIND_ROLLBACK && effect && slice_equal(e->text[TEXT_EXEC], effect->text[TEXT_EXEC]))
            effect = NULL;
        if (e->kind != KIND_RECEIPT_ANSWER && e->kind != KIND_RECEIPT_WRITTEN)
            continue;
        if (e->kind == KIND_RECEIPT_WRITTEN && !written)
            written = e;
        if (e->state == EVENT_STATE_SUCCESS) {
            mended = true;
        } else if (effect && e->us != MOMENT_NONE && effect->us != MOMENT_NONE &&
                   e->us - effect->us >= RECEIPT_SLACK_US) {
            mended = false;
            if (e->state == EVENT_STATE_NOT_RECEIVED && !lost)
                lost = e;
            else if ((e->state == EVENT_STATE_PROCESSING || e->state == EVENT_STATE_RECEIVED) && !open)
                open = e;
        }
    }
    if (mended || !effect || (!lost && !open))
        return;
    struct line_refs lines = {0};
    line_refs_add(&lines, effect);
    if (written)
        line_refs_add(&lines, written);
    line_refs_add(&lines, lost ? lost : open);
    const char *order = !written ? "no line tells of the receipt being written"
                        : written->us < effect->us
                            ? "the receipt was written before the effect and not after it"
                            : "the receipt was written after the effect, apart from it";
    judge_find(j, lost ? FINDING_RECEIPT_LOST : FINDING_RECEIPT_OPEN, written ? CERTAIN : LIKELY,
               judge_sayf(j, "the effect was committed and %.1f s later the receipt said %s; %s",
                          (double)((lost ? lost : open)->us - effect->us) / 1e6,
                          event_state_text((enum event_state)(lost ? lost : open)->state), order),
               &lines);
}

/* An operation that succeeded and whose effect no line tells of is odd only in logs that tell of effects. */
void judge_note_effect(struct judge *j)
{
    const struct operation *op = &j->op;
    struct line_refs lines = {0};
    bool success = false;
    for (size_t i = 0; i < op->group->count; i++) {
        const struct event *e = operation_event(op, (uint32_t)i);
        if ((e->kind == KIND_RECEIPT_ANSWER || e->kind == KIND_RECEIPT_WRITTEN || e->kind == KIND_DONE) &&
            e->state == EVENT_STATE_SUCCESS) {
            success = true;
            line_refs_add(&lines, e);
        }
    }
    if (op->runs) {
        j->with_effect += success && op->committed;
        if (!success || op->committed)
            return;
    }
    if (!success)
        return;
    size_t kept = sizeof j->no_effect / sizeof *j->no_effect;
    if (j->no_effect_count < kept)
        j->no_effect[j->no_effect_count] =
            (struct no_effect){diagnosis_copy(j->d, op->key), {0}, diagnosis_lines(j->d, &lines)};
    j->no_effect_count++;
}

void judge_missing_effects(struct judge *j)
{
    struct diagnosis *d = j->d;
    size_t kept = sizeof j->no_effect / sizeof *j->no_effect;
    if (j->no_effect_count && j->no_effect_count <= j->with_effect / 10 + 1 && j->with_effect >= 3) {
        for (size_t i = 0; i < j->no_effect_count && i < kept; i++) {
            struct finding f = {.code = FINDING_RECEIPT_NO_ROW,
                                .certainty = LIKELY,
                                .key = j->no_effect[i].key,
                                .text = diagnosis_format(d,
                                                         "SUCCESS, and no line tells of its effect, while "
                                                         "%llu other operations' effects are in the logs",
                                                         (unsigned long long)j->with_effect),
                                .lines = j->no_effect[i].lines};
            diagnosis_add_finding(d, &f);
        }
        d->by_code[FINDING_RECEIPT_NO_ROW] += j->no_effect_count;
        d->finding_count += j->no_effect_count;
    }
}
