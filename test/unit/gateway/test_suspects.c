/* SPDX-License-Identifier: MIT
 *
 * Who swaps keys: one entry a client, counts by kind, the newest examples, texts cut, the memory bounded.
 */
#include "gateway/suspects.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static struct suspects *s;
static struct suspect *out;

static int begin(void **state)
{
    (void)state;
    out = calloc(SUSPECTS_MAX, sizeof *out);
    return out && suspects_new(&s) == STATUS_OK ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    suspects_free(s);
    free(out);
    return 0;
}

static struct suspicion seen(const char *address, const char *call_id, enum problem problem)
{
    return (struct suspicion){.address = slice_text(address),
                              .route = slice_text("orders"),
                              .problem = problem,
                              .call_id = slice_text(call_id),
                              .other_call_id = slice_text("other")};
}

static void note(const char *address, const char *call_id, enum problem problem, int64_t now_ms)
{
    struct suspicion one = seen(address, call_id, problem);
    suspects_note(s, &one, now_ms);
}

static void one_client_is_one_entry_with_its_counts_and_newest_examples(void **state)
{
    (void)state;
    char call[16];
    for (int i = 0; i < 10; i++) {
        snprintf(call, sizeof call, "c%d", i);
        note("10.0.0.1", call, i % 2 ? PROBLEM_SUSPECTED_DUPLICATE : PROBLEM_KEY_REUSED, 100 + i);
    }
    note("10.0.0.2", "x", PROBLEM_CALL_ID_REUSED, 500);
    assert_int_equal(suspects_copy(s, out), 2);
    assert_string_equal(out[0].address, "10.0.0.1"); /* most often first */
    assert_int_equal(out[0].count, 10);
    assert_int_equal(out[0].duplicates, 5);
    assert_int_equal(out[0].keys_reused, 5);
    assert_int_equal(out[0].ids_reused, 0);
    assert_int_equal(out[0].first_ms, 100);
    assert_int_equal(out[0].last_ms, 109);
    assert_string_equal(out[0].examples[(out[0].example_count - 1) % SUSPECT_EXAMPLES_MAX].call_id, "c9");
    assert_string_equal(out[0].routes[0], "orders");
    assert_string_equal(out[0].routes[1], "");
    assert_int_equal(out[1].ids_reused, 1);
}

static void credentials_and_tenants_tell_clients_apart(void **state)
{
    (void)state;
    struct suspicion one = seen("10.0.0.1", "c", PROBLEM_KEY_REUSED);
    suspects_note(s, &one, 1);
    one.tenant = slice_text("t2");
    suspects_note(s, &one, 2);
    one.has_credential = true;
    one.credential.bytes[0] = 1;
    suspects_note(s, &one, 3);
    one.address = slice_text("10.0.0.9"); /* the same credential from elsewhere */
    suspects_note(s, &one, 4);
    assert_int_equal(suspects_copy(s, out), 3);
    assert_int_equal(out[0].count, 2);
    assert_true(out[0].has_credential);
}

static void long_texts_are_cut_and_the_silent_go(void **state)
{
    (void)state;
    char address[32], text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct suspicion one = seen("10.0.0.1", text, PROBLEM_KEY_REUSED);
    one.tenant = slice_text(text);
    suspects_note(s, &one, 1);
    suspects_note(s, &one, 2); /* a cut tenant is the same client again */
    assert_int_equal(suspects_copy(s, out), 1);
    assert_int_equal(strlen(out[0].examples[0].call_id), SUSPECT_TEXT_BYTES - 1);
    for (int i = 0; i < SUSPECTS_MAX; i++) {
        snprintf(address, sizeof address, "10.1.%d.%d", i / 256, i % 256);
        note(address, "c", PROBLEM_KEY_REUSED, 10 + i);
    }
    assert_int_equal(suspects_copy(s, out), SUSPECTS_MAX);
    for (int i = 0; i < SUSPECTS_MAX; i++)
        assert_string_not_equal(out[i].address, "10.0.0.1");
    suspects_note(NULL, &one, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_client_is_one_entry_with_its_counts_and_newest_examples, begin,
                                        end),
        cmocka_unit_test_setup_teardown(credentials_and_tenants_tell_clients_apart, begin, end),
        cmocka_unit_test_setup_teardown(long_texts_are_cut_and_the_silent_go, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
