/* SPDX-License-Identifier: MIT */
#include "sim/article.h"
#include "sim/article_call.h"
#include "sim/draws.h"
#include "sim/keeping.h"
#include "sim/number.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

enum waiting { WAIT_NONE, WAIT_FIXED, WAIT_PLAIN, WAIT_JITTER, WAIT_FULL };

static const struct {
    const char *name, *sentence;
    enum waiting waiting;
    bool retries;
    bool keeping_server; /* it keeps receipts: `duplicates` counts what happens at that server */
    bool swaps_key, asks_receipt;
} STRATEGIES[ARTICLE_STRATEGY_COUNT] = {
    [ARTICLE_NONE] = {.name = "none", .sentence = "one attempt, no retry", .waiting = WAIT_NONE},
    [ARTICLE_FIXED] = {.name = "fixed",
                       .sentence = "retries after a fixed delay",
                       .waiting = WAIT_FIXED,
                       .retries = true},
    [ARTICLE_EXPONENTIAL_JITTER] = {.name = "exponential_jitter",
                                    .sentence = "retries after base x 2^n, capped, times a jitter",
                                    .waiting = WAIT_JITTER,
                                    .retries = true},
    [ARTICLE_EXPONENTIAL] = {.name = "exponential",
                             .sentence = "retries after base x 2^n, capped",
                             .waiting = WAIT_PLAIN,
                             .retries = true},
    [ARTICLE_FULL_JITTER] = {.name = "full_jitter",
                             .sentence = "retries after a wait between 0 and base x 2^n, capped",
                             .waiting = WAIT_FULL,
                             .retries = true},
    [ARTICLE_SWAPPED_KEY] =
        {.name = "swapped_key",
         .sentence = "as exponential_jitter; the server keeps receipts, but each retry brings a new "
                     "callId and key",
         .waiting = WAIT_JITTER,
         .retries = true,
         .keeping_server = true,
         .swaps_key = true},
    [ARTICLE_SAME_KEY] = {.name = "same_key",
                          .sentence =
                              "as exponential_jitter; the server keeps receipts, and all attempts bring one "
                              "callId and key",
                          .waiting = WAIT_JITTER,
                          .retries = true,
                          .keeping_server = true},
    [ARTICLE_RECEIPT_FIRST] = {.name = "receipt_first",
                               .sentence =
                                   "same_key, and after a timeout the receipt is asked before anything else",
                               .waiting = WAIT_JITTER,
                               .retries = true,
                               .keeping_server = true,
                               .asks_receipt = true},
};

static const uint64_t CALLS_BETWEEN_PROGRESS = UINT64_C(1) << 18;

const char *article_name(enum article_strategy s)
{
    return STRATEGIES[s].name;
}

const char *article_sentence(enum article_strategy s)
{
    return STRATEGIES[s].sentence;
}

void article_defaults(struct article_parameters *p)
{
    *p = (struct article_parameters){
        .calls = 200,
        .fail = 0.3,
        .timeout = 0.1,
        .attempts = 4,
        .fixed_delay_s = 0.5,
        .base_s = 0.5,
        .cap_s = 4,
        .jitter_low = 0.5,
        .jitter_high = 1,
        .seed = 42,
        .strategies = {ARTICLE_NONE, ARTICLE_FIXED, ARTICLE_EXPONENTIAL_JITTER},
        .strategy_count = 3,
    };
}

enum status article_strategies(struct article_parameters *p, const char *text, char *message)
{
    enum article_strategy found[ARTICLE_STRATEGIES_MAX];
    size_t count = 0;
    if (strcmp(text, "all") == 0) {
        for (size_t s = 0; s < ARTICLE_STRATEGY_COUNT; s++)
            found[count++] = (enum article_strategy)s;
        text = NULL;
    }
    while (text) {
        const char *comma = strchr(text, ',');
        struct slice word = slice_trim(slice_of(text, comma ? (size_t)(comma - text) : strlen(text)));
        size_t s = 0;
        while (s < ARTICLE_STRATEGY_COUNT && !slice_is(word, STRATEGIES[s].name))
            s++;
        if (s == ARTICLE_STRATEGY_COUNT || count == ARTICLE_STRATEGIES_MAX) {
            int used =
                snprintf(message, NUMBER_MESSAGE_BYTES, "--strategies: '%.*s' is %s; known are all",
                         (int)(word.len > 40 ? 40 : word.len), word.data,
                         s == ARTICLE_STRATEGY_COUNT ? "not a strategy" : "one row too many (at most 16)");
            for (size_t i = 0; i < ARTICLE_STRATEGY_COUNT && used < NUMBER_MESSAGE_BYTES; i++)
                used += snprintf(message + used, (size_t)(NUMBER_MESSAGE_BYTES - used), ",%s",
                                 STRATEGIES[i].name);
            return STATUS_INVALID;
        }
        found[count++] = (enum article_strategy)s;
        text = comma ? comma + 1 : NULL;
    }
    memcpy(p->strategies, found, count * sizeof found[0]);
    p->strategy_count = count;
    return STATUS_OK;
}

