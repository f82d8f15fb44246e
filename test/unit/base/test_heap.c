/* SPDX-License-Identifier: MIT */
#include "check.h"

#include "base/heap.h"
#include "base/prng.h"

#define TIMERS 500

struct timer {
    int number;
    struct heap_node node;
};

static void equal_times_come_in_the_order_of_arming(void **state)
{
    (void)state;
    struct heap h = {0};
    struct timer t[20] = {0};
    for (int i = 0; i < 20; i++) {
        t[i].number = i;
        heap_add(&h, &t[i].node, i % 2 ? 10 : 5);
    }
    heap_add(&h, &t[0].node, 5); /* armed again: goes behind */
    assert_int_equal(h.count, 20);
    int order[20], n = 0;
    struct heap_node *node;
    assert_null(heap_pop_due(&h, 4));
    while ((node = heap_pop_due(&h, 10)))
        order[n++] = HEAP_ENTRY(node, struct timer, node)->number;
    assert_int_equal(n, 20);
    for (int i = 0; i < 9; i++)
        assert_int_equal(order[i], 2 * (i + 1));
    assert_int_equal(order[9], 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(order[10 + i], 2 * i + 1);
    assert_null(heap_first(&h));
}

/* Against a plain array, over many random adds, moves, removals and pops. */
static void behaves_as_a_sorted_list(void **state)
{
    (void)state;
    static struct timer t[TIMERS];
    struct heap h = {0};
    struct prng g;
    prng_seed(&g, 7);
    memset(t, 0, sizeof t);
    for (int step = 0; step < 20000; step++) {
        struct timer *one = &t[prng_below(&g, TIMERS)];
        switch (prng_below(&g, 4)) {
        case 0:
        case 1:
            heap_add(&h, &one->node, (int64_t)prng_below(&g, 1000) - 500);
            break;
        case 2:
            heap_remove(&h, &one->node);
            assert_false(one->node.queued);
            break;
        default: {
            struct timer *least = NULL;
            size_t queued = 0;
            for (int i = 0; i < TIMERS; i++) {
                struct heap_node *n = &t[i].node;
                queued += n->queued;
                if (n->queued && (!least || n->at_ms < least->node.at_ms ||
                                  (n->at_ms == least->node.at_ms && n->sequence < least->node.sequence)))
                    least = &t[i];
            }
            assert_int_equal(h.count, queued);
            assert_ptr_equal(heap_first(&h), least ? &least->node : NULL);
            assert_ptr_equal(heap_pop_due(&h, INT64_MAX), least ? &least->node : NULL);
        }
        }
    }
}

static void a_hundred_thousand_timers_do_not_recurse(void **state)
{
    (void)state;
    static struct heap_node nodes[100000];
    struct heap h = {0};
    memset(nodes, 0, sizeof nodes);
    for (size_t i = 0; i < COUNT(nodes); i++)
        heap_add(&h, &nodes[i], (int64_t)(COUNT(nodes) - i));
    int64_t last = 0, n = 0;
    for (struct heap_node *node; (node = heap_pop_due(&h, INT64_MAX)); n++) {
        assert_true(node->at_ms > last);
        last = node->at_ms;
    }
    assert_int_equal(n, COUNT(nodes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_times_come_in_the_order_of_arming),
        cmocka_unit_test(behaves_as_a_sorted_list),
        cmocka_unit_test(a_hundred_thousand_timers_do_not_recurse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
