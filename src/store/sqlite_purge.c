/* SPDX-License-Identifier: MIT
 *
 * Lives of ended rows and what is removed at their end. Its cost must not grow with the number of rows stored, and
 * an index over expiry times would be paid by every ending. So an ending notes only "look at block B in minute M":
 * one small row of `due` for all endings of that block and minute, nearly always noted already. Purging takes the
 * notes that are due, oldest first, and looks at the SQLITE_BLOCK_ROWS ids of each block.
 *
 * Always true: every row that will expire has a note at or before the minute of its next expiry. A note too many
 * costs a look; a missing one would keep a body for ever.
 *
 * Bodies that the archive wants go there first: a step begins with a look at the blocks it will come to, puts what is due
 * into the archive, at once, and then drops only what is there. What the archive did not take stays, and gets a note for the
 * next minute, so that one step is not spent on the same blocks again and again.
 */
#include "store/sqlite.h"

#define MINUTE_MS 60000

struct due_row {
    struct call_row row;
    bool has_body;
};

/* When something is next to be done about the row; 0: never. Running and unknown calls never expire. */
static int64_t next_due(const struct call_row *row, bool has_body)
{
    int64_t due = INT64_MAX;
    if (row->state != STATE_SUCCESS && row->state != STATE_FAILED)
        return 0;
    if (has_body && row->result_expires_ms > 0)
        due = row->result_expires_ms;
    int64_t then = row->final ? row->tombstone_expires_ms : row->key_expires_ms;
    if (then > 0 && then < due)
        due = then;
    return due == INT64_MAX ? 0 : due;
}

static struct due_note *remembered(struct sqlite_store *s, const int64_t note[2])
{
    return &s->noted[(uint64_t)(note[0] * 31 + note[1]) % SQLITE_DUE_NOTES];
}

static int write_note(struct sqlite_store *s, int64_t minute, int64_t block)
{
    const int64_t note[] = {minute, block};
    struct due_note *slot = remembered(s, note);
    if (slot->minute == minute && slot->block == block)
        return SQLITE_OK;
    int rc = connection_run(&s->writer, SQL_DUE_ADD, 2, note);
    if (rc == SQLITE_OK)
        slot->minute = minute, slot->block = block;
    return rc;
}

int due_note(struct sqlite_store *s, const struct call_row *row)
{
    int64_t due = next_due(row, row->has_result && row->body_kept && !row->original);
    return due ? write_note(s, due / MINUTE_MS, row->id / SQLITE_BLOCK_ROWS) : SQLITE_OK;
}

static int read_block(struct sqlite_store *s, int64_t block, struct due_row rows[SQLITE_BLOCK_ROWS],
                      size_t *count)
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_BLOCK);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, block * SQLITE_BLOCK_ROWS);
    sqlite3_bind_int64(stmt, 2, block * SQLITE_BLOCK_ROWS + SQLITE_BLOCK_ROWS - 1);
    int rc;
    *count = 0;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        struct due_row *due = &rows[(*count)++];
        memset(due, 0, sizeof *due);
        struct call_row *row = &due->row;
        row->id = sqlite3_column_int64(stmt, 0);
        row->state = (enum call_state)sqlite3_column_int(stmt, 1);
        row->final = sqlite3_column_int(stmt, 2) != 0;
        due->has_body = sqlite3_column_int(stmt, 3) & ROW_FLAG_BODY_KEPT;
        row->created_ms = sqlite3_column_int64(stmt, 4);
        row->result_expires_ms = sqlite3_column_int64(stmt, 5);
        row->key_expires_ms = sqlite3_column_int64(stmt, 6);
        row->tombstone_expires_ms = sqlite3_column_int64(stmt, 7);
        const void *call = sqlite3_column_blob(stmt, 8), *operation = sqlite3_column_blob(stmt, 9);
        if (call && sqlite3_column_bytes(stmt, 8) == sizeof row->call_digest.bytes)
            memcpy(row->call_digest.bytes, call, sizeof row->call_digest.bytes);
        row->has_key = operation && sqlite3_column_bytes(stmt, 9) == sizeof row->operation_digest.bytes;
        if (row->has_key)
            memcpy(row->operation_digest.bytes, operation, sizeof row->operation_digest.bytes);
    }
    return rc;
}

/* ---- the archive ---- */

