/* SPDX-License-Identifier: MIT */
#include "caller/transport.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CANCEL_POLL_MS 50
#define PATIENCE_MS    100 /* how long after its time libcurl is waited for before we give up ourselves */

/* One transfer and the connections it may use. */
struct line {
    CURLM *multi;
    CURL *easy;
    struct line *next;
};

struct transport {
    pthread_mutex_t mutex;
    struct line *idle[2]; /* for calls, for queries */
    unsigned idle_count[2];
};

/* What one exchange has shown so far. */
struct exchange {
    const struct transport_request *request;
    struct response *reply;
    bool is_write;
    int prereqs;         /* how often the request was about to go on a wire */
    bool prereq_blocked; /* we refused libcurl's own repeat */
    bool refused_stream; /* libcurl's text speaks of REFUSED_STREAM */
    uint64_t head_out, body_out;
    size_t body_read; /* bytes of the body handed to libcurl */
    bool in_final;    /* the lines that come belong to a head of 200 or more */
    bool head_complete;
    bool got_continue;
    bool head_full; /* the head was over its bound, or memory ran out */
    bool http2;
    int status;
    uint64_t reply_bytes;
};

/* ---- SIGPIPE ------------------------------------------------------------------------------------------------ */

/* OpenSSL writes with write(2), whose SIGPIPE would end a program that never asked for one. */
struct quiet {
    sigset_t before;
    bool was_pending;
};

static void pipe_hold(struct quiet *q)
{
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    q->was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &q->before);
}

