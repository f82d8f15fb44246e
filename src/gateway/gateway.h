/* SPDX-License-Identifier: MIT
 *
 * The gateway as a process: store, threads, listeners, signals. `samekey gateway` calls gateway_main() and nothing else.
 *
 *   home (this thread): signals, admin listener, upkeep        shards 0..n-1: callers and upstreams
 *   store writer, store readers                                log writer
 */
#ifndef SAMEKEY_GATEWAY_GATEWAY_H
#define SAMEKEY_GATEWAY_GATEWAY_H

#include "gateway/conf.h"

#include <stdbool.h>
#include <stdint.h>

struct gateway;

/* Runs until SIGTERM or SIGINT. Takes the settings over. conf_path (NULL: none) and flags are read again by SIGHUP and
 * must live that long. `restored`: the store's file comes from a backup, so that nothing older than now is
 * claimed to be covered by it. Returns the exit code: 0; 69 the store or an address is not available; 78 the configuration is
 * wrong. Errors are told on stderr. */
int gateway_main(struct settings *settings, const char *conf_path, const struct conf_flags *flags,
                 bool restored);

/* Whether it takes calls: the store is open, a shared one answers, and it is not draining. Any thread. */
bool gateway_ready(const struct gateway *gateway);

/* Rows and bytes of the store as of its last batch. Any thread. */
struct store_stats;
void gateway_store_stats(const struct gateway *gateway, struct store_stats *out);
/* Every loop's memory forgets this call, soon. Any loop. */
struct digest;
void gateway_forget(struct gateway *gateway, const struct digest *call);

/* A loop's link to the cache in front of the store came up or went. Any thread. */
void gateway_cache_link(struct gateway *gateway, bool up);
/* What /readyz says of it, behind `ready`: "" where none is configured. A cache that is down takes nothing away: it stays
 * ready. Any thread. */
const char *gateway_cache_words(const struct gateway *gateway);

/* Log lines lost so far. Any thread. */
int64_t gateway_log_dropped(const struct gateway *gateway);

#endif
