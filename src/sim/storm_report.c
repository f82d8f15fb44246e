/* SPDX-License-Identifier: MIT */
#include "sim/chart.h"
#include "sim/number.h"
#include "sim/storm.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { PLOT_COLUMNS = 60 };

static double goodput_of(const struct storm_second *s)
{
    return s->goodput;
}

static double attempts_of(const struct storm_second *s)
{
    return s->attempts;
}

static double queue_of(const struct storm_second *s)
{
    return s->queue;
}

static double duplicates_of(const struct storm_second *s)
{
    return s->duplicates;
}

/* A collapsed queue grows without end and would flatten all others: it is cut off at twice what a client waits for. */
static double queue_clip(const struct storm_parameters *p)
{
    return 2 * p->timeout_s * p->capacity;
}

static size_t seconds_of(const struct storm_parameters *p)
{
    return (size_t)p->length_s;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* The mean of a span of seconds: a long run is squeezed into the width of a terminal. */
static double mean_over(const struct storm_run *run, size_t first, size_t end,
                        double (*value)(const struct storm_second *))
{
    double sum = 0;
    for (size_t i = first; i < end; i++)
        sum += value(&run->second[i]);
    return sum / (double)(end - first);
}

static void plot(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs,
                 bool ascii, const char *title, double (*value)(const struct storm_second *), double clip)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    const char *const *cells = ascii ? letters : blocks;
    const int top = 8;
    size_t seconds = seconds_of(p);
    size_t columns = seconds < PLOT_COLUMNS ? seconds : PLOT_COLUMNS;
    double high = 0;
    for (size_t s = 0; clip <= 0 && s < STORM_STRATEGY_COUNT; s++)
        for (size_t c = 0; c < columns; c++)
            high = fmax(high, mean_over(&runs[s], c * seconds / columns, (c + 1) * seconds / columns, value));
    if (clip > 0)
        high = clip;
    buffer_format(out, "\n%s, 0 to %.0f%s\n%-16s|", title, high, clip > 0 ? " and more" : "", "");
    for (size_t c = 0; c < columns; c++) {
        double at_s = ((double)c + 0.5) * p->length_s / (double)columns;
        bool spike = at_s >= p->spike_start_s && at_s < p->spike_start_s + p->spike_length_s;
        buffer_byte(out, spike ? 'x' : ' ');
    }
    buffer_text(out, "|  x: the spike\n");
    for (size_t s = 0; s < STORM_STRATEGY_COUNT; s++) {
        buffer_format(out, "%-16s|", storm_name((enum storm_strategy)s));
        for (size_t c = 0; c < columns; c++) {
            double v = mean_over(&runs[s], c * seconds / columns, (c + 1) * seconds / columns, value);
            int cell = high > 0 ? (int)ceil(v / high * top - 1e-9) : 0;
            buffer_text(out, cells[cell < 0 ? 0 : cell > top ? top : cell]);
        }
        buffer_format(out, "|%s\n", runs[s].recovered ? "" : " collapsed");
    }
    buffer_format(out, "%-16s0%*.0f s\n", "", (int)columns, p->length_s);
}

void storm_text(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs,
                bool ascii)
{
    buffer_format(out,
                  "%g calls a second, %g for %g s from second %g on; one server does %g a second; timeout %g "
                  "s, %u tries\n\n",
                  p->rate, p->spike_rate, p->spike_length_s, p->spike_start_s, p->capacity, p->timeout_s,
                  p->tries);
    buffer_format(out, "%-16s %10s %8s %9s %8s %11s %10s %8s  %s\n", "strategy", "confirmed", "tail",
                  "attempts", "refused", "duplicates", "unheard", "queries", "after the spike");
    for (size_t s = 0; s < STORM_STRATEGY_COUNT; s++) {
        const struct storm_run *r = &runs[s];
        buffer_format(out,
                      "%-16s %8.1f %% %6.0f %% %9" PRIu64 " %8" PRIu64 " %11" PRIu64 " %10" PRIu64
                      " %8" PRIu64 "  %s\n",
                      storm_name((enum storm_strategy)s), share(r->confirmed, r->calls),
                      100 * r->tail_success, r->attempts, r->refused, r->duplicates, r->effective_unconfirmed,
                      r->receipt_queries, r->recovered ? "recovers" : "stays collapsed");
    }
    buffer_text(
        out, "\nconfirmed: of all calls. tail: of the calls of the last fifth. unheard: took effect, and the "
             "client never knew.\n");
    plot(out, p, runs, ascii, "goodput, clients served a second", goodput_of, 0);
    plot(out, p, runs, ascii, "queue at the server, requests", queue_of, queue_clip(p));
    plot(out, p, runs, ascii, "duplicate effects so far", duplicates_of, 0);
    buffer_format(out,
                  "\n%u layers that each try %u times: %" PRIu64
                  " requests at the bottom for one call; with one layer "
                  "owning the retries: %" PRIu64 "\n",
                  p->layers, p->layer_tries, storm_layers(p->layers, p->layer_tries, false),
                  storm_layers(p->layers, p->layer_tries, true));
}

