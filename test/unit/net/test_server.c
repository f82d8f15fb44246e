/* SPDX-License-Identifier: MIT
 *
 * The server over real sockets: a loop on its own thread, blocking callers on this one. What a request does is in
 * its path:
 *   /echo   reads the body and answers with it          /head   answers at once and reads nothing
 *   /later  waits until answer_later()                  /flood  streams 64 MiB as fast as the caller takes it
 *   /pause  reads the body, resting after each piece    /sized  begins with a length and keeps or breaks it
 *   /mute   never reads the body and never answers
 */
#include "harness.h"

#include "net/server.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>

#define FLOOD_BYTES (64 << 20)
#define DRIP_BYTES  3001
#define DRIPS_MAX   120 /* more than a unix socket holds unread */

struct work {
    struct buffer body;
    size_t flooded, heard, left;
    struct net_timer rest;
    struct request *request;
};

static struct {
    struct net_loop *loop;
    struct net_server *server;
    pthread_t thread;
    int port;
    struct request *later[64];
    size_t later_count;
    char order[64];
    atomic_long heads, finished, gone, refused, heard, flooded, dripped, pieces_while_paused, left_open;
    atomic_int last_refused;
} t;

/* Patient: no wait of the server ends a test on a busy machine. Tests of those waits begin with setup_hasty(). */
static const struct server_limits limits = {
    .headers_bytes_max = 4096,
    .headers_count_max = 20,
    .pipeline_bytes_max = 2048,
    .write_buffer_high = 65536,
    .connections_max = 200,
    .header_timeout_ms = 2 * WAIT_S * 1000,
    .body_timeout_ms = 2 * WAIT_S * 1000,
    .write_timeout_ms = 2 * WAIT_S * 1000,
    .idle_timeout_ms = 2 * WAIT_S * 1000,
};

static void flood(struct request *r, struct work *w)
{
    static const char zeros[10000];
    while (w->flooded < FLOOD_BYTES) {
        w->flooded += sizeof zeros;
        atomic_fetch_add(&t.flooded, (long)sizeof zeros);
        if (!request_write(r, slice_of(zeros, sizeof zeros)))
            return;
    }
    request_end(r);
}

/* One piece a turn of the loop. */
static void drip(struct net_timer *timer)
{
    static const char piece[DRIP_BYTES];
    struct work *w = HEAP_ENTRY(timer, struct work, rest);
    struct request *r = w->request;
    w->left--;
    (void)request_write(r, slice_of(piece, sizeof piece));
    if (w->left)
        net_timer_arm(t.loop, &w->rest, net_loop_now(t.loop), drip);
    else
        request_end(r);
    atomic_fetch_add(&t.dripped, 1); /* not in r's memory: it may have ended */
}

static void on_head(void *context, struct request *r)
{
    (void)context;
    const struct request_head *h = request_head(r);
    struct work *w = calloc(1, sizeof *w);
    w->request = r;
    request_set_user(r, w);
    atomic_fetch_add(&t.heads, 1);
    struct slice none = slice_text("");
    if (slice_is(h->path, "/echo") || slice_is(h->path, "/pause")) {
        if (h->has_body)
            request_read_body(r);
        else
            request_answer(r, 200, slice_text("X-Path: echo\r\n"), h->query);
    } else if (slice_is(h->path, "/head")) {
        request_answer(r, 404, slice_text("X-Path: head\r\n"), slice_text("early"));
    } else if (slice_is(h->path, "/later")) {
        t.later[t.later_count++] = r;
        if (h->has_body && !h->expect_continue)
            request_read_body(r);
    } else if (slice_is(h->path, "/flood")) {
        request_begin(r, 200, NULL, none, -1, true);
        flood(r, w);
    } else if (slice_is(h->path, "/drip")) {
        w->left = (size_t)atol(h->query.data); /* a digit or a blank follows */
        request_begin(r, 200, NULL, none, -1, true);
        net_timer_arm(t.loop, &w->rest, net_loop_now(t.loop), drip);
    } else if (slice_is(h->path, "/sized")) {
        request_begin(r, 200, "Fine By Me", slice_text("Date: then\r\n"), 4, false);
        request_write(r, slice_text("ab"));
        if (slice_is(h->query, "whole"))
            request_write(r, slice_text("cd"));
        if (slice_is(h->query, "more"))
            request_write(r, slice_text("cde"));
        request_end(r);
    } else if (slice_is(h->path, "/interim")) {
        request_interim(r, 103, slice_text("Link: </x>\r\n"));
        request_answer(r, 204, none, none);
    } else if (slice_is(h->path, "/abort")) {
        request_begin(r, 200, NULL, none, -1, true);
        request_write(r, slice_text("some"));
        request_abort(r);
    }
}

