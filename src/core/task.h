/* SPDX-License-Identifier: MIT
 *
 * The compensation task: the durable, bounded follow-up of one call (CONTRACT section 6), as rows of the store. What a
 * round decides is core/compensation.h; here is only what is kept.
 *
 *   (made) -> PENDING -> RUNNING -> PENDING ...            the next round
 *                           |-----> RESOLVED | REVERSED    final
 *                           `-----> MANUAL -> RESOLVED | CLOSED by a person; PENDING again for one more round
 *
 * Always true:
 *  (1) A call has at most one task, and a task one call.
 *  (2) Only the owner with the current fencing number of a RUNNING task writes its round.
 *  (3) Every round that began is a row, also one whose process died: that one says so.
 */
#ifndef SAMEKEY_CORE_TASK_H
#define SAMEKEY_CORE_TASK_H

#include "core/receipt.h"

enum task_status {
#define TASK(name, number, text, open, sentence) TASK_##name = (number),
#include "core/task.def"
#undef TASK
};
#define TASK_OPEN_MASK (1u << TASK_PENDING | 1u << TASK_RUNNING | 1u << TASK_MANUAL)

/* Why there is a task. The numbers are stored. */
enum task_cause {
    TASK_CAUSE_UNKNOWN = 0,      /* the call ended UNKNOWN */
    TASK_CAUSE_CONTRADICTED = 1, /* a report or an answer contradicts the call's final ending */
    TASK_CAUSE_FAILED = 2,       /* the call ended FAILED on a route with on_failed = compensate */
    TASK_CAUSE_REVERSAL = 3,     /* the call is a reversal: it is to be sent, then followed */
};

/* Whether the person has been told that a task is MANUAL. The numbers are stored. */
enum task_tell {
    TASK_TELL_NONE = 0,
    TASK_TELL_OWED = 1,
    TASK_TELL_DONE = 2,
    TASK_TELL_GIVEN_UP = 3, /* told without success as often as is allowed */
};

/* "PENDING"; never NULL. */
const char *task_status_text(enum task_status status);
const char *task_status_sentence(enum task_status status);
/* Reads a status' text; false if it is none. Case matters. */
bool task_status_parse(struct slice text, enum task_status *out);
/* "unknown", "contradicted", "failed", "reversal"; never NULL. */
const char *task_cause_text(enum task_cause cause);
/* "none", "owed", "done", "given_up"; never NULL. */
const char *task_tell_text(enum task_tell tell);

/* A task. Slices borrow the memory of whoever made the row. Times are unix ms of the store's clock. */
struct task_row {
    int64_t id;   /* 0: no such task */
    int64_t call; /* row id of its call */
    enum task_status status;
    enum task_cause cause;
    int round;      /* rounds begun */
    int granted;    /* rounds a person gave it beyond the route's */
    int64_t due_ms; /* PENDING: when the next round is due */
    int64_t created_ms, updated_ms;
    struct slice owner; /* RUNNING: who */
    int64_t lease_end_ms, fence;
    struct slice last_answer; /* of the newest round, in words: "NOT_RECEIVED"; empty before the first */
    enum task_tell tell;
    int tell_tries;
    int64_t tell_due_ms; /* OWED: when it is to be tried (again) */
    /* Read with the task where a list is asked for, from its call's row. */
    struct slice tenant, route, call_id, key, business_ref, trace_id, reverses, reversed_by;
    enum call_state call_state;
    bool call_final;
    enum reason call_reason;
    int64_t call_created_ms, call_ended_ms;
};

/* One round, as it was. All texts are for people; none is parsed. */
struct round_row {
    int64_t task;
    int n;         /* from 1; over all rounds of the task */
    int64_t at_ms; /* when it began */
    int64_t ended_ms;
    struct slice asked;      /* what was done: "ask", "ask fence", "send", ... */
    struct slice answer;     /* what the callee said: "NOT_RECEIVED" */
    struct slice ours;       /* the state our record had */
    struct slice difference; /* how our record and the callee's differ; empty: they do not */
    struct slice decision;   /* what was decided: "wait", "settled SUCCESS", "manual" */
    struct slice evidence;   /* why, in a sentence */
    struct slice owner;
};

/* One change that a person made. */
struct audit_row {
    int64_t id, at_ms;
    struct slice who, what;       /* what: "resolve SUCCESS", "run", "erase", "report SUCCESS" */
    int64_t call;                 /* row id, or 0 */
    int64_t task;                 /* or 0 */
    struct slice tenant, call_id; /* kept here, since the call's row may go first */
    struct slice evidence;
};

/* The request of a call, kept so that it can be sent without its caller (CONTRACT section 5). Header lines are complete
 * and hold credentials. */
struct kept_request {
    bool has; /* its body is there too, so that it can be sent */
    struct slice method, target, lines, body;
    struct slice reversal; /* "POST /orders/42/cancel", rendered at the claim; empty: none */
};

#endif
