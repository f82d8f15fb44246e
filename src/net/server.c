/* SPDX-License-Identifier: MIT
 *
 * A connection walks round this circle; `feed` is the one place that reads its bytes:
 *
 *   IDLE ──first byte──▶ HEAD ──whole head──▶ REQUEST ──answer taken by the kernel──▶ IDLE
 *                          └──refused──┐          └──answered early, refused──┐
 *                                      ▼                                      ▼
 *   CLOSED ◀─── end of stream, LINGER_MS or LINGER_BYTES_MAX ──────────── LINGER
 *
 * Breaks (reset, write failure, timeouts of writing, cut body) go from everywhere to CLOSED; a request that was
 * under way is then finished in the close callback, so that no function of the interface frees its argument by
 * surprise. Connections and requests are kept for the next one, and only a request owns buffers: an idle
 * connection is one small object.
 */
#include "net/server.h"

#include "net/listen.h"
#include "net/message.h"
#include "net/outlet.h"
#include "net/status_text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SPARES_MAX       256     /* objects kept for the next connection, and for the next request */
#define SPARE_HEAD_BYTES 4096    /* a request that is kept does not keep a larger head buffer */
#define LINGER_MS        2000    /* how long a caller may go on sending what will not be read */
#define LINGER_BYTES_MAX 1048576 /* and how much of it is thrown away */
#define ACCEPTS_PER_TURN 64      /* so that a storm of connections does not starve the open ones */

enum phase { PHASE_IDLE = 0, PHASE_HEAD, PHASE_REQUEST, PHASE_LINGER, PHASE_CLOSED };
enum body_state { BODY_DONE = 0, BODY_UNREAD, BODY_READING, BODY_PAUSED };
enum answer_state { ANSWER_NONE = 0, ANSWER_BEGUN, ANSWER_ENDED };

struct request {
    struct list link; /* in net_server.spare_requests while not in use */
    struct connection *connection;
    struct message message;
    struct request_head head;
    void *user;
    enum body_state body;
    enum answer_state answer;
    bool bodyless; /* HEAD, 204, 304: the answer has no body */
    bool chunked;  /* the answer is sent in chunks */
    bool closes;   /* the connection ends with this answer */
    bool full;     /* request_write() said so and on_drain is owed */
    int64_t left;  /* answer bytes still to come, or -1 */
};

