/* SPDX-License-Identifier: MIT
 *
 * The patterns are a tree by segments. A node's literal children are tried before its {x} child, and that before its
 * {*}; a dead end backs up. Each node is reached by one way only, so a match visits no node twice.
 */
#include "gateway/route.h"

#include <assert.h>
#include <stdlib.h>

struct pattern {
    const struct route_settings *route;
    size_t route_index;
    struct slice text; /* borrowed from the settings */
    char *scope;       /* "ROUTE PATTERN" */
    size_t scope_len;
    size_t name_count;
    struct slice names[ROUTE_CAPTURES_MAX]; /* of its {x} in order, without {*} */
    bool takes_rest;
};

#define NONE SIZE_MAX

struct node {
    struct slice literal; /* what leads here; empty for {x} and for the root */
    struct node *next;    /* the next literal child of the same parent */
    struct node *literals;
    struct node *any; /* {x} */
    size_t rest;      /* the pattern that ends with {*} here, or NONE */
    size_t end;       /* the pattern that ends here, or NONE */
    size_t slash;     /* the pattern that ends here with a slash behind, or NONE */
};

struct routes {
    const struct settings *settings;
    struct node root;
    struct pattern *patterns;
    size_t count;
    bool only_rest; /* /{*} is the only pattern */
};

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static unsigned hex_value(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

/* Whether an octet may stand percent-encoded without being anybody's separator or a letter in disguise. */
static bool encoding_is_plain(unsigned octet)
{
    bool unreserved = (octet >= '0' && octet <= '9') || (octet >= 'a' && octet <= 'z') ||
                      (octet >= 'A' && octet <= 'Z') || octet == '-' || octet == '_' || octet == '~' ||
                      octet == '.';
    return octet >= 0x20 && octet != 0x7f && !unreserved && octet != '/' && octet != '\\' && octet != '%' &&
           octet != ';' && octet != '?' && octet != '#';
}

/* Nothing, `.` or `..` with parameters behind, which some servers cut off before they resolve dots and slashes. */
static bool is_dots(struct slice segment)
{
    size_t n = 0;
    while (n < segment.len && segment.data[n] == '.')
        n++;
    return n <= 2 && (n == segment.len ? n > 0 : segment.data[n] == ';');
}

bool route_path_plain(struct slice path)
{
    if (path.len == 0 || path.data[0] != '/')
        return false;
    for (size_t i = 0; i < path.len;) {
        size_t start = ++i; /* behind the slash */
        for (; i < path.len && path.data[i] != '/'; i++) {
            unsigned char c = (unsigned char)path.data[i];
            if (c <= ' ' || c > 0x7e || c == '\\' || c == '#')
                return false;
            if (c != '%')
                continue;
            if (path.len - i < 3 || !is_hex(path.data[i + 1]) || !is_hex(path.data[i + 2]) ||
                !encoding_is_plain(hex_value(path.data[i + 1]) * 16 + hex_value(path.data[i + 2])))
                return false;
        }
        struct slice segment = slice_of(path.data + start, i - start);
        if (is_dots(segment) || (segment.len == 0 && i < path.len))
            return false;
    }
    return true;
}

/* Takes the segment before the next slash off the front; *rest begins with that slash, or is empty. */
static struct slice next_segment(struct slice *rest)
{
    const char *slash = rest->len ? memchr(rest->data, '/', rest->len) : NULL;
    size_t n = slash ? (size_t)(slash - rest->data) : rest->len;
    struct slice segment = slice_of(rest->data, n);
    *rest = slice_of(rest->data + n, rest->len - n);
    return segment;
}

static struct node *node_new(void)
{
    struct node *n = calloc(1, sizeof(*n));
    if (n)
        n->rest = n->end = n->slash = NONE;
    return n;
}

static void node_release(struct node *n)
{
    for (struct node *child = n->literals, *next; child; child = next) {
        next = child->next;
        node_release(child);
        free(child);
    }
    if (n->any) {
        node_release(n->any);
        free(n->any);
    }
}

struct compiler {
    struct routes *routes;
    settings_problem_fn *report;
    void *context;
    size_t errors;
    bool no_memory;
};

static void refuse(struct compiler *c, const struct pattern *p, const char *code, struct buffer *text)
{
    const struct route_settings *r = p->route;
    struct setting_origin origin = r->origins[SETTING_ID_path];
    struct settings_problem problem = {SETTINGS_ERROR, code,        &settings_table[SETTING_ID_path],
                                       r->name,        origin.line, buffer_cstring(text)};
    c->errors++;
    if (c->report)
        c->report(c->context, &problem);
    buffer_fini(text);
}

static void form_error(struct compiler *c, const struct pattern *p, struct slice segment, const char *what)
{
    struct buffer text = {0};
    buffer_format(&text, "pattern `%.*s`: `%.*s` %s", (int)p->text.len, p->text.data, (int)segment.len,
                  segment.data, what);
    refuse(c, p, "pattern-invalid", &text);
}

static bool is_name(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        char x = s.data[i];
        if (!((x >= '0' && x <= '9') || (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || x == '_' ||
              x == '-'))
            return false;
    }
    return s.len > 0;
}

/* Checks one {name} and keeps it. */
static bool take_name(struct compiler *c, struct pattern *p, struct slice segment)
{
    struct slice name = slice_of(segment.data + 1, segment.len - 2);
    if (!is_name(name)) {
        form_error(c, p, segment, "has no good name; use letters, digits, `_` and `-`, such as {id}");
        return false;
    }
    for (size_t i = 0; i < p->name_count; i++)
        if (slice_equal(p->names[i], name)) {
            form_error(c, p, segment, "stands twice; give each segment a name of its own");
            return false;
        }
    if (p->name_count == ROUTE_CAPTURES_MAX) {
        form_error(c, p, segment, "is one named segment too many; 16 are allowed");
        return false;
    }
    p->names[p->name_count++] = name;
    return true;
}

/* The child that takes this segment of a pattern; made when missing. NULL: no memory. */
static struct node *child_for(struct node *n, struct slice segment, bool any)
{
    if (any) {
        if (!n->any)
            n->any = node_new();
        return n->any;
    }
    struct node *child = n->literals;
    while (child && !slice_equal(child->literal, segment))
        child = child->next;
    if (!child) {
        child = node_new();
        if (child) {
            child->literal = segment;
            child->next = n->literals;
            n->literals = child;
        }
    }
    return child;
}

/* Puts the pattern's number into its place, unless another pattern has it. */
static void settle(struct compiler *c, size_t index, size_t *place)
{
    const struct pattern *p = &c->routes->patterns[index];
    if (*place == NONE) {
        *place = index;
        return;
    }
    const struct pattern *other = &c->routes->patterns[*place];
    assert(other->route);
    struct buffer text = {0};
    buffer_format(&text, "pattern `%.*s` means the same as `%.*s` of route \"%s\"; leave one out",
                  (int)p->text.len, p->text.data, (int)other->text.len, other->text.data, other->route->name);
    refuse(c, p, "pattern-twice", &text);
}

static void add_pattern(struct compiler *c, size_t index)
{
    struct pattern *p = &c->routes->patterns[index];
    struct slice rest = p->text;
    struct node *n = &c->routes->root;
    if (rest.len == 0 || rest.data[0] != '/') {
        form_error(c, p, rest, "does not start with /");
        return;
    }
    for (size_t segments = 1; rest.len; segments++) {
        rest = slice_of(rest.data + 1, rest.len - 1);
        struct slice segment = next_segment(&rest);
        bool braces =
            segment.len && (memchr(segment.data, '{', segment.len) || memchr(segment.data, '}', segment.len));
        bool whole = segment.len >= 2 && segment.data[0] == '{' && segment.data[segment.len - 1] == '}';
        char with_slash[ROUTE_SEGMENT_BYTES_MAX + 2] = "/";
        if (segments > ROUTE_SEGMENTS_MAX) {
            form_error(c, p, segment, "is one segment too many; 32 are allowed");
            return;
        }
        if (slice_is(segment, "{*}")) {
            if (rest.len) {
                form_error(c, p, segment, "is not at the end; it takes the whole rest of a path");
                return;
            }
            p->takes_rest = true;
            settle(c, index, &n->rest);
            return;
        }
        if (segment.len == 0) {
            if (rest.len) {
                form_error(c, p, slice_text("//"), "makes an empty segment; write one slash");
                return;
            }
            settle(c, index, &n->slash);
            return;
        }
        if (braces && !whole) {
            form_error(c, p, segment, "mixes text and braces; {x} takes a whole segment");
            return;
        }
        if (segment.len > ROUTE_SEGMENT_BYTES_MAX) {
            form_error(c, p, segment, "is too long; 255 bytes are allowed");
            return;
        }
        memcpy(with_slash + 1, segment.data, segment.len);
        if (!whole && (!route_path_plain(slice_of(with_slash, segment.len + 1)) ||
                       memchr(segment.data, ';', segment.len) || memchr(segment.data, '?', segment.len))) {
            form_error(c, p, segment,
                       "is no plain segment of a path; leave out dots alone, `;`, `?`, spaces and "
                       "needless percent-encodings");
            return;
        }
        if (whole && !take_name(c, p, segment))
            return;
        n = child_for(n, segment, whole);
        if (!n) {
            c->no_memory = true;
            return;
        }
    }
    settle(c, index, &n->end);
}

/* Two patterns that a forgiving upstream would take for one: rule (5). */
static bool look_alike(struct slice a, struct slice b)
{
    while (a.len > 1 && a.data[a.len - 1] == '/')
        a.len--;
    while (b.len > 1 && b.data[b.len - 1] == '/')
        b.len--;
    while (a.len && b.len) {
        a = slice_of(a.data + 1, a.len - 1);
        b = slice_of(b.data + 1, b.len - 1);
        struct slice x = next_segment(&a), y = next_segment(&b);
        bool any_x = x.len && x.data[0] == '{', any_y = y.len && y.data[0] == '{';
        bool rest_x = slice_is(x, "{*}"), rest_y = slice_is(y, "{*}");
        if (any_x != any_y || rest_x != rest_y || (!any_x && !slice_equal_nocase(x, y)))
            return false;
    }
    return a.len == 0 && b.len == 0;
}

static void find_look_alikes(struct compiler *c)
{
    const struct routes *r = c->routes;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < i; k++) {
            const struct pattern *p = &r->patterns[i], *other = &r->patterns[k];
            if (!look_alike(p->text, other->text))
                continue;
            struct buffer text = {0};
            buffer_format(
                &text,
                "pattern `%.*s` differs from `%.*s` of route \"%s\" only in letter case or a slash at the "
                "end, and the upstream may take both for one; leave one out",
                (int)p->text.len, p->text.data, (int)other->text.len, other->text.data, other->route->name);
            refuse(c, p, "pattern-alike", &text);
        }
}

