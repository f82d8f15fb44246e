/* SPDX-License-Identifier: MIT
 *
 * The receipt: the durable record of a call, as a row of the store and as the JSON document that a caller reads
 * (CONTRACT section 4).
 *
 *  (no row) -> RECEIVED -> PROCESSING -> SUCCESS                   final
 *                              |-------> FAILED final              rejected, settled, fenced
 *                              |-------> FAILED not final -> PROCESSING again (the same call)
 *                              `-------> UNKNOWN -> SUCCESS | FAILED, or PROCESSING again by the rules of core/call
 *
 * Always true:
 *  (1) A row in SUCCESS never leaves it, and neither its result nor its meaning changes.
 *  (2) `final` is true exactly in SUCCESS and in FAILED that cannot run again.
 *  (3) Only the owner with the current fencing number writes an ending of a PROCESSING row; who settles it from
 *      outside (a report, a receipt, a person) raises the number in the same step.
 */
#ifndef SAMEKEY_CORE_RECEIPT_H
#define SAMEKEY_CORE_RECEIPT_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"
#include "core/digest.h"
#include "core/outcome.h"

#include <stdbool.h>
#include <stdint.h>

enum call_state {
#define STATE(name, number, text, running, sentence) STATE_##name = (number),
#include "core/state.def"
#undef STATE
};

enum reason {
#define REASON(name, number, text, sentence) REASON_##name = (number),
#include "core/reason.def"
#undef REASON
};

/* "SUCCESS"; never NULL. */
const char *state_text(enum call_state state);
const char *state_sentence(enum call_state state);
/* Reads a state's text, and NONE as NOT_RECEIVED; false if it is none of ours. Case matters. */
bool state_parse(struct slice text, enum call_state *out);
/* RECEIVED and PROCESSING. */
bool state_running(enum call_state state);
/* "" for REASON_NONE; never NULL. */
const char *reason_text(enum reason reason);
const char *reason_sentence(enum reason reason);

/* The tier of a route: can its receipt ever disagree with the effect? */
enum proof {
    PROOF_NONE = 0,        /* no receipts at the callee */
    PROOF_BESIDE = 1,      /* receipts written beside the effect */
    PROOF_TRANSACTION = 2, /* receipts committed with the effect */
};
const char *proof_text(enum proof proof);

/* One time the request was put on a wire. */
struct attempt {
    int n;                /* from 1 */
    int64_t started_ms;   /* unix ms */
    int64_t ended_ms;     /* unix ms; 0: it runs */
    enum outcome outcome; /* OUTCOME_NONE while it runs */
    int status;           /* HTTP status, or 0 */
    uint64_t sent_bytes;
    int64_t wait_before_ms;
    struct slice evidence; /* words for a person */
};
#define ATTEMPTS_MAX 64 /* attempts kept of one call; a bound on retries over all repeats of the call */

/* Appends the attempts as the JSON array of the document. */
void attempts_encode(struct buffer *out, const struct attempt *attempts, size_t count);
/* Reads what attempts_encode() wrote; texts point into `memory`, which the caller owns. STATUS_INVALID: damaged. */
enum status attempts_decode(struct slice json, struct attempt attempts[ATTEMPTS_MAX], size_t *count,
                            struct buffer *memory);

/* A row of the store. Slices borrow the memory of whoever made the row. Times are unix ms of the store's clock. */
struct call_row {
    int64_t id; /* the store's, time-ordered; 0: no such row */
    struct digest call_digest, operation_digest;
    bool has_key;
    bool call_id_made; /* by the gateway, not by the caller */
    struct slice tenant, route, scope, call_id, key, business_ref, trace_id;
    struct slice key_spelling; /* as the caller's first claim spelled it; empty: as `key` */
    bool has_credential;
    struct digest credential; /* a digest: a credential itself is never stored */

    bool has_fingerprint; /* false on a fence that came before its call */
    struct digest32 fingerprint;
    int fingerprint_version;
    struct slice fingerprint_rules;

    enum call_state state;
    bool final;
    enum reason reason;
    enum proof proof;

    struct slice owner; /* who works on it: node and process */
    int64_t fence;      /* fencing number, rises with every owner */
    int64_t lease_end_ms;

    int attempt_count;     /* attempts begun */
    struct slice attempts; /* attempts_encode(), of those that ended */
    bool maybe_ran;        /* the join rule: an attempt was unknown or pending and nothing settled it since */

