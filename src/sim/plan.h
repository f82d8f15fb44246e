/* SPDX-License-Identifier: MIT
 *
 * Capacity on paper: what a policy costs, before anything runs. Only formulas, each written out in docs/simulate.md;
 * the names here are the names there. Attempts are taken as independent, each failing with chance `fail` (proved
 * without effect) and ending unknown with chance `timeout`, in an order where fail + timeout <= 1.
 */
#ifndef SAMEKEY_SIM_PLAN_H
#define SAMEKEY_SIM_PLAN_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdint.h>

enum { PLAN_ATTEMPTS_MAX = 64 };

/* Rates are a second, times are seconds, chances are shares of 1. */
struct plan_parameters {
    double rate;          /* calls */
    double fail, timeout; /* of one attempt */
    unsigned attempts;    /* at most, of one call */
    double latency_s;     /* of an attempt that is answered */
    double attempt_timeout_s, receipt_timeout_s, deadline_s;
    double base_s, cap_s, jitter_low, jitter_high;
    unsigned receipt_queries; /* at most, after one attempt */
    double receipt_miss;      /* chance that a query brings no answer */
    double life_s, tombstone_s;
    double result_bytes; /* of the kept answer, headers included */
    double row_bytes;    /* of a receipt without its answer, indexes included */
    double tombstone_bytes;
    double commit_group; /* rows written by one commit of the store */
    double disk_commits; /* commits a second one store can make durable */
    unsigned shards;     /* 0: as many as needed */
};

struct plan_result {
    double attempts_per_call;       /* with receipts asked first */
    double attempts_per_call_blind; /* when every timeout is sent again instead */
    double attempts_worst;
    double attempts_a_second, attempts_a_second_outage; /* in the mean; when every attempt fails */
    double queries_per_call, queries_a_second, queries_a_second_outage;
    double unresolved_share, unresolved_a_second; /* end UNKNOWN: to compensation */
    double failed_share;                          /* end FAILED after all attempts */
    double confirmed_share;
    double duplicates_avoided_a_second; /* effects that blind retries under new keys would have added */
    double rows_a_second;               /* durable writes: claims, reopenings and endings */
    double commits_a_second;
    double mean_time_s, worst_time_s;
    bool worst_fits_deadline;
    double in_flight, in_flight_outage;
    double receipts_kept, receipts_bytes, tombstones_kept, tombstones_bytes;
    double bytes_a_day_written;
    double shards;
    double calls_a_shard, commits_a_shard, bytes_a_shard;
};

/* 100 calls a second with the article's chances and the gateway's default policy. */
void plan_defaults(struct plan_parameters *p);

/* STATUS_INVALID with a message (NUMBER_MESSAGE_BYTES) when parameters contradict each other. */
enum status plan_check(const struct plan_parameters *p, char *message);

/* Works it out; only checked parameters. */
void plan_make(const struct plan_parameters *p, struct plan_result *out);

/* Append the result as text with units, JSON (full precision), CSV (name,value,unit). */
void plan_text(struct buffer *out, const struct plan_parameters *p, const struct plan_result *r);
void plan_json(struct buffer *out, const struct plan_parameters *p, const struct plan_result *r);
void plan_csv(struct buffer *out, const struct plan_parameters *p, const struct plan_result *r);

#endif
