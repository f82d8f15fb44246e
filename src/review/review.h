/* SPDX-License-Identifier: MIT
 *
 * One run of `samekey check`: files go in, findings come out, sorted by file and line.
 *
 *   review_file() for each file -> review_finish() -> findings, problems, notes, policies -> report_*()
 *
 * Always true: (1) a file is read, or there is a problem that says why not; none is passed over. (2) A finding
 * points at a line of a file that was read. (3) Time and memory are bounded by the named limits here and in
 * source.h, pool.h and tree.h, whatever the files hold. (4) Nothing is written, started or resolved: include
 * lines are followed to files and nowhere else.
 */
#ifndef SAMEKEY_REVIEW_REVIEW_H
#define SAMEKEY_REVIEW_REVIEW_H

#include "review/policy.h"
#include "review/rule.h"

enum review_format {
    FORMAT_AUTO, /* told by content */
#define READER(constant, name, reads) FORMAT_##constant,
#include "review/readers.def"
    FORMAT_COUNT
};

/* Findings of one run; more are counted and not kept. */
#define FINDINGS_MAX 2000u
/* Policies of one run. */
#define POLICIES_MAX 4000u
/* Files of one run, included ones counted. */
#define FILES_MAX 256u
/* Files that include files that include files. */
#define INCLUDE_DEPTH_MAX 16u

struct finding {
    enum rule_id rule;
    const struct source *source;
    unsigned line;
    const char *place;    /* the policy it is about, or NULL */
    const char *detail;   /* what was seen, with its numbers; never NULL, may be "" */
    const char *silenced; /* the reason given in a comment, or NULL */
};

/* A file that could not be read, or part of it: exit code 66. */
struct review_problem {
    const char *path;
    unsigned line; /* 0: the whole file */
    const char *what;
};

struct review {
    struct pool pool;
    struct finding *findings;
    size_t finding_count, finding_room, findings_dropped;
    struct review_policy **policies;
    size_t policy_count, policy_room;
    struct review_problem *problems;
    size_t problem_count, problem_room;
    const char **notes; /* what a reader could not follow, such as an include that is not there */
    size_t note_count, note_room;
    struct source **sources;
    size_t source_count, source_room;
    unsigned files;
};

/* Reads one file and what it includes. What goes wrong becomes a problem. Returns the source of the file, or
 * NULL when it could not be read. label: only policies whose name contains it belong to the layer, or NULL. */
const struct source *review_file(struct review *r, const char *path, enum review_format format,
                                 const char *label);

/* The same for bytes in memory; includes are not followed. */
const struct source *review_memory(struct review *r, const char *path, struct slice text,
                                   enum review_format format);

/* Adds one of our own policies, which the gateway's settings code has read and checked. `facts` is copied; its
 * texts and sources must outlive the run. */
void review_own_policy(struct review *r, const struct review_policy *facts);

/* Applies the rules, those over layers too when `layered` (the files in the order given, outermost first), then
 * the comments that silence, and sorts. STATUS_NO_MEMORY when the run is not complete. */
enum status review_finish(struct review *r, bool layered);

/* Findings that are not silenced. */
size_t review_open_findings(const struct review *r);

/* Frees everything; the review is then as at the start. */
void review_fini(struct review *r);

/* The format of a name of readers.def; FORMAT_COUNT when there is none. */
enum review_format review_format_find(struct slice name);
const char *review_format_name(enum review_format format);

/* ---- for the readers ---- */

/* A new policy with its format and place set, to be filled. NULL when a bound is reached. */
struct review_policy *review_policy_new(struct review *r, enum review_format format,
                                        const struct source *source, unsigned line, const char *name);

/* Adds a finding. The same rule at the same line of the same file is kept once. */
void review_find(struct review *r, enum rule_id rule, const struct source *source, unsigned line,
                 const char *place, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Adds a problem (line 0: the whole file) or a note. */
void review_problem(struct review *r, const char *path, unsigned line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void review_note(struct review *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Loads a file that `parent` includes: bounded in depth and number, and refused when it is one of those that
 * are being read. NULL with a problem or, when `optional` and the file is not there, a note. */
struct source *review_include(struct review *r, const struct source *parent, unsigned line, const char *path,
                              bool optional);

#endif
