/* SPDX-License-Identifier: MIT
 *
 * What the parts of the world's gateway know of each other: world_gate.c (visits, runs, upkeep, the process), world_jobs.c
 * (the store's queues), world_receipts.c (what people ask beside calls), world_rounds.c (compensation). Nobody else
 * includes this.
 */
#ifndef SAMEKEY_SIM_WORLD_GATE_PARTS_H
#define SAMEKEY_SIM_WORLD_GATE_PARTS_H

#include "base/list.h"
#include "core/deadline.h"
#include "sim/world_disk.h"
#include "sim/world_inside.h"

#ifdef SAMEKEY_PLANTED_BUGS
#define HAS_BUG(g, name) ((g)->world->p.bug == WORLD_BUG_##name)
#else
#define HAS_BUG(g, name) false
#endif

enum {
    VISITS_MAX = 512,
    RUNS_MAX = 512,
    CACHE_ENTRIES = 128,
    CACHE_LIFE_MS = 60000,
    DECISIONS_MAX = 24, /* as VISIT_ROUNDS_MAX */
    BATCH_MAX = 64,
    END_AGAIN_MS = 500, /* as RUN_END_RETRY_MS */
    LEFTOVERS_MAX = 4096,
    PURGE_BATCH = 50,
    COMMIT_MS = 4,   /* the longest that a commit takes */
    ROUNDS_MAX = 32, /* at work, as ROUNDS_AT_ONCE */
};

struct job {
    struct list link;
    struct job *next_idle;
    struct store_op op;
    struct gate *gate;
    void *owner;
    uint32_t call;
    int64_t came_ms;       /* when it was made */
    struct task_work work; /* of what a person does */
    struct buffer text;    /* of an ending that it writes for a call it does not run */
    void (*then)(struct job *job);
};

enum visit_phase { VISIT_DECIDING, VISIT_JOINED, VISIT_RUNNING, VISIT_ANSWERED };

struct visit {
    struct gate *gate;
    uint32_t slot, call;
    uint64_t serial;
    unsigned holds, decisions;
    bool listens; /* somebody still wants the answer */
    enum visit_phase phase;
    struct arrival arrival;
    int64_t came_ms, budget_end_ms, wait_end_ms, window_ms;
    struct job *watch;
    bool joined_operation;
    struct run *run;
    struct kept_request kept;
    char kept_body[16];
    struct visit *next_dead;
};

struct reply {
    bool head, too_large;
    int status;
    struct buffer body;
};

struct run {
    struct gate *gate;
    uint32_t slot, call, body;
    uint64_t serial;
    struct visit *visit;
    void (*over)(void *owner); /* of a run without a caller: called once, when it is over */
    void *owner;
    struct call_row row;
    int64_t store_now_ms, at_ms, covers_since_ms, lease_until_ms;
    bool lost, ending, pending_stored, resumed;
    struct job *watch; /* of what a callee has accepted: a report ends it */
    struct call machine;
    struct call_effect effect;
    struct attempt attempts[ATTEMPTS_MAX];
    size_t attempt_count;
    struct buffer past_words, attempts_text, result_body;
    bool has_result;
    int result_status;
    uint32_t message; /* of the attempt that is out; WORLD_NONE */
    uint32_t query;   /* WORLD_NONE */
    int64_t sent_ms;
    struct reply reply;
    uint64_t timer; /* the number of the armed one; 0: none */
    int jobs;
};

struct cache_entry {
    bool used;
    struct rows rows;
    struct buffer memory;
    int64_t until_ms;
};

struct gate {
    struct world *world;
    struct store *store;
    struct store_reader *reader;
    unsigned incarnation;
    char owner[24];
    bool writing, reading; /* an event for it is on the agenda */
    struct list queue, reads, answered, watches;
    struct job *idle;
    struct list asking; /* endings that wait for a receipt's word */
    struct visit *visits[VISITS_MAX], *dead;
    struct run *runs[RUNS_MAX];
    uint64_t serial;
    struct cache_entry cache[CACHE_ENTRIES];
    int64_t leftovers[LEFTOVERS_MAX];
    size_t leftover_count;
    bool expiring, purging;
    struct round *rounds[ROUNDS_MAX];
    unsigned working; /* rounds, that which is being taken too */
    bool taking, looking;
};

static inline struct world_call *gate_call(const struct gate *g, uint32_t call)
{
    return &g->world->calls.list[call];
}

static inline int64_t gate_now(const struct gate *g)
{
    return g->world->now_ms;
}

static inline uint64_t gate_value(const struct gate *g)
{
    return g->incarnation;
}

/* world_jobs.c */
/* An operation for the store; `then` gets it answered and frees it. No memory ends the program. */
struct job *gate_job(struct gate *g, enum store_kind kind, void *owner, uint32_t call,
                     void (*then)(struct job *));
void gate_job_free(struct job *job);
void gate_submit(struct job *job);
/* The watch's answer is STATUS_NOT_FOUND. */
void gate_cancel_watch(struct job *watch);
/* EVENT_STORE, EVENT_READER, EVENT_STORE_ANSWERS. */
void gate_write_queue(struct gate *g);
void gate_read_queue(struct gate *g);
void gate_deliver(struct gate *g);

/* world_gate.c */
struct cache_entry *gate_cache_find(struct gate *g, const struct digest *call);
void gate_cache_drop(struct gate *g, const struct digest *call);
/* The call whose row this is, made callIds too; WORLD_NONE: nobody made it. */
uint32_t gate_call_of_row(const struct gate *g, const struct call_row *row);
/* Makes the row's texts the world's, so that it can be written back by somebody who only settles it. */
void gate_keep_row(const struct gate *g, struct call_row *row, uint32_t call);
/* What a receipt's final word writes into a row that is UNKNOWN; `text` holds the result. */
void gate_settle_row(const struct world *w, struct call_row *row, struct buffer *text,
                     const struct receipt_reading *reading);
/* Asks the callee for the call's receipt, or to fence it; the owner is told exactly once in this incarnation. */
uint32_t gate_ask(struct gate *g, enum query_owner kind, void *owner, uint32_t call, bool fence,
                  int64_t first_attempt_ms, int64_t timeout_ms);

/* A run that no caller waits for: what is sent is what was kept. */
struct run_alone {
    uint32_t call, body;
    int64_t closed_age_ms; /* since the last attempt's connection was closed */
    int retries;
    void (*over)(void *owner);
    void *owner;
};
void gate_run_alone(struct gate *g, const struct run_alone *ask, const struct rows *rows, bool resumed);

/* world_receipts.c */
void gate_begin_read(struct gate *g, uint32_t call);
void gate_begin_fence(struct gate *g, uint32_t call, bool names_key);

/* world_rounds.c */
/* Looks for due tasks, now and then from now on. */
void rounds_look(struct gate *g);
/* EVENT_ROUND_WRITE: a round that could not be written is tried again. */
void rounds_write_again(struct gate *g, uint32_t slot, uint64_t serial);
void rounds_answered(void *owner, const struct receipt_reading *reading);
/* A person wants the next round of a task now. */
void rounds_person(struct gate *g, int64_t task);
/* The process is gone, and what its rounds knew with it. */
void rounds_forget(struct gate *g);

#endif
