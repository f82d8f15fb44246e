/* SPDX-License-Identifier: MIT */
#include "store/sqlite_moved.h"

#include <pthread.h>
#include <stdint.h>

#define REGION_BYTES 32768 /* of the index, as SQLite maps it */
#define COUNT_AT     96    /* nBackfill */
#define KINDS_MAX    8 /* of files, by their methods: SQLite's VFS for Unix has one for each way of locking */

/* The methods of a kind of file, with another sync. */
struct kind {
    sqlite3_io_methods methods; /* the first: a file's pointer to it is one to this */
    const sqlite3_io_methods *base;
};

static int moved_sync(sqlite3_file *file, int flags)
{
    const sqlite3_io_methods *base = ((const struct kind *)(const void *)file->pMethods)->base;
    void volatile *index = NULL;
    int rc = base->xSync(file, flags);
    if (rc == SQLITE_OK || base->iVersion < 2)
        return rc;
    if (base->xShmMap(file, 0, REGION_BYTES, 0, &index) == SQLITE_OK && index)
        *(uint32_t volatile *)(void volatile *)((char volatile *)index + COUNT_AT) = 0;
    return rc;
}

int sqlite_moved_watch(sqlite3 *db)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kind kinds[KINDS_MAX];
    sqlite3_file *file = NULL;
    int rc = sqlite3_file_control(db, NULL, SQLITE_FCNTL_FILE_POINTER, &file);
    if (rc != SQLITE_OK)
        return rc;
    const sqlite3_io_methods *base = file->pMethods, *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct kind *k = kinds; k < kinds + KINDS_MAX && !found; k++) {
        if (!k->base) {
            k->methods = *base;
            k->methods.xSync = moved_sync;
            k->base = base;
        }
        if (k->base == base)
            found = &k->methods;
    }
    pthread_mutex_unlock(&lock);
    if (found)
        file->pMethods = found;
    return found ? SQLITE_OK : SQLITE_INTERNAL;
}
