/* SPDX-License-Identifier: MIT
 *
 * gRPC service config JSON (gRFC A6). What proves that a call never ran (REFUSED_STREAM, a stream above GOAWAY) is
 * retried by every gRPC client by itself; a status code in retryableStatusCodes is an answer, and none of them
 * proves that nothing happened, UNAVAILABLE included. Methods whose names only read are let pass.
 */
#include "review/reader.h"

/* gRFC A6: maxAttempts above 5 counts as 5. */
#define ATTEMPTS_CAP 5

static bool code_is(struct slice code, const char *name, const char *number)
{
    return slice_is_nocase(code, name) || slice_is(code, number);
}

static bool definite_code(struct slice code)
{
    static const char *const codes[][2] = {{"INVALID_ARGUMENT", "3"},    {"NOT_FOUND", "5"},
                                           {"ALREADY_EXISTS", "6"},      {"PERMISSION_DENIED", "7"},
                                           {"FAILED_PRECONDITION", "9"}, {"OUT_OF_RANGE", "11"},
                                           {"UNIMPLEMENTED", "12"},      {"UNAUTHENTICATED", "16"}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (code_is(code, codes[i][0], codes[i][1]))
            return true;
    return false;
}

/* RESOURCE_EXHAUSTED is a refusal to begin; every other code may follow an effect. */
static bool unknown_code(struct slice code)
{
    return code.len && !definite_code(code) && !code_is(code, "RESOURCE_EXHAUSTED", "8");
}

static bool reads_only(struct tree *names)
{
    bool any = false;
    for (struct tree *n = tree_children(names); n; n = n->next) {
        struct slice method = tree_text(tree_get(n, "method"));
        if (!method.len || !reader_reads_only(method))
            return false;
        any = true;
    }
    return any;
}

static const char *method_name(struct review *r, struct tree *config)
{
    struct tree *first = tree_resolve(tree_children(tree_get(config, "name")));
    struct slice service = tree_text(tree_get(first, "service")),
                 method = tree_text(tree_get(first, "method"));
    if (!service.len)
        return "all methods";
    if (!method.len)
        return pool_copy(&r->pool, service);
    return pool_format(&r->pool, "%.*s/%.*s", (int)service.len, service.data, (int)method.len, method.data);
}

static void judge_codes(struct review *r, struct source *s, struct review_policy *p, struct tree *codes)
{
    for (struct tree *c = tree_children(codes); c; c = c->next) {
        struct slice code = tree_text(c);
        if (definite_code(code))
            review_find(r, RULE_DEFINITE_REPEATED, s, c->line, p->name, "repeats after %.*s", (int)code.len,
                        code.data);
        else if (unknown_code(code) && !p->repeats_unknown.known)
            p->repeats_unknown = fact_at(1, s, c->line);
    }
    p->repeats_on = tree_words(r, codes);
}

static void fill_retry(struct review *r, struct source *s, struct review_policy *p, struct tree *retry)
{
    struct fact attempts = tree_number(tree_get(retry, "maxAttempts"), s);
    if (attempts.known && attempts.value > ATTEMPTS_CAP)
        attempts.value = ATTEMPTS_CAP;
    p->attempts = attempts;
    p->wait_base_ms = tree_duration(tree_get(retry, "initialBackoff"), s, 0);
    p->wait_cap_ms = tree_duration(tree_get(retry, "maxBackoff"), s, 0);
    int64_t tenfold;
    struct slice growth = tree_text(tree_get(retry, "backoffMultiplier"));
    if (growth.len && span_parse(&tenfold, growth, 100)) /* "1.5" read in hundredths is a percentage */
        p->wait_growth_percent = fact_at(tenfold, s, retry->line);
    p->jitter_low_percent = fact_at(80, s, retry->line); /* gRFC A6: plus or minus 20 percent */
    p->jitter_high_percent = fact_at(120, s, retry->line);
    judge_codes(r, s, p, tree_get(retry, "retryableStatusCodes"));
}

static void config_read(struct review *r, struct source *s, struct tree *config, bool throttled)
{
    struct tree *retry = tree_get(config, "retryPolicy"), *hedge = tree_get(config, "hedgingPolicy");
    const char *name = method_name(r, config);
    bool reads = reads_only(tree_get(config, "name"));
    if (hedge && !reads) {
        struct tree *attempts = tree_get(hedge, "maxAttempts");
        struct slice copies = tree_text(attempts);
        review_find(r, RULE_HEDGED_WRITES, s, attempts ? attempts->line : hedge->line, name,
                    "up to %.*s copies side by side", (int)copies.len, copies.data);
    }
    if (!retry && !tree_get(config, "timeout"))
        return;
    struct review_policy *p = review_policy_new(r, FORMAT_GRPC, s, config->line, name);
    if (!p)
        return;
    if (reads)
        p->mutating = fact_at(0, s, config->line);
    p->budget_ms = tree_duration(tree_get(config, "timeout"), s, 0);
    if (!retry)
        return;
    fill_retry(r, s, p, retry);
    if (!throttled)
        p->retry_limited = fact_at(0, s, retry->key_line ? retry->key_line : retry->line);
}

void grpc_read(struct review *r, struct source *s, struct tree *root)
{
    struct tree *top = tree_resolve(root);
    /* The DNS form: a list of choices, each with its serviceConfig. */
    if (top && top->kind == TREE_LIST) {
        for (struct tree *choice = top->first; choice; choice = choice->next) {
            struct tree *config = tree_get(choice, "serviceConfig");
            if (config && config->kind == TREE_MAPPING)
                grpc_read(r, s, config);
        }
        return;
    }
    bool throttled = tree_get(root, "retryThrottling") != NULL;
    for (struct tree *c = tree_children(tree_get(root, "methodConfig")); c; c = c->next)
        config_read(r, s, tree_resolve(c), throttled);
}
