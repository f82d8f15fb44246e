/* SPDX-License-Identifier: MIT
 *
 * What is one message for everybody is read; what could be two is refused, wherever the bytes are cut.
 */
#include "harness.h"

#include "net/header.h"
#include "net/message.h"

struct outcome {
    enum shim_verdict verdict;
    int status;
    size_t used;
    struct buffer body;
};

/* Reads a whole message, given in pieces of `step` bytes. */
static struct outcome read_message(struct message *m, bool response, const char *text, size_t len,
                                   size_t step)
{
    struct outcome o = {0};
    message_start(m, response, 1000, 10);
    bool head = true;
    size_t from = 0, end = 0;
    while (o.verdict == SHIM_MORE && (end < len || from < end)) {
        end = end + step < len ? end + step : len;
        while (o.verdict == SHIM_MORE && from < end) {
            size_t taken = 0;
            struct slice piece = {NULL, 0};
            o.verdict = head ? message_head(m, text + from, end - from, &taken)
                             : message_body(m, text + from, end - from, &taken, &piece);
            assert_true(taken <= end - from);
            if (o.verdict == SHIM_REFUSED)
                break;
            assert_true(taken > 0);
            from += taken;
            buffer_slice(&o.body, piece);
            if (head && o.verdict == SHIM_END) {
                head = false;
                o.verdict = m->body == SHIM_BODY_NONE ? SHIM_END : SHIM_MORE;
            }
        }
    }
    o.status = m->shim.refused_status;
    o.used = from;
    return o;
}

#define H "Host: a\r\n"

struct row {
    const char *text;
    enum shim_verdict verdict;
    int status;       /* of a refusal */
    const char *body; /* else */
};

