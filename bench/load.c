/* SPDX-License-Identifier: MIT
 *
 * load: N keep-alive connections that send calls and time the answers. One thread, epoll, llhttp.
 *
 *   (1) A request is sent once. A connection that ends under it is an error, counted, never a second send: a load
 *       generator that repeats by itself would make the very duplicates the callee counts.
 *   (2) Closed loop (default): a connection sends when its last answer is complete. Open loop (--rate): sends are
 *       due at fixed times whatever the answers do, and time is counted from when a send was due, so that a server
 *       that stalls cannot hide the calls it kept from being made.
 *   (3) When the time is over nothing new is sent, and what is under way is waited for (bounded): at the end
 *       sent = completed + errors + unanswered.
 *
 * Results are one JSON object on stdout.
 */
#include "histogram.h"
#include "ids.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <llhttp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 60000,
    EVENTS_MAX = 512,
    READ_BYTES_MAX = 65536,
    REQUEST_BYTES_MAX = 1024,
    PATH_BYTES_MAX = 128,
    HEADERS_BYTES_MAX = 256,
    CONTENT_TYPE_BYTES_MAX = 64,
    STATUS_MAX = 600,
    CONNECT_TIMEOUT_S = 5,
    SETTLE_S_DEFAULT = 15,
    PRIME_CONNECTIONS_MAX = 64,
};

static const uint64_t NS_PER_S = 1000000000u;

enum mode { MODE_UNIQUE, MODE_REPLAY, MODE_RECEIPT, MODE_GET };
static const char *const mode_names[] = {"unique", "replay", "receipt", "get"};

struct connection {
    int fd; /* -1: not connected */
    llhttp_t parser;
    bool busy, answered, keep_alive, waiting_to_write;
    uint64_t began_ns; /* sent, or in open loop due */
    uint64_t turns;    /* open loop: how many of its sends were made */
    char request[REQUEST_BYTES_MAX];
    size_t request_len, request_sent;
};

/* One stretch of sending, the priming or the measured one. */
struct phase {
    enum mode mode;
    uint32_t connections;
    uint64_t requests_max; /* 0: until end_ns */
    uint64_t begin_ns, count_from_ns, end_ns;
    double rate; /* sends a second over all connections; 0: closed loop */
    uint64_t sent, completed, counted, errors, connects, statuses[STATUS_MAX];
    uint64_t last_answer_ns;
};

static struct {
    struct sockaddr_in target;
    char target_text[64];
    const char *path, *content_type;
    char headers[HEADERS_BYTES_MAX]; /* further lines of every POST, each ended by CRLF */
    size_t headers_len;
    uint32_t connection_count;
    enum mode mode;
    double seconds, warmup_s, rate, settle_s;
    uint64_t requests;
    uint64_t set_size; /* calls that replay and receipt choose from */
    uint64_t seed, next_index, choice;
    bool prime;
    int epoll_fd;
    struct connection *connections;
    struct phase *phase;
    struct histogram latencies;
    llhttp_settings_t settings;
} load = {.path = "/orders",
          .content_type = "application/json",
          .connection_count = 1,
          .seconds = 2,
          .settle_s = SETTLE_S_DEFAULT,
          .set_size = 1000,
          .prime = true};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void __attribute__((noreturn, format(printf, 2, 3))) fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

/* -- requests ---------------------------------------------------------------------------------------------- */

static void make_write(struct connection *c, uint64_t index)
{
    char call_id[IDS_LENGTH + 1] = {0}, key[IDS_LENGTH + 1] = {0}, body[256];
    ids_write(call_id, load.seed, index);
    ids_write(key, ~load.seed, index);
    int body_len = snprintf(
        body, sizeof body,
        "{\"order_no\": \"%.16s\", \"amount\": \"12.50\", \"currency\": \"EUR\", \"customer\": "
        "{\"id\": \"%.8s\", \"country\": \"DE\"}, \"lines\": [{\"sku\": \"SKU-1001\", \"quantity\": 2}], "
        "\"note\": \"leave at the door\"}",
        key, key + 16);
    int n =
        snprintf(c->request, sizeof c->request,
                 "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nX-Call-Id: %s\r\n"
                 "Idempotency-Key: %s\r\n%sContent-Length: %d\r\n\r\n%s",
                 load.path, load.target_text, load.content_type, call_id, key, load.headers, body_len, body);
    assert(n > 0 && (size_t)n < sizeof c->request);
    c->request_len = (size_t)n;
}

