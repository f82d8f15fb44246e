/* SPDX-License-Identifier: MIT
 *
 * Envoy: retry and hedge policies wherever they stand in a bootstrap or route configuration, YAML or JSON. The
 * defaults are Envoy's: 1 retry, 15 s for a route, waits from 25 ms to ten times that with full jitter.
 */
#include "review/key.h"
#include "review/reader.h"

#include <stdlib.h>

#define ROUTE_TIMEOUT_MS INT64_C(15000)
#define RETRY_BASE_MS    INT64_C(25)

struct envoy {
    struct review *r;
    struct source *s;
};

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = strstr(list, word); p; p = strstr(p + 1, word)) {
        bool begins = p == list || strchr(", ", p[-1]);
        bool ends = !p[n] || strchr(", ", p[n]);
        if (begins && ends)
            return true;
    }
    return false;
}

static bool unknown_condition(const char *on)
{
    static const char *const words[] = {"5xx",
                                        "gateway-error",
                                        "reset",
                                        "retriable-status-codes",
                                        "retriable-4xx",
                                        "cancelled",
                                        "deadline-exceeded",
                                        "internal",
                                        "unavailable",
                                        "unknown",
                                        "http3-post-connect-failure"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has_word(on, words[i]))
            return true;
    return false;
}

/* A status code of which the peer says "no", and will say it again. */
static bool definite_status(int64_t code)
{
    return code >= 400 && code < 500 && code != 408 && code != 409 && code != 417 && code != 421 &&
           code != 425 && code != 429;
}

/* match: {headers: [{name: ":method", string_match: {exact: GET}}]} */
static bool reads_only(struct tree *route)
{
    struct tree *headers = tree_path(route, "match.headers");
    for (struct tree *h = tree_children(headers); h; h = h->next) {
        if (!slice_is(tree_text(tree_get(h, "name")), ":method"))
            continue;
        struct slice exact = tree_text(tree_path(h, "string_match.exact"));
        if (!exact.len)
            exact = tree_text(tree_get(h, "exact_match"));
        if (slice_is(exact, "GET") || slice_is(exact, "HEAD"))
            return true;
    }
    return false;
}

static void judge_statuses(struct envoy *e, struct tree *retry, const char *on, const char *name)
{
    struct tree *codes = tree_get(retry, "retriable_status_codes");
    if (!has_word(on, "retriable-status-codes"))
        return;
    for (struct tree *c = tree_children(codes); c; c = c->next) {
        struct fact code = tree_number(tree_resolve(c), e->s);
        if (code.known && definite_status(code.value))
            review_find(e->r, RULE_DEFINITE_REPEATED, e->s, code.line, name, "repeats after %lld",
                        (long long)code.value);
    }
}

static void fill_retry(struct envoy *e, struct review_policy *p, struct tree *retry, bool route_action)
{
    struct source *s = e->s;
    struct tree *on_node = tree_get(retry, "retry_on");
    const char *on = tree_words(e->r, on_node);
    struct fact retries = tree_number(tree_get(retry, "num_retries"), s);
    unsigned line = on_node ? on_node->line : retry->line;
    if (!retries.known)
        retries = fact_at(1, s, line);
    p->attempts = fact_at(span_add(retries.value, 1), s, retries.line);
    p->repeats_on = on;
    if (unknown_condition(on))
        p->repeats_unknown = fact_at(1, s, line);
    judge_statuses(e, retry, on, p->name);
    p->attempt_timeout_ms = tree_duration(tree_get(retry, "per_try_timeout"), s, 0);
    struct fact base = tree_duration(tree_path(retry, "retry_back_off.base_interval"), s, 0);
    struct fact cap = tree_duration(tree_path(retry, "retry_back_off.max_interval"), s, 0);
    p->wait_base_ms = base.known ? base : fact_at(RETRY_BASE_MS, s, retry->line);
    p->wait_cap_ms = cap.known ? cap : fact_at(span_multiply(p->wait_base_ms.value, 10), s, retry->line);
    p->wait_growth_percent = fact_at(200, s, retry->line);
    p->jitter_low_percent = fact_at(0, s, retry->line);
    p->jitter_high_percent = fact_at(100, s, retry->line);
    if (route_action && !p->budget_ms.known)
        p->budget_ms =
            fact_at(ROUTE_TIMEOUT_MS, s, p->attempt_timeout_ms.known ? p->attempt_timeout_ms.line : line);
    if (p->budget_ms.known && p->budget_ms.value == 0)
        p->budget_ms.known = false; /* 0 switches the route's timeout off */
}

