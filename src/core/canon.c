/* SPDX-License-Identifier: MIT
 *
 * How the form is written: null n, true t, false f, string s BYTES FF, number d DIGITS FF, list [ ITEMS ],
 * object { MEMBERS }, member k NAME FF VALUE, ignored list item i. An object's members are written as they
 * come; at its end, if they were not in order, their segments are sorted and put back. With compare paths the
 * result is, for each path, p PATH FF and then v VALUE or m for a missing one.
 */
#include "core/canon.h"

#include <assert.h>

#define END_BYTE        '\xff'
#define INSERTION_MAX   12 /* as few members are sorted without a second buffer */
#define COMPARE_BITS(n) ((n) << CANON_PATHS_MAX)

/* One member of an object that is still open or just ends; offsets into out. */
struct canon_member {
    uint32_t begin; /* of its k */
    uint32_t end;
    uint32_t name, name_len;
    uint32_t position; /* of its name in the text, for a fault */
};

/* One open list or object. */
struct frame {
    bool object;
    uint64_t paths; /* those whose first names lead here: ignore in the low half, compare in the high half */
    size_t value;   /* where its form begins in out */
    size_t first;   /* its first member in members */
    size_t index;   /* of a list's next item */
    struct canon_member member; /* the one being read */
};

/* A value at a compare path, in picked. */
struct pick {
    bool found;
    size_t begin, len;
};

struct run {
    struct canon *c;
    const struct canon_rules *rules;
    struct json_reader reader;
    struct canon_fault *fault;
    unsigned depth;
    uint64_t here; /* paths that lead to the value about to be read */
    struct frame frames[JSON_DEPTH_MAX];
    struct pick picks[CANON_PATHS_MAX];
};

enum status canon_path_parse(struct slice text, struct canon_path *out)
{
    struct canon_path path = {.text = text};
    size_t begin = 0;
    for (size_t i = 0; i <= text.len; i++) {
        if (i < text.len && text.data[i] != '.') {
            unsigned char c = (unsigned char)text.data[i];
            if (c <= ' ' || c == 0x7f || c == ',' || c == '"')
                return STATUS_INVALID;
            continue;
        }
        if (i == begin)
            return STATUS_INVALID;
        if (path.count == CANON_SEGMENTS_MAX)
            return STATUS_FULL;
        path.segment[path.count++] = slice_of(text.data + begin, i - begin);
        begin = i + 1;
    }
    *out = path;
    return STATUS_OK;
}

static const struct canon_path *path_of(const struct canon_rules *rules, unsigned bit)
{
    return bit < CANON_PATHS_MAX ? &rules->ignore[bit] : &rules->compare[bit - CANON_PATHS_MAX];
}

static bool is_index(struct slice segment, size_t index)
{
    size_t number = 0;
    if (segment.len > 9 || (segment.len > 1 && segment.data[0] == '0'))
        return false;
    for (size_t i = 0; i < segment.len; i++) {
        if (segment.data[i] < '0' || segment.data[i] > '9')
            return false;
        number = number * 10 + (size_t)(segment.data[i] - '0');
    }
    return number == index;
}

/* Of the paths that lead to the open frame, those that go on to this member (or item, when name is NULL). */
static uint64_t lead_on(const struct run *r, const struct frame *f, const struct slice *name)
{
    uint64_t on = 0;
    for (uint64_t left = f->paths; left; left &= left - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(left);
        const struct canon_path *path = path_of(r->rules, bit);
        if (path->count < r->depth)
            continue;
        struct slice segment = path->segment[r->depth - 1];
        bool every = !name && bit < CANON_PATHS_MAX && slice_is(segment, "*");
        if (every || (name ? slice_equal(segment, *name) : is_index(segment, f->index)))
            on |= UINT64_C(1) << bit;
    }
    return on;
}

/* Of the paths in r->here's kind of mask, those that end at this depth. */
static uint64_t end_here(const struct run *r, uint64_t paths)
{
    uint64_t ends = 0;
    for (uint64_t left = paths; left; left &= left - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(left);
        if (path_of(r->rules, bit)->count == r->depth)
            ends |= UINT64_C(1) << bit;
    }
    return ends;
}

static enum status refuse(struct run *r, size_t position, const char *message)
{
    *r->fault = (struct canon_fault){.position = position, .message = message};
    return STATUS_INVALID;
}

