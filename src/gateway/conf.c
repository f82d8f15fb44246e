/* SPDX-License-Identifier: MIT
 *
 * libconfuse is told every setting as a text, so that bounds, units and messages come from core/settings alone. Its
 * parser stops at the first name it does not know; to tell all errors at once, such a name is noted and the file is
 * parsed again with that name allowed, until nothing unknown is left (UNKNOWN_MAX names at most). A broken syntax
 * ends the reading, since what follows it could only be guessed.
 *
 * libconfuse gives its callbacks no context of ours: the load in progress is in `loading`, behind a mutex.
 */
#include "gateway/conf.h"

#include "gateway/route.h"

#include <assert.h>
#include <confuse.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Unknown names told in one load; a file with more of them is not a configuration. */
#define UNKNOWN_MAX 32
/* What a problem of the flags is filed under. */
#define COMMAND_LINE "command line"
/* An option of each section that nobody writes: libconfuse gives it its default when a section opens, and its
 * callback is how we learn of that, and of the line. */
#define OPENING_MARK "__open__"
/* A line of ours behind the file's last. libconfuse does not mind a section that is still open when the file ends;
 * this line, met inside one, tells. */
#define END_MARK "__end__"

struct texts {
    struct slice *items; /* each is a malloc'd copy */
    size_t count;
};

/* What the file has said so far inside the section being read, or at the top. */
struct scope {
    struct route_settings *route;
    bool ignored; /* a section that was refused as a whole; its settings are read over */
    int lines[SETTING_ID_COUNT];
    struct texts lists[SETTING_ID_COUNT];
};

struct unknown {
    char *name;
    bool in_route;
};

struct loader {
    const char *path;
    struct settings *settings;
    struct scope top, section;
    bool in_section;
    struct unknown unknown[UNKNOWN_MAX];
    size_t unknown_count;
    bool again; /* a new unknown name was met: parse again */
    bool no_memory;
    int end_line;  /* where END_MARK stands */
    bool ended;    /* it was read, at the top of the file */
    size_t syntax; /* errors that ended the reading */
    size_t errors;
    const struct conf_flag *flag; /* being set, for messages */
    conf_problem_fn *report;
    void *context;
};

static pthread_mutex_t loading_lock = PTHREAD_MUTEX_INITIALIZER;
static struct loader *loading;

static void told(struct loader *l, enum settings_severity severity, const char *code,
                 const struct setting *row, const char *route, int line, const char *message)
{
    struct settings_problem problem = {severity, code, row, route, line, message};
    if (severity == SETTINGS_ERROR)
        l->errors++;
    if (l->report)
        l->report(l->context, line == 0 && (l->flag || !l->path) ? COMMAND_LINE : l->path, &problem);
}

/* From settings_check() and routes_compile(): a value from a flag is filed under the command line. */
static void checked(void *context, const struct settings_problem *problem)
{
    struct loader *l = context;
    static const struct conf_flag a_flag = {"", "", ""};
    bool from_flag = false;
    if (problem->row && problem->line == 0) {
        const struct route_settings *r =
            problem->route ? settings_route(l->settings, slice_text(problem->route)) : NULL;
        const struct setting_origin *origins = r ? r->origins : l->settings->origins;
        from_flag = origins[problem->row - settings_table].source == SETTING_SOURCE_FLAG;
    }
    l->flag = from_flag ? &a_flag : NULL;
    told(l, problem->severity, problem->code, problem->row, problem->route, problem->line, problem->message);
    l->flag = NULL;
}

static void texts_release(struct texts *t)
{
    for (size_t i = 0; i < t->count; i++)
        free((void *)(uintptr_t)t->items[i].data);
    free(t->items);
    *t = (struct texts){NULL, 0};
}

static bool texts_add(struct texts *t, const char *text)
{
    struct slice *items = realloc(t->items, (t->count + 1) * sizeof(*items));
    if (!items)
        return false;
    t->items = items;
    char *copy = strdup(text);
    if (!copy)
        return false;
    items[t->count++] = slice_text(copy);
    return true;
}

static void scope_release(struct scope *s)
{
    for (size_t i = 0; i < SETTING_ID_COUNT; i++)
        texts_release(&s->lists[i]);
    *s = (struct scope){0};
}

