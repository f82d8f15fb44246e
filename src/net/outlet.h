/* SPDX-License-Identifier: MIT
 *
 * Bytes on their way out of one stream: written through at once or, with outlet_post(), at the end of the loop's turn
 * together with those of others (net/volley.h); what the kernel does not take waits here.
 *
 * Always true:
 *  (1) outlet_taken() counts bytes the kernel took, in order. It is never too small; after a failed write it may be too
 *      large by at most OUTLET_FLIGHT_BYTES.
 *  (2) At most OUTLET_FLIGHT_BYTES are handed to libuv at a time, so that on_moved tells of progress often, and
 *      how much was sent is known whenever somebody asks.
 *  (3) Posted bytes do not count as waiting, only as unsent. Whoever asks how many were taken, writes more, or is about to
 *      close the stream (outlet_settle()) sends them first.
 */
#ifndef SAMEKEY_NET_OUTLET_H
#define SAMEKEY_NET_OUTLET_H

#include "base/buffer.h"
#include "net/volley.h"

#include <uv.h>

#define OUTLET_FLIGHT_BYTES 16384

struct outlet {
    uv_stream_t *stream;
    uv_write_t write;
    struct buffer wait; /* bytes that wait; from wait_from on */
    size_t wait_from;
    size_t flying;      /* bytes of `wait` that libuv has, else 0 */
    struct buffer next; /* bytes added while some fly: `wait` must not move then */
    uint64_t taken;     /* bytes of those that are no longer in flight; outlet_taken() tells all */
    struct volley *volley;
    bool posted;      /* bytes lie in the volley */
    bool wants_news;  /* on_moved comes also when they have left as a whole; the owner sets it */
    int fault;        /* that they met, a negative libuv error; told by on_moved */
    struct list news; /* in the volley's list while on_moved is to be called */
    /* The kernel took waiting bytes (status 0), or the stream failed (a negative libuv error). Not called after
     * uv_close() of the stream. */
    void (*on_moved)(struct outlet *outlet, int status);
};

void outlet_init(struct outlet *o, uv_stream_t *stream, struct volley *volley,
                 void (*on_moved)(struct outlet *outlet, int status));
void outlet_fini(struct outlet *o);

/* Writes all; what does not go now is copied and goes later. Returns 0 or a negative libuv error. */
int outlet_write(struct outlet *o, const uv_buf_t *parts, unsigned count);
/* As outlet_write(), but at the end of the turn where nothing waits and it is not much: an error then comes by
 * on_moved. */
int outlet_post(struct outlet *o, const uv_buf_t *parts, unsigned count);
/* Sends what was posted. Calls nobody. */
void outlet_settle(struct outlet *o);
/* What was posted and has not left never does. Nothing may be written behind it. */
void outlet_withdraw(struct outlet *o);
/* Whether bytes are posted or wait, or were lost to a fault. */
bool outlet_unsent(const struct outlet *o);
/* Writes what the kernel takes now and copies nothing. Returns the bytes taken, or a negative libuv error; 0 while
 * other bytes wait. */
ssize_t outlet_try(struct outlet *o, struct slice bytes);
/* Bytes that wait. */
size_t outlet_waiting(const struct outlet *o);
/* Bytes the kernel has taken up to now, see (1). */
uint64_t outlet_taken(struct outlet *o);
/* Gives memory back when nothing waits. */
void outlet_trim(struct outlet *o);

/* For the volley: what became of the posted bytes (taken, or a negative errno); true: outlet_tell() is to be called. */
bool outlet_left(struct outlet *o, int result, struct slice bytes);
void outlet_tell(struct outlet *o);

#endif
