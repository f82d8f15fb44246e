/* SPDX-License-Identifier: MIT
 *
 * What the logs showed: counts, one verdict a call, one label a key, double runs and findings. The reports print it and
 * nothing else. Lists are bounded; what did not fit is counted, and findings go before clean entries.
 */
#ifndef SAMEKEY_FORENSICS_DIAGNOSIS_H
#define SAMEKEY_FORENSICS_DIAGNOSIS_H

#include "base/arena.h"
#include "forensics/group.h"

#define DIAGNOSIS_CLEAN_MAX    100000 /* clean calls and clean keys that are listed, of each */
#define DIAGNOSIS_FINDINGS_MAX 20000 /* findings, and double runs, and keys and calls worth a look, of each */
#define DIAGNOSIS_LINES_MAX    16    /* lines named as evidence of one thing */
#define DIAGNOSIS_EVENTS_MAX   40    /* events in the timeline of one finding */

enum finding_code {
#define FINDING(id, code, step, harm, layer, what, remedy) FINDING_##id,
#include "forensics/finding.def"
#undef FINDING
    FINDING_COUNT
};

struct finding_kind {
    const char *code;
    int step, harm;
    const char *layer, *what, *remedy;
};
const struct finding_kind *finding_kind(enum finding_code code);

enum certainty { CERTAIN, LIKELY };
const char *certainty_text(enum certainty c);

/* How a key's request came to be there more than once; the words of CONTRACT section 8, the graver the later. */
enum label {
    LABEL_SINGLE,
    LABEL_DECLARED_RETRY,
    LABEL_NEW_CALL,
    LABEL_HIDDEN_RETRY,
    LABEL_CONNECTION_RESEND,
    LABEL_PROXY_FAILOVER,
    LABEL_DOUBLE_DISPATCH,
    LABEL_COUNT
};
const char *label_text(enum label label);

struct line_ref {
    uint16_t file;
    uint32_t line;
};

struct line_refs {
    struct line_ref ref[DIAGNOSIS_LINES_MAX];
    size_t count, left_out;
};

/* Adds a line unless it is there. */
void line_refs_add(struct line_refs *refs, const struct event *e);

/* One event of a timeline. */
struct moment_of {
    int64_t us;
    struct line_ref ref;
    uint16_t status, attempt;
    uint8_t kind, state;
    struct slice node, call, exec;
};

struct finding {
    enum finding_code code;
    enum certainty certainty;
    bool lawful;
    struct slice key;  /* the business key, the idempotency key, or who asked what */
    struct slice text; /* what happened, in one sentence */
    struct line_refs *lines;
    struct moment_of *timeline;
    size_t timeline_count;
};

struct key_entry {
    struct slice key;
    uint32_t posts;
    enum label label;
    enum certainty certainty;
    bool lawful;
    struct slice text; /* what tells the label */
    struct line_refs *lines;
};

struct call_entry {
    struct slice call, key, notes;
    enum event_state verdict; /* SUCCESS, FAILED or UNKNOWN */
};

struct double_run {
    struct slice key, cause;
    struct slice *call, *exec;
    size_t calls, execs;
    enum certainty certainty;
    struct line_refs *lines;
};

#define DIAGNOSIS_LIST(type)                                                                                 \
    struct {                                                                                                 \
        type *item;                                                                                          \
        size_t count, capacity;                                                                              \
        uint64_t left_out;                                                                                   \
    }

struct diagnosis {
    struct arena arena; /* holds every text and line below */
    uint64_t lines, unreadable, shipped_twice, events, business_keys, call_ids, replays;
    uint64_t by_label[LABEL_COUNT], by_code[FINDING_COUNT], verdicts[EVENT_STATE_UNKNOWN + 1];
    uint64_t double_run_count, finding_count, left_out_events;
    DIAGNOSIS_LIST(struct finding) findings;
    DIAGNOSIS_LIST(struct key_entry) keys;
    DIAGNOSIS_LIST(struct call_entry) calls;
    DIAGNOSIS_LIST(struct double_run) double_runs;
    uint64_t clean_keys, clean_calls; /* listed so far */
    bool failed;                      /* memory ran out; everything is to be thrown away */
};

void diagnosis_init(struct diagnosis *d);
void diagnosis_fini(struct diagnosis *d);

/* A copy that lasts as long as the diagnosis. */
struct slice diagnosis_copy(struct diagnosis *d, struct slice s);
struct slice diagnosis_format(struct diagnosis *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for lines, in the order they stand in the files; NULL when memory ran out. */
struct line_refs *diagnosis_lines(struct diagnosis *d, const struct line_refs *refs);

/* Adds to a list: the texts must be copies already. Each counts what the bound leaves out. */
void diagnosis_add_finding(struct diagnosis *d, const struct finding *f);
void diagnosis_add_key(struct diagnosis *d, const struct key_entry *k);
void diagnosis_add_call(struct diagnosis *d, const struct call_entry *c);
void diagnosis_add_double_run(struct diagnosis *d, const struct double_run *r);

/* Brings every list into its order: findings by harm, then by key; the rest by name. */
void diagnosis_sort(struct diagnosis *d);

#endif