struct connection {
    struct list link; /* in net_server.connections, or spare_connections */
    struct net_server *server;
    union {
        uv_stream_t stream;
        uv_handle_t handle;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_shutdown_t shutdown;
    struct outlet out;
    struct net_timer timer; /* the earlier of read_by and write_by, or an earlier time */
    struct net_timer kick;  /* work that must not be done inside a function of the interface */
    enum phase phase;
    struct request *request; /* from the first byte of its head */
    struct buffer pending;   /* bytes read and not yet used */
    size_t in_hand;          /* while feeding: bytes behind what was read so far */
    bool feeding, reading, eof, shut;
    int64_t read_by, write_by; /* clock_monotonic_ms(), or INT64_MAX */
    size_t lingered;           /* bytes thrown away */
    char peer[48];
};

struct net_server {
    struct net_loop *loop;
    struct server_limits limits;
    struct server_handlers handlers;
    void *context;
    struct listener listener;
    uv_poll_t door;
    bool door_open, draining, freed;
    struct net_timer accept_again;
    struct list connections, spare_connections, spare_requests;
    size_t count, spare_connection_count, spare_request_count;
    uint64_t accept_pauses, turned_away;
    struct buffer scratch; /* the head of the answer being written */
    int64_t date_second;
    char date[96];
};

static void connection_feed(struct connection *c, const char *data, size_t len);
static void connection_settle(struct connection *c);

/* Bytes that are here and were not used yet. */
static size_t connection_behind(const struct connection *c)
{
    return c->feeding ? c->in_hand : c->pending.len;
}

/* ---- requests ---- */

static struct request *request_take(struct connection *c)
{
    struct net_server *server = c->server;
    struct list *link = list_pop_front(&server->spare_requests);
    struct request *r;
    if (link) {
        r = LIST_ENTRY(link, struct request, link);
        server->spare_request_count--;
    } else {
        r = calloc(1, sizeof *r);
        if (!r)
            return NULL;
        list_init(&r->link);
    }
    message_start(&r->message, false, server->limits.headers_bytes_max, server->limits.headers_count_max);
    r->connection = c;
    r->user = NULL;
    r->body = BODY_DONE;
    r->answer = ANSWER_NONE;
    r->bodyless = r->chunked = r->closes = r->full = false;
    r->left = -1;
    return r;
}

static void request_free(struct request *r)
{
    message_fini(&r->message);
    free(r);
}

static void request_give_back(struct net_server *server, struct request *r)
{
    if (server->spare_request_count >= SPARES_MAX || server->freed) {
        request_free(r);
        return;
    }
    if (r->message.head.capacity > SPARE_HEAD_BYTES)
        buffer_fini(&r->message.head);
    list_push_front(&server->spare_requests, &r->link);
    server->spare_request_count++;
}

static void request_finish(struct connection *c, bool gone)
{
    struct request *r = c->request;
    c->request = NULL;
    c->server->handlers.on_finished(c->server->context, r, gone);
    request_give_back(c->server, r);
}

/* ---- connections: time, reading, closing ---- */

static void server_maybe_free(struct net_server *server)
{
    if (!server->freed || server->count || server->door_open)
        return;
    struct list *link;
    while ((link = list_pop_front(&server->spare_requests)))
        request_free(LIST_ENTRY(link, struct request, link));
    while ((link = list_pop_front(&server->spare_connections)))
        free(LIST_ENTRY(link, struct connection, link));
    buffer_fini(&server->scratch);
    free(server);
}

static void connection_closed(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    struct net_server *server = c->server;
    if (c->request && c->request->head.method.len)
        request_finish(c, true);
    else if (c->request)
        request_give_back(server, c->request); /* its head was never whole: nobody knows of it */
    c->request = NULL;
    net_timer_disarm(server->loop, &c->timer);
    net_timer_disarm(server->loop, &c->kick);
    outlet_fini(&c->out);
    buffer_fini(&c->pending);
    list_remove(&c->link);
    server->count--;
    if (server->spare_connection_count < SPARES_MAX && !server->freed) {
        list_push_front(&server->spare_connections, &c->link);
        server->spare_connection_count++;
    } else {
        free(c);
    }
    server_maybe_free(server);
}

static void connection_close(struct connection *c)
{
    if (c->phase == PHASE_CLOSED)
        return;
    c->phase = PHASE_CLOSED;
    c->reading = false;
    outlet_settle(&c->out);
    uv_close(&c->uv.handle, connection_closed);
}

static void connection_on_timer(struct net_timer *timer);

static void connection_watch(struct connection *c)
{
    int64_t at = c->read_by < c->write_by ? c->read_by : c->write_by;
    /* A timer that is already set for an earlier time is left: it looks again when it fires, which is cheaper
     * than moving it with every request. */
    if (at != INT64_MAX && (!c->timer.armed || at < c->timer.node.at_ms))
        net_timer_arm(c->server->loop, &c->timer, at, connection_on_timer);
}

static int64_t connection_in(const struct connection *c, uint32_t ms)
{
    return net_loop_now(c->server->loop) + ms;
}

static void connection_after_shutdown(uv_shutdown_t *shutdown, int status)
{
    (void)shutdown;
    (void)status; /* a failure is seen by the reader too */
}

/* The last answer is written: tell the caller, and read what it still sends so that no reset destroys the answer
 * before the caller has read it (RFC 9112 section 9.6). */
static void connection_linger(struct connection *c)
{
    c->phase = PHASE_LINGER;
    c->lingered = 0;
    outlet_settle(&c->out);
    c->read_by = connection_in(c, LINGER_MS);
    if (outlet_waiting(&c->out) == 0) {
        c->write_by = INT64_MAX;
        if (c->eof) {
            connection_close(c);
            return;
        }
        if (!c->shut && uv_shutdown(&c->shutdown, &c->uv.stream, connection_after_shutdown) == 0)
            c->shut = true;
    } else {
        c->write_by = connection_in(c, c->server->limits.write_timeout_ms);
    }
    connection_watch(c);
}

static void connection_on_kick(struct net_timer *timer)
{
    struct connection *c = HEAP_ENTRY(timer, struct connection, kick);
    if (c->phase == PHASE_LINGER && c->request)
        request_finish(c, true);
    if (c->phase != PHASE_CLOSED)
        connection_feed(c, NULL, 0);
}

static void connection_kick(struct connection *c)
{
    if (!c->kick.armed)
        net_timer_arm(c->server->loop, &c->kick, net_loop_now(c->server->loop), connection_on_kick);
}

/* Refuses what came: with an answer if none was begun. */
static void connection_refuse(struct connection *c, int status, const char *reason)
{
    struct request *r = c->request;
    if (r && r->answer != ANSWER_NONE) {
        connection_close(c);
        return;
    }
    struct buffer answer = {0};
    c->server->handlers.on_refused(c->server->context, status, reason, &answer);
    uv_buf_t part = uv_buf_init(answer.data, (unsigned)answer.len);
    int error = answer.failed ? UV_ENOMEM : answer.len ? outlet_write(&c->out, &part, 1) : 0;
    buffer_fini(&answer);
    if (r && c->phase == PHASE_HEAD) {
        c->request = NULL;
        request_give_back(c->server, r);
    } else if (r) {
        r->answer = ANSWER_ENDED;
        connection_kick(c); /* its on_finished, not inside request_read_body() */
    }
    if (error)
        connection_close(c);
    else
        connection_linger(c);
}

static void connection_on_timer(struct net_timer *timer)
{
    struct connection *c = HEAP_ENTRY(timer, struct connection, timer);
    int64_t now = net_loop_now(c->server->loop);
    if (c->phase == PHASE_CLOSED)
        return;
    if (c->write_by <= now) {
        connection_close(c);
        return;
    }
    if (c->read_by <= now) {
        c->read_by = INT64_MAX;
        if (c->phase == PHASE_HEAD)
            connection_refuse(c, 408, "The head of the request took too long.");
        else if (c->phase == PHASE_REQUEST)
            connection_refuse(c, 408, "The body of the request stopped coming.");
        else
            connection_close(c);
        if (c->phase == PHASE_CLOSED)
            return;
    }
    connection_watch(c);
}

/* ---- reading ---- */

/* Path and query of the target. The absolute form (RFC 9112 section 3.2.2) is taken where it names the host that Host
 * names, and is then the origin form it stands for; false: it names another one, or no path before a query. */
static bool split_target(struct request_head *h)
{
    struct slice t = h->target;
    if (t.len && t.data[0] != '/' && t.data[0] != '*') {
        const char *p = memmem(t.data, t.len, "://", 3);
        size_t from = p ? (size_t)(p - t.data) + 3 : 0, at = from;
        while (at < t.len && t.data[at] != '/' && t.data[at] != '?')
            at++;
        if (!p ||
            !slice_equal_nocase(slice_of(t.data + from, at - from), headers_get(&h->headers, "Host", NULL)))
            return false;
        t = at < t.len ? slice_of(t.data + at, t.len - at) : slice_text("/");
        if (t.data[0] != '/')
            return false;
        h->target = t;
    }
    const char *mark = t.len ? memchr(t.data, '?', t.len) : NULL;
    size_t path = mark ? (size_t)(mark - t.data) : t.len;
    h->path = path ? slice_of(t.data, path) : slice_text("/");
    h->query = mark ? slice_of(mark + 1, t.len - path - 1) : slice_of(NULL, 0);
    return true;
}

/* A whole head is here: the request begins. */
static void request_start(struct connection *c)
{
    struct request *r = c->request;
    struct message *m = &r->message;
    r->head = (struct request_head){
        .method = m->method,
        .target = m->target,
        .headers = {m->list, m->count},
        .minor = m->shim.minor,
        .has_body = m->body != SHIM_BODY_NONE,
        .content_length = m->shim.chunked              ? -1
                          : m->shim.content_length < 0 ? 0
                                                       : m->shim.content_length,
        .keep_alive = m->keep_alive,
    };
    if (!split_target(&r->head)) {
        connection_refuse(c, 400, "The target's host is not the one that Host names.");
        return;
    }
    if (r->head.minor == 1 && r->head.has_body) {
        bool found;
        struct slice expect = headers_get(&r->head.headers, "Expect", &found);
        r->head.expect_continue = found && slice_is_nocase(expect, "100-continue");
    }
    r->body = r->head.has_body ? BODY_UNREAD : BODY_DONE;
    c->phase = PHASE_REQUEST;
    c->read_by = INT64_MAX;
    c->server->handlers.on_head(c->server->context, r);
}

static bool step_head(struct connection *c, const char *data, size_t len, size_t *taken)
{
    if (c->phase == PHASE_IDLE) {
        c->request = request_take(c);
        if (!c->request) {
            connection_close(c);
            return false;
        }
        c->request->head.method = slice_of(NULL, 0);
        c->phase = PHASE_HEAD;
    }
    struct message *m = &c->request->message;
    bool first = m->head.len == 0;
    switch (message_head(m, data, len, taken)) {
    case SHIM_END:
        c->in_hand = len - *taken;
        request_start(c);
        return true;
    case SHIM_MORE:
        if (first) /* later bytes do not move it: a head that drips is a slow head */
            c->read_by = connection_in(c, c->server->limits.header_timeout_ms);
        return true;
    default:
        connection_refuse(c, m->shim.refused_status, m->shim.refused_reason);
        return false;
    }
}

static bool step_body(struct connection *c, const char *data, size_t len, size_t *taken)
{
    struct request *r = c->request;
    struct slice piece;
    enum shim_verdict verdict = message_body(&r->message, data, len, taken, &piece);
    if (verdict == SHIM_REFUSED) {
        connection_refuse(c, r->message.shim.refused_status, r->message.shim.refused_reason);
        return false;
    }
    c->in_hand = len - *taken;
    c->read_by = connection_in(c, c->server->limits.body_timeout_ms);
    if (verdict == SHIM_END) {
        r->body = BODY_DONE;
        c->read_by = INT64_MAX;
    }
    if (piece.len)
        c->server->handlers.on_body(c->server->context, r, piece);
    if (verdict == SHIM_END && c->request == r && c->phase == PHASE_REQUEST)
        c->server->handlers.on_body_end(c->server->context, r);
    return true;
}

/* Uses some of the bytes; false when none can be used now. */
static bool connection_step(struct connection *c, const char *data, size_t len, size_t *taken)
{
    *taken = 0;
    if (len == 0)
        return false;
    switch (c->phase) {
    case PHASE_IDLE:
    case PHASE_HEAD:
        return step_head(c, data, len, taken);
    case PHASE_REQUEST:
        return c->request->body == BODY_READING && step_body(c, data, len, taken);
    default:
        return false;
    }
}

static void connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct connection *c = handle->data;
    (void)suggested;
    size_t len = NET_READ_BYTES;
    size_t max = c->server->limits.pipeline_bytes_max;
    if (c->phase == PHASE_REQUEST && c->request->body != BODY_READING &&
        (max <= c->pending.len || max - c->pending.len < len))
        len = max > c->pending.len ? max - c->pending.len : 1;
    *out = uv_buf_init(net_loop_read_buffer(c->server->loop), (unsigned)len);
}

