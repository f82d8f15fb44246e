/* SPDX-License-Identifier: MIT */
#include "core/keeper.h"

#include <string.h>

const char *keeper_verb_text(enum keeper_verb verb)
{
    static const char *const texts[] = {"claim",        "take",          "resume",         "replay",
                                        "attach",       "join-call",     "join-operation", "ask-holder",
                                        "ask-reversal", "compare-again", "refuse"};
    return texts[verb];
}

static void refuse(struct verdict *v, enum problem problem)
{
    v->verb = KEEPER_REFUSE;
    v->problem = problem;
}

static bool other_credential(const struct arrival *a, const struct call_row *row)
{
    if (a->has_credential != row->has_credential)
        return true;
    return a->has_credential && !digest_equal(&a->credential, &row->credential);
}

/* True when the fingerprints were made under one rule and can be compared; else the verdict says under which. */
static bool comparable(const struct arrival *a, const struct call_row *row, struct verdict *v)
{
    if (a->fingerprint_version == row->fingerprint_version &&
        slice_equal(a->fingerprint_rules, row->fingerprint_rules))
        return true;
    v->verb = KEEPER_COMPARE_AGAIN;
    v->compare_version = row->fingerprint_version;
    v->compare_rules = row->fingerprint_rules;
    return false;
}

/* Whether another call holds the key in a way that lets nothing else run. */
static bool held_by_other(const struct arrival *a, const struct rows *rows)
{
    const struct call_row *holder = &rows->holder;
    return a->has_key && holder->id && holder->id != rows->call.id && holder->state != STATE_FAILED;
}

/* A callId that is not known and older than the store's memory: it may have run, and its receipt is gone. */
static bool forgotten(const struct arrival *a, const struct rows *rows)
{
    return !rows->call.id && a->id_time_ms && a->id_time_ms < rows->refuse_before_ms;
}

static bool same_rules(const struct call_row *a, const struct call_row *b)
{
    return a->fingerprint_version == b->fingerprint_version &&
           slice_equal(a->fingerprint_rules, b->fingerprint_rules);
}

/* Known callId. Returns true when the verdict stands; false: go on with the key. */
static bool known_call(const struct arrival *a, const struct rows *rows, struct verdict *v)
{
    const struct call_row *row = &rows->call;
    if (other_credential(a, row)) {
        refuse(v, PROBLEM_CREDENTIAL_MISMATCH);
        return true;
    }
    if (row->reverses
            .len) { /* a reversal has no caller: whatever comes under its callId is another request */
        refuse(v, PROBLEM_CALL_ID_REUSED);
        return true;
    }
    if (row->has_fingerprint) {
        /* Another key, another route, or another request under the same callId: somebody swapped something. */
        if (a->has_key != row->has_key ||
            (a->has_key && !digest_equal(&a->operation, &row->operation_digest)) ||
            !slice_equal(a->scope, row->scope)) {
            refuse(v, PROBLEM_CALL_ID_REUSED);
            return true;
        }
        if (!comparable(a, row, v))
            return true;
        if (!digest32_equal(&a->fingerprint, &row->fingerprint)) {
            refuse(v, PROBLEM_CALL_ID_REUSED);
            return true;
        }
    }
    switch (row->state) {
    case STATE_FAILED:
        if (row->reason == REASON_FENCED) {
            refuse(v, PROBLEM_CALL_FENCED);
            return true;
        }
        if (!row->final)
            return false;
        v->verb = KEEPER_REPLAY;
        return true;
    case STATE_SUCCESS:
        v->verb = KEEPER_REPLAY;
        return true;
    case STATE_RECEIVED:
    case STATE_PROCESSING:
        v->verb = KEEPER_JOIN_CALL;
        return true;
    case STATE_UNKNOWN:
        if (held_by_other(a, rows))
            refuse(v, PROBLEM_OUTCOME_UNKNOWN);
        else
            v->verb = KEEPER_RESUME;
        return true;
    case STATE_NOT_RECEIVED:
        break;
    }
    return false;
}

