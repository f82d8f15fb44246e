/* SPDX-License-Identifier: MIT */
#include "forensics/moment.h"

#include "base/civil.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define US_PER_S    INT64_C(1000000)
#define US_PER_HOUR (3600 * US_PER_S)
/* A number between these is seconds since 1970; times a thousand it is milliseconds, and so on. */
#define EPOCH_S_MIN 978307200.0  /* 2001 */
#define EPOCH_S_MAX 4102444800.0 /* 2100 */

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* n digits as a number, or -1. */
static int digits(const char *p, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++) {
        if (!digit(p[i]))
            return -1;
        value = value * 10 + (p[i] - '0');
    }
    return value;
}

static bool zone_exists(const char *name)
{
    char path[256] = "/usr/share/zoneinfo/";
    size_t n = strlen(path);
    if (!*name || *name == '/' || strstr(name, "..") || strlen(name) >= sizeof path - n)
        return false;
    memcpy(path + n, name, strlen(name) + 1);
    return access(path, R_OK) == 0;
}

enum status zone_parse(const char *text, struct zone *out)
{
    struct zone z = {.known = true, .fixed = true, .hour = -1};
    if (strcmp(text, "UTC") != 0 && civil_parse_offset(slice_text(text), &z.minutes) != STATUS_OK) {
        if (!zone_exists(text))
            return STATUS_INVALID;
        z.fixed = false;
        z.name = text;
    }
    *out = z;
    return STATUS_OK;
}

/* The offset of a local time in a named zone. The C library knows the zone database; its one global zone is set for
 * the question and remembered an hour long, since logs are in order as a rule. */
static int64_t zone_offset_us(struct zone *z, int64_t local_us)
{
    if (z->fixed)
        return z->minutes * 60 * US_PER_S;
    int64_t hour = local_us / US_PER_HOUR;
    if (hour == z->hour)
        return z->offset_us;
    struct civil c;
    civil_from_ms(local_us / 1000, &c);
    char *before = getenv("TZ"), *kept = before ? strdup(before) : NULL;
    setenv("TZ", z->name, 1);
    tzset();
    struct tm tm = {.tm_year = c.year - 1900,
                    .tm_mon = c.month - 1,
                    .tm_mday = c.day,
                    .tm_hour = c.hour,
                    .tm_min = c.minute,
                    .tm_sec = c.second,
                    .tm_isdst = -1};
    time_t utc = mktime(&tm);
    if (kept)
        setenv("TZ", kept, 1);
    else
        unsetenv("TZ");
    free(kept);
    tzset();
    z->hour = hour;
    z->offset_us = (local_us / US_PER_S - (int64_t)utc) * US_PER_S;
    return z->offset_us;
}

static int64_t day_of(int year, int month, int day)
{
    struct civil c = {.year = year, .month = month, .day = day};
    int64_t ms;
    return civil_to_ms(&c, &ms) == STATUS_OK ? ms * 1000 : MOMENT_NONE;
}

/* hh:mm:ss at p (8 bytes), then a fraction, into us of the day. Returns the bytes taken, or 0. */
static size_t clock_time(const char *p, size_t len, int64_t *us, bool *fine)
{
    if (len < 8 || p[2] != ':' || p[5] != ':')
        return 0;
    int h = digits(p, 2), m = digits(p + 3, 2), s = digits(p + 6, 2);
    if (h < 0 || m < 0 || s < 0 || h > 23 || m > 59 || s > 60)
        return 0;
    size_t at = 8;
    int64_t fraction = 0, unit = US_PER_S / 10;
    int places = 0;
    if (at + 1 < len && (p[at] == '.' || p[at] == ',') && digit(p[at + 1])) {
        for (at++; at < len && digit(p[at]); at++, places++, unit /= 10)
            fraction += unit * (p[at] - '0');
    }
    *fine = places >= 3;
    *us = ((int64_t)h * 3600 + m * 60 + s) * US_PER_S + fraction;
    return at;
}

/* An offset behind a time: Z, +08:00, +0800, +08, with or without one space before it. Returns the bytes taken. */
static size_t offset_behind(const char *p, size_t len, int64_t *offset_us)
{
    size_t at = len > 1 && p[0] == ' ' && (p[1] == '+' || p[1] == '-') ? 1 : 0;
    if (at < len && (p[at] == 'Z' || p[at] == 'z')) {
        *offset_us = 0;
        return at + 1;
    }
    if (at + 3 > len || (p[at] != '+' && p[at] != '-'))
        return 0;
    int sign = p[at] == '-' ? -1 : 1, h = digits(p + at + 1, 2), m = 0;
    size_t end = at + 3;
    if (h < 0 || h > 23)
        return 0;
    size_t colon = end < len && p[end] == ':' ? 1 : 0;
    if (end + colon + 2 <= len && digits(p + end + colon, 2) >= 0) {
        m = digits(p + end + colon, 2);
        end += colon + 2;
    }
    if (m > 59)
        return 0;
    *offset_us = sign * ((int64_t)h * 60 + m) * 60 * US_PER_S;
    return end;
}

