/* SPDX-License-Identifier: MIT */
#include "gateway/tracer.h"

#include "base/json_text.h"
#include "core/settings.h"
#include "gateway/trace_sink.h"
#include "net/loop.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define GATHER_MS     500 /* spans are gathered for so long before they are sent: one request for many */
#define WAIT_FIRST_MS 500 /* before a batch is tried again; doubled each time */

struct tracer {
    struct trace_sink *sink;
    struct log *log;
    struct buffer head, tail; /* what stands before and after the spans of a request */
    size_t bytes_max;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;   /* the first span after none, or the end */
    pthread_cond_t hurry;  /* the buffer is half full, or the end */
    struct buffer waiting; /* spans with commas between them; under the lock */
    uint64_t waiting_count;
    bool stopping;      /* under the lock */
    int64_t give_up_ms; /* monotonic; once stopping */
    bool failing;       /* what the log says; by the thread */
    atomic_uint_least64_t delivered, dropped;
};

static bool must_leave(void *context)
{
    struct tracer *t = context;
    pthread_mutex_lock(&t->lock);
    bool yes = t->stopping && clock_monotonic_ms() >= t->give_up_ms;
    pthread_mutex_unlock(&t->lock);
    return yes;
}

/* Waits, under the lock, until `cond` is signalled, the tracer stops or the time is over. */
static void rest(struct tracer *t, pthread_cond_t *cond, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (ms % 1000) * 1000000;
    until.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    if (!t->stopping)
        (void)pthread_cond_clockwait(cond, &t->lock, CLOCK_MONOTONIC, &until);
}

static void say(struct tracer *t, bool fails, const char *detail, uint64_t lost)
{
    if (fails == t->failing)
        return;
    t->failing = fails;
    if (fails)
        log_event(t->log, LOG_LEVEL_WARNING, clock_wall_ms(), slice_of("", 0), "trace_failed",
                  LOG_STRING("detail", detail), LOG_NUMBER("spans", lost));
    else
        log_event(t->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "trace_back",
                  LOG_STRING("detail", "spans are taken again"));
}

/* Delivers one document, or gives it up after its tries. */
static void deliver(struct tracer *t, struct slice document, uint64_t count)
{
    uint64_t rejected = 0;
    const char *why = "";
    int64_t wait_ms = WAIT_FIRST_MS;
    enum trace_sent sent = TRACE_LATER;
    for (int i = 0; i < TRACER_TRIES_MAX; i++, wait_ms *= 2) {
        sent = trace_sink_send(t->sink, document, &rejected, &why);
        if (sent != TRACE_LATER)
            break;
        say(t, true, why, count);
        pthread_mutex_lock(&t->lock);
        rest(t, &t->hurry, wait_ms);
        bool stopping = t->stopping;
        pthread_mutex_unlock(&t->lock);
        if (stopping)
            break; /* its reader is away: the end of the process does not wait for it */
    }
    if (sent != TRACE_SENT)
        rejected = count;
    else if (rejected > count)
        rejected = count;
    say(t, sent != TRACE_SENT, why, count);
    atomic_fetch_add_explicit(&t->dropped, rejected, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->delivered, count - rejected, memory_order_relaxed);
}

static void *tracer_main(void *argument)
{
    struct tracer *t = argument;
    struct buffer taken = {0}, document = {0};
    bool stopping;
    do {
        pthread_mutex_lock(&t->lock);
        while (!t->stopping && !t->waiting.len)
            pthread_cond_wait(&t->more, &t->lock);
        if (t->waiting.len < t->bytes_max / 2)
            rest(t, &t->hurry, GATHER_MS);
        stopping = t->stopping;
        struct buffer was = taken;
        uint64_t count = t->waiting_count;
        taken = t->waiting;
        t->waiting = was;
        t->waiting.max = t->bytes_max;
        t->waiting_count = 0;
        pthread_mutex_unlock(&t->lock);
        if (!count)
            continue;
        buffer_clear(&document);
        buffer_slice(&document, buffer_view(&t->head));
        buffer_slice(&document, buffer_view(&taken));
        buffer_slice(&document, buffer_view(&t->tail));
        if (document.failed || must_leave(t))
            atomic_fetch_add_explicit(&t->dropped, count, memory_order_relaxed);
        else
            deliver(t, buffer_view(&document), count);
        buffer_clear(&taken);
    } while (!stopping);
    buffer_fini(&document);
    buffer_fini(&taken);
    return NULL;
}

