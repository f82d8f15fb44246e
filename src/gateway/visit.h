/* SPDX-License-Identifier: MIT
 *
 * A visit is one guarded request that is being answered: read, decided by the keeper, then replayed, joined to a
 * running call, refused, or made the first of a run.
 *
 *   READING --body--> DECIDING --claim won--> RUNNING ---ending on disk--> answered
 *                      |  ^   \--replay, refusal---------------------------^
 *                      |  |    \--JOINED --ended, or the wait is over------^
 *                      v  |
 *                     QUEUED (for a place)
 *
 * Always true:
 *  (1) The request is answered at most once; after that, or when its caller is gone, visit->request is NULL.
 *  (2) The memory goes when nothing refers to it any more: neither the request, nor a job, a query, a waiter or a run.
 *  (3) A visit that ends holds no place in the admission.
 */
#ifndef SAMEKEY_GATEWAY_VISIT_H
#define SAMEKEY_GATEWAY_VISIT_H

#include "core/keeper.h"
#include "gateway/identity.h"
#include "gateway/redis.h"
#include "gateway/shard.h"

struct answer_facts;
struct run;

enum visit_phase { VISIT_READING, VISIT_DECIDING, VISIT_QUEUED, VISIT_JOINED, VISIT_RUNNING, VISIT_ANSWERED };

struct visit {
    struct guest guest;
    struct list spare;
    struct shard *shard;
    struct outlets *outlets; /* a hold: the setup it is served under */
    const struct lane *lane;
    struct request *request;
    struct route_match match;
    enum visit_phase phase;
    unsigned holds;
    struct identity id;
    struct arrival arrival;
    struct digest32 own_print; /* under today's rules; the arrival's may be under a stored row's */
    int64_t came_ms, came_us;  /* monotonic */
    int64_t budget_end_ms;     /* monotonic, or INT64_MAX */
    int64_t wait_end_ms;       /* of wait_in_progress; 0: not begun */
    int64_t window_ms;         /* of time windows in the key */
    unsigned rounds;           /* decisions made */
    struct net_timer timer;
    struct pass pass;
    struct waiter waiter;
    bool queued; /* the waiter is in the queue, or its letter on the way: the pass is not ours to touch */
    bool asked_admission; /* the rate was counted */
    enum admit refusal;   /* why there is no place */
    int64_t refusal_retry_ms;
    struct redis_ask cached; /* while DECIDING and the cache in front of the store is asked */
    struct job *watch;       /* while JOINED */
    bool joined_operation;
    struct run *run;          /* while RUNNING */
    bool run_ended;           /* its ending is on disk and in the log */
    struct slice suspect;     /* in the arena */
    struct kept_request kept; /* on a route that keeps requests: goes to the store with the claim */

    /* Memory that the next visit uses again; what stands before is cleared for it. */
    struct arena arena;
    struct buffer body;
};

/* Begins a guarded request at its head; takes it over as its guest. */
void visit_begin(struct shard *shard, struct request *request, const struct lane *lane,
                 const struct route_match *match);

/* Frees the memory of visits that are over, kept for the next ones. */
void visits_forget(struct shard *shard);

/* For runs. Answers with an upstream's first answer: lines without ours, the body whole. */
void visit_answer_first(struct visit *visit, int status, struct slice lines, struct slice body,
                        enum outcome outcome);
/* The same for an answer that is streamed: begin, write (false: stop until visit_drain), end; abort cuts. */
void visit_stream_begin(struct visit *visit, int status, struct slice lines, int64_t content_length,
                        enum outcome outcome);
bool visit_stream_write(struct visit *visit, struct slice piece);
void visit_stream_end(struct visit *visit);
void visit_stream_abort(struct visit *visit);
/* Answers from rows->call, which ended: a replay, or the problem that stands for it. `waited`: the visit waited for it;
 * `first`: the visit's own run just ended so (no replay mark). */
void visit_answer_row(struct visit *visit, const struct rows *rows, bool waited, bool first);
/* Answers with a problem. `rows` tell the call's standing; NULL: nothing is known of it. */
void visit_answer_problem(struct visit *visit, enum problem problem, const char *detail, int64_t retry_ms,
                          const struct rows *rows, bool waited);
/* Watches the caller's budget while a run works. */
void visit_arm_budget(struct visit *visit);
/* The run lets go of its visit (which was answered, or went). */
void visit_unlink_run(struct visit *visit);

/* Answers any request with a problem, for places that have no visit. */
void problem_answer(struct request *request, enum problem problem, const struct problem_facts *facts,
                    const struct answer_facts *own);

#endif
