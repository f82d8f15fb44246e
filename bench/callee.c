/* SPDX-License-Identifier: MIT
 *
 * callee: the fastest service that still counts. It answers 201 to every write and knows exactly how many writes
 * it was given and how many different callIds they had:
 *
 *   (1) executions is the number of complete write requests, counted before they are answered;
 *   (2) distinct is the number of different X-Call-Id among them, exact: ids of 32 hex digits (bench/ids.h) are
 *       kept whole, 16 bytes each, in a table of bounded size;
 *   (3) what could make (2) a guess is said: `odd` counts ids of another shape, `overflow` a full table.
 *
 * One thread, epoll, llhttp. Memory is bounded: the table, and about 1.5 KiB a connection.
 */
#include "base/list.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <llhttp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TABLE_LOG_DEFAULT = 23, /* 8 Mi places of 16 bytes, touched only as they fill */
    TABLE_LOG_MAX = 28,
    EVENTS_MAX = 256,
    READ_BYTES_MAX = 65536,
    OUT_BYTES_MAX = 1024,
    URL_BYTES_MAX = 64,
    FIELD_BYTES_MAX = 16,
    CALL_ID_DIGITS = 32,
    CALL_ID_BYTES_MAX = 128,
    SLOW_MS_MAX = 3600 * 1000,
};

struct id {
    uint64_t high, low;
};

/* Open addressing; the id of all zeros is a place that is free, so it counts as odd. */
struct table {
    struct id *places;
    size_t mask, used;
};

struct connection {
    llhttp_t parser;
    int fd;
    bool waiting_to_write, close_after, slow;
    struct list delayed;
    uint64_t due_ms;
    char url[URL_BYTES_MAX], field[FIELD_BYTES_MAX], call_id[CALL_ID_BYTES_MAX], out[OUT_BYTES_MAX];
    size_t url_len, field_len, call_id_len, out_len, out_sent;
};

static struct {
    int epoll_fd, listen_fd;
    struct table table;
    uint64_t executions, distinct, repeats, without_id, odd, gets;
    bool overflow;
    uint64_t slow_ms;
    struct list delayed; /* all wait equally long, so the list is in order of due_ms */
    llhttp_settings_t settings;
} callee;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool parse_id(struct id *id, const char *text, size_t len)
{
    if (len != CALL_ID_DIGITS)
        return false;
    uint64_t halves[2] = {0, 0};
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        uint64_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint64_t)(c - 'a') + 10;
        else
            return false;
        halves[i / 16] = halves[i / 16] << 4 | digit;
    }
    *id = (struct id){halves[0], halves[1]};
    return id->high || id->low;
}

/* An empty table of this many places, a power of two. */
static void table_make(size_t places)
{
    callee.table = (struct table){calloc(places, sizeof(struct id)), places - 1, 0};
    if (!callee.table.places) {
        fputs("callee: not enough memory for the table\n", stderr);
        exit(71);
    }
}

/* True if the id is new. The ids are random, so their own bits choose the place. */
static bool table_insert(struct table *t, struct id id)
{
    for (size_t i = (size_t)id.low & t->mask;; i = (i + 1) & t->mask) {
        struct id *place = &t->places[i];
        if (place->high == id.high && place->low == id.low)
            return false;
        if (place->high || place->low)
            continue;
        if (t->used > t->mask - t->mask / 4) {
            callee.overflow = true;
            return false;
        }
        *place = id;
        t->used++;
        return true;
    }
}

static void count_execution(const struct connection *c)
{
    struct id id;
    callee.executions++;
    if (c->call_id_len == 0)
        callee.without_id++;
    else if (!parse_id(&id, c->call_id, c->call_id_len))
        callee.odd++;
    else if (table_insert(&callee.table, id))
        callee.distinct++;
    else
        callee.repeats++;
}

static void count_reset(void)
{
    /* Given back and taken anew rather than cleared, so that places nobody used cost no memory. */
    free(callee.table.places);
    table_make(callee.table.mask + 1);
    callee.executions = callee.distinct = callee.repeats = callee.without_id = callee.odd = callee.gets = 0;
    callee.overflow = false;
}

