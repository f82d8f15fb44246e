/* SPDX-License-Identifier: MIT
 *
 * Locks that die with their holder: one byte of a lock file each, held by an open file description (fcntl,
 * F_OFD_SETLK). The kernel lets go when the process ends, however it ends, so nothing here can be left behind by a
 * kill -9, and two threads of one process exclude each other as two processes do.
 *
 * A byte's number comes out of a hash of 62 bits; two names that met in one byte would only wait for each other.
 */
#ifndef SAMEKEY_CALLER_SLOT_H
#define SAMEKEY_CALLER_SLOT_H

#include "base/status.h"

#include <stdint.h>

struct slot {
    int fd; /* -1: nothing is held */
};
#define SLOT_NONE                                                                                            \
    (struct slot)                                                                                            \
    {                                                                                                        \
        .fd = -1                                                                                             \
    }

/* Takes byte `number` (below 2^62) of the file, which is made if need be (0600). STATUS_CONFLICT: somebody holds it.
 * STATUS_IO: the file cannot be opened or locked. *slot is SLOT_NONE before and unless STATUS_OK. */
enum status slot_take(struct slot *slot, const char *path, uint64_t number);

/* Takes the first free byte of `count` from `number` on. */
enum status slot_take_any(struct slot *slot, const char *path, uint64_t number, unsigned count);

/* Lets go. SLOT_NONE is accepted. */
void slot_release(struct slot *slot);

#endif
