/* SPDX-License-Identifier: MIT */
#include "gateway/gateway.h"

#include "gateway/admin.h"
#include "gateway/node.h"
#include "gateway/endings.h"
#include "gateway/lookup.h"
#include "gateway/receipts.h"
#include "gateway/redis.h"
#include "gateway/run.h"
#include "gateway/shard.h"
#include "gateway/sketcher.h"
#include "gateway/suspects.h"
#include "gateway/upkeep.h"
#include "net/listen.h"
#include "net/volley.h"
#include "store/archive.h"
#include "store/secret.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_OK = 0, EXIT_UNAVAILABLE = 69, EXIT_CONFIGURATION = 78 };

#define ADDRESS_BYTES_MAX  300
#define SHARDS_MAX         256
#define DRAIN_LOOK_MS      20          /* how often a draining shard looks whether it is empty */
#define PIPELINE_BYTES_MAX (64u << 10) /* bytes that wait behind a running request */
#define WRITE_BUFFER_HIGH  (256u << 10)
#define STORE_READERS      1
#define STORE_LOOK_MS      250  /* how often the log learns whether the store writes */
#define COUNT_GAP_MS       1000 /* between two counts of open connections */
#define LOG_LAST_WAIT_MS   2000
#define TRACE_LAST_WAIT_MS 2000
#define LAST_LETTERS_MS    100

/* A word from home to a shard. */
struct order {
    struct letter letter;
    struct shard *shard;
    struct setup *setup; /* of a reload: a hold */
};

struct thread {
    struct shard shard;
    struct gateway *gateway;
    pthread_t id;
    bool started;
    struct net_timer drain_timer, count_timer;
    int64_t connections; /* as the metrics have them */
    struct order drain, stop;
    struct letter empty; /* to home: nothing is left here */
};

struct gateway {
    const char *conf_path;
    const struct conf_flags *flags;
    struct setup *setup; /* of new requests; a hold */
    struct store *store;
    struct archive *archive; /* NULL: none */
    struct worker *worker;
    struct log_writer *log_writer;
    struct tracer *tracer;
    struct log *tracer_log;
    struct metrics *metrics;
    struct metrics_loop *store_counts;
    struct callid_maker ids;
    char owner[NODE_BYTES_MAX + 64];
    size_t count;
    struct thread *threads; /* count of them, then home */
    struct thread *home;
    struct net_server *admin;
    struct admin *admin_state;
    struct suspects *suspects;
    struct sketcher *sketcher;
    struct upkeep *upkeep;
    uv_signal_t signals[3];
    size_t signals_open;
    struct net_timer drain_timer, home_timer;
    size_t empty_threads;
    atomic_bool ready;
    atomic_int cache_links;                   /* loops whose link to the cache is up */
    uint8_t cache_secret[STORE_SECRET_BYTES]; /* seals what is kept there */
    struct net_timer store_timer;
    atomic_bool store_fails; /* set by the writer */
    bool store_told;         /* what the log says of it */
    bool restored;
    bool draining, abandoned;
};

bool gateway_ready(const struct gateway *g)
{
    /* A store of one's own that cannot write still answers what it knows. A database that is gone answers nothing. */
    bool gone =
        g->store && store_shared(g->store) && atomic_load_explicit(&g->store_fails, memory_order_relaxed);
    return atomic_load(&g->ready) && !gone;
}

void gateway_store_stats(const struct gateway *g, struct store_stats *out)
{
    store_stats(g->store, out);
}

void gateway_cache_link(struct gateway *g, bool up)
{
    if (up)
        atomic_fetch_add(&g->cache_links, 1);
    else if (atomic_load(&g->cache_links) > 0)
        atomic_fetch_sub(&g->cache_links, 1);
}

const char *gateway_cache_words(const struct gateway *g)
{
    if (!g->setup->settings->cache[0])
        return "";
    int links = atomic_load(&g->cache_links);
    return links > (int)g->count ? "cache: reachable\n" /* the loops' and home's */
           : links > 0           ? "cache: not reachable from every loop\n"
                                 : "cache: not reachable; served without it, from the store\n";
}

