/* SPDX-License-Identifier: MIT */
#include "sim/plan.h"
#include "sim/number.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

static const double DAY_S = 86400;

void plan_defaults(struct plan_parameters *p)
{
    *p = (struct plan_parameters){.rate = 100,
                                  .fail = 0.3,
                                  .timeout = 0.1,
                                  .attempts = 4,
                                  .latency_s = 0.1,
                                  .attempt_timeout_s = 3,
                                  .receipt_timeout_s = 1,
                                  .deadline_s = 30,
                                  .base_s = 0.5,
                                  .cap_s = 4,
                                  .jitter_low = 0.5,
                                  .jitter_high = 1,
                                  .receipt_queries = 5,
                                  .receipt_miss = 0.05,
                                  .life_s = 7 * DAY_S,
                                  .tombstone_s = 30 * DAY_S,
                                  .result_bytes = 1024,
                                  .row_bytes = 700,
                                  .tombstone_bytes = 120,
                                  .commit_group = 32,
                                  .disk_commits = 1000};
}

enum status plan_check(const struct plan_parameters *p, char *message)
{
    if (p->fail + p->timeout > 1 + 1e-12)
        snprintf(message, NUMBER_MESSAGE_BYTES, "--fail %g and --timeout %g add up to %g; together at most 1",
                 p->fail, p->timeout, p->fail + p->timeout);
    else if (p->tombstone_s < p->life_s)
        snprintf(message, NUMBER_MESSAGE_BYTES,
                 "--tombstone-life %g s is under --life %g s; a tombstone outlives its body", p->tombstone_s,
                 p->life_s);
    else
        return STATUS_OK;
    return STATUS_INVALID;
}

static double wait_before_jitter(const struct plan_parameters *p, unsigned n)
{
    return fmin(p->cap_s, ldexp(p->base_s, (int)n));
}

/* 1 + q + q^2 + ... of `terms` terms. */
static double geometric(double q, unsigned terms)
{
    double sum = 0, power = 1;
    for (unsigned n = 0; n < terms; n++, power *= q)
        sum += power;
    return sum;
}

void plan_make(const struct plan_parameters *p, struct plan_result *out)
{
    struct plan_result r = {0};
    double jitter_mean = (p->jitter_low + p->jitter_high) / 2;
    unsigned n = p->attempts, m = p->receipt_queries;
    double again = p->fail + p->timeout;

    r.attempts_per_call = geometric(p->fail, n);
    r.attempts_per_call_blind = geometric(again, n);
    r.attempts_worst = n;
    r.attempts_a_second = p->rate * r.attempts_per_call;
    r.attempts_a_second_outage = p->rate * n;

    /* A call times out at most once: after that the receipt speaks. With m queries allowed, each unanswered with chance
     * q, a doubt costs (1 - q^m) / (1 - q) queries, and stays with chance q^m. */
    double doubts = p->timeout * r.attempts_per_call;
    double queries_a_doubt = geometric(p->receipt_miss, m);
    double doubt_stays = pow(p->receipt_miss, m);
    r.queries_per_call = doubts * queries_a_doubt;
    r.queries_a_second = p->rate * r.queries_per_call;
    r.queries_a_second_outage = p->rate * m;
    r.unresolved_share = doubts * doubt_stays;
    r.unresolved_a_second = p->rate * r.unresolved_share;
    r.failed_share = pow(p->fail, n);
    r.confirmed_share = 1 - r.failed_share - r.unresolved_share;

    /* Effects of a blind caller: each attempt takes effect unless it failed; the first effect of a call is wanted. */
    double blind_effects = r.attempts_per_call_blind * (1 - p->fail);
    double some_effect = 1 - pow(p->fail, n);
    r.duplicates_avoided_a_second = p->rate * fmax(0, blind_effects - some_effect);

    /* A claim and an ending; an attempt after a failure reopens the row and ends it again. */
    r.rows_a_second = p->rate * 2 * r.attempts_per_call;
    r.commits_a_second = r.rows_a_second / p->commit_group;

    double waits_mean = 0, waits_worst = 0, reached = 1;
    for (unsigned k = 0; k + 1 < n; k++) {
        reached *= p->fail;
        waits_mean += reached * wait_before_jitter(p, k) * jitter_mean;
        waits_worst += wait_before_jitter(p, k) * p->jitter_high;
    }
    r.mean_time_s = r.attempts_per_call * (1 - p->timeout) * p->latency_s + doubts * p->attempt_timeout_s +
                    r.queries_per_call * p->latency_s + waits_mean;
    r.worst_time_s = n * p->attempt_timeout_s + waits_worst + (n - 1) * p->receipt_timeout_s;
    r.worst_fits_deadline = r.worst_time_s <= p->deadline_s;
    r.in_flight = p->rate * r.mean_time_s;
    r.in_flight_outage = p->rate * fmin(r.worst_time_s, p->deadline_s);

    r.receipts_kept = p->rate * p->life_s;
    r.receipts_bytes = r.receipts_kept * (p->row_bytes + p->result_bytes);
    r.tombstones_kept = p->rate * (p->tombstone_s - p->life_s);
    r.tombstones_bytes = r.tombstones_kept * p->tombstone_bytes;
    /* The log and the table each take a written row once. */
    r.bytes_a_day_written = DAY_S * (r.rows_a_second * p->row_bytes + p->rate * p->result_bytes) * 2;

    r.shards = p->shards ? p->shards : fmax(1, ceil(r.commits_a_second / p->disk_commits));
    r.calls_a_shard = p->rate / r.shards;
    r.commits_a_shard = r.commits_a_second / r.shards;
    r.bytes_a_shard = (r.receipts_bytes + r.tombstones_bytes) / r.shards;
    *out = r;
}

