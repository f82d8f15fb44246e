/* SPDX-License-Identifier: MIT
 *
 * Inside of the SQLite store: what its files share. Nobody outside src/store includes this.
 *
 *   sqlite.c            opening, readers, closing
 *   sqlite_batch.c      the batch as one transaction, and what a failure means
 *   sqlite_schema.c     versions of the schema
 *   sqlite_connection.c one connection with its kept statements
 *   sqlite_cache.c      which pages readers keep
 *   sqlite_rows.c       rows in and out: what was asked, and what stands
 *   sqlite_standing.c   what stands, without asking the file: calls that stand as they were claimed
 *   sqlite_write.c      the operations that write        sqlite_read.c   those that read
 *   sqlite_identity.c   digests to rows: the table, and the newest in memory (tail.c)
 *   sqlite_filter.c     which digests are in no table: the filter (filter.h), made from hashes on disk
 *   sqlite_unended.c    where the calls are that have not ended
 *   sqlite_tasks.h      compensation tasks, kept requests, reversals, what people changed: files of their own
 *   sqlite_list.c       pages of calls for people     sqlite_sketch.c what makes them fast
 *   sqlite_erase.c      bodies dropped because a person asks for it
 *   sqlite_orphans.c    claims of which nobody knows whether they are written
 *   sqlite_purge.c      lives, and what is removed at their end
 *   sqlite_sync.c       when a commit is on disk
 *   sqlite_checkpoint.c the log into the file, beside the work
 *   sqlite_file.c       whether the files are still there
 *   sqlite_words.c      errors in sentences with a remedy
 *   unresolved.c        the unresolved calls by fingerprint, in memory
 */
#ifndef SAMEKEY_STORE_SQLITE_H
#define SAMEKEY_STORE_SQLITE_H

#include "store/archive.h"
#include "store/driver.h"
#include "store/filter.h"
#include "store/tail.h"
#include "store/unresolved.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define SQLITE_CREATION_SKEW_MS                                                                              \
    (10 * 60 * 1000) /* ids made this long before a new file was created are taken */
#define SQLITE_PAGE_BYTES       4096
#define SQLITE_CACHE_KIB        8192 /* of the writer; readers have SQLITE_READER_CACHE_KIB each */
#define SQLITE_READER_CACHE_KIB 2048
#define SQLITE_INNER_KIB                                                                                     \
    49152 /* of all that read without waiting, for inner pages (sqlite_cache.h): those of some 10^7 receipts twice */
#define SQLITE_INNER_KIB_MIN  4096         /* of each */
#define SQLITE_BUSY_MS        2000         /* how long a batch waits for a foreign lock, e.g. of a shell */
#define SQLITE_LOCK_PID_BYTES 24           /* of PATH.lock; what follows says that the file was a store */
#define SQLITE_LOOK_MS        1000         /* so often at most the writer looks whether the files are there */
#define SQLITE_WAL_IDLE_PAGES 256          /* when idle, a shorter log is not worth a checkpoint */
#define SQLITE_WAL_PAGES      2048         /* a longer log is moved into the file while work goes on */
#define SQLITE_WAL_PAGES_LONG 8192         /* at this length readers are held back for the last bit of it */
#define SQLITE_WAL_HOLD_MS    50           /* for so long at most */
#define SQLITE_WAL_PAGES_MAX  65536        /* at this length the writer waits for it */
#define SQLITE_WAL_REST_PAGES 64           /* so few are left to the writer */
#define SQLITE_WAL_PASSES     8            /* passes of one checkpoint at most */
#define SQLITE_WAL_KEPT_BYTES (64LL << 20) /* a log that once grew beyond this is cut back to it */
#define SQLITE_GROW_BYTES     (1 << 20)    /* the file grows in such steps */
#define SQLITE_BLOCK_ROWS     256          /* ids of one block; purging looks at rows block by block */
#define SQLITE_CLAIMED_ROWS   8192         /* the newest calls, of which memory knows how they stand */
#define SQLITE_DUE_NOTES      1024         /* notes of `due` remembered so that they are not written twice */
#define SQLITE_MERGE_ENTRIES  64           /* identities merged at a time, at least */
#define SQLITE_MERGE_AHEAD                                                                                   \
    1 /* merged for each that is added, beside one: so that a sealed generation is gone
                                    * before the next is full */
