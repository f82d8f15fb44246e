/* SPDX-License-Identifier: MIT
 *
 * The gathered log over a VFS that counts what reaches the system, and fails when told to. Files are real.
 */
#include "store/sqlite_log.h"

#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define BASE "counting"

/* ---- a base that counts writes to logs ---- */

static struct {
    sqlite3_vfs vfs, *real;
    sqlite3_io_methods log_methods;
    const sqlite3_io_methods *real_methods;
    unsigned writes, fail_after; /* fail_after: 0 is never, else this write and all later ones fail */
    int largest;
} base;

static int base_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 at)
{
    base.writes++;
    base.largest = len > base.largest ? len : base.largest;
    if (base.fail_after && base.writes >= base.fail_after)
        return SQLITE_FULL;
    return base.real_methods->xWrite(file, data, len, at);
}

static int base_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    int rc = base.real->xOpen(base.real, name, file, flags, out);
    if (rc == SQLITE_OK && (flags & SQLITE_OPEN_WAL)) {
        base.real_methods = file->pMethods;
        base.log_methods = *file->pMethods;
        base.log_methods.xWrite = base_write;
        file->pMethods = &base.log_methods;
    }
    return rc;
}

static sqlite3 *open_gathered(const char *path, const char *more)
{
    if (!base.real) {
        base.real = sqlite3_vfs_find(NULL);
        base.vfs = *base.real;
        base.vfs.zName = BASE;
        base.vfs.xOpen = base_open;
        assert_int_equal(sqlite3_vfs_register(&base.vfs, 0), SQLITE_OK);
    }
    base.writes = base.fail_after = 0;
    base.largest = 0;
    sqlite3 *db;
    const char *name = sqlite_log_vfs(BASE);
    assert_string_equal(name, BASE "+log");
    assert_ptr_equal(sqlite_log_vfs(BASE), name); /* once, however often it is asked for */
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, name), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, more, NULL, NULL, NULL), SQLITE_OK);
    return db;
}

static int64_t number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return n;
}

static void whole(sqlite3 *db)
{
    assert_int_equal(number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
                     0);
}

#define TABLE "CREATE TABLE IF NOT EXISTS t(k BLOB PRIMARY KEY, v) WITHOUT ROWID;"
#define ROWS(n)                                                                                              \
    "INSERT INTO t WITH RECURSIVE c(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM c WHERE i < " #n            \
    ") SELECT randomblob(16), randomblob(200) FROM c"

static void a_commit_is_one_write_and_readers_see_it(void **state)
{
    (void)state;
    const char *path = scratch_path("log.db");
    sqlite3 *db = open_gathered(path, "PRAGMA cache_spill = OFF;" TABLE), *reader;
    assert_int_equal(sqlite3_open(path, &reader), SQLITE_OK);
    for (int i = 1; i <= 50; i++) {
        unsigned before = base.writes;
        assert_int_equal(sqlite3_exec(db, "BEGIN;" ROWS(40) ";COMMIT", NULL, NULL, NULL), SQLITE_OK);
        /* Forty rows in random places are some eighty writes of SQLite; three of these may pass the largest write. */
        assert_in_range(base.writes - before, 1, 3);
        assert_int_equal(number(reader, "SELECT count(*) FROM t"),
                         40 * i); /* another file handle: from the system */
    }
    assert_true(base.largest > 8192 && base.largest <= 0x1ffff);
    assert_int_equal(sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, ROWS(5), NULL, NULL, NULL), SQLITE_OK); /* the log begins anew */
    whole(reader);
    assert_int_equal(number(reader, "SELECT count(*) FROM t"), 2005);
    sqlite3_close(reader);
    sqlite3_close(db);
}

/* Pages that leave a small cache before the COMMIT are read back, and written anew where they stand. */
static void a_transaction_larger_than_the_cache_is_whole(void **state)
{
    (void)state;
    const char *path = scratch_path("log.db");
    sqlite3 *db = open_gathered(path, "PRAGMA cache_size = 10;" TABLE), *reader;
    assert_int_equal(
        sqlite3_exec(db, "BEGIN;" ROWS(3000) ";UPDATE t SET v = 'x';DELETE FROM t WHERE k < x'40';COMMIT",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN;" ROWS(2000) ";ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "BEGIN;" ROWS(2000) ";UPDATE t SET v = 'y' WHERE v <> 'x';COMMIT", NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_open(path, &reader), SQLITE_OK);
    whole(reader);
    assert_int_equal(number(reader, "SELECT count(*) FROM t WHERE v = 'y'"), 2000);
    assert_int_equal(number(reader, "SELECT count(*) FROM t WHERE v NOT IN ('x', 'y')"), 0);
    assert_int_equal(number(reader, "SELECT count(*) FROM t"), number(db, "SELECT count(*) FROM t"));
    sqlite3_close(reader);
    sqlite3_close(db);
}

static void a_write_that_fails_fails_the_commit(void **state)
{
    (void)state;
    const char *path = scratch_path("log.db");
    sqlite3 *db = open_gathered(path, "PRAGMA cache_spill = OFF;" TABLE ROWS(100)), *reader;
    assert_int_equal(sqlite3_open(path, &reader), SQLITE_OK);
    base.fail_after = base.writes + 1;
    assert_int_equal(sqlite3_exec(db, "BEGIN;" ROWS(400), NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_FULL);
    assert_int_equal(number(reader, "SELECT count(*) FROM t"), 100);
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    base.fail_after = 0;
    assert_int_equal(sqlite3_exec(db, "BEGIN;" ROWS(7) ";COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(number(reader, "SELECT count(*) FROM t"), 107);
    whole(reader);
    sqlite3_close(reader);
    sqlite3_close(db);
}

static void a_base_that_is_not_there_is_said(void **state)
{
    (void)state;
    assert_null(sqlite_log_vfs("no such vfs"));
    assert_non_null(sqlite_log_vfs(NULL));
}

static int clean(void **state)
{
    (void)state;
    scratch_remove("log.db");
    return 0;
}

int main(void)
{
    scratch_make();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_commit_is_one_write_and_readers_see_it, clean),
        cmocka_unit_test_teardown(a_transaction_larger_than_the_cache_is_whole, clean),
        cmocka_unit_test_teardown(a_write_that_fails_fails_the_commit, clean),
        cmocka_unit_test(a_base_that_is_not_there_is_said),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
