/* SPDX-License-Identifier: MIT
 *
 * A small pull reader of JSON (RFC 8259): one token at a time, no tree, no allocation. It exists beside the
 * JSON library because the fingerprint needs numbers as they were written and the position of the first
 * fault, and because looking up one member must not build a document.
 *
 * Always true: (1) a token was only returned if everything before it was right; (2) JSON_READ_END only comes
 * when the whole text was one value and nothing but white space around it; (3) strings are valid UTF-8
 * without lone surrogates, escaped or not. That a member is given twice is for the user of the reader to see:
 * it needs memory.
 */
#ifndef SAMEKEY_CORE_JSON_READ_H
#define SAMEKEY_CORE_JSON_READ_H

#include "base/buffer.h"
#include "base/slice.h"

#include <stdint.h>

#define JSON_DEPTH_MAX 128 /* lists and objects open at once */

enum json_token {
    JSON_READ_FAULT, /* see fault and position; the reader stays there */
    JSON_READ_END,
    JSON_READ_OBJECT_BEGIN,
    JSON_READ_OBJECT_END,
    JSON_READ_LIST_BEGIN,
    JSON_READ_LIST_END,
    JSON_READ_NAME,   /* text: between the quotes, as written */
    JSON_READ_STRING, /* text: between the quotes, as written */
    JSON_READ_NUMBER, /* text: as written */
    JSON_READ_TRUE,
    JSON_READ_FALSE,
    JSON_READ_NULL,
};

/* Start it with json_read_init; nothing to end. Borrows the text. */
struct json_reader {
    const char *data;
    size_t len;
    size_t position;   /* of the next byte to look at; of the fault after JSON_READ_FAULT */
    size_t start;      /* of the last token's first byte (a string's quote) */
    struct slice text; /* of the last name, string or number */
    bool escaped;      /* text holds at least one backslash */
    const char *fault; /* a sentence without the position */
    unsigned depth;
    unsigned char expect;
    uint64_t object_bits[JSON_DEPTH_MAX / 64]; /* which open levels are objects */
};

void json_read_init(struct json_reader *r, struct slice text);
enum json_token json_read_next(struct json_reader *r);

/* Adds a name's or string's text with its escapes resolved, as UTF-8. `text` must come from a reader. */
void json_unescape(struct slice text, struct buffer *out);

#endif
