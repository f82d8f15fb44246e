/* SPDX-License-Identifier: MIT
 *
 * What the parts of a run know of each other: run.c (the machine's driver: beginning, storing attempts, asking, waiting),
 * run_attempt.c (one attempt on the wire and its evidence), run_ending.c (the ending: stored, then told). Nobody else
 * includes this.
 */
#ifndef SAMEKEY_GATEWAY_RUN_PARTS_H
#define SAMEKEY_GATEWAY_RUN_PARTS_H

#include "gateway/query.h"
#include "gateway/run.h"

/* What one attempt brought back. */
struct reply {
    int status;
    bool head;             /* a final head came */
    bool too_large;        /* more body than is kept */
    bool streaming;        /* it goes to the visit as it comes */
    bool wanted_head_only; /* nobody wants the body any more */
    bool ours;             /* a problem of a samekey below */
    bool other_call_id;
    enum outcome callee_outcome;
    int64_t retry_after_ms; /* -1: none */
    int64_t content_length;
    struct buffer lines, kept, body, held;
};

struct run {
    struct list link; /* in the shard's run_list */
    struct shard *shard;
    struct outlets *outlets;
    const struct lane *lane;
    struct visit *visit;
    struct identity id;
    struct slice method, target, content_lines, principal_lines;
    bool forwards_budget;
    int64_t budget_end_ms;
    struct call_row row;         /* as the store has it, by our own writes */
    int64_t store_now_ms, at_ms; /* the store's clock, and the monotonic instant it was read */
    int64_t covers_since_ms;
    int64_t lease_until_ms; /* monotonic */
    bool resumed, lost;
    struct call machine;
    struct call_effect effect; /* being performed */
    size_t attempt_count;
    struct pass pass;
    uint64_t client;
    bool retry_out; /* counted in retries_in_flight */
    bool try_next;  /* the last attempt did not run: another upstream may */
    struct exchange *exchange;
    int64_t sent_ms, sent_us; /* monotonic */
    /* Where id.has_trace: the span of the call, and that of the attempt on the wire. */
    struct traceparent span, attempt_span;
    int64_t begun_us; /* monotonic */
    struct query *query;
    struct net_timer timer, lease_timer;
    int jobs;
    bool pending_stored;
    struct job *watch;         /* of its own row, while the callee works: a report may end it */
    bool ending;               /* the ending is being written */
    void (*over)(void *owner); /* of a run without a caller */
    void *owner;
    bool has_result;
    int result_status;

    /* From here on: memory that the next run uses again. What stands before is cleared for it. */
    struct arena arena;
    struct buffer texts;        /* those of the row, as the store gave them */
    struct buffer caller_lines; /* content_lines, then principal_lines */
    struct buffer body, head, attempts_text;
    struct buffer result_lines, result_body; /* of a receipt */
    struct reply reply;
    struct attempt attempts[ATTEMPTS_MAX]; /* attempt_count of them */
};

/* Monotonic milliseconds of this turn of the loop; and the store's clock, carried on by it. */
int64_t run_now(const struct run *run);
int64_t run_store_now(const struct run *run);
/* Gives the machine an event and performs what it says. */
void run_feed(struct run *run, struct call_event *event);
void run_feed_denied(struct run *run, enum call_denial denial, int64_t retry_ms);
/* Puts the attempts so far into the row. */
void run_encode_attempts(struct run *run);
/* The row as a reader of the store would see it. */
struct rows run_rows(struct run *run);
/* Somebody else owns the call now: nothing more is sent or written, and the visit hears what stands. */
void run_lose(struct run *run, const struct rows *rows);
void run_free(struct run *run);
/* A store operation of the owner, with the row as it is. NULL: no memory. */
struct job *run_owner_job(struct run *run, enum store_kind kind, void (*then)(struct job *));
/* Copies what the attempts need of the request while it is still there. */
bool run_copy_request(struct run *run, struct visit *visit);
/* Sends the attempt whose number is on disk. */
void run_put_on_wire(struct run *run);
/* Lets a resting reply go on. */
void run_resume_reply(struct run *run);
void reply_clear(struct reply *reply);
/* The problem that a samekey below answered with, or PROBLEM_NONE. */
enum problem reply_problem(const struct reply *reply);
/* Traces (run_trace.c). The call's span begins; it ends in `state`, or with the ownership lost (state NONE, `why`). */
void run_trace_begin(struct run *run);
void run_trace_attempt(const struct run *run, const struct attempt *attempt);
void run_trace_end(const struct run *run, const char *lost);
/* Writes the ending that the machine said, then tells the visit. */
void run_end(struct run *run);

#endif
