/* SPDX-License-Identifier: MIT */
#include "gateway/node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void host_names_become_parts_of_call_ids(void **state)
{
    (void)state;
    static const struct {
        const char *host, *node;
    } table[] = {
        {"node07", "node07"},
        {"node07.example.org", "node07"},
        {"my host/1", "my-host-1"},
        {"n\xc3\xb6", "n--"},
        {"", "node"},
        {".local", "node"},
        {"0123456789012345678901234567890123456789", "01234567890123456789012345678901"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char out[NODE_BYTES_MAX + 1];
        assert_int_equal(node_clean(slice_text(table[i].host), out), strlen(table[i].node));
        assert_string_equal(out, table[i].node);
    }
}

static void a_maker_takes_the_host_when_no_node_is_named(void **state)
{
    (void)state;
    struct callid_maker m;
    char node[NODE_BYTES_MAX + 1], id[CALLID_BYTES_MAX + 1];
    size_t n = node_name(node);
    assert_int_equal(node_callid_maker(&m, slice_text("sk"), slice_text("")), STATUS_OK);
    size_t len = callid_make(&m, INT64_C(1710000000000), id);
    assert_string_equal(id + len - n, node);
    assert_int_equal(node_callid_maker(&m, slice_text("a b"), slice_text("")), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_names_become_parts_of_call_ids),
        cmocka_unit_test(a_maker_takes_the_host_when_no_node_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
