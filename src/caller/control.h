/* SPDX-License-Identifier: MIT
 *
 * The control headers of one attempt: identity that is the same on each, and what is its own (CONTRACT section 2).
 */
#ifndef SAMEKEY_CALLER_CONTROL_H
#define SAMEKEY_CALLER_CONTROL_H

#include "caller/intent.h"
#include "core/id.h"

#define CONTROL_HEADERS_MAX 6

struct control {
    struct intent_header headers[CONTROL_HEADERS_MAX];
    size_t count;
    char attempt[16], budget[24], trace[TRACEPARENT_BYTES + 1];
};

/* Fills the headers; they borrow from the intent, the callId and this struct. attempt 0: those of a receipt query, which
 * name the call and nothing else. random gives the trace's child its id. */
void control_make(struct control *out, const struct intent *intent, const char *call_id, int attempt,
                  int64_t timeout_ms, uint64_t random);

#endif
