/* SPDX-License-Identifier: MIT
 *
 * Bytes that leave together: each stream gets its own, once and in order, whatever the kernel takes, with and without
 * io_uring.
 */
#include "harness.h"

#include "net/outlet.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENDS        40 /* more than a volley holds */
#define CHUNK       16000
#define CHUNKS      256
#define TURNS_MAX   100000
#define SMALL_BYTES 4096
#define ROOM_MAX    (1 << 20) /* bytes that may be kept of a stream much longer than that */

struct end {
    uv_pipe_t pipe;
    struct outlet out;
    int peer;
    int told; /* how often */
    int status;
};

static struct net_loop *loop;
static struct volley *volley;
static struct end ends[ENDS];

static void moved(struct outlet *out, int status)
{
    struct end *e = HEAP_ENTRY(out, struct end, out);
    e->told++;
    e->status = status;
}

static int setup(bool ring)
{
    if (net_loop_new(&loop) != STATUS_OK)
        return -1;
    volley = net_loop_volley(loop);
    volley_use_ring(volley, ring);
    memset(ends, 0, sizeof ends);
    for (struct end *e = ends; e < ends + ENDS; e++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
            return -1;
        uv_pipe_init(net_loop_uv(loop), &e->pipe, 0);
        if (uv_pipe_open(&e->pipe, pair[0]) != 0)
            return -1;
        e->peer = pair[1];
        outlet_init(&e->out, (uv_stream_t *)&e->pipe, volley, moved);
    }
    return 0;
}

static int setup_plain(void **state)
{
    (void)state;
    return setup(false);
}

static int setup_ring(void **state)
{
    (void)state;
    return setup(true);
}

static void end_close(struct end *e)
{
    outlet_settle(&e->out);
    if (!uv_is_closing((uv_handle_t *)&e->pipe))
        uv_close((uv_handle_t *)&e->pipe, NULL);
}

static int teardown(void **state)
{
    (void)state;
    for (struct end *e = ends; e < ends + ENDS; e++) {
        end_close(e);
        if (e->peer >= 0)
            close(e->peer);
    }
    uv_run(net_loop_uv(loop), UV_RUN_DEFAULT);
    for (struct end *e = ends; e < ends + ENDS; e++)
        outlet_fini(&e->out);
    net_loop_free(loop);
    return 0;
}

static int post(struct end *e, const char *one, const char *two)
{
    uv_buf_t parts[2] = {uv_buf_init((char *)(size_t)one, (unsigned)strlen(one)),
                         uv_buf_init((char *)(size_t)two, (unsigned)strlen(two))};
    return outlet_post(&e->out, parts, 2);
}

static void expect(struct end *e, const char *text)
{
    char got[200];
    ssize_t n = read(e->peer, got, sizeof got - 1);
    if (!*text) {
        assert_true(n < 0 && errno == EAGAIN);
        return;
    }
    assert_true(n > 0);
    got[n] = '\0';
    assert_string_equal(got, text);
}

static void each_stream_gets_its_own(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < ENDS; i++) {
            char text[20];
            snprintf(text, sizeof text, "%d.", i);
            assert_int_equal(post(&ends[i], text, "end"), 0);
            assert_int_equal(outlet_waiting(&ends[i].out), 0);
        }
        expect(&ends[ENDS - 1], ""); /* not before the turn */
        assert_false(volley_turn(volley));
        for (int i = 0; i < ENDS; i++) {
            char text[20];
            snprintf(text, sizeof text, "%d.end", i);
            expect(&ends[i], text);
            assert_int_equal(outlet_taken(&ends[i].out), strlen(text) * (size_t)(round + 1));
            assert_int_equal(ends[i].told, 0);
        }
    }
}

static void the_ring_is_used_where_the_kernel_has_one(void **state)
{
    (void)state;
    struct io_uring other;
    bool has = io_uring_queue_init(2, &other, 0) == 0;
    if (has)
        io_uring_queue_exit(&other);
    assert_int_equal(post(&ends[0], "a", "b"), 0);
    (void)volley_turn(volley);
    assert_false(volley_has_ring(volley)); /* one alone needs none */
    assert_int_equal(post(&ends[0], "a", "b"), 0);
    assert_int_equal(post(&ends[1], "a", "b"), 0);
    (void)volley_turn(volley);
    assert_int_equal(volley_has_ring(volley), has);
}

