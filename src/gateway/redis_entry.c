/* SPDX-License-Identifier: MIT */
#include "gateway/redis_entry.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>

#define MAC_BYTES 32

enum status redis_seal_init(struct redis_seal *seal, const uint8_t secret[REDIS_SECRET_BYTES])
{
    static char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    uint8_t mac[MAC_BYTES];
    size_t len = 0;
    *seal = (struct redis_seal){0};
    memcpy(seal->secret, secret, REDIS_SECRET_BYTES);
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    seal->mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac);
    /* What names the keys tells nothing about the secret. */
    if (!seal->mac || !EVP_MAC_CTX_set_params(seal->mac, parameters) ||
        !EVP_MAC_init(seal->mac, seal->secret, REDIS_SECRET_BYTES, NULL) ||
        !EVP_MAC_update(seal->mac, (const uint8_t *)"epoch", 5) ||
        !EVP_MAC_final(seal->mac, mac, &len, sizeof mac)) {
        redis_seal_fini(seal);
        return STATUS_NO_MEMORY;
    }
    for (size_t i = 0; i < 8; i++)
        snprintf(seal->epoch + 2 * i, 3, "%02x", mac[i]);
    return STATUS_OK;
}

void redis_seal_fini(struct redis_seal *seal)
{
    EVP_MAC_CTX_free(seal->mac);
    OPENSSL_cleanse(seal->secret, sizeof seal->secret);
    seal->mac = NULL;
}

void redis_entry_name(const struct redis_seal *seal, const struct digest *call, char out[REDIS_NAME_BYTES])
{
    int len = snprintf(out, REDIS_NAME_BYTES, "samekey:%d:%s:", REDIS_ENTRY_VERSION, seal->epoch);
    for (size_t i = 0; i < sizeof call->bytes; i++)
        len += snprintf(out + len, REDIS_NAME_BYTES - (size_t)len, "%02x", call->bytes[i]);
}

