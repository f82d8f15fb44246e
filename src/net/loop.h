/* SPDX-License-Identifier: MIT
 *
 * One thread's event loop: a uv_loop_t, a heap of timers and a mailbox.
 *
 * Always true:
 *  (1) Everything that belongs to a loop (connections, exchanges, timers) is touched by that loop's thread
 *      only. The one door from another thread is mailbox_post().
 *  (2) Waits are measured on CLOCK_BOOTTIME, which does not jump and counts suspend; a wall-clock change moves
 *      no timer.
 */
#ifndef SAMEKEY_NET_LOOP_H
#define SAMEKEY_NET_LOOP_H

#include "base/heap.h"
#include "base/list.h"
#include "base/status.h"

#include <stdint.h>
#include <uv.h>

struct net_loop;
struct volley;

/* Milliseconds of CLOCK_BOOTTIME, and microseconds for measuring. Callable from every thread. */
int64_t clock_monotonic_ms(void);
int64_t clock_monotonic_us(void);
/* Unix milliseconds of CLOCK_REALTIME: for words and for time windows in keys, never for waiting. */
int64_t clock_wall_ms(void);

/* Makes a loop; *out is the caller's, ended with net_loop_free(). STATUS_NO_MEMORY or STATUS_IO (libuv would
 * not start); then *out is untouched. The process ignores SIGPIPE from here on. */
enum status net_loop_new(struct net_loop **out);
/* Runs until net_loop_stop() was called, or nothing is left to wait for: no listener, connection or armed timer.
 * The mailbox alone does not keep it running. It may be run again. */
void net_loop_run(struct net_loop *loop);
/* Makes net_loop_run() return soon, also when things are still open: then free the servers and clients on the
 * loop's thread, and net_loop_free() waits for their handles. Callable from every thread. */
void net_loop_stop(struct net_loop *loop);
/* `rest` is called before each wait for I/O, and when net_loop_run() ends: for what is better done once a turn than
 * once for each event of it. NULL takes it out. */
void net_loop_on_rest(struct net_loop *loop, void (*rest)(void *context), void *context);
/* Ends a loop whose connections and servers were closed; NULL is accepted. */
void net_loop_free(struct net_loop *loop);
uv_loop_t *net_loop_uv(struct net_loop *loop);
/* What leaves at the end of a turn: sent behind `rest`, or earlier where a stream needs it. */
struct volley *net_loop_volley(struct net_loop *loop);
/* clock_monotonic_ms() as read once for the current turn of the loop. */
int64_t net_loop_now(struct net_loop *loop);
/* The one read buffer of this loop: NET_READ_BYTES bytes, good until the next read callback. */
#define NET_READ_BYTES 65536
char *net_loop_read_buffer(struct net_loop *loop);

/* A timer inside its owner. Zero bytes are a timer that is not armed. */
struct net_timer {
    struct heap_node node; /* the name of base/heap.h's member type */
    void (*fire)(struct net_timer *timer);
    bool armed;
};
/* Fires once at or after `at_ms` of clock_monotonic_ms(); arming again moves it. */
void net_timer_arm(struct net_loop *loop, struct net_timer *timer, int64_t at_ms,
                   void (*fire)(struct net_timer *timer));
/* After this the timer does not fire; disarming twice does no harm. */
void net_timer_disarm(struct net_loop *loop, struct net_timer *timer);

/* A letter for a loop from another thread, living inside its sender's object until `open` is called on the
 * loop's thread. */
struct letter {
    struct list link;
    void (*open)(struct letter *letter);
};
/* Never blocks and never fails: a letter is memory that its sender already has. Letters of one sender arrive
 * in order. Callable from every thread; many letters posted in a burst cost one wake-up. */
void mailbox_post(struct net_loop *loop, struct letter *letter);
/* The same in two steps, for a sender with many letters: they are put into the box, and one mailbox_ring() behind the last
 * wakes the loop, if there is anything it has not taken yet. */
void mailbox_put(struct net_loop *loop, struct letter *letter);
void mailbox_ring(struct net_loop *loop);

#endif
