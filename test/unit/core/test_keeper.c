/* SPDX-License-Identifier: MIT
 *
 * The keeper machine: each edge of its diagram by name, and then all of a small world at once: every kind of row under
 * this callId, every kind of row that holds the key, every kind of arrival, against the order of CONTRACT section 5
 * typed out once more.
 */
#include "../base/check.h"

#include "core/keeper.h"

#include <stdio.h>

#define NOW_MS    INT64_C(1772366400000)
#define COVERS_MS (NOW_MS - 86400000)

/* ---- a small world ------------------------------------------------------------------------------------------- */

/* What a row can be. */
enum kind {
    NOBODY,
    RECEIVED,
    PROCESSING,
    SUCCEEDED,
    REJECTED,  /* FAILED, final */
    OPEN,      /* FAILED, not final */
    FENCED,    /* given up by its caller, after it had come */
    FENCE_ROW, /* given up before it came: a row without a request */
    UNKNOWN,
    KINDS
};
static const char *const kind_names[] = {"nobody", "received", "processing", "succeeded", "rejected",
                                         "open",   "fenced",   "fence row",  "unknown"};

/* A row, or who arrives, seen as a person would: what it is, who asks, and what the request says. */
struct subject {
    enum kind kind;
    int credential; /* 0: none */
    int key;        /* 0: none */
    int scope, content, rules;
    bool expired, reversed;
};

static struct digest32 print_of(int content, int rules)
{
    struct digest32 d = {{(uint8_t)content, (uint8_t)rules, 7}};
    return d;
}

static struct digest digest_of(int scope, int key)
{
    struct digest d = {{(uint8_t)scope, (uint8_t)key}};
    return d;
}

static const char *const rule_texts[] = {"body", "fields a", "fields b"};
static const char *const scope_texts[] = {"orders /orders", "orders /orders/{id}"};

static struct call_row row_of(const struct subject *s, int64_t id)
{
    static const struct {
        enum call_state state;
        bool final;
        enum reason reason;
    } kinds[KINDS] = {
        [RECEIVED] = {STATE_RECEIVED, false, REASON_NONE},
        [PROCESSING] = {STATE_PROCESSING, false, REASON_NONE},
        [SUCCEEDED] = {STATE_SUCCESS, true, REASON_NONE},
        [REJECTED] = {STATE_FAILED, true, REASON_REJECTED},
        [OPEN] = {STATE_FAILED, false, REASON_RETRIES},
        [FENCED] = {STATE_FAILED, true, REASON_FENCED},
        [FENCE_ROW] = {STATE_FAILED, true, REASON_FENCED},
        [UNKNOWN] = {STATE_UNKNOWN, false, REASON_ATTEMPT},
    };
    struct call_row row = {0};
    if (s->kind == NOBODY)
        return row;
    row.id = id;
    row.state = kinds[s->kind].state;
    row.final = kinds[s->kind].final;
    row.reason = kinds[s->kind].reason;
    row.has_credential = s->credential != 0;
    row.credential.bytes[0] = (uint8_t)s->credential;
    row.has_key = s->key != 0;
    row.operation_digest = digest_of(s->scope, s->key);
    row.scope = slice_text(scope_texts[s->scope]);
    row.key_expires_ms = s->expired ? NOW_MS : INT64_MAX;
    row.reversed_by = slice_text(s->reversed ? "undo-1" : "");
    if (s->kind != FENCE_ROW) {
        row.has_fingerprint = true;
        row.fingerprint_version = 1 + s->rules;
        row.fingerprint_rules = slice_text(rule_texts[s->rules]);
        row.fingerprint = print_of(s->content, s->rules);
    }
    return row;
}

struct scene {
    struct subject caller; /* its rules are today's: 0 */
    struct subject call, holder;
    bool holder_is_call, holder_asked, suspect, block;
    int undone; /* what was read of the holder's reversal: 0 nothing, then as undone_states */
    int age;    /* of the callId: 0 says nothing, 1 younger than the store's memory, 2 older */
};

static const enum call_state undone_states[] = {STATE_NOT_RECEIVED, STATE_PROCESSING, STATE_SUCCESS,
                                                STATE_FAILED, STATE_UNKNOWN};
#define UNDONE COUNT(undone_states)