static void no_ring_is_used_unless_wanted(void **state)
{
    (void)state;
    assert_int_equal(post(&ends[0], "a", "b"), 0);
    assert_int_equal(post(&ends[1], "a", "b"), 0);
    (void)volley_turn(volley);
    assert_false(volley_has_ring(volley));
}

static void nothing_overtakes_what_was_posted(void **state)
{
    (void)state;
    uv_buf_t b = uv_buf_init((char *)(size_t) "b", 1);
    assert_int_equal(post(&ends[0], "a", ""), 0);
    assert_int_equal(outlet_write(&ends[0].out, &b, 1), 0);
    expect(&ends[0], "ab");
    assert_int_equal(post(&ends[1], "a", ""), 0);
    assert_int_equal(outlet_try(&ends[1].out, slice_text("b")), 1);
    expect(&ends[1], "ab");
    assert_int_equal(post(&ends[2], "a", ""), 0);
    assert_int_equal(post(&ends[2], "b", "c"), 0);
    assert_false(volley_turn(volley));
    char got[4] = {0};
    assert_int_equal(read(ends[2].peer, got, 3), 3);
    assert_string_equal(got, "abc");
    assert_int_equal(post(&ends[3], "asked for", ""), 0);
    assert_int_equal(outlet_taken(&ends[3].out), 9);
    expect(&ends[3], "asked for");
}

static void what_is_posted_leaves_before_its_stream_is_closed(void **state)
{
    (void)state;
    char byte;
    assert_int_equal(post(&ends[0], "last", "words"), 0);
    assert_int_equal(post(&ends[1], "others", "too"), 0);
    end_close(&ends[0]);
    uv_run(net_loop_uv(loop), UV_RUN_NOWAIT);
    expect(&ends[0], "lastwords");
    assert_int_equal(read(ends[0].peer, &byte, 1), 0);
    expect(&ends[1], "otherstoo");
}

static void a_broken_stream_is_told_once_and_by_the_turn(void **state)
{
    (void)state;
    close(ends[0].peer);
    ends[0].peer = -1;
    assert_int_equal(post(&ends[0], "into", "nothing"), 0);
    assert_int_equal(post(&ends[1], "good", "one"), 0);
    volley_send(volley);
    assert_int_equal(ends[0].told, 0);
    assert_true(post(&ends[0], "more", "") < 0);
    assert_true(volley_turn(volley));
    assert_false(volley_turn(volley));
    assert_int_equal(ends[0].told, 1);
    assert_true(ends[0].status < 0);
    assert_int_equal(outlet_taken(&ends[0].out), 0);
    assert_int_equal(ends[1].told, 0);
    expect(&ends[1], "goodone");

    /* Nor is anybody told whose stream is closed by then. */
    close(ends[2].peer);
    ends[2].peer = -1;
    assert_int_equal(post(&ends[2], "into", "nothing"), 0);
    end_close(&ends[2]);
    assert_true(volley_turn(volley));
    assert_int_equal(ends[2].told, 0);
}

static void what_is_withdrawn_never_leaves(void **state)
{
    (void)state;
    static char chunk[CHUNK];
    uv_buf_t part = uv_buf_init(chunk, CHUNK);
    assert_int_equal(post(&ends[0], "one", ""), 0);
    /* More of it than there is room for at a time. */
    for (int i = 0; i < 3 * VOLLEY_ENTRIES; i++) {
        assert_int_equal(outlet_post(&ends[1].out, &part, 1), 0);
        outlet_withdraw(&ends[1].out);
        assert_false(outlet_unsent(&ends[1].out));
    }
    assert_int_equal(post(&ends[2], "two", ""), 0);
    outlet_withdraw(&ends[3].out); /* which has none */
    (void)volley_turn(volley);
    expect(&ends[0], "one");
    expect(&ends[1], "");
    expect(&ends[2], "two");
    assert_int_equal(outlet_taken(&ends[1].out), 0);
    assert_int_equal(ends[1].told, 0);
}

