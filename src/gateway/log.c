/* SPDX-License-Identifier: MIT */
#include "gateway/log.h"

#include "base/civil.h"
#include "base/json_text.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A pipe that poll() calls writable takes this much without blocking (PIPE_BUF on Linux); a file takes everything. */
#define CHUNK_BYTES 4096
/* Lines are gathered for so long before they are handed over: one wake-up and one write for many. */
#define GATHER_MS 5
/* How often the thread looks up from a file that takes nothing. */
#define POLL_MS 50

struct log {
    struct log_writer *writer;
    enum log_level level;
    struct buffer line;    /* the line being made; by the log's own thread */
    uint64_t lost;         /* lines dropped and not yet told of; by the log's own thread */
    struct buffer pending; /* whole lines; under the writer's lock */
    bool closed;           /* no more will come; under the writer's lock */
};

struct log_writer {
    int fd;
    size_t bytes_max, chunk_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;        /* a log has lines, or it ends */
    pthread_cond_t hurry;       /* a log is half full, or it ends: no more gathering */
    struct log *logs[LOGS_MAX]; /* under the lock */
    size_t count;
    bool stopping;      /* under the lock */
    int64_t give_up_ms; /* monotonic; once stopping */
    atomic_uint_least64_t dropped;
};

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static int64_t monotonic_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool given_up(struct log_writer *w)
{
    pthread_mutex_lock(&w->lock);
    bool yes = w->stopping && monotonic_ms() >= w->give_up_ms;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

static uint64_t lines_in(struct slice s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += s.data[i] == '\n';
    return n;
}

/* Hands bytes to the file, waiting for it. What is left when the writer gives up, or the file is broken, is lost. */
static void hand_over(struct log_writer *w, struct slice s)
{
    while (s.len) {
        struct pollfd p = {w->fd, POLLOUT, 0};
        int ready = poll(&p, 1, POLL_MS);
        if (ready > 0 && (p.revents & POLLOUT)) {
            ssize_t n = write(w->fd, s.data, s.len < w->chunk_bytes ? s.len : w->chunk_bytes);
            if (n > 0) {
                s = slice_of(s.data + n, s.len - (size_t)n);
                continue;
            }
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                break;
        } else if (ready > 0) {
            break; /* nobody reads any more */
        } else if (ready < 0 && errno != EINTR) {
            break;
        }
        if (given_up(w))
            break;
    }
    atomic_fetch_add_explicit(&w->dropped, lines_in(s), memory_order_relaxed);
}

static void log_free(struct log *log)
{
    buffer_fini(&log->line);
    buffer_fini(&log->pending);
    free(log);
}

/* Takes all lines of one log, and the log itself when it is closed. Returns whether there was anything. */
static bool take_one(struct log_writer *w, struct buffer *out)
{
    for (size_t i = 0; i < w->count; i++) {
        struct log *log = w->logs[i];
        if (log->pending.len) {
            struct buffer taken = log->pending;
            log->pending = *out;
            log->pending.max = taken.max;
            *out = taken;
            return true;
        }
        if (log->closed) {
            w->logs[i--] = w->logs[--w->count];
            log_free(log);
        }
    }
    return false;
}

/* Waits for the first line, and then for its neighbours. Under the lock. */
static void gather(struct log_writer *w)
{
    struct timespec until;
    pthread_cond_wait(&w->more, &w->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GATHER_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    if (!w->stopping)
        (void)pthread_cond_clockwait(&w->hurry, &w->lock, CLOCK_MONOTONIC, &until);
}

static void *writer_main(void *argument)
{
    struct log_writer *w = argument;
    struct buffer out = {0};
    pthread_mutex_lock(&w->lock);
    for (;;) {
        if (take_one(w, &out)) {
            pthread_mutex_unlock(&w->lock);
            hand_over(w, buffer_view(&out));
            buffer_clear(&out);
            pthread_mutex_lock(&w->lock);
        } else if (w->stopping) {
            break;
        } else {
            gather(w);
        }
    }
    pthread_mutex_unlock(&w->lock);
    buffer_fini(&out);
    return NULL;
}

enum status log_writer_start(struct log_writer **out, int fd, size_t bytes_max)
{
    struct log_writer *w = calloc(1, sizeof(*w));
    struct stat about;
    if (!w)
        return STATUS_NO_MEMORY;
    w->fd = fd;
    w->bytes_max = bytes_max;
    w->chunk_bytes = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? bytes_max : CHUNK_BYTES;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    pthread_cond_init(&w->hurry, NULL);
    if (pthread_create(&w->thread, NULL, writer_main, w) != 0) {
        pthread_cond_destroy(&w->hurry);
        pthread_cond_destroy(&w->more);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return STATUS_IO;
    }
    *out = w;
    return STATUS_OK;
}

/* Lets the thread write what is left and waits for its end. */
static void finish(struct log_writer *w, int64_t wait_ms)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    w->give_up_ms = monotonic_ms() + wait_ms;
    pthread_cond_signal(&w->more);
    pthread_cond_signal(&w->hurry);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
}

void log_writer_abandon(struct log_writer *w, int64_t wait_ms)
{
    if (w)
        finish(w, wait_ms);
}

uint64_t log_writer_stop(struct log_writer *w, int64_t wait_ms)
{
    if (!w)
        return 0;
    finish(w, wait_ms);
    assert(w->count == 0);
    uint64_t lost = log_writer_dropped(w);
    pthread_cond_destroy(&w->hurry);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return lost;
}

uint64_t log_writer_dropped(const struct log_writer *w)
{
    return atomic_load_explicit(&w->dropped, memory_order_relaxed);
}

enum status log_open(struct log **out, struct log_writer *w, enum log_level level)
{
    struct log *log = calloc(1, sizeof(*log));
    enum status status = STATUS_OK;
    if (!log)
        return STATUS_NO_MEMORY;
    log->writer = w;
    log->level = level;
    log->pending.max = w->bytes_max;
    pthread_mutex_lock(&w->lock);
    if (w->count == LOGS_MAX)
        status = STATUS_FULL;
    else
        w->logs[w->count++] = log;
    pthread_mutex_unlock(&w->lock);
    if (status != STATUS_OK)
        log_free(log);
    else
        *out = log;
    return status;
}

void log_close(struct log *log)
{
    if (!log)
        return;
    struct log_writer *w = log->writer;
    pthread_mutex_lock(&w->lock);
    log->closed = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}

void log_set_level(struct log *log, enum log_level level)
{
    log->level = level;
}

bool log_wants(const struct log *log, enum log_level level)
{
    return log && level <= log->level;
}

/* A text as JSON, shortened to its bound. */
static void write_text(struct buffer *out, struct slice text)
{
    if (text.len <= LOG_TEXT_BYTES_MAX) {
        json_text(out, text);
        return;
    }
    size_t n = LOG_TEXT_BYTES_MAX;
    while (n > LOG_TEXT_BYTES_MAX - 4 && ((unsigned char)text.data[n] & 0xC0) == 0x80)
        n--; /* not inside a character */
    json_text(out, slice_of(text.data, n));
    out->len--;
    buffer_text(out, "...\"");
}

static void write_head(struct buffer *out, enum log_level level, int64_t now_ms, struct slice call_id,
                       const char *event)
{
    buffer_text(out, "{\"call_id\":");
    if (call_id.len)
        write_text(out, call_id);
    else
        buffer_text(out, "null");
    buffer_text(out, ",\"time\":\"");
    civil_print_rfc3339(now_ms, out);
    buffer_text(out, "\",\"level\":\"");
    buffer_text(out, level_names[level]);
    buffer_text(out, "\",\"event\":\"");
    buffer_text(out, event);
    buffer_byte(out, '"');
}

void log_write(struct log *log, enum log_level level, int64_t now_ms, struct slice call_id, const char *event,
               const struct log_field *fields)
{
    if (!log_wants(log, level))
        return;
    struct log_writer *w = log->writer;
    struct buffer *line = &log->line;
    buffer_clear(line);
    if (log->lost) {
        write_head(line, LOG_LEVEL_WARNING, now_ms, slice_of("", 0), "log_dropped");
        buffer_text(line, ",\"lines\":");
        buffer_number(line, (int64_t)log->lost);
        buffer_text(line, "}\n");
    }
    size_t start = line->len;
    write_head(line, level, now_ms, call_id, event);
    for (; fields && fields->type != LOG_FIELD_END; fields++) {
        if (line->len - start > LOG_LINE_BYTES_MAX - LOG_FIELD_BYTES_MAX) {
            buffer_text(line, ",\"shortened\":true");
            break;
        }
        buffer_text(line, ",\"");
        buffer_text(line, fields->name);
        buffer_text(line, "\":");
        if (fields->type == LOG_FIELD_NUMBER)
            buffer_number(line, fields->number);
        else if (fields->type == LOG_FIELD_BOOL)
            buffer_text(line, fields->number ? "true" : "false");
        else if (fields->text.len)
            write_text(line, fields->text);
        else
            buffer_text(line, "null");
    }
    buffer_text(line, "}\n");

    bool taken = false;
    pthread_mutex_lock(&w->lock);
    if (!line->failed && log->pending.len + line->len <= w->bytes_max) {
        bool idle = log->pending.len == 0;
        size_t before = log->pending.len;
        buffer_slice(&log->pending, buffer_view(line));
        taken = !log->pending.failed;
        if (!taken) {
            /* Half a line must not stay. */
            log->pending.failed = false;
            log->pending.len = before;
        }
        if (idle)
            pthread_cond_signal(&w->more);
        else if (log->pending.len > w->bytes_max / 2)
            pthread_cond_signal(&w->hurry);
    }
    pthread_mutex_unlock(&w->lock);
    if (taken) {
        log->lost = 0;
    } else {
        log->lost++;
        atomic_fetch_add_explicit(&w->dropped, 1, memory_order_relaxed);
    }
}
