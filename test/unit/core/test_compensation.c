/* SPDX-License-Identifier: MIT
 *
 * The compensation machine: each way a round can go by name, and then every round there is: all facts, all policies, all
 * answers of a callee, held to CONTRACT sections 3 and 6 typed out once more.
 */
#include "../base/check.h"

#include "core/compensation.h"

#include <stdio.h>

#define ROUNDS    3
#define RESEND_MS 3000
#define LIFE_MS   86400000

/* ---- one round, as it was ------------------------------------------------------------------------------------ */

struct tale {
    struct compensation_policy policy;
    struct compensation_facts facts;
    enum receipt_answer answer, fence; /* what the callee would say */
    enum call_state sent;              /* what the call would become */
    bool sent_final;
    int asks, fences, sends;
    struct compensation_effect end;
};

static void play(struct tale *t)
{
    struct compensation c;
    struct compensation_effect fx;
    struct compensation_event ev = {.type = COMPENSATION_EV_START, .facts = t->facts, .random = 0.5};
    compensation_init(&c, &t->policy);
    t->asks = t->fences = t->sends = 0;
    for (int steps = 0; steps < 8; steps++) {
        compensation_step(&c, &ev, &fx);
        if (!compensation_invariant(&c))
            fail_msg("the invariant does not hold in phase %s", compensation_phase_text(c.phase));
        switch (fx.type) {
        case COMPENSATION_DO_ASK:
            t->asks++;
            ev = (struct compensation_event){.type = COMPENSATION_EV_ANSWER, .answer = t->answer};
            continue;
        case COMPENSATION_DO_FENCE:
            t->fences++;
            ev = (struct compensation_event){.type = COMPENSATION_EV_FENCED, .answer = t->fence};
            continue;
        case COMPENSATION_DO_SEND:
            t->sends++;
            ev = (struct compensation_event){
                .type = COMPENSATION_EV_SENT, .state = t->sent, .final = t->sent_final};
            continue;
        case COMPENSATION_DO_SETTLE:
        case COMPENSATION_DO_WAIT:
        case COMPENSATION_DO_MANUAL:
        case COMPENSATION_DO_CLOSE:
        case COMPENSATION_DO_REVERSE:
            break;
        }
        t->end = fx;
        return;
    }
    fail_msg("a round that does not end");
}

/* An UNKNOWN call in its first round, at a callee with receipts and nothing else. */
static struct tale unclear(enum receipt_answer answer)
{
    struct tale t = {
        .policy = {.rounds = ROUNDS,
                   .has_receipts = true,
                   .resend_after_ms = RESEND_MS,
                   .upstream_key_life_ms = LIFE_MS,
                   .round_gap_ms = 1000,
                   .round_gap_max_ms = 8000},
        .facts = {.round = 1,
                  .state = STATE_UNKNOWN,
                  .maybe_ran = true,
                  .has_identity = true,
                  .slot_free = true,
                  .age_ms = 60000,
                  .closed_age_ms = 60000},
        .answer = answer,
        .fence = RECEIPT_ANSWER_FAILED_FINAL,
        .sent = STATE_SUCCESS,
        .sent_final = true,
    };
    return t;
}

static void expect(const struct tale *t, enum compensation_effect_type type, enum task_status status,
                   int asks, int fences, int sends)
{
    assert_string_equal(compensation_effect_text(t->end.type), compensation_effect_text(type));
    assert_int_equal(t->end.status, status);
    assert_int_equal(t->asks, asks);
    assert_int_equal(t->fences, fences);
    assert_int_equal(t->sends, sends);
    assert_non_null(t->end.why);
}

static void a_clear_receipt_settles(void **state)
{
    (void)state;
    struct tale t = unclear(RECEIPT_ANSWER_SUCCESS);
    play(&t);
    expect(&t, COMPENSATION_DO_SETTLE, TASK_RESOLVED, 1, 0, 0);
    assert_int_equal(t.end.state, STATE_SUCCESS);
    t = unclear(RECEIPT_ANSWER_FAILED_FINAL);
    play(&t);
    expect(&t, COMPENSATION_DO_SETTLE, TASK_RESOLVED, 1, 0, 0);
    assert_int_equal(t.end.state, STATE_FAILED);
    assert_int_equal(t.end.reason, REASON_RECEIPT);
}

