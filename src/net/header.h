/* SPDX-License-Identifier: MIT
 *
 * Header fields as borrowed slices, in the order received, names as spelled.
 */
#ifndef SAMEKEY_NET_HEADER_H
#define SAMEKEY_NET_HEADER_H

#include "base/slice.h"

#include <stdint.h>

struct header {
    struct slice name, value; /* the value without white space at its ends */
};

struct headers {
    struct header *list;
    size_t count;
};

/* The first field of that name (compared without case), or the empty slice with *found false (may be NULL). */
struct slice headers_get(const struct headers *h, const char *name, bool *found);
/* How many fields have that name. */
size_t headers_count(const struct headers *h, const char *name);
/* Whether a comma-separated list field (Connection, Transfer-Encoding) holds the token, without case. */
bool headers_has_token(const struct headers *h, const char *name, const char *token);
/* How long the peer says it keeps an unused connection, in milliseconds: the least `timeout=SECONDS` of its Keep-Alive
 * fields (a convention of HTTP/1.0 days, RFC 2068 section 19.7.1.1). INT64_MAX: it says nothing, or nothing usable, such
 * as 0. */
int64_t headers_keep_alive_ms(const struct headers *h);

#endif
