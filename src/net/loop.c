/* SPDX-License-Identifier: MIT
 *
 * The timers hang on one timerfd of CLOCK_BOOTTIME rather than on libuv's timers, which stand still while the
 * machine sleeps. The descriptor is set again only when an earlier time is asked for; taking a timer out leaves
 * it alone and costs one idle wake-up at most.
 */
#include "net/loop.h"

#include "net/volley.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

struct net_loop {
    uv_loop_t uv;
    uv_async_t bell;   /* letters wait, or a stop was asked for */
    uv_poll_t clock;   /* the timerfd */
    uv_prepare_t turn; /* before each wait for I/O: forgets `now`, calls `rest` */
    void (*rest)(void *context);
    void *rest_context;
    int clock_fd;
    int64_t clock_at; /* when the timerfd fires; INT64_MAX: not set */
    int64_t now;      /* 0: not read in this turn */
    struct heap timers;
    struct volley *volley;
    _Atomic(struct list *) letters; /* a stack, newest first, linked through `next` */
    atomic_bool stop;
    char read_buffer[NET_READ_BYTES];
};

static int64_t clock_read_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_monotonic_ms(void)
{
    return clock_read_ns(CLOCK_BOOTTIME) / 1000000;
}

int64_t clock_monotonic_us(void)
{
    return clock_read_ns(CLOCK_BOOTTIME) / 1000;
}

int64_t clock_wall_ms(void)
{
    return clock_read_ns(CLOCK_REALTIME) / 1000000;
}

static void loop_set_clock(struct net_loop *loop, int64_t at_ms)
{
    if (at_ms < 1)
        at_ms = 1; /* zero would switch the timerfd off */
    struct itimerspec spec = {0};
    spec.it_value.tv_sec = (time_t)(at_ms / 1000);
    spec.it_value.tv_nsec = (long)(at_ms % 1000) * 1000000;
    int failed = timerfd_settime(loop->clock_fd, TFD_TIMER_ABSTIME, &spec, NULL);
    assert(failed == 0);
    (void)failed;
    loop->clock_at = at_ms;
}

static void loop_on_clock(uv_poll_t *handle, int failed, int events)
{
    struct net_loop *loop = handle->data;
    (void)failed;
    (void)events;
    uint64_t ticks;
    ssize_t n = read(loop->clock_fd, &ticks, sizeof ticks);
    (void)n; /* EAGAIN: the time was moved meanwhile */
    loop->clock_at = INT64_MAX;
    /* Timers that are armed for "now" by those that fire here wait for the next turn, so that sockets get theirs
     * in between. */
    int64_t now = net_loop_now(loop);
    uint64_t newest = loop->timers.sequence;
    struct heap_node *first;
    while ((first = heap_first(&loop->timers)) && first->at_ms <= now && first->sequence <= newest) {
        struct net_timer *timer = HEAP_ENTRY(first, struct net_timer, node);
        heap_remove(&loop->timers, first);
        timer->armed = false;
        timer->fire(timer);
    }
    first = heap_first(&loop->timers);
    if (first && first->at_ms < loop->clock_at)
        loop_set_clock(loop, first->at_ms);
    if (!first)
        uv_unref((uv_handle_t *)&loop->clock);
}

