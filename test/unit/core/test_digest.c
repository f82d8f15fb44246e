/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "base/hex.h"
#include "core/digest.h"

static void check_sum(struct hasher *h, const char *expected)
{
    struct digest32 sum;
    char text[65] = {0};
    hasher_end(h, &sum);
    hex_write(text, sum.bytes, 32);
    assert_string_equal(text, expected);
}

static void sums_are_sha256_however_they_are_fed(void **state)
{
    (void)state;
    struct hasher h;
    assert_int_equal(hasher_init(&h), STATUS_OK);
    hasher_begin(&h);
    check_sum(&h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hasher_begin(&h);
    hasher_add(&h, "forgotten", 9);
    hasher_begin(&h);
    hasher_add(&h, "a", 1);
    hasher_add(&h, NULL, 0);
    hasher_add(&h, "bc", 2);
    check_sum(&h, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");

    /* A million times `a` (FIPS 180 example), in pieces around the size that is gathered. */
    static char a[1500];
    memset(a, 'a', sizeof a);
    static const size_t pieces[] = {1, 511, 512, 513, 1500};
    for (size_t i = 0; i < COUNT(pieces); i++) {
        hasher_begin(&h);
        for (size_t left = 1000000; left > 0;) {
            size_t piece = left < pieces[i] ? left : pieces[i];
            hasher_add(&h, a, piece);
            left -= piece;
        }
        check_sum(&h, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    hasher_fini(&h);
    hasher_fini(&h);
    hasher_fini(NULL);
}

static struct digest operation(struct hasher *h, const char *tenant, const char *route, const char *key)
{
    return digest_operation(h, slice_text(tenant), slice_text(route), slice_text(key));
}

static void parts_never_run_into_each_other(void **state)
{
    (void)state;
    struct hasher h;
    assert_int_equal(hasher_init(&h), STATUS_OK);
    struct digest all[] = {
        operation(&h, "a", "b", "c"),
        operation(&h, "ab", "", "c"),
        operation(&h, "", "ab", "c"),
        operation(&h, "a", "bc", ""),
        operation(&h, "b", "a", "c"),
        operation(&h, "a", "c", "b"),
        digest_call(&h, slice_text("a"), slice_text("bc")),
        digest_call(&h, slice_text("ab"), slice_text("c")),
        digest_call(&h, slice_text("a"), slice_text("b")),
    };
    for (size_t i = 0; i < COUNT(all); i++)
        for (size_t j = 0; j < COUNT(all); j++)
            assert_int_equal(digest_equal(&all[i], &all[j]), i == j);
    /* Parts that hold what would lie between parts if their lengths were not written. */
    static const char zeros[] = "b\0\0\0\0\0\0\0\0c";
    struct slice a = slice_text("a"), b = slice_text("b"), c = slice_text("c"), bc = slice_of(zeros, 10);
    struct digest left = digest_operation(&h, bc, a, a),
                  right = digest_operation(&h, b, slice_of("c\0\0\0\0\0\0\0\0a", 10), a);
    assert_false(digest_equal(&left, &right));
    left = digest_operation(&h, a, bc, c);
    right = digest_operation(&h, slice_of("a\0\0\0\0\0\0\0\0b", 10), c, c);
    assert_false(digest_equal(&left, &right));
    struct digest again = operation(&h, "a", "b", "c");
    assert_true(digest_equal(&again, &all[0]));
    hasher_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_sha256_however_they_are_fed),
        cmocka_unit_test(parts_never_run_into_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
