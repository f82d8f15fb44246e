/* SPDX-License-Identifier: MIT
 *
 * floor: what a durable gateway costs that has nothing else: a proxy, and two synced commits a call. It is measured
 * beside the gateway to tell how much of the way to nginx is the disk's and SQLite's, and how much is ours.
 *
 *   (1) A request with an Idempotency-Key goes upstream only after its claim, a row under a unique index on the key,
 *       is committed; a key that has a claim is answered 409 and goes nowhere.
 *   (2) Its answer goes to the client only after the ending, a row with that answer, is committed.
 *   (3) One thread writes. It takes whatever has queued, whichever loop it came from, as one transaction.
 *   (4) A connection belongs to its loop, save while it is queued: then only the writer touches it, and the loop frees
 *       it no earlier than it is back.
 *
 * Left out, because a floor is what nobody can do without: replays, receipts, fingerprints, limits, timeouts, a log.
 * Who leaves early leaves a claim without an ending. Parsing is the least that bench_load, bench_callee and Python's
 * http.client need: Content-Length bodies, messages that fit one buffer, one request at a time on a connection, keys
 * of 32 hex digits, which are taken for digests as they are. Every connection keeps one upstream. What cannot be
 * (a full disk, no descriptors) ends the program.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOPS = 2,
    EVENTS_MAX = 256,
    BACKLOG = 4096,
    MESSAGE_BYTES_MAX = 4096,
    KEY_BYTES = 16,
    WAL_PAGES = 16384, /* the commit that makes the log longer moves it into the file */
};

/* The bytes of one message; `whole` is its length once its head is there, else 0. */
struct message {
    size_t len, whole;
    char bytes[MESSAGE_BYTES_MAX];
};

enum state { READING, CLAIMING, CALLING, ENDING };

struct side {
    int fd; /* -1: not connected */
    struct connection *of;
};

struct connection {
    struct loop *loop;
    struct side client, upstream;
    struct message request, answer;
    enum state state;
    bool keyed, refused, queued, gone;
    unsigned char key[KEY_BYTES];
    sqlite3_int64 id;        /* of the claim */
    struct connection *next; /* in one queue, or in the list of the dead */
};

/* Connections in order; emptied by taking its head. */
struct queue {
    struct connection *head, **tail;
};

struct loop {
    pthread_t thread;
    int epoll_fd, listen_fd, wake_fd;
    struct queue asked; /* by this round of events, handed to the writer at its end */
    struct queue done;  /* under proxy.lock */
    struct connection *dead;
};

static struct {
    struct sockaddr_in callee;
    struct loop loops[LOOPS];
    pthread_mutex_t lock;
    struct queue waiting; /* under lock */
    int wake_fd;          /* the writer's */
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *claim, *end;
} proxy = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void __attribute__((noreturn)) fail(const char *what, const char *why)
{
    fprintf(stderr, "floor: %s: %s\n", what, why);
    exit(71);
}

/* -- queues ------------------------------------------------------------------------------------------------ */

static void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_add(struct queue *q, struct connection *c)
{
    c->next = NULL;
    *q->tail = c;
    q->tail = &c->next;
}

/* Adds all of `more` and empties it; true if there was something. */
static bool queue_move(struct queue *q, struct queue *more)
{
    if (!more->head)
        return false;
    *q->tail = more->head;
    q->tail = more->tail;
    queue_init(more);
    return true;
}

/* The same where one of them is shared. */
static bool queue_move_locked(struct queue *q, struct queue *more)
{
    pthread_mutex_lock(&proxy.lock);
    bool moved = queue_move(q, more);
    pthread_mutex_unlock(&proxy.lock);
    return moved;
}

static void wake(int fd)
{
    if (eventfd_write(fd, 1) != 0)
        fail("eventfd", strerror(errno));
}

/* -- messages ---------------------------------------------------------------------------------------------- */

/* The value of a header field in a complete head, or NULL; it ends with the line. */
static const char *message_field(const struct message *m, size_t head, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = m->bytes, *end = m->bytes + head;
         (at = memchr(at, '\n', (size_t)(end - at))) != NULL;) {
        at++;
        if ((size_t)(end - at) > len && at[len] == ':' && strncasecmp(at, name, len) == 0)
            return at + len + 1 + strspn(at + len + 1, " \t");
    }
    return NULL;
}