static void connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct connection *c = stream->data;
    if (c->phase == PHASE_CLOSED || n == 0)
        return;
    if (n < 0 && n != UV_EOF) {
        connection_close(c);
        return;
    }
    if (n == UV_EOF) {
        c->eof = true;
        c->reading = false;
        n = 0;
    }
    if (c->phase == PHASE_LINGER) {
        c->lingered += (size_t)n;
        if ((c->eof && outlet_waiting(&c->out) == 0) || c->lingered > LINGER_BYTES_MAX)
            connection_close(c);
        return;
    }
    connection_feed(c, buffer->base, (size_t)n);
}

/* After bytes were used, or something changed: what is waited for now. */
static void connection_settle(struct connection *c)
{
    if (c->phase == PHASE_LINGER)
        buffer_fini(&c->pending);
    bool request = c->phase == PHASE_REQUEST;
    bool reads_body = request && c->request->body == BODY_READING;
    if (c->eof && c->pending.len == 0 && (c->phase == PHASE_IDLE || c->phase == PHASE_HEAD || reads_body))
        connection_close(c); /* (6): a whole request behind an end of stream still gets its answer */
    if (c->phase == PHASE_CLOSED)
        return;
    if (c->pending.len == 0 && c->pending.capacity)
        buffer_fini(&c->pending);
    if (c->phase == PHASE_IDLE && c->server->draining) {
        connection_close(c);
        return;
    }
    /* While a request is worked on, a little is read all the same: that is how a caller's reset is noticed. Not
     * while its body rests, or it would come in pieces of that little. */
    bool wanted =
        !c->eof &&
        (!request || reads_body ||
         (c->request->body != BODY_PAUSED && c->pending.len < c->server->limits.pipeline_bytes_max));
    if (wanted && !c->reading)
        c->reading = uv_read_start(&c->uv.stream, connection_on_alloc, connection_on_read) == 0;
    else if (!wanted && c->reading) {
        uv_read_stop(&c->uv.stream);
        c->reading = false;
    }
    connection_watch(c);
}

