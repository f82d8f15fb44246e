/* SPDX-License-Identifier: MIT
 *
 * The store's secret: 32 random bytes that every gateway on this store knows and nobody else. It seals what gateways of
 * one store keep elsewhere, in a cache that others can write to.
 *
 * Always true:
 *  (1) All who open one store get the same bytes; two stores never have the same.
 *  (2) store_raise_covers_since() makes a new one: what was sealed before a restore from a backup is not opened after
 *      it. (What a store forgot by being restored without that word cannot be told from what it knows; see
 *      docs/operations.md, Restore.)
 * It lies in the store in clear: who can read the store needs no secret to know what is in it.
 */
#ifndef SAMEKEY_STORE_SECRET_H
#define SAMEKEY_STORE_SECRET_H

#include "store/store.h"

#define STORE_SECRET_BYTES 32

/* Reads the secret, and makes it where there is none yet. On the thread that calls store_batch(), or before it runs.
 * STATUS_IO: it could not be read or written; STATUS_INVALID: this kind of store keeps none. */
enum status store_secret(struct store *store, uint8_t secret[STORE_SECRET_BYTES]);

#endif
