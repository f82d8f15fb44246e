/* SPDX-License-Identifier: MIT
 *
 * The address of the cache: every spelling that is taken, every one that is refused, with its remedy.
 */
#include "../base/check.h"

#include "core/cache_address.h"

static struct cache_address parsed(const char *text)
{
    struct cache_address a;
    struct buffer why = {0};
    memset(&a, 1, sizeof a);
    if (cache_address_parse(&a, slice_text(text), &why) != STATUS_OK)
        fail_msg("%s: %s", text, buffer_cstring(&why));
    buffer_fini(&why);
    return a;
}

static void addresses_that_are_taken(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *path, *user, *password;
        int port, db;
    } rows[] = {
        {"redis://127.0.0.1", "127.0.0.1", "", "", "", 6379, 0},
        {"redis://cache.example.test:7000/3", "cache.example.test", "", "", "", 7000, 3},
        {"redis://localhost/", "localhost", "", "", "", 6379, 0},
        {"redis://[::1]:7001", "::1", "", "", "", 7001, 0},
        {"redis://[::1]", "::1", "", "", "", 6379, 0},
        {"redis://:s3cret@h", "h", "", "", "s3cret", 6379, 0},
        {"redis://u:p%40%2f%25@h:1/2", "h", "", "u", "p@/%", 1, 2},
        {"redis://u:a@b@h", "h", "", "u", "a@b", 6379, 0},
        {"unix:/run/redis.sock", "", "/run/redis.sock", "", "", 0, 0},
        {"unix:/run/redis.sock?db=4", "", "/run/redis.sock", "", "", 0, 4},
        {"unix://u:p@/run/redis.sock?db=4", "", "/run/redis.sock", "u", "p", 0, 4},
        {"unix://:p@/run/redis@1.sock", "", "/run/redis@1.sock", "", "p", 0, 0},
        {"unix:///run/redis@1.sock", "", "/run/redis@1.sock", "", "", 0, 0},
        {"unix:///run/redis.sock", "", "/run/redis.sock", "", "", 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cache_address a = parsed(rows[i].text);
        assert_string_equal(a.host, rows[i].host);
        assert_string_equal(a.path, rows[i].path);
        assert_string_equal(a.user, rows[i].user);
        assert_string_equal(a.password, rows[i].password);
        assert_int_equal(a.port, rows[i].port);
        assert_int_equal(a.db, rows[i].db);
    }
}

static void addresses_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "redis://HOST"},
        {"redis:", "redis://HOST"},
        {"redis://", "redis://HOST"},
        {"redis://:6379", "redis://HOST"},
        {"redis://h:0", "redis://HOST"},
        {"redis://h:70000", "redis://HOST"},
        {"redis://h:port", "redis://HOST"},
        {"redis://h:6379:1", "redis://HOST"},
        {"redis://[::1", "redis://HOST"},
        {"redis://[::1]7", "redis://HOST"},
        {"redis://a b", "redis://HOST"},
        {"redis://h/x", "number of a database"},
        {"redis://h/1/2", "number of a database"},
        {"redis://h/70000", "number of a database"},
        {"redis://pw@h", "USER:PASSWORD"},
        {"redis://u:@h", "USER:PASSWORD"},
        {"redis://u:a/b@h", "number of a database"},
        {"redis://u:%4@h", "USER:PASSWORD"},
        {"redis://u:%00@h", "USER:PASSWORD"},
        {"rediss://h", "TLS"},
        {"unix:run/redis.sock", "begins with /"},
        {"unix:", "begins with /"},
        {"unix:/s?password=x", "?db=NUMBER"},
        {"unix:/s?db=", "?db=NUMBER"},
        {"unix:/"
         "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678"
         "9"
         "012345678",
         "107 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cache_address a = {.port = 17};
        struct buffer why = {0};
        if (cache_address_parse(&a, slice_text(rows[i].text), &why) != STATUS_INVALID)
            fail_msg("%s is taken", rows[i].text);
        if (!strstr(buffer_cstring(&why), rows[i].why))
            fail_msg("%s: %s", rows[i].text, buffer_cstring(&why));
        assert_int_equal(a.port, 17);
        buffer_fini(&why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_that_are_taken),
        cmocka_unit_test(addresses_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
