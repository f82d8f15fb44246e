/* SPDX-License-Identifier: MIT
 *
 * What both guards need: the words of the SQL as the numbers of the public header, and the checks of arguments that are
 * made before a statement is sent, since an error of the database would abort the service's transaction.
 */
#ifndef SAMEKEY_GUARD_ANSWER_H
#define SAMEKEY_GUARD_ANSWER_H

#include "samekey/guard.h"

#include <stdbool.h>
#include <stdint.h>

/* enum samekey_guard_verdict of begin's word, or 0. */
int guard_verdict(const char *word);
/* enum samekey_guard_state of a state's text; a text that is none of ours is UNKNOWN. */
int guard_state(const char *text);

/* Fills an error; NULL is accepted. The text is cut where it does not fit. Returns `status`. */
int guard_fail(struct samekey_guard_error *error, int status, const char *code, const char *text);

/* What is wrong with a call or an ending, as a sentence; NULL: nothing. */
const char *guard_call_wrong(const struct samekey_guard_call *call);
const char *guard_ending_wrong(const struct samekey_guard_ending *ending);

/* The unix ms inside a callId of samekey's own form, or 0. */
int64_t guard_id_time(const char *call_id);

/* Copies a text into a field of `size` bytes, cut where it does not fit. NULL is "". */
void guard_copy(char *out, size_t size, const char *text);
/* A copy of `len` bytes with a NUL behind them, or NULL. */
void *guard_bytes(const void *bytes, size_t len);

void guard_answer_clear(struct samekey_guard_answer *answer);
void guard_receipt_clear(struct samekey_guard_receipt *receipt);

#endif
