/* SPDX-License-Identifier: MIT
 *
 * Answers come in the order of the commands, so one queue of flights tells whose turn it is, and its head is the oldest:
 * one timer watches it. A command cannot be called back; an ask that timed out leaves its flight behind as nobody's.
 */
#include "gateway/redis.h"

#include "gateway/redis_poll.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

#define ADDRESSES_MAX 8
#define MARK          "-" /* where an entry must not be any more */

enum link { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_GREETING, LINK_UP, LINK_CLOSED };

enum flight_kind { FLIGHT_GREETING, FLIGHT_GREETED, FLIGHT_ASK, FLIGHT_WRITE };

struct flight {
    struct list link;
    struct redis *redis;
    enum flight_kind kind;
    struct redis_ask *ask; /* NULL: nobody waits (any more) */
    int64_t sent_ms;
    size_t bytes;
};

struct name_lookup {
    uv_getaddrinfo_t ask;
    struct redis *redis; /* NULL: it went */
};

struct redis {
    struct net_loop *loop;
    struct redis_settings settings;
    struct redis_seal seal;
    enum link link;
    bool slow;          /* an ask timed out and nothing was answered since */
    bool told, told_up; /* what on_link heard last */
    redisAsyncContext *context;
    struct name_lookup *lookup;
    struct list flights; /* the oldest first */
    size_t flight_count, sending;
    struct net_timer timer;
    int64_t since_ms; /* of the link's state, while it comes up */
    unsigned failures;
    size_t address_next;
    char why[256];
    bool clock_known;
    int64_t store_ahead_ms; /* the store's clock minus the loop's */
    struct buffer entry;
    struct digest *forgotten;
    size_t forgotten_count;
};

static void watch(struct redis *r);
static void connect_now(struct redis *r);

static int64_t now_of(const struct redis *r)
{
    return net_loop_now(r->loop);
}

static void tell_link(struct redis *r, bool up, const char *why)
{
    if (r->told && r->told_up == up)
        return;
    r->told = true;
    r->told_up = up;
    r->settings.on_link(r->settings.context, up, why);
}

static void count(struct redis *r, enum metric metric)
{
    metrics_add(r->settings.counts, metric, 0, CACHE_LAYER_REDIS, 1);
}

/* ---- the end of a link -------------------------------------------------------------------------------------- */

static void flight_end(struct flight *f)
{
    struct redis *r = f->redis;
    list_remove(&f->link);
    r->flight_count--;
    r->sending -= f->bytes;
    free(f);
}

/* Nobody waits for what was sent any more. */
static void give_up_asks(struct redis *r)
{
    struct list *l;
    for (l = r->flights.next; l != &r->flights;) {
        struct flight *f = LIST_ENTRY(l, struct flight, link);
        struct redis_ask *ask = f->ask;
        l = l->next;
        f->ask = NULL;
        if (ask) {
            count(r, METRIC_cache_errors);
            ask->then(ask, NULL); /* asks of the store: it changes no flight, since the link is not UP */
        }
    }
}

static void lose(struct redis *r, const char *why)
{
    if (r->link == LINK_DOWN || r->link == LINK_CLOSED)
        return;
    redisAsyncContext *context = r->context;
    r->link = LINK_DOWN;
    r->context = NULL;
    r->slow = false;
    if (r->lookup) {
        r->lookup->redis = NULL;
        r->lookup = NULL;
    }
    if (r->failures < 16)
        r->failures++;
    snprintf(r->why, sizeof r->why, "%s", why);
    give_up_asks(r);
    if (context)
        redisAsyncFree(context); /* its flights are told, now or behind the callback that runs */
    tell_link(r, false, r->why);
    watch(r);
}

static void on_disconnect(const redisAsyncContext *context, int status)
{
    struct redis *r = context->data;
    if (!r || r->context != context)
        return;
    r->context = NULL; /* hiredis frees it */
    lose(r, status == REDIS_OK || !context->errstr || !*context->errstr ? "the server ended the connection"
                                                                        : context->errstr);
}