static const char *said(const struct verdict *v)
{
    static char text[64];
    snprintf(text, sizeof text, "%s%s%s", keeper_verb_text(v->verb), v->verb == KEEPER_REFUSE ? " " : "",
             v->verb == KEEPER_REFUSE ? problem_slug(v->problem) : "");
    return text;
}

/* Asks the keeper, comparing again where it wants that. */
static const char *keeper_says(const struct scene *s, struct verdict *v)
{
    static const char suspect_id[] = "ord-7";
    struct arrival a = {
        .has_key = s->caller.key != 0,
        .operation = digest_of(s->caller.scope, s->caller.key),
        .has_credential = s->caller.credential != 0,
        .scope = slice_text(scope_texts[s->caller.scope]),
        .fingerprint = print_of(s->caller.content, 0),
        .fingerprint_version = 1,
        .fingerprint_rules = slice_text(rule_texts[0]),
        .id_time_ms = s->age == 0   ? 0
                      : s->age == 1 ? COVERS_MS
                                    : COVERS_MS - 1,
        .block_suspects = s->block,
        .holder_asked = s->holder_asked,
        .reversal_read = s->undone > 0,
        .reversal = undone_states[s->undone],
    };
    a.credential.bytes[0] = (uint8_t)s->caller.credential;
    struct rows rows = {.call = row_of(&s->call, 11), .now_ms = NOW_MS, .refuse_before_ms = COVERS_MS};
    rows.holder = s->holder_is_call ? rows.call : row_of(&s->holder, 12);
    if (s->suspect) {
        rows.suspect.id = 13;
        rows.suspect.call_id = slice_text(suspect_id);
    }
    for (int round = 0; round < 4; round++) {
        keeper_arrive(&a, &rows, v);
        if (v->verb != KEEPER_COMPARE_AGAIN)
            return said(v);
        a.fingerprint_version = v->compare_version;
        a.fingerprint_rules = v->compare_rules;
        a.fingerprint = print_of(s->caller.content, v->compare_version - 1);
    }
    return "compares for ever";
}

/* The page, read from top to bottom. */
static const char *page_says(const struct scene *s)
{
    const struct subject *me = &s->caller, *call = &s->call;
    bool key_known = me->key && !s->holder_is_call && s->holder.kind != NOBODY;
    const struct subject *holder = &s->holder;
    if (call->kind != NOBODY) {
        if (call->credential != me->credential)
            return "refuse credential-mismatch";
        if (call->kind != FENCE_ROW &&
            (call->key != me->key || call->scope != me->scope || call->content != me->content))
            return "refuse call-id-reused";
        if (call->kind == FENCED || call->kind == FENCE_ROW)
            return "refuse call-fenced";
        if (call->kind == SUCCEEDED || call->kind == REJECTED)
            return "replay";
        if (call->kind == RECEIVED || call->kind == PROCESSING)
            return "join-call";
        if (call->kind == UNKNOWN) {
            bool busy = key_known && holder->kind != REJECTED && holder->kind != OPEN &&
                        holder->kind != FENCED && holder->kind != FENCE_ROW;
            return busy ? "refuse outcome-unknown" : "resume";
        }
    }
    if (key_known) {
        if (holder->credential != me->credential)
            return "refuse credential-mismatch";
        if (holder->kind != FENCE_ROW && holder->content != me->content)
            return "refuse key-reused";
        if (holder->kind == SUCCEEDED)
            return holder->expired     ? "refuse key-expired"
                   : !holder->reversed ? "attach"
                   : s->undone == 0    ? "ask-reversal"
                   : s->undone == 2    ? "refuse operation-reversed"
                   : s->undone == 3    ? "attach"
                                       : "refuse operation-in-progress";
        if (holder->kind == RECEIVED || holder->kind == PROCESSING)
            return "join-operation";
        if (holder->kind == UNKNOWN)
            return s->holder_asked ? "refuse outcome-unknown" : "ask-holder";
    }
    if (call->kind == NOBODY && s->age == 2)
        return "refuse outcome-unknown"; /* its receipt may be gone: it is not run, whoever holds the key */
    if (key_known && holder->reversed && s->undone != 3)
        return s->undone == 0   ? "ask-reversal"
               : s->undone == 2 ? "refuse operation-reversed"
                                : "refuse operation-in-progress";
    if (call->kind != NOBODY || key_known)
        return "take";
    if (s->suspect && s->block)
        return "refuse suspected-duplicate";
    return "claim";
}