static void connection_feed(struct connection *c, const char *data, size_t len)
{
    bool waited = c->pending.len > 0;
    if (len == 0)
        data = ""; /* at an end of stream and after a kick there is no buffer */
    if (waited) {
        buffer_append(&c->pending, data, len);
        data = c->pending.data;
        len = c->pending.len;
    }
    size_t at = 0, taken = 0;
    c->feeding = true;
    while (connection_step(c, data + at, len - at, &taken))
        at += taken;
    c->feeding = false;
    if (waited)
        buffer_consume(&c->pending, at);
    else
        buffer_append(&c->pending, data + at, len - at);
    if (c->pending.failed)
        connection_close(c);
    connection_settle(c);
}

/* ---- writing ---- */

/* The kernel has the whole answer. */
static void connection_answered(struct connection *c)
{
    struct request *r = c->request;
    bool closes = r->closes, unread = r->body != BODY_DONE || connection_behind(c);
    c->phase = PHASE_IDLE;
    request_finish(c, false);
    if (c->phase != PHASE_IDLE)
        return;
    c->write_by = INT64_MAX;
    outlet_trim(&c->out);
    if (closes && unread)
        connection_linger(c);
    else if (closes || (c->server->draining && !unread))
        connection_close(c);
    else {
        c->read_by = connection_in(c, c->server->limits.idle_timeout_ms);
        connection_watch(c);
    }
    if (c->phase == PHASE_CLOSED || c->feeding)
        return;
    if (c->phase == PHASE_LINGER)
        connection_settle(c);
    else if (c->pending.len || c->eof || !c->reading)
        connection_kick(c);
}