    bool has_result; /* an answer to replay */
    int result_status;
    struct slice result_headers; /* complete lines, each ended by CRLF */
    struct slice result_body;
    bool body_kept; /* false with has_result: too large, erased, or past result_life */

    int64_t original;              /* id of the row whose effect this is, or 0 */
    struct slice original_call_id; /* its callId */
    struct slice reverses, reversed_by;

    int64_t created_ms, updated_ms, ended_ms;
    int64_t window_ms;        /* the instant that time windows of a key template use */
    int64_t first_attempt_ms; /* 0: nothing was sent yet */
    int64_t result_expires_ms, key_expires_ms, tombstone_expires_ms; /* set at the ending; INT64_MAX: never */
};

/* What the store knows about an arriving request, or about a callId that is asked for. */
struct rows {
    struct call_row call;   /* of this callId; id 0: none */
    struct call_row holder; /* who holds the key's one slot; id 0: free. May be the same row as `call`. */
    struct call_row
        suspect;    /* an unresolved call with the same fingerprint, other callId and key; id 0: none */
    int64_t now_ms; /* the store's clock */
    int64_t covers_since_ms;  /* everything younger than this is known to the store */
    int64_t refuse_before_ms; /* STORE_CLAIM: a callId older than this is not run */
};

/* What to do next, for the caller (CONTRACT section 4). */
enum next_action {
    NEXT_NONE,
    NEXT_WAIT,
    NEXT_QUERY_RECEIPT,
    NEXT_RETRY_SAME_CALL,
    NEXT_FIX_REQUEST,
    NEXT_ASK_OPERATOR
};
const char *next_action_text(enum next_action action);

/* What may be said about a call in these rows: worked out when read, never stored. */
struct standing {
    enum call_state state;
    bool final;
    int received; /* 1, 0, or -1: not known */
    int executed; /* the same; on a shared result it speaks of the operation */
    bool safe_new_key;
    enum next_action next_action;
};
void receipt_standing(const struct rows *rows, struct standing *out);

/* Appends the document of CONTRACT section 4 for rows->call, or for a callId without a row (rows->call.id == 0,
 * `call_id` says which): the same bytes whoever asks. Result bodies that are not valid UTF-8 go as base64. */
void receipt_document(struct buffer *out, const struct rows *rows, struct slice call_id);

/* Appends a document that says UNKNOWN for `reason`: beyond-retention, store-unavailable, not-guarded. */
void receipt_unknown_document(struct buffer *out, struct slice call_id, enum reason reason,
                              int64_t covers_since_ms);

/* An answer of somebody's receipt endpoint, judged (CONTRACT section 3, "Ask first"). */
enum receipt_answer {
    RECEIPT_ANSWER_QUERY_FAILED, /* no answer, or one that is not to be believed */
    RECEIPT_ANSWER_NOT_RECEIVED,
    RECEIPT_ANSWER_RUNNING, /* RECEIVED or PROCESSING */
    RECEIPT_ANSWER_SUCCESS,
    RECEIPT_ANSWER_FAILED_FINAL,
    RECEIPT_ANSWER_FAILED_OPEN, /* FAILED with final: false */
    RECEIPT_ANSWER_UNKNOWN,
};
const char *receipt_answer_text(enum receipt_answer answer);

struct receipt_reading {
    enum receipt_answer answer;
    bool has_result; /* the document carries a result that can be replayed */
    int result_status;
    struct buffer result_headers; /* complete lines; owned by the reading */
    struct buffer result_body;
    char why[128]; /* why it is not believed, for the log */
};

/* Judges a complete HTTP answer (status and body). Believed only from JSON with a known `state` and the asked
 * callId under `call_id` or `callId`; NOT_RECEIVED only if `covers_since`, when given, is not later than
 * first_attempt_ms. `map` is the route's receipt_map ("DONE=SUCCESS,GONE=FAILED"), empty for none. A FAILED without
 * `final`, by its own name or by the map, is final. The HTTP status decides nothing by itself. Everything else is
 * RECEIPT_ANSWER_QUERY_FAILED with `why`. Never fails; free with receipt_reading_fini(). */
void receipt_read(struct receipt_reading *out, int http_status, struct slice body, struct slice call_id,
                  int64_t first_attempt_ms, struct slice map);
void receipt_reading_fini(struct receipt_reading *reading);

/* Whether a callee ever took the call for later (a `pending` attempt, or the reason `accepted`). Of such a call NOT_RECEIVED
 * proves nothing: queued work may write its receipt only at its commit (CONTRACT section 3). */
bool call_was_accepted(const struct call_row *call);

#endif