/* ---- values ---- */

static void write_text(struct run *r, char kind)
{
    struct buffer *out = &r->c->out;
    buffer_byte(out, kind);
    if (r->reader.escaped)
        json_unescape(r->reader.text, out);
    else
        buffer_slice(out, r->reader.text);
    buffer_byte(out, END_BYTE);
}

/* The written exponent; its size is bounded so that it can be added to without leaving 64 bits. */
static bool read_exponent(struct slice text, int64_t *out)
{
    size_t i = 0;
    int64_t number = 0;
    bool negative = text.len && text.data[0] == '-';
    if (text.len && (text.data[0] == '-' || text.data[0] == '+'))
        i++;
    while (i < text.len && text.data[i] == '0')
        i++;
    if (text.len - i > CANON_EXPONENT_DIGITS_MAX)
        return false;
    for (; i < text.len; i++)
        number = number * 10 + (text.data[i] - '0');
    *out = negative ? -number : number;
    return true;
}

static enum status write_number(struct run *r)
{
    struct slice t = r->reader.text;
    bool negative = t.data[0] == '-';
    size_t mantissa = negative, end = mantissa, point = 0;
    for (; end < t.len && t.data[end] != 'e' && t.data[end] != 'E'; end++)
        if (t.data[end] == '.')
            point = end;
    int64_t exponent = 0;
    if (end < t.len && !read_exponent(slice_of(t.data + end + 1, t.len - end - 1), &exponent))
        return refuse(r, r->reader.start, "the exponent is too long");
    if (point)
        exponent -= (int64_t)(end - point - 1);

    /* Zeros at either end say nothing but the place of the point. */
    size_t first = mantissa, last = end;
    while (first < end && (t.data[first] == '0' || t.data[first] == '.'))
        first++;
    struct buffer *out = &r->c->out;
    buffer_byte(out, 'd');
    if (first == end) {
        buffer_byte(out, '0');
        buffer_byte(out, END_BYTE);
        return STATUS_OK;
    }
    for (; t.data[last - 1] == '0' || t.data[last - 1] == '.'; last--)
        exponent += t.data[last - 1] == '0';
    if (negative)
        buffer_byte(out, '-');
    if (point > first && point < last) {
        buffer_append(out, t.data + first, point - first);
        buffer_append(out, t.data + point + 1, last - point - 1);
    } else {
        buffer_append(out, t.data + first, last - first);
    }
    if (exponent) {
        buffer_byte(out, 'e');
        buffer_number(out, exponent);
    }
    buffer_byte(out, END_BYTE);
    return STATUS_OK;
}

/* ---- members in order ---- */

static int compare(const char *out, const struct canon_member *a, const struct canon_member *b)
{
    size_t common = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = common ? memcmp(out + a->name, out + b->name, common) : 0;
    return order ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

static void insertion_sort(const char *out, struct canon_member *m, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct canon_member moving = m[i];
        size_t at = i;
        for (; at > 0 && compare(out, &m[at - 1], &moving) > 0; at--)
            m[at] = m[at - 1];
        m[at] = moving;
    }
}

/* Sorts by merging runs of doubling length, to and fro between two buffers: n log n on every input, since the
 * order of the members is the sender's. Returns the buffer that holds the result. */
