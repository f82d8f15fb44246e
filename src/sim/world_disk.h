/* SPDX-License-Identifier: MIT
 *
 * The world's disk: an SQLite VFS over memory that tells what was written from what is safe. A write is seen at once
 * and is safe after the file's next sync; a power cut makes of everything since then what a real disk could: nothing,
 * all, the first writes only, or any sectors of any of them. A process that dies without a power cut loses nothing, and
 * makes nothing safe either. A sync that fails takes what it should have saved for written, as Linux does
 * (sim/lost_pages.h): only what is written again is saved by the next one.
 *
 * Always true: (1) what a successful sync covered survives, but for what one before it failed to save and nobody wrote
 * again; (2) nothing else is promised; (3) the same seed and the same writes give the same bytes, since the disk draws
 * from its own stream.
 *
 * One disk at a time in a program, for one thread: SQLite finds it by name and not by pointer.
 */
#ifndef SAMEKEY_SIM_WORLD_DISK_H
#define SAMEKEY_SIM_WORLD_DISK_H

#include "base/prng.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define WORLD_DISK_VFS "samekey-world"

/* What goes wrong with the n-th write, sync or truncation from now. */
enum disk_trouble {
    DISK_WELL,
    DISK_WRITE_ERROR, /* nothing is written */
    DISK_TORN_ERROR,  /* a part is written */
    DISK_SYNC_ERROR,  /* the sync fails, and what it should have saved counts as written all the same */
    DISK_FULL,        /* writes fail with SQLITE_FULL */
    DISK_OPEN_ERROR,
    DISK_POWER_CUT, /* from there on everything fails until disk_power_on() */
    DISK_TROUBLES
};
const char *disk_trouble_text(enum disk_trouble trouble);

/* Nothing: only the process is gone, not the power; what is not safe is still not. */
enum disk_loss { DISK_LOSES_NOTHING, DISK_LOSES_ALL, DISK_LOSES_LAST, DISK_LOSES_SECTORS, DISK_LOSSES };

/* Registers the VFS, once, and makes the disk empty and well; `seed` starts its stream. STATUS_IO: SQLite refused it. */
enum status disk_begin(uint64_t seed);
/* Frees its memory; every database on it must be closed. */
void disk_end(void);

/* The n-th event (from 1) that the trouble can meet is met by it; with `lasting` all after it too. DISK_WELL ends it. */
void disk_arm(enum disk_trouble trouble, uint64_t n, bool lasting);
/* Events that failed since disk_arm(). */
uint64_t disk_failures(void);
/* Whether a power cut has come. */
bool disk_is_off(void);
/* From now on nothing reaches the disk. Close the databases, then power on. */
void disk_power_off(void);
/* Puts the files into a state in which the loss leaves them, and works again. */
void disk_power_on(enum disk_loss loss);

#endif
