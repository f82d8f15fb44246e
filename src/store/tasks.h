/* SPDX-License-Identifier: MIT
 *
 * The part of the store's contract that is about compensation tasks, reversals and what people changed: what the
 * operations STORE_TASK_*, STORE_REVERSE, STORE_TELL_* and STORE_AUDIT_* of store.h carry. Included by store.h.
 *
 * Guarantees, in the numbering of store.h:
 *  (9) One STORE_TASK_TAKE gets a due task; whoever comes later gets another or none. Each take raises the task's
 *      fencing number, and only the current one writes a round.
 * (10) A round is on disk together with what it decided: the task's next status, and the ending of its call where it
 *      has one. Neither is ever there without the other.
 * (11) An operation has one reversal at most, however many ask.
 * (12) What a person changed is on disk together with who, when and why.
 */
#ifndef SAMEKEY_STORE_TASKS_H
#define SAMEKEY_STORE_TASKS_H

#include "core/task.h"

#define STORE_PAGE_MAX   200   /* rows of one page at most */
#define STORE_LOOK_MAX   20000 /* rows looked at for one page, unless told otherwise */
#define STORE_ROUNDS_MAX 64    /* rounds STORE_TASK_READ gives: the newest */
#define TASK_STATUSES    6

/* For STORE_TASK_TAKE, _ROUND, _RESOLVE, _RUN, STORE_REVERSE, STORE_TELL_TAKE, STORE_TELL_DONE, STORE_AUDIT. The maker's own,
 * together with the operation. Slices that are asked are borrowed until the answer; those answered point into the
 * operation's memory. */
struct task_work {
    /* Asked. */
    struct task_row
        task; /* what is to be written, or whose task it is; RUN: `granted` to a MANUAL one at least */
    struct round_row round; /* ROUND */
    struct audit_row
        audit; /* RESOLVE, RUN, AUDIT: who, what, evidence; the rest is the store's to fill, but for AUDIT */
    bool end_call; /* ROUND: the call ends in the same commit */

    /* Answered. */
    struct task_row now;      /* the task as it stands */
    struct kept_request kept; /* TAKE */
};

/* For STORE_TASK_LIST, _READ, _COUNTS and STORE_AUDIT_LIST. About 150 KiB: not for a stack. */
struct task_page {
    /* Asked. An empty text is any; texts are compared byte for byte. */
    unsigned statuses; /* bit mask 1 << status; 0: any */
    bool has_tenant;   /* `tenant` counts, also when it is empty */
    struct slice tenant, route;
    int64_t since_ms, until_ms; /* the task was made in [since, until); 0: no bound */
    int64_t before_id;          /* ids below this one; 0: from the newest */
    size_t limit;               /* 1 to STORE_PAGE_MAX */
    size_t look_max;            /* 0: STORE_LOOK_MAX */

    /* Answered. */
    struct task_row tasks[STORE_PAGE_MAX]; /* LIST: newest first. READ: tasks[0] */
    size_t count;
    struct round_row rounds[STORE_ROUNDS_MAX]; /* READ: in the order they happened */
    size_t round_count;
    struct audit_row
        audits[STORE_PAGE_MAX]; /* READ: of the call, in the order they happened. AUDIT_LIST: newest first */
    size_t audit_count;
    int64_t next_before_id;           /* LIST, AUDIT_LIST: of the next page; 0: there is none */
    int64_t reached_ms;               /* LIST: when the oldest task looked at was made; 0: none was */
    int64_t by_status[TASK_STATUSES]; /* COUNTS, of the open statuses */
    int64_t unknown;                  /* COUNTS: open tasks of calls that ended UNKNOWN */
    int64_t oldest_unknown_ms;        /* COUNTS: when the oldest of those was made; 0: there is none */
};

#endif
