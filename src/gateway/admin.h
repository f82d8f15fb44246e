/* SPDX-License-Identifier: MIT
 *
 * The admin listener (CONTRACT section 5, docs/admin-api.md): the console, /healthz, /readyz, /metrics, the API under
 * /v1, and the receipt API without a credential. It runs on the home loop; what reads the store goes to its reader.
 *
 * Always true:
 *  (1) But for the probes, the console's own files and the question who one is, nothing is answered before it is
 *      known who asks: a token, a session, or, without any token, somebody on this machine.
 *  (2) A change needs the operator's role; with a cookie also the session's second secret. Pages of another origin
 *      change nothing, and names that were pointed at this address read nothing.
 *  (3) A wrong token is logged and its answer waits; no loop does.
 */
#ifndef SAMEKEY_GATEWAY_ADMIN_H
#define SAMEKEY_GATEWAY_ADMIN_H

#include "gateway/shard.h"

struct admin;

/* Whether an admin address may be served without a token: loopback, or a unix socket. */
bool admin_address_is_local(const char *address);

/* Makes what the listener keeps between requests, on the home shard. STATUS_NO_MEMORY. *out is the caller's. */
enum status admin_new(struct admin **out, struct shard *home);
/* Lets its timer rest; requests go on. Before the loop ends. NULL is accepted. */
void admin_stop(struct admin *admin);
/* After the listener is gone. NULL is accepted. */
void admin_free(struct admin *admin);

/* Handlers for net_server_new(); the context is the struct admin. */
extern const struct server_handlers admin_handlers;

#endif
