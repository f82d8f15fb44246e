/* SPDX-License-Identifier: MIT
 *
 * Lives of ended rows and what is removed at their end. As in SQLite's store an ending only notes "look at this block of
 * ids in that minute": one small row of `due` for all endings of some seconds, nearly always noted already. Purging takes
 * the oldest note that no other gateway has taken, and looks at the rows of its block from where it stopped last time.
 *
 * Always true: every row that will expire has a note at or before the minute of its next expiry; and a note is removed
 * only when its minute has been over for a minute, so that nobody's memory of having written it is wrong.
 *
 * Bodies that the archive wants go there before their rows say that they are gone (postgres_archive.c). What it did not
 * take is left as it is, with a note for the next minute.
 */
#include "store/postgres.h"

#include <stdlib.h>

#define BLOCKS_MAX 16 /* notes that one step looks at */

/* When something is next to be done about the row; 0: never. Running and unknown calls never expire. */
static int64_t next_due(const struct call_row *row, bool body)
{
    int64_t due = INT64_MAX;
    if (row->state != STATE_SUCCESS && row->state != STATE_FAILED)
        return 0;
    if (body && row->result_expires_ms > 0)
        due = row->result_expires_ms;
    int64_t then = row->final ? row->tombstone_expires_ms : row->key_expires_ms;
    if (then > 0 && then < due)
        due = then;
    return due == INT64_MAX ? 0 : due;
}

static struct pg_note *place(struct pg_store *s, struct pg_note note)
{
    return &s->noted[(uint64_t)(note.minute * 31 + note.block) % PG_NOTES];
}

void pg_note_gather(struct pg_store *s, struct pg_notes *notes, const struct call_row *row, bool body,
                    int64_t now_ms)
{
    int64_t due = next_due(row, body);
    if (!due)
        return;
    struct pg_note note = {due / PG_MINUTE_MS, row->id >> PG_BLOCK_SHIFT};
    for (size_t i = 0; i < notes->count; i++)
        if (notes->notes[i].minute == note.minute && notes->notes[i].block == note.block)
            return;
    pthread_mutex_lock(&s->lock);
    const struct pg_note *seen = place(s, note);
    bool written =
        seen->minute == note.minute && seen->block == note.block && note.minute > now_ms / PG_MINUTE_MS + 1;
    pthread_mutex_unlock(&s->lock);
    if (!written && notes->count < PG_GROUP)
        notes->notes[notes->count++] = note;
}

static void note_args(struct pg_args *args, const struct pg_notes *notes)
{
    int minute = pg_arg_numbers(args), block = pg_arg_numbers(args);
    for (size_t i = 0; i < notes->count; i++) {
        pg_add_number(args, minute, notes->notes[i].minute);
        pg_add_number(args, block, notes->notes[i].block);
    }
}

static const char note_sql[] =
    "INSERT INTO samekey_store.due(minute, block) SELECT * FROM unnest($1::bigint[], $2::bigint[])"
    " AS u(minute, block) ORDER BY minute, block ON CONFLICT DO NOTHING";

enum pg_fault pg_notes_queue(struct pg_link *l, const struct pg_notes *notes)
{
    struct pg_args args = {0};
    note_args(&args, notes);
    enum pg_fault fault = pg_queue(l, PG_SQL_NONE, note_sql, &args);
    pg_args_fini(&args);
    return fault;
}

enum pg_fault pg_notes_write(struct pg_link *l, const struct pg_notes *notes)
{
    struct pg_args args = {0};
    if (!notes->count)
        return PG_OK;
    note_args(&args, notes);
    enum pg_fault fault = pg_run(l, PG_SQL_NONE, note_sql, &args, NULL);
    pg_args_fini(&args);
    return fault;
}

void pg_notes_remember(struct pg_store *s, const struct pg_notes *notes)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < notes->count; i++)
        *place(s, notes->notes[i]) = notes->notes[i];
    pthread_mutex_unlock(&s->lock);
}

/* ---- one step ---- */

