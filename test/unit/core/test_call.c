/* SPDX-License-Identifier: MIT
 *
 * The caller machine, twice. First as stories: each is a transcript that can be read aloud, event to the left of the
 * arrow, effect to the right; the left side is played, and the right side must come out. Then as two explorers that
 * throw random policies and events at it and judge from outside: one knows only the rules of CONTRACT section 3, the
 * other plays a service that tells the truth and counts the effects.
 *
 * Events:  start [attempts=N] [maybe_ran] [pending] [age=MS] [closed=MS]
 *          OUTCOME [status=N] [retry_after=MS] [for_good] [no_connection]     an attempt ended
 *          receipt ANSWER · fence ANSWER · timer · denied budget|breaker|lost [in=MS]
 */
#include "../base/check.h"

#include "base/prng.h"
#include "core/call.h"
#include "core/deadline.h"

#include <stdio.h>
#include <stdlib.h>

#define HOUR_MS INT64_C(3600000)

/* What the article asks for: 0.5 s doubling to 4 s, three retries; without jitter, so that stories have round numbers. */
static struct call_policy bare(void)
{
    return (struct call_policy){
        .retries = 3,
        .attempt_timeout_ms = 3000,
        .backoff = {500, 4000, 1, 1},
        .retry_after_max_ms = 300000,
        .has_identity = true,
        .receipt_timeout_ms = 1000,
        .receipt_queries = 5,
        .resend_after_ms = 3000,
        .upstream_key_life_ms = 24 * HOUR_MS,
    };
}

/* A service with receipts that does not promise to run a callId once. */
static struct call_policy with_receipts(void)
{
    struct call_policy p = bare();
    p.has_receipts = true;
    return p;
}

/* A samekey below: receipts, runs a callId once, can fence. */
static struct call_policy samekey_below(void)
{
    struct call_policy p = with_receipts();
    p.runs_once = p.can_fence = true;
    return p;
}

/* ---- the story teller --------------------------------------------------------------------------------------- */

static bool word(const char *args, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = args; (at = strstr(at, name)); at += len) {
        bool begins = at == args || at[-1] == ' ';
        if (begins && (at[len] == '\0' || at[len] == ' '))
            return true;
    }
    return false;
}

static int64_t number(const char *args, const char *name, int64_t otherwise)
{
    const char *at = strstr(args, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : otherwise;
}

static enum receipt_answer answer_named(const char *args)
{
    for (int i = RECEIPT_ANSWER_QUERY_FAILED; i <= RECEIPT_ANSWER_UNKNOWN; i++) {
        if (strcmp(args, receipt_answer_text((enum receipt_answer)i)) == 0)
            return (enum receipt_answer)i;
    }
    fail_msg("no receipt answers '%s'", args);
    return RECEIPT_ANSWER_UNKNOWN;
}

static struct call_event read_event(const char *text, int64_t deadline_ms)
{
    struct call_event ev = {.deadline_ms = deadline_ms, .retry_after_ms = -1, .retry_in_ms = -1};
    char name[16];
    size_t len = strcspn(text, " ");
    snprintf(name, sizeof name, "%.*s", (int)len, text);
    const char *args = text[len] ? text + len + 1 : "";
    if (strcmp(name, "start") == 0) {
        ev.type = CALL_EV_START;
        ev.past = (struct call_past){(int)number(args, "attempts=", 0),
                                     word(args, "maybe_ran") || word(args, "pending"), word(args, "pending"),
                                     number(args, "age=", 0), number(args, "closed=", 0)};
    } else if (strcmp(name, "receipt") == 0) {
        ev.type = CALL_EV_ANSWER;
        ev.answer = answer_named(args);
    } else if (strcmp(name, "fence") == 0) {
        ev.type = CALL_EV_FENCED;
        ev.answer = answer_named(args);
    } else if (strcmp(name, "timer") == 0) {
        ev.type = CALL_EV_TIMER;
    } else if (strcmp(name, "denied") == 0) {
        ev.type = CALL_EV_DENIED;
        ev.denial = word(args, "budget")    ? CALL_DENIED_BUDGET
                    : word(args, "breaker") ? CALL_DENIED_BREAKER
                                            : CALL_DENIED_LOST;
        ev.retry_in_ms = number(args, "in=", -1);
    } else {
        ev.type = CALL_EV_ATTEMPT;
        ev.outcome = outcome_parse_json(slice_text(name));
        if (ev.outcome == OUTCOME_NONE)
            fail_msg("no event '%s'", text);
        ev.status = (int)number(args, "status=", 0);
        ev.retry_after_ms = number(args, "retry_after=", -1);
        ev.retry_allowed = !word(args, "for_good");
        ev.elsewhere = word(args, "no_connection");
    }
    return ev;
}

static void print_effect(struct buffer *out, const struct call_effect *fx)
{
    switch (fx->type) {
    case CALL_DO_SEND:
        buffer_format(out, "send %d", fx->attempt);
        if (fx->waited_ms)
            buffer_format(out, " after %lld", (long long)fx->waited_ms);
        buffer_format(out, ", %lld ms", (long long)fx->timeout_ms);
        break;
    case CALL_DO_ASK:
        buffer_format(out, "ask, %lld ms", (long long)fx->timeout_ms);
        break;
    case CALL_DO_WAIT:
        buffer_format(out, "wait until %lld%s", (long long)fx->until_ms, fx->pending ? ", accepted" : "");
        break;
    case CALL_DO_FENCE:
        buffer_format(out, "fence, %lld ms", (long long)fx->timeout_ms);
        break;
    case CALL_DO_END:
        buffer_format(out, "%s", state_text(fx->state));
        if (fx->state == STATE_FAILED)
            buffer_text(out, fx->final ? " for good" : " and open");
        if (fx->reason != REASON_NONE)
            buffer_format(out, ": %s", reason_text(fx->reason));
        if (fx->next != NEXT_NONE)
            buffer_format(out, ", %s", next_action_text(fx->next));
        if (fx->retry_in_ms >= 0)
            buffer_format(out, " in %lld", (long long)fx->retry_in_ms);
        break;
    }
}

/* Plays the left sides and wants the right sides. */
static void tell_until(const struct call_policy *policy, int64_t deadline_ms, const char *story)
{
    struct call call;
    struct call_effect fx = {.type = CALL_DO_WAIT};
    struct buffer told = {0};
    call_init(&call, policy);
    for (const char *line = story; *line;) {
        const char *stop = strchr(line, '\n'), *arrow = strstr(line, " -> ");
        if (!stop || !arrow || arrow > stop || *line != '[')
            fail_msg("not a line of a story: %s", line);
        char text[128], *end;
        int64_t at = strtoll(line + 1, &end, 10);
        snprintf(text, sizeof text, "%.*s", (int)(arrow - end - 2), end + 2);
        struct call_event ev = read_event(text, deadline_ms);
        ev.now_ms = at;
        call_step(&call, &ev, &fx);
        buffer_format(&told, "[%6lld] %s -> ", (long long)at, text);
        print_effect(&told, &fx);
        buffer_byte(&told, '\n');
        line = stop + 1;
    }
    if (strcmp(buffer_cstring(&told), story) != 0)
        fail_msg("wanted:\n%stold:\n%s", story, buffer_cstring(&told));
    buffer_fini(&told);
}

static void tell(const struct call_policy *policy, const char *story)
{
    tell_until(policy, 30000, story);
}

/* ---- stories: definite answers ------------------------------------------------------------------------------- */

static void definite_answers_end_it(void **state)
{
    (void)state;
    struct call_policy p = bare();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    40] success status=201 -> SUCCESS\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    40] rejected status=422 -> FAILED for good: rejected, fix_request\n");
    p = samekey_below();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    40] rejected status=404 -> FAILED for good: rejected, fix_request\n");
}

