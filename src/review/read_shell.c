/* SPDX-License-Identifier: MIT
 *
 * Shell scripts: every `curl` and `wget` that writes (POST or PATCH), the loops around them, the key they send and
 * what becomes of their error. Words, quotes, comments, here-documents and $(...) are read as a shell reads them;
 * nothing is expanded or run. What is hidden in a variable stays unknown.
 */
#include "review/key.h"
#include "review/reader.h"

#include <stdlib.h>

/* Words of one command, loops inside each other, $(...) inside each other, variables, writes of one loop. */
#define WORDS_MAX     256u
#define LOOPS_MAX     16u
#define NESTING_MAX   6u
#define VARIABLES_MAX 256u
#define WRITES_MAX    64u

enum operator_ { OP_NONE, OP_AND, OP_OR, OP_PIPE, OP_END };

struct word {
    struct slice text;
    unsigned line;
};

struct write {
    struct review_policy *policy;
    const char *url;
    bool is_condition; /* the loop goes on or ends by its success */
};

struct loop {
    struct slice kind; /* for, while, until */
    unsigned line;
    int64_t count; /* known number of rounds, 0 if not */
    bool endless, in_condition, sleeps;
    struct fact wait;
    bool wait_random, wait_computed;
    unsigned exits; /* break, exit, return */
    struct write writes[WRITES_MAX];
    unsigned write_count;
};

struct variable {
    struct slice name;
    const char *why; /* volatile, and why */
    unsigned depth;  /* loops around the assignment */
};

struct shell {
    struct review *r;
    struct source *s;
    struct loop loops[LOOPS_MAX];
    unsigned depth; /* may exceed LOOPS_MAX; the outermost are kept */
    struct variable variables[VARIABLES_MAX];
    unsigned variable_count;
    struct write last;   /* the command before, if it wrote */
    enum operator_ link; /* between it and this one */
};

