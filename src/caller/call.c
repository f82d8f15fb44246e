/* SPDX-License-Identifier: MIT
 *
 * The blocking caller: the run of caller/run.h driven by libcurl, the clock and the journal. It acts and decides nothing
 * but which entry of the journal a call goes on from:
 *
 *   entry of this URL and key      what happens
 *   none                           a new callId
 *   ended SUCCESS                  its ending is told, nothing is sent
 *   ended FAILED for good          a new callId (the same callId asked for by name: its ending is told)
 *   open                           the same callId goes on, its receipt asked first if anything may have run
 *   open, and somebody works on it we wait; its ending is ours
 *   open or SUCCESS, other request refused: a key is bound to one request
 *
 * Always true: before the first byte of attempt n the journal says, on disk, that n attempts have begun.
 */

#include "caller/control.h"
#include "caller/handle.h"
#include "caller/run.h"
#include "core/deadline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define JOIN_POLL_MS   25
#define CANCEL_POLL_MS 50

struct work {
    struct samekey *handle;
    const struct intent *intent;
    struct run run;
    struct journal_entry entry; /* id 0: not written yet */
    struct arena memory;        /* of an entry that was read */
    bool journaled;
    bool resumed;
    struct slot lock;
    int64_t began_ms;
    struct response reply;
    struct evidence evidence;
    char detail[TRANSPORT_DETAIL_MAX];
    struct buffer headers, policy, attempts; /* what the entry borrows */
    char trace[TRACEPARENT_BYTES + 1];
    struct samekey_error *error;
    struct samekey_result *told; /* an ending out of the journal */
};

static void tell(struct work *w, int what, int64_t wait_ms, const char *text)
{
    if (!w->intent->progress)
        return;
    struct samekey_progress p = {.size = sizeof p,
                                 .what = what,
                                 .elapsed_ms = handle_clock_ms() - w->began_ms,
                                 .call_id = w->run.call_id,
                                 .attempt = w->run.machine.attempts,
                                 .outcome = (int)w->run.outcome,
                                 .answer = (int)w->run.answer,
                                 .wait_ms = wait_ms,
                                 .text = text ? text : ""};
    w->intent->progress(w->intent->context, &p);
}

static bool cancelled(const struct work *w)
{
    return w->intent->cancelled && w->intent->cancelled(w->intent->context);
}

/* Sleeps until then, or until the call is given up. false: it was. */
static bool sleep_until(const struct work *w, int64_t until_ms)
{
    for (;;) {
        int64_t left = until_ms - handle_clock_ms();
        if (cancelled(w))
            return false;
        if (left <= 0)
            return true;
        if (w->intent->cancelled && left > CANCEL_POLL_MS)
            left = CANCEL_POLL_MS;
        struct timespec t = {left / 1000, left % 1000 * 1000000};
        clock_nanosleep(CLOCK_BOOTTIME, 0, &t, NULL);
    }
}

/* ---- the journal -------------------------------------------------------------------------------------------- */

/* Fills a new entry's request. STATUS_NO_MEMORY. */
static enum status entry_begin(struct work *w)
{
    const struct intent *p = w->intent;
    struct journal_entry *e = &w->entry;
    *e = (struct journal_entry){.call_id = slice_text(w->run.call_id),
                                .has_key = p->has_key,
                                .method = p->method,
                                .url = p->url,
                                .key = p->key_spelling,
                                .business_ref = p->business_ref,
                                .body = p->body,
                                .body_kept = !(p->flags & SAMEKEY_NO_JOURNAL_BODY) &&
                                             p->body.len <= JOURNAL_BODY_BYTES_MAX,
                                .state = STATE_PROCESSING,
                                .created_ms = handle_unix_ms()};
    if (p->has_trace) {
        traceparent_print(&p->trace, w->trace);
        e->traceparent = slice_text(w->trace);
    }
    buffer_clear(&w->headers);
    buffer_clear(&w->policy);
    intent_headers_encode(p->headers, p->header_count, &w->headers);
    intent_policy_encode(p, &w->policy);
    e->headers = buffer_view(&w->headers);
    e->policy = buffer_view(&w->policy);
    if (w->headers.failed || w->policy.failed || intent_fingerprint(p, &e->fingerprint) != STATUS_OK)
        return STATUS_NO_MEMORY;
    return p->has_key ? intent_operation(p, &e->operation) : STATUS_OK;
}

