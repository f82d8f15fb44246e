/* SPDX-License-Identifier: MIT */
#include "review/silence.h"

#define WORD "samekey-ignore"

struct silence {
    enum rule_id rule;
    unsigned line; /* the line it speaks about; 0: the whole file */
    struct slice reason;
};

static struct slice cut_front(struct slice s, size_t n)
{
    return slice_of(s.data + n, s.len - n);
}

/* Where a comment begins on this line, or SIZE_MAX. A quoted "#" is taken for one too; the word that must
 * follow it makes a mistake unlikely. */
static size_t comment_start(struct slice line, size_t before)
{
    for (size_t i = 0; i < before; i++) {
        if (line.data[i] == '#' || line.data[i] == ';')
            return i;
        if (i + 1 < before && line.data[i] == '/' && line.data[i + 1] == '/')
            return i;
        if (i + 10 <= before && memcmp(line.data + i, "\"$comment\"", 10) == 0)
            return i;
    }
    return SIZE_MAX;
}

static bool blank_before(struct slice line, size_t end)
{
    for (size_t i = 0; i < end; i++)
        if (line.data[i] != ' ' && line.data[i] != '\t' && line.data[i] != '{')
            return false;
    return true;
}

/* The next line that is neither empty nor only a comment. */
static unsigned next_line(const struct source *s, unsigned line)
{
    for (line++; line <= s->lines; line++) {
        struct slice text = slice_trim(source_line(s, line));
        bool comment = text.len && (text.data[0] == '#' || (text.len > 1 && memcmp(text.data, "//", 2) == 0));
        if (text.len && !comment)
            return line;
    }
    return line;
}

static bool rule_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

/* Reads the comment of one line; false when there is none. */
static bool silence_read(struct silence *out, const struct source *s, unsigned line, bool *known_rule)
{
    struct slice text = source_line(s, line);
    const char *word = memmem(text.data, text.len, WORD, strlen(WORD));
    if (!word)
        return false;
    size_t at = (size_t)(word - text.data), begin = comment_start(text, at);
    if (begin == SIZE_MAX)
        return false;
    struct slice rest = cut_front(text, at + strlen(WORD));
    bool whole = rest.len >= 5 && memcmp(rest.data, "-file", 5) == 0;
    if (whole)
        rest = cut_front(rest, 5);
    if (!rest.len || (rest.data[0] != ' ' && rest.data[0] != '\t'))
        return false;
    rest = slice_trim(rest);
    size_t n = 0;
    while (n < rest.len && rule_char(rest.data[n]))
        n++;
    out->rule = rule_find(slice_of(rest.data, n));
    *known_rule = out->rule != RULE_COUNT;
    rest = slice_trim(cut_front(rest, n));
    out->reason = slice_of("", 0);
    if (rest.len && rest.data[0] == ':') {
        rest = slice_trim(cut_front(rest, 1));
        const char *quote = text.data[begin] == '"' ? memchr(rest.data, '"', rest.len) : NULL;
        if (quote)
            rest.len = (size_t)(quote - rest.data);
        out->reason = slice_trim(rest);
    }
    out->line = whole ? 0 : blank_before(text, begin) ? next_line(s, line) : line;
    return true;
}

static bool silence_use(struct review *r, const struct source *s, const struct silence *c)
{
    bool used = false;
    for (size_t i = 0; i < r->finding_count; i++) {
        struct finding *f = &r->findings[i];
        if (f->rule != c->rule || strcmp(f->source->path, s->path) != 0 || (c->line && f->line != c->line))
            continue;
        if (!f->silenced && c->reason.len)
            f->silenced = pool_copy(&r->pool, c->reason);
        used = true;
    }
    return used;
}

void silence_apply(struct review *r)
{
    for (size_t i = 0; i < r->source_count; i++) {
        const struct source *s = r->sources[i];
        for (unsigned line = 1; line <= s->lines; line++) {
            struct silence c;
            bool known_rule;
            if (!silence_read(&c, s, line, &known_rule))
                continue;
            bool used = known_rule && silence_use(r, s, &c);
            if (!c.reason.len)
                review_find(r, RULE_SILENCED_NO_REASON, s, line, NULL,
                            "there is no `: reason` after the rule");
            else if (!known_rule)
                review_find(r, RULE_SILENCED_UNUSED, s, line, NULL, "there is no such rule");
            else if (!used)
                review_find(r, RULE_SILENCED_UNUSED, s, line, NULL, "%s has no finding here",
                            rule_get(c.rule)->id);
        }
    }
}