struct script {
    const char *text;
    size_t len, at;
    unsigned line;
    unsigned nesting;
    struct slice heredoc; /* the word that ends the here-document that begins with the next line */
    bool heredoc_tabs;
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_heredoc(struct script *c)
{
    while (c->at < c->len) {
        size_t from = c->at;
        while (c->at < c->len && c->text[c->at] != '\n')
            c->at++;
        struct slice line = slice_of(c->text + from, c->at - from);
        while (c->heredoc_tabs && line.len && line.data[0] == '\t')
            line = slice_of(line.data + 1, line.len - 1);
        if (c->at < c->len)
            c->at++;
        c->line++;
        if (slice_equal(line, c->heredoc))
            break;
    }
    c->heredoc.len = 0;
}

/* Copies a quoted run, a $(...) or a `...` whole, counting lines. */
static void copy_until(struct script *c, struct buffer *out, char open, char close)
{
    unsigned depth = 1;
    for (; c->at < c->len && depth; c->at++) {
        char x = c->text[c->at];
        if (x == '\n')
            c->line++;
        if (x == '\\' && c->at + 1 < c->len && close != '\'') {
            buffer_byte(out, x);
            x = c->text[++c->at];
            if (x == '\n')
                c->line++;
        } else if (open && x == open) {
            depth++;
        } else if (x == close) {
            depth--;
        }
        if (depth)
            buffer_byte(out, x);
    }
}

static void commands_read(struct shell *sh, struct script *c);

/* A command inside $(...) may be a curl of its own. */
static void substitution(struct shell *sh, const struct script *outer, struct slice inside, unsigned line)
{
    if (outer->nesting + 1 > NESTING_MAX || !inside.len)
        return;
    if (!memmem(inside.data, inside.len, "curl", 4) && !memmem(inside.data, inside.len, "wget", 4))
        return;
    struct write last = sh->last;
    enum operator_ link = sh->link;
    struct script inner = {
        .text = inside.data, .len = inside.len, .line = line, .nesting = outer->nesting + 1};
    sh->link = OP_END;
    commands_read(sh, &inner);
    sh->last = last;
    sh->link = link;
}

static void dollar(struct shell *sh, struct script *c, struct buffer *out)
{
    buffer_byte(out, '$');
    c->at++;
    if (c->at >= c->len || (c->text[c->at] != '(' && c->text[c->at] != '{'))
        return;
    char open = c->text[c->at++], close = open == '(' ? ')' : '}';
    unsigned line = c->line;
    buffer_byte(out, open);
    size_t from = out->len;
    copy_until(c, out, open, close);
    if (open == '(' && !out->failed && !(out->len > from && out->data[from] == '('))
        substitution(sh, c, slice_text(pool_copy(&sh->r->pool, slice_of(out->data + from, out->len - from))),
                     line);
    buffer_byte(out, close);
}

static bool word_read(struct shell *sh, struct script *c, struct word *out)
{
    struct buffer text = {.max = 65536};
    out->line = c->line;
    while (c->at < c->len) {
        char x = c->text[c->at];
        if (blank(x) || strchr("\n;|&()<>", x))
            break;
        if (x == '\\' && c->at + 1 < c->len) {
            if (c->text[c->at + 1] == '\n')
                c->line++;
            else
                buffer_byte(&text, c->text[c->at + 1]);
            c->at += 2;
        } else if (x == '\'') {
            c->at++;
            copy_until(c, &text, 0, '\'');
        } else if (x == '"') {
            for (c->at++; c->at < c->len && c->text[c->at] != '"';) {
                if (c->text[c->at] == '$') {
                    dollar(sh, c, &text);
                    continue;
                }
                if (c->text[c->at] == '\\' && c->at + 1 < c->len)
                    c->at++;
                if (c->text[c->at] == '\n')
                    c->line++;
                buffer_byte(&text, c->text[c->at++]);
            }
            c->at += c->at < c->len;
        } else if (x == '`') {
            unsigned line = c->line;
            c->at++;
            buffer_text(&text, "$(");
            size_t from = text.len;
            copy_until(c, &text, 0, '`');
            if (!text.failed)
                substitution(sh, c,
                             slice_text(pool_copy(&sh->r->pool, slice_of(text.data + from, text.len - from))),
                             line);
            buffer_byte(&text, ')');
        } else if (x == '$') {
            dollar(sh, c, &text);
        } else {
            buffer_byte(&text, x);
            c->at++;
        }
    }
    out->text = slice_text(pool_copy(&sh->r->pool, buffer_view(&text)));
    buffer_fini(&text);
    return true;
}

/* ---- variables ---- */

static const char *shell_volatile(struct slice value, struct slice *part)
{
    return key_volatile(value, KEY_SHELL, part);
}

static void assign(struct shell *sh, struct slice name, struct slice value)
{
    struct slice part;
    const char *why = shell_volatile(value, &part);
    for (unsigned i = 0; i < sh->variable_count; i++) {
        if (slice_equal(sh->variables[i].name, name)) {
            sh->variables[i].why = why;
            sh->variables[i].depth = sh->depth;
            return;
        }
    }
    if (sh->variable_count < VARIABLES_MAX)
        sh->variables[sh->variable_count++] = (struct variable){name, why, sh->depth};
}

/* Why the value is new for each try: by itself, or by a variable that is set anew in the loop around it. */
static const char *new_each_try(struct shell *sh, struct slice value)
{
    struct slice part;
    const char *why = shell_volatile(value, &part);
    if (why)
        return why;
    for (unsigned i = 0; i < sh->variable_count && sh->depth; i++) {
        const struct variable *v = &sh->variables[i];
        if (!v->why || v->depth < sh->depth || !v->name.len)
            continue;
        const char *use = value.len ? memmem(value.data, value.len, v->name.data, v->name.len) : NULL;
        if (use && use > value.data && (use[-1] == '$' || use[-1] == '{'))
            return v->why;
    }
    return NULL;
}

/* ---- curl and wget ---- */

struct request {
    bool writes, forced_read, has_key, opaque, fresh_call_id;
    struct slice url;
    struct word retry, delay, timeout, key;
    bool all_errors;
    unsigned all_errors_line;
    const char *key_why;
};

static bool method_writes(struct slice m)
{
    return slice_is_nocase(m, "POST") || slice_is_nocase(m, "PATCH");
}

static void header(struct shell *sh, struct request *q, struct word w)
{
    const char *colon = w.text.len ? memchr(w.text.data, ':', w.text.len) : NULL;
    if (!colon) {
        q->opaque = q->opaque || (w.text.len && (w.text.data[0] == '$' || w.text.data[0] == '@'));
        return;
    }
    struct slice name = slice_trim(slice_of(w.text.data, (size_t)(colon - w.text.data)));
    struct slice value = slice_trim(slice_of(colon + 1, w.text.len - (size_t)(colon + 1 - w.text.data)));
    if (key_header(name) && value.len) {
        q->has_key = true;
        q->key = w;
        q->key_why = new_each_try(sh, value);
    } else if (key_call_id_header(name) && value.len) {
        q->fresh_call_id = sh->depth && new_each_try(sh, value);
        q->has_key = q->has_key || !q->fresh_call_id;
    }
}

static bool long_is(struct slice w, const char *name)
{
    return slice_is(w, name);
}

/* The value of a long option: behind "=" or the next word. */
static bool option_value(struct word *w, unsigned count, unsigned *i, const char *name, struct word *out)
{
    size_t n = strlen(name);
    struct slice t = w[*i].text;
    if (t.len > n && memcmp(t.data, name, n) == 0 && t.data[n] == '=') {
        *out = (struct word){slice_of(t.data + n + 1, t.len - n - 1), w[*i].line};
        return true;
    }
    if (!slice_is(t, name) || *i + 1 >= count)
        return false;
    *out = w[++*i];
    return true;
}

static void curl_short(struct shell *sh, struct request *q, struct word *w, unsigned count, unsigned *i)
{
    struct word here = w[*i];
    for (size_t k = 1; k < here.text.len; k++) {
        char option = here.text.data[k];
        if (option == 'G' || option == 'I')
            q->forced_read = true;
        if (!strchr("AbcCdDeEFHKmoPQrtTuUwxXyYz", option))
            continue;
        struct word value = {slice_of(here.text.data + k + 1, here.text.len - k - 1), here.line};
        if (!value.text.len && *i + 1 < count)
            value = w[++*i];
        if (option == 'd' || option == 'F')
            q->writes = true;
        else if (option == 'X' && method_writes(value.text))
            q->writes = true;
        else if (option == 'X')
            q->forced_read = true;
        else if (option == 'H')
            header(sh, q, value);
        else if (option == 'm')
            q->timeout = value;
        else if (option == 'K')
            q->opaque = true;
        return;
    }
}

static void curl_long(struct shell *sh, struct request *q, struct word *w, unsigned count, unsigned *i)
{
    static const char *const bodies[] = {"--data", "--data-raw", "--data-binary", "--data-urlencode",
                                         "--json", "--form",     "--data-ascii",  "--form-string"};
    struct word value;
    for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
        if (option_value(w, count, i, bodies[k], &value)) {
            q->writes = true;
            return;
        }
    }
    if (option_value(w, count, i, "--request", &value)) {
        q->writes = q->writes || method_writes(value.text);
        q->forced_read = q->forced_read || !method_writes(value.text);
    } else if (option_value(w, count, i, "--header", &value)) {
        header(sh, q, value);
    } else if (option_value(w, count, i, "--retry", &value)) {
        q->retry = value;
    } else if (option_value(w, count, i, "--retry-delay", &value)) {
        q->delay = value;
    } else if (option_value(w, count, i, "--max-time", &value)) {
        q->timeout = value;
    } else if (option_value(w, count, i, "--config", &value)) {
        q->opaque = true;
    } else if (option_value(w, count, i, "--url", &value)) {
        q->url = value.text;
    } else if (long_is(w[*i].text, "--retry-all-errors")) {
        q->all_errors = true;
        q->all_errors_line = w[*i].line;
    } else if (long_is(w[*i].text, "--get") || long_is(w[*i].text, "--head")) {
        q->forced_read = true;
    }
}

