/* SPDX-License-Identifier: MIT
 * The console's files inside the program: found by their exact path, whole, and named by their content. */
#include "gateway/console.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void only_exact_paths_are_found(void **state)
{
    (void)state;
    static const char *const strange[] = {
        "", "/console.jsx", "/console", "//", "/../console.js", "/CONSOLE.JS", "/index.html"};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
        assert_null(console_find(slice_text(strange[i])));
    for (size_t i = 0; i < console_assets_count; i++)
        assert_ptr_equal(console_find(slice_text(console_assets[i].path)), &console_assets[i]);
    assert_int_equal(console_find(slice_text("/")) != NULL, console_assets_count > 0);
}

static void every_file_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < console_assets_count; i++) {
        const struct console_asset *a = &console_assets[i];
        size_t quoted = strlen(a->etag);
        assert_true(a->path[0] == '/' && strchr(a->type, '/') && a->size > 18);
        assert_true(quoted == 34 && a->etag[0] == '"' && a->etag[33] == '"');
        if (a->gzip)
            assert_memory_equal(a->bytes, "\x1f\x8b\x08", 3);
        for (size_t j = 0; j < i; j++)
            assert_true(strcmp(a->path, console_assets[j].path) != 0 &&
                        strcmp(a->etag, console_assets[j].etag) != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_exact_paths_are_found),
                                       cmocka_unit_test(every_file_is_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
