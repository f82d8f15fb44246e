/* SPDX-License-Identifier: MIT
 *
 * Spring: Resilience4j, Spring Cloud Gateway, load balancer and listener retries, from YAML or properties. Both
 * become one flat list of paths, since Spring lets any part of a YAML path be written with dots, and takes
 * maxAttempts, max-attempts and max_attempts for one name.
 */
#include "review/key.h"
#include "review/reader.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* Properties of one file. */
#define PROPERTIES_MAX 20000u
#define PATH_BYTES_MAX 512u

struct property {
    const char *path;  /* lower case, without '-' and '_', list places as [0] */
    const char *shown; /* as written */
    struct slice value;
    unsigned line;
};

struct spring {
    struct review *r;
    struct source *s;
    enum review_format format;
    struct property *list;
    size_t count, room;
};

static const char *plain(struct review *r, const char *path)
{
    char text[PATH_BYTES_MAX];
    size_t n = 0;
    for (; *path && n + 1 < sizeof text; path++)
        if (*path != '-' && *path != '_')
            text[n++] = (char)tolower((unsigned char)*path);
    return pool_copy(&r->pool, slice_of(text, n));
}

static void add(struct spring *g, const char *path, struct slice value, unsigned line)
{
    if (g->count == PROPERTIES_MAX) {
        review_problem(g->r, g->s->path, 0, "more than %u properties; the rest was not read", PROPERTIES_MAX);
        return;
    }
    if (g->count == g->room) {
        size_t room = g->room ? g->room * 2 : 64;
        struct property *bigger = realloc(g->list, room * sizeof *bigger);
        if (!bigger) {
            g->r->pool.failed = true;
            return;
        }
        g->list = bigger;
        g->room = room;
    }
    const char *shown = pool_copy(&g->r->pool, slice_text(path));
    g->list[g->count++] = (struct property){plain(g->r, path), shown, slice_trim(value), line};
}

static void flatten(struct spring *g, struct tree *t, char *path, size_t len, unsigned depth)
{
    unsigned index = 0;
    t = tree_resolve(t);
    if (!t || depth > TREE_DEPTH_MAX || g->count == PROPERTIES_MAX)
        return;
    if (t->kind == TREE_SCALAR) {
        add(g, path, t->text, t->line);
        return;
    }
    for (struct tree *m = t->first; m; m = m->next) {
        int n = t->kind == TREE_LIST
                    ? snprintf(path + len, PATH_BYTES_MAX - len, "[%u]", index++)
                    : snprintf(path + len, PATH_BYTES_MAX - len, "%s%s", len ? "." : "", m->key);
        if (n > 0 && (size_t)n < PATH_BYTES_MAX - len)
            flatten(g, m, path, len + (size_t)n, depth + 1);
        path[len] = '\0';
    }
}

static int compare(const void *x, const void *y)
{
    const struct property *a = x, *b = y;
    int order = strcmp(a->path, b->path);
    return order ? order : a->line < b->line ? -1 : a->line > b->line;
}

