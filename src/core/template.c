/* SPDX-License-Identifier: MIT */
#include "core/template.h"

#include "base/civil.h"
#include "core/key.h"

#include <assert.h>

#define LABEL_MAX 60 /* bytes of a label that a message repeats */

struct source_row {
    const char *name;
    enum template_source source;
    bool named; /* a dot and a name follow */
};

static const struct source_row sources[] = {
    {"json", TEMPLATE_JSON, true},        {"header", TEMPLATE_HEADER, true},
    {"path", TEMPLATE_PATH, true},        {"query", TEMPLATE_QUERY, true},
    {"args", TEMPLATE_ARGS, true},        {"method", TEMPLATE_METHOD, false},
    {"call_id", TEMPLATE_CALL_ID, false}, {"key", TEMPLATE_KEY, false},
    {"origin", TEMPLATE_ORIGIN, false},   {"date", TEMPLATE_DATE, false},
    {"hour", TEMPLATE_HOUR, false},       {"minute", TEMPLATE_MINUTE, false},
};

/* What people write and must not: a part whose value is new at every attempt. */
static const char *const volatile_names[] = {"uuid", "timestamp", "random", "now", "nonce"};

static bool is_window(enum template_source source)
{
    return source >= TEMPLATE_DATE;
}

static bool alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Writes a sentence, cutting a label that is too long; %s stands where the label goes. */
static enum status refuse(struct template_error *e, size_t position, enum status status, const char *front,
                          struct slice label, const char *behind)
{
    struct buffer text = {.max = sizeof e->message - 1};
    buffer_text(&text, front);
    buffer_slice(&text, slice_of(label.data, label.len < LABEL_MAX ? label.len : LABEL_MAX));
    buffer_text(&text, behind);
    e->position = position;
    memcpy(e->message, text.data, text.len);
    e->message[text.len] = '\0';
    buffer_fini(&text);
    return status;
}

/* Reads what stands between the braces. */
static enum status read_part(struct template_part *p, struct slice label, size_t position,
                             enum template_use use, struct template_error *e)
{
    size_t end = 0;
    while (end < label.len && label.data[end] != '.' && label.data[end] != ':')
        end++;
    struct slice word = slice_of(label.data, end);
    for (size_t i = 0; i < sizeof volatile_names / sizeof volatile_names[0]; i++) {
        if (slice_is(word, volatile_names[i]))
            return refuse(
                e, position, STATUS_INVALID, "{", label,
                "} is new on every attempt, so it would never match a repeat: name the business thing "
                "instead, as in {json.order_no}");
    }
    const struct source_row *row = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (slice_is(word, sources[i].name))
            row = &sources[i];
    if (!row)
        return refuse(
            e, position, STATUS_INVALID, "there is no {", label,
            "}: use json.PATH, header.NAME, path.NAME, query.NAME, args.PATH, method, call_id, key, date, "
            "hour or minute");
    *p = (struct template_part){.source = row->source, .label = label};
    struct slice rest = slice_of(label.data + end, label.len - end);
    if (row->named) {
        if (rest.len < 2 || rest.data[0] != '.')
            return refuse(e, position, STATUS_INVALID, "{", label, "} needs a name, as in {json.order_no}");
        p->name = slice_of(rest.data + 1, rest.len - 1);
    } else if (is_window(row->source) && rest.len) {
        if (rest.data[0] != ':' ||
            civil_parse_offset(slice_of(rest.data + 1, rest.len - 1), &p->offset_minutes) != STATUS_OK)
            return refuse(e, position + end, STATUS_INVALID, "the offset in {", label,
                          "} is not one: write it as in {date:+08:00}");
    } else if (rest.len) {
        return refuse(e, position + end, STATUS_INVALID, "nothing may follow the name in {", label, "}");
    }
    if (use == TEMPLATE_FOR_KEY && row->source == TEMPLATE_KEY)
        return refuse(e, position, STATUS_INVALID, "{", label, "} cannot be a part of the key itself");
    if (use == TEMPLATE_FOR_KEY && row->source == TEMPLATE_CALL_ID)
        return refuse(
            e, position, STATUS_INVALID, "{", label,
            "} is new with every call, so two calls for one thing would not meet: name the business thing");
    return STATUS_OK;
}