int64_t gateway_log_dropped(const struct gateway *g)
{
    return (int64_t)log_writer_dropped(g->log_writer);
}

static void say(struct gateway *g, enum log_level level, const char *event, const char *detail)
{
    log_event(g->home->shard.log, level, clock_wall_ms(), slice_of("", 0), event,
              LOG_STRING("detail", detail));
}

/* A loop's own reader: without one its reads go to the store's threads like those that wait. */
static struct store_reader *open_reader(const struct gateway *g)
{
    struct store_reader *reader = NULL;
    struct buffer error = {0};
    (void)store_reader_open_now(&reader, g->store, (unsigned)g->count, &error);
    buffer_fini(&error);
    return reader;
}

/* ---- shards ------------------------------------------------------------------------------------------------- */

static enum status shard_start(struct gateway *g, struct thread *t, size_t index)
{
    struct shard *shard = &t->shard;
    uint64_t seed;
    t->gateway = g;
    shard->gateway = g;
    shard->index = index;
    shard->worker = g->worker;
    shard->ids = &g->ids;
    shard->owner = g->owner;
    shard->metrics = g->metrics;
    shard->tracer = g->tracer;
    shard->archive = g->archive;
    shard->suspects = g->suspects;
    list_init(&shard->jobs);
    list_init(&shard->outbox);
    list_init(&shard->run_list);
    list_init(&shard->spare_runs);
    list_init(&shard->spare_visits);
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return STATUS_IO;
    prng_seed(&shard->random, seed);
    enum status status = net_loop_new(&shard->loop);
    if (status == STATUS_OK) {
        net_loop_on_rest(shard->loop, shard_turn, shard);
        volley_use_ring(net_loop_volley(shard->loop), g->setup->settings->io_uring);
    }
    if (status == STATUS_OK && index < g->count) /* the last one takes no requests for receipts */
        shard->reader = open_reader(g);
    if (status == STATUS_OK)
        status = fingerprinter_init(&shard->print);
    if (status == STATUS_OK)
        status = cache_new(&shard->cache,
                           (size_t)g->setup->settings->memory_bytes_max / (g->count ? g->count : 1));
    if (status == STATUS_OK)
        status = log_open(&shard->log, g->log_writer, g->setup->settings->log_level);
    if (status == STATUS_OK)
        status = metrics_loop_new(g->metrics, &shard->counts);
    if (status == STATUS_OK && !(shard->outlets = outlets_new(shard, g->setup)))
        status = STATUS_NO_MEMORY;
    if (status == STATUS_OK)
        status = endings_open(shard, g->setup->settings, g->cache_secret);
    return status;
}

static void shard_fini(struct shard *shard)
{
    for (size_t i = 0; i < shard->server_count; i++)
        net_server_free(shard->servers[i]);
    free(shard->servers);
    lookups_free(shard);
    runs_forget(shard);
    visits_forget(shard);
    outlets_release(shard->outlets);
    struct list *idle;
    while ((idle = list_pop_front(&shard->jobs))) {
        struct job *job = LIST_ENTRY(idle, struct job, idle);
        store_op_fini(&job->op);
        free(job);
    }
    redis_close(shard->redis);
    redis_free(shard->redis);
    store_reader_free(shard->reader);
    cache_free(shard->cache);
    fingerprinter_fini(&shard->print);
    log_close(shard->log);
    net_loop_free(shard->loop);
}

static struct server_limits limits_of(const struct gateway *g, size_t shards)
{
    const struct settings *s = g->setup->settings;
    int64_t connections = s->connections / (int64_t)(shards ? shards : 1);
    return (struct server_limits){
        .headers_bytes_max = (size_t)s->headers_bytes_max,
        .headers_count_max = (size_t)s->headers_max,
        .pipeline_bytes_max = PIPELINE_BYTES_MAX,
        .write_buffer_high = WRITE_BUFFER_HIGH,
        .connections_max = (uint32_t)(connections ? connections : 1),
        .header_timeout_ms = (uint32_t)s->headers_timeout_ms,
        .body_timeout_ms = (uint32_t)s->body_timeout_ms,
        .write_timeout_ms = (uint32_t)s->answer_timeout_ms,
        .idle_timeout_ms = (uint32_t)s->idle_timeout_ms,
    };
}