static void what_failed_without_effect_is_repeated_to_the_last(void **state)
{
    (void)state;
    struct call_policy p = bare();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[   100] failed status=500 -> wait until 600\n"
             "[   600] timer -> send 2 after 500, 3000 ms\n"
             "[   700] failed status=500 -> wait until 1700\n"
             "[  1700] timer -> send 3 after 1000, 3000 ms\n"
             "[  1800] failed status=500 -> wait until 3800\n"
             "[  3800] timer -> send 4 after 2000, 3000 ms\n"
             "[  3900] failed status=500 -> FAILED for good: callee_failed\n");
    /* One attempt that ran and failed is enough: the ending is final, though the last one never ran. */
    p.retries = 1;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[   100] failed status=500 -> wait until 600\n"
             "[   600] timer -> send 2 after 500, 3000 ms\n"
             "[   601] not_executed -> FAILED for good: callee_failed\n");
}

static void what_never_ran_stays_open(void **state)
{
    (void)state;
    struct call_policy p = bare();
    p.retries = 1;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     1] not_executed -> wait until 501\n"
             "[   501] timer -> send 2 after 500, 3000 ms\n"
             "[   502] not_executed -> FAILED and open: retries_exhausted, retry_same_call\n");
    /* 401, 407, a bad certificate, a samekey below: ours is not to repeat. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     9] not_executed status=401 for_good -> FAILED and open: not_executed, retry_same_call\n");
    p = samekey_below();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     9] not_executed status=407 for_good -> FAILED and open: not_executed, retry_same_call\n");
    p.retries = 0;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     9] not_executed status=429 retry_after=7000 -> FAILED and open: retries_exhausted, "
             "retry_same_call in 7000\n");
}

static void another_upstream_is_tried_at_once(void **state)
{
    (void)state;
    struct call_policy p = bare();
    p.spares = 1;
    tell(
        &p,
        "[700000] start -> send 1, 3000 ms\n"); /* (a deadline that is past does not stop what was admitted) */
    tell_until(&p, 730000,
               "[700000] start -> send 1, 3000 ms\n"
               "[700001] not_executed no_connection -> send 2, 3000 ms\n"
               "[700002] not_executed no_connection -> wait until 700502\n"
               "[700502] timer -> send 3 after 500, 3000 ms\n");
    /* Going to another upstream is no retry: it needs none. */
    p.retries = 0;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     1] not_executed no_connection -> send 2, 3000 ms\n"
             "[     2] not_executed no_connection -> FAILED and open: retries_exhausted, retry_same_call\n");
    /* After a doubt section 3 decides, whichever node. */
    p = with_receipts();
    p.spares = 2;
    tell(&p, "[     0] start attempts=1 maybe_ran closed=9000 -> ask, 1000 ms\n"
             "[    10] receipt not_received -> wait until 510\n"
             "[   510] timer -> send 2 after 500, 3000 ms\n"
             "[   511] not_executed no_connection -> ask, 1000 ms\n");
}

/* ---- stories: ask first -------------------------------------------------------------------------------------- */

static void each_answer_of_a_receipt(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3020] receipt success -> SUCCESS: receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3020] receipt failed -> FAILED for good: receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3020] receipt running -> wait until 3520\n"
             "[  3520] timer -> ask, 1000 ms\n"
             "[  3540] receipt running -> wait until 4540\n"
             "[  4540] timer -> ask, 1000 ms\n"
             "[  4560] receipt success -> SUCCESS: receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3020] receipt not_received -> wait until 3520\n"
             "[  3520] timer -> send 2 after 500, 3000 ms\n"
             "[  3600] success status=201 -> SUCCESS\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3020] receipt failed_open -> wait until 3520\n"
             "[  3520] timer -> send 2 after 500, 3000 ms\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  4000] receipt query_failed -> wait until 4500\n"
             "[  4500] timer -> ask, 1000 ms\n"
             "[  4520] receipt unknown -> wait until 5520\n"
             "[  5520] timer -> ask, 1000 ms\n"
             "[  5540] receipt not_received -> wait until 7540\n"
             "[  7540] timer -> send 2 after 2000, 3000 ms\n");
}

static void asking_is_bounded_after_each_attempt(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    p.receipt_queries = 2;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] unknown -> ask, 1000 ms\n"
             "[    20] receipt query_failed -> wait until 520\n"
             "[   520] timer -> ask, 1000 ms\n"
             "[   530] receipt query_failed -> UNKNOWN: attempt, query_receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] unknown -> ask, 1000 ms\n"
             "[    20] receipt running -> wait until 520\n"
             "[   520] timer -> ask, 1000 ms\n"
             "[   530] receipt not_received -> wait until 1530\n"
             "[  1530] timer -> send 2 after 1000, 3000 ms\n"
             "[  1540] unknown -> ask, 1000 ms\n"
             "[  1550] receipt running -> wait until 3550\n"
             "[  3550] timer -> ask, 1000 ms\n"
             "[  3560] receipt running -> UNKNOWN: attempt, query_receipt\n");
}

static void near_the_deadline_asking_ends_unknown(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    tell_until(&p, 4000,
               "[     0] start -> send 1, 3000 ms\n"
               "[  3000] unknown -> ask, 1000 ms\n"
               "[  3400] receipt query_failed -> wait until 3900\n"
               "[  3900] timer -> ask, 100 ms\n"
               "[  3990] receipt query_failed -> UNKNOWN: attempt, query_receipt\n");
    /* The library stops at its deadline; the gateway, whose caller reads the receipt, asks once more. */
    tell_until(&p, 3000,
               "[     0] start -> send 1, 3000 ms\n"
               "[  3000] unknown -> UNKNOWN: attempt, query_receipt\n");
    p.ask_past_deadline = true;
    tell_until(&p, 3000,
               "[     0] start -> send 1, 3000 ms\n"
               "[  3000] unknown -> ask, 1000 ms\n"
               "[  3900] receipt running -> UNKNOWN: attempt, query_receipt\n");
}