static void pipe_release(struct quiet *q)
{
    if (!q->was_pending) {
        sigset_t pipe;
        struct timespec none = {0, 0};
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        while (sigtimedwait(&pipe, NULL, &none) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

/* ---- lines -------------------------------------------------------------------------------------------------- */

enum status transport_open(struct transport **out)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return STATUS_IO;
    struct transport *t = calloc(1, sizeof *t);
    if (!t) {
        curl_global_cleanup();
        return STATUS_NO_MEMORY;
    }
    pthread_mutex_init(&t->mutex, NULL);
    *out = t;
    return STATUS_OK;
}

static void line_free(struct line *line)
{
    if (!line)
        return;
    struct quiet quiet;
    pipe_hold(&quiet); /* a TLS connection says goodbye */
    curl_easy_cleanup(line->easy);
    curl_multi_cleanup(line->multi);
    pipe_release(&quiet);
    free(line);
}

void transport_close(struct transport *t)
{
    if (!t)
        return;
    for (int i = 0; i < 2; i++) {
        while (t->idle[i]) {
            struct line *line = t->idle[i];
            t->idle[i] = line->next;
            line_free(line);
        }
    }
    pthread_mutex_destroy(&t->mutex);
    free(t);
    curl_global_cleanup();
}

/* The line used last comes first: its connection is the warmest. */
static struct line *line_take(struct transport *t, bool query)
{
    pthread_mutex_lock(&t->mutex);
    struct line *line = t->idle[query];
    if (line) {
        t->idle[query] = line->next;
        t->idle_count[query]--;
    }
    pthread_mutex_unlock(&t->mutex);
    if (line)
        return line;
    line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    line->multi = curl_multi_init();
    line->easy = curl_easy_init();
    if (!line->multi || !line->easy) {
        line_free(line);
        return NULL;
    }
    return line;
}

static void line_give_back(struct transport *t, struct line *line, bool query)
{
    curl_easy_reset(line->easy); /* keeps the connections, forgets the options */
    pthread_mutex_lock(&t->mutex);
    bool keep = t->idle_count[query] < TRANSPORT_IDLE_LINES;
    if (keep) {
        line->next = t->idle[query];
        t->idle[query] = line;
        t->idle_count[query]++;
    }
    pthread_mutex_unlock(&t->mutex);
    if (!keep)
        line_free(line);
}

/* ---- what libcurl tells ------------------------------------------------------------------------------------- */

static int on_prereq(void *context, char *primary_ip, char *local_ip, int primary_port, int local_port)
{
    struct exchange *x = context;
    (void)primary_ip;
    (void)local_ip;
    (void)primary_port;
    (void)local_port;
    if (x->prereqs > 0 && x->is_write) {
        x->prereq_blocked = true;
        return CURL_PREREQFUNC_ABORT;
    }
    x->prereqs++;
    x->in_final = x->head_complete = x->got_continue =
        false; /* nothing heard before belongs to this request */
    return CURL_PREREQFUNC_OK;
}

static int on_debug(CURL *easy, curl_infotype type, char *data, size_t size, void *context)
{
    struct exchange *x = context;
    (void)easy;
    if (type == CURLINFO_HEADER_OUT)
        x->head_out += size;
    else if (type == CURLINFO_DATA_OUT)
        x->body_out += size;
    else if (type == CURLINFO_TEXT && memmem(data, size, "REFUSED_STREAM", 14))
        x->refused_stream = true;
    return 0;
}

static size_t on_read(char *to, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    size_t room = size * count, left = x->request->body.len - x->body_read;
    if (room > left)
        room = left;
    if (room)
        memcpy(to, x->request->body.data + x->body_read, room);
    x->body_read += room;
    return room;
}

/* A status line begins a head; one of 1xx is followed by another (RFC 9110 section 15.2). */
static void on_status_line(struct exchange *x, struct slice line)
{
    const char *space = memchr(line.data, ' ', line.len);
    x->http2 = line.len > 6 && memcmp(line.data, "HTTP/2", 6) == 0;
    x->status = 0;
    for (int i = 1; space && i <= 3 && space + i < line.data + line.len && space[i] >= '0' && space[i] <= '9';
         i++)
        x->status = x->status * 10 + (space[i] - '0');
    x->in_final = x->status >= 200;
    x->got_continue = x->got_continue || x->status == 100;
    buffer_clear(&x->reply->headers);
}

static size_t on_header(char *data, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    struct slice line = slice_of(data, size * count);
    x->reply_bytes += line.len;
    if (x->head_complete)
        return line.len; /* a trailer: it says nothing about the call (RFC 9110 section 6.5.1) */
    if (line.len > 5 && memcmp(line.data, "HTTP/", 5) == 0) {
        on_status_line(x, line);
        return line.len;
    }
    bool blank = line.len == 2 ? memcmp(line.data, "\r\n", 2) == 0 : line.len == 1 && line.data[0] == '\n';
    if (blank) {
        x->head_complete = x->in_final;
        if (x->head_complete)
            x->reply->status = x->status;
        return line.len;
    }
    if (!x->in_final)
        return line.len;
    if (x->reply->headers.len + line.len > RESPONSE_HEAD_BYTES_MAX) {
        x->head_full = true;
        return 0;
    }
    while (line.len && (line.data[line.len - 1] == '\n' || line.data[line.len - 1] == '\r'))
        line.len--;
    buffer_slice(&x->reply->headers, line);
    buffer_text(&x->reply->headers, "\r\n");
    x->head_full = x->reply->headers.failed;
    return x->head_full ? 0 : size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    size_t len = size * count;
    x->reply_bytes += len;
    x->reply->body_bytes += len;
    if (x->reply->body_kept) {
        x->reply->body_kept = x->reply->body.len + len <= x->request->body_bytes_max;
        if (x->reply->body_kept)
            buffer_append(&x->reply->body, data, len);
        x->reply->body_kept = x->reply->body_kept && !x->reply->body.failed;
        if (!x->reply->body_kept)
            buffer_fini(&x->reply->body);
    }
    return len;
}

/* ---- the request -------------------------------------------------------------------------------------------- */

static bool add_header(struct curl_slist **list, struct slice name, struct slice value)
{
    struct buffer line = {0};
    buffer_slice(&line, name);
    /* "Name;" is libcurl's way to send a header without a value. */
    buffer_text(&line, value.len ? ": " : ";");
    buffer_slice(&line, value);
    struct curl_slist *longer = line.failed ? NULL : curl_slist_append(*list, buffer_cstring(&line));
    buffer_fini(&line);
    if (longer)
        *list = longer;
    return longer != NULL;
}

static bool has_header(const struct transport_request *rq, const char *name)
{
    for (size_t i = 0; i < rq->header_count; i++) {
        if (slice_is_nocase(rq->headers[i].name, name))
            return true;
    }
    return false;
}

static struct curl_slist *make_headers(const struct transport_request *rq)
{
    struct curl_slist *list = NULL;
    bool made = true;
    for (size_t i = 0; i < rq->header_count && made; i++)
        made = add_header(&list, rq->headers[i].name, rq->headers[i].value);
    for (size_t i = 0; i < rq->control_count && made; i++)
        made = add_header(&list, rq->control[i].name, rq->control[i].value);
    /* A trailing colon takes a header of libcurl's own out. */
    if (made && !has_header(rq, "Content-Type")) {
        struct curl_slist *longer = curl_slist_append(list, "Content-Type:");
        made = longer != NULL;
        list = made ? longer : list;
    }
    if (made) {
        struct curl_slist *longer = curl_slist_append(
            list, rq->flags & SAMEKEY_EXPECT_CONTINUE && rq->body.len ? "Expect: 100-continue" : "Expect:");
        made = longer != NULL;
        list = made ? longer : list;
    }
    if (made)
        return list;
    curl_slist_free_all(list);
    return NULL;
}

static bool is_safe_method(struct slice m)
{
    return slice_is(m, "GET") || slice_is(m, "HEAD") || slice_is(m, "OPTIONS") || slice_is(m, "TRACE");
}

#define SET(option, value)                                                                                   \
    do {                                                                                                     \
        CURLcode set_rc = curl_easy_setopt(easy, option, value);                                             \
        if (set_rc != CURLE_OK)                                                                              \
            return set_rc;                                                                                   \
    } while (0)

static CURLcode set_request(CURL *easy, struct exchange *x, struct curl_slist *headers, char *detail,
                            const char *method, const char *url, const char *ca_file)
{
    const struct transport_request *rq = x->request;
    SET(CURLOPT_ERRORBUFFER, detail);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_TIMEOUT_MS, (long)rq->timeout_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)rq->timeout_ms);
    SET(CURLOPT_PREREQFUNCTION, on_prereq);
    SET(CURLOPT_PREREQDATA, x);
    SET(CURLOPT_DEBUGFUNCTION, on_debug);
    SET(CURLOPT_DEBUGDATA, x);
    SET(CURLOPT_VERBOSE, 1L); /* or the debug function is not called */
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, x);
    SET(CURLOPT_NOPROGRESS, 1L);
    SET(CURLOPT_HTTP09_ALLOWED, 0L);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* a proxy's "200 Connection established" is no answer */
    if (ca_file)
        SET(CURLOPT_CAINFO, ca_file);
    bool http2 = rq->flags & SAMEKEY_HTTP2;
    bool tls = rq->url.len > 5 && (rq->url.data[4] == 's' || rq->url.data[4] == 'S');
    SET(CURLOPT_HTTP_VERSION, !http2 ? (long)CURL_HTTP_VERSION_1_1
                              : tls  ? (long)CURL_HTTP_VERSION_2TLS
                                     : (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    if (rq->flags & SAMEKEY_QUICK_EXIT)
        SET(CURLOPT_QUICK_EXIT, 1L);
    if (rq->body.len) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)rq->body.len);
        SET(CURLOPT_READFUNCTION, on_read); /* and no seek function: promise 1 */
        SET(CURLOPT_READDATA, x);
        if (rq->flags & SAMEKEY_EXPECT_CONTINUE)
            SET(CURLOPT_EXPECT_100_TIMEOUT_MS, (long)rq->timeout_ms + 1000);
    } else if (slice_is(rq->method, "HEAD")) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (slice_is(rq->method, "POST") || slice_is(rq->method, "PUT") || slice_is(rq->method, "PATCH")) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
        SET(CURLOPT_POSTFIELDS, "");
    } else {
        SET(CURLOPT_HTTPGET, 1L);
    }
    SET(CURLOPT_CUSTOMREQUEST, method);
    if (x->is_write && rq->body.len == 0)
        SET(CURLOPT_FRESH_CONNECT, 1L);
    return CURLE_OK;
}

