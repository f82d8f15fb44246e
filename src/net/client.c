/* SPDX-License-Identifier: MIT
 *
 * An exchange and its wire meet when the wire is up and part at the end of the answer. The wire goes back to its
 * pool only when nothing about it is in doubt; in every other case it is closed.
 *
 *   NAME ─▶ CONNECT ─▶ TALK ─▶ ENDED            A kept wire starts at TALK.
 *
 * Everything that goes wrong inside a function of the interface is told later, from the loop (`kick`), so that
 * on_end never comes as a surprise.
 */
#include "net/client.h"

#include "net/message.h"
#include "net/wire.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define ADDRESSES_MAX     8     /* of one name */
#define POOLS_MAX         512   /* origins remembered; beyond it unused ones are forgotten */
#define ANSWER_FIELDS_MAX 256   /* header fields of an answer */
#define INTERIM_MAX       32    /* 1xx answers before the real one */
#define STREAM_BYTES_HIGH 65536 /* request bytes waiting before exchange_write() says "enough" */
#define SPARES_MAX        128   /* exchanges kept for the next */
#define SPARE_HEAD_BYTES  4096  /* a kept exchange does not keep a larger head buffer */
#define KEEP_ALIVE_MARGIN_MS                                                                                 \
    1000 /* so much before the peer says it closes a kept connection it is given up; half of it if that is less */
#define AFTER_WRITE_FAILURE_MS                                                                               \
    1000 /* how long an answer is still looked for after the peer stopped reading */

enum phase { PHASE_NAME = 0, PHASE_CONNECT, PHASE_TALK, PHASE_ENDED };

struct lookup {
    uv_getaddrinfo_t ask;
    struct pool *pool; /* NULL: nobody waits any more */
    struct client *client;
};

struct pool {
    struct list link;
    struct client *client;
    struct origin origin;
    struct list idle; /* wires, the last used first */
    size_t idle_count;
    size_t users; /* wires and exchanges that point here */
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    size_t address_count, address_good; /* how many; the one that answered last */
    int64_t addresses_until;
    struct lookup *lookup;
    struct list waiting; /* exchanges that wait for the name */
};

struct client {
    struct net_loop *loop;
    struct client_settings settings;
    char *ca_file;
    SSL_CTX *tls;
    struct list pools, running, spares;
    size_t pool_count, spare_count;
    size_t open; /* wires and look-ups that will still call back */
    bool freed;
};

struct exchange {
    struct list link;    /* client.running, or client.spares */
    struct list waiting; /* pool.waiting */
    struct client *client;
    struct pool *pool;
    struct exchange_request request;
    struct exchange_handlers handlers;
    void *context;
    struct net_evidence evidence;
    struct wire *wire;
    struct message message;
    struct response_head head;
    enum phase phase;
    struct net_timer timer; /* the earliest of the times below, or an earlier one */
    struct net_timer kick;  /* an end to be told, or bytes to go on with */
    bool starting;          /* inside exchange_start() */
    int64_t connect_by, try_by, continue_at, idle_by;
    size_t tried;       /* addresses */
    bool try_timed_out; /* one of them did not answer */
    bool held;          /* the body waits for 100 */
    bool stream_ended, told_full, paused, no_more_sending;
    uint64_t given;      /* bytes of head and body given to the wire */
    struct buffer queue; /* streamed bytes, framed, from queue_from on; not given yet */
    size_t queue_from;
    uint64_t queued_total;
    int write_error;
    unsigned interims;
    struct buffer held_reply; /* bytes that came while paused */
    bool feeding;
    bool down; /* the wire ended while paused; what it said: */
    struct wire_failure down_failure;
};

static const struct wire_handlers wire_handlers;
static void exchange_connect(struct exchange *x);
static void exchange_pump(struct exchange *x);

/* ---- origins ---- */

static bool origin_same(const struct origin *a, const struct origin *b)
{
    return a->tls == b->tls && a->is_unix == b->is_unix && strcmp(a->port, b->port) == 0 &&
           strcmp(a->host, b->host) == 0;
}

static void pool_forget(struct pool *p)
{
    if (p->lookup)
        p->lookup->pool = NULL;
    p->client->pool_count--;
    list_remove(&p->link);
    free(p);
}

