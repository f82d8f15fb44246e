/* SPDX-License-Identifier: MIT
 *
 * One operation's events, laid out for judging: its calls, its posts (each time a request reached the innermost server
 * that logs), its runs (executions that committed). Made from a group; borrows from it.
 */
#ifndef SAMEKEY_FORENSICS_OPERATION_H
#define SAMEKEY_FORENSICS_OPERATION_H

#include "forensics/group.h"

struct call {
    struct slice id;     /* may be empty: events without a callId */
    bool weak;           /* only a request id */
    size_t first, count; /* its events in `order` */
    uint32_t posts;
};

struct run {
    uint32_t event; /* the first line that tells of it */
    uint32_t times; /* how often it was logged */
    bool rolled_back, reversed;
};

struct operation {
    const struct group *group;
    struct slice key; /* business key, else idempotency key, else callId */
    bool keyed;       /* the key is a business key or an idempotency key */
    bool weak;        /* the key is only who asked for what */
    struct call *call;
    size_t calls;
    uint32_t *order;   /* event numbers by call, then in time */
    uint32_t *call_of; /* call number of each event */
    uint32_t *post;    /* event numbers of the posts, in time */
    size_t posts;
    bool posts_unseen; /* nobody logged requests or attempts */
    uint32_t proxied;  /* tries beyond the first that proxies say they made */
    bool retried;      /* a proxy says it tried again, perhaps only to connect (HAProxy's count of retries) */
    struct run *run;
    size_t runs;      /* all that are known */
    size_t committed; /* of them, committed and neither rolled back nor reversed */
    bool run_ids;     /* the runs have execution ids */
    size_t capacity;  /* of the arrays; kept from one operation to the next */
};

/* Lays the group out. STATUS_NO_MEMORY. Zero the operation before the first time; fini it after the last. */
enum status operation_make(struct operation *op, const struct group *group);
void operation_fini(struct operation *op);

static inline const struct event *operation_event(const struct operation *op, uint32_t number)
{
    return &op->group->event[number];
}

/* What happened to one call between two of the operation's events (both excluded; to UINT32_MAX: to the end). */
struct between {
    const struct event *answer, *timeout, *reset, *told, *done; /* the last of each, or NULL */
    bool succeeded, rejected, not_executed, failed, server_error;
    bool asked, told_not_received, told_failed, told_success;
    bool effect, rolled_back;
};

void operation_between(const struct operation *op, const struct call *call, uint32_t from, uint32_t to,
                       struct between *b);

#endif