static void apply(struct loader *l, struct route_settings *route, const struct setting *row,
                  const struct slice *texts, size_t count, struct setting_origin origin)
{
    struct buffer why = {0};
    enum status status = settings_set(l->settings, route, row, texts, count, origin, &why);
    if (status == STATUS_NO_MEMORY || why.failed)
        l->no_memory = true;
    else if (status != STATUS_OK)
        told(l, SETTINGS_ERROR, "value-invalid", row, route ? route->name : NULL, origin.line,
             buffer_cstring(&why));
    buffer_fini(&why);
}

/* Sets the lists of a scope that has been read to its end. */
static void scope_finish(struct loader *l, struct scope *s)
{
    for (size_t i = 0; i < SETTING_ID_COUNT && !s->ignored; i++)
        if (s->lists[i].count)
            apply(l, s->route, &settings_table[i], s->lists[i].items, s->lists[i].count,
                  (struct setting_origin){SETTING_SOURCE_FILE, s->lines[i]});
    scope_release(s);
}

static void say_unknown(struct loader *l, bool in_route, const char *name, int line)
{
    struct buffer text = {0};
    const char *route = in_route && l->section.route ? l->section.route->name : NULL;
    const struct setting *elsewhere = settings_find(slice_text(name));
    const struct setting *near =
        settings_suggest(slice_text(name), in_route ? SETTING_SCOPE_ROUTE : SETTING_SCOPE_GLOBAL);
    buffer_format(&text, "`%s` is not a setting here", name);
    if (elsewhere && elsewhere->scope == SETTING_SCOPE_ROUTE)
        buffer_text(&text, "; it belongs to a route, put it inside route \"NAME\" { }");
    else if (elsewhere)
        buffer_text(&text, "; it belongs to the top of the file, move it out of the route");
    else if (!in_route && settings_nearest(slice_text(name), (const char *const[]){"route"}, 1))
        buffer_text(&text, "; did you mean route \"NAME\" { }?");
    else if (near)
        buffer_format(&text, "; did you mean `%s`?", near->name);
    else
        buffer_text(&text, "; `samekey gateway --print-settings-doc` lists all settings");
    told(l, SETTINGS_ERROR, "setting-unknown", NULL, route, line, buffer_cstring(&text));
    buffer_fini(&text);
}

/* A value was read: libconfuse calls this after each value, and once more at the end of a list in braces. */
static int value_read(cfg_t *cfg, cfg_opt_t *opt)
{
    struct loader *l = loading;
    bool in_route = cfg->title != NULL;
    struct scope *s = in_route ? &l->section : &l->top;
    char *text = opt->nvalues ? opt->values[opt->nvalues - 1]->string : NULL;
    if (!text)
        return 0; /* taken already: this is the end of the list */
    opt->values[opt->nvalues - 1]->string = NULL;

    const struct setting *row = settings_find(slice_text(opt->name));
    enum setting_scope here = in_route ? SETTING_SCOPE_ROUTE : SETTING_SCOPE_GLOBAL;
    if (s->ignored) {
        free(text);
        return 0;
    }
    if (!row || row->scope != here) {
        /* Of a list only the first value speaks. */
        if (opt->nvalues == 1)
            say_unknown(l, in_route, opt->name, (int)cfg->line);
        free(text);
        return 0;
    }
    enum setting_id id = (enum setting_id)(row - settings_table);
    int line = (int)cfg->line;
    /* Only the first value of an assignment stands alone; those behind it, and `+=`, come after others. */
    if (s->lines[id] && opt->nvalues == 1) {
        char message[120];
        snprintf(message, sizeof(message), "it is set twice, first on line %d; leave one out", s->lines[id]);
        told(l, SETTINGS_ERROR, "setting-twice", row, s->route ? s->route->name : NULL, line, message);
    } else if (row->type == SETTING_LIST) {
        l->no_memory = !texts_add(&s->lists[id], text) || l->no_memory;
    } else {
        struct slice one = slice_text(text);
        apply(l, s->route, row, &one, 1, (struct setting_origin){SETTING_SOURCE_FILE, line});
    }
    if (!s->lines[id])
        s->lines[id] = line;
    free(text);
    return 0;
}

