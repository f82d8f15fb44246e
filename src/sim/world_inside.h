/* SPDX-License-Identifier: MIT
 *
 * Inside of the world: what its parts share. Nobody outside sim/world*.c includes this.
 *
 *   world.c          a seed's rules, the events in order, the network, the end
 *   world_callers.c  the people: new calls, repeats, swapped keys, hang-ups
 *   world_gate.c     the gateway: keeper verdicts and call effects performed on the store and the network
 *   world_jobs.c     its queues before the store
 *   world_receipts.c what people ask it beside calls
 *   world_rounds.c   its compensation rounds
 *   world_callee.c   the service: effects and honest receipts
 *   world_judge.c    what must never be
 *   world_disk.c     the disk under the store
 */
#ifndef SAMEKEY_SIM_WORLD_INSIDE_H
#define SAMEKEY_SIM_WORLD_INSIDE_H

#include "base/arena.h"
#include "base/prng.h"
#include "core/call.h"
#include "core/keeper.h"
#include "sim/agenda.h"
#include "sim/world.h"
#include "store/store.h"

#define WORLD_START_MS INT64_C(1710000000000) /* the wall clock at the start */
#define WORLD_CALLERS  8
#define WORLD_NAME     40 /* bytes of a callId or key, with its end */
#define WORLD_NONE     UINT32_MAX

enum world_event {
    EVENT_CALLER,         /* who: caller */
    EVENT_REQUEST,        /* a caller's request reaches the gateway; value: request */
    EVENT_HANGUP,         /* who: visit, value: its serial */
    EVENT_VISIT_TIMER,    /* the same */
    EVENT_RUN_TIMER,      /* who: run, value: its serial and the timer's */
    EVENT_RUN_LEASE,      /* the same */
    EVENT_RUN_SILENCE,    /* the attempt's timeout; value: message */
    EVENT_RUN_END,        /* the connection ends otherwise; who: enum end_kind, value: message */
    EVENT_ANSWER,         /* an answer reaches the gateway; value: answer */
    EVENT_CALLEE_REQUEST, /* value: message */
    EVENT_CALLEE_COMMIT,  /* value: work */
    EVENT_CALLEE_ANSWER,  /* value: work */
    EVENT_CALLEE_REPORT,  /* value: call */
    EVENT_QUERY,          /* a receipt query reaches the callee; value: query */
    EVENT_QUERY_ANSWER,   /* value: query */
    EVENT_QUERY_SILENCE,  /* value: query */
    EVENT_STORE, /* the writer takes its queue; value: incarnation, as for all of the gateway's own */
    EVENT_STORE_ANSWERS,
    EVENT_READER,
    EVENT_TICK,
    EVENT_PURGE,
    EVENT_ROUND_LOOK,
    EVENT_ROUND_WRITE, /* who: round, value: its serial */
    EVENT_PERSON,      /* somebody wants another round; value: task */
    EVENT_START,       /* the gateway starts */
    EVENT_TROUBLE,     /* something is decided about faults of process, disk and clock */
    EVENT_DISK_WELL,
    EVENT_KINDS
};

enum end_kind { END_REFUSED, END_RESET, END_CUT, END_GARBLED, END_PROXY_502, END_PROXY_503, END_PROXY_504 };

/* What a callee is like, and with it which promise holds for it. */
enum callee_kind {
    CALLEE_PLAIN,      /* no receipts, runs whatever comes: nothing is sent again after a doubt */
    CALLEE_BESIDE,     /* honest receipts, runs whatever comes; no request travels longer than resend_after */
    CALLEE_ONCE,       /* receipts in the transaction of the effect; runs a callId once; can be fenced */
    CALLEE_IDEMPOTENT, /* no receipts; runs a key (without one: a callId) once */
    CALLEE_KINDS
};

/* Drawn once for a seed. Times in milliseconds. */
struct rules {
    enum callee_kind callee;
    unsigned callers;
    struct call_policy policy;
    struct outcome_rules outcome;
    int64_t deadline_ms, lease_ms, wait_ms, resend_ms, tick_ms, purge_every_ms, round_gap_ms,
        round_gap_max_ms;
    int rounds;
    bool still_wanted, compensates; /* compensates: on_failed = compensate */
    int64_t result_life_ms, key_life_ms, tombstone_life_ms;
    bool short_lives;
    int64_t memory_ms; /* the callee forgets receipts after this; 0: never */
    bool late_receipts, bare_receipts, block_suspects, watch_suspects, times_in_ids;
    int64_t delay_max_ms;                                          /* of a request to the callee */
    int64_t quick_ms;                                              /* of everything else */
    unsigned loss, copy, cut, refuse, proxy, callee_trouble, deny; /* chances, in 1000 */
    unsigned crash, disk, clock;                                   /* a trouble's chances, in 1000 */
    size_t tail_entries;
    int64_t pace_ms; /* mean time between two actions of a caller */
};

