/* SPDX-License-Identifier: MIT
 *
 * Whether the files this process writes are still the ones at their path. A file that was removed or replaced takes
 * every write and keeps none of them for the next start: the gateway would claim, send and answer for hours, and all of
 * it would run again. So the writer looks, at most once in SQLITE_LOOK_MS, and writes nothing while they are gone.
 *
 * Always true:
 *  (1) The database's mark is taken once, when the store is opened; no other file is ever taken for it. Its inode cannot
 *      be given to another file, since a descriptor keeps it.
 *  (2) The log's mark is that of the writer's connection, and ends with it: the last connection to close removes the log.
 *      Where the log was gone by then, the mark stays, and so does the refusal.
 */
#include "store/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static bool mark_take(struct file_mark *mark, const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return false;
    *mark = (struct file_mark){true, about.st_dev, about.st_ino};
    return true;
}

/* A file that cannot be looked at has not been found. */
static bool mark_stands(const struct file_mark *mark, const char *path)
{
    struct file_mark now;
    return !mark->set || (mark_take(&now, path) && now.device == mark->device && now.inode == mark->inode);
}

void file_begin(struct sqlite_store *s)
{
    if (s->vfs || s->read_only)
        return;
    /* Not for reading: a descriptor that can read drops SQLite's locks when it is closed (POSIX record locks). */
    s->held = open(s->path, O_PATH | O_CLOEXEC);
    mark_take(&s->file, s->path);
}

void file_end(struct sqlite_store *s)
{
    if (s->held >= 0)
        close(s->held);
    s->held = -1;
}

void file_opened(struct sqlite_store *s)
{
    static const char words[] = "The file beside this was a receipt store.\n";
    if (s->lock >= 0 && pwrite(s->lock, words, sizeof words - 1, SQLITE_LOCK_PID_BYTES) < 0)
        (void)0; /* it is only for file_check_new() */
}

void file_log_opened(struct sqlite_store *s)
{
    if (s->file.set && !s->log.set)
        mark_take(&s->log, s->log_path);
}

void file_log_closes(struct sqlite_store *s)
{
    if (!file_gone(s, true))
        s->log.set = false;
}

bool file_gone(struct sqlite_store *s, bool now)
{
    struct timespec time;
    if (!s->file.set)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t ms = (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
    if (now || ms - s->looked_ms >= SQLITE_LOOK_MS) {
        s->looked_ms = ms;
        atomic_store(&s->gone, !mark_stands(&s->file, s->path) || !mark_stands(&s->log, s->log_path));
    }
    return atomic_load(&s->gone);
}

enum status file_check_new(const struct sqlite_store *s, struct buffer *error)
{
    struct stat about, beside;
    if (s->vfs || s->read_only)
        return STATUS_OK;
    bool missing = stat(s->path, &about) != 0;
    if ((missing && errno != ENOENT) || (!missing && (!S_ISREG(about.st_mode) || about.st_size > 0)))
        return STATUS_OK;
    char *lock = NULL;
    if (asprintf(&lock, "%s.lock", s->path) < 0)
        return STATUS_NO_MEMORY;
    const char *left = stat(s->log_path, &beside) == 0 && beside.st_size > 0 ? s->log_path
                       : !missing && stat(lock, &beside) == 0 && beside.st_size > SQLITE_LOCK_PID_BYTES
                           ? lock
                           : NULL;
    if (left)
        buffer_format(
            error,
            "%s is %s, and %s shows that it was not: it was lost, or a copy failed. Put the file back, or "
            "restore a backup and start with --restored; to begin without what was known, remove both.",
            s->path, missing ? "missing" : "empty", left);
    free(lock);
    return left ? STATUS_IO : STATUS_OK;
}
