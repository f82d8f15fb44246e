/* SPDX-License-Identifier: MIT
 *
 * TLS runs over memory: libuv's bytes go into one BIO, the engine's records come out of another. That keeps
 * sockets in one hand, and what the kernel took is known for both.
 */
#include "net/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>

#define WIRE_GIVE_BYTES_MAX 65536 /* given to the TLS engine at a time */

static void wire_down(struct wire *w, enum net_end end, int sys_error, bool clean, const char *detail)
{
    if (w->closing || w->ended)
        return;
    w->ended = true;
    /* A request that has not left when its connection is known to be gone was not sent. */
    outlet_withdraw(&w->out);
    w->failure.end = end;
    w->failure.sys_error = sys_error;
    w->failure.clean = clean;
    snprintf(w->failure.detail, sizeof w->failure.detail, "%s", detail);
    w->handlers->down(w, &w->failure);
}

static const char *tls_reason(char *text, size_t size)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    snprintf(text, size, "%s", reason ? reason : "the TLS stream is broken");
    return text;
}

/* Sends what the engine wants to send. */
static int tls_flush(struct wire *w)
{
    BIO *out = SSL_get_wbio(w->ssl);
    char *data;
    long len = BIO_get_mem_data(out, &data);
    if (len <= 0)
        return 0;
    uv_buf_t part = uv_buf_init(data, (unsigned)len);
    int error = outlet_write(&w->out, &part, 1);
    (void)BIO_reset(out);
    return error;
}

static void tls_failed(struct wire *w)
{
    char text[WIRE_DETAIL_BYTES];
    long verdict = SSL_get_verify_result(w->ssl);
    tls_reason(text, sizeof text);
    tls_flush(w); /* the alert says why to the other side; whether it arrives does not matter */
    if (w->up)
        wire_down(w, NET_END_RESET, 0, false, text);
    else if (verdict != X509_V_OK && (SSL_get_verify_mode(w->ssl) & SSL_VERIFY_PEER))
        wire_down(w, NET_END_TLS_CERTIFICATE, 0, false, X509_verify_cert_error_string(verdict));
    else
        wire_down(w, NET_END_TLS, 0, false, text);
}

static void wire_is_up(struct wire *w)
{
    w->up = true;
    w->handlers->up(w);
}

/* Moves the engine as far as its input goes. */
static void tls_advance(struct wire *w)
{
    ERR_clear_error();
    if (!w->up) {
        int done = SSL_do_handshake(w->ssl);
        if (done != 1) {
            int error = SSL_get_error(w->ssl, done);
            if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
                tls_failed(w);
                return;
            }
            int failed = tls_flush(w);
            if (failed)
                wire_down(w, NET_END_TLS, failed, false, uv_strerror(failed));
            return;
        }
        wire_is_up(w); /* our Finished leaves together with the first bytes of the request */
        if (w->closing || w->ended)
            return;
        int failed = tls_flush(w);
        if (failed) {
            wire_down(w, NET_END_RESET, failed, false, uv_strerror(failed));
            return;
        }
    }
    char plain[WIRE_RECORD_BYTES];
    while (!w->paused && !w->closing && !w->ended) {
        ERR_clear_error();
        int n = SSL_read(w->ssl, plain, sizeof plain);
        if (n > 0) {
            w->handlers->bytes(w, slice_of(plain, (size_t)n));
            continue;
        }
        int error = SSL_get_error(w->ssl, n);
        if (error == SSL_ERROR_ZERO_RETURN)
            wire_down(w, NET_END_EOF, 0, true, "end of stream");
        else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
            tls_failed(w);
        break;
    }
    if (!w->closing && !w->ended)
        tls_flush(w); /* key updates; a failure shows at the next read */
}

static void wire_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct wire *w = handle->data;
    (void)suggested;
    *out = uv_buf_init(net_loop_read_buffer(w->loop), NET_READ_BYTES);
}

static void wire_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct wire *w = stream->data;
    if (w->closing || w->ended || n == 0)
        return;
    if (n < 0) {
        bool eof = n == UV_EOF;
        if (w->ssl && !w->up)
            wire_down(w, NET_END_TLS, eof ? 0 : (int)n, false,
                      eof ? "the connection ended during the TLS handshake" : uv_strerror((int)n));
        else if (eof)
            wire_down(w, NET_END_EOF, 0, !w->ssl,
                      w->ssl ? "end of stream without close_notify" : "end of stream");
        else
            wire_down(w, NET_END_RESET, (int)n, false, uv_strerror((int)n));
        return;
    }
    if (!w->ssl) {
        w->handlers->bytes(w, slice_of(buffer->base, (size_t)n));
        return;
    }
    if (BIO_write(SSL_get_rbio(w->ssl), buffer->base, (int)n) != (int)n) {
        wire_down(w, NET_END_RESET, UV_ENOMEM, false, "no memory");
        return;
    }
    tls_advance(w);
}