enum status routes_compile(struct routes **out, const struct settings *s, settings_problem_fn *report,
                           void *context)
{
    size_t total = 0;
    for (size_t i = 0; i < s->route_count; i++)
        total += s->routes[i]->path.count;
    struct routes *r = calloc(1, sizeof(*r));
    if (!r)
        return STATUS_NO_MEMORY;
    struct compiler c = {.routes = r, .report = report, .context = context};
    r->settings = s;
    r->root.rest = r->root.end = r->root.slash = NONE;
    r->patterns = calloc(total ? total : 1, sizeof(*r->patterns));
    c.no_memory = !r->patterns;
    for (size_t i = 0; i < s->route_count && !c.no_memory; i++)
        for (size_t k = 0; k < s->routes[i]->path.count && !c.no_memory; k++) {
            struct pattern *p = &r->patterns[r->count];
            struct buffer scope = {0};
            p->route = s->routes[i];
            p->route_index = i;
            p->text = slice_text(s->routes[i]->path.items[k]);
            if (r->count == ROUTE_PATTERNS_MAX) {
                form_error(&c, p, p->text, "is one pattern too many; 4096 are allowed over all routes");
                goto done;
            }
            buffer_format(&scope, "%s %s", p->route->name, s->routes[i]->path.items[k]);
            (void)buffer_cstring(&scope);
            c.no_memory = scope.failed;
            p->scope = scope.data;
            p->scope_len = scope.len;
            add_pattern(&c, r->count++);
        }
    if (!c.no_memory && c.errors == 0)
        find_look_alikes(&c);
    r->only_rest = r->count == 1 && slice_is(r->patterns[0].text, "/{*}");
done:
    if (c.no_memory || c.errors) {
        routes_free(r);
        return c.no_memory ? STATUS_NO_MEMORY : STATUS_INVALID;
    }
    *out = r;
    return STATUS_OK;
}