/* ---- commands ----------------------------------------------------------------------------------------------- */

static void on_reply(redisAsyncContext *context, void *data, void *flight);

static bool send_command(struct redis *r, enum flight_kind kind, struct redis_ask *ask, int count_of,
                         const char **words, const size_t *lengths, size_t bytes)
{
    if (r->flight_count >= REDIS_FLIGHTS_MAX)
        return false;
    struct flight *f = calloc(1, sizeof *f);
    if (!f)
        return false;
    *f = (struct flight){.redis = r, .kind = kind, .ask = ask, .sent_ms = now_of(r), .bytes = bytes};
    if (redisAsyncCommandArgv(r->context, on_reply, f, count_of, words, lengths) != REDIS_OK) {
        free(f);
        return false;
    }
    list_push_back(&r->flights, &f->link);
    r->flight_count++;
    r->sending += bytes;
    if (r->flights.next == &f->link)
        watch(r);
    return true;
}

static bool send_words(struct redis *r, enum flight_kind kind, struct redis_ask *ask, int count_of,
                       const char **words)
{
    size_t lengths[8];
    for (int i = 0; i < count_of; i++)
        lengths[i] = strlen(words[i]);
    return send_command(r, kind, ask, count_of, words, lengths, 0);
}

static bool send_mark(struct redis *r, const struct digest *call)
{
    char name[REDIS_NAME_BYTES], life[24];
    redis_entry_name(&r->seal, call, name);
    snprintf(life, sizeof life, "%lld", (long long)r->settings.life_ms);
    return send_words(r, FLIGHT_WRITE, NULL, 5, (const char *[]){"SET", name, MARK, "PX", life});
}

static void send_delete(struct redis *r, const struct digest *call)
{
    char name[REDIS_NAME_BYTES];
    redis_entry_name(&r->seal, call, name);
    if (r->link == LINK_UP)
        (void)send_words(r, FLIGHT_WRITE, NULL, 2, (const char *[]){"DEL", name});
}

/* What came for an ask that somebody still waits for. */
static void hear_ask(struct redis *r, struct redis_ask *ask, const redisReply *reply)
{
    struct rows rows;
    struct digest call = ask->call;
    struct slice entry = slice_of(reply->str ? reply->str : "", reply->str ? (size_t)reply->len : 0);
    if (reply->type == REDIS_REPLY_STRING && (!entry.len || slice_is(entry, MARK))) {
        count(r, METRIC_cache_misses);
        ask->then(ask, NULL);
        return;
    }
    bool lie = reply->type == REDIS_REPLY_ERROR && strncmp(entry.data, "WRONGTYPE", 9) == 0;
    int64_t now = r->clock_known ? now_of(r) + r->store_ahead_ms : clock_wall_ms();
    if (reply->type == REDIS_REPLY_STRING) {
        enum status status = redis_entry_open(&r->seal, entry, &call, now, &rows);
        if (status == STATUS_OK && slice_equal(rows.call.tenant, ask->tenant) &&
            slice_equal(rows.call.call_id, ask->call_id)) {
            count(r, METRIC_cache_hits);
            ask->then(ask, &rows);
            return;
        }
        lie = status != STATUS_NOT_FOUND;
        if (!lie)
            count(r, METRIC_cache_misses);
    }
    if (lie || reply->type != REDIS_REPLY_STRING)
        count(r, METRIC_cache_errors);
    ask->then(ask, NULL);
    if (lie) {
        r->settings.on_lie(r->settings.context);
        send_delete(r, &call); /* it would keep the true one from being written */
    }
}

static void greeted(struct redis *r)
{
    r->link = LINK_UP;
    r->failures = 0;
    /* Before anything is asked: what must not be told any more. */
    size_t sent = 0;
    while (sent < r->forgotten_count && send_mark(r, &r->forgotten[sent]))
        sent++;
    r->forgotten_count -= sent;
    memmove(r->forgotten, r->forgotten + sent, r->forgotten_count * sizeof *r->forgotten);
    tell_link(r, true, "");
}

