/* SPDX-License-Identifier: MIT
 *
 * Inside the judge: what the files of the four steps share. Nobody else includes this.
 */
#ifndef SAMEKEY_FORENSICS_JUDGE_INSIDE_H
#define SAMEKEY_FORENSICS_JUDGE_INSIDE_H

#include "forensics/judge.h"

/* What is found out about one repeat: post `b` after post `a`. */
struct repeat {
    const struct event *a, *b;
    uint32_t a_number, b_number;
    const struct call *call; /* a's */
    enum label label;
    enum certainty certainty;
    bool lawful, quiet; /* quiet: another occasion, nothing to tell */
    enum finding_code code;
    struct slice text;
    struct between between;
    int64_t gap_us; /* MOMENT_NONE: not known */
};

/* What the repeats of one operation come to. */
struct verdict {
    enum label label;
    enum certainty certainty;
    bool lawful, any, quiet;
    struct slice text;  /* of the gravest repeat */
    struct slice cause; /* of the first unlawful one, else of the last lawful one */
    struct line_refs lines;
};

/* A sentence that lasts until the next operation; what is kept of it is copied. */
struct slice judge_say(struct judge *j, struct slice text);
struct slice judge_sayf(struct judge *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a finding about the operation being judged: the text and the lines are copied. */
void judge_find(struct judge *j, enum finding_code code, enum certainty certainty, struct slice text,
                const struct line_refs *lines);

/* repeat.c: what post i (from 1) of the operation repeats, and how. False: it repeats nothing. */
bool repeat_find(struct judge *j, size_t i, struct repeat *r);

/* Whether both events have this text, and it differs, or is the same. */
bool repeat_both_differ(const struct event *a, const struct event *b, enum event_text t);

/* run_step.c, key_step.c (step 2), receipt_step.c (step 3): each adds its findings. */
void judge_runs(struct judge *j, const struct verdict *v);
void judge_keys(struct judge *j);
void judge_cache(struct judge *j);
void judge_receipt_of(struct judge *j, const struct call *call);
void judge_note_effect(struct judge *j);
void judge_missing_effects(struct judge *j);

/* verdict.c: the entries of the report for one call and for the key. */
void judge_call(struct judge *j, const struct call *call);
void judge_list_key(struct judge *j, const struct verdict *v);

#endif
