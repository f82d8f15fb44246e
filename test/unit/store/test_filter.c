/* SPDX-License-Identifier: MIT
 *
 * The filter of digests: never a "no" of what was added, few a "perhaps" of what was not, and bounded memory.
 */
#include "base/prng.h"
#include "store/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define ENTRIES 200000

static struct prng prng;

static uint32_t any_hash(void)
{
    return (uint32_t)prng_below(&prng, UINT64_C(1) << 32);
}

/* Of hashes that were not added, how many in a thousand are told as "perhaps". */
static int perhaps(const struct filter *f)
{
    int told = 0;
    for (int i = 0; i < ENTRIES; i++)
        told += filter_has(f, any_hash());
    return told / (ENTRIES / 1000);
}

static void what_was_added_is_never_denied(void **state)
{
    (void)state;
    static uint32_t hashes[ENTRIES];
    struct filter f;
    prng_seed(&prng, 7);
    assert_int_equal(filter_init(&f, ENTRIES), STATUS_OK);
    assert_int_equal(perhaps(&f), 0);
    for (int i = 0; i < ENTRIES; i++)
        filter_add(&f, hashes[i] = any_hash());
    for (int i = 0; i < ENTRIES; i++)
        assert_true(filter_has(&f, hashes[i]));
    assert_false(filter_full(&f));
    assert_in_range(perhaps(&f), 1, 25);
    for (int i = 0; i < 2 * ENTRIES; i++)
        filter_add(&f, any_hash());
    for (int i = 0; i < ENTRIES; i++)
        assert_true(filter_has(&f, hashes[i]));
    assert_true(filter_full(&f));
    filter_fini(&f);
    assert_null(f.words);
}

static void its_memory_is_bounded(void **state)
{
    (void)state;
    struct filter f;
    assert_int_equal(filter_init(&f, UINT64_C(1) << 40), STATUS_OK);
    assert_int_equal(f.word_count * sizeof *f.words, FILTER_BYTES_MAX);
    filter_add(&f, UINT32_MAX);
    filter_add(&f, 0);
    assert_true(filter_has(&f, UINT32_MAX) && filter_has(&f, 0));
    f.added = UINT64_C(1) << 40;
    assert_false(filter_full(&f)); /* no larger one may be made */
    filter_fini(&f);
    assert_int_equal(filter_init(&f, 0), STATUS_OK);
    assert_true(f.room > 0);
    filter_fini(&f);
}

static void a_hash_is_stored_the_same_everywhere(void **state)
{
    (void)state;
    struct digest digest = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
    uint8_t bytes[FILTER_HASH_BYTES];
    assert_int_equal(filter_hash(&digest), 0x100f0e0d);
    filter_hash_put(bytes, 0x100f0e0d);
    assert_memory_equal(bytes, digest.bytes + 12, sizeof bytes);
    assert_int_equal(filter_hash_at(bytes), 0x100f0e0d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_never_denied),
        cmocka_unit_test(its_memory_is_bounded),
        cmocka_unit_test(a_hash_is_stored_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