static struct pool *pool_of(struct client *client, const struct origin *origin)
{
    struct list *l;
    for (l = client->pools.next; l != &client->pools; l = l->next) {
        struct pool *p = LIST_ENTRY(l, struct pool, link);
        if (!origin_same(&p->origin, origin))
            continue;
        if (l != client->pools.next) { /* the busy ones are found first */
            list_remove(l);
            list_push_front(&client->pools, l);
        }
        return p;
    }
    struct list *prev;
    for (l = client->pools.prev; client->pool_count >= POOLS_MAX && l != &client->pools; l = prev) {
        prev = l->prev;
        struct pool *p = LIST_ENTRY(l, struct pool, link);
        if (p->users == 0)
            pool_forget(p);
    }
    struct pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->client = client;
    p->origin = *origin;
    list_init(&p->idle);
    list_init(&p->waiting);
    list_push_front(&client->pools, &p->link);
    client->pool_count++;
    return p;
}

/* ---- wires ---- */

static void client_maybe_free(struct client *client)
{
    if (!client->freed || client->open)
        return;
    struct list *l;
    while (!list_empty(&client->pools))
        pool_forget(LIST_ENTRY(client->pools.next, struct pool, link));
    while ((l = list_pop_front(&client->spares))) {
        struct exchange *x = LIST_ENTRY(l, struct exchange, link);
        message_fini(&x->message);
        free(x);
    }
    SSL_CTX_free(client->tls);
    free(client->ca_file);
    free(client);
}

static void wire_leave_idle(struct wire *w)
{
    struct pool *p = w->home;
    if (w->link.next != &w->link) {
        list_remove(&w->link);
        p->idle_count--;
    }
    net_timer_disarm(p->client->loop, &w->timer);
}

static void wire_drop(struct wire *w)
{
    wire_leave_idle(w);
    w->user = NULL;
    wire_close(w);
}

static void on_wire_closed(struct wire *w)
{
    struct pool *p = w->home;
    struct client *client = p->client;
    p->users--;
    wire_free(w);
    client->open--;
    client_maybe_free(client);
}

static void on_idle_timer(struct net_timer *timer)
{
    wire_drop(HEAP_ENTRY(timer, struct wire, timer));
}

/* A request sent into a connection that the peer is closing may be lost without a word, and its call is then UNKNOWN.
 * So the peer's own word about its patience counts where it is less than ours. */
static void wire_keep(struct wire *w, int64_t peer_keeps_ms)
{
    struct pool *p = w->home;
    int64_t kept_ms = p->client->settings.idle_timeout_ms;
    if (peer_keeps_ms != INT64_MAX) {
        int64_t half = peer_keeps_ms / 2, margin = half < KEEP_ALIVE_MARGIN_MS ? half : KEEP_ALIVE_MARGIN_MS;
        if (peer_keeps_ms - margin < kept_ms)
            kept_ms = peer_keeps_ms - margin;
    }
    w->user = NULL;
    list_push_front(&p->idle, &w->link);
    p->idle_count++;
    net_timer_arm(p->client->loop, &w->timer, net_loop_now(p->client->loop) + kept_ms, on_idle_timer);
}

static struct wire *wire_take(struct pool *p)
{
    while (!list_empty(&p->idle)) {
        struct wire *w = LIST_ENTRY(p->idle.next, struct wire, link);
        wire_leave_idle(w);
        if (wire_is_quiet(w))
            return w;
        wire_drop(w);
    }
    return NULL;
}

/* ---- the end of an exchange ---- */

static void evidence_update(struct exchange *x)
{
    struct net_evidence *e = &x->evidence;
    if (!x->wire || x->phase != PHASE_TALK)
        return;
    e->bytes_sent = wire_sent(x->wire);
    e->body_sent = e->bytes_sent > x->request.head.len ? e->bytes_sent - x->request.head.len : 0;
    e->body_total = x->request.stream_body ? x->queued_total : x->request.body.len;
    e->request_complete = (!x->request.stream_body || x->stream_ended) && !x->write_error &&
                          e->bytes_sent == x->request.head.len + e->body_total;
}

static void exchange_tell_end(struct exchange *x)
{
    struct client *client = x->client;
    list_remove(&x->link);
    net_timer_disarm(client->loop, &x->kick);
    x->pool->users--;
    x->handlers.on_end(x->context, x, &x->evidence);
    buffer_fini(&x->queue);
    buffer_fini(&x->held_reply);
    if (x->message.head.capacity > SPARE_HEAD_BYTES)
        buffer_fini(&x->message.head);
    if (client->spare_count < SPARES_MAX && !client->freed) {
        list_push_front(&client->spares, &x->link);
        client->spare_count++;
    } else {
        message_fini(&x->message);
        free(x);
    }
}

