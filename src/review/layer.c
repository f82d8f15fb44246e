/* SPDX-License-Identifier: MIT */
#include "review/layer.h"

/* Layers of one path; more are not compared. */
#define LAYERS_MAX 16

struct layer {
    const struct source *source;
    const struct review_policy *most;    /* most attempts */
    const struct review_policy *hasty;   /* shortest time to wait for one inner answer */
    const struct review_policy *slow;    /* longest time until it answers its caller */
    const struct review_policy *resend;  /* sends the same work again the latest */
    const struct review_policy *forgets; /* shortest key life */
    const struct review_policy *leases;  /* shortest lease */
};

static const struct source *outermost_file(const struct source *s)
{
    while (s->parent)
        s = s->parent;
    return s;
}

/* How long the layer waits for one answer from the inside. */
static bool patience(const struct review_policy *p, struct fact *out)
{
    if (p->attempt_timeout_ms.known)
        *out = p->attempt_timeout_ms;
    else if (p->budget_ms.known)
        *out = p->budget_ms;
    else
        return false;
    return true;
}

static void add(struct layer *l, const struct review_policy *p)
{
    int64_t mine, best;
    struct fact wait, shortest;
    if (p->attempts.known && (!l->most || p->attempts.value > l->most->attempts.value))
        l->most = p;
    if (patience(p, &wait) && (!l->hasty || (patience(l->hasty, &shortest) && wait.value < shortest.value)))
        l->hasty = p;
    if (policy_longest(p, &mine) && (!l->slow || (policy_longest(l->slow, &best) && mine > best)))
        l->slow = p;
    if (!l->resend || policy_resend_span(p) > policy_resend_span(l->resend))
        l->resend = p;
    if (p->key_life_ms.known && (!l->forgets || p->key_life_ms.value < l->forgets->key_life_ms.value))
        l->forgets = p;
    if (p->lease_ms.known && (!l->leases || p->lease_ms.value < l->leases->lease_ms.value))
        l->leases = p;
}

static size_t collect(const struct review *r, struct layer layers[LAYERS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < r->source_count && count < LAYERS_MAX; i++) {
        const struct source *s = r->sources[i];
        if (s->parent)
            continue;
        struct layer *l = &layers[count++];
        *l = (struct layer){.source = s};
        for (size_t k = 0; k < r->policy_count; k++) {
            const struct review_policy *p = r->policies[k];
            bool named = !s->label || (p->name && strstr(p->name, s->label));
            if (outermost_file(p->source) == s && named)
                add(l, p);
        }
    }
    return count;
}

static void judge_stack(struct review *r, const struct layer *layers, size_t count)
{
    struct buffer product = {0};
    const struct review_policy *innermost = NULL;
    int64_t requests = 1;
    int retrying = 0;
    for (size_t i = 0; i < count; i++) {
        const struct review_policy *p = layers[i].most;
        if (!p)
            continue;
        if (product.len)
            buffer_text(&product, " x ");
        if (p->attempts.value == ATTEMPTS_ENDLESS)
            buffer_format(&product, "endless (%s)", source_name(layers[i].source));
        else
            buffer_format(&product, "%lld (%s)", (long long)p->attempts.value, source_name(layers[i].source));
        requests = span_multiply(requests, p->attempts.value);
        if (p->attempts.value > 1) {
            retrying++;
            innermost = p;
        }
    }
    if (retrying > 1) {
        if (requests == SPAN_FOREVER)
            buffer_text(&product, ": no bound");
        else
            buffer_format(&product, " = %lld requests for one call", (long long)requests);
        review_find(r, RULE_STACKED_RETRIES, innermost->attempts.source, innermost->attempts.line,
                    innermost->name, "%s", buffer_cstring(&product));
    }
    buffer_fini(&product);
}

static void judge_pair(struct review *r, const struct layer *outer, const struct layer *inner)
{
    struct buffer text = {0};
    struct fact wait;
    int64_t longest;
    if (outer->hasty && inner->slow && patience(outer->hasty, &wait) &&
        policy_longest(inner->slow, &longest)) {
        if (wait.value < longest) {
            span_text(&text, wait.value);
            buffer_format(&text, " here, %s may take ", source_name(inner->source));
            span_text(&text, longest);
            review_find(r, RULE_TIMEOUTS_GROW, wait.source, wait.line, outer->hasty->name, "%s",
                        buffer_cstring(&text));
        }
    }
    if (outer->leases && inner->slow && policy_longest(inner->slow, &longest) &&
        outer->leases->lease_ms.value < longest) {
        buffer_clear(&text);
        buffer_text(&text, "the lease is ");
        span_text(&text, outer->leases->lease_ms.value);
        buffer_format(&text, ", %s may take ", source_name(inner->source));
        span_text(&text, longest);
        review_find(r, RULE_PATH_LEASE, outer->leases->lease_ms.source, outer->leases->lease_ms.line,
                    outer->leases->name, "%s", buffer_cstring(&text));
    }
    if (outer->resend && inner->forgets && inner->forgets->key_life_ms.value != SPAN_FOREVER &&
        inner->forgets->key_life_ms.value < policy_resend_span(outer->resend)) {
        buffer_clear(&text);
        buffer_text(&text, "the key lives ");
        span_text(&text, inner->forgets->key_life_ms.value);
        buffer_format(&text, ", %s may send the same work after ", source_name(outer->source));
        span_text(&text, policy_resend_span(outer->resend));
        review_find(r, RULE_PATH_KEY_LIFE, inner->forgets->key_life_ms.source,
                    inner->forgets->key_life_ms.line, inner->forgets->name, "%s", buffer_cstring(&text));
    }
    buffer_fini(&text);
}

void layer_judge(struct review *r)
{
    struct layer layers[LAYERS_MAX];
    size_t count = collect(r, layers);
    judge_stack(r, layers, count);
    for (size_t outer = 0; outer < count; outer++)
        for (size_t inner = outer + 1; inner < count; inner++)
            judge_pair(r, &layers[outer], &layers[inner]);
}
