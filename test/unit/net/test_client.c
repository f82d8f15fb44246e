/* SPDX-License-Identifier: MIT
 *
 * Upstream connections against a server thread that follows a script, one function for a connection. Each row asks:
 * how did it end, what left, what came back?
 */
#include "harness.h"

#include "net/client.h"

#include <malloc.h>
#include <signal.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

struct peer {
    int fd;
    SSL *ssl;
    int nth; /* connection of this server, from 0 */
    struct buffer heard;
};

static struct {
    int fd, port;
    pthread_t thread;
    void (*script)(struct peer *peer);
    SSL_CTX *tls;
    atomic_bool stop;
    atomic_long connections, scripts_done;
    atomic_long go; /* a script waits for it */
} up;

static void peer_say(struct peer *p, const char *text)
{
    if (p->ssl)
        SSL_write(p->ssl, text, (int)strlen(text));
    else
        say(p->fd, text);
}

static bool peer_hear_some(struct peer *p)
{
    char part[65536];
    ssize_t n = p->ssl ? SSL_read(p->ssl, part, sizeof part) : recv(p->fd, part, sizeof part, 0);
    if (n > 0)
        buffer_append(&p->heard, part, (size_t)n);
    return n > 0;
}

static bool peer_hear(struct peer *p, const char *text)
{
    while (!strstr(buffer_cstring(&p->heard), text))
        if (!peer_hear_some(p))
            return false;
    return true;
}