static void on_kick(struct net_timer *timer);

static void exchange_kick(struct exchange *x)
{
    if (!x->kick.armed)
        net_timer_arm(x->client->loop, &x->kick, net_loop_now(x->client->loop), on_kick);
}

/* Ends it: parts from the wire, and tells the end, now or from the loop. Afterwards x may be gone. */
static void exchange_finish(struct exchange *x, enum net_end end, int sys_error, const char *detail,
                            bool later)
{
    struct client *client = x->client;
    if (x->phase == PHASE_ENDED)
        return;
    evidence_update(x);
    struct wire *w = x->wire;
    x->wire = NULL;
    x->phase = PHASE_ENDED;
    x->evidence.end = end;
    x->evidence.sys_error = sys_error;
    x->evidence.ended_ms = clock_monotonic_ms();
    snprintf(x->evidence.detail, sizeof x->evidence.detail, "%s", detail);
    list_remove(&x->waiting);
    net_timer_disarm(client->loop, &x->timer);
    if (w) {
        bool reusable = end == NET_END_COMPLETE && x->message.keep_alive && x->evidence.request_complete &&
                        x->message.body != SHIM_BODY_UNTIL_CLOSE && !x->down && x->held_reply.len == 0 &&
                        !w->ended && !w->paused && !client->freed && wire_waiting(w) == 0 &&
                        x->pool->idle_count < client->settings.idle_max;
        w->user = NULL;
        if (reusable)
            wire_keep(w, headers_keep_alive_ms(&x->head.headers));
        else
            wire_close(w);
    }
    if (later || x->starting)
        exchange_kick(x);
    else
        exchange_tell_end(x);
}

static void exchange_fail_write(struct exchange *x, int error)
{
    if (x->write_error)
        return;
    evidence_update(x);
    x->write_error = error;
    x->no_more_sending = true;
    /* An answer that came before the peer stopped reading is still to be had (an early 413). */
    int64_t by = net_loop_now(x->client->loop) + AFTER_WRITE_FAILURE_MS;
    if (by < x->request.deadline_ms)
        exchange_set_deadline(x, by);
}

/* ---- sending ---- */

static void exchange_progress(struct exchange *x)
{
    if (x->request.idle_timeout_ms)
        x->idle_by = net_loop_now(x->client->loop) + x->request.idle_timeout_ms;
}

/* Bytes of the request that may go now. */
static size_t exchange_next(const struct exchange *x, struct slice parts[2])
{
    const struct exchange_request *r = &x->request;
    size_t count = 0;
    if (x->given < r->head.len)
        parts[count++] = slice_of(r->head.data + x->given, r->head.len - (size_t)x->given);
    if (x->held)
        return count;
    if (r->stream_body) {
        if (x->queue.len > x->queue_from)
            parts[count++] = slice_of(x->queue.data + x->queue_from, x->queue.len - x->queue_from);
    } else {
        size_t at = x->given > r->head.len ? (size_t)x->given - r->head.len : 0;
        if (at < r->body.len)
            parts[count++] = slice_of(r->body.data + at, r->body.len - at);
    }
    return count;
}

static void exchange_pump(struct exchange *x)
{
    struct slice parts[2];
    size_t count;
    while (!x->no_more_sending && x->wire && (count = exchange_next(x, parts)) > 0) {
        ssize_t n = wire_give(x->wire, parts, count);
        if (n < 0) {
            exchange_fail_write(x, (int)n);
            return;
        }
        if (n == 0)
            return;
        size_t head_left = x->given < x->request.head.len ? x->request.head.len - (size_t)x->given : 0;
        x->given += (uint64_t)n;
        if (x->request.stream_body && (size_t)n > head_left) {
            x->queue_from += (size_t)n - head_left;
            if (x->queue_from == x->queue.len) {
                buffer_clear(&x->queue);
                x->queue_from = 0;
            }
        }
        exchange_progress(x);
    }
}

/* Says that there is room again, where exchange_write() said that there was not. */
static void exchange_tell_room(struct exchange *x)
{
    if (!x->told_full || x->no_more_sending || x->phase != PHASE_TALK ||
        x->queue.len - x->queue_from + wire_waiting(x->wire) > STREAM_BYTES_HIGH / 2)
        return;
    x->told_full = false;
    if (x->handlers.on_drain)
        x->handlers.on_drain(x->context, x);
}

