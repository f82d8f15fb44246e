/* SPDX-License-Identifier: MIT
 *
 * What the report says of one call and of one key.
 */
#include "forensics/judge_inside.h"

static void add_note(struct buffer *notes, const char *text)
{
    if (notes->len)
        buffer_text(notes, "; ");
    buffer_text(notes, text);
}

void judge_call(struct judge *j, const struct call *call)
{
    const struct operation *op = &j->op;
    struct diagnosis *d = j->d;
    struct between s;
    struct buffer notes = {0};
    size_t copies = 0, replays = 0, damaged = 0, committed = 0, rolled_back = 0, logged_again = 0;
    bool receipt_success = false, receipt_failed = false;
    operation_between(op, call, UINT32_MAX, UINT32_MAX, &s);
    for (size_t i = call->first; i < call->first + call->count; i++) {
        const struct event *e = operation_event(op, op->order[i]);
        copies += e->copies;
        replays += e->kind == KIND_REPLAY;
        damaged += e->kind == KIND_DAMAGED;
        if (e->kind == KIND_RECEIPT_ANSWER || e->kind == KIND_RECEIPT_WRITTEN) {
            receipt_success = receipt_success || e->state == EVENT_STATE_SUCCESS;
            receipt_failed = e->state == EVENT_STATE_FAILED;
        }
        if (i > call->first && e->kind == KIND_EFFECT && e->text[TEXT_EXEC].len)
            for (size_t k = call->first; k < i && i - call->first < 64; k++) {
                const struct event *before = operation_event(op, op->order[k]);
                if (before->kind == KIND_EFFECT && slice_equal(before->text[TEXT_EXEC], e->text[TEXT_EXEC])) {
                    logged_again++;
                    break;
                }
            }
    }
    for (size_t i = 0; i < op->runs; i++) {
        const struct call *c = &op->call[op->call_of[op->run[i].event]];
        if (c != call && !(op->calls == 2 &&
                           !c->id.len)) /* an effect without a callId belongs to the only call there is */
            continue;
        committed += !op->run[i].rolled_back;
        rolled_back += op->run[i].rolled_back;
    }
    bool said_unknown = s.done && s.done->state == EVENT_STATE_UNKNOWN;
    bool said_failed = s.done && s.done->state == EVENT_STATE_FAILED;
    bool said_success = s.done && s.done->state == EVENT_STATE_SUCCESS;
    struct call_entry c = {.verdict = EVENT_STATE_UNKNOWN};
    if (committed || receipt_success || said_success || replays || (s.succeeded && s.answer))
        c.verdict = EVENT_STATE_SUCCESS;
    else if (said_failed || receipt_failed || s.rejected || s.failed || s.not_executed)
        c.verdict = EVENT_STATE_FAILED;
    if (c.verdict == EVENT_STATE_SUCCESS && (said_unknown || said_failed))
        add_note(&notes, committed
                             ? (said_unknown ? "it ended UNKNOWN at its caller, but its effect is in the log"
                                             : "it ended FAILED at its caller, but its effect is in the log")
                             : "its caller's last word is not SUCCESS, but a receipt or an answer is");
    if (c.verdict == EVENT_STATE_UNKNOWN)
        add_note(&notes, s.timeout ? "it timed out and neither an effect nor a receipt is in the log"
                                   : "no line says how it ended");
    if (copies)
        add_note(&notes, copies == 1 ? "one of its lines was shipped twice"
                                     : "several of its lines were shipped twice");
    if (logged_again)
        add_note(&notes, "one execution was logged more than once");
    if (replays)
        buffer_format(&notes, "%s%zu replay%s", notes.len ? "; " : "", replays, replays > 1 ? "s" : "");
    if (rolled_back && committed)
        add_note(&notes, "the first run was rolled back");
    else if (rolled_back)
        add_note(&notes, "its run was rolled back");
    if (damaged)
        buffer_format(&notes, "%s%zu of its lines could not be read, so this verdict lacks what they said",
                      notes.len ? "; " : "", damaged);
    d->call_ids++;
    d->verdicts[c.verdict]++;
    bool clean = c.verdict != EVENT_STATE_UNKNOWN && !notes.len;
    uint64_t max = clean ? DIAGNOSIS_CLEAN_MAX : DIAGNOSIS_CLEAN_MAX + DIAGNOSIS_FINDINGS_MAX;
    if (d->calls.count < max) {
        c.call = diagnosis_copy(d, call->id);
        c.key = diagnosis_copy(d, op->key);
        c.notes = diagnosis_copy(d, buffer_view(&notes));
        diagnosis_add_call(d, &c);
    } else {
        d->calls.left_out++;
    }
    buffer_fini(&notes);
}

void judge_list_key(struct judge *j, const struct verdict *v)
{
    const struct operation *op = &j->op;
    struct diagnosis *d = j->d;
    if (op->posts == 0 || (op->weak && (v->quiet || !v->any)))
        return;
    d->by_label[v->label]++;
    bool clean = v->lawful;
    if (d->keys.count >= (clean ? DIAGNOSIS_CLEAN_MAX : DIAGNOSIS_CLEAN_MAX + DIAGNOSIS_FINDINGS_MAX)) {
        d->keys.left_out++;
        return;
    }
    struct line_refs lines = v->lines;
    if (lines.count == 0)
        for (size_t i = 0; i < op->posts; i++)
            line_refs_add(&lines, operation_event(op, op->post[i]));
    bool by_proxy = operation_event(op, op->post[0])->kind == KIND_PROXY;
    struct key_entry k = {.key = diagnosis_copy(d, op->key),
                          .posts = (uint32_t)op->posts + (by_proxy ? op->proxied : 0),
                          .label = v->label,
                          .certainty = v->certainty,
                          .lawful = v->lawful,
                          .text = diagnosis_copy(d, v->text),
                          .lines = diagnosis_lines(d, &lines)};
    diagnosis_add_key(d, &k);
}
