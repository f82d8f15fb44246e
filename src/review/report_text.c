/* SPDX-License-Identifier: MIT */
#include "review/report.h"

/* Bytes of an offending line that are shown. */
#define LINE_SHOWN_MAX 160

/* Length of the valid UTF-8 sequence at the front (RFC 3629 section 4), or 0. */
static size_t utf8_length(struct slice s)
{
    unsigned char c = (unsigned char)s.data[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xC2 && c < 0xE0 ? 2
               : c >= 0xE0 && c < 0xF0 ? 3
               : c >= 0xF0 && c < 0xF5 ? 4
                                       : 0;
    if (!n || n > s.len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)s.data[i] & 0xC0) != 0x80)
            return 0;
    unsigned char d = n > 1 ? (unsigned char)s.data[1] : 0;
    if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) ||
        (c == 0xF4 && d > 0x8F))
        return 0;
    return n;
}

void review_report_clean(struct buffer *out, struct slice s, size_t max)
{
    size_t i = 0;
    while (i < s.len && i < max) {
        size_t n = utf8_length(slice_of(s.data + i, s.len - i));
        unsigned char c = (unsigned char)s.data[i];
        if (n == 0) {
            buffer_text(out, "\xEF\xBF\xBD");
            i++;
        } else if (c < 0x20 || c == 0x7F) {
            buffer_byte(out, c == '\t' ? ' ' : '?');
            i++;
        } else if (c == 0xC2 && (unsigned char)s.data[i + 1] < 0xA0) {
            buffer_byte(out, '?'); /* C1 controls steer terminals too */
            i += 2;
        } else {
            buffer_append(out, s.data + i, n);
            i += n;
        }
    }
    if (i < s.len)
        buffer_text(out, "…");
}

static void text_finding(struct buffer *out, const struct finding *f, bool colour)
{
    const struct rule *rule = rule_get(f->rule);
    const char *paint = !colour ? "" : rule->level == RULE_LEVEL_ERROR ? "\033[31m" : "\033[33m";
    review_report_clean(out, slice_text(f->source->path), 4096);
    buffer_format(out, ":%u: %s%s %s %s%s", f->line, paint, rule_level_name(rule->level), rule->id,
                  rule->slug, colour ? "\033[0m" : "");
    if (f->place) {
        buffer_text(out, " (");
        review_report_clean(out, slice_text(f->place), 100);
        buffer_byte(out, ')');
    }
    buffer_format(out, "\n  %5u | ", f->line);
    review_report_clean(out, slice_trim(source_line(f->source, f->line)), LINE_SHOWN_MAX);
    if (f->detail[0]) {
        buffer_text(out, "\n  seen:   ");
        review_report_clean(out, slice_text(f->detail), 400);
    }
    buffer_format(out, "\n  danger: %s\n  remedy: %s\n", rule->danger, rule->remedy);
    buffer_byte(out, '\n');
}

void review_report_text(struct buffer *out, const struct review *r, bool colour)
{
    size_t silenced = 0, errors = 0, warnings = 0;
    for (size_t i = 0; i < r->finding_count; i++) {
        const struct finding *f = &r->findings[i];
        if (f->silenced) {
            silenced++;
            continue;
        }
        if (rule_get(f->rule)->level == RULE_LEVEL_ERROR)
            errors++;
        else
            warnings++;
        text_finding(out, f, colour);
    }
    for (size_t i = 0; i < r->policy_count; i++) {
        const struct review_policy *p = r->policies[i];
        struct buffer figures = {0};
        policy_figures(&figures, p);
        if (figures.len) {
            review_report_clean(out, slice_text(p->source->path), 4096);
            buffer_format(out, ":%u: %s ", p->line, p->format);
            review_report_clean(out, slice_text(p->name ? p->name : ""), 100);
            buffer_format(out, ": %s\n", buffer_cstring(&figures));
        }
        buffer_fini(&figures);
    }
    buffer_format(out, "%zu error%s, %zu warning%s", errors, errors == 1 ? "" : "s", warnings,
                  warnings == 1 ? "" : "s");
    if (silenced)
        buffer_format(out, ", %zu silenced", silenced);
    if (r->findings_dropped)
        buffer_format(out, ", %zu more not shown", r->findings_dropped);
    buffer_format(out, " in %u file%s\n", r->files, r->files == 1 ? "" : "s");
}

void review_report_talk(struct buffer *out, const struct review *r)
{
    for (size_t i = 0; i < r->problem_count; i++) {
        const struct review_problem *p = &r->problems[i];
        review_report_clean(out, slice_text(p->path), 4096);
        if (p->line)
            buffer_format(out, ":%u", p->line);
        buffer_text(out, ": not reviewed: ");
        review_report_clean(out, slice_text(p->what), 500);
        buffer_byte(out, '\n');
    }
    for (size_t i = 0; i < r->note_count; i++) {
        buffer_text(out, "note: ");
        review_report_clean(out, slice_text(r->notes[i]), 500);
        buffer_byte(out, '\n');
    }
}
