/* SPDX-License-Identifier: MIT
 *
 * Timers in their order, and letters from many threads.
 */
#include "harness.h"

static struct net_loop *loop;
static char order[32];
static size_t order_len;

struct named_timer {
    struct net_timer timer;
    char name;
    int64_t fired_at;
};

static void note(struct net_timer *timer)
{
    struct named_timer *n = HEAP_ENTRY(timer, struct named_timer, timer);
    order[order_len++] = n->name;
    n->fired_at = clock_monotonic_ms();
    assert_false(timer->armed);
}

static int setup(void **state)
{
    (void)state;
    order_len = 0;
    memset(order, 0, sizeof order);
    return net_loop_new(&loop) != STATUS_OK;
}

static int teardown(void **state)
{
    (void)state;
    net_loop_free(loop);
    return 0;
}

static void test_timers_fire_in_order_and_not_early(void **state)
{
    (void)state;
    struct named_timer a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'}, d = {.name = 'd'};
    int64_t now = clock_monotonic_ms();
    net_timer_arm(loop, &c.timer, now + 40, note);
    net_timer_arm(loop, &a.timer, now + 10, note);
    net_timer_arm(loop, &d.timer, now + 5, note);
    net_timer_arm(loop, &b.timer, now + 60, note);
    net_timer_arm(loop, &b.timer, now + 20, note); /* moved */
    net_timer_disarm(loop, &d.timer);
    net_timer_disarm(loop, &d.timer);
    net_loop_run(loop); /* ends by itself when no timer is left */
    assert_string_equal(order, "abc");
    assert_true(a.fired_at >= now + 10 && b.fired_at >= now + 20 && c.fired_at >= now + 40);
    assert_true(clock_monotonic_ms() < now + 3000);
}

static int chain_left;

static void chain(struct net_timer *timer)
{
    if (--chain_left > 0)
        net_timer_arm(loop, timer, net_loop_now(loop), chain);
}

static void test_a_timer_armed_for_now_fires_in_the_next_turn(void **state)
{
    (void)state;
    struct net_timer timer = {0}, past = {0};
    chain_left = 100;
    net_timer_arm(loop, &timer, 0, chain);
    net_timer_arm(loop, &past, -5, chain);
    net_loop_run(loop);
    assert_true(chain_left <= 0);
}

static void test_an_empty_loop_ends(void **state)
{
    (void)state;
    net_loop_run(loop);
    net_loop_stop(loop);
    net_loop_run(loop);
}

#define WRITERS 4
#define LETTERS 2000

struct numbered {
    struct letter letter;
    int writer, number;
};

static int last[WRITERS], opened;
static bool in_order = true;

static void read_letter(struct letter *letter)
{
    struct numbered *n = LIST_ENTRY(letter, struct numbered, letter);
    in_order = in_order && n->number == last[n->writer]++;
    free(n);
    if (++opened == WRITERS * LETTERS)
        net_loop_stop(loop);
}

static void *write_letters(void *writer)
{
    for (int i = 0; i < LETTERS; i++) {
        struct numbered *n = calloc(1, sizeof *n);
        n->letter.open = read_letter;
        n->writer = (int)(intptr_t)writer;
        n->number = i;
        mailbox_post(loop, &n->letter);
    }
    return NULL;
}

static void nothing(struct net_timer *timer)
{
    (void)timer;
}

static void test_letters_of_one_sender_arrive_in_order(void **state)
{
    (void)state;
    struct net_timer bound = {0}; /* keeps the loop running */
    net_timer_arm(loop, &bound, clock_monotonic_ms() + WAIT_S * 1000, nothing);
    pthread_t writers[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&writers[i], NULL, write_letters, (void *)(intptr_t)i);
    net_loop_run(loop);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    assert_int_equal(opened, WRITERS * LETTERS);
    assert_true(in_order);
    assert_true(bound.armed);
    net_timer_disarm(loop, &bound);
}

static void test_a_stop_before_the_run_is_kept(void **state)
{
    (void)state;
    struct net_timer bound = {0};
    int64_t start = clock_monotonic_ms();
    net_timer_arm(loop, &bound, start + WAIT_S * 1000, nothing);
    net_loop_stop(loop);
    net_loop_run(loop);
    assert_true(clock_monotonic_ms() < start + 3000);
    net_timer_disarm(loop, &bound);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_timers_fire_in_order_and_not_early),
        TEST(test_a_timer_armed_for_now_fires_in_the_next_turn),
        TEST(test_an_empty_loop_ends),
        TEST(test_letters_of_one_sender_arrive_in_order),
        TEST(test_a_stop_before_the_run_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