/* ---- receiving ---- */

static void exchange_malformed(struct exchange *x)
{
    const struct shim *s = &x->message.shim;
    if (s->refused_status == 431)
        exchange_finish(x, NET_END_TOO_LARGE, 0, "the head of the answer is too large", false);
    else
        exchange_finish(x, NET_END_MALFORMED, 0, s->refused_reason ? s->refused_reason : "malformed", false);
}

static void answer_start(struct exchange *x)
{
    message_start(&x->message, true, x->client->settings.headers_bytes_max, ANSWER_FIELDS_MAX);
    x->message.no_body = x->request.is_head;
}

/* A whole head came. False: the exchange is over or was refused. */
static bool answer_head(struct exchange *x)
{
    struct message *m = &x->message;
    int status = m->shim.status;
    if (status < 200) {
        if (status == 101 || ++x->interims > INTERIM_MAX) {
            exchange_finish(x, NET_END_MALFORMED, 0,
                            status == 101 ? "101 without having been asked" : "too many 1xx", false);
            return false;
        }
        answer_start(x);
        if (status == 100) {
            x->evidence.got_continue = true;
            if (x->held) {
                x->held = false;
                x->continue_at = INT64_MAX;
                exchange_pump(x);
                exchange_tell_room(x);
            }
        }
        return true;
    }
    if (x->held) /* answered without wanting the body */
        x->no_more_sending = true;
    x->continue_at = INT64_MAX;
    x->evidence.head_complete = true;
    x->evidence.status = status;
    x->head = (struct response_head){
        .status = status,
        .minor = m->shim.minor,
        .reason = m->reason,
        .headers = {m->list, m->count},
        .content_length = m->shim.content_length,
        .has_body = m->body != SHIM_BODY_NONE,
    };
    x->handlers.on_head(x->context, x, &x->head);
    return true;
}

static bool answer_is_complete(const struct exchange *x)
{
    return x->evidence.head_complete && x->message.complete;
}

/* Uses bytes of the answer until they end, the answer ends or it is paused. */
static void exchange_feed(struct exchange *x, const char *data, size_t len)
{
    bool waited = x->held_reply.len > 0;
    if (waited) {
        buffer_append(&x->held_reply, data, len);
        data = x->held_reply.data;
        len = x->held_reply.len;
    }
    size_t at = 0;
    bool refused = false;
    x->feeding = true;
    while (x->phase == PHASE_TALK && at < len && !x->paused && !refused && !answer_is_complete(x)) {
        size_t taken = 0;
        struct slice piece = {NULL, 0};
        enum shim_verdict verdict = x->evidence.head_complete
                                        ? message_body(&x->message, data + at, len - at, &taken, &piece)
                                        : message_head(&x->message, data + at, len - at, &taken);
        at += taken;
        if (verdict == SHIM_REFUSED) {
            refused = true;
        } else if (piece.len) {
            x->handlers.on_piece(x->context, x, piece);
        } else if (verdict == SHIM_END && !x->evidence.head_complete && !answer_head(x)) {
            return; /* x is gone */
        }
    }
    x->feeding = false;
    if (x->phase != PHASE_TALK)
        return; /* aborted by a handler: the end is on its way */
    if (refused) {
        exchange_malformed(x);
        return;
    }
    if (waited)
        buffer_consume(&x->held_reply, at);
    else
        buffer_append(&x->held_reply, data + at, len - at);
    if (x->held_reply.failed)
        exchange_finish(x, NET_END_RESET, UV_ENOMEM, "no memory", false);
    else if (answer_is_complete(x))
        exchange_finish(x, NET_END_COMPLETE, 0, "complete", false);
    else if (x->paused)
        wire_pause(x->wire);
}

static void exchange_down(struct exchange *x, const struct wire_failure *f)
{
    if (f->clean && x->evidence.head_complete && message_ends_at_close(&x->message)) {
        x->evidence.body_until_close = true;
        exchange_finish(x, NET_END_COMPLETE, 0, "complete, ended by the end of the stream", false);
    } else if (x->write_error) {
        exchange_finish(x, NET_END_RESET, x->write_error, uv_strerror(x->write_error), false);
    } else {
        exchange_finish(x, f->end, f->sys_error, f->detail, false);
    }
}