static void curl_read(struct shell *sh, struct request *q, struct word *w, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        struct slice t = w[i].text;
        if (t.len > 2 && t.data[0] == '-' && t.data[1] == '-')
            curl_long(sh, q, w, count, &i);
        else if (t.len > 1 && t.data[0] == '-')
            curl_short(sh, q, w, count, &i);
        else if (t.len && t.data[0] == '$' && memchr(t.data, '[', t.len))
            q->opaque = true; /* "${options[@]}" */
        else
            q->url = t;
    }
}

static void wget_read(struct shell *sh, struct request *q, struct word *w, unsigned count)
{
    struct word value;
    q->retry = (struct word){slice_text("20"), w[0].line}; /* wget's default, of tries */
    for (unsigned i = 1; i < count; i++) {
        struct slice t = w[i].text;
        if (option_value(w, count, &i, "--tries", &value) || option_value(w, count, &i, "-t", &value))
            q->retry = value;
        else if (option_value(w, count, &i, "--timeout", &value) || option_value(w, count, &i, "-T", &value))
            q->timeout = value;
        else if (option_value(w, count, &i, "--post-data", &value) ||
                 option_value(w, count, &i, "--post-file", &value))
            q->writes = true;
        else if (option_value(w, count, &i, "--method", &value))
            q->writes = method_writes(value.text);
        else if (option_value(w, count, &i, "--header", &value))
            header(sh, q, value);
        else if (t.len && t.data[0] != '-')
            q->url = t;
    }
}