static void place(struct moment *m, struct zone *zone)
{
    if (!m->local)
        return;
    if (zone && zone->known)
        m->us -= zone_offset_us(zone, m->us);
    else
        m->wrong_local = true;
}

static size_t rfc3339_like(struct slice s, struct moment_cache *cache, struct moment *out)
{
    const char *p = s.data;
    if (s.len < 19 || (p[4] != '-' && p[4] != '/') || p[7] != p[4] ||
        (p[10] != 'T' && p[10] != ' ' && p[10] != 't'))
        return 0;
    if (memcmp(cache->date, p, 10) != 0) {
        int y = digits(p, 4), m = digits(p + 5, 2), d = digits(p + 8, 2);
        int64_t day = y < 0 || m < 0 || d < 0 ? MOMENT_NONE : day_of(y, m, d);
        if (day == MOMENT_NONE)
            return 0;
        memcpy(cache->date, p, 10);
        cache->day_us = day;
    }
    int64_t us, offset = 0;
    size_t n = clock_time(p + 11, s.len - 11, &us, &out->fine);
    if (!n)
        return 0;
    size_t zoned = offset_behind(p + 11 + n, s.len - 11 - n, &offset);
    out->local = zoned == 0;
    out->us = cache->day_us + us - offset;
    return 11 + n + zoned;
}

static size_t common_log(struct slice s, struct moment *out)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const char *p = s.data;
    if (s.len < 20 || p[2] != '/' || p[6] != '/' || p[11] != ':')
        return 0;
    int month = 0;
    while (month < 12 && memcmp(months + 3 * month, p + 3, 3) != 0)
        month++;
    int y = digits(p + 7, 4), d = digits(p, 2);
    int64_t day = y < 0 || d < 0 || month == 12 ? MOMENT_NONE : day_of(y, month + 1, d);
    int64_t us, offset = 0;
    size_t n = day == MOMENT_NONE ? 0 : clock_time(p + 12, s.len - 12, &us, &out->fine);
    if (!n)
        return 0;
    size_t zoned = offset_behind(p + 12 + n, s.len - 12 - n, &offset);
    out->local = zoned == 0;
    out->us = day + us - offset;
    return 12 + n + zoned;
}

/* A whole number is exact; a fraction is read digit by digit, since a double has not enough of them. */
static size_t epoch(struct slice s, struct moment *out)
{
    size_t at = 0;
    uint64_t digits_read = 0; /* 19 digits fit, and are what nanoseconds have */
    int64_t fraction = 0, unit = US_PER_S / 10;
    int places = 0;
    for (; at < s.len && digit(s.data[at]); at++) {
        if (at == 19)
            return 0;
        digits_read = digits_read * 10 + (uint64_t)(s.data[at] - '0');
    }
    int64_t whole = (int64_t)digits_read;
    if (whole < 0)
        return 0;
    if (at < 9)
        return 0;
    if (at + 1 < s.len && s.data[at] == '.' && digit(s.data[at + 1]))
        for (at++; at < s.len && digit(s.data[at]); at++, places++, unit /= 10)
            fraction += unit * (s.data[at] - '0');
    double value = (double)whole;
    int64_t per_s = 1;
    for (; value > EPOCH_S_MAX; value /= 1000, per_s *= 1000)
        if (per_s == INT64_C(1000000000))
            return 0;
    if (value < EPOCH_S_MIN)
        return 0;
    if (per_s > 1)
        fraction = 0; /* a part of a millisecond and less orders nothing here */
    out->us = per_s <= US_PER_S ? whole * (US_PER_S / per_s) + fraction : whole / (per_s / US_PER_S);
    out->fine = per_s > 1 || places >= 3;
    out->local = false;
    return at;
}

enum status moment_prefix(struct slice line, struct zone *zone, struct moment_cache *cache,
                          struct moment *out, size_t *taken)
{
    struct moment m = {0};
    size_t open = line.len && line.data[0] == '[' ? 1 : 0;
    struct slice s = slice_of(line.data + open, line.len - open);
    size_t n = rfc3339_like(s, cache, &m);
    if (!n)
        n = common_log(s, &m);
    if (!n)
        n = epoch(s, &m);
    if (!n)
        return STATUS_INVALID;
    n += open;
    if (open && n < line.len && line.data[n] == ']')
        n++;
    place(&m, zone);
    *out = m;
    *taken = n;
    return STATUS_OK;
}

enum status moment_parse(struct slice text, struct zone *zone, struct moment_cache *cache, struct moment *out)
{
    struct moment m;
    size_t taken;
    if (moment_prefix(text, zone, cache, &m, &taken) != STATUS_OK || taken != text.len)
        return STATUS_INVALID;
    *out = m;
    return STATUS_OK;
}
