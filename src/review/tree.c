/* SPDX-License-Identifier: MIT */
#include "review/tree.h"

#include <jansson.h>
#include <yaml.h>

/* Anchors of one document. */
#define ANCHORS_MAX 1024u

struct builder {
    struct review *r;
    const struct source *s;
    size_t characters, bytes; /* of the text, up to the last mark */
    unsigned line;
    struct tree *stack[TREE_DEPTH_MAX];
    unsigned depth;
    unsigned nodes;
    struct {
        const char *name;
        struct tree *node;
    } anchors[ANCHORS_MAX];
    unsigned anchor_count;
    const char *key; /* a mapping's key that waits for its value */
    unsigned key_line;
    bool key_waits[TREE_DEPTH_MAX];
    const char *keys[TREE_DEPTH_MAX];
    unsigned key_lines[TREE_DEPTH_MAX];
};

static bool looks_like_json(const struct source *s)
{
    size_t i = 0;
    while (i < s->len && strchr(" \t\r\n", s->text[i]))
        i++;
    return i < s->len && (s->text[i] == '{' || s->text[i] == '[');
}

static bool hex4(const char *p, unsigned *out)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        unsigned d = c >= '0' && c <= '9'                     ? (unsigned)(c - '0')
                     : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (unsigned)((c | 0x20) - 'a' + 10)
                                                              : 16u;
        if (d > 15)
            return false;
        v = v * 16 + d;
    }
    *out = v;
    return true;
}

/* libyaml refuses JSON's surrogate escapes; no rule reads them, so question marks of the same length stand in. */
static const char *without_surrogates(struct review *r, const struct source *s)
{
    char *copy = (char *)(uintptr_t)pool_copy(&r->pool, slice_of(s->text, s->len));
    if (r->pool.failed)
        return s->text;
    for (size_t i = 0; i + 6 <= s->len; i++) {
        unsigned v;
        if (copy[i] != '\\')
            continue;
        if (copy[i + 1] == 'u' && hex4(copy + i + 2, &v) && v >= 0xD800 && v <= 0xDFFF)
            memset(copy + i, '?', 6);
        i++;
    }
    return copy;
}

static bool json_check(struct review *r, const struct source *s)
{
    json_error_t error;
    json_t *json = json_loadb(s->text, s->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!json) {
        review_problem(r, s->path, error.line > 0 ? (unsigned)error.line : 1, "not JSON: %s", error.text);
        return false;
    }
    json_decref(json);
    return true;
}

/* The line of a mark, by our own count of line feeds: libyaml also breaks lines at a lone carriage return, at U+0085,
 * U+2028 and U+2029, where no editor does. Its index counts characters. Marks come in order. */
static unsigned line_of(struct builder *b, const yaml_mark_t *mark)
{
    if (mark->index < b->characters || b->line == 0)
        b->characters = b->bytes = 0, b->line = 1;
    while (b->characters < mark->index && b->bytes < b->s->len) {
        b->line += b->s->text[b->bytes] == '\n';
        for (b->bytes++; b->bytes < b->s->len && ((unsigned char)b->s->text[b->bytes] & 0xC0) == 0x80;)
            b->bytes++;
        b->characters++;
    }
    return b->line > b->s->lines && b->s->lines ? b->s->lines : b->line;
}

static struct tree *new_node(struct builder *b, enum tree_kind kind, const yaml_mark_t *mark)
{
    if (++b->nodes > TREE_NODES_MAX)
        return NULL;
    struct tree *t = pool_alloc(&b->r->pool, sizeof *t);
    if (t) {
        t->kind = kind;
        t->line = line_of(b, mark);
    }
    return t;
}

/* Hangs a node into the open mapping or list. False when a mapping's key is not a scalar. */
static bool attach(struct builder *b, struct tree_documents *docs, struct tree *t)
{
    struct tree **first, **last, *parent = b->depth ? b->stack[b->depth - 1] : NULL;
    if (!parent) {
        struct tree **end = &docs->first;
        while (*end)
            end = &(*end)->next;
        *end = t;
        return true;
    }
    unsigned d = b->depth - 1;
    if (parent->kind == TREE_MAPPING) {
        if (!b->key_waits[d]) {
            struct tree *name = tree_resolve(t);
            b->keys[d] = name->kind == TREE_SCALAR ? pool_copy(&b->r->pool, name->text) : "";
            b->key_lines[d] = t->line;
            b->key_waits[d] = true;
            return true;
        }
        t->key = b->keys[d];
        t->key_line = b->key_lines[d];
        b->key_waits[d] = false;
    }
    first = &parent->first;
    last = &parent->last;
    if (*last)
        (*last)->next = t;
    else
        *first = t;
    *last = t;
    return true;
}

