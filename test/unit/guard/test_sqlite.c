/* SPDX-License-Identifier: MIT
 *
 * The SQLite guard over a real file: what it answers, several processes at once, and processes that are killed between
 * begin and COMMIT.
 */
#include "../base/check.h"

#include "samekey/guard_sqlite.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/samekey-guard-XXXXXX";
static char file[128];

static const struct samekey_guard_call CALL = {
    .call_id = "c-1", .key = "k", .fingerprint = "f", .route = "orders"};
static const struct samekey_guard_ending DONE = {.state = SAMEKEY_GUARD_STATE_SUCCESS,
                                                 .status = 201,
                                                 .body = "a\0b",
                                                 .body_len = 3,
                                                 .headers = "[[\"x\",\"y\"]]"};

static void run(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

static sqlite3 *open_file(void)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 20000);
    return db;
}

static int number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int value = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return value;
}

/* Begins in the open transaction; the verdict. */
static int begin(sqlite3 *db, const struct samekey_guard_call *call)
{
    struct samekey_guard_answer answer = {0};
    struct samekey_guard_error error = {0};
    if (samekey_guard_sqlite_begin(db, call, &answer, &error) != SAMEKEY_GUARD_OK)
        fail_msg("begin: %s", error.text);
    int verdict = answer.verdict;
    samekey_guard_sqlite_answer_clear(&answer);
    return verdict;
}

/* A guarded transaction that places one order. */
static int place(sqlite3 *db, const struct samekey_guard_call *call)
{
    run(db, "BEGIN IMMEDIATE");
    int verdict = begin(db, call);
    if (verdict == SAMEKEY_GUARD_RUN) {
        run(db, "INSERT INTO orders VALUES ('o')");
        assert_int_equal(samekey_guard_sqlite_finish(db, call, &DONE, NULL), SAMEKEY_GUARD_OK);
    }
    run(db, "COMMIT");
    return verdict;
}

static int fresh(void **state)
{
    (void)state;
    snprintf(file, sizeof file, "%s/shop.db", folder);
    unlink(file);
    char other[160];
    snprintf(other, sizeof other, "%s-wal", file);
    unlink(other);
    snprintf(other, sizeof other, "%s-shm", file);
    unlink(other);
    sqlite3 *db = open_file();
    run(db, "PRAGMA journal_mode = WAL; CREATE TABLE orders(order_no TEXT)");
    int status = samekey_guard_sqlite_install(db, NULL);
    sqlite3_close(db);
    return status;
}

static void a_replay_has_the_bytes_of_the_first_answer(void **state)
{
    (void)state;
    sqlite3 *db = open_file();
    assert_int_equal(place(db, &CALL), SAMEKEY_GUARD_RUN);
    run(db, "BEGIN");
    struct samekey_guard_answer answer = {0};
    assert_int_equal(samekey_guard_sqlite_begin(db, &CALL, &answer, NULL), SAMEKEY_GUARD_OK);
    assert_int_equal(answer.verdict, SAMEKEY_GUARD_REPLAY);
    assert_int_equal(answer.state, SAMEKEY_GUARD_STATE_SUCCESS);
    assert_int_equal(answer.status, 201);
    assert_int_equal(answer.body_len, 3);
    assert_memory_equal(answer.body, "a\0b", 4);
    assert_string_equal(answer.headers, "[[\"x\",\"y\"]]");
    samekey_guard_sqlite_answer_clear(&answer);
    assert_null(answer.body);
    samekey_guard_sqlite_answer_clear(&answer);
    samekey_guard_sqlite_answer_clear(NULL);
    run(db, "ROLLBACK");
    struct samekey_guard_call other = CALL;
    other.call_id = "c-2";
    assert_int_equal(place(db, &other), SAMEKEY_GUARD_REPLAY);
    other.fingerprint = "g";
    assert_int_equal(place(db, &other), SAMEKEY_GUARD_MISMATCH);
    assert_int_equal(number(db, "SELECT count(*) FROM orders"), 1);
    sqlite3_close(db);
}