static void make_get(struct connection *c, const char *path, const char *tail)
{
    int n = snprintf(c->request, sizeof c->request, "GET %s%s HTTP/1.1\r\nHost: %s\r\n\r\n", path, tail,
                     load.target_text);
    assert(n > 0 && (size_t)n < sizeof c->request);
    c->request_len = (size_t)n;
}

/* One of the set, chosen evenly. */
static uint64_t choose(void)
{
    load.choice = ids_mix(load.choice);
    return load.choice % load.set_size;
}

static void make_request(struct connection *c)
{
    char call_id[IDS_LENGTH + 1] = {0};
    switch (load.phase->mode) {
    case MODE_UNIQUE:
        make_write(c, load.next_index++);
        break;
    case MODE_REPLAY:
        make_write(c, choose());
        break;
    case MODE_RECEIPT:
        ids_write(call_id, load.seed, choose());
        make_get(c, "/.samekey/receipts/", call_id);
        break;
    case MODE_GET:
        make_get(c, load.path, "");
        break;
    }
    c->request_sent = 0;
}

/* -- connections ------------------------------------------------------------------------------------------- */

static void connection_open(struct connection *c)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct timeval patience = {.tv_sec = CONNECT_TIMEOUT_S};
    if (fd < 0)
        fail(71, "no more sockets: %s", strerror(errno));
    /* On Linux the send timeout bounds connect() too (socket(7)). */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&load.target, sizeof load.target) != 0)
        fail(69, "cannot connect to %s: %s", load.target_text, strerror(errno));
    c->fd = fd;
    load.phase->connects++;
    c->busy = c->waiting_to_write = false;
    llhttp_init(&c->parser, HTTP_RESPONSE, &load.settings);
    c->parser.data = c;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(load.epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0)
        fail(71, "epoll: %s", strerror(errno));
}

/* Ends the connection; a request under way is an error (1). */
static void connection_lose(struct connection *c)
{
    if (c->busy)
        load.phase->errors++;
    close(c->fd);
    c->fd = -1;
    c->busy = false;
}

static void connection_watch(struct connection *c, bool write)
{
    struct epoll_event e = {.events = write ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    epoll_ctl(load.epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->waiting_to_write = write;
}

static void connection_flush(struct connection *c)
{
    while (c->request_sent < c->request_len) {
        ssize_t n = send(c->fd, c->request + c->request_sent, c->request_len - c->request_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            c->request_sent += (size_t)n;
        } else if (errno == EAGAIN) {
            if (!c->waiting_to_write)
                connection_watch(c, true);
            return;
        } else if (errno != EINTR) {
            connection_lose(c);
            return;
        }
    }
    if (c->waiting_to_write)
        connection_watch(c, false);
}

/* Sends the connection's next request; began_ns is when it was due. */
static void connection_send(struct connection *c, uint64_t began_ns)
{
    if (c->fd < 0)
        connection_open(c);
    make_request(c);
    c->busy = true;
    c->answered = false;
    c->began_ns = began_ns;
    load.phase->sent++;
    connection_flush(c);
}

static int on_message_complete(llhttp_t *parser)
{
    struct connection *c = parser->data;
    int status = llhttp_get_status_code(parser);
    if (status < 200)
        return 0;
    if (!c->busy || c->answered)
        return -1; /* an answer nobody asked for */
    c->answered = true;
    c->keep_alive = llhttp_should_keep_alive(parser); /* the parser forgets it right after */
    load.phase->statuses[status < STATUS_MAX ? status : 0]++;
    return 0;
}

/* Reads what is there; true when the answer under way is complete. */
static bool connection_read(struct connection *c)
{
    static char bytes[READ_BYTES_MAX];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        /* An answer without a length ends with its connection (RFC 9112 section 6.3). */
        if (n == 0 && c->busy)
            llhttp_finish(&c->parser);
        if (!c->answered || !c->busy) {
            connection_lose(c);
            return false;
        }
        c->busy = false;
        connection_lose(c);
        return true;
    }
    if (llhttp_execute(&c->parser, bytes, (size_t)n) != HPE_OK) {
        connection_lose(c);
        return false;
    }
    if (!c->busy || !c->answered)
        return false;
    c->busy = false;
    if (!c->keep_alive)
        connection_lose(c);
    return true;
}

/* -- a phase ----------------------------------------------------------------------------------------------- */

static bool may_send(const struct phase *p, uint64_t now)
{
    return now < p->end_ns && (p->requests_max == 0 || p->sent < p->requests_max);
}

/* Throughput counts the answers that came inside the window, latency the sends made in it, however late their
 * answers: leaving those out would hide just the slowest. */
static void count_answer(struct phase *p, const struct connection *c, uint64_t now)
{
    p->completed++;
    p->last_answer_ns = now;
    if (now >= p->count_from_ns && now <= p->end_ns)
        p->counted++;
    if (c->began_ns >= p->count_from_ns)
        histogram_add(&load.latencies, now - c->began_ns);
}

/* Open loop: send number `turn` of connection i is due at this time. */
static uint64_t due_ns(const struct phase *p, size_t i, uint64_t turn)
{
    double place = (double)turn * p->connections + (double)i;
    return p->begin_ns + (uint64_t)(place / p->rate * (double)NS_PER_S);
}

/* Sends what is due on connection i if it is free. */
static void send_if_due(struct phase *p, size_t i, uint64_t now)
{
    struct connection *c = &load.connections[i];
    if (c->busy || !may_send(p, now))
        return;
    if (p->rate <= 0) {
        connection_send(c, now);
        return;
    }
    uint64_t due = due_ns(p, i, c->turns);
    if (due <= now) {
        c->turns++;
        connection_send(c, due);
    }
}

/* Reads answers once, waiting for the first of them until wake_ns at most, and sends what they make possible. */
static void poll_answers(struct phase *p, uint64_t wake_ns)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t now = now_ns(), wait_ns = wake_ns > now ? wake_ns - now : 0;
    struct timespec wait = {.tv_sec = (time_t)(wait_ns / NS_PER_S), .tv_nsec = (long)(wait_ns % NS_PER_S)};
    int n = epoll_pwait2(load.epoll_fd, events, EVENTS_MAX, &wait, NULL);
    for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        size_t number = (size_t)(c - load.connections);
        if (c->fd >= 0 && c->waiting_to_write && (events[i].events & EPOLLOUT))
            connection_flush(c);
        if (c->fd >= 0 && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
            bool complete = connection_read(c);
            now = now_ns();
            if (complete)
                count_answer(p, c, now);
        }
        if (number < p->connections)
            send_if_due(p, number, now);
    }
}

