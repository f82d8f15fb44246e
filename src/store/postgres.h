/* SPDX-License-Identifier: MIT
 *
 * Inside of the PostgreSQL store: what its files share. Nobody outside src/store includes this.
 *
 *   postgres.c            opening, a batch, what a failure means, readers, closing
 *   postgres_link.c       one connection: bounded waits, statements, transactions, commits whose answer was lost
 *   postgres_args.c       arrays as parameters, in PostgreSQL's binary form
 *   postgres_schema.c     versions of the schema; the tables of bodies, one for each day on which they expire
 *   postgres_rows.c       rows out, by digests and ids
 *   postgres_many.c       what nearly all operations are (claims, attempts, renewals, endings), many in one statement
 *   postgres_one.c        the others, one after the other in one transaction
 *   postgres_tasks.c      compensation tasks, kept requests, reversals, what people changed
 *   postgres_list.c       pages of calls for people
 *   postgres_purge.c      lives, and what is removed at their end
 */
#ifndef SAMEKEY_STORE_POSTGRES_H
#define SAMEKEY_STORE_POSTGRES_H

#include "store/archive.h"
#include "store/driver.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

#define PG_WRITERS        3 /* batches at once: one that waits for a standby does not stop the others */
#define PG_READERS        2 /* reads at once: while one waits for its answer, the other asks */
#define PG_CONNECT_S      "3"
#define PG_ANSWER_MS      10000   /* for the answer to a statement; then the connection is given up */
#define PG_MIGRATE_MS     3600000 /* for a change of the schema, which may write large tables anew */
#define PG_COMMIT_MS      30000   /* for the answer to a COMMIT, which is never cancelled */
#define PG_BATCH_MS       6000    /* since a batch began: what then is not written is not tried again */
#define PG_BUSY_MS        1000 /* after a read that got no lock: others of its connection do not wait for it too */
#define PG_LOOK_UP_MS     10000 /* for finding out whether a COMMIT whose answer was lost took effect */
#define PG_TRIES          6     /* of a batch that met a deadlock or a serialization failure */
#define PG_BACKOFF_MS     50    /* between two tries to connect; doubles up to PG_BACKOFF_MAX_MS */
#define PG_BACKOFF_MAX_MS 1000
#define PG_DAY_MS         86400000LL
#define PG_DAY_NEVER      2000000 /* the table of bodies that never expire */
#define PG_DAYS_KNOWN     64
#define PG_MINUTE_MS      60000
#define PG_BLOCK_SHIFT    34   /* rows of about 17 s are one block: purging looks at them block by block */
#define PG_NOTES          1024 /* notes of `due` remembered so that they are not written twice */
#define PG_ARGS_MAX       40
#define PG_QUEUE_MAX      32    /* statements in one round trip, twice */
#define PG_END_DAYS       4     /* days of bodies in one batch */
#define PG_GROUP          256   /* operations in one transaction */
#define PG_NUMBERS        1024  /* numbers for ids that are taken at once; ids end in 20 bits of them */
#define PG_COUNT_ROWS     10000 /* so many rows are counted; of more PostgreSQL's estimate is told */

#define PG_FLAG_CALL_ID_MADE 1
#define PG_FLAG_MAYBE_RAN    2
#define PG_FLAG_BODY_KEPT    4

/* Parameters of one statement, each an array (or one number). Starts as zero bytes. */
struct pg_args {
    struct buffer values[PG_ARGS_MAX];
    Oid types[PG_ARGS_MAX]; /* of the parameter */
    int items[PG_ARGS_MAX];
    int count;
};
void pg_args_clear(struct pg_args *args);
void pg_args_fini(struct pg_args *args);
/* The next parameter: a number, bytes, a digest, or an empty array; returns its place. */
int pg_arg_number(struct pg_args *args, int64_t value);
int pg_arg_bytes(struct pg_args *args, struct slice bytes);
int pg_arg_digest(struct pg_args *args, const struct digest *digest);
int pg_arg_numbers(struct pg_args *args);
int pg_arg_many_bytes(struct pg_args *args);
int pg_arg_digests(struct pg_args *args);
/* Adds to an array. Bytes without length are NULL unless `keep_empty`. */
void pg_add_number(struct pg_args *args, int at, int64_t value);
void pg_add_bytes(struct pg_args *args, int at, struct slice bytes);
void pg_add_kept(struct pg_args *args, int at, struct slice bytes);
void pg_add_digest(struct pg_args *args, int at, const struct digest *digest, bool has);

