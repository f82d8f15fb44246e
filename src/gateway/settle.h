/* SPDX-License-Identifier: MIT
 *
 * Rows that outlive the operation that read them, and rows that end by a callee's receipt.
 */
#ifndef SAMEKEY_GATEWAY_SETTLE_H
#define SAMEKEY_GATEWAY_SETTLE_H

#include "base/arena.h"
#include "core/receipt.h"
#include "core/settings.h"

/* Copies the texts that name a call into the arena and drops its result. False: no memory; the row is then not to be
 * used. */
bool row_keep(struct call_row *row, struct arena *arena);
/* Drops what a row tells of an ending and of other calls, for an owner who goes on with it. */
void row_drop_result(struct call_row *row);

/* When the tombstone of a call that ends now goes: never before its key, so with key_life = forever never. */
int64_t tombstone_end(const struct route_settings *s, int64_t now_ms);
/* Sets the lives of a row that ends now (unix ms of the store's clock). */
void row_set_lives(struct call_row *row, const struct route_settings *s, int64_t now_ms);

/* Makes `row` end as a believed receipt says (SUCCESS or FAILED final): state, lives, and its result; a SUCCESS without
 * one gets our own receipt document as its answer, frozen here. A result that does not fit the arena is not kept. */
void row_settle(struct call_row *row, const struct route_settings *s, const struct receipt_reading *reading,
                int64_t now_ms, struct arena *arena);

/* Our own document as the answer of a SUCCESS that nobody gave us an answer for. */
void row_freeze_document(struct call_row *row, int64_t now_ms, struct arena *arena);

#endif
