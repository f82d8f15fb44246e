/* SPDX-License-Identifier: MIT */
#include "forensics/input.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define BLOCK_BYTES  (1u << 20)
#define PACKED_BYTES (256u << 10)

enum packing { PACKING_UNKNOWN, PACKING_NONE, PACKING_GZIP, PACKING_ZSTD };

struct input {
    int fd;
    bool own_fd, at_end, ascii;
    enum packing packing;
    uint64_t bytes_read, bytes_all;
    const char *error;
    char *data; /* the block: lines from `at`, bytes until `len`, room until `size` */
    size_t at, len, size;
    char *packed;
    size_t packed_at, packed_len;
    bool member_open; /* a compressed stream is not at its end */
    z_stream zlib;
    bool zlib_ready;
    ZSTD_DStream *zstd;
};

enum status input_open(struct input **out, const char *path)
{
    struct input *in = calloc(1, sizeof *in);
    if (!in)
        return STATUS_NO_MEMORY;
    in->fd = -1;
    in->size = BLOCK_BYTES;
    in->data = malloc(in->size);
    in->packed = malloc(PACKED_BYTES);
    if (!in->data || !in->packed) {
        input_close(in);
        return STATUS_NO_MEMORY;
    }
    if (strcmp(path, "-") == 0) {
        in->fd = STDIN_FILENO;
    } else {
        in->fd = open(path, O_RDONLY | O_CLOEXEC);
        in->own_fd = true;
    }
    struct stat st;
    if (in->fd < 0 || fstat(in->fd, &st) != 0 || S_ISDIR(st.st_mode)) {
        int error = in->fd < 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : errno;
        input_close(in);
        errno = error;
        return error == ENOENT ? STATUS_NOT_FOUND : STATUS_IO;
    }
    in->bytes_all = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *out = in;
    return STATUS_OK;
}

/* 0 at the end or on an error, which is then noted. */
static size_t read_some(struct input *in, char *to, size_t room)
{
    ssize_t n;
    do
        n = read(in->fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        in->error = strerror(errno);
    if (n <= 0)
        return 0;
    in->bytes_read += (uint64_t)n;
    return (size_t)n;
}

static void tell_packing(struct input *in)
{
    while (in->packed_len < 4) {
        size_t n = read_some(in, in->packed + in->packed_len, PACKED_BYTES - in->packed_len);
        if (n == 0)
            break;
        in->packed_len += n;
    }
    in->packing = PACKING_NONE;
    if (in->packed_len >= 2 && memcmp(in->packed, "\x1f\x8b", 2) == 0)
        in->packing = PACKING_GZIP;
    else if (in->packed_len >= 4 && memcmp(in->packed, "\x28\xb5\x2f\xfd", 4) == 0)
        in->packing = PACKING_ZSTD;
    if (in->packing == PACKING_GZIP && inflateInit2(&in->zlib, 15 + 16) == Z_OK)
        in->zlib_ready = true;
    if (in->packing == PACKING_ZSTD)
        in->zstd = ZSTD_createDStream();
    if ((in->packing == PACKING_GZIP && !in->zlib_ready) || (in->packing == PACKING_ZSTD && !in->zstd))
        in->error = "not enough memory to decompress";
}

static size_t inflate_some(struct input *in, char *to, size_t room)
{
    in->zlib.next_in = (Bytef *)in->packed + in->packed_at;
    in->zlib.avail_in = (uInt)(in->packed_len - in->packed_at);
    in->zlib.next_out = (Bytef *)to;
    in->zlib.avail_out = (uInt)room;
    int rc = inflate(&in->zlib, Z_NO_FLUSH);
    in->packed_at = in->packed_len - in->zlib.avail_in;
    in->member_open = rc != Z_STREAM_END;
    if (rc == Z_STREAM_END)
        inflateReset(&in->zlib);
    else if (rc != Z_OK && rc != Z_BUF_ERROR)
        in->error = "the gzip stream is damaged";
    return room - in->zlib.avail_out;
}

static size_t unzstd_some(struct input *in, char *to, size_t room)
{
    ZSTD_inBuffer src = {in->packed, in->packed_len, in->packed_at};
    ZSTD_outBuffer dst = {to, room, 0};
    size_t rc = ZSTD_decompressStream(in->zstd, &dst, &src);
    in->packed_at = src.pos;
    in->member_open = rc != 0;
    if (ZSTD_isError(rc))
        in->error = "the zstd stream is damaged";
    return dst.pos;
}

/* Some more plain bytes, or 0 at the end. */
static size_t more(struct input *in, char *to, size_t room)
{
    if (in->packing == PACKING_UNKNOWN)
        tell_packing(in);
    if (in->error)
        return 0;
    if (in->packing == PACKING_NONE) {
        if (in->packed_at == in->packed_len)
            return read_some(in, to, room);
        size_t n = in->packed_len - in->packed_at < room ? in->packed_len - in->packed_at : room;
        memcpy(to, in->packed + in->packed_at, n);
        in->packed_at += n;
        return n;
    }
    for (;;) {
        if (in->packed_at == in->packed_len) {
            in->packed_at = 0;
            in->packed_len = read_some(in, in->packed, PACKED_BYTES);
            if (in->packed_len == 0) {
                if (in->member_open && !in->error)
                    in->error = "the compressed file is cut";
                return 0;
            }
        }
        size_t n = in->packing == PACKING_GZIP ? inflate_some(in, to, room) : unzstd_some(in, to, room);
        if (n || in->error)
            return n;
    }
}

static bool all_ascii(const char *p, size_t n)
{
    uint64_t any = 0, v;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        any |= v;
    }
    for (; n; p++, n--)
        any |= (unsigned char)*p;
    return (any & UINT64_C(0x8080808080808080)) == 0;
}

