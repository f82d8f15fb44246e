/* SPDX-License-Identifier: MIT
 *
 * One file, no scripts, nothing loaded from anywhere: it can be mailed and opened years later. Kinds of findings fold by
 * <details>; each finding has its timeline, every event a dot at its time and a row in a table.
 */
#include "forensics/report.h"

#include "base/civil.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
    "content=\"width=device-width\">\n"
    "<title>samekey diagnose</title>\n<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 "
    "1rem;color:#1b1f24;background:#fff}\n"
    "@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#15181c}}\n"
    "summary{cursor:pointer;font-weight:600;margin:.6rem 0}details details{margin-left:1rem}\n"
    "table{border-collapse:collapse;font-size:13px}td,th{padding:.15rem "
    ".6rem;text-align:left;border-bottom:1px solid #8884}\n"
    ".bad{color:#c62828}.remedy{margin:.3rem 0}.lines{font:12px monospace;overflow-wrap:anywhere}\n"
    "svg{width:100%;height:46px;display:block}\n</style>\n";

static void put(FILE *out, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if ((unsigned char)c < 0x20 || c == 0x7f)
            fputc(' ', out);
        else
            fputc(c, out);
    }
}

static void put_text(FILE *out, const char *text)
{
    put(out, slice_text(text));
}

static const char *dot_colour(uint8_t kind)
{
    switch ((enum event_kind)kind) {
    case KIND_EFFECT:
        return "#c62828";
    case KIND_TIMEOUT:
    case KIND_RESET:
    case KIND_RECEIPT_TIMEOUT:
        return "#ef6c00";
    case KIND_REQUEST:
    case KIND_SENT:
    case KIND_PROXY:
        return "#1565c0";
    case KIND_RECEIPT_QUERY:
    case KIND_RECEIPT_ANSWER:
    case KIND_RECEIPT_WRITTEN:
        return "#6a1b9a";
    default:
        return "#607d8b";
    }
}

static void put_timeline(const struct report *r, const struct finding *f, FILE *out)
{
    int64_t first = MOMENT_NONE, last = MOMENT_NONE;
    for (size_t i = 0; i < f->timeline_count; i++) {
        if (f->timeline[i].us == MOMENT_NONE)
            continue;
        first = first == MOMENT_NONE ? f->timeline[i].us : first;
        last = f->timeline[i].us;
    }
    if (f->timeline_count == 0)
        return;
    double span = first == MOMENT_NONE || last == first ? 1 : (double)(last - first);
    fputs("<svg viewBox=\"0 0 1000 46\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"timeline\">"
          "<line x1=\"10\" x2=\"990\" y1=\"23\" y2=\"23\" stroke=\"#8888\"/>",
          out);
    for (size_t i = 0; i < f->timeline_count; i++)
        if (f->timeline[i].us != MOMENT_NONE)
            fprintf(out, "<circle cx=\"%.1f\" cy=\"23\" r=\"6\" fill=\"%s\"><title>%s</title></circle>",
                    10 + 980 * (double)(f->timeline[i].us - first) / span, dot_colour(f->timeline[i].kind),
                    event_kind_text((enum event_kind)f->timeline[i].kind));
    fputs("</"
          "svg>\n<table><tr><th>time<th>after<th>what<th>attempt<th>answer<th>callId<th>execution<th>at<th>"
          "line\n",
          out);
    for (size_t i = 0; i < f->timeline_count; i++) {
        const struct moment_of *e = &f->timeline[i];
        struct buffer b = {0};
        fputs("<tr><td>", out);
        if (e->us != MOMENT_NONE) {
            civil_print_rfc3339(e->us / 1000, &b);
            put(out, buffer_view(&b));
            fprintf(out, "<td>%.3f s", (double)(e->us - first) / 1e6);
        } else {
            fputs("not known<td>", out);
        }
        fputs("<td>", out);
        put_text(out, event_kind_text((enum event_kind)e->kind));
        fputs("<td>", out);
        if (e->attempt)
            fprintf(out, "%u", e->attempt);
        fputs("<td>", out);
        if (e->status)
            fprintf(out, "%u ", e->status);
        put_text(out, event_state_text((enum event_state)e->state));
        fputs("<td>", out);
        put(out, e->call);
        fputs("<td>", out);
        put(out, e->exec);
        fputs("<td>", out);
        put(out, e->node);
        fputs("<td>", out);
        buffer_clear(&b);
        report_line(r, e->ref, &b);
        put(out, buffer_view(&b));
        fputc('\n', out);
        buffer_fini(&b);
    }
    fputs("</table>\n", out);
}

