/* SPDX-License-Identifier: MIT
 *
 * Opening: what is refused and with which sentence, who owns the file, versions of the schema, and that the schema in
 * sql/ is the one the program makes.
 */
#include "scratch.h"
#include "store/store.h"

#include <ctype.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <sys/wait.h>

#include <cmocka.h>

static struct buffer error;

static enum status open_url(struct store **out, const char *url, bool read_only)
{
    struct store_settings settings = {.url = url, .owner = "test", .read_only = read_only};
    buffer_clear(&error);
    return store_open(out, &settings, &error);
}

static enum status open_file(struct store **out, const char *name)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path(name));
    return open_url(out, url, false);
}

static void expect_words(const char *words)
{
    if (!strstr(buffer_cstring(&error), words))
        fail_msg("\"%s\" does not say \"%s\"", buffer_cstring(&error), words);
}

static void make_open(const char *name)
{
    struct store *store;
    if (open_file(&store, name) != STATUS_OK)
        fail_msg("%s", buffer_cstring(&error));
    store_close(store);
}

static void sql(const char *name, const char *text)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(scratch_path(name), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void other_schemes_are_refused_by_name(void **state)
{
    (void)state;
    struct store *store;
    assert_int_equal(open_url(&store, "postgres:/receipts", false), STATUS_INVALID);
    expect_words("postgres://USER@HOST/DATABASE");
    assert_int_equal(open_url(&store, "redis://cache", false), STATUS_INVALID);
    expect_words("only a cache");
    assert_int_equal(open_url(&store, "/var/lib/receipts.db", false), STATUS_INVALID);
    expect_words("sqlite:PATH");
    assert_int_equal(open_url(&store, "sqlite:", false), STATUS_INVALID);
    expect_words("names no file");
}

static void files_that_cannot_be_used_are_told_with_a_remedy(void **state)
{
    (void)state;
    struct store *store;
    assert_int_equal(open_file(&store, "missing/receipts.db"), STATUS_IO);
    expect_words("missing");
    expect_words("create it");
    mkdir(scratch_path("folder"), 0755);
    assert_int_equal(open_file(&store, "folder"), STATUS_IO);
    expect_words("is a folder");
    rmdir(scratch_path("folder"));
    scratch_remove("folder");

    FILE *file = fopen(scratch_path("text.db"), "w");
    for (int i = 0; i < 500; i++)
        fputs("this is no database\n", file);
    fclose(file);
    assert_int_equal(open_file(&store, "text.db"), STATUS_IO);
    expect_words("is not an SQLite database");
    scratch_remove("text.db");

    sql("other.db", "CREATE TABLE customers(id)");
    assert_int_equal(open_file(&store, "other.db"), STATUS_INVALID);
    expect_words("another program");
    scratch_remove("other.db");
}

static void a_newer_schema_is_left_alone(void **state)
{
    (void)state;
    struct store *store;
    make_open("newer.db");
    sql("newer.db", "PRAGMA user_version = 99");
    assert_int_equal(open_file(&store, "newer.db"), STATUS_INVALID);
    expect_words("schema version 99");
    sql("newer.db", "PRAGMA user_version = 5");
    make_open("newer.db");
    scratch_remove("newer.db");
}

static void one_process_owns_the_file_and_a_dead_one_does_not(void **state)
{
    (void)state;
    struct store *store, *second;
    make_open("owned.db");
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte = open_file(&store, "owned.db") == STATUS_OK ? 'y' : 'n';
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(open_file(&second, "owned.db"), STATUS_CONFLICT);
    char pid[24];
    snprintf(pid, sizeof pid, "process %ld)", (long)child);
    expect_words(pid);
    expect_words("stop it first");
    /* Another spelling is the same file. */
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s/../%s/owned.db", scratch, strrchr(scratch, '/') + 1);
    assert_int_equal(open_url(&second, url, false), STATUS_CONFLICT);
    /* Who only reads may. */
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("owned.db"));
    assert_int_equal(open_url(&second, url, true), STATUS_OK);
    store_close(second);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]), close(ready[1]);
    make_open("owned.db");
    scratch_remove("owned.db");
}

static void a_second_process_reads_what_is_not_in_the_index_yet(void **state)
{
    (void)state;
    struct store *store, *second;
    char url[200];
    struct store_op op = {.kind = STORE_CLAIM}, look = {.kind = STORE_LOOKUP}, *list[] = {&op};
    assert_int_equal(open_file(&store, "read.db"), STATUS_OK);
    op.row.tenant = slice_text("t");
    op.row.call_id = slice_text("A");
    op.row.state = STATE_PROCESSING;
    memset(op.row.call_digest.bytes, 3, sizeof op.row.call_digest.bytes);
    store_batch(store, list, 1);
    assert_true(op.done);
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("read.db"));
    assert_int_equal(open_url(&second, url, true), STATUS_OK);
    look.row = op.row;
    list[0] = &look;
    store_batch(second, list, 1);
    assert_int_equal(look.status, STATUS_OK);
    assert_true(look.rows.call.id == op.rows.call.id);
    memset(look.row.call_digest.bytes, 4, sizeof look.row.call_digest.bytes);
    store_batch(second, list, 1);
    assert_int_equal(look.rows.call.id, 0);
    list[0] = &op;
    store_batch(second, list, 1);
    assert_int_equal(op.status, STATUS_IO); /* it does not write */
    store_op_fini(&op), store_op_fini(&look);
    store_close(second);
    store_close(store);
    scratch_remove("read.db");
}

/* Appends the schema of an open database without the difference of white space. */
static void schema_of(struct buffer *out, sqlite3 *db)
{
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name",
                                        -1, &stmt, NULL),
                     SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        for (const char *p = (const char *)sqlite3_column_text(stmt, 0); *p; p++)
            if (!isspace((unsigned char)*p))
                buffer_byte(out, *p);
        buffer_byte(out, '\n');
    }
    sqlite3_finalize(stmt);
}

static void the_schema_in_sql_is_the_one_that_is_made(void **state)
{
    (void)state;
    struct buffer text = {0}, made = {0}, written = {0};
    char chunk[4096];
    size_t n;
    sqlite3 *db;
    FILE *file = fopen(SAMEKEY_SOURCE_DIR "/sql/store.sqlite.sql", "r");
    assert_non_null(file);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buffer_append(&text, chunk, n);
    fclose(file);
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, buffer_cstring(&text), NULL, NULL, NULL), SQLITE_OK);
    schema_of(&written, db);
    sqlite3_close(db);
    make_open("schema.db");
    assert_int_equal(sqlite3_open(scratch_path("schema.db"), &db), SQLITE_OK);
    schema_of(&made, db);
    sqlite3_close(db);
    assert_string_equal(buffer_cstring(&written), buffer_cstring(&made));
    buffer_fini(&text), buffer_fini(&made), buffer_fini(&written);
    scratch_remove("schema.db");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_schemes_are_refused_by_name),
        cmocka_unit_test(files_that_cannot_be_used_are_told_with_a_remedy),
        cmocka_unit_test(a_newer_schema_is_left_alone),
        cmocka_unit_test(one_process_owns_the_file_and_a_dead_one_does_not),
        cmocka_unit_test(a_second_process_reads_what_is_not_in_the_index_yet),
        cmocka_unit_test(the_schema_in_sql_is_the_one_that_is_made),
    };
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buffer_fini(&error);
    scratch_clean();
    return failed;
}
