/* SPDX-License-Identifier: MIT
 *
 * The store of receipts: its contract. A store is a batch machine: it takes operations, runs a batch of them as
 * one durable transaction, and answers all. Who queues them, and on which thread, is store/worker.h; the
 * simulator calls store_batch() itself.
 *
 * Every store keeps these guarantees, and test/unit/store/conformance.c holds each of them to it:
 *  (1) What store_batch() answered STATUS_OK is on disk.
 *  (2) Two claims of one operation digest, or of one call digest: exactly one is `done`; the other gets the
 *      winner's rows in the same round trip.
 *  (3) The rows a loser gets hold the fingerprint, so that a mismatch can be told before "in progress".
 *  (4) A write by an owner without the current fencing number changes nothing and says STATUS_CONFLICT.
 *  (5) An ended receipt never changes its meaning; bytes come back as they went in.
 *  (6) Ends of leases and lives are judged by the store's clock (rows.now_ms).
 *  (7) A commit whose answer was lost is looked up on a new connection before anything else is decided.
 *  (8) Purging removes only ended rows past their life, in bounded batches; a tombstone outlives the body.
 *
 * Keys: `identity` maps a 16-byte digest (of a callId, or of an operation) to a row, under one unique index. An
 * operation's identity is the key's one owner slot: it names the call that holds it. A holder in RECEIVED,
 * PROCESSING, UNKNOWN or SUCCESS keeps the slot; a FAILED one keeps it until somebody takes it by
 * compare-and-set (STORE_TAKE).
 */
#ifndef SAMEKEY_STORE_STORE_H
#define SAMEKEY_STORE_STORE_H

#include "base/list.h"
#include "core/receipt.h"
#include "store/tasks.h"

