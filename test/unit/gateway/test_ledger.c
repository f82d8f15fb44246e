/* SPDX-License-Identifier: MIT
 *
 * The ledger before a database that takes connections and says nothing, one that is not there, and a file that is none:
 * each question comes back once and in time, and a full queue is told at once.
 */
#include "../base/check.h"

#include "gateway/ledger.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUESTIONS = 1200, FAST_MS = 300 };

struct question {
    struct ledger_ask ask;
    int came;
};

static struct net_loop *loop;
static struct question questions[QUESTIONS];
static size_t away;

static void on_answer(struct letter *letter)
{
    struct question *q = LIST_ENTRY(letter, struct question, ask.letter);
    q->came++;
    if (--away == 0)
        net_loop_stop(loop);
}

static enum status ask(struct ledger *l, struct question *q, int64_t timeout_ms)
{
    *q = (struct question){0};
    q->ask.letter.open = on_answer;
    q->ask.loop = loop;
    q->ask.call_id = slice_text("c-1");
    q->ask.tenant = slice_text("");
    q->ask.deadline_ms = clock_monotonic_ms() + timeout_ms;
    enum status status = ledger_ask(l, &q->ask);
    away += status == STATUS_OK;
    return status;
}

static void wait_for_all(void)
{
    struct net_timer keep = {0}; /* the mailbox alone does not keep a loop running */
    net_timer_arm(loop, &keep, clock_monotonic_ms() + 60000, NULL);
    if (away)
        net_loop_run(loop);
    net_timer_disarm(loop, &keep);
    assert_int_equal(away, 0);
}

/* A port of the loopback that listens and never speaks. */
static int silent(char *address, size_t size)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    snprintf(address, size, "postgres://nobody@127.0.0.1:%d/none?sslmode=disable", ntohs(in.sin_port));
    return fd;
}

static void a_full_queue_is_told_at_once_and_everything_else_comes_back(void **state)
{
    (void)state;
    char address[128];
    int fd = silent(address, sizeof address);
    struct ledger *l;
    assert_int_equal(ledger_new(&l, address), STATUS_OK);
    int64_t begin = clock_monotonic_ms();
    size_t taken = 0, full = 0;
    for (size_t i = 0; i < QUESTIONS; i++) {
        enum status status = ask(l, &questions[i], FAST_MS);
        taken += status == STATUS_OK;
        full += status == STATUS_FULL;
    }
    assert_int_equal(taken + full, QUESTIONS);
    assert_true(full > 0 && taken >= 1024);
    wait_for_all();
    /* Those behind the deadline were not asked one after the other. */
    assert_true(clock_monotonic_ms() - begin < 20 * FAST_MS);
    size_t came = 0;
    for (size_t i = 0; i < QUESTIONS; i++) {
        came += (size_t)questions[i].came;
        if (questions[i].came) {
            assert_false(questions[i].ask.answered);
            assert_true(questions[i].ask.why[0]);
        }
    }
    assert_int_equal(came, taken);
    ledger_free(l);
    close(fd);
}

static void nobody_there_is_an_answer(void **state)
{
    (void)state;
    char address[128], file[] = "/tmp/samekey-ledger-XXXXXX", sqlite[64];
    close(silent(address, sizeof address)); /* the port is free again */
    close(mkstemp(file));
    snprintf(sqlite, sizeof sqlite, "sqlite:%s", file);
    const char *const addresses[] = {address, "sqlite:/nonexistent/shop.db",
                                     sqlite /* without the guard's tables */};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct ledger *l;
        assert_int_equal(ledger_new(&l, addresses[i]), STATUS_OK);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(ask(l, &questions[0], 5000), STATUS_OK);
            wait_for_all();
            assert_int_equal(questions[0].came, 1);
            assert_false(questions[0].ask.answered);
            assert_true(questions[0].ask.why[0]);
            buffer_fini(&questions[0].ask.document);
        }
        ledger_free(l);
    }
    unlink(file);
}

static void addresses(void **state)
{
    (void)state;
    struct ledger *l = NULL;
    assert_int_equal(ledger_new(&l, "mysql://x/y"), STATUS_INVALID);
    assert_int_equal(ledger_new(&l, "postgres://"), STATUS_INVALID);
    assert_null(l);
    assert_int_equal(ledger_new(&l, "postgresql://h/d"), STATUS_OK); /* nothing is opened before a question */
    ledger_free(l);
    ledger_free(NULL);
}

static int begin_group(void **state)
{
    (void)state;
    return net_loop_new(&loop) == STATUS_OK ? 0 : -1;
}

static int end_group(void **state)
{
    (void)state;
    net_loop_free(loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_is_told_at_once_and_everything_else_comes_back),
        cmocka_unit_test(nobody_there_is_an_answer),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, begin_group, end_group);
}
