/* SPDX-License-Identifier: MIT */
#include "forensics/diagnose.h"

#include "forensics/database.h"

/* Operations the clocks are compared by; more would not move the result. */
#define CLOCK_GROUPS_MAX 200000

enum status diagnose_init(struct diagnose *x, char *const *paths, size_t count, const char *folder,
                          size_t memory_bytes)
{
    memset(x, 0, sizeof *x);
    diagnosis_init(&x->diagnosis);
    x->memory_bytes = memory_bytes;
    return gather_init(&x->gather, paths, count, folder, memory_bytes);
}

static void reading(void *context, double share)
{
    struct diagnose *x = context;
    x->progress(x->progress_context, "reading", share);
}

struct clock_lesson {
    struct clocks *clocks;
    uint64_t groups;
};

static enum status learn_clocks(void *context, struct group *g)
{
    struct clock_lesson *l = context;
    clocks_learn(l->clocks, g);
    return ++l->groups < CLOCK_GROUPS_MAX ? STATUS_OK : STATUS_FULL;
}

static enum status take_group(void *context, struct group *g)
{
    return judge_group(context, g);
}

/* What one part may take: a share that lets tests with little memory walk every path. */
static size_t judge_bytes(const struct diagnose *x)
{
    return x->memory_bytes < DIAGNOSE_JUDGE_BYTES ? x->memory_bytes : DIAGNOSE_JUDGE_BYTES;
}

static enum status place_clocks(struct diagnose *x)
{
    struct clock_lesson lesson = {&x->clocks, 0};
    enum status status = clocks_init(&x->clocks, &x->gather);
    for (size_t p = 0; p < SPILL_PARTS && status == STATUS_OK && x->gather.origin_count > 1; p++)
        status = group_each(&x->gather.by_group, p, judge_bytes(x), NULL, learn_clocks, &lesson);
    if (status == STATUS_FULL)
        status = STATUS_OK;
    if (status == STATUS_OK)
        clocks_settle(&x->clocks, &x->gather);
    return status;
}

static enum status look_at_table(struct diagnose *x, struct judge *judge)
{
    struct database *db = NULL;
    struct key_column found = {0};
    if (!x->db)
        return STATUS_OK;
    enum status status = database_open(&db, x->db, &x->error);
    if (status == STATUS_OK)
        status = database_key_column(db, x->table, x->column, &found, &x->error);
    if (status == STATUS_OK)
        judge_key_column(judge, x->table, x->column, &found);
    database_close(db);
    buffer_fini(&found.near_misses);
    buffer_fini(&found.examples);
    return status;
}

enum status diagnose_run(struct diagnose *x)
{
    struct gather *g = &x->gather;
    struct diagnosis *d = &x->diagnosis;
    if (x->progress) {
        g->progress = reading;
        g->progress_context = x;
    }
    enum status status = gather_run(g);
    if (status == STATUS_OK)
        status = place_clocks(x);
    if (status != STATUS_OK)
        return status;
    struct judge judge;
    struct group_clock clock = {x->clocks.offset_us};
    judge_init(&judge, d, x->facts);
    for (size_t p = 0; p < SPILL_PARTS && status == STATUS_OK; p++) {
        status = group_each(&g->by_group, p, judge_bytes(x), &clock, take_group, &judge);
        spill_forget(&g->by_group, p);
        if (x->progress)
            x->progress(x->progress_context, "judging", (double)(p + 1) / SPILL_PARTS);
    }
    d->lines = g->lines;
    d->unreadable = g->unreadable;
    d->events = g->events - d->shipped_twice;
    if (status == STATUS_OK)
        status = look_at_table(x, &judge);
    if (status == STATUS_OK)
        status = judge_end(&judge);
    judge_fini(&judge);
    return status;
}

void diagnose_fini(struct diagnose *x)
{
    gather_fini(&x->gather);
    clocks_fini(&x->clocks);
    diagnosis_fini(&x->diagnosis);
    buffer_fini(&x->error);
}