static uint64_t under_way(const struct phase *p)
{
    return p->sent - p->completed - p->errors;
}

static void run_phase(struct phase *p)
{
    load.phase = p;
    for (size_t i = 0; i < p->connections; i++) {
        load.connections[i].turns = 0;
        if (load.connections[i].fd < 0)
            connection_open(&load.connections[i]);
    }
    /* The clock starts when every connection stands. */
    uint64_t opened = now_ns(), length = p->end_ns - p->begin_ns;
    p->count_from_ns = opened + (p->count_from_ns - p->begin_ns);
    p->begin_ns = opened;
    p->end_ns = opened + length;

    if (p->rate <= 0)
        for (size_t i = 0; i < p->connections; i++)
            send_if_due(p, i, now_ns());
    size_t turn = 0; /* open loop: the connection whose first-time send is due next */
    uint64_t round = 0;
    for (uint64_t now = now_ns(); may_send(p, now); now = now_ns()) {
        uint64_t wake = p->end_ns;
        if (p->rate > 0) {
            uint64_t due;
            while ((due = due_ns(p, turn, round)) <= now) {
                send_if_due(p, turn, now);
                if (++turn == p->connections)
                    turn = 0, round++;
            }
            wake = due < wake ? due : wake;
        }
        poll_answers(p, wake);
    }
    uint64_t settle_by = now_ns() + (uint64_t)(load.settle_s * (double)NS_PER_S);
    while (under_way(p) > 0 && now_ns() < settle_by)
        poll_answers(p, settle_by);
}

/* Sends the set once, so that replays and receipts have something to find. */
static void prime(void)
{
    struct phase p = {.mode = MODE_UNIQUE, .requests_max = load.set_size};
    p.connections =
        load.connection_count < PRIME_CONNECTIONS_MAX ? load.connection_count : PRIME_CONNECTIONS_MAX;
    p.begin_ns = now_ns();
    p.count_from_ns = p.end_ns = p.begin_ns + 60 * NS_PER_S;
    run_phase(&p);
    uint64_t good = 0;
    for (int status = 200; status < 300; status++)
        good += p.statuses[status];
    if (good != load.set_size)
        fail(1, "only %" PRIu64 " of the %" PRIu64 " first calls were answered 2xx", good, load.set_size);
    load.latencies = (struct histogram){0};
}