static struct fact attempts_of(struct shell *sh, const struct request *q, bool wget, unsigned line)
{
    int64_t n;
    struct fact none = {0};
    if (!q->retry.text.len)
        return fact_at(1, sh->s, line);
    if (wget && (slice_is(q->retry.text, "inf") || slice_is(q->retry.text, "0")))
        return fact_at(ATTEMPTS_ENDLESS, sh->s, line);
    if (!number_parse(&n, q->retry.text) || n < 0)
        return none;
    return fact_at(wget ? n : span_add(n, 1), sh->s, line);
}

static void request_read(struct shell *sh, struct word *w, unsigned count, bool wget, struct fact budget)
{
    struct request q = {0};
    unsigned line = w[0].line;
    int64_t ms;
    if (wget)
        wget_read(sh, &q, w, count);
    else
        curl_read(sh, &q, w, count);
    if (!q.writes || q.forced_read)
        return;
    const char *url = pool_copy(&sh->r->pool, q.url);
    const char *name = pool_format(&sh->r->pool, "%s %s", wget ? "wget" : "curl", url);
    struct review_policy *p = review_policy_new(sh->r, FORMAT_SHELL, sh->s, line, name);
    if (!p)
        return;
    p->mutating = fact_at(1, sh->s, line);
    p->budget_ms = budget;
    p->attempts = attempts_of(sh, &q, wget, line);
    if (q.timeout.text.len && span_parse(&ms, q.timeout.text, 1000))
        p->attempt_timeout_ms = fact_at(ms, sh->s, line);
    else if (wget)
        p->attempt_timeout_ms = fact_at(900000, sh->s, line); /* wget's default */
    else if (!q.timeout.text.len && !q.opaque)
        p->no_attempt_timeout = fact_at(policy_retries(p), sh->s, line);
    if (policy_retries(p)) {
        p->repeats_unknown = fact_at(1, sh->s, line);
        p->repeats_on = wget ? "any failure" : q.all_errors ? "any error" : "timeouts and 5xx";
    }
    if (q.has_key || !q.opaque)
        p->has_key = fact_at(q.has_key, sh->s, line);
    if (q.key_why)
        review_find(sh->r, RULE_KEY_VOLATILE, sh->s, q.key.line, name, "%s", q.key_why);
    if (q.all_errors)
        review_find(sh->r, RULE_DEFINITE_REPEATED, sh->s, q.all_errors_line, name, "--retry-all-errors");
    if (!wget && p->attempts.known && p->attempts.value > 1) {
        bool fixed = q.delay.text.len && span_parse(&ms, q.delay.text, 1000) && ms > 0;
        p->wait_base_ms = fact_at(fixed ? ms : 1000, sh->s, line);
        p->wait_growth_percent = fact_at(fixed ? 100 : 200, sh->s, line);
        p->wait_cap_ms = fact_at(600000, sh->s, line);
        if (fixed)
            p->jitter_low_percent = p->jitter_high_percent = fact_at(100, sh->s, line);
    }
    /* `curl … || curl …` is a retry too. */
    if (sh->link == OP_OR && sh->last.policy && strcmp(sh->last.url, url) == 0 && p->attempts.known) {
        p->attempts = fact_at(span_add(p->attempts.value, 1), sh->s, line);
        p->repeats_unknown = fact_at(1, sh->s, line);
        p->repeats_on = "any failure of the command before";
    }
    struct write wrote = {p, url, false};
    if (sh->depth && sh->depth <= LOOPS_MAX) {
        struct loop *l = &sh->loops[sh->depth - 1];
        wrote.is_condition = l->in_condition;
        if (l->write_count < WRITES_MAX)
            l->writes[l->write_count++] = wrote;
    }
    sh->last = wrote;
}