#define SQLITE_RECENT_GENERATIONS                                                                            \
    16 /* as many generations of the tail in table `identity_recent`, before it is drained */
#define SQLITE_PURGE_BLOCKS 16 /* blocks one step of purging looks at, at most */

enum statement {
#define STATEMENT(name, sql) SQL_##name,
#include "store/sqlite_statements.def"
#undef STATEMENT
    SQL_COUNT
};

struct connection {
    sqlite3 *db;
    sqlite3_stmt *kept[SQL_COUNT]; /* prepared when first used */
};

/* A row that stands as it was claimed, by this process. */
struct claimed {
    int64_t id, first_attempt_ms; /* id 0: no such row */
    int attempt_count;
    enum call_state state;
    int flags;
};

/* A row in PROCESSING whose claim was answered STATUS_UNKNOWN: if it is there, nobody works on it. */
struct orphan {
    int64_t id, fence;
    bool settled; /* seen to be, in a transaction that has not failed yet */
};

struct due_note {
    int64_t minute, block;
};

/* The thread that moves the log into the file. */
struct checkpointer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_rwlock_t
        readers;         /* held by each while it reads; by the writer where they keep the log from ending */
    int state;           /* under the lock */
    bool stop;           /* the same */
    bool started, asked; /* the writer's own */
};

/* What is written to the log and not synced yet, and the thread that syncs. */
struct syncer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked, done, readers;
    /* Under the lock. */
    int state;
    bool stop;
    sqlite3_file *log;
    int rc; /* of the last sync */
    uint64_t owed, paid,
        failures;          /* commits begun; commits of which it is known how they ended; failed syncs */
    int64_t owed_since_ms; /* no row of a commit that is owed is older */
    bool doubt; /* the log may hold commits that are not on disk and that no sync would bring there; */
    int64_t doubt_since_ms; /* no row of them is older */
    bool started;           /* the writer's own */
};

/* What one step of purging has put into the archive. */
struct archived {
    int64_t ids[ARCHIVE_STEP_ROWS];
    size_t count;
    bool failed; /* none of them is there */
};

/* A batch that has begun and not ended. */
struct begun {
    struct store_op **ops;
    size_t count;
    int64_t now;
    bool asked;    /* the thread syncs it */
    bool synced;   /* `rc` tells how that went */
    bool answered; /* with a batch before it that was lost */
    int rc;
};

/* The filter over the tables of identities. */
struct known {
    struct filter now, next; /* in use; being read in */
    int64_t read_up_to;      /* the last row of `identity_hash` that was read into `next` */
    int64_t looked_up_to;    /* the last note that known_drop() has looked at */
    bool complete;           /* `now` may be asked */
    bool given_up;           /* until all is read anew */
};

/* Which file it is, whatever its name. */
struct file_mark {
    bool set;
    dev_t device;
    ino_t inode;
};

struct sqlite_store {
    struct store store;
    char *path, *log_path, *owner, *vfs;
    int64_t (*now_ms)(void *context);
    void *context;
    bool read_only;
    int lock; /* descriptor of PATH.lock, flocked; -1: none */
    struct connection writer;

    struct file_mark file, log; /* those this process writes */
    int held;                   /* descriptor that keeps the file's inode; -1: none */
    int64_t looked_ms;          /* monotonic */
    atomic_bool gone;           /* nothing is written, and no connection opened */