static void answer(struct connection *c, const char *status, const char *body)
{
    size_t room = sizeof c->out - c->out_len;
    int n = snprintf(c->out + c->out_len, room,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
                     status, strlen(body), c->close_after ? "Connection: close\r\n" : "", body);
    if (n < 0 || (size_t)n >= room)
        c->close_after = true; /* a peer that pipelines and does not read is let go */
    else
        c->out_len += (size_t)n;
}

static bool url_is(const struct connection *c, const char *path)
{
    return c->url_len == strlen(path) && memcmp(c->url, path, c->url_len) == 0;
}

static void answer_count(struct connection *c)
{
    char body[384];
    snprintf(body, sizeof body,
             "{\"executions\": %" PRIu64 ", \"distinct\": %" PRIu64 ", \"repeats\": %" PRIu64
             ", \"without_id\": %" PRIu64 ", \"odd\": %" PRIu64 ", \"gets\": %" PRIu64
             ", \"overflow\": %s}\n",
             callee.executions, callee.distinct, callee.repeats, callee.without_id, callee.odd, callee.gets,
             callee.overflow ? "true" : "false");
    answer(c, "200 OK", body);
}

static void answer_write(struct connection *c)
{
    static const char created[] =
        "{\"status\": \"created\", \"order\": {\"state\": \"open\", \"currency\": \"EUR\", "
        "\"amount\": \"12.50\"}, \"message\": \"thank you for your order\"}\n";
    answer(c, "201 Created", created);
}

static int on_message_begin(llhttp_t *parser)
{
    struct connection *c = parser->data;
    c->url_len = c->field_len = c->call_id_len = 0;
    return 0;
}

/* Adds what fits, drops the rest. What is looked for is always shorter than the buffers, so a text that was cut
 * compares equal to none of it. */
static size_t gather(char *into, size_t len, size_t size, const char *at, size_t more)
{
    for (size_t i = 0; i < more; i++, len++)
        if (len < size)
            into[len] = at[i];
    return len <= size ? len : size;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    struct connection *c = parser->data;
    c->url_len = gather(c->url, c->url_len, sizeof c->url, at, len);
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len)
{
    struct connection *c = parser->data;
    c->field_len = gather(c->field, c->field_len, sizeof c->field, at, len);
    return 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t len)
{
    struct connection *c = parser->data;
    static const char name[] = "x-call-id";
    if (c->field_len == sizeof name - 1 && strncasecmp(c->field, name, sizeof name - 1) == 0)
        c->call_id_len = gather(c->call_id, c->call_id_len, sizeof c->call_id, at, len);
    return 0;
}

static int on_header_value_complete(llhttp_t *parser)
{
    struct connection *c = parser->data;
    c->field_len = 0;
    return 0;
}

static int on_message_complete(llhttp_t *parser)
{
    struct connection *c = parser->data;
    static const char slow[] = "/slow";
    static const char listed[] =
        "{\"orders\": [{\"order_no\": \"A-1001\", \"state\": \"open\", \"currency\": \"EUR\", \"amount\": "
        "\"12.50\"}, "
        "{\"order_no\": \"A-1002\", \"state\": \"paid\", \"currency\": \"EUR\", \"amount\": \"99.00\"}]}\n";
    if (c->slow)
        return -1; /* pipelined behind a delayed answer: nobody here does that */
    c->close_after = !llhttp_should_keep_alive(parser);
    uint8_t method = llhttp_get_method(parser);
    bool write = method == HTTP_POST || method == HTTP_PUT || method == HTTP_PATCH || method == HTTP_DELETE;
    if (!write && url_is(c, "/count")) {
        answer_count(c);
    } else if (write && url_is(c, "/reset")) {
        count_reset();
        answer_count(c);
    } else if (!write) {
        callee.gets++;
        answer(c, "200 OK", listed);
    } else {
        count_execution(c);
        if (c->url_len >= sizeof slow - 1 && memcmp(c->url, slow, sizeof slow - 1) == 0) {
            c->slow = true;
            c->due_ms = now_ms() + callee.slow_ms;
            list_push_back(&callee.delayed, &c->delayed);
        } else {
            answer_write(c);
        }
    }
    return 0;
}

static void connection_close(struct connection *c)
{
    list_remove(&c->delayed);
    close(c->fd);
    free(c);
}

