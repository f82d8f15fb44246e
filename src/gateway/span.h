/* SPDX-License-Identifier: MIT
 *
 * One span of a trace: something that began, ended and belongs to a trace id, as the OpenTelemetry protocol writes it in
 * JSON. Ids are hexadecimal and times are decimal strings of nanoseconds there (OTLP 1.x, "JSON Protobuf Encoding").
 */
#ifndef SAMEKEY_GATEWAY_SPAN_H
#define SAMEKEY_GATEWAY_SPAN_H

#include "base/buffer.h"
#include "core/receipt.h"
#include "core/traceparent.h"
#include "gateway/log.h"

#define SPAN_ID_BYTES 8

/* SpanKind of the protocol. */
enum span_kind { SPAN_SERVER = 2, SPAN_CLIENT = 3 };

struct span {
    /* Whose trace it is, its own id (parent_id: what was sent on in traceparent), and the flags. */
    struct traceparent self;
    uint8_t parent[SPAN_ID_BYTES]; /* zero bytes: it has none */
    enum span_kind kind;
    const char *verb, *route;     /* its name is "VERB ROUTE" */
    int64_t start_us, end_us;     /* unix */
    struct slice error;           /* empty: it went well; else why not */
    const struct log_field *list; /* attributes, up to LOG_END; a text that is empty is left out */
};

/* The id of a call's own span: made from the digest of its callId, so that whoever follows it up later, in another
 * process too, names the same parent without anything being stored. Never zero. */
void span_id_of_call(const struct digest *call_digest, uint8_t out[SPAN_ID_BYTES]);

/* The context of a call's own span, from its row: for what is done about it later. False: it has no trace. Whether the
 * trace is sampled is not stored; a follow-up is rare and worth seeing, so it counts as sampled. */
bool span_context_of_row(const struct call_row *row, struct traceparent *out);

/* Unix microseconds of now, and of the monotonic instant `monotonic_us`. */
int64_t span_now_us(void);
int64_t span_instant_us(int64_t monotonic_us);

/* Adds the span as one JSON object. */
void span_write(struct buffer *out, const struct span *span);

#endif