static void on_reply(redisAsyncContext *context, void *data, void *flight)
{
    struct flight *f = flight;
    struct redis *r = f->redis;
    const redisReply *reply = data;
    struct redis_ask *ask = f->ask;
    enum flight_kind kind = f->kind;
    flight_end(f);
    if (!reply || context != r->context) {
        assert(!ask || r->context == context);
        if (ask) {
            count(r, METRIC_cache_errors);
            ask->then(ask, NULL);
        }
        return; /* the connection ends, which is told by itself */
    }
    bool error = reply->type == REDIS_REPLY_ERROR;
    char why[sizeof r->why] = "";
    if (error)
        snprintf(why, sizeof why, "%s", reply->str ? reply->str : "");
    r->slow = false;
    if (kind == FLIGHT_ASK) {
        if (ask)
            hear_ask(r, ask, reply);
    } else if (kind == FLIGHT_WRITE && error) {
        count(r, METRIC_cache_errors);
    } else if (kind == FLIGHT_GREETED && !error) {
        greeted(r);
    }
    /* The greeting was refused, or who was the primary is one no more: another server may be behind the name by now. */
    if (error && (kind == FLIGHT_GREETING || kind == FLIGHT_GREETED || strncmp(why, "READONLY", 8) == 0))
        lose(r, why);
    else
        watch(r);
}

/* ---- a new link --------------------------------------------------------------------------------------------- */

static void on_connect(const redisAsyncContext *context, int status)
{
    struct redis *r = context->data;
    const struct cache_address *a = &r->settings.address;
    if (r->context != context)
        return;
    if (status != REDIS_OK) {
        r->context = NULL; /* hiredis frees it */
        lose(r, context->errstr && *context->errstr ? context->errstr : "the connection was refused");
        return;
    }
    r->link = LINK_GREETING;
    bool sent = true;
    char db[12];
    snprintf(db, sizeof db, "%d", a->db);
    if (a->password[0] && a->user[0])
        sent = send_words(r, FLIGHT_GREETING, NULL, 3, (const char *[]){"AUTH", a->user, a->password});
    else if (a->password[0])
        sent = send_words(r, FLIGHT_GREETING, NULL, 2, (const char *[]){"AUTH", a->password});
    if (sent && a->db)
        sent = send_words(r, FLIGHT_GREETING, NULL, 2, (const char *[]){"SELECT", db});
    if (sent)
        sent = send_words(r, FLIGHT_GREETED, NULL, 1, (const char *[]){"PING"});
    if (!sent)
        lose(r, "not enough memory to greet the server");
}

static void take_context(struct redis *r, redisAsyncContext *context)
{
    if (!context) {
        lose(r, "not enough memory to connect");
        return;
    }
    char why[sizeof r->why] = "";
    if (context->err) {
        snprintf(why, sizeof why, "%s", context->errstr ? context->errstr : "");
    } else if (redis_poll_attach(context, net_loop_uv(r->loop)) != STATUS_OK) {
        snprintf(why, sizeof why, "the connection cannot be watched");
    } else {
        r->link = LINK_CONNECTING;
        r->context = context;
        context->data = r;
        redisAsyncSetDisconnectCallback(context, on_disconnect);
        redisAsyncSetConnectCallback(context, on_connect);
        return;
    }
    redisAsyncFree(context);
    lose(r, why);
}

static void connect_to(struct redis *r, const char *ip)
{
    take_context(r, redisAsyncConnect(ip, r->settings.address.port));
}

