/* SPDX-License-Identifier: MIT
 *
 * The HTTP/1.1 server: bytes of a caller in, requests out; answers in, bytes out. It knows nothing of calls and
 * receipts.
 *
 *   on_head ──▶ (request_read_body) ──▶ on_body* ──▶ on_body_end ──▶ answer ──▶ on_finished
 *      └──────────────── answer at once ────────────────────────────┘
 *
 * Always true:
 *  (1) One request at a time is under way on a connection. Bytes of pipelined requests wait (at most
 *      `pipeline_bytes_max`, then reading stops), so answers leave in the order of their requests.
 *  (2) on_finished is the last event of every request, exactly once, also when the caller went away; after it
 *      the request's memory is the server's again. `gone` says whether the answer could not be delivered whole.
 *      When the connection breaks it comes from the loop, before any answer was given: let go of the request
 *      then. It comes inside request_answer(), request_end() only when all bytes were taken at once, and never
 *      inside the other functions.
 *  (3) The body is not read before request_read_body() is called, and `100 Continue` is sent at that moment if
 *      the caller expects it (RFC 9110 section 10.1.1). An answer given before the whole body was read closes
 *      the connection after a bounded drain (RFC 9112 section 9.6).
 *  (4) What could be read in two ways is refused (RFC 9112 sections 5, 6.1, 6.3, 11.2): two lengths, length with
 *      chunked, unknown transfer codings, bare LF and bare CR, obs-fold, white space before the colon, no Host
 *      or two Hosts, a chunk size with a sign, 0x or too many digits, NUL and controls in fields, HTTP/0.9,
 *      versions other than 1.0 and 1.1. The answer is the parser's own problem through on_refused, and the
 *      connection is closed.
 *  (5) Every wait has a bound: head, body and write progress, and idle.
 *  (6) A caller that closes its sending half (shutdown) after a whole request still gets its answer.
 */
#ifndef SAMEKEY_NET_SERVER_H
#define SAMEKEY_NET_SERVER_H

#include "base/buffer.h"
#include "net/header.h"
#include "net/loop.h"

struct net_server;
struct request;

struct server_limits {
    size_t headers_bytes_max;  /* request line and header fields together */
    size_t headers_count_max;  /* header fields */
    size_t pipeline_bytes_max; /* bytes that wait behind the running request */
    size_t write_buffer_high;  /* answer bytes waiting for a slow caller before request_write() says "full" */
    uint32_t connections_max;  /* accepted connections; more are closed at once */
    uint32_t header_timeout_ms; /* from the first byte of a request to the end of its head */
    uint32_t body_timeout_ms;   /* without one byte of the body */
    uint32_t write_timeout_ms;  /* without one byte taken by the caller */
    uint32_t idle_timeout_ms;   /* between requests */
};

/* The head of a request; borrowed until on_finished. */
struct request_head {
    struct slice method;
    struct slice target;      /* as received: path and query, or the absolute form */
    struct slice path, query; /* of the target; query without '?' */
    struct headers headers;
    int minor; /* 0 or 1 of HTTP/1.x */
    bool expect_continue;
    bool has_body;
    int64_t content_length; /* bytes, or -1 when chunked */
    bool keep_alive;        /* the caller's wish */
};

struct server_handlers {
    /* The head is complete. Answer, or call request_read_body(); one of them may also happen later. */
    void (*on_head)(void *context, struct request *request);
    /* A piece of the body; borrowed until the call returns. */
    void (*on_body)(void *context, struct request *request, struct slice piece);
    /* The body is complete; not called for requests without a body or when it was not read. */
    void (*on_body_end)(void *context, struct request *request);
    /* request_write() said "full" and the caller has taken enough again. */
    void (*on_drain)(void *context, struct request *request);
    /* Last event, see (2). */
    void (*on_finished)(void *context, struct request *request, bool gone);
    /* The bytes were refused before a request came to be, or while its body was read (then the request's
     * on_finished follows): fill `head_and_body` with a whole HTTP/1.1 answer including "Connection: close".
     * status: 400, 408, 413, 431, 505 …; reason: a sentence that names the place. */
    void (*on_refused)(void *context, int status, const char *reason, struct buffer *head_and_body);
};

/* Listens on "127.0.0.1:8080", "[::1]:8080" or "unix:/path". With reuse_port, several loops may each listen on
 * one TCP address (SO_REUSEPORT). A stale unix socket file whose owner is gone is replaced; one with a living
 * owner is STATUS_CONFLICT. STATUS_INVALID: the address cannot be read; STATUS_CONFLICT: in use; STATUS_IO:
 * anything else; `error` then holds a sentence. *out is the caller's. port 0 picks a free port. */
enum status net_server_new(struct net_server **out, struct net_loop *loop, const char *address,
                           bool reuse_port, const struct server_limits *limits,
                           const struct server_handlers *handlers, void *context, struct buffer *error);
/* The port really listened on (0 for a unix socket). */
int net_server_port(const struct net_server *server);
/* Stops accepting, closes idle connections, and lets running requests end; their connections close then. */
void net_server_drain(struct net_server *server);
/* Connections that are still open. */
size_t net_server_connections(const struct net_server *server);
/* How often accepting paused for NET_ACCEPT_PAUSE_MS because the process was out of file descriptors or memory,
 * and how many connections were closed because connections_max was reached. */
#define NET_ACCEPT_PAUSE_MS 100
uint64_t net_server_accept_pauses(const struct net_server *server);
uint64_t net_server_turned_away(const struct net_server *server);
/* Closes everything now; running requests get on_finished(gone = true) inside this call. Frees the server. Not to
 * be called from one of its handlers. NULL is accepted. */
void net_server_free(struct net_server *server);

const struct request_head *request_head(const struct request *request);
/* The user's pointer kept with a request. */
void request_set_user(struct request *request, void *user);
void *request_user(const struct request *request);
/* The caller's address as text ("127.0.0.1" or "unix:"), borrowed until on_finished. */
struct slice request_peer(const struct request *request);
/* Whether the connection is known to be gone; an answer would not be delivered. */
bool request_gone(const struct request *request);

/* Starts reading the body (sends 100 Continue where expected). Events may come inside this call. */
void request_read_body(struct request *request);
/* Stops and restarts on_body for a streamed body (back-pressure). */
void request_pause_body(struct request *request);
void request_resume_body(struct request *request);

/* Answers at once: head, then body, in one write where possible. `header_lines` are complete lines, each ended
 * by CRLF, without Content-Length, Connection and Date, which the server adds. For HEAD, and for 204 and 304, no
 * body is sent (HEAD keeps the Content-Length). The request may be freed inside this call. */
void request_answer(struct request *request, int status, struct slice header_lines, struct slice body);
/* The same in pieces: content_length in bytes, or -1 for chunked (HTTP/1.0 callers: until close). For an answer
 * passed through from elsewhere, `reason` may carry its reason phrase (NULL: the standard one) and with_date false
 * keeps the Date that header_lines already holds. */
void request_begin(struct request *request, int status, const char *reason, struct slice header_lines,
                   int64_t content_length, bool with_date);
/* Adds body bytes. Returns false when more than write_buffer_high waits: stop until on_drain. */
bool request_write(struct request *request, struct slice piece);
/* Ends the answer. With a content_length that was not reached the connection is cut instead. */
void request_end(struct request *request);
/* Sends an interim answer (102, 103) to an HTTP/1.1 caller; ignored for 1.0. */
void request_interim(struct request *request, int status, struct slice header_lines);
/* Cuts the connection: the answer cannot be finished, and the caller must see that (RFC 9112 section 8). */
void request_abort(struct request *request);

#endif
