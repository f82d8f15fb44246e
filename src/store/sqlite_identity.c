/* SPDX-License-Identifier: MIT
 *
 * Which row a digest names: in memory for the newest rows (tail.h), in two tables for all others. Claims add to memory;
 * what happens rarely (a slot that moves, a row that goes) is written to all at once, so that after a crash the tables are
 * right as far as they go, and rows newer than meta `indexed` tell the rest.
 *
 *   memory ──a generation, in order──▶ `identity_recent` ──as many as come, in order, round and round──▶ `identity`
 *
 * A merge writes each page that it touches. In a table of 2 * 10^7 identities that is a page for nearly every one of a
 * generation; in the smaller table seven share one, and what it hands on to the large one ten (the rolling merge of
 * https://doi.org/10.1007/s002360050048). Both tables are unique; who merges into one looks into the other.
 */
#include "store/sqlite.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int digest_run(struct connection *c, enum statement which, const struct digest *digest, int64_t id)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_blob(stmt, 1, digest->bytes, sizeof digest->bytes, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, id);
    return connection_step(stmt);
}

static int table_find(struct connection *c, enum statement which, const struct digest *digest, int64_t *id)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite_error(c->db);
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
    if (c == &s->writer && !*id && !s->read_only && !known_perhaps(s, digest))
        return SQLITE_OK;
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
        return sqlite_error(s->writer.db);
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

/* sqlite3_changes() tells whether it was added. */
static int recent_add(struct sqlite_store *s, const struct digest *digest, int64_t id)
{
    int rc = digest_run(&s->writer, SQL_IDENTITY_ADD, digest, id);
    if (rc == SQLITE_OK && s->recent >= 0)
        s->recent += sqlite3_changes(s->writer.db);
    return rc;
}

int identity_move(struct sqlite_store *s, const struct digest *digest, int64_t from, int64_t to)
{
    uint8_t hash[FILTER_HASH_BYTES];
    tail_change(&s->tail, digest, to);
    int rc = digest_run(&s->writer, SQL_IDENTITY_CHANGE, digest, to);
    int changed = rc == SQLITE_OK ? sqlite3_changes(s->writer.db) : 0;
    if (rc == SQLITE_OK)
        rc = digest_run(&s->writer, SQL_RECENT_CHANGE, digest, to);
    if (rc == SQLITE_OK && !changed && sqlite3_changes(s->writer.db) == 0)
        rc = recent_add(s, digest, to);
    filter_hash_put(hash, filter_hash(digest));
    if (rc == SQLITE_OK)
        rc = known_add(s, to, to, hash, sizeof hash);
    if (rc == SQLITE_OK && from)
        rc = connection_run(&s->writer, SQL_SLOT_LOST, 1, &from);
    return rc;
}

int identity_remove(struct sqlite_store *s, const struct digest *digest, int64_t id)
{
    if (tail_find(&s->tail, digest) == id)
        tail_change(&s->tail, digest, 0);
    int rc = digest_run(&s->writer, SQL_IDENTITY_REMOVE, digest, id);
    if (rc == SQLITE_OK)
        rc = digest_run(&s->writer, SQL_RECENT_REMOVE, digest, id);
    if (rc == SQLITE_OK && s->recent > 0)
        s->recent -= sqlite3_changes(s->writer.db);
    return rc;
}

/* Runs a statement over the identities behind `from` up to `to`. */
static int range_run(struct connection *c, enum statement which, struct slice from, const struct digest *to)
{
    sqlite3_stmt *stmt = connection_statement(c, which);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_blob(stmt, 1, from.data, (int)from.len, SQLITE_STATIC);
    sqlite3_bind_blob(stmt, 2, to->bytes, sizeof to->bytes, SQLITE_STATIC);
    return connection_step(stmt);
}

