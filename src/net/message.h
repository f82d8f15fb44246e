/* SPDX-License-Identifier: MIT
 *
 * One HTTP/1.1 message coming in, read twice: the strict shim finds the ends, llhttp takes it apart, and they must
 * agree about every end or the message is refused.
 *
 * Always true:
 *  (1) The head lies in one piece in `head`; method, target, reason and header fields are slices of it, good
 *      until the next message_start() or message_fini().
 *  (2) llhttp never sees a byte that the shim has not accepted.
 *  (3) Trailer fields are checked and dropped.
 */
#ifndef SAMEKEY_NET_MESSAGE_H
#define SAMEKEY_NET_MESSAGE_H

#include "base/buffer.h"
#include "net/header.h"
#include "net/shim.h"

#include <llhttp.h>

struct message {
    struct shim shim;
    llhttp_t parser;
    struct buffer head;
    struct header *list;
    size_t count, capacity; /* header fields: used, allocated */
    struct slice method, target, reason;
    bool no_body;    /* set before message_head(): this answers HEAD */
    bool keep_alive; /* the peer's wish (RFC 9112 section 9.3) */
    bool in_value;   /* llhttp told the last field's value already */
    bool head_seen, complete;
    uint16_t flags;      /* llhttp's, at the end of the head */
    struct slice piece;  /* of the body, by the last message_body() */
    enum shim_body body; /* how the body is framed, once the head is complete */
};

/* Starts (again) with a message; memory of an earlier one is used again. Zero bytes before the first time. */
void message_start(struct message *m, bool response, size_t bytes_max, size_t count_max);
void message_fini(struct message *m);

/* Reads head bytes; *taken of them were used. SHIM_END: the head is complete. SHIM_REFUSED: status and reason are
 * in shim.refused_*. */
enum shim_verdict message_head(struct message *m, const char *data, size_t len, size_t *taken);

/* Reads body bytes: at most one piece of content a call, borrowed from `data`. SHIM_END: the message is complete. */
enum shim_verdict message_body(struct message *m, const char *data, size_t len, size_t *taken,
                               struct slice *piece);

/* The stream ended: true when that ends a body that was read until close. */
bool message_ends_at_close(struct message *m);

#endif
