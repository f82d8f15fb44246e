/* SPDX-License-Identifier: MIT
 *
 * HAProxy: sections of lines. A proxy section starts with what the last `defaults` said. The layer-7 retries of
 * `retry-on` send a whole request again whatever its method, unless `http-request disable-l7-retry` takes the
 * writes out; plain `retries` only repeats the connecting, which proves that nothing ran.
 */
#include "review/key.h"
#include "review/reader.h"

/* Words of one line. */
#define WORDS_MAX 64

struct section {
    const char *kind, *name;
    unsigned line;
    struct fact retries, server_timeout, connect_timeout;
    const char *retry_on;
    unsigned retry_on_line;
    bool writes_out; /* disable-l7-retry keeps the writes from being repeated */
    bool proxies;    /* backend or listen */
};

struct haproxy {
    struct review *r;
    struct source *s;
    struct section defaults, now;
};

/* Splits a line into words: quotes, backslashes, comments (haproxy configuration manual, section 2.2). */
static unsigned split(struct review *r, struct slice line, const char *words[WORDS_MAX])
{
    unsigned count = 0;
    size_t i = 0;
    while (i < line.len && count < WORDS_MAX) {
        while (i < line.len && (line.data[i] == ' ' || line.data[i] == '\t'))
            i++;
        if (i >= line.len || line.data[i] == '#')
            break;
        struct buffer word = {0};
        char quote = 0;
        for (; i < line.len; i++) {
            char c = line.data[i];
            if (quote && c == quote)
                quote = 0;
            else if (!quote && (c == '"' || c == '\''))
                quote = c;
            else if (c == '\\' && quote != '\'' && i + 1 < line.len)
                buffer_byte(&word, line.data[++i]);
            else if (!quote && (c == ' ' || c == '\t' || c == '#'))
                break;
            else
                buffer_byte(&word, c);
        }
        words[count++] = pool_copy(&r->pool, buffer_view(&word));
        buffer_fini(&word);
    }
    return count;
}

static bool is(const char *word, const char *text)
{
    return strcmp(word, text) == 0;
}

static bool retry_on_unknown(const char *on)
{
    static const char *const conditions[] = {
        "empty-response",      "junk-response", "response-timeout", "500", "502", "503", "504", "408",
        "all-retryable-errors"};
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        if (strstr(on, conditions[i]))
            return true;
    return false;
}

static bool retry_on_definite(const char *on)
{
    return strstr(on, "401") || strstr(on, "403") || strstr(on, "404");
}

static void section_end(struct haproxy *h)
{
    struct section *n = &h->now;
    if (!n->proxies)
        return;
    const char *name = pool_format(&h->r->pool, "%s %s", n->kind, n->name);
    struct review_policy *p = review_policy_new(h->r, FORMAT_HAPROXY, h->s, n->line, name);
    if (!p)
        return;
    if (n->retries.known)
        p->attempts = fact_at(span_add(n->retries.value, 1), h->s, n->retries.line);
    else if (n->retry_on)
        p->attempts = fact_at(4, h->s, n->retry_on_line); /* HAProxy's default is 3 retries */
    p->attempt_timeout_ms = n->server_timeout;
    if (!n->retry_on || is(n->retry_on, "none"))
        return;
    p->repeats_on = n->retry_on;
    if (n->writes_out)
        p->mutating = fact_at(0, h->s, n->line);
    if (retry_on_unknown(n->retry_on))
        p->repeats_unknown = fact_at(1, h->s, n->retry_on_line);
    if (retry_on_definite(n->retry_on) && policy_may_mutate(p))
        review_find(h->r, RULE_DEFINITE_REPEATED, h->s, n->retry_on_line, p->name, "retry-on %s",
                    n->retry_on);
    if (!n->server_timeout.known)
        p->no_attempt_timeout = fact_at(1, h->s, n->retry_on_line);
}

static void section_begin(struct haproxy *h, unsigned line, const char *const *w, unsigned count)
{
    section_end(h);
    if (is(h->now.kind, "defaults"))
        h->defaults = h->now;
    bool proxy = is(w[0], "backend") || is(w[0], "listen") || is(w[0], "frontend");
    struct section empty = {0};
    h->now = proxy ? h->defaults : empty;
    h->now.kind = w[0];
    h->now.name = count > 1 ? w[1] : "";
    h->now.line = line;
    h->now.proxies = is(w[0], "backend") || is(w[0], "listen");
}

