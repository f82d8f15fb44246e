/* SPDX-License-Identifier: MIT */
#include "forensics/judge_inside.h"

#include "forensics/database.h"

#include <stdarg.h>
#include <stdio.h>

/* Bytes of the sentences about one operation. */
#define SCRATCH_BYTES_MAX (64u << 20)
/* Retries of one call that are no matter (CONTRACT section 7). */
#define RETRIES_MAX 3

struct slice judge_say(struct judge *j, struct slice text)
{
    struct slice out = {0};
    if (!arena_copy(&j->scratch, text, &out))
        j->d->failed = true;
    return out;
}

struct slice judge_sayf(struct judge *j, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return judge_say(j, slice_of(text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1));
}

/* ---- evidence ---- */

static void note_lines(const struct operation *op, uint32_t from, uint32_t to, struct line_refs *lines)
{
    for (uint32_t i = from; i <= to && i < op->group->count; i++) {
        const struct event *e = operation_event(op, i);
        if (e->kind != KIND_OTHER && e->kind != KIND_DAMAGED)
            line_refs_add(lines, e);
    }
}

static void add_timeline(struct judge *j, struct finding *f)
{
    const struct group *g = j->op.group;
    size_t n = g->count < DIAGNOSIS_EVENTS_MAX ? g->count : DIAGNOSIS_EVENTS_MAX;
    if (j->d->findings.count >= DIAGNOSIS_FINDINGS_MAX / 10)
        return; /* a report with more timelines is read by nobody */
    f->timeline = arena_take(&j->d->arena, n * sizeof *f->timeline);
    if (!f->timeline) {
        j->d->failed = true;
        return;
    }
    f->timeline_count = n;
    for (size_t i = 0; i < n; i++) {
        const struct event *e = &g->event[i];
        f->timeline[i] = (struct moment_of){.us = e->us,
                                            .ref = {e->file, e->line},
                                            .status = e->status,
                                            .attempt = e->attempt,
                                            .kind = e->kind,
                                            .state = e->state,
                                            .node = diagnosis_copy(j->d, e->text[TEXT_NODE]),
                                            .call = diagnosis_copy(j->d, e->text[TEXT_CALL]),
                                            .exec = diagnosis_copy(j->d, e->text[TEXT_EXEC])};
    }
}

void judge_find(struct judge *j, enum finding_code code, enum certainty certainty, struct slice text,
                const struct line_refs *lines)
{
    struct diagnosis *d = j->d;
    d->by_code[code]++;
    d->finding_count++;
    if (d->findings.count >= DIAGNOSIS_FINDINGS_MAX) {
        d->findings.left_out++;
        return;
    }
    struct finding f = {.code = code,
                        .certainty = certainty,
                        .key = diagnosis_copy(d, j->op.key),
                        .text = diagnosis_copy(d, text),
                        .lines = diagnosis_lines(d, lines)};
    add_timeline(j, &f);
    diagnosis_add_finding(d, &f);
}

/* ---- steps 1 and 4: the repeats ---- */

static struct slice caller_of(const struct event *e)
{
    static const enum event_text who[] = {TEXT_AGENT, TEXT_VIA, TEXT_PEER, TEXT_NODE};
    for (size_t i = 0; i < sizeof who / sizeof *who; i++)
        if (e->text[who[i]].len)
            return e->text[who[i]];
    return slice_text("unnamed caller");
}

