/* SPDX-License-Identifier: MIT */
#include "forensics/policy.h"

#include <math.h>
#include <stdlib.h>

/* Fewer repeats than this show no habit. */
#define HABIT_MIN 10
/* Repeats within one WAVE_US that make a wave, when they are also WAVE_RATIO times what an even spread would give. */
#define WAVE_US    INT64_C(100000)
#define WAVE_MIN   20
#define WAVE_RATIO 5.0

enum status policy_note(struct policy *p, struct diagnosis *d, struct slice caller, uint32_t n,
                        int64_t wait_us, const struct event *e)
{
    if (!p->caller) {
        p->caller = calloc(POLICY_CALLERS, sizeof *p->caller);
        p->sample = malloc(POLICY_SAMPLES * sizeof *p->sample);
        p->stride = 1;
        if (!p->caller || !p->sample)
            return STATUS_NO_MEMORY;
    }
    struct policy_caller *c = NULL;
    for (size_t i = 0; i < p->callers && !c; i++)
        c = slice_equal(p->caller[i].name, caller) ? &p->caller[i] : NULL;
    if (!c && p->callers < POLICY_CALLERS) {
        c = &p->caller[p->callers++];
        c->name = diagnosis_copy(d, caller);
    }
    if (c && n >= 2 && wait_us >= 0) {
        size_t step = n - 2 < POLICY_STEPS ? n - 2 : POLICY_STEPS - 1;
        double s = (double)wait_us / 1e6;
        c->repeats++;
        line_refs_add(&c->lines, e);
        if (c->wait[step].n++ == 0)
            c->wait[step].least = c->wait[step].most = s;
        c->wait[step].sum += s;
        c->wait[step].squares += s * s;
        c->wait[step].least = fmin(c->wait[step].least, s);
        c->wait[step].most = fmax(c->wait[step].most, s);
    }
    if (e->us == MOMENT_NONE)
        return STATUS_OK;
    if (p->repeats++ % p->stride == 0) {
        if (p->samples ==
            POLICY_SAMPLES) { /* every second one stays, and every second one counts from now on */
            for (size_t i = 0; i < POLICY_SAMPLES / 2; i++)
                p->sample[i] = p->sample[2 * i];
            p->samples /= 2;
            p->stride *= 2;
        }
        p->sample[p->samples++] = (struct repeat_time){e->us, {e->file, e->line}};
    }
    return STATUS_OK;
}

static int by_time(const void *a, const void *b)
{
    const struct repeat_time *x = a, *y = b;
    return x->us < y->us ? -1 : x->us > y->us;
}

static void find_wave(struct policy *p, struct diagnosis *d)
{
    size_t best = 0, best_from = 0;
    if (p->samples < WAVE_MIN)
        return;
    qsort(p->sample, p->samples, sizeof *p->sample, by_time);
    for (size_t from = 0, to = 0; from < p->samples; from++) {
        while (to < p->samples && p->sample[to].us - p->sample[from].us < WAVE_US)
            to++;
        if (to - from > best)
            best = to - from, best_from = from;
    }
    double span = (double)(p->sample[p->samples - 1].us - p->sample[0].us) / (double)WAVE_US + 1;
    double even = (double)p->samples / span;
    if (best < WAVE_MIN || (double)best < WAVE_RATIO * even)
        return;
    struct line_refs lines = {0};
    for (size_t i = best_from; i < best_from + best; i++) {
        struct event e = {.file = p->sample[i].ref.file, .line = p->sample[i].ref.line};
        line_refs_add(&lines, &e);
    }
    struct finding f = {
        .code = FINDING_WAVE,
        .certainty = CERTAIN,
        .key = diagnosis_copy(d, slice_text("all callers")),
        .text = diagnosis_format(d, "%llu repeats within 0.1 s", (unsigned long long)best * p->stride),
        .lines = diagnosis_lines(d, &lines)};
    d->by_code[f.code]++;
    d->finding_count++;
    diagnosis_add_finding(d, &f);
}

static void habit(struct diagnosis *d, struct policy_caller *c, enum finding_code code, struct slice text)
{
    struct finding f = {.code = code,
                        .certainty = LIKELY,
                        .key = c->name,
                        .text = text,
                        .lines = diagnosis_lines(d, &c->lines)};
    d->by_code[code]++;
    d->finding_count++;
    diagnosis_add_finding(d, &f);
}

void policy_judge(struct policy *p, struct diagnosis *d)
{
    for (size_t i = 0; i < p->callers; i++) {
        struct policy_caller *c = &p->caller[i];
        double mean[2], spread = 0;
        for (int s = 0; s < 2; s++)
            mean[s] = c->wait[s].n ? c->wait[s].sum / (double)c->wait[s].n : 0;
        if (c->wait[0].n >= HABIT_MIN) {
            double n = (double)c->wait[0].n;
            spread = sqrt(fmax(0, c->wait[0].squares / n - mean[0] * mean[0]));
            if (spread < 0.02 * mean[0])
                habit(d, c, FINDING_NO_JITTER,
                      diagnosis_format(d, "the first wait is %.2f s in all of %llu repeats", mean[0],
                                       (unsigned long long)c->wait[0].n));
        }
        if (c->wait[0].n >= HABIT_MIN && c->wait[1].n >= HABIT_MIN && mean[1] < 1.2 * mean[0])
            habit(d, c, FINDING_NO_GROWTH,
                  diagnosis_format(d, "%.2f s before the first repeat and %.2f s before the second", mean[0],
                                   mean[1]));
    }
    find_wave(p, d);
}

void policy_fini(struct policy *p)
{
    free(p->caller);
    free(p->sample);
    *p = (struct policy){0};
}