static void connection_on_moved(struct outlet *out, int status)
{
    struct connection *c = HEAP_ENTRY(out, struct connection, out);
    if (c->phase == PHASE_CLOSED)
        return;
    if (status < 0) {
        connection_close(c);
        return;
    }
    size_t waiting = outlet_waiting(out);
    c->write_by = waiting ? connection_in(c, c->server->limits.write_timeout_ms) : INT64_MAX;
    connection_watch(c);
    if (c->phase == PHASE_LINGER) {
        if (waiting == 0)
            connection_linger(c);
        return;
    }
    struct request *r = c->request;
    if (c->phase != PHASE_REQUEST)
        return;
    if (r->answer == ANSWER_ENDED) {
        if (!outlet_unsent(out))
            connection_answered(c);
    } else if (r->full && waiting <= c->server->limits.write_buffer_high / 2) {
        r->full = false;
        c->server->handlers.on_drain(c->server->context, r);
    }
}

static bool connection_write(struct connection *c, const uv_buf_t *parts, unsigned count)
{
    if (outlet_post(&c->out, parts, count) < 0) {
        connection_close(c);
        return false;
    }
    if (outlet_waiting(&c->out) && c->write_by == INT64_MAX) {
        c->write_by = connection_in(c, c->server->limits.write_timeout_ms);
        connection_watch(c);
    }
    return true;
}

static bool request_live(const struct request *r)
{
    return r->connection->phase == PHASE_REQUEST && r->connection->request == r;
}

static struct slice server_date(struct net_server *server)
{
    int64_t second = clock_wall_ms() / 1000;
    if (second != server->date_second) {
        static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
        static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
        time_t t = (time_t)second;
        struct tm tm;
        gmtime_r(&t, &tm);
        /* Not strftime: the names must not follow a locale (RFC 9110 section 5.6.7). */
        snprintf(server->date, sizeof server->date, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n",
                 days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
                 tm.tm_sec);
        server->date_second = second;
    }
    return slice_text(server->date);
}