enum store_kind {
    /* Inserts `row` if neither its callId nor its operation (where has_key) is known: `done`. Otherwise writes
     * nothing and gives the rows: `call` of this callId, `holder` of the operation. With `want_suspect`, a
     * claim whose both identities are new also looks for an unresolved call (RECEIVED, PROCESSING, UNKNOWN) with
     * the same tenant, scope and fingerprint; with `block_suspect` it then does not insert. A row whose callId
     * was made by the store's covers_since bound (id_time_ms < covers_since, id_time_ms != 0) is not
     * inserted either; the caller sees it in rows.refuse_before_ms, the bound under which ids are
     * refused (a new file takes ids made up to SQLITE_CREATION_SKEW_MS before it; the other kinds give the bound
     * itself). The row's state, owner, fence (1), lease, attempt_count and first_attempt are taken as given, and
     * window_ms where it is not 0, so that it is the instant the key was made with; created and updated are the
     * store's now. With `done`, rows.call is the row.
     * With `peek` it only looks (call, holder, suspect) and never inserts; a reader serves it. */
    STORE_CLAIM,
    /* Compare-and-set into PROCESSING, for a repeat of a call (FAILED not final, UNKNOWN) and for a new call on
     * a key whose holder FAILED. Expected: the call's row and fence (expect_call_id 0: no row yet, insert `row`),
     * and the slot's holder and its fence (expect_holder_id 0: no holder). All as expected: the call's row gets
     * state PROCESSING, fence + 1, owner, lease_end, the slot, and loses an answer of the run before; `done`, and
     * rows.call is the row as it stands now. A holder that is not the call itself must be in FAILED.
     * Otherwise nothing is written, and the rows are given. */
    STORE_TAKE,
    /* Binds a call to another call's effect: holder expect_holder_id must be in SUCCESS, and its reversed_by as row.reversed_by
     * says, so that no reversal begins unseen. Inserts `row` (or changes
     * the call's own FAILED-not-final row expect_call_id/expect_call_fence) with state SUCCESS, final,
     * REASON_SHARED, original = the holder (or the holder's own original), and the holder's lives. `done` and
     * rows.call has the result. Otherwise nothing is written and the rows are given. */
    STORE_ATTACH,
    /* The owner (id, fence) writes down that attempt number `attempt_count` begins, its attempts so far, maybe_ran,
     * first_attempt_ms if it was 0, and a new lease end. STATUS_CONFLICT: not the owner any more. */
    STORE_ATTEMPT,
    /* The owner (id, fence) moves its lease end. STATUS_CONFLICT as above. */
    STORE_RENEW,
    /* Writes an ending, or any state, from `from_states` (bit mask 1 << state): by the owner (fence must match), or by
     * an outsider (any_fence: raises the fence). state, final, reason, attempts, maybe_ran, result, lives come
     * from `row`; on UNKNOWN with `make_task` a compensation task in the same commit. result_status 0: the stored
     * result stays as it is. Wakes the watchers of the row. With `answer_only` the result is given to watchers and
     * not stored. No attempts given: those stored stay. A final ending of an UNKNOWN row (`from_states` names UNKNOWN)
     * resolves its compensation task. What is final is never written again. STATUS_OK: `done`, rows.call is not
     * filled. STATUS_CONFLICT: nothing was written, rows.call tells what stands. */
    STORE_END,
    /* The fence of CONTRACT section 4 by call digest: no row, RECEIVED or FAILED not final -> FAILED, final,
     * REASON_FENCED, fence + 1, the lives of `row`: `done`. A row made by a fence never holds its key's slot. Anything else is left as it is. rows.call (and holder) tell what stands. */
    STORE_FENCE,
    /* Reads by call digest: rows.call, and rows.holder where the call has a key. Never waits behind writes.
     * With `any_tenant` the tenant is not known: STATUS_CONFLICT when several tenants have this callId. It is for people,
     * and does wait behind writes. */
    STORE_LOOKUP,
    /* Reads by row id (rows.call, rows.holder). */
    STORE_READ,
    /* Waits until row `id` is not running any more and then gives its rows (an ended row at once). Only through
     * store/worker.h. Ended early by worker_cancel(): STATUS_NOT_FOUND. */
    STORE_WATCH,
    /* Makes rows whose lease ran out UNKNOWN (fence raised, maybe_ran set, a compensation task each), at most `limit`;
     * `expired` gets their ids. On a store with one owning process: the rows of earlier processes, at once. */
    STORE_EXPIRE,
    /* One bounded step of purging: bodies past result_expires, FAILED not final past key_expires -> final
     * REASON_ABANDONED, tombstones past tombstone_expires removed (raising covers_since). `count` says how many
     * rows were touched: fewer than `limit` means nothing is left to do now, unless `more` says that the step ended
     * at its bound of rows looked at. */
    STORE_PURGE,
    /* Reads ids of rows in UNKNOWN or PROCESSING by this owner or any, oldest first, after `id`, at most `limit`,
     * into `expired`. For the maintenance at start. */
    STORE_OPEN_CALLS,
    /* Makes a compensation task for row `id`, due at task_due_ms, unless one is open for it already. For a report that
     * contradicts an ending. */
    STORE_TASK,
    /* A page of calls for people, newest first, as `list` asks. A reader serves it. Its work is bounded, so a page may have
     * fewer rows than its limit, or none, and more to come all the same. */
    STORE_LIST,
    /* A person wants what is stored of call `id` dropped: the answer's headers and body (of a shared effect: of the call
     * whose effect it is), and lines and body of a kept request. work->audit is written in the same commit: `done`, rows.call.
     * Twice is as once. STATUS_NOT_FOUND; STATUS_CONFLICT: the call is not final, and nothing was changed. */
    STORE_ERASE,
    /* One bounded step of what makes STORE_LIST fast, off the path of calls: at most `limit` blocks of rows. `more`: there
     * is more to do now. */
    STORE_SKETCH,
    /* Takes one task that is due by the store's clock: PENDING and due, or RUNNING with a lease that ran out (on a store
     * with one owning process also one of an earlier process, at once). It becomes RUNNING, owned by work->task.owner
     * until work->task.lease_end_ms, fence + 1, round + 1. A round that was cut short gets its row ("interrupted"), and
     * the task goes on with the next. `done`: work->now is the task, rows.call and rows.holder its call's, and
     * work->kept what is kept of the request. Nothing due: not done. A task whose call is gone is CLOSED on the way. */
    STORE_TASK_TAKE,
    /* The owner (work->task: id, owner, fence) writes the round it has done: work->round as a row, and the task's next
     * status, due_ms, tell and tell_due_ms. With work->end_call the call ends in the same commit, as STORE_END by an
     * outsider (op->id, row, from_states; result as there). A task that was settled meanwhile keeps its status (but
     * RESOLVED becomes REVERSED where that is asked) and gets the row: `done`. The same round written twice is there once.
     * STATUS_CONFLICT: another owner has the task, or the call stands otherwise than from_states says: nothing was
     * written, rows.call tells what stands. */
    STORE_TASK_ROUND,
    /* A page of tasks as `page` asks; a reader serves it, with bounded work like STORE_LIST. */
    STORE_TASK_LIST,
    /* Reads one task (id), or with id 0 that of the call with row id row.id: page->tasks[0] with count 1, its rounds,
     * and what people changed on its call, these also where there is no task (count 0); rows.call. */
    STORE_TASK_READ,
    /* A person settles task `id`: row.state SUCCESS or FAILED, row's lives, and its result where has_result. The call, if it is
     * RECEIVED, UNKNOWN or FAILED not final, ends so (final, REASON_PERSON, fence + 1) and the task is RESOLVED; if it is
     * final with that state already, the task is RESOLVED; if it is final with the other one, the call stays and the task
     * is CLOSED. work->audit is written in the same commit. `done`, rows.call, work->now as they stand now. STATUS_NOT_FOUND: no
     * such task. STATUS_CONFLICT, nothing written, rows.call and work->now tell: the task is not open, or a round
     * (RUNNING) or the call (PROCESSING) is at work. */
    STORE_TASK_RESOLVE,
    /* A person wants the next round of task `id` now: due_ms is now; a MANUAL one becomes PENDING with one round more.
     * work->audit is written. `done`, work->now. STATUS_NOT_FOUND; STATUS_CONFLICT: RUNNING or not open. */
    STORE_TASK_RUN,
    /* Counts open tasks into `page`; a reader serves it. */
    STORE_TASK_COUNTS,
    /* Makes the reversal of the operation that call `id` has done, unless it has one: the call (of a shared effect: the
     * call whose effect it is) must be in from_states and have no reversed_by. Inserts `row` (RECEIVED, with `reverses`
     * and its own callId and key), keeps `keep` with it (NULL: the reversal that was kept with the effect's call, with its
     * header lines and no body; STATUS_NOT_FOUND where none was), names it in reversed_by, and makes its task (TASK_CAUSE_REVERSAL,
     * due now), in one commit: `done`. Otherwise nothing is written. rows.call is the asked call as it stands, with
     * reversed_by of the operation. Of a call that FAILED none is made once another call has its key. */
    STORE_REVERSE,
    /* Takes one task whose person is still to be told (TASK_TELL_OWED, tell_due_ms reached): tell_tries + 1 and
     * tell_due_ms = work->task.tell_due_ms, so that nobody else tells it before then. `done`: work->now, rows.call. */
    STORE_TELL_TAKE,
    /* What came of it: task `id`, work->task.tell_tries as taken, next work->task.tell (DONE, GIVEN_UP, NONE, or OWED
     * with tell_due_ms). Not done where somebody else has taken it since. */
    STORE_TELL_DONE,
    /* Writes work->audit. */
    STORE_AUDIT,
    /* A page of audit rows (page: has_tenant, tenant, before_id, limit), newest first. A reader serves it. */
    STORE_AUDIT_LIST,
};