static void on_wire_bytes(struct wire *w, struct slice bytes)
{
    struct exchange *x = w->user;
    if (!x) { /* nothing is asked, so nothing may be answered */
        wire_drop(w);
        return;
    }
    x->evidence.reply_bytes += bytes.len;
    exchange_progress(x);
    exchange_feed(x, bytes.data, bytes.len);
}

/* ---- connecting ---- */

/* One address came to nothing: the next, or the end. */
static void exchange_try_failed(struct exchange *x, const struct wire_failure *f)
{
    x->try_timed_out = x->try_timed_out || f->end == NET_END_CONNECT_TIMEOUT;
    if (x->tried < x->pool->address_count) {
        exchange_connect(x);
        return;
    }
    enum net_end end = x->try_timed_out ? NET_END_CONNECT_TIMEOUT : NET_END_REFUSED;
    exchange_finish(x, end, f->sys_error, f->detail, false);
}

static void on_wire_down(struct wire *w, const struct wire_failure *failure)
{
    struct exchange *x = w->user;
    struct wire_failure f = *failure;
    if (!x) {
        wire_drop(w);
        return;
    }
    if (x->phase == PHASE_CONNECT) {
        x->wire = NULL;
        w->user = NULL;
        wire_close(w);
        if (f.end == NET_END_TLS || f.end == NET_END_TLS_CERTIFICATE)
            exchange_finish(x, f.end, f.sys_error, f.detail, false);
        else
            exchange_try_failed(x, &f);
        return;
    }
    if (x->paused || x->held_reply.len) { /* what came before is told first */
        x->down = true;
        x->down_failure = f;
        return;
    }
    exchange_down(x, &f);
}

static void exchange_talk(struct exchange *x)
{
    x->phase = PHASE_TALK;
    x->evidence.connected = true;
    x->connect_by = x->try_by = INT64_MAX;
    wire_mark(x->wire);
    answer_start(x);
    exchange_progress(x);
    exchange_pump(x);
    if (x->held && x->phase == PHASE_TALK)
        x->continue_at = net_loop_now(x->client->loop) + x->request.continue_ms;
}

static void exchange_watch(struct exchange *x);

static void on_wire_up(struct wire *w)
{
    struct exchange *x = w->user;
    if (!x)
        return;
    if (!x->pool->origin.is_unix)
        x->pool->address_good = (x->pool->address_good + x->tried - 1) % x->pool->address_count;
    exchange_talk(x);
    if (x->paused)
        wire_pause(w);
    exchange_watch(x);
    exchange_tell_room(x);
}

static void on_wire_moved(struct wire *w, int status)
{
    struct exchange *x = w->user;
    if (!x)
        return;
    if (status < 0) {
        exchange_fail_write(x, status);
        return;
    }
    exchange_progress(x);
    exchange_pump(x);
    exchange_tell_room(x);
}

static const struct wire_handlers wire_handlers = {
    .up = on_wire_up,
    .bytes = on_wire_bytes,
    .down = on_wire_down,
    .moved = on_wire_moved,
    .closed = on_wire_closed,
};

static bool client_has_tls(struct client *client)
{
    return client->tls ||
           wire_tls_context(&client->tls, client->ca_file, client->settings.tls_verify) == STATUS_OK;
}

/* Tries the next address. */
static void exchange_connect(struct exchange *x)
{
    struct pool *p = x->pool;
    struct client *client = x->client;
    int64_t now = net_loop_now(client->loop);
    int error = 0;
    x->phase = PHASE_CONNECT;
    if (p->origin.tls && !client_has_tls(client)) {
        exchange_finish(x, NET_END_TLS, 0, "the trusted authorities could not be read", false);
        return;
    }
    do {
        struct wire *w = wire_new(client->loop, &wire_handlers, p->origin.tls ? client->tls : NULL,
                                  p->origin.host, p->origin.is_unix);
        if (!w) {
            exchange_finish(x, NET_END_REFUSED, UV_ENOMEM, "no memory for a connection", false);
            return;
        }
        w->home = p;
        w->user = x;
        x->wire = w;
        p->users++;
        client->open++;
        if (p->origin.is_unix) {
            x->try_by = x->connect_by;
            error = wire_connect_unix(w, p->origin.host);
            x->tried = p->address_count;
        } else {
            /* The time that is left is shared by the addresses that are left, so that one silent address does
             * not use up the turn of a living one. */
            int64_t share = (x->connect_by - now) / (int64_t)(p->address_count - x->tried);
            x->try_by = now + (share > 0 ? share : 1);
            size_t index = (p->address_good + x->tried++) % p->address_count;
            error = wire_connect_tcp(w, (struct sockaddr *)&p->addresses[index]);
        }
        if (error) {
            x->wire = NULL;
            w->user = NULL;
            wire_close(w);
        }
    } while (error && x->tried < p->address_count);
    if (error)
        exchange_finish(x, NET_END_REFUSED, error, uv_strerror(error), false);
    else
        exchange_watch(x);
}

