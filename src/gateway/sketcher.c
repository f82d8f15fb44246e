/* SPDX-License-Identifier: MIT */
#include "gateway/sketcher.h"

#include <stdlib.h>

#define SKETCH_BLOCKS  1    /* of 256 calls, in one step: some half a millisecond of the store's writer */
#define SKETCH_GAP_MS  1000 /* between two looks for something to do */
#define SKETCH_REST_MS 25   /* between two steps: 10000 calls a second are kept up with */

struct sketcher {
    struct shard *shard;
    struct net_timer timer;
    bool stopped;
};

static void on_timer(struct net_timer *timer);

static void sketched(struct job *job)
{
    struct sketcher *s = job->owner;
    bool more = job->op.status == STATUS_OK && job->op.more;
    job_free(job);
    if (!s->stopped)
        net_timer_arm(s->shard->loop, &s->timer,
                      net_loop_now(s->shard->loop) + (more ? SKETCH_REST_MS : SKETCH_GAP_MS), on_timer);
}

static void on_timer(struct net_timer *timer)
{
    struct sketcher *s = LIST_ENTRY(timer, struct sketcher, timer);
    struct job *job = job_new(s->shard, STORE_SKETCH, s, sketched);
    if (!job) {
        net_timer_arm(s->shard->loop, timer, net_loop_now(s->shard->loop) + SKETCH_GAP_MS, on_timer);
        return;
    }
    job->op.limit = SKETCH_BLOCKS;
    job_submit(job);
}

enum status sketcher_start(struct sketcher **out, struct shard *home)
{
    struct sketcher *s = calloc(1, sizeof *s);
    if (!s)
        return STATUS_NO_MEMORY;
    s->shard = home;
    net_timer_arm(home->loop, &s->timer, net_loop_now(home->loop) + SKETCH_GAP_MS, on_timer);
    *out = s;
    return STATUS_OK;
}

void sketcher_stop(struct sketcher *s)
{
    if (!s)
        return;
    s->stopped = true;
    net_timer_disarm(s->shard->loop, &s->timer);
}

void sketcher_free(struct sketcher *s)
{
    free(s);
}
