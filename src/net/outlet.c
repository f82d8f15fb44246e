/* SPDX-License-Identifier: MIT */
#include "net/outlet.h"

#include <assert.h>

#define OUTLET_POST_PARTS 3

void outlet_init(struct outlet *o, uv_stream_t *stream, struct volley *volley,
                 void (*on_moved)(struct outlet *outlet, int status))
{
    memset(o, 0, sizeof *o);
    o->stream = stream;
    o->volley = volley;
    o->on_moved = on_moved;
    list_init(&o->news);
}

static void give_memory_back(struct outlet *o)
{
    buffer_fini(&o->wait);
    buffer_fini(&o->next);
}

void outlet_fini(struct outlet *o)
{
    assert(!o->posted); /* the descriptor is closed, and its number may be somebody else's */
    list_remove(&o->news);
    give_memory_back(o);
}

size_t outlet_waiting(const struct outlet *o)
{
    return o->wait.len - o->wait_from + o->next.len;
}

uint64_t outlet_taken(struct outlet *o)
{
    outlet_settle(o);
    size_t queued = o->flying ? uv_stream_get_write_queue_size(o->stream) : 0;
    return o->taken + (queued < o->flying ? o->flying - queued : 0);
}

void outlet_trim(struct outlet *o)
{
    if (outlet_waiting(o) == 0 && !o->flying)
        give_memory_back(o);
}

static void outlet_flew(uv_write_t *write, int status);

/* Hands the next bytes to libuv. */
static int outlet_fly(struct outlet *o)
{
    if (o->wait.len == o->wait_from) {
        buffer_clear(&o->wait);
        o->wait_from = 0;
        struct buffer empty = o->wait;
        o->wait = o->next;
        o->next = empty;
    }
    size_t len = o->wait.len - o->wait_from;
    if (len == 0)
        return 0;
    o->flying = len < OUTLET_FLIGHT_BYTES ? len : OUTLET_FLIGHT_BYTES;
    uv_buf_t part = uv_buf_init(o->wait.data + o->wait_from, (unsigned)o->flying);
    o->write.data = o;
    int error = uv_write(&o->write, o->stream, &part, 1, outlet_flew);
    if (error)
        o->flying = 0;
    return error;
}

static void outlet_flew(uv_write_t *write, int status)
{
    struct outlet *o = write->data;
    o->taken += o->flying; /* after an error: perhaps, see (1) */
    o->wait_from += o->flying;
    o->flying = 0;
    if (uv_is_closing((uv_handle_t *)o->stream))
        return;
    while (status == 0 && outlet_waiting(o)) {
        /* The socket has room now: see how much, before waiting for it again. */
        struct slice rest = slice_of(o->wait.data + o->wait_from, o->wait.len - o->wait_from);
        uv_buf_t part = uv_buf_init((char *)(size_t)rest.data, (unsigned)rest.len);
        int n = rest.len ? uv_try_write(o->stream, &part, 1) : 0;
        if (n > 0) {
            o->taken += (uint64_t)n;
            o->wait_from += (size_t)n;
        }
        if (n < 0 && n != UV_EAGAIN)
            status = n;
        else if (n < 0 || (size_t)n < rest.len || o->next.len)
            status = outlet_fly(o);
        if (o->flying)
            break;
    }
    o->on_moved(o, status);
}

int outlet_write(struct outlet *o, const uv_buf_t *parts, unsigned count)
{
    size_t skip = 0;
    outlet_settle(o);
    if (o->fault)
        return o->fault;
    if (outlet_waiting(o) == 0) {
        int n = uv_try_write(o->stream, parts, count);
        if (n < 0 && n != UV_EAGAIN)
            return n;
        skip = n > 0 ? (size_t)n : 0;
        o->taken += skip;
    }
    struct buffer *to = o->flying ? &o->next : &o->wait;
    if (!o->flying && o->wait_from == o->wait.len) {
        buffer_clear(&o->wait);
        o->wait_from = 0;
    }
    for (unsigned i = 0; i < count; i++) {
        size_t len = parts[i].len;
        size_t from = skip < len ? skip : len;
        skip -= from;
        if (len > from)
            buffer_append(to, parts[i].base + from, len - from);
    }
    if (to->failed)
        return UV_ENOMEM;
    return o->flying || to->len == 0 ? 0 : outlet_fly(o);
}

int outlet_post(struct outlet *o, const uv_buf_t *parts, unsigned count)
{
    struct slice copied[OUTLET_POST_PARTS];
    uv_os_fd_t fd;
    size_t len = 0;
    for (unsigned i = 0; i < count && i < OUTLET_POST_PARTS; i++) {
        copied[i] = slice_of(parts[i].base, parts[i].len);
        len += parts[i].len;
    }
    outlet_settle(o);
    if (count > OUTLET_POST_PARTS || len == 0 || len > VOLLEY_BYTES_MAX || o->fault || outlet_waiting(o) ||
        uv_fileno((uv_handle_t *)o->stream, &fd) != 0)
        return outlet_write(o, parts, count);
    volley_take(o->volley, o, fd, copied, count);
    o->posted = true;
    return 0;
}

void outlet_settle(struct outlet *o)
{
    if (o->posted)
        volley_send(o->volley);
}

void outlet_withdraw(struct outlet *o)
{
    if (o->posted)
        volley_withdraw(o->volley, o);
    o->posted = false;
}

bool outlet_unsent(const struct outlet *o)
{
    return o->posted || o->fault || outlet_waiting(o) > 0;
}

bool outlet_left(struct outlet *o, int result, struct slice bytes)
{
    size_t went = result > 0                 ? (size_t)result
                  : result == VOLLEY_UNKNOWN ? bytes.len
                                             : 0; /* (1): not too small */
    o->posted = false;
    o->taken += went;
    if (result < 0 && result != UV_EAGAIN && result != UV_ENOBUFS) {
        o->fault = result == VOLLEY_UNKNOWN ? UV_EIO : result;
        return true;
    }
    if (went == bytes.len)
        return o->wants_news;
    buffer_clear(&o->wait); /* nothing waited */
    o->wait_from = 0;
    buffer_append(&o->wait, bytes.data + went, bytes.len - went);
    o->fault = o->wait.failed ? UV_ENOMEM : outlet_fly(o);
    return true;
}

void outlet_tell(struct outlet *o)
{
    if (!uv_is_closing((uv_handle_t *)o->stream))
        o->on_moved(o, o->fault);
}

ssize_t outlet_try(struct outlet *o, struct slice bytes)
{
    outlet_settle(o);
    if (o->fault)
        return o->fault;
    if (outlet_waiting(o) || bytes.len == 0)
        return 0;
    uv_buf_t part =
        uv_buf_init((char *)(size_t)bytes.data, (unsigned)(bytes.len < (1u << 30) ? bytes.len : 1u << 30));
    int n = uv_try_write(o->stream, &part, 1);
    if (n == UV_EAGAIN)
        return 0;
    if (n > 0)
        o->taken += (uint64_t)n;
    return n;
}
