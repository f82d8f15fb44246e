/* SPDX-License-Identifier: MIT */
#include "net/volley.h"

#include "net/outlet.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BYTES (VOLLEY_ENTRIES * VOLLEY_BYTES_MAX)

struct entry {
    struct outlet *outlet;
    int fd;
    int result; /* bytes taken, a negative errno, or VOLLEY_UNKNOWN */
    size_t at, len;
};

struct volley {
    struct entry entries[VOLLEY_ENTRIES];
    size_t count, used;
    struct list news; /* outlets whose owners have something to hear */
    bool wanted, tried, has_ring;
    struct io_uring ring;
    char bytes[BYTES];
};

enum status volley_new(struct volley **out)
{
    struct volley *v = calloc(1, sizeof *v);
    *out = v;
    if (!v)
        return STATUS_NO_MEMORY;
    list_init(&v->news);
    return STATUS_OK;
}

static void ring_close(struct volley *v)
{
    if (v->has_ring)
        io_uring_queue_exit(&v->ring);
    v->has_ring = false;
}

void volley_free(struct volley *v)
{
    if (v)
        ring_close(v);
    free(v);
}

void volley_use_ring(struct volley *v, bool wanted)
{
    v->wanted = wanted;
}

bool volley_has_ring(const struct volley *v)
{
    return v->has_ring;
}

/* On the thread that will use it: a ring of one thread costs the kernel less. */
static void ring_open(struct volley *v)
{
    static const unsigned flags[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, 0};
    v->tried = true;
    for (size_t i = 0; i < 2 && !v->has_ring; i++) {
        struct io_uring_params params = {.flags = flags[i]};
        v->has_ring = io_uring_queue_init_params(VOLLEY_ENTRIES, &v->ring, &params) == 0;
    }
    /* Kernels had rings (5.1) before these could send (5.6). */
    struct io_uring_probe *probe = v->has_ring ? io_uring_get_probe_ring(&v->ring) : NULL;
    bool sends = probe && io_uring_opcode_supported(probe, IORING_OP_SEND);
    io_uring_free_probe(probe);
    if (!sends)
        ring_close(v);
}

static void send_one(const struct volley *v, struct entry *e)
{
    ssize_t n;
    do
        n = send(e->fd, v->bytes + e->at, e->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    e->result = n < 0 ? -errno : (int)n;
}

/* Gives all entries to the kernel; how many it took, the first ones. Non-blocking sends are over when it returns. */
static size_t ring_submit(struct volley *v)
{
    size_t queued = 0;
    for (; queued < v->count; queued++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&v->ring);
        if (!sqe)
            break;
        const struct entry *e = &v->entries[queued];
        io_uring_prep_send(sqe, e->fd, v->bytes + e->at, e->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        io_uring_sqe_set_data64(sqe, queued);
    }
    size_t left = queued;
    while (left > 0) {
        int rc = io_uring_submit_and_wait(&v->ring, (unsigned)queued);
        size_t now = io_uring_sq_ready(&v->ring);
        bool stuck = now == left; /* the kernel takes no more of them */
        left = now;
        if (stuck && rc != -EINTR)
            break;
    }
    return queued - left;
}

/* False: the ring is of no use any more. Every entry has its result all the same. */
static bool ring_send(struct volley *v)
{
    size_t taken = ring_submit(v);
    for (size_t i = 0; i < taken; i++)
        v->entries[i].result = VOLLEY_UNKNOWN; /* until its completion says more */
    bool good = taken == v->count;
    for (size_t seen = 0; seen < taken; seen++) {
        struct io_uring_cqe *cqe;
        int rc;
        do
            rc = io_uring_wait_cqe(&v->ring, &cqe);
        while (rc == -EINTR);
        if (rc != 0) {
            good = false;
            break;
        }
        v->entries[io_uring_cqe_get_data64(cqe) % VOLLEY_ENTRIES].result = cqe->res;
        io_uring_cqe_seen(&v->ring, cqe);
    }
    for (size_t i = taken; i < v->count; i++)
        send_one(v, &v->entries[i]);
    return good;
}

void volley_take(struct volley *v, struct outlet *o, int fd, const struct slice *parts, size_t count)
{
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += parts[i].len;
    if (v->count == VOLLEY_ENTRIES || len > BYTES - v->used) /* what was withdrawn leaves a hole */
        volley_send(v);
    struct entry *e = &v->entries[v->count++];
    *e = (struct entry){.outlet = o, .fd = fd, .at = v->used, .len = len};
    for (size_t i = 0; i < count; i++) {
        memcpy(v->bytes + v->used, parts[i].data, parts[i].len);
        v->used += parts[i].len;
    }
}

void volley_withdraw(struct volley *v, const struct outlet *o)
{
    size_t kept = 0;
    for (size_t i = 0; i < v->count; i++)
        if (v->entries[i].outlet != o)
            v->entries[kept++] = v->entries[i];
    v->count = kept;
}

static void add_news(struct volley *v, struct outlet *o)
{
    list_remove(&o->news);
    list_push_back(&v->news, &o->news);
}

void volley_send(struct volley *v)
{
    if (v->count > 1 && v->wanted && !v->tried)
        ring_open(v);
    bool together = v->count > 1 && v->has_ring;
    if (together && !ring_send(v))
        ring_close(v);
    for (size_t i = 0; i < v->count; i++) {
        struct entry *e = &v->entries[i];
        if (!together)
            send_one(v, e);
        if (outlet_left(e->outlet, e->result, slice_of(v->bytes + e->at, e->len)))
            add_news(v, e->outlet);
    }
    v->count = v->used = 0;
}

bool volley_turn(struct volley *v)
{
    volley_send(v);
    bool any = !list_empty(&v->news);
    struct list *l;
    while ((l = list_pop_front(&v->news)) != NULL)
        outlet_tell(LIST_ENTRY(l, struct outlet, news));
    return any;
}
