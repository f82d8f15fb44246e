/* SPDX-License-Identifier: MIT
 *
 * nginx: the file and its includes become a tree of directives, and each block that passes requests on is judged
 * with what it inherits. Two passes, because a directive set late in `server` still counts for a `location`
 * above it.
 *
 * What nginx does by itself (ngx_http_upstream.c, since 1.9.13): a POST, LOCK or PATCH that has begun to be sent
 * goes to no other server unless the list says `non_idempotent`. So only that word makes a finding.
 */
#include "review/key.h"
#include "review/reader.h"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>

/* Blocks inside each other. */
#define BLOCKS_MAX 32u
/* Words of one directive. */
#define WORDS_MAX 256u
/* Files one include pattern may match. */
#define GLOB_MAX 128u
/* Servers of upstream blocks are looked up by name among this many blocks. */
#define UPSTREAMS_MAX 512u

struct directive {
    struct slice *words;
    unsigned count;
    const struct source *source;
    unsigned line;
    bool block;
    struct directive *first, *last, *next;
};

struct upstream {
    struct slice name;
    unsigned servers;
};

struct nginx {
    struct review *r;
    bool failed;
    struct upstream upstreams[UPSTREAMS_MAX];
    unsigned upstream_count;
};

struct scanner {
    struct nginx *n;
    const struct source *s;
    size_t at;
};

enum token { TOKEN_WORD, TOKEN_OPEN, TOKEN_CLOSE, TOKEN_SEMICOLON, TOKEN_END, TOKEN_BROKEN };

static enum token token_next(struct scanner *c, struct slice *word, unsigned *line)
{
    const char *t = c->s->text;
    size_t len = c->s->len;
    for (;;) {
        while (c->at < len && strchr(" \t\r\n", t[c->at]))
            c->at++;
        if (c->at < len && t[c->at] == '#') {
            while (c->at < len && t[c->at] != '\n')
                c->at++;
            continue;
        }
        break;
    }
    if (c->at >= len)
        return TOKEN_END;
    *line = source_line_at(c->s, c->at);
    char first = t[c->at];
    if (first == '{' || first == '}' || first == ';') {
        c->at++;
        return first == '{' ? TOKEN_OPEN : first == '}' ? TOKEN_CLOSE : TOKEN_SEMICOLON;
    }
    size_t from = c->at;
    if (first == '"' || first == '\'') {
        for (c->at++; c->at < len && t[c->at] != first; c->at++)
            if (t[c->at] == '\\')
                c->at++;
        if (c->at >= len)
            return TOKEN_BROKEN;
        *word = slice_of(t + from + 1, c->at - from - 1);
        c->at++;
        return TOKEN_WORD;
    }
    for (; c->at < len && !strchr(" \t\r\n;", t[c->at]); c->at++) {
        if (t[c->at] == '\\' && c->at + 1 < len)
            c->at++;
        else if (t[c->at] == '{' && t[c->at - (c->at > from)] != '$')
            break; /* ${name} belongs to the word, a bare { opens a block */
        else if (t[c->at] == '}' && !memchr(t + from, '{', c->at - from))
            break;
    }
    *word = slice_of(t + from, c->at - from);
    return TOKEN_WORD;
}

static void hang(struct directive *parent, struct directive *d)
{
    if (parent->last)
        parent->last->next = d;
    else
        parent->first = d;
    parent->last = d;
}

static void fail(struct scanner *c, unsigned line, const char *what)
{
    review_problem(c->n->r, c->s->path, line, "not nginx: %s", what);
    c->n->failed = true;
}

static void parse(struct scanner *c, struct directive *parent, unsigned depth);

static const char *include_path(struct nginx *n, const struct source *s, struct slice pattern)
{
    if (pattern.len && pattern.data[0] == '/')
        return pool_copy(&n->r->pool, pattern);
    const struct source *root = s;
    while (root->parent)
        root = root->parent;
    const char *slash = strrchr(root->path, '/');
    int dir = slash ? (int)(slash - root->path) + 1 : 0;
    return pool_format(&n->r->pool, "%.*s%.*s", dir, root->path, (int)pattern.len, pattern.data);
}

