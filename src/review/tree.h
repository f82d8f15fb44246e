/* SPDX-License-Identifier: MIT
 *
 * YAML and JSON as one tree whose nodes know their lines. libyaml reads both; JSON is first checked by jansson,
 * which is strict where YAML is generous. Anchors are followed, never copied, and deep or cyclic input is
 * refused, so that a small file cannot become a large tree.
 */
#ifndef SAMEKEY_REVIEW_TREE_H
#define SAMEKEY_REVIEW_TREE_H

#include "review/review.h"

/* Mappings and lists inside each other. */
#define TREE_DEPTH_MAX 64
/* Nodes of one file. */
#define TREE_NODES_MAX 400000u
/* Nodes that walks over one tree may visit; aliases make a tree larger than its nodes. */
#define TREE_VISITS_MAX 2000000u

enum tree_kind { TREE_SCALAR, TREE_MAPPING, TREE_LIST };

struct tree {
    enum tree_kind kind;
    struct slice text; /* of a scalar */
    bool quoted;
    unsigned line;
    const char *key; /* of a member of a mapping */
    unsigned key_line;
    struct tree *first, *last, *next; /* children; next is the sibling */
    struct tree *alias;               /* stands for another node, or NULL */
};

struct tree_documents {
    struct tree *first; /* the documents' roots, linked by next */
};

/* Reads all documents. False after a problem was added. All memory is the review's. */
bool tree_read(struct tree_documents *out, struct review *r, const struct source *s);

/* The node behind aliases; NULL for NULL. */
struct tree *tree_resolve(struct tree *t);

/* The member with this name; NULL when t is no mapping or has none. Names compare without case, '-' and '_', since
 * Spring and Envoy's JSON accept maxAttempts, max-attempts and max_attempts alike. */
struct tree *tree_get(struct tree *t, const char *name);

/* tree_get along a path: "spec.http". */
struct tree *tree_path(struct tree *t, const char *path);

/* The first child, aliases resolved by the caller. */
struct tree *tree_children(struct tree *t);

/* The text of a scalar; empty for NULL and for others. */
struct slice tree_text(struct tree *t);

/* The text as a number or duration at its line; a fact that is not known when it is not one. */
struct fact tree_number(struct tree *t, const struct source *s);
struct fact tree_duration(struct tree *t, const struct source *s, int64_t unit_ms);

/* yes, true, on, 1 -> 1; no, false, off, 0 -> 0. */
struct fact tree_flag(struct tree *t, const struct source *s);

/* A list's scalars, or one scalar's, joined by commas. */
const char *tree_words(struct review *r, struct tree *t);

/* True when two names are the same but for case, '-' and '_'. */
bool tree_same_name(const char *a, const char *b);

/* Calls visit for each mapping in the tree, the outer before the inner, with `context` and the mapping's parent
 * mapping; false when TREE_VISITS_MAX or TREE_DEPTH_MAX ended it. */
bool tree_walk(struct tree *t, void (*visit)(void *context, struct tree *mapping, struct tree *parent),
               void *context);

#endif
