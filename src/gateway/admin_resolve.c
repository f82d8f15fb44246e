/* SPDX-License-Identifier: MIT
 *
 * Settling by hand: one task, or all that a filter names. What a person says becomes the call's final ending in one commit
 * with the task's status and the audit row, so it needs who says so and on what evidence.
 *
 *   one:   read the task ──▶ settle ──▶ answer with the task
 *   many:  page through the tasks ──▶ what they are, hashed ──▶ dry run: answer
 *                                                          └─▶ the same hash as in the dry run: settle each, SETTLING_AT_ONCE
 *                                                              at a time ──▶ answer with what came of them
 */
#include "base/hex.h"
#include "gateway/admin_parts.h"
#include "gateway/settle.h"

#include <stdio.h>
#include <stdlib.h>

#define SETTLING_AT_ONCE 32
#define BULK_TASKS_MAX   10000
#define BULK_SHOWN_MAX   50         /* tasks shown by a dry run; problems told by a real one */
#define FROZEN_BYTES_MAX (2u << 20) /* of a receipt document that becomes a call's answer */

/* What the person said. Slices in the inquiry's arena. */
struct verdict {
    enum call_state state;
    struct slice evidence, operator;
};

/* One task that is being settled. */
struct settling {
    struct inquiry *q;
    const struct verdict *verdict;
    int64_t task;
    struct task_work work;
    struct arena arena;
    void (*over)(struct settling *s,
                 struct job *job); /* of STORE_TASK_RESOLVE; NULL: it did not come that far */
};

static bool read_verdict(struct inquiry *q, struct verdict *v)
{
    struct slice outcome;
    if (!inquiry_text(q, "outcome", &outcome) || !inquiry_text(q, "evidence", &v->evidence) ||
        !inquiry_text(q, "operator", &v->operator))
        return false;
    if (!state_parse(outcome, &v->state) || (v->state != STATE_SUCCESS && v->state != STATE_FAILED)) {
        inquiry_refuse(q, PROBLEM_REQUEST_INVALID, "outcome", "outcome must be SUCCESS or FAILED");
        return false;
    }
    return true;
}

static void settling_over(struct settling *s, struct job *job)
{
    struct inquiry *q = s->q;
    s->over(s, job);
    job_free(job);
    arena_fini(&s->arena);
    free(s);
    inquiry_drop(q);
}

static void resolved(struct job *job)
{
    struct settling *s = job->owner;
    struct shard *shard = s->q->admin->shard;
    if (job->op.status == STATUS_OK)
        log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), s->work.now.call_id, "resolved_by_person",
                  LOG_STRING("outcome", state_text(s->verdict->state)),
                  LOG_STRING("status", task_status_text(s->work.now.status)),
                  LOG_TEXT("operator", s->verdict->operator), LOG_NUMBER("task", s->task),
                  LOG_TEXT("key", s->work.now.key), LOG_TEXT("route", s->work.now.route),
                  LOG_TEXT("trace_id", s->work.now.trace_id));
    settling_over(s, job);
}

/* Settles one task whose call's row is `row`; `over` follows in any case, and not inside this call. False: no memory, and
 * nothing follows. */
static bool settle(struct inquiry *q, const struct verdict *verdict, int64_t task, const struct call_row *row,
                   void (*over)(struct settling *s, struct job *job))
{
    struct settling *s = calloc(1, sizeof *s);
    struct job *job = s ? job_new(q->admin->shard, STORE_TASK_RESOLVE, s, resolved) : NULL;
    const struct lane *lane = inquiry_lane(q, row->route);
    const char *what = verdict->state == STATE_SUCCESS ? "resolve SUCCESS" : "resolve FAILED";
    if (!job) {
        free(s);
        return false;
    }
    s->q = inquiry_hold(q);
    s->verdict = verdict;
    s->task = task;
    s->over = over;
    arena_init(&s->arena, FROZEN_BYTES_MAX);
    s->work.audit =
        (struct audit_row){.who = verdict->operator, .what = slice_text(what), .evidence = verdict->evidence};
    job->op.id = task;
    job->op.work = &s->work;
    struct call_row *end = &job->op.row;
    *end = *row;
    int64_t now = shard_store_now(q->admin->shard);
    if (!row_keep(end, &s->arena)) {
        job_free(job);
        arena_fini(&s->arena);
        free(s);
        inquiry_drop(q);
        return false;
    }
    end->state = verdict->state;
    end->final = true;
    end->reason = REASON_PERSON;
    end->maybe_ran = false;
    row_set_lives(end, lane ? lane->s : q->outlets->setup->lanes[0].s, now);
    if (verdict->state == STATE_SUCCESS)
        row_freeze_document(end, now, &s->arena);
    job_submit(job);
    return true;
}

