/* SPDX-License-Identifier: MIT
 *
 * Reads test/guard/decisions.txt for the drivers in C.
 */
#ifndef SAMEKEY_TEST_GUARD_DECISIONS_H
#define SAMEKEY_TEST_GUARD_DECISIONS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct decision {
    int line;
    char key, fingerprint, route;
    bool old;
    char own[16], own_key, own_fingerprint, own_route;
    char holder[16], holder_fingerprint;
    char verdict[24];
};

/* Calls `play` for each row of the table; returns how many there were. */
static inline int decisions_play(void (*play)(void *context, const struct decision *d), void *context)
{
    FILE *file = fopen(SAMEKEY_SOURCE_DIR "/test/guard/decisions.txt", "r");
    if (!file)
        return 0;
    char line[256], age[8];
    int number = 0, rows = 0;
    while (fgets(line, sizeof line, file)) {
        struct decision d = {.line = ++number};
        if (*line == '#')
            continue;
        int got = sscanf(line, "%c %c %c %7s | %15s %c %c %c | %15s %c | %23s", &d.key, &d.fingerprint,
                         &d.route, age, d.own, &d.own_key, &d.own_fingerprint, &d.own_route, d.holder,
                         &d.holder_fingerprint, d.verdict);
        if (got != 11) {
            rows = 0; /* a damaged table is no table */
            break;
        }
        d.old = strcmp(age, "old") == 0;
        play(context, &d);
        rows++;
    }
    fclose(file);
    return rows;
}

#endif