/* Columns of an answer, in binary. */
int64_t pg_number(const PGresult *result, int row, int column);
struct slice pg_bytes(const PGresult *result, int row, int column);

/* What came of a statement. */
enum pg_fault {
    PG_OK,
    PG_AGAIN,   /* a deadlock, a serialization failure: the transaction is over; try again */
    PG_BUSY,    /* a lock not got in time: the same, but somebody holds on to it */
    PG_UNNAMED, /* a pooler keeps no prepared statements: they are not used any more; try again */
    PG_TABLE,   /* a table is not there */
    PG_REFUSED, /* the values' own fault: the operation cannot be stored */
    PG_FAILED,  /* full disk, timeout, no rights: nothing was written */
    PG_LOST,    /* the connection is gone: nothing was written, unless it was the COMMIT */
    PG_UNSURE,  /* a COMMIT that may or may not be there, or may be lost with its server */
};

struct pg_store;

struct pg_link {
    struct pg_store *store;
    PGconn *conn;                    /* NULL: not connected */
    char name[160];                  /* of its row in table writer; "" for readers */
    int64_t batch;                   /* number of its last transaction */
    int64_t backoff_ms, retry_at_ms; /* monotonic */
    int64_t busy_until_ms;           /* monotonic: a table is locked */
    bool in_transaction, committing, warned;
    unsigned prepared, preparing; /* bit masks of statements: there, and of them sent in this transaction */
    int64_t number;               /* the next for an id, of those it took from the sequence */
    size_t numbers_left;
    int64_t end_days[PG_END_DAYS]; /* the days, plus 1, of the prepared endings */
    int end_names[PG_END_DAYS];    /* under which serial number */
    size_t end_next;
    int end_serial;
    /* Of what is queued: where a statement is only prepared. */
    bool queued[PG_QUEUE_MAX];
    size_t queue_len, queue_at;
    int64_t until_ms; /* monotonic: of its answers */
    int64_t asked_ms; /* monotonic: when the clock was asked for */
    char error[240];  /* what the server said last */
};

/* A statement that is worth being prepared has a number of its own. */
enum pg_statement {
    PG_SQL_BEGIN,
    PG_SQL_BOUNDS,
    PG_SQL_SUSPECT,
    PG_SQL_CLAIM,
    PG_SQL_ATTEMPT,
    PG_SQL_RENEW,
    PG_SQL_READ,
    PG_SQL_LOCK,
    PG_SQL_ENDED,
    PG_SQL_NONE,
    PG_SQL_END /* and PG_END_DAYS of them: one for each day whose table takes the bodies */
};

/* Connects, unless it is connected or its time has not come. */
enum pg_fault pg_link_ready(struct pg_link *l);
void pg_link_drop(struct pg_link *l);
/* Runs one statement and waits. *out, where asked for, is the caller's on PG_OK. */
enum pg_fault pg_run(struct pg_link *l, enum pg_statement which, const char *sql, const struct pg_args *args,
                     PGresult **out);
/* The same outside a transaction, of a statement that only reads: with the bounds and plans of a transaction, which travel in
 * front of it. */
enum pg_fault pg_read(struct pg_link *l, enum pg_statement which, const char *sql, const struct pg_args *args,
                      PGresult **out);
/* Text without parameters, e.g. several commands; `most_ms` for the answer, where others have PG_ANSWER_MS. */
enum pg_fault pg_text(struct pg_link *l, const char *sql);
enum pg_fault pg_text_within(struct pg_link *l, const char *sql, int64_t most_ms);
/* Several statements in one round trip: queue them, then fetch as many results. A fault of one is told for it and all
 * behind it. */
enum pg_fault pg_queue_begin(struct pg_link *l);
enum pg_fault pg_queue(struct pg_link *l, enum pg_statement which, const char *sql,
                       const struct pg_args *args);
enum pg_fault pg_queue_send(struct pg_link *l);
enum pg_fault pg_queue_next(struct pg_link *l, PGresult **out);
enum pg_fault pg_queue_end(struct pg_link *l);