static bool sign(struct redis_seal *seal, const struct digest *call, struct slice body,
                 uint8_t mac[MAC_BYTES])
{
    char name[REDIS_NAME_BYTES];
    redis_entry_name(seal, call, name);
    uint8_t name_len = (uint8_t)strlen(name);
    size_t len = 0;
    return EVP_MAC_init(seal->mac, seal->secret, REDIS_SECRET_BYTES, NULL) &&
           EVP_MAC_update(seal->mac, &name_len, 1) &&
           EVP_MAC_update(seal->mac, (const uint8_t *)name, name_len) &&
           EVP_MAC_update(seal->mac, (const uint8_t *)body.data, body.len) &&
           EVP_MAC_final(seal->mac, mac, &len, MAC_BYTES) && len == MAC_BYTES;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

static void put_number(struct buffer *out, int64_t n, unsigned bytes)
{
    while (bytes--)
        buffer_byte(out, (char)((uint64_t)n >> (8 * bytes) & 0xff));
}

static void put_text(struct buffer *out, struct slice s)
{
    put_number(out, (int64_t)s.len, 4);
    buffer_slice(out, s);
}

bool redis_entry_wanted(const struct rows *rows)
{
    const struct call_row *row = &rows->call;
    return row->id && row->final && (row->state == STATE_SUCCESS || row->state == STATE_FAILED) &&
           !row->reversed_by.len && row->result_expires_ms > rows->now_ms;
}

enum status redis_entry_seal(struct redis_seal *seal, const struct rows *rows, int64_t life_ms,
                             struct buffer *out, int64_t *kept_ms)
{
    const struct call_row *row = &rows->call;
    uint8_t mac[MAC_BYTES] = {0};
    int64_t left = row->result_expires_ms - rows->now_ms;
    if (left > life_ms)
        left = life_ms;
    buffer_append(out, mac, sizeof mac);
    buffer_byte(out, REDIS_ENTRY_VERSION);
    put_number(out, rows->now_ms + left, 8);
    put_number(out, rows->covers_since_ms, 8);
#define NUMBER(field) put_number(out, row->field, 8);
#define SMALL(field)  put_number(out, (int64_t)row->field, 4);
#define FLAG(field)   buffer_byte(out, row->field ? 1 : 0);
#define DIGEST(field) buffer_append(out, row->field.bytes, sizeof row->field.bytes);
#include "gateway/redis_entry.def"
    enum status status = STATUS_OK;
    size_t texts = 0;
#define TEXT(field) texts += row->field.len + 4;
#include "gateway/redis_entry.def"
    if (out->len + texts > REDIS_ENTRY_BYTES_MAX) {
        status = STATUS_FULL;
    } else {
#define TEXT(field) put_text(out, row->field);
#include "gateway/redis_entry.def"
        struct slice whole = buffer_view(out);
        if (out->failed ||
            !sign(seal, &row->call_digest, slice_of(whole.data + MAC_BYTES, whole.len - MAC_BYTES), mac))
            status = STATUS_NO_MEMORY;
    }
    if (status != STATUS_OK) {
        buffer_clear(out);
        return status;
    }
    memcpy(out->data, mac, sizeof mac);
    *kept_ms = left;
    return STATUS_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

/* What is left to read; `bad` once something was not there. */
struct reading {
    struct slice left;
    bool bad;
};

static struct slice get_bytes(struct reading *r, size_t len)
{
    if (r->bad || r->left.len < len) {
        r->bad = true;
        return slice_of("", 0);
    }
    struct slice s = slice_of(r->left.data, len);
    r->left = slice_of(r->left.data + len, r->left.len - len);
    return s;
}

static int64_t get_number(struct reading *r, unsigned bytes)
{
    struct slice s = get_bytes(r, bytes);
    uint64_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n = n << 8 | (uint8_t)s.data[i];
    return (int64_t)n;
}

static struct slice get_text(struct reading *r)
{
    return get_bytes(r, (size_t)get_number(r, 4));
}

static void get_digest(struct reading *r, uint8_t *out, size_t len)
{
    struct slice s = get_bytes(r, len);
    if (s.len)
        memcpy(out, s.data, len);
}

enum status redis_entry_open(struct redis_seal *seal, struct slice entry, const struct digest *call,
                             int64_t now_ms, struct rows *rows)
{
    uint8_t mac[MAC_BYTES];
    if (entry.len <= MAC_BYTES)
        return STATUS_INVALID;
    struct reading r = {.left = slice_of(entry.data + MAC_BYTES, entry.len - MAC_BYTES)};
    if (!sign(seal, call, r.left, mac) || CRYPTO_memcmp(mac, entry.data, MAC_BYTES) != 0 ||
        get_number(&r, 1) != REDIS_ENTRY_VERSION)
        return STATUS_INVALID;
    struct rows found = {.now_ms = now_ms};
    struct call_row *row = &found.call;
    int64_t valid_until_ms = get_number(&r, 8);
    found.covers_since_ms = get_number(&r, 8);
    int64_t small;
#define NUMBER(field) row->field = get_number(&r, 8);
#define SMALL(field)                                                                                         \
    small = get_number(&r, 4);                                                                               \
    row->field = (__typeof__(row->field))small;
#define FLAG(field)   row->field = get_number(&r, 1) == 1;
#define DIGEST(field) get_digest(&r, row->field.bytes, sizeof row->field.bytes);
#define TEXT(field)   row->field = get_text(&r);
#include "gateway/redis_entry.def"
    /* Behind a MAC that fits none of this can be wrong; it is looked at all the same. */
    if (r.bad || r.left.len || !digest_equal(&row->call_digest, call) || !row->id || !row->final ||
        (row->state != STATE_SUCCESS && row->state != STATE_FAILED))
        return STATUS_INVALID;
    if (now_ms >= valid_until_ms)
        return STATUS_NOT_FOUND;
    *rows = found;
    return STATUS_OK;
}