/* ---- loops ---- */

static int64_t word_count(struct word *w, unsigned count)
{
    int64_t n = count, a, b;
    if (count != 1)
        return n;
    struct slice t = w[0].text;
    const char *dots = t.len ? memmem(t.data, t.len, "..", 2) : NULL;
    if (t.len > 4 && t.data[0] == '{' && dots && t.data[t.len - 1] == '}' &&
        number_parse(&a, slice_of(t.data + 1, (size_t)(dots - t.data) - 1)) &&
        number_parse(&b, slice_of(dots + 2, t.len - (size_t)(dots + 2 - t.data) - 1)) && b >= a)
        return b - a + 1;
    if (t.len > 7 && memcmp(t.data, "$(seq ", 6) == 0) {
        struct slice inside = slice_trim(slice_of(t.data + 6, t.len - 7));
        const char *space = memchr(inside.data, ' ', inside.len);
        if (!space)
            return number_parse(&b, inside) && b > 0 ? b : 0;
        if (number_parse(&a, slice_of(inside.data, (size_t)(space - inside.data))) &&
            number_parse(&b, slice_of(space + 1, inside.len - (size_t)(space + 1 - inside.data))) && b >= a)
            return b - a + 1;
    }
    return t.len && t.data[0] == '$' ? 0 : n;
}

static void loop_begin(struct shell *sh, struct word *w, unsigned count)
{
    if (sh->depth++ >= LOOPS_MAX)
        return;
    struct loop *l = &sh->loops[sh->depth - 1];
    memset(l, 0, sizeof *l);
    l->kind = w[0].text;
    l->line = w[0].line;
    if (slice_is(l->kind, "for")) {
        if (count > 3 && slice_is(w[2].text, "in"))
            l->count = word_count(w + 3, count - 3);
        return;
    }
    l->in_condition = true;
    if (count > 1)
        l->endless = slice_is(w[1].text, "true") || slice_is(w[1].text, ":");
    for (unsigned i = 1; i + 1 < count; i++) {
        int64_t n;
        bool less = slice_is(w[i].text, "-lt") || slice_is(w[i].text, "-le");
        if (less && number_parse(&n, w[i + 1].text) && n > 0)
            l->count = n + slice_is(w[i].text, "-le");
    }
}

/* The loop is over: does it send the same request again, and how often? */
static void loop_end(struct shell *sh)
{
    if (!sh->depth)
        return;
    if (sh->depth-- > LOOPS_MAX)
        return;
    struct loop *l = &sh->loops[sh->depth];
    for (unsigned i = 0; i < l->write_count; i++) {
        struct write *w = &l->writes[i];
        struct review_policy *p = w->policy;
        bool bounded = l->count > 0 || l->exits > (w->is_condition ? 0u : 1u);
        bool repeats = w->is_condition || l->exits > 0 || l->endless;
        if (!repeats)
            continue; /* a loop over different data */
        p->repeats_unknown = fact_at(1, sh->s, p->line);
        p->repeats_on = "any failure, in the loop around it";
        if (l->count > 0 && p->attempts.known)
            p->attempts.value = span_multiply(p->attempts.value, l->count);
        else if (!bounded)
            p->attempts = fact_at(ATTEMPTS_ENDLESS, sh->s, p->line);
        else
            p->attempts.known = false;
        if (!p->attempt_timeout_ms.known && !p->no_attempt_timeout.value)
            p->no_attempt_timeout = fact_at(1, sh->s, p->line);
        if (l->wait_computed) {
            p->wait_base_ms.known = false;
            continue;
        }
        p->wait_base_ms = l->sleeps ? l->wait : fact_at(0, sh->s, l->line);
        p->wait_growth_percent = fact_at(100, sh->s, l->line);
        p->jitter_low_percent = fact_at(l->wait_random ? 0 : 100, sh->s, p->wait_base_ms.line);
        p->jitter_high_percent = fact_at(100, sh->s, p->wait_base_ms.line);
    }
}