/* Writes where the call stands. */
static enum status entry_write(struct work *w)
{
    struct journal_entry *e = &w->entry;
    const struct run *run = &w->run;
    if (!w->journaled)
        return STATUS_OK;
    buffer_clear(&w->attempts);
    result_attempts_encode(run->result, &w->attempts);
    if (w->attempts.failed)
        return STATUS_NO_MEMORY;
    e->attempts = buffer_view(&w->attempts);
    e->attempt_count = run->machine.attempts;
    e->maybe_ran = run_maybe_ran(run);
    e->pending = run->machine.pending;
    e->first_ms = run->first_unix_ms;
    e->closed_ms = run->closed_unix_ms;
    return journal_write(w->handle->journal, e);
}

/* Before the first byte of an attempt. A process that is killed now leaves an entry that says "may have run". */
static enum status entry_write_attempt(struct work *w)
{
    w->entry.state = STATE_PROCESSING;
    return entry_write(w);
}

static void entry_write_ending(struct work *w)
{
    struct journal_entry *e = &w->entry;
    struct samekey_result *r = w->run.result;
    if (!w->journaled)
        return;
    if (e->id == 0 && r->attempt_count == 0 && r->query_count == 0 && r->state == STATE_FAILED)
        return; /* our own limits let nothing out: there is nothing to take up */
    e->state = r->state;
    e->final = r->final;
    e->reason = r->reason;
    e->next = r->next;
    e->safe_new_key = r->safe_new_key;
    e->has_result = r->has_reply && (r->state == STATE_SUCCESS || r->final);
    if (e->has_result) {
        e->result_status = r->reply.status;
        e->result_headers = buffer_view(&r->reply.headers);
        e->result_kept = r->reply.body_kept && r->reply.body.len <= JOURNAL_BODY_BYTES_MAX;
        e->result_body = e->result_kept ? buffer_view(&r->reply.body) : slice_of("", 0);
    }
    if (w->resumed && r->state == STATE_UNKNOWN && e->rounds >= JOURNAL_ROUNDS_MAX)
        r->next = e->next = NEXT_ASK_OPERATOR;
    r->journal_failed = entry_write(w) != STATUS_OK;
}

/* The ending that an entry holds, as a result. NULL: no memory. */
static struct samekey_result *entry_result(const struct journal_entry *e, bool told)
{
    struct attempt attempts[ATTEMPTS_MAX];
    struct buffer words = {0};
    size_t count = 0;
    struct samekey_result *r = result_new();
    if (!r)
        return NULL;
    snprintf(r->call_id, sizeof r->call_id, "%.*s", (int)e->call_id.len, e->call_id.data);
    snprintf(r->key, sizeof r->key, "%.*s", (int)e->key.len, e->key.len ? e->key.data : "");
    r->state = e->state;
    r->final = e->final;
    r->reason = e->reason;
    r->next = e->next;
    r->safe_new_key = e->safe_new_key;
    r->rounds = e->rounds;
    r->resumed = r->told_before = told;
    if (attempts_decode(e->attempts, attempts, &count, &words) == STATUS_OK) {
        for (size_t i = 0; i < count; i++)
            result_attempt_text(r, &attempts[i], attempts[i].evidence);
    }
    buffer_fini(&words);
    if (e->has_result) {
        r->has_reply = true;
        r->reply.status = e->result_status;
        r->reply.body_kept = e->result_kept;
        buffer_slice(&r->reply.headers, e->result_headers);
        buffer_slice(&r->reply.body, e->result_body);
        if (r->reply.headers.failed || r->reply.body.failed) {
            samekey_result_free(r);
            return NULL;
        }
    }
    return r;
}

/* ---- attempts and queries ----------------------------------------------------------------------------------- */

static int stop(void *context)
{
    return cancelled(context);
}

static void give_up(struct work *w, struct run_event *ev)
{
    run_cancel(&w->run, ev->now_ms);
}

static void stamp(struct run_event *ev)
{
    ev->now_ms = handle_clock_ms();
    ev->unix_now_ms = handle_unix_ms();
    ev->random = handle_random();
}