/* ---- one ---------------------------------------------------------------------------------------------------- */

struct one {
    struct task_page page; /* first, for inquiry_tell_task() */
    struct verdict verdict;
};

static void one_over(struct settling *s, struct job *job)
{
    struct inquiry *q = s->q;
    if (job->op.status == STATUS_CONFLICT)
        inquiry_refuse_task(q, job);
    else if (job->op.status == STATUS_NOT_FOUND)
        inquiry_refuse(q, PROBLEM_NO_SUCH_TASK, NULL, "no compensation task has this number");
    else if (inquiry_read_well(q, job))
        inquiry_tell_task(q, s->task, q->state);
}

static void one_read(struct job *job)
{
    struct inquiry *q = job->owner;
    struct one *one = q->state;
    if (job->op.status == STATUS_NOT_FOUND || (job->op.status == STATUS_OK && !one->page.count))
        inquiry_refuse(q, PROBLEM_NO_SUCH_TASK, NULL, "no compensation task has this number");
    else if (inquiry_read_well(q, job) &&
             !settle(q, &one->verdict, one->page.tasks[0].id, &job->op.rows.call, one_over))
        inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "there is no memory; nothing was changed");
    inquiry_done(job);
}

void admin_task_resolve(struct inquiry *q)
{
    static const char *const members[] = {"outcome", "evidence", "operator", NULL};
    int64_t id;
    struct one *one;
    if (!inquiry_params(q, NULL, 0) || !inquiry_task_id(q, &id) || !(one = inquiry_state(q, sizeof *one)) ||
        !inquiry_members(q, q->json, "the body", members) || !read_verdict(q, &one->verdict))
        return;
    struct job *job = inquiry_job(q, STORE_TASK_READ, one_read);
    if (!job)
        return;
    job->op.id = id;
    job->op.page = &one->page;
    job_submit(job);
}

/* ---- many --------------------------------------------------------------------------------------------------- */

struct chosen {
    int64_t task, call;
};

struct bulk {
    struct task_page page;
    struct verdict verdict;
    bool dry_run;
    char set[65]; /* the dry run's, as the real one names it */
    char set_now[65];
    struct chosen *chosen;
    size_t count, next, at_once; /* chosen; begun; under way */
    size_t resolved, skipped, failed, told;
    struct buffer shown; /* items of a dry run, problems of a real one */
};

static void bulk_free(void *state)
{
    struct bulk *b = state;
    if (!b)
        return;
    free(b->chosen);
    buffer_fini(&b->shown);
    free(b);
}

static void answer(struct inquiry *q)
{
    struct bulk *b = q->state;
    struct buffer out = {0};
    buffer_byte(&out, '{');
    member_bool(&out, "dry_run", b->dry_run);
    member_text(&out, "outcome", slice_text(state_text(b->verdict.state)));
    member_number(&out, "count", (int64_t)b->count);
    member_text(&out, "set", slice_text(b->set_now));
    if (!b->dry_run) {
        member_number(&out, "resolved", (int64_t)b->resolved);
        member_number(&out, "skipped", (int64_t)b->skipped);
        member_number(&out, "failed", (int64_t)b->failed);
    }
    member_begin(&out, b->dry_run ? "items" : "problems", '[');
    buffer_slice(&out, buffer_view(&b->shown));
    buffer_text(&out, "]}\n");
    inquiry_answer(q, 200, &out);
    buffer_fini(&out);
}

static void settle_next(struct inquiry *q);

static void tell_trouble(struct bulk *b, int64_t task, struct slice call_id, const char *detail)
{
    if (b->told >= BULK_SHOWN_MAX)
        return;
    buffer_text(&b->shown, b->told++ ? ",{" : "{");
    member_id(&b->shown, "id", task);
    member_text(&b->shown, "call_id", call_id);
    member_text(&b->shown, "detail", slice_text(detail));
    buffer_byte(&b->shown, '}');
}

