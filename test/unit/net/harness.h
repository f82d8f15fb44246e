/* SPDX-License-Identifier: MIT
 *
 * What the tests of the network room share: a loop on its own thread, work handed to it, and blocking sockets with
 * a bound on every wait.
 */
#ifndef TEST_NET_HARNESS_H
#define TEST_NET_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_S 10 /* seconds: the bound of every wait; nothing here should take that long */

struct task {
    struct letter letter;
    void (*work)(void *argument);
    void *argument;
    sem_t done;
};

static void task_open(struct letter *letter)
{
    struct task *task = LIST_ENTRY(letter, struct task, letter);
    task->work(task->argument);
    sem_post(&task->done);
}

/* Runs work(argument) on the loop's thread and waits for it. */
static inline void on_loop(struct net_loop *loop, void (*work)(void *), void *argument)
{
    struct task task = {.work = work, .argument = argument};
    task.letter.open = task_open;
    sem_init(&task.done, 0, 0);
    mailbox_post(loop, &task.letter);
    while (sem_wait(&task.done) != 0)
        ;
    sem_destroy(&task.done);
}

static inline void *loop_thread(void *loop)
{
    net_loop_run(loop);
    return NULL;
}

/* Waits until *counter reaches at least n. */
static inline bool reaches(atomic_long *counter, long n)
{
    int64_t until = clock_monotonic_ms() + WAIT_S * 1000;
    while (atomic_load(counter) < n) {
        if (clock_monotonic_ms() > until)
            return false;
        usleep(500);
    }
    return true;
}

static inline void set_bound(int fd)
{
    struct timeval bound = {.tv_sec = WAIT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

static inline int dial(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    set_bound(fd);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline void say_bytes(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

static inline void say(int fd, const char *text)
{
    say_bytes(fd, text, strlen(text));
}

/* Reads until the end of the stream; false when it did not come or a reset did. */
static inline bool hear_all(int fd, struct buffer *out)
{
    char part[65536];
    for (;;) {
        ssize_t n = recv(fd, part, sizeof part, 0);
        if (n == 0)
            return true;
        if (n < 0)
            return false;
        buffer_append(out, part, (size_t)n);
    }
}

/* Reads until `text` was heard; false when the stream ended before. */
static inline bool hear_until(int fd, struct buffer *out, const char *text)
{
    char part[4096];
    while (!strstr(buffer_cstring(out), text)) {
        ssize_t n = recv(fd, part, sizeof part, 0);
        if (n <= 0)
            return false;
        buffer_append(out, part, (size_t)n);
    }
    return true;
}

static inline size_t times(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

#endif