/* Whether the row's body is due to go, and the archive is to have it before. */
static bool body_leaves(const struct sqlite_store *s, const struct due_row *due)
{
    const struct call_row *row = &due->row;
    bool ended = row->state == STATE_SUCCESS || row->state == STATE_FAILED;
    bool over = (row->result_expires_ms > 0 && row->result_expires_ms <= s->now) ||
                (row->final && row->tombstone_expires_ms > 0 && row->tombstone_expires_ms <= s->now);
    return ended && over && due->has_body && archive_wants(s->archive, row->key_expires_ms);
}

static bool archived_has(const struct sqlite_store *s, int64_t id)
{
    for (size_t i = 0; i < s->archived.count; i++)
        if (s->archived.ids[i] == id)
            return true;
    return false;
}

/* Adds the row to the batch; `full` says that it was not, and that the batch is to be written first. */
static int archive_row(struct sqlite_store *s, struct archive_batch *batch, int64_t id, bool *full)
{
    struct rows rows = {.now_ms = s->now, .covers_since_ms = s->covers_since_ms};
    struct buffer memory = {0};
    int rc = row_read(&s->writer, id, &rows.call, &memory);
    if (rc == SQLITE_OK) {
        rows_settle(&rows, &memory);
        /* Nothing of its own to be kept: it may go as it is. */
        bool nothing = !rows.call.id || rows.call.original || !rows.call.body_kept;
        *full = !nothing && !archive_batch_add(batch, s->archive, &rows, s->now);
        if (!*full)
            s->archived.ids[s->archived.count++] = id;
    }
    buffer_fini(&memory);
    return rc;
}

static int archive_block(struct sqlite_store *s, struct archive_batch *batch, int64_t block, size_t limit,
                         bool *full)
{
    struct due_row rows[SQLITE_BLOCK_ROWS];
    size_t count = 0;
    int rc = read_block(s, block, rows, &count);
    for (size_t i = 0; rc == SQLITE_OK && !*full && i < count; i++) {
        if (!body_leaves(s, &rows[i]) || archived_has(s, rows[i].row.id))
            continue;
        *full = s->archived.count >= limit || s->archived.count == ARCHIVE_STEP_ROWS;
        if (!*full)
            rc = archive_row(s, batch, rows[i].row.id, full);
    }
    return rc;
}

/* The next note that is due behind the cursor's first two numbers, into them: SQLITE_ROW. */
static int next_note(struct sqlite_store *s, int64_t cursor[3])
{
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_DUE_NEXT);
    if (!stmt)
        return sqlite_error(s->writer.db);
    for (int i = 0; i < 3; i++)
        sqlite3_bind_int64(stmt, i + 1, cursor[i]);
    int rc = connection_step(stmt);
    if (rc == SQLITE_ROW) {
        cursor[0] = sqlite3_column_int64(stmt, 0);
        cursor[1] = sqlite3_column_int64(stmt, 1);
        sqlite3_reset(stmt);
    }
    return rc;
}

/* Puts into the archive what this step may drop. Only a fault of the database is one of the step. */
static int archive_ahead(struct sqlite_store *s, size_t limit)
{
    struct archive_batch batch = {0};
    int64_t cursor[3] = {-1, -1, s->now / MINUTE_MS};
    bool full = false;
    int rc = SQLITE_OK;
    s->archived.count = 0;
    s->archived.failed = false;
    for (int blocks = 0; rc == SQLITE_OK && !full && blocks < SQLITE_PURGE_BLOCKS; blocks++) {
        rc = next_note(s, cursor);
        if (rc != SQLITE_ROW)
            break;
        rc = archive_block(s, &batch, cursor[1], limit, &full);
    }
    if (rc == SQLITE_OK && (archive_batch_write(&batch, s->archive) != STATUS_OK ||
                            (full && limit && !s->archived.count))) { /* no memory for a single one */
        s->archived.failed = true;
        s->archived.count = 0;
    }
    archive_batch_fini(&batch);
    return rc;
}

/* ---- one step ---- */

/* Removes the row with all that belongs to it; the key's slot only where this row still holds it. */
static int remove_row(struct sqlite_store *s, const struct due_row *due)
{
    const struct call_row *row = &due->row;
    int rc = identity_remove(s, &row->call_digest, row->id);
    if (rc == SQLITE_OK && row->has_key)
        rc = identity_remove(s, &row->operation_digest, row->id);
    if (rc == SQLITE_OK)
        rc = task_remove(s, row->id);
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_STANDING_DELETE, 1, &row->id);
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_ASKED_DELETE, 1, &row->id);
    if (rc == SQLITE_OK) {
        s->removed++;
        if (row->created_ms >= s->covers_since_ms)
            s->covers_since_ms = row->created_ms + 1;
    }
    return rc;
}