#define STORE_IDS_MAX 256 /* ids one STORE_EXPIRE or STORE_OPEN_CALLS may give */

/* STORE_LIST: which calls, and the page. The maker's own, together with the operation; about 130 KiB, so not for a stack. */
struct store_list {
    /* Asked. An empty text is any; texts are compared byte for byte. */
    unsigned states; /* bit mask 1 << state; 0: any */
    bool has_tenant; /* `tenant` counts, also when it is empty */
    struct slice tenant, route, call_id, key, business_ref, trace_id;
    int64_t since_ms,
        until_ms; /* created in [since, until) by the store's clock; 0: no bound. Found by bisection over ids:
                                 * where that clock was set back meanwhile, the edges are inexact */
    int64_t before_id; /* rows older than this id; 0: from the newest */
    size_t limit;      /* 1 to STORE_PAGE_MAX */
    size_t look_max;   /* 0: STORE_LOOK_MAX */

    /* Answered. Rows without result bodies and headers; texts point into the operation's memory. */
    struct call_row rows[STORE_PAGE_MAX];
    size_t count;
    int64_t next_before_id; /* of the next page; 0: there is none */
    int64_t reached_ms;     /* when the oldest row looked at was created; 0: none was */
};

struct store_op {
    /* Asked. Slices are borrowed until the operation is answered. */
    enum store_kind kind;
    struct call_row
        row; /* CLAIM, TAKE, ATTACH: the new row. END, ATTEMPT: what to write. FENCE, LOOKUP: identity. */
    int64_t id, fence; /* ATTEMPT, RENEW, END, READ, WATCH */
    int64_t expect_call_id, expect_call_fence, expect_holder_id, expect_holder_fence;
    unsigned from_states;
    bool any_fence, make_task, answer_only, want_suspect, block_suspect, peek, any_tenant;
    int64_t id_time_ms;  /* CLAIM: the time inside the callId, or 0 */
    int64_t task_due_ms; /* END with make_task: when the first round is due */
    size_t limit;
    struct store_list *list; /* LIST */
    struct task_work *work;
    struct task_page *page;
    const struct kept_request
        *keep; /* CLAIM, TAKE of a new row, REVERSE: kept with the row; NULL: nothing is */
    bool
        drop_kept; /* ROUND: what is kept of the request goes. END, FENCE: a kept request goes with the final ending; of a SUCCESS with a reversal its body only */
    enum task_cause task_cause; /* END with make_task (UNKNOWN or FAILED), EXPIRE, TASK */

