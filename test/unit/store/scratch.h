/* SPDX-License-Identifier: MIT
 *
 * A folder of this test program's own for its files, removed at the end.
 */
#ifndef SAMEKEY_TEST_SCRATCH_H
#define SAMEKEY_TEST_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[96];

static inline void scratch_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%.60s/samekey-store-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(scratch)) {
        perror(scratch);
        exit(2);
    }
}

/* "FOLDER/name"; borrowed until the fourth call from now. */
static inline const char *scratch_path(const char *name)
{
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

/* Removes a database with its companions. */
static inline void scratch_remove(const char *name)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal", ".lock"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char whole[64];
        snprintf(whole, sizeof whole, "%.40s%s", name, ends[i]);
        unlink(scratch_path(whole));
    }
}

static inline void scratch_clean(void)
{
    if (rmdir(scratch) != 0)
        perror(scratch);
}

#endif
