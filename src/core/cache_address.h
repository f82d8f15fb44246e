/* SPDX-License-Identifier: MIT
 *
 * The address of the cache in front of the store, as the setting `cache` spells it:
 *
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]     HOST may be [IPv6]; the port is 6379 where none is given
 *   unix:/PATH[?db=DB]
 *   unix://[[USER]:PASSWORD@]/PATH[?db=DB]
 *
 * USER and PASSWORD are percent-decoded. TLS (rediss://) is refused by name: the client library of Debian 12 has none.
 */
#ifndef SAMEKEY_CORE_CACHE_ADDRESS_H
#define SAMEKEY_CORE_CACHE_ADDRESS_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

#define CACHE_HOST_BYTES_MAX     255
#define CACHE_PATH_BYTES_MAX     107 /* of a unix socket */
#define CACHE_PASSWORD_BYTES_MAX 512
#define CACHE_DB_MAX             65535

struct cache_address {
    char host[CACHE_HOST_BYTES_MAX + 1]; /* without brackets; empty: the path says where */
    char path[CACHE_PATH_BYTES_MAX + 1];
    int port;
    char user[CACHE_PASSWORD_BYTES_MAX + 1], password[CACHE_PASSWORD_BYTES_MAX + 1]; /* empty: none */
    int db;
};

/* STATUS_INVALID: one sentence with the remedy is added to `why`, without the text itself (it may hold a password), and
 * *out is as it was. */
enum status cache_address_parse(struct cache_address *out, struct slice text, struct buffer *why);

#endif