/* `name = {}` never reaches value_read(); it leaves an option that was set and has no value. */
static void find_empty_lists(struct loader *l, const cfg_t *cfg, struct scope *s, int line)
{
    for (const cfg_opt_t *opt = cfg->opts; opt->name && !s->ignored; opt++) {
        const struct setting *row = settings_find(slice_text(opt->name));
        if (!row || row->type != SETTING_LIST || opt->type != CFGT_STR || !(opt->flags & CFGF_MODIFIED) ||
            opt->nvalues)
            continue;
        enum setting_id id = (enum setting_id)(row - settings_table);
        if (row->scope != (s->route ? SETTING_SCOPE_ROUTE : SETTING_SCOPE_GLOBAL))
            continue;
        if (s->lines[id]) {
            char message[120];
            snprintf(message, sizeof(message), "it is set twice, first on line %d; leave one out",
                     s->lines[id]);
            told(l, SETTINGS_ERROR, "setting-twice", row, s->route ? s->route->name : NULL, line, message);
        } else {
            apply(l, s->route, row, NULL, 0, (struct setting_origin){SETTING_SOURCE_FILE, line});
        }
    }
}

/* END_MARK was read, ours or one that the file has for itself. */
static int end_read(cfg_t *cfg, cfg_opt_t *opt)
{
    struct loader *l = loading;
    if ((int)cfg->line != l->end_line) {
        say_unknown(l, cfg->title != NULL, opt->name, (int)cfg->line);
    } else if (cfg->title) {
        l->syntax++;
        told(l, SETTINGS_ERROR, "syntax", NULL, cfg->title, l->section.route ? l->section.route->line : 0,
             "the file ends inside this route; close it with }");
    }
    l->ended = l->ended || (int)cfg->line == l->end_line;
    return 0;
}

/* route "NAME" { was read. */
static int section_opened(cfg_t *cfg, cfg_opt_t *opt)
{
    struct loader *l = loading;
    if (l->in_section || !cfg->title) {
        say_unknown(l, cfg->title != NULL, opt->name, (int)cfg->line);
        return 0;
    }
    struct buffer why = {0};
    l->in_section = true;
    l->section = (struct scope){0};
    enum status status =
        settings_add_route(l->settings, slice_text(cfg->title), (int)cfg->line, &l->section.route, &why);
    if (status != STATUS_OK) {
        l->section.ignored = true;
        if (status == STATUS_NO_MEMORY)
            l->no_memory = true;
        else
            told(l, SETTINGS_ERROR, "route-invalid", NULL, cfg->title, (int)cfg->line, buffer_cstring(&why));
    }
    buffer_fini(&why);
    return 0;
}

/* The closing brace of a route was read. */
static int section_closed(cfg_t *cfg, cfg_opt_t *opt)
{
    struct loader *l = loading;
    (void)cfg;
    if (l->in_section && opt->nvalues) {
        int line = l->section.route ? l->section.route->line : (int)cfg->line;
        find_empty_lists(l, opt->values[opt->nvalues - 1]->section, &l->section, line);
        scope_finish(l, &l->section);
    }
    l->in_section = false;
    return 0;
}