/* -- the edge ---------------------------------------------------------------------------------------------- */

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void print_results(const struct phase *p)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p10", 0.10}, {"p50", 0.50}, {"p90", 0.90}, {"p99", 0.99}, {"p999", 0.999}};
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    uint64_t end = p->requests_max && p->last_answer_ns < p->end_ns ? p->last_answer_ns : p->end_ns;
    double window = end > p->count_from_ns ? (double)(end - p->count_from_ns) / (double)NS_PER_S : 0;
    bool primed = load.prime && (p->mode == MODE_REPLAY || p->mode == MODE_RECEIPT);
    printf("{\"mode\": \"%s\", \"connections\": %u, \"connects\": %" PRIu64 ", \"seed\": \"%" PRIu64 "\", ",
           mode_names[p->mode], p->connections, p->connects, load.seed);
    printf("\"primed\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"completed\": %" PRIu64 ", \"errors\": %" PRIu64
           ", \"unanswered\": %" PRIu64 ",\n ",
           primed ? load.set_size : 0, p->sent, p->completed, p->errors, under_way(p));
    printf("\"seconds\": %.4f, \"counted\": %" PRIu64 ", \"per_s\": %.1f, ", window, p->counted,
           window > 0 ? (double)p->counted / window : 0);
    if (p->rate > 0)
        printf("\"rate\": %.1f, \"due\": %.0f, ", p->rate,
               p->rate * (double)(p->end_ns - p->begin_ns) / (double)NS_PER_S);
    printf("\"status\": {");
    const char *comma = "";
    for (int status = 0; status < STATUS_MAX; status++)
        if (p->statuses[status]) {
            printf("%s\"%d\": %" PRIu64, comma, status, p->statuses[status]);
            comma = ", ";
        }
    printf("},\n \"latency_us\": {");
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
        printf("\"%s\": %.2f, ", quantiles[i].name,
               (double)histogram_quantile(&load.latencies, quantiles[i].q) / 1000);
    printf("\"max\": %.2f, \"mean\": %.2f}, \"own_cpu_s\": %.3f}\n", (double)load.latencies.max / 1000,
           histogram_mean(&load.latencies) / 1000, seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
}

static void usage(FILE *to)
{
    fputs(
        "usage: bench_load [options] PORT      (always to 127.0.0.1)\n"
        "  --mode unique|replay|receipt|get   default unique: a new random callId and key each time\n"
        "  --connections N                    keep-alive connections (default 1)\n"
        "  --seconds S, --warmup S            how long; warm-up is sent before and not counted (2, 0)\n"
        "  --requests N                       stop after N sends, if that is earlier\n"
        "  --rate N                           open loop: N sends a second over all connections\n"
        "  --path PATH                        of POST and GET (default /orders)\n"
        "  --content-type TYPE                of POST (default application/json; its body is JSON all the "
        "same)\n"
        "  --header LINE                      a further header of POST, NAME: VALUE; may be given again\n"
        "  --set N                            how many calls replay and receipt choose from (default 1000)\n"
        "  --seed N                           makes the callIds; default random\n"
        "  --no-prime                         replay and receipt: the set was sent by another process\n"
        "  --settle S                         how long to wait for answers at the end (default 15)\n",
        to);
}

static double real_or_exit(const char *text, double min, double max)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= min && x <= max))
        fail(64, "'%s' is not a number from %g to %g", text, min, max);
    return x;
}

static uint64_t number_or_exit(const char *text, uint64_t min, uint64_t max)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || n < min || n > max)
        fail(64, "'%s' is not a number from %" PRIu64 " to %" PRIu64, text, min, max);
    return n;
}

