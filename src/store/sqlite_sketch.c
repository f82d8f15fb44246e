/* SPDX-License-Identifier: MIT
 *
 * Writes the sketches of blocks that are full (sketch.h), off the path of calls: a few blocks for each STORE_SKETCH, oldest
 * first. meta 'sketched' is the first block that has none.
 *
 * A row's texts never change, but the state of one that is not final does. Such a row counts as being in any state, so
 * its block's sketch stays true whatever becomes of it. Rows that are purged leave their terms behind: a look too many.
 */
#include "store/sketch.h"
#include "store/sqlite.h"

static void add_column(struct sketch *sketch, enum sketch_kind kind, sqlite3_stmt *stmt, int column,
                       bool empty_too)
{
    const char *data = sqlite3_column_blob(stmt, column);
    size_t len = data ? (size_t)sqlite3_column_bytes(stmt, column) : 0;
    if (len || empty_too)
        sketch_add(sketch, kind, slice_of(data, len));
}

static void add_states(struct sketch *sketch, int state, bool final)
{
    for (int i = STATE_RECEIVED; i <= STATE_UNKNOWN; i++)
        if (i == state || !final)
            sketch_add(sketch, SKETCH_STATE, slice_text(state_text((enum call_state)i)));
}

static int sketch_block(struct sqlite_store *s, int64_t block)
{
    struct sketch sketch = {{0}};
    int64_t made_ms = 0;
    bool any = false;
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_SKETCH_ROWS);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, block * SQLITE_BLOCK_ROWS);
    sqlite3_bind_int64(stmt, 2, block * SQLITE_BLOCK_ROWS + SQLITE_BLOCK_ROWS - 1);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        if (!any)
            made_ms = sqlite3_column_int64(stmt, 0);
        any = true;
        add_states(&sketch, sqlite3_column_int(stmt, 1), sqlite3_column_int(stmt, 2) != 0);
        add_column(&sketch, SKETCH_TENANT, stmt, 3, true);
        add_column(&sketch, SKETCH_ROUTE, stmt, 4, false);
        add_column(&sketch, SKETCH_CALL_ID, stmt, 5, false);
        add_column(&sketch, SKETCH_KEY, stmt, 6, false);
        add_column(&sketch, SKETCH_BUSINESS_REF, stmt, 7, false);
        add_column(&sketch, SKETCH_TRACE_ID, stmt, 8, false);
    }
    if (rc != SQLITE_OK || !any)
        return rc; /* a block whose rows are all gone needs none */
    stmt = connection_statement(&s->writer, SQL_SKETCH_ADD);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, block);
    sqlite3_bind_int64(stmt, 2, made_ms);
    sqlite3_bind_blob(stmt, 3, sketch.bits, sizeof sketch.bits, SQLITE_STATIC);
    return connection_step(stmt);
}

int sqlite_sketch(struct sqlite_store *s, struct store_op *op)
{
    int64_t sketched = 0, first,
            full = (s->last_id + 1) / SQLITE_BLOCK_ROWS; /* blocks that get no more rows */
    int rc = meta_read(&s->writer, "sketched", &sketched);
    first = sketched;
    while (rc == SQLITE_OK && sketched < full && op->count < op->limit) {
        rc = sketch_block(s, sketched);
        sketched++;
        op->count++;
    }
    if (rc == SQLITE_OK && sketched != first)
        rc = meta_write(s, "sketched", sketched);
    op->more = sketched < full;
    op->done = op->count > 0;
    return rc;
}
