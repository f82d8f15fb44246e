/* SPDX-License-Identifier: MIT */
#include "core/settings.h"

#include "core/settings_shape.h"

#include <assert.h>

_Static_assert(sizeof(enum mode) == sizeof(int), "choices are written as ints");

#define STRUCT_GLOBAL         struct settings
#define STRUCT_ROUTE          struct route_settings
#define FIRST_TEXT(field)     field
#define FIRST_LIST(field)     field
#define FIRST_TEMPLATE(field) field
#define FIRST_DURATION(field) field
#define FIRST_LIFE(field)     field
#define FIRST_SIZE(field)     field
#define FIRST_COUNT(field)    field
#define FIRST_PERCENT(field)  field
#define FIRST_BOOL(field)     field
#define FIRST_JITTER(field)   field##_low
#define FIRST_RECEIPT(field)  field

const struct setting settings_table[SETTING_ID_COUNT] = {
#define SETTING(scope, type, name, field, low, high, preset, change, sentence)                               \
    {name,                                                                                                   \
     SETTING_SCOPE_##scope,                                                                                  \
     SETTING_##type,                                                                                         \
     offsetof(STRUCT_##scope, FIRST_##type(field)),                                                          \
     low,                                                                                                    \
     high,                                                                                                   \
     "",                                                                                                     \
     preset,                                                                                                 \
     SETTING_CHANGE_##change,                                                                                \
     sentence},
#define CHOICE(scope, tag, name, field, options, preset, change, sentence)                                   \
    {name,   SETTING_SCOPE_##scope,   SETTING_CHOICE, offsetof(STRUCT_##scope, field), 0, 0, options,        \
     preset, SETTING_CHANGE_##change, sentence},
#include "core/settings.def"
#undef SETTING
#undef CHOICE
};

const struct setting *settings_find(struct slice name)
{
    for (size_t i = 0; i < SETTING_ID_COUNT; i++)
        if (slice_is(name, settings_table[i].name))
            return &settings_table[i];
    return NULL;
}

/* Names longer than this are not compared; no setting or command is as long. */
#define NEAREST_BYTES_MAX 48

/* Edits (insert, remove, replace, swap of neighbours) from a to b; `-` and `_` count as equal. */
static size_t distance(struct slice a, struct slice b)
{
    size_t rows[3][NEAREST_BYTES_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    if (a.len > NEAREST_BYTES_MAX || b.len > NEAREST_BYTES_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b.len; j++) {
        before[j] = 0;
        last[j] = j;
    }
    for (size_t i = 1; i <= a.len; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            char x = a.data[i - 1], y = b.data[j - 1];
            bool same = x == y || ((x == '-' || x == '_') && (y == '-' || y == '_'));
            size_t best = last[j - 1] + (same ? 0 : 1);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == b.data[j - 2] && y == a.data[i - 2] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b.len];
}

/* How many edits still look like a slip: one in a short word, about a third of a longer one. */
static bool near_enough(size_t edits, struct slice word)
{
    return edits <= (word.len < 4 ? 1 : word.len / 3 < 2 ? 2 : word.len / 3);
}

const char *settings_nearest(struct slice word, const char *const *words, size_t count)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t edits = distance(word, slice_text(words[i]));
        if (edits < least && near_enough(edits, word)) {
            least = edits;
            nearest = words[i];
        }
    }
    return nearest;
}

const struct setting *settings_suggest(struct slice name, enum setting_scope scope)
{
    const char *names[SETTING_ID_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < SETTING_ID_COUNT; i++)
        if (settings_table[i].scope == scope)
            names[n++] = settings_table[i].name;
    const char *nearest = settings_nearest(name, names, n);
    return nearest ? settings_find(slice_text(nearest)) : NULL;
}

/* A copy with a NUL behind it in the settings' own memory; NULL: full. A text that is set again leaves its first copy
 * there: settings are read once and given back as a whole. */
static char *copy(struct settings *s, struct slice text)
{
    char *p = arena_take(&s->memory, text.len + 1);
    if (p) {
        if (text.len)
            memcpy(p, text.data, text.len);
        p[text.len] = '\0';
    }
    return p;
}

static void *field_of(struct settings *s, struct route_settings *route, const struct setting *row)
{
    assert((route != NULL) == (row->scope == SETTING_SCOPE_ROUTE));
    return (route ? (char *)route : (char *)s) + row->offset;
}

static enum status set_text(struct settings *s, char **field, struct slice text)
{
    char *p = copy(s, text);
    if (!p)
        return STATUS_NO_MEMORY;
    *field = p;
    return STATUS_OK;
}

static bool length_fits(const struct setting *row, struct slice text, struct buffer *why)
{
    if ((int64_t)text.len >= row->low && (int64_t)text.len <= row->high)
        return true;
    if (text.len == 0)
        buffer_text(why, "an empty text is not allowed");
    else
        buffer_format(why, "the text has %zu bytes; at most %lld are allowed", text.len,
                      (long long)row->high);
    return false;
}

static enum status set_list(struct settings *s, struct text_list *field, const struct setting *row,
                            const struct slice *texts, size_t count, struct buffer *why)
{
    enum setting_id id = (enum setting_id)(row - settings_table);
    struct text_list list = {NULL, 0};
    if (count > SETTINGS_LIST_MAX) {
        buffer_format(why, "the list has %zu items; at most %d are allowed", count, SETTINGS_LIST_MAX);
        return STATUS_INVALID;
    }
    for (size_t i = 0; i < count; i++) {
        if (!length_fits(row, texts[i], why))
            return STATUS_INVALID;
        if (!settings_shape(id, texts[i], why))
            return STATUS_INVALID;
        for (size_t j = 0; j < i; j++)
            if (slice_equal(texts[i], texts[j])) {
                buffer_format(why, "`%.*s` stands twice in the list; leave one out", (int)texts[i].len,
                              texts[i].data);
                return STATUS_INVALID;
            }
    }
    if (count) {
        list.items = arena_take_zero(&s->memory, count * sizeof(list.items[0]));
        if (!list.items)
            return STATUS_NO_MEMORY;
    }
    for (; list.count < count; list.count++) {
        list.items[list.count] = copy(s, texts[list.count]);
        if (!list.items[list.count])
            return STATUS_NO_MEMORY;
    }
    *field = list;
    return STATUS_OK;
}

static enum status set_receipt(struct settings *s, struct receipt_source *field, struct slice text,
                               struct buffer *why)
{
    struct receipt_shape shape;
    if (!settings_receipt_shape(text, &shape, why))
        return STATUS_INVALID;
    struct receipt_source made = {shape.kind, copy(s, text), copy(s, shape.method), copy(s, shape.path)};
    if (!made.text || !made.method || !made.path)
        return STATUS_NO_MEMORY;
    *field = made;
    return STATUS_OK;
}

static bool read_count(struct slice s, int64_t *out)
{
    int64_t n = 0;
    if (s.len == 0 || s.len > 18)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9')
            return false;
        n = n * 10 + (s.data[i] - '0');
    }
    *out = n;
    return true;
}

