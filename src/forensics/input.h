/* SPDX-License-Identifier: MIT
 *
 * Lines of a file, of standard input (`-`), or of either compressed by gzip or zstd (told by the first bytes, not by the
 * name; several members behind one another are one stream). Reads in large blocks; a line borrows from the block.
 */
#ifndef SAMEKEY_FORENSICS_INPUT_H
#define SAMEKEY_FORENSICS_INPUT_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define INPUT_LINE_BYTES_MAX (8u << 20) /* a longer line is skipped and told as damaged */

struct input;

/* Opens a path or `-`. STATUS_NOT_FOUND, STATUS_IO: errno says why. STATUS_NO_MEMORY. */
enum status input_open(struct input **out, const char *path);

struct input_line {
    struct slice text; /* without its line end */
    bool ended;        /* false: the file stops in the middle of a line */
    bool cut;          /* longer than INPUT_LINE_BYTES_MAX; it was skipped and text is empty */
    bool ascii;        /* no byte above 127 */
};

/* The next line; false at the end, or when the file cannot be read on (input_error). */
bool input_next(struct input *in, struct input_line *out);

/* Why reading stopped early, or NULL: a read error, or a compressed stream that is damaged or cut. */
const char *input_error(const struct input *in);

/* Bytes of the file that were read, and how many there are (0: not known, a pipe). */
uint64_t input_bytes_read(const struct input *in);
uint64_t input_bytes_all(const struct input *in);
/* How many bytes a path or `-` has, as input_bytes_all(). It is not opened: whoever writes into a named pipe would take that
 * for its reader, and the close for its end. */
uint64_t input_size(const char *path);

/* Whether it is compressed; after the first line. */
bool input_packed(const struct input *in);

void input_close(struct input *in);

#endif
