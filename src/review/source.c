/* SPDX-License-Identifier: MIT */
#include "review/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status index_lines(struct source *s, const char **why, struct pool *p)
{
    if (memchr(s->text, '\0', s->len)) {
        *why = "not a text file (it holds NUL bytes)";
        return STATUS_INVALID;
    }
    unsigned lines = 0;
    for (size_t i = 0; i < s->len; i++)
        lines += s->text[i] == '\n';
    if (s->len && s->text[s->len - 1] != '\n')
        lines++;
    if (lines > SOURCE_LINES_MAX) {
        *why = pool_format(p, "more than %u lines", SOURCE_LINES_MAX);
        return STATUS_FULL;
    }
    size_t *starts = pool_alloc(p, (lines + 1) * sizeof *starts);
    if (!starts)
        return STATUS_NO_MEMORY;
    unsigned line = 0;
    for (size_t i = 0; i < s->len; i++)
        if (i == 0 || s->text[i - 1] == '\n')
            starts[line++] = i;
    starts[lines] = s->len;
    s->starts = starts;
    s->lines = lines;
    return STATUS_OK;
}

enum status source_from_memory(struct source **out, const char **why, struct pool *p, const char *path,
                               struct slice text)
{
    if (text.len > SOURCE_BYTES_MAX) {
        *why = pool_format(p, "larger than %zu MiB, the most that is read", SOURCE_BYTES_MAX >> 20);
        return STATUS_FULL;
    }
    struct source *s = pool_alloc(p, sizeof *s);
    if (!s)
        return STATUS_NO_MEMORY;
    s->path = pool_copy(p, slice_text(path));
    s->text = pool_copy(p, text);
    s->len = text.len;
    enum status status = p->failed ? STATUS_NO_MEMORY : index_lines(s, why, p);
    if (status == STATUS_OK)
        *out = s;
    return status;
}

static enum status read_all(int fd, char *text, size_t size, size_t *len)
{
    size_t n = 0;
    while (n < size) {
        ssize_t got = read(fd, text + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return STATUS_IO;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *len = n;
    return STATUS_OK;
}

enum status source_load(struct source **out, const char **why, struct pool *p, const char *path)
{
    enum status status = STATUS_OK;
    struct stat st;
    char *text = NULL;
    size_t len = 0;
    /* O_NONBLOCK: opening a pipe that nobody writes must not hang; the type is checked before reading. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        *why = errno == ELOOP ? "a loop of symbolic links" : pool_copy(p, slice_text(strerror(errno)));
        return errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND : STATUS_IO;
    }
    if (fstat(fd, &st) < 0) {
        *why = pool_copy(p, slice_text(strerror(errno)));
        status = STATUS_IO;
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        *why = S_ISDIR(st.st_mode) ? "a directory" : "not a regular file";
        status = STATUS_INVALID;
        goto done;
    }
    if (st.st_size > (off_t)SOURCE_BYTES_MAX) {
        *why = pool_format(p, "larger than %zu MiB, the most that is read", SOURCE_BYTES_MAX >> 20);
        status = STATUS_FULL;
        goto done;
    }
    /* One byte more than allowed: a file that says 0 bytes (procfs) or grows is still bounded. */
    text = malloc(SOURCE_BYTES_MAX + 1);
    if (!text) {
        status = STATUS_NO_MEMORY;
        goto done;
    }
    status = read_all(fd, text, SOURCE_BYTES_MAX + 1, &len);
    if (status != STATUS_OK) {
        *why = pool_copy(p, slice_text(strerror(errno)));
        goto done;
    }
    struct source *s;
    status = source_from_memory(&s, why, p, path, slice_of(text, len));
    if (status != STATUS_OK)
        goto done;
    s->device = st.st_dev;
    s->inode = st.st_ino;
    *out = s;
done:
    free(text);
    close(fd);
    return status;
}

struct slice source_line(const struct source *s, unsigned line)
{
    if (line == 0 || line > s->lines)
        return slice_of("", 0);
    size_t from = s->starts[line - 1], to = s->starts[line];
    if (to > from && s->text[to - 1] == '\n')
        to--;
    if (to > from && s->text[to - 1] == '\r')
        to--;
    return slice_of(s->text + from, to - from);
}

unsigned source_line_at(const struct source *s, size_t offset)
{
    unsigned low = 0, high = s->lines;
    while (low + 1 < high) {
        unsigned middle = low + (high - low) / 2;
        if (s->starts[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low + 1;
}

const char *source_name(const struct source *s)
{
    const char *slash = strrchr(s->path, '/');
    return slash ? slash + 1 : s->path;
}