static void wire_set_reading(struct wire *w, bool wanted)
{
    if (wanted == w->reading || w->closing)
        return;
    w->reading = wanted;
    if (wanted)
        uv_read_start(&w->uv.stream, wire_on_alloc, wire_on_read);
    else
        uv_read_stop(&w->uv.stream);
}

static void wire_on_moved(struct outlet *out, int status)
{
    struct wire *w = HEAP_ENTRY(out, struct wire, out);
    if (w->closing || w->ended)
        return;
    if (w->up)
        w->handlers->moved(w, status);
    else if (status < 0)
        wire_down(w, NET_END_TLS, status, false, uv_strerror(status));
}

static void wire_on_connect(uv_connect_t *connect, int status)
{
    struct wire *w = connect->data;
    if (w->closing)
        return;
    if (status < 0) {
        enum net_end end = status == UV_ETIMEDOUT ? NET_END_CONNECT_TIMEOUT : NET_END_REFUSED;
        wire_down(w, end, status, false, uv_strerror(status));
        return;
    }
    wire_set_reading(w, true);
    if (w->ssl)
        tls_advance(w);
    else
        wire_is_up(w);
}

static bool tls_setup(struct wire *w, SSL_CTX *tls, const char *host)
{
    w->ssl = SSL_new(tls);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (!w->ssl || !in || !out) {
        BIO_free(in);
        BIO_free(out);
        return false;
    }
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(w->ssl, in, out);
    SSL_set_connect_state(w->ssl);
    X509_VERIFY_PARAM *param = SSL_get0_param(w->ssl);
    unsigned char address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1; /* RFC 6066 section 3: no SNI for addresses */
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, host, 0) == 1 && SSL_set_tlsext_host_name(w->ssl, host) == 1;
}

struct wire *wire_new(struct net_loop *loop, const struct wire_handlers *handlers, SSL_CTX *tls,
                      const char *host, bool is_unix)
{
    struct wire *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->loop = loop;
    w->handlers = handlers;
    list_init(&w->link);
    if (tls && !tls_setup(w, tls, host)) {
        SSL_free(w->ssl);
        free(w);
        return NULL;
    }
    if (is_unix)
        uv_pipe_init(net_loop_uv(loop), &w->uv.pipe, 0);
    else
        uv_tcp_init(net_loop_uv(loop), &w->uv.tcp);
    w->uv.handle.data = w;
    w->connect.data = w;
    outlet_init(&w->out, &w->uv.stream, net_loop_volley(loop), wire_on_moved);
    return w;
}

int wire_connect_tcp(struct wire *w, const struct sockaddr *address)
{
    int error = uv_tcp_connect(&w->connect, &w->uv.tcp, address, wire_on_connect);
    if (!error)
        uv_tcp_nodelay(&w->uv.tcp, 1);
    return error;
}

int wire_connect_unix(struct wire *w, const char *path)
{
    uv_pipe_connect(&w->connect, &w->uv.pipe, path, wire_on_connect);
    return 0;
}

size_t wire_waiting(const struct wire *w)
{
    return outlet_waiting(&w->out);
}

static ssize_t give_plain(struct wire *w, const struct slice *parts, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < parts[i].len) {
            ssize_t n = outlet_try(&w->out, slice_of(parts[i].data + at, parts[i].len - at));
            if (n < 0)
                return n;
            if (n == 0) { /* the kernel is full: leave it something to take when it has room */
                size_t some =
                    parts[i].len - at < OUTLET_FLIGHT_BYTES ? parts[i].len - at : OUTLET_FLIGHT_BYTES;
                uv_buf_t part = {(char *)(size_t)(parts[i].data + at), some};
                int error = outlet_write(&w->out, &part, 1);
                return error ? error : (ssize_t)(used + some);
            }
            at += (size_t)n;
            used += (size_t)n;
        }
    }
    return (ssize_t)used;
}

static ssize_t give_tls(struct wire *w, const struct slice *parts, size_t count)
{
    size_t used = 0;
    w->run_start = w->out.taken + outlet_waiting(&w->out) + (uint64_t)BIO_pending(SSL_get_wbio(w->ssl));
    w->given_before = w->given;
    for (size_t i = 0; i < count && used < WIRE_GIVE_BYTES_MAX; i++) {
        size_t at = 0;
        while (at < parts[i].len && used < WIRE_GIVE_BYTES_MAX) {
            size_t len = parts[i].len - at < WIRE_RECORD_BYTES ? parts[i].len - at : WIRE_RECORD_BYTES;
            ERR_clear_error();
            int n = SSL_write(w->ssl, parts[i].data + at, (int)len);
            if (n <= 0)
                return UV_EPIPE;
            at += (size_t)n;
            used += (size_t)n;
        }
    }
    w->given += used;
    int error = tls_flush(w);
    return error ? error : (ssize_t)used;
}

