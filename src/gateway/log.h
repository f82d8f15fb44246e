/* SPDX-License-Identifier: MIT
 *
 * The log: one JSON object a line, the callId first, so that `grep` by callId and by line work alike.
 *
 *   {"call_id":"ord-...","time":"2026-03-01T12:00:00.123Z","level":"info","event":"call_ended","route":"orders",...}
 *
 * What is always true:
 * (1) Writing a line never waits for the reader of the log: a line goes into a buffer in memory, and a thread of the
 *     log's own hands it to the file. A full pipe stops that thread alone.
 * (2) A line is whole or not there. What does not fit into the buffer is dropped and counted, and the next line that
 *     fits says how many were lost (`log_dropped`).
 * (3) Lines of one thread keep their order.
 *
 * Each loop thread has a `struct log` of its own, so threads meet only the writer, at a short lock.
 */
#ifndef SAMEKEY_GATEWAY_LOG_H
#define SAMEKEY_GATEWAY_LOG_H

#include "base/slice.h"
#include "base/status.h"
#include "core/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of one line at most; longer texts in it are shortened to LOG_TEXT_BYTES_MAX and end with "...". */
#define LOG_LINE_BYTES_MAX 16384
#define LOG_TEXT_BYTES_MAX 2048
/* Logs of one writer at most. */
#define LOGS_MAX 512
/* Bytes that one more field can need at most: every byte of a text may be six in JSON. */
#define LOG_FIELD_BYTES_MAX (6 * LOG_TEXT_BYTES_MAX + 128)

/* The thread that hands lines to a file; one a process. */
struct log_writer;
/* One thread's log. */
struct log;

enum log_field_type { LOG_FIELD_END, LOG_FIELD_TEXT, LOG_FIELD_NUMBER, LOG_FIELD_BOOL };

/* One member of a line. Make them with the macros below; a list ends with LOG_END. */
struct log_field {
    const char *name; /* a literal of letters, digits and _ */
    enum log_field_type type;
    struct slice text; /* an empty text is written as null */
    int64_t number;
};
#define LOG_TEXT(name, slice)   ((struct log_field){(name), LOG_FIELD_TEXT, (slice), 0})
#define LOG_STRING(name, text)  ((struct log_field){(name), LOG_FIELD_TEXT, slice_text(text), 0})
#define LOG_NUMBER(name, value) ((struct log_field){(name), LOG_FIELD_NUMBER, {"", 0}, (int64_t)(value)})
#define LOG_BOOL(name, value)   ((struct log_field){(name), LOG_FIELD_BOOL, {"", 0}, (value) ? 1 : 0})
#define LOG_END                 ((struct log_field){NULL, LOG_FIELD_END, {"", 0}, 0})

/*
 * Starts the writer for a file descriptor, which stays the caller's. `bytes_max` bounds the memory of each log
 * (log_buffer_bytes_max). STATUS_NO_MEMORY, STATUS_IO: no thread.
 */
enum status log_writer_start(struct log_writer **out, int fd, size_t bytes_max);

/*
 * Writes what is left, waiting for the reader of the file at most `wait_ms`, and ends the thread; every log of the
 * writer must be closed before. Returns the number of lines that were lost over its life. NULL is accepted.
 */
uint64_t log_writer_stop(struct log_writer *w, int64_t wait_ms);

/* As log_writer_stop(), for a process that leaves at once while other threads still have their logs: writes what is left
 * and ends the thread, and frees nothing. Nothing of this writer may be used afterwards. */
void log_writer_abandon(struct log_writer *w, int64_t wait_ms);
/* Lines lost so far, over all logs; for the metric. Any thread. */
uint64_t log_writer_dropped(const struct log_writer *w);

/* Makes a log for one thread. STATUS_FULL: LOGS_MAX are open. STATUS_NO_MEMORY. */
enum status log_open(struct log **out, struct log_writer *w, enum log_level level);

/* Hands over what is left and frees the log; NULL is accepted. */
void log_close(struct log *log);

/* Changes the least grave level that is written (SIGHUP). By the log's own thread. */
void log_set_level(struct log *log, enum log_level level);

/* Whether a line of this level would be written; so cheap that it may stand before every line. NULL: false. */
bool log_wants(const struct log *log, enum log_level level);

/*
 * Adds one line. call_id may be empty (null in the line). now_ms is unix time. By the log's own thread; a NULL log
 * takes nothing. Use the macro, with or without fields: it does not even make the fields when the level is off.
 */
void log_write(struct log *log, enum log_level level, int64_t now_ms, struct slice call_id, const char *event,
               const struct log_field *fields);
#define log_event(log, level, now_ms, call_id, event, ...)                                                   \
    do {                                                                                                     \
        if (log_wants((log), (level)))                                                                       \
            log_write((log), (level), (now_ms), (call_id), (event),                                          \
                      (const struct log_field[]){LOG_END, ##__VA_ARGS__, LOG_END} + 1);                      \
    } while (0)

#endif
