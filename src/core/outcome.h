/* SPDX-License-Identifier: MIT
 *
 * From evidence to outcome: what one attempt proved. The rules are CONTRACT section 3; the measurements behind
 * them are cited there. Everything after our first byte that is not a complete, sensible answer is UNKNOWN.
 */
#ifndef SAMEKEY_CORE_OUTCOME_H
#define SAMEKEY_CORE_OUTCOME_H

#include "base/buffer.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

enum outcome {
#define OUTCOME(name, number, json, header, proved, sentence) OUTCOME_##name = (number),
#include "core/outcome.def"
#undef OUTCOME
    OUTCOME_COUNT
};

/* "not_executed"; never NULL. */
const char *outcome_json(enum outcome outcome);
/* "not-executed", as in the Call-Outcome header. */
const char *outcome_header(enum outcome outcome);
const char *outcome_sentence(enum outcome outcome);
/* Reads a Call-Outcome header's value; OUTCOME_NONE if it is none of ours. */
enum outcome outcome_parse_header(struct slice value);
/* Reads the JSON form; OUTCOME_NONE if it is none of ours. */
enum outcome outcome_parse_json(struct slice text);

/* How an attempt ended on the wire, whatever the transport. */
enum evidence_end {
    EVIDENCE_ANSWER,          /* a complete answer with a status */
    EVIDENCE_NAME,            /* name not found */
    EVIDENCE_REFUSED,         /* connection refused */
    EVIDENCE_CONNECT_TIMEOUT, /* no connection in time */
    EVIDENCE_TLS,             /* TLS failed before our first byte */
    EVIDENCE_TLS_CERTIFICATE, /* the certificate is bad; before our first byte */
    EVIDENCE_REFUSED_STREAM,  /* HTTP/2 REFUSED_STREAM (RFC 9113 section 8.7) */
    EVIDENCE_TIMEOUT,         /* no complete answer in time */
    EVIDENCE_RESET,
    EVIDENCE_EOF, /* end of stream before the answer was complete */
    EVIDENCE_MALFORMED,
    EVIDENCE_ABORTED,     /* we gave the attempt up */
    EVIDENCE_OWN_REFUSAL, /* breaker, budget, queue: nothing was put on a wire */
    EVIDENCE_LOST,        /* the process that worked on it stopped; nothing more is known */
};

struct evidence {
    enum evidence_end end;
    uint64_t bytes_sent; /* of the request, that left; 0 proves that nothing did */
    uint64_t body_sent;  /* of them, body bytes */
    uint64_t body_total;
    bool request_complete;
    bool waited_continue; /* the body was held back for a 100 (RFC 9110 section 10.1.1) */
    bool got_continue;
    uint64_t reply_bytes;
    bool head_complete;
    int status;              /* of a complete head, else 0 */
    bool status_is_ours;     /* the answer is a problem of a samekey below ("urn:samekey:") */
    bool has_callee_outcome; /* the answer bears a Call-Outcome that is one of ours */
    enum outcome callee_outcome;
    bool other_call_id; /* the answer echoes another callId than the one sent */
    int success_when;   /* the route's success_when on this answer: 1 holds, 0 does not, -1 not set */
    int64_t took_ms;    /* from the attempt's start to its end */
    int64_t timeout_ms; /* the time it had */
    const char *detail; /* words from the transport, or NULL */
};

/* A route's choices. */
struct outcome_rules {
    bool server_error_failed;  /* server_error = failed: 500 and other 5xx but 502, 503, 504, 52x */
    bool accepted_success;     /* accepted = success: 202 */
    bool redirect_303_success; /* redirect_303 = success */
};

/* What the evidence proves. Pure. */
enum outcome outcome_classify(const struct evidence *evidence, const struct outcome_rules *rules);

/* Whether our own policy may repeat after this not_executed (never 401, 407 and a bad certificate). */
bool outcome_retry_allowed(const struct evidence *evidence);

/* Appends one sentence for a person: what happened on the wire, e.g. "no reply within 3 s after the whole request
 * was sent". */
void evidence_sentence(struct buffer *out, const struct evidence *evidence);

#endif
