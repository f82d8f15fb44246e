/* SPDX-License-Identifier: MIT */
#include "base/base64.h"

void base64_encode(struct slice bytes, struct buffer *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t groups = bytes.len / 3 + (bytes.len % 3 != 0);
    if (groups == 0)
        return;
    char *p = buffer_reserve(out, groups * 4);
    if (!p)
        return;
    const unsigned char *in = (const unsigned char *)bytes.data;
    for (size_t left = bytes.len; left > 0; in += 3, p += 4) {
        uint32_t group = (uint32_t)in[0] << 16;
        if (left > 1)
            group |= (uint32_t)in[1] << 8;
        if (left > 2)
            group |= in[2];
        p[0] = digits[group >> 18];
        p[1] = digits[group >> 12 & 63];
        p[2] = left > 1 ? digits[group >> 6 & 63] : '=';
        p[3] = left > 2 ? digits[group & 63] : '=';
        left -= left < 3 ? left : 3;
    }
    out->len += groups * 4;
}

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

enum status base64_decode(struct slice text, struct buffer *out)
{
    if (text.len % 4 != 0)
        return STATUS_INVALID;
    if (text.len == 0)
        return STATUS_OK;
    size_t padding = text.data[text.len - 1] != '=' ? 0 : text.data[text.len - 2] != '=' ? 1 : 2;
    uint32_t group = 0;
    for (size_t i = 0; i < text.len - padding; i++) {
        int value = digit_value(text.data[i]);
        if (value < 0)
            return STATUS_INVALID;
        group = group << 6 | (uint32_t)value;
    }
    if ((padding == 1 && group & 3) || (padding == 2 && group & 15))
        return STATUS_INVALID;
    size_t bytes = text.len / 4 * 3 - padding, made = 0;
    char *p = buffer_reserve(out, bytes);
    if (!p)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < text.len; i += 4) {
        group = 0;
        for (size_t j = i; j < i + 4; j++)
            group = group << 6 | (text.data[j] == '=' ? 0 : (uint32_t)digit_value(text.data[j]));
        for (int shift = 16; shift >= 0 && made < bytes; shift -= 8)
            p[made++] = (char)(group >> shift & 255);
    }
    out->len += bytes;
    return STATUS_OK;
}
