/* SPDX-License-Identifier: MIT */
#include "gateway/tell.h"

#include "base/civil.h"
#include "gateway/tell_send.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define TELL_LOOK_MS  1000  /* between two looks for somebody to be told */
#define TELL_LEASE_MS 60000 /* a try is over by then; another teller may begin one */
#define TELL_GAP_MS   2000  /* after a failed try; it doubles */

struct teller {
    struct shard *shard;
    struct net_timer look;
    bool stopped, busy;
    struct task_work work;
    int64_t id;
    int tries;
    struct buffer target, secret, body, call_id, route, key, trace_id;
    char once[64]; /* the Idempotency-Key */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool full, ending; /* under the lock: a letter waits; the thread is to end */
    struct letter back;
    enum status status;
    char why[256];
};

/* ---- the thread ----------------------------------------------------------------------------------------------- */

static void *tell_main(void *context)
{
    struct teller *t = context;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->full && !t->ending)
            pthread_cond_wait(&t->changed, &t->lock);
        if (!t->full)
            break;
        t->full = false;
        pthread_mutex_unlock(&t->lock);
        struct tell_letter letter = {
            .target = buffer_cstring(&t->target),
            .secret = buffer_view(&t->secret),
            .body = buffer_view(&t->body),
            .key = t->once,
            .now_s = clock_wall_ms() / 1000,
        };
        t->status = tell_send(&letter, t->why, sizeof t->why);
        mailbox_post(t->shard->loop, &t->back);
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- what is told --------------------------------------------------------------------------------------------- */

static json_t *text(struct slice s)
{
    json_t *value = s.len ? json_stringn(s.data, s.len) : NULL; /* a text that is no UTF-8 is left out */
    return value ? value : json_null();
}

static json_t *instant(int64_t unix_ms)
{
    struct buffer out = {0};
    civil_print_rfc3339(unix_ms, &out);
    json_t *value = json_stringn(out.data, out.len);
    buffer_fini(&out);
    return value;
}

static json_t *number_text(int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, number);
    return json_string(digits);
}

static bool write_body(struct buffer *out, const struct task_row *task, const struct call_row *call)
{
    json_t *root = json_pack(
        "{s:s, s:o, s:{s:o, s:s, s:s, s:i, s:o, s:o}, s:{s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:o}}",
        "event", "compensation.manual", "sent_at", instant(clock_wall_ms()), "task", "id",
        number_text(task->id), "status", task_status_text(task->status), "cause",
        task_cause_text(task->cause), "round", task->round, "created_at", instant(task->created_ms),
        "last_answer", text(task->last_answer), "call", "call_id", text(call->call_id), "tenant",
        text(call->tenant), "route", text(call->route), "key", text(call->key), "business_ref",
        text(call->business_ref), "trace_id", text(call->trace_id), "state", state_text(call->state), "final",
        call->final, "reverses", text(call->reverses));
    char *bytes = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (bytes)
        buffer_text(out, bytes);
    free(bytes);
    return bytes && !out->failed;
}

static const struct lane *lane_of(const struct outlets *outlets, struct slice route)
{
    for (size_t i = 0; i < outlets->setup->settings->route_count; i++) {
        if (slice_is(route, outlets->setup->lanes[i].s->name))
            return &outlets->setup->lanes[i];
    }
    return NULL;
}

/* ---- home ----------------------------------------------------------------------------------------------------- */

static void look(struct teller *t);

static void on_look(struct net_timer *timer)
{
    look(LIST_ENTRY(timer, struct teller, look));
}

static void rest(struct teller *t, int64_t wait_ms)
{
    t->busy = false;
    if (!t->stopped)
        net_timer_arm(t->shard->loop, &t->look, net_loop_now(t->shard->loop) + wait_ms, on_look);
}

static void done(struct job *job)
{
    struct teller *t = job->owner;
    job_free(job);
    rest(t, 0);
}

static void finish(struct teller *t, enum task_tell tell, int64_t again_ms)
{
    struct job *job = t->shard->worker ? job_new(t->shard, STORE_TELL_DONE, t, done) : NULL;
    if (!job) {
        rest(t, TELL_LOOK_MS);
        return;
    }
    memset(&t->work, 0, sizeof t->work);
    t->work.task.tell = tell;
    t->work.task.tell_tries = t->tries;
    t->work.task.tell_due_ms = shard_store_now(t->shard) + again_ms;
    job->op.id = t->id;
    job->op.work = &t->work;
    job_submit(job);
}

