/* SPDX-License-Identifier: MIT
 *
 * Sketches: nothing that was added is denied, strangers are denied nearly always, and the hash is the one on disk.
 */
#include "store/sketch.h"

#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static const enum sketch_kind kinds[] = {SKETCH_CALL_ID, SKETCH_KEY, SKETCH_BUSINESS_REF, SKETCH_TRACE_ID};
#define KINDS (sizeof kinds / sizeof *kinds)

static struct slice text_of(char *memory, size_t len, unsigned row, unsigned kind)
{
    snprintf(memory, len, "text-%u-%u", kind, row);
    return slice_text(memory);
}

static void fill(struct sketch *sketch)
{
    char text[64];
    memset(sketch, 0, sizeof *sketch);
    for (unsigned row = 0; row < SKETCH_ROWS; row++)
        for (unsigned k = 0; k < KINDS; k++)
            sketch_add(sketch, kinds[k], text_of(text, sizeof text, row, k));
}

static bool has(const struct sketch *sketch, enum sketch_kind kind, struct slice text)
{
    struct sketch_term term = sketch_term(kind, text);
    return sketch_may_have(sketch->bits, &term);
}

static void what_was_added_is_never_denied(void **state)
{
    (void)state;
    struct sketch sketch;
    char text[64];
    fill(&sketch);
    for (unsigned row = 0; row < SKETCH_ROWS; row++)
        for (unsigned k = 0; k < KINDS; k++)
            assert_true(has(&sketch, kinds[k], text_of(text, sizeof text, row, k)));
    sketch_add(&sketch, SKETCH_TENANT, slice_of("", 0));
    assert_true(has(&sketch, SKETCH_TENANT, slice_of("", 0)));
}

static void strangers_are_denied_nearly_always(void **state)
{
    (void)state;
    struct sketch sketch;
    char text[64];
    unsigned taken = 0, asked = 0;
    fill(&sketch);
    for (unsigned row = SKETCH_ROWS; row < SKETCH_ROWS + 10000; row++)
        for (unsigned k = 0; k < KINDS; k++, asked++)
            taken += has(&sketch, kinds[k], text_of(text, sizeof text, row, k));
    assert_true(taken * 200 < asked); /* expected: one in about 700 */
}

static void a_text_of_one_kind_is_none_of_another(void **state)
{
    (void)state;
    struct sketch sketch = {{0}};
    sketch_add(&sketch, SKETCH_KEY, slice_text("k-1"));
    assert_true(has(&sketch, SKETCH_KEY, slice_text("k-1")));
    assert_false(has(&sketch, SKETCH_TRACE_ID, slice_text("k-1")));
    assert_false(has(&sketch, SKETCH_KEY, slice_text("k-2")));
    assert_false(has(&sketch, SKETCH_KEY, slice_of("", 0)));
}

/* Sketches of an earlier version must be read by a later one. */
static void the_hash_is_the_one_on_disk(void **state)
{
    (void)state;
    struct sketch_term term = sketch_term(SKETCH_KEY, slice_text("order-42"));
    assert_int_equal(term.first, UINT64_C(0xe0390c4db554e487));
    assert_int_equal(term.step, UINT64_C(0x2c47514b4170a72f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_never_denied),
        cmocka_unit_test(strangers_are_denied_nearly_always),
        cmocka_unit_test(a_text_of_one_kind_is_none_of_another),
        cmocka_unit_test(the_hash_is_the_one_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
