/* SPDX-License-Identifier: MIT
 *
 * The article's experiment (CONTRACT section 11): calls that fail or time out by lot, and what each way of retrying
 * makes of the same kind of luck. One generator for the whole run, strategies in the order asked for, calls one
 * after the other, so the default run is the article's table to the digit.
 *
 * Always true: (1) the draws are CPython's, in the contract's order; (2) `none`, `fixed`, `exponential`,
 * `exponential_jitter` and `full_jitter` have a server that knows no keys; (3) what a server that knows keys would do
 * is asked of the core's keeper, never written down here.
 */
#ifndef SAMEKEY_SIM_ARTICLE_H
#define SAMEKEY_SIM_ARTICLE_H

#include "base/buffer.h"
#include "base/status.h"
#include "sim/progress.h"

#include <stdint.h>

enum {
    ARTICLE_ATTEMPTS_MAX = 1000,
    ARTICLE_STRATEGIES_MAX = 16, /* rows of one run; a strategy may be asked for twice */
};
#define ARTICLE_CALLS_MAX UINT64_C(1000000000000) /* a day's work for one core; more is a slip of the hand */

enum article_strategy {
    ARTICLE_NONE,
    ARTICLE_FIXED,
    ARTICLE_EXPONENTIAL_JITTER,
    ARTICLE_EXPONENTIAL,
    ARTICLE_FULL_JITTER,
    ARTICLE_SWAPPED_KEY,
    ARTICLE_SAME_KEY,
    ARTICLE_RECEIPT_FIRST,
    ARTICLE_STRATEGY_COUNT,
};

/* Chances are shares of 1; delays are seconds. */
struct article_parameters {
    uint64_t calls;
    double fail, timeout;
    unsigned attempts;
    double fixed_delay_s, base_s, cap_s;
    double jitter_low, jitter_high;
    uint64_t seed;
    enum article_strategy strategies[ARTICLE_STRATEGIES_MAX];
    size_t strategy_count;
};

struct article_row {
    enum article_strategy strategy;
    uint64_t confirmed, duplicates, duplicates_with_key, effective_unconfirmed, attempts;
    uint64_t receipt_queries; /* only receipt_first asks */
    double mean_wait_s;
};

/* The article's own parameters and its three strategies. */
void article_defaults(struct article_parameters *p);

/* The name of a strategy as in the table and the flag, and a sentence about it. */
const char *article_name(enum article_strategy s);
const char *article_sentence(enum article_strategy s);

/* Reads a comma-separated list of names into p; "all" is every strategy. STATUS_INVALID: message (NUMBER_MESSAGE_BYTES)
 * names the bad word and the known ones; p is as before. */
enum status article_strategies(struct article_parameters *p, const char *text, char *message);

/* STATUS_INVALID with a message when parameters contradict each other (fail + timeout over 1, base over cap is
 * allowed: the cap then rules). */
enum status article_check(const struct article_parameters *p, char *message);

/* Runs it; rows has strategy_count elements. Only checked parameters. progress may be NULL. STATUS_INVALID: the core's
 * own machines broke an invariant during the run (rows is then not to be used). */
enum status article_run(const struct article_parameters *p, struct article_row *rows,
                        struct progress *progress);

/* Append the result as an aligned table, JSON (CONTRACT section 11), CSV or an SVG chart. */
void article_text(struct buffer *out, const struct article_parameters *p, const struct article_row *rows);
void article_json(struct buffer *out, const struct article_parameters *p, const struct article_row *rows);
void article_csv(struct buffer *out, const struct article_parameters *p, const struct article_row *rows);
void article_svg(struct buffer *out, const struct article_parameters *p, const struct article_row *rows);

#endif