static void after_429_the_receipt_is_asked_where_there_is_one(void **state)
{
    (void)state;
    struct call_policy p = with_receipts();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed status=429 retry_after=2000 -> ask, 1000 ms\n"
             "[    20] receipt not_received -> wait until 2010\n"
             "[  2010] timer -> send 2 after 1990, 3000 ms\n"
             "[  2020] success status=200 -> SUCCESS\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed status=503 -> ask, 1000 ms\n" /* by its Call-Outcome */
             "[    20] receipt success -> SUCCESS: receipt\n");
    /* The receipt says it runs after all: from here on it may have run. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed status=429 -> ask, 1000 ms\n"
             "[    20] receipt running -> wait until 520\n"
             "[   520] timer -> ask, 1000 ms\n"
             "[   530] receipt query_failed -> wait until 1530\n"
             "[  1530] timer -> ask, 1000 ms\n"
             "[  1540] receipt query_failed -> wait until 3540\n"
             "[  3540] timer -> ask, 1000 ms\n"
             "[  3550] receipt query_failed -> wait until 7550\n"
             "[  7550] timer -> ask, 1000 ms\n"
             "[  7560] receipt query_failed -> UNKNOWN: attempt, query_receipt\n");
    /* Asking led nowhere, and every attempt is proved not to have run. */
    p.receipt_queries = 1;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed status=429 -> ask, 1000 ms\n"
             "[  1010] receipt query_failed -> FAILED and open: retries_exhausted, retry_same_call\n");
    p = bare();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed status=429 retry_after=2000 -> wait until 2010\n"
             "[  2010] timer -> send 2 after 2000, 3000 ms\n");
}

/* ---- stories: the join rule ---------------------------------------------------------------------------------- */

static void a_later_refusal_changes_nothing(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    p.retries = 1;
    static const char *const later[] = {"not_executed", "rejected status=422", "failed status=500",
                                        "not_executed status=401 for_good", "unknown status=500"};
    for (size_t i = 0; i < COUNT(later); i++) {
        char story[1024];
        snprintf(story, sizeof story,
                 "[     0] start -> send 1, 3000 ms\n"
                 "[  3000] unknown -> ask, 1000 ms\n"
                 "[  3010] receipt not_received -> wait until 3510\n"
                 "[  3510] timer -> send 2 after 500, 3000 ms\n"
                 "[  3520] %s -> ask, 1000 ms\n"
                 "[  3530] receipt query_failed -> wait until 4530\n"
                 "[  4530] timer -> ask, 1000 ms\n"
                 "[  4540] receipt not_received -> fence, 1000 ms\n"
                 "[  4550] fence query_failed -> UNKNOWN: attempt, query_receipt\n",
                 later[i]);
        tell(&p, story);
    }
    /* Without receipts nothing can clear the doubt. */
    p = bare();
    p.runs_once = true;
    p.retries = 1;
    for (size_t i = 0; i < COUNT(later); i++) {
        char story[512];
        snprintf(story, sizeof story,
                 "[     0] start -> send 1, 3000 ms\n"
                 "[  3000] unknown -> wait until 3500\n"
                 "[  3500] timer -> send 2 after 500, 3000 ms\n"
                 "[  3510] %s -> UNKNOWN: attempt, query_receipt\n",
                 later[i]);
        tell(&p, story);
    }
    p.retries = 3;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> wait until 3500\n"
             "[  3500] timer -> send 2 after 500, 3000 ms\n"
             "[  3510] rejected status=404 -> UNKNOWN: attempt, query_receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> wait until 3500\n"
             "[  3500] timer -> send 2 after 500, 3000 ms\n"
             "[  3510] not_executed status=429 retry_after=4000 -> wait until 7510\n"
             "[  7510] timer -> send 3 after 4000, 3000 ms\n"
             "[  7520] success status=201 -> SUCCESS\n");
}

static void only_a_receipt_or_a_fence_ends_a_doubt_as_failed(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    p.retries = 0;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> fence, 1000 ms\n"
             "[  3020] fence failed -> FAILED for good: fenced_at_callee\n");
    /* It arrived in the meantime. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> fence, 1000 ms\n"
             "[  3020] fence success -> SUCCESS: receipt\n");
    static const char *const no[] = {"running", "unknown", "query_failed", "not_received", "failed_open"};
    for (size_t i = 0; i < COUNT(no); i++) {
        char story[512];
        snprintf(story, sizeof story,
                 "[     0] start -> send 1, 3000 ms\n"
                 "[  3000] unknown -> ask, 1000 ms\n"
                 "[  3010] receipt not_received -> fence, 1000 ms\n"
                 "[  3020] fence %s -> UNKNOWN: attempt, query_receipt\n",
                 no[i]);
        tell(&p, story);
    }
    p = with_receipts();
    p.retries = 0;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> UNKNOWN: attempt, query_receipt\n");
}

/* ---- stories: when a repeat is safe -------------------------------------------------------------------------- */

static void the_first_request_may_still_be_travelling(void **state)
{
    (void)state;
    struct call_policy p = with_receipts();
    /* Asked at once, sent only after resend_after, and asked again in between: it may have arrived. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> wait until 6000\n"
             "[  6000] timer -> ask, 1000 ms\n"
             "[  6010] receipt success -> SUCCESS: receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> wait until 6000\n"
             "[  6000] timer -> ask, 1000 ms\n"
             "[  6010] receipt not_received -> wait until 7010\n"
             "[  7010] timer -> send 2 after 1000, 3000 ms\n");
    /* A 504 was written by whoever stands between: the request itself may still be on its way. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  2000] unknown status=504 -> ask, 1000 ms\n"
             "[  2010] receipt not_received -> wait until 5000\n"
             "[  5000] timer -> ask, 1000 ms\n"
             "[  5010] receipt not_received -> wait until 6010\n"
             "[  6010] timer -> send 2 after 1000, 3000 ms\n");
    /* Asked late enough: one answer does. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[   100] unknown -> ask, 1000 ms\n"
             "[  1100] receipt query_failed -> wait until 1600\n"
             "[  1600] timer -> ask, 1000 ms\n"
             "[  2600] receipt query_failed -> wait until 3600\n"
             "[  3600] timer -> ask, 1000 ms\n"
             "[  3610] receipt not_received -> wait until 5610\n"
             "[  5610] timer -> send 2 after 2000, 3000 ms\n");
    /* No query left for the second look: it is not sent on a stale one. */
    p.receipt_queries = 1;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> UNKNOWN: attempt, query_receipt\n");
    /* The callee runs a callId once: at once. */
    p.runs_once = true;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> wait until 3510\n"
             "[  3510] timer -> send 2 after 500, 3000 ms\n");
}

static void without_receipts_only_a_callee_that_runs_once_is_sent_again(void **state)
{
    (void)state;
    struct call_policy p = bare();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> UNKNOWN: attempt, query_receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown status=500 -> UNKNOWN: attempt, query_receipt\n");
    p.runs_once = true;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> wait until 3500\n"
             "[  3500] timer -> send 2 after 500, 3000 ms\n"
             "[  6500] unknown -> wait until 7500\n"
             "[  7500] timer -> send 3 after 1000, 3000 ms\n"
             "[  7600] unknown status=503 retry_after=5000 -> wait until 12600\n"
             "[ 12600] timer -> send 4 after 5000, 3000 ms\n"
             "[ 15600] unknown -> UNKNOWN: attempt, query_receipt\n");
}