/* Puts the head into the scratch buffer. content_length -1: chunked or until close. */
static void answer_head(struct request *r, int status, const char *reason, struct slice header_lines,
                        int64_t content_length, bool with_date)
{
    struct connection *c = r->connection;
    struct net_server *server = c->server;
    struct buffer *b = &server->scratch;
    r->bodyless = slice_is(r->head.method, "HEAD") || status == 204 || status == 304;
    r->closes =
        !r->head.keep_alive || r->body != BODY_DONE || server->draining || (c->eof && !connection_behind(c));
    r->chunked = false;
    r->left = content_length;
    buffer_clear(b);
    buffer_append(b, "HTTP/1.1 ", 9);
    buffer_number(b, status);
    buffer_byte(b, ' ');
    buffer_text(b, reason ? reason : status_text(status));
    buffer_append(b, "\r\n", 2);
    if (with_date)
        buffer_slice(b, server_date(server));
    buffer_slice(b, header_lines);
    if (content_length >= 0 && status != 204 && !(status == 304 && content_length == 0)) {
        buffer_append(b, "Content-Length: ", 16);
        buffer_number(b, content_length);
        buffer_append(b, "\r\n", 2);
    } else if (content_length < 0 && status != 204 && status != 304) {
        if (r->head.minor == 1) {
            buffer_text(b, "Transfer-Encoding: chunked\r\n");
            r->chunked = !r->bodyless;
        } else {
            r->closes = r->closes || !r->bodyless;
        }
    }
    if (r->closes)
        buffer_text(b, "Connection: close\r\n");
    else if (r->head.minor == 0)
        buffer_text(b, "Connection: keep-alive\r\n");
    buffer_append(b, "\r\n", 2);
}

void request_answer(struct request *r, int status, struct slice header_lines, struct slice body)
{
    struct connection *c = r->connection;
    assert(r->answer == ANSWER_NONE || !request_live(r));
    if (!request_live(r))
        return;
    answer_head(r, status, NULL, header_lines, (int64_t)body.len, true);
    if (c->server->scratch.failed) {
        connection_close(c);
        return;
    }
    r->answer = ANSWER_ENDED;
    uv_buf_t parts[2] = {uv_buf_init(c->server->scratch.data, (unsigned)c->server->scratch.len),
                         {(char *)(size_t)body.data, body.len}};
    if (connection_write(c, parts, r->bodyless || body.len == 0 ? 1 : 2) && !outlet_unsent(&c->out))
        connection_answered(c);
}

void request_begin(struct request *r, int status, const char *reason, struct slice header_lines,
                   int64_t content_length, bool with_date)
{
    struct connection *c = r->connection;
    assert(r->answer == ANSWER_NONE || !request_live(r));
    if (!request_live(r))
        return;
    answer_head(r, status, reason, header_lines, content_length, with_date);
    if (c->server->scratch.failed) {
        connection_close(c);
        return;
    }
    r->answer = ANSWER_BEGUN;
    uv_buf_t part = uv_buf_init(c->server->scratch.data, (unsigned)c->server->scratch.len);
    connection_write(c, &part, 1);
}

bool request_write(struct request *r, struct slice piece)
{
    struct connection *c = r->connection;
    if (!request_live(r) || r->bodyless || piece.len == 0)
        return true;
    assert(r->answer == ANSWER_BEGUN);
    if (r->left >= 0) {
        if ((uint64_t)piece.len > (uint64_t)r->left) { /* more than was announced would be the next answer */
            connection_close(c);
            return true;
        }
        r->left -= (int64_t)piece.len;
    }
    char size[24];
    uv_buf_t parts[3] = {{NULL, 0}, {(char *)(size_t)piece.data, piece.len}, {(char *)(size_t) "\r\n", 2}};
    if (r->chunked) {
        static const char digits[] = "0123456789abcdef";
        char *p = size + sizeof size;
        *--p = '\n';
        *--p = '\r';
        for (size_t n = piece.len; n; n /= 16)
            *--p = digits[n % 16];
        parts[0] = uv_buf_init(p, (unsigned)(size + sizeof size - p));
    }
    if (!connection_write(c, r->chunked ? parts : parts + 1, r->chunked ? 3 : 1))
        return true;
    r->full = outlet_waiting(&c->out) > c->server->limits.write_buffer_high;
    return !r->full;
}