/* What libconfuse says, in our words with a remedy. */
static void parser_said(cfg_t *cfg, const char *format, va_list arguments)
{
    struct loader *l = loading;
    bool in_route = cfg && cfg->title;
    int line = cfg ? (int)cfg->line : 0;
    char said[300];
    if (strcmp(format, "no such option '%s'") == 0) {
        va_list copy;
        va_copy(copy, arguments);
        const char *name = va_arg(copy, const char *);
        if (l->unknown_count < UNKNOWN_MAX && strcspn(name, "|=") == strlen(name)) {
            l->unknown[l->unknown_count].name = strdup(name);
            l->unknown[l->unknown_count].in_route = in_route;
            if (l->unknown[l->unknown_count].name) {
                l->unknown_count++;
                l->again = true;
            } else {
                l->no_memory = true;
            }
        } else {
            say_unknown(l, in_route, name, line);
            l->syntax++;
        }
        va_end(copy);
        return;
    }
    vsnprintf(said, sizeof(said), format, arguments);
    struct buffer text = {0};
    buffer_text(&text, said);
    if (strncmp(said, "premature end", 13) == 0)
        buffer_text(&text, ": a value, a brace or a closing quote is missing");
    else if (strncmp(said, "unexpected token '{'", 20) == 0)
        buffer_text(&text, ": this setting takes one value, not a list in braces");
    else if (strncmp(said, "unexpected", 10) == 0)
        buffer_text(
            &text,
            ": write NAME = VALUE, lists as {\"a\", \"b\"}, and put texts with spaces, braces, commas or "
            "`=` in double quotes");
    else if (strncmp(said, "missing equal sign", 18) == 0)
        buffer_text(&text, ": write NAME = VALUE; the only section is route \"NAME\" { }");
    else if (strncmp(said, "attempt to append", 17) == 0)
        buffer_text(&text, ": only lists take +=");
    else if (strncmp(said, "missing", 7) == 0)
        buffer_text(&text, ": a route is written route \"NAME\" { ... }");
    l->syntax++;
    told(l, SETTINGS_ERROR, "syntax", NULL, in_route ? cfg->title : NULL, line, buffer_cstring(&text));
    buffer_fini(&text);
}

#define ROOM (SETTING_ID_COUNT + UNKNOWN_MAX + 4)

static void fill(cfg_opt_t *opts, const struct loader *l, enum setting_scope scope, cfg_opt_t *route_opts)
{
    const cfg_opt_t end = CFG_END();
    size_t n = 0;
    for (size_t i = 0; i < SETTING_ID_COUNT; i++)
        if (settings_table[i].scope == scope) {
            const cfg_opt_t one = CFG_STR(settings_table[i].name, NULL, CFGF_NODEFAULT);
            const cfg_opt_t list = CFG_STR_LIST(settings_table[i].name, NULL, CFGF_NODEFAULT);
            opts[n] = settings_table[i].type == SETTING_LIST ? list : one;
            opts[n++].validcb = value_read;
        }
    for (size_t i = 0; i < l->unknown_count; i++)
        if (l->unknown[i].in_route == (scope == SETTING_SCOPE_ROUTE)) {
            /* As a list it takes a single value too, so whatever was meant is read over. */
            const cfg_opt_t any = CFG_STR_LIST(l->unknown[i].name, NULL, CFGF_NODEFAULT);
            opts[n] = any;
            opts[n++].validcb = value_read;
        }
    const cfg_opt_t last = CFG_STR(END_MARK, NULL, CFGF_NODEFAULT);
    opts[n] = last;
    opts[n++].validcb = end_read;
    if (scope == SETTING_SCOPE_ROUTE) {
        cfg_opt_t mark = CFG_STR(OPENING_MARK, NULL, CFGF_NONE);
        mark.def.parsed = (char *)(uintptr_t) "1";
        mark.validcb = section_opened;
        opts[n++] = mark;
    } else {
        const cfg_opt_t section = CFG_SEC("route", route_opts, CFGF_MULTI | CFGF_TITLE);
        opts[n] = section;
        opts[n++].validcb = section_closed;
    }
    assert(n < ROOM);
    opts[n] = end;
}

/*
 * Writes spaces over comments. libconfuse reads comments itself, but counts their lines twice, and every line number
 * behind one would be wrong. Returns false at a comment or a quote that never ends; *line is where it begins.
 */
static bool blank_comments(char *text, int *line, bool *in_quote)
{
    int now = 1;
    for (char *p = text; *p; p++) {
        if (*p == '\n')
            now++;
        if (*p == '"' || *p == '\'') {
            char quote = *p;
            *line = now;
            for (p++; *p && *p != quote; p++) {
                if (*p == '\\' && p[1])
                    p++;
                now += *p == '\n';
            }
            if (!*p) {
                *in_quote = true;
                return false;
            }
        } else if (*p == '#' || (*p == '/' && p[1] == '/')) {
            while (p[1] && p[1] != '\n')
                *p++ = ' ';
            *p = ' ';
        } else if (*p == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            *line = now;
            if (!end) {
                *in_quote = false;
                return false;
            }
            for (; p < end + 2; p++) {
                now += *p == '\n';
                if (*p != '\n')
                    *p = ' ';
            }
            p--;
        }
    }
    return true;
}