static void judge(const struct scene *s, int64_t *count)
{
    struct verdict v;
    const char *wanted = page_says(s), *got = keeper_says(s, &v);
    if (strcmp(wanted, got) != 0)
        fail_msg("this callId: %s, the key: %s%s: the page says %s, the keeper %s", kind_names[s->call.kind],
                 s->holder_is_call ? "the same" : kind_names[s->holder.kind],
                 s->holder_asked ? " (asked)" : "", wanted, got);
    /* Promise 2, seen from outside: nothing is sent while somebody else's work on the key is not over. */
    if (v.verb == KEEPER_CLAIM || v.verb == KEEPER_TAKE || v.verb == KEEPER_RESUME) {
        enum kind other = s->caller.key && !s->holder_is_call ? s->holder.kind : NOBODY;
        if (other == RECEIVED || other == PROCESSING || other == UNKNOWN || other == SUCCEEDED)
            fail_msg("%s while the key's holder is %s", got, kind_names[other]);
        if (s->age == 2 && s->call.kind == NOBODY)
            fail_msg("%s of a callId that may have been forgotten", got);
    }
    /* A suspect is named exactly where the call runs beside it, or is refused for it. */
    bool named = v.suspect.len > 0;
    bool flagged =
        s->suspect && (strcmp(got, "claim") == 0 || strcmp(got, "refuse suspected-duplicate") == 0);
    assert_int_equal(named, flagged);
    ++*count;
}

/* All holders of the key, for one caller and one row under its callId. */
static void judge_holders(struct scene *s, int64_t *count)
{
    for (int more = 0; more < 24; more++) {
        s->holder_asked = more & 1;
        s->suspect = more & 2;
        s->block = more & 4;
        s->age = more / 8;
        s->holder = (struct subject){.kind = NOBODY};
        s->holder_is_call = s->call.kind != NOBODY && s->call.key == s->caller.key && s->call.key;
        judge(s, count);
        s->holder_is_call = false;
        judge(s, count);
        if (!s->caller.key)
            continue;
        for (int kind = RECEIVED; kind < KINDS; kind++) {
            for (int bits = 0; bits < 16; bits++) {
                for (int rules = 0; rules < 3; rules++) {
                    s->holder = (struct subject){.kind = (enum kind)kind,
                                                 .credential = bits & 1 ? 2 : s->caller.credential,
                                                 .key = s->caller.key,
                                                 .scope = s->caller.scope,
                                                 .content = bits & 2 ? 2 : 1,
                                                 .rules = rules,
                                                 .expired = bits & 4,
                                                 .reversed = bits & 8};
                    /* Cannot be: who took the key over from this call was compared with it under its rules. */
                    if (s->call.kind != NOBODY && s->call.rules != rules &&
                        s->holder.content != s->caller.content)
                        continue;
                    size_t undone = s->holder.reversed ? UNDONE : 1;
                    for (s->undone = 0; (size_t)s->undone < undone; s->undone++)
                        judge(s, count);
                    s->undone = 0;
                }
            }
        }
    }
}

static void every_scene_of_a_small_world(void **state)
{
    (void)state;
    int64_t count = 0;
    for (int who = 0; who < 4; who++) {
        struct scene s = {.caller = {.credential = who & 1, .key = who & 2 ? 1 : 0, .content = 1}};
        s.call = (struct subject){.kind = NOBODY};
        judge_holders(&s, &count);
        for (int kind = RECEIVED; kind < KINDS; kind++) {
            for (int bits = 0; bits < 16; bits++) {
                for (int rules = 0; rules < 3; rules++) {
                    int other_key = !s.caller.key ? 1 : rules == 1 ? 0 : 2;
                    s.call = (struct subject){.kind = (enum kind)kind,
                                              .credential = bits & 1 ? 2 : s.caller.credential,
                                              .key = bits & 2 ? other_key : s.caller.key,
                                              .scope = bits & 4 ? 1 : 0,
                                              .content = bits & 8 ? 2 : 1,
                                              .rules = rules};
                    judge_holders(&s, &count);
                }
            }
        }
    }
    print_message("%lld scenes\n", (long long)count);
    assert_true(count > 1000000);
}

/* ---- the diagram, edge by edge --------------------------------------------------------------------------------- */