struct operation {
    const char *key; /* in the world's arena: the gateway's rows borrow it while the lists grow */
    bool has_key;
    uint32_t body;
    /* For the judge. */
    unsigned effects;
    uint32_t effect_body;
    bool renewed;          /* it ran again after it was forgotten: what is told of before is still true */
    int64_t low_wall_ms;   /* the lowest wall clock since its effect */
    int64_t safe_since_ms; /* when safe_new_key was last said to be true; -1: never */
};

/* A receipt at the callee. */
struct callee_receipt {
    bool exists, fenced, final;
    enum call_state state;
    uint32_t effect; /* number of the effect it tells */
    int64_t at_ms;
};

enum ended_as { ENDED_NOT, ENDED_SUCCESS, ENDED_FAILED };

struct world_call {
    uint32_t operation, body, caller;
    bool made;         /* its callId, by the gateway */
    uint32_t alias_of; /* 1 + the call whose callId it bears by mistake */
    const char *id;    /* the same */
    int64_t id_time_ms;
    struct digest digest, operation_digest;
    struct digest32 fingerprint;
    struct callee_receipt receipt;
    /* The caller's own view. */
    bool settled;
    unsigned tries;
    /* For the judge. */
    bool on_wire, doubt; /* doubt: an attempt may have run, and no receipt answer since lets another go */
    char wire_key[WORLD_NAME];
    int64_t doubt_since_ms;
    int last_attempt;
    int64_t last_fence;
    unsigned effects;
    bool ever; /* it took effect, and be it before the store forgot it */
    enum ended_as ended;
    int64_t ended_at_ms;  /* when it was first told */
    bool fenced;          /* the callee was heard to say that it can never run */
    uint64_t round;       /* the round that acts now; 0: none */
    uint64_t answer_hash; /* of its first SUCCESS answer; 0: none yet */
    int64_t low_wall_ms;
};

/* A request on its way to the callee. */
struct message {
    uint32_t call, run, body;
    uint64_t run_serial;
    char key[WORLD_NAME];
    bool has_key;
    int attempt;
    int64_t fence, sent_ms;
    unsigned fate; /* world_callee.c: the same for every copy */
    bool judged;   /* its ending is known to the judge */
    bool by_round; /* no caller asked for it */
};

enum request_kind { REQUEST_CALL, REQUEST_READ, REQUEST_FENCE };

/* A caller's request on its way to the gateway. */
struct caller_request {
    uint32_t call;
    enum request_kind kind;
    int64_t budget_ms;   /* -1: none */
    int64_t hangs_up_ms; /* after its arrival; 0: never */
    bool names_key;      /* of a fence */
};

/* What the callee said. */
struct callee_answer {
    uint32_t message;
    int status;
    enum outcome said; /* Call-Outcome, or OUTCOME_NONE */
    int64_t retry_after_ms;
    bool other_call;
    bool too_large;
    char body[72];
};

enum query_owner { QUERY_RUN, QUERY_HOLDER, QUERY_LEFTOVER, QUERY_ROUND };

/* A receipt query, or a fence, on its way. */
struct query {
    uint32_t call;
    enum query_owner kind;
    void
        *owner; /* the run, or the job that writes what the receipt says; of one incarnation of the gateway */
    unsigned incarnation;
    bool fence, over;
    int64_t first_attempt_ms, asked_ms;
    int status;
    struct callee_receipt told; /* as the callee had it */
    int64_t covers_since_ms;    /* 0: not given */
    bool garbled, other_call;
};

/* The callee's work on one arrival. */
struct work {
    uint32_t message;
    bool accepted; /* 202 was said */
    struct callee_answer answer;
};

#define GROWING(type, name)                                                                                  \
    struct {                                                                                                 \
        type *list;                                                                                          \
        uint32_t count, capacity;                                                                            \
    } name

struct gate;

struct world {
    struct world_parameters p;
    struct world_result *result;
    struct rules rules;
    struct agenda agenda;
    struct buffer *transcript;
    int64_t now_ms;         /* monotonic, from 0 */
    int64_t wall_offset_ms; /* the wall clock is WORLD_START_MS + now + this */
    int64_t high_wall_ms;
    bool quiet;                                          /* the faults have stopped */
    bool failed;                                         /* no memory */
    struct prng network, service, people, machine, luck; /* one stream for each who draws */
    struct hasher hasher;
    struct arena names;
    GROWING(struct operation, operations);
    GROWING(struct world_call, calls);
    GROWING(struct message, messages);
    GROWING(struct caller_request, requests);
    GROWING(struct callee_answer, answers);
    GROWING(struct query, queries);
    GROWING(struct work, works);
    uint32_t effects;
    uint64_t granted; /* rounds that people wanted */
    struct gate *gate;
};

