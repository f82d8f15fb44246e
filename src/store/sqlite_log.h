/* SPDX-License-Identifier: MIT
 *
 * The log file of the writing connection, written a commit at a time. SQLite hands a commit to its log (WAL) in two
 * writes for each page, a head of 24 bytes and the page; here they are gathered and go to the system as one write. What
 * is written, and where, is the same.
 *
 * Always true:
 *  (1) A write that ends a commit has been handed to the system, or its error to SQLite, before it returns: SQLite shows a
 *      commit to readers only after that. The end is told by the frame's head (bytes 4 to 7 are not zero;
 *      https://sqlite.org/fileformat2.html, section 4.1).
 *  (2) So has everything before a sync, a read, a truncation or a question for the size, and before a write elsewhere.
 *  (3) Only bytes behind each other wait; a write elsewhere goes to the system by itself.
 */
#ifndef SAMEKEY_STORE_SQLITE_LOG_H
#define SAMEKEY_STORE_SQLITE_LOG_H

#include <sqlite3.h>

/* The name of a VFS that does this over the VFS `base` (NULL: the default one), registered if it is not yet. Its files but
 * the logs are base's own. NULL: there is no such base, or no memory. The name lives as long as the process. */
const char *sqlite_log_vfs(const char *base);

/* Syncs what has been handed to the system of a log, which includes every commit that has come back. May run beside a
 * write of another thread. Returns SQLite's code. */
int sqlite_log_sync(sqlite3_file *log);

/* Writes the log once more as it is, and syncs it: what a failed sync left in it, of this process or one before, is only seen
 * until it is written again, and not on disk. Under the lock of a write transaction, so that nobody appends meanwhile. Returns
 * SQLite's code. */
int sqlite_log_renew(sqlite3_file *log);

#endif