ssize_t wire_give(struct wire *w, const struct slice *parts, size_t count)
{
    if (w->ssl) /* right after the handshake its last bytes may wait: the request follows them */
        return wire_waiting(w) && w->given ? 0 : give_tls(w, parts, count);
    if (wire_waiting(w))
        return 0;
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += parts[i].len;
    if (count <= 2 && len <= VOLLEY_BYTES_MAX) {
        uv_buf_t posted[2];
        for (size_t i = 0; i < count; i++)
            posted[i] = uv_buf_init((char *)(size_t)parts[i].data, (unsigned)parts[i].len);
        int error = outlet_post(&w->out, posted, (unsigned)count);
        return error ? error : (ssize_t)len;
    }
    outlet_settle(&w->out);
    if (w->out.fault)
        return w->out.fault;
    /* Head and body in one segment where the kernel takes both. */
    if (count == 2 && parts[0].len && parts[1].len) {
        uv_buf_t both[2] = {{(char *)(size_t)parts[0].data, parts[0].len},
                            {(char *)(size_t)parts[1].data, parts[1].len}};
        int n = uv_try_write(&w->uv.stream, both, 2);
        if (n < 0 && n != UV_EAGAIN)
            return n;
        size_t went = n > 0 ? (size_t)n : 0;
        w->out.taken += went;
        struct slice rest[2] = {parts[0], parts[1]};
        for (size_t i = 0, skip = went; i < 2; i++) {
            size_t step = skip < rest[i].len ? skip : rest[i].len;
            rest[i] = slice_of(rest[i].data + step, rest[i].len - step);
            skip -= step;
        }
        if (rest[0].len + rest[1].len == 0)
            return (ssize_t)went;
        ssize_t more = give_plain(w, rest, 2);
        return more < 0 ? more : (ssize_t)went + more;
    }
    return give_plain(w, parts, count);
}

uint64_t wire_sent(struct wire *w)
{
    uint64_t taken = outlet_taken(&w->out);
    if (!w->ssl)
        return taken - w->base;
    return (taken > w->run_start ? w->given : w->given_before) - w->base;
}

void wire_mark(struct wire *w)
{
    w->base = w->ssl ? w->given : outlet_taken(&w->out);
    w->given_before = w->given;
}

void wire_pause(struct wire *w)
{
    w->paused = true;
    wire_set_reading(w, false);
}

void wire_resume(struct wire *w)
{
    w->paused = false;
    if (w->closing || w->ended)
        return;
    if (w->ssl && w->up)
        tls_advance(w);
    if (!w->paused && !w->ended)
        wire_set_reading(w, true);
}

bool wire_is_quiet(const struct wire *w)
{
    uv_os_fd_t fd;
    char byte;
    if (!w->up || w->closing || w->ended || w->out.fault || wire_waiting(w) ||
        uv_fileno(&w->uv.handle, &fd) != 0)
        return false;
    if (w->ssl && (SSL_pending(w->ssl) || SSL_get_shutdown(w->ssl)))
        return false;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static void wire_on_closed(uv_handle_t *handle)
{
    struct wire *w = handle->data;
    w->handlers->closed(w);
}

void wire_close(struct wire *w)
{
    if (w->closing)
        return;
    if (w->ssl && w->up && !w->ended && wire_waiting(w) == 0) {
        ERR_clear_error();
        SSL_shutdown(w->ssl); /* a close_notify if it goes at once */
        tls_flush(w);
    }
    w->closing = true;
    outlet_settle(&w->out);
    net_timer_disarm(w->loop, &w->timer);
    uv_close(&w->uv.handle, wire_on_closed);
}

void wire_free(struct wire *w)
{
    outlet_fini(&w->out);
    SSL_free(w->ssl);
    free(w);
}

enum status wire_tls_context(SSL_CTX **out, const char *ca_file, bool verify)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    if (!tls)
        return STATUS_NO_MEMORY;
    static const unsigned char protocols[] = "\x08http/1.1";
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(tls, verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_alpn_protos(tls, protocols, sizeof protocols - 1);
    ERR_clear_error();
    int loaded =
        ca_file ? SSL_CTX_load_verify_locations(tls, ca_file, NULL) : SSL_CTX_set_default_verify_paths(tls);
    if (loaded != 1 && verify) {
        SSL_CTX_free(tls);
        return STATUS_INVALID;
    }
    *out = tls;
    return STATUS_OK;
}
