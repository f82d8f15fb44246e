/* SPDX-License-Identifier: MIT
 *
 * Key templates of every dialect: which part of one is new each time. The words are a table with the reason;
 * `{date}`, `{hour}` and `{minute}` of our own templates are time windows, fixed at the first claim, and pass.
 */
#ifndef SAMEKEY_REVIEW_KEY_H
#define SAMEKEY_REVIEW_KEY_H

#include "review/review.h"

enum key_dialect {
    KEY_BRACES,  /* {json.order_no}: samekey, Envoy formatters, Spring ${...} and #{...} */
    KEY_NGINX,   /* $variable, ${variable} */
    KEY_HAPROXY, /* %[fetch], %ID */
    KEY_ENVOY,   /* %COMMAND(arg)% */
    KEY_SHELL,   /* $VAR, ${VAR}, $(command), `command` */
};

/* Headers that carry an identity: "Idempotency-Key" and its common variants, and "X-Call-Id". */
bool key_header(struct slice name);
bool key_call_id_header(struct slice name);

/* The first volatile part of the template and why it is, or NULL when there is none. *part is borrowed. */
const char *key_volatile(struct slice template, enum key_dialect dialect, struct slice *part);

/* True when the template has no part that varies at all. */
bool key_constant(struct slice template, enum key_dialect dialect);

/* Adds SK201 or SK203 for a key template, SK204 for a volatile callId that a hop sets, SK205 for an empty one.
 * `hop`: the file is a proxy's, which replaces what the caller sent. */
void key_judge(struct review *r, const struct source *s, unsigned line, const char *place,
               struct slice header, struct slice template, enum key_dialect dialect, bool hop);

#endif