/* Lets one attempt out, or says why not. false: the journal cannot be written and nothing was sent yet in this call. */
static bool do_send(struct work *w, const struct call_effect *fx, struct run_event *ev)
{
    struct limits_pass pass;
    const struct intent *p = w->intent;
    struct samekey *h = w->handle;
    struct control control;
    *ev = (struct run_event){.type = CALL_EV_DENIED};
    if (!limits_enter(h->limits, p->origin, fx->is_retry, handle_clock_ms(), &pass, &ev->denial,
                      &ev->retry_in_ms, &ev->refusal)) {
        tell(w, SAMEKEY_PROGRESS_REFUSED, ev->retry_in_ms, ev->refusal);
        stamp(ev);
        return true;
    }
    bool first = w->run.result->attempt_count == 0 && !run_maybe_ran(&w->run);
    if (entry_write_attempt(w) != STATUS_OK) {
        limits_leave(h->limits, p->origin, handle_clock_ms(), &pass, BREAKER_NEUTRAL, 0);
        if (first)
            return false;
        *ev = (struct run_event){.type = CALL_EV_DENIED,
                                 .denial = CALL_DENIED_BUDGET,
                                 .retry_in_ms = -1,
                                 .refusal = "the journal cannot be written"};
        stamp(ev);
        return true;
    }
    tell(w, SAMEKEY_PROGRESS_SENDING, 0, "");
    control_make(&control, p, w->run.call_id, fx->attempt, fx->timeout_ms,
                 (uint64_t)(handle_random() * 0x1p64));
    struct transport_request rq = {.method = p->method,
                                   .url = p->url,
                                   .headers = p->headers,
                                   .header_count = p->header_count,
                                   .control = control.headers,
                                   .control_count = control.count,
                                   .body = p->body,
                                   .timeout_ms = fx->timeout_ms,
                                   .body_bytes_max = p->result_bytes_max,
                                   .ca_file = p->ca_file,
                                   .flags = p->flags,
                                   .cancelled = p->cancelled ? stop : NULL,
                                   .context = w};
    transport_send(h->transport, &rq, &w->evidence, &w->reply, w->detail);
    bool answered = w->evidence.end == EVIDENCE_ANSWER;
    bool unknown = !answered && w->evidence.bytes_sent > 0;
    bool ours = w->evidence.end == EVIDENCE_OWN_REFUSAL || w->evidence.end == EVIDENCE_ABORTED;
    limits_leave(h->limits, p->origin, handle_clock_ms(), &pass,
                 breaker_judge(ours, answered ? w->evidence.status : 0, unknown), handle_random());
    *ev = (struct run_event){.type = CALL_EV_ATTEMPT, .evidence = &w->evidence, .reply = &w->reply};
    stamp(ev);
    if (w->evidence.end == EVIDENCE_ABORTED)
        give_up(w, ev);
    return true;
}

static void do_ask(struct work *w, const struct call_effect *fx, bool fence, struct run_event *ev)
{
    const struct intent *p = w->intent;
    struct control control;
    struct buffer url = {0};
    tell(w, fence ? SAMEKEY_PROGRESS_FENCING : SAMEKEY_PROGRESS_ASKING, 0, "");
    *ev = (struct run_event){.type = fence ? CALL_EV_FENCED : CALL_EV_ANSWER, .answer_detail = "no memory"};
    control_make(&control, p, w->run.call_id, 0, 0, (uint64_t)(handle_random() * 0x1p64));
    if (intent_receipt_url(p, slice_text(w->run.call_id), w->run.first_unix_ms, fence, &url) == STATUS_OK) {
        struct transport_request rq = {.method = slice_text(fence ? "POST" : "GET"),
                                       .url = buffer_view(&url),
                                       .headers = p->receipt_headers,
                                       .header_count = p->receipt_header_count,
                                       .control = control.headers,
                                       .control_count = control.count,
                                       .timeout_ms = fx->timeout_ms,
                                       .body_bytes_max = RECEIPT_BYTES_MAX,
                                       .ca_file = p->ca_file,
                                       .flags = p->flags & (SAMEKEY_HTTP2 | SAMEKEY_QUICK_EXIT),
                                       .query = true,
                                       .cancelled = p->cancelled ? stop : NULL,
                                       .context = w};
        transport_send(w->handle->transport, &rq, &w->evidence, &w->reply, w->detail);
        bool answered = w->evidence.end == EVIDENCE_ANSWER && w->reply.body_kept;
        ev->answer_status = answered ? w->evidence.status : 0;
        ev->answer_body = answered ? buffer_view(&w->reply.body) : slice_of("", 0);
        ev->answer_detail = w->detail[0] ? w->detail : "the answer is not complete";
        if (!answered && w->evidence.end == EVIDENCE_TIMEOUT)
            ev->answer_detail = "no answer in time";
    }
    buffer_fini(&url);
    stamp(ev);
    if (cancelled(w))
        give_up(w, ev);
}