static void put_finding(const struct report *r, const struct finding *f, FILE *out)
{
    fputs("<details><summary>", out);
    put(out, f->key);
    fprintf(out, " <small>(%s)</small></summary>\n<p>", certainty_text(f->certainty));
    put(out, f->text);
    fputs("<p class=\"lines\">", out);
    for (size_t i = 0; f->lines && i < f->lines->count; i++) {
        struct buffer b = {0};
        report_line(r, f->lines->ref[i], &b);
        if (i)
            fputs(", ", out);
        put(out, buffer_view(&b));
        buffer_fini(&b);
    }
    if (f->lines && f->lines->left_out)
        fprintf(out, " and %zu more", f->lines->left_out);
    fputc('\n', out);
    put_timeline(r, f, out);
    fputs("</details>\n", out);
}

void report_html(const struct report *r, FILE *out)
{
    const struct diagnosis *d = r->d;
    fputs(head, out);
    fprintf(out,
            "<h1>What the logs show</h1>\n<p>%llu lines, %llu unreadable, %llu shipped twice; %llu events, "
            "%llu business "
            "keys, %llu callIds, %llu replays.\n<p class=\"%s\"><strong>%llu operations took effect more "
            "than once; %llu "
            "findings.</strong>\n",
            (unsigned long long)d->lines, (unsigned long long)d->unreadable,
            (unsigned long long)d->shipped_twice, (unsigned long long)d->events,
            (unsigned long long)d->business_keys, (unsigned long long)d->call_ids,
            (unsigned long long)d->replays, d->double_run_count ? "bad" : "good",
            (unsigned long long)d->double_run_count, (unsigned long long)d->finding_count);
    fputs("<table><tr><th>requests of a key<th>keys\n", out);
    for (int i = 0; i < LABEL_COUNT; i++)
        fprintf(out, "<tr><td>%s<td>%llu\n", label_text((enum label)i), (unsigned long long)d->by_label[i]);
    fputs("</table>\n", out);
    for (size_t i = 0; i < d->findings.count; i++) {
        const struct finding *f = &d->findings.item[i];
        const struct finding_kind *k = finding_kind(f->code);
        if (i == 0 || d->findings.item[i - 1].code != f->code) {
            fprintf(out, "<details%s><summary>Step %d, %s: %s (%llu)</summary>\n<p class=\"remedy\">Remedy: ",
                    i == 0 ? " open" : "", k->step, k->layer, k->what,
                    (unsigned long long)d->by_code[f->code]);
            put_text(out, k->remedy);
            fputc('\n', out);
        }
        put_finding(r, f, out);
        if (i + 1 == d->findings.count || d->findings.item[i + 1].code != f->code)
            fputs("</details>\n", out);
    }
    fputs("<h2>Files</h2>\n<table><tr><th>file<th>lines<th>unreadable<th>read as\n", out);
    for (size_t i = 0; i < r->g->file_count; i++) {
        fputs("<tr><td>", out);
        put_text(out, r->g->file[i].path);
        fprintf(out, "<td>%llu<td>%llu<td>%s\n", (unsigned long long)r->g->file[i].lines,
                (unsigned long long)r->g->file[i].unreadable, line_format_text(r->g->file[i].format));
    }
    fputs("</table>\n</html>\n", out);
}
