/* SPDX-License-Identifier: MIT
 *
 * Base64 (RFC 4648 section 4), writing only: receipts carry result bodies that are not text. Padded, no line
 * breaks.
 */
#ifndef SAMEKEY_BASE_BASE64_H
#define SAMEKEY_BASE_BASE64_H

#include "base/buffer.h"

/* Adds the encoded bytes. A failure to allocate is the buffer's `failed`. */
void base64_append(struct buffer *out, struct slice bytes);

#endif
