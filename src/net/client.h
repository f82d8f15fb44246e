/* SPDX-License-Identifier: MIT
 *
 * Upstream connections. An exchange is one request put on a wire once, and what became of it, with evidence: the
 * reason this is not left to a library. There is no silent re-send: an exchange that fails is over.
 *
 *   exchange_start ─▶ [name] ─▶ [connect] ─▶ [TLS] ─▶ write ─▶ on_head ─▶ on_piece* ─▶ on_end
 *                        └────────┴───────────┴─────────┴─────────┴── any failure ─────▶ on_end
 *
 * Always true:
 *  (1) on_end is the last event of every exchange, exactly once, never inside exchange_start().
 *  (2) evidence.bytes_sent counts bytes the kernel took from us (for TLS: application bytes handed to the TLS
 *      engine once any of their records went to the kernel); 0 proves that nothing of the request left.
 *  (3) A kept connection is used again only after a complete answer that allows it, nothing unread behind it, and
 *      no close seen; a close of an idle connection is noticed at once because idle connections are read.
 *  (4) NET_END_COMPLETE needs a complete, well-formed answer: a head and a body whose end was proved by
 *      Content-Length, the last chunk, the status, or, without a length, by a clean end of stream
 *      (`body_until_close` says so: such a body may have been cut and nobody can tell).
 *  (5) 1xx answers are noted (got_continue) and not given to on_head.
 */
#ifndef SAMEKEY_NET_CLIENT_H
#define SAMEKEY_NET_CLIENT_H

#include "base/buffer.h"
#include "net/header.h"
#include "net/loop.h"

enum net_end {
    NET_END_COMPLETE = 0,
    NET_END_NAME,            /* the name was not found or not answered */
    NET_END_REFUSED,         /* connection refused, no such unix socket, no route */
    NET_END_CONNECT_TIMEOUT, /* no connection within the time */
    NET_END_TLS,             /* TLS failed or stalled before our first byte */
    NET_END_TLS_CERTIFICATE, /* the peer's certificate is not to be trusted; before our first byte */
    NET_END_TIMEOUT,         /* the attempt's time was over after bytes had left */
    NET_END_RESET,           /* connection reset (or write failed) */
    NET_END_EOF,             /* end of stream before the answer was complete */
    NET_END_MALFORMED,       /* the answer is not HTTP, or breaks a rule */
    NET_END_TOO_LARGE,       /* the answer's head is over its bound */
    NET_END_ABORTED,         /* exchange_abort() */
};

struct net_evidence {
    enum net_end end;
    bool connected;        /* TCP (and TLS) was up */
    bool reused;           /* on a kept connection */
    uint64_t bytes_sent;   /* see (2) */
    uint64_t body_sent;    /* of them, body bytes */
    uint64_t body_total;   /* of the request, as far as known */
    bool request_complete; /* the whole request was taken by the kernel */
    bool got_continue;     /* a 100 came */
    uint64_t reply_bytes;  /* bytes that came back */
    bool head_complete;    /* a whole final head came */
    bool body_until_close; /* see (4) */
    int status;            /* of the final head, else 0 */
    int sys_error;         /* negative libuv error, or 0 */
    char detail[160];      /* words for a person, e.g. "certificate has expired" */
    int64_t ended_ms;      /* clock_monotonic_ms() */
};

struct origin {
    bool tls;
    bool is_unix;
    char host[256]; /* a name or an address, or the path of a unix socket */
    char port[8];
};

/* Reads http://host[:port], https://host[:port], unix:/path (an optional path prefix is not allowed).
 * STATUS_INVALID with a sentence in error. */
enum status origin_parse(struct slice text, struct origin *out, struct buffer *error);

struct client_settings {
    uint32_t connect_timeout_ms; /* name, connect and TLS together */
    uint32_t idle_timeout_ms;    /* a kept connection is closed after this long unused */
    uint32_t idle_max;           /* kept connections for one origin */
    size_t headers_bytes_max;    /* of an answer */
    uint32_t name_life_ms;       /* looked-up addresses are asked again after this */
    const char *ca_file;         /* PEM of trusted authorities; NULL: the system's */
    bool tls_verify;             /* false only for tests by an explicit setting */
};

struct client; /* one loop's connections to all origins */
struct exchange;

struct response_head {
    int status;
    int minor;
    struct slice reason;
    struct headers headers; /* borrowed until on_end returns */
    int64_t content_length; /* or -1 */
    bool has_body;
};

struct exchange_handlers {
    void (*on_head)(void *context, struct exchange *exchange, const struct response_head *head);
    /* Borrowed until the call returns. */
    void (*on_piece)(void *context, struct exchange *exchange, struct slice piece);
    /* For a streamed request body: less than the bound waits again. May be NULL. */
    void (*on_drain)(void *context, struct exchange *exchange);
    /* Last event; the exchange is freed when the call returns. */
    void (*on_end)(void *context, struct exchange *exchange, const struct net_evidence *evidence);
};

struct exchange_request {
    const struct origin *origin; /* borrowed until on_end */
    struct slice head;           /* request line and fields with the empty line; borrowed until on_end */
    struct slice body;           /* whole body, or empty when streamed; borrowed until on_end */
    bool stream_body;   /* more comes by exchange_write() and exchange_write_end(), framed as below */
    bool chunked;       /* with stream_body: the pieces are framed as chunks */
    bool wait_continue; /* the head says Expect: 100-continue: hold the body back until 100 or a final
                                  * answer; after `continue_ms` without either the body is sent all the same */
    uint32_t continue_ms;
    bool is_head;          /* method HEAD: no body follows the answer's head */
    bool fresh_connection; /* do not use a kept connection */
    int64_t deadline_ms;   /* clock_monotonic_ms() at which the attempt's time is over; INT64_MAX: none */
    uint32_t
        idle_timeout_ms; /* 0: none; else NET_END_TIMEOUT after this long without progress (pass-through) */
};

enum status client_new(struct client **out, struct net_loop *loop, const struct client_settings *settings);
/* Aborts what runs (on_end is called inside) and closes every connection. Not to be called from one of its handlers.
 * NULL is accepted. */
void client_free(struct client *client);
/* Closes kept idle connections (for a drain). */
void client_close_idle(struct client *client);

/* Starts one exchange. STATUS_NO_MEMORY: nothing was started and no event comes. */
enum status exchange_start(struct exchange **out, struct client *client,
                           const struct exchange_request *request, const struct exchange_handlers *handlers,
                           void *context);
/* Adds bytes of a streamed body. Returns false when enough waits: go on at on_drain. */
bool exchange_write(struct exchange *exchange, struct slice piece);
void exchange_write_end(struct exchange *exchange);
/* Stops and restarts on_piece (back-pressure from a slow caller). */
void exchange_pause(struct exchange *exchange);
void exchange_resume(struct exchange *exchange);
/* Moves the attempt's deadline. */
void exchange_set_deadline(struct exchange *exchange, int64_t deadline_ms);
/* Closes the connection; on_end with NET_END_ABORTED comes from the loop, not inside this call. */
void exchange_abort(struct exchange *exchange);
/* Evidence so far. */
const struct net_evidence *exchange_evidence(const struct exchange *exchange);

#endif
