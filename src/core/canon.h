/* SPDX-License-Identifier: MIT
 *
 * The canonical form of a JSON text by its meaning (CONTRACT section 2, "fingerprint"). Two texts have the
 * same form if and only if they mean the same: member order, white space and string escapes do not count;
 * numbers compare as exact decimals (1.0 is 1 is 10e-1, -0 is 0; 9007199254740993 is not ...992); order in
 * lists, types, added members and combining characters do count.
 *
 * The form is a byte string made to be hashed, not read: every value begins with a letter for its type and
 * ends by itself, strings and numbers with the byte 0xFF, which UTF-8 never holds. Members are sorted by the
 * bytes of their names. Numbers are sign, digits without zeros at either end, and the exponent of the last
 * digit as a decimal: 1e1000000000 takes a few bytes. No double is ever made.
 *
 * Cost: one pass, members sorted by merging (n log n whatever the order), and moved
 * once for each level whose order changes, JSON_DEPTH_MAX times at most. Memory is about twice the body,
 * sixteen times for one that is all short members; up to CANON_KEEP_BYTES of each buffer are kept for the
 * next body.
 */
#ifndef SAMEKEY_CORE_CANON_H
#define SAMEKEY_CORE_CANON_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"
#include "core/digest.h"
#include "core/json_read.h"

#define CANON_BODY_BYTES_MAX      (64u << 20) /* a larger text is refused */
#define CANON_KEEP_BYTES          (1u << 20)  /* of scratch, between bodies */
#define CANON_EXPONENT_DIGITS_MAX 15          /* digits of a written exponent, without leading zeros */
#define CANON_PATHS_MAX           32          /* ignore and compare paths, each */
#define CANON_SEGMENTS_MAX        16          /* names in one path */

/* A path into a body: `items.*.note`; a number is an index of a list (or a member of that name). In ignore
 * paths `*` is every index; in compare paths it is only a member of that name, since a value must have one
 * place. */
struct canon_path {
    struct slice text; /* without `json.`; borrowed */
    struct slice segment[CANON_SEGMENTS_MAX];
    unsigned count;
};

/* STATUS_INVALID: an empty name, or a byte that is a control, space, comma or quote. STATUS_FULL: too many
 * names. */
enum status canon_path_parse(struct slice text, struct canon_path *out);

/* What counts. Zero bytes: everything. Ignored members count as not there at all, ignored list items as one
 * unknown thing each. With compare paths only the values there count, each under its path, missing or not. */
struct canon_rules {
    const struct canon_path *ignore;
    size_t ignore_count;
    const struct canon_path *compare;
    size_t compare_count;
};

/* Why a body is not JSON by our rules, and where (byte, from 0). */
struct canon_fault {
    size_t position;
    const char *message; /* a constant sentence */
};

/* Scratch memory, reused from body to body. Start it as zero bytes. One thread. */
struct canon {
    struct buffer out;     /* the form, as far as it is written */
    struct buffer spare;   /* members in their new order, before they go back into out */
    struct buffer members; /* a record for each member of the objects that are open */
    struct buffer sorted;  /* the other half of the merge sort */
    struct buffer picked;  /* values at compare paths */
};

/* Adds the meaning of the text to a sum already begun on h. STATUS_INVALID with *fault filled: `body-invalid`
 * (not JSON, a member twice after unescaping, bytes behind the end, bad UTF-8, a lone surrogate, deeper than
 * JSON_DEPTH_MAX, an exponent too long). STATUS_FULL: over CANON_BODY_BYTES_MAX. STATUS_NO_MEMORY. The sum is
 * untouched unless STATUS_OK. */
enum status canon_add(struct canon *c, struct slice text, const struct canon_rules *rules, struct hasher *h,
                      struct canon_fault *fault);

/* The form itself, borrowed until the next use of c: for tests and for comparing two bodies without a hash.
 * Same errors; compare paths are written as path and form. */
enum status canon_form(struct canon *c, struct slice text, const struct canon_rules *rules,
                       struct slice *form, struct canon_fault *fault);

/* Frees the memory. NULL and zero bytes are accepted. */
void canon_fini(struct canon *c);

#endif
