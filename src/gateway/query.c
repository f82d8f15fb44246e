/* SPDX-License-Identifier: MIT */
#include "gateway/query.h"

#include "base/civil.h"
#include "base/hex.h"
#include "gateway/answer.h"
#include "gateway/ledger.h"

#include <stdio.h>
#include <stdlib.h>

#define QUERY_LATE_MS          50         /* after its deadline the ledger is not waited for any longer */
#define QUERY_KEPT_LINES_MAX   256        /* header lines of a kept request that are looked at */
#define QUERY_ANSWER_BYTES_MAX (4u << 20) /* of a receipt document; a larger one is not believed */

struct query {
    struct shard *shard;
    struct exchange *exchange;
    struct buffer head, body;
    struct buffer answer;
    int status;
    bool too_large;
    struct slice call_id, key; /* in ids */
    char trace_id[33];         /* "": none */
    struct buffer ids;
    int64_t first_attempt_ms;
    struct outlets *outlets;
    const struct lane *lane;
    query_done *done;
    void *owner;
    bool fence, has_trace;
    struct traceparent trace; /* its own span */
    uint8_t parent[SPAN_ID_BYTES];
    int64_t start_us;         /* monotonic */
    struct ledger_ask ledger; /* of a receipt in the service's own tables */
    struct net_timer late;
    bool told;
};

static void query_free(struct query *q)
{
    outlets_release(q->outlets);
    buffer_fini(&q->head);
    buffer_fini(&q->body);
    buffer_fini(&q->answer);
    buffer_fini(&q->ids);
    buffer_fini(&q->ledger.document);
    free(q);
}

static void on_head(void *context, struct exchange *exchange, const struct response_head *head)
{
    struct query *q = context;
    (void)exchange;
    q->status = head->status;
}

static void on_piece(void *context, struct exchange *exchange, struct slice piece)
{
    struct query *q = context;
    (void)exchange;
    buffer_slice(&q->answer, piece);
    q->too_large = q->too_large || q->answer.failed;
}

static void trace(const struct query *q, const struct receipt_reading *reading)
{
    if (!q->shard->tracer || !q->has_trace)
        return;
    bool failed = reading->answer == RECEIPT_ANSWER_QUERY_FAILED;
    const struct log_field list[] = {
        LOG_TEXT("samekey.call_id", q->call_id),
        LOG_STRING("samekey.route", q->lane->s->name),
        LOG_STRING("samekey.answer", receipt_answer_text(reading->answer)),
        LOG_NUMBER("http.response.status_code", q->status),
        LOG_END,
    };
    struct span span = {
        .self = q->trace,
        .kind = SPAN_CLIENT,
        .verb = q->fence ? "fence" : "receipt",
        .route = q->lane->s->name,
        .start_us = span_instant_us(q->start_us),
        .end_us = span_now_us(),
        .error = failed ? slice_text(reading->why) : slice_of("", 0),
        .list = list,
    };
    memcpy(span.parent, q->parent, sizeof span.parent);
    tracer_add(q->shard->tracer, &span);
}

/* What was answered, judged and told. `why`: how it comes that there is no answer, or "". */
static void tell(struct query *q, bool whole, struct slice document, const char *why)
{
    struct receipt_reading reading;
    receipt_read(&reading, whole ? q->status : 0, document, q->call_id, q->first_attempt_ms,
                 slice_text(q->lane->s->receipt_map));
    if (*why)
        snprintf(reading.why, sizeof reading.why, "%s", why);
    struct shard *shard = q->shard;
    metrics_add(shard->counts, METRIC_receipt_queries, 0, (size_t)reading.answer, 1);
    log_event(shard->log, LOG_LEVEL_INFO, clock_wall_ms(), q->call_id, "receipt_asked",
              LOG_STRING("answer", receipt_answer_text(reading.answer)), LOG_NUMBER("status", q->status),
              LOG_STRING("why", reading.why), LOG_TEXT("key", q->key), LOG_STRING("route", q->lane->s->name),
              LOG_STRING("trace_id", q->trace_id));
    trace(q, &reading);
    if (q->done)
        q->done(q->owner, &reading);
    q->told = true;
    receipt_reading_fini(&reading);
}