static void peer_reset(struct peer *p)
{
    struct linger reset = {.l_onoff = 1};
    setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

static void *serve(void *unused)
{
    (void)unused;
    for (int nth = 0;; nth++) {
        struct peer p = {.fd = accept(up.fd, NULL, NULL), .nth = nth};
        if (atomic_load(&up.stop) || p.fd < 0) {
            close(p.fd);
            return NULL;
        }
        atomic_fetch_add(&up.connections, 1);
        set_bound(p.fd);
        bool ready = true;
        if (up.tls) {
            p.ssl = SSL_new(up.tls);
            SSL_set_fd(p.ssl, p.fd);
            ready = SSL_accept(p.ssl) == 1;
        }
        if (ready)
            up.script(&p);
        SSL_free(p.ssl);
        ERR_clear_error();
        close(p.fd);
        buffer_fini(&p.heard);
        atomic_fetch_add(&up.scripts_done, 1);
    }
}

static void start_upstream(void (*script)(struct peer *peer), SSL_CTX *tls, const char *unix_path)
{
    memset(&up, 0, sizeof up);
    up.script = script;
    up.tls = tls;
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    up.fd = socket(unix_path ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    if (unix_path) {
        memcpy(where.sun_path, unix_path, strlen(unix_path) + 1);
        assert_int_equal(bind(up.fd, (struct sockaddr *)&where, sizeof where), 0);
    } else {
        assert_int_equal(bind(up.fd, (struct sockaddr *)&at, sizeof at), 0);
        socklen_t len = sizeof at;
        getsockname(up.fd, (struct sockaddr *)&at, &len);
        up.port = ntohs(at.sin_port);
    }
    listen(up.fd, 16);
    pthread_create(&up.thread, NULL, serve, NULL);
}

static struct net_loop *loop;
static struct client *client;

static void stop_upstream(void)
{
    client_close_idle(client); /* a script may wait for the end of a kept connection */
    atomic_store(&up.stop, true);
    shutdown(up.fd, SHUT_RDWR); /* wakes accept() */
    pthread_join(up.thread, NULL);
    close(up.fd);
}

/* ---- the calling side ---- */

struct call {
    struct net_evidence evidence;
    int ends, heads, status;
    struct buffer body;
    size_t body_bytes;
    bool content_length_seen;
    int64_t content_length;
    struct net_loop *loop;
    struct exchange *exchange;
    bool abort_at_head, pausing;
    int rest_ms;
    size_t pieces_while_paused, peak;
    struct net_timer rest;
    size_t to_send, piece_bytes; /* a streamed body */
};

static void on_head(void *context, struct exchange *x, const struct response_head *head)
{
    struct call *call = context;
    call->heads++;
    call->status = head->status;
    call->content_length = head->content_length;
    if (call->abort_at_head)
        exchange_abort(x);
}

static void rest_over(struct net_timer *timer)
{
    struct call *call = HEAP_ENTRY(timer, struct call, rest);
    exchange_resume(call->exchange);
}

static void on_piece(void *context, struct exchange *x, struct slice piece)
{
    struct call *call = context;
    call->body_bytes += piece.len;
    if (!call->pausing) {
        buffer_slice(&call->body, piece);
        return;
    }
    call->pieces_while_paused += call->rest.armed;
    struct mallinfo2 info = mallinfo2();
    call->peak = info.uordblks > call->peak ? info.uordblks : call->peak;
    exchange_pause(x);
    net_timer_arm(call->loop, &call->rest, net_loop_now(call->loop) + call->rest_ms, rest_over);
}

static void send_more(struct call *call)
{
    static const char letters[100000] = {[0 ... 99999] = 'z'};
    while (call->to_send) {
        size_t n = call->to_send < call->piece_bytes ? call->to_send : call->piece_bytes;
        call->to_send -= n;
        if (!exchange_write(call->exchange, slice_of(letters, n)) && call->to_send)
            return;
    }
    exchange_write_end(call->exchange);
}

static void on_drain(void *context, struct exchange *x)
{
    (void)x;
    send_more(context);
}

static void on_end(void *context, struct exchange *x, const struct net_evidence *evidence)
{
    struct call *call = context;
    call->ends++;
    call->evidence = *evidence;
    assert_ptr_equal(evidence, exchange_evidence(x));
    net_timer_disarm(call->loop, &call->rest);
    net_loop_stop(call->loop);
}

static const struct exchange_handlers handlers = {on_head, on_piece, on_drain, on_end};

static struct client_settings settings = {
    .connect_timeout_ms = WAIT_S * 1000,
    .idle_timeout_ms = WAIT_S * 1000,
    .idle_max = 4,
    .headers_bytes_max = 4096,
    .name_life_ms = 1000,
    .tls_verify = true,
};

static struct origin origin_at(const char *scheme, const char *host, int port)
{
    struct origin o;
    struct buffer text = {0}, error = {0};
    buffer_format(&text, "%s://%s:%d", scheme, host, port);
    assert_int_equal(origin_parse(buffer_view(&text), &o, &error), STATUS_OK);
    buffer_fini(&text);
    return o;
}

static struct exchange_request request_of(const struct origin *o, const char *head, const char *body)
{
    return (struct exchange_request){.origin = o,
                                     .head = slice_text(head),
                                     .body = slice_text(body),
                                     .continue_ms = WAIT_S * 1000,
                                     .deadline_ms = clock_monotonic_ms() + 2 * WAIT_S * 1000};
}

/* One exchange from its start to its end. */
static void run(struct call *call, const struct exchange_request *request)
{
    call->loop = loop;
    assert_int_equal(exchange_start(&call->exchange, client, request, &handlers, call), STATUS_OK);
    assert_int_equal(call->ends, 0); /* (1): never inside exchange_start() */
    if (request->stream_body)
        send_more(call);
    assert_int_equal(call->ends, 0);
    net_loop_run(loop);
    assert_int_equal(call->ends, 1);
    if (getenv("TEST_NET_SHOW"))
        print_message("end %d sent %lu (%s)\n", call->evidence.end, (unsigned long)call->evidence.bytes_sent,
                      call->evidence.detail);
}

static void fini(struct call *call)
{
    buffer_fini(&call->body);
    memset(call, 0, sizeof *call);
}

static int setup(void **state)
{
    (void)state;
    return net_loop_new(&loop) != STATUS_OK || client_new(&client, loop, &settings) != STATUS_OK;
}

static int teardown(void **state)
{
    (void)state;
    client_free(client);
    net_loop_free(loop);
    return 0;
}

static void use_client(const struct client_settings *s)
{
    client_free(client);
    assert_int_equal(client_new(&client, loop, s), STATUS_OK);
}

#define POST   "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
#define EXPECT "POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
#define GET    "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"

/* ---- scripts: what the server does after it heard a request ---- */

static const char *answer;

static void script_answer(struct peer *p)
{
    if (peer_hear(p, "hello") && answer)
        peer_say(p, answer);
}

static void script_answer_and_reset(struct peer *p)
{
    if (peer_hear(p, "hello") && answer)
        peer_say(p, answer);
    usleep(20000); /* so that what was said is not lost with the reset */
    peer_reset(p);
}

static void script_silence(struct peer *p)
{
    while (peer_hear_some(p))
        ;
}

static void script_keep(struct peer *p)
{
    for (int i = 0; peer_hear(p, "\r\n\r\nhello"); i++) {
        buffer_clear(&p->heard);
        peer_say(p, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
}

struct row {
    const char *name, *answer;
    void (*script)(struct peer *peer);
    enum net_end end;
    int status;
    const char *body;
    bool head_complete, until_close;
};

static const struct row rows[] = {
    {"sized", "HTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nok", script_answer, NET_END_COMPLETE, 201, "ok",
     true, false},
    {"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", script_answer,
     NET_END_COMPLETE, 200, "ok", true, false},
    {"until close", "HTTP/1.0 200 OK\r\n\r\nok", script_answer, NET_END_COMPLETE, 200, "ok", true, true},
    {"until reset", "HTTP/1.0 200 OK\r\n\r\nok", script_answer_and_reset, NET_END_RESET, 200, "ok", true,
     false},
    {"no content", "HTTP/1.1 204 No\r\n\r\n", script_answer, NET_END_COMPLETE, 204, "", true, false},
    {"interim",
     "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
     "0\r\n\r\n",
     script_answer, NET_END_COMPLETE, 200, "", true, false},
    {"interim, then nothing", "HTTP/1.1 103 Early\r\n\r\n", script_answer, NET_END_EOF, 0, "", false, false},
    {"end of stream", NULL, script_answer, NET_END_EOF, 0, "", false, false},
    {"reset", NULL, script_answer_and_reset, NET_END_RESET, 0, "", false, false},
    {"cut head", "HTTP/1.1 200 OK\r\nContent-Le", script_answer, NET_END_EOF, 0, "", false, false},
    {"cut before the empty line", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", script_answer, NET_END_EOF, 0,
     "", false, false},
    {"reset in the head", "HTTP/1.1 200 OK\r\nContent-Le", script_answer_and_reset, NET_END_RESET, 0, "",
     false, false},
    {"cut body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", script_answer, NET_END_EOF, 200, "ok",
     true, false},
    {"cut chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", script_answer, NET_END_EOF,
     200, "ok", true, false},
    {"cut before the last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
     script_answer, NET_END_EOF, 200, "ok", true, false},
    {"reset in the body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", script_answer_and_reset,
     NET_END_RESET, 200, "ok", true, false},
    {"not HTTP", "SSH-2.0-x\r\n", script_answer, NET_END_MALFORMED, 0, "", false, false},
    {"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", script_answer,
     NET_END_MALFORMED, 0, "", false, false},
    {"length and chunked", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
     script_answer, NET_END_MALFORMED, 0, "", false, false},
    {"bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", script_answer,
     NET_END_MALFORMED, 200, "", true, false},
    {"switching", "HTTP/1.1 101 Sw\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", script_answer,
     NET_END_MALFORMED, 0, "", false, false},
};

static void test_how_answers_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        answer = row->answer;
        start_upstream(row->script, NULL, NULL);
        struct origin o = origin_at("http", "127.0.0.1", up.port);
        struct exchange_request r = request_of(&o, POST, "hello");
        struct call call = {0};
        run(&call, &r);
        const struct net_evidence *e = &call.evidence;
        if (e->end != row->end || e->status != row->status || call.heads != (row->status ? 1 : 0) ||
            strcmp(buffer_cstring(&call.body), row->body) != 0 || e->head_complete != row->head_complete ||
            e->body_until_close != row->until_close)
            fail_msg("%s: end %d status %d body '%s' detail '%s'", row->name, e->end, e->status,
                     buffer_cstring(&call.body), e->detail);
        assert_true(e->connected && !e->reused && e->request_complete && !e->got_continue);
        assert_int_equal(e->bytes_sent, sizeof POST - 1 + 5);
        assert_int_equal(e->body_sent, 5);
        assert_int_equal(e->reply_bytes, row->answer ? strlen(row->answer) : 0);
        assert_true(e->ended_ms > 0 && e->detail[0]);
        fini(&call);
        stop_upstream();
    }
}

static void test_nothing_left(void **state)
{
    (void)state;
    /* A closed port. */
    start_upstream(script_silence, NULL, NULL);
    stop_upstream();
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_REFUSED);
    assert_int_equal(call.evidence.sys_error, UV_ECONNREFUSED);
    assert_int_equal(call.evidence.bytes_sent, 0);
    assert_false(call.evidence.connected);
    fini(&call);
    /* No such socket. */
    struct buffer error = {0};
    assert_int_equal(origin_parse(slice_text("unix:/nowhere/at/all"), &o, &error), STATUS_OK);
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_REFUSED);
    fini(&call);
    struct client_settings hasty = settings;
    hasty.connect_timeout_ms = 500;
    use_client(&hasty);
    /* No such name: an error or no answer within the time, both before anything left. */
    o = origin_at("http", "no-such-name.invalid", 80);
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_NAME);
    assert_int_equal(call.evidence.bytes_sent, 0);
    fini(&call);
    /* A listener whose queue is full does not answer. */
    int fd = socket(AF_INET, SOCK_STREAM, 0), fillers[8];
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    socklen_t len = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &len);
    listen(fd, 0);
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fillers[i], (struct sockaddr *)&at, sizeof at);
    }
    o = origin_at("http", "127.0.0.1", ntohs(at.sin_port));
    int64_t start = clock_monotonic_ms();
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_CONNECT_TIMEOUT);
    assert_int_equal(call.evidence.bytes_sent, 0);
    assert_in_range(clock_monotonic_ms() - start, 490, settings.connect_timeout_ms);
    fini(&call);
    for (int i = 0; i < 8; i++)
        close(fillers[i]);
    close(fd);
}