/* What a transaction knows from its start. */
struct pg_moment {
    int64_t now_ms, covers_since_ms, refuse_before_ms;
};
/* The statement that opens a transaction's work: bounds, the writer's mark, the clock. Between pg_queue_begin() and
 * pg_queue_send() queue it first, and read it with pg_opening_read(). */
enum pg_fault pg_opening_queue(struct pg_link *l);
enum pg_fault pg_opening_read(struct pg_link *l, struct pg_moment *moment);
enum pg_fault pg_transaction_begin(struct pg_link *l, struct pg_moment *moment);
/* PG_OK: on disk as the server is configured. Another fault: not there. PG_UNSURE: not known, also after it was looked up. */
enum pg_fault pg_transaction_commit(struct pg_link *l);
void pg_transaction_abandon(struct pg_link *l);
/* Clock and bounds without a transaction. */
enum pg_fault pg_moment_read(struct pg_link *l, struct pg_moment *moment);

struct pg_note {
    int64_t minute, block;
};

struct pg_store {
    struct store store;
    char *url, *owner;
    bool read_only;
    struct archive *archive; /* NULL: none */
    atomic_bool unnamed;     /* no prepared statements */
    struct pg_link writers[PG_WRITERS];
    unsigned busy; /* bit mask, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t freed;
    atomic_llong rows, bytes; /* as last looked at, and changed since */

    /* The database's clock against ours: its unix ms minus our monotonic ms. */
    atomic_llong ahead_ms;
    atomic_bool ahead_known;

    /* Under the lock. */
    struct pg_note noted[PG_NOTES];
    int64_t days[PG_DAYS_KNOWN]; /* whose tables are there */
    size_t days_known;
    int64_t looked_ms, dropped_ms; /* monotonic: when the size, and old tables, were looked at */
};

int64_t pg_monotonic_ms(void);
/* Learns from an answer that told the database's clock: asked and answered at these monotonic instants. */
void pg_clock_learn(struct pg_store *s, int64_t database_ms, int64_t asked_ms, int64_t answered_ms);

/* postgres_schema.c: makes or migrates the schema. STATUS_INVALID: newer than this program; STATUS_IO. */
enum status pg_schema_open(struct pg_link *l, struct buffer *error);
/* Sees to it that the table of a day is there. Not inside a transaction. */
enum pg_fault pg_day_make(struct pg_link *l, int64_t day);
void pg_day_forget(struct pg_store *s, int64_t day);
/* The day whose table takes a body that expires then. */
int64_t pg_day_of(int64_t expires_ms);
/* Before an UNKNOWN row is ended, inside the transaction: its body, if it has one, goes from the table of those that never
 * expire to its day's, or away where the ending brings another. */
enum pg_fault pg_day_move(struct pg_link *l, const struct store_op *op);
/* Drops the tables of days that are over. */
void pg_days_drop(struct pg_link *l, int64_t now_ms);

/* postgres_archive.c. A day whose bodies the archive did not take has a row in table `due` with the minute -day, and its
 * table stays until none of them is left. */
struct pg_archived {
    size_t
        rows; /* of those given, from the first on, that were looked at: the others are left for the next step */
    bool failed; /* the archive took nothing: what it wants stays in the store */
};
/* Inside the step's transaction: puts what leaves of the rows `ids`, all of them locked, into the archive. Where that
 * fails, marks their days. */
enum pg_fault pg_archive_rows(struct pg_link *l, const int64_t *ids, size_t count,
                              const struct pg_moment *moment, struct pg_archived *out);
/* Whether a day's table may be dropped. Outside a transaction. */
enum pg_fault pg_archive_day_over(struct pg_link *l, int64_t day, bool *over);

/* postgres_rows.c: a set of rows that are asked for and found. */
struct pg_rows {
    struct pg_args args;
    int calls, slots, ids;
    PGresult *found;
    PGresult **bodies;
    size_t bodies_count;
    struct call_row *rows; /* slices into the results */
    bool *slot;            /* of each: it holds its key */
    size_t count;
    struct pg_moment moment; /* of a read that did not lock */
};
void pg_rows_begin(struct pg_rows *r);
void pg_rows_call(struct pg_rows *r, const struct digest *call);
void pg_rows_slot(struct pg_rows *r, const struct digest *operation);
void pg_rows_id(struct pg_rows *r, int64_t id);
/* Reads them, and for calls and ids who holds their key. With `bodies` outside a transaction only. `lock`: FOR UPDATE. */
enum pg_fault pg_rows_read(struct pg_rows *r, struct pg_link *l, bool lock, bool bodies);
const struct call_row *pg_rows_find_call(const struct pg_rows *r, const struct digest *call);
const struct call_row *pg_rows_find_slot(const struct pg_rows *r, const struct digest *operation);
const struct call_row *pg_rows_find_id(const struct pg_rows *r, int64_t id);
void pg_rows_end(struct pg_rows *r);
/* Fills an operation's rows from those found; two texts under one digest are STATUS_INVALID. */
void pg_rows_answer(const struct pg_rows *r, struct store_op *op, const struct call_row *call,
                    const struct call_row *holder, const struct call_row *suspect);