static void loop_open_letters(struct net_loop *loop)
{
    struct list *newest = atomic_exchange_explicit(&loop->letters, NULL, memory_order_acquire);
    struct list *oldest = NULL;
    while (newest) {
        struct list *older = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    while (oldest) {
        struct letter *letter = LIST_ENTRY(oldest, struct letter, link);
        oldest = oldest->next; /* the letter is its opener's from here on */
        list_init(&letter->link);
        letter->open(letter);
    }
}

static void loop_on_bell(uv_async_t *bell)
{
    struct net_loop *loop = bell->data;
    loop_open_letters(loop);
    if (atomic_exchange(&loop->stop, false))
        uv_stop(&loop->uv);
}

/* What is better done once a turn: by `rest`, then everything that is to be sent. */
static void loop_rest(struct net_loop *loop)
{
    do
        if (loop->rest)
            loop->rest(loop->rest_context);
    while (volley_turn(loop->volley)); /* who heard of something may have more to do */
}

/* Everything that runs between two waits for I/O sees one time. */
static void loop_on_turn(uv_prepare_t *turn)
{
    struct net_loop *loop = turn->data;
    loop_rest(loop);
    loop->now = 0;
}

enum status net_loop_new(struct net_loop **out)
{
    struct net_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return STATUS_NO_MEMORY;
    loop->clock_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (volley_new(&loop->volley) != STATUS_OK || loop->clock_fd < 0 || uv_loop_init(&loop->uv) != 0) {
        if (loop->clock_fd >= 0)
            close(loop->clock_fd);
        volley_free(loop->volley);
        free(loop);
        return STATUS_IO;
    }
    /* libuv writes without MSG_NOSIGNAL; a peer that went away is an error here, not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    atomic_init(&loop->letters, NULL);
    atomic_init(&loop->stop, false);
    loop->clock_at = INT64_MAX;
    if (uv_async_init(&loop->uv, &loop->bell, loop_on_bell) != 0 ||
        uv_poll_init(&loop->uv, &loop->clock, loop->clock_fd) != 0) {
        net_loop_free(loop);
        return STATUS_IO;
    }
    loop->bell.data = loop->clock.data = loop->turn.data = loop;
    uv_unref((uv_handle_t *)&loop->bell);
    uv_poll_start(&loop->clock, UV_READABLE, loop_on_clock);
    uv_unref((uv_handle_t *)&loop->clock);
    uv_prepare_init(&loop->uv, &loop->turn);
    uv_prepare_start(&loop->turn, loop_on_turn);
    uv_unref((uv_handle_t *)&loop->turn);
    *out = loop;
    return STATUS_OK;
}

void net_loop_run(struct net_loop *loop)
{
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    loop_rest(loop);
    atomic_store(&loop->stop, false); /* a stop that came while the last handle closed has its wish already */
}

void net_loop_on_rest(struct net_loop *loop, void (*rest)(void *context), void *context)
{
    loop->rest = rest;
    loop->rest_context = context;
}

void net_loop_stop(struct net_loop *loop)
{
    atomic_store(&loop->stop, true);
    uv_async_send(&loop->bell);
}

static void loop_close_own(uv_handle_t *handle, void *context)
{
    struct net_loop *loop = context;
    bool own = handle == (uv_handle_t *)&loop->bell || handle == (uv_handle_t *)&loop->clock ||
               handle == (uv_handle_t *)&loop->turn;
    if (own && !uv_is_closing(handle))
        uv_close(handle, NULL);
}

void net_loop_free(struct net_loop *loop)
{
    if (!loop)
        return;
    uv_walk(&loop->uv, loop_close_own, loop);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    int open = uv_loop_close(&loop->uv);
    assert(open == 0); /* a server or a client of this loop was not freed */
    (void)open;
    close(loop->clock_fd);
    volley_free(loop->volley);
    free(loop);
}

uv_loop_t *net_loop_uv(struct net_loop *loop)
{
    return &loop->uv;
}

struct volley *net_loop_volley(struct net_loop *loop)
{
    return loop->volley;
}

char *net_loop_read_buffer(struct net_loop *loop)
{
    return loop->read_buffer;
}

int64_t net_loop_now(struct net_loop *loop)
{
    if (loop->now == 0)
        loop->now = clock_monotonic_ms();
    return loop->now;
}

void net_timer_arm(struct net_loop *loop, struct net_timer *timer, int64_t at_ms,
                   void (*fire)(struct net_timer *timer))
{
    if (!heap_first(&loop->timers))
        uv_ref((uv_handle_t *)&loop->clock);
    timer->fire = fire;
    timer->armed = true;
    heap_add(&loop->timers, &timer->node, at_ms);
    if (at_ms < loop->clock_at)
        loop_set_clock(loop, at_ms);
}

void net_timer_disarm(struct net_loop *loop, struct net_timer *timer)
{
    if (!timer->armed)
        return;
    timer->armed = false;
    heap_remove(&loop->timers, &timer->node);
    if (!heap_first(&loop->timers))
        uv_unref((uv_handle_t *)&loop->clock);
}

void mailbox_put(struct net_loop *loop, struct letter *letter)
{
    struct list *newest = atomic_load_explicit(&loop->letters, memory_order_relaxed);
    do {
        letter->link.next = newest;
    } while (!atomic_compare_exchange_weak_explicit(&loop->letters, &newest, &letter->link,
                                                    memory_order_release, memory_order_relaxed));
}

void mailbox_ring(struct net_loop *loop)
{
    if (atomic_load_explicit(&loop->letters, memory_order_relaxed))
        uv_async_send(&loop->bell); /* one that rings already is not rung again */
}

void mailbox_post(struct net_loop *loop, struct letter *letter)
{
    mailbox_put(loop, letter);
    mailbox_ring(loop);
}
