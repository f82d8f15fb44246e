/* SPDX-License-Identifier: MIT */
#include "forensics/operation.h"

#include <stdlib.h>

/* More posts than this are not searched for layers; such a key is a schedule or a storm. */
#define LAYERED_POSTS_MAX 256

static _Thread_local const struct event *sorted_events; /* what qsort's comparisons look into */

static int texts(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : a.len < b.len ? -1 : a.len > b.len;
}

static int by_call(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    int c = texts(sorted_events[a].text[TEXT_CALL], sorted_events[b].text[TEXT_CALL]);
    return c ? c : a < b ? -1 : a > b;
}

static int by_exec(const void *left, const void *right)
{
    const struct run *a = left, *b = right;
    const struct event *x = &sorted_events[a->event], *y = &sorted_events[b->event];
    int c = texts(x->text[TEXT_EXEC], y->text[TEXT_EXEC]);
    return c ? c : a->event < b->event ? -1 : a->event > b->event;
}

static int by_event(const void *left, const void *right)
{
    const struct run *a = left, *b = right;
    return a->event < b->event ? -1 : a->event > b->event;
}

static enum status make_room(struct operation *op, size_t count)
{
    if (count <= op->capacity)
        return STATUS_OK;
    size_t capacity = count < 64 ? 64 : count * 2;
    operation_fini(op);
    op->call = malloc(capacity * sizeof *op->call);
    op->order = malloc(capacity * sizeof *op->order);
    op->call_of = malloc(capacity * sizeof *op->call_of);
    op->post = malloc(capacity * sizeof *op->post);
    op->run = malloc(capacity * sizeof *op->run);
    if (!op->call || !op->order || !op->call_of || !op->post || !op->run)
        return STATUS_NO_MEMORY;
    op->capacity = capacity;
    return STATUS_OK;
}

static void find_calls(struct operation *op)
{
    const struct group *g = op->group;
    bool one = true;
    for (size_t i = 0; i < g->count; i++) {
        op->order[i] = (uint32_t)i;
        one = one && slice_equal(g->event[i].text[TEXT_CALL], g->event[0].text[TEXT_CALL]);
    }
    if (!one) {
        sorted_events = g->event;
        qsort(op->order, g->count, sizeof *op->order, by_call);
    }
    op->calls = 0;
    for (size_t i = 0; i < g->count; i++) {
        const struct event *e = &g->event[op->order[i]];
        if (op->calls == 0 || !slice_equal(op->call[op->calls - 1].id, e->text[TEXT_CALL]))
            op->call[op->calls++] = (struct call){.id = e->text[TEXT_CALL], .first = i};
        struct call *c = &op->call[op->calls - 1];
        c->count++;
        c->weak = c->weak || (e->flags & EVENT_WEAK_CALL);
        op->call_of[op->order[i]] = (uint32_t)(op->calls - 1);
    }
}

/* The same call in two places at once, the later within the earlier: the earlier is an outer layer (a proxy that logs
 * like a server), and its line is not a post of its own. */
static bool is_outer(const struct operation *op, uint32_t outer, uint32_t inner)
{
    const struct event *o = operation_event(op, outer), *i = operation_event(op, inner);
    if (!o->text[TEXT_NODE].len || !i->text[TEXT_NODE].len ||
        slice_equal(o->text[TEXT_NODE], i->text[TEXT_NODE]) ||
        !slice_equal(o->text[TEXT_CALL], i->text[TEXT_CALL]))
        return false;
    bool inner_answered = false;
    for (uint32_t n = outer + 1; n < op->group->count; n++) {
        const struct event *e = operation_event(op, n);
        if (e->kind != KIND_ANSWERED || !slice_equal(e->text[TEXT_CALL], o->text[TEXT_CALL]))
            continue;
        if (slice_equal(e->text[TEXT_NODE], i->text[TEXT_NODE]) && n > inner)
            inner_answered = true;
        if (slice_equal(e->text[TEXT_NODE], o->text[TEXT_NODE]))
            return inner_answered && n > inner;
    }
    return false;
}

