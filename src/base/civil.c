/* SPDX-License-Identifier: MIT */
#include "base/civil.h"

#define MS_PER_DAY INT64_C(86400000)

static const char month_names[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const char *const day_names[7] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                         "Thursday", "Friday", "Saturday"};

/* Days from 1970-01-01. The year is turned to begin in March, so that the leap day is its last; 400 years are
 * always 146,097 days. */
static int64_t days_from_date(int year, int month, int day)
{
    int64_t y = (int64_t)year - (month <= 2);
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static void date_from_days(int64_t days, struct civil *out)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t from_march = (5 * day_of_year + 2) / 153;
    out->day = (int)(day_of_year - (153 * from_march + 2) / 5 + 1);
    out->month = (int)(from_march < 10 ? from_march + 3 : from_march - 9);
    out->year = (int)(year_of_era + era * 400 + (out->month <= 2));
}

static int days_in_month(int year, int month)
{
    static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return month == 2 && leap ? 29 : days[month - 1];
}

void civil_from_ms(int64_t unix_ms, struct civil *out)
{
    if (unix_ms < CIVIL_MS_MIN)
        unix_ms = CIVIL_MS_MIN;
    if (unix_ms > CIVIL_MS_MAX)
        unix_ms = CIVIL_MS_MAX;
    int64_t days = unix_ms / MS_PER_DAY, rest = unix_ms % MS_PER_DAY;
    if (rest < 0) {
        days--;
        rest += MS_PER_DAY;
    }
    date_from_days(days, out);
    out->millisecond = (int)(rest % 1000);
    out->second = (int)(rest / 1000 % 60);
    out->minute = (int)(rest / 60000 % 60);
    out->hour = (int)(rest / 3600000);
    out->weekday = (int)(((days + 4) % 7 + 7) % 7); /* 1970-01-01 was a Thursday */
}

enum status civil_to_ms(const struct civil *c, int64_t *unix_ms)
{
    if (c->year < 0 || c->year > 9999 || c->month < 1 || c->month > 12 || c->day < 1 ||
        c->day > days_in_month(c->year, c->month) || c->hour < 0 || c->hour > 23 || c->minute < 0 ||
        c->minute > 59 || c->second < 0 || c->second > 60 || c->millisecond < 0 || c->millisecond > 999)
        return STATUS_INVALID;
    int64_t seconds = (int64_t)c->hour * 3600 + c->minute * 60 + c->second;
    *unix_ms = days_from_date(c->year, c->month, c->day) * MS_PER_DAY + seconds * 1000 + c->millisecond;
    return STATUS_OK;
}

/* A cursor over the text; every step says whether it found what it wants, and moves only then. */
struct cursor {
    const char *at, *end;
};

static struct cursor cursor_over(struct slice text)
{
    /* An empty slice may have no pointer, and nothing may be added to that. */
    const char *begin = text.len ? text.data : "";
    return (struct cursor){begin, begin + text.len};
}

static bool take_text(struct cursor *c, const char *text)
{
    size_t len = strlen(text);
    if ((size_t)(c->end - c->at) < len || memcmp(c->at, text, len) != 0)
        return false;
    c->at += len;
    return true;
}

/* Exactly `count` digits. */
static bool take_digits(struct cursor *c, int count, int *out)
{
    int number = 0;
    if (c->end - c->at < count)
        return false;
    for (int i = 0; i < count; i++) {
        if (c->at[i] < '0' || c->at[i] > '9')
            return false;
        number = number * 10 + (c->at[i] - '0');
    }
    c->at += count;
    *out = number;
    return true;
}

static bool take_month(struct cursor *c, int *month)
{
    for (int i = 0; i < 12; i++) {
        if (take_text(c, month_names[i])) {
            *month = i + 1;
            return true;
        }
    }
    return false;
}