static void read_options(int argc, char **argv)
{
    enum {
        MODE = 256,
        CONNECTIONS,
        SECONDS,
        WARMUP,
        REQUESTS,
        RATE,
        PATH,
        CONTENT_TYPE,
        HEADER,
        SET,
        SEED,
        NO_PRIME,
        SETTLE,
        HELP
    };
    static const struct option options[] = {{"mode", required_argument, NULL, MODE},
                                            {"connections", required_argument, NULL, CONNECTIONS},
                                            {"seconds", required_argument, NULL, SECONDS},
                                            {"warmup", required_argument, NULL, WARMUP},
                                            {"requests", required_argument, NULL, REQUESTS},
                                            {"rate", required_argument, NULL, RATE},
                                            {"path", required_argument, NULL, PATH},
                                            {"content-type", required_argument, NULL, CONTENT_TYPE},
                                            {"header", required_argument, NULL, HEADER},
                                            {"set", required_argument, NULL, SET},
                                            {"seed", required_argument, NULL, SEED},
                                            {"no-prime", no_argument, NULL, NO_PRIME},
                                            {"settle", required_argument, NULL, SETTLE},
                                            {"help", no_argument, NULL, HELP},
                                            {NULL, 0, NULL, 0}};
    if (getrandom(&load.seed, sizeof load.seed, 0) != sizeof load.seed)
        fail(71, "no random seed");
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case MODE:
            load.mode = MODE_UNIQUE;
            while (strcmp(mode_names[load.mode], optarg) != 0)
                if (load.mode++ == MODE_GET)
                    fail(64, "unknown mode '%s'", optarg);
            break;
        case CONNECTIONS:
            load.connection_count = (uint32_t)number_or_exit(optarg, 1, CONNECTIONS_MAX);
            break;
        case SECONDS:
            load.seconds = real_or_exit(optarg, 0.01, 3600);
            break;
        case WARMUP:
            load.warmup_s = real_or_exit(optarg, 0, 3600);
            break;
        case REQUESTS:
            load.requests = number_or_exit(optarg, 1, UINT64_MAX);
            break;
        case RATE:
            load.rate = real_or_exit(optarg, 0.1, 1e7);
            break;
        case PATH:
            if (*optarg != '/' || strlen(optarg) > PATH_BYTES_MAX || strpbrk(optarg, " \r\n"))
                fail(64, "'%s' is not a path", optarg);
            load.path = optarg;
            break;
        case CONTENT_TYPE:
            if (!*optarg || strlen(optarg) > CONTENT_TYPE_BYTES_MAX || strpbrk(optarg, "\r\n"))
                fail(64, "'%s' is not a content type", optarg);
            load.content_type = optarg;
            break;
        case HEADER:
            if (!strchr(optarg, ':') || strpbrk(optarg, "\r\n") ||
                strlen(optarg) + 2 >= sizeof load.headers - load.headers_len)
                fail(64, "'%s' is not a header line, or there are too many", optarg);
            load.headers_len += (size_t)snprintf(load.headers + load.headers_len,
                                                 sizeof load.headers - load.headers_len, "%s\r\n", optarg);
            break;
        case SET:
            load.set_size = number_or_exit(optarg, 1, 100000000);
            break;
        case SEED:
            load.seed = number_or_exit(optarg, 0, UINT64_MAX);
            break;
        case NO_PRIME:
            load.prime = false;
            break;
        case SETTLE:
            load.settle_s = real_or_exit(optarg, 0, 3600);
            break;
        default:
            usage(o == HELP ? stdout : stderr);
            exit(o == HELP ? 0 : 64);
        }
    }
    if (optind != argc - 1) {
        usage(stderr);
        exit(64);
    }
    uint16_t port = (uint16_t)number_or_exit(argv[optind], 1, UINT16_MAX);
    load.target.sin_family = AF_INET;
    load.target.sin_port = htons(port);
    load.target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(load.target_text, sizeof load.target_text, "127.0.0.1:%u", port);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    load.choice = load.seed;
    load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    load.connections = calloc(load.connection_count, sizeof load.connections[0]);
    if (load.epoll_fd < 0 || !load.connections)
        fail(71, "not enough memory or descriptors");
    for (size_t i = 0; i < load.connection_count; i++)
        load.connections[i].fd = -1;
    llhttp_settings_init(&load.settings);
    load.settings.on_message_complete = on_message_complete;

    if (load.prime && (load.mode == MODE_REPLAY || load.mode == MODE_RECEIPT))
        prime();
    struct phase p = {.mode = load.mode,
                      .connections = load.connection_count,
                      .requests_max = load.requests,
                      .rate = load.rate};
    p.begin_ns = now_ns();
    p.count_from_ns = p.begin_ns + (uint64_t)(load.warmup_s * (double)NS_PER_S);
    p.end_ns = p.count_from_ns + (uint64_t)(load.seconds * (double)NS_PER_S);
    run_phase(&p);
    print_results(&p);
    for (size_t i = 0; i < load.connection_count; i++)
        if (load.connections[i].fd >= 0)
            close(load.connections[i].fd);
    free(load.connections);
    close(load.epoll_fd);
    return 0;
}
