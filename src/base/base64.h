/* SPDX-License-Identifier: MIT
 *
 * Base64 (RFC 4648 section 4): receipts carry result bodies that are not text. Padded, no line breaks. The
 * reader is strict, so that every text has one meaning and every run of bytes one text.
 */
#ifndef SAMEKEY_BASE_BASE64_H
#define SAMEKEY_BASE_BASE64_H

#include "base/buffer.h"
#include "base/status.h"

/* Adds the encoded bytes. A failure to allocate is the buffer's `failed`. */
void base64_encode(struct slice bytes, struct buffer *out);

/* Adds the decoded bytes. STATUS_INVALID, with nothing added: a byte outside the alphabet, a length that is
 * no multiple of four, padding elsewhere than at the end, or unused bits that are not zero. STATUS_NO_MEMORY:
 * the buffer failed. */
enum status base64_decode(struct slice text, struct buffer *out);

#endif