static void without_a_name_nothing_is_sent_again(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    p.has_identity = false;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     1] not_executed -> FAILED and open: retries_exhausted, retry_same_call\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> fence, 1000 ms\n"
             "[  3020] fence failed -> FAILED for good: fenced_at_callee\n");
    p = bare();
    p.runs_once = true;
    p.has_identity = false;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> UNKNOWN: attempt, query_receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] failed -> FAILED for good: callee_failed\n");
}

/* A command without --key: not executed is tried again, but what may have run never is. */
static void what_may_have_run_can_be_only_asked_about(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    p.can_fence = false;
    p.never_after_doubt = true;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     1] not_executed -> wait until 501\n"
             "[   501] timer -> send 2 after 500, 3000 ms\n"
             "[  3501] unknown -> ask, 1000 ms\n"
             "[  3510] receipt not_received -> UNKNOWN: attempt, query_receipt\n");
}

static void nothing_is_sent_past_the_life_of_the_upstreams_key(void **state)
{
    (void)state;
    struct call_policy p = bare();
    p.runs_once = true;
    p.upstream_key_life_ms = 4000;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> wait until 3500\n"
             "[  3500] timer -> send 2 after 500, 3000 ms\n"
             "[  3600] unknown -> UNKNOWN: attempt, query_receipt\n"); /* 4600 would be too late */
    tell(&p, "[ 90000] start attempts=2 maybe_ran age=5000 -> UNKNOWN: attempt, query_receipt\n");
    p = samekey_below();
    p.upstream_key_life_ms = 3100;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> fence, 1000 ms\n"
             "[  3020] fence failed -> FAILED for good: fenced_at_callee\n");
}

/* ---- stories: accepted work ---------------------------------------------------------------------------------- */

static void accepted_work_is_asked_about(void **state)
{
    (void)state;
    struct call_policy p = with_receipts();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    50] pending status=202 -> wait until 550, accepted\n"
             "[   550] timer -> ask, 1000 ms\n"
             "[   560] receipt running -> wait until 1560, accepted\n"
             "[  1560] timer -> ask, 1000 ms\n"
             "[  1570] receipt success -> SUCCESS: receipt\n");
    /* Queued work may write its receipt only at its commit: NOT_RECEIVED means wait and ask, and no fence. The queries
     * used up, it rests until its deadline, since a report may still come. */
    p.can_fence = true;
    p.receipt_queries = 2;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    50] pending status=202 -> wait until 550, accepted\n"
             "[   550] timer -> ask, 1000 ms\n"
             "[   560] receipt not_received -> wait until 1560, accepted\n"
             "[  1560] timer -> ask, 1000 ms\n"
             "[  1570] receipt not_received -> wait until 30000, accepted\n"
             "[ 30000] timer -> UNKNOWN: accepted, query_receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    50] pending status=202 -> wait until 550, accepted\n"
             "[   550] timer -> ask, 1000 ms\n"
             "[   560] receipt failed -> FAILED for good: receipt\n");
    p = bare();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    50] pending status=202 -> wait until 30000, accepted\n"
             "[ 30000] timer -> UNKNOWN: accepted, query_receipt\n");
}

static void accepted_work_is_sent_again_only_where_it_runs_once(void **state)
{
    (void)state;
    struct call_policy p = samekey_below();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    50] pending status=202 -> wait until 550, accepted\n"
             "[   550] timer -> ask, 1000 ms\n"
             "[   560] receipt not_received -> wait until 1560, accepted\n"
             "[  1560] timer -> send 2 after 1000, 3000 ms\n"
             "[  1570] not_executed -> wait until 3570, accepted\n"
             "[  3570] timer -> ask, 1000 ms\n"
             "[  3580] receipt success -> SUCCESS: receipt\n");
    p.retries = 0;
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    50] pending status=202 -> wait until 550, accepted\n"
             "[   550] timer -> ask, 1000 ms\n"
             "[   560] receipt not_received -> UNKNOWN: accepted, query_receipt\n");
}

/* ---- stories: waits and the deadline ------------------------------------------------------------------------- */

/* Case 29: what fifteen values of Retry-After come to, once they are read; own backoff 1 s, cap 4 s. */
static void fifteen_values_of_retry_after(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int64_t read_ms, wait_ms;
    } rows[] = {
        {"120", 120000, 120000},
        {"  30  ", 30000, 30000},
        {"IMF-fixdate, two minutes ahead", 120000, 120000},
        {"RFC 850, two minutes ahead", 120000, 120000},
        {"asctime, two minutes ahead", 120000, 120000},
        {"0", 0, 1000},
        {"a date that is past", 0, 1000},
        {"-5", -1, 1000},
        {"1.5", -1, 1000},
        {"+30", -1, 1000},
        {"", -1, 1000},
        {"soon", -1, 1000},
        {"31 February", -1, 1000},
        {"twenty nines", INT64_MAX, 300000},
        {"10 and 20", 20000, 20000},
    };
    for (size_t receipts = 0; receipts < 2; receipts++) {
        for (size_t i = 0; i < COUNT(rows); i++) {
            struct call_policy p = receipts ? with_receipts() : bare();
            p.backoff = (struct backoff){1000, 4000, 1, 1};
            struct call call;
            struct call_effect fx;
            struct call_event ev = {.type = CALL_EV_START, .now_ms = 1000, .deadline_ms = INT64_C(1) << 40};
            call_init(&call, &p);
            call_step(&call, &ev, &fx);
            ev = (struct call_event){.type = CALL_EV_ATTEMPT,
                                     .now_ms = 5000,
                                     .outcome = OUTCOME_NOT_EXECUTED,
                                     .retry_allowed = true,
                                     .status = 429,
                                     .retry_after_ms = rows[i].read_ms};
            call_step(&call, &ev, &fx);
            if (receipts) {
                assert_int_equal(fx.type, CALL_DO_ASK);
                ev = (struct call_event){
                    .type = CALL_EV_ANSWER, .now_ms = 5000, .answer = RECEIPT_ANSWER_NOT_RECEIVED};
                call_step(&call, &ev, &fx);
            }
            assert_int_equal(fx.type, CALL_DO_WAIT);
            if (fx.until_ms != 5000 + rows[i].wait_ms)
                fail_msg("Retry-After %s waits until %lld", rows[i].value, (long long)fx.until_ms);
        }
    }
    /* `200` with a 150 s deadline: stop at once and say when it may be tried again. */
    struct call_policy p = bare();
    tell_until(&p, 150000,
               "[     0] start -> send 1, 3000 ms\n"
               "[    40] not_executed status=429 retry_after=200000 -> FAILED and open: deadline, "
               "retry_same_call in 200000\n");
    p = samekey_below();
    tell_until(&p, 150000,
               "[     0] start -> send 1, 3000 ms\n"
               "[    40] not_executed status=429 retry_after=200000 -> FAILED and open: deadline, "
               "retry_same_call in 200000\n");
}