/* Moves what is left to the front and reads behind it. False: nothing more came. */
static bool refill(struct input *in)
{
    size_t left = in->len - in->at;
    if (in->at) {
        memmove(in->data, in->data + in->at, left);
        in->at = 0;
        in->len = left;
    }
    if (in->len == in->size) {
        size_t size = in->size * 2; /* from BLOCK_BYTES on */
        assert(size);
        char *grown = size > 2 * INPUT_LINE_BYTES_MAX ? NULL : realloc(in->data, size);
        if (!grown)
            return false;
        in->data = grown;
        in->size = size;
    }
    size_t n = more(in, in->data + in->len, in->size - in->len);
    if (n == 0)
        in->at_end = true;
    in->len += n;
    in->ascii = all_ascii(in->data, in->len);
    return n > 0;
}

/* The rest of a line that is too long: read and dropped. */
static void skip_line(struct input *in)
{
    for (;;) {
        char *newline = memchr(in->data + in->at, '\n', in->len - in->at);
        if (newline) {
            in->at = (size_t)(newline - in->data) + 1;
            return;
        }
        in->at = in->len;
        if (!refill(in))
            return;
    }
}

bool input_next(struct input *in, struct input_line *out)
{
    size_t searched = 0;
    out->cut = false;
    for (;;) {
        char *begin = in->data + in->at;
        size_t have = in->len - in->at;
        char *newline = have > searched ? memchr(begin + searched, '\n', have - searched) : NULL;
        if (newline) {
            out->text = slice_of(begin, (size_t)(newline - begin));
            in->at += out->text.len + 1;
            out->ended = true;
            break;
        }
        searched = have;
        if (have >= INPUT_LINE_BYTES_MAX) {
            in->at = in->len; /* its bytes are of no use: half an object says nothing that can be trusted */
            skip_line(in);
            out->text = slice_of(in->data, 0);
            out->ended = true;
            out->cut = true;
            break;
        }
        if (in->at_end || !refill(in)) {
            begin = in->data + in->at;
            have = in->len - in->at;
            if (!in->at_end || have == 0)
                return false;
            out->text = slice_of(begin, have);
            out->ended = false;
            in->at = in->len;
            break;
        }
    }
    if (out->text.len && out->text.data[out->text.len - 1] == '\r')
        out->text.len--;
    out->ascii = in->ascii || all_ascii(out->text.data, out->text.len);
    return true;
}

const char *input_error(const struct input *in)
{
    return in->error;
}

uint64_t input_bytes_read(const struct input *in)
{
    return in->bytes_read;
}

uint64_t input_bytes_all(const struct input *in)
{
    return in->bytes_all;
}

uint64_t input_size(const char *path)
{
    struct stat st;
    int failed = strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &st) : stat(path, &st);
    return failed || !S_ISREG(st.st_mode) ? 0 : (uint64_t)st.st_size;
}

bool input_packed(const struct input *in)
{
    return in->packing == PACKING_GZIP || in->packing == PACKING_ZSTD;
}

void input_close(struct input *in)
{
    if (!in)
        return;
    if (in->own_fd && in->fd >= 0)
        close(in->fd);
    if (in->zlib_ready)
        inflateEnd(&in->zlib);
    ZSTD_freeDStream(in->zstd);
    free(in->packed);
    free(in->data);
    free(in);
}