/* ---- commands ---- */

static bool assignment(struct slice t, struct slice *name, struct slice *value)
{
    size_t n = 0;
    while (n < t.len && ((t.data[n] >= 'a' && t.data[n] <= 'z') || (t.data[n] >= 'A' && t.data[n] <= 'Z') ||
                         t.data[n] == '_' || (n && t.data[n] >= '0' && t.data[n] <= '9')))
        n++;
    if (!n || n >= t.len || t.data[n] != '=')
        return false;
    *name = slice_of(t.data, n);
    *value = slice_of(t.data + n + 1, t.len - n - 1);
    return true;
}

static void sleep_read(struct shell *sh, struct word *w, unsigned count)
{
    if (!sh->depth || sh->depth > LOOPS_MAX || count < 2)
        return;
    struct loop *l = &sh->loops[sh->depth - 1];
    struct slice t = w[1].text, part;
    int64_t ms;
    l->sleeps = true;
    l->wait_random = key_volatile(t, KEY_SHELL, &part) != NULL || memmem(t.data, t.len, "shuf", 4) != NULL;
    if (span_parse(&ms, t, 1000))
        l->wait = fact_at(ms, sh->s, w[1].line);
    else
        l->wait_computed = true;
}

/* What the command after || makes of the failure. */
static void after_failure(struct shell *sh, struct word *w, unsigned count)
{
    bool quiet = slice_is(w[0].text, "true") || slice_is(w[0].text, ":") ||
                 (count > 1 && (slice_is(w[0].text, "exit") || slice_is(w[0].text, "return")) &&
                  slice_is(w[1].text, "0"));
    if (quiet && sh->last.policy)
        review_find(sh->r, RULE_ERROR_HIDES, sh->s, sh->last.policy->line, sh->last.policy->name,
                    "the command's failure is dropped by || %.*s", (int)w[0].text.len, w[0].text.data);
}

static bool is_one_of(struct slice t, const char *const *list)
{
    for (; *list; list++)
        if (slice_is(t, *list))
            return true;
    return false;
}

static void command_read(struct shell *sh, struct word *w, unsigned count)
{
    static const char *const prefixes[] = {"if",   "then",  "else",   "elif",     "!",       "time",
                                           "{",    "sudo",  "env",    "exec",     "command", "nohup",
                                           "nice", "local", "export", "readonly", "(",       NULL};
    struct fact budget = {0};
    struct slice name, value;
    bool in_loop = sh->depth && sh->depth <= LOOPS_MAX;
    while (count) {
        struct slice t = w[0].text;
        int64_t ms;
        if (slice_is(t, "while") || slice_is(t, "until") || slice_is(t, "for")) {
            loop_begin(sh, w, count);
            if (slice_is(t, "for"))
                return;
            in_loop = sh->depth <= LOOPS_MAX;
        } else if (slice_is(t, "do")) {
            if (in_loop)
                sh->loops[sh->depth - 1].in_condition = false;
        } else if (slice_is(t, "done")) {
            loop_end(sh);
            return;
        } else if (slice_is(t, "timeout")) {
            w++, count--;
            while (count && w[0].text.len && w[0].text.data[0] == '-')
                w++, count--;
            if (count && span_parse(&ms, w[0].text, 1000))
                budget = fact_at(ms, sh->s, w[0].line);
            if (!count)
                return;
        } else if (assignment(t, &name, &value)) {
            assign(sh, name, value);
        } else if (!is_one_of(t, prefixes)) {
            break;
        }
        w++, count--;
    }
    if (!count)
        return;
    struct slice t = w[0].text;
    if (sh->link == OP_OR)
        after_failure(sh, w, count);
    bool curl = slice_is(t, "curl") || (t.len > 5 && memcmp(t.data + t.len - 5, "/curl", 5) == 0);
    bool wget = slice_is(t, "wget") || (t.len > 5 && memcmp(t.data + t.len - 5, "/wget", 5) == 0);
    if (curl || wget) {
        size_t policies = sh->r->policy_count;
        request_read(sh, w, count, wget, budget);
        if (sh->r->policy_count == policies)
            sh->last.policy = NULL;
        return;
    }
    if (in_loop && (slice_is(t, "break") || slice_is(t, "exit") || slice_is(t, "return")))
        sh->loops[sh->depth - 1].exits++;
    else if (slice_is(t, "sleep"))
        sleep_read(sh, w, count);
    if (sh->link != OP_PIPE)
        sh->last.policy = NULL;
}

