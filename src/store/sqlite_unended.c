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

static int look_at_next(struct sqlite_store *s, int64_t keep)
{
    int64_t block = 0;
    bool found = false;
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_UNENDED_NEXT);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, s->unended_cursor);
    int rc = connection_step(stmt);
    if (rc == SQLITE_ROW) {
        found = true;
        block = sqlite3_column_int64(stmt, 0);
        rc = sqlite3_reset(stmt);
    }
    if (rc != SQLITE_OK)
        return rc;
    s->unended_cursor = found ? block : -1;
    if (!found || block == keep || block == s->unended_noted)
        return SQLITE_OK;
    rc = standing_unended(s, block, &found);
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
