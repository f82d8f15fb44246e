/* SPDX-License-Identifier: MIT */
#include "store/sqlite_log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATHERED_BYTES_MAX                                                                                   \
    0x1ffff /* more than this SQLite's VFS for Unix does not write at a time (seekAndWriteFd) */
#define FRAME_HEAD_BYTES 24
#define SUFFIX           "+log"

struct log_vfs {
    sqlite3_vfs vfs;
    sqlite3_vfs *base;
    char name[64];
};

struct log_file {
    sqlite3_file file;
    unsigned char *gathered;
    int len;           /* bytes gathered */
    sqlite3_int64 at;  /* where they begin */
    sqlite3_int64 end; /* behind the last byte written or gathered */
    bool ends_commit;  /* the frame whose head came last */
};

/* The base's file lies behind ours. */
static sqlite3_file *base_file(sqlite3_file *file)
{
    return (sqlite3_file *)((struct log_file *)file + 1);
}

static int hand_over(struct log_file *f)
{
    int len = f->len;
    f->len = 0; /* on an error too: SQLite takes the commit back, and writes its frames anew */
    sqlite3_file *base = base_file(&f->file);
    return len ? base->pMethods->xWrite(base, f->gathered, len, f->at) : SQLITE_OK;
}

static int log_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 at)
{
    struct log_file *f = (struct log_file *)file;
    sqlite3_file *base = base_file(file);
    const unsigned char *bytes = data;
    bool head = len == FRAME_HEAD_BYTES, page = len > FRAME_HEAD_BYTES && at == f->end && at > 0;
    int rc = SQLITE_OK;
    if (head)
        f->ends_commit = bytes[4] || bytes[5] || bytes[6] || bytes[7];
    if (at != f->end || len > GATHERED_BYTES_MAX - f->len)
        rc = hand_over(f);
    if (rc != SQLITE_OK)
        return rc;
    if (at != f->end || len > GATHERED_BYTES_MAX) {
        f->end = at + len;
        return base->pMethods->xWrite(base, data, len, at);
    }
    if (f->len == 0)
        f->at = at;
    memcpy(f->gathered + f->len, data, (size_t)len);
    f->len += len;
    f->end = at + len;
    return page && f->ends_commit ? hand_over(f) : SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *data, int len, sqlite3_int64 at)
{
    int rc = hand_over((struct log_file *)file);
    return rc == SQLITE_OK ? base_file(file)->pMethods->xRead(base_file(file), data, len, at) : rc;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = hand_over((struct log_file *)file);
    return rc == SQLITE_OK ? base_file(file)->pMethods->xTruncate(base_file(file), size) : rc;
}

static int log_sync(sqlite3_file *file, int flags)
{
    int rc = hand_over((struct log_file *)file);
    return rc == SQLITE_OK ? base_file(file)->pMethods->xSync(base_file(file), flags) : rc;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int rc = hand_over((struct log_file *)file);
    return rc == SQLITE_OK ? base_file(file)->pMethods->xFileSize(base_file(file), size) : rc;
}

static int log_close(sqlite3_file *file)
{
    struct log_file *f = (struct log_file *)file;
    int rc = hand_over(f), closed = base_file(file)->pMethods->xClose(base_file(file));
    free(f->gathered);
    return rc == SQLITE_OK ? closed : rc;
}