    /* Memory of what is on disk. After a failed transaction it is thrown away and read anew (sqlite_load). */
    bool loaded;
    int64_t last_id, removed, covers_since_ms, refuse_before_ms;
    struct unresolved unresolved; /* under unresolved_lock: readers look for suspects too */
    pthread_mutex_t unresolved_lock;
    struct tail tail;
    int64_t merge_debt; /* identities to be merged, for those that were added */
    struct known known;
    int64_t recent;        /* identities in table `identity_recent`, about; -1: not counted yet */
    struct digest drained; /* of them, the last that was moved; */
    bool drain_begun;      /* if any was */
    int64_t *foreign;      /* rows in PROCESSING of earlier processes, oldest first */
    size_t foreign_count, foreign_next;
    struct orphan *orphans; /* not of the disk: it outlives what is read anew */
    size_t orphan_count, orphan_capacity;
    struct due_note noted[SQLITE_DUE_NOTES];
    int64_t unended_noted, unended_cursor;       /* blocks, -1: none */
    struct claimed claimed[SQLITE_CLAIMED_ROWS]; /* by id, modulo their number */
    int64_t claimed_after;                       /* rows up to this id are not there */

    struct archive *archive; /* NULL: none */
    struct archived archived;

    struct checkpointer checkpointer;
    struct syncer syncer;
    struct begun begun[2]; /* oldest first */
    size_t begun_count;
    int move_rc;       /* of a move of the log that failed beside begun batches; SQLITE_OK: none */
    int64_t now;       /* of this batch */
    int64_t wal_pages; /* in the log as of the last commit */
    int64_t wal_moved; /* of them, moved into the file */
    atomic_llong rows;
};

/* sqlite_connection.c */
enum connection_use { CONNECTION_READ, CONNECTION_READ_NOW, CONNECTION_WRITE, CONNECTION_CHECKPOINT };
int connection_open(struct connection *c, const struct sqlite_store *s, enum connection_use use);
void connection_close(struct connection *c);
/* Its close does not move the log, although it is the last. */
void connection_leave_log(struct connection *c);
/* A kept statement, ready to be bound; NULL when it cannot be prepared (the connection has the error). */
sqlite3_stmt *connection_statement(struct connection *c, enum statement which);
/* Why a call of SQLite failed; never SQLITE_OK, which a connection that could not be opened may say meanwhile. */
int sqlite_error(sqlite3 *db);
/* Steps once and resets what needs no more than one row or none: SQLITE_DONE becomes SQLITE_OK. SQLITE_ROW leaves
 * the statement standing on its row: sqlite3_reset() it when the row is read. */
int connection_step(sqlite3_stmt *stmt);
/* Runs a statement that takes numbers only and gives no rows. */
int connection_run(struct connection *c, enum statement which, int count, const int64_t *numbers);
/* Runs a statement that gives one row of one number. */
int connection_number(struct connection *c, enum statement which, int64_t *number);

/* sqlite.c: reads all that memory mirrors; throws it away with the connection, after a failure. */
int sqlite_load(struct sqlite_store *s);
void sqlite_lose(struct sqlite_store *s);

/* sqlite_batch.c, as store.h says. */
void sqlite_batch(struct store *store, struct store_op **ops, size_t count);
enum batch_begun sqlite_batch_begin(struct store *store, struct store_op **ops, size_t count);
void sqlite_batch_sync(struct store *store);
void sqlite_batch_end(struct store *store);
/* Lets other threads see how many rows there are. */
void sqlite_publish(struct sqlite_store *s);

/* sqlite_schema.c: brings the file to this program's version. `refused` is STATUS_INVALID, with `error` filled, for
 * a file that is not ours or newer; otherwise the result is SQLite's. */
int sqlite_schema_migrate(sqlite3 *db, const char *path, bool read_only, int64_t now_ms, enum status *refused,
                          struct buffer *error);