static void rest_over(struct net_timer *timer)
{
    struct work *w = HEAP_ENTRY(timer, struct work, rest);
    request_resume_body(w->request);
}

static void on_body(void *context, struct request *r, struct slice piece)
{
    (void)context;
    struct work *w = request_user(r);
    atomic_fetch_add(&t.heard, (long)piece.len);
    w->heard += piece.len;
    if (slice_is(request_head(r)->path, "/pause")) {
        if (w->rest.armed)
            atomic_fetch_add(&t.pieces_while_paused, 1);
        request_pause_body(r);
        net_timer_arm(t.loop, &w->rest, net_loop_now(t.loop) + 1, rest_over);
    } else {
        buffer_slice(&w->body, piece);
    }
}

static void on_body_end(void *context, struct request *r)
{
    (void)context;
    struct work *w = request_user(r);
    if (slice_is(request_head(r)->path, "/later"))
        return;
    char line[64];
    snprintf(line, sizeof line, "X-Heard: %zu\r\n", w->heard);
    request_answer(r, 200, slice_text(line), buffer_view(&w->body));
}

static void on_drain(void *context, struct request *r)
{
    (void)context;
    flood(r, request_user(r));
}

static void on_finished(void *context, struct request *r, bool gone)
{
    (void)context;
    struct work *w = request_user(r);
    assert_non_null(w);
    request_set_user(r, NULL); /* a second on_finished would fail here */
    for (size_t i = 0; i < t.later_count; i++)
        if (t.later[i] == r)
            t.later[i] = t.later[--t.later_count];
    net_timer_disarm(t.loop, &w->rest);
    buffer_fini(&w->body);
    free(w);
    atomic_fetch_add(&t.gone, gone);
    atomic_fetch_add(&t.finished, 1);
}

static void on_refused(void *context, int status, const char *reason, struct buffer *out)
{
    (void)context;
    atomic_store(&t.last_refused, status);
    atomic_fetch_add(&t.refused, 1);
    buffer_format(out, "HTTP/1.1 %d Refused\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", status,
                  strlen(reason), reason);
}

static const struct server_handlers handlers = {on_head,  on_body,     on_body_end,
                                                on_drain, on_finished, on_refused};

static void answer_later_here(void *argument)
{
    (void)argument;
    if (t.later_count)
        request_answer(t.later[0], 200, slice_text(""), slice_text("later"));
}

static void answer_later(void)
{
    on_loop(t.loop, answer_later_here, NULL);
}

static void setup_server(const char *address, const struct server_limits *l)
{
    memset(&t, 0, sizeof t);
    struct buffer error = {0};
    assert_int_equal(net_loop_new(&t.loop), STATUS_OK);
    assert_int_equal(net_server_new(&t.server, t.loop, address, false, l, &handlers, NULL, &error),
                     STATUS_OK);
    t.port = net_server_port(t.server);
    pthread_create(&t.thread, NULL, loop_thread, t.loop);
}

static int setup(void **state)
{
    (void)state;
    setup_server("127.0.0.1:0", &limits);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    net_loop_stop(t.loop);
    pthread_join(t.thread, NULL);
    net_server_free(t.server);
    net_loop_free(t.loop);
    return t.heads == t.finished ? 0 : -1; /* (2): on_finished for every on_head */
}

static void setup_hasty(void)
{
    struct server_limits hasty = limits;
    hasty.header_timeout_ms = 250;
    hasty.body_timeout_ms = 250;
    hasty.write_timeout_ms = 400;
    hasty.idle_timeout_ms = 600;
    teardown(NULL);
    setup_server("127.0.0.1:0", &hasty);
}

