/* SPDX-License-Identifier: MIT
 *
 * The simulated world: that it holds, that it is the same each time, that its disk loses what a disk may lose, and that
 * its judge can tell: each mistake that is built in (SAMEKEY_PLANTED_BUGS) is found, and how many seeds that took.
 * Without the option only the first part runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/world.h"
#include "sim/world_disk.h"

#include <sqlite3.h>
#include <string.h>

#define SEEDS_OF_A_BUG 2000 /* each must be found within so many */

static void some_worlds_hold(void **state)
{
    (void)state;
    struct world_parameters p;
    struct world_result r;
    uint64_t crashes = 0, effects = 0, rounds = 0;
    world_defaults(&p);
    p.steps = 1500;
    for (p.seed = 1; p.seed <= 60; p.seed++) {
        assert_int_equal(world_run(&p, NULL, &r), STATUS_OK);
        if (r.broken)
            fail_msg("seed %llu: %s", (unsigned long long)p.seed, r.what);
        crashes += r.crashes;
        effects += r.effects;
        rounds += r.rounds;
    }
    assert_true(crashes > 20); /* it was no quiet world */
    assert_true(effects > 1000);
    assert_true(rounds > 500);
}

static void one_seed_is_one_story(void **state)
{
    (void)state;
    struct world_parameters p;
    struct world_result first, second;
    struct buffer a = {0}, b = {0}, quiet = {0};
    world_defaults(&p);
    p.steps = 3000;
    for (p.seed = 7; p.seed < 13; p.seed++) {
        buffer_clear(&a), buffer_clear(&b);
        assert_int_equal(world_run(&p, &a, &first), STATUS_OK);
        assert_int_equal(world_run(&p, NULL, &second), STATUS_OK); /* telling changes nothing */
        assert_int_equal(first.steps, second.steps);
        assert_int_equal(first.effects, second.effects);
        assert_int_equal(world_run(&p, &b, &second), STATUS_OK);
        assert_false(a.failed || b.failed);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.data, b.data, a.len);
    }
    p.seed++;
    assert_int_equal(world_run(&p, &quiet, &second), STATUS_OK);
    assert_true(quiet.len != a.len || memcmp(quiet.data, a.data, a.len) != 0);
    buffer_fini(&a), buffer_fini(&b), buffer_fini(&quiet);
}

/* Without faults every call that can succeed does, at the first attempt. */
static void a_world_without_faults_is_quiet(void **state)
{
    (void)state;
    struct world_parameters p;
    struct world_result r;
    world_defaults(&p);
    p.faults = 0;
    p.steps = 2000;
    for (p.seed = 1; p.seed <= 12; p.seed++) {
        assert_int_equal(world_run(&p, NULL, &r), STATUS_OK);
        if (r.broken)
            fail_msg("seed %llu: %s", (unsigned long long)p.seed, r.what);
        assert_int_equal(r.crashes, 0);
        assert_true(r.effects > 0);
        assert_int_equal(r.rounds, 0);
        assert_int_equal(r.attempts, r.effects);
    }
}

static void faults_are_named(void **state)
{
    (void)state;
    unsigned mask = 0;
    assert_int_equal(world_faults_parse("loss,kill", &mask), STATUS_OK);
    assert_int_equal(mask, 1u << WORLD_LOSS | 1u << WORLD_KILL);
    assert_int_equal(world_faults_parse("", &mask), STATUS_OK);
    assert_int_equal(mask, 0);
    mask = 77;
    assert_int_equal(world_faults_parse("loss,bogus", &mask), STATUS_INVALID);
    assert_int_equal(mask, 77);
}

/* ---- the disk ---- */

static int count_rows(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;
    int rows = -1;
    if (sqlite3_prepare_v2(db, "SELECT count(*) FROM t", -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        rows = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return rows;
}

static sqlite3 *open_file(const char *more)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open_v2("t.db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, WORLD_DISK_VFS),
                     SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, more, NULL, NULL, NULL), SQLITE_OK);
    return db;
}