enum unit { UNIT_NUMBER, UNIT_SHARE, UNIT_A_SECOND, UNIT_SECONDS, UNIT_BYTES };

#define FIGURE(member, unit, sentence)                                                                       \
    {                                                                                                        \
#member, offsetof(struct plan_result, member), unit, sentence                                        \
    }

/* What is printed, in order; the names are those of the JSON and of the formulas in the manual. */
static const struct {
    const char *name;
    size_t offset;
    enum unit unit;
    const char *sentence;
} FIGURES[] = {
    FIGURE(attempts_per_call, UNIT_NUMBER, "attempts per call, asking receipts first"),
    FIGURE(attempts_per_call_blind, UNIT_NUMBER, "attempts per call, if timeouts were sent again unasked"),
    FIGURE(attempts_worst, UNIT_NUMBER, "attempts per call, at worst (amplification in an outage)"),
    FIGURE(attempts_a_second, UNIT_A_SECOND, "attempts at the callee"),
    FIGURE(attempts_a_second_outage, UNIT_A_SECOND, "attempts when all fail, without budget and breaker"),
    FIGURE(queries_per_call, UNIT_NUMBER, "receipt queries per call"),
    FIGURE(queries_a_second, UNIT_A_SECOND, "receipt queries"),
    FIGURE(queries_a_second_outage, UNIT_A_SECOND, "receipt queries when nothing answers"),
    FIGURE(confirmed_share, UNIT_SHARE, "calls confirmed"),
    FIGURE(failed_share, UNIT_SHARE, "calls that end FAILED after all attempts"),
    FIGURE(unresolved_share, UNIT_SHARE, "calls that end UNKNOWN"),
    FIGURE(unresolved_a_second, UNIT_A_SECOND, "calls handed to compensation"),
    FIGURE(duplicates_avoided_a_second, UNIT_A_SECOND, "double effects that new keys on timeouts would make"),
    FIGURE(rows_a_second, UNIT_A_SECOND, "rows written durably"),
    FIGURE(commits_a_second, UNIT_A_SECOND, "commits, grouped"),
    FIGURE(mean_time_s, UNIT_SECONDS, "time of a call, mean"),
    FIGURE(worst_time_s, UNIT_SECONDS, "time of a call, worst"),
    FIGURE(in_flight, UNIT_NUMBER, "calls in flight, mean"),
    FIGURE(in_flight_outage, UNIT_NUMBER, "calls in flight in an outage"),
    FIGURE(receipts_kept, UNIT_NUMBER, "receipts kept with their answers"),
    FIGURE(receipts_bytes, UNIT_BYTES, "storage of receipts"),
    FIGURE(tombstones_kept, UNIT_NUMBER, "tombstones kept after them"),
    FIGURE(tombstones_bytes, UNIT_BYTES, "storage of tombstones"),
    FIGURE(bytes_a_day_written, UNIT_BYTES, "written to disk a day, table and log"),
    FIGURE(shards, UNIT_NUMBER, "stores needed"),
    FIGURE(calls_a_shard, UNIT_A_SECOND, "calls at each store"),
    FIGURE(commits_a_shard, UNIT_A_SECOND, "commits at each store"),
    FIGURE(bytes_a_shard, UNIT_BYTES, "storage at each store"),
};

enum { FIGURE_COUNT = sizeof FIGURES / sizeof FIGURES[0] };

static double figure(const struct plan_result *r, size_t i)
{
    double value;
    memcpy(&value, (const char *)r + FIGURES[i].offset, sizeof value);
    return value;
}