/* A byte of fixed text. */
static enum status check_fixed(char c, size_t position, enum template_use use, struct template_error *e)
{
    bool control = (unsigned char)c < ' ' || c == 0x7f;
    bool refused = use == TEMPLATE_FOR_TEXT ? control : control || (unsigned char)c > 0x7f;
    if (use == TEMPLATE_FOR_KEY && (c == ' ' || c == '"' || c == '\\'))
        refused = true;
    if (!refused)
        return STATUS_OK;
    return refuse(e, position, STATUS_INVALID, "this byte cannot stand in the template's own text",
                  slice_of("", 0),
                  use == TEMPLATE_FOR_KEY ? ": a key is visible ASCII without quotes and backslashes" : "");
}

/* Puts the parts' separators to the proof (see template.h). */
static enum status check_separators(const struct template *t, struct template_error *e)
{
    for (size_t i = 1; i < t->count; i++) {
        struct slice between = t->parts[i].before, label = t->parts[i - 1].label;
        size_t position = (size_t)(t->parts[i].label.data - t->text.data);
        if (between.len == 0)
            return refuse(
                e, position, STATUS_INVALID, "between {", label,
                "} and the next part a separator is missing: without it two inputs could make one key; "
                "write `:`");
        if (alphanumeric(between.data[0]) || between.data[0] == '%')
            return refuse(
                e, position, STATUS_INVALID, "the separator behind {", label,
                "} must begin with neither letter, digit nor %: where the part ends could not be seen; "
                "write `:`");
    }
    return STATUS_OK;
}

/* The text of t->text is cut into parts. Fixed text moves towards the front as `{{` and `}}` shrink, so it is
 * written into place behind `to`. */
static enum status cut(struct template *t, struct template_error *e)
{
    char *data = t->text.data;
    size_t len = t->text.len, fixed = 0, to = 0;
    for (size_t at = 0; at < len;) {
        char c = data[at];
        bool twice = (c == '{' || c == '}') && at + 1 < len && data[at + 1] == c;
        if (c == '{' && !twice) {
            const char *close = memchr(data + at, '}', len - at);
            if (!close)
                return refuse(e, at, STATUS_INVALID,
                              "this { is never closed; a brace of the text is written {{", slice_of("", 0),
                              "");
            struct slice label = slice_of(data + at + 1, (size_t)(close - data) - at - 1);
            if (t->count == TEMPLATE_PARTS_MAX)
                return refuse(e, at, STATUS_FULL, "a template has 16 parts at most", slice_of("", 0), "");
            struct template_part *p = &t->parts[t->count];
            enum status status = read_part(p, label, at + 1, t->use, e);
            if (status != STATUS_OK)
                return status;
            p->before = slice_of(data + fixed, to - fixed);
            t->count++;
            at = (size_t)(close - data) + 1;
            fixed = to = at;
            continue;
        }
        if (c == '}' && !twice)
            return refuse(e, at, STATUS_INVALID, "this } closes nothing; a brace of the text is written }}",
                          slice_of("", 0), "");
        enum status status = check_fixed(c, at, t->use, e);
        if (status != STATUS_OK)
            return status;
        data[to++] = c;
        at += twice ? 2 : 1;
    }
    t->after = slice_of(data + fixed, to - fixed);
    for (size_t i = 0; i + 1 < t->count; i++) {
        struct slice between = t->parts[i + 1].before;
        t->parts[i].stop = between.len ? between.data[0] : '\0';
    }
    return STATUS_OK;
}

