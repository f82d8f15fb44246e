/* SPDX-License-Identifier: MIT
 *
 * Finds the operation of events that name no business key: by their callId, whose other events may name one; else by
 * their idempotency key; keys that one callId used are one operation. Works part by part, so memory stays bounded: what
 * is kept for all is only the list of keys that have to be joined, which is short unless keys are volatile.
 */
#ifndef SAMEKEY_FORENSICS_JOIN_H
#define SAMEKEY_FORENSICS_JOIN_H

#include "forensics/spill.h"

#define JOIN_SEED_BUSINESS 11
#define JOIN_SEED_CALL     12
#define JOIN_SEED_KEY      13
#define JOIN_PAIRS_MAX     4000000 /* keys joined at most; beyond it further ones stay apart */

/* Moves everything in by_call (sorted by callId, or by key where there is none) to by_group. by_call is empty
 * afterwards. STATUS_IO, STATUS_NO_MEMORY. */
enum status join_calls(struct spill *by_call, struct spill *by_group);

#endif
