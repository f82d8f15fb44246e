/* SPDX-License-Identifier: MIT
 *
 * One stream to an upstream: TCP, TCP with TLS, or a unix socket. Bytes of the application in and out; it knows
 * nothing of HTTP.
 *
 *   wire_connect ─▶ [TLS handshake] ─▶ up ─▶ bytes* ─▶ down
 *                        └──── failure ────▶ down       wire_close ─▶ closed (the last event)
 *
 * Always true:
 *  (1) wire_sent() is 0 until the kernel took a byte that carries application data, in clear or in a TLS record;
 *      handshake bytes do not count.
 *  (2) After wire_close() the only event is `closed`, from the loop.
 *  (3) TLS is 1.2 or later, the peer's name is checked, and nothing is ever sent as early data.
 */
#ifndef SAMEKEY_NET_WIRE_H
#define SAMEKEY_NET_WIRE_H

#include "net/client.h"
#include "net/outlet.h"

#include <openssl/ssl.h>
#include <sys/socket.h>

#define WIRE_RECORD_BYTES 16384 /* of plain text in one TLS record */
#define WIRE_DETAIL_BYTES 160

struct wire;

/* Why a connection came to nothing, or ended. */
struct wire_failure {
    enum net_end
        end; /* for a wire that was not up: REFUSED, CONNECT_TIMEOUT, TLS, TLS_CERTIFICATE; else EOF, RESET */
    int sys_error; /* negative libuv error, or 0 */
    bool clean;    /* an end of stream that the peer meant (with TLS: close_notify) */
    char detail[WIRE_DETAIL_BYTES];
};

struct wire_handlers {
    void (*up)(struct wire *wire);
    void (*bytes)(struct wire *wire, struct slice bytes); /* borrowed until it returns */
    void (*down)(struct wire *wire, const struct wire_failure *failure);
    void (*moved)(struct wire *wire, int status); /* waiting bytes went, or (negative) writing failed */
    void (*closed)(struct wire *wire);            /* free it now with wire_free() */
};

struct wire {
    struct list link;       /* its user's */
    void *user;             /* its user's: who it works for, NULL while idle */
    void *home;             /* its user's: where it belongs */
    struct net_timer timer; /* its user's: idle time */
    struct net_loop *loop;
    const struct wire_handlers *handlers;
    union {
        uv_stream_t stream;
        uv_handle_t handle;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_connect_t connect;
    struct outlet out;
    SSL *ssl; /* NULL: in clear */
    bool up, closing, reading, paused, ended;
    struct wire_failure failure; /* of the handshake, kept while its alert is sent */
    /* TLS: application bytes given to the engine, and where on the wire the last run of them begins. */
    uint64_t given, given_before;
    uint64_t run_start;
    uint64_t base; /* wire_sent() counts from here */
};

/* Makes a wire that is not connected. tls NULL: in clear; else the peer must be `host`, a name or an address
 * (unless the context does not verify). NULL when memory is short. */
struct wire *wire_new(struct net_loop *loop, const struct wire_handlers *handlers, SSL_CTX *tls,
                      const char *host, bool is_unix);
/* Starts connecting: then `up` or `down` comes, never inside. Returns 0 or a negative libuv error. */
int wire_connect_tcp(struct wire *w, const struct sockaddr *address);
int wire_connect_unix(struct wire *w, const char *path);
/* Sends from the parts in order what can go without piling up: at least one byte if nothing waits. Returns how much was
 * used, 0 while earlier bytes wait, or a negative libuv error. */
ssize_t wire_give(struct wire *w, const struct slice *parts, size_t count);
/* Bytes given that the kernel has not yet taken. */
size_t wire_waiting(const struct wire *w);
/* Application bytes that left since wire_mark(), see (1). */
uint64_t wire_sent(struct wire *w);
void wire_mark(struct wire *w);
/* Stops and restarts `bytes`. After a resume, events may come inside. */
void wire_pause(struct wire *w);
void wire_resume(struct wire *w);
/* Whether an idle wire may carry another exchange: no byte and no end of stream waits in the kernel. */
bool wire_is_quiet(const struct wire *w);
void wire_close(struct wire *w);
/* Only inside `closed`. */
void wire_free(struct wire *w);

/* The context for a client: system authorities or those of ca_file. STATUS_INVALID: ca_file cannot be read. */
enum status wire_tls_context(SSL_CTX **out, const char *ca_file, bool verify);

#endif