static void include_one(struct scanner *c, struct directive *parent, unsigned line, const char *path,
                        unsigned depth)
{
    struct source *s = review_include(c->n->r, c->s, line, path, true);
    if (!s)
        return;
    struct scanner inner = {c->n, s, 0};
    parse(&inner, parent, depth);
}

static void include(struct scanner *c, struct directive *parent, struct directive *d, unsigned depth)
{
    if (c->s->device == 0 && c->s->inode == 0)
        return; /* bytes from memory: nothing is followed */
    struct slice pattern = d->count > 1 ? d->words[1] : slice_of("", 0);
    if (!pattern.len || pattern.len > PATH_MAX / 2) {
        fail(c, d->line, "include without a file");
        return;
    }
    const char *path = include_path(c->n, c->s, pattern);
    if (!strpbrk(path, "*?[")) {
        include_one(c, parent, d->line, path, depth);
        return;
    }
    glob_t found = {0};
    if (glob(path, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && i < GLOB_MAX; i++)
            include_one(c, parent, d->line, found.gl_pathv[i], depth);
        if (found.gl_pathc > GLOB_MAX)
            review_problem(c->n->r, c->s->path, d->line, "more than %u files match; the rest was not read",
                           GLOB_MAX);
    }
    globfree(&found);
}

/* Skips a block whose inside is not directives of ours (Lua code); braces inside strings are not looked for. */
static void skip_block(struct scanner *c)
{
    unsigned open = 1;
    for (; c->at < c->s->len && open; c->at++)
        open += c->s->text[c->at] == '{' ? 1u : c->s->text[c->at] == '}' ? UINT_MAX : 0u;
}

static void parse(struct scanner *c, struct directive *parent, unsigned depth)
{
    struct slice words[WORDS_MAX], word;
    unsigned count = 0, line = 1, begin = 1;
    if (depth > BLOCKS_MAX) {
        fail(c, begin, "blocks nested too deeply");
        return;
    }
    while (!c->n->failed && !c->n->r->pool.failed) {
        enum token t = token_next(c, &word, &line);
        if (t == TOKEN_WORD) {
            if (count == WORDS_MAX) {
                fail(c, line, "a directive with too many words");
                return;
            }
            if (!count)
                begin = line;
            words[count++] = word;
            continue;
        }
        if (t == TOKEN_BROKEN) {
            fail(c, line, "a quote is not closed");
            return;
        }
        if (t == TOKEN_END || t == TOKEN_CLOSE) {
            if (count)
                fail(c, begin, "a directive without ; at its end");
            else if (t == TOKEN_END && parent->block && parent->source == c->s)
                fail(c, parent->line, "a block is not closed");
            else if (t == TOKEN_CLOSE && (!parent->block || parent->source != c->s))
                fail(c, line, "} without {");
            return;
        }
        if (!count) {
            fail(c, line, t == TOKEN_OPEN ? "{ without a name" : "; without a directive");
            return;
        }
        struct directive *d = pool_alloc(&c->n->r->pool, sizeof *d);
        struct slice *kept = pool_alloc(&c->n->r->pool, count * sizeof *kept);
        if (!d || !kept)
            return;
        memcpy(kept, words, count * sizeof *kept);
        *d = (struct directive){.words = kept, .count = count, .source = c->s, .line = begin};
        count = 0;
        if (t == TOKEN_SEMICOLON && slice_is(d->words[0], "include")) {
            include(c, parent, d, depth);
            continue;
        }
        hang(parent, d);
        if (t == TOKEN_SEMICOLON)
            continue;
        d->block = true;
        size_t n = d->words[0].len;
        if (n > 13 && memcmp(d->words[0].data + n - 13, "_by_lua_block", 13) == 0)
            skip_block(c);
        else
            parse(c, d, depth + 1);
    }
}

/* ---- the second pass ---- */

/* What a block inherits; one set for each module that passes requests on. */
enum { PROXY, FASTCGI, UWSGI, SCGI, GRPC, MODULES };
static const char *const module_names[MODULES] = {"proxy", "fastcgi", "uwsgi", "scgi", "grpc"};

struct settings {
    struct {
        const struct directive *next, *tries, *read, *pass;
    } of[MODULES];
};

static bool module_directive(struct slice word, const char *module, const char *rest)
{
    size_t n = strlen(module);
    return word.len > n + 1 && memcmp(word.data, module, n) == 0 && word.data[n] == '_' &&
           slice_is(slice_of(word.data + n + 1, word.len - n - 1), rest);
}