static void test_silence_is_a_timeout(void **state)
{
    (void)state;
    start_upstream(script_silence, NULL, NULL);
    struct origin o = origin_at("http", "localhost", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    r.deadline_ms = clock_monotonic_ms() + 1500; /* enough for the name, the connection and the request */
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_TIMEOUT);
    assert_true(call.evidence.request_complete);
    assert_true(call.evidence.ended_ms >= r.deadline_ms);
    fini(&call);
    r.deadline_ms = INT64_MAX; /* without a deadline, the lack of progress ends it */
    r.idle_timeout_ms = 1000;
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_TIMEOUT);
    fini(&call);
    stop_upstream();
}

static void script_too_large(struct peer *p)
{
    peer_hear(p, "hello");
    peer_say(p, "HTTP/1.1 200 OK\r\nX: ");
    for (int i = 0; i < 5000; i++)
        peer_say(p, "x");
    peer_hear_some(p);
}

static void test_a_head_over_its_bound(void **state)
{
    (void)state;
    start_upstream(script_too_large, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_TOO_LARGE);
    fini(&call);
    stop_upstream();
}

/* ---- 100-continue ---- */

static void script_refuse_before_100(struct peer *p)
{
    peer_hear(p, "\r\n\r\n");
    peer_say(p, answer);
    while (peer_hear_some(p))
        ;
}