/* world.c */
bool world_has(const struct world *w, enum world_fault fault);
int64_t world_wall(const struct world *w);
/* Adds an event `after_ms` from now. */
void world_later(struct world *w, int64_t after_ms, enum world_event kind, uint32_t who, uint64_t value);
/* One line of the transcript. */
void world_say(struct world *w, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define SAY(w, ...)                                                                                          \
    do {                                                                                                     \
        if ((w)->transcript)                                                                                 \
            world_say((w), __VA_ARGS__);                                                                     \
    } while (0)
/* Room for one more in a growing list; NULL: the world has failed. */
void *world_grow(struct world *w, void *list, uint32_t *count, uint32_t *capacity, size_t size);
#define ADD(w, name)                                                                                         \
    world_grow((w), &(w)->name.list, &(w)->name.count, &(w)->name.capacity, sizeof *(w)->name.list)
/* True in `permille` of 1000. */
bool world_chance(struct prng *g, unsigned permille);
/* A whole number from low to high. */
int64_t world_between(struct prng *g, int64_t low, int64_t high);
/* The network. How long a quick message takes. */
int64_t world_quick(struct world *w);
/* Puts an attempt on the wire; `message` is filled but for its fate. */
void world_send(struct world *w, uint32_t message);
void world_ask(struct world *w, uint32_t query);
/* The callee's answer begins its way back. */
void world_answer(struct world *w, const struct callee_answer *answer);
/* A new operation (has_key) and a new call on one; the number, or WORLD_NONE without memory. */
uint32_t world_operation(struct world *w, bool has_key);
uint32_t world_call(struct world *w, uint32_t operation, uint32_t body, uint32_t caller, bool made);

/* world_callers.c */
void callers_begin(struct world *w);
void callers_act(struct world *w, uint32_t caller);
/* The gateway's answer came: whether the call is over for its caller. */
void callers_hear(struct world *w, uint32_t call, bool over);
/* The faults have stopped: every call that is not over is asked for once more. */
void callers_finish(struct world *w);

/* world_callee.c */
unsigned callee_fate(struct world *w, const struct message *m);
void callee_request(struct world *w, uint32_t message);
void callee_commit(struct world *w, uint32_t number);
void callee_answer_now(struct world *w, uint32_t work);
void callee_query(struct world *w, uint32_t query);
/* The receipt as the callee has it now; forgotten ones are none. */
const struct callee_receipt *callee_receipt_of(const struct world *w, uint32_t call);

/* world_gate.c */
enum status gate_new(struct world *w);
void gate_free(struct gate *g);
bool gate_up(const struct gate *g);
unsigned gate_incarnation(const struct gate *g);
void gate_start(struct gate *g);
/* In order: what runs is finished or left. */
void gate_stop(struct gate *g);
void gate_crash(struct gate *g, bool power);
/* A caller's request arrives. */
void gate_request(struct gate *g, const struct caller_request *request);
void gate_report(struct gate *g, uint32_t call, bool success);
/* An event of the gateway's own. */
void gate_event(struct gate *g, enum world_event kind, uint32_t who, uint64_t value);
/* Whether nothing is under way. */
bool gate_idle(const struct gate *g);

/* world_judge.c */
enum answer_kind {
    ANSWER_SUCCESS,      /* it took effect */
    ANSWER_FAILED,       /* it ended without effect, for good */
    ANSWER_NOT_EXECUTED, /* every attempt is proved not to have run; it may be sent again */
    ANSWER_PENDING,
    ANSWER_UNKNOWN,
    ANSWER_REFUSED, /* says nothing about the call */
};
const char *answer_kind_text(enum answer_kind kind);
void judge_break(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A caller's request came to the gateway: from now on its row may end. */
void judge_asked(struct world *w, uint32_t call);
/* An attempt leaves. */
void judge_sent(struct world *w, const struct message *m);
/* An attempt ended for the gateway as `outcome`, or with its process (OUTCOME_UNKNOWN). */
void judge_attempt(struct world *w, struct message *m, enum outcome outcome);
/* A receipt query's answer reached the gateway. */
void judge_receipt(struct world *w, uint32_t call, enum receipt_answer answer, enum query_owner who,
                   bool fence, int64_t asked_ms);
/* The call took effect, by a request that was sent at `sent_ms`. */
void judge_effect(struct world *w, const struct message *m);
/* A round of the call begins, and has done what it does outside; one at a time. `round` is a number of its own. */
void judge_round_begins(struct world *w, uint32_t call, uint64_t round);
void judge_round_over(struct world *w, uint32_t call, uint64_t round);
/* Its n-th round does something outside; `granted`: rounds that people wanted beyond the rules'. */
void judge_round_acts(struct world *w, uint32_t call, const char *what, int n, int granted);
/* A round has written the call's ending. */
void judge_round_ends(struct world *w, uint32_t call, bool success);
/* Tasks that are still followed up, by the file. */
unsigned judge_open_tasks(struct world *w);
/* A caller is answered that asked at `asked_ms`; body: of a SUCCESS, or empty. */
void judge_answer(struct world *w, uint32_t call, enum answer_kind kind, struct slice body, int64_t asked_ms);
/* A receipt was read at the gateway. */
void judge_standing(struct world *w, uint32_t call, const struct rows *rows, int64_t asked_ms);
/* The wall clock was set. */
void judge_clock(struct world *w);
/* The store's file is read by itself: after a start (`last` false), and at the end of all. */
void judge_file(struct world *w, bool last);

#endif
