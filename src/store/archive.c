/* SPDX-License-Identifier: MIT
 *
 * Writing the archive; reading is in archive_read.c. A file is opened for each frame and closed again: that is once in a
 * step of purging, and a folder that was moved away or a disk that was mounted over it is seen at once.
 */
#include "store/archive.h"

#include "base/civil.h"
#include "base/json_text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define DAY_MS          86400000
#define NAME_BYTES      200
#define ZSTD_LEVEL      3
#define ROW_BYTES_SPARE 4096 /* of a line, beside its body and headers */

struct archive {
    char *folder, *owner;
    char name[NAME_BYTES]; /* of the owner, as it stands in file names */
    pthread_mutex_t lock;
    unsigned
        turn; /* raised when a file may have a torn end that could not be cut off: then another one is begun */
    struct archive_state state;
};

/* ---- opening ---- */

static const char *remedy(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return "make the folder, or mount it";
    case EACCES:
    case EPERM:
    case EROFS:
        return "let the gateway's user write there";
    case ENOSPC:
    case EDQUOT:
        return "free some space there";
    default:
        return "look at the disk";
    }
}

enum status archive_open(struct archive **out, const char *folder, const char *owner, struct buffer *error)
{
    struct stat facts;
    int code = 0;
    if (stat(folder, &facts) != 0)
        code = errno;
    else if (!S_ISDIR(facts.st_mode))
        code = ENOTDIR;
    else if (access(folder, W_OK | X_OK) != 0)
        code = errno;
    if (code) {
        buffer_format(error, "archive %s: %s: %s.", folder, strerror(code), remedy(code));
        return STATUS_IO;
    }
    struct archive *a = calloc(1, sizeof *a);
    if (!a)
        return STATUS_NO_MEMORY;
    pthread_mutex_init(&a->lock, NULL);
    a->folder = strdup(folder);
    a->owner = strdup(owner ? owner : "");
    if (!a->folder || !a->owner) {
        archive_close(a);
        return STATUS_NO_MEMORY;
    }
    snprintf(a->name, sizeof a->name, "%s", *a->owner ? a->owner : "samekey");
    for (char *p = a->name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '.' && *p != '_')
            *p = '-';
    *out = a;
    return STATUS_OK;
}

void archive_close(struct archive *a)
{
    if (!a)
        return;
    pthread_mutex_destroy(&a->lock);
    free(a->folder);
    free(a->owner);
    free(a);
}

void archive_state(struct archive *a, struct archive_state *out)
{
    pthread_mutex_lock(&a->lock);
    *out = a->state;
    pthread_mutex_unlock(&a->lock);
}

/* ---- lines ---- */

static void hex(struct buffer *out, const char *name, const unsigned char *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    buffer_format(out, "\"%s\":\"", name);
    for (size_t i = 0; i < len; i++) {
        buffer_byte(out, digits[bytes[i] >> 4]);
        buffer_byte(out, digits[bytes[i] & 15]);
    }
    buffer_text(out, "\",");
}

static void text(struct buffer *out, const char *name, struct slice value)
{
    buffer_format(out, "\"%s\":", name);
    json_text(out, value);
    buffer_byte(out, ',');
}

/* The document begins with `{`: the archive's own members come before its first. */
static void line_write(struct buffer *out, const struct archive *a, const struct rows *rows, int64_t now_ms)
{
    const struct call_row *row = &rows->call;
    struct rows told = *rows;
    if (row->has_key) /* who ended with the key's effect holds it for ever */
        told.holder = *row;
    buffer_text(out, "{\"archived_at\":\"");
    civil_print_rfc3339(now_ms, out);
    buffer_text(out, "\",");
    text(out, "archived_by", slice_text(a->owner));
    text(out, "tenant", row->tenant);
    text(out, "scope", row->scope);
    hex(out, "call_digest", row->call_digest.bytes, sizeof row->call_digest.bytes);
    if (row->has_key)
        hex(out, "operation_digest", row->operation_digest.bytes, sizeof row->operation_digest.bytes);
    if (row->has_fingerprint)
        hex(out, "fingerprint", row->fingerprint.bytes, sizeof row->fingerprint.bytes);
    if (row->has_credential)
        hex(out, "credential_digest", row->credential.bytes, sizeof row->credential.bytes);
    size_t at = out->len;
    receipt_document(out, &told, row->call_id);
    if (out->failed)
        return;
    memmove(out->data + at, out->data + at + 1, out->len - at - 1);
    out->len--;
}

