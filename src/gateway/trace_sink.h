/* SPDX-License-Identifier: MIT
 *
 * Where traces go: a file that grows line by line, or a collector that is sent to by HTTP. Used by the tracer's thread
 * alone; it may wait here as long as it likes.
 */
#ifndef SAMEKEY_GATEWAY_TRACE_SINK_H
#define SAMEKEY_GATEWAY_TRACE_SINK_H

#include "base/buffer.h"
#include "base/status.h"
#include "core/settings.h"

struct trace_sink;

/* Says whether the thread must leave now; asked while a request is on its way. */
typedef bool trace_sink_leave(void *context);

/* Opens the file, or prepares the sending. STATUS_INVALID with the reason in error. STATUS_NO_MEMORY. */
enum status trace_sink_open(struct trace_sink **out, const char *target, const struct text_list *headers,
                            trace_sink_leave *leave, void *context, struct buffer *error);
void trace_sink_close(struct trace_sink *sink);

enum trace_sent {
    TRACE_SENT,
    TRACE_LATER,  /* not now: disk full, no connection, 429, 502, 503, 504 (OTLP: retryable) */
    TRACE_REFUSED /* never: it will not be taken the next time either */
};

/*
 * Delivers one request document (without a line end). *rejected: of its spans, how many the collector says it did not
 * take, after TRACE_SENT. Else *why is a sentence, borrowed until the next call.
 */
enum trace_sent trace_sink_send(struct trace_sink *sink, struct slice document, uint64_t *rejected,
                                const char **why);

#endif
