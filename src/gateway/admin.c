/* SPDX-License-Identifier: MIT */
#include "gateway/admin.h"

#include "gateway/admin_parts.h"
#include "gateway/answer.h"
#include "gateway/console.h"
#include "gateway/endings.h"
#include "gateway/gateway.h"
#include "gateway/receipts.h"
#include "gateway/visit.h"

#include <openssl/crypto.h>
#include <stdlib.h>

/* The console's page may load and ask its own address, and nothing else. */
static const char console_lines[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-cache\r\n";

bool admin_address_is_local(const char *address)
{
    static const char *const local[] = {"127.", "localhost:", "[::1]:", "unix:"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (strncmp(address, local[i], strlen(local[i])) == 0)
            return true;
    }
    return false;
}

/* ---- answers without an inquiry ----------------------------------------------------------------------------- */

static void answer_text(struct request *request, int status, const char *type, struct slice body)
{
    struct buffer lines = {0};
    line_append(&lines, "Content-Type", slice_text(type));
    buffer_text(&lines, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    request_answer(request, status, buffer_view(&lines), body);
    buffer_fini(&lines);
}

void admin_problem(struct request *request, enum problem problem, const struct problem_facts *facts)
{
    struct buffer lines = {0}, body = {0};
    buffer_text(&lines, "Content-Type: application/problem+json\r\nCache-Control: no-store\r\n"
                        "X-Content-Type-Options: nosniff\r\n");
    if (facts->retry_after_s >= 0)
        buffer_format(&lines, "Retry-After: %lld\r\n", (long long)facts->retry_after_s);
    if (problem == PROBLEM_UNAUTHORIZED)
        buffer_text(&lines, "WWW-Authenticate: Bearer\r\n");
    if (facts->allow.len) /* RFC 9110 section 15.5.6 */
        line_append(&lines, "Allow", facts->allow);
    problem_document(&body, problem, facts);
    request_answer(request, problem_answer_status(problem, facts), buffer_view(&lines), buffer_view(&body));
    buffer_fini(&lines);
    buffer_fini(&body);
}

static void refuse(struct admin *admin, struct request *request, enum problem problem, const char *detail,
                   int64_t retry_after_s)
{
    struct problem_facts facts = {.detail = slice_text(detail),
                                  .state = STATE_NOT_RECEIVED,
                                  .next = NEXT_FIX_REQUEST,
                                  .retry_after_s = retry_after_s};
    metrics_add(admin->shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    admin_problem(request, problem, &facts);
}

static void answer_console(struct request *request, const struct console_asset *asset)
{
    struct buffer lines = {0};
    struct slice known = headers_get(&request_head(request)->headers, "If-None-Match", NULL);
    bool same = slice_is(known, asset->etag);
    line_append(&lines, "Content-Type", slice_text(asset->type));
    line_append(&lines, "ETag", slice_text(asset->etag));
    if (asset->gzip && !same)
        line_append(&lines, "Content-Encoding", slice_text("gzip"));
    buffer_text(&lines, console_lines);
    request_answer(request, same ? 304 : 200, buffer_view(&lines),
                   slice_of((const char *)asset->bytes, same ? 0 : asset->size));
    buffer_fini(&lines);
}

/* ---- a wrong token ------------------------------------------------------------------------------------------ */

/* The answer to a wrong token, which waits. */
struct late {
    struct guest guest;
    struct admin *admin;
    struct request *request; /* NULL: gone, or answered */
    struct net_timer timer;
    struct buffer peer;
};

static void late_body(struct guest *guest, struct slice piece)
{
    (void)guest, (void)piece;
}

static void late_event(struct guest *guest)
{
    (void)guest;
}

static void late_finished(struct guest *guest, bool gone)
{
    struct late *late = LIST_ENTRY(guest, struct late, guest);
    (void)gone;
    net_timer_disarm(late->admin->shard->loop, &late->timer);
    guess_over(&late->admin->guesses, buffer_view(&late->peer));
    late->admin->shard->visits--;
    buffer_fini(&late->peer);
    free(late);
}

static void late_over(struct net_timer *timer)
{
    struct late *late = LIST_ENTRY(timer, struct late, timer);
    struct request *request = late->request;
    late->request = NULL;
    if (request)
        refuse(late->admin, request, PROBLEM_UNAUTHORIZED,
               "the token is wrong: send Authorization: Bearer with the token of admin_token_file", -1);
}

void admin_refuse_token(struct admin *admin, struct request *request)
{
    struct shard *shard = admin->shard;
    struct late *late = calloc(1, sizeof *late);
    int64_t now = net_loop_now(shard->loop);
    log_event(shard->log, LOG_LEVEL_WARNING, clock_wall_ms(), slice_of("", 0), "admin_token_refused",
              LOG_TEXT("peer", request_peer(request)), LOG_TEXT("path", request_head(request)->path));
    if (!late) {
        request_abort(request);
        return;
    }
    late->guest = (struct guest){late_body, late_event, late_event, late_finished};
    late->admin = admin;
    late->request = request;
    buffer_slice(&late->peer, request_peer(request));
    shard->visits++;
    request_set_user(request, &late->guest);
    net_timer_arm(shard->loop, &late->timer,
                  now + guess_wrong(&admin->guesses, buffer_view(&late->peer), now), late_over);
}

/* ---- who asks ----------------------------------------------------------------------------------------------- */

static bool token_is(const struct buffer *token, struct slice given)
{
    return token->len && given.len == token->len && CRYPTO_memcmp(given.data, token->data, token->len) == 0;
}

enum role admin_token_role(const struct setup *setup, struct slice token)
{
    bool operates = token_is(&setup->admin_token, token), reads = token_is(&setup->admin_read_token, token);
    return operates ? ROLE_OPERATOR : reads ? ROLE_READER : ROLE_NONE;
}

uint64_t admin_token_mark(const struct setup *setup, enum role role)
{
    const struct buffer *token = role == ROLE_OPERATOR ? &setup->admin_token : &setup->admin_read_token;
    uint64_t mark =
        UINT64_C(0xcbf29ce484222325); /* FNV-1a: only to see that it changed; it is never told to anybody */
    for (size_t i = 0; i < token->len; i++)
        mark = (mark ^ (unsigned char)token->data[i]) * UINT64_C(0x100000001b3);
    return mark;
}

static bool reads_only(const struct request_head *head)
{
    return slice_is(head->method, "GET") || slice_is(head->method, "HEAD");
}

/* A browser says where a page is from that sends a change; whatever else sends one says nothing. */
static bool of_this_origin(const struct request_head *head)
{
    struct slice host = headers_get(&head->headers, "Host", NULL);
    struct slice site = headers_get(&head->headers, "Sec-Fetch-Site", NULL);
    bool has_origin;
    struct slice origin = headers_get(&head->headers, "Origin", &has_origin);
    if (site.len && !slice_is(site, "same-origin") && !slice_is(site, "none"))
        return false;
    if (!has_origin)
        return true;
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t len = strlen(schemes[i]);
        if (origin.len > len && memcmp(origin.data, schemes[i], len) == 0 &&
            slice_equal_nocase(slice_of(origin.data + len, origin.len - len), host))
            return true;
    }
    return false;
}

/* Without a token only this machine may ask, and a browser on it must not ask for somebody else: a page whose name was
 * pointed at this address (DNS rebinding) sends that name as Host. */
static bool of_this_machine(const struct request_head *head)
{
    struct slice host = headers_get(&head->headers, "Host", NULL);
    const char *colon = host.len && host.data[0] != '[' ? memchr(host.data, ':', host.len) : NULL;
    if (colon)
        host.len = (size_t)(colon - host.data);
    if (slice_is_nocase(host, "localhost"))
        return true;
    if (host.len && host.data[0] == '[')
        return host.len >= 5 && memcmp(host.data, "[::1]", 5) == 0 && (host.len == 5 || host.data[5] == ':');
    /* An address of this machine, and not a name that begins like one. */
    for (size_t i = 0; i < host.len; i++)
        if (!(host.data[i] >= '0' && host.data[i] <= '9') && host.data[i] != '.')
            return false;
    return host.len > 4 && memcmp(host.data, "127.", 4) == 0;
}

/* Finds out who asks. False: it was refused. ROLE_NONE with ACCESS_NOBODY: neither token nor session came along. */
static bool find_access(struct admin *admin, struct request *request, struct access *access)
{
    static const char scheme[] = "Bearer ";
    const struct request_head *head = request_head(request);
    const struct setup *setup = shard_setup(admin->shard);
    bool has_authorization;
    struct slice given = headers_get(&head->headers, "Authorization", &has_authorization);
    *access = (struct access){.role = ROLE_NONE};
    if (!setup->admin_token.len && !setup->admin_read_token.len) {
        if (!of_this_machine(head)) {
            refuse(admin, request, PROBLEM_UNAUTHORIZED,
                   "without admin_token_file only loopback names are served here: ask for 127.0.0.1 or "
                   "localhost",
                   -1);
            return false;
        }
        access->role = ROLE_OPERATOR;
        access->by = ACCESS_LOCAL;
        return true;
    }
    if (has_authorization) {
        if (guess_crowded(&admin->guesses, request_peer(request))) {
            refuse(admin, request, PROBLEM_RATE_LIMITED,
                   "too many wrong tokens came from this address; none is looked at for a moment", 5);
            return false;
        }
        size_t skip = sizeof scheme - 1;
        if (given.len > skip && slice_is_nocase(slice_of(given.data, skip), scheme))
            access->role = admin_token_role(setup, slice_of(given.data + skip, given.len - skip));
        if (access->role == ROLE_NONE) {
            admin_refuse_token(admin, request);
            return false;
        }
        access->by = ACCESS_TOKEN;
        return true;
    }
    struct slice cookie = session_cookie(headers_get(&head->headers, "Cookie", NULL));
    const struct session *session =
        cookie.len ? session_find(&admin->sessions, cookie, net_loop_now(admin->shard->loop)) : NULL;
    if (session && session->token_mark != admin_token_mark(setup, session->role)) {
        session_end(&admin->sessions, cookie); /* the token was changed: sign in anew */
        session = NULL;
    }
    if (session) {
        access->role = session->role;
        access->by = ACCESS_SESSION;
        access->session = *session;
    }
    return true;
}

/* Whether a change may be made: by role, and from a page only by our own. False: it was refused. */
static bool may_change(struct admin *admin, struct request *request, const struct access *access,
                       bool own_session)
{
    const struct request_head *head = request_head(request);
    if (!of_this_origin(head)) {
        refuse(admin, request, PROBLEM_CSRF_MISSING, "a page of another origin changes nothing here", -1);
        return false;
    }
    if (access->by == ACCESS_SESSION &&
        !session_owns(&access->session, headers_get(&head->headers, "X-CSRF-Token", NULL))) {
        refuse(admin, request, PROBLEM_CSRF_MISSING,
               "send the session's csrf (GET /v1/session) as X-CSRF-Token", -1);
        return false;
    }
    if (access->role != ROLE_OPERATOR && !own_session) {
        refuse(admin, request, PROBLEM_READ_ONLY, "this needs the token of admin_token_file", -1);
        return false;
    }
    return true;
}

/* ---- addresses ---------------------------------------------------------------------------------------------- */

struct address {
    const char *method, *path; /* a '*' in the path is one id */
    void (*act)(struct inquiry *q);
};

/* In this order: a path without an id before one with it. */
static const struct address addresses[] = {
    {"GET", "/v1/session", admin_session_show},
    {"POST", "/v1/session", admin_session_begin},
    {"DELETE", "/v1/session", admin_session_end},
    {"GET", "/v1/overview", admin_overview},
    {"GET", "/v1/calls", admin_calls},
    {"GET", "/v1/calls/*", admin_call},
    {"POST", "/v1/calls/*/erase", admin_call_erase},
    {"GET", "/v1/compensations", admin_tasks},
    {"POST", "/v1/compensations/resolve", admin_tasks_resolve},
    {"GET", "/v1/compensations/*", admin_task},
    {"POST", "/v1/compensations/*/resolve", admin_task_resolve},
    {"POST", "/v1/compensations/*/run", admin_task_run},
    {"GET", "/v1/audit", admin_audit},
    {"GET", "/v1/suspects", admin_suspects},
};

static bool path_fits(const char *pattern, struct slice path, struct slice *id)
{
    *id = slice_of("", 0);
    const char *star = strchr(pattern, '*');
    if (!star)
        return slice_is(path, pattern);
    size_t before = (size_t)(star - pattern), after = strlen(star + 1);
    if (path.len <= before + after || memcmp(path.data, pattern, before) != 0 ||
        memcmp(path.data + path.len - after, star + 1, after) != 0)
        return false;
    *id = slice_of(path.data + before, path.len - before - after);
    return !memchr(id->data, '/', id->len);
}

/* NULL: `known` says whether the path is one of ours with another method. */
static const struct address *find_address(const struct request_head *head, struct slice *id, bool *known)
{
    *known = false;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        const struct address *a = &addresses[i];
        if (!path_fits(a->path, head->path, id))
            continue;
        *known = true;
        if (slice_is(head->method, a->method) ||
            (slice_is(head->method, "HEAD") && strcmp(a->method, "GET") == 0))
            return a;
    }
    return NULL;
}

static void refuse_method(struct admin *admin, struct request *request, struct slice path)
{
    struct buffer allow = {0};
    struct slice id;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        const struct address *a = &addresses[i];
        if (path_fits(a->path, path, &id))
            buffer_format(&allow, "%s%s%s", allow.len ? ", " : "", a->method,
                          strcmp(a->method, "GET") == 0 ? ", HEAD" : "");
    }
    struct problem_facts facts = {.state = STATE_NOT_RECEIVED,
                                  .next = NEXT_FIX_REQUEST,
                                  .retry_after_s = -1,
                                  .allow = buffer_view(&allow)};
    metrics_add(admin->shard->counts, METRIC_refusals, 0, PROBLEM_METHOD_NOT_ALLOWED, 1);
    admin_problem(request, PROBLEM_METHOD_NOT_ALLOWED, &facts);
    buffer_fini(&allow);
}

