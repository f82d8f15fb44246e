/* SPDX-License-Identifier: MIT
 *
 * One call's run, without I/O: the caller machine of core/call.h between an intent and the record that becomes the result.
 * The blocking caller and the public step interface drive the same run.
 *
 *   event (evidence, reply, answer, timer) --> classified --> core/call --> effect, written down
 *
 * Always true:
 *  (1) Every SEND of a run has the same callId.
 *  (2) An attempt is in the record before the effect that follows from it is told.
 *  (3) After END the result is whole, whatever memory there was.
 */
#ifndef SAMEKEY_CALLER_RUN_H
#define SAMEKEY_CALLER_RUN_H

#include "caller/intent.h"
#include "caller/result.h"
#include "core/call.h"
#include "core/id.h"

struct run {
    const struct intent *intent;
    struct call machine;
    struct samekey_result *result; /* owned until run_take_result() */
    char call_id[CALLID_BYTES_MAX + 1];
    int64_t began_ms, unix_began_ms;
    int64_t first_unix_ms;      /* the first attempt's, over all runs; 0: none yet */
    int64_t sent_unix_ms;       /* the running attempt's */
    int64_t closed_unix_ms;     /* when the last attempt that may have run was given up; 0: none */
    struct call_effect effect;  /* the last one told */
    struct response_words last; /* of the last attempt's answer */
    bool has_last;
    int safe_new_key;           /* what a samekey's document said: 1, 0, or -1 */
    enum outcome outcome;       /* of the last attempt */
    enum receipt_answer answer; /* of the last query */
    char why[128];              /* why the last query is not believed */
};

/* One event. Only the members that its type names are read. */
struct run_event {
    enum call_event_type type;
    int64_t now_ms, unix_now_ms;
    double random;
    struct call_past past;           /* START */
    int64_t deadline_ms;             /* START: on the clock of now_ms; 0: the intent's, from now */
    const struct evidence *evidence; /* ATTEMPT: of the wire; what the reply says is added here */
    struct response *reply;          /* ATTEMPT: emptied where it becomes the result; NULL: none */
    enum outcome outcome; /* ATTEMPT: the callee's own word where its transport has no headers, or NONE */
    const char *echoed_call_id; /* ATTEMPT: the same, or NULL */
    enum call_denial denial;    /* DENIED */
    int64_t retry_in_ms;        /* DENIED: or -1 */
    const char *refusal;        /* DENIED: a constant sentence without its full stop */
    int answer_status;          /* ANSWER, FENCED: 0 is a failed query */
    struct slice answer_body;
    const char *answer_detail; /* ANSWER, FENCED: why it failed, or NULL */
};

/* A run that has not started; borrows the intent. STATUS_NO_MEMORY. */
enum status run_init(struct run *run, const struct intent *intent, const char *call_id);

/* One step; *effect is borrowed until the next. Which event may follow which effect is core/call.h's rule. */
void run_step(struct run *run, const struct run_event *event, const struct call_effect **effect);

/* Whether the event may be given now. */
bool run_expects(const struct run *run, enum call_event_type type);

/* From now on no time is left: the machine ends at its next event as what is proved. */
void run_cancel(struct run *run, int64_t now_ms);

/* Whether an attempt that may have run stands against the call, as a journal keeps it. */
bool run_maybe_ran(const struct run *run);

/* After END: the result is yours. */
struct samekey_result *run_take_result(struct run *run);

/* NULL and zero bytes are accepted. */
void run_fini(struct run *run);

#endif
