/* SPDX-License-Identifier: MIT
 *
 * Checkpoints off the commit path. Measured, an automatic checkpoint inside a commit turns 2 ms into 13 ms at the 99th
 * percentile, and a long log more. So a thread of its own moves pages from the log into the file while the writer goes
 * on writing to the log; it repeats until little is left, and the writer moves that last bit between two batches, since
 * only a log that is moved whole begins anew.
 *
 *   RESTING --(the log is long)--> MOVING --(little left)--> DONE --(writer moves the rest)--> RESTING
 *
 * On a simulated disk there is no thread: the writer moves all, and every run is the same.
 */
#include "store/sqlite.h"

#include <time.h>

enum { RESTING, MOVING, DONE };

static void *move_pages(void *argument)
{
    struct sqlite_store *s = argument;
    struct checkpointer *k = &s->checkpointer;
    struct connection connection = {0};
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (!k->stop && k->state != MOVING)
            pthread_cond_wait(&k->changed, &k->lock);
        if (k->stop)
            break;
        pthread_mutex_unlock(&k->lock);
        int rc = connection.db ? SQLITE_OK : connection_open(&connection, s, CONNECTION_CHECKPOINT);
        for (int pass = 0, log = SQLITE_WAL_REST_PAGES + 1, moved = 0;
             rc == SQLITE_OK && log - moved > SQLITE_WAL_REST_PAGES && pass < SQLITE_WAL_PASSES &&
             !sync_doubted(s);
             pass++)
            rc = sqlite3_wal_checkpoint_v2(connection.db, NULL, SQLITE_CHECKPOINT_PASSIVE, &log, &moved);
        if (rc != SQLITE_OK)
            connection_close(&connection); /* tried anew next time; the writer sees what fails for good */
        pthread_mutex_lock(&k->lock);
        k->state = DONE;
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    connection_close(&connection);
    return NULL;
}

/* A log ends when all of it is moved, which a reader that began before the last commit prevents; with several readers at a
 * time there nearly always is one. So for a long one they are held back; not for ever: one may have much to read. */
static bool hold_readers(struct sqlite_store *s)
{
    struct timespec until;
    if (s->wal_pages < SQLITE_WAL_PAGES_LONG)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SQLITE_WAL_HOLD_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_rwlock_clockwrlock(&s->checkpointer.readers, CLOCK_MONOTONIC, &until) == 0;
}

/* By the writer itself. What it could not move, the next one does. */
static void move_rest(struct sqlite_store *s)
{
    int log, moved;
    bool held = hold_readers(s);
    int rc = sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, &log, &moved);
    if (held)
        pthread_rwlock_unlock(&s->checkpointer.readers);
    if (rc == SQLITE_OK && moved >= 0)
        s->wal_moved = moved;
    /* It syncs the log too, and a failure is told once: not again to the sync of a batch that has begun. */
    if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY && s->begun_count)
        s->move_rc = rc;
}

void checkpoint_look(struct sqlite_store *s, bool idle)
{
    struct checkpointer *k = &s->checkpointer;
    int64_t pages = s->wal_pages - s->wal_moved;
    bool long_enough = pages >= (idle ? SQLITE_WAL_IDLE_PAGES : SQLITE_WAL_PAGES);
    /* A connection opened now could meet another file, and would begin another log. */
    if (!s->loaded || s->syncer.doubt || atomic_load(&s->gone) || (!long_enough && !k->asked))
        return;
    if (!k->started) {
        move_rest(s);
        return;
    }
    pthread_mutex_lock(&k->lock);
    /* A disk that cannot keep up slows the writer down here, before the log fills it. */
    while (k->state == MOVING && pages > SQLITE_WAL_PAGES_MAX)
        pthread_cond_wait(&k->changed, &k->lock);
    bool done = k->state == DONE;
    if (done) {
        k->state = RESTING;
        k->asked = false;
    } else if (k->state == RESTING && long_enough) {
        k->state = MOVING;
        k->asked = true;
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    if (done)
        move_rest(s);
}

void checkpoint_init(struct sqlite_store *s)
{
    pthread_rwlockattr_t kind;
    pthread_rwlockattr_init(&kind);
    pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&s->checkpointer.readers, &kind);
    pthread_rwlockattr_destroy(&kind);
}

void checkpoint_begin(struct sqlite_store *s)
{
    struct checkpointer *k = &s->checkpointer;
    k->started = !s->vfs && !s->read_only && pthread_create(&k->thread, NULL, move_pages, s) == 0;
}

void checkpoint_end(struct sqlite_store *s)
{
    struct checkpointer *k = &s->checkpointer;
    if (!k->started)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    pthread_join(k->thread, NULL);
    k->started = false;
}
