/* SPDX-License-Identifier: MIT
 *
 * What stands of a call. A call that was claimed and nothing else has one row, in `asked`, that is never written again;
 * its first change adds a row to `standing`. Measured: an ending that rewrites the wide row it was claimed with costs
 * three times an insert of the narrow one, and dirties the page of every claim once more.
 *
 * Nearly every call is claimed and then ended, by one process. So the writer remembers, of the newest calls, those that
 * stand as they were claimed: their ending needs no look into the file.
 *
 * Always true: a row remembered here is in `asked`, as the running transaction sees it, and has none in `standing`. What
 * is forgotten costs a look; the primary key of `standing` is the last line against remembering too much.
 */
#include "store/sqlite.h"

#include <assert.h>

static struct claimed *claimed_at(struct sqlite_store *s, int64_t id)
{
    return &s->claimed[(uint64_t)id % SQLITE_CLAIMED_ROWS];
}

void standing_forget(struct sqlite_store *s)
{
    if (s->claimed_after < s->last_id)
        memset(s->claimed, 0, sizeof s->claimed);
    s->claimed_after = INT64_MAX;
}

int standing_begin(struct sqlite_store *s, const struct call_row *row, bool slot)
{
    bool kept = row->has_result && row->body_kept && !row->original;
    int flags = (row->call_id_made ? ROW_FLAG_CALL_ID_MADE : 0) | (row->maybe_ran ? ROW_FLAG_MAYBE_RAN : 0) |
                (kept ? ROW_FLAG_BODY_KEPT : 0) | (slot ? ROW_FLAG_SLOT : 0);
    bool as_claimed = state_running(row->state) && row->fence == 1 && !row->final && !row->reason &&
                      !row->has_result && !row->original && !row->attempts.len && !row->reversed_by.len;
    orphans_forget(s, row->id);
    int rc = row_insert(&s->writer, row, flags, as_claimed);
    if (rc == SQLITE_OK && as_claimed)
        *claimed_at(s, row->id) = (struct claimed){.id = row->id,
                                                   .first_attempt_ms = row->first_attempt_ms,
                                                   .attempt_count = row->attempt_count,
                                                   .state = row->state,
                                                   .flags = flags};
    return rc;
}

int standing_make(struct sqlite_store *s, int64_t id)
{
    struct claimed *claimed = claimed_at(s, id);
    if (claimed->id == id)
        claimed->id = 0;
    return connection_run(&s->writer, SQL_STANDING_MAKE, 1, &id);
}

int standing_end(struct sqlite_store *s, const struct store_op *op, bool result, int64_t ended_ms, bool *done)
{
    struct claimed *claimed = claimed_at(s, op->id);
    *done = false;
    if (claimed->id != op->id || !(1u << claimed->state & op->from_states) || state_running(op->row.state) ||
        !(op->any_fence || op->fence == 1))
        return SQLITE_OK;
    struct call_row row = op->row;
    row.id = op->id;
    row.fence = op->any_fence ? 2 : 1;
    row.first_attempt_ms = claimed->first_attempt_ms;
    row.attempt_count = claimed->attempt_count;
    row.updated_ms = s->now;
    row.ended_ms = ended_ms;
    row.lease_end_ms = row.original = 0;
    row.has_result = result;
    row.owner.len = row.reversed_by.len = 0; /* the owner is who claimed it */
    int flags = (claimed->flags & ~ROW_FLAG_MAYBE_RAN) | (row.maybe_ran ? ROW_FLAG_MAYBE_RAN : 0) |
                (result && row.body_kept ? ROW_FLAG_BODY_KEPT : 0);
    claimed->id = 0;
    int rc = standing_insert(&s->writer, &row, flags);
    *done = rc == SQLITE_OK;
    return rc;
}

/* Whether memory knows of every id of the block how it was claimed. */
static bool block_remembered(const struct sqlite_store *s, int64_t first)
{
    return first > s->claimed_after && first + SQLITE_CLAIMED_ROWS > s->last_id + 1;
}

int standing_unended(struct sqlite_store *s, int64_t block, bool *unended)
{
    int64_t first = block * SQLITE_BLOCK_ROWS;
    bool remembered = block_remembered(s, first);
    *unended = false;
    for (int64_t id = first; remembered && !*unended && id < first + SQLITE_BLOCK_ROWS; id++)
        *unended = claimed_at(s, id)->id == id;
    if (*unended)
        return SQLITE_OK;
    sqlite3_stmt *stmt =
        connection_statement(&s->writer, remembered ? SQL_UNENDED_STANDING : SQL_UNENDED_ANY);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, first);
    sqlite3_bind_int64(stmt, 2, first + SQLITE_BLOCK_ROWS - 1);
    int rc = connection_step(stmt);
    *unended = rc == SQLITE_ROW;
    return rc == SQLITE_ROW ? sqlite3_reset(stmt) : rc;
}
