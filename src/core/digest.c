/* SPDX-License-Identifier: MIT */
#include "core/digest.h"

#include <assert.h>
#include <openssl/evp.h>

/* In front of the parts of each kind of digest, so that no callId can ever be an operation. */
static const struct slice call_kind = SLICE_LITERAL("samekey call 1");
static const struct slice operation_kind = SLICE_LITERAL("samekey operation 1");

enum status hasher_init(struct hasher *h)
{
    h->pending = 0;
    h->context = EVP_MD_CTX_new();
    if (!h->context)
        return STATUS_NO_MEMORY;
    /* Names the algorithm once; every later start reuses what was fetched and allocates nothing. */
    if (EVP_DigestInit_ex(h->context, EVP_sha256(), NULL) == 1)
        return STATUS_OK;
    hasher_fini(h);
    return STATUS_NO_MEMORY;
}

void hasher_begin(struct hasher *h)
{
    assert(h->context);
    h->pending = 0;
    int done = EVP_DigestInit_ex(h->context, NULL, NULL);
    assert(done == 1);
    (void)done;
}

static void flush(struct hasher *h)
{
    /* SHA-256 in memory has nothing that could fail; if OpenSSL says so all the same, a sum must not be made
     * up. */
    int done = EVP_DigestUpdate(h->context, h->bytes, h->pending);
    assert(done == 1);
    (void)done;
    h->pending = 0;
}

void hasher_add(struct hasher *h, const void *data, size_t len)
{
    if (len == 0)
        return;
    if (len > sizeof h->bytes - h->pending) {
        flush(h);
        if (len > sizeof h->bytes) {
            int done = EVP_DigestUpdate(h->context, data, len);
            assert(done == 1);
            (void)done;
            return;
        }
    }
    memcpy(h->bytes + h->pending, data, len);
    h->pending += len;
}

void hasher_part(struct hasher *h, struct slice part)
{
    uint8_t length[8];
    uint64_t n = part.len;
    for (int i = 7; i >= 0; i--) {
        length[i] = (uint8_t)n;
        n >>= 8;
    }
    hasher_add(h, length, sizeof length);
    hasher_add(h, part.data, part.len);
}

void hasher_end(struct hasher *h, struct digest32 *out)
{
    flush(h);
    unsigned len = 0;
    int done = EVP_DigestFinal_ex(h->context, out->bytes, &len);
    assert(done == 1 && len == sizeof out->bytes);
    (void)done;
}

void hasher_fini(struct hasher *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->context);
    h->context = NULL;
}

static struct digest row_digest(struct hasher *h, const struct slice *parts, size_t count)
{
    struct digest32 whole;
    struct digest row;
    hasher_begin(h);
    for (size_t i = 0; i < count; i++)
        hasher_part(h, parts[i]);
    hasher_end(h, &whole);
    memcpy(row.bytes, whole.bytes, sizeof row.bytes);
    return row;
}

struct digest digest_call(struct hasher *h, struct slice tenant, struct slice call_id)
{
    const struct slice alone[] = {call_kind, call_id}, both[] = {call_kind, tenant, call_id};
    struct digest prefix = row_digest(h, alone, 2);
    if (!tenant.len)
        return prefix; /* one tenant: one sum is enough */
    struct digest whole = row_digest(h, both, 3);
    memcpy(whole.bytes, prefix.bytes, DIGEST_CALL_PREFIX);
    return whole;
}

struct digest digest_operation(struct hasher *h, struct slice tenant, struct slice route_scope,
                               struct slice key)
{
    const struct slice parts[] = {operation_kind, tenant, route_scope, key};
    return row_digest(h, parts, 4);
}