/* What was said by the event just given. */
static void tell_event(struct work *w, enum call_event_type type)
{
    struct samekey_result *r = w->run.result;
    if (type == CALL_EV_ATTEMPT)
        tell(w, SAMEKEY_PROGRESS_ATTEMPT_ENDED, 0, result_evidence(r, r->attempt_count - 1));
    else if (type == CALL_EV_ANSWER || type == CALL_EV_FENCED)
        tell(w, SAMEKEY_PROGRESS_ANSWERED, 0, w->run.why);
}

/* Drives the run to its end. false: nothing was sent, since the journal cannot be written. */
static bool drive(struct work *w, const struct call_past *past)
{
    const struct call_effect *fx;
    /* The wait for another process to end was ours too: one deadline over all of it. */
    struct run_event ev = {.type = CALL_EV_START,
                           .past = *past,
                           .deadline_ms = deadline_add(w->began_ms, w->intent->deadline_ms)};
    stamp(&ev);
    run_step(&w->run, &ev, &fx);
    while (fx->type != CALL_DO_END) {
        switch (fx->type) {
        case CALL_DO_SEND:
            if (!do_send(w, fx, &ev))
                return false;
            break;
        case CALL_DO_ASK:
            do_ask(w, fx, false, &ev);
            break;
        case CALL_DO_FENCE:
            do_ask(w, fx, true, &ev);
            break;
        case CALL_DO_WAIT:
            tell(w, SAMEKEY_PROGRESS_WAITING, fx->until_ms - handle_clock_ms(), "");
            /* What was learned must not be lost in a long wait. A failure here is told when the next attempt would
             * begin, or with the ending. */
            entry_write(w);
            bool slept = sleep_until(w, fx->until_ms);
            ev = (struct run_event){.type = CALL_EV_TIMER};
            stamp(&ev);
            if (!slept)
                give_up(w, &ev);
            break;
        case CALL_DO_END:
            break;
        }
        enum call_event_type type = ev.type;
        run_step(&w->run, &ev, &fx);
        tell_event(w, type);
    }
    entry_write_ending(w);
    tell(w, SAMEKEY_PROGRESS_ENDED, 0, samekey_result_sentence(w->run.result));
    return true;
}

/* ---- which entry to go on from ------------------------------------------------------------------------------ */

static int refuse(struct work *w, int status, const char *sentence)
{
    intent_error(w->error, status, "%s", sentence);
    return status;
}

/* Waits for the right to work on the operation. *waited: somebody else had it. SAMEKEY_OK without the lock held: the
 * deadline came, or the call was given up. */
static int wait_for_lock(struct work *w, const struct digest *digest, bool *waited)
{
    int64_t deadline = deadline_add(w->began_ms, w->intent->deadline_ms);
    *waited = false;
    for (;;) {
        enum status status = journal_lock(w->handle->journal, digest, &w->lock);
        if (status == STATUS_IO)
            return refuse(w, SAMEKEY_JOURNAL, "the journal's lock file cannot be used; nothing was sent");
        if (status == STATUS_OK)
            return SAMEKEY_OK;
        if (!*waited)
            tell(w, SAMEKEY_PROGRESS_JOINED, 0, "another process works on this call; waiting for its ending");
        *waited = true;
        int64_t until = handle_clock_ms() + JOIN_POLL_MS;
        if (until > deadline || !sleep_until(w, until))
            return SAMEKEY_OK;
    }
}