static void on_end(void *context, struct exchange *exchange, const struct net_evidence *evidence)
{
    struct query *q = context;
    (void)exchange;
    /* A body that ended with the connection may be cut: it is not complete, so it is not believed. */
    tell(q, evidence->end == NET_END_COMPLETE && !evidence->body_until_close && !q->too_large,
         buffer_view(&q->answer), "");
    query_free(q);
}

static void on_ledger(struct letter *letter)
{
    struct query *q = LIST_ENTRY(letter, struct query, ledger.letter);
    q->shard->jobs_out--;
    net_timer_disarm(q->shard->loop, &q->late);
    if (!q->told) {
        q->status = q->ledger.answered ? 200 : 0;
        tell(q, q->ledger.answered, buffer_view(&q->ledger.document), q->ledger.why);
    }
    query_free(q);
}

/* The name of a database may be looked up for as long as the system likes; whoever asked does not wait for that. */
static void on_late(struct net_timer *timer)
{
    struct query *q = LIST_ENTRY(timer, struct query, late);
    tell(q, false, slice_of("", 0), "the database did not answer in time");
}

static enum status ask_ledger(struct query *q, const struct query_ask *ask)
{
    struct net_loop *loop = q->shard->loop;
    q->ledger.letter.open = on_ledger;
    q->ledger.loop = loop;
    q->ledger.call_id = q->call_id;
    q->ledger.fence = ask->fence;
    q->ledger.deadline_ms = net_loop_now(loop) + ask->timeout_ms;
    q->ledger.document.max = QUERY_ANSWER_BYTES_MAX;
    enum status status = ledger_ask(q->lane->ledger, &q->ledger);
    if (status != STATUS_OK)
        return status;
    q->shard->jobs_out++; /* the shard stays until it is home */
    net_timer_arm(loop, &q->late, q->ledger.deadline_ms + QUERY_LATE_MS, on_late);
    return STATUS_OK;
}

static const struct exchange_handlers handlers = {on_head, on_piece, NULL, on_end};

struct url_parts {
    const struct query_ask *ask;
};

static bool look_up(void *context, enum template_source source, struct slice name, struct buffer *out)
{
    const struct url_parts *parts = context;
    (void)name;
    if (source == TEMPLATE_CALL_ID)
        buffer_slice(out, parts->ask->call_id);
    else if (source == TEMPLATE_KEY && parts->ask->key.len)
        buffer_slice(out, parts->ask->key);
    else
        return false;
    return true;
}

static void append_encoded(struct buffer *out, struct slice s)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '.' || c == '_' || c == '~' || c == '/';
        if (plain) {
            buffer_byte(out, (char)c);
        } else {
            char code[] = {'%', digits[c >> 4], digits[c & 15]};
            buffer_append(out, code, sizeof code);
        }
    }
}

/* The method of the request line: a fence is a POST unless the route says otherwise. */
static struct slice method_of(const struct query_ask *ask)
{
    bool http = ask->lane->s->receipt.kind == RECEIPT_HTTP;
    if (ask->fence)
        return http ? ask->lane->fence_method : slice_text("POST");
    return slice_text(http ? ask->lane->s->receipt.method : "GET");
}

/* The request line's target. False: the template has a part that this call does not have. */
static bool append_target(struct buffer *out, const struct query_ask *ask)
{
    if (ask->lane->s->receipt.kind == RECEIPT_HTTP) {
        struct url_parts parts = {ask};
        struct template_inputs inputs = {look_up, &parts, 0};
        return template_render(ask->fence ? &ask->lane->fence_path : &ask->lane->receipt_path, &inputs, out,
                               NULL) == STATUS_OK;
    }
    buffer_text(out, "/.samekey/receipts/");
    buffer_slice(out, ask->call_id);
    if (ask->fence) {
        buffer_text(out, "/fence");
        return true;
    }
    if (ask->method.len && ask->target.len) {
        const char *mark = memchr(ask->target.data, '?', ask->target.len);
        size_t len = mark ? (size_t)(mark - ask->target.data) : ask->target.len;
        buffer_text(out, "?method=");
        append_encoded(out, ask->method);
        buffer_text(out, "&path=");
        append_encoded(out, slice_of(ask->target.data, len));
        buffer_text(out, "&since=");
        civil_print_rfc3339(ask->first_attempt_ms, out);
    }
    return true;
}

