/* SPDX-License-Identifier: MIT
 *
 * Idempotency keys as they arrive (CONTRACT section 2): a quoted RFC 8941 string or the bare text, 1 to 255
 * bytes of visible ASCII (0x21 to 0x7E, so no space). `"k-1"` and `k-1` are the same key; case matters. The
 * result is the normal form: without quotes and escapes. A value that begins with a quote must be a whole
 * quoted string: parameters or a list behind it are refused, since dropping them could make two keys one.
 * Keep the caller's own spelling for what goes upstream.
 */
#ifndef SAMEKEY_CORE_KEY_H
#define SAMEKEY_CORE_KEY_H

#include "base/slice.h"
#include "base/status.h"

#define KEY_BYTES_MAX 255

struct key {
    char bytes[KEY_BYTES_MAX + 1]; /* with a NUL behind it */
    size_t len;
};

static inline struct slice key_view(const struct key *k)
{
    return slice_of(k->bytes, k->len);
}

/* Reads one header value. STATUS_INVALID, with *why (if why is not NULL) a sentence for the caller; *out is
 * then as before. */
enum status key_parse(struct slice value, struct key *out, const char **why);

/* Reads all values of the header: one value however often repeated is one key. STATUS_NOT_FOUND: count is 0.
 * STATUS_INVALID: one of them is invalid, or two differ. */
enum status key_parse_all(const struct slice *values, size_t count, struct key *out, const char **why);

/* The rule for a key that is already bare, a template's or a message's: STATUS_OK or STATUS_INVALID. */
enum status key_check(struct slice bare, const char **why);

#endif
