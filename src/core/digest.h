/* SPDX-License-Identifier: MIT
 *
 * SHA-256, and the short digests under which rows are found. A `hasher` keeps its OpenSSL context, so a call
 * costs no allocation; small pieces are gathered before they go to OpenSSL. One hasher belongs to one thread.
 *
 * Row digests are the first 16 bytes of a SHA-256 over parts, each part behind its own length, so that
 * tenant, route and key can never run into each other (CONTRACT section 2, "scope of a key"). 128 bits: with
 * 10^10 rows the chance that any two meet is below 10^-18.
 */
#ifndef SAMEKEY_CORE_DIGEST_H
#define SAMEKEY_CORE_DIGEST_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define HASHER_PENDING_BYTES 512 /* gathered before one call into OpenSSL */

struct digest {
    uint8_t bytes[16];
};

struct digest32 {
    uint8_t bytes[32];
};

/* Start it with hasher_init. The context is opaque here so that OpenSSL stays out of this header. */
struct hasher {
    void *context;
    size_t pending;
    uint8_t bytes[HASHER_PENDING_BYTES];
};

/* STATUS_NO_MEMORY when OpenSSL gives no context; the hasher then only knows hasher_fini. */
enum status hasher_init(struct hasher *h);

/* Starts a new sum; whatever was added before is forgotten. */
void hasher_begin(struct hasher *h);

/* Adds bytes. */
void hasher_add(struct hasher *h, const void *data, size_t len);

/* Adds the length (8 bytes, big endian) and then the bytes: one part that cannot run into the next. */
void hasher_part(struct hasher *h, struct slice part);

/* Ends the sum begun last. hasher_begin must come before the next add. */
void hasher_end(struct hasher *h, struct digest32 *out);

/* Frees the context. NULL and a hasher that failed to start are accepted. */
void hasher_fini(struct hasher *h);

/* The digest of a callId: unique per tenant. Its first DIGEST_CALL_PREFIX bytes come from the callId alone, so that a
 * person who does not know the tenant can still find it; the rest from tenant and callId. Two callIds meet only if both
 * halves do: 128 bits over different callIds, 64 bits over the tenants of one callId. Begins and ends sums of its own. */
#define DIGEST_CALL_PREFIX 8
struct digest digest_call(struct hasher *h, struct slice tenant, struct slice call_id);

/* The digest of an operation: tenant + route scope + key. Never equal by construction to a digest_call. */
struct digest digest_operation(struct hasher *h, struct slice tenant, struct slice route_scope,
                               struct slice key);

static inline bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static inline bool digest32_equal(const struct digest32 *a, const struct digest32 *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

#endif
