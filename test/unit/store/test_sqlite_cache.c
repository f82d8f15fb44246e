/* SPDX-License-Identifier: MIT
 *
 * The readers' page cache: a look-up in a file much larger than the cache reads its leaf and nothing else, the rows are the
 * right ones, and what another connection has written is seen.
 */
#include "base/prng.h"
#include "scratch.h"
#include "store/sqlite_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>

#define ROWS     200000 /* of some 200 bytes: 10000 leaves, 30 inner pages at least */
#define LOOK_UPS 20000

static bool installed;
static sqlite3 *writer, *reader;
static sqlite3_stmt *find;

static void open_both(bool inner)
{
    assert_int_equal(sqlite3_open(scratch_path("cache.db"), &writer), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            writer,
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, x);"
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)"
            " INSERT INTO t SELECT i * 7, printf('%0200d', i) FROM n; PRAGMA wal_checkpoint(TRUNCATE)",
            NULL, NULL, NULL),
        SQLITE_OK);
    sqlite_cache_keep_inner(inner);
    assert_int_equal(sqlite3_open(scratch_path("cache.db"), &reader), SQLITE_OK);
    sqlite_cache_keep_inner(false);
    assert_int_equal(sqlite3_exec(reader, "PRAGMA cache_size = 700", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(reader, "SELECT x FROM t WHERE id = ?1", -1, &find, NULL), SQLITE_OK);
}

static void close_both(void)
{
    sqlite3_finalize(find);
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
    scratch_remove("cache.db");
}

static int misses(void)
{
    int now = 0, most = 0;
    assert_int_equal(sqlite3_db_status(reader, SQLITE_DBSTATUS_CACHE_MISS, &now, &most, 1), SQLITE_OK);
    return now;
}

static void look_up(int64_t i, int64_t text)
{
    sqlite3_bind_int64(find, 1, i * 7);
    assert_int_equal(sqlite3_step(find), SQLITE_ROW);
    assert_int_equal(strtoll((const char *)sqlite3_column_text(find, 0), NULL, 10), text);
    sqlite3_reset(find);
}

static int misses_of_look_ups(void)
{
    struct prng prng;
    prng_seed(&prng, 3);
    for (int i = 0; i < 2 * LOOK_UPS; i++) {
        if (i == LOOK_UPS)
            (void)misses();
        int64_t n = 1 + (int64_t)prng_below(&prng, ROWS);
        look_up(n, n);
    }
    return misses();
}

static void inner_pages_stay(void **state)
{
    (void)state;
    assert_true(installed);
    open_both(true);
    assert_in_range(misses_of_look_ups(), LOOK_UPS / 2, LOOK_UPS + LOOK_UPS / 100);
    close_both();
}

static void what_others_wrote_is_seen(void **state)
{
    (void)state;
    open_both(true);
    (void)misses_of_look_ups();
    for (int i = 1; i < 50; i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "UPDATE t SET x = '%d' WHERE id = %d", -i, i * 1001 * 7);
        look_up(i * 1001, i * 1001);
        assert_int_equal(sqlite3_exec(writer, sql, NULL, NULL, NULL), SQLITE_OK);
        look_up(i * 1001, -i);
    }
    close_both();
}

static void other_connections_are_as_before(void **state)
{
    (void)state;
    open_both(false);
    assert_true(misses_of_look_ups() > LOOK_UPS / 2);
    int used = 0, most = 0;
    assert_int_equal(sqlite3_db_status(reader, SQLITE_DBSTATUS_CACHE_USED, &used, &most, 0), SQLITE_OK);
    assert_true(used > 600 * 4096); /* full of leaves */
    close_both();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inner_pages_stay),
        cmocka_unit_test(what_others_wrote_is_seen),
        cmocka_unit_test(other_connections_are_as_before),
    };
    scratch_make();
    installed = sqlite_cache_install();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
