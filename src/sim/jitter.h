/* SPDX-License-Identifier: MIT
 *
 * The contention experiment that made "full jitter" known: N clients start together and each wants one optimistic
 * write to the same row. Who lost reads again and tries again after its backoff. Counted are the writes that reached
 * the server, and the time until the last client is done.
 *
 * The model, in full: every message takes |normal(mean, deviation)| ms; a client reads the row's version (one message
 * there, one back), then writes with that version (there and back); the server works in no time and in order of
 * arrival; a write wins when the version has not changed since that client's read, and raises it. A loser's k-th wait
 * (k = 1, 2, ...) has the span min(cap, base x 2^k), from which each strategy draws; then it reads again.
 */
#ifndef SAMEKEY_SIM_JITTER_H
#define SAMEKEY_SIM_JITTER_H

#include "base/buffer.h"
#include "base/status.h"
#include "sim/progress.h"

#include <stdint.h>

enum { JITTER_CLIENTS_MAX = 10000, JITTER_STEPS_MAX = 50 };
#define JITTER_RUNS_MAX UINT64_C(1000000)

enum jitter_strategy {
    JITTER_EXPONENTIAL,  /* the span itself */
    JITTER_NONE,         /* no wait */
    JITTER_EQUAL,        /* span x U(0.5, 1) */
    JITTER_FULL,         /* span x U(0, 1) */
    JITTER_DECORRELATED, /* min(cap, U(base, 3 x the wait before)) */
    JITTER_TWENTY,       /* span x U(0.8, 1.2) */
    JITTER_STRATEGY_COUNT,
};

/* Times are milliseconds. The clients grow in `steps` equal steps up to `clients`; the last step is the table. */
struct jitter_parameters {
    uint64_t clients, runs, steps;
    double base_ms, cap_ms, delay_mean_ms, delay_deviation_ms;
    uint64_t seed;
};

struct jitter_cell {
    uint64_t clients;
    double calls, completion_ms;                     /* means over the runs */
    double calls_deviation, completion_deviation_ms; /* over the runs */
};

struct jitter_result {
    struct jitter_cell cell[JITTER_STRATEGY_COUNT][JITTER_STEPS_MAX];
};

/* 100 clients in 10 steps, 100 runs, base 5, cap 2000, network normal(10, 2), seed 42. */
void jitter_defaults(struct jitter_parameters *p);

const char *jitter_name(enum jitter_strategy s);

/* The published number of calls for 100 clients at the default times, 0 where none was published. */
double jitter_published_calls(enum jitter_strategy s);

/* STATUS_INVALID with a message (NUMBER_MESSAGE_BYTES) when parameters contradict each other. */
enum status jitter_check(const struct jitter_parameters *p, char *message);

/* Runs it. STATUS_NO_MEMORY: nothing to use in result. progress may be NULL. */
enum status jitter_run(const struct jitter_parameters *p, struct jitter_result *result,
                       struct progress *progress);

/* Append the result: a table with the comparison to the published values where the parameters are theirs, JSON with
 * every step, CSV, SVG. */
void jitter_text(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result);
void jitter_json(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result);
void jitter_csv(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result);
void jitter_svg(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result);

#endif