static void receipts_and_fences(void **state)
{
    (void)state;
    sqlite3 *db = open_file();
    struct samekey_guard_receipt r = {0};
    assert_int_equal(samekey_guard_sqlite_receipt(db, "c-1", NULL, &r, NULL), SAMEKEY_GUARD_OK);
    assert_int_equal(r.state, SAMEKEY_GUARD_STATE_NOT_RECEIVED);
    assert_non_null(strstr(r.document, "\"proof\":\"transaction\""));
    samekey_guard_sqlite_receipt_clear(&r);
    assert_int_equal(samekey_guard_sqlite_fence(db, &CALL, &r, NULL), SAMEKEY_GUARD_OK);
    assert_int_equal(r.state, SAMEKEY_GUARD_STATE_FAILED);
    assert_true(r.final && r.safe_new_key);
    samekey_guard_sqlite_receipt_clear(&r);
    assert_int_equal(place(db, &CALL), SAMEKEY_GUARD_FENCED);
    struct samekey_guard_call other = CALL;
    other.call_id = "c-2";
    assert_int_equal(place(db, &other), SAMEKEY_GUARD_RUN);
    assert_int_equal(samekey_guard_sqlite_fence(db, &other, &r, NULL), SAMEKEY_GUARD_OK);
    assert_int_equal(r.state, SAMEKEY_GUARD_STATE_SUCCESS); /* it stays what it is */
    assert_non_null(strstr(r.document, "\"body\":\"YQBi\""));
    samekey_guard_sqlite_receipt_clear(&r);
    sqlite3_close(db);
}

static void what_may_not_be_is_refused_and_the_transaction_stays(void **state)
{
    (void)state;
    sqlite3 *db = open_file();
    struct samekey_guard_answer answer = {0};
    struct samekey_guard_commit commit = {0};
    struct samekey_guard_error error = {0};
    assert_int_equal(samekey_guard_sqlite_begin(db, &CALL, &answer, &error), SAMEKEY_GUARD_NO_TRANSACTION);
    assert_non_null(strstr(error.text, "BEGIN IMMEDIATE"));
    run(db, "BEGIN IMMEDIATE");
    struct samekey_guard_call wrong = CALL;
    wrong.call_id = "a b";
    assert_int_equal(samekey_guard_sqlite_begin(db, &wrong, &answer, &error), SAMEKEY_GUARD_INVALID);
    assert_int_equal(samekey_guard_sqlite_finish(db, &CALL, &DONE, &error), SAMEKEY_GUARD_INVALID);
    assert_non_null(strstr(error.text, "not begun"));
    assert_int_equal(samekey_guard_sqlite_begin(db, &CALL, &answer, &error), SAMEKEY_GUARD_OK);
    assert_int_equal(answer.verdict, SAMEKEY_GUARD_RUN);
    /* Begun and not finished: not committed by the library, nor by anybody where foreign keys are enforced. */
    assert_int_equal(samekey_guard_sqlite_commit(db, &CALL, &answer, &commit, &error), SAMEKEY_GUARD_INVALID);
    run(db, "ROLLBACK; PRAGMA foreign_keys = ON; BEGIN IMMEDIATE");
    assert_int_equal(begin(db, &CALL), SAMEKEY_GUARD_RUN);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_CONSTRAINT);
    assert_int_equal(samekey_guard_sqlite_finish(db, &CALL, &DONE, &error), SAMEKEY_GUARD_OK);
    assert_int_equal(samekey_guard_sqlite_commit(db, &CALL, &answer, &commit, &error), SAMEKEY_GUARD_OK);
    assert_int_equal(commit.settled, SAMEKEY_GUARD_COMMITTED);
    sqlite3_close(db);
}

static void a_commit_without_an_ending_is_told_as_unknown(void **state)
{
    (void)state;
    sqlite3 *db = open_file();
    run(db, "BEGIN IMMEDIATE");
    assert_int_equal(begin(db, &CALL), SAMEKEY_GUARD_RUN);
    run(db, "COMMIT"); /* the service's mistake, where foreign keys are not enforced */
    struct samekey_guard_receipt r = {0};
    assert_int_equal(samekey_guard_sqlite_receipt(db, "c-1", "", &r, NULL), SAMEKEY_GUARD_OK);
    assert_int_equal(r.state, SAMEKEY_GUARD_STATE_UNKNOWN);
    samekey_guard_sqlite_receipt_clear(&r);
    assert_int_equal(place(db, &CALL), SAMEKEY_GUARD_IN_PROGRESS); /* and never runs again by itself */
    sqlite3_close(db);
}