static int read_entry(struct work *w, const struct digest *operation, struct slice call_id)
{
    enum status status = operation
                             ? journal_find_operation(w->handle->journal, operation, &w->memory, &w->entry)
                             : journal_find_call(w->handle->journal, call_id, &w->memory, &w->entry);
    if (status == STATUS_NOT_FOUND) {
        w->entry.id = 0;
        return SAMEKEY_OK;
    }
    if (status == STATUS_NO_MEMORY)
        return refuse(w, SAMEKEY_NO_MEMORY, "no memory; nothing was sent");
    if (status != STATUS_OK)
        return refuse(w, SAMEKEY_JOURNAL, "the journal cannot be read; nothing was sent");
    return SAMEKEY_OK;
}

/* What an open entry is gone on from. */
static struct call_past past_of(const struct journal_entry *e, int64_t unix_now_ms)
{
    /* An attempt that has begun and whose ending is not written was lost with its process: it may have run. */
    struct attempt attempts[ATTEMPTS_MAX];
    struct buffer words = {0};
    size_t ended = 0;
    int highest = 0;
    if (attempts_decode(e->attempts, attempts, &ended, &words) == STATUS_OK) {
        for (size_t i = 0; i < ended; i++)
            highest = attempts[i].n > highest ? attempts[i].n : highest;
    }
    buffer_fini(&words);
    bool lost = e->state == STATE_PROCESSING && highest < e->attempt_count;
    int64_t age = e->first_ms && unix_now_ms > e->first_ms ? unix_now_ms - e->first_ms : 0;
    /* When the last connection was closed is known only of an attempt that ended; else it is as if now. */
    int64_t closed = !lost && e->closed_ms && unix_now_ms > e->closed_ms ? unix_now_ms - e->closed_ms : 0;
    return (struct call_past){.attempts = e->attempt_count,
                              .maybe_ran = e->maybe_ran || lost,
                              .pending = e->pending,
                              .age_ms = age,
                              .closed_age_ms = closed};
}

/* Copies what earlier runs wrote into this run's record. */
static void recall(struct work *w)
{
    struct attempt attempts[ATTEMPTS_MAX];
    struct buffer words = {0};
    struct samekey_result *r = w->run.result;
    size_t count = 0;
    int highest = 0;
    if (attempts_decode(w->entry.attempts, attempts, &count, &words) == STATUS_OK) {
        for (size_t i = 0; i < count; i++) {
            result_attempt_text(r, &attempts[i], attempts[i].evidence);
            highest = attempts[i].n;
        }
    }
    buffer_fini(&words);
    if (w->entry.state == STATE_PROCESSING && highest < w->entry.attempt_count) {
        struct evidence lost = {.end = EVIDENCE_LOST, .success_when = -1};
        struct attempt a = {.n = w->entry.attempt_count,
                            .started_ms = w->entry.updated_ms,
                            .outcome = OUTCOME_UNKNOWN,
                            .ended_ms = handle_unix_ms()};
        result_attempt(r, &a, &lost);
    }
    r->resumed = true;
    r->rounds = w->entry.rounds;
    w->run.first_unix_ms = w->entry.first_ms;
    w->run.closed_unix_ms = w->entry.closed_ms;
    w->run.safe_new_key = -1;
}

static int no_memory(struct work *w)
{
    return refuse(w, SAMEKEY_NO_MEMORY, "no memory; nothing was sent");
}

/* Goes on with the open entry in w->entry. */
static int go_on(struct work *w)
{
    char call_id[CALLID_BYTES_MAX + 1];
    snprintf(call_id, sizeof call_id, "%.*s", (int)w->entry.call_id.len, w->entry.call_id.data);
    if (run_init(&w->run, w->intent, call_id) != STATUS_OK)
        return no_memory(w);
    struct call_past past = past_of(&w->entry, handle_unix_ms());
    if (!past.maybe_ran && w->intent->policy.retries < 0)
        return refuse(w, SAMEKEY_INVALID,
                      "the journal does not keep this call's body, and nothing of it was sent yet; "
                      "run the command that made it again");
    w->resumed = true;
    w->entry.rounds++;
    recall(w);
    tell(w, SAMEKEY_PROGRESS_RESUMED, 0,
         past.maybe_ran ? "an earlier run left it open; its receipt is asked first"
                        : "an earlier run did not send it");
    if (!drive(w, &past))
        return refuse(w, SAMEKEY_JOURNAL, "the journal cannot be written; nothing was sent");
    return SAMEKEY_OK;
}

