/* SPDX-License-Identifier: MIT
 *
 * What the parts of compensation know of each other: compensate.c (taking tasks, what is known when a round begins),
 * compensate_round.c (asking, fencing, sending), compensate_write.c (writing the round down). Nobody else includes this.
 */
#ifndef SAMEKEY_GATEWAY_COMPENSATE_PARTS_H
#define SAMEKEY_GATEWAY_COMPENSATE_PARTS_H

#include "base/arena.h"
#include "core/compensation.h"
#include "core/deadline.h"
#include "gateway/compensate.h"

struct compensator {
    struct shard *shard;
    struct net_timer look;
    bool stopped, taking;
    size_t working; /* rounds, that which is being taken too */
};

/* One round of one task. */
struct round {
    struct compensator *c;
    struct outlets *outlets;
    const struct lane *lane; /* NULL: the route is gone */
    struct arena arena;
    struct task_work work; /* of the operation that is out */
    struct task_row task;
    struct call_row call;
    struct kept_request kept;
    int64_t store_now_ms;
    int64_t holder_id, holder_fence;
    bool slot_free;
    struct compensation machine;
    struct compensation_effect effect;
    struct buffer asked; /* what was done, in words */
    enum receipt_answer answer;
    bool answered;
    bool by_caller;      /* the question bore the headers that say who called */
    bool for_nobody;     /* it did not, and the callee did not know the call: not believed */
    struct call_row end; /* SETTLE: the ending, with the result of the receipt */
    bool has_end;
    enum call_state theirs; /* what the callee or the run said of the call */
    bool end_call;          /* the ROUND that is out ends the call */
    struct net_timer timer;
    int64_t began_ms, until_ms; /* monotonic: when it was taken, when its lease is over */
};

int64_t compensator_now(const struct compensator *c);
int64_t round_since(int64_t now_ms, int64_t then_ms);
/* The end of a round, however it came; the next task is taken. */
void round_free(struct round *r);
/* Gives the machine an event and performs what it says. */
void round_feed(struct round *r, struct compensation_event *event);
/* Asks, fences, sends or reverses, as the effect says. */
void round_act(struct round *r);
/* Writes down the round and what it decided, then frees it. */
void round_write(struct round *r);

#endif