static void another_writer_is_in_progress_or_a_transaction_to_run_again(void **state)
{
    (void)state;
    sqlite3 *writer = open_file(), *db = open_file();
    run(writer, "BEGIN IMMEDIATE");
    assert_int_equal(begin(writer, &CALL), SAMEKEY_GUARD_RUN);
    struct samekey_guard_call call = CALL;
    call.wait_ms = 20;
    run(db, "BEGIN");
    assert_int_equal(begin(db, &call), SAMEKEY_GUARD_IN_PROGRESS);
    assert_int_equal(number(db, "PRAGMA busy_timeout"), 20000); /* as it was */
    assert_int_equal(number(db, "SELECT count(*) FROM orders"), 0);
    assert_int_equal(begin(db, &call),
                     SAMEKEY_GUARD_RETRY_TRANSACTION); /* it has read, and what it read will be old */
    assert_int_equal(samekey_guard_sqlite_finish(writer, &CALL, &DONE, NULL), SAMEKEY_GUARD_OK);
    run(writer, "COMMIT");
    assert_int_equal(begin(db, &call), SAMEKEY_GUARD_RETRY_TRANSACTION);
    run(db, "ROLLBACK; BEGIN");
    assert_int_equal(begin(db, &call), SAMEKEY_GUARD_REPLAY);
    run(db, "ROLLBACK");
    sqlite3_close(writer);
    sqlite3_close(db);
}

static void an_event_goes_with_its_transaction(void **state)
{
    (void)state;
    sqlite3 *db = open_file();
    char id[129] = "";
    run(db, "BEGIN IMMEDIATE");
    assert_int_equal(samekey_guard_sqlite_outbox_add(db, &CALL, "orders", NULL, "lost", 4, id, NULL),
                     SAMEKEY_GUARD_OK);
    assert_string_equal(id, "c-1:1");
    run(db, "ROLLBACK; BEGIN IMMEDIATE");
    assert_int_equal(samekey_guard_sqlite_outbox_add(db, &CALL, "orders", "{\"a\":1}", "kept", 4, NULL, NULL),
                     SAMEKEY_GUARD_OK);
    run(db, "COMMIT");
    assert_int_equal(
        number(db, "SELECT count(*) FROM samekey_outbox WHERE sent_ms IS NULL AND payload = x'6b657074'"), 1);
    sqlite3_close(db);
}

enum { CHILDREN = 8, KILLS = 12 };

static void of_several_processes_one_runs(void **state)
{
    (void)state;
    pid_t child[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            sqlite3 *db = open_file();
            int verdict = place(db, &CALL);
            sqlite3_close(db);
            _exit(verdict);
        }
    }
    int ran = 0, replayed = 0;
    for (int i = 0; i < CHILDREN; i++) {
        int how;
        assert_int_equal(waitpid(child[i], &how, 0), child[i]);
        assert_true(WIFEXITED(how));
        ran += WEXITSTATUS(how) == SAMEKEY_GUARD_RUN;
        replayed += WEXITSTATUS(how) == SAMEKEY_GUARD_REPLAY;
    }
    assert_int_equal(ran, 1);
    assert_int_equal(replayed, CHILDREN - 1);
    sqlite3 *db = open_file();
    assert_int_equal(number(db, "SELECT count(*) FROM orders"), 1);
    sqlite3_close(db);
}

/* Killed at a step of its transaction: 0 after BEGIN, 1 after begin, 2 after its row, 3 after finish, 4 after COMMIT. */
static void die_at(int step)
{
    sqlite3 *db = open_file();
    run(db, "BEGIN IMMEDIATE");
    if (step == 0)
        raise(SIGKILL);
    if (begin(db, &CALL) != SAMEKEY_GUARD_RUN)
        _exit(1);
    if (step == 1)
        raise(SIGKILL);
    run(db, "INSERT INTO orders VALUES ('o')");
    if (step == 2)
        raise(SIGKILL);
    samekey_guard_sqlite_finish(db, &CALL, &DONE, NULL);
    if (step == 3)
        raise(SIGKILL);
    run(db, "COMMIT");
    raise(SIGKILL);
}

