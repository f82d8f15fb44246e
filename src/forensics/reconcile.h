/* SPDX-License-Identifier: MIT
 *
 * Receipts against business rows, and both against a provider's export: every key of the three sides is looked at once,
 * with all that the sides say about it. The sides are read one after another as streams and sorted by key into parts on
 * disk (spill.h); the parts are then walked as ordered streams, so memory is bounded whatever the size, and no database's
 * idea of the order of texts matters.
 *
 * Nothing is changed here. What may be corrected (an open receipt whose row is there, once) goes into a plan.
 */
#ifndef SAMEKEY_FORENSICS_RECONCILE_H
#define SAMEKEY_FORENSICS_RECONCILE_H

#include "base/arena.h"
#include "forensics/group.h"

#include <stdio.h>

#define RECONCILE_READ_BYTES  (96u << 20) /* records in memory before they go to disk */
#define RECONCILE_PART_BYTES  (64u << 20) /* one part while it is compared */
#define RECONCILE_LISTED_MAX  10000       /* differences that are listed; all are counted */
#define RECONCILE_COLUMNS_MAX 32          /* --column */

enum difference_code {
#define DIFFERENCE(id, code, harm, what, remedy) DIFFERENCE_##id,
#include "forensics/difference.def"
#undef DIFFERENCE
    DIFFERENCE_COUNT
};

struct difference_kind {
    const char *code;
    int harm;
    const char *what, *remedy;
};
const struct difference_kind *difference_kind(enum difference_code code);

enum side { SIDE_RECEIPTS, SIDE_ROWS, SIDE_PROVIDER, SIDE_COUNT };
const char *side_name(enum side side);

/* The columns that are read; only the key must be there. */
enum side_column {
    COLUMN_KEY,
    COLUMN_TENANT,
    COLUMN_STATE,
    COLUMN_CALL,
    COLUMN_AMOUNT,
    COLUMN_REVERSED,
    COLUMN_UPDATED,
    COLUMN_COUNT
};
const char *side_column_name(enum side_column column);

struct side_source {
    const char *
        from; /* a database, a CSV or JSON lines file (- is standard input); NULL: this side is not compared */
    const char *sql;                  /* for a database; not needed for a gateway's own store */
    const char *column[COLUMN_COUNT]; /* another name for it, or NULL */
    uint64_t read, without_key, unreadable, skipped; /* skipped: too fresh to be judged */
    uint64_t no_amount;                              /* what is there is no decimal number */
    uint64_t expected; /* records in all, about, for the progress; 0: not known */
    bool has[COLUMN_COUNT];
};

struct difference {
    enum difference_code code;
    struct slice key, text, call;
};

struct reconcile {
    struct side_source side[SIDE_COUNT];
    const char *route; /* only receipts of this route (a gateway's own store), or NULL */
    const char *folder;
    size_t read_bytes;
    int64_t
        fresh_ms; /* receipts changed since this unix time are not judged: their rows may be on their way */
    FILE *plan;   /* corrections are written here as JSON lines, or NULL */
    /* `done` records or keys of `what`; `share` of the whole run, or -1 while that cannot be told. */
    void (*progress)(void *context, const char *what, uint64_t done, double share);
    void *progress_context;
    /* results */
    struct arena arena;
    struct difference *difference;
    size_t listed, capacity;
    uint64_t count[DIFFERENCE_COUNT], keys, agree, corrections;
    struct buffer error; /* which side could not be read, and why; or which temporary file could not */
    bool disk_failed;    /* it is about a temporary file */
};

/* Tells the progress, if somebody wants it. */
void reconcile_progress(const struct reconcile *r, const char *what, uint64_t done, double compared);

void reconcile_init(struct reconcile *r);

/* STATUS_IO, STATUS_NOT_FOUND, STATUS_INVALID: a side cannot be read, or with disk_failed a temporary file cannot be
 * written (error says which and why); STATUS_NO_MEMORY. */
enum status reconcile_run(struct reconcile *r);

uint64_t reconcile_differences(const struct reconcile *r);
void reconcile_text(const struct reconcile *r, FILE *out, bool all);
void reconcile_json(const struct reconcile *r, FILE *out);
void reconcile_fini(struct reconcile *r);

#endif