static void take(struct settings *set, const struct directive *d)
{
    for (int m = 0; m < MODULES; m++) {
        if (module_directive(d->words[0], module_names[m], "next_upstream"))
            set->of[m].next = d;
        else if (module_directive(d->words[0], module_names[m], "next_upstream_tries"))
            set->of[m].tries = d;
        else if (module_directive(d->words[0], module_names[m], "read_timeout"))
            set->of[m].read = d;
        else if (module_directive(d->words[0], module_names[m], "pass"))
            set->of[m].pass = d;
    }
}

static struct slice join(struct review *r, const struct directive *d, unsigned from)
{
    struct buffer text = {.max = 4096};
    for (unsigned i = from; i < d->count; i++) {
        if (i > from)
            buffer_byte(&text, ' ');
        buffer_slice(&text, d->words[i]);
    }
    struct slice joined = slice_text(pool_copy(&r->pool, buffer_view(&text)));
    buffer_fini(&text);
    return joined;
}

static bool next_word(struct slice *rest, struct slice *word)
{
    size_t i = 0;
    while (i < rest->len && strchr(" \t\r\n,", rest->data[i]))
        i++;
    size_t from = i;
    while (i < rest->len && !strchr(" \t\r\n,", rest->data[i]))
        i++;
    *word = slice_of(rest->data + from, i - from);
    *rest = slice_of(rest->data + i, rest->len - i);
    return word->len > 0;
}

void nginx_next_upstream(struct review *r, struct review_policy *p, struct slice words,
                         const struct source *s, unsigned line)
{
    struct slice rest = words, word;
    bool off = false, writes = false, unknown = false, definite = false;
    while (next_word(&rest, &word)) {
        off = off || slice_is(word, "off");
        writes = writes || slice_is(word, "non_idempotent");
        definite = definite || slice_is(word, "http_403") || slice_is(word, "http_404");
        unknown = unknown || slice_is(word, "error") || slice_is(word, "timeout") ||
                  slice_is(word, "invalid_header") || slice_is(word, "http_500") ||
                  slice_is(word, "http_502") || slice_is(word, "http_503") || slice_is(word, "http_504");
    }
    if (off) {
        p->attempts = fact_at(1, s, line);
        return;
    }
    if (!writes)
        return;
    p->mutating = fact_at(1, s, line);
    p->repeats_on = pool_copy(&r->pool, words);
    if (unknown)
        p->repeats_unknown = fact_at(1, s, line);
    if (definite)
        review_find(r, RULE_DEFINITE_REPEATED, s, line, p->name, "a 403 or 404 is sent to another server");
}

static unsigned upstream_servers(const struct nginx *n, struct slice pass)
{
    const char *scheme = pass.len ? memmem(pass.data, pass.len, "://", 3) : NULL;
    if (scheme)
        pass = slice_of(scheme + 3, pass.len - (size_t)(scheme + 3 - pass.data));
    size_t end = 0;
    while (end < pass.len && pass.data[end] != '/')
        end++;
    pass.len = end;
    for (unsigned i = 0; i < n->upstream_count; i++)
        if (slice_equal(n->upstreams[i].name, pass))
            return n->upstreams[i].servers;
    return 0;
}

static void judge_pass(struct nginx *n, const struct settings *set, int module, const char *name)
{
    const struct directive *pass = set->of[module].pass, *next = set->of[module].next,
                           *tries = set->of[module].tries, *read = set->of[module].read;
    struct review_policy *p = review_policy_new(n->r, FORMAT_NGINX, pass->source, pass->line, name);
    int64_t value;
    if (!p)
        return;
    if (tries && tries->count > 1 && number_parse(&value, tries->words[1]) && value > 0)
        p->attempts = fact_at(value, tries->source, tries->line);
    if (next)
        nginx_next_upstream(n->r, p, join(n->r, next, 1), next->source, next->line);
    unsigned servers = pass->count > 1 ? upstream_servers(n, pass->words[1]) : 0;
    if (!p->attempts.known && next && fact_is(p->mutating, 1) && servers)
        p->attempts = fact_at(servers, next->source, next->line);
    p->attempt_timeout_ms = fact_at(60000, pass->source, pass->line); /* nginx's default */
    if (read && read->count > 1 && span_parse(&value, read->words[1], 1000))
        p->attempt_timeout_ms = fact_at(value, read->source, read->line);
}

