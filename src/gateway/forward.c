/* SPDX-License-Identifier: MIT */
#include "gateway/forward.h"

#include "gateway/answer.h"

static bool named(struct slice name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (slice_is_nocase(name, list[i]))
            return true;
    }
    return false;
}

static bool left_out(const struct headers *all, const struct header *h, bool identity)
{
    static const char *const always[] = {"Host",      "Content-Length",    "Expect",
                                         "Forwarded", "X-Call-Not-Before", "X-Call-Notify"};
    static const char *const written[] = {"X-Call-Id",    "Idempotency-Key",  "X-Call-Attempt",
                                          "X-Call-Fence", "X-Call-Id-Source", "X-Call-Budget-Ms",
                                          "traceparent"};
    if (named(h->name, always, sizeof always / sizeof *always))
        return true;
    if (identity && named(h->name, written, sizeof written / sizeof *written))
        return true;
    return field_is_hop(all, h->name);
}

void forward_lines(struct buffer *out, struct request *request, bool identity)
{
    const struct headers *all = &request_head(request)->headers;
    line_append(out, "Host", headers_get(all, "Host", NULL));
    for (size_t i = 0; i < all->count; i++) {
        const struct header *h = &all->list[i];
        if (left_out(all, h, identity))
            continue;
        buffer_slice(out, h->name);
        buffer_text(out, ": ");
        buffer_slice(out, h->value);
        buffer_text(out, "\r\n");
    }
    bool found;
    struct slice before = headers_get(all, "Forwarded", &found), peer = request_peer(request);
    buffer_text(out, "Forwarded: ");
    if (found) {
        buffer_slice(out, before);
        buffer_text(out, ", ");
    }
    if (!peer.len || peer.data[0] == 'u') {
        buffer_text(out, "for=unknown");
    } else {
        bool six = memchr(peer.data, ':', peer.len) != NULL;
        buffer_text(out, six ? "for=\"[" : "for=");
        buffer_slice(out, peer);
        buffer_text(out, six ? "]\"" : "");
    }
    buffer_text(out, ";proto=http\r\n");
}
