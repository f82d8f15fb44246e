/* SPDX-License-Identifier: MIT */
#include "net/message.h"

#include <stdlib.h>

static int on_target(llhttp_t *p, const char *at, size_t len)
{
    struct message *m = p->data;
    if (!m->target.data)
        m->target.data = at;
    m->target.len = (size_t)(at - m->target.data) + len;
    return 0;
}

static int on_reason(llhttp_t *p, const char *at, size_t len)
{
    struct message *m = p->data;
    if (!m->reason.data)
        m->reason.data = at;
    m->reason.len = (size_t)(at - m->reason.data) + len;
    return 0;
}

static int on_field(llhttp_t *p, const char *at, size_t len)
{
    struct message *m = p->data;
    if (m->head_seen)
        return 0; /* a trailer */
    if (m->count == 0 || m->in_value) {
        if (m->count == m->capacity)
            return -1; /* the shim counted fewer */
        m->list[m->count++] = (struct header){slice_of(at, 0), slice_of(NULL, 0)};
        m->in_value = false;
    }
    struct slice *name = &m->list[m->count - 1].name;
    name->len = (size_t)(at - name->data) + len;
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t len)
{
    struct message *m = p->data;
    if (m->head_seen)
        return 0;
    struct slice *value = &m->list[m->count - 1].value;
    if (!value->data)
        value->data = at;
    value->len = (size_t)(at - value->data) + len;
    m->in_value = true;
    return 0;
}

static int on_value_complete(llhttp_t *p)
{
    struct message *m = p->data;
    m->in_value = true; /* of an empty value nothing else is told */
    return 0;
}

static int on_headers_complete(llhttp_t *p)
{
    struct message *m = p->data;
    m->head_seen = true;
    m->flags = p->flags;
    m->keep_alive = llhttp_should_keep_alive(p) != 0;
    p->upgrade = 0; /* an Upgrade is never taken up (RFC 9110 section 7.8) */
    return m->body == SHIM_BODY_NONE && m->shim.response ? 1 : 0;
}

static int on_body(llhttp_t *p, const char *at, size_t len)
{
    struct message *m = p->data;
    if (m->piece.len)
        return -1; /* the shim gave one piece */
    m->piece = slice_of(at, len);
    return 0;
}

static int on_complete(llhttp_t *p)
{
    struct message *m = p->data;
    m->complete = true;
    return 0;
}

static const llhttp_settings_t message_settings = {
    .on_url = on_target,
    .on_status = on_reason,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

void message_start(struct message *m, bool response, size_t bytes_max, size_t count_max)
{
    shim_start(&m->shim, response, bytes_max, count_max);
    llhttp_init(&m->parser, response ? HTTP_RESPONSE : HTTP_REQUEST, &message_settings);
    m->parser.data = m;
    buffer_clear(&m->head);
    m->count = 0;
    m->method = m->target = m->reason = m->piece = slice_of(NULL, 0);
    m->no_body = m->keep_alive = m->in_value = m->head_seen = m->complete = false;
    m->flags = 0;
    m->body = SHIM_BODY_NONE;
}

void message_fini(struct message *m)
{
    buffer_fini(&m->head);
    free(m->list);
    m->list = NULL;
    m->count = m->capacity = 0;
}

static enum shim_verdict refuse(struct message *m, int status, const char *reason)
{
    m->shim.refused_status = status;
    m->shim.refused_reason = reason;
    return SHIM_REFUSED;
}

static bool room_for_fields(struct message *m)
{
    if (m->shim.fields <= m->capacity)
        return true;
    size_t capacity = m->shim.fields < 16 ? 16 : m->shim.fields;
    struct header *list = realloc(m->list, capacity * sizeof *list);
    if (!list)
        return false;
    m->list = list;
    m->capacity = capacity;
    return true;
}

/* The shim has accepted the head: the second reader, and whether both read the same. */
static enum shim_verdict parse_head(struct message *m)
{
    struct shim *s = &m->shim;
    size_t fields = s->fields;
    if (m->head.failed || !room_for_fields(m))
        return refuse(m, 503, "There is not enough memory to read this.");
    m->body = shim_body_start(s, m->no_body);
    enum llhttp_errno error = llhttp_execute(&m->parser, m->head.data, m->head.len);
    if (error == HPE_INVALID_METHOD)
        return refuse(m, 501, "The method is not known here.");
    if (error == HPE_INVALID_URL)
        return refuse(m, 400, "The request target is malformed.");
    if (error != HPE_OK || !m->head_seen || m->count != fields)
        return refuse(m, 400, "The head is malformed.");
    if (((m->flags & F_CHUNKED) != 0) != s->chunked ||
        ((m->flags & F_CONTENT_LENGTH) != 0) != (s->content_length >= 0) ||
        m->complete != (m->body == SHIM_BODY_NONE))
        return refuse(m, 400, "The head can be read in two ways.");
    for (size_t i = 0; i < m->count; i++)
        m->list[i].value = slice_trim(m->list[i].value);
    if (!s->response) {
        /* llhttp tells the target's place; the method is what stands before it. */
        const char *start = m->head.data;
        while (*start == '\r' || *start == '\n')
            start++;
        m->method = slice_of(start, (size_t)(m->target.data - start) - 1);
        if (slice_is(m->method, "CONNECT"))
            return refuse(m, 501, "CONNECT is not offered here.");
    }
    return SHIM_END;
}

enum shim_verdict message_head(struct message *m, const char *data, size_t len, size_t *taken)
{
    size_t had = m->head.len, end = 0;
    size_t room = m->shim.bytes_max + 1 - had;
    *taken = len < room ? len : room;
    enum shim_verdict verdict;
    if (had == 0) {
        /* Mostly the whole head is here, and only its own bytes are copied. */
        verdict = shim_head(&m->shim, data, *taken, &end);
        if (verdict == SHIM_END)
            *taken = end;
        if (verdict != SHIM_REFUSED)
            buffer_append(&m->head, data, *taken);
    } else {
        buffer_append(&m->head, data, *taken);
        if (m->head.failed)
            return refuse(m, 503, "There is not enough memory to read this.");
        verdict = shim_head(&m->shim, m->head.data, m->head.len, &end);
        if (verdict == SHIM_END) {
            *taken = end - had;
            m->head.len = end;
        }
    }
    return verdict == SHIM_END ? parse_head(m) : verdict;
}

enum shim_verdict message_body(struct message *m, const char *data, size_t len, size_t *taken,
                               struct slice *piece)
{
    bool content;
    m->piece = slice_of(NULL, 0);
    enum shim_verdict verdict = shim_body_next(&m->shim, data, len, taken, &content);
    if (verdict == SHIM_REFUSED)
        return verdict;
    enum llhttp_errno error = *taken ? llhttp_execute(&m->parser, data, *taken) : HPE_OK;
    if (error != HPE_OK && !(error == HPE_PAUSED_UPGRADE && m->complete))
        return refuse(m, 400, "The body's framing is malformed.");
    if (m->complete != (verdict == SHIM_END) || m->piece.len != (content ? *taken : 0))
        return refuse(m, 400, "The body's framing can be read in two ways.");
    *piece = m->piece;
    return verdict;
}

bool message_ends_at_close(struct message *m)
{
    return m->body == SHIM_BODY_UNTIL_CLOSE && m->head_seen && llhttp_finish(&m->parser) == HPE_OK &&
           m->complete;
}