/* All shards share a TCP address by SO_REUSEPORT, which would let another gateway of this user share it too, and half
 * of its calls land in the wrong store. So the address is first taken for nobody else, as a question. Port 0 is settled
 * here as well: one free port for all shards. */
static bool claim_address(const char *address, char claimed[ADDRESS_BYTES_MAX], struct buffer *error)
{
    int len = snprintf(claimed, ADDRESS_BYTES_MAX, "%s", address), port;
    if (strncmp(address, "unix:", 5) == 0)
        return len < ADDRESS_BYTES_MAX;
    if (listener_ask(address, &port, error) != STATUS_OK)
        return false;
    const char *colon = strrchr(address, ':');
    if (colon && strcmp(colon, ":0") == 0)
        len = snprintf(claimed, ADDRESS_BYTES_MAX, "%.*s:%d", (int)(colon - address), address, port);
    return len < ADDRESS_BYTES_MAX;
}

/* Every shard listens on every TCP address; a unix socket belongs to the first one. */
static bool listen_all(struct gateway *g, struct buffer *error)
{
    const struct text_list *listen = &g->setup->settings->listen;
    struct server_limits limits = limits_of(g, g->count);
    for (size_t k = 0; k < g->count; k++) {
        g->threads[k].shard.servers = calloc(listen->count ? listen->count : 1, sizeof(struct net_server *));
        if (!g->threads[k].shard.servers)
            return false;
    }
    for (size_t i = 0; i < listen->count; i++) {
        char address[ADDRESS_BYTES_MAX];
        if (!claim_address(listen->items[i], address, error))
            return false;
        bool is_unix = strncmp(address, "unix:", 5) == 0;
        for (size_t k = 0; k < (is_unix ? 1 : g->count); k++) {
            struct shard *shard = &g->threads[k].shard;
            if (net_server_new(&shard->servers[shard->server_count], shard->loop, address, true, &limits,
                               &shard_handlers, shard, error) != STATUS_OK)
                return false;
            shard->server_count++;
        }
    }
    return true;
}

/* Each shard brings its own connections into the gauge: only its thread may count them. */
static void count_connections(struct net_timer *timer)
{
    struct thread *t = LIST_ENTRY(timer, struct thread, count_timer);
    struct shard *shard = &t->shard;
    int64_t open = 0;
    for (size_t i = 0; i < shard->server_count; i++)
        open += (int64_t)net_server_connections(shard->servers[i]);
    metrics_add(shard->counts, METRIC_connections, 0, 0, open - t->connections);
    t->connections = open;
    net_timer_arm(shard->loop, timer, net_loop_now(shard->loop) + COUNT_GAP_MS, count_connections);
}

static void *thread_main(void *context)
{
    struct thread *t = context;
    count_connections(&t->count_timer);
    net_loop_run(t->shard.loop);
    return NULL;
}

/* ---- orders ------------------------------------------------------------------------------------------------- */

static void take_setup(struct shard *shard, struct setup *setup)
{
    struct outlets *outlets = outlets_new(shard, setup);
    if (outlets) {
        outlets_release(shard->outlets);
        shard->outlets = outlets;
        log_set_level(shard->log, setup->settings->log_level);
    }
    setup_release(setup);
}

static void on_reload(struct letter *letter)
{
    struct order *order = LIST_ENTRY(letter, struct order, letter);
    take_setup(order->shard, order->setup);
    free(order);
}

static void on_empty(struct letter *letter);

static void look_empty(struct net_timer *timer)
{
    struct thread *t = LIST_ENTRY(timer, struct thread, drain_timer);
    struct shard *shard = &t->shard;
    size_t open = shard->visits + runs_busy(shard);
    for (size_t i = 0; i < shard->server_count; i++)
        open += net_server_connections(shard->servers[i]);
    if (open) {
        net_timer_arm(shard->loop, &t->drain_timer, net_loop_now(shard->loop) + DRAIN_LOOK_MS, look_empty);
        return;
    }
    t->empty.open = on_empty;
    list_init(&t->empty.link);
    mailbox_post(t->gateway->home->shard.loop, &t->empty);
}