/* A factor such as 0.5 or 1; at most six digits behind the point. The locale has no say in it. */
static bool read_factor(struct slice s, double *out)
{
    int64_t whole = 0, part = 0, scale = 1;
    const char *point = s.len ? memchr(s.data, '.', s.len) : NULL;
    size_t n = point ? (size_t)(point - s.data) : s.len;
    if (!read_count(slice_of(s.data, n), &whole))
        return false;
    if (point) {
        struct slice digits = slice_of(point + 1, s.len - n - 1);
        if (digits.len > 6 || !read_count(digits, &part))
            return false;
        for (size_t i = 0; i < digits.len; i++)
            scale *= 10;
    }
    *out = (double)whole + (double)part / (double)scale;
    return true;
}

static enum status set_jitter(double *field, const struct setting *row, struct slice text, struct buffer *why)
{
    double low, high;
    const char *colon = text.len ? memchr(text.data, ':', text.len) : NULL;
    size_t n = colon ? (size_t)(colon - text.data) : 0;
    if (colon && read_factor(slice_of(text.data, n), &low) &&
        read_factor(slice_of(colon + 1, text.len - n - 1), &high) && low <= high && high > 0 &&
        high <= (double)row->high) {
        field[0] = low;
        field[1] = high;
        return STATUS_OK;
    }
    buffer_format(why,
                  "`%.*s` is not a jitter; write LOW:HIGH, two factors from 0 to %lld, the smaller first, "
                  "such as 0.5:1",
                  (int)text.len, text.data, (long long)row->high);
    return STATUS_INVALID;
}

static enum status set_choice(void *field, const struct setting *row, struct slice text, struct buffer *why)
{
    const char *options[16];
    char words[128];
    size_t n = 0;
    struct slice rest = slice_text(row->options);
    assert(rest.len < sizeof(words));
    memcpy(words, row->options, rest.len + 1);
    for (char *p = words; p && n < 16; n++) {
        options[n] = p;
        p = strchr(p, '|');
        if (p)
            *p++ = '\0';
    }
    for (int i = 0; i < (int)n; i++)
        if (slice_is(text, options[i])) {
            memcpy(field, &i, sizeof(i));
            return STATUS_OK;
        }
    buffer_format(why, "`%.*s` is not one of ", (int)text.len, text.data);
    for (size_t i = 0; i < n; i++)
        buffer_format(why, "%s%s", i == 0 ? "" : i + 1 == n ? " and " : ", ", options[i]);
    const char *nearest = settings_nearest(text, options, n);
    if (nearest)
        buffer_format(why, "; did you mean %s?", nearest);
    return STATUS_INVALID;
}

