/* SPDX-License-Identifier: MIT
 *
 * Header lines: which of an upstream's go to the caller, which are kept for replays, and which are ours (CONTRACT
 * sections 2 and 5).
 */
#ifndef SAMEKEY_GATEWAY_ANSWER_H
#define SAMEKEY_GATEWAY_ANSWER_H

#include "base/buffer.h"
#include "core/outcome.h"
#include "core/settings.h"
#include "net/header.h"

/* What our own lines on a guarded answer say. */
struct answer_facts {
    struct slice call_id; /* empty: no call came to be */
    bool call_id_made;
    enum outcome outcome; /* OUTCOME_NONE: no Call-Outcome line */
    bool replayed;
    struct slice original; /* callId whose result this is, or empty */
    struct slice suspect;  /* callId of a suspected duplicate, or empty */
    bool expose;           /* CORS exposure for scripts in browsers */
};
void answer_own_lines(struct buffer *out, const struct answer_facts *facts);

/* Hop-by-hop (RFC 9110 section 7.6.1), by name or because the Connection field of `all` names it. */
bool field_is_hop(const struct headers *all, struct slice name);
/* Our answer headers, which an upstream's never replace. */
bool field_is_ours(struct slice name);
/* Whether a field of a first answer is kept for replays: Content-* but Content-Length, Location, ETag, Link,
 * Last-Modified, Retry-After, and the route's own list; never Set-Cookie. */
bool field_is_kept(struct slice name, const struct text_list *own_list);

/* Appends an upstream's fields as lines for the caller: without hop-by-hop ones, Content-Length, Date and ours. */
void answer_upstream_lines(struct buffer *out, const struct headers *headers);
/* Appends those of them that a replay bears. */
void answer_kept_lines(struct buffer *out, const struct headers *headers, const struct text_list *own_list);

/* Whether Authorization is `Bearer TOKEN`, compared in constant time. An empty token fits nobody. */
bool bearer_fits(const struct headers *headers, struct slice token);

void line_append(struct buffer *out, const char *name, struct slice value);

#endif