static struct canon_member *merge_sort(const char *out, struct canon_member *from, struct canon_member *to,
                                       size_t count)
{
    for (size_t begin = 0; begin < count; begin += INSERTION_MAX)
        insertion_sort(out, from + begin, count - begin < INSERTION_MAX ? count - begin : INSERTION_MAX);
    for (size_t width = INSERTION_MAX; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            size_t middle = count - begin < width ? count : begin + width;
            size_t end = count - begin < 2 * width ? count : begin + 2 * width;
            size_t left = begin, right = middle;
            for (size_t at = begin; at < end; at++) {
                bool from_left =
                    left < middle && (right == end || compare(out, &from[left], &from[right]) <= 0);
                to[at] = from_left ? from[left++] : from[right++];
            }
        }
        struct canon_member *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static bool is_ignored(const struct canon_member *m)
{
    return m->end == m->name + m->name_len + 1; /* a value has at least one byte */
}

/* The object's last member is written: brings the members into order, drops the ignored ones, finds a name
 * given twice. */
static enum status finish_object(struct run *r, const struct frame *f)
{
    struct canon *c = r->c;
    struct canon_member *members = (struct canon_member *)(void *)c->members.data;
    size_t count = c->members.len / sizeof *members - f->first;
    if (count == 0)
        return STATUS_OK;
    members += f->first;

    bool in_place = !is_ignored(&members[0]);
    for (size_t i = 1; i < count && in_place; i++)
        in_place = !is_ignored(&members[i]) && compare(c->out.data, &members[i - 1], &members[i]) < 0;
    if (!in_place) {
        struct canon_member *to = NULL;
        if (count > INSERTION_MAX) {
            buffer_clear(&c->sorted);
            to = (struct canon_member *)(void *)buffer_reserve(&c->sorted, count * sizeof *to);
            if (!to)
                return STATUS_NO_MEMORY;
        }
        size_t begin = members[0].begin;
        members = merge_sort(c->out.data, members, to, count);
        buffer_clear(&c->spare);
        for (size_t i = 0; i < count; i++) {
            if (i > 0 && compare(c->out.data, &members[i - 1], &members[i]) == 0) {
                uint32_t a = members[i - 1].position, b = members[i].position;
                return refuse(r, a > b ? a : b, "a member is given twice");
            }
            if (!is_ignored(&members[i]))
                buffer_append(&c->spare, c->out.data + members[i].begin, members[i].end - members[i].begin);
        }
        if (c->spare.failed)
            return STATUS_NO_MEMORY;
        if (c->spare.len)
            memcpy(c->out.data + begin, c->spare.data, c->spare.len);
        c->out.len = begin + c->spare.len;
    }
    c->members.len = f->first * sizeof *members;
    return STATUS_OK;
}

/* ---- the walk ---- */

/* A value whose form begins at `value` is written, r->depth is its parent's. */
static void value_done(struct run *r, uint64_t paths, size_t value)
{
    struct buffer *out = &r->c->out;
    bool ignored = false;
    for (uint64_t left = end_here(r, paths); left; left &= left - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(left);
        if (bit < CANON_PATHS_MAX) {
            ignored = true;
        } else if (!out->failed) {
            struct buffer *picked = &r->c->picked;
            r->picks[bit - CANON_PATHS_MAX] = (struct pick){true, picked->len, out->len - value};
            buffer_append(picked, out->data + value, out->len - value);
        }
    }
    if (r->depth == 0 || out->failed)
        return;
    struct frame *f = &r->frames[r->depth - 1];
    if (ignored)
        out->len = value;
    if (f->object) {
        f->member.end = (uint32_t)out->len;
        buffer_append(&r->c->members, &f->member, sizeof f->member);
    } else {
        if (ignored)
            buffer_byte(out, 'i');
        f->index++;
    }
}

static void read_name(struct run *r)
{
    struct buffer *out = &r->c->out;
    struct frame *f = &r->frames[r->depth - 1];
    f->member.begin = (uint32_t)out->len;
    f->member.name = (uint32_t)out->len + 1;
    f->member.position = (uint32_t)r->reader.start;
    write_text(r, 'k');
    if (out->failed)
        return;
    f->member.name_len = (uint32_t)(out->len - 1) - f->member.name;
    struct slice name = slice_of(out->data + f->member.name, f->member.name_len);
    r->here = f->paths ? lead_on(r, f, &name) : 0;
}

static enum status walk(struct run *r)
{
    struct buffer *out = &r->c->out;
    for (;;) {
        enum json_token token = json_read_next(&r->reader);
        struct frame *f = r->depth ? &r->frames[r->depth - 1] : NULL;
        bool closes = token == JSON_READ_OBJECT_END || token == JSON_READ_LIST_END;
        enum status status = STATUS_OK;
        if (f && !f->object && !closes)
            r->here = f->paths ? lead_on(r, f, NULL) : 0;
        size_t value = out->len;

        switch (token) {
        case JSON_READ_FAULT:
            return refuse(r, r->reader.position, r->reader.fault);
        case JSON_READ_END:
            return out->failed || r->c->picked.failed || r->c->members.failed ? STATUS_NO_MEMORY : STATUS_OK;
        case JSON_READ_NAME:
            read_name(r);
            continue;
        case JSON_READ_OBJECT_BEGIN:
        case JSON_READ_LIST_BEGIN:
            assert(r->depth < JSON_DEPTH_MAX); /* the reader's bound is the same */
            f = &r->frames[r->depth++];
            f->object = token == JSON_READ_OBJECT_BEGIN;
            f->paths = r->here;
            f->value = value;
            f->first = r->c->members.len / sizeof(struct canon_member);
            f->index = 0;
            buffer_byte(out, f->object ? '{' : '[');
            continue;
        case JSON_READ_OBJECT_END:
        case JSON_READ_LIST_END:
            assert(f); /* the reader ends only what it began */
            if (out->failed || r->c->members.failed)
                return STATUS_NO_MEMORY;
            if (f->object)
                status = finish_object(r, f);
            if (status != STATUS_OK)
                return status;
            buffer_byte(out, f->object ? '}' : ']');
            r->depth--;
            value_done(r, f->paths, f->value);
            continue;
        case JSON_READ_STRING:
            write_text(r, 's');
            break;
        case JSON_READ_NUMBER:
            status = write_number(r);
            if (status != STATUS_OK)
                return status;
            break;
        case JSON_READ_TRUE:
            buffer_byte(out, 't');
            break;
        case JSON_READ_FALSE:
            buffer_byte(out, 'f');
            break;
        case JSON_READ_NULL:
            buffer_byte(out, 'n');
            break;
        }
        value_done(r, r->here, value);
    }
}

static void start_buffer(struct buffer *b, size_t wanted)
{
    if (b->capacity > CANON_KEEP_BYTES && wanted < CANON_KEEP_BYTES / 4)
        buffer_fini(b);
    buffer_clear(b);
}

/* With compare paths the form is what was picked, path by path. */
static struct slice gather(struct run *r)
{
    struct canon *c = r->c;
    if (r->rules->compare_count == 0)
        return buffer_view(&c->out);
    buffer_clear(&c->spare);
    for (size_t i = 0; i < r->rules->compare_count; i++) {
        const struct pick *pick = &r->picks[i];
        buffer_byte(&c->spare, 'p');
        buffer_slice(&c->spare, r->rules->compare[i].text);
        buffer_byte(&c->spare, END_BYTE);
        buffer_byte(&c->spare, pick->found ? 'v' : 'm');
        if (pick->found)
            buffer_append(&c->spare, c->picked.data + pick->begin, pick->len);
    }
    return buffer_view(&c->spare);
}

enum status canon_form(struct canon *c, struct slice text, const struct canon_rules *rules,
                       struct slice *form, struct canon_fault *fault)
{
    static const struct canon_rules everything;
    struct run r;
    if (text.len > CANON_BODY_BYTES_MAX)
        return STATUS_FULL;
    start_buffer(&c->out, text.len);
    start_buffer(&c->spare, text.len);
    start_buffer(&c->members, text.len);
    start_buffer(&c->sorted, text.len);
    start_buffer(&c->picked, text.len);

    /* The frames are written when they are opened: clearing all of them would cost more than a small body. */
    r.c = c;
    r.rules = rules ? rules : &everything;
    r.fault = fault;
    r.depth = 0;
    assert(r.rules->ignore_count <= CANON_PATHS_MAX && r.rules->compare_count <= CANON_PATHS_MAX);
    uint64_t ignore = (UINT64_C(1) << r.rules->ignore_count) - 1;
    uint64_t compared = (UINT64_C(1) << r.rules->compare_count) - 1;
    r.here = ignore | COMPARE_BITS(compared);
    for (size_t i = 0; i < r.rules->compare_count; i++)
        r.picks[i] = (struct pick){0};
    json_read_init(&r.reader, text);

    enum status status = walk(&r);
    if (status != STATUS_OK)
        return status;
    struct slice made = gather(&r);
    if (c->spare.failed)
        return STATUS_NO_MEMORY;
    *form = made;
    return STATUS_OK;
}

enum status canon_add(struct canon *c, struct slice text, const struct canon_rules *rules, struct hasher *h,
                      struct canon_fault *fault)
{
    struct slice form;
    enum status status = canon_form(c, text, rules, &form, fault);
    if (status == STATUS_OK)
        hasher_add(h, form.data, form.len);
    return status;
}

void canon_fini(struct canon *c)
{
    if (!c)
        return;
    buffer_fini(&c->out);
    buffer_fini(&c->spare);
    buffer_fini(&c->members);
    buffer_fini(&c->sorted);
    buffer_fini(&c->picked);
}