struct step {
    struct pg_link *link;
    const struct pg_moment *moment;
    struct pg_args gone, bodies, abandoned; /* ids */
    struct pg_notes notes;
    size_t gone_count;
    bool left;               /* rows that are due are left for the next step */
    size_t held;             /* rows of this block that the archive did not take */
    int64_t covers_since_ms; /* raised by what goes */
};

/* What is due about a row, all at once; its next note. */
static void row_over(struct step *s, struct call_row *row, bool body)
{
    int64_t now = s->moment->now_ms;
    bool gone = false, body_gone = false, abandon = false;
    for (int64_t due; (due = next_due(row, body)) != 0 && due <= now && !gone;) {
        if (row->final && row->tombstone_expires_ms > 0 && row->tombstone_expires_ms <= now) {
            gone = true;
        } else if (body && row->result_expires_ms > 0 && row->result_expires_ms <= now) {
            body_gone = true;
            body = false;
        } else {
            abandon = true;
            row->final = true;
        }
    }
    if (gone) {
        pg_add_number(&s->gone, 0, row->id);
        s->gone_count++;
        if (row->created_ms >= s->covers_since_ms)
            s->covers_since_ms = row->created_ms + 1;
        return;
    }
    if (body_gone)
        pg_add_number(&s->bodies, 0, row->id);
    if (abandon)
        pg_add_number(&s->abandoned, 0, row->id);
    pg_note_gather(s->link->store, &s->notes, row, body, now);
}

/* Whether the archive is to have the row's body, whose table is there, before it goes. */
static bool body_leaves(const struct step *s, const struct call_row *row, bool body)
{
    int64_t now = s->moment->now_ms;
    return body && archive_wants(s->link->store->archive, row->key_expires_ms) &&
           ((row->result_expires_ms > 0 && row->result_expires_ms <= now) ||
            (row->final && row->tombstone_expires_ms > 0 && row->tombstone_expires_ms <= now));
}

static void row_read(const PGresult *result, int i, struct call_row *row)
{
    *row = (struct call_row){
        .id = pg_number(result, i, 0),
        .state = (enum call_state)pg_number(result, i, 1),
        .final = pg_number(result, i, 2) != 0,
        .created_ms = pg_number(result, i, 4),
        .result_expires_ms = pg_number(result, i, 5),
        .key_expires_ms = pg_number(result, i, 6),
        .tombstone_expires_ms = pg_number(result, i, 7),
    };
}

/* Archives what leaves of the rows found. *count is lowered to those that this step may deal with. */
static enum pg_fault archive_found(struct step *s, const PGresult *result, size_t *count, bool *failed)
{
    int64_t ids[ARCHIVE_STEP_ROWS];
    size_t wanted = 0, looked = 0;
    struct pg_archived done = {0};
    for (; looked < *count; looked++) {
        struct call_row row;
        row_read(result, (int)looked, &row);
        if (!body_leaves(s, &row, pg_number(result, (int)looked, 8) != 0))
            continue;
        if (wanted == ARCHIVE_STEP_ROWS)
            break;
        ids[wanted++] = row.id;
    }
    enum pg_fault fault = wanted ? pg_archive_rows(s->link, ids, wanted, s->moment, &done) : PG_OK;
    if (fault != PG_OK)
        return fault;
    *failed = done.failed;
    if (!done.failed && done.rows < wanted) /* up to the first that was left */
        for (looked = 0; pg_number(result, (int)looked, 0) != ids[done.rows];)
            looked++;
    s->left = s->left || looked < *count;
    *count = looked;
    return PG_OK;
}

