/* SPDX-License-Identifier: MIT
 *
 * What the log's index says to have been moved into the file, after a sync of the file failed. SQLite moves pages in several
 * passes and syncs the file behind the last one; the passes before it count as done. On Linux a failed sync leaves pages that
 * are not on disk and that no later sync writes (https://lwn.net/Articles/752063/): the next pass would go on behind them,
 * its sync would succeed, the log would begin anew, and a power cut would show the file without them. So a sync that fails
 * takes the count back, and the next pass moves everything again out of the log, which is still whole.
 *
 * The count is nBackfill of the log's index (https://sqlite.org/walformat.html, section 2.1); SQLite syncs the file while it
 * holds the locks under which the count may be written.
 */
#ifndef SAMEKEY_STORE_SQLITE_MOVED_H
#define SAMEKEY_STORE_SQLITE_MOVED_H

#include <sqlite3.h>

/* From now on a sync of this connection's file that fails does so; for every connection that moves pages, once its journal mode
 * is WAL. SQLite's code; not SQLITE_OK: it is as it was. */
int sqlite_moved_watch(sqlite3 *db);

#endif
