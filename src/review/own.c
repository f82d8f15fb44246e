/* SPDX-License-Identifier: MIT */
#include "review/own.h"

#include "review/key.h"

/* Ids, hashes, times and index entries of one receipt, without its answer. Measured order of size, not exact. */
#define ROW_OVERHEAD_BYTES 1024

struct place {
    const struct source *source;
    const struct setting_origin *origins;
    int line; /* of the route, when the setting is not written */
};

static unsigned line_of(const struct place *at, enum setting_id id)
{
    int line = at->origins[id].line ? at->origins[id].line : at->line;
    return line > 0 ? (unsigned)line : 1;
}

static struct fact fact_of(const struct place *at, enum setting_id id, int64_t value)
{
    return fact_at(value, at->source, line_of(at, id));
}

static int64_t percent(double factor)
{
    return (int64_t)(factor * 100 + 0.5);
}

static void route_policy(struct review *r, const struct source *s, const struct settings *top,
                         const struct route_settings *route)
{
    struct place at = {s, route->origins, route->line}, above = {s, top->origins, 1};
    bool asks = route->receipt.kind != RECEIPT_NONE;
    struct review_policy p = {
        .name = pool_format(&r->pool, "route \"%s\"", route->name),
        .source = s,
        .line = route->line > 0 ? (unsigned)route->line : 1,
        .mutating = fact_of(&at, SETTING_ID_methods, 1),
        .asks_first = fact_of(&at, SETTING_ID_receipt, asks),
        .callee_once = fact_of(&at, SETTING_ID_callee_idempotent, route->callee_idempotent),
        .five_xx_failed = fact_of(&at, SETTING_ID_server_error, route->server_error == SERVER_ERROR_FAILED),
        .attempts = fact_of(&at, SETTING_ID_retries, route->retries + 1),
        .attempt_timeout_ms = fact_of(&at, SETTING_ID_attempt_timeout_ms, route->attempt_timeout_ms),
        .budget_ms = fact_of(&at, SETTING_ID_deadline_ms, route->deadline_ms),
        .lease_ms = fact_of(&at, SETTING_ID_lease_ms, route->lease_ms),
        .rounds = fact_of(&at, SETTING_ID_rounds, route->rounds),
        .round_gap_ms = fact_of(&at, SETTING_ID_round_gap_ms, route->round_gap_ms),
        .round_gap_max_ms = fact_of(&at, SETTING_ID_round_gap_max_ms, route->round_gap_max_ms),
        .tolerated_delay_ms = fact_of(&at, SETTING_ID_tolerated_delay_ms, route->tolerated_delay_ms),
        .wait_base_ms = fact_of(&at, SETTING_ID_backoff_base_ms, route->backoff_base_ms),
        .wait_cap_ms = fact_of(&at, SETTING_ID_backoff_cap_ms, route->backoff_cap_ms),
        .wait_growth_percent = fact_of(&at, SETTING_ID_backoff_base_ms, 200),
        .jitter_low_percent = fact_of(&at, SETTING_ID_jitter, percent(route->jitter_low)),
        .jitter_high_percent = fact_of(&at, SETTING_ID_jitter, percent(route->jitter_high)),
        .retry_limited = fact_of(&at, SETTING_ID_retry_budget_percent,
                                 route->retry_budget_percent > 0 || route->retry_budget_floor > 0 ||
                                     route->breaker_failures_percent > 0),
        .key_life_ms = fact_of(&at, SETTING_ID_key_life_ms, route->key_life_ms),
        .result_life_ms = fact_of(&at, SETTING_ID_result_life_ms, route->result_life_ms),
        .tombstone_life_ms = fact_of(&at, SETTING_ID_tombstone_life_ms, route->tombstone_life_ms),
        .archived = fact_of(&above, SETTING_ID_archive, top->archive[0] != '\0'),
        .calls_per_s = fact_of(&at, SETTING_ID_rate, route->rate),
        .purge_every_ms = fact_of(&above, SETTING_ID_purge_every_ms, top->purge_every_ms),
        .purge_batch = fact_of(&above, SETTING_ID_purge_batch, top->purge_batch),
        .row_bytes_max =
            fact_of(&at, SETTING_ID_result_bytes_max, span_add(route->result_bytes_max, ROW_OVERHEAD_BYTES)),
    };
    if (asks)
        p.query_timeout_ms = fact_of(&at, SETTING_ID_receipt_timeout_ms, route->receipt_timeout_ms);
    /* Without a receipt source an unclear attempt is repeated only on the promise of callee_idempotent; the retries
     * that remain are of attempts that never ran, and the operator should know. */
    if (route->retries > 0 && !asks) {
        p.repeats_unknown = fact_of(&at, SETTING_ID_receipt, 1);
        p.repeats_on = "attempts of which nobody can be asked (receipt = \"none\")";
    }
    review_own_policy(r, &p);
    if (strcmp(route->key, "header") != 0)
        key_judge(r, s, line_of(&at, SETTING_ID_key), p.name, slice_text("Idempotency-Key"),
                  slice_text(route->key), KEY_BRACES, true);
}

void own_policies(struct review *r, const struct source *s, const struct settings *settings)
{
    struct place at = {s, settings->origins, 1};
    for (size_t i = 0; i < settings->route_count; i++)
        if (settings->routes[i]->mode != MODE_OFF)
            route_policy(r, s, settings, settings->routes[i]);
    struct slice credential = slice_text(settings->credential);
    const char *token = credential.len ? strcasestr(settings->credential, "authorization") : NULL;
    if (token || (credential.len && strcasestr(settings->credential, "cookie")))
        review_find(r, RULE_CREDENTIAL_VOLATILE, s, line_of(&at, SETTING_ID_credential), NULL,
                    "credential = \"%s\"", settings->credential);
}

void own_problem(struct review *r, const struct source *s, const struct settings_problem *problem)
{
    static const struct {
        const char *code;
        enum rule_id rule;
    } codes[] = {
        {"one-principal", RULE_ONE_PRINCIPAL},         {"deadline-too-short", RULE_OVER_BUDGET},
        {"lease-too-short", RULE_LEASE_SHORT},         {"key-life-too-short", RULE_KEY_LIFE_SHORT},
        {"key-life-short", RULE_KEY_LIFE_DAY},         {"tombstone-too-short", RULE_TOMBSTONE_SHORT},
        {"result-life-short", RULE_RESULT_LIFE_SHORT}, {"rounds-unusual", RULE_ROUNDS_OUTSIDE},
        {"retries-many", RULE_TOO_MANY_RETRIES},       {"retries-without-receipt", RULE_RETRY_WITHOUT_ASKING},
    };
    unsigned line = problem->line > 0 ? (unsigned)problem->line : 1;
    const char *place = problem->route ? pool_format(&r->pool, "route \"%s\"", problem->route) : NULL;
    if (problem->severity == SETTINGS_NOTE) {
        review_note(r, "%s:%u: %s", s->path, line, problem->message);
        return;
    }
    enum rule_id rule = RULE_SETTING_REFUSED;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (problem->code && strcmp(problem->code, codes[i].code) == 0)
            rule = codes[i].rule;
    struct slice part;
    if (rule == RULE_SETTING_REFUSED && problem->row && strcmp(problem->row->name, "key") == 0 &&
        key_volatile(source_line(s, line), KEY_BRACES, &part))
        rule = RULE_KEY_VOLATILE;
    review_find(r, rule, s, line, place, "%s", problem->message);
}