/* Reads what is there; false if the peer has gone or its message does not fit. Complete when len == whole > 0. */
static bool message_read(struct message *m, int fd)
{
    ssize_t n = recv(fd, m->bytes + m->len, sizeof m->bytes - 1 - m->len, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    m->len += (size_t)n;
    m->bytes[m->len] = '\0';
    if (m->whole == 0) {
        const char *end = memmem(m->bytes, m->len, "\r\n\r\n", 4);
        if (!end)
            return m->len < sizeof m->bytes - 1;
        size_t head = (size_t)(end - m->bytes) + 4;
        const char *length = message_field(m, head, "Content-Length");
        unsigned long body = length ? strtoul(length, NULL, 10) : 0;
        if (body > sizeof m->bytes - 1 - head)
            return false;
        m->whole = head + body;
    }
    return m->len <= m->whole;
}

static bool message_complete(const struct message *m)
{
    return m->whole > 0 && m->len == m->whole;
}

/* One message is under way each way at most, and shorter than any socket's buffer: what does not go at once is lost. */
static bool message_send(const struct message *m, int fd)
{
    return send(fd, m->bytes, m->len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)m->len;
}

static void message_clear(struct message *m)
{
    m->len = m->whole = 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The key of a complete request that has one; false if it has one that is no digest. */
static bool take_key(struct connection *c)
{
    const char *text = message_field(&c->request, c->request.whole, "Idempotency-Key");
    c->keyed = text != NULL;
    for (size_t i = 0; text && i < KEY_BYTES; i++) {
        int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        c->key[i] = (unsigned char)(high << 4 | low);
    }
    return !text || text[2 * KEY_BYTES] == '\r';
}

/* -- connections ------------------------------------------------------------------------------------------- */

/* What is read from fd is told as an event of `which`. */
static void watch(struct loop *l, int fd, void *which)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = which};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0)
        fail("epoll", strerror(errno));
}

static void side_open(struct side *s, int fd, struct connection *c)
{
    int on = 1;
    *s = (struct side){fd, c};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(c->loop, fd, s);
}

static void side_close(struct side *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static void connection_bury(struct connection *c)
{
    c->next = c->loop->dead;
    c->loop->dead = c;
}

/* Events of this round may still name it, and the writer may have it (4): it is freed later. */
static void connection_close(struct connection *c)
{
    if (c->gone)
        return;
    side_close(&c->client);
    side_close(&c->upstream);
    c->gone = true;
    if (!c->queued)
        connection_bury(c);
}

static void connection_answer(struct connection *c)
{
    bool sent = message_send(&c->answer, c->client.fd);
    message_clear(&c->request);
    message_clear(&c->answer);
    c->state = READING;
    if (!sent)
        connection_close(c);
}

static void connection_refuse(struct connection *c, const char *status)
{
    int n =
        snprintf(c->answer.bytes, sizeof c->answer.bytes, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", status);
    c->answer.len = (size_t)n;
    connection_answer(c);
}

static void connection_call(struct connection *c)
{
    c->state = CALLING;
    if (c->upstream.fd < 0) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            fail("socket", strerror(errno));
        if (connect(fd, (const struct sockaddr *)&proxy.callee, sizeof proxy.callee) != 0) {
            close(fd);
            connection_close(c);
            return;
        }
        side_open(&c->upstream, fd, c);
    }
    if (!message_send(&c->request, c->upstream.fd))
        connection_close(c);
}

/* Has the writer claim or end the call. */
static void connection_queue(struct connection *c, enum state state)
{
    c->state = state;
    c->queued = true;
    queue_add(&c->loop->asked, c);
}

/* Goes on after a commit. */
static void connection_committed(struct connection *c)
{
    c->queued = false;
    if (c->gone)
        connection_bury(c);
    else if (c->state == ENDING)
        connection_answer(c);
    else if (c->refused)
        connection_refuse(c, "409 Conflict");
    else
        connection_call(c);
}

static void connection_readable(struct connection *c)
{
    /* While a request is under way there is nothing to come but the end: nobody here pipelines. */
    if (c->state != READING || !message_read(&c->request, c->client.fd))
        connection_close(c);
    else if (!message_complete(&c->request))
        return;
    else if (!take_key(c))
        connection_refuse(c, "400 Bad Request");
    else if (c->keyed)
        connection_queue(c, CLAIMING);
    else
        connection_call(c);
}

static void upstream_readable(struct connection *c)
{
    if (c->state != CALLING)
        side_close(&c->upstream); /* closed by the callee between two calls, or after one */
    else if (!message_read(&c->answer, c->upstream.fd))
        connection_close(c);
    else if (!message_complete(&c->answer))
        return;
    else if (c->keyed)
        connection_queue(c, ENDING);
    else
        connection_answer(c);
}

/* -- loops ------------------------------------------------------------------------------------------------- */

static void loop_accept(struct loop *l)
{
    int fd = accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct connection *c = malloc(sizeof *c);
    if (!c)
        fail("connection", "not enough memory");
    c->loop = l;
    c->state = READING;
    c->keyed = c->refused = c->queued = c->gone = false;
    c->upstream.fd = -1;
    message_clear(&c->request);
    message_clear(&c->answer);
    side_open(&c->client, fd, c);
}

/* What the writer is done with. */
static void loop_committed(struct loop *l)
{
    eventfd_t times;
    struct queue done;
    eventfd_read(l->wake_fd, &times);
    queue_init(&done);
    queue_move_locked(&done, &l->done);
    for (struct connection *c = done.head, *next; c; c = next) {
        next = c->next;
        connection_committed(c);
    }
}

static void loop_round(struct loop *l)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(l->epoll_fd, events, EVENTS_MAX, -1);
    for (int i = 0; i < n; i++) {
        struct side *s = events[i].data.ptr;
        if ((void *)s == &l->listen_fd)
            loop_accept(l);
        else if ((void *)s == &l->wake_fd)
            loop_committed(l);
        else if (s->fd < 0)
            continue;
        else if (s == &s->of->client)
            connection_readable(s->of);
        else
            upstream_readable(s->of);
    }
    pthread_mutex_lock(&proxy.lock);
    bool first = !proxy.waiting.head, more = queue_move(&proxy.waiting, &l->asked);
    pthread_mutex_unlock(&proxy.lock);
    if (first && more)
        wake(proxy.wake_fd);
    for (struct connection *c; (c = l->dead) != NULL;) {
        l->dead = c->next;
        free(c);
    }
}