static bool take_clock(struct cursor *c, struct civil *out)
{
    return take_digits(c, 2, &out->hour) && take_text(c, ":") && take_digits(c, 2, &out->minute) &&
           take_text(c, ":") && take_digits(c, 2, &out->second);
}

/* The first letters of a weekday's name, or all of it. */
static bool take_weekday(struct cursor *c, bool whole)
{
    for (int i = 0; i < 7; i++) {
        size_t len = whole ? strlen(day_names[i]) : 3;
        if ((size_t)(c->end - c->at) >= len && memcmp(c->at, day_names[i], len) == 0) {
            c->at += len;
            return true;
        }
    }
    return false;
}

static bool take_offset(struct cursor *c, int *minutes)
{
    int hours = 0, rest = 0, sign = 0;
    if (take_text(c, "Z") || take_text(c, "z")) {
        *minutes = 0;
        return true;
    }
    if (take_text(c, "+"))
        sign = 1;
    else if (take_text(c, "-"))
        sign = -1;
    else
        return false;
    if (!take_digits(c, 2, &hours) || !take_text(c, ":") || !take_digits(c, 2, &rest) || hours > 23 ||
        rest > 59)
        return false;
    *minutes = sign * (hours * 60 + rest);
    return true;
}

enum status civil_parse_offset(struct slice text, int *minutes)
{
    struct cursor c = cursor_over(text);
    int read = 0;
    if (!take_offset(&c, &read) || c.at != c.end)
        return STATUS_INVALID;
    *minutes = read;
    return STATUS_OK;
}

enum status civil_parse_rfc3339(struct slice text, int64_t *unix_ms)
{
    struct cursor c = cursor_over(text);
    struct civil t = {0};
    if (!take_digits(&c, 4, &t.year) || !take_text(&c, "-") || !take_digits(&c, 2, &t.month) ||
        !take_text(&c, "-") || !take_digits(&c, 2, &t.day))
        return STATUS_INVALID;
    if (!take_text(&c, "T") && !take_text(&c, "t") && !take_text(&c, " "))
        return STATUS_INVALID;
    if (!take_clock(&c, &t))
        return STATUS_INVALID;
    if (take_text(&c, ".")) {
        int digits = 0, digit = 0;
        while (take_digits(&c, 1, &digit)) {
            if (digits < 3)
                t.millisecond = t.millisecond * 10 + digit;
            digits = digits < 3 ? digits + 1 : 4;
        }
        if (digits == 0)
            return STATUS_INVALID;
        for (; digits < 3; digits++)
            t.millisecond *= 10;
    }
    int minutes = 0;
    int64_t ms = 0;
    if (!take_offset(&c, &minutes) || c.at != c.end || civil_to_ms(&t, &ms) != STATUS_OK)
        return STATUS_INVALID;
    ms -= (int64_t)minutes * 60000;
    if (ms < CIVIL_MS_MIN || ms > CIVIL_MS_MAX)
        return STATUS_INVALID;
    *unix_ms = ms;
    return STATUS_OK;
}

/* `Sun, 06 Nov 1994 08:49:37 GMT` */
static bool parse_fixdate(struct cursor c, struct civil *t)
{
    return take_weekday(&c, false) && take_text(&c, ", ") && take_digits(&c, 2, &t->day) &&
           take_text(&c, " ") && take_month(&c, &t->month) && take_text(&c, " ") &&
           take_digits(&c, 4, &t->year) && take_text(&c, " ") && take_clock(&c, t) && take_text(&c, " GMT") &&
           c.at == c.end;
}

/* `Sunday, 06-Nov-94 08:49:37 GMT`; leaves the two digits in t->year. */
static bool parse_rfc850(struct cursor c, struct civil *t)
{
    return take_weekday(&c, true) && take_text(&c, ", ") && take_digits(&c, 2, &t->day) &&
           take_text(&c, "-") && take_month(&c, &t->month) && take_text(&c, "-") &&
           take_digits(&c, 2, &t->year) && take_text(&c, " ") && take_clock(&c, t) && take_text(&c, " GMT") &&
           c.at == c.end;
}

