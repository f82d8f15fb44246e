/* SPDX-License-Identifier: MIT
 *
 * One call of the article's experiment by the strategy receipt_first: the core's caller machine (core/call.h) decides
 * what is sent, asked and waited for, the core's keeper decides about each arrival; only chance is ours.
 */
#ifndef SAMEKEY_SIM_ARTICLE_CALL_H
#define SAMEKEY_SIM_ARTICLE_CALL_H

#include "base/status.h"
#include "sim/article.h"
#include "sim/draws.h"

struct article_call {
    bool confirmed;
    unsigned attempts, effects, receipt_queries;
    double wait_s;
};

/* Runs one call to its end. d gives one number for each attempt, and one more for the wait of an attempt that did not
 * succeed. STATUS_INVALID: a machine's invariant broke, or an ending is not true: a SUCCESS without exactly one effect,
 * a FAILED with any. */
enum status article_call_run(const struct article_parameters *p, struct draws *d, struct article_call *out);

#endif