static void on_drain(struct letter *letter)
{
    struct order *order = LIST_ENTRY(letter, struct order, letter);
    struct thread *t = LIST_ENTRY(order, struct thread, drain);
    struct shard *shard = order->shard;
    shard->draining = true;
    for (size_t i = 0; i < shard->server_count; i++)
        net_server_drain(shard->servers[i]);
    look_empty(&t->drain_timer);
}

/* The store still has words for this shard: watches that were given up, a lookup nobody waits for. */
static void await_jobs(struct net_timer *timer)
{
    struct shard *shard = &LIST_ENTRY(timer, struct thread, drain_timer)->shard;
    if (shard->jobs_out) {
        net_timer_arm(shard->loop, timer, net_loop_now(shard->loop) + 1, await_jobs);
        return;
    }
    lookups_free(shard);
    outlets_release(shard->outlets);
    shard->outlets = NULL;
    net_loop_stop(shard->loop);
}

static void on_stop(struct letter *letter)
{
    struct order *order = LIST_ENTRY(letter, struct order, letter);
    struct shard *shard = order->shard;
    for (size_t i = 0; i < shard->server_count; i++)
        net_server_free(shard->servers[i]);
    shard->server_count = 0;
    net_timer_disarm(shard->loop, &LIST_ENTRY(order, struct thread, stop)->count_timer);
    runs_abandon(shard);
    redis_close(shard->redis); /* who waits for it asks the store, and is waited for below */
    await_jobs(&LIST_ENTRY(order, struct thread, stop)->drain_timer);
}

static void give_order(struct order *order, struct shard *shard, void (*open)(struct letter *))
{
    order->shard = shard;
    order->letter.open = open;
    list_init(&order->letter.link);
    mailbox_post(shard->loop, &order->letter);
}

struct forgetting {
    struct letter letter;
    struct shard *shard;
    struct digest call;
};

static void on_forget(struct letter *letter)
{
    struct forgetting *f = LIST_ENTRY(letter, struct forgetting, letter);
    cache_drop(f->shard->cache, &f->call);
    free(f);
}

