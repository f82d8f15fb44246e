/* SPDX-License-Identifier: MIT
 *
 * Charts as SVG: a grid of small panels of lines or bars, each with a title, labelled axes and units. Made to be
 * read on a black-and-white print: lines differ by dash pattern and by marker, bars by hatching; nothing is told
 * by colour. Pure text out; no fonts or scripts are fetched.
 */
#ifndef SAMEKEY_SIM_CHART_H
#define SAMEKEY_SIM_CHART_H

#include "base/buffer.h"

enum {
    CHART_SERIES_MAX = 8, /* lines or bar groups in a panel: as many as there are patterns that differ */
};

enum chart_kind {
    CHART_LINES,
    CHART_BARS, /* x of a series is not read; y[i] stands over categories[i] */
};

/* Borrowed arrays of `count` numbers. markers = 0 draws a plain line; n draws a marker at every n-th point. */
struct chart_series {
    const char *name;
    const double *x, *y;
    size_t count;
    size_t markers;
};

/* Everything borrowed. The shaded band [band_start, band_end] is drawn when band_end > band_start. y_max = 0 fits
 * the axis to the data; x always runs from the smallest to the largest x. */
struct chart_panel {
    enum chart_kind kind;
    const char *title, *x_label, *y_label;
    const struct chart_series *series;
    size_t series_count;
    const char *const *categories;
    size_t category_count;
    double band_start, band_end;
    double y_max;
    bool legend;
};

/* How the panels are laid out, in pixels (1 px = 1/96 inch). */
struct chart_layout {
    const char *title;
    const char *note; /* one line under the title: the parameters; may be NULL */
    size_t columns;
    int panel_width, panel_height;
};

/* Appends a whole SVG document. Texts are escaped. */
void chart_write(struct buffer *out, const struct chart_layout *layout, const struct chart_panel *panels,
                 size_t count);

#endif