bool pg_texts_agree(const struct call_row *asked, const struct call_row *call, const struct call_row *holder);

/* postgres_many.c: whether an operation is one of those; runs them, all in one transaction, and answers them. */
bool pg_many_takes(const struct store_op *op);
enum pg_fault pg_many_run(struct pg_link *l, struct store_op **ops, size_t count, struct pg_moment *moment);
/* Inserts op->row as one row; `id` 0: its callId or key is taken. Inside a transaction. */
enum pg_fault pg_numbers_ready(struct pg_link *l);
int64_t pg_end_day(const struct store_op *op);
void pg_end_args(struct pg_args *args);
void pg_end_add(struct pg_args *args, const struct store_op *op);
void pg_end_text(struct pg_link *l, int64_t day, char *sql, size_t size, enum pg_statement *which);
enum pg_fault pg_claim_one(struct pg_link *l, const struct call_row *row, bool slot, int64_t *id);

/* postgres_one.c: inside a transaction; answers all but the rows that are read after the COMMIT. */
enum pg_fault pg_one_run(struct pg_link *l, struct store_op *op, const struct pg_moment *moment);
/* Reads for an operation outside a transaction: LOOKUP, READ, OPEN_CALLS, a CLAIM that peeks, and what a write says of
 * the rows that stand. */
enum pg_fault pg_read_run(struct pg_link *l, struct store_op *op);
/* The same of several operations in one go; false for one that has to be run by itself. */
bool pg_read_takes(const struct store_op *op);
enum pg_fault pg_read_many(struct pg_link *l, struct store_op **ops, size_t count);

/* Ends a call inside a transaction, as STORE_END does; op->status says a conflict. */
enum pg_fault pg_end_one(struct pg_link *l, struct store_op *op, int64_t now_ms);

/* postgres_tasks.c: inside a transaction. `rows`: how many tasks were made. */
enum pg_fault pg_task_add(struct pg_link *l, int64_t call, int64_t due_ms, enum task_cause cause, int *rows);
/* After a final ending of the call. */
enum pg_fault pg_task_settle(struct pg_link *l, int64_t call, enum call_state state);
enum pg_fault pg_kept_write(struct pg_link *l, int64_t call, const struct kept_request *kept);
enum pg_fault pg_kept_settle(struct pg_link *l, int64_t call, enum call_state state);
/* The operations of store/tasks.h: the write, what is read after its COMMIT, and those that only read. */
enum pg_fault pg_task_write(struct pg_link *l, struct store_op *op, int64_t now_ms);
enum pg_fault pg_task_told(struct pg_link *l, struct store_op *op);
enum pg_fault pg_task_read(struct pg_link *l, struct store_op *op);

/* postgres_list.c: STORE_LIST. */
enum pg_fault pg_list(struct pg_link *l, struct store_op *op);

/* postgres_purge.c */
enum pg_fault pg_purge_run(struct pg_link *l, struct store_op *op, const struct pg_moment *moment);
/* Notes when rows are to be looked at again: gather, then write them inside the transaction; after its COMMIT they are
 * remembered. */
struct pg_notes {
    struct pg_note notes[PG_GROUP];
    size_t count;
};
void pg_note_gather(struct pg_store *s, struct pg_notes *notes, const struct call_row *row, bool body,
                    int64_t now_ms);
enum pg_fault pg_notes_write(struct pg_link *l, const struct pg_notes *notes);
void pg_notes_remember(struct pg_store *s, const struct pg_notes *notes);
enum pg_fault pg_notes_queue(struct pg_link *l, const struct pg_notes *notes);

#endif
