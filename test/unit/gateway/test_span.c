/* SPDX-License-Identifier: MIT */
#include "gateway/span.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct log_field nothing[] = {LOG_END};

static struct span plain(void)
{
    struct span span = {.kind = SPAN_CLIENT, .verb = "attempt", .route = "orders", .list = nothing};
    assert_int_equal(
        traceparent_parse(slice_text("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), &span.self),
        STATUS_OK);
    span.start_us = INT64_C(1710000000123456);
    span.end_us = INT64_C(1710000000123999);
    return span;
}

static json_t *written(const struct span *span)
{
    struct buffer out = {0};
    span_write(&out, span);
    assert_false(out.failed);
    json_t *root = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    buffer_fini(&out);
    return root;
}

static const char *text(const json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

static void ids_are_hexadecimal_and_times_are_nanoseconds(void **state)
{
    (void)state;
    struct span span = plain();
    json_t *root = written(&span);
    assert_string_equal(text(root, "traceId"), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_string_equal(text(root, "spanId"), "00f067aa0ba902b7");
    assert_null(json_object_get(root, "parentSpanId"));
    assert_string_equal(text(root, "name"), "attempt orders");
    assert_string_equal(text(root, "startTimeUnixNano"), "1710000000123456000");
    assert_string_equal(text(root, "endTimeUnixNano"), "1710000000123999000");
    assert_int_equal(json_integer_value(json_object_get(root, "kind")), 3);
    assert_null(json_object_get(root, "status"));
    json_decref(root);

    span.parent[7] = 0x2a;
    span.error = slice_text("no reply");
    root = written(&span);
    assert_string_equal(text(root, "parentSpanId"), "000000000000002a");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "status"), "code")), 2);
    assert_string_equal(text(json_object_get(root, "status"), "message"), "no reply");
    json_decref(root);
}

static void what_a_caller_sent_stays_a_value(void **state)
{
    (void)state;
    struct span span = plain();
    char *huge = malloc(3 * LOG_TEXT_BYTES_MAX);
    assert_non_null(huge);
    memset(huge, 'x', 3 * LOG_TEXT_BYTES_MAX);
    const struct log_field list[] = {
        LOG_STRING("samekey.key", "\"},{\"a\n\xff<\\"),
        LOG_TEXT("samekey.huge", slice_of(huge, 3 * LOG_TEXT_BYTES_MAX)),
        LOG_STRING("samekey.empty", ""),
        LOG_NUMBER("samekey.number", INT64_MAX),
        LOG_BOOL("samekey.yes", true),
        LOG_END,
    };
    span.list = list;
    json_t *root = written(&span);
    const json_t *found = json_object_get(root, "attributes");
    assert_int_equal(json_array_size(found), 4); /* the empty one is left out */
    assert_string_equal(text(json_array_get(found, 0), "key"), "samekey.key");
    assert_string_equal(text(json_object_get(json_array_get(found, 0), "value"), "stringValue"),
                        "\"},{\"a\n\xef\xbf\xbd<\\");
    assert_int_equal(json_string_length(
                         json_object_get(json_object_get(json_array_get(found, 1), "value"), "stringValue")),
                     LOG_TEXT_BYTES_MAX);
    assert_string_equal(text(json_object_get(json_array_get(found, 2), "value"), "intValue"),
                        "9223372036854775807");
    assert_true(
        json_is_true(json_object_get(json_object_get(json_array_get(found, 3), "value"), "boolValue")));
    json_decref(root);
    free(huge);
}

static void a_call_has_one_span_id_wherever_it_is_named(void **state)
{
    (void)state;
    struct call_row row = {.trace_id = SLICE_LITERAL("4bf92f3577b34da6a3ce929d0e0e4736")};
    struct traceparent first, later;
    memset(&first, 0, sizeof first);
    for (size_t i = 0; i < sizeof row.call_digest.bytes; i++)
        row.call_digest.bytes[i] = (uint8_t)(i + 1);
    span_id_of_call(&row.call_digest, first.parent_id);
    assert_true(span_context_of_row(&row, &later));
    assert_memory_equal(first.parent_id, later.parent_id, SPAN_ID_BYTES);
    assert_int_equal(later.flags, 1);

    row.trace_id = slice_text("");
    assert_false(span_context_of_row(&row, &later));

    /* Zero bytes mean "no span". */
    static const uint8_t zero[SPAN_ID_BYTES];
    memset(&row.call_digest, 0, sizeof row.call_digest);
    span_id_of_call(&row.call_digest, first.parent_id);
    assert_memory_not_equal(first.parent_id, zero, SPAN_ID_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_hexadecimal_and_times_are_nanoseconds),
        cmocka_unit_test(what_a_caller_sent_stays_a_value),
        cmocka_unit_test(a_call_has_one_span_id_wherever_it_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