static void a_backoff_is_never_shorter_than_asked_for_and_never_zero(void **state)
{
    (void)state;
    struct call_policy p = bare();
    p.backoff = (struct backoff){1000, 4000, 1, 1};
    /* The own backoff is longer than what was asked for. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed status=429 retry_after=200 -> wait until 1010\n"
             "[  1010] timer -> send 2 after 1000, 3000 ms\n"
             "[  1020] not_executed status=429 retry_after=0 -> wait until 3020\n"
             "[  3020] timer -> send 3 after 2000, 3000 ms\n"
             "[  3030] not_executed status=429 -> wait until 7030\n"
             "[  7030] timer -> send 4 after 4000, 3000 ms\n");
    p.backoff = (struct backoff){0, 0, 0, 0};
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed -> wait until 11\n");
}

static void no_time_for_another_attempt(void **state)
{
    (void)state;
    struct call_policy p = bare();
    tell_until(&p, 1000,
               "[     0] start -> send 1, 3000 ms\n"
               "[   400] not_executed -> wait until 900\n"
               "[   900] timer -> send 2 after 500, 3000 ms\n");
    tell_until(&p, 1000,
               "[     0] start -> send 1, 3000 ms\n"
               "[   451] not_executed -> FAILED and open: deadline, retry_same_call in 500\n");
    /* A timer that rang late, after a suspend: nothing is sent. */
    tell_until(&p, 1000,
               "[     0] start -> send 1, 3000 ms\n"
               "[   400] not_executed -> wait until 900\n"
               "[900000] timer -> FAILED and open: deadline, retry_same_call\n");
    p.shorten_attempts = true;
    tell_until(&p, 1000,
               "[     0] start -> send 1, 1000 ms\n"
               "[   400] not_executed -> wait until 900\n"
               "[   900] timer -> send 2 after 500, 100 ms\n"
               "[  1000] unknown -> UNKNOWN: attempt, query_receipt\n");
    tell_until(&p, 49, "[     0] start -> FAILED and open: deadline, retry_same_call\n");
    /* Where something may have run, the callee is fenced while there is time. */
    p = samekey_below();
    tell_until(&p, 3500,
               "[     0] start -> send 1, 3000 ms\n"
               "[  3000] unknown -> ask, 500 ms\n"
               "[  3010] receipt not_received -> fence, 490 ms\n"
               "[  3020] fence failed -> FAILED for good: fenced_at_callee\n");
    p.ask_past_deadline = true;
    tell_until(&p, 3000,
               "[     0] start -> send 1, 3000 ms\n"
               "[  3000] unknown -> ask, 1000 ms\n"
               "[  3010] receipt not_received -> fence, 1000 ms\n"
               "[  3020] fence query_failed -> UNKNOWN: attempt, query_receipt\n");
    /* A resumed call's timer that rang late sends nothing either. */
    p.ask_past_deadline = false;
    tell_until(&p, 3500,
               "[     0] start attempts=1 maybe_ran -> ask, 1000 ms\n"
               "[    10] receipt not_received -> wait until 510\n"
               "[ 99999] timer -> UNKNOWN: attempt, query_receipt\n");
}

static void a_retry_that_is_denied(void **state)
{
    (void)state;
    struct call_policy p = bare();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed -> wait until 510\n"
             "[   510] timer -> send 2 after 500, 3000 ms\n"
             "[   510] denied budget in=1000 -> FAILED and open: retry_budget, retry_same_call in 1000\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] not_executed -> wait until 510\n"
             "[   510] timer -> send 2 after 500, 3000 ms\n"
             "[   510] denied breaker in=700 -> FAILED and open: breaker_open, retry_same_call in 700\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[    10] failed -> wait until 510\n"
             "[   510] timer -> send 2 after 500, 3000 ms\n"
             "[   510] denied budget -> FAILED for good: callee_failed\n");
    /* What may have run is not forgotten over a refusal of our own. */
    p = with_receipts();
    tell(&p, "[     0] start attempts=1 maybe_ran closed=9000 -> ask, 1000 ms\n"
             "[    10] receipt not_received -> wait until 510\n"
             "[   510] timer -> send 2 after 500, 3000 ms\n"
             "[   510] denied breaker in=700 -> UNKNOWN: attempt, query_receipt in 700\n");
    p = samekey_below();
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> wait until 3510\n"
             "[  3510] timer -> send 2 after 500, 3000 ms\n"
             "[  3510] denied budget in=1000 -> fence, 1000 ms\n"
             "[  3520] fence failed -> FAILED for good: fenced_at_callee\n");
    /* Somebody else owns the call now: not ours to fence or to end. */
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[  3000] unknown -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> wait until 3510\n"
             "[  3510] timer -> send 2 after 500, 3000 ms\n"
             "[  3510] denied lost -> UNKNOWN: lease_expired, query_receipt\n");
    tell(&p, "[     0] start -> send 1, 3000 ms\n"
             "[     0] denied lost -> UNKNOWN: lease_expired, query_receipt\n");
}

/* ---- stories: a call taken up again --------------------------------------------------------------------------- */

static void a_call_taken_up_again_asks_first(void **state)
{
    (void)state;
    struct call_policy p = with_receipts();
    /* When the lost attempt's connection was closed is not known: it counts from now. */
    tell(&p, "[     0] start attempts=2 maybe_ran age=5000 -> ask, 1000 ms\n"
             "[    10] receipt not_received -> wait until 3000\n"
             "[  3000] timer -> ask, 1000 ms\n"
             "[  3010] receipt not_received -> wait until 4010\n"
             "[  4010] timer -> send 3 after 1000, 3000 ms\n");
    tell(&p, "[     0] start attempts=2 maybe_ran age=5000 closed=2900 -> ask, 1000 ms\n"
             "[    10] receipt not_received -> wait until 510\n"
             "[   510] timer -> ask, 1000 ms\n"
             "[   520] receipt not_received -> wait until 1520\n"
             "[  1520] timer -> send 3 after 1000, 3000 ms\n");
    p = samekey_below();
    tell(&p, "[     0] start attempts=2 maybe_ran age=5000 -> ask, 1000 ms\n"
             "[    10] receipt not_received -> wait until 510\n"
             "[   510] timer -> send 3 after 500, 3000 ms\n");
    tell(&p, "[     0] start attempts=4 pending age=5000 -> ask, 1000 ms\n"
             "[    10] receipt running -> wait until 510, accepted\n"
             "[   510] timer -> ask, 1000 ms\n"
             "[   520] receipt success -> SUCCESS: receipt\n");
    p = bare();
    tell(&p, "[     0] start attempts=1 maybe_ran -> UNKNOWN: attempt, query_receipt\n");
    tell(&p, "[     0] start attempts=1 pending -> wait until 30000, accepted\n"
             "[ 30000] timer -> UNKNOWN: accepted, query_receipt\n");
    p.runs_once = true;
    tell(&p, "[     0] start attempts=1 maybe_ran -> wait until 500\n"
             "[   500] timer -> send 2 after 500, 3000 ms\n");
    /* Nothing of it ever ran: it goes on with the next number, and has its retries again. */
    p.retries = 1;
    tell(&p, "[     0] start attempts=2 -> send 3, 3000 ms\n"
             "[    10] not_executed -> wait until 510\n"
             "[   510] timer -> send 4 after 500, 3000 ms\n"
             "[   520] not_executed -> FAILED and open: retries_exhausted, retry_same_call\n");
}

/* ---- explorer 1: the rules, judged from outside --------------------------------------------------------------- */

