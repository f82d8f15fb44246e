/* SPDX-License-Identifier: MIT
 *
 * The fingerprint of a request: SHA-256 over method, path and query as received, and the meaning of the body
 * (CONTRACT section 2). It tells "the same again" from "another request under the same id". Stored with its
 * version and its rules' text, so that a repeat is compared as the first was, whatever the configuration says
 * by then.
 *
 * How a body is read, by its Content-Type:
 *   none (0 bytes)                  no body, whatever the type says: clients send the type of nothing
 *   application/json, TYPE/SUB+json its meaning (core/canon.h); anything else than JSON is body-invalid
 *   multipart, any subtype          its parts: each part's header lines and bytes, in order, without the
 *                                   boundary; a body that does not follow its boundary exactly, or has text
 *                                   outside its parts, is compared by its bytes
 *   others, or a Content-Encoding   its bytes
 * Rules (compare, ignore) speak of JSON members and have no say over the others.
 */
#ifndef SAMEKEY_CORE_FINGERPRINT_H
#define SAMEKEY_CORE_FINGERPRINT_H

#include "base/arena.h"
#include "core/canon.h"
#include "core/digest.h"

#define FINGERPRINT_VERSION   1
#define FINGERPRINT_RULES_MAX 4096 /* bytes of the rules' text */

/* Compiled rules. Start it as zero bytes, which means the whole body; owns its text. May be shared by threads once
 * compiled. */
struct fingerprint_rules {
    struct buffer text;       /* the stored form; empty for the whole body */
    struct arena memory;      /* of the paths */
    struct canon_rules rules; /* borrows from both */
};

/* Compiles the settings: compare is `body` (or empty) or paths `json.amount, json.currency`; ignore are paths.
 * STATUS_INVALID, STATUS_FULL with *why a sentence and *where the offending text (both may be NULL);
 * STATUS_NO_MEMORY. r is untouched unless STATUS_OK. */
enum status fingerprint_rules_compile(struct fingerprint_rules *r, struct slice compare,
                                      const struct slice *ignore, size_t ignore_count, const char **why,
                                      struct slice *where);

/* The form that is stored: `compare=json.a,json.b ignore=json.c`, paths sorted; empty for the whole body.
 * Borrowed. */
struct slice fingerprint_rules_text(const struct fingerprint_rules *r);

/* Reads the stored form back. STATUS_INVALID: it is none. */
enum status fingerprint_rules_parse(struct fingerprint_rules *r, struct slice text);

/* NULL and zero bytes are accepted. */
void fingerprint_rules_fini(struct fingerprint_rules *r);

/* All borrowed. Absent headers are empty slices. */
struct fingerprint_input {
    struct slice method;           /* case matters */
    struct slice target;           /* path and query as received */
    struct slice content_type;     /* the header's value */
    struct slice content_encoding; /* empty and `identity` are no encoding */
    struct slice body;
};

/* Scratch: a hasher and a canon, kept by a thread. */
struct fingerprinter {
    struct hasher hasher;
    struct canon canon;
};

/* STATUS_NO_MEMORY; fini is then still allowed. */
enum status fingerprinter_init(struct fingerprinter *f);
void fingerprinter_fini(struct fingerprinter *f);

/* Makes the fingerprint under a version (1 .. FINGERPRINT_VERSION) and rules (NULL: the whole body).
 * STATUS_INVALID with *fault filled: `body-invalid`. STATUS_NOT_FOUND: a version this program does not know.
 * STATUS_FULL: a JSON body over CANON_BODY_BYTES_MAX. STATUS_NO_MEMORY. */
enum status fingerprint_make(struct fingerprinter *f, int version, const struct fingerprint_rules *rules,
                             const struct fingerprint_input *in, struct digest32 *out,
                             struct canon_fault *fault);

#endif