static void on_lookup(uv_getaddrinfo_t *ask, int status, struct addrinfo *found)
{
    struct lookup *lookup = ask->data;
    struct client *client = lookup->client;
    struct pool *p = lookup->pool;
    if (p) {
        p->lookup = NULL;
        if (status == 0) {
            p->address_count = p->address_good = 0;
            for (struct addrinfo *a = found; a && p->address_count < ADDRESSES_MAX; a = a->ai_next)
                if (a->ai_addrlen <= sizeof p->addresses[0])
                    memcpy(&p->addresses[p->address_count++], a->ai_addr, a->ai_addrlen);
            p->addresses_until = net_loop_now(client->loop) + client->settings.name_life_ms;
            if (p->address_count == 0)
                status = UV_EAI_NODATA;
        }
        /* Those who begin to wait while these are served ask anew. */
        struct list served;
        list_init(&served);
        struct list *l;
        while ((l = list_pop_front(&p->waiting)))
            list_push_back(&served, l);
        p->users++; /* the pool stays while its list is walked */
        while ((l = list_pop_front(&served))) {
            struct exchange *x = LIST_ENTRY(l, struct exchange, waiting);
            if (status == 0)
                exchange_connect(x);
            else
                exchange_finish(x, NET_END_NAME, status, uv_strerror(status), false);
        }
        p->users--;
    }
    uv_freeaddrinfo(found);
    free(lookup);
    client->open--;
    client_maybe_free(client);
}

static void exchange_resolve(struct exchange *x)
{
    struct pool *p = x->pool;
    struct client *client = x->client;
    x->phase = PHASE_NAME;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    int port = atoi(p->origin.port);
    if (p->origin.is_unix) {
        exchange_connect(x);
        return;
    }
    if (p->address_count == 0 && uv_ip4_addr(p->origin.host, port, &v4) == 0) {
        memcpy(&p->addresses[p->address_count++], &v4, sizeof v4);
        p->addresses_until = INT64_MAX;
    } else if (p->address_count == 0 && uv_ip6_addr(p->origin.host, port, &v6) == 0) {
        memcpy(&p->addresses[p->address_count++], &v6, sizeof v6);
        p->addresses_until = INT64_MAX;
    }
    if (p->address_count && net_loop_now(client->loop) < p->addresses_until) {
        exchange_connect(x);
        return;
    }
    list_push_back(&p->waiting, &x->waiting);
    if (!p->lookup) {
        struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        struct lookup *lookup = calloc(1, sizeof *lookup);
        int error = UV_ENOMEM;
        if (lookup) {
            lookup->pool = p;
            lookup->client = client;
            lookup->ask.data = lookup;
            error = uv_getaddrinfo(net_loop_uv(client->loop), &lookup->ask, on_lookup, p->origin.host,
                                   p->origin.port, &hints);
        }
        if (error) {
            free(lookup);
            exchange_finish(x, NET_END_NAME, error, uv_strerror(error), false);
            return;
        }
        p->lookup = lookup;
        client->open++;
    }
    exchange_watch(x);
}

/* ---- time ---- */

static void on_exchange_timer(struct net_timer *timer);

static int64_t earliest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void exchange_watch(struct exchange *x)
{
    if (x->phase == PHASE_ENDED)
        return;
    int64_t at =
        earliest(earliest(x->connect_by, x->try_by), earliest(x->continue_at, x->request.deadline_ms));
    at = earliest(at, x->paused ? INT64_MAX : x->idle_by);
    if (at != INT64_MAX && (!x->timer.armed || at < x->timer.node.at_ms))
        net_timer_arm(x->client->loop, &x->timer, at, on_exchange_timer);
}