void routes_free(struct routes *r)
{
    if (!r)
        return;
    node_release(&r->root);
    for (size_t i = 0; i < r->count; i++)
        free(r->patterns[i].scope);
    free(r->patterns);
    free(r);
}

size_t routes_pattern_count(const struct routes *r)
{
    return r->count;
}

struct walk {
    bool folded; /* letter case, a slash at the end and path parameters do not count */
    struct slice values[ROUTE_SEGMENTS_MAX];
    size_t value_count;
    struct slice rest; /* what {*} took */
};

/* A slash with nothing behind it but path parameters. */
static bool is_slash_at_end(struct slice left)
{
    return slice_is(left, "/") ||
           (left.len > 1 && left.data[1] == ';' && !memchr(left.data + 1, '/', left.len - 1));
}

/* The pattern for what is left of a path below a node; `left` begins with a slash or is empty. */
static size_t walk_node(const struct node *n, struct slice left, struct walk *w, size_t depth)
{
    if (left.len == 0 || (w->folded && is_slash_at_end(left))) {
        if (n->end != NONE)
            return n->end;
        if (w->folded && n->slash != NONE)
            return n->slash;
        if (!w->folded || n->rest == NONE)
            return NONE;
        /* /files where /files/{*} is guarded: some servers add the slash themselves. */
        w->rest = slice_of("", 0);
        return n->rest;
    }
    if (slice_is(left, "/") && n->slash != NONE)
        return n->slash;
    struct slice after = slice_of(left.data + 1, left.len - 1), rest = after;
    if (depth < ROUTE_SEGMENTS_MAX) {
        struct slice segment = next_segment(&after), plain = segment;
        const char *semicolon = segment.len ? memchr(segment.data, ';', segment.len) : NULL;
        if (w->folded && semicolon)
            plain.len = (size_t)(semicolon - segment.data);
        for (const struct node *child = n->literals; child; child = child->next)
            if (w->folded ? slice_equal_nocase(child->literal, plain)
                          : slice_equal(child->literal, segment)) {
                size_t found = walk_node(child, after, w, depth + 1);
                if (found != NONE)
                    return found;
            }
        if (n->any && segment.len) {
            size_t values = w->value_count;
            w->values[w->value_count++] = segment;
            size_t found = walk_node(n->any, after, w, depth + 1);
            if (found != NONE)
                return found;
            w->value_count = values;
        }
    }
    if (n->rest != NONE)
        w->rest = rest;
    return n->rest;
}

