/* SPDX-License-Identifier: MIT
 *
 * The page cache of the store's reading connections. SQLite's own forgets the page that was not asked for longest, so
 * random look-ups in a large file push its inner pages out with leaves that nobody asks for again: measured with 10^7
 * receipts, a look-up read three leaves and three inner pages. Here a leaf goes at once when the cache has some, and
 * inner pages stay. Everything else is SQLite's cache, over which this is laid (https://sqlite.org/c3ref/pcache_methods2.html).
 *
 * A cache is thrown away whole when another connection has written, as SQLite does it: while calls are made, it has less
 * to give.
 */
#ifndef SAMEKEY_STORE_SQLITE_CACHE_H
#define SAMEKEY_STORE_SQLITE_CACHE_H

#include <stdbool.h>

#define SQLITE_CACHE_LEAVES 512 /* pages in a cache that leaves may be among; with more, they go */

/* Lays it over SQLite's cache, for the whole process; once, and before anything else of SQLite. False: something else was
 * first, and SQLite's own cache is used as it is. */
bool sqlite_cache_install(void);
/* Whether connections that this thread opens from now on keep inner pages rather than leaves. */
void sqlite_cache_keep_inner(bool keep);

#endif
