/* SPDX-License-Identifier: MIT
 *
 * The problems that samekey answers itself, as one table (problem.def) and one document (RFC 9457).
 */
#ifndef SAMEKEY_CORE_PROBLEM_H
#define SAMEKEY_CORE_PROBLEM_H

#include "core/receipt.h"

enum problem {
    PROBLEM_NONE = 0,
#define PROBLEM(name, slug, status, outcome, about_other, title) PROBLEM_##name,
#include "core/problem.def"
#undef PROBLEM
    PROBLEM_COUNT
};

const char *problem_slug(enum problem problem);
/* The problem of that slug; PROBLEM_NONE: none of ours. */
enum problem problem_find(struct slice slug);
/* The HTTP status; an OUTCOME_UNKNOWN that somebody waited for is 504 instead (problem_facts.waited). */
int problem_status(enum problem problem);
enum outcome problem_outcome(enum problem problem);
/* Whether it speaks about another call: then safe_new_key is false, at every layer above too. */
bool problem_about_other(enum problem problem);

/* What a problem document says besides its row in the table. Slices are borrowed; empty ones become null. */
struct problem_facts {
    struct slice detail;
    struct slice call_id, original_call_id;
    struct slice allow;     /* 405: the methods that the address knows, for its Allow line */
    struct slice parameter; /* what is at fault, where it has a name; the member is left out when empty */
    enum call_state state;  /* of the call, as far as it may be told */
    bool safe_new_key;
    enum next_action next;
    int64_t retry_after_s; /* -1: none */
    bool with_receipt;     /* link the receipt of call_id */
    bool waited;           /* the asker waited for this ending */
    int status;            /* of bytes that were no request: 408, 501, 505; 0: the table says it */
};

/* The status of this problem with these facts. */
int problem_answer_status(enum problem problem, const struct problem_facts *facts);
/* Appends the application/problem+json document. */
void problem_document(struct buffer *out, enum problem problem, const struct problem_facts *facts);

#endif