    /* Answered. */
    enum status
        status; /* OK; CONFLICT; IO: nothing was written (full disk, unreadable, locked); UNKNOWN: it may
                           * have been written and could not be looked up; FULL: the queue refused it */
    bool done;
    struct rows rows;     /* slices point into memory */
    struct buffer memory; /* owned by the operation's maker, who ends it with store_op_fini() */
    int64_t expired[STORE_IDS_MAX];
    size_t count;
    bool more; /* PURGE, SKETCH: the step ended at its bound, not for want of work */

    /* For store/worker.h. `answered` is called on a store thread, last thing; the operation is the maker's again. */
    struct list link;
    int stage;      /* of a watch, under the worker's lock */
    bool cancelled; /* the same */
    void (*answered)(struct store_op *op);
    void *user;
};

void store_op_fini(struct store_op *op);

struct store;

struct store_stats {
    int64_t rows, bytes_on_disk;
};

struct archive;
struct store_settings {
    const char *url;                  /* "sqlite:PATH", "postgres://…" */
    const char *owner;                /* this process: node, pid, start; written into rows */
    int64_t (*now_ms)(void *context); /* the store's clock where the database has none of its own (SQLite) */
    void *context;
    const char
        *vfs; /* SQLite VFS name for the simulator; NULL: the default. With one, no PATH.lock is taken */
    size_t tail_entries; /* identities gathered in memory before they go to the index; 0: the default.
                                       * Tests make it small, so that this happens all the time */
    bool read_only;
    struct archive
        *archive; /* where purging puts bodies before it drops them (store/archive.h), borrowed until the
                              * store is closed; NULL: nowhere */
};

/* Opens and, where needed, creates or migrates. Takes the exclusive ownership (SQLite: one gateway owns the file).
 * STATUS_CONFLICT: another process owns it; STATUS_INVALID: the URL, or a schema newer than this program;
 * STATUS_IO: missing folder, unreadable, damaged, full. `error` then holds a sentence with the remedy. *out is the
 * caller's. */