static enum status set_bool(bool *field, struct slice text, struct buffer *why)
{
    bool yes = slice_is(text, "true") || slice_is(text, "yes") || slice_is(text, "on");
    bool no = slice_is(text, "false") || slice_is(text, "no") || slice_is(text, "off");
    if (!yes && !no) {
        buffer_format(why, "`%.*s` is not true or false", (int)text.len, text.data);
        return STATUS_INVALID;
    }
    *field = yes;
    return STATUS_OK;
}

/* A number with bounds, in the unit of its type. */
static enum status set_number(int64_t *field, const struct setting *row, struct slice text,
                              struct buffer *why)
{
    int64_t n = 0;
    bool good = false;
    const char *form = "";
    switch (row->type) {
    case SETTING_DURATION:
    case SETTING_LIFE:
        good = duration_parse(text, &n) == STATUS_OK && (n != DURATION_FOREVER || row->type == SETTING_LIFE);
        form = row->type == SETTING_LIFE
                   ? "a duration; write a whole number with its unit (ms, s, m, h, d), such as "
                     "7d, or forever"
                   : "a duration; write a whole number with its unit (ms, s, m, h, d), such as "
                     "250ms or 3s";
        break;
    case SETTING_SIZE:
        good = size_parse(text, &n) == STATUS_OK;
        form = "a size; write a whole number of bytes, or one with k, m or g behind it, such as 64k";
        break;
    case SETTING_PERCENT:
        if (text.len && text.data[text.len - 1] == '%')
            text.len--;
        good = read_count(text, &n);
        form = "a percentage; write a whole number, such as 20";
        break;
    default:
        good = read_count(text, &n);
        form = "a count; write a whole number, such as 10";
        break;
    }
    if (!good) {
        buffer_format(why, "`%.*s` is not %s", (int)text.len, text.data, form);
        return STATUS_INVALID;
    }
    if (row->type == SETTING_LIFE && n == DURATION_FOREVER) {
        *field = n;
        return STATUS_OK;
    }
    if (n < row->low || n > row->high) {
        buffer_format(why, "%.*s is %s than allowed; choose between ", (int)text.len, text.data,
                      n < row->low ? "less" : "more");
        for (int i = 0; i < 2; i++) {
            int64_t bound = i == 0 ? row->low : row->high;
            if (row->type == SETTING_DURATION || row->type == SETTING_LIFE)
                duration_print(bound, why);
            else if (row->type == SETTING_SIZE)
                size_print(bound, why);
            else
                buffer_number(why, bound);
            buffer_text(why, i == 0 ? " and " : "");
        }
        return STATUS_INVALID;
    }
    *field = n;
    return STATUS_OK;
}

enum status settings_set(struct settings *s, struct route_settings *route, const struct setting *row,
                         const struct slice *texts, size_t count, struct setting_origin origin,
                         struct buffer *why)
{
    enum setting_id id = (enum setting_id)(row - settings_table);
    void *field = field_of(s, route, row);
    struct slice text = count ? slice_trim(texts[0]) : slice_of("", 0);
    enum status status;

    if (row->type == SETTING_LIST) {
        status = set_list(s, field, row, texts, count, why);
    } else if (count != 1) {
        buffer_format(why, "it takes one value, not a list of %zu", count);
        status = STATUS_INVALID;
    } else {
        switch (row->type) {
        case SETTING_TEXT:
        case SETTING_TEMPLATE:
            text = texts[0];
            status = length_fits(row, text, why) && settings_shape(id, text, why) ? set_text(s, field, text)
                                                                                  : STATUS_INVALID;
            break;
        case SETTING_RECEIPT:
            status = length_fits(row, text, why) && settings_shape(id, text, why)
                         ? set_receipt(s, field, text, why)
                         : STATUS_INVALID;
            break;
        case SETTING_JITTER:
            status = set_jitter(field, row, text, why);
            break;
        case SETTING_CHOICE:
            status = set_choice(field, row, text, why);
            break;
        case SETTING_BOOL:
            status = set_bool(field, text, why);
            break;
        default:
            status = set_number(field, row, text, why);
            break;
        }
    }
    if (status == STATUS_OK)
        (route ? route->origins : s->origins)[id] = origin;
    return status;
}

