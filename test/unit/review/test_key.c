/* SPDX-License-Identifier: MIT
 *
 * Which part of a key is new each time, in every dialect.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "review/key.h"

struct key_case {
    const char *template;
    enum key_dialect dialect;
    const char *part; /* NULL: stable */
};

static void volatile_parts_are_found(void **state)
{
    static const struct key_case cases[] = {
        {"order:{json.order_no}:create", KEY_BRACES, NULL},
        {"checkin:{json.user}:{date:+08:00}", KEY_BRACES, NULL},
        {"random-order:{json.order_no}", KEY_BRACES, NULL}, /* a word outside the braces is only a name */
        {"order:{uuid}", KEY_BRACES, "uuid"},
        {"order:{json.order_no}:{timestamp}", KEY_BRACES, "timestamp"},
        {"{header.X-Request-Id}", KEY_BRACES, "X-Request-Id"},
        {"{json.row_id}", KEY_BRACES, "row_id"},
        {"#{T(java.util.UUID).randomUUID()}", KEY_BRACES, "UUID"},
        {"${random.uuid}", KEY_BRACES, "random"},
        {"$http_idempotency_key", KEY_NGINX, NULL},
        {"order-$arg_no-$request_id", KEY_NGINX, "request_id"},
        {"${msec}", KEY_NGINX, "msec"},
        {"%[req.hdr(Idempotency-Key)]", KEY_HAPROXY, NULL},
        {"%[uuid()]", KEY_HAPROXY, "uuid"},
        {"%ID", KEY_HAPROXY, "ID"},
        {"%[date()]-%[src]", KEY_HAPROXY, "date"},
        {"%REQ(IDEMPOTENCY-KEY)%", KEY_ENVOY, NULL},
        {"%START_TIME%", KEY_ENVOY, "START_TIME"},
        {"order-$ORDER_NO", KEY_SHELL, NULL},
        {"order-$(uuidgen)", KEY_SHELL, "uuidgen"},
        {"order-$(date +%s)", KEY_SHELL, "date"},
        {"order-$RANDOM", KEY_SHELL, "RANDOM"},
        {"order-$$", KEY_SHELL, "pid"},
        {"unclosed-$(cat /proc/sys/kernel/random/uuid", KEY_SHELL, "random"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice part = {0};
        const char *why = key_volatile(slice_text(cases[i].template), cases[i].dialect, &part);
        if (!why != !cases[i].part || (why && !slice_is(part, cases[i].part)))
            print_error("%s: %.*s\n", cases[i].template, (int)part.len, part.data ? part.data : "");
        assert_int_equal(why != NULL, cases[i].part != NULL);
        if (why)
            assert_true(slice_is(part, cases[i].part));
    }
}

static void constants_are_told_from_templates(void **state)
{
    (void)state;
    assert_true(key_constant(slice_text("orders"), KEY_BRACES));
    assert_false(key_constant(slice_text("{json.no}"), KEY_BRACES));
    assert_true(key_constant(slice_text("50$ off"), KEY_NGINX));
    assert_false(key_constant(slice_text("$http_x"), KEY_NGINX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(volatile_parts_are_found),
        cmocka_unit_test(constants_are_told_from_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
