/* SPDX-License-Identifier: MIT
 *
 * The unresolved calls in memory, beside a plain array: adding, removing and finding at random, through several growths
 * and with few hashes, so that chains are long.
 */
#include "base/prng.h"
#include "store/unresolved.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define IDS    3000
#define HASHES 200
#define STEPS  40000
#define FOUND  64

static void it_agrees_with_an_array(void **state)
{
    (void)state;
    static uint64_t hash_of[IDS]; /* 0: not there */
    struct unresolved u = {0};
    struct prng prng;
    uint32_t count = 0;
    prng_seed(&prng, 11);
    for (int step = 0; step < STEPS; step++) {
        int64_t id = (int64_t)prng_below(&prng, IDS);
        /* First it fills up, later it empties. */
        if (!hash_of[id] && prng_below(&prng, 4) < (step < STEPS / 2 ? 4u : 1u)) {
            hash_of[id] = (1 + prng_below(&prng, HASHES)) * 0x9e3779b97f4a7c15u;
            assert_int_equal(unresolved_add(&u, id, hash_of[id]), STATUS_OK);
            count++;
        } else if (prng_below(&prng, 2)) {
            unresolved_remove(&u, id); /* also what is not there */
            count -= hash_of[id] != 0;
            hash_of[id] = 0;
        }
        assert_int_equal(u.count, count);
        if (step % 97)
            continue;
        uint64_t hash = (1 + prng_below(&prng, HASHES)) * 0x9e3779b97f4a7c15u;
        int64_t ids[FOUND];
        size_t expected = 0, found = unresolved_find(&u, hash, ids, FOUND);
        for (int i = 0; i < IDS; i++)
            expected += hash_of[i] == hash;
        assert_int_equal(found, expected < FOUND ? expected : FOUND);
        for (size_t i = 0; i < found; i++)
            assert_true(hash_of[ids[i]] == hash);
    }
    unresolved_fini(&u);
}

static void texts_do_not_run_into_each_other(void **state)
{
    (void)state;
    struct digest32 print = {{1, 2, 3}};
    uint64_t a = unresolved_hash(slice_text("ab"), slice_text("c"), &print);
    assert_true(a != unresolved_hash(slice_text("a"), slice_text("bc"), &print));
    assert_true(a == unresolved_hash(slice_text("ab"), slice_text("c"), &print));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_agrees_with_an_array),
        cmocka_unit_test(texts_do_not_run_into_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