static void silence_waits_until_the_last_round_and_then_a_person_looks(void **state)
{
    (void)state;
    for (int round = 1; round <= ROUNDS + 1; round++) {
        struct tale t = unclear(RECEIPT_ANSWER_QUERY_FAILED);
        t.facts.round = round;
        play(&t);
        if (round < ROUNDS)
            expect(&t, COMPENSATION_DO_WAIT, TASK_PENDING, 1, 0, 0);
        else
            expect(&t, COMPENSATION_DO_MANUAL, TASK_MANUAL, round == ROUNDS, 0, 0);
    }
}

static void what_never_arrived_is_fenced_where_the_callee_can(void **state)
{
    (void)state;
    struct tale t = unclear(RECEIPT_ANSWER_NOT_RECEIVED);
    play(&t);
    expect(&t, COMPENSATION_DO_WAIT, TASK_PENDING, 1, 0, 0); /* it cannot, so it may still arrive */
    t.facts.round = ROUNDS;
    play(&t);
    expect(&t, COMPENSATION_DO_MANUAL, TASK_MANUAL, 1, 0, 0);
    t.facts.round = 1;
    t.policy.can_fence = true;
    play(&t);
    expect(&t, COMPENSATION_DO_SETTLE, TASK_RESOLVED, 1, 1, 0);
    assert_int_equal(t.end.state, STATE_FAILED);
    assert_int_equal(t.end.reason, REASON_FENCED_AT_CALLEE);
    t.fence = RECEIPT_ANSWER_SUCCESS; /* it overtook the fence */
    play(&t);
    expect(&t, COMPENSATION_DO_SETTLE, TASK_RESOLVED, 1, 1, 0);
    assert_int_equal(t.end.state, STATE_SUCCESS);
    t.fence = RECEIPT_ANSWER_RUNNING;
    play(&t);
    expect(&t, COMPENSATION_DO_WAIT, TASK_PENDING, 1, 1, 0);
    t.facts.pending = true;
    play(&t);
    expect(&t, COMPENSATION_DO_WAIT, TASK_PENDING, 1, 0, 0);
}

static void what_is_still_wanted_is_sent_when_a_repeat_is_safe(void **state)
{
    (void)state;
    struct tale t = unclear(RECEIPT_ANSWER_NOT_RECEIVED);
    t.policy.still_wanted = t.policy.can_fence = t.facts.has_request = true;
    play(&t);
    expect(&t, COMPENSATION_DO_CLOSE, TASK_RESOLVED, 1, 0, 1);
    t.sent = STATE_UNKNOWN;
    t.sent_final = false;
    play(&t);
    expect(&t, COMPENSATION_DO_WAIT, TASK_PENDING, 1, 0, 1);
    t.facts.closed_age_ms = RESEND_MS - 1;
    play(&t);
    assert_int_equal(t.sends, 0);
    t.policy.runs_once = true;
    play(&t);
    assert_int_equal(t.sends, 1);
    t.facts.slot_free = false; /* another call of this key runs */
    play(&t);
    assert_int_equal(t.sends, 0);
    assert_int_equal(t.fences, 1);
}

