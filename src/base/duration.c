/* SPDX-License-Identifier: MIT */
#include "base/duration.h"

#include <assert.h>

struct unit {
    const char *name;
    int64_t worth;
};

/* The largest first: printing takes the first that divides. */
static const struct unit duration_units[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1},
};
static const struct unit size_units[] = {
    {"g", INT64_C(1) << 30},
    {"m", 1 << 20},
    {"k", 1 << 10},
    {"", 1},
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Reads digits and the unit behind them. */
static enum status parse(struct slice text, const struct unit *units, size_t count, int64_t max, int64_t *out)
{
    int64_t number = 0;
    size_t digits = 0;
    bool over = false;
    for (; digits < text.len && text.data[digits] >= '0' && text.data[digits] <= '9'; digits++) {
        number = number * 10 + (text.data[digits] - '0');
        if (number > max) {
            over = true;
            number = max;
        }
    }
    if (digits == 0)
        return STATUS_INVALID;
    struct slice name = slice_of(text.data + digits, text.len - digits);
    for (size_t i = 0; i < count; i++) {
        if (!slice_is_nocase(name, units[i].name))
            continue;
        if (over || number > max / units[i].worth)
            return STATUS_FULL;
        *out = number * units[i].worth;
        return STATUS_OK;
    }
    return STATUS_INVALID;
}

static void print(int64_t number, const struct unit *units, size_t count, struct buffer *out)
{
    assert(number >= 0);
    for (size_t i = 0; i < count; i++) {
        if (number % units[i].worth == 0 && number >= units[i].worth) {
            buffer_number(out, number / units[i].worth);
            buffer_text(out, units[i].name);
            return;
        }
    }
    buffer_byte(out, '0');
}

enum status duration_parse(struct slice text, int64_t *ms)
{
    if (slice_is(text, "forever")) {
        *ms = DURATION_FOREVER;
        return STATUS_OK;
    }
    if (slice_is(text, "0")) {
        *ms = 0;
        return STATUS_OK;
    }
    /* `5M` could be read as months and `5MS` as anything: durations are lower case. */
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] >= 'A' && text.data[i] <= 'Z')
            return STATUS_INVALID;
    return parse(text, duration_units, COUNT(duration_units), DURATION_MS_MAX, ms);
}

void duration_print(int64_t ms, struct buffer *out)
{
    if (ms == DURATION_FOREVER)
        buffer_text(out, "forever");
    else
        print(ms, duration_units, COUNT(duration_units), out);
}

enum status size_parse(struct slice text, int64_t *bytes)
{
    return parse(text, size_units, COUNT(size_units), SIZE_BYTES_MAX, bytes);
}

void size_print(int64_t bytes, struct buffer *out)
{
    print(bytes, size_units, COUNT(size_units), out);
}
