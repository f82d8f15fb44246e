/* SPDX-License-Identifier: MIT
 *
 * What a statement says of a database beside the store: one number.
 */
#ifndef SAMEKEY_TEST_NUMBER_H
#define SAMEKEY_TEST_NUMBER_H

#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>

/* `name` is a file in the scratch folder; the statement gives one row. */
static inline int64_t number_in(const char *name, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_open(scratch_path(name), &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

#endif