static void a_reversal_is_sent_and_asked_about_not_repeated(void **state)
{
    (void)state;
    struct tale t = unclear(RECEIPT_ANSWER_SUCCESS);
    t.facts.cause = TASK_CAUSE_REVERSAL;
    t.facts.has_request = true;
    t.facts.state = STATE_RECEIVED;
    t.facts.never_sent = true;
    t.facts.maybe_ran = false;
    play(&t);
    expect(&t, COMPENSATION_DO_CLOSE, TASK_REVERSED, 0, 0, 1);
    t.sent = STATE_UNKNOWN; /* its reply was lost */
    play(&t);
    expect(&t, COMPENSATION_DO_WAIT, TASK_PENDING, 0, 0, 1);
    t.facts.state = STATE_UNKNOWN;
    t.facts.never_sent = false;
    t.facts.maybe_ran = true;
    t.facts.round = 2;
    play(&t);
    expect(&t, COMPENSATION_DO_SETTLE, TASK_REVERSED, 1, 0, 0);
    t.answer = RECEIPT_ANSWER_FAILED_FINAL; /* nothing was undone: a person has to know */
    play(&t);
    expect(&t, COMPENSATION_DO_SETTLE, TASK_MANUAL, 1, 0, 0);
}

static void a_contradiction_that_stays_goes_to_a_person_at_once(void **state)
{
    (void)state;
    struct tale t = unclear(RECEIPT_ANSWER_SUCCESS);
    t.facts.cause = TASK_CAUSE_CONTRADICTED;
    t.facts.state = STATE_FAILED;
    t.facts.final = true;
    play(&t);
    expect(&t, COMPENSATION_DO_MANUAL, TASK_MANUAL, 1, 0, 0);
    assert_true(t.end.differs);
    t.facts.state = STATE_SUCCESS;
    play(&t);
    expect(&t, COMPENSATION_DO_CLOSE, TASK_RESOLVED, 1, 0, 0);
    assert_false(t.end.differs);
}

static void a_failed_call_is_fenced_and_then_reversed(void **state)
{
    (void)state;
    struct tale t = unclear(RECEIPT_ANSWER_FAILED_FINAL);
    t.facts.cause = TASK_CAUSE_FAILED;
    t.facts.state = STATE_FAILED;
    t.facts.final = true;
    t.policy.can_fence = t.policy.has_reversal = true;
    play(&t);
    expect(&t, COMPENSATION_DO_REVERSE, TASK_RESOLVED, 1, 1, 0);
    t.policy.can_fence = false; /* no fence, no reversal */
    play(&t);
    expect(&t, COMPENSATION_DO_CLOSE, TASK_RESOLVED, 1, 0, 0);
    t.answer = RECEIPT_ANSWER_SUCCESS;
    play(&t);
    expect(&t, COMPENSATION_DO_MANUAL, TASK_MANUAL, 1, 0, 0);
    assert_true(t.end.differs);
}

static void gaps_double_up_to_their_bound_with_jitter(void **state)
{
    (void)state;
    struct compensation_policy p = {.round_gap_ms = 1000, .round_gap_max_ms = 5000};
    static const int64_t middle[] = {1000, 2000, 4000, 5000, 5000};
    for (int round = 0; round < 5; round++) {
        assert_int_equal(compensation_gap_ms(&p, round, 0.5), middle[round]);
        assert_true(compensation_gap_ms(&p, round, 0) >= middle[round] * 9 / 10 - 1);
        assert_true(compensation_gap_ms(&p, round, 0.999) <= 5000);
    }
    assert_true(compensation_gap_ms(&p, 0, 0.999) > 1000);
    p.round_gap_ms = p.round_gap_max_ms = 0;
    assert_int_equal(compensation_gap_ms(&p, 0, 0), 1);
    p.round_gap_max_ms = INT64_MAX;
    p.round_gap_ms = INT64_MAX / 2;
    assert_true(compensation_gap_ms(&p, 60, 0.999) > 0);
}

/* ---- every round there is ------------------------------------------------------------------------------------- */

