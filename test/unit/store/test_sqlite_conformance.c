/* SPDX-License-Identifier: MIT */
#include "conformance.c"
#include "scratch.h"

/* The whole suite is run with identities in memory, and with all of them on their way to the index all the time. */
static size_t tail_entries;

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("receipts.db"));
    struct store_settings settings = {
        .url = url, .owner = owner, .now_ms = test_clock, .tail_entries = tail_entries};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("receipts.db");
}

int main(void)
{
    scratch_make();
    int failed = cmocka_run_group_tests_name("identities in memory", conformance, NULL, NULL);
    tail_entries = 1;
    failed += cmocka_run_group_tests_name("identities one by one to the index", conformance, NULL, NULL);
    tail_entries = 5;
    failed += cmocka_run_group_tests_name("identities in fives to the index", conformance, NULL, NULL);
    scratch_clean();
    return failed;
}