static void came_back(struct letter *letter)
{
    struct teller *t = LIST_ENTRY(letter, struct teller, back);
    struct shard *shard = t->shard;
    bool good = t->status == STATUS_OK, last = t->tries >= TELL_TRIES;
    metrics_add(shard->counts, good ? METRIC_notifications : METRIC_notifications_failed, 0, 0, 1);
    log_event(shard->log,
              good   ? LOG_LEVEL_INFO
              : last ? LOG_LEVEL_ERROR
                     : LOG_LEVEL_WARNING,
              clock_wall_ms(), buffer_view(&t->call_id),
              good   ? "notified"
              : last ? "notification_given_up"
                     : "notification_failed",
              LOG_NUMBER("task", t->id), LOG_NUMBER("try", t->tries), LOG_STRING("why", t->why),
              LOG_TEXT("key", buffer_view(&t->key)), LOG_TEXT("route", buffer_view(&t->route)),
              LOG_TEXT("trace_id", buffer_view(&t->trace_id)));
    int64_t gap = TELL_GAP_MS;
    for (int i = 1; i < t->tries && i < TELL_TRIES; i++)
        gap *= 2;
    finish(t, good ? TASK_TELL_DONE : last ? TASK_TELL_GIVEN_UP : TASK_TELL_OWED, good || last ? 0 : gap);
}

static void keep(struct buffer *to, struct slice bytes)
{
    buffer_clear(to);
    buffer_slice(to, bytes);
}

static void taken(struct job *job)
{
    struct teller *t = job->owner;
    const struct call_row *call = &job->op.rows.call;
    if (job->op.status != STATUS_OK || !job->op.done) {
        job_free(job);
        rest(t, TELL_LOOK_MS);
        return;
    }
    const struct lane *lane = lane_of(t->shard->outlets, call->route);
    const struct task_row *task = &t->work.now;
    t->id = task->id;
    t->tries = task->tell_tries;
    /* That the call has ended meanwhile is news of its own: a receiver must not take it for the same. */
    snprintf(t->once, sizeof t->once, "samekey-manual-%" PRId64 "-%d%s", task->id, task->round,
             call->final ? "-ended" : "");
    keep(&t->target, slice_text(lane ? lane->s->notify : ""));
    keep(&t->secret, buffer_view(&t->shard->outlets->setup->notify_secret));
    keep(&t->call_id, call->call_id);
    keep(&t->route, call->route);
    keep(&t->key, call->key);
    keep(&t->trace_id, call->trace_id);
    buffer_clear(&t->body);
    bool wanted = lane && lane->s->notify[0];
    bool good = wanted && write_body(&t->body, task, call) && !t->target.failed && !t->secret.failed;
    job_free(job);
    if (!wanted) {
        finish(t, TASK_TELL_NONE, 0);
    } else if (!good) {
        finish(t, TASK_TELL_OWED, TELL_LEASE_MS); /* no memory now */
    } else {
        pthread_mutex_lock(&t->lock);
        t->full = true;
        pthread_cond_signal(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
}

static void look(struct teller *t)
{
    struct job *job = t->stopped || t->busy ? NULL : job_new(t->shard, STORE_TELL_TAKE, t, taken);
    if (!job)
        return;
    memset(&t->work, 0, sizeof t->work);
    t->work.task.tell_due_ms = shard_store_now(t->shard) + TELL_LEASE_MS;
    job->op.work = &t->work;
    t->busy = true;
    job_submit(job);
}

enum status teller_start(struct teller **out, struct shard *shard)
{
    struct teller *t = calloc(1, sizeof *t);
    if (!t)
        return STATUS_NO_MEMORY;
    t->shard = shard;
    t->back.open = came_back;
    list_init(&t->back.link);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    if (pthread_create(&t->thread, NULL, tell_main, t) != 0) {
        pthread_mutex_destroy(&t->lock);
        pthread_cond_destroy(&t->changed);
        free(t);
        return STATUS_IO;
    }
    net_timer_arm(shard->loop, &t->look, net_loop_now(shard->loop), on_look);
    *out = t;
    return STATUS_OK;
}

void teller_stop(struct teller *t)
{
    if (!t)
        return;
    t->stopped = true;
    net_timer_disarm(t->shard->loop, &t->look);
}

size_t teller_busy(const struct teller *t)
{
    return t && t->busy;
}

void teller_free(struct teller *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->ending = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    struct buffer *buffers[] = {&t->target, &t->secret, &t->body,    &t->call_id,
                                &t->route,  &t->key,    &t->trace_id};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_fini(buffers[i]);
    free(t);
}