static uint64_t seed_now; /* printed when something breaks */

#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail_msg("seed %llu: %s", (unsigned long long)seed_now, #condition);                             \
    } while (0)

static int64_t up_to(struct prng *r, int64_t most)
{
    return (int64_t)(prng_next(r) % (uint64_t)(most + 1));
}

static bool chance(struct prng *r, unsigned percent)
{
    return prng_next(r) % 100 < percent;
}

static struct call_policy any_policy(struct prng *r)
{
    struct call_policy p = {
        .retries = (int)up_to(r, 4),
        .spares = chance(r, 30) ? (int)up_to(r, 3) : 0,
        .attempt_timeout_ms = 50 + up_to(r, 4000),
        .backoff = {up_to(r, 1000), 1000 + up_to(r, 4000), 0.5, 1},
        .retry_after_max_ms = up_to(r, 20000),
        .has_receipts = chance(r, 70),
        .runs_once = chance(r, 50),
        .has_identity = chance(r, 90),
        .never_after_doubt = chance(r, 10),
        .receipt_timeout_ms = 1 + up_to(r, 1500),
        .receipt_queries = 1 + (int)up_to(r, 5),
        .resend_after_ms = up_to(r, 5000),
        .upstream_key_life_ms = chance(r, 20) ? up_to(r, 10000) : 24 * HOUR_MS,
        .shorten_attempts = chance(r, 50),
        .ask_past_deadline = chance(r, 50),
    };
    p.can_fence = p.has_receipts && chance(r, 50);
    return p;
}

/* What an onlooker writes down. */
struct onlooker {
    int sends, number, queries;
    bool doubt, accepted; /* something may have run; something was accepted */
    bool must_ask;        /* nothing may be sent before a query has returned */
    bool pointless;       /* the last attempt said: never again */
    bool ran_and_failed;
    int64_t asked_at;   /* when the last query began */
    int64_t allowed_at; /* when the query began whose answer permits a send; -1: there is none */
    int64_t not_before, closed, first;
    bool travels;
};

static void look_at_send(const struct onlooker *o, const struct call_policy *p, const struct call_event *ev,
                         const struct call_effect *fx, int64_t deadline)
{
    MUST(fx->attempt == o->number + 1);
    MUST(o->sends < p->retries + 1 + p->spares);
    MUST(fx->is_retry == (o->number > 0));
    MUST(fx->timeout_ms >= 1 && fx->timeout_ms <= p->attempt_timeout_ms);
    if (p->shorten_attempts)
        MUST(fx->timeout_ms >= DEADLINE_ATTEMPT_MIN_MS && fx->timeout_ms <= deadline - ev->now_ms);
    if (ev->type == CALL_EV_START) {
        MUST(!o->doubt);
        return;
    }
    MUST(deadline - ev->now_ms >= DEADLINE_ATTEMPT_MIN_MS || ev->type == CALL_EV_ATTEMPT);
    MUST(p->has_identity);
    MUST(!o->pointless);
    MUST(ev->now_ms >= o->not_before);
    MUST(o->number == 0 || ev->now_ms - o->first <= p->upstream_key_life_ms);
    if (o->must_ask)
        MUST(o->allowed_at >= 0);
    if (!o->doubt)
        return;
    MUST(!p->never_after_doubt);
    MUST(p->runs_once || (p->has_receipts && !o->accepted));
    if (!p->runs_once && o->travels) {
        MUST(ev->now_ms >= o->closed + p->resend_after_ms);
        MUST(o->allowed_at >= o->closed + p->resend_after_ms); /* a look from before would prove nothing */
    }
}

static void look_at_end(const struct onlooker *o, const struct call_event *ev, const struct call_effect *fx)
{
    bool settled = (ev->type == CALL_EV_ANSWER || ev->type == CALL_EV_FENCED);
    switch (fx->state) {
    case STATE_SUCCESS:
        MUST(fx->final);
        MUST((ev->type == CALL_EV_ATTEMPT && ev->outcome == OUTCOME_SUCCESS) ||
             (settled && ev->answer == RECEIPT_ANSWER_SUCCESS));
        break;
    case STATE_FAILED:
        if (o->doubt)
            MUST(fx->final && settled && ev->answer == RECEIPT_ANSWER_FAILED_FINAL);
        if (!fx->final)
            MUST(!o->ran_and_failed && fx->next == NEXT_RETRY_SAME_CALL);
        MUST(!(settled && ev->answer == RECEIPT_ANSWER_SUCCESS));
        break;
    case STATE_UNKNOWN:
        MUST(!fx->final);
        MUST(o->doubt || (ev->type == CALL_EV_DENIED && ev->denial == CALL_DENIED_LOST));
        MUST(!(settled &&
               (ev->answer == RECEIPT_ANSWER_SUCCESS || ev->answer == RECEIPT_ANSWER_FAILED_FINAL)));
        break;
    default:
        fail_msg("seed %llu: not an ending", (unsigned long long)seed_now);
    }
}

static void look_at_event(struct onlooker *o, const struct call_policy *p, const struct call_event *ev)
{
    switch (ev->type) {
    case CALL_EV_START:
        o->number = ev->past.attempts;
        o->doubt = o->must_ask = ev->past.maybe_ran;
        o->accepted = ev->past.pending;
        o->first = ev->now_ms - ev->past.age_ms;
        o->closed = ev->now_ms - ev->past.closed_age_ms;
        o->travels = ev->past.maybe_ran;
        o->must_ask = o->must_ask && p->has_receipts;
        break;
    case CALL_EV_ATTEMPT:
        o->allowed_at = -1;
        o->queries = 0;
        o->pointless = ev->outcome == OUTCOME_REJECTED || !ev->retry_allowed;
        o->not_before = 0;
        if (ev->retry_after_ms >= 0)
            o->not_before = ev->now_ms + (ev->retry_after_ms < p->retry_after_max_ms ? ev->retry_after_ms
                                                                                     : p->retry_after_max_ms);
        if (ev->outcome == OUTCOME_UNKNOWN || ev->outcome == OUTCOME_PENDING)
            o->doubt = true;
        if (ev->outcome == OUTCOME_UNKNOWN) {
            o->travels = true;
            o->closed = ev->now_ms;
        }
        o->accepted = o->accepted || ev->outcome == OUTCOME_PENDING;
        o->ran_and_failed = o->ran_and_failed || ev->outcome == OUTCOME_FAILED;
        o->must_ask =
            p->has_receipts && (o->doubt || (ev->outcome == OUTCOME_NOT_EXECUTED && ev->status == 429) ||
                                (ev->outcome == OUTCOME_NOT_EXECUTED && ev->status == 503));
        break;
    case CALL_EV_ANSWER:
        if (ev->answer == RECEIPT_ANSWER_NOT_RECEIVED || ev->answer == RECEIPT_ANSWER_FAILED_OPEN)
            o->allowed_at = o->asked_at; /* it may have been read as early as that */
        else
            o->allowed_at = -1;
        if (ev->answer == RECEIPT_ANSWER_RUNNING)
            o->doubt = true;
        break;
    case CALL_EV_DENIED:
    case CALL_EV_TIMER:
    case CALL_EV_FENCED:
        break;
    }
}

