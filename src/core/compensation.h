/* SPDX-License-Identifier: MIT
 *
 * The compensation machine: "this round of a call's follow-up begins; what may be done?" (CONTRACT section 6). One
 * machine is one round. It decides and touches nothing: its driver performs the one effect that each step returns and
 * feeds back the one event that came of it, until the round is over.
 *
 *               .-- rounds used up, nothing to ask ---------------------------------> OVER
 *   START ------+-- the call ended, or is being worked on --------------------------> OVER
 *               +-- a reversal that was never sent ------------> SENDING --SENT-----> OVER
 *               `-- ASK --> ASKING --SUCCESS, FAILED final (settled)----------------> OVER
 *                             |  `---- running, unknown, failed query (wait) -------> OVER
 *                             `-- not received, or FAILED not final
 *                                   |-- still wanted, section 3 allows -> SENDING --> OVER
 *                                   |-- the callee can fence ----------> FENCING ---> OVER
 *                                   `-- neither (wait) ---------------------------- > OVER
 *
 *   phase      event                        next
 *   IDLE       START call at work           OVER wait
 *   IDLE       START call has ended         OVER resolved, reversed, manual; ASKING where the ending is in doubt
 *   IDLE       START past the last round    OVER manual
 *   IDLE       START never sent             SENDING; without a request OVER manual
 *   IDLE       START nobody to ask          SENDING where a repeat is wanted and safe, else OVER wait
 *   IDLE       START else                   ASKING
 *   ASKING     ANSWER success               OVER settled SUCCESS, or as the record says; MANUAL on a difference
 *   ASKING     ANSWER failed final          OVER settled FAILED, or as the record says; MANUAL on a difference
 *   ASKING     ANSWER not received, open    SENDING, FENCING, OVER wait
 *   ASKING     ANSWER else                  OVER wait
 *   FENCING    FENCED fenced                OVER settled FAILED, or reverse
 *   FENCING    FENCED success               OVER settled SUCCESS
 *   FENCING    FENCED else                  OVER wait
 *   SENDING    SENT by what the call became OVER
 *
 * "Wait" is MANUAL after the last round.
 *
 * Always true (compensation_invariant()):
 *  (1) FAILED is settled only by a final FAILED receipt or by a fence at the callee.
 *  (2) After an attempt that was accepted (pending), nothing is fenced: queued work may still write its receipt.
 *  (3) One round asks once, fences once and sends once at most, in this order, and never fences and sends.
 *  (4) What may have run is sent again only after its receipt said in this round that it is not there, or at a callee
 *      without receipts that runs a callId once.
 *  (5) After the last round nothing is asked, fenced or sent.
 *  (6) OVER is left by nothing.
 */
#ifndef SAMEKEY_CORE_COMPENSATION_H
#define SAMEKEY_CORE_COMPENSATION_H

#include "core/task.h"

#define COMPENSATION_JITTER_LOW  0.9 /* of a gap between rounds */
#define COMPENSATION_JITTER_HIGH 1.1

/* What the route allows. Times in milliseconds. */
struct compensation_policy {
    int rounds; /* with those that a person granted */
    bool has_receipts, can_fence;
    bool runs_once; /* the callee runs a callId or key once */
    bool still_wanted;
    bool has_reversal; /* FAILED calls: their effect can be undone after a fence */
    int64_t resend_after_ms, upstream_key_life_ms;
    int64_t round_gap_ms, round_gap_max_ms;
};

/* What is known when the round begins. */
struct compensation_facts {
    enum task_cause cause;
    int round; /* this one, from 1 */
    enum call_state state;
    bool final;
    bool never_sent;   /* no attempt was begun */
    bool maybe_ran;    /* an attempt was unknown or pending, or was lost */
    bool pending;      /* the callee had accepted it */
    bool has_request;  /* it is kept, so that it can be sent */
    bool has_identity; /* a key, or a callId that its caller made */
    bool slot_free;    /* the key's slot is this call's own, or there is no key */
    int64_t age_ms;    /* since the first attempt began */
    int64_t
        closed_age_ms; /* since the call's row last moved: its last connection was closed then or before */
};

enum compensation_phase {
    COMPENSATION_IDLE,
    COMPENSATION_ASKING,
    COMPENSATION_FENCING,
    COMPENSATION_SENDING,
    COMPENSATION_OVER
};

enum compensation_event_type {
    COMPENSATION_EV_START,
    COMPENSATION_EV_ANSWER,
    COMPENSATION_EV_FENCED,
    COMPENSATION_EV_SENT
};

struct compensation_event {
    enum compensation_event_type type;
    struct compensation_facts facts; /* START */
    double random;                   /* START: in [0, 1), for the jitter of the next gap */
    enum receipt_answer answer;      /* ANSWER; FENCED: what the fence said (FAILED_FINAL: fenced) */
    enum call_state state;           /* SENT: what stands after it */
    bool final;
};

enum compensation_effect_type {
    COMPENSATION_DO_ASK,
    COMPENSATION_DO_FENCE,
    COMPENSATION_DO_SEND,
    COMPENSATION_DO_SETTLE,  /* the call ends (state, reason); the task gets `status` in the same commit */
    COMPENSATION_DO_WAIT,    /* the next round is due in wait_ms */
    COMPENSATION_DO_MANUAL,  /* to a person */
    COMPENSATION_DO_CLOSE,   /* the call has its ending: the task gets `status` */
    COMPENSATION_DO_REVERSE, /* the reversal begins, as a call of its own; the task gets `status` */
};

struct compensation_effect {
    enum compensation_effect_type type;
    enum call_state state; /* SETTLE */
    enum reason reason;
    enum task_status status;
    int64_t wait_ms;
    bool differs;    /* our record and the callee's do not agree */
    const char *why; /* a sentence for people; never NULL once the round is over */
};

struct compensation {
    struct compensation_policy policy;
    struct compensation_facts facts;
    enum compensation_phase phase;
    double random;
    bool asked, fenced, sent, absent; /* absent: the receipt said that it is not there */
    struct compensation_effect last;
};

/* A machine that has not started. The policy is copied. */
void compensation_init(struct compensation *c, const struct compensation_policy *policy);

/* Moves the machine by one event and says the one thing to do. A misuse (an event that its phase does not know) is an
 * assert. */
void compensation_step(struct compensation *c, const struct compensation_event *event,
                       struct compensation_effect *effect);

/* Whether all that the top of this file promises holds. */
bool compensation_invariant(const struct compensation *c);
const char *compensation_phase_text(enum compensation_phase phase);
/* "ask", "fence", "send", "settle", "wait", "manual", "close", "reverse"; never NULL. */
const char *compensation_effect_text(enum compensation_effect_type type);

/* The time from the end of round n (from 0: the call's ending) to the next: doubling from round_gap to round_gap_max,
 * with jitter, at least 1 ms and at most round_gap_max. */
int64_t compensation_gap_ms(const struct compensation_policy *policy, int round, double random);

#endif
