/* SPDX-License-Identifier: MIT
 *
 * An ended receipt as it stands in Redis: bytes that prove by themselves that this store's gateways wrote them, for this
 * very call.
 *
 *   name    samekey:VERSION:EPOCH:CALL     EPOCH: 16 hex digits made of the secret; CALL: the call's digest, 32 hex digits
 *   entry   MAC (32 bytes), then VERSION (1 byte), then the fields of the row, integers big endian
 *
 * MAC = HMAC-SHA256(secret, the name's length and the name, then everything behind the MAC). The secret is the store's
 * (store/secret.h).
 *
 * Always true:
 *  (1) An entry is opened only under the name, the version and the secret it was sealed with: another call's entry, a
 *      cut or changed one, one of another store, of a store restored since, or of anybody who can write into Redis is
 *      STATUS_INVALID, which the asker treats as "not here".
 *  (2) It is opened only before `valid_until`, which is in the sealed bytes: who takes the expiry off the key in Redis
 *      does not lengthen its life.
 *  (3) Only rows that are ended for good and not reversed are sealed.
 * Redis can forget, repeat and lie; it cannot say anything that the store did not once say of this call.
 */
#ifndef SAMEKEY_GATEWAY_REDIS_ENTRY_H
#define SAMEKEY_GATEWAY_REDIS_ENTRY_H

#include "core/receipt.h"

#define REDIS_SECRET_BYTES 32
#define REDIS_ENTRY_VERSION                                                                                  \
    1 /* rises with every change of the fields, of struct call_row's meanings, or of the MAC */
#define REDIS_ENTRY_BYTES_MAX (256u << 10) /* a longer one is not kept */
#define REDIS_NAME_BYTES      60           /* of a key's name, with its end */

/* What seals and opens; one for each thread. */
struct redis_seal {
    void *mac; /* EVP_MAC_CTX */
    uint8_t secret[REDIS_SECRET_BYTES];
    char epoch[17];
};

/* STATUS_NO_MEMORY: OpenSSL gives no context; then only redis_seal_fini(). */
enum status redis_seal_init(struct redis_seal *seal, const uint8_t secret[REDIS_SECRET_BYTES]);
void redis_seal_fini(struct redis_seal *seal);

/* Writes the name of a call's key. */
void redis_entry_name(const struct redis_seal *seal, const struct digest *call, char out[REDIS_NAME_BYTES]);

/* Whether rows->call may be kept: ended for good, not reversed, and with some of its result's life left. */
bool redis_entry_wanted(const struct rows *rows);

/* Appends the entry of rows->call, good for life_ms from rows->now_ms and never past result_expires; *kept_ms is how long that
 * is. STATUS_FULL: it would be longer than REDIS_ENTRY_BYTES_MAX; STATUS_NO_MEMORY. Then `out` is empty. */
enum status redis_entry_seal(struct redis_seal *seal, const struct rows *rows, int64_t life_ms,
                             struct buffer *out, int64_t *kept_ms);

/* Opens an entry that was found under the name of `call`; now_ms is the store's clock. STATUS_OK: *rows borrows from
 * `entry`, rows->now_ms is now_ms. STATUS_NOT_FOUND: it is past its life. STATUS_INVALID: it is not to be believed. */
enum status redis_entry_open(struct redis_seal *seal, struct slice entry, const struct digest *call,
                             int64_t now_ms, struct rows *rows);

#endif
