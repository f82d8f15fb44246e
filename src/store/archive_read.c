/* SPDX-License-Identifier: MIT
 *
 * Reading the archive: frame by frame, so that memory is bounded by one step of purging whatever a file's size. A frame
 * that does not end, or does not decompress to what its checksum says, is no line of anybody; reading goes on at the next
 * place that looks like a frame's beginning.
 */
#include "store/archive.h"

#include "base/civil.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define DAY_MS          86400000
#define CHUNK_BYTES     (256u << 10)
#define FRAME_BYTES_MAX ((size_t)8 << 30) /* of text: the largest body, each byte of it spelled with six */

struct search {
    const char *folder;
    struct slice tenant, call_id;
    struct buffer needle; /* how the callId stands in a line; it needs no escapes */
    struct buffer *line;
    char at[40]; /* when the line in `line` was archived; "": none yet */
    size_t unread, damaged;
};

static bool text_is(json_t *value, struct slice wanted)
{
    return json_is_string(value) &&
           slice_equal(slice_of(json_string_value(value), json_string_length(value)), wanted);
}

static void look_at(struct search *s, struct slice line)
{
    if (!memmem(line.data, line.len, s->needle.data, s->needle.len))
        return;
    json_error_t error;
    json_t *root = json_loadb(line.data, line.len, JSON_ALLOW_NUL, &error);
    const char *at = json_string_value(json_object_get(root, "archived_at"));
    if (at && text_is(json_object_get(root, "call_id"), s->call_id) &&
        text_is(json_object_get(root, "tenant"), s->tenant) && strcmp(at, s->at) >= 0) {
        buffer_clear(s->line);
        buffer_slice(s->line, line);
        snprintf(s->at, sizeof s->at, "%s", at);
    }
    json_decref(root);
}

static void look_at_frame(struct search *s, const struct buffer *text)
{
    for (size_t at = 0; at < text->len;) {
        const char *end = memchr(text->data + at, '\n', text->len - at);
        size_t len = end ? (size_t)(end - text->data) - at : text->len - at;
        look_at(s, slice_of(text->data + at, len));
        at += len + 1;
    }
}

/* One frame from *offset on. 1: `text` is its content and *offset behind it; 0: it is none that is whole; -1: not read. */
static int frame_read(int fd, off_t *offset, ZSTD_DCtx *zstd, char *chunk, struct buffer *text)
{
    off_t at = *offset;
    buffer_clear(text);
    ZSTD_DCtx_reset(zstd, ZSTD_reset_session_only);
    for (;;) {
        ssize_t n = pread(fd, chunk, CHUNK_BYTES, at);
        if (n <= 0)
            return n < 0 ? -1 : 0;
        ZSTD_inBuffer in = {chunk, (size_t)n, 0};
        bool full = true; /* there may be more to come out of what went in */
        while (in.pos < in.size || full) {
            char *room = buffer_reserve(text, CHUNK_BYTES);
            if (!room || text->len > FRAME_BYTES_MAX)
                return 0;
            ZSTD_outBuffer out = {room, CHUNK_BYTES, 0};
            size_t left = ZSTD_decompressStream(zstd, &out, &in);
            if (ZSTD_isError(left))
                return 0;
            text->len += out.pos;
            full = out.pos == out.size;
            if (left == 0) {
                *offset = at + (off_t)in.pos;
                return 1;
            }
        }
        at += n;
    }
}

/* The next place behind `from` where a frame may begin; -1: none. */
static off_t next_frame(int fd, off_t from, char *chunk)
{
    static const unsigned char magic[] = {0x28, 0xB5, 0x2F, 0xFD};
    for (ssize_t n; (n = pread(fd, chunk, CHUNK_BYTES, from)) >= (ssize_t)sizeof magic;) {
        const char *found = memmem(chunk, (size_t)n, magic, sizeof magic);
        if (found)
            return from + (found - chunk);
        from += n - (ssize_t)sizeof magic + 1;
    }
    return -1;
}

static void look_at_file(struct search *s, const char *name)
{
    struct buffer path = {0}, text = {0};
    char *chunk = malloc(CHUNK_BYTES);
    ZSTD_DCtx *zstd = ZSTD_createDCtx();
    off_t offset = 0;
    bool damaged = false;
    int read = -1;
    buffer_format(&path, "%s/%s", s->folder, name);
    int fd = path.failed ? -1 : open(buffer_cstring(&path), O_RDONLY | O_CLOEXEC);
    if (!chunk || !zstd || fd < 0)
        goto done;
    for (char one; (read = (int)pread(fd, &one, 1, offset)) > 0;) {
        read = frame_read(fd, &offset, zstd, chunk, &text);
        if (read < 0)
            break;
        if (read == 1) {
            look_at_frame(s, &text);
            continue;
        }
        damaged = true;
        offset = next_frame(fd, offset + 1, chunk);
        if (offset < 0) {
            read = 0;
            break;
        }
    }
done:
    s->unread += read < 0;
    s->damaged += damaged;
    if (fd >= 0)
        close(fd);
    ZSTD_freeDCtx(zstd);
    free(chunk);
    buffer_fini(&path);
    buffer_fini(&text);
}

static int is_archive(const struct dirent *entry)
{
    static const char end[] = ".jsonl.zst";
    size_t len = strlen(entry->d_name);
    return strncmp(entry->d_name, "receipts-", 9) == 0 && len > sizeof end &&
           strcmp(entry->d_name + len - (sizeof end - 1), end) == 0;
}

enum status archive_find(const char *folder, struct slice tenant, struct slice call_id, int64_t ended_ms,
                         struct buffer *line, struct buffer *why)
{
    struct search s = {.folder = folder, .tenant = tenant, .call_id = call_id, .line = line};
    struct dirent **names = NULL;
    char day[32] = "";
    int count = scandir(folder, &names, is_archive, alphasort);
    if (count < 0) {
        buffer_format(why, "the archive %s cannot be read: %s", folder, strerror(errno));
        return STATUS_IO;
    }
    buffer_text(&s.needle, "\"call_id\":\"");
    buffer_slice(&s.needle, call_id);
    buffer_byte(&s.needle, '"');
    if (ended_ms > 0) {
        struct civil date;
        civil_from_ms(ended_ms / DAY_MS * DAY_MS, &date);
        snprintf(day, sizeof day, "receipts-%04d-%02d-%02d.", date.year, date.month, date.day);
    }
    for (int pass = *day ? 0 : 1; !s.needle.failed && pass < 2 && !*s.at; pass++)
        for (int i = 0; i < count; i++) {
            bool same = *day && strncmp(names[i]->d_name, day, strlen(day)) == 0;
            if (same == (pass == 0))
                look_at_file(&s, names[i]->d_name);
        }
    for (int i = 0; i < count; i++)
        free(names[i]);
    free((void *)names);
    enum status status = s.needle.failed || line->failed ? STATUS_NO_MEMORY
                         : *s.at                         ? STATUS_OK
                                                         : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND && (s.unread || s.damaged))
        buffer_format(why, "%zu files of the archive cannot be read, %zu have a damaged part", s.unread,
                      s.damaged);
    buffer_fini(&s.needle);
    return status;
}
