/* SPDX-License-Identifier: MIT */
#include "base/buffer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_CAPACITY 256 /* bytes: most heads and documents, so that they grow once or never */

char *buffer_reserve(struct buffer *b, size_t more)
{
    if (b->failed)
        return NULL;
    if (more <= b->capacity - b->len)
        return b->data ? b->data + b->len : NULL;
    if (more > SIZE_MAX / 2 - b->len || (b->max && b->len + more > b->max)) {
        b->failed = true;
        return NULL;
    }
    size_t capacity = b->capacity ? b->capacity * 2 : FIRST_CAPACITY;
    while (capacity < b->len + more)
        capacity *= 2;
    char *data = realloc(b->data, capacity);
    if (!data) {
        b->failed = true;
        return NULL;
    }
    b->data = data;
    b->capacity = capacity;
    return b->data + b->len;
}

void buffer_append(struct buffer *b, const void *data, size_t len)
{
    if (len == 0 || b->failed)
        return;
    if (b->max && len > b->max - b->len) {
        b->failed = true;
        return;
    }
    if (len > b->capacity - b->len && !buffer_reserve(b, len))
        return;
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void buffer_format(struct buffer *b, const char *format, ...)
{
    va_list ap, again;
    if (b->failed)
        return;
    size_t free = b->data ? b->capacity - b->len : 0;
    va_start(ap, format);
    va_copy(again, ap);
    int need = vsnprintf(free ? b->data + b->len : NULL, free, format, ap); /* nearly always it fits */
    va_end(ap);
    if (need < 0) {
        b->failed = true;
    } else if (b->max && (size_t)need > b->max - b->len) {
        b->failed = true;
    } else if ((size_t)need < free) {
        b->len += (size_t)need;
    } else {
        char *room = buffer_reserve(b, (size_t)need + 1);
        if (room) {
            vsnprintf(room, (size_t)need + 1, format, again);
            b->len += (size_t)need;
        }
    }
    va_end(again);
}

void buffer_number(struct buffer *b, int64_t n)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t u = n < 0 ? (uint64_t)0 - (uint64_t)n : (uint64_t)n;
    do {
        digits[--at] = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (n < 0)
        digits[--at] = '-';
    buffer_append(b, digits + at, sizeof digits - at);
}

const char *buffer_cstring(struct buffer *b)
{
    if (b->failed)
        return "";
    size_t max = b->max;
    b->max = 0; /* the NUL does not count against the bound */
    char *room = buffer_reserve(b, 1);
    b->max = max;
    if (!room)
        return "";
    *room = '\0';
    return b->data;
}

void buffer_clear(struct buffer *b)
{
    b->len = 0;
    b->failed = false;
}

void buffer_rest(struct buffer *b, size_t kept_max)
{
    if (b->capacity > kept_max)
        buffer_fini(b);
    else
        buffer_clear(b);
}

void buffer_consume(struct buffer *b, size_t n)
{
    assert(n <= b->len);
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

void buffer_fini(struct buffer *b)
{
    if (!b)
        return;
    free(b->data);
    size_t max = b->max;
    memset(b, 0, sizeof *b);
    b->max = max;
}
