/* SPDX-License-Identifier: MIT
 *
 * The watches that stand: operations waiting for the end of a row, by row id, in the order they came. No allocation
 * for a watch: it hangs by the operation's own link. Not locked; the worker does that.
 */
#ifndef SAMEKEY_STORE_WATCH_H
#define SAMEKEY_STORE_WATCH_H

#include "store/store.h"

struct watches {
    struct list *buckets;
    size_t mask; /* buckets - 1 */
    size_t count;
};

/* For about `expected` watches. */
enum status watches_init(struct watches *w, size_t expected);
/* Lets the operation stand under op->id. */
void watches_add(struct watches *w, struct store_op *op);
/* Takes one out that stands. */
void watches_remove(struct watches *w, struct store_op *op);
bool watches_any(const struct watches *w, int64_t id);
/* Writes up to `max` ids of rows that are watched, from *place on, a bucket at a time and no id twice in one; *place is
 * where to go on, 0 at the end. */
size_t watches_ids(const struct watches *w, size_t *place, int64_t *ids, size_t max);
/* Moves all watches of a row behind `to`, in order; returns how many. */
size_t watches_take(struct watches *w, int64_t id, struct list *to);
/* Moves every watch behind `to`. */
size_t watches_take_all(struct watches *w, struct list *to);
/* Frees the table, which must be empty. NULL and a table that failed to start are accepted. */
void watches_fini(struct watches *w);

#endif
