/* SPDX-License-Identifier: MIT
 *
 * Bytes of many streams that leave at the end of a turn of their loop, in one system call where the kernel has io_uring.
 * Measured on loopback: a write at a time wakes its reader at a time, which takes the processor for that one message;
 * together they cost a quarter of a loop's time less.
 *
 * Always true:
 *  (1) Bytes of one stream leave in the order they came; one stream has at most one entry here.
 *  (2) Nothing is sent twice, whatever a system call answers: an entry is given to the kernel one way only.
 *  (3) What became of an entry is written into its outlet at once, and told to its owner by volley_turn() alone, so that
 *      nobody is called from within a call of his own.
 *
 * Without io_uring (an older kernel, a container that forbids it, or switched off) each entry is one send().
 */
#ifndef SAMEKEY_NET_VOLLEY_H
#define SAMEKEY_NET_VOLLEY_H

#include "base/list.h"
#include "base/slice.h"
#include "base/status.h"

#include <limits.h>
#include <stdbool.h>

#define VOLLEY_ENTRIES   32
#define VOLLEY_BYTES_MAX 16384 /* of one entry */

/* A result: it may have left, and nobody will know. */
#define VOLLEY_UNKNOWN INT_MIN

struct outlet;
struct volley;

/* STATUS_NO_MEMORY: *out is NULL. */
enum status volley_new(struct volley **out);
/* NULL is accepted. No outlet may have bytes here. */
void volley_free(struct volley *v);
/* Whether io_uring is tried; it is not, unless somebody says so. Before the first bytes. */
void volley_use_ring(struct volley *v, bool wanted);
/* Whether it is in use: known after a first volley of two. */
bool volley_has_ring(const struct volley *v);

/* Takes a copy of the parts, VOLLEY_BYTES_MAX at most in all, for the outlet's descriptor. The outlet has none here. */
void volley_take(struct volley *v, struct outlet *o, int fd, const struct slice *parts, size_t count);
/* Takes the outlet's bytes out again, where they have not left: then they never do. */
void volley_withdraw(struct volley *v, const struct outlet *o);
/* Sends what there is. Tells nobody. */
void volley_send(struct volley *v);
/* Sends, and tells the owners of those that did not leave as a whole, or who want to know. False: there was nobody to tell.
 * Only from the loop itself, between two events. */
bool volley_turn(struct volley *v);

#endif