static int begin_new(struct work *w, struct samekey_error *error)
{
    char call_id[CALLID_BYTES_MAX + 1];
    struct call_past none = {0};
    int status = handle_call_id(w->handle, w->intent, handle_unix_ms(), call_id, error);
    if (status != SAMEKEY_OK)
        return status;
    if (run_init(&w->run, w->intent, call_id) != STATUS_OK || (w->journaled && entry_begin(w) != STATUS_OK))
        return no_memory(w);
    if (w->journaled && w->lock.fd < 0) {
        /* Nobody else can mean this call yet, but somebody may resume what the journal says is open. */
        struct digest digest;
        if (intent_call_digest(slice_text(call_id), &digest) != STATUS_OK)
            return no_memory(w);
        if (journal_lock(w->handle->journal, &digest, &w->lock) != STATUS_OK)
            return refuse(w, SAMEKEY_JOURNAL, "the journal's lock file cannot be used; nothing was sent");
    }
    if (!drive(w, &none))
        return refuse(w, SAMEKEY_JOURNAL, "the journal cannot be written; nothing was sent");
    return SAMEKEY_OK;
}

static int tell_entry(struct work *w, bool told)
{
    w->told = entry_result(&w->entry, told);
    if (!w->told)
        return no_memory(w);
    w->told->elapsed_ms = handle_clock_ms() - w->began_ms;
    return SAMEKEY_OK;
}

static int reused(struct work *w, bool key)
{
    return refuse(
        w, SAMEKEY_KEY_REUSED,
        key ? "the journal knows this key with another request or callId; a key is bound to one request; "
              "nothing was sent"
            : "the journal knows this callId with another request; nothing was sent");
}

/* A call with a journal, under its operation's lock. */
static int journaled_call(struct work *w)
{
    const struct intent *p = w->intent;
    struct digest digest;
    struct digest32 fingerprint;
    bool waited = false;
    if (!p->has_key && p->call_id.len == 0)
        return begin_new(w, w->error);
    if ((p->has_key ? intent_operation(p, &digest) : intent_call_digest(p->call_id, &digest)) != STATUS_OK ||
        intent_fingerprint(p, &fingerprint) != STATUS_OK)
        return no_memory(w);
    int status = wait_for_lock(w, &digest, &waited);
    if (status == SAMEKEY_OK)
        status = read_entry(w, p->has_key ? &digest : NULL, p->call_id);
    if (status != SAMEKEY_OK)
        return status;
    bool known = w->entry.id != 0, ended = known && journal_ended(&w->entry);
    bool failed = ended && w->entry.state == STATE_FAILED;
    bool same_id = known && (p->call_id.len == 0 || slice_equal(p->call_id, w->entry.call_id));
    bool same =
        known && digest32_equal(&fingerprint, &w->entry.fingerprint) && w->entry.has_key == p->has_key;
    if (w->lock.fd < 0) { /* still another's at our deadline */
        if (!known)
            return refuse(w, SAMEKEY_JOURNAL,
                          "another process works on this call and has not written it yet");
        w->entry.state = STATE_PROCESSING;
        w->entry.next = NEXT_WAIT;
        return tell_entry(w, true);
    }
    if (known && !same && !(failed && p->has_key && (p->call_id.len == 0 || !same_id)))
        return reused(w, p->has_key);
    /* One works, the others wait and get its ending, whatever it is. */
    if (waited && known && w->entry.state != STATE_PROCESSING && same_id)
        return tell_entry(w, true);
    if (ended && (w->entry.state == STATE_SUCCESS || (same_id && p->call_id.len)))
        return tell_entry(w, true);
    if (known && !ended)
        return same_id ? go_on(w) : reused(w, true);
    /* A callId given by name may be an older entry's, under another key. */
    if (p->has_key && p->call_id.len) {
        arena_clear(&w->memory);
        status = read_entry(w, NULL, p->call_id);
        if (status != SAMEKEY_OK)
            return status;
        if (w->entry.id)
            return reused(w, false);
    }
    return begin_new(w, w->error);
}

/* ---- the public functions ----------------------------------------------------------------------------------- */

