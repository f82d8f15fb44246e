/* SPDX-License-Identifier: MIT
 *
 * The store's secret: the same for everybody who opens the store, another one for another store, and a new one after a
 * restore.
 */
#include "../base/check.h"

#include "store/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static int64_t now(void *context)
{
    (void)context;
    return INT64_C(1772366400000);
}

static struct store *opened(const char *name)
{
    char url[128];
    struct buffer error = {0};
    struct store *store = NULL;
    snprintf(url, sizeof url, "sqlite:%s/%s", folder, name);
    struct store_settings settings = {.url = url, .owner = "test/1/1", .now_ms = now};
    if (store_open(&store, &settings, &error) != STATUS_OK)
        fail_msg("%s", buffer_cstring(&error));
    buffer_fini(&error);
    return store;
}

static bool same(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, STORE_SECRET_BYTES) == 0;
}

static void a_store_has_one_secret(void **state)
{
    (void)state;
    uint8_t first[STORE_SECRET_BYTES] = {0}, again[STORE_SECRET_BYTES], other[STORE_SECRET_BYTES];
    static const uint8_t zero[STORE_SECRET_BYTES];
    struct store *store = opened("one.db");
    assert_int_equal(store_secret(store, first), STATUS_OK);
    assert_false(same(first, zero));
    assert_int_equal(store_secret(store, again), STATUS_OK);
    assert_true(same(first, again));
    store_close(store);
    store = opened("one.db");
    assert_int_equal(store_secret(store, again), STATUS_OK);
    assert_true(same(first, again));
    store_close(store);
    store = opened("two.db");
    assert_int_equal(store_secret(store, other), STATUS_OK);
    assert_false(same(first, other));
    store_close(store);
}

static void a_restore_makes_a_new_one(void **state)
{
    (void)state;
    uint8_t before[STORE_SECRET_BYTES], after[STORE_SECRET_BYTES], again[STORE_SECRET_BYTES];
    struct store *store = opened("restored.db");
    assert_int_equal(store_secret(store, before), STATUS_OK);
    assert_int_equal(store_raise_covers_since(store, now(NULL) + 1), STATUS_OK);
    assert_int_equal(store_secret(store, after), STATUS_OK);
    assert_false(same(before, after));
    /* Also when the bound itself was that high already: it was restored twice. */
    assert_int_equal(store_raise_covers_since(store, now(NULL)), STATUS_OK);
    assert_int_equal(store_secret(store, again), STATUS_OK);
    assert_false(same(after, again));
    store_close(store);
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/samekey-secret-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_has_one_secret),
        cmocka_unit_test(a_restore_makes_a_new_one),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
