/* SPDX-License-Identifier: MIT
 *
 * The rules of `samekey check` as data: rules.def read into one table. Nothing else in the program knows a
 * rule's words.
 */
#ifndef SAMEKEY_REVIEW_RULE_H
#define SAMEKEY_REVIEW_RULE_H

#include "base/buffer.h"

enum rule_id {
#define RULE(name, id, slug, level, question, title, danger, remedy, wrong, right) RULE_##name,
#include "review/rules.def"
    RULE_COUNT
};

enum rule_level { RULE_LEVEL_ERROR, RULE_LEVEL_WARNING };

struct rule {
    const char *id;   /* "SK101", never reused */
    const char *slug; /* "retry-without-asking" */
    enum rule_level level;
    int question; /* 1 to 6 of the checklist, 7 layers, 9 comments */
    const char *title, *danger, *remedy, *wrong, *right;
};

/* The row of a rule; never NULL for an id below RULE_COUNT. */
const struct rule *rule_get(enum rule_id id);

/* Finds a rule by its id or its slug, without regard to case. RULE_COUNT when there is none. */
enum rule_id rule_find(struct slice name);

/* "error" or "warning". */
const char *rule_level_name(enum rule_level level);

/* The sentence of a question, by its number. */
const char *rule_question(int question);

/* Appends the text of `check --explain RULE`. */
void rule_explain(struct buffer *out, enum rule_id id);

/* Appends docs/check.md whole: the rules by question and the readers. */
void rule_page(struct buffer *out);

#endif
