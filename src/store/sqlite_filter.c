/* SPDX-License-Identifier: MIT
 *
 * The filter over the tables of identities (filter.h): for the writer, which has to know that a claim's two digests are
 * nowhere.
 *
 *   generation merged ──▶ its hashes: one row of table `identity_hash`, in the merge's last transaction; and the filter
 *   start ──▶ rows of `identity_hash`, some a batch ──▶ the filter, complete ──(full)──▶ the same for a larger one
 *
 * Always true:
 *  (1) An identity in a table is in memory (tail.h), or its hash is in a row of `identity_hash`.
 *  (2) The filter is asked only when it is complete: every row that is committed was read into it, or added when it was
 *      written. What was added for a transaction that failed is there too much, which costs a look and no more.
 *  (3) It is the writer's alone. Without it, for want of memory or because a row could not be read, the tables are asked.
 */
#include "store/sqlite.h"

#include <string.h>

#define ROOM_LEFT 4 /* a filter is made for a quarter more than there is, and a generation */
#define NOTE_BYTES                                                                                           \
    (65536 * FILTER_HASH_BYTES) /* of one row, of those made by a migration; and of one step, about */
#define AHEAD     (16 * FILTER_HASH_BYTES) /* a word comes from memory in the time of so many */
#define STEP_ROWS 256                      /* of one step, at most */
#define LOOKS     64                       /* notes still wanted that one purge looks at */
#define DROPS                                                                                                \
    2048 /* notes that it removes: as many as it may remove rows, each of which may have been taken over once */

/* A new filter is begun for all that is noted; the one there is goes on. */
static void begin(struct sqlite_store *s)
{
    struct known *k = &s->known;
    int64_t bytes = 0;
    k->read_up_to = 0;
    k->given_up = connection_number(&s->writer, SQL_HASHES_BYTES, &bytes) != SQLITE_OK;
    uint64_t entries = (uint64_t)bytes / FILTER_HASH_BYTES;
    if (!k->given_up)
        k->given_up = filter_init(&k->next, entries + entries / ROOM_LEFT + s->tail.limit) != STATUS_OK;
}

static size_t add_all(struct filter *f, const uint8_t *hashes, size_t bytes)
{
    for (size_t at = 0; at + FILTER_HASH_BYTES <= bytes; at += FILTER_HASH_BYTES) {
        if (at + AHEAD + FILTER_HASH_BYTES <= bytes)
            filter_ahead(f, filter_hash_at(hashes + at + AHEAD));
        filter_add(f, filter_hash_at(hashes + at));
    }
    return bytes;
}

/* Reads some notes, and puts the filter in use behind the last. */
static int read_notes(struct sqlite_store *s)
{
    struct known *k = &s->known;
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_HASHES_NEXT);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, k->read_up_to);
    int rc = SQLITE_ROW;
    size_t bytes = 0, rows = 0;
    while (rc == SQLITE_ROW && bytes < NOTE_BYTES && rows++ < STEP_ROWS) {
        rc = connection_step(stmt);
        if (rc != SQLITE_ROW)
            break;
        k->read_up_to = sqlite3_column_int64(stmt, 0);
        const uint8_t *hashes = sqlite3_column_blob(stmt, 1);
        bytes += add_all(&k->next, hashes, hashes ? (size_t)sqlite3_column_bytes(stmt, 1) : 0);
    }
    if (rc == SQLITE_ROW)
        return sqlite3_reset(stmt);
    if (rc == SQLITE_OK) {
        filter_fini(&k->now);
        k->now = k->next;
        memset(&k->next, 0, sizeof k->next);
        k->complete = true;
    }
    return rc;
}

bool known_step(struct sqlite_store *s)
{
    struct known *k = &s->known;
    if (!s->loaded || s->read_only || k->given_up)
        return false;
    if (!k->next.words && k->complete && !filter_full(&k->now))
        return false;
    if (!k->next.words)
        begin(s);
    if (!k->given_up && read_notes(s) != SQLITE_OK) {
        filter_fini(&k->next);
        k->given_up = true;
    }
    return k->next.words != NULL;
}

