/* SPDX-License-Identifier: MIT */
#include "sim/article.h"
#include "sim/chart.h"
#include "sim/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void article_text(struct buffer *out, const struct article_parameters *p, const struct article_row *rows)
{
    bool asks = false;
    for (size_t i = 0; i < p->strategy_count; i++)
        asks = asks || rows[i].strategy == ARTICLE_RECEIPT_FIRST;
    buffer_format(out, "%-19s %12s %12s %19s %23s %12s %12s", "strategy", "confirmed", "duplicates",
                  "duplicates_with_key", "effective_unconfirmed", "attempts", "mean_wait_s");
    buffer_text(out, asks ? "  receipt_queries\n" : "\n");
    for (size_t i = 0; i < p->strategy_count; i++) {
        const struct article_row *r = &rows[i];
        struct buffer wait = {0};
        number_short(&wait, r->mean_wait_s, 4);
        buffer_format(out, "%-19s %12" PRIu64 " %12" PRIu64 " %19" PRIu64 " %23" PRIu64 " %12" PRIu64 " %12s",
                      article_name(r->strategy), r->confirmed, r->duplicates, r->duplicates_with_key,
                      r->effective_unconfirmed, r->attempts, buffer_cstring(&wait));
        buffer_fini(&wait);
        if (asks)
            buffer_format(out, " %16" PRIu64, r->receipt_queries);
        buffer_byte(out, '\n');
    }
}

static void member(struct buffer *out, const char *name, double value)
{
    buffer_format(out, "\"%s\": ", name);
    number_exact(out, value);
}

void article_json(struct buffer *out, const struct article_parameters *p, const struct article_row *rows)
{
    buffer_format(out, "{\n  \"parameters\": {\"calls\": %" PRIu64 ", ", p->calls);
    member(out, "fail", p->fail);
    buffer_text(out, ", ");
    member(out, "timeout", p->timeout);
    buffer_format(out, ", \"attempts\": %u, ", p->attempts);
    member(out, "fixed_delay_s", p->fixed_delay_s);
    buffer_text(out, ", ");
    member(out, "base_s", p->base_s);
    buffer_text(out, ", ");
    member(out, "cap_s", p->cap_s);
    buffer_text(out, ", \"jitter\": [");
    number_exact(out, p->jitter_low);
    buffer_text(out, ", ");
    number_exact(out, p->jitter_high);
    buffer_format(out, "], \"seed\": %" PRIu64 "},\n  \"rows\": [\n", p->seed);
    for (size_t i = 0; i < p->strategy_count; i++) {
        const struct article_row *r = &rows[i];
        buffer_format(out,
                      "    {\"strategy\": \"%s\", \"confirmed\": %" PRIu64 ", \"duplicates\": %" PRIu64
                      ", \"duplicates_with_key\": %" PRIu64 ", \"effective_unconfirmed\": %" PRIu64
                      ", \"attempts\": %" PRIu64 ", ",
                      article_name(r->strategy), r->confirmed, r->duplicates, r->duplicates_with_key,
                      r->effective_unconfirmed, r->attempts);
        member(out, "mean_wait_s", r->mean_wait_s);
        if (r->strategy == ARTICLE_RECEIPT_FIRST)
            buffer_format(out, ", \"receipt_queries\": %" PRIu64, r->receipt_queries);
        buffer_text(out, i + 1 < p->strategy_count ? "},\n" : "}\n");
    }
    buffer_text(out, "  ]\n}\n");
}

void article_csv(struct buffer *out, const struct article_parameters *p, const struct article_row *rows)
{
    buffer_text(
        out,
        "strategy,confirmed,duplicates,duplicates_with_key,effective_unconfirmed,attempts,mean_wait_s\n");
    for (size_t i = 0; i < p->strategy_count; i++) {
        const struct article_row *r = &rows[i];
        buffer_format(out, "%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",",
                      article_name(r->strategy), r->confirmed, r->duplicates, r->duplicates_with_key,
                      r->effective_unconfirmed, r->attempts);
        number_exact(out, r->mean_wait_s);
        buffer_byte(out, '\n');
    }
}

void article_svg(struct buffer *out, const struct article_parameters *p, const struct article_row *rows)
{
    enum { COUNTS = 4 };
    static const char *const counts[COUNTS] = {"confirmed", "effective, never confirmed", "duplicates",
                                               "duplicates where receipts are kept"};
    double values[COUNTS][ARTICLE_STRATEGIES_MAX], attempts[ARTICLE_STRATEGIES_MAX],
        waits[ARTICLE_STRATEGIES_MAX];
    const char *names[ARTICLE_STRATEGIES_MAX];
    double share = 100 / (double)p->calls;
    for (size_t i = 0; i < p->strategy_count; i++) {
        values[0][i] = (double)rows[i].confirmed * share;
        values[1][i] = (double)rows[i].effective_unconfirmed * share;
        values[2][i] = (double)rows[i].duplicates * share;
        values[3][i] = (double)rows[i].duplicates_with_key * share;
        attempts[i] = (double)rows[i].attempts / (double)p->calls;
        waits[i] = rows[i].mean_wait_s;
        names[i] = article_name(rows[i].strategy);
    }
    double highest = 0;
    for (size_t i = 0; i < p->strategy_count; i++)
        highest = fmax(highest, fmax(values[2][i], values[3][i]));
    struct chart_series shares[COUNTS];
    for (size_t i = 0; i < COUNTS; i++)
        shares[i] = (struct chart_series){.name = counts[i], .y = values[i], .count = p->strategy_count};
    struct chart_series cost = {.name = "attempts", .y = attempts, .count = p->strategy_count};
    struct chart_series wait = {.name = "wait", .y = waits, .count = p->strategy_count};
    struct chart_panel panels[] = {
        {.kind = CHART_BARS,
         .title = "What came of the calls",
         .x_label = "strategy",
         .y_label = "share of calls (%)",
         .series = shares,
         .series_count = COUNTS,
         .categories = names,
         .category_count = p->strategy_count,
         .y_max = highest > 100 ? 0 : 100,
         .legend = true},
        {.kind = CHART_BARS,
         .title = "What it cost the callee",
         .x_label = "strategy",
         .y_label = "attempts per call",
         .series = &cost,
         .series_count = 1,
         .categories = names,
         .category_count = p->strategy_count},
        {.kind = CHART_BARS,
         .title = "What it cost the caller",
         .x_label = "strategy",
         .y_label = "mean wait per call (s)",
         .series = &wait,
         .series_count = 1,
         .categories = names,
         .category_count = p->strategy_count},
    };
    char note[160];
    snprintf(
        note, sizeof note,
        "%" PRIu64
        " calls, %g %% fail for certain, %g %% time out after the effect, at most %u attempts, seed %" PRIu64,
        p->calls, p->fail * 100, p->timeout * 100, p->attempts, p->seed);
    int width = 120 + (int)p->strategy_count * 170;
    chart_write(out,
                &(struct chart_layout){.title = "Retrying by lot",
                                       .note = note,
                                       .columns = 1,
                                       .panel_width = width < 640 ? 640 : width,
                                       .panel_height = 300},
                panels, sizeof panels / sizeof panels[0]);
}
