/* SPDX-License-Identifier: MIT
 *
 * Records sorted into SPILL_PARTS parts by their group, so that all of one operation is in one part and a part fits in
 * memory. While everything together is small it stays in memory; beyond `bytes_max` each part goes to a temporary file
 * of its own, without a name (nothing is left behind, however the program ends).
 *
 * Not one SQLite file: what is wanted here is records sorted once and read once. A B-tree would write each page several
 * times to keep an order that 64 parts give for nothing, and its journal would leave a named file behind after kill -9.
 *
 * Always true: (1) memory in use is at most bytes_max before the first spill and SPILL_PARTS x SPILL_BUFFER_BYTES after
 * it; (2) records of one part come back in the order they went in.
 */
#ifndef SAMEKEY_FORENSICS_SPILL_H
#define SAMEKEY_FORENSICS_SPILL_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdint.h>

#define SPILL_PARTS        64
#define SPILL_BUFFER_BYTES (256 * 1024)

struct spill {
    struct spill_part {
        struct buffer buffer;
        int fd;         /* -1: nothing on disk */
        uint64_t bytes; /* on disk */
    } part[SPILL_PARTS];
    size_t bytes;     /* in memory */
    size_t bytes_max; /* before everything goes to disk */
    uint64_t records;
    bool spilled;
    const char *folder; /* where temporary files go; borrowed */
    int error;          /* errno of what failed, after STATUS_IO */
};

/* folder NULL: $TMPDIR, else /var/tmp. */
void spill_init(struct spill *s, const char *folder, size_t bytes_max);

/* Where a record of this group is to be appended: write exactly one record, then call spill_wrote. */
static inline struct buffer *spill_at(struct spill *s, uint64_t group)
{
    return &s->part[group >> 58].buffer;
}

/* Accounts for the record just appended. STATUS_IO: the temporary file cannot be written (s->error says why).
 * STATUS_NO_MEMORY. */
enum status spill_wrote(struct spill *s, uint64_t group, size_t size);

/* Bytes of a part. */
uint64_t spill_part_bytes(const struct spill *s, size_t part);

/*
 * Gives a part's records, in chunks that hold whole records (whose first four bytes are their size), each chunk at most
 * chunk_bytes_max long. The chunk may be changed in place; it is good until `take` returns. Stops at the first status
 * that is not STATUS_OK and returns it.
 */
enum status spill_read(struct spill *s, size_t part, size_t chunk_bytes_max,
                       enum status (*take)(void *context, char *records, size_t len), void *context);

/* Adds "a temporary file in FOLDER cannot be written: why", for people. */
void spill_complain(const struct spill *s, struct buffer *out);

/* Frees a part's memory and file; it is then empty. */
void spill_forget(struct spill *s, size_t part);
void spill_fini(struct spill *s);

#endif