/* From the `$` of `${NAME}` or `${NAME:-TEXT}`: tells where the name is not in the environment. Returns what was told. */
static size_t check_variable(struct loader *l, const char *at, char quote, int line)
{
    const char *name = at + 2, *end = name;
    struct buffer message = {0};
    while (*end && *end != '}' && *end != '\n' && (!quote || *end != quote))
        end++;
    const char *colon = memchr(name, ':', (size_t)(end - name));
    bool has_text = colon && colon[1] == '-';
    int len = (int)((has_text ? colon : end) - name);
    struct buffer text = {0};
    buffer_append(&text, name, (size_t)len);
    if (*end != '}')
        buffer_text(&message,
                    "`${` begins the name of an environment variable and is never closed; write ${NAME}, or "
                    "\\$ for the sign itself");
    else if (!has_text && !getenv(buffer_cstring(&text)))
        buffer_format(&message,
                      "${%.*s}: there is no %.*s in the environment; set it (it may be empty), or write "
                      "${%.*s:-TEXT} for what stands in its place",
                      len, name, len, name, len, name);
    size_t count = message.len > 0;
    if (message.failed || text.failed)
        l->no_memory = true;
    else if (count)
        told(l, SETTINGS_ERROR, "environment-missing", NULL, NULL, line, buffer_cstring(&message));
    buffer_fini(&message);
    buffer_fini(&text);
    return count;
}

/* libconfuse takes a name that is not in the environment for the empty text, and a token that is not there would be
 * none. The text has no comments any more, and its quotes are closed. Returns how many errors were told. */
static size_t check_environment(struct loader *l, const char *text)
{
    size_t count = 0;
    int line = 1;
    char quote = 0;
    for (const char *p = text; *p; p++) {
        line += *p == '\n';
        if (quote && *p == '\\' && p[1]) {
            p++;
            line += *p == '\n';
        } else if (*p == quote) {
            quote = 0;
        } else if (!quote && (*p == '"' || *p == '\'')) {
            quote = *p;
        } else if (quote != '\'' && *p == '$' && p[1] == '{') {
            count += check_variable(l, p, quote, line);
        }
    }
    return count;
}

/* Parses the text once into fresh settings. */
static void parse_once(struct loader *l, const char *text)
{
    cfg_opt_t opts[ROOM], route_opts[ROOM];
    settings_free(l->settings);
    l->settings = NULL;
    if (settings_new(&l->settings) != STATUS_OK) {
        l->no_memory = true;
        return;
    }
    fill(route_opts, l, SETTING_SCOPE_ROUTE, NULL);
    fill(opts, l, SETTING_SCOPE_GLOBAL, route_opts);
    cfg_t *cfg = cfg_init(opts, CFGF_NONE);
    if (!cfg) {
        l->no_memory = true;
        return;
    }
    cfg_set_error_function(cfg, parser_said);
    l->again = false;
    l->syntax = 0;
    l->errors = 0;
    l->in_section = false;
    l->ended = false;
    int parsed = cfg_parse_buf(cfg, text);
    if (parsed == CFG_SUCCESS && l->ended) {
        find_empty_lists(l, cfg, &l->top, 1);
    } else if (!l->again && l->syntax == 0) {
        l->syntax++;
        told(l, SETTINGS_ERROR, "syntax", NULL, NULL, (int)cfg->line,
             "a text in quotes has a bad escape; write \\\\ for a backslash");
    }
    scope_finish(l, &l->section);
    scope_finish(l, &l->top);
    cfg_free(cfg);
}

static void parse(struct loader *l, const char *text)
{
    conf_problem_fn *report = l->report;
    pthread_mutex_lock(&loading_lock);
    loading = l;
    /* Dry passes until every name is known or noted, then one that speaks, so that errors come in the order of lines
     * and once. */
    l->report = NULL;
    do
        parse_once(l, text);
    while (l->again && !l->no_memory);
    l->report = report;
    if (!l->no_memory && l->errors)
        parse_once(l, text);
    loading = NULL;
    pthread_mutex_unlock(&loading_lock);
}