enum status template_compile(struct template *t, struct slice text, enum template_use use,
                             struct template_error *error)
{
    if (text.len == 0)
        return refuse(error, 0, STATUS_INVALID, "the template is empty", slice_of("", 0), "");
    if (text.len > TEMPLATE_TEXT_MAX)
        return refuse(error, TEMPLATE_TEXT_MAX, STATUS_FULL, "a template has 2048 bytes at most",
                      slice_of("", 0), "");
    struct template made = {.use = use};
    buffer_slice(&made.text, text);
    if (made.text.failed)
        return refuse(error, 0, STATUS_NO_MEMORY, "out of memory", slice_of("", 0), "");
    enum status status = cut(&made, error);
    if (status == STATUS_OK && use == TEMPLATE_FOR_KEY)
        status = check_separators(&made, error);
    if (status != STATUS_OK) {
        template_fini(&made);
        return status;
    }
    *t = made;
    return STATUS_OK;
}

static void write_percent(struct buffer *out, char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char text[3] = {'%', digits[(unsigned char)c >> 4], digits[c & 15]};
    buffer_append(out, text, 3);
}

static bool stands_for_itself(const struct template *t, const struct template_part *p, char c)
{
    if (t->use == TEMPLATE_FOR_KEY)
        return c > ' ' && c < 0x7f && c != '%' && c != ':' && c != '"' && c != '\\' && c != p->stop;
    return alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

static void write_window(const struct template_part *p, int64_t window_ms, struct buffer *out)
{
    struct buffer text = {0};
    civil_print_rfc3339(window_ms + (int64_t)p->offset_minutes * 60000, &text);
    if (!text.failed && p->source == TEMPLATE_MINUTE)
        text.data[13] = '-'; /* the colon is the separator of keys */
    size_t len = p->source == TEMPLATE_DATE ? 10 : p->source == TEMPLATE_HOUR ? 13 : 16;
    if (text.failed)
        out->failed = true;
    else
        buffer_append(out, text.data, len);
    buffer_fini(&text);
}

static enum status write_part(const struct template *t, const struct template_part *p,
                              const struct template_inputs *in, struct buffer *value, struct buffer *out)
{
    if (is_window(p->source)) {
        write_window(p, in->window_ms, out);
        return STATUS_OK;
    }
    buffer_clear(value);
    bool found = in->lookup(in->context, p->source, p->name, value);
    if (value->failed)
        return STATUS_FULL;
    if (!found || value->len == 0)
        return STATUS_NOT_FOUND;
    bool verbatim =
        t->use == TEMPLATE_FOR_TEXT || (t->use == TEMPLATE_FOR_URL && p->source == TEMPLATE_ORIGIN);
    for (size_t i = 0; i < value->len; i++) {
        char c = value->data[i];
        if (verbatim && ((unsigned char)c < ' ' || c == 0x7f))
            return STATUS_INVALID;
        if (verbatim || stands_for_itself(t, p, c))
            buffer_byte(out, c);
        else
            write_percent(out, c);
    }
    return STATUS_OK;
}

enum status template_render(const struct template *t, const struct template_inputs *in, struct buffer *out,
                            struct slice *missing)
{
    struct buffer value = {.max = TEMPLATE_PART_MAX};
    size_t begin = out->len;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < t->count && status == STATUS_OK; i++) {
        buffer_slice(out, t->parts[i].before);
        status = write_part(t, &t->parts[i], in, &value, out);
        if (status == STATUS_NOT_FOUND && missing)
            *missing = t->parts[i].label;
    }
    buffer_slice(out, t->after);
    if (status == STATUS_OK && out->failed)
        status = STATUS_NO_MEMORY;
    if (status == STATUS_OK && t->use == TEMPLATE_FOR_KEY && out->len - begin > KEY_BYTES_MAX)
        status = STATUS_FULL;
    if (status != STATUS_OK)
        out->len = begin;
    buffer_fini(&value);
    return status;
}

bool template_has_window(const struct template *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (is_window(t->parts[i].source))
            return true;
    return false;
}

bool template_uses(const struct template *t, enum template_source source)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].source == source)
            return true;
    return false;
}

void template_fini(struct template *t)
{
    if (!t)
        return;
    buffer_fini(&t->text);
    t->count = 0;
    t->after = slice_of(NULL, 0);
}
