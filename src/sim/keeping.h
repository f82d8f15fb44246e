/* SPDX-License-Identifier: MIT
 *
 * A simulated server that keeps receipts. What it does with an arriving attempt is asked of the core's keeper
 * (core/keeper.h); here stands only what its store would hold. One call, one row; nobody else uses its key.
 */
#ifndef SAMEKEY_SIM_KEEPING_H
#define SAMEKEY_SIM_KEEPING_H

#include "base/status.h"
#include "core/receipt.h"

/* What the store holds about a call when an attempt of it arrives. */
enum kept {
    KEPT_NOTHING, /* no row: the first attempt */
    KEPT_FAILED,  /* an attempt ended and proved that nothing happened: FAILED, not final */
    KEPT_SUCCESS, /* it took effect, whether the caller heard of it or not */
    KEPT_RUNNING, /* claimed: queued or at work */
    KEPT_COUNT,
};

enum keeping_verdict {
    KEEPING_RUN,    /* run it: it may take effect */
    KEEPING_REPLAY, /* answer from the receipt: no effect */
    KEEPING_WAIT,   /* it is running already: 409, Call-Outcome: pending */
};

/* The keeper's word on an attempt that brings the callId and key of the call's first attempt; or, with `swapped`, a
 * callId and a key the server has never seen. STATUS_INVALID: a refusal, which cannot be here; *out is untouched. */
enum status keeping_arrive(enum kept kept, bool swapped, enum keeping_verdict *out);

/* What the server's receipt endpoint says about the call. */
enum receipt_answer keeping_receipt(enum kept kept);

#endif