static void look_at_effect(struct onlooker *o, const struct call_policy *p, const struct call_event *ev,
                           const struct call_effect *fx, int64_t deadline)
{
    switch (fx->type) {
    case CALL_DO_SEND:
        look_at_send(o, p, ev, fx, deadline);
        o->number++;
        if (++o->sends == 1 && o->number == 1)
            o->first = ev->now_ms;
        break;
    case CALL_DO_ASK:
        MUST(p->has_receipts);
        MUST(++o->queries <= p->receipt_queries);
        o->asked_at = ev->now_ms;
        MUST(fx->timeout_ms >= 1 && fx->timeout_ms <= p->receipt_timeout_ms);
        MUST(fx->timeout_ms <= deadline - ev->now_ms || (p->ask_past_deadline && o->queries == 1));
        break;
    case CALL_DO_WAIT:
        MUST(fx->until_ms > ev->now_ms); /* no hot loop */
        MUST(fx->until_ms <= deadline);
        MUST(fx->pending == o->accepted);
        break;
    case CALL_DO_FENCE:
        MUST(p->can_fence && o->doubt && !o->accepted && o->allowed_at >= 0);
        MUST(fx->timeout_ms >= 1 && fx->timeout_ms <= p->receipt_timeout_ms);
        MUST(p->ask_past_deadline || fx->timeout_ms <= deadline - ev->now_ms);
        break;
    case CALL_DO_END:
        look_at_end(o, ev, fx);
        break;
    }
}

static struct call_event any_start(struct prng *r, int64_t now)
{
    struct call_event ev = {.type = CALL_EV_START, .now_ms = now};
    if (chance(r, 30)) {
        ev.past.attempts = 1 + (int)up_to(r, 3);
        ev.past.maybe_ran = chance(r, 70);
        ev.past.pending = ev.past.maybe_ran && chance(r, 30);
        ev.past.age_ms = up_to(r, 8000);
        ev.past.closed_age_ms = chance(r, 50) ? up_to(r, ev.past.age_ms) : 0;
    }
    ev.deadline_ms = chance(r, 3) ? INT64_MAX : now + up_to(r, chance(r, 50) ? 3000 : 40000);
    return ev;
}

static void any_attempt(struct prng *r, struct call_event *ev)
{
    static const enum outcome outcomes[] = {OUTCOME_NOT_EXECUTED, OUTCOME_NOT_EXECUTED, OUTCOME_UNKNOWN,
                                            OUTCOME_UNKNOWN,      OUTCOME_UNKNOWN,      OUTCOME_PENDING,
                                            OUTCOME_FAILED,       OUTCOME_REJECTED,     OUTCOME_SUCCESS};
    static const int statuses[] = {0, 0, 0, 401, 429, 429, 500, 503, 503, 504};
    ev->type = CALL_EV_ATTEMPT;
    ev->outcome = outcomes[up_to(r, COUNT(outcomes) - 1)];
    ev->status = statuses[up_to(r, COUNT(statuses) - 1)];
    ev->retry_allowed = chance(r, 85);
    ev->elsewhere = ev->outcome == OUTCOME_NOT_EXECUTED && ev->status == 0 && chance(r, 50);
    ev->retry_after_ms = !ev->status || chance(r, 60) ? -1 : chance(r, 5) ? INT64_MAX : up_to(r, 10000);
}

static int64_t explore(uint64_t seed)
{
    struct prng r;
    seed_now = seed;
    prng_seed(&r, seed);
    struct call_policy p = any_policy(&r);
    struct call call;
    struct call_effect fx;
    struct onlooker o = {.allowed_at = -1};
    call_init(&call, &p);
    struct call_event ev = any_start(&r, chance(&r, 20) ? 0 : up_to(&r, INT64_C(1) << 40));
    int64_t steps = 0, deadline = ev.deadline_ms;
    /* All sends, each with all its queries, waits and one fence. */
    int64_t bound = (p.retries + 2) * (2 * p.receipt_queries + 4) + 4;
    for (;;) {
        ev.random = prng_double(&r);
        look_at_event(&o, &p, &ev);
        call_step(&call, &ev, &fx);
        MUST(call_invariant(&call));
        look_at_effect(&o, &p, &ev, &fx, deadline);
        MUST(++steps <= bound);
        if (fx.type == CALL_DO_END)
            return steps;
        int64_t now = ev.now_ms;
        ev = (struct call_event){.retry_after_ms = -1, .retry_in_ms = -1};
        switch (fx.type) {
        case CALL_DO_SEND:
            ev.now_ms = now + up_to(&r, fx.timeout_ms);
            if (fx.is_retry && chance(&r, 10)) {
                ev.type = CALL_EV_DENIED;
                ev.denial = (enum call_denial)up_to(&r, CALL_DENIED_LOST);
            } else {
                any_attempt(&r, &ev);
            }
            break;
        case CALL_DO_ASK:
        case CALL_DO_FENCE:
            ev.type = fx.type == CALL_DO_ASK ? CALL_EV_ANSWER : CALL_EV_FENCED;
            ev.now_ms = now + up_to(&r, fx.timeout_ms);
            ev.answer = chance(&r, 40) ? RECEIPT_ANSWER_NOT_RECEIVED
                                       : (enum receipt_answer)up_to(&r, RECEIPT_ANSWER_UNKNOWN);
            break;
        case CALL_DO_WAIT:
            ev.type = CALL_EV_TIMER;
            ev.now_ms =
                fx.until_ms == INT64_MAX ? INT64_MAX : fx.until_ms + (chance(&r, 10) ? up_to(&r, 20000) : 0);
            break;
        case CALL_DO_END:
            break;
        }
    }
}

#define EXPLORER_RUNS 700000

static void no_policy_and_no_luck_breaks_the_rules(void **state)
{
    (void)state;
    int64_t steps = 0;
    for (uint64_t seed = 1; seed <= EXPLORER_RUNS; seed++)
        steps += explore(seed);
    print_message("%d calls, %lld steps\n", EXPLORER_RUNS, (long long)steps);
    assert_true(steps > 2000000);
}

/* ---- explorer 2: a service that tells the truth ---------------------------------------------------------------- */

#define IN_FLIGHT_MAX    16
#define ACCEPTED_WORK_MS 60000 /* what was accepted runs within this, or never */

/* Its requests may arrive late, by resend_after at most; accepted work runs whenever it likes. It remembers keys as long
 * as it says, runs a callId once if it says so, and its receipts are written with the effect. */
struct service {
    bool runs_once, fenced;
    int64_t key_life;
    int64_t runs_at[IN_FLIGHT_MAX]; /* of requests that will run */
    int waiting, effects;
    int64_t effect_at;
};

static void service_until(struct service *s, int64_t now)
{
    for (;;) {
        int next = -1;
        for (int i = 0; i < s->waiting; i++) {
            if (s->runs_at[i] <= now && (next < 0 || s->runs_at[i] < s->runs_at[next]))
                next = i;
        }
        if (next < 0)
            return;
        int64_t at = s->runs_at[next];
        s->runs_at[next] = s->runs_at[--s->waiting];
        if (s->fenced || (s->runs_once && s->effects && at - s->effect_at <= s->key_life))
            continue;
        s->effect_at = at;
        s->effects++;
    }
}