static const struct subject me = {.key = 1, .content = 1};

static struct subject like_me(enum kind kind)
{
    struct subject s = me;
    s.kind = kind;
    return s;
}

static void edge(struct scene s, const char *wanted)
{
    struct verdict v;
    s.caller = me;
    assert_string_equal(keeper_says(&s, &v), wanted);
}

static void every_edge_of_the_diagram(void **state)
{
    (void)state;
    edge((struct scene){.age = 1}, "claim");
    edge((struct scene){.suspect = true}, "claim");
    edge((struct scene){.suspect = true, .block = true}, "refuse suspected-duplicate");
    edge((struct scene){.age = 2}, "refuse outcome-unknown");

    edge((struct scene){.call = like_me(FENCED), .holder_is_call = true}, "refuse call-fenced");
    edge((struct scene){.call = like_me(FENCE_ROW)}, "refuse call-fenced");
    edge((struct scene){.call = like_me(SUCCEEDED), .holder_is_call = true}, "replay");
    edge((struct scene){.call = like_me(REJECTED), .holder_is_call = true}, "replay");
    edge((struct scene){.call = like_me(PROCESSING), .holder_is_call = true}, "join-call");
    edge((struct scene){.call = like_me(RECEIVED), .holder_is_call = true}, "join-call");
    edge((struct scene){.call = like_me(UNKNOWN), .holder_is_call = true}, "resume");
    edge((struct scene){.call = like_me(OPEN), .holder_is_call = true}, "take");
    edge((struct scene){.call = like_me(OPEN), .age = 2}, "take"); /* known, so not forgotten */

    edge((struct scene){.holder = like_me(SUCCEEDED)}, "attach");
    edge((struct scene){.holder = like_me(PROCESSING)}, "join-operation");
    edge((struct scene){.holder = like_me(RECEIVED)}, "join-operation");
    edge((struct scene){.holder = like_me(UNKNOWN)}, "ask-holder");
    edge((struct scene){.holder = like_me(UNKNOWN), .holder_asked = true}, "refuse outcome-unknown");
    edge((struct scene){.holder = like_me(REJECTED)}, "take");
    edge((struct scene){.holder = like_me(OPEN)}, "take");
    edge((struct scene){.holder = like_me(FENCED)}, "take");
    edge((struct scene){.holder = like_me(OPEN), .age = 2}, "refuse outcome-unknown");
    edge((struct scene){.call = like_me(OPEN), .holder = like_me(SUCCEEDED)}, "attach");
    edge((struct scene){.call = like_me(OPEN), .holder = like_me(PROCESSING)}, "join-operation");
    edge((struct scene){.call = like_me(UNKNOWN), .holder = like_me(SUCCEEDED)}, "refuse outcome-unknown");

    struct subject old = like_me(SUCCEEDED);
    old.reversed = true;
    edge((struct scene){.holder = old}, "ask-reversal");
    edge((struct scene){.holder = old, .undone = 1}, "refuse operation-in-progress");
    edge((struct scene){.holder = old, .undone = 2}, "refuse operation-reversed");
    edge((struct scene){.holder = old, .undone = 3}, "attach"); /* it failed: the effect stands */
    edge((struct scene){.holder = old, .undone = 4}, "refuse operation-in-progress");
    edge((struct scene){.call = old, .holder_is_call = true}, "replay"); /* a callId keeps its ending */
    old.expired = true;
    edge((struct scene){.holder = old}, "refuse key-expired");
    edge((struct scene){.call = old, .holder_is_call = true}, "replay");

    struct subject given_up =
        like_me(REJECTED); /* on_failed = compensate: what never took effect is undone too */
    given_up.reversed = true;
    edge((struct scene){.holder = given_up}, "ask-reversal");
    edge((struct scene){.holder = given_up, .undone = 1}, "refuse operation-in-progress");
    edge((struct scene){.holder = given_up, .undone = 2}, "refuse operation-reversed");
    edge((struct scene){.holder = given_up, .undone = 3}, "take");
    edge((struct scene){.call = given_up, .holder_is_call = true}, "replay");

    /* What comes under a reversal's callId is another request, however the reversal went. */
    for (enum kind kind = RECEIVED; kind < KINDS; kind++) {
        struct subject undo = like_me(kind);
        struct rows rows = {.call = row_of(&undo, 11), .now_ms = NOW_MS};
        struct arrival arrival = {.has_credential = undo.credential != 0,
                                  .credential = rows.call.credential,
                                  .has_key = true,
                                  .operation = rows.call.operation_digest,
                                  .scope = rows.call.scope};
        struct verdict verdict;
        rows.call.has_fingerprint = false;
        rows.call.reverses = slice_text("undone-1");
        keeper_arrive(&arrival, &rows, &verdict);
        assert_int_equal(verdict.verb, KEEPER_REFUSE);
        assert_int_equal(verdict.problem, PROBLEM_CALL_ID_REUSED);
    }

    struct subject stranger = like_me(PROCESSING);
    stranger.content = 2;
    edge((struct scene){.call = stranger}, "refuse call-id-reused"); /* before "in progress" */
    edge((struct scene){.holder = stranger}, "refuse key-reused");
    stranger.credential = 2;
    edge((struct scene){.call = stranger}, "refuse credential-mismatch"); /* and nothing of it is shown */
    edge((struct scene){.holder = stranger}, "refuse credential-mismatch");
    struct subject swapped = like_me(SUCCEEDED);
    swapped.key = 2;
    edge((struct scene){.call = swapped}, "refuse call-id-reused");
}

