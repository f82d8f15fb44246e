/* SPDX-License-Identifier: MIT
 *
 * When a commit is on disk. SQLite writes a commit to the log and does not sync it (synchronous = NORMAL); the store
 * syncs the log itself, and only then is anybody told. So the next batch can run while the last one is synced: measured,
 * the writer spends as long in a sync as on the rows of a batch.
 *
 *   store_batch_begin() ──▶ in the log, readers see it ──▶ sync: here, or by the thread ──▶ store_batch_end(): answered
 *
 * Always true:
 *  (1) Nobody is told of a write before a sync of the log that began after its COMMIT came back without an error.
 *  (2) Nor of what a reader saw of it: a reader that finds a row as new as a commit that is not synced waits for it.
 *  (3) What is not synced is lost from its end only: every frame of the log carries the sum of all before it. So a batch
 *      that was answered never rests on one that can be lost.
 *  (4) After a failed sync the system may take the pages for written although they are not, and a later sync then says
 *      nothing (https://lwn.net/Articles/752063/). So what is in the log is in doubt until all of it was written again and moved
 *      into the file: meanwhile readers are not told of it, nothing is written behind it, and nobody else moves it.
 *  (5) A checkpoint syncs the log before it writes the file, whatever the writer has done.
 *
 * On a simulated disk there is no thread, and every run is the same.
 */
#include "store/sqlite.h"
#include "store/sqlite_log.h"

#include <assert.h>

enum { RESTING, ASKED, DONE };

static sqlite3_file *log_of(struct sqlite_store *s)
{
    sqlite3_file *log = NULL;
    if (!s->writer.db)
        return NULL;
    int rc = sqlite3_file_control(s->writer.db, NULL, SQLITE_FCNTL_JOURNAL_POINTER, &log);
    return rc == SQLITE_OK && log && log->pMethods ? log : NULL;
}

static int sync_log(sqlite3_file *log)
{
    return log ? sqlite_log_sync(log) : SQLITE_IOERR_FSYNC;
}

static void *sync_loop(void *argument)
{
    struct sqlite_store *s = argument;
    struct syncer *y = &s->syncer;
    pthread_mutex_lock(&y->lock);
    for (;;) {
        while (!y->stop && y->state != ASKED)
            pthread_cond_wait(&y->asked, &y->lock);
        if (y->stop)
            break;
        sqlite3_file *log = y->log;
        pthread_mutex_unlock(&y->lock);
        int rc = sync_log(log);
        pthread_mutex_lock(&y->lock);
        y->rc = rc;
        y->state = DONE;
        pthread_cond_signal(&y->done);
    }
    pthread_mutex_unlock(&y->lock);
    return NULL;
}

void sync_begin(struct sqlite_store *s)
{
    struct syncer *y = &s->syncer;
    y->started = !s->vfs && !s->read_only && pthread_create(&y->thread, NULL, sync_loop, s) == 0;
}

void sync_end(struct sqlite_store *s)
{
    struct syncer *y = &s->syncer;
    if (!y->started)
        return;
    pthread_mutex_lock(&y->lock);
    assert(y->state != ASKED);
    y->stop = true;
    pthread_cond_signal(&y->asked);
    pthread_mutex_unlock(&y->lock);
    pthread_join(y->thread, NULL);
    y->started = false;
}

/* ---- what is not on disk yet ---- */

void sync_owed(struct sqlite_store *s)
{
    struct syncer *y = &s->syncer;
    pthread_mutex_lock(&y->lock);
    if (y->paid == y->owed || s->now < y->owed_since_ms)
        y->owed_since_ms = s->now;
    y->owed++;
    pthread_mutex_unlock(&y->lock);
}

void sync_paid(struct sqlite_store *s, uint64_t count, bool failed)
{
    struct syncer *y = &s->syncer;
    pthread_mutex_lock(&y->lock);
    y->paid += count;
    y->failures += failed;
    assert(y->paid <= y->owed);
    pthread_cond_broadcast(&y->readers);
    pthread_mutex_unlock(&y->lock);
}

