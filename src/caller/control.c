/* SPDX-License-Identifier: MIT */
#include "caller/control.h"

#include <assert.h>
#include <stdio.h>

static void add(struct control *c, const char *name, struct slice value)
{
    assert(c->count < CONTROL_HEADERS_MAX);
    c->headers[c->count++] = (struct intent_header){slice_text(name), value};
}

void control_make(struct control *out, const struct intent *intent, const char *call_id, int attempt,
                  int64_t timeout_ms, uint64_t random)
{
    out->count = 0;
    add(out, "X-Call-Id", slice_text(call_id));
    if (intent->has_key)
        add(out, "Idempotency-Key", intent->key_spelling);
    if (intent->has_trace) {
        struct traceparent child;
        traceparent_child(&intent->trace, random, &child);
        traceparent_print(&child, out->trace);
        add(out, "traceparent", slice_text(out->trace));
    }
    if (attempt == 0)
        return;
    snprintf(out->attempt, sizeof out->attempt, "%d", attempt);
    add(out, "X-Call-Attempt", slice_text(out->attempt));
    /* What this exchange is still waited for: longer, and nobody would hear the answer. */
    snprintf(out->budget, sizeof out->budget, "%lld", (long long)timeout_ms);
    add(out, "X-Call-Budget-Ms", slice_text(out->budget));
    if (intent->business_ref.len)
        add(out, "X-Business-Ref", intent->business_ref);
}
