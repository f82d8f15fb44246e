/* SPDX-License-Identifier: MIT
 *
 * One side of a reconciliation, read into records sorted by key: from a database, from CSV under a header, or from JSON
 * lines (receipt documents as the gateway answers and archives them, or flat objects).
 */
#ifndef SAMEKEY_FORENSICS_SIDE_H
#define SAMEKEY_FORENSICS_SIDE_H

#include "forensics/reconcile.h"

/* What the record's flags say besides. */
#define SIDE_REVERSED EVENT_REDELIVERED

/* Reads everything. STATUS_IO, STATUS_NOT_FOUND, STATUS_INVALID: r->error says why. */
enum status side_read(struct reconcile *r, enum side side, struct spill *to);

/* Sets how many records the side is expected to have, as far as that can be told without reading it. */
void side_expect(struct reconcile *r, enum side side);

/* An amount with nothing that does not count: 100.00 and +0100 are 100. Empty: it is no decimal number. scratch is
 * appended to. */
struct slice side_amount(struct slice text, struct buffer *scratch);

#endif
