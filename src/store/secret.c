/* SPDX-License-Identifier: MIT */
#include "store/secret.h"

#include "store/driver.h"

#include <sys/random.h>

enum status store_secret(struct store *store, uint8_t secret[STORE_SECRET_BYTES])
{
    return store->driver->secret ? store->driver->secret(store, false, secret) : STATUS_INVALID;
}

bool secret_make(uint8_t secret[STORE_SECRET_BYTES])
{
    return getrandom(secret, STORE_SECRET_BYTES, 0) == STORE_SECRET_BYTES;
}
