/* SPDX-License-Identifier: MIT
 *
 * The threads that run what only reads. As many run at once as keep the store busy (store_readers()). One that has to
 * wait for the disk says so, and while it waits another takes what is queued: a look-up whose pages are in memory does not
 * stand behind one whose are not. While nobody waits the others sleep, since on few processors two readers wake each other
 * more than they read.
 *
 *   ASLEEP ──(queued, fewer run than at once)──▶ RUNNING ──(waits for the disk)──▶ WAITING
 *      ▲                                           │  ▲                               │
 *      └──(nothing queued, or more run than that)──┘  └──────────(has read)───────────┘
 *
 * Always true: everything that was submitted is given back exactly once, also at the stop.
 */
#ifndef SAMEKEY_STORE_READERS_H
#define SAMEKEY_STORE_READERS_H

#include "store/store.h"

#define READERS_SPARE                                                                                        \
    7 /* more than run at once, for those that wait: they open their connection when they are needed */
#define READERS_TAKE 32 /* operations of one moment, at most: the first waits for the last */

struct readers;

struct readers_settings {
    unsigned at_once; /* readers that run beside each other, at least 1 */
    /* Called on a reader's thread with operations that have been run. */
    void (*give_back)(void *context, struct store_op **ops, size_t count);
    void *context;
};

/* Starts the threads on an open store, which stays the caller's. STATUS_IO, STATUS_NO_MEMORY: `error` has a sentence. */
enum status readers_start(struct readers **out, struct store *store, const struct readers_settings *settings,
                          struct buffer *error);
/* Takes the operations of the list, linked by `link`, in its order. Callable from every thread. */
void readers_submit(struct readers *readers, struct list *ops);
/* Runs what is queued, stops the threads and frees all. NULL is accepted. */
void readers_stop(struct readers *readers);

#endif
