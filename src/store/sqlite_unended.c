/* SPDX-License-Identifier: MIT
 *
 * Where the calls are that have not ended. At the start the owner has to find them without looking at every row, and an
 * index over the state would be written twice by every call (measured: a quarter of all work). So table `unended` names
 * blocks of SQLITE_BLOCK_ROWS ids: one small row for all calls of a block.
 *
 * Always true: a row in RECEIVED, PROCESSING or UNKNOWN lies in a block that is named. A name too many costs a look at
 * the start. Whenever a block is named, a few others are looked at in turn and their names removed if all their calls
 * have ended, so the names stay about as many as the blocks that need one, however long the process lives.
 */
#include "store/sqlite.h"

#define LOOKS 2 /* at named blocks, for each new name: more than one, so that names do not pile up */

/* One row with one number, or none: `found`. */
static int ask(struct sqlite_store *s, enum statement which, int64_t first, int64_t second, int64_t *answer,
               bool *found)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, which);
    if (!stmt)
        return sqlite3_extended_errcode(s->writer.db);
    sqlite3_bind_int64(stmt, 1, first);
    if (sqlite3_bind_parameter_count(stmt) > 1)
        sqlite3_bind_int64(stmt, 2, second);
    int rc = connection_step(stmt);
    *found = rc == SQLITE_ROW;
    if (rc != SQLITE_ROW)
        return rc;
    *answer = sqlite3_column_int64(stmt, 0);
    return sqlite3_reset(stmt);
}

static int look_at_next(struct sqlite_store *s, int64_t keep)
{
    int64_t block = 0, id;
    bool found = false;
    int rc = ask(s, SQL_UNENDED_NEXT, s->unended_cursor, 0, &block, &found);
    if (rc != SQLITE_OK)
        return rc;
    s->unended_cursor = found ? block : -1;
    if (!found || block == keep || block == s->unended_noted)
        return SQLITE_OK;
    rc = ask(s, SQL_UNENDED_ANY, block * SQLITE_BLOCK_ROWS, block * SQLITE_BLOCK_ROWS + SQLITE_BLOCK_ROWS - 1,
             &id, &found);
    return rc == SQLITE_OK && !found ? connection_run(&s->writer, SQL_UNENDED_REMOVE, 1, &block) : rc;
}

int unended_note(struct sqlite_store *s, int64_t id)
{
    int64_t block = id / SQLITE_BLOCK_ROWS;
    if (block == s->unended_noted)
        return SQLITE_OK;
    int rc = connection_run(&s->writer, SQL_UNENDED_ADD, 1, &block);
    for (int i = 0; rc == SQLITE_OK && i < LOOKS; i++)
        rc = look_at_next(s, block);
    /* Only the newest block is remembered, and its name is not removed while it is. */
    if (rc == SQLITE_OK && id >= s->last_id)
        s->unended_noted = block;
    return rc;
}
