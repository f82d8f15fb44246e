/* SPDX-License-Identifier: MIT */
#include "sim/chart.h"
#include "sim/number.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

/* Room around the plotting area of a panel, in pixels. */
enum {
    LEFT = 66,
    RIGHT = 14,
    TOP = 26,
    BOTTOM = 44,
    MARGIN = 12,
    HEAD = 58,
    LEGEND_ROW = 17,
    LEGEND_KEY = 34
};

/* Eight lines that a photocopy keeps apart: dash pattern, width, marker. */
static const struct {
    const char *dash;
    const char *width;
    char marker;
} LINES[CHART_SERIES_MAX] = {{"", "1.8", 'o'},         {"7 4", "1.6", 's'},       {"2 3", "1.8", 't'},
                             {"10 3 2 3", "1.6", 'd'}, {"", "0.9", 'x'},          {"4 2", "0.9", '+'},
                             {"1 2", "1.1", 'O'},      {"12 3 2 3 2 3", "1", 'S'}};

static const char *const FILLS[CHART_SERIES_MAX] = {
    "#222", "url(#lines)", "#bbb", "url(#dots)", "url(#crosses)", "#fff", "url(#rises)", "#777"};

static void escaped(struct buffer *b, const char *text)
{
    for (; text && *text; text++)
        switch (*text) {
        case '<':
            buffer_text(b, "&lt;");
            break;
        case '>':
            buffer_text(b, "&gt;");
            break;
        case '&':
            buffer_text(b, "&amp;");
            break;
        case '"':
            buffer_text(b, "&quot;");
            break;
        default:
            buffer_byte(b, *text);
        }
}

static void label(struct buffer *b, double x, double y, const char *anchor, const char *extra,
                  const char *text)
{
    buffer_format(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, extra);
    escaped(b, text);
    buffer_text(b, "</text>\n");
}

/* A step of 1, 2 or 5 times a power of ten that gives about `wanted` ticks. */
static double tick_step(double span, int wanted)
{
    double raw = span / wanted;
    double power = pow(10, floor(log10(raw)));
    double ratio = raw / power;
    return power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}

struct axis {
    double low, high, step;
    double from, to; /* pixels */
};