/* Does what is due about the row; `touched` says whether anything was, `held` that the archive has to have its body first.
 * The row afterwards is in `due`. */
static int expire_row(struct sqlite_store *s, struct due_row *due, bool *touched, bool *held)
{
    struct call_row *row = &due->row;
    int64_t when;
    int rc = SQLITE_OK;
    *touched = false;
    *held = body_leaves(s, due) && !archived_has(s, row->id);
    while (rc == SQLITE_OK && !*held && (when = next_due(row, due->has_body)) != 0 && when <= s->now) {
        *touched = true;
        if (row->final && row->tombstone_expires_ms > 0 && row->tombstone_expires_ms <= s->now) {
            rc = remove_row(s, due);
            row->tombstone_expires_ms = row->result_expires_ms = 0;
        } else if (due->has_body && row->result_expires_ms > 0 && row->result_expires_ms <= s->now) {
            rc = connection_run(&s->writer, SQL_BODY_GONE, 1, &row->id);
            due->has_body = false;
        } else {
            const int64_t numbers[] = {row->id, REASON_ABANDONED, s->now};
            rc = connection_run(&s->writer, SQL_ABANDON, 3, numbers);
            if (rc == SQLITE_OK)
                rc = kept_settle(s, row->id, STATE_FAILED);
            row->final = true;
        }
    }
    return rc;
}

static int purge_block(struct sqlite_store *s, struct store_op *op, const int64_t note[2])
{
    struct due_row rows[SQLITE_BLOCK_ROWS];
    size_t count = 0;
    /* The note goes first: looking at the block writes it again where something is left for it. */
    int rc = connection_run(&s->writer, SQL_DUE_DELETE, 2, note);
    memset(remembered(s, note), 0, sizeof(struct due_note));
    if (rc == SQLITE_OK)
        rc = read_block(s, note[1], rows, &count);
    for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
        bool touched = false, held = false;
        if (op->count < op->limit)
            rc = expire_row(s, &rows[i], &touched, &held);
        op->count += touched;
        if (held && s->archived.failed) {
            if (rc == SQLITE_OK)
                rc = write_note(s, s->now / MINUTE_MS + 1, note[1]);
            continue;
        }
        op->more = op->more || held;
        /* A row that was touched has a new due time; one that is due in this very minute, or that the bound left
         * over, still needs this note. Others have their own. */
        int64_t due = next_due(&rows[i].row, rows[i].has_body);
        if (rc == SQLITE_OK && due && (touched || due / MINUTE_MS <= note[0]))
            rc = write_note(s, due / MINUTE_MS, note[1]);
    }
    return rc;
}

int covers_since_write(struct sqlite_store *s)
{
    if (s->refuse_before_ms < s->covers_since_ms)
        s->refuse_before_ms = s->covers_since_ms;
    int rc = meta_write(s, "covers_since_ms", s->covers_since_ms);
    return rc == SQLITE_OK ? meta_write(s, "refuse_before_ms", s->refuse_before_ms) : rc;
}

int sqlite_purge(struct sqlite_store *s, struct store_op *op)
{
    int64_t cursor[3] = {-1, -1, s->now / MINUTE_MS}, removed = s->removed, covers = s->covers_since_ms;
    int rc = SQLITE_OK;
    op->more = false;
    if (s->archive)
        rc = archive_ahead(s, op->limit);
    if (rc != SQLITE_OK)
        return rc;
    for (int blocks = 0;; blocks++) {
        rc = next_note(s, cursor);
        if (rc != SQLITE_ROW)
            break;
        rc = SQLITE_OK;
        if (op->count >= op->limit || blocks >= SQLITE_PURGE_BLOCKS) {
            op->more = true;
            break;
        }
        rc = purge_block(s, op, cursor);
        if (rc != SQLITE_OK)
            return rc;
    }
    if (rc == SQLITE_OK && s->removed != removed) {
        rc = meta_write(s, "removed", s->removed);
        if (rc == SQLITE_OK)
            rc = known_drop(s);
        if (rc == SQLITE_OK)
            rc = meta_write(s, "last_id",
                            s->last_id); /* ids are never given twice, even if the newest row goes */
    }
    if (rc == SQLITE_OK && s->covers_since_ms != covers)
        rc = covers_since_write(s);
    op->done = op->count > 0;
    return rc;
}
