/* SPDX-License-Identifier: MIT
 *
 * A shard is one loop thread of the gateway with everything that belongs to it: listeners, upstream connections, the
 * cache of ended receipts, the fingerprinter, its random source. Shards share the store's worker, the admission of
 * routes and nothing else.
 *
 *   request --> visit --CLAIM--> store --> run --> upstream
 *                 ^                         |
 *                 `---- the ending, once it is on disk
 *
 * A visit (visit.h) is one request that is being answered. A run (run.h) is one call that is being worked on; it
 * outlives the visit that began it when the caller hangs up.
 */
#ifndef SAMEKEY_GATEWAY_SHARD_H
#define SAMEKEY_GATEWAY_SHARD_H

#include "base/prng.h"
#include "core/id.h"
#include "gateway/cache.h"
#include "gateway/log.h"
#include "gateway/metrics.h"
#include "gateway/setup.h"
#include "gateway/tracer.h"
#include "net/client.h"
#include "net/server.h"
#include "store/worker.h"

struct gateway;
struct shard;
struct lookup_table;
struct suspects;
struct redis;

/* Upstream connections of one setup on one shard. */
struct outlets {
    struct setup *setup; /* a hold */
    size_t holds, count;
    struct client **clients; /* one for each lane */
};

struct shard {
    struct gateway *gateway;
    size_t index;
    struct net_loop *loop;
    struct net_server **servers;
    size_t server_count;
    struct outlets *outlets;     /* of the current setup */
    struct store_reader *reader; /* for what need not be waited for; NULL: none */
    struct worker *worker;       /* NULL once the store has stopped */
    struct callid_maker *ids;
    const char *owner; /* this process, as rows name it */
    struct fingerprinter print;
    struct prng random;
    struct cache *cache;
    struct redis *redis; /* behind the cache; NULL: none */
    int64_t lie_told_ms; /* when the log last heard of an entry that was not to be believed */
    struct log *log;
    struct tracer *tracer;   /* NULL: no traces are wanted */
    struct archive *archive; /* NULL: none; for upkeep */
    struct metrics *metrics;
    struct metrics_loop *counts;
    struct suspects *suspects; /* of all shards */
    struct list jobs;          /* finished ones, to be used again */
    size_t jobs_idle;
    size_t jobs_out;              /* on their way to the store and back: a shard ends when they are home */
    struct list outbox;           /* jobs of this turn of the loop, for the store */
    struct lookup_table *lookups; /* receipts being read (receipts.c) */
    size_t visits, runs;          /* alive */
    struct list run_list;         /* the runs */
    struct list spare_runs, spare_visits;
    size_t spare_run_count, spare_visit_count;
    bool draining;
};

/* The setup new requests are served under. */
static inline struct setup *shard_setup(const struct shard *shard)
{
    return shard->outlets->setup;
}
struct outlets *outlets_hold(struct outlets *outlets);
void outlets_release(struct outlets *outlets);
/* Makes the connections' side of a setup on this shard; takes a hold on the setup. NULL: no memory. */
struct outlets *outlets_new(struct shard *shard, struct setup *setup);

/* A store operation on its way from a shard and back to it. */
struct job {
    struct store_op op;
    struct letter letter;
    struct shard *shard;
    void (*then)(struct job *job); /* on the shard's loop, once; frees the job or gives it away */
    void *owner;
    struct list idle;
};
/* A job with a zeroed operation; NULL: no memory. */
struct job *job_new(struct shard *shard, enum store_kind kind, void *owner, void (*then)(struct job *job));
/* Hands it to the store. `then` always follows, never inside this call; a full queue is op.status STATUS_FULL. */
void job_submit(struct job *job);
void job_free(struct job *job);
/* Called by the loop at the end of each turn; the context is the shard. Of what was submitted in it, reads whose rows are in
 * memory are run here; the store gets the others: one lock and one wake-up for all of them, and a larger batch for one
 * commit. */
void shard_turn(void *context);

/* The store's clock, unix ms: every instant that is written into a row (leases, lives, windows, when a round is due) is made
 * from it, never from this machine's clock, which another gateway need not share. */
static inline int64_t shard_store_now(const struct shard *shard)
{
    return shard->worker ? worker_clock_ms(shard->worker)
                         : clock_wall_ms(); /* the store has stopped: only words are left */
}

/* Random numbers of this shard: in [0, 1), and 64 bits. Not for secrets. */
double shard_random(struct shard *shard);

/* Who answers a request: the first member of visits, passages and askers, and the request's user pointer. Every event
 * of the request after its head goes to it; `finished` is the last one. */
struct guest {
    void (*body)(struct guest *guest, struct slice piece);
    void (*body_end)(struct guest *guest);
    void (*drain)(struct guest *guest);
    void (*finished)(struct guest *guest, bool gone);
};

/* Handlers of the public listeners; the context is the shard. */
extern const struct server_handlers shard_handlers;
/* Passes a request's later events to its guest; for other listeners with the same kind of guests. */
void guest_body(void *context, struct request *request, struct slice piece);
void guest_body_end(void *context, struct request *request);
void guest_drain(void *context, struct request *request);
void guest_finished(void *context, struct request *request, bool gone);
/* The answer to bytes that are no request. */
void guest_refused(void *context, int status, const char *reason, struct buffer *head_and_body);

#endif
