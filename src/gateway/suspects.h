/* SPDX-License-Identifier: MIT
 *
 * Who swaps keys: clients whose requests looked like one call under another key, or one id under another request. For
 * people, who then go and mend that client; nothing is decided by it.
 *
 * Always true: (1) memory is bounded: the SUSPECTS_MAX clients seen last, SUSPECT_EXAMPLES_MAX examples each, each text cut
 * to SUSPECT_TEXT_BYTES; (2) noting one costs a short lock and no allocation; it happens only when a suspicion arises.
 */
#ifndef SAMEKEY_GATEWAY_SUSPECTS_H
#define SAMEKEY_GATEWAY_SUSPECTS_H

#include "base/slice.h"
#include "base/status.h"
#include "core/digest.h"
#include "core/problem.h"

#define SUSPECTS_MAX         256
#define SUSPECT_EXAMPLES_MAX 4
#define SUSPECT_ROUTES_MAX   4
#define SUSPECT_TEXT_BYTES   256

struct suspects;

/* What looked wrong. Slices are borrowed for the call. */
struct suspicion {
    bool has_credential;
    struct digest credential;
    struct slice address; /* of who has no credential; empty: not known any more */
    struct slice tenant, route;
    enum problem problem; /* SUSPECTED_DUPLICATE, CALL_ID_REUSED or KEY_REUSED */
    struct slice call_id, key, other_call_id, other_key;
};

struct suspect_example {
    int64_t at_ms;
    enum problem problem;
    char route[SUSPECT_TEXT_BYTES], call_id[SUSPECT_TEXT_BYTES], key[SUSPECT_TEXT_BYTES];
    char other_call_id[SUSPECT_TEXT_BYTES], other_key[SUSPECT_TEXT_BYTES];
};

struct suspect {
    bool has_credential;
    struct digest credential;
    char address[64], tenant[SUSPECT_TEXT_BYTES];
    int64_t first_ms, last_ms; /* unix ms */
    int64_t count, duplicates, ids_reused, keys_reused;
    char routes[SUSPECT_ROUTES_MAX][SUSPECT_TEXT_BYTES]; /* the first ones; "" from the first free on */
    struct suspect_example
        examples[SUSPECT_EXAMPLES_MAX]; /* a ring: the newest at (example_count - 1) % MAX */
    size_t example_count;
};

enum status suspects_new(struct suspects **out);
void suspects_free(struct suspects *s);
/* Any thread. NULL notes nothing. */
void suspects_note(struct suspects *s, const struct suspicion *suspicion, int64_t now_ms);
/* Copies them, most often first; `out` has room for SUSPECTS_MAX. Returns how many. Any thread. */
size_t suspects_copy(struct suspects *s, struct suspect *out);

#endif
