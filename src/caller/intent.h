/* SPDX-License-Identifier: MIT
 *
 * The intention of one call: its options, checked once, completed by the defaults and copied, so that nothing of the
 * caller's is looked at later. What an intent allows is CONTRACT section 3; its words are CONTRACT section 2.
 *
 * Always true of a made intent:
 *  (1) The URL has a scheme, a host and no byte that could end a header line; method and header names are tokens.
 *  (2) None of our control headers is among the request's own.
 *  (3) attempts, waits and queries have bounds.
 */
#ifndef SAMEKEY_CALLER_INTENT_H
#define SAMEKEY_CALLER_INTENT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"
#include "core/call.h"
#include "core/digest.h"
#include "core/key.h"
#include "core/deadline.h"
#include "core/template.h"
#include "core/traceparent.h"

#include <samekey/samekey.h>

#define INTENT_BYTES_MAX       (128u << 20) /* of one intent's own memory: the body is not copied */
#define INTENT_HEADERS_MAX     100
#define INTENT_RETRIES_MAX     20
#define INTENT_QUERIES_MAX     50
#define INTENT_ATTEMPT_MS_MAX  INT64_C(86400000)  /* a day */
#define INTENT_DEADLINE_MS_MAX INT64_C(604800000) /* a week */
#define INTENT_URL_BYTES_MAX   8000
#define INTENT_RECEIPT_DEFAULT "{origin}/.samekey/receipts/{call_id}"

/* One header line of the request; borrowed from the intent. */
struct intent_header {
    struct slice name, value;
};

struct intent {
    struct arena memory;
    struct slice method, url, origin /* scheme://host:port */, target /* path and query */;
    struct intent_header *headers;
    size_t header_count;
    struct slice content_type, content_encoding;
    struct slice body; /* borrowed from the options */

    bool has_key;
    struct key key;
    struct slice key_spelling;
    struct slice call_id; /* empty: to be made */
    struct slice prefix;  /* empty: the handle's */
    struct slice business_ref;
    bool has_trace;
    struct traceparent trace;

    struct call_policy policy;
    int64_t deadline_ms;
    struct outcome_rules rules;
    struct slice receipt; /* the template's text; "none" where nobody can be asked */
    struct template receipt_template;
    bool receipt_samekey; /* the source is a samekey: it can fence, and wants to know what is asked for */
    struct intent_header *receipt_headers;
    size_t receipt_header_count;
    struct slice receipt_map;
    size_t result_bytes_max;
    struct slice ca_file;
    unsigned flags; /* enum samekey_flag */

    void (*progress)(void *context, const struct samekey_progress *progress);
    int (*cancelled)(void *context);
    void *context;
};

/* Fills *out from the options. STATUS_INVALID with *error filled (if error is not NULL), STATUS_NO_MEMORY; the intent is
 * then as zero bytes. A made intent is ended with intent_fini. */
enum status intent_make(struct intent *out, const struct samekey_options *options,
                        struct samekey_error *error);

/* The fingerprint of the request (core/fingerprint.h), under which "the same again" is told from another request. A JSON
 * body that is no JSON is compared by its bytes: what is wrong with it is for the service to say. STATUS_NO_MEMORY. */
enum status intent_fingerprint(const struct intent *intent, struct digest32 *out);

/* The digest of the operation: URL and key. Only for an intent with a key. STATUS_NO_MEMORY. */
enum status intent_operation(const struct intent *intent, struct digest *out);
/* The same for a callId without a key. */
enum status intent_call_digest(struct slice call_id, struct digest *out);

/* The policy as the text that a journal keeps, and back: what intent_make() made of these members of the options, receipt
 * headers too. STATUS_INVALID: damaged. Texts of the options point into `memory`. */
void intent_policy_encode(const struct intent *intent, struct buffer *out);
enum status intent_policy_decode(struct slice text, struct samekey_options *options, struct arena *memory);

/* Header lines `name: value CRLF`, for the journal, and back into options. */
void intent_headers_encode(const struct intent_header *headers, size_t count, struct buffer *out);
enum status intent_headers_decode(struct slice lines, const struct samekey_header **out, size_t *count,
                                  struct arena *memory);

/* Renders the receipt's URL for a call; `since_unix_ms` is the first attempt's time and `fence` asks for the address
 * that gives the call up. STATUS_INVALID: it cannot be rendered (no key, no origin). */
enum status intent_receipt_url(const struct intent *intent, struct slice call_id, int64_t since_unix_ms,
                               bool fence, struct buffer *out);

/* Frees everything. NULL and zero bytes are accepted. */
void intent_fini(struct intent *intent);

/* Fills an error, if there is one to fill. */
void intent_error(struct samekey_error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