static const char *join(struct review *r, const char *const *w, unsigned from, unsigned count)
{
    struct buffer text = {.max = 1024};
    for (unsigned i = from; i < count; i++) {
        if (i > from)
            buffer_byte(&text, ' ');
        buffer_text(&text, w[i]);
    }
    const char *joined = pool_copy(&r->pool, buffer_view(&text));
    buffer_fini(&text);
    return joined;
}

/* disable-l7-retry if METH_POST, unless METH_GET, or without a condition. */
static bool takes_writes_out(const char *const *w, unsigned count)
{
    if (count == 2)
        return true;
    bool unless = is(w[2], "unless");
    for (unsigned i = 3; i < count; i++) {
        bool post = strstr(w[i], "POST") != NULL;
        bool get = strstr(w[i], "METH_GET") || is(w[i], "GET");
        if ((unless && get) || (!unless && (post || (get && w[i][0] == '!'))))
            return true;
    }
    return false;
}

static void http_request(struct haproxy *h, unsigned line, const char *const *w, unsigned count)
{
    bool conditional = false;
    for (unsigned i = 2; i < count; i++)
        conditional = conditional || is(w[i], "if") || is(w[i], "unless");
    if (is(w[1], "disable-l7-retry") && takes_writes_out(w, count))
        h->now.writes_out = true;
    /* A header that is only set when it is missing is what a gateway should do. */
    if ((is(w[1], "set-header") || is(w[1], "add-header")) && count > 3 && !conditional)
        key_judge(h->r, h->s, line, h->now.name, slice_text(w[2]), slice_text(w[3]), KEY_HAPROXY, true);
    else if (is(w[1], "set-header") && count > 3 && key_header(slice_text(w[2])))
        key_judge(h->r, h->s, line, h->now.name, slice_text(w[2]), slice_text(w[3]), KEY_HAPROXY, false);
    if (is(w[1], "del-header") && count > 2 && !conditional)
        key_judge(h->r, h->s, line, h->now.name, slice_text(w[2]), slice_text(""), KEY_HAPROXY, true);
}

/* http-response set-status 200 if { status 504 } */
static void http_response(struct haproxy *h, unsigned line, const char *const *w, unsigned count)
{
    int64_t status;
    bool unknown = false;
    for (unsigned i = 3; i < count; i++)
        unknown = unknown || is(w[i], "502") || is(w[i], "503") || is(w[i], "504") || is(w[i], "500:599") ||
                  is(w[i], "502:504");
    if (is(w[1], "set-status") && count > 3 && unknown && number_parse(&status, slice_text(w[2])) &&
        status < 500)
        review_find(h->r, RULE_ERROR_HIDES, h->s, line, h->now.name, "502 to 504 become %s", w[2]);
}

static void take_line(struct haproxy *h, unsigned line, const char *const *w, unsigned count)
{
    static const char *const sections[] = {
        "global",  "defaults", "frontend", "backend",     "listen", "peers",       "resolvers", "userlist",
        "mailers", "program",  "ring",     "http-errors", "cache",  "log-forward", "fcgi-app",  "crt-store"};
    int64_t value;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (is(w[0], sections[i]) && !(is(w[0], "cache") && !is(h->now.kind, "") && count < 2)) {
            section_begin(h, line, w, count);
            return;
        }
    }
    if (is(w[0], "retries") && count > 1 && number_parse(&value, slice_text(w[1])) && value >= 0) {
        h->now.retries = fact_at(value, h->s, line);
    } else if (is(w[0], "retry-on") && count > 1) {
        h->now.retry_on = join(h->r, w, 1, count);
        h->now.retry_on_line = line;
    } else if (is(w[0], "timeout") && count > 2 && span_parse(&value, slice_text(w[2]), 1)) {
        if (is(w[1], "server"))
            h->now.server_timeout = fact_at(value, h->s, line);
        else if (is(w[1], "connect"))
            h->now.connect_timeout = fact_at(value, h->s, line);
    } else if (is(w[0], "http-request") && count > 1) {
        http_request(h, line, w, count);
    } else if (is(w[0], "http-response") && count > 2) {
        http_response(h, line, w, count);
    }
}

bool haproxy_read(struct review *r, struct source *s)
{
    struct haproxy h = {.r = r, .s = s};
    h.now.kind = h.now.name = h.defaults.kind = h.defaults.name = "";
    for (unsigned i = 1; i <= s->lines && !r->pool.failed; i++) {
        const char *words[WORDS_MAX];
        unsigned count = split(r, source_line(s, i), words);
        if (count)
            take_line(&h, i, words, count);
    }
    section_end(&h);
    return true;
}
