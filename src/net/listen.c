/* SPDX-License-Identifier: MIT */
#include "net/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 4096 /* connections; the kernel caps it by net.core.somaxconn */

static enum status fail(struct buffer *error, enum status status, const char *address, const char *what)
{
    buffer_format(error, "%s: %s", address, what);
    return status;
}

/* Whether somebody listens on the path. */
static bool unix_is_alive(const struct sockaddr_un *where)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true; /* cannot tell: leave the file alone */
    bool alive = connect(fd, (const struct sockaddr *)where, sizeof *where) == 0 || errno != ECONNREFUSED;
    close(fd);
    return alive;
}

static enum status open_unix(struct listener *out, const char *address, const char *path,
                             struct buffer *error)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof where.sun_path)
        return fail(error, STATUS_INVALID, address, "the path of a unix socket has 1 to 107 bytes");
    memcpy(where.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return fail(error, STATUS_IO, address, strerror(errno));
    int bound = bind(fd, (struct sockaddr *)&where, sizeof where);
    struct stat file;
    if (bound < 0 && errno == EADDRINUSE && stat(path, &file) == 0 && S_ISSOCK(file.st_mode) &&
        !unix_is_alive(&where)) {
        unlink(path);
        bound = bind(fd, (struct sockaddr *)&where, sizeof where);
    }
    if (bound < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        int reason = errno;
        close(fd);
        return fail(error, reason == EADDRINUSE ? STATUS_CONFLICT : STATUS_IO, address, strerror(reason));
    }
    out->fd = fd;
    out->is_unix = true;
    out->port = 0;
    memcpy(out->path, path, strlen(path) + 1);
    return STATUS_OK;
}

/* Splits "host:port" and "[v6]:port". */
static bool split(const char *address, char *host, size_t host_size, char *port, size_t port_size)
{
    const char *colon = strrchr(address, ':');
    if (!colon || !colon[1] || strlen(colon + 1) >= port_size ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    const char *from = address;
    size_t len = (size_t)(colon - address);
    if (len >= 2 && from[0] == '[' && from[len - 1] == ']') {
        from++;
        len -= 2;
    } else if (memchr(from, ':', len)) {
        return false; /* a v6 address without brackets */
    }
    if (len == 0 || len >= host_size || atoi(colon + 1) > 65535)
        return false;
    memcpy(host, from, len);
    host[len] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return true;
}

static enum status open_tcp(struct listener *out, const char *address, bool reuse_port, bool listening,
                            struct buffer *error)
{
    char host[256] = "", port[6] = "";
    if (!split(address, host, sizeof host, port, sizeof port))
        return fail(error, STATUS_INVALID, address,
                    "not an address like 127.0.0.1:8080, [::1]:8080 or unix:/path");
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;
    struct addrinfo *found = NULL;
    int unread = getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port, &hints, &found);
    if (unread)
        return fail(error, STATUS_INVALID, address, "the host is not a numeric address or localhost");
    int yes = 1, reason = 0;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        (reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) < 0) ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || (listening && listen(fd, LISTEN_BACKLOG) < 0))
        reason = errno;
    freeaddrinfo(found);
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } own;
    memset(&own, 0, sizeof own);
    socklen_t own_len = sizeof own;
    if (!reason && getsockname(fd, &own.any, &own_len) < 0)
        reason = errno;
    if (reason) {
        if (fd >= 0)
            close(fd);
        return fail(error, reason == EADDRINUSE ? STATUS_CONFLICT : STATUS_IO, address, strerror(reason));
    }
    out->fd = fd;
    out->is_unix = false;
    out->path[0] = '\0';
    out->port = ntohs(own.any.sa_family == AF_INET6 ? own.six.sin6_port : own.four.sin_port);
    return STATUS_OK;
}

enum status listener_open(struct listener *out, const char *address, bool reuse_port, struct buffer *error)
{
    if (strncmp(address, "unix:", 5) == 0)
        return open_unix(out, address, address + 5, error);
    return open_tcp(out, address, reuse_port, true, error);
}

enum status listener_ask(const char *address, int *port, struct buffer *error)
{
    struct listener asked;
    enum status status = open_tcp(&asked, address, false, false, error);
    if (status != STATUS_OK)
        return status;
    *port = asked.port;
    close(asked.fd);
    return STATUS_OK;
}

int listener_accept(struct listener *l, char *peer, size_t size)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof from;
    int fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return -errno;
    memset(peer, 0, size);
    if (l->is_unix) {
        memcpy(peer, "unix:", 6);
    } else if (from.ss_family == AF_INET6) {
        const struct in6_addr *a = &((struct sockaddr_in6 *)&from)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(a)) /* one caller, one name, whichever socket it came through */
            inet_ntop(AF_INET, &a->s6_addr[12], peer, (socklen_t)size);
        else
            inet_ntop(AF_INET6, a, peer, (socklen_t)size);
    } else {
        inet_ntop(AF_INET, &((struct sockaddr_in *)&from)->sin_addr, peer, (socklen_t)size);
    }
    return fd;
}

void listener_close(struct listener *l)
{
    if (l->fd < 0)
        return;
    close(l->fd);
    l->fd = -1;
    if (l->is_unix)
        unlink(l->path);
}
