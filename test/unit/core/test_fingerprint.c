/* SPDX-License-Identifier: MIT */
#include "../base/check.h"

#include "core/fingerprint.h"

#include <time.h>

struct request {
    const char *method, *target, *type, *encoding, *body;
};

static struct digest32 print_of(const struct request *r, const struct fingerprint_rules *rules)
{
    struct fingerprinter f;
    struct digest32 sum = {{0}};
    struct canon_fault fault = {0};
    assert_int_equal(fingerprinter_init(&f), STATUS_OK);
    struct fingerprint_input in = {slice_text(r->method), slice_text(r->target), slice_text(r->type),
                                   slice_text(r->encoding), slice_text(r->body)};
    enum status status = fingerprint_make(&f, FINGERPRINT_VERSION, rules, &in, &sum, &fault);
    if (status != STATUS_OK)
        fail_msg("%s: %s at %zu", r->body, fault.message, fault.position);
    fingerprinter_fini(&f);
    return sum;
}

static bool same(struct request a, struct request b)
{
    struct digest32 x = print_of(&a, NULL), y = print_of(&b, NULL);
    return digest32_equal(&x, &y);
}

#define POST(type, body) ((struct request){"POST", "/orders", type, "", body})
#define JSON(body)       POST("application/json", body)
#define FORM(mark, body) POST("multipart/form-data; boundary=" mark, body)

static void method_path_and_query_count_as_received(void **state)
{
    (void)state;
    struct request a = {"POST", "/orders?a=1&b=2", "", "", ""}, b = a;
    assert_true(same(a, b));
    b.method = "PATCH";
    assert_false(same(a, b));
    b = a;
    b.target = "/orders?b=2&a=1";
    assert_false(same(a, b));
    b.target = "/%6Frders?a=1&b=2";
    assert_false(same(a, b));
    assert_false(
        same((struct request){"POST", "/a", "", "", "b"}, (struct request){"POST", "/ab", "", "", ""}));
}

static void json_counts_by_meaning(void **state)
{
    (void)state;
    assert_true(same(JSON("{\"a\":1,\"b\":2}"), JSON("{\"b\":2.0, \"a\":1}")));
    assert_false(same(JSON("{\"a\":1}"), JSON("{\"a\":2}")));
    assert_true(same(JSON("[1]"), POST("Application/JSON ; charset=utf-8", "[ 1 ]")));
    assert_true(same(JSON("[1]"), POST("application/merge-patch+json", "[ 1 ]")));
    assert_false(same(JSON("[1]"), POST("text/plain", "[1]")));
    assert_false(same(POST("text/plain", "[1]"), POST("text/plain", "[ 1]")));
    assert_false(same(POST("application/json-seq", "[1]"), POST("application/json-seq", "[ 1]")));
    assert_false(same(POST("", "[1]"), POST("", "[ 1]")));
    assert_true(same(JSON(""), POST("", ""))); /* no body, whatever the type says */
    assert_true(same((struct request){"POST", "/", "application/json", "identity", "[1]"},
                     (struct request){"POST", "/", "application/json", "", "[ 1]"}));
    /* Encoded bytes are bytes. */
    assert_false(same((struct request){"POST", "/", "application/json", "gzip", "[1]"},
                      (struct request){"POST", "/", "application/json", "gzip", "[ 1]"}));
}