enum status store_open(struct store **out, const struct store_settings *settings, struct buffer *error);

/* Runs the operations in order as one durable transaction and answers every one (status, done, rows). WATCH is not
 * allowed here. If the transaction fails as a whole, every operation that wrote gets STATUS_IO or STATUS_UNKNOWN as
 * described at store_op.status, and the store can be used again (a full disk that was freed works without a restart). */
void store_batch(struct store *store, struct store_op **ops, size_t count);

/* The halves of store_batch(), so that a batch can run while the one before it is synced. */
enum batch_begun {
    BATCH_BEGUN, /* committed, not yet durable and not answered: nobody may be told anything of it */
    BATCH_AGAIN, /* nothing was written and nothing is answered: once the others have ended, store_batch() runs these */
};
/* Runs the operations as one transaction. At most two batches have begun and not ended; they end in their order, and
 * store_batch() is not called meanwhile. `ops` stays the caller's and unchanged until then. */
enum batch_begun store_batch_begin(struct store *store, struct store_op **ops, size_t count);
/* Begins to make the oldest batch durable, beside the caller; without it store_batch_end() does so. */
void store_batch_sync(struct store *store);
/* Waits until the oldest batch is durable and answers its operations as store_batch() does. */
void store_batch_end(struct store *store);

/* A second connection for LOOKUP and READ, used by one thread at a time and never blocked by store_batch(). */
struct store_reader;
enum status store_reader_open(struct store_reader **out, struct store *store, struct buffer *error);
/* One for store_reader_run_now(), of `share` that share the memory for pages. *out is NULL where nothing can be read without
 * waiting. */
enum status store_reader_open_now(struct store_reader **out, struct store *store, unsigned share,
                                  struct buffer *error);
void store_reader_run(struct store_reader *reader, struct store_op *op);
/* The same of several operations, which may all see one moment: what that costs is then paid once. */
void store_reader_run_all(struct store_reader *reader, struct store_op **ops, size_t count);
/* The same for a thread that must not wait: for a disk, or until what was found is durable. Runs the first operations, as
 * long as they need not, and returns how many are answered; the others are as they were, for a reader that waits. Only
 * LOOKUP with its tenant, and READ. */
size_t store_reader_run_now(struct store_reader *reader, struct store_op **ops, size_t count);
void store_reader_free(struct store_reader *reader);
/* From now on waits(context) is called, on the thread that runs the reader, each time before it waits for a disk, where the
 * system can tell. Where a server is asked it is not called. NULL readers are accepted. */
void store_reader_tell_waits(struct store_reader *reader, void (*waits)(void *context), void *context);

/* The store's clock now, unix ms: instants of leases and lives are made from it. Follows the database's clock where it has
 * one of its own, however wrong this machine's is. Callable from every thread. */
int64_t store_clock_ms(struct store *store);
/* Whether other processes write this store too. */
bool store_shared(const struct store *store);
/* Batches that may run at the same time, at least 1. Operations of one row, or of one callId or key, must not. */
unsigned store_writers(const struct store *store);
/* Readers that keep it busy, at least 1: more than one where a reader waits for a server's answers. */
unsigned store_readers(const struct store *store);
/* Of the rows `ids`, those that do not run any more, into `ended`, which holds as many. Only where store_shared(). */
enum status store_reader_ended(struct store_reader *reader, const int64_t *ids, size_t count, int64_t *ended,
                               size_t *ended_count);

/* Work that is better done while nothing waits: checkpoints. Called by the writer thread when its queue is empty. Takes some
 * milliseconds at most; true: there is more, for another call. */
bool store_idle(struct store *store);
/* Rows and bytes as of the last batch. Callable from every thread. */
void store_stats(struct store *store, struct store_stats *out);

/* Says that nothing older than covers_since_ms is known here, e.g. after a restore from a backup; a bound that is
 * already higher stays. Durable on return. Called by the thread that calls store_batch(). STATUS_IO: not written. */
enum status store_raise_covers_since(struct store *store, int64_t covers_since_ms);

/* Closes; NULL is accepted. */
void store_close(struct store *store);

#endif
