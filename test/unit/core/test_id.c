/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "base/prng.h"
#include "core/id.h"

#include <pthread.h>
#include <stdlib.h>

#define NOW INT64_C(1710000000000)

static void what_is_accepted(void **state)
{
    (void)state;
    char longest[CALLID_BYTES_MAX + 1];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(callid_check(slice_text("a")), STATUS_OK);
    assert_int_equal(callid_check(slice_text("AZaz09._:-")), STATUS_OK);
    assert_int_equal(callid_check(slice_of(longest, CALLID_BYTES_MAX)), STATUS_OK);
    assert_int_equal(callid_check(slice_of(longest, CALLID_BYTES_MAX + 1)), STATUS_INVALID);
    assert_int_equal(callid_check(slice_of(NULL, 0)), STATUS_INVALID);
    for (int c = 0; c < 256; c++) {
        char one = (char)c;
        bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c && strchr("._:-", c));
        assert_int_equal(callid_check(slice_of(&one, 1)), good ? STATUS_OK : STATUS_INVALID);
    }
}

static void the_time_is_read_from_our_form_only(void **state)
{
    (void)state;
    static const char *const ours[] = {"ord-1710000000000-a3f91c07b2e4-node07",
                                       "a-b-1710000000000-a3f91c07b2e4-n",
                                       "x-1710000000000-a3f91c07b2e4-n-1999999999999-a3f91c07b2e4-n"};
    static const char *const others[] = {
        "ord-171000000000-a3f91c07b2e4-node07", "ord-1710000000000-a3f91c07b2e-node07",
        "ord-1710000000000-A3F91C07B2E4-n",     "-1710000000000-a3f91c07b2e4-node07",
        "ord-1710000000000-a3f91c07b2e4-",      "ord-17100000000000-a3f91c07b2e4-n",
        "ord_1710000000000_a3f91c07b2e4_n",     "ord-1710000000000-a3f91c07b2e4-no de",
        "550e8400-e29b-41d4-a716-446655440000", "",
    };
    int64_t ms = 0;
    for (size_t i = 0; i < COUNT(ours); i++) {
        ms = 0;
        assert_int_equal(callid_time(slice_text(ours[i]), &ms), STATUS_OK);
        assert_int_equal(ms, NOW);
    }
    ms = 77;
    for (size_t i = 0; i < COUNT(others); i++)
        assert_int_equal(callid_time(slice_text(others[i]), &ms), STATUS_NOT_FOUND);
    assert_int_equal(ms, 77);
}

static void an_id_has_the_promised_form(void **state)
{
    (void)state;
    struct callid_maker m;
    char id[CALLID_BYTES_MAX + 1];
    assert_int_equal(callid_maker_init(&m, slice_text("ord"), slice_text("node07"), 0xa3f91c, 0x07b2e3, NOW),
                     STATUS_OK);
    assert_int_equal(callid_make(&m, NOW, id), strlen("ord-1710000000000-a3f91c07b2e4-node07"));
    assert_string_equal(id, "ord-1710000000000-a3f91c07b2e4-node07");
    callid_make(&m, NOW + 5, id);
    assert_string_equal(id, "ord-1710000000005-a3f91c07b2e5-node07");
    callid_make(&m, NOW - 100000, id); /* the clock went back: the used time does not */
    assert_string_equal(id, "ord-1710000000005-a3f91c07b2e6-node07");
}

static void a_full_counter_moves_the_time_on(void **state)
{
    (void)state;
    struct callid_maker m;
    char id[CALLID_BYTES_MAX + 1];
    assert_int_equal(callid_maker_init(&m, slice_text("p"), slice_text("n"), 1, 0xfffffe, NOW), STATUS_OK);
    callid_make(&m, NOW, id);
    assert_string_equal(id, "p-1710000000000-000001ffffff-n");
    callid_make(&m, NOW, id);
    assert_string_equal(id, "p-1710000000001-000001000000-n");
    callid_make(&m, NOW, id);
    assert_string_equal(id, "p-1710000000001-000001000001-n");
    callid_make(&m, NOW + 2, id);
    assert_string_equal(id, "p-1710000000002-000001000002-n");
}