/* Writes what is there; false means the connection is gone. */
static bool connection_flush(struct connection *c)
{
    while (c->out_sent < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);
        if (n >= 0) {
            c->out_sent += (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN) {
            connection_close(c);
            return false;
        }
        if (!c->waiting_to_write) {
            struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
            epoll_ctl(callee.epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
            c->waiting_to_write = true;
        }
        return true;
    }
    c->out_len = c->out_sent = 0;
    if (c->close_after && !c->slow) {
        connection_close(c);
        return false;
    }
    if (c->waiting_to_write) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(callee.epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
        c->waiting_to_write = false;
    }
    return true;
}

static void connection_read(struct connection *c)
{
    static char bytes[READ_BYTES_MAX];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || llhttp_execute(&c->parser, bytes, (size_t)n) != HPE_OK) {
        connection_close(c);
        return;
    }
    connection_flush(c);
}

static void accept_all(void)
{
    for (;;) {
        int fd = accept4(callee.listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *c = calloc(1, sizeof *c);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (!c || epoll_ctl(callee.epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0) {
            free(c);
            close(fd);
            continue;
        }
        c->fd = fd;
        list_init(&c->delayed);
        llhttp_init(&c->parser, HTTP_REQUEST, &callee.settings);
        c->parser.data = c;
    }
}

static void answer_delayed(void)
{
    uint64_t now = now_ms();
    while (!list_empty(&callee.delayed)) {
        struct connection *c = LIST_ENTRY(callee.delayed.next, struct connection, delayed);
        if (c->due_ms > now)
            return;
        list_remove(&c->delayed);
        c->slow = false;
        answer_write(c);
        connection_flush(c);
    }
}

static int next_timeout_ms(void)
{
    if (list_empty(&callee.delayed))
        return -1;
    uint64_t due = LIST_ENTRY(callee.delayed.next, struct connection, delayed)->due_ms, now = now_ms();
    return due <= now ? 0 : (int)(due - now);
}

static int listen_on(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        fprintf(stderr, "callee: cannot listen on 127.0.0.1:%u: %s\n", port, strerror(errno));
        exit(69);
    }
    printf("callee: listening on http://127.0.0.1:%u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void usage(FILE *to)
{
    fputs("usage: bench_callee [--port N] [--slow-ms N] [--table-log N]\n"
          "  --port N        0 picks a free one, named in the first line of stdout (default 0)\n"
          "  --slow-ms N     how long a write to /slow… waits for its answer (default 1000)\n"
          "  --table-log N   places for callIds, as a power of two of 16 bytes each (default 23)\n"
          "GET /count says what was counted, POST /reset starts again.\n",
          to);
}

static unsigned long number_or_exit(const char *text, unsigned long max)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || end == text || *end || n > max || *text == '-') {
        fprintf(stderr, "callee: '%s' is not a number from 0 to %lu\n", text, max);
        exit(64);
    }
    return n;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"slow-ms", required_argument, NULL, 's'},
                                            {"table-log", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    uint16_t port = 0;
    unsigned long table_log = TABLE_LOG_DEFAULT;
    callee.slow_ms = 1000;
    for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (o) {
        case 'p':
            port = (uint16_t)number_or_exit(optarg, UINT16_MAX);
            break;
        case 's':
            callee.slow_ms = number_or_exit(optarg, SLOW_MS_MAX);
            break;
        case 't':
            table_log = number_or_exit(optarg, TABLE_LOG_MAX);
            break;
        default:
            usage(o == 'h' ? stdout : stderr);
            return o == 'h' ? 0 : 64;
        }
    }

    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    list_init(&callee.delayed);
    table_make((size_t)1 << table_log);
    callee.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (callee.epoll_fd < 0) {
        fputs("callee: no more descriptors\n", stderr);
        return 71;
    }
    llhttp_settings_init(&callee.settings);
    callee.settings.on_message_begin = on_message_begin;
    callee.settings.on_url = on_url;
    callee.settings.on_header_field = on_header_field;
    callee.settings.on_header_value = on_header_value;
    callee.settings.on_header_value_complete = on_header_value_complete;
    callee.settings.on_message_complete = on_message_complete;
    callee.listen_fd = listen_on(port);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(callee.epoll_fd, EPOLL_CTL_ADD, callee.listen_fd, &e);

    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int n = epoll_wait(callee.epoll_fd, events, EVENTS_MAX, next_timeout_ms());
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c)
                accept_all();
            else if (c->waiting_to_write)
                connection_flush(c);
            else
                connection_read(c);
        }
        answer_delayed();
    }
}