bool sync_seen(struct sqlite_store *s, int64_t newest_ms, bool absent, bool patient)
{
    struct syncer *y = &s->syncer;
    pthread_mutex_lock(&y->lock);
    uint64_t seen = y->owed, failures = y->failures;
    bool owed = y->paid < seen && newest_ms >= y->owed_since_ms;
    while (owed && patient && y->paid < seen && y->failures == failures)
        pthread_cond_wait(&y->readers, &y->lock);
    bool good = (!owed || patient) && y->failures == failures &&
                !(y->doubt && (newest_ms >= y->doubt_since_ms || absent));
    pthread_mutex_unlock(&y->lock);
    return good;
}

/* All of the log is on disk then, whatever a sync has left out. */
int sync_renew_log(struct sqlite_store *s)
{
    int rc = connection_run(&s->writer, SQL_BEGIN_WRITE, 0, NULL);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_file *log = log_of(s);
    rc = log ? sqlite_log_renew(log) : SQLITE_OK; /* none: nothing was ever written */
    int ended = sqlite3_exec(s->writer.db, "ROLLBACK", NULL, NULL, NULL);
    return rc == SQLITE_OK ? ended : rc;
}

/* A file that is written over out of a log that is not on disk is neither old nor new after a power cut: so the log is
 * written again before. Not FULL or RESTART, after which a reader can still hold the old log for the next commit: behind
 * frames that are not on disk it would be lost with them. */
int sync_move_log(struct sqlite_store *s)
{
    int log = 0, moved = -1;
    int rc = sync_renew_log(s);
    if (rc != SQLITE_OK)
        return rc;
    rc = sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, &log, &moved);
    return rc == SQLITE_OK && log != moved ? SQLITE_BUSY : rc;
}

bool sync_doubted(struct sqlite_store *s)
{
    struct syncer *y = &s->syncer;
    pthread_mutex_lock(&y->lock);
    bool doubt = y->doubt;
    pthread_mutex_unlock(&y->lock);
    return doubt;
}

void sync_doubt(struct sqlite_store *s, int64_t since_ms)
{
    struct syncer *y = &s->syncer;
    pthread_mutex_lock(&y->lock);
    if (!y->doubt || since_ms < y->doubt_since_ms)
        y->doubt_since_ms = since_ms;
    y->doubt = true;
    pthread_mutex_unlock(&y->lock);
}

bool sync_sure(struct sqlite_store *s)
{
    struct syncer *y = &s->syncer;
    if (!y->doubt) /* nobody else writes it */
        return true;
    if (atomic_load(&s->gone)) /* nothing is written into a file that is not at its path */
        return false;
    int rc = s->loaded ? SQLITE_OK : sqlite_load(s);
    if (rc == SQLITE_OK)
        rc = sync_move_log(s);
    /* What a failed COMMIT left behind the end of the log is gone after this one, and not found by a start. */
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_PIN, 0, NULL);
    if (rc == SQLITE_OK)
        rc = sync_now(s);
    if (rc != SQLITE_OK) {
        sqlite_lose(s);
        return false;
    }
    pthread_mutex_lock(&y->lock);
    y->doubt = false;
    pthread_mutex_unlock(&y->lock);
    return true;
}

/* ---- the sync ---- */

int sync_now(struct sqlite_store *s)
{
    return sync_log(log_of(s));
}

bool sync_ask(struct sqlite_store *s)
{
    struct syncer *y = &s->syncer;
    sqlite3_file *log = y->started ? log_of(s) : NULL;
    if (!log)
        return false;
    pthread_mutex_lock(&y->lock);
    assert(y->state == RESTING);
    y->log = log;
    y->state = ASKED;
    pthread_cond_signal(&y->asked);
    pthread_mutex_unlock(&y->lock);
    return true;
}

int sync_wait(struct sqlite_store *s)
{
    struct syncer *y = &s->syncer;
    pthread_mutex_lock(&y->lock);
    while (y->state == ASKED)
        pthread_cond_wait(&y->done, &y->lock);
    y->state = RESTING;
    int rc = y->rc;
    pthread_mutex_unlock(&y->lock);
    return rc;
}
