/* SPDX-License-Identifier: MIT
 *
 * Identities on their way from memory through the smaller table into the large one, with the smallest tails: each is in one
 * of the tables, with its row, and found; the filter never says "no" of one; and two rows of one digest stop the store
 * wherever they meet.
 */
#include "base/hex.h"
#include "conformance.c"
#include "number.h"
#include "store/sqlite.h"

#include <sqlite3.h>

#define CALLS 600
#define BATCH 24

static size_t tail_entries = 4;

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("identity.db"));
    struct store_settings settings = {
        .url = url, .owner = owner, .now_ms = test_clock, .tail_entries = tail_entries};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    scratch_remove("identity.db");
}

static int64_t number(const char *sql)
{
    return number_in("identity.db", sql);
}

static void change(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(scratch_path("identity.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static const struct known *known(void)
{
    return &((struct sqlite_store *)store)->known;
}

static const char *name(char kind, int i)
{
    static char names[4][24];
    static unsigned next;
    char *text = names[next++ % 4];
    snprintf(text, sizeof names[0], "%c%d", kind, i);
    return text;
}

/* In batches of growing size, from one call on. */
static void claim_all(int from, int to)
{
    static struct store_op ops[BATCH];
    static char names[2][BATCH][24];
    struct store_op *list[BATCH];
    for (int size = 1; from < to; size = size % BATCH + 1) {
        int count = size < to - from ? size : to - from;
        for (int i = 0; i < count; i++) {
            snprintf(names[0][i], sizeof names[0][i], "c%d", from + i);
            snprintf(names[1][i], sizeof names[1][i], "k%d", from + i);
            ask_claim(list[i] = &ops[i], names[0][i], names[1][i], "f1");
        }
        store_batch(store, list, (size_t)count);
        for (int i = 0; i < count; i++) {
            assert_true(ops[i].status == STATUS_OK && ops[i].done);
            assert_int_equal(ops[i].rows.call.id, ++from);
            store_op_fini(&ops[i]);
        }
    }
}

/* Nobody else may have one of the callIds or keys. */
static void expect_all_taken(int count)
{
    struct store_op op = {0};
    for (int i = 0; i < count; i++) {
        ask_claim(&op, name('c', i), name('o', i), "f1");
        run(&op);
        assert_false(op.done);
        assert_int_equal(op.rows.call.id, i + 1);
        ask_claim(&op, name('o', i), name('k', i), "f1");
        run(&op);
        assert_false(op.done);
        assert_int_equal(op.rows.holder.id, i + 1);
    }
    store_op_fini(&op);
}

static void every_identity_is_in_one_table(void **state)
{
    (void)state;
    claim_all(0, CALLS);
    assert_true(known()->complete);
    expect_all_taken(CALLS);
    assert_true(number("SELECT count(*) FROM identity") > CALLS);
    int64_t recent = number("SELECT count(*) FROM identity_recent");
    assert_true(recent <= (int64_t)tail_entries * SQLITE_RECENT_GENERATIONS + 4 * BATCH);
    assert_int_equal(recent, ((struct sqlite_store *)store)->recent);
    assert_int_equal(number("SELECT count(*) FROM identity JOIN identity_recent USING(digest)"), 0);
    assert_int_equal(
        number("SELECT count(*) FROM asked a WHERE id <= (SELECT value FROM meta WHERE name = 'indexed')"
               " AND 2 <> (SELECT count(*) FROM (SELECT * FROM identity UNION ALL SELECT * FROM "
               "identity_recent) i"
               " WHERE i.call = a.id AND i.digest IN (a.call_digest, a.operation_digest))"),
        0);
    /* What is in a table and not in memory is noted. */
    assert_true(number("SELECT sum(length(hashes)) / 4 FROM identity_hash") >=
                number("SELECT 2 * value FROM meta WHERE name = 'indexed'"));
}

static void all_are_found_after_a_start(void **state)
{
    (void)state;
    claim_all(0, CALLS);
    reopen_as("first");
    assert_false(known()->complete);
    expect_all_taken(20); /* while the filter is being read in */
    while (!known()->complete)
        store_idle(store);
    expect_all_taken(CALLS);
    claim_all(CALLS, CALLS + 100);
    expect_all_taken(CALLS + 100);
}

static void the_filter_grows_while_it_is_used(void **state)
{
    (void)state;
    claim_all(0, 100);
    uint64_t room = known()->now.room;
    assert_true(room > 0);
    claim_all(100, 9000);
    assert_true(known()->now.room > room);
    expect_all_taken(9000);
}

/* A key's slot that goes to another call, wherever its identity is. */
static void a_slot_that_moves_is_found(void **state)
{
    (void)state;
    struct store_op op = {0};
    claim_all(0, CALLS);
    for (int i = 0; i < CALLS; i += 7) {
        ask_end(&op, i + 1, 1, STATE_FAILED, "no");
        run(&op);
        assert_true(op.done);
        ask_claim(&op, name('n', i), name('k', i), "f1");
        op.kind = STORE_TAKE;
        op.expect_holder_id = i + 1;
        op.expect_holder_fence = 1;
        run(&op);
        assert_true(op.done);
        int64_t taken = op.rows.call.id;
        for (int round = 0; round < 2; round++) {
            ask_claim(&op, name('o', i), name('k', i), "f1");
            run(&op);
            assert_false(op.done);
            assert_int_equal(op.rows.holder.id, taken);
            if (i % 49 == 0)
                reopen_as("first");
        }
    }
    assert_int_equal(number("SELECT count(*) FROM identity JOIN identity_recent USING(digest)"), 0);
    store_op_fini(&op);
}

static void notes_of_rows_that_are_gone_go(void **state)
{
    (void)state;
    struct store_op op = {0};
    claim_all(0, CALLS);
    for (int i = 1; i < CALLS; i++) { /* the first never ends, and does not keep the others' notes */
        ask_end(&op, i + 1, 1, STATE_SUCCESS, "yes");
        op.row.final = true;
        run(&op);
        assert_true(op.done);
    }
    int64_t notes = number("SELECT count(*) FROM identity_hash");
    now_ms += 4 * LIFE_MS;
    while (purge(1))
        ;
    assert_int_equal(number("SELECT count(*) FROM asked"), 1);
    assert_int_equal(number("SELECT count(*) FROM identity") + number("SELECT count(*) FROM identity_recent"),
                     2);
    assert_true(number("SELECT count(*) FROM identity_hash") < notes / 2);
    assert_int_equal(claim("c0", "k0", "f1"), 0);
    assert_true(claim("c1", "k1", "f1") > CALLS); /* free again */
    store_op_fini(&op);
}

/* Row 1 has the key that is claimed soon, and no note says so. */
static void plant(const char *table)
{
    struct call_row row;
    char sql[128], digits[2 * sizeof row.operation_digest.bytes + 1] = "";
    identify(&row, "any", name('k', CALLS + 3), NULL);
    hex_write(digits, row.operation_digest.bytes, sizeof row.operation_digest.bytes);
    snprintf(sql, sizeof sql, "INSERT INTO %s VALUES(x'%s', 1)", table, digits);
    change(sql);
}

/* Claims until the store refuses: damage is met when the two entries are brought together. */
static enum status claim_until_refused(int from)
{
    struct store_op op = {0};
    enum status status = STATUS_OK;
    for (int i = from; status == STATUS_OK && i < from + 5 * CALLS; i++) {
        ask_claim(&op, name('c', i), name('k', i), "f1");
        run(&op);
        status = op.status;
    }
    store_op_fini(&op);
    return status;
}

static void two_rows_of_a_digest_in_the_smaller_table_stop_the_store(void **state)
{
    (void)state;
    claim_all(0, CALLS);
    plant("identity_recent");
    assert_int_equal(claim_until_refused(CALLS), STATUS_IO);
}

static void two_rows_of_a_digest_in_the_large_table_stop_the_store(void **state)
{
    (void)state;
    claim_all(0, CALLS);
    plant("identity");
    assert_int_equal(claim_until_refused(CALLS), STATUS_IO);
}

/* A file as version 4 left it: all in one table, nothing noted. */
static void a_file_of_the_version_before_is_noted(void **state)
{
    (void)state;
    claim_all(0, CALLS);
    store_close(store);
    change("INSERT INTO identity SELECT * FROM identity_recent; DROP TABLE identity_recent;"
           "DROP TABLE identity_hash; PRAGMA user_version = 4");
    open_as("first");
    assert_int_equal(number("SELECT sum(length(hashes)) / 4 FROM identity_hash"),
                     number("SELECT count(*) FROM identity"));
    while (!known()->complete)
        store_idle(store);
    expect_all_taken(CALLS);
    claim_all(CALLS, CALLS + 100);
    expect_all_taken(CALLS + 100);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)

int main(void)
{
    (void)conformance;
    const struct CMUnitTest tests[] = {
        TEST(every_identity_is_in_one_table),
        TEST(all_are_found_after_a_start),
        TEST(the_filter_grows_while_it_is_used),
        TEST(a_slot_that_moves_is_found),
        TEST(notes_of_rows_that_are_gone_go),
        TEST(two_rows_of_a_digest_in_the_smaller_table_stop_the_store),
        TEST(two_rows_of_a_digest_in_the_large_table_stop_the_store),
        TEST(a_file_of_the_version_before_is_noted),
    };
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tail_entries = 1;
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
