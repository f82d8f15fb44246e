/* SPDX-License-Identifier: MIT
 *
 * The archive: stored answers that outlive their result_life, as compressed JSON lines in a folder (CONTRACT section 7:
 * `key_life = forever` archives ended bodies). A call is a line: the receipt document as the gateway tells it, with the
 * body, and before it when it was archived, by whom, its tenant, scope, digests and fingerprint.
 *
 *   receipts-2026-11-29.NODE-PID-START.jsonl.zst      the day (UTC) on which the call ended, and the process that writes
 *
 * Always true:
 *  (1) A file is written by one process only and grows by whole zstd frames; a frame holds whole lines. What a kill or a
 *      full disk leaves of a frame is cut off again, or ends the file for good, and is never read as a line.
 *  (2) archive_batch_write() says OK only after the frames and the folder's entries are on disk. The store drops a body
 *      only after that. A crash between the two leaves a line twice; the later one counts.
 *
 * zstd's own tools read the files: `zstdcat receipts-*.jsonl.zst`.
 */
#ifndef SAMEKEY_STORE_ARCHIVE_H
#define SAMEKEY_STORE_ARCHIVE_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"
#include "core/receipt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one step of purging archives at most: so long the store's thread is kept. One body more than that may be larger. */
#define ARCHIVE_STEP_ROWS  512
#define ARCHIVE_STEP_BYTES (4u << 20)

struct archive;

/* Opens the folder for writing by the process `owner` (as in store_settings). STATUS_IO: it is not there or cannot be
 * written, `error` says so with the remedy; STATUS_NO_MEMORY. *out is the caller's. */
enum status archive_open(struct archive **out, const char *folder, const char *owner, struct buffer *error);
/* NULL is accepted. */
void archive_close(struct archive *archive);

/* Since the start; callable from every thread. */
struct archive_state {
    int64_t lines, failures;
    bool fails;    /* the last write did */
    char why[300]; /* what was wrong with the last failure, with the remedy; "" before the first */
};
void archive_state(struct archive *archive, struct archive_state *out);

/* Whether a row's answer goes to the archive before it is dropped: the row's key lives for ever. Rows that share another
 * row's answer have none of their own and are not asked about. */
static inline bool archive_wants(const struct archive *archive, int64_t key_expires_ms)
{
    return archive && key_expires_ms == INT64_MAX;
}

/* Lines on their way into the archive, of one thread. Starts as zero bytes. */
#define ARCHIVE_DAYS 4 /* days of one batch at most */
struct archive_batch {
    struct {
        int64_t day;
        struct buffer lines;
    } days[ARCHIVE_DAYS];
    size_t day_count, rows, bytes;
};
/* Adds rows->call, which has its result and body. false: there is no more room in this batch (its bounds, its days), or
 * no memory: write what is there first. The first row always finds room. */
bool archive_batch_add(struct archive_batch *batch, struct archive *archive, const struct rows *rows,
                       int64_t now_ms);
/* Writes and syncs the lines. STATUS_IO: the archive holds none of them for sure, and nothing of them may be dropped;
 * archive_state() tells why. An empty batch is OK. */
enum status archive_batch_write(struct archive_batch *batch, struct archive *archive);
void archive_batch_fini(struct archive_batch *batch);

/* Looks for a call's line, in the files of the day on which it ended (0: not known), then in all. Of several lines the one
 * that was archived last. `line` gets its JSON. Readers need no open archive. STATUS_NOT_FOUND: there is none, and `why` says
 * so where files or parts of them could not be read; STATUS_IO: the folder cannot be read, `why` says it. */
enum status archive_find(const char *folder, struct slice tenant, struct slice call_id, int64_t ended_ms,
                         struct buffer *line, struct buffer *why);

#endif