void tracer_add(struct tracer *t, const struct span *span)
{
    if (!t || !(span->self.flags & 1))
        return;
    struct buffer text = {0};
    span_write(&text, span);
    bool taken = false;
    pthread_mutex_lock(&t->lock);
    size_t before = t->waiting.len;
    if (!text.failed && before + text.len + 1 <= t->bytes_max) {
        if (before)
            buffer_byte(&t->waiting, ',');
        buffer_slice(&t->waiting, buffer_view(&text));
        taken = !t->waiting.failed;
        if (!taken) {
            /* Half a span must not stay. */
            t->waiting.failed = false;
            t->waiting.len = before;
        }
    }
    t->waiting_count += taken;
    if (taken && !before)
        pthread_cond_signal(&t->more);
    else if (t->waiting.len > t->bytes_max / 2)
        pthread_cond_signal(&t->hurry);
    pthread_mutex_unlock(&t->lock);
    buffer_fini(&text);
    if (!taken)
        atomic_fetch_add_explicit(&t->dropped, 1, memory_order_relaxed);
}

static void write_resource(struct buffer *out, const struct tracer_settings *settings)
{
    const struct {
        const char *name, *value;
    } about[] = {{"service.name", "samekey"},
                 {"service.version", settings->version},
                 {"service.instance.id", settings->node}};
    buffer_text(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        buffer_format(out, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":", i ? "," : "", about[i].name);
        json_text(out, slice_text(about[i].value));
        buffer_text(out, "}}");
    }
    buffer_text(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"samekey\"},\"spans\":[");
}

static void tracer_free(struct tracer *t)
{
    trace_sink_close(t->sink);
    buffer_fini(&t->head);
    buffer_fini(&t->tail);
    buffer_fini(&t->waiting);
    pthread_cond_destroy(&t->more);
    pthread_cond_destroy(&t->hurry);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

enum status tracer_start(struct tracer **out, const struct tracer_settings *settings, struct buffer *error)
{
    struct tracer *t = calloc(1, sizeof *t);
    if (!t)
        return STATUS_NO_MEMORY;
    t->log = settings->log;
    t->bytes_max = t->waiting.max = settings->bytes_max;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    pthread_cond_init(&t->hurry, NULL);
    write_resource(&t->head, settings);
    buffer_text(&t->tail, "]}]}]}");
    enum status status = t->head.failed || t->tail.failed ? STATUS_NO_MEMORY : STATUS_OK;
    if (status == STATUS_OK)
        status = trace_sink_open(&t->sink, settings->target, settings->headers, must_leave, t, error);
    if (status == STATUS_OK && pthread_create(&t->thread, NULL, tracer_main, t) != 0)
        status = STATUS_IO;
    if (status != STATUS_OK)
        tracer_free(t);
    else
        *out = t;
    return status;
}

uint64_t tracer_delivered(const struct tracer *t)
{
    return t ? atomic_load_explicit(&t->delivered, memory_order_relaxed) : 0;
}

uint64_t tracer_dropped(const struct tracer *t)
{
    return t ? atomic_load_explicit(&t->dropped, memory_order_relaxed) : 0;
}

void tracer_abandon(struct tracer *t, int64_t wait_ms)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    t->give_up_ms = clock_monotonic_ms() + wait_ms;
    pthread_cond_signal(&t->more);
    pthread_cond_signal(&t->hurry);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
}

void tracer_stop(struct tracer *t, int64_t wait_ms)
{
    if (!t)
        return;
    tracer_abandon(t, wait_ms);
    tracer_free(t);
}
