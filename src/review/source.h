/* SPDX-License-Identifier: MIT
 *
 * One file, read whole into memory with its lines. Only regular files (and what the caller already holds in
 * memory) are read, never more than SOURCE_BYTES_MAX, and nothing that is not text.
 */
#ifndef SAMEKEY_REVIEW_SOURCE_H
#define SAMEKEY_REVIEW_SOURCE_H

#include "base/status.h"
#include "review/pool.h"

#include <sys/types.h>

/* Bytes of one file. The largest real configuration we know (a mesh's route dump) is under 2 MiB. */
#define SOURCE_BYTES_MAX ((size_t)4 << 20)
/* Lines of one file. */
#define SOURCE_LINES_MAX 200000u

struct source {
    const char *path;
    const char *text; /* len bytes and a NUL */
    size_t len;
    const size_t *starts; /* where each line begins; lines + 1 entries, the last is len */
    unsigned lines;
    dev_t device; /* with inode: which file it is, whatever its name; both 0 for memory */
    ino_t inode;
    const struct source *parent; /* the file that includes this one, or NULL */
    unsigned depth;              /* 0 for a file named by the user */
    int format;                  /* enum review_format, once it is told */
    const char *label;           /* the layer's name filter of --path ("FILE#NAME"), or NULL */
};

/* Reads a file. STATUS_OK with *out; else a sentence in *why: STATUS_NOT_FOUND, STATUS_FULL (too large),
 * STATUS_INVALID (not a regular file, not text), STATUS_IO, STATUS_NO_MEMORY. All memory is the pool's. */
enum status source_load(struct source **out, const char **why, struct pool *p, const char *path);

/* The same for bytes in memory, which are copied. */
enum status source_from_memory(struct source **out, const char **why, struct pool *p, const char *path,
                               struct slice text);

/* Line n (from 1) without its line end; empty beyond the last. */
struct slice source_line(const struct source *s, unsigned line);

/* The line that holds this byte. */
unsigned source_line_at(const struct source *s, size_t offset);

/* The last part of the path. */
const char *source_name(const struct source *s);

#endif