void request_end(struct request *r)
{
    struct connection *c = r->connection;
    if (!request_live(r))
        return;
    assert(r->answer == ANSWER_BEGUN);
    if (r->left > 0 && !r->bodyless) {
        connection_close(c);
        return;
    }
    r->answer = ANSWER_ENDED;
    uv_buf_t last = {(char *)(size_t) "0\r\n\r\n", 5};
    if (r->chunked && !connection_write(c, &last, 1))
        return;
    if (!outlet_unsent(&c->out))
        connection_answered(c);
}

void request_interim(struct request *r, int status, struct slice header_lines)
{
    struct connection *c = r->connection;
    if (!request_live(r) || r->answer != ANSWER_NONE || r->head.minor == 0)
        return;
    struct buffer *b = &c->server->scratch;
    buffer_clear(b);
    buffer_format(b, "HTTP/1.1 %d %s\r\n", status, status_text(status));
    buffer_slice(b, header_lines);
    buffer_append(b, "\r\n", 2);
    if (b->failed)
        return;
    uv_buf_t part = uv_buf_init(b->data, (unsigned)b->len);
    connection_write(c, &part, 1);
}

void request_abort(struct request *r)
{
    if (request_live(r))
        connection_close(r->connection);
}

void request_read_body(struct request *r)
{
    struct connection *c = r->connection;
    if (!request_live(r) || r->body != BODY_UNREAD)
        return;
    uv_buf_t go = {(char *)(size_t) "HTTP/1.1 100 Continue\r\n\r\n", 25};
    /* Bytes of the body that are here already say that nobody waits (RFC 9110 section 10.1.1). */
    if (r->head.expect_continue && r->answer == ANSWER_NONE && connection_behind(c) == 0 &&
        !connection_write(c, &go, 1))
        return;
    r->body = BODY_READING;
    c->read_by = connection_in(c, c->server->limits.body_timeout_ms);
    if (!c->feeding)
        connection_feed(c, NULL, 0);
}

void request_pause_body(struct request *r)
{
    if (!request_live(r) || r->body != BODY_READING)
        return;
    r->body = BODY_PAUSED;
    r->connection->read_by = INT64_MAX; /* it is us who make the caller wait */
    if (!r->connection->feeding)
        connection_settle(r->connection);
}

void request_resume_body(struct request *r)
{
    if (!request_live(r) || r->body != BODY_PAUSED)
        return;
    r->body = BODY_READING;
    r->connection->read_by = connection_in(r->connection, r->connection->server->limits.body_timeout_ms);
    if (!r->connection->feeding)
        connection_kick(r->connection);
}

const struct request_head *request_head(const struct request *r)
{
    return &r->head;
}

void request_set_user(struct request *r, void *user)
{
    r->user = user;
}

void *request_user(const struct request *r)
{
    return r->user;
}

struct slice request_peer(const struct request *r)
{
    return slice_text(r->connection->peer);
}

bool request_gone(const struct request *r)
{
    return !request_live(r);
}

/* ---- accepting ---- */

static void server_on_door(uv_poll_t *door, int status, int events);

static void server_accept_again(struct net_timer *timer)
{
    struct net_server *server = HEAP_ENTRY(timer, struct net_server, accept_again);
    if (server->door_open && !uv_is_closing((uv_handle_t *)&server->door))
        uv_poll_start(&server->door, UV_READABLE, server_on_door);
}

/* Out of descriptors or memory: connections wait in the kernel's queue for a moment instead of being dropped, and
 * those that are open go on. */
static void server_pause(struct net_server *server)
{
    server->accept_pauses++;
    uv_poll_stop(&server->door);
    net_timer_arm(server->loop, &server->accept_again, net_loop_now(server->loop) + NET_ACCEPT_PAUSE_MS,
                  server_accept_again);
}