static double place(const struct axis *a, double value)
{
    return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

static struct axis axis_over(double low, double high, bool whole_steps, int wanted, double from, double to)
{
    if (!(high > low))
        high = low + 1;
    struct axis a = {.low = low, .high = high, .step = tick_step(high - low, wanted), .from = from, .to = to};
    if (whole_steps)
        a.high = low + ceil((high - low) / a.step - 1e-9) * a.step;
    return a;
}

static void tick_text(struct buffer *b, double value)
{
    char text[48];
    if (fabs(value) < 1e-12)
        value = 0;
    if (value >= 1e6)
        snprintf(text, sizeof text, "%gM", value / 1e6);
    else
        snprintf(text, sizeof text, "%.6g", value);
    buffer_text(b, text);
}

static void marker(struct buffer *b, char shape, double x, double y)
{
    switch (shape) {
    case 'o':
    case 'O':
        buffer_format(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y,
                      shape == 'o' ? "#000" : "#fff");
        return;
    case 's':
    case 'S':
        buffer_format(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" fill=\"%s\"/>\n", x - 3, y - 3,
                      shape == 's' ? "#fff" : "#000");
        return;
    case 't':
        buffer_format(b, "<path d=\"M%.1f %.1fl3.6 6.4h-7.2z\" fill=\"#000\"/>\n", x, y - 3.6);
        return;
    case 'd':
        buffer_format(b, "<path d=\"M%.1f %.1fl4 4-4 4-4-4z\" fill=\"#fff\"/>\n", x, y - 4);
        return;
    case 'x':
        buffer_format(b, "<path d=\"M%.1f %.1fl6 6m-6 0l6-6\"/>\n", x - 3, y - 3);
        return;
    default:
        buffer_format(b, "<path d=\"M%.1f %.1fv8m-4-4h8\"/>\n", x, y - 4);
    }
}

static void line_key(struct buffer *b, size_t pattern, double x0, double x1, double y, bool marked)
{
    buffer_format(b,
                  "<path d=\"M%.1f %.1fH%.1f\" fill=\"none\" stroke=\"#000\" stroke-width=\"%s\"%s%s%s/>\n",
                  x0, y, x1, LINES[pattern].width, *LINES[pattern].dash ? " stroke-dasharray=\"" : "",
                  LINES[pattern].dash, *LINES[pattern].dash ? "\"" : "");
    if (marked) {
        buffer_text(b, "<g stroke=\"#000\">");
        marker(b, LINES[pattern].marker, (x0 + x1) / 2, y);
        buffer_text(b, "</g>\n");
    }
}

static void lines(struct buffer *b, const struct chart_panel *p, const struct axis *x, const struct axis *y)
{
    for (size_t s = 0; s < p->series_count; s++) {
        const struct chart_series *series = &p->series[s];
        buffer_format(b, "<path fill=\"none\" stroke=\"#000\" stroke-linejoin=\"round\" stroke-width=\"%s\"",
                      LINES[s].width);
        if (*LINES[s].dash)
            buffer_format(b, " stroke-dasharray=\"%s\"", LINES[s].dash);
        buffer_text(b, " d=\"");
        for (size_t i = 0; i < series->count; i++)
            buffer_format(b, "%c%.1f %.1f", i ? 'L' : 'M', place(x, series->x[i]),
                          place(y, fmin(series->y[i], y->high)));
        buffer_text(b, "\"/>\n");
        if (!series->markers)
            continue;
        buffer_text(b, "<g stroke=\"#000\">");
        for (size_t i = 0; i < series->count; i += series->markers)
            marker(b, LINES[s].marker, place(x, series->x[i]), place(y, fmin(series->y[i], y->high)));
        buffer_text(b, "</g>\n");
    }
}

static void bars(struct buffer *b, const struct chart_panel *p, const struct axis *x, const struct axis *y)
{
    double slot = (x->to - x->from) / (double)p->category_count;
    double width = slot * 0.76 / (double)p->series_count;
    for (size_t c = 0; c < p->category_count; c++) {
        double start = x->from + slot * ((double)c + 0.12);
        for (size_t s = 0; s < p->series_count; s++) {
            double value = p->series[s].y[c];
            double top = place(y, fmin(value, y->high));
            double left = start + width * (double)s;
            buffer_format(
                b,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" stroke=\"#000\"/>\n",
                left, top, width, y->from - top, FILLS[s]);
            struct buffer text = {0};
            number_short(&text, value, fabs(value) < 10 ? 2 : 0);
            label(b, left + width / 2, top - 3, "middle", " font-size=\"9\"", buffer_cstring(&text));
            buffer_fini(&text);
        }
        label(b, start + slot * 0.38, y->from + 15, "middle", "", p->categories[c]);
    }
}

static double legend_height(const struct chart_panel *p)
{
    size_t rows = (p->series_count + 1) / 2;
    return p->legend ? LEGEND_ROW * (double)rows + 6 : 0;
}

static void legend(struct buffer *b, const struct chart_panel *p, double left, double top, double width)
{
    for (size_t s = 0; s < p->series_count; s++) {
        double x = left + (double)(s % 2) * width / 2;
        size_t row = s / 2;
        double y = top + LEGEND_ROW * (double)row + 8;
        if (p->kind == CHART_BARS)
            buffer_format(
                b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"10\" fill=\"%s\" stroke=\"#000\"/>\n",
                x, y - 5, LEGEND_KEY, FILLS[s]);
        else
            line_key(b, s, x, x + LEGEND_KEY, y, p->series[s].markers > 0);
        label(b, x + LEGEND_KEY + 6, y + 4, "start", "", p->series[s].name);
    }
}

static void panel(struct buffer *b, const struct chart_panel *p, double left, double top, double width,
                  double height)
{
    assert(p->series_count > 0 && p->series_count <= CHART_SERIES_MAX);
    double x_low = INFINITY, x_high = -INFINITY, y_high = p->y_max;
    for (size_t s = 0; s < p->series_count; s++)
        for (size_t i = 0; i < p->series[s].count; i++) {
            if (p->kind == CHART_LINES) {
                x_low = fmin(x_low, p->series[s].x[i]);
                x_high = fmax(x_high, p->series[s].x[i]);
            }
            if (p->y_max <= 0)
                y_high = fmax(y_high, p->series[s].y[i]);
        }
    if (p->kind == CHART_BARS)
        x_low = 0, x_high = 1,
        y_high *= p->y_max > 0 ? 1 : 1.04; /* room for the number over the highest bar */
    double keys = legend_height(p);
    double bottom = top + height - BOTTOM;
    double plot_top = top + TOP + keys;
    struct axis x = axis_over(x_low, x_high, false, 6, left + LEFT, left + width - RIGHT);
    struct axis y = axis_over(0, y_high, true, (int)fmax(3, (bottom - plot_top) / 40), bottom, plot_top);

    label(b, left + LEFT, top + 15, "start", " font-weight=\"bold\"", p->title);
    if (p->legend)
        legend(b, p, left + LEFT, top + TOP - 4, width - LEFT - RIGHT);
    if (p->band_end > p->band_start)
        buffer_format(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#ddd\"/>\n",
                      place(&x, p->band_start), plot_top, place(&x, p->band_end) - place(&x, p->band_start),
                      bottom - plot_top);
    for (double v = 0; v <= y.high * (1 + 1e-9); v += y.step) {
        double at = place(&y, v);
        buffer_format(b, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ccc\" stroke-width=\"0.6\"/>\n", x.from, at,
                      x.to);
        buffer_format(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", x.from - 5, at + 4);
        tick_text(b, v);
        buffer_text(b, "</text>\n");
    }
    if (p->kind == CHART_LINES)
        for (double v = ceil(x.low / x.step - 1e-9) * x.step; v <= x.high * (1 + 1e-9); v += x.step) {
            buffer_format(b,
                          "<path d=\"M%.1f %.1fv4\" stroke=\"#000\"/>\n<text x=\"%.1f\" y=\"%.1f\" "
                          "text-anchor=\"middle\">",
                          place(&x, v), bottom, place(&x, v), bottom + 16);
            tick_text(b, v);
            buffer_text(b, "</text>\n");
        }
    if (p->kind == CHART_LINES)
        lines(b, p, &x, &y);
    else
        bars(b, p, &x, &y);
    buffer_format(b, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#000\"/>\n", x.from, plot_top,
                  bottom, x.to);
    label(b, (x.from + x.to) / 2, top + height - 10, "middle", "", p->x_label);
    char turn[80];
    snprintf(turn, sizeof turn, " transform=\"rotate(-90 %.1f %.1f)\"", left + 14, (bottom + plot_top) / 2);
    label(b, left + 14, (bottom + plot_top) / 2, "middle", turn, p->y_label);
}

void chart_write(struct buffer *out, const struct chart_layout *layout, const struct chart_panel *panels,
                 size_t count)
{
    size_t rows = (count + layout->columns - 1) / layout->columns;
    int width = 2 * MARGIN + (int)layout->columns * layout->panel_width;
    int height = HEAD + MARGIN + (int)rows * layout->panel_height;
    buffer_format(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<defs>\n"
        "<pattern id=\"lines\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" "
        "height=\"6\" fill=\"#fff\"/><path d=\"M0 6L6 0\" stroke=\"#000\"/></pattern>\n"
        "<pattern id=\"dots\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect width=\"5\" "
        "height=\"5\" fill=\"#fff\"/><circle cx=\"2.5\" cy=\"2.5\" r=\"1.1\"/></pattern>\n"
        "<pattern id=\"crosses\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\"><rect width=\"7\" "
        "height=\"7\" fill=\"#fff\"/><path d=\"M0 3.5H7M3.5 0V7\" stroke=\"#000\" "
        "stroke-width=\"0.8\"/></pattern>\n"
        "<pattern id=\"rises\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" "
        "height=\"4\" fill=\"#fff\"/><path d=\"M1 0V4\" stroke=\"#000\"/></pattern>\n"
        "</defs>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
        width, height, width, height, width, height);
    label(out, MARGIN, 24, "start", " font-size=\"16\" font-weight=\"bold\"", layout->title);
    if (layout->note)
        label(out, MARGIN, 43, "start", "", layout->note);
    for (size_t i = 0; i < count; i++) {
        size_t row = i / layout->columns, column = i % layout->columns;
        panel(out, &panels[i], MARGIN + (double)column * layout->panel_width,
              HEAD + (double)row * layout->panel_height, layout->panel_width, layout->panel_height);
    }
    buffer_text(out, "</svg>\n");
}