static bool hides(struct slice answer)
{
    int64_t status;
    if (answer.len < 2 || answer.data[0] != '=' ||
        !number_parse(&status, slice_of(answer.data + 1, answer.len - 1)))
        return false;
    return status < 500;
}

/* error_page 502 504 =200 /x: the caller reads 200. */
static void judge_error_page(struct nginx *n, const struct directive *d, const char *place)
{
    bool unknown = false;
    for (unsigned i = 1; i < d->count; i++) {
        struct slice w = d->words[i];
        if (slice_is(w, "502") || slice_is(w, "503") || slice_is(w, "504"))
            unknown = true;
        else if (unknown && hides(w))
            review_find(n->r, RULE_ERROR_HIDES, d->source, d->line, place, "502 to 504 become %.*s",
                        (int)(w.len - 1), w.data + 1);
    }
}

static void judge_directive(struct nginx *n, const struct directive *d, const char *place)
{
    struct slice name = d->words[0];
    if (slice_is(name, "error_page"))
        judge_error_page(n, d, place);
    if (d->count >= 3 && (slice_is(name, "proxy_set_header") || slice_is(name, "grpc_set_header")))
        key_judge(n->r, d->source, d->line, place, d->words[1], d->words[2], KEY_NGINX, true);
}

static void evaluate(struct nginx *n, const struct directive *block, struct settings inherited,
                     const char *place)
{
    struct settings own = inherited;
    for (int m = 0; m < MODULES; m++)
        own.of[m].pass = NULL;
    for (const struct directive *d = block->first; d; d = d->next) {
        if (d->block)
            continue;
        take(&own, d);
        judge_directive(n, d, place);
    }
    for (int m = 0; m < MODULES; m++)
        if (own.of[m].pass)
            judge_pass(n, &own, m, place);
    for (const struct directive *d = block->first; d; d = d->next) {
        if (!d->block || slice_is(d->words[0], "upstream"))
            continue;
        struct slice label = join(n->r, d, 0);
        bool named = slice_is(d->words[0], "location") || slice_is(d->words[0], "server");
        evaluate(n, d, own, named ? label.data : place);
    }
}

static void find_upstreams(struct nginx *n, const struct directive *block)
{
    for (const struct directive *d = block->first; d; d = d->next) {
        if (!d->block)
            continue;
        if (slice_is(d->words[0], "upstream") && d->count > 1 && n->upstream_count < UPSTREAMS_MAX) {
            struct upstream *u = &n->upstreams[n->upstream_count++];
            *u = (struct upstream){.name = d->words[1]};
            for (const struct directive *server = d->first; server; server = server->next)
                u->servers += slice_is(server->words[0], "server");
        }
        find_upstreams(n, d);
    }
}

bool nginx_read(struct review *r, struct source *s)
{
    struct nginx *n = pool_alloc(&r->pool, sizeof *n);
    struct directive root = {.source = s};
    if (!n)
        return false;
    n->r = r;
    struct scanner c = {n, s, 0};
    parse(&c, &root, 0);
    if (n->failed)
        return false;
    find_upstreams(n, &root);
    struct settings none = {0};
    evaluate(n, &root, none, source_name(s));
    return true;
}

void nginx_snippet(struct review *r, struct source *s, unsigned line, const char *place, struct slice text)
{
    struct source *inner;
    const char *why;
    struct nginx *n = pool_alloc(&r->pool, sizeof *n);
    if (!n || source_from_memory(&inner, &why, &r->pool, s->path, text) != STATUS_OK)
        return;
    n->r = r;
    struct directive root = {.source = inner};
    struct scanner c = {n, inner, 0};
    size_t before = r->problem_count;
    parse(&c, &root, 0);
    if (n->failed) {
        r->problem_count = before;
        review_problem(r, s->path, line, "the snippet of %s is not nginx", place);
        return;
    }
    /* A finding must point into the file itself: the snippet's first line is the one after its name. */
    for (struct directive *d = root.first; d; d = d->next) {
        d->source = s;
        d->line += line;
        if (!d->block)
            judge_directive(n, d, place);
    }
}