void gateway_forget(struct gateway *g, const struct digest *call)
{
    for (size_t i = 0; i <= g->count; i++) {
        struct forgetting *f = calloc(1, sizeof *f);
        if (!f)
            return; /* it is forgotten by itself within CACHE_LIFE_MS */
        f->shard = &g->threads[i].shard;
        f->call = *call;
        f->letter.open = on_forget;
        list_init(&f->letter.link);
        mailbox_post(f->shard->loop, &f->letter);
    }
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

static void leave_home(struct gateway *g)
{
    net_timer_disarm(g->home->shard.loop, &g->drain_timer);
    net_timer_disarm(g->home->shard.loop, &g->home_timer);
    net_timer_disarm(g->home->shard.loop, &g->store_timer);
    net_loop_stop(g->home->shard.loop);
}

/* Rounds of compensation at work are written down before the process leaves, within `drain`. */
static void look_home(struct net_timer *timer)
{
    struct gateway *g = LIST_ENTRY(timer, struct gateway, home_timer);
    struct shard *home = &g->home->shard;
    if (!runs_busy(home))
        runs_abandon(
            home); /* those that wait for a service which has accepted the call: the next process asks */
    if (upkeep_busy(g->upkeep) || home->runs)
        net_timer_arm(home->loop, timer, net_loop_now(home->loop) + DRAIN_LOOK_MS, look_home);
    else
        leave_home(g);
}

static void on_empty(struct letter *letter)
{
    struct thread *t = LIST_ENTRY(letter, struct thread, empty);
    struct gateway *g = t->gateway;
    if (++g->empty_threads == g->count)
        look_home(&g->home_timer);
}

static void on_drain_over(struct net_timer *timer)
{
    struct gateway *g = LIST_ENTRY(timer, struct gateway, drain_timer);
    g->abandoned = true;
    say(g, LOG_LEVEL_WARNING, "drain_over",
        "calls were still running; their receipts will be asked at the next start");
    leave_home(g);
}

static void drain(struct gateway *g, const char *why)
{
    if (g->draining) {
        on_drain_over(&g->drain_timer); /* asked twice: now */
        return;
    }
    g->draining = true;
    atomic_store(&g->ready, false);
    say(g, LOG_LEVEL_INFO, "draining", why);
    upkeep_stop(g->upkeep);
    sketcher_stop(g->sketcher);
    for (size_t i = 0; i < g->count; i++)
        give_order(&g->threads[i].drain, &g->threads[i].shard, on_drain);
    net_timer_arm(g->home->shard.loop, &g->drain_timer,
                  net_loop_now(g->home->shard.loop) + g->setup->settings->drain_ms, on_drain_over);
}

/* ---- reload ------------------------------------------------------------------------------------------------- */

/* A route keeps its number in the metrics by its name. */
static void set_series(struct gateway *g, struct setup *setup)
{
    for (size_t i = 0; i < setup->settings->route_count; i++)
        setup->lanes[i].series = metrics_route(g->metrics, slice_text(setup->lanes[i].s->name));
}

static void reload(struct gateway *g)
{
    struct buffer words = {0};
    struct settings *settings = NULL;
    struct setup *setup = NULL;
    if (!g->conf_path) {
        say(g, LOG_LEVEL_WARNING, "reload_refused",
            "there is no configuration file; it was started with flags alone");
        return;
    }
    if (conf_load(&settings, g->conf_path, g->flags, &words) != STATUS_OK ||
        setup_new(&setup, settings, &words) != STATUS_OK) {
        say(g, LOG_LEVEL_ERROR, "reload_refused", buffer_cstring(&words));
        conf_free(settings);
        buffer_fini(&words);
        return;
    }
    buffer_clear(&words);
    if (conf_changes(g->setup->settings, settings, &words))
        say(g, LOG_LEVEL_WARNING, "reload_warning", buffer_cstring(&words));
    buffer_fini(&words);
    set_series(g, setup);
    for (size_t i = 0; i < g->count; i++) {
        struct order *order = calloc(1, sizeof *order); /* lives until it is read; reloads are rare */
        if (!order)
            break;
        order->setup = setup_hold(setup);
        give_order(order, &g->threads[i].shard, on_reload);
    }
    take_setup(&g->home->shard, setup_hold(setup));
    setup_release(g->setup);
    g->setup = setup;
    say(g, LOG_LEVEL_INFO, "reloaded", g->conf_path);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct gateway *g = signal->data;
    if (number == SIGHUP)
        reload(g);
    else
        drain(g, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* ---- the start ---------------------------------------------------------------------------------------------- */

static int64_t store_clock(void *context)
{
    (void)context;
    return clock_wall_ms();
}

/* One line when the store stops writing, and one when it writes again. */
static void look_at_store(struct net_timer *timer)
{
    struct gateway *g = LIST_ENTRY(timer, struct gateway, store_timer);
    bool fails = atomic_load_explicit(&g->store_fails, memory_order_relaxed);
    if (fails != g->store_told) {
        g->store_told = fails;
        say(g, fails ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO, fails ? "store_unavailable" : "store_back",
            fails ? "nothing can be written: is the disk full, was the file removed, is the database gone? "
                    "New calls "
                    "are refused, nothing is sent"
                  : "writing again");
    }
    net_timer_arm(g->home->shard.loop, timer, net_loop_now(g->home->shard.loop) + STORE_LOOK_MS,
                  look_at_store);
}

/* On the writer's thread, which has a part of the metrics for itself. */
static void on_batch(void *context, size_t operations, int64_t micros, enum status status)
{
    struct gateway *g = context;
    metrics_observe(g->store_counts, METRIC_commit_seconds, (double)micros / 1e6);
    metrics_observe(g->store_counts, METRIC_batch_size, (double)operations);
    if (status != STATUS_OK)
        metrics_add(g->store_counts, METRIC_store_errors, 0, 0, 1);
    atomic_store_explicit(&g->store_fails, status != STATUS_OK, memory_order_relaxed);
}

/* On a store thread that has put answers into the mailboxes. */
static void on_answers(void *context)
{
    struct gateway *g = context;
    for (size_t i = 0; i < g->count; i++)
        mailbox_ring(g->threads[i].shard.loop);
    mailbox_ring(g->home->shard.loop);
}

static int complain(int code, const char *what, struct buffer *error)
{
    fprintf(stderr, "samekey gateway: %s%s%s\n", what, error->len ? ": " : "",
            error->len ? buffer_cstring(error) : "");
    return code;
}

static int open_store(struct gateway *g, struct buffer *error)
{
    const struct settings *s = g->setup->settings;
    if (s->archive[0] && archive_open(&g->archive, s->archive, g->owner, error) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "the archive cannot be written", error);
    struct store_settings settings = {
        .url = s->store, .owner = g->owner, .now_ms = store_clock, .archive = g->archive};
    /* Results of calls are in it: nobody outside the owner's group may read them. */
    mode_t mask = umask(S_IRWXO | S_IWGRP);
    enum status status = store_open(&g->store, &settings, error);
    (void)umask(mask);
    if (status != STATUS_OK)
        return complain(status == STATUS_INVALID ? EXIT_CONFIGURATION : EXIT_UNAVAILABLE,
                        "the store cannot be opened", error);
    if (g->restored && store_raise_covers_since(g->store, store_clock_ms(g->store)) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "the store cannot write down that it was restored", error);
    if (s->cache[0] && store_secret(g->store, g->cache_secret) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE,
                        "the store's secret, which seals what is kept in the cache, cannot be read", error);
    struct worker_settings worker = {
        .queue_max = (size_t)s->store_queue,
        .watches_max = (size_t)s->store_queue * 4,
        .batch_max = (size_t)s->store_batch,
        .readers = STORE_READERS,
        .on_batch = on_batch,
        .on_answers = on_answers,
        .context = g,
    };
    if (worker_start(&g->worker, g->store, &worker, error) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "the store's threads cannot be started", error);
    return EXIT_OK;
}

static int open_tracer(struct gateway *g, const char *node, struct buffer *error)
{
    const struct settings *s = g->setup->settings;
    if (!*s->trace)
        return EXIT_OK;
    if (log_open(&g->tracer_log, g->log_writer, s->log_level) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "not enough memory to start", error);
    struct tracer_settings settings = {
        .target = s->trace,
        .headers = &s->trace_header,
        .bytes_max = (size_t)s->trace_buffer_bytes_max,
        .node = node,
        .version = SAMEKEY_VERSION,
        .log = g->tracer_log,
    };
    enum status status = tracer_start(&g->tracer, &settings, error);
    if (status == STATUS_INVALID)
        return complain(EXIT_CONFIGURATION, "traces cannot be written, see the setting trace", error);
    return status == STATUS_OK ? EXIT_OK
                               : complain(EXIT_UNAVAILABLE, "the tracer's thread cannot be started", error);
}

static int open_admin(struct gateway *g, struct buffer *error)
{
    const char *address = g->setup->settings->admin;
    struct server_limits limits = limits_of(g, 1);
    if (!*address)
        return EXIT_OK;
    if (!admin_address_is_local(address) && !g->setup->admin_token.len) {
        fprintf(stderr,
                "samekey gateway: admin = \"%s\" is not a loopback address: set admin_token_file, or listen "
                "on 127.0.0.1\n",
                address);
        return EXIT_CONFIGURATION;
    }
    if (admin_new(&g->admin_state, &g->home->shard) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "not enough memory to start", error);
    if (net_server_new(&g->admin, g->home->shard.loop, address, false, &limits, &admin_handlers,
                       g->admin_state, error) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "the admin address cannot be listened on", error);
    return EXIT_OK;
}

static void watch_signals(struct gateway *g)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    uv_loop_t *uv = net_loop_uv(g->home->shard.loop);
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uv_signal_init(uv, &g->signals[i]);
        g->signals[i].data = g;
        uv_signal_start(&g->signals[i], on_signal, numbers[i]);
        g->signals_open++;
    }
}

static void say_listening(struct gateway *g)
{
    struct shard *home = &g->home->shard;
    const struct settings *s = g->setup->settings;
    for (size_t i = 0; i < s->listen.count; i++)
        log_event(home->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "listening",
                  LOG_STRING("address", s->listen.items[i]),
                  LOG_NUMBER("port", net_server_port(g->threads[0].shard.servers[i])),
                  LOG_NUMBER("loops", g->count));
    if (g->admin)
        log_event(home->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "admin_listening",
                  LOG_STRING("address", s->admin), LOG_NUMBER("port", net_server_port(g->admin)));
    struct store_stats stats;
    store_stats(g->store, &stats);
    if (stats.rows == 0)
        say(g, LOG_LEVEL_WARNING, "store_empty",
            "no receipt is in it: new, or not the file it should be? Every call is a first one here");
    struct buffer store = {0};
    settings_url_shown(&store, slice_text(s->store)); /* without its password */
    log_event(home->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "ready",
              LOG_STRING("version", SAMEKEY_VERSION), LOG_TEXT("store", buffer_view(&store)),
              LOG_STRING("owner", g->owner));
    buffer_fini(&store);
}

/* Descriptors: a connection is one, and a proxied call two. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int start(struct gateway *g, struct buffer *error)
{
    const struct settings *s = g->setup->settings;
    char node[NODE_BYTES_MAX + 1];
    if (*s->node)
        (void)node_clean(slice_text(s->node), node);
    else
        (void)node_name(node);
    snprintf(g->owner, sizeof g->owner, "%s/%ld/%lld", node, (long)getpid(), (long long)clock_wall_ms());
    if (node_callid_maker(&g->ids, slice_text(s->call_id_prefix), slice_text(s->node)) != STATUS_OK)
        return complain(EXIT_CONFIGURATION, "callIds cannot be made from call_id_prefix and node", error);
    if (log_writer_start(&g->log_writer, STDERR_FILENO, (size_t)s->log_buffer_bytes_max) != STATUS_OK ||
        metrics_new(&g->metrics, s) != STATUS_OK ||
        metrics_loop_new(g->metrics, &g->store_counts) != STATUS_OK ||
        suspects_new(&g->suspects) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "not enough memory to start", error);
    set_series(g, g->setup);
    int code = open_tracer(g, node, error);
    if (code == EXIT_OK)
        code = open_store(g, error);
    if (code)
        return code;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    g->count = s->loops ? (size_t)s->loops : cores > 0 ? (size_t)cores : 1;
    if (g->count > SHARDS_MAX)
        g->count = SHARDS_MAX;
    g->threads = calloc(g->count + 1, sizeof *g->threads);
    if (!g->threads)
        return complain(EXIT_UNAVAILABLE, "not enough memory to start", error);
    g->home = &g->threads[g->count];
    for (size_t i = 0; i <= g->count; i++) {
        if (shard_start(g, &g->threads[i], i) != STATUS_OK)
            return complain(EXIT_UNAVAILABLE, "an event loop cannot be started", error);
    }
    code = open_admin(g, error);
    if (code)
        return code;
    if (!listen_all(g, error))
        return complain(EXIT_UNAVAILABLE, "an address cannot be listened on", error);
    watch_signals(g);
    if (upkeep_start(&g->upkeep, &g->home->shard) != STATUS_OK ||
        sketcher_start(&g->sketcher, &g->home->shard) != STATUS_OK)
        return complain(EXIT_UNAVAILABLE, "not enough memory to start", error);
    for (size_t i = 0; i < g->count; i++) {
        if (pthread_create(&g->threads[i].id, NULL, thread_main, &g->threads[i]) != 0)
            return complain(EXIT_UNAVAILABLE, "a thread cannot be started", error);
        g->threads[i].started = true;
    }
    look_at_store(&g->store_timer);
    atomic_store(&g->ready, true);
    say_listening(g);
    return EXIT_OK;
}

static void no_letters(struct net_timer *timer)
{
    struct gateway *g = LIST_ENTRY(timer, struct gateway, store_timer);
    net_timer_arm(g->home->shard.loop, timer, net_loop_now(g->home->shard.loop) + LAST_LETTERS_MS,
                  no_letters);
}

/* What runs no more is taken apart in the order that keeps everyone's neighbours alive. */
static void stop(struct gateway *g)
{
    for (size_t i = 0; i < g->count && g->threads; i++) {
        if (g->threads[i].started)
            give_order(&g->threads[i].stop, &g->threads[i].shard, on_stop);
    }
    for (size_t i = 0; i < g->count && g->threads; i++) {
        if (g->threads[i].started)
            pthread_join(g->threads[i].id, NULL);
    }
    worker_stop(g->worker);
    for (size_t i = 0; g->threads && i <= g->count; i++)
        g->threads[i].shard.worker = NULL;
    if (g->home && g->home->shard.loop) {
        for (size_t i = 0; i < g->signals_open; i++)
            uv_close((uv_handle_t *)&g->signals[i], NULL);
        redis_close(g->home->shard.redis); /* who waits for it asks the store, and is answered below */
        net_server_free(g->admin);
        admin_stop(g->admin_state);
        sketcher_stop(g->sketcher);
        /* Letters of the store's last answers, and closing handles. The mailbox does not keep a loop running, and one that
         * has nothing to run would not look into it: so it waits for something. */
        net_timer_arm(g->home->shard.loop, &g->store_timer,
                      net_loop_now(g->home->shard.loop) + LAST_LETTERS_MS, no_letters);
        while (g->home->shard.jobs_out)
            uv_run(net_loop_uv(g->home->shard.loop), UV_RUN_ONCE);
        net_timer_disarm(g->home->shard.loop, &g->store_timer);
        uv_run(net_loop_uv(g->home->shard.loop), UV_RUN_NOWAIT);
    }
    upkeep_free(g->upkeep);
    sketcher_free(g->sketcher);
    admin_free(g->admin_state);
    suspects_free(g->suspects);
    for (size_t i = 0; g->threads && i <= g->count; i++) {
        if (g->threads[i].shard.loop)
            shard_fini(&g->threads[i].shard);
    }
    free(g->threads);
    store_close(g->store);
    archive_close(g->archive);
    tracer_stop(g->tracer, TRACE_LAST_WAIT_MS);
    log_close(g->tracer_log);
    log_writer_stop(g->log_writer, LOG_LAST_WAIT_MS);
    metrics_free(g->metrics);
}

int gateway_main(struct settings *settings, const char *conf_path, const struct conf_flags *flags,
                 bool restored)
{
    struct gateway *g = calloc(1, sizeof *g);
    struct buffer error = {0};
    int code = EXIT_UNAVAILABLE;
    if (!g || setup_new(&g->setup, settings, &error) != STATUS_OK) {
        code = complain(EXIT_CONFIGURATION, "the configuration is refused", &error);
        conf_free(settings);
        free(g);
        buffer_fini(&error);
        return code;
    }
    g->conf_path = conf_path;
    g->restored = restored;
    g->flags = flags;
    raise_descriptors();
    code = start(g, &error);
    if (code == EXIT_OK) {
        net_loop_run(g->home->shard.loop);
        say(g, LOG_LEVEL_INFO, "stopped", g->abandoned ? "at the end of drain" : "with nothing left to do");
    }
    if (g->abandoned) {
        /* Calls still run on the other threads: the store is made for an end like this one. */
        for (size_t i = 0; i < g->count; i++)
            pthread_detach(g->threads[i].id);
        tracer_abandon(g->tracer, TRACE_LAST_WAIT_MS);
        log_writer_abandon(g->log_writer, LOG_LAST_WAIT_MS);
        _exit(code);
    }
    stop(g);
    setup_release(g->setup);
    buffer_fini(&error);
    free(g);
    return code;
}
