/* SPDX-License-Identifier: MIT */
#include "review/span.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int64_t span_add(int64_t a, int64_t b)
{
    if (a == SPAN_FOREVER || b == SPAN_FOREVER)
        return SPAN_FOREVER;
    return a > SPAN_MAX_MS - b ? SPAN_MAX_MS : a + b;
}

int64_t span_multiply(int64_t a, int64_t b)
{
    if (a == 0 || b == 0)
        return 0;
    if (a == SPAN_FOREVER || b == SPAN_FOREVER)
        return SPAN_FOREVER;
    return a > SPAN_MAX_MS / b ? SPAN_MAX_MS : a * b;
}

/* "h", "hour", "hours": a unit is told by its shortest spelling; 0 for an unknown one. */
static int64_t unit_of(struct slice u)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1},          {"millis", 1},      {"s", 1000},       {"sec", 1000},
                 {"seconds", 1000},  {"m", 60000},       {"min", 60000},    {"minutes", 60000},
                 {"h", 3600000},     {"hours", 3600000}, {"d", 86400000},   {"day", 86400000},
                 {"days", 86400000}, {"w", 604800000},   {"y", 31536000000}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (slice_is_nocase(u, units[i].name))
            return units[i].ms;
    return 0;
}

/* Microseconds and nanoseconds are real units that round down to nothing or little. */
static bool tiny_unit(struct slice u, int64_t *divisor)
{
    if (slice_is_nocase(u, "us"))
        *divisor = 1000;
    else if (slice_is_nocase(u, "ns"))
        *divisor = 1000000;
    else
        return false;
    return true;
}

bool span_parse(int64_t *out_ms, struct slice text, int64_t unit_ms)
{
    text = slice_trim(text);
    if (slice_is_nocase(text, "forever") || slice_is_nocase(text, "infinity")) {
        *out_ms = SPAN_FOREVER;
        return true;
    }
    size_t i = 0;
    int64_t total = 0;
    bool iso = text.len > 2 && (text.data[0] == 'P' || text.data[0] == 'p');
    if (iso)
        i++;
    bool any = false;
    while (i < text.len) {
        if (iso && (text.data[i] == 'T' || text.data[i] == 't')) {
            i++;
            continue;
        }
        int64_t whole = 0, thousandths = 0, place = 100;
        size_t digits = 0;
        for (; i < text.len && is_digit(text.data[i]); i++, digits++)
            whole = whole > SPAN_MAX_MS ? whole : whole * 10 + (text.data[i] - '0');
        if (i < text.len && text.data[i] == '.')
            for (i++; i < text.len && is_digit(text.data[i]); i++, digits++, place /= 10)
                thousandths += place * (text.data[i] - '0');
        if (!digits)
            return false;
        while (i < text.len && text.data[i] == ' ')
            i++;
        size_t from = i;
        while (i < text.len && (!iso || i == from) &&
               ((text.data[i] | 0x20) >= 'a' && (text.data[i] | 0x20) <= 'z'))
            i++;
        struct slice unit = slice_of(text.data + from, i - from);
        int64_t ms, divisor = 1;
        if (unit.len == 0)
            ms = any ? 0 : unit_ms;
        else if (tiny_unit(unit, &divisor))
            ms = 1;
        else
            ms = unit_of(unit);
        if (!ms)
            return false;
        total = span_add(total, span_multiply(whole, ms) / divisor);
        total = span_add(total, span_multiply(thousandths, ms) / 1000 / divisor);
        any = true;
        while (i < text.len && text.data[i] == ' ')
            i++;
    }
    if (any)
        *out_ms = total;
    return any;
}

bool number_parse(int64_t *out, struct slice text)
{
    text = slice_trim(text);
    bool negative = text.len && text.data[0] == '-';
    size_t i = text.len && (text.data[0] == '-' || text.data[0] == '+') ? 1 : 0;
    if (i == text.len || text.len - i > 18)
        return false;
    int64_t n = 0;
    for (; i < text.len; i++) {
        if (!is_digit(text.data[i]))
            return false;
        n = n * 10 + (text.data[i] - '0');
    }
    *out = negative ? -n : n;
    return true;
}

void span_text(struct buffer *out, int64_t ms)
{
    if (ms == SPAN_FOREVER)
        buffer_text(out, "for ever");
    else if (ms < 1000)
        buffer_format(out, "%lld ms", (long long)ms);
    else if (ms % 86400000 == 0 && ms > 86400000)
        buffer_format(out, "%lld d", (long long)(ms / 86400000));
    else if (ms % 3600000 == 0)
        buffer_format(out, "%lld h", (long long)(ms / 3600000));
    else if (ms % 60000 == 0 && ms >= 600000)
        buffer_format(out, "%lld min", (long long)(ms / 60000));
    else if (ms % 1000 == 0)
        buffer_format(out, "%lld s", (long long)(ms / 1000));
    else if (ms % 100 == 0)
        buffer_format(out, "%lld.%lld s", (long long)(ms / 1000), (long long)(ms % 1000 / 100));
    else
        buffer_format(out, "%lld.%03lld s", (long long)(ms / 1000), (long long)(ms % 1000));
}