/* The first property whose path begins with `prefix` or sorts behind it; the list is sorted. */
static size_t lower(const struct spring *g, const char *prefix)
{
    size_t low = 0, high = g->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(g->list[middle].path, prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool begins(const char *path, const char *prefix)
{
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

/* The last property with this path, as Spring lets the later one win; NULL when there is none. */
static const struct property *find(const struct spring *g, const char *path)
{
    const struct property *last = NULL;
    for (size_t i = lower(g, path); i < g->count && strcmp(g->list[i].path, path) == 0; i++)
        last = &g->list[i];
    return last;
}

static struct fact number(const struct spring *g, const struct property *p)
{
    int64_t n;
    struct fact none = {0};
    return p && number_parse(&n, p->value) ? fact_at(n, g->s, p->line) : none;
}

static struct fact duration(const struct spring *g, const struct property *p)
{
    int64_t ms;
    struct fact none = {0};
    return p && span_parse(&ms, p->value, 1) ? fact_at(ms, g->s, p->line) : none;
}

static bool on(const struct property *p)
{
    return p && slice_is_nocase(p->value, "true");
}

static bool mentions(struct slice text, const char *word)
{
    return text.len && memmem(text.data, text.len, word, strlen(word)) != NULL;
}

/* ---- Resilience4j ---- */

/* A setting of an instance, or of the configuration it is based on ("default" when it names none). */
static const struct property *inherited(struct spring *g, const char *module, const char *name,
                                        const char *setting)
{
    struct pool *pool = &g->r->pool;
    const struct property *p =
        find(g, pool_format(pool, "resilience4j.%s.instances.%s.%s", module, name, setting));
    if (p)
        return p;
    const struct property *base =
        find(g, pool_format(pool, "resilience4j.%s.instances.%s.baseconfig", module, name));
    const char *config = base ? plain(g->r, pool_copy(pool, base->value)) : "default";
    return find(g, pool_format(pool, "resilience4j.%s.configs.%s.%s", module, config, setting));
}

static bool unknown_exception(struct slice name)
{
    static const char *const words[] = {"IOException",
                                        "SocketException",
                                        "ResourceAccessException",
                                        "java.lang.Exception",
                                        "RuntimeException",
                                        "Throwable",
                                        "HttpServerErrorException",
                                        "FeignException",
                                        "RetryableException",
                                        "WebClientRequestException",
                                        "RestClientException"};
    if (mentions(name, "ConnectTimeout") || mentions(name, "ConnectException"))
        return false;
    if (mentions(name, "Timeout"))
        return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (mentions(name, words[i]))
            return true;
    return false;
}

static bool definite_exception(struct slice name)
{
    static const char *const words[] = {"java.lang.Exception",          "java.lang.RuntimeException",
                                        "java.lang.Throwable",          "HttpClientErrorException",
                                        "IllegalArgumentException",     "ValidationException",
                                        "ConstraintViolationException", "BusinessException"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (mentions(name, words[i]))
            return true;
    return false;
}

/* The exceptions that an instance repeats after: none written means all. */
static void judge_exceptions(struct spring *g, struct review_policy *p, const char *name)
{
    struct buffer seen = {.max = 2048};
    bool any = false;
    const char *prefix = NULL;
    for (int place = 0; place < 2 && !any; place++) {
        const struct property *base =
            find(g, pool_format(&g->r->pool, "resilience4j.retry.instances.%s.baseconfig", name));
        const char *config = base ? plain(g->r, pool_copy(&g->r->pool, base->value)) : "default";
        prefix = place == 0
                     ? pool_format(&g->r->pool, "resilience4j.retry.instances.%s.retryexceptions", name)
                     : pool_format(&g->r->pool, "resilience4j.retry.configs.%s.retryexceptions", config);
        for (size_t i = lower(g, prefix); i < g->count && begins(g->list[i].path, prefix); i++) {
            const struct property *x = &g->list[i];
            size_t n = strlen(prefix);
            if (x->path[n] && x->path[n] != '[')
                continue;
            any = true;
            if (unknown_exception(x->value) && !p->repeats_unknown.known)
                p->repeats_unknown = fact_at(1, g->s, x->line);
            if (definite_exception(x->value) && policy_may_mutate(p))
                review_find(g->r, RULE_DEFINITE_REPEATED, g->s, x->line, p->name, "repeats after %.*s",
                            (int)(x->value.len < 120 ? x->value.len : 120), x->value.data);
            if (seen.len && seen.len + x->value.len + 2 < seen.max)
                buffer_byte(&seen, ',');
            if (seen.len + x->value.len + 2 < seen.max)
                buffer_slice(&seen, x->value);
        }
    }
    const struct property *predicate = inherited(g, "retry", name, "retryexceptionpredicate");
    if (!any && !predicate) {
        p->repeats_on = "any exception";
        p->repeats_unknown = fact_at(1, g->s, p->attempts.line);
    } else {
        p->repeats_on = pool_copy(&g->r->pool, buffer_view(&seen));
    }
    buffer_fini(&seen);
}

static void instance_read(struct spring *g, const char *name, const char *shown, unsigned line)
{
    struct review_policy *p =
        review_policy_new(g->r, g->format, g->s, line, pool_format(&g->r->pool, "retry instance %s", shown));
    if (!p)
        return;
    p->attempts = number(g, inherited(g, "retry", name, "maxattempts"));
    if (!p->attempts.known)
        p->attempts = fact_at(3, g->s, line); /* Resilience4j's default */
    p->attempt_timeout_ms = duration(g, inherited(g, "timelimiter", name, "timeoutduration"));
    struct fact wait = duration(g, inherited(g, "retry", name, "waitduration"));
    p->wait_base_ms = wait.known ? wait : fact_at(500, g->s, line);
    if (reader_reads_only(slice_text(shown)))
        p->mutating = fact_at(0, g->s, line);
    const struct property *exponential = inherited(g, "retry", name, "enableexponentialbackoff");
    if (on(exponential)) {
        int64_t growth;
        const struct property *factor = inherited(g, "retry", name, "exponentialbackoffmultiplier");
        if (!factor || !span_parse(&growth, factor->value, 100))
            growth = 150;
        p->wait_growth_percent = fact_at(growth, g->s, exponential->line);
        p->wait_cap_ms = duration(g, inherited(g, "retry", name, "exponentialmaxwaitduration"));
    }
    int64_t spread = 0;
    const struct property *random = inherited(g, "retry", name, "enablerandomizedwait");
    if (on(random)) {
        const struct property *factor = inherited(g, "retry", name, "randomizedwaitfactor");
        if (!factor || !span_parse(&spread, factor->value, 100))
            spread = 50;
    }
    p->jitter_low_percent = fact_at(100 - spread, g->s, p->wait_base_ms.line);
    p->jitter_high_percent = fact_at(100 + spread, g->s, p->wait_base_ms.line);
    judge_exceptions(g, p, name);
}

/* The instance's name as written: the fourth part of the path. */
static const char *instance_shown(struct spring *g, const struct property *x)
{
    const char *at = x->shown;
    for (int dots = 0; dots < 3 && at; dots++)
        at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL;
    return at ? pool_copy(&g->r->pool, slice_of(at, strcspn(at, "."))) : x->shown;
}

static void instances_read(struct spring *g)
{
    static const char prefix[] = "resilience4j.retry.instances.";
    size_t n = sizeof prefix - 1, i = lower(g, prefix);
    while (i < g->count && begins(g->list[i].path, prefix) && g->r->policy_count < POLICIES_MAX) {
        const struct property *first = &g->list[i];
        size_t len = strcspn(first->path + n, ".");
        unsigned line = first->line;
        /* All properties of one instance stand together, since the list is sorted. */
        for (; i < g->count && strncmp(g->list[i].path, first->path, n + len) == 0 &&
               strcspn(g->list[i].path + n, ".") == len;
             i++)
            line = g->list[i].line < line ? g->list[i].line : line;
        instance_read(g, pool_copy(&g->r->pool, slice_of(first->path + n, len)), instance_shown(g, first),
                      line);
    }
}

/* ---- Spring Cloud Gateway ---- */

static bool args_mention(const struct spring *g, const char *args, const char *name, const char *word,
                         bool *given)
{
    const char *prefix = pool_format(&g->r->pool, "%s%s", args, name);
    bool found = false;
    for (size_t i = lower(g, prefix); i < g->count && begins(g->list[i].path, prefix); i++) {
        *given = true;
        found = found || mentions(g->list[i].value, word);
    }
    return found;
}

static void gateway_filter(struct spring *g, const struct property *x)
{
    size_t n = strlen(x->path);
    if (n < 5 || strcmp(x->path + n - 5, ".name") != 0 || !slice_is(x->value, "Retry"))
        return;
    const char *args = pool_format(&g->r->pool, "%.*s.args.", (int)(n - 5), x->path);
    struct review_policy *p = review_policy_new(g->r, g->format, g->s, x->line, "gateway Retry filter");
    if (!p)
        return;
    bool methods = false, given = false;
    bool writes = args_mention(g, args, "methods", "POST", &methods) ||
                  args_mention(g, args, "methods", "PATCH", &methods);
    const struct property *list = find(g, pool_format(&g->r->pool, "%smethods", args));
    if (!list)
        list = find(g, pool_format(&g->r->pool, "%smethods[0]", args));
    struct fact retries = number(g, find(g, pool_format(&g->r->pool, "%sretries", args)));
    int64_t count = retries.known ? retries.value : 3;
    p->attempts = fact_at(span_add(count < 0 ? 0 : count, 1), g->s, retries.known ? retries.line : x->line);
    p->mutating = fact_at(writes, g->s, list ? list->line : x->line);
    p->repeats_unknown = fact_at(1, g->s, list ? list->line : x->line);
    p->repeats_on = "5xx, IOException and TimeoutException";
    if (args_mention(g, args, "series", "CLIENT_ERROR", &given) ||
        args_mention(g, args, "statuses", "BAD_REQUEST", &given) ||
        args_mention(g, args, "statuses", "NOT_FOUND", &given)) {
        if (writes)
            review_find(g->r, RULE_DEFINITE_REPEATED, g->s, x->line, p->name, "repeats after 4xx");
    }
    struct fact first = duration(g, find(g, pool_format(&g->r->pool, "%sbackoff.firstbackoff", args)));
    struct fact cap = duration(g, find(g, pool_format(&g->r->pool, "%sbackoff.maxbackoff", args)));
    struct fact factor = number(g, find(g, pool_format(&g->r->pool, "%sbackoff.factor", args)));
    if (first.known) {
        p->wait_base_ms = first;
        p->wait_cap_ms = cap;
        if (factor.known)
            p->wait_growth_percent =
                fact_at(span_multiply(factor.value < 0 ? 0 : factor.value, 100), g->s, first.line);
    } else if (writes) {
        p->wait_base_ms = fact_at(0, g->s, x->line); /* the filter does not wait unless it is told to */
    }
}

/* ---- load balancers ---- */

static void balancer(struct spring *g, const struct property *x)
{
    bool ribbon = mentions(slice_text(x->path), "ribbon.oktoretryonalloperations");
    if (!ribbon && !mentions(slice_text(x->path), "loadbalancer.retry.retryonalloperations"))
        return;
    if (!on(x))
        return;
    size_t n = (size_t)(strrchr(x->path, '.') - x->path);
    const char *same = ribbon ? "maxautoretries" : "maxretriesonsameserviceinstance";
    const char *next = ribbon ? "maxautoretriesnextserver" : "maxretriesonnextserviceinstance";
    struct fact a = number(g, find(g, pool_format(&g->r->pool, "%.*s.%s", (int)n, x->path, same)));
    struct fact b = number(g, find(g, pool_format(&g->r->pool, "%.*s.%s", (int)n, x->path, next)));
    struct review_policy *p =
        review_policy_new(g->r, g->format, g->s, x->line, ribbon ? "ribbon" : "load balancer");
    if (!p)
        return;
    int64_t tries = span_multiply((a.known && a.value > 0 ? a.value : 0) + 1,
                                  (b.known && b.value >= 0 ? b.value : 1) + 1);
    p->attempts = fact_at(tries, g->s, b.known ? b.line : x->line);
    p->mutating = p->repeats_unknown = fact_at(1, g->s, x->line);
    p->repeats_on = "any failure, on all operations";
}

/* ---- listeners ---- */

static void listener(struct spring *g, const char *kind)
{
    struct pool *pool = &g->r->pool;
    const char *base = pool_format(pool, "spring.rabbitmq.listener.%s.", kind);
    const struct property *enabled = find(g, pool_format(pool, "%sretry.enabled", base));
    const struct property *requeue = find(g, pool_format(pool, "%sdefaultrequeuerejected", base));
    const char *name = pool_format(pool, "rabbitmq listener %s", kind);
    if (on(requeue) && !on(enabled))
        review_find(g->r, RULE_ENDLESS_RETRIES, g->s, requeue->line, name,
                    "a message whose handler throws is put back without end");
    if (!on(enabled))
        return;
    struct review_policy *p = review_policy_new(g->r, g->format, g->s, enabled->line, name);
    if (!p)
        return;
    p->attempts = number(g, find(g, pool_format(pool, "%sretry.maxattempts", base)));
    if (!p->attempts.known)
        p->attempts = fact_at(3, g->s, enabled->line);
    p->wait_base_ms = duration(g, find(g, pool_format(pool, "%sretry.initialinterval", base)));
    if (!p->wait_base_ms.known)
        p->wait_base_ms = fact_at(1000, g->s, enabled->line);
    p->wait_cap_ms = duration(g, find(g, pool_format(pool, "%sretry.maxinterval", base)));
    int64_t growth;
    const struct property *factor = find(g, pool_format(pool, "%sretry.multiplier", base));
    if (factor && span_parse(&growth, factor->value, 100))
        p->wait_growth_percent = fact_at(growth, g->s, factor->line);
}

/* ---- settings of our readers' own code that speak of idempotency ---- */

static bool ends_with_any(const char *path, const char *const *words)
{
    const char *last = strrchr(path, '.');
    last = last ? last + 1 : path;
    for (; *words; words++)
        if (strstr(last, *words))
            return true;
    return false;
}

static void idempotency(struct spring *g, const struct property *x)
{
    static const char *const lives[] = {"ttl", "expir", "life", "retention", "window", NULL};
    static const char *const makers[] = {"generator", "strategy", "source", NULL};
    static const char *const keys[] = {"key", "template", "expression", "spel", "format", "pattern", NULL};
    struct slice part;
    if (!strstr(x->path, "idempoten"))
        return;
    if (ends_with_any(x->path, lives)) {
        int64_t ms;
        if (!span_parse(&ms, x->value, 1000))
            return;
        struct review_policy *p = review_policy_new(g->r, g->format, g->s, x->line, x->shown);
        if (p)
            p->key_life_ms = fact_at(ms, g->s, x->line);
        return;
    }
    bool maker = ends_with_any(x->path, makers);
    if (!maker && !ends_with_any(x->path, keys))
        return;
    const char *text = maker ? pool_format(&g->r->pool, "{%.*s}", (int)x->value.len, x->value.data)
                             : pool_copy(&g->r->pool, x->value);
    const char *why = key_volatile(slice_text(text), KEY_BRACES, &part);
    if (why)
        review_find(g->r, RULE_KEY_VOLATILE, g->s, x->line, x->shown, "%.*s: %s", (int)part.len, part.data,
                    why);
}

static void judge_all(struct spring *g)
{
    if (g->count)
        qsort(g->list, g->count, sizeof *g->list, compare);
    instances_read(g);
    listener(g, "simple");
    listener(g, "direct");
    for (size_t i = 0; i < g->count; i++) {
        gateway_filter(g, &g->list[i]);
        balancer(g, &g->list[i]);
        idempotency(g, &g->list[i]);
    }
    free(g->list);
}

void spring_read(struct review *r, struct source *s, struct tree *root)
{
    char path[PATH_BYTES_MAX] = "";
    struct spring g = {.r = r, .s = s, .format = FORMAT_SPRING};
    flatten(&g, root, path, 0, 0);
    judge_all(&g);
}

bool properties_read(struct review *r, struct source *s)
{
    struct spring g = {.r = r, .s = s, .format = FORMAT_PROPERTIES};
    for (unsigned line = 1; line <= s->lines; line++) {
        struct slice text = slice_trim(source_line(s, line));
        if (!text.len || text.data[0] == '#' || text.data[0] == '!')
            continue;
        size_t n = 0;
        while (n < text.len && text.data[n] != '=' && text.data[n] != ':')
            n++;
        struct slice key = slice_trim(slice_of(text.data, n));
        if (n < text.len && key.len && key.len < PATH_BYTES_MAX)
            add(&g, pool_copy(&r->pool, key), slice_of(text.data + n + 1, text.len - n - 1), line);
    }
    judge_all(&g);
    return true;
}