static bool path_begins(struct slice path, const char *prefix)
{
    size_t len = strlen(prefix);
    return path.len > len && memcmp(path.data, prefix, len) == 0;
}

/* What needs nobody's word. True: it was answered. */
static bool serve_open(struct admin *admin, struct request *request)
{
    const struct request_head *head = request_head(request);
    if (!reads_only(head))
        return false;
    const struct console_asset *asset = console_find(head->path);
    if (slice_is(head->path, "/healthz")) {
        answer_text(request, 200, "text/plain; charset=utf-8", slice_text("alive\n"));
    } else if (slice_is(head->path, "/readyz")) {
        bool ready = gateway_ready(admin->shard->gateway);
        struct buffer words = {0};
        buffer_format(&words, "%s%s", ready ? "ready\n" : "not ready\n",
                      gateway_cache_words(admin->shard->gateway));
        answer_text(request, ready ? 200 : 503, "text/plain; charset=utf-8", buffer_view(&words));
        buffer_fini(&words);
    } else if (asset) {
        answer_console(request, asset);
    } else if (slice_is(head->path, "/")) {
        answer_text(
            request, 200, "text/plain; charset=utf-8",
            slice_text("samekey " SAMEKEY_VERSION "\nThis program was built without its console (npm was not "
                       "there).\nThe API is here: /v1/overview /v1/calls /v1/compensations /metrics\n"));
    } else {
        return false;
    }
    return true;
}

