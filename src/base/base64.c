/* SPDX-License-Identifier: MIT */
#include "base/base64.h"

void base64_append(struct buffer *out, struct slice bytes)
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
