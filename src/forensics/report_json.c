/* SPDX-License-Identifier: MIT */
#include "forensics/report.h"

#include "base/json_text.h"

/* Bytes collected before they are written. */
#define FLUSH_BYTES 65536

static void flush(struct buffer *b, FILE *out, size_t beyond)
{
    if (b->len < beyond)
        return;
    fwrite(b->data ? b->data : "", 1, b->len, out);
    buffer_clear(b);
}

void report_line(const struct report *r, struct line_ref ref, struct buffer *out)
{
    buffer_format(out, "%s:%u", r->g->file[ref.file].path, ref.line);
}

static void lines(const struct report *r, const struct line_refs *refs, struct buffer *b)
{
    struct buffer text = {0};
    buffer_byte(b, '[');
    for (size_t i = 0; refs && i < refs->count; i++) {
        buffer_clear(&text);
        report_line(r, refs->ref[i], &text);
        if (i)
            buffer_byte(b, ',');
        json_text(b, buffer_view(&text));
    }
    buffer_byte(b, ']');
    buffer_fini(&text);
}

static void texts(const struct slice *s, size_t n, struct buffer *b)
{
    buffer_byte(b, '[');
    for (size_t i = 0; i < n; i++) {
        if (i)
            buffer_byte(b, ',');
        json_text(b, s[i]);
    }
    buffer_byte(b, ']');
}

static void member(struct buffer *b, const char *name, struct slice text)
{
    buffer_format(b, "\"%s\":", name);
    json_text(b, text);
}

static void sources(const struct report *r, struct buffer *b)
{
    const struct gather *g = r->g;
    buffer_text(b, "\n \"sources\":[");
    for (size_t i = 0; i < g->origin_count; i++) {
        int64_t us = r->clocks->offset_us[i];
        buffer_text(b, i ? ",\n  {" : "\n  {");
        member(b, "file", slice_text(g->origin[i].file));
        buffer_text(b, ",\"node\":");
        json_text_or_null(b, slice_text(g->origin[i].node));
        if (us == MOMENT_NONE)
            buffer_text(b, ",\"clock_offset_s\":null,\"clock\":\"cannot be placed\"}");
        else
            buffer_format(b, ",\"clock_offset_s\":%.6g%s}", us ? (double)-us / 1e6 : 0.0,
                          g->origin[i].unplaced ? ",\"clock\":\"local, zone not known\"" : "");
    }
    buffer_text(b, "],\n \"files\":[");
    for (size_t i = 0; i < g->file_count; i++) {
        const struct log_file *f = &g->file[i];
        buffer_text(b, i ? ",\n  {" : "\n  {");
        member(b, "file", slice_text(f->path));
        buffer_format(
            b, ",\"format\":\"%s\",\"lines\":%llu,\"unreadable\":%llu,\"without_time\":%llu,\"error\":",
            line_format_text(f->format), (unsigned long long)f->lines, (unsigned long long)f->unreadable,
            (unsigned long long)f->without_time);
        json_text_or_null(b, slice_text(f->error));
        buffer_text(b, ",\"unreadable_lines\":[");
        for (size_t k = 0; k < f->unreadable && k < GATHER_NAMED_LINES; k++)
            buffer_format(b, "%s%u", k ? "," : "", f->named[k]);
        buffer_text(b, "],\"fields\":{");
        for (int k = 0, n = 0; k < FIELD_COUNT; k++) {
            if (!(f->seen & FIELD_BIT(k)))
                continue;
            buffer_format(b, "%s\"%s\":", n++ ? "," : "", field_name((enum field)k));
            json_text_or_null(b, slice_text(f->field_as[k]));
        }
        buffer_text(b, "}}");
    }
    buffer_text(b, "]");
}