static void remember(struct builder *b, const yaml_char_t *anchor, struct tree *t)
{
    if (!anchor || b->anchor_count == ANCHORS_MAX)
        return;
    b->anchors[b->anchor_count].name = pool_copy(&b->r->pool, slice_text((const char *)anchor));
    b->anchors[b->anchor_count++].node = t;
}

static struct tree *anchor_find(struct builder *b, const char *name)
{
    for (unsigned i = b->anchor_count; i-- > 0;)
        if (strcmp(b->anchors[i].name, name) == 0)
            return b->anchors[i].node;
    return NULL;
}

/* NULL, or what is wrong. */
static const char *take_event(struct builder *b, struct tree_documents *docs, const yaml_event_t *e)
{
    struct tree *t = NULL;
    const yaml_char_t *anchor = NULL;
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        b->anchor_count = 0;
        return NULL;
    case YAML_SCALAR_EVENT:
        t = new_node(b, TREE_SCALAR, &e->start_mark);
        if (!t)
            return "too many nodes";
        t->text = slice_of(
            pool_copy(&b->r->pool, slice_of((const char *)e->data.scalar.value, e->data.scalar.length)),
            e->data.scalar.length);
        t->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        anchor = e->data.scalar.anchor;
        break;
    case YAML_ALIAS_EVENT:
        t = new_node(b, TREE_SCALAR, &e->start_mark);
        if (!t)
            return "too many nodes";
        t->alias = anchor_find(b, (const char *)e->data.alias.anchor);
        if (!t->alias)
            return "an alias without its anchor";
        for (unsigned i = 0; i < b->depth; i++)
            if (b->stack[i] == t->alias)
                return "an alias inside its own anchor";
        break;
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        if (b->depth == TREE_DEPTH_MAX)
            return "nested too deeply";
        t = new_node(b, e->type == YAML_MAPPING_START_EVENT ? TREE_MAPPING : TREE_LIST, &e->start_mark);
        if (!t)
            return "too many nodes";
        anchor = e->type == YAML_MAPPING_START_EVENT ? e->data.mapping_start.anchor
                                                     : e->data.sequence_start.anchor;
        remember(b, anchor, t);
        if (!attach(b, docs, t))
            return "a key that is not a word";
        b->key_waits[b->depth] = false;
        b->stack[b->depth++] = t;
        return NULL;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        b->depth--;
        return NULL;
    default:
        return NULL;
    }
    remember(b, anchor, t);
    return attach(b, docs, t) ? NULL : "a key that is not a word";
}

bool tree_read(struct tree_documents *out, struct review *r, const struct source *s)
{
    struct tree_documents docs = {0};
    struct builder *b = pool_alloc(&r->pool, sizeof *b);
    const char *text = s->text;
    bool ok = false;
    if (!b)
        return false;
    b->r = r;
    b->s = s;
    if (looks_like_json(s)) {
        if (!json_check(r, s))
            return false;
        text = without_surrogates(r, s);
    }
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        r->pool.failed = true;
        return false;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, s->len);
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            unsigned line = line_of(b, &parser.problem_mark);
            if (parser.error == YAML_READER_ERROR)
                line = source_line_at(s, parser.problem_offset);
            review_problem(r, s->path, line, "not YAML: %s",
                           parser.problem ? parser.problem : "it cannot be read");
            break;
        }
        const char *wrong = take_event(b, &docs, &event);
        bool end = event.type == YAML_STREAM_END_EVENT;
        unsigned line = wrong ? line_of(b, &event.start_mark) : 0;
        yaml_event_delete(&event);
        if (wrong || r->pool.failed) {
            review_problem(r, s->path, line, "not read: %s", wrong ? wrong : "it needs too much memory");
            break;
        }
        if (end) {
            ok = true;
            break;
        }
    }
    yaml_parser_delete(&parser);
    if (ok)
        *out = docs;
    return ok;
}