static enum status judge_repeats(struct judge *j, struct verdict *v)
{
    const struct operation *op = &j->op;
    bool told[FINDING_COUNT] = {false};
    *v = (struct verdict){.label = LABEL_SINGLE, .certainty = CERTAIN, .lawful = true};
    bool all_quiet = op->posts > 1, unlawful = false;
    struct {
        bool any;
        enum certainty certainty;
        struct slice text;
        struct line_refs lines;
    } found[FINDING_COUNT];
    memset(found, 0, sizeof found);
    for (size_t i = 1; i < op->posts; i++) {
        struct repeat r;
        if (!repeat_find(j, i, &r))
            continue;
        if (r.quiet)
            continue;
        all_quiet = false;
        uint32_t nth = 0;
        if (r.call == &op->call[op->call_of[r.b_number]] && r.label != LABEL_DOUBLE_DISPATCH) {
            for (size_t k = 0; k <= i; k++)
                nth += op->call_of[op->post[k]] == op->call_of[r.b_number];
            int64_t wait = r.gap_us;
            const struct event *end = r.between.timeout ? r.between.timeout : r.between.answer;
            if (end && end->us != MOMENT_NONE && r.b->us != MOMENT_NONE)
                wait = r.b->us - end->us;
            enum status status =
                policy_note(&j->policy, j->d, caller_of(r.b), nth, wait == MOMENT_NONE ? -1 : wait, r.b);
            if (status != STATUS_OK)
                return status;
        }
        note_lines(op, r.a_number, r.b_number, &v->lines);
        bool graver =
            !v->any || (unlawful ? !r.lawful && r.label > v->label : !r.lawful || r.label > v->label);
        if (graver) {
            v->label = r.label;
            v->text = r.text;
            v->lawful = r.lawful;
        }
        if (!v->any || (r.label == v->label && r.certainty > v->certainty) || graver)
            v->certainty = r.certainty;
        if (!unlawful)
            v->cause = r.text;
        v->any = true;
        unlawful = unlawful || !r.lawful;
        if (r.lawful)
            continue;
        found[r.code].certainty = told[r.code] && found[r.code].certainty == LIKELY ? LIKELY : r.certainty;
        if (!told[r.code])
            found[r.code].text = r.text;
        told[r.code] = found[r.code].any = true;
        note_lines(op, r.a_number, r.b_number, &found[r.code].lines);
    }
    v->quiet = all_quiet;
    for (int c = 0; c < FINDING_COUNT; c++)
        if (found[c].any)
            judge_find(j, (enum finding_code)c, found[c].certainty, found[c].text, &found[c].lines);
    return STATUS_OK;
}

/* A proxy that says itself that it asked several servers. */
static void judge_proxies(struct judge *j, struct verdict *v)
{
    const struct group *g = j->op.group;
    if (j->op.proxied == 0)
        return;
    struct line_refs lines = {0};
    struct slice text = {0};
    for (size_t i = 0; i < g->count; i++) {
        const struct event *e = &g->event[i];
        if (e->kind != KIND_PROXY || !memchr(e->text[TEXT_UPSTREAM].data, ',', e->text[TEXT_UPSTREAM].len))
            continue;
        line_refs_add(&lines, e);
        if (!text.len)
            text = judge_sayf(j, "the proxy asked %.*s and got %.*s", (int)e->text[TEXT_UPSTREAM].len,
                              e->text[TEXT_UPSTREAM].data, (int)e->text[TEXT_UPSTREAM_STATUS].len,
                              e->text[TEXT_UPSTREAM_STATUS].data);
    }
    for (size_t i = 0; i < g->count; i++)
        if (g->event[i].kind == KIND_REQUEST)
            line_refs_add(&lines, &g->event[i]);
    if (v->label < LABEL_PROXY_FAILOVER) {
        v->label = LABEL_PROXY_FAILOVER;
        v->certainty = CERTAIN;
        v->lawful = false;
        v->text = v->cause = text;
        v->lines = lines;
    } else if (j->op.posts > 1) {
        return; /* told already, by the requests themselves */
    }
    v->any = true;
    judge_find(j, FINDING_PROXY_FAILOVER, CERTAIN, text, &lines);
}

