/* SPDX-License-Identifier: MIT */
#include "base/json_text.h"

#include <stdint.h>
#include <string.h>

/* Length of the well-formed UTF-8 sequence at the start of s, or 0. */
static size_t utf8_sequence(struct slice s)
{
    const unsigned char *p = (const unsigned char *)s.data;
    if (s.len == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t need = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || s.len < need)
        return 0;
    for (size_t i = 1; i < need; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
        (p[0] == 0xF4 && p[1] > 0x8F))
        return 0; /* overlong, surrogate, past U+10FFFF */
    return need;
}

bool utf8_valid(struct slice s)
{
    while (s.len) {
        uint64_t word;
        if (s.len >= sizeof word) {
            memcpy(&word, s.data, sizeof word);
            if (!(word & UINT64_C(0x8080808080808080))) { /* eight of ASCII at a time */
                s.data += sizeof word;
                s.len -= sizeof word;
                continue;
            }
        }
        size_t n = utf8_sequence(s);
        if (n == 0)
            return false;
        s.data += n;
        s.len -= n;
    }
    return true;
}

/* How many of the eight bytes at p, from the first, stand for themselves in a JSON text: 8, or fewer. A byte counts as
 * one that does not if it is below 0x20, above 0x7E, a quote or a backslash. */
static size_t plain_of_eight(const char *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = UINT64_C(0x8080808080808080);
    uint64_t word;
    memcpy(&word, p, sizeof word);
    uint64_t low = word & ~high;
    uint64_t stops = word | ~(low + ones * 0x60) | (low + ones) | ~((low ^ ones * '"') + ones * 0x7F) |
                     ~((low ^ ones * '\\') + ones * 0x7F);
    stops &= high;
    if (!stops)
        return 8;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (size_t)__builtin_ctzll(stops) / 8;
#else
    return (size_t)__builtin_clzll(stops) / 8;
#endif
}

void json_text(struct buffer *out, struct slice s)
{
    static const char digits[] = "0123456789abcdef";
    buffer_byte(out, '"');
    size_t plain = 0; /* bytes at s.data that need no escape and are not written yet */
    while (plain < s.len) {
        if (s.len - plain >= 8) {
            size_t n = plain_of_eight(s.data + plain);
            plain += n;
            if (n == 8)
                continue;
        }
        unsigned char c = (unsigned char)s.data[plain];
        if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
            plain++;
            continue;
        }
        size_t n = utf8_sequence(slice_of(s.data + plain, s.len - plain));
        if (c >= 0x80 && n) {
            plain += n;
            continue;
        }
        buffer_append(out, s.data, plain);
        if (c == '"' || c == '\\') {
            buffer_byte(out, '\\');
            buffer_byte(out, (char)c);
        } else if (c == '\n') {
            buffer_text(out, "\\n");
        } else if (c == '\r') {
            buffer_text(out, "\\r");
        } else if (c == '\t') {
            buffer_text(out, "\\t");
        } else if (c >= 0x80) {
            buffer_text(out, "\xEF\xBF\xBD");
        } else {
            char escape[] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
            buffer_append(out, escape, sizeof escape);
        }
        s.data += plain + 1;
        s.len -= plain + 1;
        plain = 0;
    }
    buffer_append(out, s.data, plain);
    buffer_byte(out, '"');
}

void json_text_or_null(struct buffer *out, struct slice s)
{
    if (s.len)
        json_text(out, s);
    else
        buffer_text(out, "null");
}

void json_bool(struct buffer *out, bool value)
{
    buffer_text(out, value ? "true" : "false");
}
