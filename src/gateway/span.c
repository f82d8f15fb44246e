/* SPDX-License-Identifier: MIT */
#include "gateway/span.h"

#include "base/hex.h"
#include "base/json_text.h"
#include "core/settings.h"
#include "net/loop.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define STATUS_CODE_ERROR 2 /* Status.StatusCode of the protocol */
#define VERB_BYTES_MAX    16

void span_id_of_call(const struct digest *call_digest, uint8_t out[SPAN_ID_BYTES])
{
    bool zero = true;
    memcpy(out, call_digest->bytes, SPAN_ID_BYTES);
    for (size_t i = 0; i < SPAN_ID_BYTES; i++)
        zero = zero && out[i] == 0;
    if (zero)
        out[SPAN_ID_BYTES - 1] = 1;
}

bool span_context_of_row(const struct call_row *row, struct traceparent *out)
{
    memset(out, 0, sizeof *out);
    if (!hex_read(row->trace_id, out->trace_id, sizeof out->trace_id))
        return false;
    span_id_of_call(&row->call_digest, out->parent_id);
    out->flags = 1;
    return true;
}

int64_t span_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t span_instant_us(int64_t monotonic_us)
{
    return span_now_us() - (clock_monotonic_us() - monotonic_us);
}

static void write_hex(struct buffer *out, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    buffer_byte(out, '"');
    for (size_t i = 0; i < count; i++) {
        buffer_byte(out, digits[bytes[i] >> 4]);
        buffer_byte(out, digits[bytes[i] & 15]);
    }
    buffer_byte(out, '"');
}

static bool has_parent(const struct span *span)
{
    for (size_t i = 0; i < SPAN_ID_BYTES; i++) {
        if (span->parent[i])
            return true;
    }
    return false;
}

static void write_time(struct buffer *out, const char *name, int64_t us)
{
    buffer_format(out, ",\"%s\":\"", name);
    buffer_number(out, us);
    buffer_text(out, "000\"");
}

static void write_text(struct buffer *out, struct slice text)
{
    json_text(out, slice_of(text.data, text.len < LOG_TEXT_BYTES_MAX ? text.len : LOG_TEXT_BYTES_MAX));
}

static void write_attributes(struct buffer *out, const struct log_field *list)
{
    bool first = true;
    buffer_text(out, ",\"attributes\":[");
    for (; list && list->type != LOG_FIELD_END; list++) {
        if (list->type == LOG_FIELD_TEXT && !list->text.len)
            continue;
        buffer_format(out, "%s{\"key\":\"%s\",\"value\":{", first ? "" : ",", list->name);
        first = false;
        if (list->type == LOG_FIELD_TEXT) {
            buffer_text(out, "\"stringValue\":");
            write_text(out, list->text);
        } else if (list->type == LOG_FIELD_NUMBER) {
            buffer_text(out, "\"intValue\":\"");
            buffer_number(out, list->number);
            buffer_byte(out, '"');
        } else {
            buffer_text(out, list->number ? "\"boolValue\":true" : "\"boolValue\":false");
        }
        buffer_text(out, "}}");
    }
    buffer_byte(out, ']');
}

void span_write(struct buffer *out, const struct span *span)
{
    buffer_text(out, "{\"traceId\":");
    write_hex(out, span->self.trace_id, sizeof span->self.trace_id);
    buffer_text(out, ",\"spanId\":");
    write_hex(out, span->self.parent_id, sizeof span->self.parent_id);
    if (has_parent(span)) {
        buffer_text(out, ",\"parentSpanId\":");
        write_hex(out, span->parent, sizeof span->parent);
    }
    char name[VERB_BYTES_MAX + 1 + SETTINGS_ROUTE_NAME_MAX + 1];
    snprintf(name, sizeof name, "%s %s", span->verb, span->route);
    buffer_format(out, ",\"flags\":%u,\"name\":", (unsigned)span->self.flags);
    json_text(out, slice_text(name));
    buffer_format(out, ",\"kind\":%d", (int)span->kind);
    write_time(out, "startTimeUnixNano", span->start_us);
    write_time(out, "endTimeUnixNano", span->end_us);
    write_attributes(out, span->list);
    if (span->error.len) {
        buffer_format(out, ",\"status\":{\"code\":%d,\"message\":", STATUS_CODE_ERROR);
        write_text(out, span->error);
        buffer_byte(out, '}');
    }
    buffer_byte(out, '}');
}