static void drop_outer_posts(struct operation *op)
{
    size_t kept = 0;
    if (op->posts < 2 || op->posts > LAYERED_POSTS_MAX)
        return;
    for (size_t i = 0; i < op->posts; i++) {
        bool outer = false;
        for (size_t k = i + 1; k < op->posts && !outer; k++)
            outer = is_outer(op, op->post[i], op->post[k]);
        if (!outer)
            op->post[kept++] = op->post[i];
    }
    op->posts = kept;
}

static uint32_t tries_of(struct slice upstream)
{
    uint32_t n = upstream.len ? 1 : 0;
    for (size_t i = 0; i < upstream.len; i++)
        n += upstream.data[i] == ',';
    return n;
}

static void find_posts(struct operation *op)
{
    const struct group *g = op->group;
    static const enum event_kind kinds[] = {KIND_REQUEST, KIND_SENT, KIND_PROXY};
    op->posts = 0;
    op->proxied = 0;
    op->retried = false;
    for (size_t i = 0; i < g->count; i++)
        op->retried = op->retried || (g->event[i].kind == KIND_PROXY && g->event[i].retries > 0);
    for (size_t i = 0; i < g->count; i++)
        if (g->event[i].kind == KIND_PROXY && tries_of(g->event[i].text[TEXT_UPSTREAM]) > 1)
            op->proxied += tries_of(g->event[i].text[TEXT_UPSTREAM]) - 1;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && op->posts == 0; k++)
        for (size_t i = 0; i < g->count; i++)
            if (g->event[i].kind == kinds[k])
                op->post[op->posts++] = (uint32_t)i;
    op->posts_unseen = op->posts == 0;
    drop_outer_posts(op);
    for (size_t i = 0; i < op->posts; i++)
        op->call[op->call_of[op->post[i]]].posts++;
}

/* Effects without an execution id: two lines of one kind of one call are two runs; lines of different kinds may tell of
 * the same run, so the kind with the most lines counts. */
static void count_without_ids(struct operation *op)
{
    const struct group *g = op->group;
    size_t best = 0;
    struct slice best_what = {0};
    for (size_t i = 0; i < op->runs; i++) {
        size_t n = 0;
        struct slice what = g->event[op->run[i].event].text[TEXT_WHAT];
        for (size_t k = 0; k < op->runs && op->runs <= LAYERED_POSTS_MAX; k++)
            n += slice_equal(g->event[op->run[k].event].text[TEXT_WHAT], what);
        if (n > best)
            best = n, best_what = what;
    }
    size_t kept = 0;
    for (size_t i = 0; i < op->runs; i++)
        if (op->runs > LAYERED_POSTS_MAX ||
            slice_equal(g->event[op->run[i].event].text[TEXT_WHAT], best_what))
            op->run[kept++] = op->run[i];
    op->runs = kept;
}

static void find_runs(struct operation *op)
{
    const struct group *g = op->group;
    size_t ids = 0;
    op->runs = 0;
    for (size_t i = 0; i < g->count; i++) {
        const struct event *e = &g->event[i];
        if (e->kind != KIND_EFFECT && e->kind != KIND_ROLLBACK)
            continue;
        op->run[op->runs++] =
            (struct run){.event = (uint32_t)i, .times = 1, .rolled_back = e->kind == KIND_ROLLBACK};
        ids += e->text[TEXT_EXEC].len > 0;
    }
    op->run_ids = op->runs && ids == op->runs;
    if (op->run_ids && op->runs > 1) {
        sorted_events = g->event;
        qsort(op->run, op->runs, sizeof *op->run, by_exec);
        size_t kept = 0;
        for (size_t i = 0; i < op->runs; i++) {
            if (kept && slice_equal(g->event[op->run[kept - 1].event].text[TEXT_EXEC],
                                    g->event[op->run[i].event].text[TEXT_EXEC])) {
                op->run[kept - 1].times++;
                op->run[kept - 1].rolled_back = op->run[kept - 1].rolled_back || op->run[i].rolled_back;
            } else {
                op->run[kept++] = op->run[i];
            }
        }
        op->runs = kept;
        qsort(op->run, op->runs, sizeof *op->run, by_event);
    } else if (op->runs > 1) {
        count_without_ids(op);
    }
    op->committed = 0;
    for (size_t i = 0; i < op->runs; i++)
        op->committed += !op->run[i].rolled_back;
    /* Each reversal takes back the latest run before it. */
    for (size_t i = 0; i < g->count; i++) {
        if (g->event[i].kind != KIND_REVERSED)
            continue;
        for (size_t k = op->runs; k-- > 0;) {
            if (op->run[k].event < i && !op->run[k].rolled_back && !op->run[k].reversed) {
                op->run[k].reversed = true;
                op->committed--;
                break;
            }
        }
    }
}

