/* SPDX-License-Identifier: MIT */
#include "forensics/json_line.h"

#include <assert.h>
#include <jansson.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum scan { SCAN_WHOLE, SCAN_ODD, SCAN_DAMAGED };

struct scanner {
    struct json_shape *shape;
    const struct field_map *map;
    struct fields *out;
    const char *p, *end;
    char path[JSON_LINE_NAME_MAX]; /* of the object being read, with a dot behind */
    size_t path_len;
    int depth;
};

static bool space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_space(struct scanner *s)
{
    while (s->p < s->end && space(*s->p))
        s->p++;
}

/* The quote that ends the string whose first byte is p, or NULL where the line ends or a control character comes first.
 * Sixteen bytes at a time: nearly all of a log is inside strings. */
static const char *string_end(const char *p, const char *end, bool *escaped)
{
    for (;;) {
#ifdef __SSE2__
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), low = _mm_set1_epi8(0x1f);
        while (end - p >= 16) {
            __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
            __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
                                       _mm_cmpeq_epi8(_mm_min_epu8(v, low), v));
            int mask = _mm_movemask_epi8(hit);
            if (mask) {
                p += __builtin_ctz((unsigned)mask);
                break;
            }
            p += 16;
        }
#endif
        while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20)
            p++;
        if (p == end || (unsigned char)*p < 0x20)
            return NULL;
        if (*p == '"')
            return p;
        *escaped = true;
        p += 2;
        if (p > end)
            return NULL;
    }
}

static uint32_t name_hash(const char *p, size_t n)
{
    uint32_t h = (uint32_t)n * 2654435761u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 16777619u;
    return h ^ h >> 15;
}

static void remember(struct json_name *slot, const char *name, size_t len, struct field_guess guess)
{
    memcpy(slot->name, name, len);
    slot->len = (uint8_t)len;
    slot->guess = guess;
}

static struct field_guess find_cached(struct scanner *s, const char *name, size_t len)
{
    assert(s->shape);
    struct json_name *slot = &s->shape->cache[name_hash(name, len) % JSON_NAME_CACHE];
    if (slot->len != len || memcmp(slot->name, name, len) != 0)
        remember(slot, name, len, field_find(s->map, slice_of(name, len)));
    return slot->guess;
}

/* What the member `name` of the object being read is. */
static struct field_guess member_guess(struct scanner *s, const char *name, size_t len)
{
    struct field_guess none = {FIELD_NONE, UINT8_MAX};
    if (len == 0 || s->path_len + len > JSON_LINE_NAME_MAX)
        return none;
    if (s->path_len == 0)
        return find_cached(s, name, len);
    char full[JSON_LINE_NAME_MAX];
    memcpy(full, s->path, s->path_len);
    memcpy(full + s->path_len, name, len);
    return find_cached(s, full, s->path_len + len);
}

static enum scan scan_object(struct scanner *s);

/* A list holds no field; it only has to be whole. */
static enum scan skip_list(struct scanner *s)
{
    int depth = 0;
    bool escaped = false;
    char open[256];
    for (; s->p < s->end; s->p++) {
        char c = *s->p;
        if (c == '"') {
            s->p = string_end(s->p + 1, s->end, &escaped);
            if (!s->p) {
                s->p = s->end;
                return SCAN_DAMAGED;
            }
        } else if (c == '[' || c == '{') {
            if (depth == (int)sizeof open)
                return SCAN_ODD;
            open[depth++] = c;
        } else if (c == ']' || c == '}') {
            if (depth == 0 || open[depth - 1] != (c == ']' ? '[' : '{'))
                return SCAN_DAMAGED;
            depth--;
            if (depth == 0) {
                s->p++;
                return SCAN_WHOLE;
            }
        }
    }
    return SCAN_DAMAGED;
}

static bool bare_value(struct slice v)
{
    if (v.len == 0)
        return false;
    char c = v.data[0];
    if (c == '-' || (c >= '0' && c <= '9'))
        return v.data[v.len - 1] >= '0' && v.data[v.len - 1] <= '9';
    return slice_is(v, "true") || slice_is(v, "false") || slice_is(v, "null");
}

static enum scan scan_value(struct scanner *s, struct field_guess guess, const char *name, size_t name_len)
{
    if (s->p == s->end)
        return SCAN_DAMAGED;
    if (*s->p == '"') {
        bool escaped = false;
        const char *begin = s->p + 1, *close = string_end(begin, s->end, &escaped);
        if (!close) {
            s->p = s->end;
            return SCAN_DAMAGED;
        }
        s->p = close + 1;
        if (guess.field == FIELD_NONE)
            return SCAN_WHOLE;
        if (escaped)
            return SCAN_ODD;
        fields_put(s->out, guess, slice_of(begin, (size_t)(close - begin)));
        return SCAN_WHOLE;
    }
    if (*s->p == '{') {
        if (s->depth == JSON_LINE_DEPTH_MAX)
            return SCAN_ODD;
        size_t kept = s->path_len;
        if (kept + name_len + 1 <= JSON_LINE_NAME_MAX) {
            memcpy(s->path + kept, name, name_len);
            s->path[kept + name_len] = '.';
            s->path_len = kept + name_len + 1;
        } else {
            s->path_len = JSON_LINE_NAME_MAX; /* no member in there can be a field */
        }
        enum scan r = scan_object(s);
        s->path_len = kept;
        return r;
    }
    if (*s->p == '[')
        return skip_list(s);
    const char *begin = s->p;
    while (s->p < s->end && *s->p != ',' && *s->p != '}' && !space(*s->p))
        s->p++;
    struct slice v = slice_of(begin, (size_t)(s->p - begin));
    if (!bare_value(v))
        return SCAN_DAMAGED;
    if (guess.field != FIELD_NONE && v.data[0] != 'n')
        fields_put(s->out, guess, v);
    return SCAN_WHOLE;
}

