/* SPDX-License-Identifier: MIT
 *
 * A reply as it came over a wire, and what its header says about the call: the callee's own Call-Outcome, the callId it
 * answered, Retry-After, and whether a samekey below us wrote it (CONTRACT sections 2, 3 and 5). Whether the reply is
 * complete is its transport's to say.
 */
#ifndef SAMEKEY_CALLER_RESPONSE_H
#define SAMEKEY_CALLER_RESPONSE_H

#include "base/buffer.h"
#include "base/slice.h"
#include "core/outcome.h"
#include "core/problem.h"

#define RESPONSE_HEAD_BYTES_MAX (256u << 10)

/* Start it as zero bytes; owns its memory. */
struct response {
    int status;            /* of the final head, or 0 */
    struct buffer headers; /* its lines, each ended by CRLF, without the status line */
    struct buffer body;    /* at most the bound that the transport was given */
    uint64_t body_bytes;   /* as received */
    bool body_kept;        /* false: it was longer than the bound */
};

/* The value of the n-th line of that name; false when there are fewer. Borrowed. */
bool response_header(const struct response *reply, const char *name, size_t n, struct slice *value);

/* What the reply says besides its status. */
struct response_words {
    bool has_outcome;
    enum outcome outcome; /* UNKNOWN where two lines contradict each other */
    bool other_call_id;
    int64_t retry_after_ms;              /* -1: none */
    enum problem problem;                /* a problem of a samekey, or PROBLEM_NONE */
    bool has_safe_new_key, safe_new_key; /* from a samekey's problem */
    int next_action;                     /* from a samekey's problem: enum next_action, or -1 */
};
void response_read(const struct response *reply, struct slice call_id, int64_t unix_now_ms,
                   struct response_words *out);

/* Reads `safe_new_key` of a receipt document; false where it does not say. */
bool response_receipt_safe_new_key(struct slice document, bool *safe);

void response_clear(struct response *reply); /* keeps the memory */
void response_fini(struct response *reply);

#endif
