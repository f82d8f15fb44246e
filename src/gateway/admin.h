/* SPDX-License-Identifier: MIT
 *
 * The admin listener (CONTRACT section 5): /healthz, /readyz, /metrics, GET /v1/calls/ID and the receipt API without a
 * credential. With a token every path but the two probes asks for it; without one the address must be loopback.
 */
#ifndef SAMEKEY_GATEWAY_ADMIN_H
#define SAMEKEY_GATEWAY_ADMIN_H

#include "gateway/shard.h"

/* Whether an admin address may be served without a token: loopback, or a unix socket. */
bool admin_address_is_local(const char *address);

/* Handlers for net_server_new(); the context is the shard that serves it. */
extern const struct server_handlers admin_handlers;

#endif
