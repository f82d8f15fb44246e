/* SPDX-License-Identifier: MIT
 *
 * One file, no scripts, nothing loaded from anywhere: it can be mailed and opened years later. Kinds of findings fold by
 * <details>; each finding has its timeline, every event a dot at its time and a row in a table.
 */
#include "forensics/report.h"

#include "base/civil.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<title>samekey diagnose: what the logs show</title>\n<style>\n"
    ":root{color-scheme:light "
    "dark;--text:#18212d;--muted:#55606f;--ground:#f5f6f8;--card:#fff;--line:#e0e4ea;"
    "--bad:#a9261d;--good:#166b3f;--warn:#8a5200;--ask:#6b3fa0;--go:#1d5cb8;--note:#5f6a79}\n"
    "@media(prefers-color-scheme:dark){:root{--text:#e7ecf3;--muted:#a3afbe;--ground:#0e1218;--card:#161c25;"
    "--line:#29323f;--bad:#ff9d93;--good:#6fd6a0;--warn:#f0c35b;--ask:#c7a6f5;--go:#84b3ff;--note:#8d99a9}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:0 auto;padding:1.5rem 1rem 3rem;"
    "color:var(--text);background:var(--ground);overflow-wrap:break-word}\n"
    "h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.05rem;margin:2rem 0 .6rem}p{margin:.3rem 0}\n"
    ".muted,small,.lines{color:var(--muted)}.bad{color:var(--bad)}.good{color:var(--good)}"
    ".verdict{font-size:1.15rem;font-weight:600;margin:0 0 .8rem}\n"
    ".card,body>details{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.4rem "
    "1rem;"
    "margin:.8rem 0;overflow-x:auto}\n"
    "summary{cursor:pointer;font-weight:600;padding:.5rem 0}"
    "details details{border-top:1px solid var(--line);padding-left:1rem}\n"
    ":focus-visible{outline:2px solid var(--go);outline-offset:2px}\n"
    "small{font-weight:400;border:1px solid var(--line);border-radius:9px;padding:0 "
    ".5rem;margin-left:.4rem}\n"
    ".scroll{overflow-x:auto;margin:.4rem 0 1rem}table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid "
    "var(--line);white-space:nowrap}"
    "th{color:var(--muted);font-weight:600}tr:last-child td{border-bottom:0}\n"
    ".lines,td.mono{font:12px/1.5 ui-monospace,monospace}.lines{overflow-wrap:anywhere}\n"
    "svg{width:100%;height:36px;display:block;overflow:visible}line{stroke:var(--line);stroke-width:2}\n"
    ".dot{display:inline-block;width:.6em;height:.6em;border-radius:50%;margin-right:.5em;background:"
    "currentColor}\n"
    "circle{fill:currentColor;stroke:var(--card);stroke-width:1.5}.k-effect{color:var(--bad)}"
    ".k-silence{color:var(--warn)}.k-send{color:var(--go)}.k-ask{color:var(--ask)}.k-note{color:var(--note)}"
    "\n"
    ".key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:13px;color:var(--muted)}\n"
    "@media print{body{background:#fff}.card,body>details{break-inside:avoid-page}}\n</style>\n";

/* What a dot means; the legend names them in this order. Each row of a table says the same in words. */
static const char *const dots[][2] = {{"k-effect", "an effect"},
                                      {"k-send", "a request on its way"},
                                      {"k-silence", "silence"},
                                      {"k-ask", "a receipt asked, answered or written"},
                                      {"k-note", "anything else"}};

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

