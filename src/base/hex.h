/* SPDX-License-Identifier: MIT
 *
 * Bytes as lower-case hexadecimal and back.
 */
#ifndef SAMEKEY_BASE_HEX_H
#define SAMEKEY_BASE_HEX_H

#include "base/slice.h"

#include <stdint.h>

/* Writes 2 * len digits to out; no NUL. */
static inline void hex_write(char *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

/* The value of one digit, or -1; upper-case digits too when `upper` says so. */
static inline int hex_digit(char c, bool upper)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (upper && c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Reads exactly 2 * len lower-case digits into len bytes; false, with out partly written, on anything else.
 */
static inline bool hex_read(struct slice text, uint8_t *out, size_t len)
{
    if (text.len != 2 * len)
        return false;
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text.data[2 * i], false), low = hex_digit(text.data[2 * i + 1], false);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

#endif