struct tree *tree_resolve(struct tree *t)
{
    while (t && t->alias)
        t = t->alias;
    return t;
}

bool tree_same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a == '-' || *a == '_')
            a++;
        while (*b == '-' || *b == '_')
            b++;
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
        char y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
        if (x != y)
            return false;
        if (!x)
            return true;
        a++;
        b++;
    }
}

struct tree *tree_children(struct tree *t)
{
    t = tree_resolve(t);
    return t ? t->first : NULL;
}

/* A member of the mapping itself or of one merged into it by "<<". */
static struct tree *get_merged(struct tree *t, const char *name, int depth)
{
    t = tree_resolve(t);
    if (!t || t->kind != TREE_MAPPING || depth > 4)
        return NULL;
    struct tree *found = NULL;
    for (struct tree *m = t->first; m; m = m->next)
        if (tree_same_name(m->key, name))
            found = m;
    for (struct tree *m = t->first; m && !found; m = m->next)
        if (strcmp(m->key, "<<") == 0)
            found = get_merged(m, name, depth + 1);
    return found;
}

struct tree *tree_get(struct tree *t, const char *name)
{
    return tree_resolve(get_merged(t, name, 0));
}

struct tree *tree_path(struct tree *t, const char *path)
{
    char name[64];
    while (t && *path) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof name)
            return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        t = tree_get(t, name);
        path += n + (path[n] == '.');
    }
    return t;
}

struct slice tree_text(struct tree *t)
{
    t = tree_resolve(t);
    return t && t->kind == TREE_SCALAR ? t->text : slice_of("", 0);
}

struct fact tree_number(struct tree *t, const struct source *s)
{
    int64_t n;
    struct fact none = {0};
    return t && number_parse(&n, tree_text(t)) ? fact_at(n, s, t->line) : none;
}

struct fact tree_duration(struct tree *t, const struct source *s, int64_t unit_ms)
{
    int64_t ms;
    struct fact none = {0};
    return t && span_parse(&ms, tree_text(t), unit_ms) ? fact_at(ms, s, t->line) : none;
}

struct fact tree_flag(struct tree *t, const struct source *s)
{
    struct slice text = tree_text(t);
    struct fact none = {0};
    if (slice_is_nocase(text, "true") || slice_is_nocase(text, "yes") || slice_is_nocase(text, "on") ||
        slice_is(text, "1"))
        return fact_at(1, s, t->line);
    if (slice_is_nocase(text, "false") || slice_is_nocase(text, "no") || slice_is_nocase(text, "off") ||
        slice_is(text, "0"))
        return fact_at(0, s, t->line);
    return none;
}

const char *tree_words(struct review *r, struct tree *t)
{
    struct buffer words = {.max = 4096};
    t = tree_resolve(t);
    if (t && t->kind == TREE_SCALAR)
        return pool_copy(&r->pool, t->text);
    for (struct tree *m = tree_children(t); m; m = m->next) {
        struct slice w = tree_text(m);
        if (!w.len || words.len + w.len + 2 > words.max)
            continue;
        if (words.len)
            buffer_byte(&words, ',');
        buffer_slice(&words, w);
    }
    const char *text = pool_copy(&r->pool, buffer_view(&words));
    buffer_fini(&words);
    return text;
}

static bool walk(struct tree *t, struct tree *parent, unsigned depth, unsigned *visits,
                 void (*visit)(void *, struct tree *, struct tree *), void *context)
{
    t = tree_resolve(t);
    if (!t || t->kind == TREE_SCALAR)
        return true;
    if (depth > TREE_DEPTH_MAX || ++*visits > TREE_VISITS_MAX)
        return false;
    if (t->kind == TREE_MAPPING)
        visit(context, t, parent);
    for (struct tree *m = t->first; m; m = m->next)
        if (!walk(m, t->kind == TREE_MAPPING ? t : parent, depth + 1, visits, visit, context))
            return false;
    return true;
}

bool tree_walk(struct tree *t, void (*visit)(void *, struct tree *, struct tree *), void *context)
{
    unsigned visits = 0;
    return walk(t, NULL, 0, &visits, visit, context);
}