static void on_head(void *context, struct request *request)
{
    struct admin *admin = context;
    const struct request_head *head = request_head(request);
    struct access access;
    struct slice id;
    bool known, metrics = slice_is(head->path, "/metrics") && reads_only(head);
    bool receipts = path_begins(head->path, RECEIPTS_PREFIX);
    request_set_user(request, NULL);
    if (serve_open(admin, request) || !find_access(admin, request, &access))
        return;
    const struct address *address = find_address(head, &id, &known);
    bool own_session = address && strcmp(address->path, "/v1/session") == 0;
    if (access.role == ROLE_NONE && !(own_session && !slice_is(head->method, "DELETE"))) {
        log_event(admin->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "admin_token_missing",
                  LOG_TEXT("peer", request_peer(request)), LOG_TEXT("path", head->path));
        refuse(admin, request, PROBLEM_UNAUTHORIZED,
               "send Authorization: Bearer with the token of admin_token_file, or sign in", -1);
        return;
    }
    if (!reads_only(head) && !may_change(admin, request, &access, own_session))
        return;
    if (metrics) {
        struct buffer text = {0};
        endings_ratios(admin->shard->metrics);
        metrics_write(admin->shard->metrics, &text);
        answer_text(request, 200, METRICS_CONTENT_TYPE, buffer_view(&text));
        buffer_fini(&text);
    } else if (receipts) {
        receipts_begin(admin->shard, request, true);
    } else if (address) {
        inquiry_begin(admin, request, &access, id, address->act);
    } else if (known) {
        refuse_method(admin, request, head->path);
    } else {
        refuse(
            admin, request, PROBLEM_NO_ROUTE,
            "the admin listener knows /metrics, /healthz, /readyz and what docs/admin-api.md lists under /v1",
            -1);
    }
}

static void on_refused(void *context, int status, const char *reason, struct buffer *out)
{
    struct admin *admin = context;
    guest_refused(admin->shard, status, reason, out);
}

const struct server_handlers admin_handlers = {on_head,     guest_body,     guest_body_end,
                                               guest_drain, guest_finished, on_refused};

/* ---- its life ----------------------------------------------------------------------------------------------- */

static void on_tick(struct net_timer *timer)
{
    struct admin *admin = LIST_ENTRY(timer, struct admin, tick);
    struct shard *shard = admin->shard;
    latency_keep(&admin->latency, shard->metrics);
    net_timer_arm(shard->loop, timer, net_loop_now(shard->loop) + LATENCY_STEP_MS, on_tick);
}

enum status admin_new(struct admin **out, struct shard *home)
{
    struct admin *admin = calloc(1, sizeof *admin);
    if (!admin)
        return STATUS_NO_MEMORY;
    admin->shard = home;
    admin->started_ms = clock_wall_ms();
    on_tick(&admin->tick);
    *out = admin;
    return STATUS_OK;
}

void admin_stop(struct admin *admin)
{
    if (admin)
        net_timer_disarm(admin->shard->loop, &admin->tick);
}

void admin_free(struct admin *admin)
{
    free(admin);
}