/* Reads a whole file of at most `max` bytes. */
static enum status read_file(const char *path, size_t max, struct buffer *out)
{
    enum status status = STATUS_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO;
    for (;;) {
        char *room = buffer_reserve(out, 65536);
        if (!room) {
            status = STATUS_NO_MEMORY;
            break;
        }
        ssize_t n = read(fd, room, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = STATUS_IO;
        if (n <= 0)
            break;
        out->len += (size_t)n;
        if (out->len > max) {
            status = STATUS_FULL;
            break;
        }
    }
    int error = errno;
    close(fd);
    errno = error;
    return status;
}

enum status conf_token(const char *path, struct buffer *token, struct buffer *why)
{
    struct buffer text = {0};
    enum status status = read_file(path, CONF_TOKEN_BYTES_MAX, &text);
    if (status == STATUS_OK) {
        struct slice line = buffer_view(&text);
        const char *end = line.len ? memchr(line.data, '\n', line.len) : NULL;
        if (end)
            line.len = (size_t)(end - line.data);
        if (line.len && line.data[line.len - 1] == '\r')
            line.len--;
        line = slice_trim(line);
        bool plain = true;
        for (size_t i = 0; i < line.len; i++)
            plain = plain && line.data[i] > ' ' && line.data[i] < 0x7f;
        if (line.len >= CONF_TOKEN_BYTES_MIN && plain) {
            buffer_slice(token, line);
        } else {
            buffer_format(why,
                          "the first line of %s is no token; it needs %d or more bytes of visible ASCII, for "
                          "example from `openssl rand -hex 32`",
                          path, CONF_TOKEN_BYTES_MIN);
            status = STATUS_INVALID;
        }
    } else if (status == STATUS_FULL) {
        buffer_format(why, "%s has more than %d bytes; a token is one line", path, CONF_TOKEN_BYTES_MAX);
        status = STATUS_INVALID;
    } else {
        buffer_format(why, "%s cannot be read: %s", path, strerror(errno));
        status = STATUS_IO;
    }
    buffer_fini(&text);
    return status;
}

static void check_token(struct loader *l, enum setting_id id, const char *path)
{
    struct buffer token = {0}, why = {0};
    if (path[0] && conf_token(path, &token, &why) != STATUS_OK)
        told(l, SETTINGS_ERROR, "token-unreadable", &settings_table[id], NULL, l->settings->origins[id].line,
             buffer_cstring(&why));
    buffer_fini(&token);
    buffer_fini(&why);
}

/* Sets one flag's values in one place; `values` are those of all flags of this name. */
static void apply_flag(struct loader *l, const struct conf_flags *flags, size_t first,
                       const struct setting *row, struct route_settings *route)
{
    struct texts texts = {NULL, 0};
    for (size_t i = first; i < flags->count; i++)
        if (strcmp(flags->items[i].name, flags->items[first].name) == 0)
            l->no_memory = !texts_add(&texts, flags->items[i].value) || l->no_memory;
    /* `--set ignore=` empties a list. */
    if (row->type == SETTING_LIST && texts.count == 1 && texts.items[0].len == 0)
        texts_release(&texts);
    apply(l, route, row, texts.items, texts.count, (struct setting_origin){SETTING_SOURCE_FLAG, 0});
    texts_release(&texts);
}

static void unknown_flag(struct loader *l, const struct conf_flag *flag)
{
    struct buffer text = {0};
    const char *dot = strrchr(flag->name, '.');
    struct slice name = slice_text(dot ? dot + 1 : flag->name);
    const struct setting *row = settings_find(name);
    buffer_format(&text, "%s %s=%s: ", flag->option, flag->name, flag->value);
    if (row && dot && row->scope == SETTING_SCOPE_GLOBAL)
        buffer_format(&text, "`%s` is not a setting of a route; write %s=%s", row->name, row->name,
                      flag->value);
    else if (row && dot)
        buffer_format(&text, "there is no route `%.*s`", (int)(dot - flag->name), flag->name);
    else {
        const struct setting *near = settings_suggest(name, SETTING_SCOPE_ROUTE);
        if (!near)
            near = settings_suggest(name, SETTING_SCOPE_GLOBAL);
        buffer_format(&text, "`%.*s` is not a setting", (int)name.len, name.data);
        if (near)
            buffer_format(&text, "; did you mean `%s`?", near->name);
    }
    told(l, SETTINGS_ERROR, "setting-unknown", NULL, NULL, 0, buffer_cstring(&text));
    buffer_fini(&text);
}

static void apply_flags(struct loader *l, const struct conf_flags *flags)
{
    for (size_t i = 0; flags && i < flags->count; i++) {
        const struct conf_flag *flag = &flags->items[i];
        bool repeated = false;
        for (size_t k = 0; k < i; k++)
            repeated = repeated || strcmp(flags->items[k].name, flag->name) == 0;
        if (repeated)
            continue;
        l->flag = flag;
        const char *dot = strrchr(flag->name, '.');
        const struct setting *row = settings_find(slice_text(dot ? dot + 1 : flag->name));
        struct route_settings *route =
            dot ? settings_route(l->settings, slice_of(flag->name, (size_t)(dot - flag->name))) : NULL;
        if (!row || (dot && (!route || row->scope != SETTING_SCOPE_ROUTE))) {
            unknown_flag(l, flag);
        } else if (row->scope == SETTING_SCOPE_GLOBAL) {
            apply_flag(l, flags, i, row, NULL);
        } else if (route) {
            apply_flag(l, flags, i, row, route);
        } else {
            for (size_t k = 0; k < l->settings->route_count; k++)
                apply_flag(l, flags, i, row, l->settings->routes[k]);
        }
        l->flag = NULL;
    }
}

/* The one route of a gateway that was started without a file (CONTRACT section 7). */
static void add_default_route(struct loader *l)
{
    static const struct conf_flag made[] = {
        {"path", "/{*}", ""}, {"key_missing", "pass", ""}, {"receipt", "none", ""}};
    struct route_settings *route = NULL;
    struct buffer why = {0};
    if (settings_add_route(l->settings, slice_text("default"), 0, &route, &why) != STATUS_OK)
        l->no_memory = true;
    for (size_t i = 0; route && i < sizeof(made) / sizeof(made[0]); i++) {
        struct slice value = slice_text(made[i].value);
        apply(l, route, settings_find(slice_text(made[i].name)), &value, 1,
              (struct setting_origin){SETTING_SOURCE_FLAG, 0});
    }
    buffer_fini(&why);
}

/* Everything but the freeing of l. */
static enum status load(struct loader *l, const struct conf_flags *flags)
{
    struct buffer text = {0};
    enum status status = STATUS_OK;
    if (l->path) {
        status = read_file(l->path, CONF_FILE_BYTES_MAX, &text);
        if (status != STATUS_OK && status != STATUS_NO_MEMORY) {
            struct buffer message = {0};
            if (status == STATUS_FULL)
                buffer_format(&message, "the file has more than %d bytes; this is not a configuration",
                              CONF_FILE_BYTES_MAX);
            else
                buffer_format(&message, "the file cannot be read: %s", strerror(errno));
            told(l, SETTINGS_ERROR, "file-unreadable", NULL, NULL, 0, buffer_cstring(&message));
            buffer_fini(&message);
            if (status == STATUS_FULL)
                status = STATUS_INVALID;
        } else if (status == STATUS_OK && text.len && memchr(text.data, '\0', text.len)) {
            told(l, SETTINGS_ERROR, "syntax", NULL, NULL, 0, "the file has a NUL byte; it is not a text");
            status = STATUS_INVALID;
        }
        if (status != STATUS_OK)
            goto done;
        l->end_line = 2;
        for (size_t i = 0; i < text.len; i++)
            l->end_line += text.data[i] == '\n';
        buffer_text(&text, "\n" END_MARK " = 1\n");
        (void)buffer_cstring(&text);
        int line = 0;
        bool in_quote = false;
        if (!text.failed && !blank_comments(text.data, &line, &in_quote)) {
            told(l, SETTINGS_ERROR, "syntax", NULL, NULL, line,
                 in_quote ? "this quote is never closed" : "this comment is never closed; end it with */");
            status = STATUS_INVALID;
            goto done;
        }
        size_t missing = check_environment(l, buffer_cstring(&text));
        parse(l, buffer_cstring(&text));
        l->errors += missing;
    } else if (settings_new(&l->settings) != STATUS_OK) {
        l->no_memory = true;
    }
    if (l->no_memory || text.failed) {
        status = STATUS_NO_MEMORY;
        goto done;
    }
    if (!l->path)
        add_default_route(l);
    else if (settings_name_file(l->settings, slice_text(l->path)) != STATUS_OK)
        l->no_memory = true;
    apply_flags(l, flags);
    settings_settle(l->settings);
    /* After a broken syntax half the file is missing, and its contradictions would be noise. */
    if (!l->no_memory && l->syntax == 0) {
        struct routes *routes = NULL;
        settings_check(l->settings, checked, l);
        check_token(l, SETTING_ID_admin_token_file, l->settings->admin_token_file);
        check_token(l, SETTING_ID_admin_read_token_file, l->settings->admin_read_token_file);
        check_token(l, SETTING_ID_report_token_file, l->settings->report_token_file);
        if (routes_compile(&routes, l->settings, checked, l) == STATUS_NO_MEMORY)
            l->no_memory = true;
        routes_free(routes);
    }
    status = l->no_memory ? STATUS_NO_MEMORY : l->errors ? STATUS_INVALID : STATUS_OK;
done:
    buffer_fini(&text);
    return status;
}

static void loader_fini(struct loader *l)
{
    settings_free(l->settings);
    for (size_t i = 0; i < l->unknown_count; i++)
        free(l->unknown[i].name);
}

/* One line: samekey.conf:12: route "orders": retries: ... */
static void write_line(void *context, const char *file, const struct settings_problem *problem)
{
    struct buffer *out = context;
    if (problem->severity == SETTINGS_NOTE)
        return;
    buffer_text(out, file);
    if (problem->line)
        buffer_format(out, ":%d", problem->line);
    buffer_text(out, problem->severity == SETTINGS_ERROR ? ": error: " : ": warning: ");
    if (problem->route)
        buffer_format(out, "route \"%s\": ", problem->route);
    if (problem->row)
        buffer_format(out, "%s: ", problem->row->name);
    buffer_format(out, "%s\n", problem->message);
}

enum status conf_load(struct settings **out, const char *path, const struct conf_flags *flags,
                      struct buffer *errors)
{
    struct loader l = {.path = path, .report = write_line, .context = errors};
    enum status status = load(&l, flags);
    if (status == STATUS_OK) {
        *out = l.settings;
        l.settings = NULL;
    }
    loader_fini(&l);
    return status;
}

enum status conf_review(const char *path, conf_problem_fn *report, void *context)
{
    struct loader l = {.path = path, .report = report, .context = context};
    enum status status = load(&l, NULL);
    loader_fini(&l);
    return status;
}

void conf_free(struct settings *s)
{
    settings_free(s);
}

size_t conf_changes(const struct settings *before, const struct settings *after, struct buffer *lines)
{
    size_t count = 0;
    struct buffer old = {0}, new = {0};
    for (size_t i = 0; i < SETTING_ID_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        if (row->scope != SETTING_SCOPE_GLOBAL || row->change != SETTING_CHANGE_RESTART)
            continue;
        buffer_clear(&old);
        buffer_clear(&new);
        settings_value_text(&old, before, NULL, row);
        settings_value_text(&new, after, NULL, row);
        if (!slice_equal(buffer_view(&old), buffer_view(&new))) {
            buffer_format(lines, "%s stays ", row->name);
            settings_value_shown(lines, before, NULL, row);
            buffer_text(lines, " until a restart (the file now says ");
            settings_value_shown(lines, after, NULL, row);
            buffer_text(lines, ")\n");
            count++;
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        const struct settings *from = pass == 0 ? before : after, *in = pass == 0 ? after : before;
        for (size_t i = 0; i < from->route_count; i++)
            if (!settings_route(in, slice_text(from->routes[i]->name))) {
                buffer_format(
                    lines,
                    pass == 0 ? "route \"%s\" is gone: its keys and receipts stay under its name\n"
                              : "route \"%s\" is new: it is a new scope, and knows no key of another route\n",
                    from->routes[i]->name);
                count++;
            }
    }
    buffer_fini(&old);
    buffer_fini(&new);
    return count;
}
