/* SPDX-License-Identifier: MIT */
#include "gateway/admin_session.h"

#include "base/hex.h"

#include <openssl/crypto.h>
#include <sys/random.h>

const char *role_text(enum role role)
{
    static const char *const texts[] = {"none", "reader", "operator"};
    return texts[role];
}

static bool make_secret(char text[SESSION_TEXT_BYTES])
{
    uint8_t bytes[SESSION_SECRET_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    hex_write(text, bytes, sizeof bytes);
    text[2 * sizeof bytes] = '\0';
    return true;
}

static bool same(const char text[SESSION_TEXT_BYTES], struct slice given)
{
    return given.len == SESSION_TEXT_BYTES - 1 && CRYPTO_memcmp(text, given.data, given.len) == 0;
}

static bool lives(const struct session *session, int64_t now_ms)
{
    return session->role != ROLE_NONE && now_ms < session->end_ms &&
           now_ms - session->seen_ms < SESSION_IDLE_MS;
}

const struct session *session_begin(struct sessions *s, enum role role, uint64_t token_mark, int64_t now_ms)
{
    struct session *place = &s->list[0];
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *each = &s->list[i];
        if (!lives(each, now_ms)) {
            place = each;
            break;
        }
        if (each->seen_ms < place->seen_ms)
            place = each;
    }
    struct session made = {
        .role = role, .end_ms = now_ms + SESSION_LIFE_MS, .seen_ms = now_ms, .token_mark = token_mark};
    if (!make_secret(made.cookie) || !make_secret(made.csrf))
        return NULL;
    *place = made;
    return place;
}

const struct session *session_find(struct sessions *s, struct slice cookie, int64_t now_ms)
{
    struct session *found = NULL;
    for (size_t i = 0; i < SESSIONS_MAX; i++) { /* all of them, whichever fits */
        if (lives(&s->list[i], now_ms) && same(s->list[i].cookie, cookie))
            found = &s->list[i];
    }
    if (found)
        found->seen_ms = now_ms;
    return found;
}

bool session_owns(const struct session *session, struct slice csrf)
{
    return same(session->csrf, csrf);
}

void session_end(struct sessions *s, struct slice cookie)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (s->list[i].role != ROLE_NONE && same(s->list[i].cookie, cookie))
            OPENSSL_cleanse(&s->list[i], sizeof s->list[i]);
}

struct slice session_cookie(struct slice header)
{
    static const char name[] = SESSION_COOKIE "=";
    while (header.len) {
        const char *stop = memchr(header.data, ';', header.len);
        size_t len = stop ? (size_t)(stop - header.data) : header.len;
        struct slice pair = slice_trim(slice_of(header.data, len));
        if (pair.len >= sizeof name - 1 && memcmp(pair.data, name, sizeof name - 1) == 0)
            return slice_of(pair.data + (sizeof name - 1), pair.len - (sizeof name - 1));
        header = slice_of(header.data + len + (stop != NULL), header.len - len - (stop != NULL));
    }
    return slice_of("", 0);
}