/* `Sun Nov  6 08:49:37 1994`: a day below ten has a space in front instead of a zero. */
static bool parse_asctime(struct cursor c, struct civil *t)
{
    if (!take_weekday(&c, false) || !take_text(&c, " ") || !take_month(&c, &t->month) || !take_text(&c, " "))
        return false;
    if (take_text(&c, " ") ? !take_digits(&c, 1, &t->day) : !take_digits(&c, 2, &t->day))
        return false;
    return take_text(&c, " ") && take_clock(&c, t) && take_text(&c, " ") && take_digits(&c, 4, &t->year) &&
           c.at == c.end;
}

/* RFC 9110 section 5.6.7: a two-digit year that appears to be more than 50 years in the future is the most
 * recent past year with the same last two digits. */
static enum status year_of_two_digits(struct civil *t, int64_t now_ms, int64_t *unix_ms)
{
    struct civil now, limit;
    civil_from_ms(now_ms, &now);
    int two = t->year;
    /* The candidates end with the century after now's: the latest that is not more than 50 years ahead. */
    limit = now;
    limit.year = now.year + 50;
    if (limit.month == 2 && limit.day == 29)
        limit.day = 28;
    int64_t limit_ms = CIVIL_MS_MAX;
    if (limit.year <= 9999 && civil_to_ms(&limit, &limit_ms) != STATUS_OK)
        return STATUS_INVALID;
    for (int year = now.year / 100 * 100 + 100 + two; year >= 0 && year > now.year - 150; year -= 100) {
        int64_t ms = 0;
        t->year = year;
        if (year > limit.year || year > 9999)
            continue;
        enum status status = civil_to_ms(t, &ms);
        if (status == STATUS_OK && ms > limit_ms)
            continue;
        /* A 29 February that the chosen century does not have is no date: another century is not tried. */
        if (status == STATUS_OK)
            *unix_ms = ms;
        return status;
    }
    return STATUS_INVALID;
}

enum status civil_parse_http(struct slice text, int64_t now_ms, int64_t *unix_ms)
{
    struct cursor c = cursor_over(text);
    struct civil t = {0};
    if (parse_fixdate(c, &t) || (t = (struct civil){0}, parse_asctime(c, &t)))
        return civil_to_ms(&t, unix_ms);
    t = (struct civil){0};
    if (parse_rfc850(c, &t))
        return year_of_two_digits(&t, now_ms, unix_ms);
    return STATUS_INVALID;
}

static void put_digits(char *at, int number, int count)
{
    while (count-- > 0) {
        at[count] = (char)('0' + number % 10);
        number /= 10;
    }
}

void civil_print_rfc3339(int64_t unix_ms, struct buffer *out)
{
    struct civil t;
    civil_from_ms(unix_ms, &t);
    char text[] = "0000-00-00T00:00:00.000Z";
    put_digits(text, t.year, 4);
    put_digits(text + 5, t.month, 2);
    put_digits(text + 8, t.day, 2);
    put_digits(text + 11, t.hour, 2);
    put_digits(text + 14, t.minute, 2);
    put_digits(text + 17, t.second, 2);
    put_digits(text + 20, t.millisecond, 3);
    buffer_append(out, text, sizeof text - 1);
}

void civil_print_http(int64_t unix_ms, struct buffer *out)
{
    struct civil t;
    civil_from_ms(unix_ms, &t);
    char text[] = "Sun, 00 Jan 0000 00:00:00 GMT";
    memcpy(text, day_names[t.weekday], 3);
    put_digits(text + 5, t.day, 2);
    memcpy(text + 8, month_names[t.month - 1], 3);
    put_digits(text + 12, t.year, 4);
    put_digits(text + 17, t.hour, 2);
    put_digits(text + 20, t.minute, 2);
    put_digits(text + 23, t.second, 2);
    buffer_append(out, text, sizeof text - 1);
}
