/* SPDX-License-Identifier: MIT
 *
 * The scanner against jansson: on every line, whole, cut at every byte and with every byte changed, both agree on what is
 * whole; and what the scanner finds is what jansson finds.
 */
#include "forensics/json_line.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const lines[] = {
    "{\"ts\":\"2026-03-01T09:00:00Z\",\"callId\":\"c-1\",\"bizKey\":\"order:o-1\",\"attempt\":1,\"status\":"
    "201}",
    "{ \"a\" : { \"callId\" : \"deep\" } , \"list\" : [ 1 , \"]\" , { \"x\" : [ ] } ] , \"status\" : -1.5e3 "
    ", \"n\" : null }",
    "{\"callId\":\"c\\u002d1\",\"msg\":\"quote \\\" slash \\\\\",\"bizKey\":\"k\"}",
    "{\"a-long-name-that-is-longer-than-sixteen-bytes\":\"a long value, longer than sixteen bytes "
    "too\",\"callId\":\"c\"}",
    "{}",
    "{\"b\":true,\"c\":false,\"d\":[],\"e\":{}}",
};

static bool whole(const char *text, size_t len, struct fields *f, struct json_shape *shape)
{
    return json_line_read(shape, NULL, slice_of(text, len), f) == STATUS_OK;
}

static struct json_shape *fresh(void)
{
    struct json_shape *shape = calloc(1, sizeof *shape);
    assert_non_null(shape);
    return shape;
}

static void done(struct json_shape *shape)
{
    json_shape_fini(shape);
    free(shape);
}

static void test_fields(void **state)
{
    struct json_shape *shape = fresh();
    struct fields f;
    (void)state;
    assert_true(whole(lines[0], strlen(lines[0]), &f, shape));
    assert_true(slice_is(fields_get(&f, FIELD_CALL), "c-1"));
    assert_true(slice_is(fields_get(&f, FIELD_BUSINESS), "order:o-1"));
    assert_true(slice_is(fields_get(&f, FIELD_ATTEMPT), "1"));
    assert_true(whole(lines[1], strlen(lines[1]), &f, shape));
    assert_true(slice_is(fields_get(&f, FIELD_CALL), "deep"));
    assert_true(slice_is(fields_get(&f, FIELD_STATUS), "-1.5e3"));
    assert_true(whole(lines[2], strlen(lines[2]), &f, shape));
    assert_true(slice_is(fields_get(&f, FIELD_CALL), "c-1"));
    done(shape);
}

static void test_the_shape_is_a_guess_and_never_a_fact(void **state)
{
    struct json_shape *shape = fresh();
    struct fields f;
    (void)state;
    const char *one = "{\"callId\":\"c-1\",\"bizKey\":\"k-1\"}",
               *other = "{\"bizKey\":\"k-2\",\"callIdX\":\"no\",\"callId\":\"c-2\"}";
    for (int i = 0; i < 3; i++) {
        assert_true(whole(one, strlen(one), &f, shape));
        assert_true(slice_is(fields_get(&f, FIELD_CALL), "c-1"));
        assert_true(whole(other, strlen(other), &f, shape));
        assert_true(slice_is(fields_get(&f, FIELD_CALL), "c-2"));
        assert_true(slice_is(fields_get(&f, FIELD_BUSINESS), "k-2"));
    }
    done(shape);
}

/* The scanner may take a line that jansson refuses only where the fault is inside something it need not look into (the
 * digits of a number, an escape, a list); a line that jansson takes it takes too. */
static void compare(const char *text, size_t len, struct json_shape *shape)
{
    struct fields f;
    json_t *tree = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    bool ours = whole(text, len, &f, shape);
    if (json_is_object(tree) && !ours)
        fail_msg("refused, though it is whole: %.*s", (int)len, text);
    if (ours && json_is_object(tree)) {
        const json_t *call = json_object_get(tree, "callId");
        if (json_is_string(call) && fields_has(&f, FIELD_CALL) && f.rank[FIELD_CALL] == 1)
            assert_true(slice_equal(f.value[FIELD_CALL],
                                    slice_of(json_string_value(call), json_string_length(call))));
    }
    json_decref(tree);
}

static void test_cut_and_changed_anywhere(void **state)
{
    static const char bytes[] = "\"\\{}[]:, a\x01\n";
    struct json_shape *shape = fresh();
    struct fields f;
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        size_t len = strlen(lines[i]);
        for (size_t cut = 0; cut < len; cut++) {
            char *copy = malloc(cut + 1); /* of its very size, so that a read behind it is seen */
            assert_non_null(copy);
            memcpy(copy, lines[i], cut);
            if (whole(copy, cut, &f, shape))
                fail_msg("taken, though it is cut at %zu: %s", cut, lines[i]);
            compare(copy, cut, shape);
            free(copy);
        }
        for (size_t at = 0; at < len; at++) {
            for (size_t b = 0; b < sizeof bytes - 1; b++) {
                char *copy = malloc(len);
                assert_non_null(copy);
                memcpy(copy, lines[i], len);
                copy[at] = bytes[b];
                compare(copy, len, shape);
                free(copy);
            }
        }
    }
    done(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_the_shape_is_a_guess_and_never_a_fact),
        cmocka_unit_test(test_cut_and_changed_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
