/* SPDX-License-Identifier: MIT
 *
 * Kubernetes: Istio VirtualServices, and Ingresses and ConfigMaps for ingress-nginx. Other kinds pass by; a file
 * of nothing else is not known.
 *
 * Istio adds retries that nobody wrote (2, on connect-failure, refused-stream, unavailable, cancelled and 503);
 * `attempts: 0` is how they are switched off. Its `attempts` counts retries, not attempts.
 */
#include "review/key.h"
#include "review/reader.h"

#define ANNOTATION    "nginx.ingress.kubernetes.io/"
#define ISTIO_BASE_MS INT64_C(25)

static bool istio_unknown(const char *on)
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
                                        "500",
                                        "502",
                                        "503",
                                        "504"};
    char word[64];
    while (*on) {
        size_t n = strcspn(on, ", ");
        for (size_t i = 0; i < sizeof words / sizeof *words && n < sizeof word; i++)
            if (n == strlen(words[i]) && memcmp(on, words[i], n) == 0)
                return true;
        on += n;
        on += strspn(on, ", ");
    }
    return false;
}

static bool istio_reads_only(struct tree *route)
{
    bool any = false;
    for (struct tree *m = tree_children(tree_get(route, "match")); m; m = m->next) {
        struct slice method = tree_text(tree_path(m, "method.exact"));
        if (!slice_is(method, "GET") && !slice_is(method, "HEAD"))
            return false;
        any = true;
    }
    return any;
}

