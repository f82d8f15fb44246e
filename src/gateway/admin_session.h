/* SPDX-License-Identifier: MIT
 *
 * Sessions of people at the console: a cookie that scripts cannot read, and a second secret that only scripts of our own
 * page can have, without which a cookie changes nothing (cross-site request forgery).
 *
 * Always true:
 *  (1) Both secrets are SESSION_SECRET_BYTES from the kernel, in hexadecimal, and are compared in constant time.
 *  (2) A session ends after SESSION_LIFE_MS, after SESSION_IDLE_MS without a request, when its token is not the
 *      gateway's any more (reload), and with the process: they are only in memory.
 *  (3) There are at most SESSIONS_MAX; a new one takes the place of the one that was silent longest.
 */
#ifndef SAMEKEY_GATEWAY_ADMIN_SESSION_H
#define SAMEKEY_GATEWAY_ADMIN_SESSION_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define SESSIONS_MAX         64
#define SESSION_SECRET_BYTES 32
#define SESSION_TEXT_BYTES   (2 * SESSION_SECRET_BYTES + 1) /* with the NUL */
#define SESSION_LIFE_MS      (8 * 3600 * 1000)
#define SESSION_IDLE_MS      (3600 * 1000)
#define SESSION_COOKIE       "samekey_session"

/* Who may do what. A later one may do all that an earlier one may. */
enum role { ROLE_NONE, ROLE_READER, ROLE_OPERATOR };
const char *role_text(enum role role);

struct session {
    char cookie[SESSION_TEXT_BYTES], csrf[SESSION_TEXT_BYTES];
    enum role role;          /* ROLE_NONE: a free place */
    int64_t end_ms, seen_ms; /* monotonic */
    uint64_t token_mark;     /* of the token it began with */
};

struct sessions { /* starts as zero bytes */
    struct session list[SESSIONS_MAX];
};

/* Begins a session; borrowed until the next call. NULL: the kernel gave no random bytes. */
const struct session *session_begin(struct sessions *s, enum role role, uint64_t token_mark, int64_t now_ms);
/* The living session of this cookie, seen now; NULL: there is none. Borrowed until the next call. */
const struct session *session_find(struct sessions *s, struct slice cookie, int64_t now_ms);
/* Whether `csrf` is the session's. */
bool session_owns(const struct session *session, struct slice csrf);
void session_end(struct sessions *s, struct slice cookie);

/* The value of SESSION_COOKIE in a Cookie header; empty: it is not there. */
struct slice session_cookie(struct slice header);

#endif