enum status article_check(const struct article_parameters *p, char *message)
{
    if (p->fail + p->timeout > 1 + 1e-12) {
        snprintf(message, NUMBER_MESSAGE_BYTES, "--fail %g and --timeout %g add up to %g; together at most 1",
                 p->fail, p->timeout, p->fail + p->timeout);
        return STATUS_INVALID;
    }
    return STATUS_OK;
}

/* Sums of one strategy; waits are added one by one in their order, as the reference loop adds them, because floating
 * addition is not associative and the table is compared to the digit. */
struct sums {
    uint64_t confirmed, attempts, receipt_queries;
    uint64_t effects, effective;           /* at a server that knows no keys: effects, calls with any */
    uint64_t kept_effects, kept_effective; /* the same at a server that keeps receipts */
    double wait_s;
};

/* What is the same for every row of a run. */
struct run {
    const struct article_parameters *p;
    /* The keeper's answers, asked once and remembered: it is a pure function, and a hundred million attempts then cost a
     * look-up each and still take the real code's decisions. */
    bool same_key_runs[KEPT_COUNT], swapped_key_runs[KEPT_COUNT];
    struct draws draws;
    double span_s[ARTICLE_ATTEMPTS_MAX]; /* the wait after attempt n (from 0) before jitter */
    struct progress *progress;
    double share_done, share; /* of the whole run, for the progress bar */
};

/* One strategy over all calls. `waiting` is a constant wherever this is called, so that the compiler makes one tight
 * loop for each way of waiting. `runs`: the keeper's answers for the key this strategy sends. */
static inline __attribute__((always_inline)) void strategy_loop(struct run *run, enum waiting waiting,
                                                                unsigned attempts_max, const bool *runs,
                                                                struct sums *sums)
{
    const struct article_parameters *p = run->p;
    struct draws *d = &run->draws;
    const double timeout = p->timeout, clear = p->timeout + p->fail;
    const double low = p->jitter_low, width = p->jitter_high - p->jitter_low;
    struct sums t = {0};
    /* The answers as bits, and sums instead of branches: chance makes every branch here a bad guess. */
    unsigned run_bits = 0;
    for (unsigned kept = 0; kept < KEPT_COUNT; kept++)
        run_bits |= (unsigned)runs[kept] << kept;
    static_assert(KEPT_FAILED + 1 == KEPT_SUCCESS, "an effect is added to FAILED");
    for (uint64_t left = p->calls; left > 0;) {
        uint64_t chunk = left < CALLS_BETWEEN_PROGRESS ? left : CALLS_BETWEEN_PROGRESS;
        left -= chunk;
        for (; chunk > 0; chunk--) {
            uint64_t effects = 0, kept_effects = 0;
            unsigned kept = KEPT_NOTHING;
            for (unsigned n = 0;; n++) {
                double r = draws_next(d);
                t.attempts++;
                unsigned effect = (unsigned)(r < timeout) | (unsigned)(r >= clear);
                unsigned ran = run_bits >> kept & 1;
                effects += effect;
                kept_effects += ran & effect;
                kept = ran ? KEPT_FAILED + effect : kept;
                if (r >= clear) {
                    t.confirmed++;
                    break;
                }
                if (n + 1 == attempts_max)
                    break;
                if (waiting == WAIT_FIXED)
                    t.wait_s += p->fixed_delay_s;
                else if (waiting == WAIT_PLAIN)
                    t.wait_s += run->span_s[n];
                else if (waiting == WAIT_JITTER)
                    t.wait_s += run->span_s[n] * (low + width * draws_next(d));
                else if (waiting == WAIT_FULL)
                    t.wait_s += run->span_s[n] * draws_next(d);
            }
            t.effects += effects;
            t.effective += effects > 0;
            t.kept_effects += kept_effects;
            t.kept_effective += kept_effects > 0;
        }
        progress_tell(run->progress,
                      run->share_done + run->share * (double)(p->calls - left) / (double)p->calls);
    }
    *sums = t;
}