static void exchange_timed_out(struct exchange *x)
{
    if (x->phase == PHASE_NAME) {
        exchange_finish(x, NET_END_NAME, UV_ETIMEDOUT, "the name was not answered in time", false);
    } else if (x->phase == PHASE_CONNECT && x->wire && x->wire->ssl && x->wire->reading) {
        exchange_finish(x, NET_END_TLS, UV_ETIMEDOUT, "the TLS handshake took too long", false);
    } else if (x->phase == PHASE_CONNECT) {
        exchange_finish(x, NET_END_CONNECT_TIMEOUT, UV_ETIMEDOUT, "no connection within the time", false);
    } else if (x->write_error) {
        exchange_finish(x, NET_END_RESET, x->write_error, uv_strerror(x->write_error), false);
    } else {
        evidence_update(x);
        const struct net_evidence *e = &x->evidence;
        exchange_finish(x, NET_END_TIMEOUT, 0,
                        e->head_complete      ? "the answer was not complete within the time"
                        : e->request_complete ? "no reply within the time after the whole request was sent"
                                              : "the request was not sent whole within the time",
                        false);
    }
}

static void on_exchange_timer(struct net_timer *timer)
{
    struct exchange *x = HEAP_ENTRY(timer, struct exchange, timer);
    int64_t now = net_loop_now(x->client->loop);
    if (now >= x->request.deadline_ms || now >= x->connect_by || (!x->paused && now >= x->idle_by)) {
        exchange_timed_out(x);
        return;
    }
    if (now >= x->try_by) {
        bool handshake = x->wire && x->wire->ssl && x->wire->reading;
        if (handshake) { /* connected: the rest of the time is the handshake's */
            x->try_by = x->connect_by;
        } else {
            static const struct wire_failure silent = {.end = NET_END_CONNECT_TIMEOUT,
                                                       .sys_error = UV_ETIMEDOUT,
                                                       .detail = "no connection within the time"};
            struct wire *w = x->wire;
            x->wire = NULL;
            if (w) {
                w->user = NULL;
                wire_close(w);
            }
            exchange_try_failed(x, &silent);
            return;
        }
    }
    if (now >= x->continue_at) {
        x->continue_at = INT64_MAX;
        x->held = false;
        exchange_pump(x);
        exchange_tell_room(x);
    }
    exchange_watch(x);
}

static void on_kick(struct net_timer *timer)
{
    struct exchange *x = HEAP_ENTRY(timer, struct exchange, kick);
    if (x->phase == PHASE_ENDED) {
        exchange_tell_end(x);
        return;
    }
    if (x->paused || x->phase != PHASE_TALK)
        return;
    /* Resumed: first what is here already, then the wire, then its end. Each may pause again or end it. */
    if (x->held_reply.len) {
        struct wire *w = x->wire;
        exchange_feed(x, "", 0);
        if (w->user != x || x->paused || x->phase != PHASE_TALK)
            return;
    }
    if (x->down) {
        exchange_down(x, &x->down_failure);
        return;
    }
    wire_resume(x->wire);
}

/* ---- the interface ---- */

enum status client_new(struct client **out, struct net_loop *loop, const struct client_settings *settings)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return STATUS_NO_MEMORY;
    client->loop = loop;
    client->settings = *settings;
    list_init(&client->pools);
    list_init(&client->running);
    list_init(&client->spares);
    enum status status = STATUS_OK;
    if (settings->ca_file) {
        client->ca_file = strdup(settings->ca_file);
        status = client->ca_file ? wire_tls_context(&client->tls, client->ca_file, settings->tls_verify)
                                 : STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK) {
        free(client->ca_file);
        free(client);
        return status;
    }
    *out = client;
    return STATUS_OK;
}

void client_close_idle(struct client *client)
{
    for (struct list *l = client->pools.next; l != &client->pools; l = l->next) {
        struct pool *p = LIST_ENTRY(l, struct pool, link);
        while (!list_empty(&p->idle))
            wire_drop(LIST_ENTRY(p->idle.next, struct wire, link));
    }
}

void client_free(struct client *client)
{
    if (!client)
        return;
    client->freed = true;
    client->open++; /* on_end may close wires; none of that may free the client under our feet */
    while (!list_empty(&client->running)) {
        struct exchange *x = LIST_ENTRY(client->running.next, struct exchange, link);
        x->starting = false;
        if (x->phase == PHASE_ENDED)
            exchange_tell_end(x);
        else
            exchange_finish(x, NET_END_ABORTED, 0, "the client was closed", false);
    }
    client_close_idle(client);
    for (struct list *l = client->pools.next; l != &client->pools; l = l->next) {
        struct pool *p = LIST_ENTRY(l, struct pool, link);
        if (p->lookup) {
            uv_cancel((uv_req_t *)&p->lookup->ask);
            p->lookup->pool = NULL;
            p->lookup = NULL;
        }
    }
    client->open--;
    client_maybe_free(client);
}