/* The operation has a reversal. Only the reversal's own SUCCESS undid it; one that failed for good has changed nothing, so
 * that it is `otherwise` as without it; and until it ended nobody can say, nor run what it might still undo. */
static void reversed(const struct arrival *a, struct verdict *v, enum keeper_verb otherwise)
{
    if (!a->reversal_read)
        v->verb = KEEPER_ASK_REVERSAL;
    else if (a->reversal == STATE_SUCCESS)
        refuse(v, PROBLEM_OPERATION_REVERSED);
    else if (a->reversal == STATE_FAILED)
        v->verb = otherwise;
    else
        refuse(v, PROBLEM_OPERATION_IN_PROGRESS);
}

/* The key is known through another call. */
static void known_key(const struct arrival *a, const struct rows *rows, struct verdict *v)
{
    const struct call_row *holder = &rows->holder;
    if (other_credential(a, holder)) {
        refuse(v, PROBLEM_CREDENTIAL_MISMATCH);
        return;
    }
    /* One's own row was compared just now. A holder under other rules was compared with it when it took the key over;
     * comparing under both in turn would never end. */
    if (holder->has_fingerprint && (!rows->call.id || same_rules(&rows->call, holder))) {
        if (!comparable(a, holder, v))
            return;
        if (!digest32_equal(&a->fingerprint, &holder->fingerprint)) {
            refuse(v, PROBLEM_KEY_REUSED);
            return;
        }
    }
    switch (holder->state) {
    case STATE_SUCCESS:
        if (rows->now_ms >= holder->key_expires_ms)
            refuse(v, PROBLEM_KEY_EXPIRED);
        else if (holder->reversed_by.len)
            reversed(a, v, KEEPER_ATTACH);
        else
            v->verb = KEEPER_ATTACH;
        return;
    case STATE_RECEIVED:
    case STATE_PROCESSING:
        v->verb = KEEPER_JOIN_OPERATION;
        return;
    case STATE_UNKNOWN:
        if (a->holder_asked)
            refuse(v, PROBLEM_OUTCOME_UNKNOWN);
        else
            v->verb = KEEPER_ASK_HOLDER;
        return;
    case STATE_FAILED:
    case STATE_NOT_RECEIVED:
        if (forgotten(a, rows))
            refuse(v, PROBLEM_OUTCOME_UNKNOWN);
        else if (holder->reversed_by.len)
            reversed(a, v, KEEPER_TAKE);
        else
            v->verb = KEEPER_TAKE;
        return;
    }
}

void keeper_arrive(const struct arrival *a, const struct rows *rows, struct verdict *v)
{
    memset(v, 0, sizeof *v);
    if (rows->call.id && known_call(a, rows, v))
        return;
    if (a->has_key && rows->holder.id && rows->holder.id != rows->call.id) {
        known_key(a, rows, v);
        return;
    }
    if (rows->call.id) {
        v->verb = KEEPER_TAKE; /* its own row, open again, with the slot free or its own */
        return;
    }
    if (forgotten(a, rows)) {
        refuse(v, PROBLEM_OUTCOME_UNKNOWN);
        return;
    }
    if (rows->suspect.id) {
        v->suspect = rows->suspect.call_id;
        if (a->block_suspects) {
            refuse(v, PROBLEM_SUSPECTED_DUPLICATE);
            return;
        }
    }
    v->verb = KEEPER_CLAIM;
}

enum problem keeper_replay_problem(const struct call_row *row)
{
    if (row->state == STATE_SUCCESS)
        return row->has_result && row->body_kept ? PROBLEM_NONE : PROBLEM_RESULT_NOT_KEPT;
    if (row->state == STATE_FAILED && row->reason == REASON_FENCED)
        return PROBLEM_CALL_FENCED;
    if (row->state == STATE_FAILED && row->final)
        return row->has_result && row->body_kept ? PROBLEM_NONE : PROBLEM_CALL_FAILED;
    if (row->state == STATE_UNKNOWN)
        return PROBLEM_OUTCOME_UNKNOWN;
    return PROBLEM_CALL_IN_PROGRESS;
}