static void list(struct buffer *out, const char *name, const struct storm_parameters *p,
                 const struct storm_run *run, double (*value)(const struct storm_second *))
{
    buffer_format(out, ",\n     \"%s\": [", name);
    for (size_t i = 0; i < seconds_of(p); i++)
        buffer_format(out, "%s%.0f", i ? "," : "", value(&run->second[i]));
    buffer_byte(out, ']');
}

void storm_json(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs)
{
    const struct {
        const char *name;
        double value;
    } reals[] = {{"rate", p->rate},
                 {"spike_rate", p->spike_rate},
                 {"capacity", p->capacity},
                 {"length_s", p->length_s},
                 {"spike_start_s", p->spike_start_s},
                 {"spike_length_s", p->spike_length_s},
                 {"timeout_s", p->timeout_s},
                 {"fixed_delay_s", p->fixed_delay_s},
                 {"base_s", p->base_s},
                 {"cap_s", p->cap_s},
                 {"jitter_low", p->jitter_low},
                 {"jitter_high", p->jitter_high}};
    buffer_text(out, "{\n  \"parameters\": {");
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        buffer_format(out, "\"%s\": ", reals[i].name);
        number_exact(out, reals[i].value);
        buffer_text(out, ", ");
    }
    buffer_format(out,
                  "\"tries\": %u, \"budget_percent\": %u, \"queue_limit\": %" PRIu64
                  ", \"arrivals\": \"%s\", \"seed\": %" PRIu64 "},\n  \"rows\": [\n",
                  p->tries, p->budget_percent, p->queue_limit, p->poisson ? "poisson" : "even", p->seed);
    for (size_t s = 0; s < STORM_STRATEGY_COUNT; s++) {
        const struct storm_run *r = &runs[s];
        buffer_format(out,
                      "    {\"strategy\": \"%s\", \"calls\": %" PRIu64 ", \"confirmed\": %" PRIu64
                      ", \"attempts\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"duplicates\": %" PRIu64
                      ", \"effective_unconfirmed\": %" PRIu64 ", \"receipt_queries\": %" PRIu64
                      ", \"tail_success\": ",
                      storm_name((enum storm_strategy)s), r->calls, r->confirmed, r->attempts, r->refused,
                      r->duplicates, r->effective_unconfirmed, r->receipt_queries);
        number_exact(out, r->tail_success);
        buffer_format(out, ", \"recovered\": %s", r->recovered ? "true" : "false");
        list(out, "goodput", p, r, goodput_of);
        list(out, "arrived", p, r, attempts_of);
        list(out, "queue", p, r, queue_of);
        list(out, "duplicates_so_far", p, r, duplicates_of);
        buffer_text(out, s + 1 < STORM_STRATEGY_COUNT ? "},\n" : "}\n");
    }
    buffer_format(out,
                  "  ],\n  \"layers\": {\"layers\": %u, \"tries\": %u, \"each_retries\": %" PRIu64
                  ", \"one_owner\": %" PRIu64 "}\n}\n",
                  p->layers, p->layer_tries, storm_layers(p->layers, p->layer_tries, false),
                  storm_layers(p->layers, p->layer_tries, true));
}

