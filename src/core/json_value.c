/* SPDX-License-Identifier: MIT */
#include "core/json_value.h"

#include "core/json_read.h"

/* Takes the first name off the path. */
static struct slice first_segment(struct slice *path)
{
    const char *dot = path->len ? memchr(path->data, '.', path->len) : NULL;
    struct slice segment = slice_of(path->data, dot ? (size_t)(dot - path->data) : path->len);
    size_t used = segment.len + (dot != NULL);
    *path = slice_of(path->len ? path->data + used : NULL, path->len - used);
    return segment;
}

/* Compares a name as written with one that is meant. */
static bool name_is(const struct json_reader *r, struct slice name, struct buffer *scratch)
{
    if (!r->escaped)
        return slice_equal(r->text, name);
    buffer_clear(scratch);
    json_unescape(r->text, scratch);
    return !scratch->failed && slice_equal(buffer_view(scratch), name);
}

static bool index_is(struct slice segment, size_t index)
{
    size_t number = 0;
    if (segment.len == 0 || segment.len > 9 || (segment.len > 1 && segment.data[0] == '0'))
        return false;
    for (size_t i = 0; i < segment.len; i++) {
        if (segment.data[i] < '0' || segment.data[i] > '9')
            return false;
        number = number * 10 + (size_t)(segment.data[i] - '0');
    }
    return number == index;
}

static bool opens(enum json_token token)
{
    return token == JSON_READ_OBJECT_BEGIN || token == JSON_READ_LIST_BEGIN;
}

/* Reads to the end of the value whose first token is given. */
static bool skip_value(struct json_reader *r, enum json_token token)
{
    if (!opens(token))
        return token != JSON_READ_FAULT;
    unsigned outside = r->depth - 1;
    while (r->depth > outside)
        if (json_read_next(r) == JSON_READ_FAULT)
            return false;
    return true;
}

/* The value whose first token is given is the one asked for, or holds it. */
static enum status find(struct json_reader *r, enum json_token token, struct slice path,
                        struct json_value *out, struct buffer *scratch)
{
    static const enum json_kind kinds[] = {
        [JSON_READ_OBJECT_BEGIN] = JSON_OBJECT, [JSON_READ_LIST_BEGIN] = JSON_LIST,
        [JSON_READ_STRING] = JSON_STRING,       [JSON_READ_NUMBER] = JSON_NUMBER,
        [JSON_READ_TRUE] = JSON_TRUE,           [JSON_READ_FALSE] = JSON_FALSE,
        [JSON_READ_NULL] = JSON_NULL,
    };
    /* Each turn of the loop goes one level down; what is left of outer levels is read at the end, with a
     * watch on the names that must not come again. */
    struct slice on_path[JSON_DEPTH_MAX];
    unsigned levels = 0;
    enum status status = STATUS_NOT_FOUND;

    while (path.len > 0) {
        if (token == JSON_READ_FAULT)
            return STATUS_INVALID;
        if (!opens(token))
            break;
        bool object = token == JSON_READ_OBJECT_BEGIN, found = false;
        struct slice segment = first_segment(&path);
        on_path[levels++] = object ? segment : slice_of(NULL, 0);
        for (size_t index = 0; !found; index++) {
            token = json_read_next(r);
            if (token == JSON_READ_FAULT)
                return STATUS_INVALID;
            if (token == JSON_READ_OBJECT_END || token == JSON_READ_LIST_END)
                break;
            if (object) {
                found = name_is(r, segment, scratch);
                token = json_read_next(r);
            } else {
                found = index_is(segment, index);
            }
            if (!found && !skip_value(r, token))
                return STATUS_INVALID;
        }
        if (!found) {
            levels--;
            goto rest;
        }
    }
    if (token == JSON_READ_FAULT)
        return STATUS_INVALID;
    size_t start = r->start;
    if (!skip_value(r, token))
        return STATUS_INVALID;
    if (path.len == 0) {
        out->kind = kinds[token];
        out->raw = slice_of(r->data + start, r->position - start);
        status = STATUS_OK;
    }
rest:
    for (;;) {
        unsigned level = r->depth;
        token = json_read_next(r);
        if (token == JSON_READ_END)
            return scratch->failed ? STATUS_NO_MEMORY : status;
        if (token == JSON_READ_FAULT)
            return STATUS_INVALID;
        if (token == JSON_READ_NAME && level >= 1 && level <= levels && on_path[level - 1].data &&
            name_is(r, on_path[level - 1], scratch))
            return STATUS_INVALID;
        if (opens(token) && !skip_value(r, token))
            return STATUS_INVALID;
    }
}