/* What a commit synced is there after every kind of power cut; what it did not may be gone, and then as a whole. */
static void a_power_cut_takes_only_what_was_not_synced(void **state)
{
    (void)state;
    int lost = 0;
    for (int loss = 0; loss < DISK_LOSSES; loss++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            assert_int_equal(disk_begin(seed), STATUS_OK);
            sqlite3 *db = open_file("PRAGMA synchronous = FULL; CREATE TABLE t(x); INSERT INTO t VALUES(1)");
            assert_int_equal(
                sqlite3_exec(db, "PRAGMA synchronous = OFF; INSERT INTO t VALUES(2); INSERT INTO t VALUES(3)",
                             NULL, NULL, NULL),
                SQLITE_OK);
            disk_power_off();
            assert_true(disk_is_off());
            assert_int_not_equal(sqlite3_exec(db, "INSERT INTO t VALUES(4)", NULL, NULL, NULL), SQLITE_OK);
            sqlite3_close(db);
            disk_power_on((enum disk_loss)loss);
            db = open_file("PRAGMA integrity_check");
            int rows = count_rows(db);
            assert_in_range(rows, 1, 3);
            if (loss == DISK_LOSES_NOTHING)
                assert_int_equal(rows, 3);
            if (loss == DISK_LOSES_ALL)
                assert_int_equal(rows, 1);
            lost += rows < 3;
            sqlite3_close(db);
        }
    assert_true(lost > 30);
    disk_end();
}

static void a_disk_in_trouble_says_so(void **state)
{
    (void)state;
    static const enum disk_trouble kinds[] = {DISK_WRITE_ERROR, DISK_TORN_ERROR, DISK_SYNC_ERROR, DISK_FULL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_int_equal(disk_begin(i), STATUS_OK);
        sqlite3 *db = open_file("PRAGMA synchronous = FULL; CREATE TABLE t(x); INSERT INTO t VALUES(1)");
        disk_arm(kinds[i], 1, false);
        int rc = sqlite3_exec(db, "INSERT INTO t VALUES(2)", NULL, NULL, NULL);
        assert_int_equal(rc & 0xff, kinds[i] == DISK_FULL ? SQLITE_FULL : SQLITE_IOERR);
        assert_int_equal(disk_failures(), 1);
        disk_arm(DISK_WELL, 0, false);
        assert_int_equal(sqlite3_exec(db, "INSERT INTO t VALUES(3)", NULL, NULL, NULL), SQLITE_OK);
        assert_in_range(count_rows(db), 2, 3);
        sqlite3_close(db);
    }
    disk_end();
}

#ifdef SAMEKEY_PLANTED_BUGS
/* ---- the judge ---- */

static void every_planted_bug_is_found(void **state)
{
    (void)state;
    for (int bug = WORLD_NO_BUG + 1; bug < WORLD_BUGS; bug++) {
        struct world_parameters p;
        struct world_result r = {0};
        world_defaults(&p);
        p.bug = (enum world_bug)bug;
        for (p.seed = 1; p.seed <= SEEDS_OF_A_BUG && !r.broken; p.seed++)
            assert_int_equal(world_run(&p, NULL, &r), STATUS_OK);
        if (!r.broken)
            fail_msg("%s was not found", world_bug_text(p.bug));
        print_message("    %-22s found by seed %llu after %llu steps: %s\n", world_bug_text(p.bug),
                      (unsigned long long)p.seed - 1, (unsigned long long)r.steps, r.what);
    }
}

static void a_failing_seed_is_made_smaller(void **state)
{
    (void)state;
    struct world_parameters p, small;
    struct world_result r, again;
    world_defaults(&p);
    p.seed = 1;
    assert_int_equal(world_bug_parse("lease-expiry-is-free", &p.bug), STATUS_OK);
    assert_int_equal(world_bug_parse("no-such-bug", &p.bug), STATUS_NOT_FOUND);
    assert_int_equal(world_run(&p, NULL, &r), STATUS_OK);
    assert_true(r.broken);
    small = p;
    assert_true(world_minimise(&small, &r) > 1);
    assert_true(r.broken);
    assert_true(small.steps < p.steps);
    assert_true(small.faults != p.faults);
    /* A process must die for a lease to run out. */
    assert_true(small.faults & (1u << WORLD_KILL | 1u << WORLD_STOP));
    struct buffer story = {0};
    assert_int_equal(world_run(&small, &story, &again), STATUS_OK);
    assert_string_equal(again.what, r.what);
    assert_non_null(strstr(buffer_cstring(&story), "BROKEN"));
    buffer_fini(&story);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_worlds_hold),
        cmocka_unit_test(one_seed_is_one_story),
        cmocka_unit_test(a_world_without_faults_is_quiet),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(a_power_cut_takes_only_what_was_not_synced),
        cmocka_unit_test(a_disk_in_trouble_says_so),
#ifdef SAMEKEY_PLANTED_BUGS
        cmocka_unit_test(every_planted_bug_is_found),
        cmocka_unit_test(a_failing_seed_is_made_smaller),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