static void append_host(struct buffer *out, const struct origin *origin)
{
    if (origin->is_unix) {
        buffer_text(out, "localhost");
        return;
    }
    bool six = strchr(origin->host, ':') != NULL;
    buffer_format(out, six ? "[%s]" : "%s", origin->host);
    if (strcmp(origin->port, origin->tls ? "443" : "80") != 0)
        buffer_format(out, ":%s", origin->port);
}

enum status query_start(struct query **out, struct shard *shard, const struct query_ask *ask,
                        query_done *done, void *owner)
{
    struct query *q = calloc(1, sizeof *q);
    if (!q)
        return STATUS_NO_MEMORY;
    q->shard = shard;
    q->outlets = outlets_hold(ask->outlets);
    q->lane = ask->lane;
    q->done = done;
    q->owner = owner;
    q->first_attempt_ms = ask->first_attempt_ms;
    q->answer.max = QUERY_ANSWER_BYTES_MAX;
    const struct slice ids[] = {ask->call_id, ask->key, ask->tenant};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        buffer_slice(&q->ids, ids[i]);
        buffer_byte(&q->ids, '\0');
    }
    if (q->ids.failed) {
        query_free(q);
        return STATUS_NO_MEMORY;
    }
    q->call_id = slice_of(q->ids.data, ask->call_id.len);
    q->key = slice_of(q->call_id.data + ask->call_id.len + 1, ask->key.len);
    q->ledger.tenant = slice_of(q->key.data + ask->key.len + 1, ask->tenant.len);
    q->fence = ask->fence;
    q->has_trace = ask->has_trace;
    q->start_us = clock_monotonic_us();
    if (ask->lane->ledger) {
        if (ask->has_trace) {
            traceparent_child(&ask->trace, prng_next(&shard->random), &q->trace);
            memcpy(q->parent, ask->trace.parent_id, sizeof q->parent);
            traceparent_trace_id(&q->trace, q->trace_id);
        }
        enum status status = ask_ledger(q, ask);
        if (status == STATUS_OK)
            *out = q;
        else
            query_free(q);
        return status;
    }
    const struct origin *origin = &ask->lane->origins[ask->origin];
    buffer_slice(&q->head, method_of(ask));
    buffer_byte(&q->head, ' ');
    bool good = append_target(&q->head, ask);
    buffer_text(&q->head, " HTTP/1.1\r\nHost: ");
    append_host(&q->head, origin);
    buffer_text(&q->head, "\r\nAccept: application/json\r\n");
    buffer_slice(&q->head, ask->header_lines);
    if (ask->has_trace) {
        char text[TRACEPARENT_BYTES + 1];
        traceparent_child(&ask->trace, prng_next(&shard->random), &q->trace);
        memcpy(q->parent, ask->trace.parent_id, sizeof q->parent);
        traceparent_trace_id(&q->trace, q->trace_id);
        traceparent_print(&q->trace, text);
        line_append(&q->head, "traceparent", slice_text(text));
    }
    for (size_t i = 0; i < ask->lane->s->receipt_header.count; i++) {
        buffer_text(&q->head, ask->lane->s->receipt_header.items[i]);
        buffer_text(&q->head, "\r\n");
    }
    if (ask->fence)
        buffer_text(&q->head, "Content-Length: 0\r\n");
    buffer_text(&q->head, "\r\n");
    struct exchange_request request = {
        .origin = origin,
        .head = buffer_view(&q->head),
        .deadline_ms = net_loop_now(shard->loop) + ask->timeout_ms,
    };
    if (!good || q->head.failed ||
        exchange_start(&q->exchange, ask->outlets->clients[ask->lane->index], &request, &handlers, q) !=
            STATUS_OK) {
        query_free(q);
        return STATUS_NO_MEMORY;
    }
    *out = q;
    return STATUS_OK;
}

void query_forget(struct query *q)
{
    if (q)
        q->done = NULL;
}