static void judge_hop_headers(struct review *r, struct source *s, struct tree *holder, const char *place)
{
    static const char *const ways[] = {"headers.request.set", "headers.request.add"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (struct tree *h = tree_children(tree_path(holder, ways[i])); h; h = h->next)
            if (h->key)
                key_judge(r, s, h->line, place, slice_text(h->key), tree_text(h), KEY_ENVOY, true);
    for (struct tree *h = tree_children(tree_path(holder, "headers.request.remove")); h; h = h->next)
        key_judge(r, s, h->line, place, tree_text(h), slice_text(""), KEY_ENVOY, true);
}

static void istio_route(struct review *r, struct source *s, struct tree *route, const char *service,
                        unsigned index)
{
    struct slice given = tree_text(tree_get(route, "name"));
    const char *name = given.len ? pool_format(&r->pool, "%s/%.*s", service, (int)given.len, given.data)
                                 : pool_format(&r->pool, "%s http[%u]", service, index);
    struct tree *retries = tree_get(route, "retries");
    bool reads = istio_reads_only(route);
    judge_hop_headers(r, s, route, name);
    for (struct tree *d = tree_children(tree_get(route, "route")); d; d = d->next)
        judge_hop_headers(r, s, d, name);
    if (!tree_get(route, "route"))
        return; /* a redirect or a direct answer */
    struct review_policy *p = review_policy_new(r, FORMAT_ISTIO, s, route->line, name);
    if (!p)
        return;
    if (reads)
        p->mutating = fact_at(0, s, route->line);
    p->budget_ms = tree_duration(tree_get(route, "timeout"), s, 0);
    if (fact_is(p->budget_ms, 0))
        p->budget_ms.known = false;
    if (!retries) {
        p->attempts = fact_at(3, s, route->line);
        if (!reads)
            review_find(r, RULE_HIDDEN_DEFAULT, s, route->line, name,
                        "no `retries`, so Istio repeats up to 2 times, after 503 too");
        return;
    }
    struct fact count = tree_number(tree_get(retries, "attempts"), s);
    struct tree *on_node = tree_get(retries, "retryOn");
    const char *on =
        on_node ? tree_words(r, on_node) : "connect-failure,refused-stream,unavailable,cancelled,503";
    unsigned line = on_node ? on_node->line : count.known ? count.line : retries->line;
    if (!count.known)
        count = fact_at(2, s, retries->line);
    p->attempts = fact_at(span_add(count.value, 1), s, count.line);
    p->repeats_on = on;
    if (istio_unknown(on))
        p->repeats_unknown = fact_at(1, s, line);
    p->attempt_timeout_ms = tree_duration(tree_get(retries, "perTryTimeout"), s, 0);
    struct fact base = tree_duration(tree_get(retries, "backoff"), s, 0);
    p->wait_base_ms = base.known ? base : fact_at(ISTIO_BASE_MS, s, retries->line);
    p->wait_cap_ms = fact_at(span_multiply(p->wait_base_ms.value, 10), s, retries->line);
    p->wait_growth_percent = fact_at(200, s, retries->line);
    p->jitter_low_percent = fact_at(0, s, retries->line);
    p->jitter_high_percent = fact_at(100, s, retries->line);
}

static void istio_read(struct review *r, struct source *s, struct tree *root)
{
    struct slice name = tree_text(tree_path(root, "metadata.name"));
    const char *service = pool_format(&r->pool, "VirtualService %.*s", (int)name.len, name.data);
    unsigned index = 0;
    for (struct tree *h = tree_children(tree_path(root, "spec.http")); h; h = h->next)
        istio_route(r, s, tree_resolve(h), service, index++);
}

/* The settings of ingress-nginx: annotations of an Ingress (`prefix` before the name) or keys of a ConfigMap. */
static struct tree *setting(struct review *r, struct tree *holder, const char *prefix, const char *name)
{
    return tree_get(holder, pool_format(&r->pool, "%s%s", prefix, name));
}

static void ingress_read(struct review *r, struct source *s, struct tree *root, struct tree *holder,
                         const char *prefix)
{
    struct slice kind = tree_text(tree_get(root, "kind")),
                 object = tree_text(tree_path(root, "metadata.name"));
    const char *name =
        pool_format(&r->pool, "%.*s %.*s", (int)kind.len, kind.data, (int)object.len, object.data);
    struct tree *next = setting(r, holder, prefix, "proxy-next-upstream");
    struct tree *tries = setting(r, holder, prefix, "proxy-next-upstream-tries");
    struct tree *read = setting(r, holder, prefix, "proxy-read-timeout");
    struct tree *writes = setting(r, holder, prefix, "retry-non-idempotent");
    static const char *const snippets[] = {"configuration-snippet", "server-snippet", "location-snippet",
                                           "http-snippet"};
    for (size_t i = 0; i < sizeof snippets / sizeof *snippets; i++) {
        struct tree *snippet = setting(r, holder, prefix, snippets[i]);
        if (snippet && snippet->kind == TREE_SCALAR)
            nginx_snippet(r, s, snippet->line, name, snippet->text);
    }
    /* proxy-set-headers names a ConfigMap; that ConfigMap's own keys are header names. */
    for (struct tree *m = tree_children(holder); m && !prefix[0]; m = m->next)
        if (m->key && (key_header(slice_text(m->key)) || key_call_id_header(slice_text(m->key))))
            key_judge(r, s, m->line, name, slice_text(m->key), tree_text(m), KEY_NGINX, true);
    if (!next && !tries && !read && !writes)
        return;
    struct review_policy *p = review_policy_new(r, FORMAT_INGRESS, s, root->line, name);
    if (!p)
        return;
    struct fact count = tree_number(tries, s);
    p->attempts = count.known && count.value > 0 ? count : fact_at(3, s, next ? next->line : root->line);
    p->attempt_timeout_ms = tree_duration(read, s, 1000);
    if (next)
        nginx_next_upstream(r, p, tree_text(next), s, next->line);
    struct fact flag = tree_flag(writes, s);
    if (fact_is(flag, 1)) {
        p->mutating = flag;
        p->repeats_unknown = flag;
        p->repeats_on = "error or timeout, writes too";
    }
    if (!p->repeats_unknown.known && !tries)
        p->attempts.known = false; /* ingress-nginx's default of 3 tries reads only */
}

static void object_read(struct review *r, struct source *s, struct tree *root, int depth)
{
    struct slice kind = tree_text(tree_get(root, "kind"));
    if (slice_is(kind, "VirtualService")) {
        istio_read(r, s, root);
    } else if (slice_is(kind, "Ingress")) {
        struct tree *annotations = tree_path(root, "metadata.annotations");
        if (annotations)
            ingress_read(r, s, root, annotations, ANNOTATION);
    } else if (slice_is(kind, "ConfigMap")) {
        struct tree *data = tree_get(root, "data");
        if (data)
            ingress_read(r, s, root, data, "");
    } else if (slice_is(kind, "List") && depth == 0) {
        for (struct tree *item = tree_children(tree_get(root, "items")); item; item = item->next)
            object_read(r, s, tree_resolve(item), depth + 1);
    }
}

void kubernetes_read(struct review *r, struct source *s, struct tree *root)
{
    object_read(r, s, root, 0);
}