/* Rules of comparison that changed at a reload: the stored ones decide. */
static void a_repeat_is_compared_under_the_stored_rules(void **state)
{
    (void)state;
    struct subject then = like_me(SUCCEEDED);
    then.rules = 2;
    edge((struct scene){.call = then, .holder_is_call = true}, "replay");
    edge((struct scene){.holder = then}, "attach");
    then.content = 2;
    edge((struct scene){.call = then, .holder_is_call = true}, "refuse call-id-reused");
    edge((struct scene){.holder = then}, "refuse key-reused");
    /* This call under old rules, and another that took its key over under new ones. */
    struct subject mine = like_me(OPEN);
    mine.rules = 1;
    then = like_me(SUCCEEDED);
    then.rules = 2;
    edge((struct scene){.call = mine, .holder = then}, "attach");
}

static void a_call_without_a_key_is_its_own_operation(void **state)
{
    (void)state;
    struct scene s = {.caller = {.content = 1}, .holder = {.kind = PROCESSING, .content = 1}};
    struct verdict v;
    assert_string_equal(keeper_says(&s, &v), "claim"); /* whatever stands under "holder" is not its */
    s.call = (struct subject){.kind = OPEN, .content = 1};
    assert_string_equal(keeper_says(&s, &v), "take");
}

static void how_an_ended_row_is_answered(void **state)
{
    (void)state;
    for (int kind = RECEIVED; kind < KINDS; kind++) {
        for (int kept = 0; kept < 4; kept++) {
            struct subject s = like_me((enum kind)kind);
            struct call_row row = row_of(&s, 1);
            row.has_result = kept & 1;
            row.body_kept = kept & 2;
            enum problem wanted = PROBLEM_CALL_IN_PROGRESS;
            if (kind == SUCCEEDED)
                wanted = kept == 3 ? PROBLEM_NONE : PROBLEM_RESULT_NOT_KEPT;
            else if (kind == REJECTED)
                wanted = kept == 3 ? PROBLEM_NONE : PROBLEM_CALL_FAILED;
            else if (kind == FENCED || kind == FENCE_ROW)
                wanted = PROBLEM_CALL_FENCED;
            else if (kind == UNKNOWN)
                wanted = PROBLEM_OUTCOME_UNKNOWN;
            else if (kind == OPEN)
                continue; /* never answered from its row: it goes on */
            assert_int_equal(keeper_replay_problem(&row), wanted);
        }
    }
    /* We fenced it at the callee: it failed, and its caller did not give it up. */
    struct subject s = like_me(REJECTED);
    struct call_row row = row_of(&s, 1);
    row.reason = REASON_FENCED_AT_CALLEE;
    assert_int_equal(keeper_replay_problem(&row), PROBLEM_CALL_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_edge_of_the_diagram),
        cmocka_unit_test(a_repeat_is_compared_under_the_stored_rules),
        cmocka_unit_test(a_call_without_a_key_is_its_own_operation),
        cmocka_unit_test(how_an_ended_row_is_answered),
        cmocka_unit_test(every_scene_of_a_small_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