/* Whatever the clock does, the pairs (ms, counter) only grow, so no two are the same. */
static void strange_clocks_never_repeat(void **state)
{
    (void)state;
    struct callid_maker m;
    struct prng g;
    char id[CALLID_BYTES_MAX + 1], last[CALLID_BYTES_MAX + 1] = "";
    static const int64_t clocks[] = {INT64_MIN, -1, 0, NOW, NOW + 1, NOW - 1, NOW * 2, INT64_MAX};
    prng_seed(&g, 11);
    assert_int_equal(callid_maker_init(&m, slice_text("p"), slice_text("n"), 0, 0xffff00, NOW), STATUS_OK);
    for (int i = 0; i < 200000; i++) {
        callid_make(&m, clocks[prng_below(&g, i < 100000 ? 6 : 8)], id);
        int64_t ms = 0;
        assert_int_equal(callid_time(slice_text(id), &ms), STATUS_OK);
        assert_true(strcmp(last, id) < 0); /* fixed widths: texts sort as pairs do */
        strcpy(last, id);
    }
}

static void names_have_bounds(void **state)
{
    (void)state;
    struct callid_maker m;
    char names[CALLID_NAMES_BYTES_MAX], id[CALLID_BYTES_MAX + 1];
    memset(names, 'n', sizeof names);
    assert_int_equal(callid_maker_init(&m, slice_of(names, 50), slice_of(names, 50), 0, 0, NOW), STATUS_OK);
    assert_int_equal(callid_make(&m, NOW, id), CALLID_BYTES_MAX);
    assert_int_equal(callid_check(slice_text(id)), STATUS_OK);
    assert_int_equal(callid_maker_init(&m, slice_of(names, 51), slice_of(names, 50), 0, 0, NOW),
                     STATUS_INVALID);
    assert_int_equal(callid_maker_init(&m, slice_of(names, 100), slice_of(names, 0), 0, 0, NOW),
                     STATUS_INVALID);
    assert_int_equal(callid_maker_init(&m, slice_text(""), slice_text("n"), 0, 0, NOW), STATUS_INVALID);
    assert_int_equal(callid_maker_init(&m, slice_text("a b"), slice_text("n"), 0, 0, NOW), STATUS_INVALID);
    assert_int_equal(callid_maker_init(&m, slice_text("p"), slice_text("n/1"), 0, 0, NOW), STATUS_INVALID);
    /* A prefix that would be read as an id with another time. */
    assert_int_equal(
        callid_maker_init(&m, slice_text("x-1700000000000-000000000000-y"), slice_text("n"), 0, 0, NOW),
        STATUS_INVALID);
}

static void tags_of_living_processes_differ(void **state)
{
    (void)state;
    static uint8_t seen[1 << 24];
    memset(seen, 0, sizeof seen);
    for (uint32_t pid = 0; pid < 1 << 22; pid++) {
        uint32_t tag = callid_tag(pid, UINT64_C(0x123456789abcdef0));
        assert_true(tag < 1 << 24);
        assert_int_equal(seen[tag]++, 0);
    }
    assert_int_not_equal(callid_tag(1, 5), callid_tag(1, 6));
}

#define THREADS  4
#define EACH     20000
#define ID_BYTES 31

static struct callid_maker shared;
static char made[THREADS * EACH][ID_BYTES];

static void *make_many(void *which)
{
    size_t begin = *(size_t *)which * EACH;
    char id[CALLID_BYTES_MAX + 1];
    for (size_t i = 0; i < EACH; i++) {
        callid_make(&shared, NOW + (int64_t)(i / 1000), id);
        memcpy(made[begin + i], id, ID_BYTES);
    }
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strncmp(a, b, ID_BYTES);
}

static void threads_never_share_an_id(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    size_t number[THREADS];
    assert_int_equal(callid_maker_init(&shared, slice_text("p"), slice_text("n"), 9, 0xffff00, NOW),
                     STATUS_OK);
    for (size_t i = 0; i < THREADS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, make_many, &number[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    qsort(made, COUNT(made), ID_BYTES, by_text);
    for (size_t i = 1; i < COUNT(made); i++)
        assert_int_not_equal(by_text(made[i - 1], made[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_accepted),
        cmocka_unit_test(the_time_is_read_from_our_form_only),
        cmocka_unit_test(an_id_has_the_promised_form),
        cmocka_unit_test(a_full_counter_moves_the_time_on),
        cmocka_unit_test(strange_clocks_never_repeat),
        cmocka_unit_test(names_have_bounds),
        cmocka_unit_test(tags_of_living_processes_differ),
        cmocka_unit_test(threads_never_share_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
