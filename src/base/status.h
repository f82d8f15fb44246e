/* SPDX-License-Identifier: MIT
 *
 * The one vocabulary for "the world misbehaved" inside samekey. Zero is success. A function that returns a
 * status leaves its results untouched unless it returns STATUS_OK. Misuse by our own code is an assert, not a
 * status.
 */
#ifndef SAMEKEY_BASE_STATUS_H
#define SAMEKEY_BASE_STATUS_H

enum status {
    STATUS_OK = 0,
    STATUS_INVALID,   /* the input breaks a rule; nothing was done */
    STATUS_FULL,      /* a bound with a name was reached; nothing was done */
    STATUS_NOT_FOUND, /* there is no such thing */
    STATUS_CONFLICT,  /* somebody else was first, or the fencing number is old; nothing was changed */
    STATUS_IO,        /* disk, database or network failed; state is as before unless the function says else */
    STATUS_UNKNOWN,   /* it may have happened: look before doing anything else */
    STATUS_NO_MEMORY, /* allocation failed; nothing was done */
};

#endif