/* The strategy whose every decision is the core's: slower, and nothing in it is decided here. */
static enum status receipt_first_loop(struct run *run, struct sums *sums)
{
    const struct article_parameters *p = run->p;
    struct sums t = {0};
    for (uint64_t i = 0; i < p->calls; i++) {
        struct article_call call;
        enum status status = article_call_run(p, &run->draws, &call);
        if (status)
            return status;
        t.confirmed += call.confirmed;
        t.attempts += call.attempts;
        t.receipt_queries += call.receipt_queries;
        t.kept_effects += call.effects;
        t.kept_effective += call.effects > 0;
        t.wait_s += call.wait_s;
        if (i % 1024 == 0)
            progress_tell(run->progress, run->share_done + run->share * (double)i / (double)p->calls);
    }
    *sums = t;
    return STATUS_OK;
}

static enum status strategy_run(struct run *run, enum article_strategy s, struct sums *sums)
{
    unsigned attempts = STRATEGIES[s].retries ? run->p->attempts : 1;
    const bool *runs = STRATEGIES[s].swaps_key ? run->swapped_key_runs : run->same_key_runs;
    if (STRATEGIES[s].asks_receipt)
        return receipt_first_loop(run, sums);
    switch (STRATEGIES[s].waiting) {
    case WAIT_NONE:
        strategy_loop(run, WAIT_NONE, 1, runs, sums);
        break;
    case WAIT_FIXED:
        strategy_loop(run, WAIT_FIXED, attempts, runs, sums);
        break;
    case WAIT_PLAIN:
        strategy_loop(run, WAIT_PLAIN, attempts, runs, sums);
        break;
    case WAIT_JITTER:
        strategy_loop(run, WAIT_JITTER, attempts, runs, sums);
        break;
    case WAIT_FULL:
        strategy_loop(run, WAIT_FULL, attempts, runs, sums);
        break;
    }
    return STATUS_OK;
}

static enum status ask_keeper(struct run *run)
{
    for (unsigned kept = 0; kept < KEPT_COUNT; kept++) {
        enum keeping_verdict same = KEEPING_WAIT, swapped = KEEPING_WAIT;
        if (keeping_arrive((enum kept)kept, false, &same) || keeping_arrive((enum kept)kept, true, &swapped))
            return STATUS_INVALID;
        run->same_key_runs[kept] = same == KEEPING_RUN;
        run->swapped_key_runs[kept] = swapped == KEEPING_RUN;
    }
    return STATUS_OK;
}

enum status article_run(const struct article_parameters *p, struct article_row *rows,
                        struct progress *progress)
{
    struct run run = {.p = p, .progress = progress, .share = 1 / (double)p->strategy_count};
    double delay = p->base_s;
    for (unsigned n = 0; n < p->attempts; n++, delay *= 2)
        run.span_s[n] = fmin(delay, p->cap_s);
    draws_seed(&run.draws, p->seed);

    enum status status = ask_keeper(&run);
    for (size_t i = 0; !status && i < p->strategy_count; i++) {
        enum article_strategy s = p->strategies[i];
        struct sums t = {0};
        run.share_done = (double)i * run.share;
        status = strategy_run(&run, s, &t);
        bool keeping = STRATEGIES[s].keeping_server;
        rows[i] = (struct article_row){
            .strategy = s,
            .confirmed = t.confirmed,
            .duplicates = keeping ? t.kept_effects - t.kept_effective : t.effects - t.effective,
            .duplicates_with_key = t.kept_effects - t.kept_effective,
            /* A confirmed call took effect, so what is left over took effect unheard. */
            .effective_unconfirmed = (keeping ? t.kept_effective : t.effective) - t.confirmed,
            .attempts = t.attempts,
            .receipt_queries = t.receipt_queries,
            .mean_wait_s = t.wait_s / (double)p->calls,
        };
    }
    return status;
}