bool archive_batch_add(struct archive_batch *b, struct archive *a, const struct rows *rows, int64_t now_ms)
{
    const struct call_row *row = &rows->call;
    int64_t day = (row->ended_ms ? row->ended_ms : row->updated_ms) / DAY_MS;
    size_t at = 0, bytes = row->result_body.len + row->result_headers.len + ROW_BYTES_SPARE;
    if (b->rows && (b->rows >= ARCHIVE_STEP_ROWS || b->bytes + bytes > ARCHIVE_STEP_BYTES))
        return false;
    while (at < b->day_count && b->days[at].day != day)
        at++;
    if (at == ARCHIVE_DAYS)
        return false;
    struct buffer *lines = &b->days[at].lines;
    size_t before = lines->len;
    line_write(lines, a, rows, now_ms);
    if (lines->failed) { /* what is there so far still stands */
        lines->len = before;
        lines->failed = false;
        return false;
    }
    if (at == b->day_count) {
        b->days[at].day = day;
        b->day_count++;
    }
    b->rows++;
    b->bytes += bytes;
    return true;
}

void archive_batch_fini(struct archive_batch *b)
{
    for (size_t i = 0; i < ARCHIVE_DAYS; i++)
        buffer_fini(&b->days[i].lines);
    memset(b, 0, sizeof *b);
}

/* ---- writing ---- */

static int sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return code;
}

/* Appends a frame to the day's file and syncs it: 0, or the system's error. Under the lock. */
static int append(struct archive *a, int64_t day, const char *data, size_t len)
{
    struct civil date;
    struct buffer path = {0};
    struct stat facts;
    int code = 0, fd = -1;
    civil_from_ms(day * DAY_MS, &date);
    buffer_format(&path, "%s/receipts-%04d-%02d-%02d.%s", a->folder, date.year, date.month, date.day,
                  a->name);
    if (a->turn)
        buffer_format(&path, "-%u", a->turn);
    buffer_text(&path, ".jsonl.zst");
    if (path.failed) {
        code = ENOMEM;
        goto done;
    }
    fd = open(buffer_cstring(&path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0 || fstat(fd, &facts) != 0) {
        code = errno;
        goto done;
    }
    for (size_t at = 0; !code && at < len;) {
        ssize_t n = write(fd, data + at, len - at);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            code = n == 0 ? EIO : errno;
    }
    bool synced = !code;
    if (!code && fsync(fd) != 0)
        code = errno;
    if (code) {
        /* After a failed fsync nobody knows what of the file is on disk: it is left alone. */
        if (ftruncate(fd, facts.st_size) != 0 || synced)
            a->turn++;
    } else if (facts.st_size == 0) {
        code = sync_folder(a->folder);
    }
done:
    if (fd >= 0 && close(fd) != 0 && !code)
        code = errno;
    buffer_fini(&path);
    return code;
}

static int write_day(struct archive *a, int64_t day, const struct buffer *lines)
{
    size_t room = ZSTD_compressBound(lines->len);
    char *frame = malloc(room);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    int code = ENOMEM;
    if (frame && zstd) {
        ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
        ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
        size_t len = ZSTD_compress2(zstd, frame, room, lines->data, lines->len);
        if (!ZSTD_isError(len)) {
            pthread_mutex_lock(&a->lock);
            code = append(a, day, frame, len);
            pthread_mutex_unlock(&a->lock);
        }
    }
    ZSTD_freeCCtx(zstd);
    free(frame);
    return code;
}

enum status archive_batch_write(struct archive_batch *b, struct archive *a)
{
    int code = 0;
    for (size_t i = 0; !code && i < b->day_count; i++)
        if (b->days[i].lines.len)
            code = write_day(a, b->days[i].day, &b->days[i].lines);
    pthread_mutex_lock(&a->lock);
    a->state.fails = code != 0;
    if (code) {
        a->state.failures++;
        snprintf(a->state.why, sizeof a->state.why, "%.160s: %.60s: %s", a->folder, strerror(code),
                 remedy(code));
    } else {
        a->state.lines += (int64_t)b->rows;
    }
    pthread_mutex_unlock(&a->lock);
    return code ? STATUS_IO : STATUS_OK;
}
