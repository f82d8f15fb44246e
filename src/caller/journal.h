/* SPDX-License-Identifier: MIT
 *
 * The caller's own journal: what it meant to do, written down before the first byte leaves (CONTRACT section 8). One
 * SQLite file, write-ahead log, synchronous=FULL, readable by its owner only.
 *
 * Always true:
 *  (1) journal_write() that returned STATUS_OK is on disk.
 *  (2) An entry says how many attempts have begun before the newest of them may send a byte. So an entry that is open
 *      with attempts and no ending may have run, and is taken up under its callId.
 *  (3) callIds are unique; of one operation (URL and key) at most one entry is not ended.
 *  (4) Who works on an operation holds its lock (caller/slot.h), which dies with the process.
 */
#ifndef SAMEKEY_CALLER_JOURNAL_H
#define SAMEKEY_CALLER_JOURNAL_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"
#include "base/buffer.h"
#include "caller/slot.h"
#include "core/digest.h"
#include "core/receipt.h"

#define JOURNAL_ENTRY_BYTES_MAX (256u << 20)                     /* of one entry in memory */
#define JOURNAL_BODY_BYTES_MAX  (64u << 20)                      /* of a request or an answer that is kept */
#define JOURNAL_KEEP_MS         (INT64_C(30) * 24 * 3600 * 1000) /* ended entries; open ones stay */
#define JOURNAL_PURGE_ROWS      200                              /* at one opening */
#define JOURNAL_ROUNDS_MAX      5 /* an open call that was taken up this often is a person's work */

struct journal;

/* One call. Slices borrow from whoever made the entry: the arena that it was read into. Times are unix ms. */
struct journal_entry {
    int64_t id; /* 0: not written yet */
    struct slice call_id;
    bool has_key;
    struct digest operation;
    struct slice method, url, key, business_ref, headers, policy;
    struct slice traceparent;
    struct digest32 fingerprint;
    bool body_kept;
    struct slice body;

    enum call_state state; /* PROCESSING while nobody has ended it */
    bool final;
    enum reason reason;
    enum next_action next;
    bool safe_new_key;
    int attempt_count;     /* begun */
    struct slice attempts; /* core/receipt.h attempts_encode(), of those that ended */
    bool maybe_ran, pending;
    int64_t first_ms, closed_ms; /* first attempt; last connection given up: 0 where there is none */
    int rounds;                  /* how often it was taken up while open */

    bool has_result;
    int result_status;
    struct slice result_headers, result_body;
    bool result_kept;

    int64_t created_ms, updated_ms;
};

/* Whether it has an ending that a repeat is answered with. */
static inline bool journal_ended(const struct journal_entry *e)
{
    return e->state == STATE_SUCCESS || (e->state == STATE_FAILED && e->final);
}

/* Opens the file, its directory too if missing. `vfs` names an SQLite VFS, NULL for the usual (tests lose power with
 * one of their own). STATUS_IO with *why (if not NULL) a constant or SQLite's own sentence. STATUS_NO_MEMORY. */
enum status journal_open(struct journal **out, const char *path, const char *vfs, const char **why);
void journal_close(struct journal *j); /* NULL is accepted */

/* "$XDG_STATE_HOME/samekey/journal.db", or "~/.local/state/samekey/journal.db". STATUS_NOT_FOUND: neither variable is
 * set to an absolute path. */
enum status journal_default_path(struct buffer *out);

/* Takes the right to work on an operation, or on a call without a key (digest of its callId). STATUS_CONFLICT: somebody
 * else does. STATUS_IO. */
enum status journal_lock(struct journal *j, const struct digest *digest, struct slot *slot);

/* The newest entry of an operation; the one that is open, if any is. STATUS_NOT_FOUND, STATUS_IO, STATUS_NO_MEMORY. */
enum status journal_find_operation(struct journal *j, const struct digest *operation, struct arena *memory,
                                   struct journal_entry *out);
enum status journal_find_call(struct journal *j, struct slice call_id, struct arena *memory,
                              struct journal_entry *out);

/* Inserts (id 0, then set) or updates an entry whole; the request's parts are written at the insert only.
 * STATUS_CONFLICT: the callId is another entry's. STATUS_IO: not written. */
enum status journal_write(struct journal *j, struct journal_entry *entry);

/* Removes an entry. STATUS_NOT_FOUND, STATUS_IO. */
enum status journal_forget(struct journal *j, struct slice call_id);

/* Calls `each` for every entry, or only for those without an ending, oldest first and without bodies; stops when it
 * returns false. STATUS_IO, STATUS_NO_MEMORY. `each` may write to the journal. */
enum status journal_each(struct journal *j, bool open_only,
                         bool (*each)(void *context, const struct journal_entry *e), void *context);

#endif