static void script_reset_before_100(struct peer *p)
{
    peer_hear(p, "\r\n\r\n");
    peer_reset(p);
}

static void script_continue(struct peer *p)
{
    peer_hear(p, "\r\n\r\n");
    assert_null(strstr(buffer_cstring(&p->heard), "hello"));
    peer_say(p, "HTTP/1.1 100 Continue\r\n\r\n");
    peer_hear(p, "hello");
    peer_say(p, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    peer_hear_some(p);
}

static void test_before_a_100_no_byte_of_the_body_leaves(void **state)
{
    (void)state;
    struct call call = {0};
    answer = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
    start_upstream(script_refuse_before_100, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, EXPECT, "hello");
    r.wait_continue = true;
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_int_equal(call.status, 503);
    assert_int_equal(call.evidence.bytes_sent, sizeof EXPECT - 1);
    assert_int_equal(call.evidence.body_sent, 0);
    assert_false(call.evidence.request_complete);
    fini(&call);
    run(&call, &r); /* not on the same connection: its body is owed there */
    assert_false(call.evidence.reused);
    fini(&call);
    stop_upstream();

    start_upstream(script_reset_before_100, NULL, NULL);
    o = origin_at("http", "127.0.0.1", up.port);
    run(&call, &r);
    assert_true(call.evidence.end == NET_END_RESET || call.evidence.end == NET_END_EOF);
    assert_int_equal(call.evidence.body_sent, 0);
    assert_false(call.evidence.got_continue);
    fini(&call);
    stop_upstream();

    start_upstream(script_continue, NULL, NULL);
    o = origin_at("http", "127.0.0.1", up.port);
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_true(call.evidence.got_continue && call.evidence.request_complete);
    assert_int_equal(call.evidence.body_sent, 5);
    fini(&call);
    stop_upstream();

    answer =
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"; /* one that never says 100 gets the body after a while */
    start_upstream(script_answer, NULL, NULL);
    o = origin_at("http", "127.0.0.1", up.port);
    r.continue_ms = 50;
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_false(call.evidence.got_continue);
    assert_true(call.evidence.request_complete);
    fini(&call);
    stop_upstream();
}

/* ---- kept connections ---- */

static void test_a_kept_connection_is_used_again(void **state)
{
    (void)state;
    start_upstream(script_keep, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    for (int i = 0; i < 5; i++) {
        run(&call, &r);
        assert_int_equal(call.evidence.end, NET_END_COMPLETE);
        assert_int_equal(call.evidence.reused, i > 0);
        assert_int_equal(call.evidence.bytes_sent, sizeof POST - 1 + 5);
        fini(&call);
    }
    assert_int_equal(up.connections, 1);
    client_close_idle(client); /* the script serves one connection at a time */
    r.fresh_connection = true;
    run(&call, &r);
    assert_false(call.evidence.reused);
    assert_int_equal(up.connections, 2);
    fini(&call);
    client_close_idle(client);
    net_loop_run(loop);
    stop_upstream();
}

static void script_once(struct peer *p)
{
    peer_hear(p, "hello");
    peer_say(p, answer);
    if (p->nth == 0)
        return; /* and closes */
    peer_hear_some(p);
}

static void test_a_connection_in_doubt_is_not_used_again(void **state)
{
    (void)state;
    static const char *const first[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", /* closed behind the answer */
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 408 Late\r\n\r\n", /* more than was asked for */
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        answer = first[i];
        start_upstream(script_once, NULL, NULL);
        struct origin o = origin_at("http", "127.0.0.1", up.port);
        struct exchange_request r = request_of(&o, POST, "hello");
        struct call call = {0};
        run(&call, &r);
        assert_int_equal(call.evidence.end, NET_END_COMPLETE);
        assert_string_equal(buffer_cstring(&call.body), "ok");
        fini(&call);
        assert_true(
            reaches(&up.scripts_done, 1)); /* the end of stream is on its way, the loop has not seen it */
        run(&call, &r);
        assert_int_equal(call.evidence.end, NET_END_COMPLETE);
        assert_false(call.evidence.reused);
        fini(&call);
        client_close_idle(client);
        stop_upstream();
    }
}

static void script_late_bytes(struct peer *p)
{
    peer_hear(p, "hello");
    peer_say(p, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    while (p->nth == 0 && !atomic_load(&up.go))
        usleep(500);
    if (p->nth == 0)
        peer_say(p, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
    atomic_fetch_add(&up.go, 1);
    peer_hear_some(p);
}

static void test_bytes_nobody_asked_for_end_a_kept_connection(void **state)
{
    (void)state;
    start_upstream(script_late_bytes, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.status, 200);
    fini(&call);
    atomic_store(&up.go, 1);
    assert_true(reaches(&up.go, 2));
    run(&call, &r); /* the 408 is not taken for its answer */
    assert_int_equal(call.status, 200);
    assert_false(call.evidence.reused);
    fini(&call);
    client_close_idle(client);
    stop_upstream();
}

static void script_close_when_told(struct peer *p)
{
    peer_hear(p, "hello");
    peer_say(p, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    while (!atomic_load(&up.go))
        usleep(500);
}

static void test_the_close_of_an_idle_connection_is_noticed(void **state)
{
    (void)state;
    start_upstream(script_close_when_told, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    run(&call, &r);
    fini(&call);
    atomic_store(&up.go, 1);
    int64_t start = clock_monotonic_ms();
    net_loop_run(loop); /* returns when the kept connection is gone, long before idle_timeout_ms */
    assert_true(clock_monotonic_ms() - start < settings.idle_timeout_ms);
    stop_upstream();
}

static void test_what_a_peer_says_of_its_patience_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } table[] = {
        {"timeout=5", 5000},
        {"max=100, Timeout = 15 ,x", 15000},
        {"timeout=7, timeout=3", 3000},
        {"timeout=0", INT64_MAX},
        {"timeout=-1", INT64_MAX},
        {"timeout=", INT64_MAX},
        {"timeout=5s", INT64_MAX},
        {"timeout=99999999999999999999", INT64_MAX},
        {"timeouts=5, 5, timeout", INT64_MAX},
        {"", INT64_MAX},
        {",,", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct header list[] = {{slice_text("Date"), slice_text("timeout=1")},
                                {slice_text("keep-alive"), slice_text(table[i].text)}};
        struct headers h = {list, 2};
        if (headers_keep_alive_ms(&h) != table[i].ms)
            fail_msg("%s: %lld", table[i].text, (long long)headers_keep_alive_ms(&h));
    }
}

static void script_once_and_wait(struct peer *p)
{
    peer_hear(p, "hello");
    peer_say(p, answer);
    peer_hear_some(p); /* until the other side closes */
}

static void test_a_connection_is_given_up_before_its_peer_closes_it(void **state)
{
    (void)state;
    answer = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=9\r\nContent-Length: 2\r\n\r\nok";
    start_upstream(script_once_and_wait, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    fini(&call);
    int64_t start = clock_monotonic_ms();
    net_loop_run(loop); /* returns when the kept connection is gone: half of its second, not our ten */
    assert_in_range(clock_monotonic_ms() - start, 450, settings.idle_timeout_ms - 1);
    assert_true(reaches(&up.scripts_done, 1));
    stop_upstream();
}

/* ---- bodies ---- */

static void script_count(struct peer *p)
{
    peer_hear(p, "\r\n\r\n");
    size_t heard = p->heard.len - (size_t)(strstr(p->heard.data, "\r\n\r\n") + 4 - p->heard.data);
    bool chunked = strstr(p->heard.data, "chunked") != NULL;
    size_t wanted = strtoul(strstr(p->heard.data, "X-Bytes: ") + 9, NULL, 10), z = 0,
           from = p->heard.len - heard;
    for (size_t i = from; i < p->heard.len; i++)
        z += p->heard.data[i] == 'z';
    bool end = false;
    while (chunked ? !end : z < wanted) {
        buffer_clear(&p->heard);
        if (!peer_hear_some(p))
            return;
        for (size_t i = 0; i < p->heard.len; i++)
            z += p->heard.data[i] == 'z';
        end = p->heard.len >= 5 && memcmp(p->heard.data + p->heard.len - 5, "0\r\n\r\n", 5) == 0;
    }
    char text[128];
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nX-Z: %zu\r\nContent-Length: 4\r\n\r\n%s", z,
             z == wanted ? "good" : "bad!");
    peer_say(p, text);
    peer_hear_some(p);
}

static void send_bodies(struct origin *o)
{
    struct call call = {0};
    char head[256];
    static char big[3000000];
    memset(big, 'z', sizeof big);
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nX-Bytes: %zu\r\nContent-Length: %zu\r\n\r\n",
             sizeof big, sizeof big);
    struct exchange_request r = request_of(o, head, "");
    r.body = slice_of(big, sizeof big);
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_string_equal(buffer_cstring(&call.body), "good");
    assert_int_equal(call.evidence.body_sent, sizeof big);
    assert_true(call.evidence.request_complete);
    fini(&call);
    client_close_idle(client);
    r.body = slice_text("");
    r.stream_body = true;
    call.to_send = sizeof big;
    call.piece_bytes = 90000;
    run(&call, &r);
    assert_string_equal(buffer_cstring(&call.body), "good");
    assert_int_equal(call.evidence.body_total, sizeof big);
    assert_true(call.evidence.request_complete);
    fini(&call);
    client_close_idle(client);
    snprintf(head, sizeof head,
             "POST / HTTP/1.1\r\nHost: h\r\nX-Bytes: %zu\r\nTransfer-Encoding: chunked\r\n\r\n", sizeof big);
    r.head = slice_text(head);
    r.chunked = true;
    call.to_send = sizeof big;
    call.piece_bytes = 777;
    run(&call, &r);
    assert_string_equal(buffer_cstring(&call.body), "good");
    assert_true(call.evidence.request_complete);
    fini(&call);
    client_close_idle(client);
}

static void test_bodies_of_every_kind(void **state)
{
    (void)state;
    start_upstream(script_count, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    send_bodies(&o);
    stop_upstream();
}

static void script_early(struct peer *p)
{
    peer_hear(p, "\r\n\r\n");
    peer_say(p, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
} /* closes with much unread: a reset follows the answer */

static void test_an_early_answer_is_read(void **state)
{
    (void)state;
    start_upstream(script_early, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    const size_t size = 30u << 20;
    char head[128], *body = calloc(1, size);
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", size);
    struct exchange_request r = request_of(&o, head, "");
    r.body = slice_of(body, size);
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_int_equal(call.status, 413);
    assert_string_equal(buffer_cstring(&call.body), "big");
    assert_false(call.evidence.request_complete);
    assert_true(call.evidence.body_sent < size);
    assert_int_equal(call.evidence.body_total, size);
    fini(&call);
    free(body);
    stop_upstream();
}

static void script_stalls(struct peer *p)
{
    peer_hear(p, "\r\n\r\n");
    while (!atomic_load(&up.go))
        usleep(1000);
    peer_reset(p);
}

static void test_a_server_that_stops_reading(void **state)
{
    (void)state;
    start_upstream(script_stalls, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    const size_t size = 30u << 20;
    char head[128], *body = calloc(1, size);
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", size);
    struct exchange_request r = request_of(&o, head, "");
    r.body = slice_of(body, size);
    r.deadline_ms = clock_monotonic_ms() + 1500;
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_TIMEOUT);
    assert_false(call.evidence.request_complete);
    assert_in_range(call.evidence.body_sent, 1, size - 1);
    assert_int_equal(call.evidence.bytes_sent, strlen(head) + call.evidence.body_sent);
    fini(&call);
    atomic_store(&up.go, 1);
    free(body);
    stop_upstream();
}

#define LARGE (100u << 20)

static void script_large(struct peer *p)
{
    peer_hear(p, "\r\n\r\n");
    char text[128];
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", LARGE);
    peer_say(p, text);
    static char filler[1 << 20];
    for (size_t i = 0; i < LARGE; i += sizeof filler) {
        if (p->ssl)
            SSL_write(p->ssl, filler, sizeof filler);
        else
            say_bytes(p->fd, filler, sizeof filler);
    }
    peer_hear_some(p);
}

static void test_a_paused_answer_uses_bounded_memory(void **state)
{
    (void)state;
    start_upstream(script_large, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, GET, "");
    r.deadline_ms = INT64_MAX;
    struct call call = {.pausing = true, .rest_ms = 1};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_int_equal(call.body_bytes, LARGE);
    assert_int_equal(call.pieces_while_paused, 0);
    assert_true(call.peak < 8u << 20);
    fini(&call);
    client_close_idle(client);
    stop_upstream();
}

static void script_many_chunks_then_close(struct peer *p)
{
    peer_hear(p, "hello");
    struct buffer all = {0};
    buffer_text(&all, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; i++)
        buffer_text(&all, "2\r\nok\r\n");
    peer_say(p, buffer_cstring(&all)); /* and no last chunk */
    buffer_fini(&all);
}

static void test_what_came_is_told_before_the_end(void **state)
{
    (void)state;
    start_upstream(script_many_chunks_then_close, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {.pausing = true, .rest_ms = 1};
    run(&call, &r);
    assert_int_equal(call.body_bytes, 40);
    assert_int_equal(call.pieces_while_paused, 0);
    assert_int_equal(call.evidence.end, NET_END_EOF);
    fini(&call);
    stop_upstream();
}

static void test_head_has_no_body(void **state)
{
    (void)state;
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    start_upstream(script_answer, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, "HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n", "");
    r.is_head = true;
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_int_equal(call.content_length, 500);
    assert_int_equal(call.body_bytes, 0);
    fini(&call);
    stop_upstream();
}

/* ---- giving up ---- */

static void test_abort(void **state)
{
    (void)state;
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    start_upstream(script_keep, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {.abort_at_head = true};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_ABORTED);
    assert_int_equal(call.evidence.status, 200);
    assert_int_equal(call.body_bytes, 0);
    fini(&call);
    call.loop = loop;
    assert_int_equal(exchange_start(&call.exchange, client, &r, &handlers, &call), STATUS_OK);
    exchange_abort(call.exchange);
    exchange_abort(call.exchange);
    assert_int_equal(call.ends, 0);
    net_loop_run(loop);
    assert_int_equal(call.ends, 1);
    assert_int_equal(call.evidence.bytes_sent, 0);
    fini(&call);
    stop_upstream();
}

static void test_freeing_the_client_ends_what_runs(void **state)
{
    (void)state;
    start_upstream(script_silence, NULL, NULL);
    struct origin o = origin_at("http", "127.0.0.1", up.port), name = origin_at("http", "localhost", up.port);
    struct exchange_request r = request_of(&o, POST, "hello"), by_name = request_of(&name, POST, "hello");
    struct call calls[4] = {0};
    struct client *own;
    assert_int_equal(client_new(&own, loop, &settings), STATUS_OK);
    for (int i = 0; i < 4; i++) {
        calls[i].loop = loop;
        assert_int_equal(exchange_start(&calls[i].exchange, own, i < 2 ? &r : &by_name, &handlers, &calls[i]),
                         STATUS_OK);
    }
    client_free(own);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(calls[i].ends, 1);
        assert_int_equal(calls[i].evidence.end, NET_END_ABORTED);
    }
    net_loop_run(loop);
    stop_upstream();
}

/* ---- other addresses ---- */

static void test_unix_socket(void **state)
{
    (void)state;
    char dir[] = "/tmp/samekey-net-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    start_upstream(script_keep, NULL, path);
    struct buffer text = {0}, error = {0};
    buffer_format(&text, "unix:%s", path);
    struct origin o;
    assert_int_equal(origin_parse(buffer_view(&text), &o, &error), STATUS_OK);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    fini(&call);
    run(&call, &r);
    assert_true(call.evidence.reused);
    fini(&call);
    client_close_idle(client);
    net_loop_run(loop);
    stop_upstream();
    unlink(path);
    rmdir(dir);
    buffer_fini(&text);
}

static void test_origins(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port;
        bool tls, is_unix;
    } good[] = {
        {"http://a", "a", "80", false, false},
        {"https://a.b-c", "a.b-c", "443", true, false},
        {"HTTP://a:8080/", "a", "8080", false, false},
        {"https://[::1]:9", "::1", "9", true, false},
        {"http://[fe80::1]", "fe80::1", "80", false, false},
        {"unix:/run/x", "/run/x", "", false, true},
    };
    static const char *const bad[] = {"",
                                      "a",
                                      "ftp://a",
                                      "http://",
                                      "http:///",
                                      "http://a/b",
                                      "http://a:",
                                      "http://a:0",
                                      "http://a:65536",
                                      "http://a:1x",
                                      "http://u@a",
                                      "http://[::1",
                                      "http://[::1]9",
                                      "http://a b",
                                      "unix:",
                                      "unix:rel",
                                      "http://a:123456"};
    struct buffer error = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct origin o;
        assert_int_equal(origin_parse(slice_text(good[i].text), &o, &error), STATUS_OK);
        assert_string_equal(o.host, good[i].host);
        assert_string_equal(o.port, good[i].port);
        assert_int_equal(o.tls, good[i].tls);
        assert_int_equal(o.is_unix, good[i].is_unix);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct origin o = {.port = "same"};
        buffer_clear(&error);
        if (origin_parse(slice_text(bad[i]), &o, &error) != STATUS_INVALID || error.len == 0)
            fail_msg("'%s' was accepted", bad[i]);
        assert_string_equal(o.port, "same");
    }
    buffer_fini(&error);
}

/* ---- TLS ---- */

static char ca_path[] = "/tmp/samekey-ca-XXXXXX";
static EVP_PKEY *key;

static X509 *make_certificate(const char *names)
{
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)names, -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
    X509_add_ext(cert, san, -1);
    X509_EXTENSION_free(san);
    X509_sign(cert, key, EVP_sha256());
    return cert;
}

static SSL_CTX *make_server_tls(X509 *cert)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(tls, cert);
    SSL_CTX_use_PrivateKey(tls, key);
    return tls;
}

static void script_until_eof_tls(struct peer *p)
{
    peer_hear(p, "hello");
    peer_say(p, answer);
    if (atomic_load(&up.go))
        SSL_shutdown(p->ssl);
}

static void script_plain(struct peer *p)
{
    peer_hear_some(p);
    peer_say(p, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n");
}

static struct call tls_call(const char *host, const char *scheme)
{
    struct origin o = origin_at(scheme, host, up.port);
    struct exchange_request r = request_of(&o, POST, "hello");
    struct call call = {0};
    run(&call, &r);
    return call;
}

static void use_tls_client(const char *ca_file, bool verify, uint32_t connect_timeout_ms)
{
    struct client_settings s = settings;
    s.ca_file = ca_file;
    s.tls_verify = verify;
    s.connect_timeout_ms = connect_timeout_ms;
    use_client(&s);
}

static void test_tls(void **state)
{
    (void)state;
    key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate("DNS:localhost,IP:127.0.0.1"),
         *other = make_certificate("DNS:other.example");
    int fd = mkstemp(ca_path);
    FILE *f = fdopen(fd, "w");
    PEM_write_X509(f, cert);
    PEM_write_X509(f, other);
    fclose(f);
    SSL_CTX *good = make_server_tls(cert), *wrong = make_server_tls(other), *old = make_server_tls(cert),
            *asks = make_server_tls(cert), *twelve = make_server_tls(cert);
    SSL_CTX_set_min_proto_version(old, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(old, TLS1_1_VERSION);
    SSL_CTX_set_cipher_list(old, "DEFAULT:@SECLEVEL=0");
    SSL_CTX_set_max_proto_version(twelve, TLS1_2_VERSION);
    SSL_CTX_set_verify(asks, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);

    use_tls_client(ca_path, true, settings.connect_timeout_ms);
    start_upstream(script_keep, good, NULL);
    struct call call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_int_equal(call.evidence.bytes_sent, sizeof POST - 1 + 5);
    assert_true(call.evidence.request_complete);
    fini(&call);
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_true(call.evidence.reused);
    assert_int_equal(call.evidence.bytes_sent, sizeof POST - 1 + 5);
    fini(&call);
    client_close_idle(client);
    call = tls_call("127.0.0.1", "https"); /* by address: the certificate's IP */
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    fini(&call);
    client_close_idle(client);
    net_loop_run(loop);
    stop_upstream();

    start_upstream(script_count, good, NULL);
    struct origin o = origin_at("https", "localhost", up.port);
    send_bodies(&o);
    stop_upstream();

    start_upstream(script_large, twelve, NULL);
    o = origin_at("https", "localhost", up.port);
    struct exchange_request r = request_of(&o, GET, "");
    r.deadline_ms = INT64_MAX;
    call.pausing = true;
    run(&call, &r);
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_int_equal(call.body_bytes, LARGE);
    assert_int_equal(call.pieces_while_paused, 0);
    assert_true(call.peak < 8u << 20);
    fini(&call);
    client_close_idle(client);
    stop_upstream();

    start_upstream(script_keep, wrong, NULL); /* another name's certificate */
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_TLS_CERTIFICATE);
    assert_int_equal(call.evidence.bytes_sent, 0);
    assert_true(strstr(call.evidence.detail, "ostname") != NULL);
    fini(&call);
    stop_upstream();

    use_tls_client(NULL, true, settings.connect_timeout_ms); /* nobody vouches for it */
    start_upstream(script_keep, good, NULL);
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_TLS_CERTIFICATE);
    assert_int_equal(call.evidence.bytes_sent, 0);
    fini(&call);
    use_tls_client(NULL, false, settings.connect_timeout_ms); /* nobody asks */
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    fini(&call);
    client_close_idle(client);
    net_loop_run(loop);
    stop_upstream();

    use_tls_client(ca_path, true, settings.connect_timeout_ms);
    start_upstream(script_keep, old, NULL); /* too old */
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_TLS);
    assert_int_equal(call.evidence.bytes_sent, 0);
    fini(&call);
    stop_upstream();

    start_upstream(script_plain, NULL, NULL); /* not TLS at all */
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_TLS);
    assert_int_equal(call.evidence.bytes_sent, 0);
    fini(&call);
    stop_upstream();

    use_tls_client(ca_path, true, 500);
    start_upstream(script_silence, NULL, NULL); /* a handshake that stalls */
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_TLS);
    assert_int_equal(call.evidence.bytes_sent, 0);
    fini(&call);
    stop_upstream();
    use_tls_client(ca_path, true, settings.connect_timeout_ms);

    /* TLS 1.3 asks for our certificate after our first bytes have left: that is no proof of anything. */
    start_upstream(script_keep, asks, NULL);
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_RESET);
    assert_true(call.evidence.bytes_sent > 0);
    assert_true(call.evidence.connected);
    fini(&call);
    stop_upstream();

    /* A body until close: whole only behind a close_notify. */
    answer = "HTTP/1.0 200 OK\r\n\r\nok";
    start_upstream(script_until_eof_tls, good, NULL);
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_EOF);
    fini(&call);
    atomic_store(&up.go, 1);
    call = tls_call("localhost", "https");
    assert_int_equal(call.evidence.end, NET_END_COMPLETE);
    assert_true(call.evidence.body_until_close);
    fini(&call);
    stop_upstream();

    struct client *none;
    struct client_settings s = settings;
    s.ca_file = "/no/such/file";
    assert_int_equal(client_new(&none, loop, &s), STATUS_INVALID);

    SSL_CTX_free(good);
    SSL_CTX_free(wrong);
    SSL_CTX_free(old);
    SSL_CTX_free(asks);
    SSL_CTX_free(twelve);
    X509_free(cert);
    X509_free(other);
    EVP_PKEY_free(key);
    unlink(ca_path);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        TEST(test_how_answers_end),
        TEST(test_nothing_left),
        TEST(test_silence_is_a_timeout),
        TEST(test_a_head_over_its_bound),
        TEST(test_before_a_100_no_byte_of_the_body_leaves),
        TEST(test_a_kept_connection_is_used_again),
        TEST(test_a_connection_in_doubt_is_not_used_again),
        TEST(test_bytes_nobody_asked_for_end_a_kept_connection),
        TEST(test_the_close_of_an_idle_connection_is_noticed),
        TEST(test_what_a_peer_says_of_its_patience_is_read),
        TEST(test_a_connection_is_given_up_before_its_peer_closes_it),
        TEST(test_bodies_of_every_kind),
        TEST(test_an_early_answer_is_read),
        TEST(test_a_server_that_stops_reading),
        TEST(test_a_paused_answer_uses_bounded_memory),
        TEST(test_what_came_is_told_before_the_end),
        TEST(test_head_has_no_body),
        TEST(test_abort),
        TEST(test_freeing_the_client_ends_what_runs),
        TEST(test_unix_socket),
        TEST(test_origins),
        TEST(test_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
