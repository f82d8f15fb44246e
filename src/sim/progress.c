/* SPDX-License-Identifier: MIT */
#include "sim/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const int64_t FIRST_AFTER_NS = 500000000;
static const int64_t AGAIN_AFTER_NS = 100000000;
enum { BAR_CELLS = 30, LINE_BYTES = 120 };

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void progress_begin(struct progress *p)
{
    *p = (struct progress){.shown = isatty(STDERR_FILENO), .start_ns = monotonic_ns()};
}

void progress_line(char *text, size_t size, double share, double elapsed_s)
{
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    char bar[BAR_CELLS + 1];
    int full = (int)(share * BAR_CELLS);
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR_CELLS] = 0;
    if (share <= 0) {
        snprintf(text, size, "[%s]   0 %%", bar);
        return;
    }
    double left_s = elapsed_s * (1 - share) / share;
    if (left_s >= 90)
        snprintf(text, size, "[%s] %3.0f %%  %.0f min left", bar, share * 100, left_s / 60);
    else
        snprintf(text, size, "[%s] %3.0f %%  %.0f s left", bar, share * 100, left_s);
}

void progress_tell(struct progress *p, double share)
{
    if (!p || !p->shown)
        return;
    int64_t now = monotonic_ns();
    if (now - p->start_ns < FIRST_AFTER_NS || now - p->last_ns < AGAIN_AFTER_NS)
        return;
    p->last_ns = now;
    p->drawn = true;
    char line[LINE_BYTES];
    progress_line(line, sizeof line, share, (double)(now - p->start_ns) / 1e9);
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
}

void progress_end(struct progress *p)
{
    if (p && p->drawn)
        fputs("\r\033[K", stderr);
}
