/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "core/traceparent.h"

#define EXAMPLE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static void the_trace_goes_on_under_a_new_parent(void **state)
{
    (void)state;
    struct traceparent t, child;
    char text[TRACEPARENT_BYTES + 1], id[33];
    assert_int_equal(traceparent_parse(slice_text(" " EXAMPLE " "), &t), STATUS_OK);
    traceparent_print(&t, text);
    assert_string_equal(text, EXAMPLE);
    traceparent_child(&t, UINT64_C(0x0123456789abcdef), &child);
    traceparent_print(&child, text);
    assert_string_equal(text, "00-4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-01");
    traceparent_trace_id(&child, id);
    assert_string_equal(id, "4bf92f3577b34da6a3ce929d0e0e4736");
    traceparent_child(&t, 0, &t); /* zero is no id; the child may take its parent's place */
    traceparent_print(&t, text);
    assert_string_equal(text, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000001-01");
}

static void later_versions_are_read_as_far_as_known(void **state)
{
    (void)state;
    struct traceparent t;
    char text[TRACEPARENT_BYTES + 1];
    assert_int_equal(traceparent_parse(
                         slice_text("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-what-ever"), &t),
                     STATUS_OK);
    traceparent_child(&t, 7, &t);
    traceparent_print(&t, text);
    assert_string_equal(text, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-03");
    assert_int_equal(
        traceparent_parse(slice_text("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"), &t),
        STATUS_OK);
}

static void what_is_no_traceparent(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct traceparent t = {.flags = 77};
        if (traceparent_parse(slice_text(wrong[i]), &t) != STATUS_INVALID || t.flags != 77)
            fail_msg("was read: %s", wrong[i]);
    }
}

static void a_new_trace_is_never_zero(void **state)
{
    (void)state;
    struct traceparent t, again;
    char text[TRACEPARENT_BYTES + 1];
    static const uint64_t zero[3] = {0}, some[3] = {UINT64_C(0xfedcba9876543210), 2, 3};
    traceparent_new(zero, &t);
    traceparent_print(&t, text);
    assert_int_equal(traceparent_parse(slice_text(text), &again), STATUS_OK);
    traceparent_new(some, &t);
    traceparent_print(&t, text);
    assert_string_equal(text, "00-fedcba98765432100000000000000002-0000000000000003-02");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_trace_goes_on_under_a_new_parent),
        cmocka_unit_test(later_versions_are_read_as_far_as_known),
        cmocka_unit_test(what_is_no_traceparent),
        cmocka_unit_test(a_new_trace_is_never_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