static void judge_layers(struct judge *j, const struct verdict *v)
{
    const struct operation *op = &j->op;
    const struct group *g = op->group;
    for (size_t c = 0; c < op->calls; c++) {
        const struct call *call = &op->call[c];
        const struct event *first = NULL, *second = NULL;
        for (size_t i = call->first; i < call->first + call->count && !second; i++) {
            const struct event *e = &g->event[op->order[i]];
            if (e->kind != KIND_SENT || e->attempt < 2)
                continue;
            if (!first)
                first = e;
            else if (repeat_both_differ(first, e, TEXT_NODE))
                second = e;
        }
        if (second) {
            struct line_refs lines = {0};
            line_refs_add(&lines, first);
            line_refs_add(&lines, second);
            judge_find(j, FINDING_STACKED, CERTAIN,
                       judge_sayf(j, "%.*s and %.*s both retry it", (int)first->text[TEXT_NODE].len,
                                  first->text[TEXT_NODE].data, (int)second->text[TEXT_NODE].len,
                                  second->text[TEXT_NODE].data),
                       &lines);
        }
        if (call->posts > RETRIES_MAX + 1 && call->id.len && !call->weak)
            judge_find(j, FINDING_MANY_RETRIES, CERTAIN, judge_sayf(j, "%u tries of one call", call->posts),
                       &v->lines);
    }
}

/* ---- all steps ---- */

enum status judge_group(struct judge *j, struct group *group)
{
    struct diagnosis *d = j->d;
    struct verdict v;
    d->shipped_twice += group->shipped_twice;
    d->left_out_events += group->left_out;
    arena_clear(&j->scratch);
    enum status status = operation_make(&j->op, group);
    if (status != STATUS_OK)
        return status;
    const struct operation *op = &j->op;
    for (size_t i = 0; i < group->count; i++) {
        d->replays += group->event[i].kind == KIND_REPLAY;
        j->receipts_seen = j->receipts_seen || group->event[i].kind == KIND_RECEIPT_ANSWER;
    }
    d->business_keys += op->keyed && !op->weak;
    status = judge_repeats(j, &v);
    if (status != STATUS_OK)
        return status;
    judge_proxies(j, &v);
    if (op->posts > 1)
        judge_layers(j, &v);
    judge_runs(j, &v);
    judge_keys(j);
    judge_cache(j);
    judge_list_key(j, &v);
    for (size_t c = 0; c < op->calls; c++) {
        if (op->call[c].id.len && !op->weak)
            judge_call(j, &op->call[c]);
        judge_receipt_of(j, &op->call[c]);
    }
    judge_note_effect(j);
    return d->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

static void find_in_table(struct judge *j, enum finding_code code, struct slice key, struct slice text)
{
    struct diagnosis *d = j->d;
    static const struct line_refs none;
    struct finding f = {
        .code = code, .certainty = CERTAIN, .key = key, .text = text, .lines = diagnosis_lines(d, &none)};
    d->by_code[code]++;
    d->finding_count++;
    diagnosis_add_finding(d, &f);
}

void judge_key_column(struct judge *j, const char *table, const char *column, const struct key_column *k)
{
    struct slice key = diagnosis_format(j->d, "%s.%s", table, column);
    if (!k->unique)
        find_in_table(j, FINDING_NO_UNIQUE_INDEX, key,
                      diagnosis_format(j->d, "no index makes it unique%s%.*s", k->near_misses.len ? ": " : "",
                                       (int)k->near_misses.len,
                                       k->near_misses.data ? k->near_misses.data : ""));
    if (k->duplicates)
        find_in_table(j, FINDING_KEY_TWICE_IN_TABLE, key,
                      diagnosis_format(j->d, "%llu keys are there more than once: %.*s",
                                       (unsigned long long)k->duplicates, (int)k->examples.len,
                                       k->examples.data ? k->examples.data : ""));
}

enum status judge_end(struct judge *j)
{
    judge_missing_effects(j);
    policy_judge(&j->policy, j->d);
    diagnosis_sort(j->d);
    return j->d->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

void judge_init(struct judge *j, struct diagnosis *d, const struct facts *facts)
{
    memset(j, 0, sizeof *j);
    j->d = d;
    j->facts = facts;
    arena_init(&j->scratch, SCRATCH_BYTES_MAX);
}

void judge_fini(struct judge *j)
{
    arena_fini(&j->scratch);
    operation_fini(&j->op);
    policy_fini(&j->policy);
}
