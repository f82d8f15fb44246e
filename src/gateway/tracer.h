/* SPDX-License-Identifier: MIT
 *
 * The tracer: spans of calls on their way to a file or to a collector, as OTLP in JSON (setting `trace`).
 *
 * What is always true:
 * (1) Adding a span never waits and never fails: it is put into a buffer of trace_buffer_bytes_max behind a lock that is
 *     held for a copy. What does not fit is dropped and counted.
 * (2) One thread of its own delivers. A collector that is away is tried TRACER_TRIES_MAX times with growing waits; then
 *     that batch is dropped and counted. Nothing of it is ever felt by a call.
 * (3) A file gets whole lines only, each one an ExportTraceServiceRequest (the protocol's file format): a write that
 *     fails half way is taken back.
 *
 * Spans that a killed process still had are lost; the receipts are not. That is what receipts are for.
 */
#ifndef SAMEKEY_GATEWAY_TRACER_H
#define SAMEKEY_GATEWAY_TRACER_H

#include "gateway/log.h"
#include "gateway/span.h"

#define TRACER_TRIES_MAX 5

struct tracer;

struct tracer_settings {
    const char *target; /* file:PATH, or the http:// or https:// address of a collector's /v1/traces */
    const struct text_list *headers; /* more header lines for the collector */
    size_t bytes_max;                /* of spans that wait */
    const char *node, *version;      /* who we are */
    struct log *log;                 /* of the tracer's thread alone, from now on; stays the caller's */
};

/*
 * Opens the target and starts the thread. The texts of the settings are copied. STATUS_INVALID: not a target, or the file
 * cannot be opened (the reason is added to error). STATUS_NO_MEMORY; STATUS_IO: no thread.
 */
enum status tracer_start(struct tracer **out, const struct tracer_settings *settings, struct buffer *error);

/* Adds a span, if its trace is sampled. Any thread; a NULL tracer takes nothing. */
void tracer_add(struct tracer *t, const struct span *span);

/* Spans delivered and spans lost so far; for the metrics. Any thread; NULL: 0. */
uint64_t tracer_delivered(const struct tracer *t);
uint64_t tracer_dropped(const struct tracer *t);

/* Delivers what waits, for at most wait_ms, and ends the thread. Nothing may be added any more. NULL is accepted. */
void tracer_stop(struct tracer *t, int64_t wait_ms);

/* As tracer_stop(), for a process that leaves at once while other threads may still add; frees nothing. */
void tracer_abandon(struct tracer *t, int64_t wait_ms);

#endif
