/* SPDX-License-Identifier: MIT
 *
 * Numbers as the simulator reads and prints them. Reading is strict: the whole text is the number and it lies
 * within its bounds, or it is refused with a sentence that names the flag and the bounds. Printing is exact: the
 * shortest decimal that reads back as the same double, so that two runs can be compared byte by byte.
 */
#ifndef SAMEKEY_SIM_NUMBER_H
#define SAMEKEY_SIM_NUMBER_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdint.h>

enum { NUMBER_MESSAGE_BYTES = 200 };

/* Reads a decimal fraction in [low, high]. STATUS_INVALID leaves *out and writes a sentence into message
 * (NUMBER_MESSAGE_BYTES bytes), beginning with the flag's name: "--fail is 1.5; it must lie in 0 to 1". */
enum status number_real(double *out, const char *flag, const char *text, double low, double high,
                        char *message);

/* Reads an unsigned decimal number in [low, high], all 64 bits. Errors as number_real. */
enum status number_whole(uint64_t *out, const char *flag, const char *text, uint64_t low, uint64_t high,
                         char *message);

/* Reads a duration into seconds: digits with an optional fraction and a unit ms, s, m, h or d (CONTRACT section
 * 7); a bare number is in seconds. Bounds are in seconds. Errors as number_real. */
enum status number_duration(double *seconds, const char *flag, const char *text, double low, double high,
                            char *message);

/* Reads "LO:HI", the factors of a jitter, 0 <= LO <= HI <= 10. Errors as number_real. */
enum status number_range(double *low, double *high, const char *flag, const char *text, char *message);

/* Appends the shortest decimal that reads back as the same double; valid JSON for every finite number. */
void number_exact(struct buffer *b, double value);

/* Appends at most `decimals` (0 to 12) digits after the point, without trailing zeros: 0.3025, 0, 17. */
void number_short(struct buffer *b, double value, int decimals);

#endif
