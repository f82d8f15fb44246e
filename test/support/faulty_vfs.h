/* SPDX-License-Identifier: MIT
 *
 * A disk that fails on request, as an SQLite VFS over the real one: every n-th write, sync, truncation or opening, once
 * or from then on; and a power cut, which takes back what was written since a file's last sync. A sync that fails takes
 * what it should have saved for written, as Linux does (sim/lost_pages.h). One program, one such disk; not for several
 * threads.
 */
#ifndef SAMEKEY_TEST_FAULTY_VFS_H
#define SAMEKEY_TEST_FAULTY_VFS_H

#include <stdbool.h>
#include <stdint.h>

#define FAULTY_VFS "faulty"

enum fault {
    FAULT_NONE,
    FAULT_FULL,       /* writes: SQLITE_FULL */
    FAULT_WRITE,      /* writes and truncations: an I/O error, nothing written */
    FAULT_TORN_WRITE, /* writes: an I/O error, and half of it is written */
    FAULT_SYNC,       /* syncs: an I/O error; what was written may be on disk, and no later sync saves it */
    FAULT_OPEN,       /* openings: SQLITE_CANTOPEN */
    FAULT_ANY,        /* the next of any kind, with its own error */
    FAULT_KINDS
};

/* Registers the VFS; call it once. */
void faulty_vfs_register(void);
/* The n-th event (from 1) of the kind fails, with `forever` all after it too. FAULT_NONE: nothing fails any more. */
void faulty_vfs_arm(enum fault kind, int64_t n, bool forever);
/* Nothing is remembered of any file, and nothing fails: when files were removed behind its back. */
void faulty_vfs_anew(void);
/* Failures since faulty_vfs_arm(). */
int64_t faulty_vfs_failures(void);

/* The power goes at the n-th change behind the first failure since; 0: it does not. */
void faulty_vfs_cut_after(int64_t n);
/* Whether it has gone. */
bool faulty_vfs_is_off(void);
/* The power goes: from now on nothing reaches the disk and everything fails. Close the store, then faulty_vfs_power_on()
 * puts the files into a state a real disk could be in: of what was not synced, each write is kept, lost or torn as
 * `seed` decides. With FAULTY_VFS_KEEP only the process is gone: all are kept, and none is safer than before. */
#define FAULTY_VFS_KEEP 0
void faulty_vfs_power_off(void);
void faulty_vfs_power_on(uint64_t seed);

#endif
