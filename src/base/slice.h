/* SPDX-License-Identifier: MIT
 *
 * A slice is borrowed bytes: a pointer and a length, never NUL-terminated by promise. Who made the bytes keeps
 * them; a slice is good until the function it was passed to returns, unless that function says otherwise.
 * An empty slice may have a NULL pointer.
 */
#ifndef SAMEKEY_BASE_SLICE_H
#define SAMEKEY_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *data;
    size_t len;
};

/* A slice over a string literal, usable in initialisers. */
#define SLICE_LITERAL(text)                                                                                  \
    {                                                                                                        \
        (text), sizeof(text) - 1                                                                             \
    }

static inline struct slice slice_of(const char *data, size_t len)
{
    struct slice s = {data, len};
    return s;
}

/* Borrows a NUL-terminated text; NULL gives the empty slice. */
static inline struct slice slice_text(const char *text)
{
    return slice_of(text, text ? strlen(text) : 0);
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_is(struct slice a, const char *text)
{
    return slice_equal(a, slice_text(text));
}

/* ASCII letters compare without case, as header names do (RFC 9110 section 5.1). */
static inline bool slice_equal_nocase(struct slice a, struct slice b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) {
        unsigned char x = (unsigned char)a.data[i], y = (unsigned char)b.data[i];
        if (x >= 'A' && x <= 'Z')
            x = (unsigned char)(x + 32);
        if (y >= 'A' && y <= 'Z')
            y = (unsigned char)(y + 32);
        if (x != y)
            return false;
    }
    return true;
}

static inline bool slice_is_nocase(struct slice a, const char *text)
{
    return slice_equal_nocase(a, slice_text(text));
}

/* Without spaces and tabs at both ends (the OWS of RFC 9110 section 5.6.3). */
static inline struct slice slice_trim(struct slice s)
{
    while (s.len && (s.data[0] == ' ' || s.data[0] == '\t'))
        s.data++, s.len--;
    while (s.len && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t'))
        s.len--;
    return s;
}

#endif
