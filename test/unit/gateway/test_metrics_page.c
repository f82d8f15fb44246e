/* SPDX-License-Identifier: MIT
 *
 * docs/metrics.md is made from metrics.def and must be what the table says now. `SAMEKEY_WRITE_DOCS=1` in the
 * environment writes the page anew instead of comparing it. */
#include "gateway/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define PAGE SAMEKEY_SOURCE_DIR "/docs/metrics.md"

static const char intro[] = "# Metrics\n\n"
                            "`GET /metrics` on the admin listener, Prometheus text format. This page is made "
                            "from the metrics table; change\n"
                            "`src/gateway/metrics.def`, not this page, and write it anew with "
                            "`SAMEKEY_WRITE_DOCS=1` and the unit test\n"
                            "`test_metrics_page`.\n\n"
                            "Labels come from closed sets: `route` is a configured name, `outcome` what an "
                            "attempt or an answer proved,\n"
                            "`problem` a slug of [errors.md](errors.md), `answer` how a receipt question "
                            "ended, `state` a receipt's state,\n"
                            "`layer` where a receipt was told from: `memory` (ended ones of this process), "
                            "`redis`, `running` (a read that\nseveral askers shared).\n"
                            "Nothing a caller sends becomes a label. What to alert on: "
                            "[operations.md](operations.md#metrics-to-alert-on).\n\n";

static void page_is_the_table(void **state)
{
    (void)state;
    struct buffer page = {0}, found = {0};
    buffer_text(&page, intro);
    metrics_document(&page);
    if (getenv("SAMEKEY_WRITE_DOCS")) {
        FILE *out = fopen(PAGE, "w");
        assert_non_null(out);
        assert_int_equal(fwrite(page.data, 1, page.len, out), page.len);
        assert_int_equal(fclose(out), 0);
    }
    FILE *in = fopen(PAGE, "r");
    assert_non_null(in);
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, in)) > 0;)
        buffer_append(&found, piece, n);
    fclose(in);
    assert_string_equal(buffer_cstring(&page), buffer_cstring(&found));
    buffer_fini(&page);
    buffer_fini(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(page_is_the_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