enum status exchange_start(struct exchange **out, struct client *client,
                           const struct exchange_request *request, const struct exchange_handlers *handlers,
                           void *context)
{
    assert(!client->freed);
    struct pool *p = pool_of(client, request->origin);
    if (!p)
        return STATUS_NO_MEMORY;
    struct exchange *x;
    struct list *spare = list_pop_front(&client->spares);
    if (spare) {
        x = LIST_ENTRY(spare, struct exchange, link);
        client->spare_count--;
        struct message message = x->message; /* its memory is used again */
        memset(x, 0, sizeof *x);
        x->message = message;
    } else {
        x = calloc(1, sizeof *x);
        if (!x)
            return STATUS_NO_MEMORY;
    }
    list_init(&x->link);
    list_init(&x->waiting);
    x->client = client;
    x->pool = p;
    p->users++;
    x->request = *request;
    x->handlers = *handlers;
    x->context = context;
    x->evidence.body_total = request->body.len;
    x->held = request->wait_continue && (request->stream_body || request->body.len);
    x->stream_ended = !request->stream_body;
    x->connect_by = net_loop_now(client->loop) + client->settings.connect_timeout_ms;
    x->try_by = x->continue_at = x->idle_by = INT64_MAX;
    list_push_back(&client->running, &x->link);
    x->starting = true;
    struct wire *w = request->fresh_connection ? NULL : wire_take(p);
    if (w) {
        w->user = x;
        x->wire = w;
        x->evidence.reused = true;
        exchange_talk(x);
        exchange_watch(x);
    } else {
        exchange_resolve(x);
    }
    x->starting = false;
    *out = x;
    return STATUS_OK;
}

static bool exchange_enough(struct exchange *x)
{
    size_t waiting = x->queue.len - x->queue_from + (x->wire ? wire_waiting(x->wire) : 0);
    x->told_full = waiting > STREAM_BYTES_HIGH;
    return !x->told_full;
}

bool exchange_write(struct exchange *x, struct slice piece)
{
    assert(x->request.stream_body);
    if (x->phase == PHASE_ENDED || x->no_more_sending || x->stream_ended || piece.len == 0)
        return true;
    size_t before = x->queue.len;
    if (x->request.chunked)
        buffer_format(&x->queue, "%zx\r\n", piece.len);
    buffer_slice(&x->queue, piece);
    if (x->request.chunked)
        buffer_append(&x->queue, "\r\n", 2);
    if (x->queue.failed) {
        exchange_finish(x, NET_END_RESET, UV_ENOMEM, "no memory for the request's body", true);
        return true;
    }
    x->queued_total += x->queue.len - before;
    if (x->phase == PHASE_TALK)
        exchange_pump(x);
    return exchange_enough(x);
}

void exchange_write_end(struct exchange *x)
{
    if (x->phase == PHASE_ENDED || x->stream_ended)
        return;
    x->stream_ended = true;
    if (!x->request.chunked)
        return;
    buffer_append(&x->queue, "0\r\n\r\n", 5);
    x->queued_total += 5;
    if (x->phase == PHASE_TALK)
        exchange_pump(x);
}

void exchange_pause(struct exchange *x)
{
    if (x->phase == PHASE_ENDED)
        return;
    x->paused = true;
    if (!x->feeding && x->wire && x->phase == PHASE_TALK)
        wire_pause(x->wire);
}

void exchange_resume(struct exchange *x)
{
    if (x->phase == PHASE_ENDED || !x->paused)
        return;
    x->paused = false;
    exchange_progress(x);
    exchange_watch(x);
    if (!x->feeding)
        exchange_kick(x);
}

void exchange_set_deadline(struct exchange *x, int64_t deadline_ms)
{
    x->request.deadline_ms = deadline_ms;
    exchange_watch(x);
}

void exchange_abort(struct exchange *x)
{
    exchange_finish(x, NET_END_ABORTED, 0, "aborted", true);
}

const struct net_evidence *exchange_evidence(const struct exchange *x)
{
    /* The object is ours and never const; only its reader promises not to change it. */
    evidence_update((struct exchange *)(size_t)x);
    return &x->evidence;
}
