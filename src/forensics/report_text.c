/* SPDX-License-Identifier: MIT */
#include "forensics/report.h"

#include "base/civil.h"

/* Findings of one kind that are written out unless all are asked for. */
#define SHOWN_OF_A_KIND 3

struct page {
    const struct report *r;
    FILE *out;
    bool colour;
};

static void put_slice(FILE *out, struct slice s)
{
    for (size_t i = 0; i < s.len;
         i++) { /* a log may hold terminal controls; the report does not pass them on */
        unsigned char c = (unsigned char)s.data[i];
        fputc(c < 0x20 || c == 0x7f ? '?' : c, out);
    }
}

static void put_lines(const struct page *p, const struct line_refs *lines)
{
    struct buffer b = {0};
    for (size_t i = 0; lines && i < lines->count; i++) {
        if (i)
            buffer_text(&b, ", ");
        report_line(p->r, lines->ref[i], &b);
    }
    if (lines && lines->left_out)
        buffer_format(&b, " and %zu more", lines->left_out);
    put_slice(p->out, buffer_view(&b));
    buffer_fini(&b);
}

static const char *paint(const struct page *p, const char *code)
{
    return p->colour ? code : "";
}

static void put_sources(const struct page *p)
{
    const struct gather *g = p->r->g;
    for (size_t i = 0; i < g->file_count; i++) {
        const struct log_file *f = &g->file[i];
        fprintf(p->out, "  %s: %llu lines, %s", f->path, (unsigned long long)f->lines,
                line_format_text(f->format));
        if (f->error)
            fprintf(p->out, ", %s", f->error);
        if (f->unreadable) {
            fprintf(p->out, ", %llu unreadable (line", (unsigned long long)f->unreadable);
            for (size_t k = 0; k < f->unreadable && k < GATHER_NAMED_LINES; k++)
                fprintf(p->out, "%s %u", k ? "," : "", f->named[k]);
            fputs(f->unreadable > GATHER_NAMED_LINES ? ", ...)" : ")", p->out);
        }
        if (f->unplaced)
            fprintf(p->out, ", %llu local times without a zone (--tz %s=ZONE)",
                    (unsigned long long)f->unplaced, f->path);
        fputs("\n    read as:", p->out);
        for (int k = 0; k < FIELD_COUNT; k++)
            if ((f->seen & FIELD_BIT(k)) && f->field_as[k])
                fprintf(p->out, " %s=%s", field_name((enum field)k), f->field_as[k]);
            else if (f->seen & FIELD_BIT(k))
                fprintf(p->out, " %s", field_name((enum field)k));
        fputc('\n', p->out);
    }
    for (size_t i = 0; i < g->origin_count; i++) {
        int64_t us = p->r->clocks->offset_us[i];
        const struct log_origin *o = &g->origin[i];
        if (us == 0)
            continue;
        fprintf(p->out, "  the clock of %s%s%s ", o->file, *o->node ? " at " : "", o->node);
        if (us == MOMENT_NONE)
            fputs("cannot be placed: its lines order nothing\n", p->out);
        else
            fprintf(p->out, "is %.3f s %s; corrected\n", (double)(us < 0 ? -us : us) / 1e6,
                    us < 0 ? "ahead" : "behind");
    }
}

static void put_findings(const struct page *p, bool all)
{
    const struct diagnosis *d = p->r->d;
    for (size_t i = 0, shown = 0; i < d->findings.count; i++) {
        const struct finding *f = &d->findings.item[i];
        const struct finding_kind *k = finding_kind(f->code);
        bool first = i == 0 || d->findings.item[i - 1].code != f->code;
        if (first) {
            shown = 0;
            fprintf(p->out, "\n%sStep %d, %s: %s%s (%llu)\n  Remedy: %s\n",
                    paint(p, k->harm <= 1 ? "\033[1;31m" : "\033[1;33m"), k->step, k->layer, k->what,
                    paint(p, "\033[0m"), (unsigned long long)d->by_code[f->code], k->remedy);
        }
        if (!all && shown == SHOWN_OF_A_KIND)
            fprintf(p->out, "  ... and %llu more (--all)\n",
                    (unsigned long long)(d->by_code[f->code] - shown));
        if (shown++ >= SHOWN_OF_A_KIND && !all)
            continue;
        fputs("  ", p->out);
        put_slice(p->out, f->key);
        fprintf(p->out, " [%s]: ", certainty_text(f->certainty));
        put_slice(p->out, f->text);
        fputs("\n    ", p->out);
        put_lines(p, f->lines);
        fputc('\n', p->out);
    }
}

static void put_calls(const struct page *p, bool all)
{
    const struct diagnosis *d = p->r->d;
    uint64_t unknown = d->verdicts[EVENT_STATE_UNKNOWN];
    size_t shown = 0;
    if (unknown == 0)
        return;
    fprintf(p->out, "\nCalls whose ending is not known: %llu\n", (unsigned long long)unknown);
    for (size_t i = 0; i < d->calls.count && (all || shown < 10); i++) {
        const struct call_entry *c = &d->calls.item[i];
        if (c->verdict != EVENT_STATE_UNKNOWN)
            continue;
        fputs("  ", p->out);
        put_slice(p->out, c->call);
        fputs(": ", p->out);
        put_slice(p->out, c->notes);
        fputc('\n', p->out);
        shown++;
    }
    if (unknown > shown)
        fprintf(p->out, "  ... and %llu more\n", (unsigned long long)(unknown - shown));
}

void report_text(const struct report *r, FILE *out, bool colour, bool all)
{
    const struct diagnosis *d = r->d;
    struct page p = {r, out, colour};
    fprintf(out,
            "%llu lines read, %llu unreadable, %llu shipped twice: %llu events, %llu business keys, %llu "
            "callIds, %llu "
            "replays\n",
            (unsigned long long)d->lines, (unsigned long long)d->unreadable,
            (unsigned long long)d->shipped_twice, (unsigned long long)d->events,
            (unsigned long long)d->business_keys, (unsigned long long)d->call_ids,
            (unsigned long long)d->replays);
    put_sources(&p);
    fprintf(out, "%s%llu operations took effect more than once; %llu findings%s\n",
            paint(&p, d->double_run_count ? "\033[1;31m" : "\033[1;32m"),
            (unsigned long long)d->double_run_count, (unsigned long long)d->finding_count,
            paint(&p, "\033[0m"));
    fputs("Requests by key:", out);
    for (int i = 0; i < LABEL_COUNT; i++)
        if (d->by_label[i])
            fprintf(out, " %s %llu", label_text((enum label)i), (unsigned long long)d->by_label[i]);
    fputc('\n', out);
    put_findings(&p, all);
    put_calls(&p, all);
}