static void work_init(struct work *w, struct samekey *handle, const struct intent *intent,
                      struct samekey_error *error)
{
    memset(w, 0, sizeof *w);
    w->handle = handle;
    w->intent = intent;
    w->error = error;
    w->lock = SLOT_NONE;
    w->began_ms = handle_clock_ms();
    w->journaled = handle->journal && !(intent->flags & SAMEKEY_NO_JOURNAL);
    arena_init(&w->memory, JOURNAL_ENTRY_BYTES_MAX);
}

/* Hands the result over, if there is one, and frees the rest. */
static void work_fini(struct work *w, int status, struct samekey_result **out)
{
    if (status == SAMEKEY_OK)
        *out = w->told ? w->told : run_take_result(&w->run);
    run_fini(&w->run);
    slot_release(&w->lock);
    response_fini(&w->reply);
    buffer_fini(&w->headers);
    buffer_fini(&w->policy);
    buffer_fini(&w->attempts);
    arena_fini(&w->memory);
}

static int made(enum status status)
{
    return status == STATUS_OK          ? SAMEKEY_OK
           : status == STATUS_NO_MEMORY ? SAMEKEY_NO_MEMORY
                                        : SAMEKEY_INVALID;
}

int samekey_call(struct samekey *handle, const struct samekey_options *options, struct samekey_result **out)
{
    struct intent intent;
    struct samekey_error *error =
        options->size > offsetof(struct samekey_options, error) ? options->error : NULL;
    int status = made(intent_make(&intent, options, error));
    if (status != SAMEKEY_OK)
        return status;
    if (intent.url.len == 0) {
        intent_error(error, SAMEKEY_INVALID, "the call has no URL");
        intent_fini(&intent);
        return SAMEKEY_INVALID;
    }
    struct work *w = malloc(sizeof *w);
    if (w) {
        work_init(w, handle, &intent, error);
        status = w->journaled ? journaled_call(w) : begin_new(w, error);
        work_fini(w, status, out);
    } else {
        status = SAMEKEY_NO_MEMORY;
        intent_error(error, status, "no memory; nothing was sent");
    }
    free(w);
    intent_fini(&intent);
    return status;
}

/* Makes the options of an entry's call again. */
static enum status entry_options(const struct journal_entry *e, struct arena *memory,
                                 struct samekey_options *o)
{
    struct slice copies[5];
    const struct slice from[5] = {e->method, e->url, e->key, e->business_ref, e->traceparent};
    samekey_options_init(o);
    for (int i = 0; i < 5; i++) {
        if (!arena_copy(memory, from[i], &copies[i]))
            return STATUS_NO_MEMORY;
    }
    o->method = copies[0].data;
    o->url = copies[1].data;
    o->key = e->has_key ? copies[2].data : NULL;
    o->business_ref = copies[3].len ? copies[3].data : NULL;
    o->traceparent = copies[4].len ? copies[4].data : NULL;
    enum status status = intent_headers_decode(e->headers, &o->headers, &o->header_count, memory);
    return status == STATUS_OK ? intent_policy_decode(e->policy, o, memory) : status;
}

/* An intent for an entry. The body is the journal's, or the asker's; without any only asking is left. */
static int entry_intent(const struct journal_entry *e, struct arena *memory,
                        const struct samekey_options *asker, struct samekey_error *error,
                        struct intent *intent)
{
    struct samekey_options o;
    enum status status = entry_options(e, memory, &o);
    if (status != STATUS_OK) {
        intent_error(error, status == STATUS_NO_MEMORY ? SAMEKEY_NO_MEMORY : SAMEKEY_JOURNAL,
                     "the journal's entry of this call cannot be read; nothing was sent");
        return status == STATUS_NO_MEMORY ? SAMEKEY_NO_MEMORY : SAMEKEY_JOURNAL;
    }
    if (asker) {
        o.progress = asker->progress;
        o.cancelled = asker->cancelled;
        o.context = asker->context;
        o.flags |= asker->flags & SAMEKEY_QUICK_EXIT;
    }
    char call_id[CALLID_BYTES_MAX + 1];
    snprintf(call_id, sizeof call_id, "%.*s", (int)e->call_id.len, e->call_id.data);
    bool made_by_us = !e->has_key && !(o.flags & SAMEKEY_RESEND_NEEDS_KEY);
    o.call_id = made_by_us ? call_id : NULL;
    o.body = e->body_kept ? e->body.data : asker ? asker->body : NULL;
    o.body_len = e->body_kept ? e->body.len : asker ? asker->body_len : 0;
    int made_status = made(intent_make(intent, &o, error));
    if (made_status != SAMEKEY_OK)
        return made_status;
    struct digest32 fingerprint;
    if (intent_fingerprint(intent, &fingerprint) != STATUS_OK) {
        intent_fini(intent);
        intent_error(error, SAMEKEY_NO_MEMORY, "no memory; nothing was sent");
        return SAMEKEY_NO_MEMORY;
    }
    /* Without the request's own body nothing may go out under its callId. */
    if (!digest32_equal(&fingerprint, &e->fingerprint))
        intent->policy.retries = -1;
    return SAMEKEY_OK;
}