/* sqlite_rows.c */
#define ROW_FLAG_CALL_ID_MADE 1
#define ROW_FLAG_MAYBE_RAN    2
#define ROW_FLAG_BODY_KEPT    4
#define ROW_FLAG_SLOT         8 /* the row holds its key's one slot */
/* Inserts the row: what was asked, and, unless `as_claimed` says that nothing else is to be told, what stands. Its id and
 * times must be set; `flags` are ROW_FLAG_*. */
int row_insert(struct connection *c, const struct call_row *row, int flags, bool as_claimed);
/* Inserts what stands of a row that has no such row yet; `flags` as above. */
int standing_insert(struct connection *c, const struct call_row *row, int flags);
/* Binds a result's headers and body, or NULL for both. */
void result_bind(sqlite3_stmt *stmt, int headers, int body, const struct call_row *row, bool kept);
/* Reads a row by id with its result (through `original`); row->id 0: there is none. While an operation's rows are
 * gathered their slices are offsets into `memory`; rows_settle() makes them pointers, once, at the end. */
int row_read(struct connection *c, int64_t id, struct call_row *row, struct buffer *memory);
/* The same, and the row's ROW_FLAG_*. */
int row_read_flags(struct connection *c, int64_t id, struct call_row *row, struct buffer *memory, int *flags);
void rows_settle(struct rows *rows, const struct buffer *memory);
/* Puts a row that stands in other memory into an operation's, texts as offsets like row_read(). */
void row_take_over(struct call_row *to, const struct call_row *from, struct buffer *memory);

/* sqlite_standing.c */
/* Inserts a new row with all that belongs to it; its id and times must be set. */
int standing_begin(struct sqlite_store *s, const struct call_row *row, bool slot);
/* Before any UPDATE of table `standing`: the row has one. */
int standing_make(struct sqlite_store *s, int64_t id);
/* Writes an ending of a row that stands as it was claimed: one insert. `done` says whether it was; otherwise nothing was
 * written, and the file has to be asked. */
int standing_end(struct sqlite_store *s, const struct store_op *op, bool result, int64_t ended_ms,
                 bool *done);
/* Whether a call in the block has not ended. */
int standing_unended(struct sqlite_store *s, int64_t block, bool *unended);
/* Nothing is known of any row up to last_id. */
void standing_forget(struct sqlite_store *s);

/* sqlite_identity.c */
/* Of a 16-byte digest: the row's id, or 0. On a reader's connection compare tail_epoch() around all that was found. */
int identity_find(struct sqlite_store *s, struct connection *c, const struct digest *digest, int64_t *id);
/* Rows of the callIds whose digests share the prefix that the callId's text alone makes, in the writer's memory or in the
 * table; a row may come twice. */
int identity_prefix(struct sqlite_store *s, const struct digest *digest, int64_t *ids, size_t max,
                    size_t *count);
/* Of a row's callId and, where it has a key, of who holds that. */
int identities_find(struct sqlite_store *s, struct connection *c, const struct call_row *row, int64_t *call,
                    int64_t *holder);
/* For a new row that is about to be inserted, with ROW_FLAG_SLOT where the digest is its operation's. */
int identity_add(struct sqlite_store *s, const struct digest *digest, int64_t id);
/* Gives a key's slot to another row, whose flag the caller sets; `from` 0: nobody had it. */
int identity_move(struct sqlite_store *s, const struct digest *digest, int64_t from, int64_t to);
/* Forgets the digest if it is the row's. */
int identity_remove(struct sqlite_store *s, const struct digest *digest, int64_t id);
/* Moves some identities from memory to the table, at the end of a batch. After the COMMIT: identity_committed(). */
int identity_merge(struct sqlite_store *s);
void identity_committed(struct sqlite_store *s);
/* Reads the identities that were not merged from their rows. SQLITE_CORRUPT: two rows have one. */
int identity_load(struct sqlite_store *s);