void storm_csv(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs)
{
    buffer_text(out, "strategy,second,goodput,arrived,queue,duplicates_so_far\n");
    for (size_t s = 0; s < STORM_STRATEGY_COUNT; s++)
        for (size_t i = 0; i < seconds_of(p); i++) {
            const struct storm_second *at = &runs[s].second[i];
            buffer_format(out, "%s,%zu,%.0f,%.0f,%.0f,%.0f\n", storm_name((enum storm_strategy)s), i,
                          at->goodput, at->attempts, at->queue, at->duplicates);
        }
}

void storm_svg(struct buffer *out, const struct storm_parameters *p, const struct storm_run *runs)
{
    enum { COLUMNS = 3 };
    static double x[STORM_SECONDS_MAX], capacity[STORM_SECONDS_MAX];
    static double y[STORM_STRATEGY_COUNT][COLUMNS + 1][STORM_SECONDS_MAX];
    struct chart_series series[STORM_STRATEGY_COUNT][COLUMNS + 2];
    struct chart_panel panels[STORM_STRATEGY_COUNT * COLUMNS];
    char titles[STORM_STRATEGY_COUNT][120];
    size_t seconds = seconds_of(p);
    double high[COLUMNS] = {0};
    for (size_t i = 0; i < seconds; i++) {
        x[i] = (double)i;
        capacity[i] = p->capacity;
    }
    for (size_t s = 0; s < STORM_STRATEGY_COUNT; s++)
        for (size_t i = 0; i < seconds; i++) {
            const struct storm_second *at = &runs[s].second[i];
            y[s][0][i] = at->goodput;
            y[s][1][i] = at->attempts;
            y[s][2][i] = at->queue;
            y[s][3][i] = at->duplicates;
            high[0] = fmax(high[0], fmax(at->goodput, at->attempts));
            high[1] = fmax(high[1], at->queue);
            high[2] = fmax(high[2], at->duplicates);
        }
    high[1] = fmin(high[1], queue_clip(p));
    for (size_t s = 0; s < STORM_STRATEGY_COUNT; s++) {
        series[s][0] = (struct chart_series){.name = "goodput", .x = x, .y = y[s][0], .count = seconds};
        series[s][1] =
            (struct chart_series){.name = "requests arriving", .x = x, .y = y[s][1], .count = seconds};
        series[s][2] = (struct chart_series){.name = "capacity", .x = x, .y = capacity, .count = seconds};
        series[s][3] = (struct chart_series){.name = "waiting", .x = x, .y = y[s][2], .count = seconds};
        series[s][4] = (struct chart_series){.name = "duplicates", .x = x, .y = y[s][3], .count = seconds};
        snprintf(titles[s], sizeof titles[s], "%s: %.1f %% confirmed, %s", storm_name((enum storm_strategy)s),
                 share(runs[s].confirmed, runs[s].calls), runs[s].recovered ? "recovers" : "stays collapsed");
        const struct chart_panel panel = {.kind = CHART_LINES,
                                          .x_label = "time (s)",
                                          .band_start = p->spike_start_s,
                                          .band_end = p->spike_start_s + p->spike_length_s};
        for (size_t c = 0; c < COLUMNS; c++) {
            struct chart_panel *at = &panels[s * COLUMNS + c];
            *at = panel;
            at->title = c == 0   ? titles[s]
                        : c == 1 ? "queue at the server (cut off at 2 timeouts)"
                                 : "duplicate effects so far";
            at->y_label = c == 0 ? "per second" : c == 1 ? "requests waiting" : "effects";
            at->series = c == 0 ? series[s] : &series[s][c + 2];
            at->series_count = c == 0 ? 3 : 1;
            at->legend = c == 0;
            at->y_max = fmax(high[c], 1); /* one scale per column, so that rows can be compared */
        }
    }
    char note[200];
    snprintf(note, sizeof note,
             "%g calls/s, %g/s for %g s (grey); one server, %g/s, first come first served; timeout %g s, %u "
             "tries; seed "
             "%" PRIu64,
             p->rate, p->spike_rate, p->spike_length_s, p->capacity, p->timeout_s, p->tries, p->seed);
    chart_write(out,
                &(struct chart_layout){.title = "After the spike: who recovers, who stays collapsed",
                                       .note = note,
                                       .columns = COLUMNS,
                                       .panel_width = 420,
                                       .panel_height = 230},
                panels, sizeof panels / sizeof panels[0]);
}