static void a_form_counts_by_its_parts(void **state)
{
    (void)state;
    struct request a = FORM("x", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n");
    assert_true(same(
        a, FORM("\"a b\"", "--a b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--a b--\r\n")));
    assert_true(same(
        a, FORM("y; charset=utf-8", "--y\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--y--")));
    assert_true(same(a, POST("Multipart/Form-Data; q=\"boundary=z;\" ;Boundary=x",
                             "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n")));
    assert_false(
        same(a, FORM("x", "--x\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n1\r\n--x--\r\n")));
    assert_false(
        same(a, FORM("x", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n2\r\n--x--\r\n")));
    assert_false(same(FORM("x", "--x\r\n\r\n1\r\n--x\r\n\r\n2\r\n--x--"),
                      FORM("x", "--x\r\n\r\n2\r\n--x\r\n\r\n1\r\n--x--")));
    assert_false(
        same(FORM("x", "--x\r\n\r\n12\r\n--x--"), FORM("x", "--x\r\n\r\n1\r\n--x\r\n\r\n2\r\n--x--")));
    assert_true(same(POST("multipart/mixed; boundary=x", "--x\r\n\r\n1\r\n--x--"),
                     POST("Multipart/Related; boundary=y", "--y\r\n\r\n1\r\n--y--")));
    assert_true(
        same(FORM("x", "--x\r\n\r\n\r\n--x--"), FORM("yy", "--yy\r\n\r\n\r\n--yy--"))); /* an empty part */
}

static void a_form_that_breaks_its_boundary_counts_by_bytes(void **state)
{
    (void)state;
    static const char *const bodies[][2] = {
        {"--x\r\n\r\n1\r\n--x", "--y\r\n\r\n1\r\n--y"},                     /* not ended */
        {"--x\r\n\r\n1\r\n--xz\r\n--x--", "--y\r\n\r\n1\r\n--yz\r\n--y--"}, /* a delimiter that goes on */
        {"a--x\r\n\r\n1\r\n--x--", "a--y\r\n\r\n1\r\n--y--"},               /* something in front */
        {"--x\r\n\r\n1\r\n--x--\r\nb", "--y\r\n\r\n1\r\n--y--\r\nb"},       /* something behind */
        {"--x\r\nno blank line\r\n--x--", "--y\r\nno blank line\r\n--y--"},
    };
    for (size_t i = 0; i < COUNT(bodies); i++) {
        assert_true(same(FORM("x", bodies[i][0]), FORM("x", bodies[i][0])));
        assert_false(same(FORM("x", bodies[i][0]), FORM("y", bodies[i][1])));
    }
    assert_false(same(POST("multipart/form-data", "--x--"), POST("multipart/form-data", "--y--")));
    assert_false(same(POST("multipart/form-data; boundary=\"x", "--x--"),
                      POST("multipart/form-data; boundary=\"y", "--y--")));
}

static void faults_and_versions(void **state)
{
    (void)state;
    struct fingerprinter f;
    struct digest32 sum;
    struct canon_fault fault = {0};
    assert_int_equal(fingerprinter_init(&f), STATUS_OK);
    struct fingerprint_input in = {SLICE_LITERAL("POST"),
                                   SLICE_LITERAL("/"),
                                   SLICE_LITERAL("application/json"),
                                   {NULL, 0},
                                   SLICE_LITERAL("{\"a\":1,\"a\":2}")};
    assert_int_equal(fingerprint_make(&f, 1, NULL, &in, &sum, &fault), STATUS_INVALID);
    assert_int_equal(fault.position, 7);
    in.body = slice_text(" ");
    assert_int_equal(fingerprint_make(&f, 1, NULL, &in, &sum, &fault), STATUS_INVALID);
    in.body = slice_text("1");
    assert_int_equal(fingerprint_make(&f, 2, NULL, &in, &sum, &fault), STATUS_NOT_FOUND);
    assert_int_equal(fingerprint_make(&f, 0, NULL, &in, &sum, &fault), STATUS_NOT_FOUND);
    assert_int_equal(fingerprint_make(&f, 1, NULL, &in, &sum, &fault), STATUS_OK);
    fingerprinter_fini(&f);
    fingerprinter_fini(NULL);
}

static void rules_are_kept_as_text(void **state)
{
    (void)state;
    struct fingerprint_rules r = {0}, again = {0};
    const char *why = NULL;
    struct slice where = {0};
    struct slice ignore[] = {SLICE_LITERAL("json.sent_at"), SLICE_LITERAL("json.nonce"),
                             SLICE_LITERAL("json.sent_at")};
    assert_int_equal(fingerprint_rules_compile(&r, slice_text("body"), ignore, 3, &why, &where), STATUS_OK);
    assert_true(slice_is(fingerprint_rules_text(&r), "ignore=json.nonce,json.sent_at"));
    struct request a = JSON("{\"a\":1,\"sent_at\":1}"), b = JSON("{\"nonce\":1,\"a\":1}"),
                   c = JSON("{\"a\":2}");
    struct digest32 x = print_of(&a, &r), y = print_of(&b, &r), z = print_of(&c, &r);
    assert_true(digest32_equal(&x, &y));
    assert_false(digest32_equal(&x, &z));

    assert_int_equal(fingerprint_rules_parse(&again, fingerprint_rules_text(&r)), STATUS_OK);
    y = print_of(&b, &again);
    assert_true(digest32_equal(&x, &y));
    fingerprint_rules_fini(&again);
    fingerprint_rules_fini(&r);

    assert_int_equal(
        fingerprint_rules_compile(&r, slice_text(" json.b , json.a.ignore=x"), ignore, 1, &why, &where),
        STATUS_OK);
    assert_true(slice_is(fingerprint_rules_text(&r), "compare=json.a.ignore=x,json.b ignore=json.sent_at"));
    assert_int_equal(r.rules.compare_count, 2);
    assert_int_equal(r.rules.ignore_count, 1);
    assert_true(slice_is(r.rules.ignore[0].text, "sent_at"));
    assert_true(slice_is(r.rules.compare[0].text, "a.ignore=x"));
    assert_int_equal(fingerprint_rules_parse(&again, fingerprint_rules_text(&r)), STATUS_OK);
    assert_true(slice_equal(fingerprint_rules_text(&again), fingerprint_rules_text(&r)));
    fingerprint_rules_fini(&again);
    fingerprint_rules_fini(&r);

    assert_int_equal(fingerprint_rules_compile(&r, slice_text(""), NULL, 0, &why, &where), STATUS_OK);
    assert_int_equal(fingerprint_rules_text(&r).len, 0);
    fingerprint_rules_fini(&r);
    assert_int_equal(fingerprint_rules_parse(&r, slice_text("")), STATUS_OK);
    fingerprint_rules_fini(&r);
    fingerprint_rules_fini(NULL);
}

static void wrong_rules_are_told(void **state)
{
    (void)state;
    static const char *const wrong[] = {"amount",  "json.",       "json.a,,json.b", "json.a b",
                                        "json.a,", "body,json.a", "json..a"};
    struct fingerprint_rules r = {0};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const char *why = NULL;
        struct slice where = {0};
        assert_int_equal(fingerprint_rules_compile(&r, slice_text(wrong[i]), NULL, 0, &why, &where),
                         STATUS_INVALID);
        assert_non_null(why);
    }
    static const char *const foreign[] = {"x",
                                          "compare=",
                                          "ignore=json.b,json.a",
                                          "ignore=json.a compare=json.b",
                                          "ignore=json.a ",
                                          "ignore=a",
                                          "compare=json.a  ignore=json.b"};
    for (size_t i = 0; i < COUNT(foreign); i++)
        if (fingerprint_rules_parse(&r, slice_text(foreign[i])) != STATUS_INVALID)
            fail_msg("was read: %s", foreign[i]);
    assert_null(r.text.data);

    struct buffer many = {0};
    const char *why = NULL;
    for (int i = 0; i < 33; i++)
        buffer_format(&many, "%sjson.m%d", i ? "," : "", i);
    assert_int_equal(fingerprint_rules_compile(&r, buffer_view(&many), NULL, 0, &why, NULL), STATUS_FULL);
    buffer_fini(&many);
}

/* Not a bound to fail on in a slow place: prints what one fingerprint costs here. */
static void what_it_costs(void **state)
{
    (void)state;
    static const char body[] =
        "{\"order_no\":\"o-1710000000000\",\"amount\":129.90,\"currency\":\"EUR\",\"customer\":{\"id\":4711,"
        "\"name\":"
        "\"Ada "
        "Lovelace\"},\"items\":[{\"sku\":\"A-1\",\"count\":2},{\"sku\":\"B-2\",\"count\":1}],\"note\":null}";
    struct fingerprinter f;
    struct canon_fault fault;
    struct digest32 sum;
    struct timespec begin, end;
    enum { ROUNDS = 20000 };
    assert_int_equal(fingerprinter_init(&f), STATUS_OK);
    struct fingerprint_input in = {SLICE_LITERAL("POST"),
                                   SLICE_LITERAL("/orders"),
                                   SLICE_LITERAL("application/json"),
                                   {NULL, 0},
                                   slice_of(body, sizeof body - 1)};
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < ROUNDS; i++)
        assert_int_equal(fingerprint_make(&f, 1, NULL, &in, &sum, &fault), STATUS_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    print_message("%zu bytes of JSON: %.2f us a fingerprint\n", sizeof body - 1, ns / ROUNDS / 1000);
    fingerprinter_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(method_path_and_query_count_as_received),
        cmocka_unit_test(json_counts_by_meaning),
        cmocka_unit_test(a_form_counts_by_its_parts),
        cmocka_unit_test(a_form_that_breaks_its_boundary_counts_by_bytes),
        cmocka_unit_test(faults_and_versions),
        cmocka_unit_test(rules_are_kept_as_text),
        cmocka_unit_test(wrong_rules_are_told),
        cmocka_unit_test(what_it_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