static const char *dot_class(uint8_t kind)
{
    switch ((enum event_kind)kind) {
    case KIND_EFFECT:
        return dots[0][0];
    case KIND_REQUEST:
    case KIND_SENT:
    case KIND_PROXY:
        return dots[1][0];
    case KIND_TIMEOUT:
    case KIND_RESET:
    case KIND_RECEIPT_TIMEOUT:
        return dots[2][0];
    case KIND_RECEIPT_QUERY:
    case KIND_RECEIPT_ANSWER:
    case KIND_RECEIPT_WRITTEN:
        return dots[3][0];
    default:
        return dots[4][0];
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
    /* In percent, not in a box that is stretched: dots stay round on every screen. */
    fputs("<svg role=\"img\" aria-label=\"the events in time; the table beneath has them in words\">"
          "<line x1=\"1%\" x2=\"99%\" y1=\"18\" y2=\"18\"/>",
          out);
    for (size_t i = 0; i < f->timeline_count; i++)
        if (f->timeline[i].us != MOMENT_NONE)
            fprintf(out,
                    "<circle class=\"%s\" cx=\"%.2f%%\" cy=\"18\" r=\"6\"><title>%s, %.3f s</title></circle>",
                    dot_class(f->timeline[i].kind), 1 + 98 * (double)(f->timeline[i].us - first) / span,
                    event_kind_text((enum event_kind)f->timeline[i].kind),
                    (double)(f->timeline[i].us - first) / 1e6);
    fputs("</svg>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-label=\"events\"><table><tr><th>time"
          "<th>after<th>what<th>attempt<th>answer<th>callId<th>execution<th>at<th>line\n",
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
        fprintf(out, "<td><i class=\"dot %s\"></i>", dot_class(e->kind));
        put_text(out, event_kind_text((enum event_kind)e->kind));
        fputs("<td>", out);
        if (e->attempt)
            fprintf(out, "%u", e->attempt);
        fputs("<td>", out);
        if (e->status)
            fprintf(out, "%u ", e->status);
        put_text(out, event_state_text((enum event_state)e->state));
        fputs("<td class=\"mono\">", out);
        put(out, e->call);
        fputs("<td class=\"mono\">", out);
        put(out, e->exec);
        fputs("<td>", out);
        put(out, e->node);
        fputs("<td class=\"mono\">", out);
        buffer_clear(&b);
        report_line(r, e->ref, &b);
        put(out, buffer_view(&b));
        fputc('\n', out);
        buffer_fini(&b);
    }
    fputs("</table></div>\n", out);
}

static void put_finding(const struct report *r, const struct finding *f, FILE *out)
{
    fputs("<details><summary>", out);
    put(out, f->key);
    fprintf(out, " <small>%s</small></summary>\n<p>", certainty_text(f->certainty));
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
    fprintf(
        out,
        "<h1>What the logs show</h1>\n<p class=\"verdict %s\">%llu operations took effect more than once; "
        "%llu findings.\n<p class=\"muted\">%llu lines, %llu unreadable, %llu shipped twice; %llu events, "
        "%llu business keys, %llu callIds, %llu replays.\n",
        d->double_run_count ? "bad" : "good", (unsigned long long)d->double_run_count,
        (unsigned long long)d->finding_count, (unsigned long long)d->lines, (unsigned long long)d->unreadable,
        (unsigned long long)d->shipped_twice, (unsigned long long)d->events,
        (unsigned long long)d->business_keys, (unsigned long long)d->call_ids,
        (unsigned long long)d->replays);
    fputs("<h2>How often each key was requested</h2>\n<div class=\"card\"><table><tr><th>requests of a "
          "key<th>keys\n",
          out);
    for (int i = 0; i < LABEL_COUNT; i++)
        if (d->by_label[i])
            fprintf(out, "<tr><td>%s<td>%llu\n", label_text((enum label)i),
                    (unsigned long long)d->by_label[i]);
    fputs("</table></div>\n", out);
    if (d->findings.count) {
        fputs("<h2>Findings</h2>\n<p class=\"key\">", out);
        for (size_t i = 0; i < sizeof dots / sizeof *dots; i++)
            fprintf(out, "<span><i class=\"dot %s\"></i>%s</span>", dots[i][0], dots[i][1]);
        fputc('\n', out);
    }
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
    fputs("<h2>Files</h2>\n<div class=\"card\"><table><tr><th>file<th>lines<th>unreadable<th>read as\n", out);
    for (size_t i = 0; i < r->g->file_count; i++) {
        fputs("<tr><td>", out);
        put_text(out, r->g->file[i].path);
        fprintf(out, "<td>%llu<td>%llu<td>%s\n", (unsigned long long)r->g->file[i].lines,
                (unsigned long long)r->g->file[i].unreadable, line_format_text(r->g->file[i].format));
    }
    fputs("</table></div>\n</html>\n", out);
}
