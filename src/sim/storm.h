/* SPDX-License-Identifier: MIT
 *
 * The retry storm: a load spike passes, and the question is whether the service comes back. Discrete events.
 *
 * The model, in full. Calls arrive in an open stream (each from a client of its own): `rate` a second, `spike_rate`
 * during the spike. One server works them off first come, first served, `capacity` a second, each in the same time;
 * it does not know that a client has gone, so work for the gone is done too. A client gives an attempt up after
 * `timeout`, and tries at most `tries` times. Networks take no time. Budget and breaker are shared by all clients, as
 * in a gateway in front of them.
 *
 * Each strategy changes one thing against `no_backoff`; `all_together` has everything.
 *
 * Always true: (1) every client is driven by the core's caller machine (core/call.h), with the core's budget and
 * breaker in front of its attempts, and the naive ones by a policy that believes a repeat to be safe; (2) a server that
 * keeps receipts asks the core's keeper about each arrival; (3) each effect counted is a piece of work that the server
 * did.
 */
#ifndef SAMEKEY_SIM_STORM_H
#define SAMEKEY_SIM_STORM_H

#include "base/buffer.h"
#include "base/status.h"
#include "sim/progress.h"

#include <stdint.h>

enum {
    STORM_SECONDS_MAX = 600, /* of arrivals; one point of the plots each */
    STORM_CALLS_MAX = 200000,
    STORM_TRIES_MAX = 20,
    STORM_LAYERS_MAX = 5,
};

enum storm_strategy {
    STORM_NO_BACKOFF,
    STORM_FIXED,
    STORM_EXPONENTIAL,
    STORM_JITTER,
    STORM_TWENTY,
    STORM_BUDGET,
    STORM_BREAKER,
    STORM_QUEUE_LIMIT,
    STORM_RECEIPT_FIRST,
    STORM_ALL_TOGETHER,
    STORM_STRATEGY_COUNT,
};

/* Rates are a second, times are seconds. */
struct storm_parameters {
    double rate, spike_rate, capacity;
    double length_s, spike_start_s, spike_length_s;
    double timeout_s;
    unsigned tries;
    double fixed_delay_s, base_s, cap_s, jitter_low, jitter_high;
    unsigned budget_percent; /* retries allowed per hundred calls */
    uint64_t queue_limit;    /* waiting requests; more are refused at once */
    bool poisson;            /* arrivals by lot; else evenly spaced */
    unsigned layers,
        layer_tries; /* the amplification table: services in a chain, and what each of them tries */
    uint64_t seed;
};

/* One second of a run. */
struct storm_second {
    double goodput;    /* clients that learned their success in this second */
    double attempts;   /* requests that reached the server */
    double queue;      /* waiting at its end */
    double duplicates; /* effects beyond the first of a call, up to its end */
};

struct storm_run {
    uint64_t calls, confirmed, attempts, refused, duplicates, receipt_queries;
    uint64_t effective_unconfirmed; /* took effect, and the client ended without knowing it */
    double tail_success; /* of the calls that began in the last fifth of the arrivals, the share confirmed */
    bool recovered;      /* tail_success is at least 95 % */
    struct storm_second second[STORM_SECONDS_MAX];
};

/* The reference: 40 a second, 80 for 5 s, capacity 49, timeout 3 s, 3 tries; see docs/simulate.md for why 49. */
void storm_defaults(struct storm_parameters *p);

const char *storm_name(enum storm_strategy s);
const char *storm_sentence(enum storm_strategy s);

/* STATUS_INVALID with a message (NUMBER_MESSAGE_BYTES) when parameters contradict each other or are too many calls. */
enum status storm_check(const struct storm_parameters *p, char *message);

/* Runs one strategy. STATUS_NO_MEMORY; STATUS_INVALID: a machine's invariant broke, or a server with receipts did a
 * call twice. `out` is only written on success. */
enum status storm_run(const struct storm_parameters *p, enum storm_strategy s, struct storm_run *out);

/* How many requests one call makes at the bottom of `layers` services, the bottom failing, when each layer tries
 * `tries` times, or only the top one does. Counted by doing it. */
uint64_t storm_layers(unsigned layers, unsigned tries, bool one_owner);

/* Append the result of all strategies (runs has STORM_STRATEGY_COUNT elements): table with terminal plot (ASCII only
 * with `ascii`), JSON with every second, CSV with every second, SVG. */
void storm_text(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs,
                bool ascii);
void storm_json(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs);
void storm_csv(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs);
void storm_svg(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs);

#endif
