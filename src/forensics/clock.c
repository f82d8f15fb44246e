/* SPDX-License-Identifier: MIT */
#include "forensics/clock.h"

#include <stdlib.h>

/* Clocks are read to the millisecond at best, and lines are written a little after what they tell of. */
#define READING_US INT64_C(2000)

enum status clocks_init(struct clocks *c, const struct gather *g)
{
    memset(c, 0, sizeof *c);
    c->count = g->origin_count;
    size_t compared = c->count < CLOCK_ORIGINS_MAX ? c->count : CLOCK_ORIGINS_MAX;
    c->offset_us = calloc(c->count ? c->count : 1, sizeof *c->offset_us);
    c->bounded = calloc(c->count ? c->count : 1, sizeof *c->bounded);
    c->bound = calloc(compared * compared + 1, sizeof *c->bound);
    if (!c->offset_us || !c->bounded || !c->bound)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < compared * compared; i++)
        c->bound[i] = (struct clock_bound){INT64_MIN / 4, INT64_MAX / 4, 0};
    return STATUS_OK;
}

static struct clock_bound *bound_at(struct clocks *c, size_t a, size_t b)
{
    return &c->bound[a * (c->count < CLOCK_ORIGINS_MAX ? c->count : CLOCK_ORIGINS_MAX) + b];
}

/* `before`, on its clock, happened before `after` on its own. */
static void order(struct clocks *c, const struct event *before, const struct event *after)
{
    if (before->origin == after->origin || before->us == MOMENT_NONE || after->us == MOMENT_NONE ||
        before->origin >= CLOCK_ORIGINS_MAX || after->origin >= CLOCK_ORIGINS_MAX)
        return;
    int64_t least = before->us - after->us; /* what must at least be added to `after` */
    struct clock_bound *ab = bound_at(c, before->origin, after->origin),
                       *ba = bound_at(c, after->origin, before->origin);
    if (least > ab->least)
        ab->least = least;
    if (-least < ba->most)
        ba->most = -least;
    ab->n++;
    ba->n++;
}

/* Within one attempt of one call: sent, seen, taken effect, answered. Calls with several attempts, or with one number
 * twice, are passed over: which answer belongs to which try is what the clocks are needed for. */
void clocks_learn(struct clocks *c, const struct group *g)
{
    const struct event *sent = NULL, *seen = NULL, *effect = NULL, *answered = NULL;
    if (c->count < 2 || g->count > 64)
        return;
    for (size_t i = 0; i < g->count; i++) {
        const struct event *e = &g->event[i];
        if (!slice_equal(e->text[TEXT_CALL], g->event[0].text[TEXT_CALL]))
            return;
        const struct event **at =
            e->kind == KIND_SENT      ? &sent
            : e->kind == KIND_REQUEST ? &seen
            : e->kind == KIND_EFFECT && (!effect || !slice_equal(effect->text[TEXT_EXEC], e->text[TEXT_EXEC]))
                ? &effect
            : e->kind == KIND_ANSWERED && sent && e->origin == sent->origin ? &answered
                                                                            : NULL;
        if (!at)
            continue;
        if (*at && e->kind != KIND_ANSWERED)
            return;
        *at = e;
    }
    if (!answered && sent)
        for (size_t i = 0; i < g->count; i++)
            if (g->event[i].kind == KIND_ANSWERED && g->event[i].origin == sent->origin)
                answered = &g->event[i];
    const struct event *inner = seen ? seen : effect;
    if (sent && inner)
        order(c, sent, inner);
    if (seen && effect)
        order(c, seen, effect);
    if (answered && effect && answered->status < 500)
        order(c, effect, answered);
    if (answered && seen)
        order(c, seen, answered);
}

void clocks_settle(struct clocks *c, const struct gather *g)
{
    size_t compared = c->count < CLOCK_ORIGINS_MAX ? c->count : CLOCK_ORIGINS_MAX;
    bool placed[CLOCK_ORIGINS_MAX] = {false};
    size_t reference = 0;
    for (size_t i = 0; i < c->count; i++) {
        bool better = !g->origin[i].unplaced &&
                      (g->origin[reference].unplaced || g->origin[i].events > g->origin[reference].events);
        if (better && i < compared)
            reference = i;
        if (g->origin[i].unplaced)
            c->offset_us[i] = MOMENT_NONE;
    }
    if (compared == 0)
        return;
    if (g->origin[reference].unplaced) { /* local clocks alone: they order their own lines well enough */
        memset(c->offset_us, 0, c->count * sizeof *c->offset_us);
        return;
    }
    placed[reference] = true;
    for (bool again = true; again;) {
        again = false;
        for (size_t a = 0; a < compared; a++) {
            for (size_t b = 0; placed[a] && c->offset_us[a] != MOMENT_NONE && b < compared; b++) {
                const struct clock_bound *k = bound_at(c, a, b);
                if (placed[b] || k->n == 0)
                    continue;
                placed[b] = again = true;
                c->bounded[b] = true;
                bool below = k->least > INT64_MIN / 8, above = k->most < INT64_MAX / 8;
                if (k->least > k->most + 2 * READING_US)
                    c->offset_us[b] = MOMENT_NONE;
                else if (k->least <= READING_US && k->most >= -READING_US && !g->origin[b].unplaced)
                    c->offset_us[b] = c->offset_us[a];
                else if (below && above)
                    c->offset_us[b] = c->offset_us[a] + k->least / 2 + k->most / 2;
                else if (!g->origin[b].unplaced)
                    c->offset_us[b] = c->offset_us[a] + (below ? k->least : k->most);
                else
                    placed[b] = false, c->bounded[b] = false, again = false;
            }
        }
    }
}

void clocks_fini(struct clocks *c)
{
    free(c->offset_us);
    free(c->bounded);
    free(c->bound);
    memset(c, 0, sizeof *c);
}
