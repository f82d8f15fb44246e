/* SPDX-License-Identifier: MIT
 *
 * The keeper machine: "a request with this identity arrived and the store holds these rows: run it, replay, wait or
 * refuse?" (CONTRACT section 5, "Order"). One pure decision; whoever performs it gives changed rows back until the
 * verdict is an answer.
 *
 *                       rows: this callId               rows: holder of the key
 *   arrival --> known? ----------------------> known? ---------------------------> neither
 *                |                              |                                    |
 *                | other credential: REFUSE     | other credential: REFUSE           | suspect and block: REFUSE
 *                | other key/print:  REFUSE     | other print: REFUSE key-reused     | older than covers_since: REFUSE
 *                | fenced:           REFUSE     | past its life: REFUSE key-expired  `-> CLAIM
 *                | final:            REPLAY     | undone: REFUSE operation-reversed; how it went: ASK_REVERSAL
 *                | running:          JOIN       | SUCCESS:  ATTACH
 *                | UNKNOWN:          RESUME     | running:  JOIN
 *                ` FAILED, open: ---------------> UNKNOWN:  ASK_HOLDER
 *                                               ` FAILED:   TAKE (a callId older than covers_since: REFUSE; with a
 *                                                           reversal: as for a SUCCESS that has one)
 *
 * Always true:
 *  (1) A mismatch is told before "in progress", and nothing of another credential's call is shown.
 *  (2) CLAIM, TAKE and RESUME are the only verdicts after which something may be sent, and none of them is given
 *      while the key's holder is RECEIVED, PROCESSING, UNKNOWN or SUCCESS (RESUME: while it is another call).
 *  (3) A fingerprint is only compared with one of the same version and rules; otherwise COMPARE_AGAIN.
 */
#ifndef SAMEKEY_CORE_KEEPER_H
#define SAMEKEY_CORE_KEEPER_H

#include "core/problem.h"
#include "core/receipt.h"

enum keeper_verb {
    KEEPER_CLAIM, /* insert the call and take the slot, then send */
    KEEPER_TAKE, /* compare-and-set: this call (its row, or a new one) takes a slot that is free again, then send */
    KEEPER_RESUME,    /* compare-and-set: this call was UNKNOWN; ask its receipt, then go on by core/call */
    KEEPER_REPLAY,    /* answer from rows->call */
    KEEPER_ATTACH,    /* write this call down as sharing the holder's effect, then replay */
    KEEPER_JOIN_CALL, /* wait for rows->call to end */
    KEEPER_JOIN_OPERATION, /* wait for rows->holder to end */
    KEEPER_ASK_HOLDER,     /* the holder is UNKNOWN: ask its receipt, settle it, decide again; never claim */
    KEEPER_ASK_REVERSAL,   /* the holder has a reversal: read that call's state, and decide again */
    KEEPER_COMPARE_AGAIN, /* make the fingerprint under compare_version and compare_rules, and decide again */
    KEEPER_REFUSE,        /* answer `problem` */
};
const char *keeper_verb_text(enum keeper_verb verb);

struct arrival {
    bool has_key;
    struct digest operation; /* of tenant, scope and key */
    bool has_credential;
    struct digest credential;
    struct slice scope;
    struct digest32 fingerprint;
    int fingerprint_version;
    struct slice fingerprint_rules;
    bool call_id_made;  /* by us: then it cannot be known */
    int64_t id_time_ms; /* the time inside the callId, or 0 */
    bool block_suspects;
    bool reversal_read; /* the holder's reversal was read for this arrival: */
    enum call_state reversal;
    bool holder_asked; /* the holder's receipt was asked for this arrival and left it UNKNOWN */
};

struct verdict {
    enum keeper_verb verb;
    enum problem problem; /* REFUSE */
    int compare_version;  /* COMPARE_AGAIN; borrowed from the rows */
    struct slice compare_rules;
    struct slice suspect; /* CLAIM: the callId of an unresolved call with the same fingerprint, or empty */
};

/* Decides. `rows` are what the store knows now. */
void keeper_arrive(const struct arrival *arrival, const struct rows *rows, struct verdict *verdict);

/* How a row that ended is answered: replayed (PROBLEM_NONE), or as the problem that stands for it. */
enum problem keeper_replay_problem(const struct call_row *row);

#endif