static void killed_between_begin_and_commit_nothing_happened(void **state)
{
    for (int step = 0; step <= 4; step++) {
        fresh(state);
        for (int i = 0; i < (step < 4 ? KILLS / 4 : 1); i++) {
            pid_t child = fork();
            if (child == 0)
                die_at(step);
            int how;
            assert_int_equal(waitpid(child, &how, 0), child);
            assert_true(WIFSIGNALED(how));
        }
        sqlite3 *db = open_file();
        struct samekey_guard_receipt r = {0};
        assert_int_equal(samekey_guard_sqlite_receipt(db, "c-1", NULL, &r, NULL), SAMEKEY_GUARD_OK);
        assert_int_equal(r.state, step < 4 ? SAMEKEY_GUARD_STATE_NOT_RECEIVED : SAMEKEY_GUARD_STATE_SUCCESS);
        samekey_guard_sqlite_receipt_clear(&r);
        assert_int_equal(place(db, &CALL), step < 4 ? SAMEKEY_GUARD_RUN : SAMEKEY_GUARD_REPLAY);
        assert_int_equal(number(db, "SELECT count(*) FROM orders"), 1);
        sqlite3_close(db);
    }
}

static void what_is_past_its_life_goes_and_never_runs_again(void **state)
{
    (void)state;
    sqlite3 *db = open_file();
    struct samekey_guard_call call = CALL, late = CALL;
    call.call_id = "ord-1700000000000-0123456789ab-n1";
    late.call_id = "c-2";
    assert_int_equal(place(db, &call), SAMEKEY_GUARD_RUN);
    run(db, "UPDATE samekey_call SET created_ms = 1700000000000, ended_ms = 1700000000000, key_expires_ms = "
            "1700000000001");
    assert_int_equal(place(db, &late), SAMEKEY_GUARD_EXPIRED);
    run(db, "INSERT INTO samekey_purge(most) VALUES (10)");
    assert_int_equal(number(db, "SELECT count(*) FROM samekey_call"), 0);
    assert_int_equal(place(db, &call), SAMEKEY_GUARD_EXPIRED);
    struct samekey_guard_receipt r = {0};
    assert_int_equal(samekey_guard_sqlite_fence(db, &call, &r, NULL), SAMEKEY_GUARD_OK);
    assert_int_equal(r.state, SAMEKEY_GUARD_STATE_UNKNOWN);
    assert_non_null(strstr(r.document, "beyond-retention"));
    samekey_guard_sqlite_receipt_clear(&r);
    assert_int_equal(place(db, &late), SAMEKEY_GUARD_RUN);
    sqlite3_close(db);
}

static void installing_again_loses_nothing_and_a_newer_schema_is_left_alone(void **state)
{
    (void)state;
    sqlite3 *db = open_file();
    struct samekey_guard_error error = {0};
    assert_int_equal(place(db, &CALL), SAMEKEY_GUARD_RUN);
    assert_int_equal(samekey_guard_sqlite_install(db, &error), SAMEKEY_GUARD_OK);
    assert_int_equal(place(db, &CALL), SAMEKEY_GUARD_REPLAY);
    run(db, "UPDATE samekey_setting SET version = 2; DROP VIEW samekey_now; CREATE VIEW samekey_now(ms) AS "
            "SELECT 7");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(samekey_guard_sqlite_install(db, &error), SAMEKEY_GUARD_DATABASE);
        assert_non_null(strstr(error.text, "is newer"));
    }
    assert_int_equal(number(db, "SELECT ms FROM samekey_now"), 7);
    run(db, "BEGIN");
    assert_int_equal(samekey_guard_sqlite_install(db, &error), SAMEKEY_GUARD_NO_TRANSACTION);
    run(db, "ROLLBACK");
    sqlite3_close(db);
}

static int begin_group(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int end_group(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(folder) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_replay_has_the_bytes_of_the_first_answer, fresh),
        cmocka_unit_test_setup(receipts_and_fences, fresh),
        cmocka_unit_test_setup(what_may_not_be_is_refused_and_the_transaction_stays, fresh),
        cmocka_unit_test_setup(a_commit_without_an_ending_is_told_as_unknown, fresh),
        cmocka_unit_test_setup(another_writer_is_in_progress_or_a_transaction_to_run_again, fresh),
        cmocka_unit_test_setup(an_event_goes_with_its_transaction, fresh),
        cmocka_unit_test_setup(of_several_processes_one_runs, fresh),
        cmocka_unit_test_setup(killed_between_begin_and_commit_nothing_happened, fresh),
        cmocka_unit_test_setup(what_is_past_its_life_goes_and_never_runs_again, fresh),
        cmocka_unit_test_setup(installing_again_loses_nothing_and_a_newer_schema_is_left_alone, fresh),
    };
    return cmocka_run_group_tests(tests, begin_group, end_group);
}
