/* SPDX-License-Identifier: MIT */
#include "gateway/redis_poll.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdlib.h>

struct redis_poll {
    uv_poll_t handle;
    redisAsyncContext *context; /* NULL: it is being freed */
    int events;
};

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct redis_poll *p = handle->data;
    if (status < 0) {
        p->events = 0; /* libuv has stopped */
        redisAsyncHandleRead(p->context);
        return;
    }
    if (p->context && (events & UV_READABLE))
        redisAsyncHandleRead(p->context);
    if (p->context && (events & UV_WRITABLE))
        redisAsyncHandleWrite(p->context);
}

static void set(struct redis_poll *p, int events)
{
    if (p->events == events)
        return;
    p->events = events;
    if (events)
        (void)uv_poll_start(&p->handle, events, on_poll);
    else
        (void)uv_poll_stop(&p->handle);
}

static void add_read(void *data)
{
    struct redis_poll *p = data;
    set(p, p->events | UV_READABLE);
}

static void del_read(void *data)
{
    struct redis_poll *p = data;
    set(p, p->events & ~UV_READABLE);
}

static void add_write(void *data)
{
    struct redis_poll *p = data;
    set(p, p->events | UV_WRITABLE);
}

static void del_write(void *data)
{
    struct redis_poll *p = data;
    set(p, p->events & ~UV_WRITABLE);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void clean_up(void *data)
{
    struct redis_poll *p = data;
    p->context = NULL;
    uv_close((uv_handle_t *)&p->handle, on_closed);
}

enum status redis_poll_attach(redisAsyncContext *context, uv_loop_t *loop)
{
    struct redis_poll *p = calloc(1, sizeof *p);
    if (!p)
        return STATUS_NO_MEMORY;
    if (uv_poll_init(loop, &p->handle, context->c.fd) != 0) {
        free(p);
        return STATUS_IO;
    }
    p->handle.data = p;
    p->context = context;
    context->ev.data = p;
    context->ev.addRead = add_read;
    context->ev.delRead = del_read;
    context->ev.addWrite = add_write;
    context->ev.delWrite = del_write;
    context->ev.cleanup = clean_up;
    return STATUS_OK;
}
