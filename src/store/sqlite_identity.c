/* SPDX-License-Identifier: MIT
 *
 * Which row a digest names: in memory for the newest rows (tail.h), in table `identity` for all others. Claims add to
 * memory; what happens rarely (a slot that moves, a row that goes) is written to both at once, so that after a crash
 * the table is right as far as it goes, and rows newer than meta `indexed` tell the rest.
 */
#include "store/sqlite.h"

#include <assert.h>

static int digest_run(struct connection *c, enum statement which, const struct digest *digest, int64_t id)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_blob(stmt, 1, digest->bytes, sizeof digest->bytes, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, id);
    return connection_step(stmt);
}

static int table_find(struct connection *c, enum statement which, const struct digest *digest, int64_t *id)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite3_extended_errcode(c->db);
    sqlite3_bind_blob(stmt, 1, digest->bytes, sizeof digest->bytes, SQLITE_STATIC);
    int rc = connection_step(stmt);
    if (rc != SQLITE_ROW)
        return rc;
    *id = sqlite3_column_int64(stmt, 0);
    return sqlite3_reset(stmt);
}

int identity_find(struct sqlite_store *s, struct connection *c, const struct digest *digest, int64_t *id)
{
    *id = 0;
    if (c == &s->writer && !s->read_only)
        *id = tail_find(&s->tail, digest);
    else if (!s->read_only && !tail_read(&s->tail, digest, id))
        return SQLITE_BUSY; /* the memory is being read again: "not known" would be a lie */
    int rc = *id ? SQLITE_OK : table_find(c, SQL_IDENTITY_FIND, digest, id);
    /* Without the owner's memory, as a second process that only reads: search the rows not merged yet. */
    if (rc == SQLITE_OK && !*id && s->read_only)
        rc = table_find(c, SQL_IDENTITY_SCAN, digest, id);
    return rc;
}

int identity_prefix(struct sqlite_store *s, const struct digest *digest, int64_t *ids, size_t max,
                    size_t *count)
{
    struct digest low = *digest, high = *digest;
    memset(low.bytes + DIGEST_CALL_PREFIX, 0, sizeof low.bytes - DIGEST_CALL_PREFIX);
    memset(high.bytes + DIGEST_CALL_PREFIX, 0xff, sizeof high.bytes - DIGEST_CALL_PREFIX);
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_IDENTITY_PREFIX);
    if (!stmt)
        return sqlite3_extended_errcode(s->writer.db);
    *count = tail_prefix(&s->tail, digest, ids, max);
    sqlite3_bind_blob(stmt, 1, low.bytes, sizeof low.bytes, SQLITE_STATIC);
    sqlite3_bind_blob(stmt, 2, high.bytes, sizeof high.bytes, SQLITE_STATIC);
    int rc;
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        if (*count < max)
            ids[(*count)++] = sqlite3_column_int64(stmt, 0);
    }
    return rc;
}

int identities_find(struct sqlite_store *s, struct connection *c, const struct call_row *row, int64_t *call,
                    int64_t *holder)
{
    *holder = 0;
    int rc = identity_find(s, c, &row->call_digest, call);
    if (rc == SQLITE_OK && row->has_key)
        rc = identity_find(s, c, &row->operation_digest, holder);
    return rc;
}

int identity_add(struct sqlite_store *s, const struct digest *digest, int64_t id)
{
    assert(id > s->last_id); /* rebuilt from rows newer than `indexed` only */
    s->merge_debt += 1 + SQLITE_MERGE_AHEAD;
    return tail_add(&s->tail, digest, id) == STATUS_OK ? SQLITE_OK : SQLITE_NOMEM;
}

int identity_move(struct sqlite_store *s, const struct digest *digest, int64_t from, int64_t to)
{
    tail_change(&s->tail, digest, to);
    int rc = digest_run(&s->writer, SQL_IDENTITY_PUT, digest, to);
    if (rc == SQLITE_OK && from)
        rc = connection_run(&s->writer, SQL_SLOT_LOST, 1, &from);
    return rc;
}

int identity_remove(struct sqlite_store *s, const struct digest *digest, int64_t id)
{
    if (tail_find(&s->tail, digest) == id)
        tail_change(&s->tail, digest, 0);
    return digest_run(&s->writer, SQL_IDENTITY_REMOVE, digest, id);
}

int identity_merge(struct sqlite_store *s)
{
    const struct tail_entry *e;
    int rc = SQLITE_OK;
    (void)tail_seal(&s->tail, s->last_id);
    if (s->merge_debt < SQLITE_MERGE_ENTRIES && s->merge_debt < s->tail.limit)
        return SQLITE_OK;
    for (; s->merge_debt > 0 && (e = tail_next(&s->tail)) != NULL; s->merge_debt--) {
        if (!e->id)
            continue;
        rc = digest_run(&s->writer, SQL_IDENTITY_ADD, &e->digest, e->id);
        if (rc == SQLITE_OK && sqlite3_changes(s->writer.db) == 0) {
            int64_t there = 0; /* merged before a crash, or put there by a move */
            rc = table_find(&s->writer, SQL_IDENTITY_FIND, &e->digest, &there);
            if (rc == SQLITE_OK && there != e->id)
                rc = SQLITE_CORRUPT; /* one key, two rows: the last line held, nothing more is written */
        }
        if (rc != SQLITE_OK)
            return rc;
    }
    s->merge_debt = 0;
    return tail_merged(&s->tail) ? meta_write(s, "indexed", s->tail.sealed_newest) : SQLITE_OK;
}

void identity_committed(struct sqlite_store *s)
{
    if (tail_merged(&s->tail))
        tail_drop(&s->tail);
}

int identity_load(struct sqlite_store *s)
{
    int64_t indexed = 0;
    struct tail tail;
    if (s->read_only)
        return SQLITE_OK;
    if (tail_init(&tail, s->tail.limit) != STATUS_OK)
        return SQLITE_NOMEM;
    int rc = meta_read(&s->writer, "indexed", &indexed);
    sqlite3_stmt *stmt = rc == SQLITE_OK ? connection_statement(&s->writer, SQL_UNMERGED) : NULL;
    if (!stmt) {
        rc = rc == SQLITE_OK ? sqlite3_extended_errcode(s->writer.db) : rc;
        goto done;
    }
    sqlite3_bind_int64(stmt, 1, indexed);
    while ((rc = connection_step(stmt)) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(stmt, 0);
        bool slot = sqlite3_column_int(stmt, 1) & ROW_FLAG_SLOT;
        for (int column = 2; rc == SQLITE_ROW && column < 3 + slot; column++) {
            struct digest digest;
            const void *bytes = sqlite3_column_blob(stmt, column);
            if (!bytes || sqlite3_column_bytes(stmt, column) != sizeof digest.bytes) {
                rc = SQLITE_CORRUPT;
                break;
            }
            memcpy(digest.bytes, bytes, sizeof digest.bytes);
            if (tail_find(&tail, &digest))
                rc = SQLITE_CORRUPT; /* two rows hold one key */
            else if (tail_add(&tail, &digest, id) != STATUS_OK)
                rc = SQLITE_NOMEM;
        }
        if (rc != SQLITE_ROW) {
            sqlite3_reset(stmt);
            break;
        }
    }
    if (rc == SQLITE_OK)
        tail_replace(&s->tail, &tail);
done:
    tail_fini(&tail);
    return rc;
}