static void *loop_run(void *argument)
{
    for (;;)
        loop_round(argument);
    return NULL;
}

static void loop_make(struct loop *l, uint16_t port)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    queue_init(&l->asked);
    queue_init(&l->done);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->listen_fd < 0 || setsockopt(l->listen_fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
        bind(l->listen_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(l->listen_fd, BACKLOG) != 0)
        fail("cannot listen", strerror(errno));
    watch(l, l->listen_fd, &l->listen_fd);
    watch(l, l->wake_fd, &l->wake_fd);
}

/* -- the writer -------------------------------------------------------------------------------------------- */

/* One step to its end; false if a constraint refused it. */
static bool writer_step(sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    sqlite3_reset(statement);
    if (rc != SQLITE_DONE && rc != SQLITE_CONSTRAINT)
        fail("database", sqlite3_errmsg(proxy.db));
    return rc == SQLITE_DONE;
}

static void writer_write(struct connection *c)
{
    if (c->state == CLAIMING) {
        sqlite3_bind_blob(proxy.claim, 1, c->key, KEY_BYTES, SQLITE_STATIC);
        c->refused = !writer_step(proxy.claim);
        c->id = sqlite3_last_insert_rowid(proxy.db);
    } else {
        sqlite3_bind_int64(proxy.end, 1, c->id);
        sqlite3_bind_blob(proxy.end, 2, c->answer.bytes, (int)c->answer.len, SQLITE_STATIC);
        if (!writer_step(proxy.end))
            fail("database", "a call ended twice");
    }
}

static void writer_run(void)
{
    for (;;) {
        eventfd_t times;
        struct queue batch, done[LOOPS];
        queue_init(&batch);
        if (!queue_move_locked(&batch, &proxy.waiting)) {
            eventfd_read(proxy.wake_fd, &times);
            continue;
        }
        for (size_t i = 0; i < LOOPS; i++)
            queue_init(&done[i]);
        writer_step(proxy.begin);
        for (struct connection *c = batch.head, *next; c; c = next) {
            next = c->next;
            writer_write(c);
            queue_add(&done[c->loop - proxy.loops], c);
        }
        writer_step(proxy.commit);
        for (size_t i = 0; i < LOOPS; i++)
            if (queue_move_locked(&proxy.loops[i].done, &done[i]))
                wake(proxy.loops[i].wake_fd);
    }
}

static sqlite3_stmt *writer_prepare(const char *sql)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v3(proxy.db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) != SQLITE_OK)
        fail("database", sqlite3_errmsg(proxy.db));
    return statement;
}

static void writer_make(const char *path)
{
    static const char setup[] =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;"
        "PRAGMA locking_mode = EXCLUSIVE;"
        "CREATE TABLE call (id INTEGER PRIMARY KEY, key BLOB NOT NULL);"
        "CREATE UNIQUE INDEX call_key ON call (key);"
        "CREATE TABLE ending (id INTEGER PRIMARY KEY, answer BLOB NOT NULL)";
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &proxy.db, flags, NULL) != SQLITE_OK ||
        sqlite3_exec(proxy.db, setup, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_wal_autocheckpoint(proxy.db, WAL_PAGES) != SQLITE_OK)
        fail(path, sqlite3_errmsg(proxy.db));
    proxy.begin = writer_prepare("BEGIN IMMEDIATE");
    proxy.commit = writer_prepare("COMMIT");
    proxy.claim = writer_prepare("INSERT INTO call (key) VALUES (?1)");
    proxy.end = writer_prepare("INSERT INTO ending (id, answer) VALUES (?1, ?2)");
    queue_init(&proxy.waiting);
    proxy.wake_fd = eventfd(0, EFD_CLOEXEC);
    if (proxy.wake_fd < 0)
        fail("eventfd", strerror(errno));
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: bench_floor PORT CALLEE_PORT FILE; FILE is a database that is not there yet\n", stderr);
        return 64;
    }
    uint16_t port = (uint16_t)strtoul(argv[1], NULL, 10), callee = (uint16_t)strtoul(argv[2], NULL, 10);
    proxy.callee = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(callee)};
    proxy.callee.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    writer_make(argv[3]);
    for (size_t i = 0; i < LOOPS; i++)
        loop_make(&proxy.loops[i], port);
    for (size_t i = 0; i < LOOPS; i++)
        if (pthread_create(&proxy.loops[i].thread, NULL, loop_run, &proxy.loops[i]) != 0)
            fail("thread", "cannot be started");
    writer_run();
    return 0;
}
