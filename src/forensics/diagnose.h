/* SPDX-License-Identifier: MIT
 *
 * samekey diagnose, without its command line: read, place the clocks, judge. The report borrows from all of it, so the
 * whole is ended at once.
 */
#ifndef SAMEKEY_FORENSICS_DIAGNOSE_H
#define SAMEKEY_FORENSICS_DIAGNOSE_H

#include "forensics/clock.h"
#include "forensics/diagnosis.h"
#include "forensics/facts.h"
#include "forensics/gather.h"
#include "forensics/judge.h"

/* Memory for records: while reading before they go to disk, and while judging one part. */
#define DIAGNOSE_READ_BYTES  (160u << 20)
#define DIAGNOSE_JUDGE_BYTES (96u << 20)

struct diagnose {
    struct gather gather;
    struct clocks clocks;
    struct diagnosis diagnosis;
    const struct facts *facts;       /* or NULL; the caller's */
    const char *db, *table, *column; /* the key's column, or NULL */
    size_t memory_bytes;             /* records kept in memory before they go to disk */
    struct buffer error;             /* what the database said */
    void (*progress)(void *context, const char *what, double share);
    void *progress_context;
};

/* Begins; memory_bytes is DIAGNOSE_READ_BYTES or less. Then the caller sets what the command line said about the files. STATUS_FULL: too many files. */
enum status diagnose_init(struct diagnose *x, char *const *paths, size_t count, const char *folder,
                          size_t memory_bytes);

/* STATUS_IO: a temporary file, or the database (then error is not empty); STATUS_NOT_FOUND, STATUS_INVALID: the database;
 * STATUS_NO_MEMORY. */
enum status diagnose_run(struct diagnose *x);

void diagnose_fini(struct diagnose *x);

#endif
