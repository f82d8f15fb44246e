/* SPDX-License-Identifier: MIT
 *
 * A service in a process of its own, for the tests of the caller: it reads each POST and closes without a word; its
 * receipts tell the truth about the POSTs that came. One request a connection.
 */
#ifndef SAMEKEY_TEST_CALLER_SERVICE_H
#define SAMEKEY_TEST_CALLER_SERVICE_H

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVICE_CALLS_MAX 4096

struct service {
    pid_t pid;
    int port, posts; /* a pipe that holds a byte for each POST */
};

static inline void service_serve(int listener, int posts)
{
    static char seen[SERVICE_CALLS_MAX][130]; /* callIds */
    static int count;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
        char request[8192] = "", answer[1024], id[130] = "";
        size_t len = 0;
        while (!strstr(request, "\r\n\r\n") || (request[0] == 'P' && !strstr(request, "the body"))) {
            ssize_t got = recv(fd, request + len, sizeof request - 1 - len, 0);
            if (got <= 0)
                break;
            len += (size_t)got;
            request[len] = 0;
        }
        const char *named = strstr(request, "X-Call-Id: ");
        if (request[0] == 'P' && strstr(request, "the body") && named && count < SERVICE_CALLS_MAX) {
            if (sscanf(named, "X-Call-Id: %129[^\r]", seen[count++]) != 1 || write(posts, "P", 1) != 1)
                _exit(1);
        } else if (sscanf(request, "GET /receipts/%129[^ ?]", id) == 1) {
            int known = 0;
            for (int i = 0; i < count; i++)
                known |= strcmp(seen[i], id) == 0;
            char body[500];
            int body_len =
                snprintf(body, sizeof body,
                         "{\"call_id\":\"%s\",\"state\":\"%s\",\"final\":true,\"safe_new_key\":false,"
                         "\"result\":{\"status\":201,\"headers\":[[\"x-a\",\"b\"]],\"body\":\"made\"}}",
                         id, known ? "SUCCESS" : "NOT_RECEIVED");
            int answer_len = snprintf(answer, sizeof answer,
                                      "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
                                      body_len, body);
            send(fd, answer, (size_t)answer_len, MSG_NOSIGNAL);
        }
    }
    _exit(0);
}

static inline int service_start(struct service *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), pipes[2];
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 128) ||
        getsockname(listener, (struct sockaddr *)&a, &len) || pipe(pipes))
        return -1;
    s->port = ntohs(a.sin_port);
    s->posts = pipes[0];
    s->pid = fork();
    if (s->pid == 0)
        service_serve(listener, pipes[1]);
    close(listener);
    close(pipes[1]);
    return 0;
}

static inline void service_stop(struct service *s)
{
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
}

/* POSTs since this was last asked. */
static inline int service_posts(struct service *s)
{
    int count = 0;
    struct pollfd p = {.fd = s->posts, .events = POLLIN};
    char byte;
    while (poll(&p, 1, 0) > 0 && read(s->posts, &byte, 1) == 1)
        count++;
    return count;
}

#endif
