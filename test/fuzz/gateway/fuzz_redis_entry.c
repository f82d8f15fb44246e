/* SPDX-License-Identifier: MIT
 *
 * Any bytes as an entry of the cache: as they come (never opened), and with a MAC that fits, as somebody could write them
 * who has the store's secret: then they are a row whose document can be written, or they are refused.
 */
#include "gateway/redis_entry.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

static const uint8_t secret[REDIS_SECRET_BYTES] = {7};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct redis_seal seal;
    struct rows rows;
    struct buffer whole = {0}, signed_part = {0};
    if (size < 17 || redis_seal_init(&seal, secret) != STATUS_OK)
        return 0;
    struct digest call;
    memcpy(call.bytes, data, sizeof call.bytes);
    struct slice body = slice_of((const char *)data + 16, size - 16);
    if (redis_entry_open(&seal, body, &call, 0, &rows) != STATUS_INVALID)
        abort();

    char name[REDIS_NAME_BYTES];
    uint8_t mac[32];
    unsigned len = sizeof mac;
    redis_entry_name(&seal, &call, name);
    buffer_byte(&signed_part, (char)strlen(name));
    buffer_text(&signed_part, name);
    buffer_slice(&signed_part, body);
    if (!HMAC(EVP_sha256(), secret, sizeof secret, (const uint8_t *)signed_part.data, signed_part.len, mac,
              &len))
        abort();
    buffer_append(&whole, mac, sizeof mac);
    buffer_slice(&whole, body);
    if (redis_entry_open(&seal, buffer_view(&whole), &call, 0, &rows) == STATUS_OK) {
        struct buffer document = {0};
        if (!rows.call.id || !rows.call.final || !digest_equal(&rows.call.call_digest, &call))
            abort();
        receipt_document(&document, &rows, rows.call.call_id);
        buffer_fini(&document);
    }
    buffer_fini(&whole);
    buffer_fini(&signed_part);
    redis_seal_fini(&seal);
    return 0;
}
