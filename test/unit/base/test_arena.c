/* SPDX-License-Identifier: MIT */
#include "check.h"

#include "base/arena.h"

static void memory_is_apart_aligned_and_stays(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    unsigned char *given[200];
    for (size_t i = 0; i < COUNT(given); i++) {
        given[i] = arena_take(&a, 1 + i * 7);
        assert_non_null(given[i]);
        assert_int_equal((uintptr_t)given[i] % _Alignof(max_align_t), 0);
        memset(given[i], (int)i, 1 + i * 7);
    }
    for (size_t i = 0; i < COUNT(given); i++)
        for (size_t j = 0; j < 1 + i * 7; j++)
            assert_int_equal(given[i][j], i);
    arena_fini(&a);
}

static void the_bound_holds_and_a_refusal_changes_nothing(void **state)
{
    (void)state;
    struct arena a;
    struct slice copy = {0};
    arena_init(&a, 1000);
    assert_null(arena_take(&a, 1001));
    assert_null(arena_take(&a, SIZE_MAX));
    assert_int_equal(a.used, 0);
    assert_non_null(arena_take(&a, 900));
    assert_null(arena_take(&a, 200));
    assert_false(arena_copy(&a, slice_of("x", SIZE_MAX), &copy));
    assert_null(copy.data);
    assert_non_null(arena_take(&a, 16));
    arena_clear(&a);
    assert_int_equal(a.used, 0);
    unsigned char *zero = arena_take_zero(&a, 900);
    assert_non_null(zero);
    for (int i = 0; i < 900; i++)
        assert_int_equal(zero[i], 0);
    arena_fini(&a);
    arena_fini(&a);
    arena_fini(NULL);
}

static void a_copy_is_its_own_and_ends_with_nul(void **state)
{
    (void)state;
    struct arena a;
    struct slice copy;
    char text[] = "abc";
    arena_init(&a, 100);
    assert_true(arena_copy(&a, slice_of(text, 3), &copy));
    text[0] = 'x';
    assert_string_equal(copy.data, "abc");
    assert_int_equal(copy.len, 3);
    assert_true(arena_copy(&a, slice_of(NULL, 0), &copy));
    assert_string_equal(copy.data, "");
    arena_fini(&a);
}

static void a_steady_load_keeps_one_block(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    for (int i = 0; i < 100; i++)
        assert_non_null(arena_take(&a, 1000));
    arena_clear(&a);
    struct arena_block *kept = a.blocks;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 50; i++)
            assert_non_null(arena_take(&a, 1000));
        assert_ptr_equal(a.blocks, kept);
        arena_clear(&a);
    }
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_apart_aligned_and_stays),
        cmocka_unit_test(the_bound_holds_and_a_refusal_changes_nothing),
        cmocka_unit_test(a_copy_is_its_own_and_ends_with_nul),
        cmocka_unit_test(a_steady_load_keeps_one_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
