/* SPDX-License-Identifier: MIT
 *
 * hiredis on a libuv loop. The adapter that comes with hiredis 0.14 drops what libuv reports as an error of the
 * descriptor, and with it every refused connection and every reset: this one hands it to hiredis, which finds the reason.
 */
#ifndef SAMEKEY_GATEWAY_REDIS_POLL_H
#define SAMEKEY_GATEWAY_REDIS_POLL_H

#include "base/status.h"

#include <hiredis/async.h>
#include <uv.h>

/* Watches the context's descriptor from now on; it ends with the context. STATUS_NO_MEMORY, STATUS_IO: the context is
 * the caller's to free, as before. */
enum status redis_poll_attach(redisAsyncContext *context, uv_loop_t *loop);

#endif