static void who_wants_to_know_is_told_when_it_has_left(void **state)
{
    (void)state;
    ends[0].out.wants_news = true;
    assert_int_equal(post(&ends[0], "an", "answer"), 0);
    assert_true(outlet_unsent(&ends[0].out));
    volley_send(volley);
    assert_false(outlet_unsent(&ends[0].out));
    assert_int_equal(ends[0].told, 0);
    assert_true(volley_turn(volley));
    assert_int_equal(ends[0].told, 1);
    assert_int_equal(ends[0].status, 0);
    assert_false(volley_turn(volley));
}

/* Bytes by their place in the stream, so that one too many or in the wrong place is seen. */
static char byte_at(size_t at)
{
    return (char)(at * 31 + at / 251);
}

static void what_the_kernel_does_not_take_follows_in_order(void **state)
{
    (void)state;
    struct end *e = &ends[0];
    static char chunk[CHUNK], got[CHUNK];
    size_t sent = 0, seen = 0;
    int small = SMALL_BYTES, waited = 0;
    uv_os_fd_t fd;
    assert_int_equal(uv_fileno((uv_handle_t *)&e->pipe, &fd), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    for (int turns = 0; (sent < (size_t)CHUNK * CHUNKS || seen < sent) && turns < TURNS_MAX; turns++) {
        if (sent < (size_t)CHUNK * CHUNKS && outlet_waiting(&e->out) < 4 * CHUNK) {
            size_t len = turns % 3 == 0 ? 100 : CHUNK;
            for (size_t i = 0; i < len; i++)
                chunk[i] = byte_at(sent + i);
            uv_buf_t part = uv_buf_init(chunk, (unsigned)len);
            assert_int_equal(outlet_post(&e->out, &part, 1), 0);
            assert_int_equal(post(&ends[1], "beside", "it"), 0);
            memset(chunk, 0, sizeof chunk); /* it was copied */
            sent += len;
        }
        (void)volley_turn(volley);
        waited += outlet_waiting(&e->out) > 0;
        if (turns % 2)
            (void)read(ends[1].peer, got, sizeof got);
        for (ssize_t n; turns % 5 == 0 && (n = read(e->peer, got, sizeof got)) > 0;) {
            for (ssize_t i = 0; i < n; i++)
                assert_int_equal(got[i], byte_at(seen + (size_t)i));
            seen += (size_t)n;
        }
        uv_run(net_loop_uv(loop), UV_RUN_NOWAIT);
    }
    assert_true(sent >= (size_t)CHUNK * CHUNKS && seen == sent);
    assert_true(waited > 3 && e->told > 0 && e->status == 0);
    assert_int_equal(outlet_taken(&e->out), sent);
    assert_true(e->out.wait.capacity + e->out.next.capacity <= ROOM_MAX);
}

#define BOTH(name)                                                                                           \
    {#name, name, setup_plain, teardown, NULL},                                                              \
    {                                                                                                        \
#name " (io_uring)", name, setup_ring, teardown, NULL                                                \
    }

int main(void)
{
    static const struct CMUnitTest tests[] = {
        BOTH(each_stream_gets_its_own),
        cmocka_unit_test_setup_teardown(the_ring_is_used_where_the_kernel_has_one, setup_ring, teardown),
        cmocka_unit_test_setup_teardown(no_ring_is_used_unless_wanted, setup_plain, teardown),
        BOTH(nothing_overtakes_what_was_posted),
        BOTH(what_is_posted_leaves_before_its_stream_is_closed),
        BOTH(a_broken_stream_is_told_once_and_by_the_turn),
        BOTH(what_is_withdrawn_never_leaves),
        BOTH(who_wants_to_know_is_told_when_it_has_left),
        BOTH(what_the_kernel_does_not_take_follows_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
