/* SPDX-License-Identifier: MIT
 *
 * /v1/session: who am I, sign in, sign out.
 */
#include "base/json_text.h"
#include "gateway/admin_parts.h"

static const char *by_text(enum access_by by)
{
    static const char *const texts[] = {"", "local", "token", "session"};
    return texts[by];
}

static void document(struct inquiry *q, const struct access *access, struct buffer *out)
{
    const struct setup *setup = q->outlets->setup;
    int64_t left = access->session.end_ms - net_loop_now(q->admin->shard->loop);
    bool session = access->by == ACCESS_SESSION;
    const char *slash = strchr(q->admin->shard->owner, '/');
    size_t node = slash ? (size_t)(slash - q->admin->shard->owner) : 0;
    buffer_byte(out, '{');
    member_text(out, "role", slice_text(role_text(access->role)));
    member_text(out, "by", slice_text(by_text(access->by)));
    member_bool(out, "token_required", setup->admin_token.len > 0 || setup->admin_read_token.len > 0);
    member_text(out, "csrf", session ? slice_text(access->session.csrf) : slice_of("", 0));
    member_time(out, "expires_at", session ? clock_wall_ms() + left : 0);
    member_text(out, "version", slice_text(SAMEKEY_VERSION));
    member_text(out, "node", slice_of(q->admin->shard->owner, node));
    buffer_text(out, "}\n");
}

void admin_session_show(struct inquiry *q)
{
    struct buffer out = {0};
    document(q, &q->access, &out);
    inquiry_answer(q, 200, &out);
    buffer_fini(&out);
}

/* Behind TLS the cookie must never go out without it. */
static bool came_by_tls(const struct request_head *head)
{
    struct slice proto = headers_get(&head->headers, "X-Forwarded-Proto", NULL);
    struct slice forwarded = headers_get(&head->headers, "Forwarded", NULL);
    static const char https[] = "proto=https";
    if (slice_is_nocase(proto, "https"))
        return true;
    for (size_t i = 0; i + sizeof https - 1 <= forwarded.len; i++)
        if (slice_is_nocase(slice_of(forwarded.data + i, sizeof https - 1), https))
            return true;
    return false;
}

static void answer_with_cookie(struct inquiry *q, const struct access *access, const char *cookie,
                               int64_t seconds)
{
    struct buffer out = {0}, lines = {0};
    struct request *request = q->request;
    document(q, access, &out);
    buffer_format(
        &lines,
        "Content-Type: application/json\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "Set-Cookie: " SESSION_COOKIE "=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Strict%s\r\n",
        cookie, (long long)seconds, came_by_tls(request_head(request)) ? "; Secure" : "");
    q->request = NULL;
    request_answer(request, 200, buffer_view(&lines), buffer_view(&out));
    buffer_fini(&lines);
    buffer_fini(&out);
}

void admin_session_begin(struct inquiry *q)
{
    static const char *const members[] = {"token", NULL};
    struct admin *admin = q->admin;
    const struct setup *setup = q->outlets->setup;
    struct slice token;
    if (!inquiry_members(q, q->json, "the body", members) || !inquiry_text(q, "token", &token))
        return;
    if (q->access.by == ACCESS_LOCAL) {
        admin_session_show(q); /* nothing to sign in to */
        return;
    }
    if (guess_crowded(&admin->guesses, request_peer(q->request))) {
        inquiry_refuse(q, PROBLEM_RATE_LIMITED, NULL,
                       "too many wrong tokens came from this address; none is looked at for a moment");
        return;
    }
    enum role role = admin_token_role(setup, token);
    if (role == ROLE_NONE) {
        struct request *request = q->request;
        q->request = NULL;
        admin_refuse_token(admin, request); /* its guest from now on is the one who waits */
        inquiry_drop(q);
        return;
    }
    const struct session *session = session_begin(&admin->sessions, role, admin_token_mark(setup, role),
                                                  net_loop_now(admin->shard->loop));
    if (!session) {
        inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "the kernel gave no random bytes; try again");
        return;
    }
    struct access access = {.role = role, .by = ACCESS_SESSION, .session = *session};
    log_event(admin->shard->log, LOG_LEVEL_INFO, clock_wall_ms(), slice_of("", 0), "admin_signed_in",
              LOG_TEXT("peer", request_peer(q->request)), LOG_STRING("role", role_text(role)));
    answer_with_cookie(q, &access, session->cookie, SESSION_LIFE_MS / 1000);
}

void admin_session_end(struct inquiry *q)
{
    struct access nobody = {.role = ROLE_NONE};
    if (q->access.by != ACCESS_SESSION) {
        admin_session_show(q); /* there is none to end */
        return;
    }
    session_end(&q->admin->sessions, slice_text(q->access.session.cookie));
    answer_with_cookie(q, &nobody, "", 0);
}