static enum scan scan_object(struct scanner *s)
{
    s->p++; /* the brace */
    s->depth++;
    skip_space(s);
    if (s->p < s->end && *s->p == '}') {
        s->p++;
        s->depth--;
        return SCAN_WHOLE;
    }
    for (size_t i = 0;; i++) {
        if (s->p == s->end || *s->p != '"')
            return SCAN_DAMAGED;
        const char *name = s->p + 1;
        struct json_name *known = s->depth == 1 && i < JSON_SHAPE_MEMBERS ? &s->shape->member[i] : NULL;
        struct field_guess guess;
        size_t len;
        if (known && known->len && s->end - name > known->len && name[known->len] == '"' &&
            memcmp(known->name, name, known->len) == 0) {
            len = known->len;
            guess = known->guess;
        } else {
            bool escaped = false;
            const char *close = string_end(name, s->end, &escaped);
            if (!close)
                return SCAN_DAMAGED;
            if (escaped)
                return SCAN_ODD;
            len = (size_t)(close - name);
            guess = member_guess(s, name, len);
            if (known && len && len <= JSON_LINE_NAME_MAX)
                remember(known, name, len, guess);
        }
        s->p = name + len + 1;
        skip_space(s);
        if (s->p == s->end || *s->p != ':')
            return SCAN_DAMAGED;
        s->p++;
        skip_space(s);
        enum scan r = scan_value(s, guess, name, len);
        if (r != SCAN_WHOLE)
            return r;
        skip_space(s);
        if (s->p == s->end)
            return SCAN_DAMAGED;
        if (*s->p == '}') {
            s->p++;
            s->depth--;
            return SCAN_WHOLE;
        }
        if (*s->p != ',')
            return SCAN_DAMAGED;
        s->p++;
        skip_space(s);
    }
}

/* ---- odd lines, through jansson ---- */

static void take_value(struct scanner *s, struct field_guess guess, const json_t *v)
{
    struct buffer *b = &s->shape->unescaped;
    size_t at = b->len;
    if (json_is_string(v))
        buffer_append(b, json_string_value(v), json_string_length(v));
    else if (json_is_integer(v))
        buffer_format(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        buffer_format(b, "%.17g", json_real_value(v));
    else if (json_is_boolean(v))
        buffer_text(b, json_is_true(v) ? "true" : "false");
    else
        return;
    if (!b->failed)
        fields_put(s->out, guess, slice_of(b->data + at, b->len - at));
}

static void walk(struct scanner *s, json_t *object)
{
    const char *name;
    json_t *v;
    json_object_foreach(object, name, v)
    {
        size_t len = strlen(name), kept = s->path_len;
        if (json_is_object(v) && kept + len + 1 < JSON_LINE_NAME_MAX && s->depth < JSON_LINE_DEPTH_MAX) {
            memcpy(s->path + kept, name, len);
            s->path[kept + len] = '.';
            s->path_len = kept + len + 1;
            s->depth++;
            walk(s, v);
            s->depth--;
            s->path_len = kept;
            continue;
        }
        struct field_guess guess = member_guess(s, name, len);
        if (guess.field != FIELD_NONE)
            take_value(s, guess, v);
    }
}

static enum status read_odd(struct scanner *s, struct slice line)
{
    json_error_t error;
    json_t *tree = json_loadb(line.data, line.len, JSON_ALLOW_NUL, &error);
    if (!tree)
        return STATUS_INVALID;
    enum status status = STATUS_INVALID;
    if (json_is_object(tree)) {
        /* Room for everything at once, so that slices into it stay. Numbers may grow when printed. */
        buffer_clear(&s->shape->unescaped);
        if (buffer_reserve(&s->shape->unescaped, line.len * 3 + 64 * FIELD_COUNT)) {
            s->out->present = 0;
            s->path_len = 0;
            s->depth = 0;
            walk(s, tree);
            status = STATUS_OK;
        } else {
            status = STATUS_NO_MEMORY;
        }
    }
    json_decref(tree);
    return status;
}

enum status json_line_read(struct json_shape *shape, const struct field_map *map, struct slice line,
                           struct fields *out)
{
    struct scanner s = {.shape = shape, .map = map, .out = out, .p = line.data, .end = line.data + line.len};
    assert(shape);
    out->present = 0;
    skip_space(&s);
    if (s.p == s.end || *s.p != '{')
        return STATUS_INVALID;
    enum scan r = scan_object(&s);
    if (r == SCAN_ODD)
        return read_odd(&s, line);
    skip_space(&s);
    return r == SCAN_WHOLE && s.p == s.end ? STATUS_OK : STATUS_INVALID;
}

void json_shape_fini(struct json_shape *shape)
{
    if (shape)
        buffer_fini(&shape->unescaped);
}
