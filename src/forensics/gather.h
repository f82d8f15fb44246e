/* SPDX-License-Identifier: MIT
 *
 * From files of lines to events sorted by operation. Reads every line once, tells each file's format by its first lines,
 * and keeps the events of one operation together (spill.h), however far apart they stood and in whatever file.
 *
 * A log cut in pieces anywhere is read as if it were whole: a half line at the end of one file and one at the beginning of
 * another that are whole together are one line.
 *
 * What one operation is: events with one business key; those of the same callId that name no business key; where nobody
 * names one, events with one idempotency key or one callId, joined where a callId had several keys.
 */
#ifndef SAMEKEY_FORENSICS_GATHER_H
#define SAMEKEY_FORENSICS_GATHER_H

#include "forensics/event.h"
#include "forensics/spill.h"
#include "forensics/text_line.h"

#define GATHER_FILES_MAX   4096
#define GATHER_ORIGINS_MAX 4096
#define GATHER_NAMED_LINES 8 /* unreadable lines of a file that are named */

enum line_format { FORMAT_UNTOLD, FORMAT_JSON, FORMAT_TEXT, FORMAT_CSV, FORMAT_ACCESS, FORMAT_PATTERN };

const char *line_format_text(enum line_format format);

struct log_file {
    const char *path; /* borrowed */
    enum line_format format;
    struct zone zone;  /* of local times, if the user named one */
    bool time_ends;    /* --end-time */
    uint64_t physical; /* lines with the empty ones: what a line number counts */
    uint64_t lines, unreadable, without_time, unplaced;
    uint32_t named[GATHER_NAMED_LINES]; /* line numbers of the first unreadable ones */
    char *error;                        /* why it could not be read (on); owned; or NULL */
    bool opened;
    uint64_t seen;               /* bits of the fields that were found in it */
    char *field_as[FIELD_COUNT]; /* the names they went by, for the formats that have names; owned; or NULL */
};

/* A clock: the place a line was first written, and the machine that wrote it. */
struct log_origin {
    char *file, *node; /* owned; node may be empty */
    uint64_t events;
    bool unplaced; /* its times are local and no zone is known */
};

/* A line that the end of a file cut, or the beginning of one: two of them may be one line of a file cut in pieces. */
struct half_line {
    size_t file;
    bool begins; /* it is the first part of a line, and the end of its file */
    uint32_t number;
    char *text; /* owned */
    size_t len;
};

struct gather {
    struct field_map map;
    struct pattern *pattern; /* owned; or NULL */
    struct log_file *file;
    size_t file_count;
    struct log_origin *origin;
    size_t origin_count;
    uint32_t origin_slot[2 * GATHER_ORIGINS_MAX];
    uint64_t lines, unreadable, events;
    struct spill by_group;  /* the result */
    struct spill by_call;   /* events without a business key, while reading */
    struct half_line *half; /* at most two a file; owned */
    size_t halves;
    const char *folder;
    uint64_t bytes_read, bytes_all;
    void (*progress)(void *context, double share);
    void *progress_context;
};

/* Sets up; fill in map, pattern, files' flags afterwards. memory_bytes bounds what stays in memory before spilling.
 * STATUS_NO_MEMORY. */
enum status gather_init(struct gather *g, char *const *paths, size_t count, const char *folder,
                        size_t memory_bytes);

/* Reads everything and sorts it. A file that cannot be opened has `error` and is passed over. STATUS_IO: a temporary
 * file. STATUS_NO_MEMORY. */
enum status gather_run(struct gather *g);

void gather_fini(struct gather *g);

#endif