enum status json_find(struct slice text, struct slice path, struct json_value *out)
{
    struct json_reader r;
    struct buffer scratch = {0};
    struct json_value found;
    json_read_init(&r, text);
    enum status status = find(&r, json_read_next(&r), path, &found, &scratch);
    if (status == STATUS_OK)
        *out = found;
    buffer_fini(&scratch);
    return status;
}

enum status json_value_text(const struct json_value *v, struct buffer *out)
{
    switch (v->kind) {
    case JSON_STRING:
        json_unescape(slice_of(v->raw.data + 1, v->raw.len - 2), out);
        break;
    case JSON_NUMBER:
    case JSON_TRUE:
    case JSON_FALSE:
        buffer_slice(out, v->raw);
        break;
    default:
        return STATUS_NOT_FOUND;
    }
    return out->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

/* The digits of a number without its sign, point and outer zeros: 12.50 is 125 with exponent -1. */
struct decimal {
    bool negative;
    struct slice whole, part; /* as written, before and behind the point */
    size_t skip, len;         /* of the significant digits among both */
    int64_t exponent;         /* of ten, of the last significant digit */
};

static char digit_at(const struct decimal *d, size_t i)
{
    return i < d->whole.len ? d->whole.data[i] : d->part.data[i - d->whole.len];
}

static enum status read_decimal(struct slice raw, struct decimal *d)
{
    size_t i = 0;
    *d = (struct decimal){0};
    d->negative = raw.len && raw.data[0] == '-';
    i += d->negative;
    size_t from = i;
    while (i < raw.len && raw.data[i] >= '0' && raw.data[i] <= '9')
        i++;
    d->whole = slice_of(raw.data + from, i - from);
    if (i < raw.len && raw.data[i] == '.') {
        from = ++i;
        while (i < raw.len && raw.data[i] >= '0' && raw.data[i] <= '9')
            i++;
        d->part = slice_of(raw.data + from, i - from);
    }
    int64_t exponent = 0;
    if (i < raw.len) { /* e or E: the reader saw to it */
        bool down = raw.data[++i] == '-';
        i += down || raw.data[i] == '+';
        while (i < raw.len && raw.data[i] == '0')
            i++;
        if (raw.len - i > 15)
            return STATUS_INVALID;
        for (; i < raw.len; i++)
            exponent = exponent * 10 + (raw.data[i] - '0');
        exponent = down ? -exponent : exponent;
    }
    size_t all = d->whole.len + d->part.len, end = all;
    while (d->skip < all && digit_at(d, d->skip) == '0')
        d->skip++;
    while (end > d->skip && digit_at(d, end - 1) == '0')
        end--;
    d->len = end - d->skip;
    d->exponent = exponent - (int64_t)d->part.len + (int64_t)(all - end);
    return STATUS_OK;
}

static void append_digits(const struct decimal *d, size_t from, size_t to, struct buffer *out)
{
    for (size_t i = from; i < to; i++)
        buffer_byte(out, digit_at(d, d->skip + i));
}

static enum status number_normal(struct slice raw, struct buffer *out)
{
    struct decimal d;
    if (read_decimal(raw, &d) != STATUS_OK)
        return STATUS_INVALID;
    if (d.len == 0) {
        buffer_byte(out, '0');
        return out->failed ? STATUS_NO_MEMORY : STATUS_OK;
    }
    if (d.negative)
        buffer_byte(out, '-');
    int64_t before = (int64_t)d.len + d.exponent; /* digits before the point */
    if (before > JSON_PLAIN_DIGITS || d.exponent < -JSON_PLAIN_DIGITS || d.len > JSON_PLAIN_DIGITS) {
        append_digits(&d, 0, d.len, out);
        buffer_byte(out, 'e');
        buffer_number(out, d.exponent);
    } else if (d.exponent >= 0) {
        append_digits(&d, 0, d.len, out);
        for (int64_t i = 0; i < d.exponent; i++)
            buffer_byte(out, '0');
    } else if (before > 0) {
        append_digits(&d, 0, (size_t)before, out);
        buffer_byte(out, '.');
        append_digits(&d, (size_t)before, d.len, out);
    } else {
        buffer_text(out, "0.");
        for (int64_t i = before; i < 0; i++)
            buffer_byte(out, '0');
        append_digits(&d, 0, d.len, out);
    }
    return out->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

enum status json_value_normal(const struct json_value *v, struct buffer *out)
{
    return v->kind == JSON_NUMBER ? number_normal(v->raw, out) : json_value_text(v, out);
}

enum status json_path_strip(struct slice text, struct slice *path)
{
    if (text.len < 6 || memcmp(text.data, "json.", 5) != 0)
        return STATUS_INVALID;
    *path = slice_of(text.data + 5, text.len - 5);
    return STATUS_OK;
}
