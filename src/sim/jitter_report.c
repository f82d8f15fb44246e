/* SPDX-License-Identifier: MIT */
#include "sim/chart.h"
#include "sim/jitter.h"
#include "sim/number.h"

#include <inttypes.h>
#include <stdio.h>

/* The published values hold for one set of parameters only. */
static bool comparable(const struct jitter_parameters *p)
{
    struct jitter_parameters d;
    jitter_defaults(&d);
    return p->clients == d.clients && p->base_ms == d.base_ms && p->cap_ms == d.cap_ms &&
           p->delay_mean_ms == d.delay_mean_ms && p->delay_deviation_ms == d.delay_deviation_ms;
}

void jitter_text(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result)
{
    bool compare = comparable(p);
    buffer_format(out, "%-15s %10s %10s %14s %10s", "strategy", "calls", "+/-", "completion_ms", "+/-");
    buffer_text(out, compare ? "  published  difference\n" : "\n");
    for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++) {
        const struct jitter_cell *c = &result->cell[s][p->steps - 1];
        double published = jitter_published_calls((enum jitter_strategy)s);
        buffer_format(out, "%-15s %10.1f %10.1f %14.0f %10.0f", jitter_name((enum jitter_strategy)s),
                      c->calls, c->calls_deviation, c->completion_ms, c->completion_deviation_ms);
        if (compare && published > 0)
            buffer_format(out, " %10.0f %+9.1f %%", published, 100 * (c->calls - published) / published);
        else if (compare)
            buffer_format(out, " %10s", "-");
        buffer_byte(out, '\n');
    }
}

void jitter_json(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result)
{
    bool compare = comparable(p);
    buffer_format(
        out, "{\n  \"parameters\": {\"clients\": %" PRIu64 ", \"runs\": %" PRIu64 ", \"steps\": %" PRIu64,
        p->clients, p->runs, p->steps);
    const struct {
        const char *name;
        double value;
    } reals[] = {{"base_ms", p->base_ms},
                 {"cap_ms", p->cap_ms},
                 {"delay_mean_ms", p->delay_mean_ms},
                 {"delay_deviation_ms", p->delay_deviation_ms}};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        buffer_format(out, ", \"%s\": ", reals[i].name);
        number_exact(out, reals[i].value);
    }
    buffer_format(out, ", \"seed\": %" PRIu64 "},\n  \"rows\": [\n", p->seed);
    for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++)
        for (size_t i = 0; i < p->steps; i++) {
            const struct jitter_cell *c = &result->cell[s][i];
            double published = jitter_published_calls((enum jitter_strategy)s);
            buffer_format(out, "    {\"strategy\": \"%s\", \"clients\": %" PRIu64 ", \"calls\": ",
                          jitter_name((enum jitter_strategy)s), c->clients);
            number_exact(out, c->calls);
            buffer_text(out, ", \"calls_deviation\": ");
            number_exact(out, c->calls_deviation);
            buffer_text(out, ", \"completion_ms\": ");
            number_exact(out, c->completion_ms);
            buffer_text(out, ", \"completion_deviation_ms\": ");
            number_exact(out, c->completion_deviation_ms);
            if (compare && published > 0 && i + 1 == p->steps)
                buffer_format(out, ", \"published_calls\": %.0f", published);
            buffer_text(out, s + 1 < JITTER_STRATEGY_COUNT || i + 1 < p->steps ? "},\n" : "}\n");
        }
    buffer_text(out, "  ]\n}\n");
}

void jitter_csv(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result)
{
    buffer_text(out, "strategy,clients,calls,calls_deviation,completion_ms,completion_deviation_ms\n");
    for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++)
        for (size_t i = 0; i < p->steps; i++) {
            const struct jitter_cell *c = &result->cell[s][i];
            buffer_format(out, "%s,%" PRIu64, jitter_name((enum jitter_strategy)s), c->clients);
            const double values[] = {c->calls, c->calls_deviation, c->completion_ms,
                                     c->completion_deviation_ms};
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                buffer_byte(out, ',');
                number_exact(out, values[v]);
            }
            buffer_byte(out, '\n');
        }
}

void jitter_svg(struct buffer *out, const struct jitter_parameters *p, const struct jitter_result *result)
{
    double x[JITTER_STEPS_MAX], calls[JITTER_STRATEGY_COUNT][JITTER_STEPS_MAX];
    double times[JITTER_STRATEGY_COUNT][JITTER_STEPS_MAX];
    struct chart_series call_lines[JITTER_STRATEGY_COUNT], time_lines[JITTER_STRATEGY_COUNT];
    for (size_t s = 0; s < JITTER_STRATEGY_COUNT; s++) {
        for (size_t i = 0; i < p->steps; i++) {
            x[i] = (double)result->cell[s][i].clients;
            calls[s][i] = result->cell[s][i].calls;
            times[s][i] = result->cell[s][i].completion_ms / 1000;
        }
        call_lines[s] = (struct chart_series){.name = jitter_name((enum jitter_strategy)s),
                                              .x = x,
                                              .y = calls[s],
                                              .count = p->steps,
                                              .markers = 1};
        time_lines[s] = call_lines[s];
        time_lines[s].y = times[s];
    }
    const struct chart_panel panels[] = {
        {.kind = CHART_LINES,
         .title = "Work: writes until all have won",
         .x_label = "competing clients",
         .y_label = "writes that reached the server",
         .series = call_lines,
         .series_count = JITTER_STRATEGY_COUNT,
         .legend = true},
        {.kind = CHART_LINES,
         .title = "Time until the last client is done",
         .x_label = "competing clients",
         .y_label = "completion time (s)",
         .series = time_lines,
         .series_count = JITTER_STRATEGY_COUNT,
         .legend = true},
    };
    char note[200];
    snprintf(
        note, sizeof note,
        "one optimistic write per client; network normal(%g, %g) ms each way; base %g ms, cap %g ms; mean of "
        "%" PRIu64 " runs; seed %" PRIu64,
        p->delay_mean_ms, p->delay_deviation_ms, p->base_ms, p->cap_ms, p->runs, p->seed);
    chart_write(out,
                &(struct chart_layout){.title = "Who waits how: contention for one row",
                                       .note = note,
                                       .columns = 2,
                                       .panel_width = 520,
                                       .panel_height = 420},
                panels, sizeof panels / sizeof panels[0]);
}
