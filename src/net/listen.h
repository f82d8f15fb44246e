/* SPDX-License-Identifier: MIT
 *
 * A listening socket from an address in words.
 */
#ifndef SAMEKEY_NET_LISTEN_H
#define SAMEKEY_NET_LISTEN_H

#include "base/buffer.h"
#include "base/status.h"

struct listener {
    int fd;
    bool is_unix;
    int port;       /* the real one; 0 for a unix socket */
    char path[108]; /* of a unix socket, taken away by listener_close() */
};

/* See net_server_new() for the address, the statuses and `error`. */
enum status listener_open(struct listener *out, const char *address, bool reuse_port, struct buffer *error);
/* Whether a TCP address is nobody's, with the port that a port 0 would get; takes nothing and accepts nobody, so no caller
 * is let down when it is given back. Statuses and `error` as above. */
enum status listener_ask(const char *address, int *port, struct buffer *error);
/* Accepts one connection, non-blocking: its descriptor, or a negative errno. `peer` gets the caller's address
 * ("127.0.0.1", "2001:db8::1" or "unix:"), ended by NUL; size is at least 48. */
int listener_accept(struct listener *l, char *peer, size_t size);
void listener_close(struct listener *l);

#endif