/* Looks at up to `limit` rows of the block behind `after` that are due; gives the last one's id, 0 at the end. */
static enum pg_fault look_at_block(struct step *s, int64_t block, int64_t after, size_t limit, size_t *count,
                                   int64_t *last)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    int64_t first = block << PG_BLOCK_SHIFT;
    (void)pg_arg_number(&args, after > first ? after : first - 1);
    (void)pg_arg_number(&args, first + (1LL << PG_BLOCK_SHIFT) - 1);
    (void)pg_arg_number(&args, s->moment->now_ms);
    (void)pg_arg_number(&args, (int64_t)limit);
    enum pg_fault fault = pg_run(
        s->link, PG_SQL_NONE,
        "SELECT id, state, final, flags, created_ms, result_expires_ms, key_expires_ms, tombstone_expires_ms,"
        " flags & 4 <> 0 AND original = 0 AND to_regclass('samekey_store.result_' || result_day) IS NOT NULL"
        " FROM samekey_store.call WHERE id > $1 AND id <= $2 AND state IN (3, 4) AND"
        " ((flags & 4 <> 0 AND result_expires_ms > 0 AND result_expires_ms <= $3)"
        " OR (final AND tombstone_expires_ms > 0 AND tombstone_expires_ms <= $3)"
        " OR (NOT final AND key_expires_ms > 0 AND key_expires_ms <= $3)) ORDER BY id LIMIT $4 FOR UPDATE",
        &args, &result);
    pg_args_fini(&args);
    size_t found = *count = fault == PG_OK ? (size_t)PQntuples(result) : 0;
    bool failed = false;
    *last = 0;
    if (found && s->link->store->archive)
        fault = archive_found(s, result, count, &failed);
    for (int i = 0; fault == PG_OK && i < (int)*count; i++) {
        struct call_row row;
        row_read(result, i, &row);
        if (*count < found || found == limit)
            *last = row.id;
        if (failed && body_leaves(s, &row, pg_number(result, i, 8) != 0))
            s->held++;
        else
            row_over(s, &row, pg_number(result, i, 3) & PG_FLAG_BODY_KEPT);
    }
    PQclear(result);
    return fault;
}

static void begin_ids(struct step *s)
{
    pg_args_clear(&s->gone), pg_args_clear(&s->bodies), pg_args_clear(&s->abandoned);
    pg_arg_numbers(&s->gone), pg_arg_numbers(&s->bodies), pg_arg_numbers(&s->abandoned);
}

/* Before the next block is looked at: it may be the same one, under another note. `block`: the one looked at. */
static enum pg_fault apply(struct step *s, int64_t block)
{
    struct pg_link *l = s->link;
    struct pg_args args = {0};
    enum pg_fault fault = PG_OK;
    if (s->gone.items[0]) {
        static const char *const removals[] = {
            "DELETE FROM samekey_store.compensation_round r USING samekey_store.compensation t WHERE r.task "
            "= t.id"
            " AND t.call = ANY($1)",
            "DELETE FROM samekey_store.compensation WHERE call = ANY($1)",
            "DELETE FROM samekey_store.kept WHERE call = ANY($1)",
            "DELETE FROM samekey_store.call WHERE id = ANY($1)",
        };
        for (size_t i = 0; fault == PG_OK && i < sizeof removals / sizeof *removals; i++)
            fault = pg_run(l, PG_SQL_NONE, removals[i], &s->gone, NULL);
        (void)pg_arg_number(&args, s->covers_since_ms);
        if (fault == PG_OK)
            fault = pg_run(l, PG_SQL_NONE,
                           "UPDATE samekey_store.meta SET covers_since_ms = greatest(covers_since_ms, $1),"
                           " refuse_before_ms = greatest(refuse_before_ms, $1) WHERE covers_since_ms < $1",
                           &args, NULL);
    }
    if (fault == PG_OK && s->bodies.items[0])
        fault = pg_run(
            l, PG_SQL_NONE,
            "UPDATE samekey_store.call SET flags = (flags & ~4)::smallint, result_day = 0 WHERE id = ANY($1)",
            &s->bodies, NULL);
    pg_args_clear(&args);
    if (fault == PG_OK && s->abandoned.items[0]) {
        static const char sql[] =
            "UPDATE samekey_store.call SET final = true, reason = $2::smallint, fence = fence + 1,"
            " updated_ms = samekey_store.now_ms() WHERE id = ANY($1)";
        fault = pg_run(l, PG_SQL_NONE, "DELETE FROM samekey_store.kept WHERE call = ANY($1)", &s->abandoned,
                       NULL);
        (void)pg_arg_number(&s->abandoned, REASON_ABANDONED);
        if (fault == PG_OK)
            fault = pg_run(l, PG_SQL_NONE, sql, &s->abandoned, NULL);
    }
    pg_args_fini(&args);
    if (fault == PG_OK)
        fault = pg_notes_write(l, &s->notes);
    if (fault == PG_OK && s->held) { /* the block again in the next minute */
        const struct pg_notes later = {.notes = {{s->moment->now_ms / PG_MINUTE_MS + 1, block}}, .count = 1};
        fault = pg_notes_write(l, &later);
    }
    s->notes.count = s->held = 0;
    begin_ids(s);
    return fault;
}