/* Moves the next `count` identities of the smaller table to the large one; the last of them, and then from the first on. */
static int drain(struct sqlite_store *s, int64_t count)
{
    struct connection *c = &s->writer;
    struct digest to;
    memset(to.bytes, 0xff, sizeof to.bytes);
    struct slice from =
        slice_of((const char *)s->drained.bytes, s->drain_begun ? sizeof s->drained.bytes : 0);
    sqlite3_stmt *stmt = connection_statement(c, SQL_RECENT_BOUND);
    if (!stmt)
        return sqlite_error(c->db);
    sqlite3_bind_blob(stmt, 1, from.data, (int)from.len, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, count - 1);
    int rc = connection_step(stmt);
    bool last = rc != SQLITE_ROW;
    if (rc == SQLITE_ROW && sqlite3_column_bytes(stmt, 0) == sizeof to.bytes) {
        memcpy(to.bytes, sqlite3_column_blob(stmt, 0), sizeof to.bytes);
        rc = sqlite3_reset(stmt);
    }
    if (rc == SQLITE_OK)
        rc = range_run(c, SQL_RECENT_MOVE, from, &to);
    int moved = rc == SQLITE_OK ? sqlite3_changes(c->db) : 0;
    if (rc == SQLITE_OK && (last || moved != count)) { /* some were there: with the same row? */
        rc = range_run(c, SQL_RECENT_CLASH, from, &to);
        if (rc == SQLITE_ROW)
            rc = SQLITE_CORRUPT; /* as in identity_merge() */
    }
    if (rc == SQLITE_OK)
        rc = range_run(c, SQL_RECENT_GONE, from, &to);
    if (rc != SQLITE_OK)
        return rc;
    s->recent -= sqlite3_changes(c->db);
    s->drained = to;
    s->drain_begun = !last;
    return SQLITE_OK;
}

/* The sealed generation is in the table: it may be forgotten. */
static int merged(struct sqlite_store *s)
{
    size_t count = 0;
    uint8_t *hashes = malloc((size_t)s->tail.sealed.count * FILTER_HASH_BYTES);
    if (!hashes)
        return SQLITE_NOMEM;
    for (uint32_t i = 0; i < s->tail.sealed.count; i++)
        if (s->tail.sealed.entries[i].id)
            filter_hash_put(hashes + FILTER_HASH_BYTES * count++,
                            filter_hash(&s->tail.sealed.entries[i].digest));
    int64_t indexed = 0;
    int rc = meta_read(&s->writer, "indexed", &indexed);
    if (rc == SQLITE_OK && count)
        rc = known_add(s, indexed + 1, s->tail.sealed_newest, hashes, count * FILTER_HASH_BYTES);
    free(hashes);
    if (rc == SQLITE_OK && s->recent < 0) /* once: its pages have just been looked at, nearly all */
        rc = connection_number(&s->writer, SQL_RECENT_COUNT, &s->recent);
    return rc == SQLITE_OK ? meta_write(s, "indexed", s->tail.sealed_newest) : rc;
}

int identity_merge(struct sqlite_store *s)
{
    const struct tail_entry *e;
    int64_t added = 0;
    int rc = SQLITE_OK;
    (void)tail_seal(&s->tail, s->last_id);
    if (s->merge_debt < SQLITE_MERGE_ENTRIES && s->merge_debt < s->tail.limit)
        return SQLITE_OK;
    for (; s->merge_debt > 0 && (e = tail_next(&s->tail)) != NULL; s->merge_debt--) {
        if (!e->id)
            continue;
        int64_t there = 0; /* merged before a crash, or put there by a move */
        if (known_perhaps(s, &e->digest))
            rc = table_find(&s->writer, SQL_IDENTITY_FIND, &e->digest, &there);
        if (rc == SQLITE_OK && !there) {
            rc = recent_add(s, &e->digest, e->id);
            if (rc == SQLITE_OK && sqlite3_changes(s->writer.db) == 0)
                rc = table_find(&s->writer, SQL_IDENTITY_FIND, &e->digest, &there);
            else
                added++;
        }
        if (rc == SQLITE_OK && there && there != e->id)
            rc = SQLITE_CORRUPT; /* one key, two rows: the last line held, nothing more is written */
        if (rc != SQLITE_OK)
            return rc;
    }
    s->merge_debt = 0;
    if (added && s->recent > (int64_t)s->tail.limit * SQLITE_RECENT_GENERATIONS)
        rc = drain(s, (1 + SQLITE_MERGE_AHEAD) * added);
    return rc == SQLITE_OK && tail_merged(&s->tail) ? merged(s) : rc;
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
        rc = rc == SQLITE_OK ? sqlite_error(s->writer.db) : rc;
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