/* Whether one of the lines, as an operator wrote them, is of this name. */
static bool line_is_named(const struct text_list *lines, struct slice name)
{
    for (size_t i = 0; i < lines->count; i++) {
        struct slice line = slice_text(lines->items[i]);
        if (line.len > name.len && line.data[name.len] == ':' &&
            slice_equal_nocase(slice_of(line.data, name.len), name))
            return true;
    }
    return false;
}

static bool read_before(const struct template *t, size_t count, struct slice name)
{
    for (size_t i = 0; i < count; i++)
        if (t->parts[i].source == TEMPLATE_HEADER && slice_equal_nocase(t->parts[i].name, name))
            return true;
    return false;
}

static bool append_principal(struct buffer *out, struct slice name, const struct headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        if (!slice_equal_nocase(headers->list[i].name, name))
            continue;
        buffer_slice(out, headers->list[i].name);
        buffer_text(out, ": ");
        buffer_slice(out, headers->list[i].value);
        buffer_text(out, "\r\n");
        return true;
    }
    return false;
}

bool query_principal_lines(struct buffer *out, const struct setup *setup, const struct headers *headers,
                           const struct text_list *own)
{
    bool all = true;
    const struct template *both[] = {setup->has_tenant ? &setup->tenant : NULL,
                                     setup->has_credential ? &setup->credential : NULL};
    for (size_t which = 0; which < 2; which++) {
        const struct template *t = both[which];
        for (size_t i = 0; t && i < t->count; i++) {
            struct slice name = t->parts[i].name;
            /* A name twice in one question is another caller's to many a service. */
            if (t->parts[i].source != TEMPLATE_HEADER || line_is_named(own, name) ||
                read_before(t, i, name) || (which && both[0] && read_before(both[0], both[0]->count, name)))
                continue;
            all = append_principal(out, name, headers) && all;
        }
    }
    return all;
}

/* With a credential alone its digest is the tenant (identity.c): nothing that a header ever said. */
static bool tenant_is_digest(const struct call_row *call)
{
    char hex[2 * sizeof call->credential.bytes];
    if (!call->has_credential || call->tenant.len != sizeof hex)
        return false;
    hex_write(hex, call->credential.bytes, sizeof call->credential.bytes);
    return memcmp(hex, call->tenant.data, sizeof hex) == 0;
}

/* The header that a tenant was read from, where the tenant is that header and nothing else: then the row tells it. */
static bool tenant_header(const struct setup *setup, const struct call_row *call, struct header *out)
{
    const struct template *t = &setup->tenant;
    if (!setup->has_tenant || t->count != 1 || t->parts[0].source != TEMPLATE_HEADER ||
        t->parts[0].before.len || t->after.len || !call->tenant.len || tenant_is_digest(call))
        return false;
    *out = (struct header){.name = t->parts[0].name, .value = call->tenant};
    return true;
}

/* Whether the callers are told apart today by what they were told apart by when the call was made. */
static bool setup_fits(const struct setup *setup, const struct call_row *call)
{
    bool had_tenant = call->tenant.len && !tenant_is_digest(call);
    return setup->has_tenant == had_tenant && setup->has_credential == call->has_credential;
}

bool query_principal_kept(struct buffer *out, const struct setup *setup, struct slice lines,
                          const struct call_row *call, const struct text_list *own)
{
    struct header list[QUERY_KEPT_LINES_MAX];
    struct headers headers = {.list = list};
    while (lines.len && headers.count < QUERY_KEPT_LINES_MAX) {
        const char *stop = memchr(lines.data, '\n', lines.len);
        size_t len = stop ? (size_t)(stop - lines.data) + 1 : lines.len;
        struct slice line = {lines.data, stop ? len - 1 : len};
        if (line.len && line.data[line.len - 1] == '\r')
            line.len--; /* kept in a value, it would end the head of the question early */
        const char *colon = memchr(line.data, ':', line.len);
        if (colon) {
            size_t name = (size_t)(colon - line.data);
            list[headers.count++] = (struct header){
                .name = slice_of(line.data, name),
                .value = slice_trim(slice_of(colon + 1, line.len - name - 1)),
            };
        }
        lines = slice_of(lines.data + len, lines.len - len);
    }
    if (!headers.count && tenant_header(setup, call, &list[0]))
        headers.count = 1;
    return query_principal_lines(out, setup, &headers, own) && setup_fits(setup, call);
}