static const struct row requests[] = {
    {"GET / HTTP/1.1\r\n" H "\r\n", SHIM_END, 0, ""},
    {"\r\nGET / HTTP/1.1\r\n" H "\r\n", SHIM_END, 0, ""},
    {"GET / HTTP/1.0\r\n\r\n", SHIM_END, 0, ""},
    {"GET http://a/b?c HTTP/1.1\r\nHost:a\r\nX:\r\nY: \t z \r\n\r\n", SHIM_END, 0, ""},
    {"POST /x HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello", SHIM_END, 0, "hello"},
    {"POST /x HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", SHIM_END, 0, ""},
    {"POST /x HTTP/1.1\r\n" H
     "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n1;a=\"b\"\r\n!\r\n0\r\nT: v\r\n\r\n",
     SHIM_END, 0, "hello!"},
    {"POST /x HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0A\r\n0123456789\r\n000\r\n\r\n", SHIM_END,
     0, "0123456789"},
    {"POST /x HTTP/1.1\r\n" H "Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nhi",
     SHIM_END, 0, "hi"},
    {"POST /x HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhell", SHIM_MORE, 0, "hell"},
    /* Who it is for. */
    {"GET / HTTP/1.1\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H H "\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.0\r\n" H "host: b\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"CONNECT a:1 HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 501, NULL},
    /* Line ends. */
    {"GET / HTTP/1.1\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "\n", SHIM_REFUSED, 400, NULL},
    {"\nGET / HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "X: a\rContent-Length: 3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    /* Field lines. */
    {"GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "X: a\r\n\tb\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "Content-Length\t: 3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "X\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H ": x\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "X: a\x01\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "X\xc3: a\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1\r\n" H "1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n9:\r\n10:\r\n\r\n", SHIM_REFUSED,
     431, NULL},
    /* Lengths. */
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3, 3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length: +3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length: -3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length: 0x3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3 \t3\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551619\r\n\r\nabc", SHIM_REFUSED, 400, NULL},
    /* Codings. */
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", SHIM_REFUSED,
     400, NULL},
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", SHIM_REFUSED,
     400, NULL},
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", SHIM_REFUSED, 501, NULL},
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", SHIM_REFUSED, 501,
     NULL},
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n", SHIM_REFUSED, 501, NULL},
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", SHIM_REFUSED, 501, NULL},
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: \x0b"
     "chunked\r\n\r\n",
     SHIM_REFUSED, 400, NULL},
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", SHIM_REFUSED,
     400, NULL},
    {"POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
/* Chunks. */
#define C "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
    {C "+3\r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "-3\r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "0x3\r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C " 3\r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3 \r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "\r\n", SHIM_REFUSED, 400, NULL},
    {C "00000000000000003\r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3\rabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3\r\nabcd\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3\r\nabc\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3\r\nabc0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3;\x01\r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "3;a\nb\r\nabc\r\n0\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "0\r\nX: a\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "0\r\n X: a\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {C "0\r\nX : a\r\n\r\n", SHIM_REFUSED, 400, NULL},
    /* First lines. */
    {"GET /\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/0.9\r\n" H "\r\n", SHIM_REFUSED, 505, NULL},
    {"GET / HTTP/2.0\r\n" H "\r\n", SHIM_REFUSED, 505, NULL},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SHIM_REFUSED, 505, NULL},
    {"GET / HTTP/1.2\r\n" H "\r\n", SHIM_REFUSED, 505, NULL},
    {"GET / HTTP/1.10\r\n" H "\r\n", SHIM_REFUSED, 505, NULL},
    {"GET / http/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"GET  / HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"GET / HTTP/1.1 \r\n" H "\r\n", SHIM_REFUSED, 505, NULL},
    {"GET /a b HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"GET /a#b HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"GET\t/ HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {" GET / HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 400, NULL},
    {"BREW / HTTP/1.1\r\n" H "\r\n", SHIM_REFUSED, 501, NULL},
    {"\x16\x03\x01\x02 hello\r\n\r\n", SHIM_REFUSED, 400, NULL},
};

static const struct row answers[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", SHIM_END, 0, "hi"},
    {"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", SHIM_END, 0, "hi"},
    {"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi", SHIM_END, 0, "hi"},
    {"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n", SHIM_END, 0, ""},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", SHIM_END, 0, ""},
    {"HTTP/1.1 100 Continue\r\n\r\n", SHIM_END, 0, ""},
    {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", SHIM_END, 0, ""},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", SHIM_END, 0, "hi"},
    {"HTTP/1.0 200 OK\r\n\r\nuntil close", SHIM_MORE, 0, "until close"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", SHIM_REFUSED, 400, NULL},
    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", SHIM_REFUSED, 501, NULL},
    {"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nhi", SHIM_REFUSED, 400, NULL},
    {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", SHIM_REFUSED, 400, NULL},
    {"HTTP/1.1 20 OK\r\n\r\n", SHIM_REFUSED, 502, NULL},
    {"HTTP/1.1 2000 OK\r\n\r\n", SHIM_REFUSED, 502, NULL},
    {"HTTP/2.0 200 OK\r\n\r\n", SHIM_REFUSED, 505, NULL},
    {"\r\nHTTP/1.1 200 OK\r\n\r\n", SHIM_REFUSED, 502, NULL},
    {"SSH-2.0-OpenSSH_9\r\n", SHIM_REFUSED, 502, NULL},
};

static void check(bool response, const struct row *rows, size_t count)
{
    struct message m = {0};
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(rows[i].text);
        for (size_t step = 1; step <= len; step++) {
            struct outcome o = read_message(&m, response, rows[i].text, len, step);
            if (o.verdict != rows[i].verdict || o.status != rows[i].status)
                fail_msg("row %zu in steps of %zu: verdict %d status %d (%s)\n%s", i, step, o.verdict,
                         o.status, m.shim.refused_reason ? m.shim.refused_reason : "", rows[i].text);
            if (rows[i].body)
                assert_string_equal(buffer_cstring(&o.body), rows[i].body);
            if (o.verdict == SHIM_END)
                assert_int_equal(o.used, len);
            buffer_fini(&o.body);
        }
    }
    message_fini(&m);
}

static void test_requests(void **state)
{
    (void)state;
    check(false, requests, sizeof requests / sizeof *requests);
}

static void test_answers(void **state)
{
    (void)state;
    check(true, answers, sizeof answers / sizeof *answers);
}

static void test_nul_bytes_are_refused_everywhere(void **state)
{
    (void)state;
    const char text[] = "GET /aa HTTP/1.1\r\nHost: a\r\nX-Name: value\r\n\r\n";
    struct message m = {0};
    for (size_t i = 0; i < sizeof text - 1; i++) {
        char broken[sizeof text];
        memcpy(broken, text, sizeof text);
        broken[i] = '\0';
        struct outcome o = read_message(&m, false, broken, sizeof text - 1, sizeof text);
        if (o.verdict == SHIM_END)
            fail_msg("a NUL at %zu was accepted", i);
    }
    message_fini(&m);
}

static void test_head_size_is_bounded_to_the_byte(void **state)
{
    (void)state;
    struct message m = {0};
    for (size_t len = 995; len <= 1005; len++) {
        char text[1100];
        int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
        memset(text + n, 'x', sizeof text - (size_t)n);
        memcpy(text + len - 4, "\r\n\r\n", 4);
        for (size_t step = 1; step <= len; step += 333) {
            struct outcome o = read_message(&m, false, text, len, step);
            assert_int_equal(o.verdict, len <= 1000 ? SHIM_END : SHIM_REFUSED);
            if (len > 1000)
                assert_int_equal(o.status, 431);
        }
    }
    message_fini(&m);
}

static void test_the_parts_of_a_head(void **state)
{
    (void)state;
    const char text[] = "\r\nPOST /a/b?x=1 HTTP/1.1\r\nHost: h:1\r\nEmpty:\r\nX-Two:  two words\t\r\n"
                        "Connection: keep-alive , CLOSE\r\nContent-Length: 4\r\n\r\nbody";
    struct message m = {0};
    for (size_t step = 1; step <= sizeof text; step++) {
        struct outcome o = read_message(&m, false, text, sizeof text - 1, step);
        assert_int_equal(o.verdict, SHIM_END);
        assert_true(slice_is(m.method, "POST"));
        assert_true(slice_is(m.target, "/a/b?x=1"));
        struct headers h = {m.list, m.count};
        assert_int_equal(h.count, 5);
        bool found;
        assert_true(slice_is(headers_get(&h, "x-two", &found), "two words") && found);
        assert_true(slice_is(headers_get(&h, "EMPTY", &found), "") && found);
        headers_get(&h, "none", &found);
        assert_false(found);
        assert_int_equal(headers_count(&h, "Host"), 1);
        assert_true(headers_has_token(&h, "connection", "close"));
        assert_false(headers_has_token(&h, "connection", "clos"));
        assert_false(m.keep_alive);
        buffer_fini(&o.body);
    }
    message_fini(&m);
}

static void test_what_follows_a_message_is_left(void **state)
{
    (void)state;
    const char text[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n";
    struct message m = {0};
    struct outcome o = read_message(&m, false, text, sizeof text - 1, sizeof text);
    assert_int_equal(o.verdict, SHIM_END);
    assert_string_equal(text + o.used, "GET / HTTP/1.1\r\n");
    buffer_fini(&o.body);
    message_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_nul_bytes_are_refused_everywhere),
        cmocka_unit_test(test_head_size_is_bounded_to_the_byte),
        cmocka_unit_test(test_the_parts_of_a_head),
        cmocka_unit_test(test_what_follows_a_message_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