enum status operation_make(struct operation *op, const struct group *group)
{
    enum status status = make_room(op, group->count);
    if (status != STATUS_OK)
        return status;
    op->group = group;
    op->key = slice_of("", 0);
    op->weak = op->keyed = false;
    for (int t = TEXT_BUSINESS; t <= TEXT_CALL && !op->key.len; t++)
        for (size_t i = 0; i < group->count && !op->key.len; i++) {
            op->key = group->event[i].text[t];
            op->keyed = op->key.len && t != TEXT_CALL;
            op->weak = (group->event[i].flags & EVENT_WEAK_KEY) != 0;
        }
    find_calls(op);
    find_posts(op);
    find_runs(op);
    return STATUS_OK;
}

void operation_fini(struct operation *op)
{
    free(op->call);
    free(op->order);
    free(op->call_of);
    free(op->post);
    free(op->run);
    memset(op, 0, sizeof *op);
}

/* CONTRACT section 3: what an answer's status proves. */
static void read_status(struct between *b, const struct event *e)
{
    b->succeeded = b->rejected = b->not_executed = b->failed = b->server_error = false;
    if (e->state == EVENT_STATE_FAILED && e->status >= 500)
        b->failed = true;
    else if (e->status >= 200 && e->status < 300 && e->status != 202)
        b->succeeded = true;
    else if (e->status == 401 || e->status == 407 || e->status == 417 || e->status == 421 ||
             e->status == 425 || e->status == 429 || e->state == EVENT_STATE_NOT_RECEIVED)
        b->not_executed = true;
    else if (e->status >= 400 && e->status < 500 && e->status != 408 && e->status != 409)
        b->rejected = true;
    else if (e->status >= 500)
        b->server_error = true;
}

void operation_between(const struct operation *op, const struct call *call, uint32_t from, uint32_t to,
                       struct between *b)
{
    *b = (struct between){0};
    for (size_t i = call->first; i < call->first + call->count; i++) {
        uint32_t n = op->order[i];
        if ((from != UINT32_MAX && n <= from) || n >= to)
            continue;
        const struct event *e = operation_event(op, n);
        switch ((enum event_kind)e->kind) {
        case KIND_ANSWERED:
            b->answer = e;
            read_status(b, e);
            break;
        case KIND_REFUSED:
            b->answer = e;
            b->not_executed = true;
            break;
        case KIND_TIMEOUT:
            b->timeout = e;
            break;
        case KIND_RESET:
            b->reset = e;
            break;
        case KIND_DONE:
            b->done = e;
            break;
        case KIND_RECEIPT_QUERY:
        case KIND_RECEIPT_TIMEOUT:
            b->asked = true;
            break;
        case KIND_RECEIPT_ANSWER:
            b->asked = true;
            b->told = e;
            b->told_not_received = e->state == EVENT_STATE_NOT_RECEIVED;
            b->told_failed = e->state == EVENT_STATE_FAILED;
            b->told_success = e->state == EVENT_STATE_SUCCESS;
            break;
        case KIND_EFFECT:
            b->effect = true;
            break;
        case KIND_ROLLBACK:
            b->rolled_back = true;
            break;
        default:
            break;
        }
    }
}