static int log_lock(sqlite3_file *file, int level)
{
    return base_file(file)->pMethods->xLock(base_file(file), level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    return base_file(file)->pMethods->xUnlock(base_file(file), level);
}

static int log_check_lock(sqlite3_file *file, int *held)
{
    return base_file(file)->pMethods->xCheckReservedLock(base_file(file), held);
}

static int log_control(sqlite3_file *file, int what, void *value)
{
    return base_file(file)->pMethods->xFileControl(base_file(file), what, value);
}

static int log_sector(sqlite3_file *file)
{
    return base_file(file)->pMethods->xSectorSize(base_file(file));
}

static int log_device(sqlite3_file *file)
{
    return base_file(file)->pMethods->xDeviceCharacteristics(base_file(file));
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_check_lock,
    .xFileControl = log_control,
    .xSectorSize = log_sector,
    .xDeviceCharacteristics = log_device,
};

int sqlite_log_sync(sqlite3_file *log)
{
    sqlite3_file *base = log->pMethods == &log_methods ? base_file(log) : log;
    return base->pMethods->xSync(base, SQLITE_SYNC_NORMAL);
}

int sqlite_log_renew(sqlite3_file *log)
{
    sqlite3_int64 size = 0;
    bool ours = log->pMethods == &log_methods;
    sqlite3_file *base = ours ? base_file(log) : log;
    int rc = ours ? hand_over((struct log_file *)log) : SQLITE_OK;
    unsigned char *bytes = malloc(GATHERED_BYTES_MAX);
    if (!bytes)
        return SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = base->pMethods->xFileSize(base, &size);
    for (sqlite3_int64 at = 0; rc == SQLITE_OK && at < size; at += GATHERED_BYTES_MAX) {
        int len = size - at < GATHERED_BYTES_MAX ? (int)(size - at) : GATHERED_BYTES_MAX;
        rc = base->pMethods->xRead(base, bytes, len, at);
        if (rc == SQLITE_OK)
            rc = base->pMethods->xWrite(base, bytes, len, at);
    }
    free(bytes);
    return rc == SQLITE_OK && size ? base->pMethods->xSync(base, SQLITE_SYNC_NORMAL) : rc;
}

/* ---- the VFS ---- */

static sqlite3_vfs *base_of(sqlite3_vfs *vfs)
{
    return ((struct log_vfs *)vfs)->base;
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    sqlite3_vfs *base = base_of(vfs);
    if (!(flags & SQLITE_OPEN_WAL))
        return base->xOpen(base, name, file, flags, out_flags);
    struct log_file *f = (struct log_file *)file;
    memset(f, 0, sizeof *f);
    f->gathered = malloc(GATHERED_BYTES_MAX);
    if (!f->gathered)
        return SQLITE_NOMEM;
    int rc = base->xOpen(base, name, base_file(file), flags, out_flags);
    if (rc == SQLITE_OK)
        f->file.pMethods = &log_methods; /* without methods SQLite does not close it */
    else
        free(f->gathered);
    return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    return base_of(vfs)->xDelete(base_of(vfs), name, sync);
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    return base_of(vfs)->xAccess(base_of(vfs), name, flags, result);
}

static int vfs_full(sqlite3_vfs *vfs, const char *name, int len, char *out)
{
    return base_of(vfs)->xFullPathname(base_of(vfs), name, len, out);
}

static int vfs_randomness(sqlite3_vfs *vfs, int len, char *out)
{
    return base_of(vfs)->xRandomness(base_of(vfs), len, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int micros)
{
    return base_of(vfs)->xSleep(base_of(vfs), micros);
}

static int vfs_time(sqlite3_vfs *vfs, double *days)
{
    return base_of(vfs)->xCurrentTime(base_of(vfs), days);
}

static int vfs_last_error(sqlite3_vfs *vfs, int len, char *out)
{
    return base_of(vfs)->xGetLastError(base_of(vfs), len, out);
}

static const char *registered(sqlite3_vfs *base)
{
    struct log_vfs *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    snprintf(v->name, sizeof v->name, "%s" SUFFIX, base->zName);
    v->base = base;
    v->vfs = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = (int)sizeof(struct log_file) + base->szOsFile,
        .mxPathname = base->mxPathname,
        .zName = v->name,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
    };
    if (sqlite3_vfs_register(&v->vfs, 0) == SQLITE_OK)
        return v->name;
    free(v);
    return NULL;
}

const char *sqlite_log_vfs(const char *base_name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    sqlite3_vfs *base = sqlite3_vfs_find(base_name);
    char name[64];
    if (!base || snprintf(name, sizeof name, "%s" SUFFIX, base->zName) >= (int)sizeof name)
        return NULL;
    pthread_mutex_lock(&lock);
    sqlite3_vfs *made = sqlite3_vfs_find(name);
    const char *out = made ? made->zName : registered(base);
    pthread_mutex_unlock(&lock);
    return out;
}