/* ---- running it --------------------------------------------------------------------------------------------- */

static int64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static CURLcode perform(struct line *line, const struct transport_request *rq, bool *stopped, bool *late)
{
    int64_t give_up = clock_ms() + rq->timeout_ms + PATIENCE_MS;
    CURLcode result = CURLE_FAILED_INIT;
    if (curl_multi_add_handle(line->multi, line->easy) != CURLM_OK)
        return CURLE_OUT_OF_MEMORY;
    for (;;) {
        int running = 0, queued;
        if (curl_multi_perform(line->multi, &running) != CURLM_OK)
            break;
        CURLMsg *message = curl_multi_info_read(line->multi, &queued);
        if (message && message->msg == CURLMSG_DONE) {
            result = message->data.result;
            break;
        }
        if (rq->cancelled && rq->cancelled(rq->context)) {
            *stopped = true;
            break;
        }
        int64_t left = give_up - clock_ms();
        if (left <= 0) {
            *late = true;
            break;
        }
        int wait = rq->cancelled ? CANCEL_POLL_MS : 1000;
        if (curl_multi_poll(line->multi, NULL, 0, left < wait ? (int)left : wait, NULL) != CURLM_OK)
            break;
    }
    return result;
}

/* ---- judging ------------------------------------------------------------------------------------------------ */

