/* SPDX-License-Identifier: MIT */
#include "sim/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double JITTER_FACTOR_MAX = 10;

/* strtod() also takes white space, hexadecimal, "inf" and "nan"; none of these is a number a person meant. */
static bool plain_decimal_start(const char *text)
{
    const char *p = text;
    if (*p == '-' || *p == '+')
        p++;
    if (*p == '.')
        p++;
    return isdigit((unsigned char)*p) && !(p[0] == '0' && (p[1] == 'x' || p[1] == 'X'));
}

static enum status refuse_real(const char *flag, const char *text, double low, double high, const char *unit,
                               char *message)
{
    snprintf(message, NUMBER_MESSAGE_BYTES, "%s is '%.40s'; it must lie in %g to %g%s", flag, text, low, high,
             unit);
    return STATUS_INVALID;
}

enum status number_real(double *out, const char *flag, const char *text, double low, double high,
                        char *message)
{
    char *end = NULL;
    double value = 0;
    if (plain_decimal_start(text))
        value = strtod(text, &end);
    if (!end || *end || !(value >= low && value <= high))
        return refuse_real(flag, text, low, high, "", message);
    *out = value;
    return STATUS_OK;
}

enum status number_whole(uint64_t *out, const char *flag, const char *text, uint64_t low, uint64_t high,
                         char *message)
{
    char *end = NULL;
    unsigned long long value = 0;
    errno = 0;
    if (isdigit((unsigned char)*text))
        value = strtoull(text, &end, 10);
    if (!end || *end || errno || value < low || value > high) {
        snprintf(message, NUMBER_MESSAGE_BYTES, "%s is '%.40s'; it must be a whole number from %llu to %llu",
                 flag, text, (unsigned long long)low, (unsigned long long)high);
        return STATUS_INVALID;
    }
    *out = value;
    return STATUS_OK;
}

enum status number_duration(double *seconds, const char *flag, const char *text, double low, double high,
                            char *message)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    char *end = NULL;
    double value = -1;
    if (plain_decimal_start(text))
        value = strtod(text, &end);
    for (size_t i = 0; end && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].unit) == 0) {
            /* Divided, not multiplied: 100ms is then the same double as 0.1. */
            value = units[i].seconds < 1 ? value / 1000 : value * units[i].seconds;
            if (!(value >= low && value <= high))
                break;
            *seconds = value;
            return STATUS_OK;
        }
    return refuse_real(flag, text, low, high, " seconds (units: ms s m h d)", message);
}

enum status number_range(double *low, double *high, const char *flag, const char *text, char *message)
{
    const char *colon = strchr(text, ':');
    char left[64];
    double lo = 0, hi = 0;
    if (!colon || (size_t)(colon - text) >= sizeof left)
        goto refused;
    memcpy(left, text, (size_t)(colon - text));
    left[colon - text] = 0;
    if (number_real(&lo, flag, left, 0, JITTER_FACTOR_MAX, message) ||
        number_real(&hi, flag, colon + 1, 0, JITTER_FACTOR_MAX, message) || lo > hi)
        goto refused;
    *low = lo;
    *high = hi;
    return STATUS_OK;
refused:
    snprintf(message, NUMBER_MESSAGE_BYTES, "%s is '%.40s'; it must be LO:HI with 0 <= LO <= HI <= %g", flag,
             text, JITTER_FACTOR_MAX);
    return STATUS_INVALID;
}

void number_exact(struct buffer *b, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    buffer_text(b, text);
}

void number_short(struct buffer *b, double value, int decimals)
{
    char text[360];
    snprintf(text, sizeof text, "%.*f", decimals, value);
    if (strchr(text, '.')) {
        size_t len = strlen(text);
        while (text[len - 1] == '0')
            text[--len] = 0;
        if (text[len - 1] == '.')
            text[--len] = 0;
    }
    buffer_text(b, strcmp(text, "-0") == 0 ? "0" : text);
}