static void server_take(struct net_server *server, int fd, const char *peer)
{
    struct list *link = list_pop_front(&server->spare_connections);
    struct connection *c = link ? LIST_ENTRY(link, struct connection, link) : malloc(sizeof *c);
    if (!c) {
        close(fd);
        server->turned_away++;
        return;
    }
    if (link)
        server->spare_connection_count--;
    memset(c, 0, sizeof *c);
    list_init(&c->link);
    c->server = server;
    c->read_by = c->write_by = INT64_MAX;
    memcpy(c->peer, peer, sizeof c->peer);
    uv_loop_t *uv = net_loop_uv(server->loop);
    int error;
    if (server->listener.is_unix) {
        uv_pipe_init(uv, &c->uv.pipe, 0);
        error = uv_pipe_open(&c->uv.pipe, fd);
    } else {
        uv_tcp_init(uv, &c->uv.tcp);
        error = uv_tcp_open(&c->uv.tcp, fd);
        if (!error)
            uv_tcp_nodelay(&c->uv.tcp, 1);
    }
    c->uv.handle.data = c;
    outlet_init(&c->out, &c->uv.stream, net_loop_volley(server->loop), connection_on_moved);
    c->out.wants_news = true; /* that an answer has left */
    list_push_back(&server->connections, &c->link);
    server->count++;
    if (error) {
        close(fd);
        connection_close(c);
        return;
    }
    c->read_by = connection_in(c, server->limits.idle_timeout_ms);
    connection_settle(c);
}

static void server_on_door(uv_poll_t *door, int status, int events)
{
    struct net_server *server = door->data;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        char peer[48];
        int fd = listener_accept(&server->listener, peer, sizeof peer);
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
            server_pause(server);
            return;
        }
        if (fd == -EAGAIN || fd == -EWOULDBLOCK)
            return;
        if (fd < 0)
            continue; /* that one caller is gone already */
        if (server->count >= server->limits.connections_max) {
            close(fd);
            server->turned_away++;
            continue;
        }
        server_take(server, fd, peer);
    }
}

enum status net_server_new(struct net_server **out, struct net_loop *loop, const char *address,
                           bool reuse_port, const struct server_limits *limits,
                           const struct server_handlers *handlers, void *context, struct buffer *error)
{
    struct net_server *server = calloc(1, sizeof *server);
    if (!server) {
        buffer_text(error, "There is not enough memory to listen.");
        return STATUS_NO_MEMORY;
    }
    server->loop = loop;
    server->limits = *limits;
    server->handlers = *handlers;
    server->context = context;
    list_init(&server->connections);
    list_init(&server->spare_connections);
    list_init(&server->spare_requests);
    enum status status = listener_open(&server->listener, address, reuse_port, error);
    if (status != STATUS_OK) {
        free(server);
        return status;
    }
    int failed = uv_poll_init(net_loop_uv(loop), &server->door, server->listener.fd);
    if (failed) {
        buffer_format(error, "%s: %s", address, uv_strerror(failed));
        listener_close(&server->listener);
        free(server);
        return STATUS_IO;
    }
    server->door.data = server;
    server->door_open = true;
    uv_poll_start(&server->door, UV_READABLE, server_on_door);
    *out = server;
    return STATUS_OK;
}

int net_server_port(const struct net_server *server)
{
    return server->listener.port;
}

static void server_door_closed(uv_handle_t *handle)
{
    struct net_server *server = handle->data;
    server->door_open = false;
    server_maybe_free(server);
}

static void server_shut_door(struct net_server *server)
{
    if (!server->door_open || uv_is_closing((uv_handle_t *)&server->door))
        return;
    net_timer_disarm(server->loop, &server->accept_again);
    uv_poll_stop(&server->door);
    listener_close(&server->listener);
    uv_close((uv_handle_t *)&server->door, server_door_closed);
}

void net_server_drain(struct net_server *server)
{
    server->draining = true;
    server_shut_door(server);
    for (struct list *l = server->connections.next, *next; l != &server->connections; l = next) {
        struct connection *c = LIST_ENTRY(l, struct connection, link);
        next = l->next;
        if (c->phase == PHASE_IDLE && c->pending.len == 0 && !c->feeding)
            connection_close(c);
    }
}

size_t net_server_connections(const struct net_server *server)
{
    return server->count;
}

uint64_t net_server_accept_pauses(const struct net_server *server)
{
    return server->accept_pauses;
}

uint64_t net_server_turned_away(const struct net_server *server)
{
    return server->turned_away;
}

void net_server_free(struct net_server *server)
{
    if (!server)
        return;
    server_shut_door(server);
    for (struct list *l = server->connections.next; l != &server->connections; l = l->next) {
        struct connection *c = LIST_ENTRY(l, struct connection, link);
        if (c->request && c->request->head.method.len)
            request_finish(c, true);
        connection_close(c);
    }
    server->freed = true;
    server_maybe_free(server);
}
