/* SPDX-License-Identifier: MIT */
#include "conformance.c"
#include "scratch.h"

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("receipts.db"));
    struct store_settings settings = {.url = url, .owner = owner, .now_ms = test_clock};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("receipts.db");
}

int main(void)
{
    scratch_make();
    int failed = cmocka_run_group_tests(conformance, NULL, NULL);
    scratch_clean();
    return failed;
}