static void each_over(struct settling *s, struct job *job)
{
    struct inquiry *q = s->q;
    struct bulk *b = q->state;
    const struct task_row *now = &s->work.now;
    char detail[160];
    b->at_once--;
    if (job->op.status == STATUS_OK) {
        b->resolved++;
    } else if (job->op.status == STATUS_CONFLICT || job->op.status == STATUS_NOT_FOUND) {
        b->skipped++;
        snprintf(detail, sizeof detail, "%s: task %s, call %s",
                 now->status == TASK_RUNNING || now->call_state == STATE_PROCESSING ? "at work now"
                                                                                    : "already settled",
                 now->id ? task_status_text(now->status) : "gone", state_text(job->op.rows.call.state));
        tell_trouble(b, s->task, now->call_id, detail);
    } else {
        b->failed++;
        tell_trouble(b, s->task, slice_of("", 0), "the store could not write it; nothing was changed");
    }
    settle_next(q);
}

static void each_read(struct job *job)
{
    struct inquiry *q = job->owner;
    struct bulk *b = q->state;
    const struct call_row *row = &job->op.rows.call;
    if (job->op.status != STATUS_OK || !settle(q, &b->verdict, job->op.fence, row, each_over)) {
        b->at_once--;
        b->failed++;
        tell_trouble(b, job->op.fence, row->call_id, "the store could not read it; nothing was changed");
        settle_next(q);
    }
    inquiry_done(job);
}

/* Whoever asked may be gone: what was begun is still done to its end, since half a set is what nobody asked for. */
static void settle_next(struct inquiry *q)
{
    struct bulk *b = q->state;
    if (!q->admin->shard->worker) { /* the store has stopped: what was not begun stays as it is */
        b->failed += b->count - b->next;
        b->next = b->count;
    }
    while (b->next < b->count && b->at_once < SETTLING_AT_ONCE) {
        struct job *job = job_new(q->admin->shard, STORE_READ, inquiry_hold(q), each_read);
        const struct chosen *chosen = &b->chosen[b->next++];
        if (!job) {
            inquiry_drop(q);
            b->failed++;
            tell_trouble(b, chosen->task, slice_of("", 0), "there was no memory; nothing was changed");
            continue;
        }
        job->op.id = chosen->call;
        job->op.fence = chosen->task; /* not asked of a read: the task comes back with it */
        b->at_once++;
        job_submit(job);
    }
    if (b->next == b->count && !b->at_once)
        answer(q);
}

/* The same tasks in the same order, and nothing else, have the same name. */
static void name_set(struct inquiry *q, struct bulk *b)
{
    struct hasher *hasher = &q->admin->shard->print.hasher;
    struct digest32 digest;
    hasher_begin(hasher);
    for (size_t i = 0; i < b->count; i++)
        hasher_part(hasher, slice_of((const char *)&b->chosen[i].task, sizeof b->chosen[i].task));
    hasher_end(hasher, &digest);
    hex_write(b->set_now, digest.bytes, sizeof digest.bytes);
    b->set_now[2 * sizeof digest.bytes] = '\0';
}

static void chosen_all(struct inquiry *q)
{
    struct bulk *b = q->state;
    name_set(q, b);
    if (b->dry_run) {
        answer(q);
    } else if (strcmp(b->set, b->set_now) != 0) {
        inquiry_refuse(
            q, PROBLEM_SET_CHANGED, "set",
            "the filter names other tasks than \"set\" does; nothing was changed: do the dry run again");
    } else {
        buffer_clear(&b->shown);
        b->told = 0;
        settle_next(q);
    }
}

static void choose_page(struct inquiry *q);

static void paged(struct job *job)
{
    struct inquiry *q = job->owner;
    struct bulk *b = q->state;
    const struct task_page *page = &b->page;
    if (!inquiry_read_well(q, job)) {
        inquiry_done(job);
        return;
    }
    bool full = page->count > BULK_TASKS_MAX - b->count;
    for (size_t i = 0; !full && i < page->count; i++) {
        b->chosen[b->count] = (struct chosen){page->tasks[i].id, page->tasks[i].call};
        if (b->count++ < BULK_SHOWN_MAX) {
            buffer_text(&b->shown, b->count > 1 ? ",{" : "{");
            task_members(&b->shown, q, &page->tasks[i]);
            buffer_byte(&b->shown, '}');
        }
    }
    if (full) {
        inquiry_refuse(q, PROBLEM_REQUEST_INVALID, "filter",
                       "the filter names more than 10000 tasks: make it narrower, e.g. by since and until");
    } else if (page->next_before_id) {
        b->page.before_id = page->next_before_id;
        choose_page(q);
    } else {
        chosen_all(q);
    }
    inquiry_done(job);
}