int samekey_resume(struct samekey *handle, const char *call_id, const struct samekey_options *options,
                   struct samekey_result **out)
{
    struct samekey_error *error =
        options && options->size > offsetof(struct samekey_options, error) ? options->error : NULL;
    struct intent intent = {0};
    struct arena first;
    struct journal_entry entry;
    if (!handle->journal) {
        intent_error(error, SAMEKEY_NOT_FOUND, "this handle has no journal");
        return SAMEKEY_NOT_FOUND;
    }
    arena_init(&first, JOURNAL_ENTRY_BYTES_MAX);
    enum status found = journal_find_call(handle->journal, slice_text(call_id), &first, &entry);
    int status = found == STATUS_OK          ? entry_intent(&entry, &first, options, error, &intent)
                 : found == STATUS_NOT_FOUND ? SAMEKEY_NOT_FOUND
                 : found == STATUS_NO_MEMORY ? SAMEKEY_NO_MEMORY
                                             : SAMEKEY_JOURNAL;
    if (found != STATUS_OK)
        intent_error(error, status, "the journal %s",
                     found == STATUS_NOT_FOUND ? "has no such call" : "cannot be read");
    struct work *w = status == SAMEKEY_OK ? malloc(sizeof *w) : NULL;
    if (status == SAMEKEY_OK && !w) {
        status = SAMEKEY_NO_MEMORY;
        intent_error(error, status, "no memory; nothing was sent");
    }
    if (w) {
        struct digest digest = entry.operation;
        bool waited = false;
        work_init(w, handle, &intent, error);
        w->journaled = true;
        if (!entry.has_key && intent_call_digest(slice_text(call_id), &digest) != STATUS_OK)
            status = no_memory(w);
        if (status == SAMEKEY_OK)
            status = wait_for_lock(w, &digest, &waited);
        if (status == SAMEKEY_OK)
            status = read_entry(w, NULL, slice_text(call_id)); /* as it is now that it is ours */
        if (status == SAMEKEY_OK && w->entry.id == 0)
            status = refuse(w, SAMEKEY_NOT_FOUND, "the journal has no such call");
        if (status == SAMEKEY_OK) {
            if (w->lock.fd < 0) {
                w->entry.state = STATE_PROCESSING;
                w->entry.next = NEXT_WAIT;
                status = tell_entry(w, true);
            } else if (journal_ended(&w->entry) || (waited && w->entry.state != STATE_PROCESSING)) {
                status = tell_entry(w, true);
            } else {
                status = go_on(w);
            }
        }
        work_fini(w, status, out);
        free(w);
    }
    intent_fini(&intent);
    arena_fini(&first);
    return status;
}

int samekey_lookup(struct samekey *handle, const char *call_id, struct samekey_result **out)
{
    struct arena memory;
    struct journal_entry entry;
    struct samekey_result *result = NULL;
    if (!handle->journal)
        return SAMEKEY_NOT_FOUND;
    arena_init(&memory, JOURNAL_ENTRY_BYTES_MAX);
    enum status found = journal_find_call(handle->journal, slice_text(call_id), &memory, &entry);
    if (found == STATUS_OK)
        result = entry_result(&entry, true);
    arena_fini(&memory);
    if (found == STATUS_NOT_FOUND)
        return SAMEKEY_NOT_FOUND;
    if (found == STATUS_IO)
        return SAMEKEY_JOURNAL;
    if (!result)
        return SAMEKEY_NO_MEMORY;
    *out = result;
    return SAMEKEY_OK;
}
