/* SPDX-License-Identifier: MIT
 *
 * The record of a call that becomes its result: each attempt with its evidence, each receipt query, and the ending in
 * words for a person. It is made before anything is sent, so that running out of memory later can cost words, never the
 * ending.
 */
#ifndef SAMEKEY_CALLER_RESULT_H
#define SAMEKEY_CALLER_RESULT_H

#include "base/buffer.h"
#include "caller/response.h"
#include "core/id.h"
#include "core/key.h"
#include "core/receipt.h"

#include <samekey/samekey.h>

#define RESULT_QUERIES_MAX 256
#define RESULT_KEY_MAX     (2 * KEY_BYTES_MAX + 2) /* quoted, with every byte escaped */

struct samekey_result {
    enum call_state state;
    bool final;
    enum reason reason;
    enum next_action next;
    bool safe_new_key;
    int64_t retry_in_ms; /* -1: nobody said */
    int64_t elapsed_ms;
    bool resumed, journal_failed;
    bool told_before; /* the journal had the ending; nothing was done for it now */
    int rounds;
    char call_id[CALLID_BYTES_MAX + 1];
    char key[RESULT_KEY_MAX + 1]; /* as the caller spelled it */

    struct attempt attempts[ATTEMPTS_MAX]; /* their evidence is set by result_evidence() */
    size_t evidence_at[ATTEMPTS_MAX];      /* offset in `texts` of a NUL-terminated sentence */
    size_t attempt_count;
    struct {
        enum receipt_answer answer;
        int after_attempt;
    } queries[RESULT_QUERIES_MAX];
    size_t query_count;

    bool has_reply;
    struct response reply; /* the service's answer, where there is one to show */

    struct buffer texts;
    struct buffer sentence, json, header_values; /* made when first asked for */
    const char *refusal;                         /* why our own limits let nothing out; NULL: they did not */
};

/* NULL: no memory. */
struct samekey_result *result_new(void);

/* Writes down an attempt; the words are copied. More than ATTEMPTS_MAX: the newest replaces the last. */
void result_attempt(struct samekey_result *r, const struct attempt *attempt, const struct evidence *evidence);
/* The same with words that are already made. */
void result_attempt_text(struct samekey_result *r, const struct attempt *attempt, struct slice words);
const char *result_evidence(const struct samekey_result *r, size_t index);

void result_query(struct samekey_result *r, enum receipt_answer answer, int after_attempt);

/* The attempts as a journal keeps them (core/receipt.h). */
void result_attempts_encode(const struct samekey_result *r, struct buffer *out);

#endif
