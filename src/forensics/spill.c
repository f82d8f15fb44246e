/* SPDX-License-Identifier: MIT */
#include "forensics/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void spill_init(struct spill *s, const char *folder, size_t bytes_max)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < SPILL_PARTS; i++)
        s->part[i].fd = -1;
    const char *tmp = getenv("TMPDIR");
    s->folder = folder ? folder : tmp && *tmp ? tmp : "/var/tmp";
    s->bytes_max = bytes_max;
}

static int temporary(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char path[4096]; /* a file system without O_TMPFILE */
    if (snprintf(path, sizeof path, "%s/samekey-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static enum status flush(struct spill *s, struct spill_part *p)
{
    if (p->fd < 0 && (p->fd = temporary(s->folder)) < 0) {
        s->error = errno;
        return STATUS_IO;
    }
    for (size_t at = 0; at < p->buffer.len;) {
        ssize_t n = pwrite(p->fd, p->buffer.data + at, p->buffer.len - at, (off_t)(p->bytes + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            s->error = n < 0 ? errno : ENOSPC;
            return STATUS_IO;
        }
        at += (size_t)n;
    }
    p->bytes += p->buffer.len;
    s->bytes -= p->buffer.len;
    buffer_clear(&p->buffer);
    return STATUS_OK;
}

enum status spill_wrote(struct spill *s, uint64_t group, size_t size)
{
    struct spill_part *p = &s->part[group >> 58];
    if (p->buffer.failed)
        return STATUS_NO_MEMORY;
    s->bytes += size;
    s->records++;
    if (s->spilled)
        return p->buffer.len < SPILL_BUFFER_BYTES ? STATUS_OK : flush(s, p);
    if (s->bytes < s->bytes_max)
        return STATUS_OK;
    s->spilled = true;
    for (size_t i = 0; i < SPILL_PARTS; i++) {
        enum status status = flush(s, &s->part[i]);
        if (status != STATUS_OK)
            return status;
        buffer_fini(&s->part[i].buffer); /* the next ones are small */
    }
    return STATUS_OK;
}

uint64_t spill_part_bytes(const struct spill *s, size_t part)
{
    return s->part[part].bytes + s->part[part].buffer.len;
}

static uint32_t size_at(const char *p)
{
    uint32_t size;
    memcpy(&size, p, sizeof size);
    return size;
}

/* How many of the first len bytes are whole records. */
static size_t whole(const char *p, size_t len)
{
    size_t at = 0;
    while (len - at >= sizeof(uint32_t) && size_at(p + at) <= len - at)
        at += size_at(p + at);
    return at;
}

enum status spill_read(struct spill *s, size_t part, size_t chunk_bytes_max,
                       enum status (*take)(void *context, char *records, size_t len), void *context)
{
    struct spill_part *p = &s->part[part];
    enum status status = STATUS_OK;
    if (p->bytes) {
        if (p->buffer.len && (status = flush(s, p)) != STATUS_OK)
            return status;
        size_t size = p->bytes < chunk_bytes_max ? (size_t)p->bytes : chunk_bytes_max;
        char *chunk = malloc(size);
        if (!chunk)
            return STATUS_NO_MEMORY;
        for (uint64_t at = 0; at < p->bytes && status == STATUS_OK;) {
            size_t got = 0, want = p->bytes - at < size ? (size_t)(p->bytes - at) : size;
            while (got < want) {
                ssize_t n = pread(p->fd, chunk + got, want - got, (off_t)(at + got));
                if (n < 0 && errno == EINTR)
                    continue;
                if (n <= 0) {
                    s->error = n < 0 ? errno : EIO;
                    free(chunk);
                    return STATUS_IO;
                }
                got += (size_t)n;
            }
            got = whole(chunk, got);
            if (got == 0)
                status = STATUS_FULL; /* a record longer than a chunk: ours are bounded far below */
            else
                status = take(context, chunk, got);
            at += got;
        }
        free(chunk);
        return status;
    }
    if (p->buffer.failed)
        return STATUS_NO_MEMORY;
    for (size_t at = 0; at < p->buffer.len && status == STATUS_OK;) {
        size_t left = p->buffer.len - at;
        size_t n = whole(p->buffer.data + at, left < chunk_bytes_max ? left : chunk_bytes_max);
        status = n ? take(context, p->buffer.data + at, n) : STATUS_FULL;
        at += n;
    }
    return status;
}

void spill_complain(const struct spill *s, struct buffer *out)
{
    buffer_format(out, "a temporary file in %s cannot be written: %s (--tmp FOLDER names another place)",
                  s->folder, strerror(s->error));
}

void spill_forget(struct spill *s, size_t part)
{
    struct spill_part *p = &s->part[part];
    s->bytes -= p->buffer.len;
    buffer_fini(&p->buffer);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    p->bytes = 0;
}

void spill_fini(struct spill *s)
{
    for (size_t i = 0; i < SPILL_PARTS; i++)
        spill_forget(s, i);
}
