/* SPDX-License-Identifier: MIT
 *
 * The table of the guard's decisions against the keeper: what the guard's SQL says is what the core would say.
 */
#include "../base/check.h"

#include "../../guard/decisions.h"
#include "core/keeper.h"

#define NOW_MS 1772366400000

static struct digest operation_of(char route, char key)
{
    struct digest d = {{(uint8_t)route, (uint8_t)key}};
    return d;
}

static struct call_row row_of(const char *kind, int64_t id, char key, char route, char print)
{
    static char scopes[] = "rs";
    struct call_row row = {0};
    if (strcmp(kind, "none") == 0)
        return row;
    row.id = id;
    row.has_key = key != '-';
    row.operation_digest = operation_of(route, key);
    row.scope = slice_of(route == 's' ? scopes + 1 : scopes, 1);
    row.key_expires_ms = strcmp(kind, "expired") == 0 ? NOW_MS : NOW_MS + 1;
    row.has_fingerprint = strcmp(kind, "fence") != 0;
    row.fingerprint.bytes[0] = (uint8_t)print;
    if (strcmp(kind, "running") == 0) {
        row.state = STATE_PROCESSING;
    } else if (strcmp(kind, "done") == 0 || strcmp(kind, "shared") == 0 || strcmp(kind, "expired") == 0) {
        row.state = STATE_SUCCESS;
        row.final = true;
    } else {
        row.state = STATE_FAILED;
        row.final = strcmp(kind, "open") != 0;
        row.reason = *kind == 'f' ? REASON_FENCED : *kind == 'r' ? REASON_REJECTED : REASON_NOT_EXECUTED;
    }
    return row;
}

static const char *word_of(const struct verdict *v)
{
    switch (v->verb) {
    case KEEPER_CLAIM:
    case KEEPER_TAKE:
        return "run";
    case KEEPER_REPLAY:
    case KEEPER_ATTACH:
        return "replay";
    case KEEPER_JOIN_CALL:
    case KEEPER_JOIN_OPERATION:
        return "in_progress";
    case KEEPER_REFUSE:
        return v->problem == PROBLEM_CALL_ID_REUSED || v->problem == PROBLEM_KEY_REUSED     ? "mismatch"
               : v->problem == PROBLEM_CALL_FENCED                                          ? "fenced"
               : v->problem == PROBLEM_KEY_EXPIRED || v->problem == PROBLEM_OUTCOME_UNKNOWN ? "expired"
                                                                                            : "?";
    default:
        return "?";
    }
}

static void play(void *context, const struct decision *d)
{
    (void)context;
    /* A fingerprint that is none is not compared: then it is as the other one. */
    char print = d->fingerprint;
    char own = d->own_fingerprint == '-' || print == '-' ? print : d->own_fingerprint;
    char holder = d->holder_fingerprint == '-' || print == '-' ? print : d->holder_fingerprint;
    struct arrival a = {.has_key = d->key != '-',
                        .operation = operation_of(d->route, d->key),
                        .scope = slice_text("r"),
                        .id_time_ms = d->old ? NOW_MS - 2000 : NOW_MS};
    a.fingerprint.bytes[0] = (uint8_t)print;
    struct rows rows = {.now_ms = NOW_MS, .refuse_before_ms = NOW_MS - 1000};
    rows.call = row_of(d->own, 1, d->own_key, d->own_route, own);
    if (strcmp(d->holder, "none") != 0)
        rows.holder = row_of(d->holder, 2, 'A', 'r', holder);
    else if (d->own_key == d->key && d->own_route == d->route && rows.call.state != STATE_FAILED)
        rows.holder = rows.call;
    struct verdict v;
    keeper_arrive(&a, &rows, &v);
    if (strcmp(word_of(&v), d->verdict) != 0)
        fail_msg("decisions.txt:%d: the keeper says %s (%s), not %s", d->line, word_of(&v),
                 keeper_verb_text(v.verb), d->verdict);
}

static void the_keeper_says_what_the_table_says(void **state)
{
    (void)state;
    assert_true(decisions_play(play, NULL) > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_keeper_says_what_the_table_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