/* A note that is due, behind the one given; PG_OK and *minute < 0: none. */
static enum pg_fault note_next(struct pg_link *l, int64_t now_minute, int64_t *minute, int64_t *block,
                               int64_t *after)
{
    struct pg_args args = {0};
    PGresult *result = NULL;
    (void)pg_arg_number(&args, *minute);
    (void)pg_arg_number(&args, *block);
    (void)pg_arg_number(&args, now_minute);
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               "SELECT minute, block, after_id FROM samekey_store.due WHERE (minute, block) > ($1, $2)"
               " AND minute <= $3 ORDER BY minute, block LIMIT 1 FOR UPDATE SKIP LOCKED",
               &args, &result);
    pg_args_fini(&args);
    bool any = fault == PG_OK && PQntuples(result) == 1;
    *minute = any ? pg_number(result, 0, 0) : -1;
    *block = any ? pg_number(result, 0, 1) : -1;
    *after = any ? pg_number(result, 0, 2) : 0;
    PQclear(result);
    return fault;
}

static enum pg_fault note_move(struct pg_link *l, int64_t minute, int64_t block, int64_t after, bool over)
{
    struct pg_args args = {0};
    (void)pg_arg_number(&args, minute);
    (void)pg_arg_number(&args, block);
    if (!over)
        (void)pg_arg_number(&args, after);
    enum pg_fault fault =
        pg_run(l, PG_SQL_NONE,
               over ? "DELETE FROM samekey_store.due WHERE minute = $1 AND block = $2"
                    : "UPDATE samekey_store.due SET after_id = $3 WHERE minute = $1 AND block = $2",
               &args, NULL);
    pg_args_fini(&args);
    return fault;
}

enum pg_fault pg_purge_run(struct pg_link *l, struct store_op *op, const struct pg_moment *moment)
{
    struct step *s = calloc(1, sizeof *s);
    int64_t minute = -1, block = -1, after, now_minute = moment->now_ms / PG_MINUTE_MS;
    enum pg_fault fault = s ? PG_OK : PG_FAILED;
    if (!s)
        return fault;
    s->link = l;
    s->moment = moment;
    s->covers_since_ms = moment->covers_since_ms;
    begin_ids(s);
    for (int looked = 0; fault == PG_OK; looked++) {
        size_t count = 0;
        int64_t last = 0;
        fault = note_next(l, now_minute, &minute, &block, &after);
        if (fault != PG_OK || minute < 0)
            break;
        if (op->count >= op->limit || looked >= BLOCKS_MAX) {
            op->more = true;
            break;
        }
        fault = look_at_block(s, block, after, op->limit - op->count, &count, &last);
        op->count += count - s->held;
        if (fault == PG_OK)
            fault = apply(s, block);
        if (fault == PG_OK && last)
            fault = note_move(l, minute, block, last, false);
        else if (fault == PG_OK && (minute + 2 <= now_minute || after))
            fault = note_move(l, minute, block, 0, minute + 2 <= now_minute);
    }
    if (fault == PG_OK) {
        atomic_fetch_sub(&l->store->rows, (long long)s->gone_count);
        op->done = op->count > 0;
        op->more = op->more || s->left;
    }
    pg_args_fini(&s->gone), pg_args_fini(&s->bodies), pg_args_fini(&s->abandoned);
    free(s);
    return fault;
}