/* Gives every setting of one scope its preset. The presets are ours, so one that does not fit is our mistake. */
static enum status set_presets(struct settings *s, struct route_settings *route)
{
    struct buffer why = {0};
    struct setting_origin origin = {SETTING_SOURCE_DEFAULT, 0};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < SETTING_ID_COUNT && status == STATUS_OK; i++) {
        const struct setting *row = &settings_table[i];
        struct slice texts[8], rest = slice_text(row->preset);
        size_t n = 0;
        if ((row->scope == SETTING_SCOPE_ROUTE) != (route != NULL) || i == SETTING_ID_resend_after_ms)
            continue;
        if (row->type != SETTING_LIST) {
            texts[n++] = rest;
        } else {
            while (rest.len) {
                const char *comma = memchr(rest.data, ',', rest.len);
                size_t len = comma ? (size_t)(comma - rest.data) : rest.len;
                assert(n < sizeof(texts) / sizeof(texts[0]));
                texts[n++] = slice_trim(slice_of(rest.data, len));
                rest = comma ? slice_of(comma + 1, rest.len - len - 1) : slice_of(NULL, 0);
            }
        }
        status = settings_set(s, route, row, texts, n, origin, &why);
        assert(status != STATUS_INVALID);
    }
    buffer_fini(&why);
    return status;
}

enum status settings_new(struct settings **out)
{
    struct arena memory;
    arena_init(&memory, SETTINGS_BYTES_MAX);
    struct settings *s = arena_take_zero(&memory, sizeof(*s));
    if (!s)
        return STATUS_NO_MEMORY;
    s->memory = memory; /* it holds the struct that holds it */
    s->file = copy(s, slice_of("", 0));
    if (!s->file || set_presets(s, NULL) != STATUS_OK) {
        settings_free(s);
        return STATUS_NO_MEMORY;
    }
    *out = s;
    return STATUS_OK;
}

void settings_free(struct settings *s)
{
    if (!s)
        return;
    struct arena memory = s->memory;
    arena_fini(&memory);
}

enum status settings_name_file(struct settings *s, struct slice path)
{
    return set_text(s, &s->file, path);
}

static bool name_is_valid(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
              c == '-' || c == '.'))
            return false;
    }
    return name.len > 0 && name.len <= SETTINGS_ROUTE_NAME_MAX;
}

struct route_settings *settings_route(const struct settings *s, struct slice name)
{
    for (size_t i = 0; i < s->route_count; i++)
        if (slice_is(name, s->routes[i]->name))
            return s->routes[i];
    return NULL;
}

enum status settings_add_route(struct settings *s, struct slice name, int line, struct route_settings **out,
                               struct buffer *why)
{
    struct route_settings *r;
    if (!name_is_valid(name)) {
        buffer_format(why, "a route's name is 1 to %d letters, digits, `_`, `-` or `.`",
                      SETTINGS_ROUTE_NAME_MAX);
        return STATUS_INVALID;
    }
    r = settings_route(s, name);
    if (r) {
        buffer_format(
            why, "the name is taken by the route on line %d; a route's name is its scope, choose another",
            r->line);
        return STATUS_CONFLICT;
    }
    if (s->route_count == SETTINGS_ROUTES_MAX) {
        buffer_format(why, "there are more than %d routes", SETTINGS_ROUTES_MAX);
        return STATUS_FULL;
    }
    if ((s->route_count & (s->route_count - 1)) == 0) {
        /* Room for twice as many, at every power of two. */
        size_t room = s->route_count ? s->route_count * 2 : 1;
        struct route_settings **routes = arena_take_zero(&s->memory, room * sizeof(*routes));
        if (!routes)
            return STATUS_NO_MEMORY;
        if (s->route_count)
            memcpy(routes, s->routes, s->route_count * sizeof(*routes));
        s->routes = routes;
    }
    r = arena_take_zero(&s->memory, sizeof(*r));
    if (!r)
        return STATUS_NO_MEMORY;
    r->name = copy(s, name);
    r->line = line;
    if (!r->name || set_presets(s, r) != STATUS_OK)
        return STATUS_NO_MEMORY;
    r->resend_after_ms = r->attempt_timeout_ms;
    s->routes[s->route_count++] = r;
    *out = r;
    return STATUS_OK;
}

void settings_settle(struct settings *s)
{
    for (size_t i = 0; i < s->route_count; i++) {
        struct route_settings *r = s->routes[i];
        if (r->origins[SETTING_ID_resend_after_ms].source == SETTING_SOURCE_DEFAULT)
            r->resend_after_ms = r->attempt_timeout_ms;
        /* Connecting is part of the attempt; only a connect_timeout that somebody chose can contradict it. */
        if (r->origins[SETTING_ID_connect_timeout_ms].source == SETTING_SOURCE_DEFAULT &&
            r->connect_timeout_ms > r->attempt_timeout_ms)
            r->connect_timeout_ms = r->attempt_timeout_ms;
    }
}

enum status settings_receipt_state(const struct route_settings *r, struct slice foreign, struct slice *state)
{
    struct slice rest = slice_text(r->receipt_map), name, means;
    while (settings_map_next(&rest, &name, &means) == 1)
        if (slice_equal(name, foreign)) {
            *state = means;
            return STATUS_OK;
        }
    return STATUS_NOT_FOUND;
}