static void redirect(struct shell *sh, struct script *c)
{
    struct word target;
    bool here = c->at + 1 < c->len && c->text[c->at] == '<' && c->text[c->at + 1] == '<';
    bool here_string = here && c->at + 2 < c->len && c->text[c->at + 2] == '<';
    while (c->at < c->len && strchr("<>&-|", c->text[c->at])) {
        c->heredoc_tabs = c->text[c->at] == '-';
        c->at++;
    }
    while (c->at < c->len && blank(c->text[c->at]))
        c->at++;
    if (c->at < c->len && c->text[c->at] == '(')
        return; /* <(command) */
    word_read(sh, c, &target);
    if (here && !here_string)
        c->heredoc = target.text;
}

static void commands_read(struct shell *sh, struct script *c)
{
    struct word *words = pool_alloc(&sh->r->pool, WORDS_MAX * sizeof *words);
    unsigned count = 0;
    while (words && !sh->r->pool.failed) {
        while (c->at < c->len && blank(c->text[c->at]))
            c->at++;
        char x = c->at < c->len ? c->text[c->at] : '\n';
        if (x == '\\' && c->at + 1 < c->len && c->text[c->at + 1] == '\n') {
            c->at += 2;
            c->line++;
            continue;
        }
        if (x == '#') {
            while (c->at < c->len && c->text[c->at] != '\n')
                c->at++;
            continue;
        }
        if (x == '<' || x == '>') {
            redirect(sh, c);
            continue;
        }
        if (!strchr("\n;|&()", x)) {
            struct word w;
            word_read(sh, c, &w);
            if (count < WORDS_MAX)
                words[count++] = w;
            continue;
        }
        enum operator_ op = OP_END;
        bool twice = c->at + 1 < c->len && c->text[c->at + 1] == x;
        if (x == '&' && !twice && c->at + 1 < c->len && c->text[c->at + 1] == '>') {
            c->at++; /* &> file */
            redirect(sh, c);
            continue;
        }
        if (x == '|' && twice)
            op = OP_OR;
        else if (x == '&' && twice)
            op = OP_AND;
        else if (x == '|')
            op = OP_PIPE;
        if (count)
            command_read(sh, words, count);
        if (count || op != OP_END)
            sh->link = op == OP_END && x == '\n' && !count ? sh->link : op;
        count = 0;
        if (c->at >= c->len)
            break;
        c->at += (op == OP_OR || op == OP_AND) ? 2 : 1;
        if (x == '\n') {
            c->line++;
            if (c->heredoc.len)
                skip_heredoc(c);
        }
    }
}

bool shell_read(struct review *r, struct source *s)
{
    struct shell *sh = pool_alloc(&r->pool, sizeof *sh);
    if (!sh)
        return false;
    sh->r = r;
    sh->s = s;
    sh->link = OP_END;
    struct script c = {.text = s->text, .len = s->len, .line = 1};
    commands_read(sh, &c);
    while (sh->depth)
        loop_end(sh);
    return true;
}