/* Whether the body's end was marked, and where it has a length, whether all of it came (RFC 9112 section 6.3). */
static bool body_complete(const struct exchange *x, bool *malformed)
{
    struct slice value;
    *malformed = false;
    if (slice_is(x->request->method, "HEAD") || x->status == 204 || x->status == 304)
        return true;
    bool has_length = false;
    uint64_t length = 0;
    for (size_t n = 0; response_header(x->reply, "Content-Length", n, &value); n++) {
        uint64_t number = 0;
        bool good = value.len > 0 && value.len < 19;
        for (size_t i = 0; i < value.len && good; i++) {
            good = value.data[i] >= '0' && value.data[i] <= '9';
            number = number * 10 + (uint64_t)(value.data[i] - '0');
        }
        if (!good || (has_length && number != length))
            *malformed = true;
        has_length = true;
        length = number;
    }
    if (*malformed)
        return false;
    if (response_header(x->reply, "Transfer-Encoding", 0, &value) && value.len >= 7 &&
        slice_is_nocase(slice_of(value.data + value.len - 7, 7), "chunked"))
        return true; /* libcurl has seen the last chunk */
    if (has_length)
        return x->reply->body_bytes == length;
    return x->http2; /* END_STREAM */
}

/* The end of an exchange whose request never went on a wire. */
static enum evidence_end end_before(CURLcode rc, long os_errno)
{
    switch (rc) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return EVIDENCE_NAME;
    case CURLE_OPERATION_TIMEDOUT:
        return EVIDENCE_CONNECT_TIMEOUT;
    case CURLE_COULDNT_CONNECT:
        return os_errno == ETIMEDOUT ? EVIDENCE_CONNECT_TIMEOUT : EVIDENCE_REFUSED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
    case CURLE_SSL_CERTPROBLEM:
        return EVIDENCE_TLS_CERTIFICATE;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CIPHER:
    case CURLE_USE_SSL_FAILED:
        return EVIDENCE_TLS;
    default:
        return EVIDENCE_REFUSED; /* a proxy that would not, a handshake that was cut: no connection that we could use */
    }
}

static enum evidence_end end_after(const struct exchange *x, CURLcode rc, long os_errno, const char *detail)
{
    if (x->reply_bytes == 0 && x->refused_stream &&
        (x->prereq_blocked || rc == CURLE_SEND_FAIL_REWIND || rc == CURLE_HTTP2_STREAM ||
         rc == CURLE_RECV_ERROR))
        return EVIDENCE_REFUSED_STREAM;
    switch (rc) {
    case CURLE_OPERATION_TIMEDOUT:
        return EVIDENCE_TIMEOUT;
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return EVIDENCE_EOF;
    case CURLE_UNSUPPORTED_PROTOCOL: /* not HTTP at all */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_HTTP_RETURNED_ERROR:
        return EVIDENCE_MALFORMED;
    case CURLE_RECV_ERROR:
        return os_errno != ECONNRESET && strstr(detail, "chunk") ? EVIDENCE_MALFORMED : EVIDENCE_RESET;
    case CURLE_WRITE_ERROR:
        return x->head_full ? EVIDENCE_MALFORMED : EVIDENCE_ABORTED;
    default:
        return EVIDENCE_RESET;
    }
}

