/* SPDX-License-Identifier: MIT
 *
 * A file that an older samekey left is opened, and everything is found in it: also where the change of its schema is cut
 * short.
 */
#include "core/digest.h"
#include "number.h"
#include "store/store.h"

#include <inttypes.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>

#include <cmocka.h>

static int64_t now_ms = 1710000000020;
static struct hasher hasher;

static int64_t test_clock(void *context)
{
    (void)context;
    return now_ms;
}

static struct store *open_store(bool read_only, enum status expected)
{
    struct buffer url = {0}, error = {0};
    struct store *store = NULL;
    buffer_format(&url, "sqlite:%s", scratch_path("version1.db"));
    struct store_settings settings = {
        .url = buffer_cstring(&url), .owner = "new", .now_ms = test_clock, .read_only = read_only};
    enum status status = store_open(&store, &settings, &error);
    if (status != expected)
        fail_msg("%d %s", (int)status, buffer_cstring(&error));
    buffer_fini(&url), buffer_fini(&error);
    return store;
}

static void make_file(void)
{
    struct buffer text = {0};
    char chunk[4096];
    size_t n;
    sqlite3 *db;
    FILE *file = fopen(SAMEKEY_SOURCE_DIR "/test/unit/store/version1.sql", "r");
    assert_non_null(file);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buffer_append(&text, chunk, n);
    fclose(file);
    assert_int_equal(sqlite3_open(scratch_path("version1.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, buffer_cstring(&text), NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    buffer_fini(&text);
}

static void run(struct store *store, struct store_op *op)
{
    store_batch(store, &op, 1);
    assert_int_equal(op->status, STATUS_OK);
}

static void ask(struct store_op *op, enum store_kind kind, const char *call_id, const char *key)
{
    store_op_fini(op);
    *op = (struct store_op){.kind = kind};
    struct call_row *row = &op->row;
    row->tenant = slice_text("t1");
    row->scope = slice_text("orders");
    row->call_id = slice_text(call_id);
    row->call_digest = digest_call(&hasher, row->tenant, row->call_id);
    if (!key)
        return;
    row->has_key = true;
    row->key = slice_text(key);
    row->operation_digest = digest_operation(&hasher, row->tenant, row->scope, row->key);
}

/* "SUCCESS final 201 made", and whose effect it is. */
static void expect(struct store *store, const char *call_id, const char *words)
{
    struct store_op op = {0};
    struct buffer is = {0};
    ask(&op, STORE_LOOKUP, call_id, NULL);
    run(store, &op);
    const struct call_row *row = &op.rows.call;
    assert_true(row->id != 0);
    buffer_format(&is, "%s%s %s by %.*s", state_text(row->state), row->final ? " final" : "",
                  reason_text(row->reason), (int)row->owner.len, row->owner.len ? row->owner.data : "");
    if (row->has_result)
        buffer_format(&is, ": %d %.*s", row->result_status, (int)row->result_body.len,
                      row->result_body.len ? row->result_body.data : "");
    if (row->original)
        buffer_format(&is, " of %.*s", (int)row->original_call_id.len, row->original_call_id.data);
    assert_string_equal(buffer_cstring(&is), words);
    assert_int_equal(row->fingerprint.bytes[31], call_id[0]);
    buffer_fini(&is);
    store_op_fini(&op);
}

static void expect_all(struct store *store)
{
    expect(store, "A", "SUCCESS final  by old: 201 made");
    expect(store, "B", "SUCCESS final shared by old: 201 made of A");
    expect(store, "C", "PROCESSING  by old");
    expect(store, "D", "UNKNOWN  by old");
    expect(store, "E", "FAILED  by old: 201 no");
    expect(store, "F", "FAILED final fenced by old");
}

static int64_t number(const char *sql)
{
    return number_in("version1.db", sql);
}

static void everything_in_a_file_of_version_1_is_found_and_goes_on(void **state)
{
    (void)state;
    struct store_op op = {0};
    make_file();
    assert_null(open_store(true, STATUS_INVALID)); /* who only reads changes nothing */
    assert_int_equal(number("PRAGMA user_version"), 1);
    struct store *store = open_store(false, STATUS_OK);
    expect_all(store);
    assert_int_equal(number("SELECT count(*) FROM compensation WHERE call = 4 AND status = 0"), 1);

    /* The key that A holds, by another call. */
    ask(&op, STORE_CLAIM, "G", "k1");
    op.row.state = STATE_PROCESSING;
    run(store, &op);
    assert_false(op.done);
    assert_int_equal(op.rows.holder.id, 1);

    /* What ran when the old program went. */
    ask(&op, STORE_EXPIRE, "", NULL);
    op.limit = 10;
    run(store, &op);
    assert_int_equal(op.count, 1);
    assert_int_equal(op.expired[0], 3);
    expect(store, "C", "UNKNOWN lease_expired by old");

    /* E runs again, and ends. */
    ask(&op, STORE_TAKE, "E", "k5");
    op.expect_call_id = op.expect_holder_id = 5;
    op.expect_call_fence = op.expect_holder_fence = 1;
    op.row.owner = slice_text("new");
    run(store, &op);
    assert_true(op.done);
    expect(store, "E", "PROCESSING  by new");
    ask(&op, STORE_END, "", NULL);
    op.id = 5, op.fence = 2;
    op.from_states = 1u << STATE_PROCESSING;
    op.row.state = STATE_SUCCESS;
    op.row.final = op.row.has_result = op.row.body_kept = true;
    op.row.result_status = 200;
    op.row.result_body = slice_text("yes");
    run(store, &op);
    assert_true(op.done);
    expect(store, "E", "SUCCESS final  by new: 200 yes");

    /* A's body goes at its time, its row later; new calls get new ids. */
    ask(&op, STORE_CLAIM, "H", "k9");
    op.row.state = STATE_PROCESSING;
    op.row.fence = 1;
    run(store, &op);
    assert_int_equal(op.rows.call.id, 7);
    now_ms += 1200000;
    ask(&op, STORE_PURGE, "", NULL);
    op.limit = 100;
    run(store, &op);
    expect(store, "A", "SUCCESS final  by old: 201 ");
    now_ms += 1200000;
    op.kind = STORE_PURGE;
    run(store, &op);
    ask(&op, STORE_LOOKUP, "A", NULL);
    run(store, &op);
    assert_int_equal(op.rows.call.id, 0);
    store_op_fini(&op);
    store_close(store);
    scratch_remove("version1.db");
}

/* ---- a change of the schema that is cut short ---- */

static int left; /* steps until the power goes; -1: never */

static int step(void *context)
{
    (void)context;
    return left >= 0 && left-- == 0;
}

static int on_open(sqlite3 *db, char **words, const void *routines)
{
    (void)words, (void)routines;
    sqlite3_progress_handler(db, 40, step, NULL);
    return SQLITE_OK;
}

static void a_change_that_is_cut_short_is_not_there(void **state)
{
    (void)state;
    make_file();
    store_close(open_store(false, STATUS_OK));
    const int64_t whole = number("PRAGMA user_version");
    scratch_remove("version1.db");
    make_file();
    sqlite3_auto_extension((void (*)(void))on_open);
    struct store *store = NULL;
    int cuts = 0;
    while (!store) {
        struct buffer url = {0}, error = {0};
        buffer_format(&url, "sqlite:%s", scratch_path("version1.db"));
        struct store_settings settings = {.url = buffer_cstring(&url), .owner = "new", .now_ms = test_clock};
        left = cuts++;
        if (store_open(&store, &settings, &error) != STATUS_OK) {
            left = -1;
            int64_t version = number("PRAGMA user_version");
            assert_true(version == 1 || version == whole); /* all of it or nothing */
            assert_int_equal(number("SELECT count(*) FROM call"), 6);
        }
        buffer_fini(&url), buffer_fini(&error);
    }
    left = -1;
    sqlite3_reset_auto_extension();
    assert_true(cuts > 10);
    expect_all(store);
    store_close(store);
    scratch_remove("version1.db");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_in_a_file_of_version_1_is_found_and_goes_on),
        cmocka_unit_test(a_change_that_is_cut_short_is_not_there),
    };
    scratch_make();
    if (hasher_init(&hasher) != STATUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hasher_fini(&hasher);
    scratch_clean();
    return failed;
}