/* sqlite_filter.c, for the writer. */
/* All was read anew: a filter that could not be made is tried again. */
void known_begin(struct sqlite_store *s);
void known_fini(struct sqlite_store *s);
/* One step towards the filter that is wanted, outside of a transaction; nothing if there is one. True: there are more. */
bool known_step(struct sqlite_store *s);
/* False: the digest is in no table of identities. */
bool known_perhaps(const struct sqlite_store *s, const struct digest *digest);
/* Notes digests by their hashes, which are about to leave the tail or are written past it; they name rows from `oldest` to
 * `newest`. */
int known_add(struct sqlite_store *s, int64_t oldest, int64_t newest, const uint8_t *hashes, size_t bytes);
/* Looks at some notes, at the next ones each time, and removes those of which no row is there any more. */
int known_drop(struct sqlite_store *s);
/* Notes all that is in table `identity`, for the migration that made the notes. */
int known_migrate(sqlite3 *db);

/* One number of table meta. */
int meta_read(struct connection *c, const char *name, int64_t *value);
int meta_write(struct sqlite_store *s, const char *name, int64_t value);

/* sqlite_read.c: gathers the rows of an operation: `call_id` and `holder_id` are ids or 0. Checks the texts the asker
 * has against those found: two texts under one digest are STATUS_INVALID. */
int rows_gather(struct sqlite_store *s, struct connection *c, struct store_op *op, int64_t call_id,
                int64_t holder_id);
/* Looks for the unresolved call of want_suspect, as the connection sees the file. */
int suspect_find(struct sqlite_store *s, struct connection *c, struct store_op *op);
bool state_unresolved(enum call_state state);
int sqlite_read(struct sqlite_store *s, struct connection *c, struct store_op *op);

/* sqlite_write.c: runs one operation inside the batch's transaction. SQLITE_OK: op->status and the rest stand;
 * anything else fails the transaction. */
int sqlite_write(struct sqlite_store *s, struct store_op *op);
/* Inserts op->row as row `id` (the next), holding its key's slot where it has one; the identity of its key is written. */
int sqlite_insert(struct sqlite_store *s, struct store_op *op, int64_t id);
/* STORE_END, for operations that end a call besides. */
int sqlite_end(struct sqlite_store *s, struct store_op *op);

/* sqlite_list.c, sqlite_sketch.c */
int sqlite_list(struct sqlite_store *s, struct connection *c, struct store_op *op);
int sqlite_sketch(struct sqlite_store *s, struct store_op *op);

/* sqlite_erase.c */
int sqlite_erase(struct sqlite_store *s, struct store_op *op);

/* sqlite_tasks.c */
/* Writes what a person changed, as of now. */
int audit_write(struct sqlite_store *s, const struct audit_row *audit);
extern const char sqlite_tasks_schema[]; /* the migration that made its tables */
int sqlite_task_read(struct sqlite_store *s, struct connection *c, struct store_op *op);
int sqlite_task_write(struct sqlite_store *s, struct store_op *op);
/* Makes a task unless one is open; 0: due now. sqlite3_changes() tells. */
int task_add(struct sqlite_store *s, int64_t call, int64_t due_ms, enum task_cause cause);
/* The call has its final ending. */
int task_settle(struct sqlite_store *s, int64_t call, enum call_state state);
/* Removes a call's task, rounds and kept request. */
int task_remove(struct sqlite_store *s, int64_t call);
int kept_write(struct sqlite_store *s, int64_t call, const struct kept_request *kept);
/* The call ended for good: what is kept of its request goes, but what a reversal of a SUCCESS needs. */
int kept_settle(struct sqlite_store *s, int64_t call, enum call_state state);

/* sqlite_orphans.c: before a batch is answered STATUS_UNKNOWN; before an id, or a fence of a row, is given. */
void orphans_leave(struct sqlite_store *s, struct store_op *const *ops, size_t count);
void orphans_forget(struct sqlite_store *s, int64_t id);

