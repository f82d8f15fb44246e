/* SPDX-License-Identifier: MIT */
#include "gateway/answer.h"

#include <openssl/crypto.h>

void line_append(struct buffer *out, const char *name, struct slice value)
{
    buffer_text(out, name);
    buffer_text(out, ": ");
    buffer_slice(out, value);
    buffer_text(out, "\r\n");
}

void answer_own_lines(struct buffer *out, const struct answer_facts *f)
{
    if (f->call_id.len) {
        line_append(out, "X-Call-Id", f->call_id);
        line_append(out, "X-Call-Id-Source", slice_text(f->call_id_made ? "gateway" : "caller"));
    }
    if (f->outcome != OUTCOME_NONE)
        line_append(out, "Call-Outcome", slice_text(outcome_header(f->outcome)));
    if (f->replayed)
        buffer_text(out, "Idempotent-Replayed: true\r\n");
    if (f->original.len)
        line_append(out, "X-Original-Call-Id", f->original);
    if (f->suspect.len)
        line_append(out, "X-Suspected-Duplicate", f->suspect);
    if (f->call_id.len) {
        buffer_text(out, "Link: </.samekey/receipts/");
        buffer_slice(out, f->call_id);
        buffer_text(out, ">; rel=\"receipt\"\r\n");
    }
    if (f->expose)
        buffer_text(out, "Access-Control-Expose-Headers: X-Call-Id, X-Call-Id-Source, Call-Outcome, Link, "
                         "Idempotent-Replayed, X-Original-Call-Id, X-Suspected-Duplicate, Retry-After\r\n");
}

static bool name_in(struct slice name, const char *const *list)
{
    for (; *list; list++) {
        if (slice_is_nocase(name, *list))
            return true;
    }
    return false;
}

/* Whether a comma-separated list holds the name. */
static bool list_names(struct slice list, struct slice name)
{
    while (list.len) {
        const char *comma = memchr(list.data, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.data) : list.len, step = comma ? len + 1 : len;
        if (slice_equal_nocase(slice_trim(slice_of(list.data, len)), name))
            return true;
        list = slice_of(list.data + step, list.len - step);
    }
    return false;
}

bool field_is_hop(const struct headers *all, struct slice name)
{
    static const char *const hops[] = {"Connection",
                                       "Keep-Alive",
                                       "Proxy-Connection",
                                       "Proxy-Authenticate",
                                       "Proxy-Authorization",
                                       "TE",
                                       "Trailer",
                                       "Transfer-Encoding",
                                       "Upgrade",
                                       NULL};
    if (name_in(name, hops))
        return true;
    for (size_t i = 0; i < all->count; i++) {
        if (slice_is_nocase(all->list[i].name, "Connection") && list_names(all->list[i].value, name))
            return true;
    }
    return false;
}

bool field_is_ours(struct slice name)
{
    static const char *const ours[] = {"X-Call-Id",
                                       "X-Call-Id-Source",
                                       "Call-Outcome",
                                       "Idempotent-Replayed",
                                       "X-Original-Call-Id",
                                       "X-Suspected-Duplicate",
                                       NULL};
    return name_in(name, ours);
}

bool field_is_kept(struct slice name, const struct text_list *own_list)
{
    static const char *const never[] = {"Set-Cookie", "Set-Cookie2", "Content-Length", "Date", NULL};
    static const char *const kept[] = {"Location", "ETag", "Link", "Last-Modified", "Retry-After", NULL};
    if (name_in(name, never))
        return false;
    if (name.len > 8 && slice_is_nocase(slice_of(name.data, 8), "Content-"))
        return true;
    if (name_in(name, kept))
        return true;
    for (size_t i = 0; i < own_list->count; i++) {
        if (slice_is_nocase(name, own_list->items[i]))
            return true;
    }
    return false;
}

static bool goes_to_caller(const struct headers *all, struct slice name)
{
    return !slice_is_nocase(name, "Content-Length") && !slice_is_nocase(name, "Date") &&
           !field_is_ours(name) && !field_is_hop(all, name);
}

static void append_field(struct buffer *out, const struct header *h)
{
    buffer_slice(out, h->name);
    buffer_text(out, ": ");
    buffer_slice(out, h->value);
    buffer_text(out, "\r\n");
}

void answer_upstream_lines(struct buffer *out, const struct headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        if (goes_to_caller(headers, headers->list[i].name))
            append_field(out, &headers->list[i]);
    }
}

void answer_kept_lines(struct buffer *out, const struct headers *headers, const struct text_list *own_list)
{
    for (size_t i = 0; i < headers->count; i++) {
        const struct header *h = &headers->list[i];
        if (goes_to_caller(headers, h->name) && field_is_kept(h->name, own_list))
            append_field(out, h);
    }
}

bool bearer_fits(const struct headers *headers, struct slice token)
{
    static const char scheme[] = "Bearer ";
    size_t skip = sizeof scheme - 1;
    struct slice given = headers_get(headers, "Authorization", NULL);
    if (!token.len || given.len != skip + token.len || !slice_is_nocase(slice_of(given.data, skip), scheme))
        return false;
    return CRYPTO_memcmp(given.data + skip, token.data, token.len) == 0;
}