static const char *judge(const struct tale *t)
{
    const struct compensation_facts *f = &t->facts;
    const struct compensation_policy *p = &t->policy;
    enum compensation_effect_type end = t->end.type;
    bool absent = t->answer == RECEIPT_ANSWER_NOT_RECEIVED || t->answer == RECEIPT_ANSWER_FAILED_OPEN;
    bool unknown = f->state == STATE_UNKNOWN && f->maybe_ran;
    if (t->asks + t->fences + t->sends && f->round > p->rounds)
        return "something was done after the last round";
    if (t->asks > 1 || t->fences > 1 || t->sends > 1)
        return "a round did a thing twice";
    if (t->asks && !p->has_receipts)
        return "nobody can be asked";
    if (t->fences && (!p->can_fence || f->pending || t->sends || !t->asks))
        return "a fence that must not be";
    if (t->fences && unknown && !absent)
        return "a fence that no receipt permits";
    if (f->state == STATE_PROCESSING && t->asks + t->fences + t->sends)
        return "somebody else is at work";
    if (t->sends && unknown) {
        bool wanted = f->cause == TASK_CAUSE_REVERSAL || (f->cause == TASK_CAUSE_UNKNOWN && p->still_wanted);
        if (!wanted || !f->has_identity || !f->slot_free || f->age_ms > p->upstream_key_life_ms)
            return "sent again against the route's will";
        if (t->asks ? !absent : p->has_receipts)
            return "sent before its receipt was asked";
        if (!p->runs_once && (!t->asks || f->pending || f->closed_age_ms < p->resend_after_ms))
            return "sent again where a repeat is not safe";
    }
    if (t->sends && (!f->has_request || f->state == STATE_SUCCESS || (f->state == STATE_FAILED && f->final)))
        return "sent what cannot or must not be sent";
    if (end == COMPENSATION_DO_SETTLE) {
        if (f->state != STATE_UNKNOWN)
            return "settled what has an ending";
        bool said_success = (t->asks && t->answer == RECEIPT_ANSWER_SUCCESS) ||
                            (t->fences && t->fence == RECEIPT_ANSWER_SUCCESS);
        bool said_failed = (t->asks && t->answer == RECEIPT_ANSWER_FAILED_FINAL) ||
                           (t->fences && t->fence == RECEIPT_ANSWER_FAILED_FINAL);
        if (t->end.state == STATE_SUCCESS ? !said_success : !said_failed)
            return "settled without a word of the callee";
    }
    if (end == COMPENSATION_DO_WAIT && f->round >= p->rounds && f->state != STATE_PROCESSING &&
        !(t->sends && t->sent == STATE_PROCESSING))
        return "a task that lives for ever";
    if (end == COMPENSATION_DO_WAIT && t->end.wait_ms < 1)
        return "a round that is due at once";
    bool undone = f->cause == TASK_CAUSE_REVERSAL &&
                  (f->state == STATE_SUCCESS || (t->sends && t->sent == STATE_SUCCESS) ||
                   (end == COMPENSATION_DO_SETTLE && t->end.state == STATE_SUCCESS));
    if ((t->end.status == TASK_REVERSED) != undone)
        return "REVERSED without the reversal's own success, or not in spite of it";
    if (end == COMPENSATION_DO_REVERSE &&
        (!t->fences || t->fence != RECEIPT_ANSWER_FAILED_FINAL || f->state != STATE_FAILED))
        return "a reversal without a fence";
    if ((end == COMPENSATION_DO_MANUAL) != (t->end.status == TASK_MANUAL) && end != COMPENSATION_DO_SETTLE)
        return "MANUAL is not MANUAL";
    return NULL;
}

