/* SPDX-License-Identifier: MIT */
#include "forensics/facts.h"

#include <jansson.h>
#include <stdlib.h>

/* "60 s", "30s", "500 ms", "2 minutes"; the first number with a unit counts. */
static int64_t limit_in(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' ||
            (p > text && ((p[-1] >= '0' && p[-1] <= '9') || p[-1] == '.' || p[-1] == '/')))
            continue;
        char *end;
        double n = strtod(p, &end);
        while (*end == ' ')
            end++;
        if (strncmp(end, "ms", 2) == 0 || strncmp(end, "milli", 5) == 0)
            return (int64_t)(n * 1000);
        if (*end == 's' && (end[1] < 'a' || end[1] > 'z' || strncmp(end, "sec", 3) == 0))
            return (int64_t)(n * 1000000);
        if (strncmp(end, "min", 3) == 0)
            return (int64_t)(n * 60000000);
    }
    return 0;
}

/* Three dots between numbers, or at least two colons between hexadecimal digits. */
static struct slice address_in(const char *text)
{
    for (const char *p = text; *p;) {
        size_t n = strspn(p, "0123456789abcdefABCDEF.:");
        struct slice s = slice_of(p, n);
        size_t dots = 0, colons = 0;
        while (s.len && (s.data[s.len - 1] == '.' || s.data[s.len - 1] == ':'))
            s.len--;
        for (size_t i = 0; i < s.len; i++)
            dots += s.data[i] == '.', colons += s.data[i] == ':';
        if (dots == 3 || colons >= 2)
            return s;
        p += n ? n : 1;
    }
    return slice_of("", 0);
}

enum status facts_load(struct facts *f, const char *path, struct buffer *error)
{
    json_error_t why;
    json_t *tree = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    const char *name;
    json_t *v;
    memset(f, 0, sizeof *f);
    if (!tree) {
        buffer_format(error, "%s:%d: %s", path, why.line, why.text);
        return json_error_code(&why) == json_error_cannot_open_file ? STATUS_IO : STATUS_INVALID;
    }
    enum status status = json_is_object(tree) ? STATUS_OK : STATUS_INVALID;
    if (status != STATUS_OK)
        buffer_format(error, "%s: facts are an object of names and sentences", path);
    json_object_foreach(tree, name, v)
    {
        if (status != STATUS_OK)
            break;
        if (!json_is_string(v) || f->count == FACTS_MAX) {
            status = json_is_string(v) ? STATUS_FULL : STATUS_INVALID;
            buffer_format(error, "%s: \"%s\" is %s", path, name,
                          status == STATUS_FULL ? "one fact too many" : "not told by a sentence");
            break;
        }
        struct fact *fact = &f->fact[f->count];
        fact->name = strdup(name);
        fact->text = strdup(json_string_value(v));
        f->count++;
        if (!fact->name || !fact->text) {
            status = STATUS_NO_MEMORY;
            break;
        }
        fact->limit_us = limit_in(fact->text);
        fact->address = address_in(fact->text);
    }
    json_decref(tree);
    if (status != STATUS_OK)
        facts_fini(f);
    return status;
}

/* A fact about "agent-host/2" is one about "agent-host/2.1 (linux)" too. */
static bool about(const struct fact *f, struct slice name)
{
    size_t n = strlen(f->name);
    return name.len >= n && slice_is_nocase(slice_of(name.data, n), f->name);
}

int64_t facts_limit(const struct facts *f, const struct event *e, const char **name)
{
    static const enum event_text who[] = {TEXT_AGENT, TEXT_VIA, TEXT_PEER};
    for (size_t w = 0; f && w < sizeof who / sizeof *who; w++)
        for (size_t i = 0; i < f->count; i++)
            if (f->fact[i].limit_us && e->text[who[w]].len && about(&f->fact[i], e->text[who[w]])) {
                *name = f->fact[i].name;
                return f->fact[i].limit_us;
            }
    return 0;
}

const char *facts_proxy(const struct facts *f, const struct event *e)
{
    for (size_t i = 0; f && i < f->count; i++)
        if ((f->fact[i].address.len && slice_equal(f->fact[i].address, e->text[TEXT_PEER])) ||
            (e->text[TEXT_VIA].len && about(&f->fact[i], e->text[TEXT_VIA])))
            return f->fact[i].name;
    return NULL;
}

void facts_fini(struct facts *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->fact[i].name);
        free(f->fact[i].text);
    }
    f->count = 0;
}
