/* SPDX-License-Identifier: MIT
 *
 * Which of a caller's header fields go upstream, written as lines; shared by guarded calls and passages.
 */
#ifndef SAMEKEY_GATEWAY_FORWARD_H
#define SAMEKEY_GATEWAY_FORWARD_H

#include "base/buffer.h"
#include "net/server.h"

/* Appends Host as received, every end-to-end field, and Forwarded (RFC 7239) with this hop added. Left out: hop-by-hop
 * fields, Content-Length, Expect, and our own control headers. With `identity`, also X-Call-Id, Idempotency-Key, attempt,
 * fence, budget and traceparent, which a guarded call writes itself on each attempt. */
void forward_lines(struct buffer *out, struct request *request, bool identity);

#endif