static void on_name(uv_getaddrinfo_t *ask, int status, struct addrinfo *found)
{
    struct name_lookup *lookup = LIST_ENTRY(ask, struct name_lookup, ask);
    struct redis *r = lookup->redis;
    char ip[ADDRESSES_MAX][INET6_ADDRSTRLEN];
    size_t addresses = 0;
    for (struct addrinfo *a = status == 0 ? found : NULL; a && addresses < ADDRESSES_MAX; a = a->ai_next) {
        if (a->ai_family == AF_INET)
            (void)uv_ip4_name((struct sockaddr_in *)(void *)a->ai_addr, ip[addresses++], sizeof *ip);
        else if (a->ai_family == AF_INET6)
            (void)uv_ip6_name((struct sockaddr_in6 *)(void *)a->ai_addr, ip[addresses++], sizeof *ip);
    }
    uv_freeaddrinfo(found);
    free(lookup);
    if (!r)
        return;
    r->lookup = NULL;
    if (addresses)
        connect_to(r, ip[r->address_next++ % addresses]); /* the next try takes the next address */
    else
        lose(r, status ? uv_strerror(status) : "the name has no address");
}

static void connect_now(struct redis *r)
{
    const struct cache_address *a = &r->settings.address;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    r->link = LINK_RESOLVING;
    r->since_ms = now_of(r);
    if (a->path[0]) {
        take_context(r, redisAsyncConnectUnix(a->path));
    } else if (uv_ip4_addr(a->host, 0, &v4) == 0 || uv_ip6_addr(a->host, 0, &v6) == 0) {
        connect_to(r, a->host);
    } else {
        struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        struct name_lookup *lookup = calloc(1, sizeof *lookup);
        int error = UV_ENOMEM;
        if (lookup)
            error = uv_getaddrinfo(net_loop_uv(r->loop), &lookup->ask, on_name, a->host, NULL, &hints);
        if (error) {
            free(lookup);
            lose(r, uv_strerror(error));
            return;
        }
        lookup->redis = r;
        r->lookup = lookup;
    }
    watch(r);
}

/* ---- time --------------------------------------------------------------------------------------------------- */

static void on_timer(struct net_timer *timer)
{
    struct redis *r = LIST_ENTRY(timer, struct redis, timer);
    int64_t now = now_of(r);
    if (r->link == LINK_DOWN) {
        connect_now(r);
        return;
    }
    if (r->link != LINK_UP) {
        if (now - r->since_ms >= REDIS_CONNECT_MS)
            lose(r, "the server does not answer");
        else
            watch(r);
        return;
    }
    if (list_empty(&r->flights)) { /* is it still there? */
        (void)send_words(r, FLIGHT_WRITE, NULL, 1, (const char *[]){"PING"});
        return;
    }
    struct list *l;
    for (l = r->flights.next; l != &r->flights;) {
        struct flight *f = LIST_ENTRY(l, struct flight, link);
        l = l->next;
        if (now - f->sent_ms < r->settings.patience_ms)
            break;
        struct redis_ask *ask = f->ask;
        f->ask = NULL;
        if (ask) {
            r->slow = true;
            count(r, METRIC_cache_errors);
            ask->then(ask, NULL);
        }
    }
    if (!list_empty(&r->flights) &&
        now - LIST_ENTRY(r->flights.next, struct flight, link)->sent_ms >= REDIS_SILENCE_MS)
        lose(r, "the server does not answer");
    else
        watch(r);
}

static int64_t backoff(struct redis *r)
{
    int64_t pause = REDIS_BACKOFF_MS;
    for (unsigned i = 1; i < r->failures && pause < REDIS_BACKOFF_MAX_MS; i++)
        pause *= 2;
    if (pause > REDIS_BACKOFF_MAX_MS)
        pause = REDIS_BACKOFF_MAX_MS;
    return pause / 2 + (int64_t)((double)pause / 2 * prng_double(r->settings.random));
}

/* Arms the timer for what comes next. */
static void watch(struct redis *r)
{
    int64_t at;
    if (r->link == LINK_CLOSED)
        return;
    if (r->link == LINK_DOWN) {
        at = now_of(r) + backoff(r);
    } else if (r->link != LINK_UP) {
        at = r->since_ms + REDIS_CONNECT_MS;
    } else if (list_empty(&r->flights)) {
        at = now_of(r) + REDIS_PING_MS;
    } else {
        at = LIST_ENTRY(r->flights.next, struct flight, link)->sent_ms + REDIS_SILENCE_MS;
        for (struct list *l = r->flights.next; l != &r->flights; l = l->next) {
            struct flight *f = LIST_ENTRY(l, struct flight, link);
            if (f->ask) { /* the oldest one that is waited for */
                if (f->sent_ms + r->settings.patience_ms < at)
                    at = f->sent_ms + r->settings.patience_ms;
                break;
            }
        }
    }
    net_timer_arm(r->loop, &r->timer, at, on_timer);
}