static void choose_page(struct inquiry *q)
{
    struct bulk *b = q->state;
    struct job *job = inquiry_job(q, STORE_TASK_LIST, paged);
    if (!job)
        return;
    b->page.limit = STORE_PAGE_MAX;
    job->op.page = &b->page;
    job_submit(job);
}

static bool read_filter(struct inquiry *q, struct bulk *b)
{
    static const char *const members[] = {"status", "route", "tenant", "since", "until", NULL};
    json_t *filter = json_object_get(q->json, "filter");
    const struct param params[] = {
        {"status", PARAM_STATUS, &b->page.statuses, NULL},
        {"route", PARAM_TEXT, &b->page.route, NULL},
        {"tenant", PARAM_TEXT, &b->page.tenant, &b->page.has_tenant},
        {"since", PARAM_TIME, &b->page.since_ms, NULL},
        {"until", PARAM_TIME, &b->page.until_ms, NULL},
    };
    if (!json_is_object(filter) || json_object_size(filter) == 0) {
        inquiry_refuse(q, PROBLEM_REQUEST_INVALID, "filter",
                       "filter must be an object with at least one of status, route, tenant, since, until");
        return false;
    }
    if (!inquiry_members(q, filter, "filter", members))
        return false;
    b->page.statuses = 1u << TASK_MANUAL;
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        json_t *value = json_object_get(filter, params[i].name);
        char detail[128];
        struct slice text;
        if (!value)
            continue;
        const char *what = json_is_string(value) ? NULL : "must be a text";
        if (!what) {
            text = slice_of(json_string_value(value), json_string_length(value));
            what = text.len > INQUIRY_TEXT_MAX || !arena_copy(&q->arena, text, &text)
                       ? "is too long"
                       : param_read(&params[i], text);
        }
        if (!what && params[i].given)
            *params[i].given = true;
        if (!what)
            continue;
        snprintf(detail, sizeof detail, "filter.%s %s", params[i].name, what);
        inquiry_refuse(q, PROBLEM_REQUEST_INVALID, params[i].name, detail);
        return false;
    }
    if (b->page.statuses & ~(1u << TASK_MANUAL | 1u << TASK_PENDING)) {
        inquiry_refuse(q, PROBLEM_REQUEST_INVALID, "status", "filter.status must be MANUAL or PENDING");
        return false;
    }
    return true;
}

static bool read_run(struct inquiry *q, struct bulk *b)
{
    json_t *dry = json_object_get(q->json, "dry_run"), *set = json_object_get(q->json, "set");
    if (dry && !json_is_boolean(dry)) {
        inquiry_refuse(q, PROBLEM_REQUEST_INVALID, "dry_run", "dry_run must be true or false");
        return false;
    }
    b->dry_run = !dry || json_is_true(dry);
    if (b->dry_run)
        return true;
    if (!json_is_string(set) || json_string_length(set) != sizeof b->set - 1) {
        inquiry_refuse(q, PROBLEM_REQUEST_INVALID, "set",
                       "a run that is not dry needs \"set\" as the dry run of the same filter answered it");
        return false;
    }
    memcpy(b->set, json_string_value(set), sizeof b->set);
    return true;
}

void admin_tasks_resolve(struct inquiry *q)
{
    static const char *const members[] = {"filter",  "outcome", "evidence", "operator",
                                          "dry_run", "set",     NULL};
    struct bulk *b = inquiry_params(q, NULL, 0) ? inquiry_state(q, sizeof *b) : NULL;
    if (!b)
        return;
    q->state_free = bulk_free;
    b->chosen = calloc(BULK_TASKS_MAX, sizeof *b->chosen);
    if (!b->chosen) {
        inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "there is no memory; nothing was changed");
        return;
    }
    if (inquiry_members(q, q->json, "the body", members) && read_verdict(q, &b->verdict) &&
        read_filter(q, b) && read_run(q, b))
        choose_page(q);
}
