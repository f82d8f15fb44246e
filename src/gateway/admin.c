/* SPDX-License-Identifier: MIT */
#include "gateway/admin.h"

#include "gateway/answer.h"
#include "gateway/endings.h"
#include "gateway/gateway.h"
#include "gateway/receipts.h"
#include "gateway/visit.h"

bool admin_address_is_local(const char *address)
{
    static const char *const local[] = {"127.", "localhost:", "[::1]:", "unix:"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (strncmp(address, local[i], strlen(local[i])) == 0)
            return true;
    }
    return false;
}

static void answer_text(struct request *request, int status, const char *type, struct slice body)
{
    struct buffer lines = {0};
    line_append(&lines, "Content-Type", slice_text(type));
    buffer_text(&lines, "Cache-Control: no-store\r\n");
    request_answer(request, status, buffer_view(&lines), body);
    buffer_fini(&lines);
}

static void refuse(struct shard *shard, struct request *request, enum problem problem, const char *detail)
{
    struct problem_facts facts = {.detail = slice_text(detail),
                                  .state = STATE_NOT_RECEIVED,
                                  .next = NEXT_FIX_REQUEST,
                                  .retry_after_s = -1};
    struct answer_facts own = {0};
    metrics_add(shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    problem_answer(request, problem, &facts, &own);
}

static bool token_fits(const struct shard *shard, const struct request_head *head)
{
    struct slice token = buffer_view(&shard_setup(shard)->admin_token);
    /* Without a token the address is loopback, or nothing would have started. */
    return !token.len || bearer_fits(&head->headers, token);
}

/* Without a token only this machine may ask, and a browser on it must not ask for somebody else: a page whose name was
 * pointed at this address (DNS rebinding) sends that name as Host, and any page of another origin sends Origin. */
static bool asked_from_here(const struct request_head *head)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    struct slice host = headers_get(&head->headers, "Host", NULL);
    bool origin = headers_count(&head->headers, "Origin") > 0;
    bool reads = slice_is(head->method, "GET") || slice_is(head->method, "HEAD");
    if (origin && !reads)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i]);
        if (host.len >= len && slice_is_nocase(slice_of(host.data, len), names[i]) &&
            (host.len == len || host.data[len] == ':'))
            return true;
    }
    return host.len > 4 && memcmp(host.data, "127.", 4) == 0;
}

static bool path_begins(struct slice path, const char *prefix)
{
    size_t len = strlen(prefix);
    return path.len > len && memcmp(path.data, prefix, len) == 0;
}

static void on_head(void *context, struct request *request)
{
    struct shard *shard = context;
    const struct request_head *head = request_head(request);
    bool reads = slice_is(head->method, "GET") || slice_is(head->method, "HEAD");
    request_set_user(request, NULL);
    if (slice_is(head->path, "/healthz") && reads) {
        answer_text(request, 200, "text/plain; charset=utf-8", slice_text("alive\n"));
        return;
    }
    if (slice_is(head->path, "/readyz") && reads) {
        bool ready = gateway_ready(shard->gateway);
        struct buffer words = {0};
        buffer_format(&words, "%s%s", ready ? "ready\n" : "not ready\n", gateway_cache_words(shard->gateway));
        answer_text(request, ready ? 200 : 503, "text/plain; charset=utf-8", buffer_view(&words));
        buffer_fini(&words);
        return;
    }
    if (!shard_setup(shard)->admin_token.len && !asked_from_here(head)) {
        refuse(shard, request, PROBLEM_UNAUTHORIZED,
               "without admin_token_file only loopback names are served here, and no page of another origin");
        return;
    }
    if (!token_fits(shard, head)) {
        log_event(shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), slice_of("", 0), "admin_token_refused",
                  LOG_TEXT("peer", request_peer(request)), LOG_TEXT("path", head->path));
        refuse(shard, request, PROBLEM_UNAUTHORIZED,
               "send Authorization: Bearer with the token of admin_token_file");
        return;
    }
    if (slice_is(head->path, "/metrics") && reads) {
        struct buffer text = {0};
        endings_ratios(shard->metrics);
        metrics_write(shard->metrics, &text);
        answer_text(request, 200, METRICS_CONTENT_TYPE, buffer_view(&text));
        buffer_fini(&text);
        return;
    }
    if (path_begins(head->path, RECEIPTS_PREFIX) || (path_begins(head->path, "/v1/calls/") && reads)) {
        receipts_begin(shard, request, true);
        return;
    }
    if (slice_is(head->path, "/") && reads) {
        answer_text(request, 200, "text/plain; charset=utf-8",
                    slice_text("samekey " SAMEKEY_VERSION "\nThis build has no console. "
                               "/metrics /healthz /readyz /v1/calls/CALLID\n"));
        return;
    }
    refuse(shard, request, PROBLEM_NO_ROUTE,
           "the admin listener knows /metrics, /healthz, /readyz and /v1/calls/CALLID");
}

const struct server_handlers admin_handlers = {on_head,     guest_body,     guest_body_end,
                                               guest_drain, guest_finished, guest_refused};