static const char *const UNITS[] = {[UNIT_NUMBER] = "",
                                    [UNIT_SHARE] = "",
                                    [UNIT_A_SECOND] = "/s",
                                    [UNIT_SECONDS] = "s",
                                    [UNIT_BYTES] = "bytes"};

/* A tiny share of a large number of calls still matters: it is never printed as 0. */
static void small_or_short(struct buffer *text, double value, int decimals)
{
    if (value > 0 && value < 0.01)
        buffer_format(text, "%.2g", value);
    else
        number_short(text, value, decimals);
}

static void human(struct buffer *out, double value, enum unit unit)
{
    static const char *const large[] = {"", " k", " M", " G", " T", " P", " E"};
    struct buffer text = {0};
    const char *suffix = unit == UNIT_BYTES ? "B" : UNITS[unit];
    size_t step = 0;
    if (unit == UNIT_SHARE) {
        small_or_short(&text, value * 100, 4);
        buffer_text(&text, " %");
    } else {
        while (value >= 10000 && step + 1 < sizeof large / sizeof large[0]) {
            value /= 1000;
            step++;
        }
        small_or_short(&text, value, value < 10 ? 3 : 1);
        buffer_text(&text, large[step]);
        if (*suffix)
            buffer_format(&text, "%s%s", step ? "" : " ", suffix);
    }
    buffer_format(out, "%14s", buffer_cstring(&text));
    buffer_fini(&text);
}

void plan_text(struct buffer *out, const struct plan_parameters *p, const struct plan_result *r)
{
    buffer_format(
        out,
        "%g calls a second; an attempt fails with %g %%, ends unknown with %g %%; at most %u attempts\n\n",
        p->rate, p->fail * 100, p->timeout * 100, p->attempts);
    for (size_t i = 0; i < FIGURE_COUNT; i++) {
        human(out, figure(r, i), FIGURES[i].unit);
        buffer_format(out, "  %s\n", FIGURES[i].sentence);
    }
    buffer_format(out, "\nThe worst call %s the deadline of %g s.\n",
                  r->worst_fits_deadline ? "fits" : "does not fit", p->deadline_s);
    buffer_text(out, "Prefixes are decimal (k = 1000). Formulas: docs/simulate.md.\n");
}

void plan_json(struct buffer *out, const struct plan_parameters *p, const struct plan_result *r)
{
    const struct {
        const char *name;
        double value;
    } given[] = {{"rate", p->rate},
                 {"fail", p->fail},
                 {"timeout", p->timeout},
                 {"attempts", p->attempts},
                 {"latency_s", p->latency_s},
                 {"attempt_timeout_s", p->attempt_timeout_s},
                 {"receipt_timeout_s", p->receipt_timeout_s},
                 {"deadline_s", p->deadline_s},
                 {"base_s", p->base_s},
                 {"cap_s", p->cap_s},
                 {"jitter_low", p->jitter_low},
                 {"jitter_high", p->jitter_high},
                 {"receipt_queries", p->receipt_queries},
                 {"receipt_miss", p->receipt_miss},
                 {"life_s", p->life_s},
                 {"tombstone_life_s", p->tombstone_s},
                 {"result_bytes", p->result_bytes},
                 {"row_bytes", p->row_bytes},
                 {"tombstone_bytes", p->tombstone_bytes},
                 {"commit_group", p->commit_group},
                 {"disk_commits_a_second", p->disk_commits},
                 {"shards", p->shards}};
    buffer_text(out, "{\n  \"parameters\": {");
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        buffer_format(out, "%s\"%s\": ", i ? ", " : "", given[i].name);
        number_exact(out, given[i].value);
    }
    buffer_text(out, "},\n  \"plan\": {\n");
    for (size_t i = 0; i < FIGURE_COUNT; i++) {
        buffer_format(out, "    \"%s\": ", FIGURES[i].name);
        number_exact(out, figure(r, i));
        buffer_text(out, ",\n");
    }
    buffer_format(out, "    \"worst_fits_deadline\": %s\n  }\n}\n",
                  r->worst_fits_deadline ? "true" : "false");
}

void plan_csv(struct buffer *out, const struct plan_parameters *p, const struct plan_result *r)
{
    (void)p;
    buffer_text(out, "name,value,unit\n");
    for (size_t i = 0; i < FIGURE_COUNT; i++) {
        buffer_format(out, "%s,", FIGURES[i].name);
        number_exact(out, figure(r, i));
        buffer_format(out, ",%s\n", UNITS[FIGURES[i].unit]);
    }
}