static char *ask(const char *text, struct buffer *answer)
{
    int fd = dial(t.port);
    say(fd, text);
    shutdown(fd, SHUT_WR);
    hear_all(fd, answer);
    close(fd);
    return (char *)(size_t)buffer_cstring(answer);
}

#define H "Host: a\r\n"

static void test_answers_and_keeps_alive(void **state)
{
    (void)state;
    struct buffer b = {0};
    int fd = dial(t.port);
    for (int i = 0; i < 3; i++) {
        buffer_clear(&b);
        say(fd, "POST /echo HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
        assert_true(hear_until(fd, &b, "hello"));
        assert_non_null(strstr(b.data, "HTTP/1.1 200 OK\r\n"));
        assert_non_null(strstr(b.data, "Content-Length: 5\r\n"));
        assert_non_null(strstr(b.data, "\r\nDate: "));
        assert_non_null(strstr(b.data, " GMT\r\n"));
        assert_null(strstr(b.data, "Connection:"));
    }
    buffer_clear(&b);
    say(fd, "GET /echo?bye HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    assert_true(hear_all(fd, &b));
    assert_non_null(strstr(buffer_cstring(&b), "Connection: close\r\n"));
    assert_true(reaches(&t.finished, 4));
    assert_int_equal(t.gone, 0);
    close(fd);
    buffer_fini(&b);
}

static void test_pipelined_answers_leave_in_order(void **state)
{
    (void)state;
    struct buffer say_all = {0}, b = {0};
    for (int i = 0; i < 500; i++) /* more than pipeline_bytes_max */
        buffer_format(&say_all, "POST /echo HTTP/1.1\r\n" H "Content-Length: 8\r\n\r\n<no %03d>", i);
    buffer_text(&say_all,
                "GET /later HTTP/1.1\r\n" H "\r\nGET /echo?last HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    int fd = dial(t.port);
    say_bytes(fd, say_all.data, say_all.len);
    assert_true(hear_until(fd, &b, "<no 499>"));
    assert_true(reaches(&t.heads, 501));
    assert_null(strstr(b.data, "last"));
    answer_later();
    assert_true(hear_all(fd, &b));
    const char *at = buffer_cstring(&b);
    for (int i = 0; i < 500; i++) {
        char mark[16];
        snprintf(mark, sizeof mark, "<no %03d>", i);
        at = strstr(at, mark);
        assert_non_null(at);
    }
    assert_non_null(at = strstr(at, "later"));
    assert_non_null(strstr(at, "last"));
    close(fd);
    buffer_fini(&b);
    buffer_fini(&say_all);
}

static void test_bytes_one_by_one(void **state)
{
    (void)state;
    struct buffer b = {0};
    int fd = dial(t.port);
    const char *text = "POST /echo HTTP/1.1\r\n" H
                       "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nT: u\r\n\r\n";
    for (const char *p = text; *p; p++)
        say_bytes(fd, p, 1);
    assert_true(hear_until(fd, &b, "hello!"));
    close(fd);
    buffer_fini(&b);
}

static void test_expect_is_answered_when_the_body_is_wanted(void **state)
{
    (void)state;
    struct buffer b = {0};
    int fd = dial(t.port);
    say(fd, "POST /echo HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_true(hear_until(fd, &b, "HTTP/1.1 100 Continue\r\n\r\n"));
    say(fd, "hi");
    assert_true(hear_until(fd, &b, "\r\n\r\nhi"));
    close(fd);
    /* Not wanted: the answer comes without a 100, and the connection ends. */
    buffer_clear(&b);
    fd = dial(t.port);
    say(fd, "POST /head HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_true(hear_all(fd, &b));
    assert_null(strstr(buffer_cstring(&b), "100 Continue"));
    assert_non_null(strstr(b.data, "HTTP/1.1 404 Not Found"));
    assert_non_null(strstr(b.data, "Connection: close"));
    close(fd);
    /* The body came along: no 100 is needed. HTTP/1.0 knows no 100. */
    buffer_clear(&b);
    ask("POST /echo HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", &b);
    assert_null(strstr(b.data, "Continue"));
    buffer_clear(&b);
    ask("POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", &b);
    assert_null(strstr(b.data, "Continue"));
    assert_non_null(strstr(b.data, "\r\n\r\nhi"));
    buffer_fini(&b);
}

static void test_head_and_bodyless_statuses(void **state)
{
    (void)state;
    struct buffer b = {0};
    ask("HEAD /head HTTP/1.1\r\n" H "\r\nHEAD /sized?whole HTTP/1.1\r\n" H "\r\nHEAD /flood HTTP/1.1\r\n" H
        "\r\n",
        &b);
    assert_int_equal(times(b.data, "HTTP/1.1 "), 3);
    assert_non_null(strstr(b.data, "Content-Length: 5\r\n"));
    assert_non_null(strstr(b.data, "HTTP/1.1 200 Fine By Me\r\nDate: then\r\nContent-Length: 4\r\n"));
    assert_non_null(strstr(b.data, "Transfer-Encoding: chunked\r\n"));
    assert_null(strstr(b.data, "early"));
    assert_string_equal(b.data + b.len - 4, "\r\n\r\n");
    buffer_clear(&b);
    ask("GET /interim HTTP/1.1\r\n" H "\r\n", &b);
    assert_non_null(
        strstr(b.data, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 204 No Content\r\n"));
    assert_null(strstr(b.data, "Content-Length"));
    buffer_clear(&b);
    ask("GET /interim HTTP/1.0\r\n\r\n", &b);
    assert_null(strstr(b.data, "103"));
    buffer_fini(&b);
}

static void test_http_1_0(void **state)
{
    (void)state;
    struct buffer b = {0};
    int fd = dial(t.port);
    say(fd, "GET /echo?one HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_true(hear_until(fd, &b, "\r\n\r\none"));
    assert_non_null(strstr(b.data, "Connection: keep-alive\r\n"));
    say(fd, "GET /echo?two HTTP/1.0\r\n\r\n");
    assert_true(hear_all(fd, &b));
    assert_non_null(strstr(buffer_cstring(&b), "two"));
    close(fd);
    buffer_fini(&b);
    struct buffer big = {0};
    fd = dial(t.port);
    say(fd,
        "GET /flood HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"); /* no length: until close, and no chunks */
    assert_true(hear_all(fd, &big));
    char *body = strstr(buffer_cstring(&big), "\r\n\r\n");
    assert_non_null(strstr(big.data, "Connection: close\r\n"));
    assert_null(strstr(big.data, "Transfer-Encoding"));
    assert_true(big.len - (size_t)(body + 4 - big.data) >= FLOOD_BYTES);
    close(fd);
    buffer_fini(&big);
}

static void test_half_close_still_gets_its_answer(void **state)
{
    (void)state;
    struct buffer b = {0};
    int fd = dial(t.port);
    say(fd, "POST /later HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nhi");
    shutdown(fd, SHUT_WR);
    assert_true(reaches(&t.heard, 2));
    answer_later();
    assert_true(hear_all(fd, &b));
    assert_non_null(strstr(buffer_cstring(&b), "later"));
    assert_true(reaches(&t.finished, 1));
    assert_int_equal(t.gone, 0);
    close(fd);
    buffer_fini(&b);
}

static void test_hang_up(void **state)
{
    (void)state;
    /* In the middle of a head: nobody hears of it. */
    int fd = dial(t.port);
    say(fd, "GET /ech");
    close(fd);
    /* In the middle of a body: the request is over. */
    fd = dial(t.port);
    say(fd, "POST /echo HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nhi");
    close(fd);
    assert_true(reaches(&t.gone, 1));
    /* While it waits for its answer: told by a reset. */
    fd = dial(t.port);
    say(fd, "GET /later HTTP/1.1\r\n" H "\r\n");
    assert_true(reaches(&t.heads, 2));
    struct linger reset = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    assert_true(reaches(&t.gone, 2));
    answer_later(); /* finds nobody */
    assert_int_equal(t.finished, 2);
}

static void test_sized_answers_are_whole_or_cut(void **state)
{
    (void)state;
    struct buffer b = {0};
    ask("GET /sized?whole HTTP/1.1\r\n" H "\r\n", &b);
    assert_non_null(strstr(b.data, "\r\n\r\nabcd"));
    buffer_clear(&b);
    ask("GET /sized?less HTTP/1.1\r\n" H "\r\nGET /echo?next HTTP/1.1\r\n" H "\r\n", &b);
    assert_null(strstr(b.data, "next")); /* it would have been read as the end of the first */
    buffer_clear(&b);
    ask("GET /sized?more HTTP/1.1\r\n" H "\r\n", &b);
    assert_null(strstr(b.data, "cde"));
    buffer_clear(&b);
    ask("GET /abort HTTP/1.1\r\n" H "\r\n", &b);
    assert_non_null(strstr(b.data, "4\r\nsome\r\n"));
    assert_null(strstr(b.data, "0\r\n\r\n"));
    assert_true(reaches(&t.gone, 3));
    buffer_fini(&b);
}

static void test_refusals_come_with_an_answer_and_close(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *status;
    } rows[] = {
        {"GET / HTTP/1.1\r\n\r\n", " 400 "},
        {"GET / HTTP/1.1\r\n" H "X: a\rb\r\n\r\n", " 400 "},
        {"GET / HTTP/3.0\r\n" H "\r\n", " 505 "},
        {"POST /echo HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         " 400 "},
        {"POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", " 400 "},
    };
    struct buffer b = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer text = {0};
        buffer_format(&text, "%sGET /echo?smuggled HTTP/1.1\r\n" H "\r\n", rows[i].text);
        buffer_clear(&b);
        ask(buffer_cstring(&text), &b);
        assert_non_null(strstr(b.data, rows[i].status));
        assert_int_equal(times(b.data, "HTTP/1.1 "), 1);
        assert_null(strstr(b.data, "smuggled"));
        buffer_fini(&text);
    }
    assert_int_equal(t.refused, sizeof rows / sizeof *rows);
    /* The last was refused while its body was read. */
    assert_true(reaches(&t.finished, 1));
    assert_int_equal(t.gone, 1);
    buffer_clear(&b);
    int fd = dial(t.port);
    say(fd, "GET / HTTP/1.1\r\n" H "X: ");
    char filler[8192];
    memset(filler, 'x', sizeof filler);
    say_bytes(fd, filler, sizeof filler);
    assert_true(hear_until(fd, &b, " 431 "));
    close(fd);
    buffer_fini(&b);
}

static void test_an_early_answer_survives_what_the_caller_still_sends(void **state)
{
    (void)state;
    struct buffer b = {0};
    int fd = dial(t.port);
    say(fd, "POST /head HTTP/1.1\r\n" H "Content-Length: 600000\r\n\r\n");
    char *filler = calloc(1, 600000);
    say_bytes(fd, filler, 600000);
    assert_true(hear_all(fd, &b)); /* no reset before the end of the stream */
    assert_non_null(strstr(buffer_cstring(&b), "early"));
    assert_true(reaches(&t.finished, 1));
    assert_int_equal(t.gone, 0);
    free(filler);
    close(fd);
    buffer_fini(&b);
}

static void test_waits_are_bounded(void **state)
{
    (void)state;
    struct buffer b = {0};
    setup_hasty();
    int idle = dial(t.port), drip = dial(t.port), body = dial(t.port);
    int64_t start = clock_monotonic_ms();
    say(body, "POST /echo HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nhi");
    const char *head = "GET /echo HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    size_t sent = 0;
    while (head[sent] && !atomic_load(&t.refused)) { /* a byte every now and then does not move the bound */
        say_bytes(drip, head + sent++, 1);
        usleep(20000);
    }
    assert_true(reaches(&t.refused, 2));
    assert_int_equal(t.last_refused, 408);
    assert_true(clock_monotonic_ms() - start >= 240);
    assert_true(hear_until(drip, &b, " 408 "));
    buffer_clear(&b);
    assert_true(hear_until(body, &b, " 408 "));
    buffer_clear(&b);
    assert_true(hear_all(idle, &b));
    assert_int_equal(b.len, 0);
    assert_true(clock_monotonic_ms() - start >= 590);
    assert_true(reaches(&t.gone, 1));
    close(idle);
    close(drip);
    close(body);
    buffer_fini(&b);
}

static void test_a_slow_reader_holds_the_stream_back(void **state)
{
    (void)state;
    int fd = dial(t.port);
    int small = 65536;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    say(fd, "GET /flood HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    long before = -1;
    for (int same = 0; same < 20; usleep(5000)) { /* until it stands still */
        long now = atomic_load(&t.flooded);
        same = now == before && now > 0 ? same + 1 : 0;
        before = now;
    }
    assert_true(before < 16 << 20); /* socket buffers and write_buffer_high, not the whole */
    struct buffer b = {0};
    assert_true(hear_all(fd, &b));
    assert_true(b.len > FLOOD_BYTES);
    assert_string_equal(b.data + b.len - 7, "\r\n0\r\n\r\n");
    assert_true(reaches(&t.finished, 1));
    assert_int_equal(t.gone, 0);
    close(fd);
    buffer_fini(&b);
}

static void test_a_reader_that_stopped_is_let_go(void **state)
{
    (void)state;
    setup_hasty();
    int fd = dial(t.port);
    say(fd, "GET /flood HTTP/1.1\r\n" H "\r\n");
    assert_true(reaches(&t.gone, 1));
    close(fd);
}

static void test_a_paused_body_uses_bounded_memory(void **state)
{
    (void)state;
    int fd = dial(t.port);
    const size_t size = 100u << 20;
    char head[128];
    snprintf(head, sizeof head, "POST /pause HTTP/1.1\r\n" H "Content-Length: %zu\r\n\r\n", size);
    say(fd, head);
    char *filler = calloc(1, 1 << 20);
    size_t peak = 0;
    for (size_t sent = 0; sent < size; sent += 1 << 20) {
        say_bytes(fd, filler, 1 << 20);
        struct mallinfo2 info = mallinfo2();
        peak = info.uordblks > peak ? info.uordblks : peak;
    }
    struct buffer b = {0};
    assert_true(hear_until(fd, &b, "X-Heard: 104857600"));
    assert_int_equal(t.pieces_while_paused, 0);
    assert_true(peak < 8u << 20);
    free(filler);
    close(fd);
    buffer_fini(&b);
}

static void test_unread_bodies_wait_outside(void **state)
{
    (void)state;
    int fd = dial(t.port);
    say(fd, "POST /mute HTTP/1.1\r\n" H "Content-Length: 100000000\r\n\r\n");
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    char filler[65536] = {0};
    size_t sent = 0;
    for (int full = 0; full < 20;) {
        ssize_t n = send(fd, filler, sizeof filler, MSG_NOSIGNAL);
        full = n < 0 ? full + 1 : 0;
        sent += n > 0 ? (size_t)n : 0;
        if (n < 0)
            usleep(2000);
    }
    assert_true(sent < 50u << 20);
    close(fd);
}

static void test_connections_over_the_limit_are_turned_away(void **state)
{
    (void)state;
    struct server_limits few = limits;
    few.connections_max = 2;
    teardown(NULL);
    setup_server("127.0.0.1:0", &few);
    struct buffer b = {0};
    int one = dial(t.port), two = dial(t.port);
    say(one, "GET /echo?1 HTTP/1.1\r\n" H "\r\n");
    say(two, "GET /echo?2 HTTP/1.1\r\n" H "\r\n");
    assert_true(hear_until(one, &b, "\r\n\r\n1"));
    assert_true(hear_until(two, &b, "\r\n\r\n2"));
    int three = dial(t.port);
    buffer_clear(&b);
    hear_all(three, &b);
    assert_int_equal(b.len, 0);
    close(one);
    close(two);
    close(three);
    buffer_fini(&b);
}

static void count_pauses(void *argument)
{
    *(uint64_t *)argument = net_server_accept_pauses(t.server);
}

static void test_out_of_descriptors_is_a_pause(void **state)
{
    (void)state;
    struct buffer b = {0};
    int first = dial(t.port);
    say(first, "GET /echo?first HTTP/1.1\r\n" H "\r\n");
    assert_true(hear_until(first, &b, "\r\n\r\nfirst"));
    struct rlimit before, low;
    getrlimit(RLIMIT_NOFILE, &before);
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* ours; the server will find no other */
    low = before;
    low.rlim_cur = (rlim_t)fd + 1;
    setrlimit(RLIMIT_NOFILE, &low);
    set_bound(fd);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connected = connect(fd, (struct sockaddr *)&to, sizeof to);
    uint64_t pauses = 0;
    for (int i = 0; i < 1000 && pauses == 0; i++) {
        on_loop(t.loop, count_pauses, &pauses);
        usleep(1000);
    }
    buffer_clear(&b); /* those who are in are served meanwhile */
    say(first, "GET /echo?again HTTP/1.1\r\n" H "\r\n");
    bool again = hear_until(first, &b, "\r\n\r\nagain");
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(connected, 0);
    assert_true(pauses > 0);
    assert_true(again);
    buffer_clear(&b); /* and who waited gets in */
    say(fd, "GET /echo?waited HTTP/1.1\r\n" H "\r\n");
    assert_true(hear_until(fd, &b, "\r\n\r\nwaited"));
    close(fd);
    close(first);
    buffer_fini(&b);
}

static void drain_here(void *argument)
{
    (void)argument;
    net_server_drain(t.server);
}

static void count_connections(void *argument)
{
    *(size_t *)argument = net_server_connections(t.server);
}

static void test_drain_lets_running_requests_end(void **state)
{
    (void)state;
    struct buffer b = {0};
    int idle = dial(t.port), busy = dial(t.port);
    say(idle, "GET /echo?x HTTP/1.1\r\n" H "\r\n");
    assert_true(hear_until(idle, &b, "\r\n\r\nx"));
    say(busy, "GET /later HTTP/1.1\r\n" H "\r\n");
    assert_true(reaches(&t.heads, 2));
    on_loop(t.loop, drain_here, NULL);
    buffer_clear(&b);
    assert_true(hear_all(idle, &b));
    size_t open = 0;
    on_loop(t.loop, count_connections, &open);
    assert_int_equal(open, 1);
    answer_later();
    buffer_clear(&b);
    assert_true(hear_all(busy, &b));
    assert_non_null(strstr(buffer_cstring(&b), "Connection: close\r\n"));
    assert_non_null(strstr(b.data, "later"));
    close(idle);
    close(busy);
    buffer_fini(&b);
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",           "8080",      "127.0.0.1", "::1:80", "127.0.0.1:99999",
                                      "127.0.0.1:", "nohost:80", "[::1:80",   "unix:"};
    struct net_loop *loop;
    struct net_server *s = NULL, *other = NULL;
    struct buffer error = {0};
    assert_int_equal(net_loop_new(&loop), STATUS_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buffer_clear(&error);
        assert_int_equal(net_server_new(&s, loop, bad[i], false, &limits, &handlers, NULL, &error),
                         STATUS_INVALID);
        assert_true(error.len > 0);
    }
    assert_null(s);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", t.port);
    assert_int_equal(net_server_new(&s, loop, address, false, &limits, &handlers, NULL, &error),
                     STATUS_CONFLICT);
    /* With reuse_port two loops share one address. */
    assert_int_equal(net_server_new(&s, loop, "[::1]:0", true, &limits, &handlers, NULL, &error), STATUS_OK);
    snprintf(address, sizeof address, "[::1]:%d", net_server_port(s));
    assert_int_equal(net_server_new(&other, loop, address, true, &limits, &handlers, NULL, &error),
                     STATUS_OK);
    net_server_free(s);
    net_server_free(other);
    /* A unix socket whose owner lives is not taken; a stale one is. */
    char dir[] = "/tmp/samekey-net-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "unix:%s/s", dir);
    assert_int_equal(net_server_new(&s, loop, path, false, &limits, &handlers, NULL, &error), STATUS_OK);
    assert_int_equal(net_server_port(s), 0);
    assert_int_equal(net_server_new(&other, loop, path, false, &limits, &handlers, NULL, &error),
                     STATUS_CONFLICT);
    net_server_free(s);
    assert_int_equal(access(path + 5, F_OK), -1);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    memcpy(where.sun_path, path + 5, strlen(path + 5) + 1);
    assert_int_equal(bind(stale, (struct sockaddr *)&where, sizeof where), 0);
    close(stale);
    assert_int_equal(net_server_new(&s, loop, path, false, &limits, &handlers, NULL, &error), STATUS_OK);
    net_server_free(s);
    net_loop_free(loop);
    rmdir(dir);
    buffer_fini(&error);
}

static int dial_unix(const char *path)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    set_bound(fd);
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    memcpy(where.sun_path, path, strlen(path) + 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof where), 0);
    return fd;
}

static void test_unix_socket(void **state)
{
    (void)state;
    teardown(NULL);
    char dir[] = "/tmp/samekey-net-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "unix:%s/s", dir);
    setup_server(path, &limits);
    int fd = dial_unix(path + 5);
    struct buffer b = {0};
    say(fd, "POST /echo HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nlocal");
    assert_true(hear_until(fd, &b, "\r\n\r\nlocal"));
    close(fd);
    buffer_fini(&b);
    on_loop(t.loop, drain_here, NULL);
    rmdir(dir);
}

static void count_turn(void *argument)
{
    (void)argument;
}

/* The kernel takes all but the last piece, and of that a part: for one of these lengths, wherever its limit is. What waits
 * then must not be lost with the connection. */
static void test_the_end_of_an_answer_is_not_lost_in_a_full_socket(void **state)
{
    (void)state;
    static const char *const ways[] = {"HTTP/1.0\r\n\r\n", "HTTP/1.1\r\n" H "Connection: close\r\n\r\n",
                                       "HTTP/1.1\r\n" H "\r\n"};
    teardown(NULL);
    char dir[] = "/tmp/samekey-net-XXXXXX", path[64], text[200];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "unix:%s/s", dir);
    setup_server(path, &limits);
    struct buffer b = {0};
    long dripped = 0;
    for (size_t way = 0; way < 3; way++) {
        for (long n = 1; n <= DRIPS_MAX; n++) {
            int fd = dial_unix(path + 5);
            snprintf(text, sizeof text, "GET /drip?%ld %s", n, ways[way]);
            say(fd, text);
            assert_true(reaches(&t.dripped, dripped += n));
            on_loop(t.loop, count_turn, NULL); /* what was to leave has tried to */
            on_loop(t.loop, count_turn, NULL);
            if (way == 2)
                shutdown(fd, SHUT_WR); /* nothing more will come, but this answer is still wanted */
            buffer_clear(&b);
            hear_all(fd, &b);
            size_t body = 0;
            for (size_t i = 0; i < b.len; i++)
                body += b.data[i] == 0;
            assert_int_equal(body, (size_t)n * DRIP_BYTES);
            if (way > 0)
                assert_memory_equal(b.data + b.len - 5, "0\r\n\r\n", 5);
            close(fd);
        }
    }
    buffer_fini(&b);
    on_loop(t.loop, drain_here, NULL);
    rmdir(dir);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_answers_and_keeps_alive),
        TEST(test_pipelined_answers_leave_in_order),
        TEST(test_bytes_one_by_one),
        TEST(test_expect_is_answered_when_the_body_is_wanted),
        TEST(test_head_and_bodyless_statuses),
        TEST(test_http_1_0),
        TEST(test_half_close_still_gets_its_answer),
        TEST(test_hang_up),
        TEST(test_sized_answers_are_whole_or_cut),
        TEST(test_refusals_come_with_an_answer_and_close),
        TEST(test_an_early_answer_survives_what_the_caller_still_sends),
        TEST(test_waits_are_bounded),
        TEST(test_a_slow_reader_holds_the_stream_back),
        TEST(test_a_reader_that_stopped_is_let_go),
        TEST(test_a_paused_body_uses_bounded_memory),
        TEST(test_unread_bodies_wait_outside),
        TEST(test_connections_over_the_limit_are_turned_away),
        TEST(test_out_of_descriptors_is_a_pause),
        TEST(test_drain_lets_running_requests_end),
        TEST(test_addresses),
        TEST(test_unix_socket),
        TEST(test_the_end_of_an_answer_is_not_lost_in_a_full_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