/* ---- what the gateway asks ---------------------------------------------------------------------------------- */

enum status redis_new(struct redis **out, struct net_loop *loop, const struct redis_settings *settings)
{
    struct redis *r = calloc(1, sizeof *r);
    struct digest *forgotten = calloc(REDIS_FORGOTTEN_MAX, sizeof *forgotten);
    if (!r || !forgotten || redis_seal_init(&r->seal, settings->secret) != STATUS_OK) {
        free(forgotten);
        free(r);
        return STATUS_NO_MEMORY;
    }
    r->loop = loop;
    r->settings = *settings;
    r->settings.secret = NULL; /* the seal has it */
    r->forgotten = forgotten;
    list_init(&r->flights);
    connect_now(r);
    *out = r;
    return STATUS_OK;
}

void redis_close(struct redis *r)
{
    if (!r || r->link == LINK_CLOSED)
        return;
    r->told = r->told_up = true; /* nobody asked for this word */
    r->settings.on_link = NULL;
    redisAsyncContext *context = r->context;
    r->context = NULL;
    r->link = LINK_CLOSED;
    net_timer_disarm(r->loop, &r->timer);
    if (r->lookup)
        r->lookup->redis = NULL;
    r->lookup = NULL;
    give_up_asks(r);
    if (context)
        redisAsyncFree(context);
}

void redis_free(struct redis *r)
{
    if (!r)
        return;
    assert(r->link == LINK_CLOSED && list_empty(&r->flights));
    redis_seal_fini(&r->seal);
    buffer_fini(&r->entry);
    free(r->forgotten);
    free(r);
}

bool redis_ask(struct redis *r, struct redis_ask *ask)
{
    char name[REDIS_NAME_BYTES], last[24];
    if (!r || r->link == LINK_CLOSED)
        return false;
    if (r->link != LINK_UP || r->slow) {
        count(r, METRIC_cache_errors);
        return false;
    }
    redis_entry_name(&r->seal, &ask->call, name);
    snprintf(last, sizeof last, "%u",
             REDIS_ENTRY_BYTES_MAX); /* one byte more than an entry has: that shows */
    return send_words(r, FLIGHT_ASK, ask, 4, (const char *[]){"GETRANGE", name, "0", last});
}

void redis_put(struct redis *r, const struct rows *rows)
{
    int64_t kept_ms;
    if (!r || !rows->call.id)
        return;
    r->clock_known = true;
    r->store_ahead_ms = rows->now_ms - now_of(r);
    if (r->link != LINK_UP || r->slow || r->sending >= REDIS_SENDING_MAX || !redis_entry_wanted(rows))
        return;
    buffer_clear(&r->entry);
    if (redis_entry_seal(&r->seal, rows, r->settings.life_ms, &r->entry, &kept_ms) == STATUS_OK) {
        char name[REDIS_NAME_BYTES], life[24];
        redis_entry_name(&r->seal, &rows->call.call_digest, name);
        snprintf(life, sizeof life, "%lld", (long long)kept_ms);
        const char *words[] = {"SET", name, r->entry.data, "PX", life, "NX"};
        const size_t lengths[] = {3, strlen(name), r->entry.len, 2, strlen(life), 2};
        (void)send_command(r, FLIGHT_WRITE, NULL, 6, words, lengths, r->entry.len);
    }
    buffer_rest(&r->entry, 64u << 10);
}

void redis_forget(struct redis *r, const struct digest *call)
{
    if (!r || (r->link == LINK_UP && send_mark(r, call)))
        return;
    if (r->forgotten_count < REDIS_FORGOTTEN_MAX)
        r->forgotten[r->forgotten_count++] = *call;
}
