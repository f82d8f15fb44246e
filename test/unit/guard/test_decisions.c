/* SPDX-License-Identifier: MIT
 *
 * The table of the guard's decisions against the SQLite library, in a database in memory.
 */
#include "../base/check.h"

#include "../../guard/decisions.h"
#include "samekey/guard_sqlite.h"

#include <sqlite3.h>
#include <stdlib.h>

#define OLD_ID "c-1700000000000-0123456789ab-n"

static void run(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

static const char *or_null(char c, char text[8])
{
    snprintf(text, 8, c == '-' ? "NULL" : "'%c'", c);
    return text;
}

static void put(sqlite3 *db, const char *call_id, const char *kind, char key, char print, char route,
                bool holds)
{
    if (strcmp(kind, "none") == 0)
        return;
    bool success = strcmp(kind, "done") == 0 || strcmp(kind, "shared") == 0 || strcmp(kind, "expired") == 0;
    bool running = strcmp(kind, "running") == 0;
    const char *reason = *kind == 'f'                    ? "'fenced'"
                         : strcmp(kind, "rejected") == 0 ? "'rejected'"
                         : strcmp(kind, "open") == 0     ? "'not_executed'"
                                                         : "NULL";
    char sql[1024], a[8], b[8];
    snprintf(sql, sizeof sql,
             "INSERT INTO samekey_call(tenant, call_id, route, key, fingerprint, state, final, holds, came, "
             "reason, run, "
             "result_kept, original_call_id, created_ms, ended_ms, key_expires_ms) VALUES('', '%s', '%c', "
             "%s, %s, '%s', "
             "%d, %d, %d, %s, 'x', 0, %s, 1, 2, %s)",
             call_id, route == '-' ? 'r' : route, or_null(key, a), or_null(print, b),
             success   ? "SUCCESS"
             : running ? "PROCESSING"
                       : "FAILED",
             !running && strcmp(kind, "open") != 0, holds && key != '-', strcmp(kind, "fence") != 0, reason,
             strcmp(kind, "shared") == 0 ? "'h'" : "NULL",
             strcmp(kind, "expired") == 0 ? "1" : "9223372036854775807");
    run(db, sql);
}

static const char *const words[] = {"",         "run",    "replay",  "in_progress",
                                    "mismatch", "fenced", "expired", "retry_transaction"};

static void play(void *context, const struct decision *d)
{
    sqlite3 *db = context;
    const char *call_id = d->old ? OLD_ID : "c-9";
    run(db, "BEGIN IMMEDIATE");
    run(db, "UPDATE samekey_setting SET refuse_before_ms = 1700000000001");
    put(db, "h", d->holder, 'A', d->holder_fingerprint, 'r', true);
    put(db, call_id, d->own, d->own_key, d->own_fingerprint, d->own_route,
        strcmp(d->own, "done") == 0 || strcmp(d->own, "running") == 0);
    char key[2] = {d->key}, print[2] = {d->fingerprint}, route[2] = {d->route};
    struct samekey_guard_call call = {.call_id = call_id,
                                      .key = d->key == '-' ? NULL : key,
                                      .fingerprint = d->fingerprint == '-' ? NULL : print,
                                      .route = route};
    struct samekey_guard_answer answer = {0};
    struct samekey_guard_error error = {0};
    if (samekey_guard_sqlite_begin(db, &call, &answer, &error) != SAMEKEY_GUARD_OK)
        fail_msg("decisions.txt:%d: %s", d->line, error.text);
    if (strcmp(words[answer.verdict], d->verdict) != 0)
        fail_msg("decisions.txt:%d: the guard says %s, not %s", d->line, words[answer.verdict], d->verdict);
    /* Only who runs has a name for it to look for, and only who replays gets a state. */
    assert_int_equal(answer.verdict == SAMEKEY_GUARD_REPLAY, answer.state != 0);
    if (answer.verdict == SAMEKEY_GUARD_RUN)
        assert_int_equal(strlen(answer.run), 32);
    samekey_guard_sqlite_answer_clear(&answer);
    run(db, "ROLLBACK");
}

static void the_library_says_what_the_table_says(void **state)
{
    (void)state;
    sqlite3 *db;
    struct samekey_guard_error error = {0};
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(samekey_guard_sqlite_install(db, &error), SAMEKEY_GUARD_OK);
    assert_int_equal(samekey_guard_sqlite_install(db, &error), SAMEKEY_GUARD_OK); /* again is no harm */
    assert_true(decisions_play(play, db) > 300);
    sqlite3_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_library_says_what_the_table_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
