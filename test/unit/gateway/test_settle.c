/* SPDX-License-Identifier: MIT
 *
 * Rows that end by a receipt: what becomes of an ending that is written more than once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/settle.h"

#include <string.h>

/* The disk was full, and the ending of a bare receipt is worked out anew for each try: the document must not wrap the one
 * frozen for the try before. */
static void a_document_frozen_again_is_the_same(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct call_row row = {.id = 1,
                           .call_id = SLICE_LITERAL("call-1"),
                           .key = SLICE_LITERAL("order-1"),
                           .has_key = true,
                           .route = SLICE_LITERAL("orders"),
                           .state = STATE_SUCCESS,
                           .final = true,
                           .reason = REASON_RECEIPT,
                           .created_ms = 1710000000000,
                           .updated_ms = 1710000000000};
    row_freeze_document(&row, 1710000001000, &arena);
    assert_true(row.has_result && row.body_kept);
    assert_int_equal(row.result_status, 200);
    struct slice first = row.result_body;
    assert_true(first.len > 0);
    for (int tries = 0; tries < 20; tries++) {
        row_freeze_document(&row, 1710000001000, &arena);
        assert_true(row.body_kept);
        assert_true(slice_equal(row.result_body, first));
    }
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_document_frozen_again_is_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