static void judge(struct exchange *x, CURLcode rc, long os_errno, bool stopped, bool late, struct evidence *e,
                  char *detail)
{
    bool malformed, whole = x->head_complete && body_complete(x, &malformed);
    if (!x->head_complete)
        malformed = false;
    e->body_sent = x->body_out;
    e->request_complete = x->head_out > 0 && x->body_out >= x->request->body.len;
    e->reply_bytes = x->reply_bytes;
    e->head_complete = x->head_complete;
    e->got_continue = x->got_continue;
    e->status = x->head_complete ? x->status : 0;
    /* Once the request was about to go, something may have left that libcurl did not report. */
    e->bytes_sent = x->prereqs == 0 ? 0 : x->head_out + x->body_out > 0 ? x->head_out + x->body_out : 1;
    if (x->prereqs == 0) {
        e->end = stopped                                                ? EVIDENCE_ABORTED
                 : late                                                 ? EVIDENCE_CONNECT_TIMEOUT
                 : rc == CURLE_OUT_OF_MEMORY || rc == CURLE_FAILED_INIT ? EVIDENCE_OWN_REFUSAL
                                                                        : end_before(rc, os_errno);
        return;
    }
    if (stopped || late) {
        e->end = stopped ? EVIDENCE_ABORTED : EVIDENCE_TIMEOUT;
        return;
    }
    if (x->prereq_blocked && x->head_complete && x->status == 417 && x->body_out == 0) {
        e->end =
            EVIDENCE_ANSWER; /* libcurl wanted to send again without Expect; the 417 itself is the answer */
        return;
    }
    /* A refusal may come, whole, while the body is still on its way, and libcurl then ends with a send error. */
    bool refusal = whole && x->status >= 400 && !x->prereq_blocked;
    if (rc == CURLE_OK && whole) {
        if (x->status < 300 && !e->request_complete) {
            e->end = EVIDENCE_MALFORMED;
            snprintf(detail, TRANSPORT_DETAIL_MAX, "answered %d before the whole request was sent",
                     x->status);
            return;
        }
        e->end = EVIDENCE_ANSWER;
        detail[0] = 0;
    } else if (refusal && (rc == CURLE_SEND_ERROR || rc == CURLE_RECV_ERROR)) {
        e->end = EVIDENCE_ANSWER;
        detail[0] = 0;
    } else if (rc == CURLE_OK || malformed) {
        e->end = malformed ? EVIDENCE_MALFORMED : EVIDENCE_EOF;
        if (!malformed)
            snprintf(detail, TRANSPORT_DETAIL_MAX,
                     x->head_complete ? "nothing marks the end of the answer's body"
                                      : "the answer's head is cut");
    } else {
        e->end = end_after(x, rc, os_errno, detail);
        if ((x->prereq_blocked || rc == CURLE_SEND_FAIL_REWIND) && e->end != EVIDENCE_REFUSED_STREAM)
            snprintf(detail, TRANSPORT_DETAIL_MAX, "a kept connection died; it was not sent a second time");
    }
}

void transport_send(struct transport *t, const struct transport_request *rq, struct evidence *evidence,
                    struct response *reply, char detail[TRANSPORT_DETAIL_MAX])
{
    _Static_assert(TRANSPORT_DETAIL_MAX >= CURL_ERROR_SIZE, "libcurl's error buffer");
    struct exchange x = {
        .request = rq, .reply = reply, .is_write = !rq->query && !is_safe_method(rq->method)};
    struct buffer method = {0}, url = {0}, ca_file = {0};
    int64_t began = clock_ms();
    bool stopped = false, late = false;
    CURLcode rc = CURLE_OUT_OF_MEMORY;
    long os_errno = 0;
    detail[0] = 0;
    response_clear(reply);
    *evidence = (struct evidence){.end = EVIDENCE_OWN_REFUSAL,
                                  .success_when = -1,
                                  .body_total = rq->body.len,
                                  .timeout_ms = rq->timeout_ms,
                                  .waited_continue = rq->flags & SAMEKEY_EXPECT_CONTINUE && rq->body.len,
                                  .detail = detail};
    struct line *line = line_take(t, rq->query);
    struct curl_slist *headers = make_headers(rq);
    buffer_slice(&method, rq->method);
    buffer_slice(&url, rq->url);
    buffer_slice(&ca_file, rq->ca_file);
    buffer_cstring(&method);
    buffer_cstring(&url);
    buffer_cstring(&ca_file);
    if (line && headers && !method.failed && !url.failed && !ca_file.failed) {
        rc = set_request(line->easy, &x, headers, detail, buffer_cstring(&method), buffer_cstring(&url),
                         rq->ca_file.len ? buffer_cstring(&ca_file) : NULL);
        if (rc == CURLE_OK) {
            struct quiet quiet;
            pipe_hold(&quiet);
            rc = perform(line, rq, &stopped, &late);
            curl_easy_getinfo(line->easy, CURLINFO_OS_ERRNO, &os_errno);
            curl_multi_remove_handle(line->multi, line->easy);
            pipe_release(&quiet);
            judge(&x, rc, os_errno, stopped, late, evidence, detail);
        }
    }
    if (evidence->end == EVIDENCE_OWN_REFUSAL && !detail[0])
        snprintf(detail, TRANSPORT_DETAIL_MAX, "%s", rc == CURLE_OK ? "no memory" : curl_easy_strerror(rc));
    evidence->took_ms = clock_ms() - began;
    if (line)
        line_give_back(t, line, rq->query);
    curl_slist_free_all(headers);
    buffer_fini(&method);
    buffer_fini(&url);
    buffer_fini(&ca_file);
}