void report_json(const struct report *r, FILE *out)
{
    const struct diagnosis *d = r->d;
    struct buffer b = {0};
    buffer_format(&b,
                  "{\"lines\":{\"read\":%llu,\"unreadable\":%llu,\"shipped_twice\":%llu},\n \"events\":%llu,"
                  "\"business_keys\":%llu,\"call_ids\":%llu,\"replays\":%llu,\n \"double_runs\":[",
                  (unsigned long long)d->lines, (unsigned long long)d->unreadable,
                  (unsigned long long)d->shipped_twice, (unsigned long long)d->events,
                  (unsigned long long)d->business_keys, (unsigned long long)d->call_ids,
                  (unsigned long long)d->replays);
    for (size_t i = 0; i < d->double_runs.count; i++) {
        const struct double_run *x = &d->double_runs.item[i];
        buffer_text(&b, i ? ",\n  {" : "\n  {");
        member(&b, "key", x->key);
        buffer_text(&b, ",\"call_ids\":");
        texts(x->call, x->calls, &b);
        buffer_text(&b, ",\"exec_ids\":");
        texts(x->exec, x->execs, &b);
        buffer_byte(&b, ',');
        member(&b, "cause", x->cause);
        buffer_format(&b, ",\"certainty\":\"%s\",\"lines\":", certainty_text(x->certainty));
        lines(r, x->lines, &b);
        buffer_byte(&b, '}');
        flush(&b, out, FLUSH_BYTES);
    }
    buffer_text(&b, "],\n \"calls\":[");
    for (size_t i = 0; i < d->calls.count; i++) {
        const struct call_entry *x = &d->calls.item[i];
        buffer_text(&b, i ? ",\n  {" : "\n  {");
        member(&b, "call_id", x->call);
        buffer_format(&b, ",\"verdict\":\"%s\",", event_state_text(x->verdict));
        member(&b, "key", x->key);
        buffer_byte(&b, ',');
        member(&b, "notes", x->notes);
        buffer_byte(&b, '}');
        flush(&b, out, FLUSH_BYTES);
    }
    buffer_text(&b, "],\n \"keys\":[");
    for (size_t i = 0; i < d->keys.count; i++) {
        const struct key_entry *x = &d->keys.item[i];
        buffer_text(&b, i ? ",\n  {" : "\n  {");
        member(&b, "key", x->key);
        buffer_format(
            &b, ",\"posts\":%u,\"label\":\"%s\",\"certainty\":\"%s\",\"lawful\":%s,\"evidence\":", x->posts,
            label_text(x->label), certainty_text(x->certainty), x->lawful ? "true" : "false");
        json_text_or_null(&b, x->text);
        buffer_text(&b, ",\"lines\":");
        lines(r, x->lines, &b);
        buffer_byte(&b, '}');
        flush(&b, out, FLUSH_BYTES);
    }
    buffer_text(&b, "],\n \"findings\":[");
    for (size_t i = 0; i < d->findings.count; i++) {
        const struct finding *x = &d->findings.item[i];
        const struct finding_kind *k = finding_kind(x->code);
        buffer_format(&b, "%s\n  {\"step\":%d,\"code\":\"%s\",", i ? "," : "", k->step, k->code);
        member(&b, "key", x->key);
        buffer_format(&b, ",\"certainty\":\"%s\",\"harm\":%d,\"layer\":\"%s\",", certainty_text(x->certainty),
                      k->harm, k->layer);
        member(&b, "text", x->text);
        buffer_text(&b, ",\"lines\":");
        lines(r, x->lines, &b);
        buffer_byte(&b, ',');
        member(&b, "remedy", slice_text(k->remedy));
        buffer_byte(&b, '}');
        flush(&b, out, FLUSH_BYTES);
    }
    buffer_text(&b, "],");
    sources(r, &b);
    buffer_format(&b,
                  ",\n "
                  "\"left_out\":{\"findings\":%llu,\"double_runs\":%llu,\"keys\":%llu,\"calls\":%llu,"
                  "\"events\":%llu}}\n",
                  (unsigned long long)d->findings.left_out, (unsigned long long)d->double_runs.left_out,
                  (unsigned long long)d->keys.left_out, (unsigned long long)d->calls.left_out,
                  (unsigned long long)d->left_out_events);
    flush(&b, out, 0);
    buffer_fini(&b);
}
