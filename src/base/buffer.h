/* SPDX-License-Identifier: MIT
 *
 * A growable run of bytes, owned. Start it as zero bytes: `struct buffer b = {0};` and end it with
 * buffer_fini(). Failure to allocate is remembered in `failed` and every later append does nothing, so that a
 * long run of appends is checked once, at the end. Growth stops at `max` bytes where `max` is not 0: reaching it
 * also sets `failed`.
 */
#ifndef SAMEKEY_BASE_BUFFER_H
#define SAMEKEY_BASE_BUFFER_H

#include "base/slice.h"

#include <stdarg.h>
#include <stdint.h>

struct buffer {
    char *data;
    size_t len;
    size_t capacity;
    size_t max;
    bool failed;
};

/* Adds len bytes. */
void buffer_append(struct buffer *b, const void *data, size_t len);

/* Adds a slice, a text, one byte, a formatted text (bounded by memory only). Inline, since most of what a gateway does
 * is to add literals to buffers: the compiler then knows their lengths. */
static inline void buffer_slice(struct buffer *b, struct slice s)
{
    buffer_append(b, s.data, s.len);
}
static inline void buffer_text(struct buffer *b, const char *text)
{
    buffer_append(b, text, strlen(text));
}
static inline void buffer_byte(struct buffer *b, char c)
{
    if (b->len < b->capacity && !b->failed && (!b->max || b->len < b->max))
        b->data[b->len++] = c;
    else
        buffer_append(b, &c, 1);
}
void buffer_format(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a decimal number without the cost of a format. */
void buffer_number(struct buffer *b, int64_t n);

/* Room for `more` bytes after len, or NULL with failed set. The caller writes there and adds to len. */
char *buffer_reserve(struct buffer *b, size_t more);

/* The bytes so far; borrowed until the buffer changes. */
static inline struct slice buffer_view(const struct buffer *b)
{
    return slice_of(b->data, b->len);
}

/* The bytes with a NUL behind them, not counted in len; "" if the buffer failed. */
const char *buffer_cstring(struct buffer *b);

/* Empties it and forgets a failure; keeps the memory. */
void buffer_clear(struct buffer *b);

/* The same for a buffer that rests before it is used again: more memory than kept_max bytes is given back. */
void buffer_rest(struct buffer *b, size_t kept_max);

/* Removes n bytes from the front (n <= len). */
void buffer_consume(struct buffer *b, size_t n);

/* Frees the memory; the buffer is then as at the start. NULL is accepted. */
void buffer_fini(struct buffer *b);

#endif