static bool service_sure_to_be_idle(const struct service *s)
{
    return s->waiting == 0;
}

static void play_attempt(struct prng *r, struct service *s, const struct call_policy *p, int64_t sent,
                         int64_t timeout, struct call_event *ev)
{
    int64_t ended = sent + up_to(r, timeout);
    ev->now_ms = ended;
    any_attempt(r, ev);
    service_until(s, sent);
    switch (ev->outcome) {
    case OUTCOME_SUCCESS:
        s->runs_at[s->waiting++] = sent + up_to(r, ended - sent);
        service_until(s, ended);
        break;
    case OUTCOME_UNKNOWN:
        if (chance(r, 60))
            s->runs_at[s->waiting++] = sent + up_to(r, ended - sent + p->resend_after_ms);
        break;
    case OUTCOME_PENDING:
        if (chance(r, 70))
            s->runs_at[s->waiting++] = sent + up_to(r, ACCEPTED_WORK_MS);
        break;
    default:
        break;
    }
}

/* As the service saw it at the moment `asked`, however long the answer took. */
static enum receipt_answer play_query(struct prng *r, struct service *s, int64_t asked, bool fence)
{
    service_until(s, asked);
    if (chance(r, 20))
        return RECEIPT_ANSWER_QUERY_FAILED;
    if (s->effects)
        return RECEIPT_ANSWER_SUCCESS;
    if (s->fenced)
        return RECEIPT_ANSWER_FAILED_FINAL;
    if (fence) {
        if (chance(r, 20))
            return RECEIPT_ANSWER_RUNNING;
        s->fenced = true;
        return chance(r, 80) ? RECEIPT_ANSWER_FAILED_FINAL
                             : RECEIPT_ANSWER_QUERY_FAILED; /* its answer may be lost */
    }
    if (chance(r, 10) && !service_sure_to_be_idle(s))
        return RECEIPT_ANSWER_RUNNING;
    return chance(r, 10)   ? RECEIPT_ANSWER_UNKNOWN
           : chance(r, 10) ? RECEIPT_ANSWER_FAILED_OPEN
                           : RECEIPT_ANSWER_NOT_RECEIVED;
}

static enum call_state live(uint64_t seed)
{
    struct prng r;
    seed_now = seed;
    prng_seed(&r, seed);
    struct call_policy p = any_policy(&r);
    p.has_identity = true;
    if (p.can_fence)
        p.runs_once = true; /* who can fence a callId knows it */
    struct service s = {.runs_once = p.runs_once,
                        .key_life = p.upstream_key_life_ms + p.attempt_timeout_ms + ACCEPTED_WORK_MS};
    struct call call;
    struct call_effect fx;
    call_init(&call, &p);
    struct call_event ev = {.type = CALL_EV_START, .now_ms = up_to(&r, 100000)};
    ev.deadline_ms = ev.now_ms + up_to(&r, 40000);
    for (;;) {
        ev.random = prng_double(&r);
        call_step(&call, &ev, &fx);
        int64_t now = ev.now_ms;
        ev = (struct call_event){.retry_after_ms = -1, .retry_in_ms = -1};
        switch (fx.type) {
        case CALL_DO_SEND:
            play_attempt(&r, &s, &p, now, fx.timeout_ms, &ev);
            break;
        case CALL_DO_ASK:
        case CALL_DO_FENCE:
            ev.type = fx.type == CALL_DO_ASK ? CALL_EV_ANSWER : CALL_EV_FENCED;
            ev.answer = play_query(&r, &s, now, fx.type == CALL_DO_FENCE);
            ev.now_ms = now + up_to(&r, fx.timeout_ms);
            break;
        case CALL_DO_WAIT:
            ev.type = CALL_EV_TIMER;
            ev.now_ms = fx.until_ms;
            break;
        case CALL_DO_END:
            service_until(&s, now);
            if (fx.state == STATE_SUCCESS)
                MUST(s.effects == 1);
            service_until(&s, INT64_MAX); /* whatever still travels arrives */
            MUST(s.effects <= 1);
            if (fx.state == STATE_FAILED)
                MUST(s.effects == 0);
            return fx.state;
        }
    }
}

static void an_honest_service_is_never_made_to_run_it_twice(void **state)
{
    (void)state;
    int64_t endings[STATE_UNKNOWN + 1] = {0};
    for (uint64_t seed = 1; seed <= EXPLORER_RUNS; seed++)
        endings[live(seed)]++;
    print_message("%lld SUCCESS, %lld FAILED, %lld UNKNOWN\n", (long long)endings[STATE_SUCCESS],
                  (long long)endings[STATE_FAILED], (long long)endings[STATE_UNKNOWN]);
    /* Each ending is really met. */
    assert_true(endings[STATE_SUCCESS] > EXPLORER_RUNS / 10);
    assert_true(endings[STATE_FAILED] > EXPLORER_RUNS / 10);
    assert_true(endings[STATE_UNKNOWN] > EXPLORER_RUNS / 20);
}

static void phases_have_names(void **state)
{
    (void)state;
    assert_string_equal(call_phase_text(CALL_IDLE), "idle");
    assert_string_equal(call_phase_text(CALL_ENDED), "ended");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(definite_answers_end_it),
        cmocka_unit_test(what_failed_without_effect_is_repeated_to_the_last),
        cmocka_unit_test(what_never_ran_stays_open),
        cmocka_unit_test(another_upstream_is_tried_at_once),
        cmocka_unit_test(each_answer_of_a_receipt),
        cmocka_unit_test(asking_is_bounded_after_each_attempt),
        cmocka_unit_test(near_the_deadline_asking_ends_unknown),
        cmocka_unit_test(after_429_the_receipt_is_asked_where_there_is_one),
        cmocka_unit_test(a_later_refusal_changes_nothing),
        cmocka_unit_test(only_a_receipt_or_a_fence_ends_a_doubt_as_failed),
        cmocka_unit_test(the_first_request_may_still_be_travelling),
        cmocka_unit_test(without_receipts_only_a_callee_that_runs_once_is_sent_again),
        cmocka_unit_test(without_a_name_nothing_is_sent_again),
        cmocka_unit_test(what_may_have_run_can_be_only_asked_about),
        cmocka_unit_test(nothing_is_sent_past_the_life_of_the_upstreams_key),
        cmocka_unit_test(accepted_work_is_asked_about),
        cmocka_unit_test(accepted_work_is_sent_again_only_where_it_runs_once),
        cmocka_unit_test(fifteen_values_of_retry_after),
        cmocka_unit_test(a_backoff_is_never_shorter_than_asked_for_and_never_zero),
        cmocka_unit_test(no_time_for_another_attempt),
        cmocka_unit_test(a_retry_that_is_denied),
        cmocka_unit_test(a_call_taken_up_again_asks_first),
        cmocka_unit_test(no_policy_and_no_luck_breaks_the_rules),
        cmocka_unit_test(an_honest_service_is_never_made_to_run_it_twice),
        cmocka_unit_test(phases_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