static bool route_guards(const struct route_settings *r, struct slice method)
{
    for (size_t i = 0; i < r->methods.count; i++)
        if (slice_is(method, r->methods.items[i]))
            return r->mode != MODE_OFF;
    return false;
}

/* Whether some route refuses and replays with this method, so that a dodge would be worth something. */
static bool method_matters(const struct routes *r, struct slice method)
{
    for (size_t i = 0; i < r->settings->route_count; i++)
        if (r->settings->routes[i]->mode == MODE_GUARD && route_guards(r->settings->routes[i], method))
            return true;
    return false;
}

enum status routes_match(const struct routes *r, struct slice method, struct slice target,
                         struct route_match *m)
{
    const char *query = target.len ? memchr(target.data, '?', target.len) : NULL;
    struct slice path = slice_of(target.data, query ? (size_t)(query - target.data) : target.len);
    struct walk w = {0};
    if (path.len == 0 || path.data[0] != '/')
        return STATUS_NOT_FOUND;
    size_t found = walk_node(&r->root, path, &w, 0);
    if (found == NONE)
        return STATUS_NOT_FOUND;
    if (!r->only_rest && method_matters(r, method)) {
        if (!route_path_plain(path))
            return STATUS_NOT_FOUND;
        struct walk forgiving = {.folded = true};
        size_t other = walk_node(&r->root, path, &forgiving, 0);
        if (other != found && other != NONE && r->patterns[other].route->mode == MODE_GUARD &&
            route_guards(r->patterns[other].route, method))
            return STATUS_NOT_FOUND;
    }
    const struct pattern *p = &r->patterns[found];
    m->route = p->route;
    m->route_index = p->route_index;
    m->pattern_index = found;
    m->pattern = p->text;
    m->scope = slice_of(p->scope, p->scope_len);
    m->guarded = route_guards(p->route, method);
    m->capture_count = 0;
    assert(w.value_count == p->name_count);
    for (size_t i = 0; i < p->name_count; i++)
        m->captures[m->capture_count++] = (struct route_capture){p->names[i], w.values[i]};
    if (p->takes_rest)
        m->captures[m->capture_count++] = (struct route_capture){slice_text("*"), w.rest};
    return STATUS_OK;
}
