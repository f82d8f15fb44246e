/* SPDX-License-Identifier: MIT
 *
 * What the repeats of many calls show together, for each program that repeats: how often, after what waits, whether the
 * waits grow and differ, and whether many calls were repeated at one moment. Bounded: sums and samples only.
 */
#ifndef SAMEKEY_FORENSICS_POLICY_H
#define SAMEKEY_FORENSICS_POLICY_H

#include "forensics/diagnosis.h"

enum { POLICY_CALLERS = 128, POLICY_STEPS = 6, POLICY_SAMPLES = 65536 };

struct policy_caller {
    struct slice name;
    uint64_t repeats;
    struct {
        uint64_t n;
        double sum, squares, least, most; /* seconds */
    } wait[POLICY_STEPS];                 /* [0]: from the first try to the second */
    struct line_refs lines;
};

struct policy {
    struct policy_caller *caller; /* owned */
    size_t callers;
    struct repeat_time {
        int64_t us;
        struct line_ref ref;
    } * sample; /* owned; times of repeats, every n-th when there are many */
    size_t samples;
    uint64_t repeats, stride;
};

/* One repeat: the n-th try of its call (2 is the first repeat) after `wait_us`. The name is copied into d.
 * STATUS_NO_MEMORY. */
enum status policy_note(struct policy *p, struct diagnosis *d, struct slice caller, uint32_t n,
                        int64_t wait_us, const struct event *e);

/* Adds the findings. */
void policy_judge(struct policy *p, struct diagnosis *d);
void policy_fini(struct policy *p);

#endif
