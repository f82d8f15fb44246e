/* SPDX-License-Identifier: MIT
 *
 * Writing JSON texts (RFC 8259 section 7) into a buffer. Only the escaping is here: the shape of a document is
 * visible at its writer.
 */
#ifndef SAMEKEY_BASE_JSON_TEXT_H
#define SAMEKEY_BASE_JSON_TEXT_H

#include "base/buffer.h"

/* Whether the bytes are well-formed UTF-8 (no surrogates, no overlong forms). */
bool utf8_valid(struct slice s);

/* Appends the text in quotes, escaped. Bytes that are not UTF-8 become U+FFFD, so the document stays JSON. */
void json_text(struct buffer *out, struct slice s);
/* Appends the text in quotes, or null when it is empty. */
void json_text_or_null(struct buffer *out, struct slice s);
/* Appends "true" or "false". */
void json_bool(struct buffer *out, bool value);

#endif