/* sqlite_unended.c: names the block of a row that has not ended, before or after the row is written. */
int unended_note(struct sqlite_store *s, int64_t id);

/* sqlite_purge.c */
/* Notes when the row has to be looked at again; nothing for a row that never expires. */
int due_note(struct sqlite_store *s, const struct call_row *row);
int sqlite_purge(struct sqlite_store *s, struct store_op *op);
/* Writes covers_since_ms, and refuse_before_ms raised to it. */
int covers_since_write(struct sqlite_store *s);

/* sqlite_sync.c: the thread, on opening and closing. */
void sync_begin(struct sqlite_store *s);
void sync_end(struct sqlite_store *s);
/* Writes all of the log again, synced; SQLite's code. */
int sync_renew_log(struct sqlite_store *s);
/* Whether a sync has failed and the log was not moved since. From every thread. */
bool sync_doubted(struct sqlite_store *s);
/* Around each COMMIT: before it, one more is owed; of `count` it is known now how they ended, on disk or not at all. */
void sync_owed(struct sqlite_store *s);
void sync_paid(struct sqlite_store *s, uint64_t count, bool failed);
/* For readers, after they have read: returns when all that they can have seen is on disk, at once if what they found is
 * not as new (`newest_ms`) as what is owed. `absent`: something was not found. False: it may not stand, read again; or, not `patient`, it would have to wait. */
bool sync_seen(struct sqlite_store *s, int64_t newest_ms, bool absent, bool patient);
/* A sync has failed, and whether its commits are on disk is not known; no row of them is older than `since_ms`. Readers are not
 * told of such rows, nor that there is none, and the writer writes nothing behind them, until sync_sure(). */
void sync_doubt(struct sqlite_store *s, int64_t since_ms);
/* Moves the whole log into the file, synced, so that the next commit begins it anew. SQLITE_BUSY: a reader was in the way. */
int sync_move_log(struct sqlite_store *s);
/* Ends the doubt, if there is any, by moving the whole log into the file. False: it is still there. */
bool sync_sure(struct sqlite_store *s);
/* Syncs the log; on this thread, or by the other: after sync_ask(), which may not be possible, comes one sync_wait(). */
int sync_now(struct sqlite_store *s);
bool sync_ask(struct sqlite_store *s);
int sync_wait(struct sqlite_store *s);

/* sqlite_checkpoint.c: the thread, and the writer's look at the log after a batch or when nothing waits. */
void checkpoint_init(struct sqlite_store *s); /* the lock for readers */
void checkpoint_begin(struct sqlite_store *s);
void checkpoint_look(struct sqlite_store *s, bool idle);
void checkpoint_end(struct sqlite_store *s);

/* sqlite_file.c. With a VFS and read-only nothing is watched. */
/* From here on the file at the path is the store's; it must be there. */
void file_begin(struct sqlite_store *s);
void file_end(struct sqlite_store *s);
/* The store is open: PATH.lock says from now on that this file was a store, which a first start that failed does not. */
void file_opened(struct sqlite_store *s);
/* The writer's connection has opened its log; is about to be closed. */
void file_log_opened(struct sqlite_store *s);
void file_log_closes(struct sqlite_store *s);
/* Whether the file or its log was removed or replaced, looked at now or at most SQLITE_LOOK_MS ago. For the writer's
 * thread; others read `gone`. */
bool file_gone(struct sqlite_store *s, bool now);
/* Before anything is opened. STATUS_IO, with a sentence: the file is empty, and its lock or its log shows that it was not;
 * or it is missing and its log is there. STATUS_NO_MEMORY. */
enum status file_check_new(const struct sqlite_store *s, struct buffer *error);

/* sqlite_words.c: a sentence for a file that cannot be opened or used. */
enum status sqlite_words(struct buffer *error, const char *path, int rc, sqlite3 *db);

#endif