static void every_round_keeps_the_rules(void **state)
{
    (void)state;
    static const struct {
        enum call_state state;
        bool final;
    } rows[] = {{STATE_RECEIVED, false}, {STATE_PROCESSING, false}, {STATE_SUCCESS, true},
                {STATE_FAILED, true},    {STATE_FAILED, false},     {STATE_UNKNOWN, false}};
    static const enum receipt_answer answers[] = {RECEIPT_ANSWER_QUERY_FAILED, RECEIPT_ANSWER_NOT_RECEIVED,
                                                  RECEIPT_ANSWER_RUNNING,      RECEIPT_ANSWER_SUCCESS,
                                                  RECEIPT_ANSWER_FAILED_FINAL, RECEIPT_ANSWER_FAILED_OPEN,
                                                  RECEIPT_ANSWER_UNKNOWN};
    enum { ROWS = sizeof rows / sizeof *rows, ANSWERS = sizeof answers / sizeof *answers, FLAGS = 11 };
    long played = 0, by_effect[8] = {0};
    for (int cause = TASK_CAUSE_UNKNOWN; cause <= TASK_CAUSE_REVERSAL; cause++)
        for (int round = 1; round <= ROUNDS + 1; round++)
            for (int r = 0; r < ROWS; r++)
                for (unsigned flags = 0; flags < 1u << FLAGS; flags++)
                    for (int a = 0; a < ANSWERS * 2; a++) {
                        struct tale t = unclear(answers[a % ANSWERS]);
#define FLAG(n) ((flags >> (n)&1) != 0)
                        t.facts.cause = (enum task_cause)cause;
                        t.facts.round = round;
                        t.facts.state = rows[r].state;
                        t.facts.final = rows[r].final;
                        t.facts.maybe_ran = rows[r].state == STATE_UNKNOWN;
                        t.facts.never_sent = rows[r].state == STATE_RECEIVED;
                        t.facts.pending = FLAG(0) && t.facts.maybe_ran;
                        t.facts.has_request = FLAG(1);
                        t.facts.has_identity = FLAG(2);
                        t.facts.slot_free = FLAG(3);
                        t.facts.age_ms = FLAG(4) ? LIFE_MS + 1 : LIFE_MS;
                        t.facts.closed_age_ms = FLAG(5) ? RESEND_MS : RESEND_MS - 1;
                        t.policy.has_receipts = FLAG(6);
                        t.policy.can_fence = FLAG(7);
                        t.policy.runs_once = FLAG(8);
                        t.policy.still_wanted = FLAG(9);
                        t.policy.has_reversal = FLAG(10);
#undef FLAG
                        t.fence = answers[(a + round) % ANSWERS];
                        t.sent = a < ANSWERS ? STATE_SUCCESS
                                 : flags % 3 ? (round & 1) ? STATE_UNKNOWN : STATE_FAILED
                                             : STATE_PROCESSING;
                        t.sent_final = t.sent == STATE_SUCCESS || (t.sent == STATE_FAILED && r & 1);
                        play(&t);
                        const char *wrong = judge(&t);
                        if (wrong)
                            fail_msg("%s: cause %s, round %d, state %s, flags %x, answer %s, end %s", wrong,
                                     task_cause_text(t.facts.cause), round, state_text(rows[r].state), flags,
                                     receipt_answer_text(t.answer), compensation_effect_text(t.end.type));
                        by_effect[t.end.type]++;
                        played++;
                    }
    assert_true(played > 1000000);
    for (int type = COMPENSATION_DO_SETTLE; type <= COMPENSATION_DO_REVERSE; type++)
        assert_true(by_effect[type] > 0);
}

static void words_are_read_back(void **state)
{
    (void)state;
    enum task_status status;
    for (int i = TASK_PENDING; i <= TASK_CLOSED; i++) {
        assert_true(task_status_parse(slice_text(task_status_text((enum task_status)i)), &status));
        assert_int_equal(status, i);
        assert_true(strlen(task_status_sentence((enum task_status)i)) > 10);
    }
    assert_false(task_status_parse(slice_text("pending"), &status));
    assert_string_equal(task_tell_text(TASK_TELL_GIVEN_UP), "given_up");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clear_receipt_settles),
        cmocka_unit_test(silence_waits_until_the_last_round_and_then_a_person_looks),
        cmocka_unit_test(what_never_arrived_is_fenced_where_the_callee_can),
        cmocka_unit_test(what_is_still_wanted_is_sent_when_a_repeat_is_safe),
        cmocka_unit_test(a_reversal_is_sent_and_asked_about_not_repeated),
        cmocka_unit_test(a_contradiction_that_stays_goes_to_a_person_at_once),
        cmocka_unit_test(a_failed_call_is_fenced_and_then_reversed),
        cmocka_unit_test(gaps_double_up_to_their_bound_with_jitter),
        cmocka_unit_test(every_round_keeps_the_rules),
        cmocka_unit_test(words_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
