/* SPDX-License-Identifier: MIT */
#include "sim/keeping.h"

#include "core/keeper.h"

static const enum call_state STATES[KEPT_COUNT] = {
    [KEPT_NOTHING] = STATE_NOT_RECEIVED,
    [KEPT_FAILED] = STATE_FAILED,
    [KEPT_SUCCESS] = STATE_SUCCESS,
    [KEPT_RUNNING] = STATE_PROCESSING,
};

/* The row under the identity that the first attempt brought. */
static struct call_row kept_row(enum kept kept, const struct arrival *first)
{
    if (kept == KEPT_NOTHING)
        return (struct call_row){0};
    bool done = kept == KEPT_SUCCESS;
    return (struct call_row){
        .id = 1,
        .has_key = true,
        .operation_digest = first->operation,
        .scope = first->scope,
        .has_fingerprint = true,
        .fingerprint = first->fingerprint,
        .fingerprint_version = first->fingerprint_version,
        .fingerprint_rules = first->fingerprint_rules,
        .attempt_count = 1,
        .proof = PROOF_TRANSACTION,
        .state = STATES[kept],
        .final = done,
        .has_result = done,
        .body_kept = done,
        .result_status = done ? 201 : 0,
        .key_expires_ms = INT64_MAX,
        .result_expires_ms = INT64_MAX,
        .tombstone_expires_ms = INT64_MAX,
    };
}

enum status keeping_arrive(enum kept kept, bool swapped, enum keeping_verdict *out)
{
    struct arrival arrival = {.has_key = true,
                              .operation = {.bytes = {1}},
                              .scope = SLICE_LITERAL("POST /orders"),
                              .fingerprint = {.bytes = {2}},
                              .fingerprint_version = 1};
    struct rows rows = {.call = kept_row(kept, &arrival)};
    rows.holder = rows.call;
    if (swapped) {
        /* The store looks under names it has never seen, and finds no row at all. */
        arrival.operation.bytes[0]++;
        rows = (struct rows){0};
    }
    struct verdict verdict;
    keeper_arrive(&arrival, &rows, &verdict);
    switch (verdict.verb) {
    case KEEPER_CLAIM:
    case KEEPER_TAKE:
    case KEEPER_RESUME:
        *out = KEEPING_RUN;
        return STATUS_OK;
    case KEEPER_REPLAY:
    case KEEPER_ATTACH:
        *out = KEEPING_REPLAY;
        return STATUS_OK;
    case KEEPER_JOIN_CALL:
    case KEEPER_JOIN_OPERATION:
        *out = KEEPING_WAIT;
        return STATUS_OK;
    case KEEPER_ASK_HOLDER:
    case KEEPER_ASK_REVERSAL:
    case KEEPER_COMPARE_AGAIN:
    case KEEPER_REFUSE:
        break;
    }
    return STATUS_INVALID;
}

enum receipt_answer keeping_receipt(enum kept kept)
{
    static const enum receipt_answer answers[KEPT_COUNT] = {
        [KEPT_NOTHING] = RECEIPT_ANSWER_NOT_RECEIVED,
        [KEPT_FAILED] = RECEIPT_ANSWER_FAILED_OPEN,
        [KEPT_SUCCESS] = RECEIPT_ANSWER_SUCCESS,
        [KEPT_RUNNING] = RECEIPT_ANSWER_RUNNING,
    };
    return answers[kept];
}
