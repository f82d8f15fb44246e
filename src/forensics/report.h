/* SPDX-License-Identifier: MIT
 *
 * A diagnosis for people (text), for machines (JSON, CONTRACT section 8) and for a browser (one HTML file that loads
 * nothing). Each only prints.
 */
#ifndef SAMEKEY_FORENSICS_REPORT_H
#define SAMEKEY_FORENSICS_REPORT_H

#include "forensics/clock.h"
#include "forensics/diagnosis.h"

#include <stdio.h>

struct report {
    const struct diagnosis *d;
    const struct gather *g;
    const struct clocks *clocks;
};

/* Each writes to `out` as it goes; the stream's own error flag says whether all of it arrived. */
void report_json(const struct report *r, FILE *out);
void report_text(const struct report *r, FILE *out, bool colour, bool all);
void report_html(const struct report *r, FILE *out);

/* file:line */
void report_line(const struct report *r, struct line_ref ref, struct buffer *out);

#endif
