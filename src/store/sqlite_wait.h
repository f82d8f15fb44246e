/* SPDX-License-Identifier: MIT
 *
 * Being told before a read of SQLite's waits for the disk, or not waiting. The system is first asked for what its page cache has
 * (RWF_NOWAIT, preadv2(2), Linux 4.14); only if that is not all, the thread is told, and reads as SQLite would have; or its read fails.
 */
#ifndef SAMEKEY_STORE_SQLITE_WAIT_H
#define SAMEKEY_STORE_SQLITE_WAIT_H

#include <stdbool.h>

/* Lays it over SQLite's system call for reading, for the whole process; once. False: this SQLite reads another way, or a file
 * has been read whose file system cannot tell, and nobody is told any more. */
bool sqlite_wait_can(void);
/* From now on waits(context) is called before a read of this thread's waits; NULL: no more. A read costs the same system
 * call, and a second one where it waits. */
void sqlite_wait_tell(void (*waits)(void *context), void *context);
/* From now on a read of this thread's that would wait fails (SQLITE_IOERR_READ), and so does each behind the first `reads`; 0:
 * no more of that. Returns whether one has failed so since the call before. */
bool sqlite_wait_refuse(unsigned reads);

#endif