static void judge_headers(struct envoy *e, struct tree *holder, const char *place)
{
    for (struct tree *h = tree_children(tree_get(holder, "request_headers_to_add")); h; h = h->next) {
        struct tree *key = tree_path(h, "header.key"), *value = tree_path(h, "header.value");
        struct slice action = tree_text(tree_get(h, "append_action"));
        /* Added beside the caller's or only when it has none: the caller's own still counts. */
        bool hop = !slice_is(action, "ADD_IF_ABSENT");
        if (key && value)
            key_judge(e->r, e->s, value->line, place, tree_text(key), tree_text(value), KEY_ENVOY, hop);
    }
    for (struct tree *h = tree_children(tree_get(holder, "request_headers_to_remove")); h; h = h->next)
        key_judge(e->r, e->s, h->line, place, tree_text(h), slice_text(""), KEY_ENVOY, true);
}

static void judge_hedge(struct envoy *e, struct tree *hedge, const char *place, bool reads)
{
    struct fact on_timeout = tree_flag(tree_get(hedge, "hedge_on_per_try_timeout"), e->s);
    struct fact copies = tree_number(tree_get(hedge, "initial_requests"), e->s);
    if (reads)
        return;
    if (fact_is(on_timeout, 1))
        review_find(e->r, RULE_HEDGED_WRITES, e->s, on_timeout.line, place,
                    "a second copy is sent while the first still runs");
    if (copies.known && copies.value > 1)
        review_find(e->r, RULE_HEDGED_WRITES, e->s, copies.line, place, "%lld copies at once",
                    (long long)copies.value);
}

static const char *route_name(struct envoy *e, struct tree *route)
{
    static const char *const kinds[] = {"match.prefix", "match.path", "match.safe_regex.regex"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct slice text = tree_text(tree_path(route, kinds[i]));
        if (text.len)
            return pool_format(&e->r->pool, "route %.*s", (int)text.len, text.data);
    }
    struct slice name = tree_text(tree_get(route, "name"));
    return name.len ? pool_format(&e->r->pool, "%.*s", (int)name.len, name.data) : "route";
}

static void visit(void *context, struct tree *mapping, struct tree *parent)
{
    struct envoy *e = context;
    struct tree *retry = tree_get(mapping, "retry_policy"), *hedge = tree_get(mapping, "hedge_policy");
    const char *name = route_name(e, tree_get(mapping, "match") ? mapping : parent ? parent : mapping);
    judge_headers(e, mapping, name);
    bool route_action = tree_get(mapping, "cluster") || tree_get(mapping, "weighted_clusters") ||
                        tree_get(mapping, "cluster_header");
    bool reads = reads_only(parent);
    if (hedge && hedge->kind == TREE_MAPPING)
        judge_hedge(e, hedge, name, reads);
    /* Policies of a virtual host and of a route; tcp and health checks have no retry_on. */
    if (retry && retry->kind == TREE_MAPPING && (tree_get(retry, "retry_on") || route_action)) {
        struct review_policy *p = review_policy_new(e->r, FORMAT_ENVOY, e->s, retry->key_line, name);
        if (!p)
            return;
        if (reads)
            p->mutating = fact_at(0, e->s, retry->line);
        if (route_action)
            p->budget_ms = tree_duration(tree_get(mapping, "timeout"), e->s, 0);
        fill_retry(e, p, retry, route_action);
    }
    struct fact limit = tree_number(tree_get(mapping, "max_retries"), e->s);
    if (limit.known && limit.value > 1000 &&
        (tree_get(mapping, "max_connections") || tree_get(mapping, "priority") ||
         tree_get(mapping, "max_requests") || !tree_get(mapping, "retry_on")))
        review_find(e->r, RULE_NO_RETRY_BUDGET, e->s, limit.line, "circuit breaker",
                    "%lld retries may run at once", (long long)limit.value);
    struct tree *mappers = tree_path(mapping, "local_reply_config.mappers");
    for (struct tree *m = tree_children(mappers); m; m = m->next) {
        struct fact status = tree_number(tree_get(m, "status_code"), e->s);
        struct fact of =
            tree_number(tree_path(m, "filter.status_code_filter.comparison.value.default_value"), e->s);
        if (status.known && status.value < 500 && of.known && of.value >= 502 && of.value <= 504)
            review_find(e->r, RULE_ERROR_HIDES, e->s, status.line, name, "%lld becomes %lld",
                        (long long)of.value, (long long)status.value);
    }
}

void envoy_read(struct review *r, struct source *s, struct tree *root)
{
    struct envoy e = {r, s};
    if (!tree_walk(root, visit, &e))
        review_problem(r, s->path, 0, "too large or too deeply nested");
}