void known_begin(struct sqlite_store *s)
{
    s->known.given_up = false;
}

void known_fini(struct sqlite_store *s)
{
    filter_fini(&s->known.now);
    filter_fini(&s->known.next);
    s->known.complete = false;
}

bool known_perhaps(const struct sqlite_store *s, const struct digest *digest)
{
    return !s->known.complete || filter_has(&s->known.now, filter_hash(digest));
}

int known_add(struct sqlite_store *s, int64_t oldest, int64_t newest, const uint8_t *hashes, size_t bytes)
{
    struct filter *filters[] = {&s->known.now, &s->known.next};
    for (size_t i = 0; i < 2; i++)
        if (filters[i]->words)
            add_all(filters[i], hashes, bytes);
    sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_HASHES_ADD);
    if (!stmt)
        return sqlite_error(s->writer.db);
    sqlite3_bind_int64(stmt, 1, oldest);
    sqlite3_bind_int64(stmt, 2, newest);
    sqlite3_bind_blob64(stmt, 3, hashes, bytes, SQLITE_STATIC);
    int rc = connection_step(stmt);
    sqlite3_bind_null(stmt, 3);
    return rc;
}

int known_drop(struct sqlite_store *s)
{
    int64_t *up_to = &s->known.looked_up_to;
    for (int looks = 0, drops = 0; looks < LOOKS && drops < DROPS;) {
        sqlite3_stmt *stmt = connection_statement(&s->writer, SQL_HASHES_LOOK);
        if (!stmt)
            return sqlite_error(s->writer.db);
        sqlite3_bind_int64(stmt, 1, *up_to);
        int rc = connection_step(stmt);
        if (rc != SQLITE_ROW) {
            *up_to = 0;
            return rc;
        }
        *up_to = sqlite3_column_int64(stmt, 0);
        bool wanted = sqlite3_column_int(stmt, 1);
        wanted ? looks++ : drops++;
        rc = sqlite3_reset(stmt);
        if (rc == SQLITE_OK && !wanted)
            rc = connection_run(&s->writer, SQL_HASHES_DROP, 1, up_to);
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

int known_migrate(sqlite3 *db)
{
    static const char insert[] = "INSERT INTO identity_hash(oldest, newest, hashes) VALUES(0, (SELECT "
                                 "ifnull(max(id), 0) FROM asked), ?1)";
    sqlite3_stmt *all = NULL, *note = NULL;
    uint8_t *hashes = sqlite3_malloc(NOTE_BYTES);
    size_t bytes = 0;
    int rc = hashes ? sqlite3_prepare_v2(db, "SELECT digest FROM identity ORDER BY digest", -1, &all, NULL)
                    : SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, insert, -1, &note, NULL);
    for (bool more = true; rc == SQLITE_OK && more;) {
        rc = sqlite3_step(all);
        more = rc == SQLITE_ROW;
        if (rc == SQLITE_ROW || rc == SQLITE_DONE)
            rc = SQLITE_OK;
        struct digest digest;
        if (more && sqlite3_column_bytes(all, 0) != sizeof digest.bytes)
            rc = SQLITE_CORRUPT;
        if (rc == SQLITE_OK && more) {
            memcpy(digest.bytes, sqlite3_column_blob(all, 0), sizeof digest.bytes);
            filter_hash_put(hashes + bytes, filter_hash(&digest));
            bytes += FILTER_HASH_BYTES;
        }
        if (rc == SQLITE_OK && bytes && (bytes == NOTE_BYTES || !more)) {
            sqlite3_bind_blob64(note, 1, hashes, bytes, SQLITE_STATIC);
            rc = connection_step(note);
            bytes = 0;
        }
    }
    sqlite3_finalize(all);
    sqlite3_finalize(note);
    sqlite3_free(hashes);
    return rc;
}
