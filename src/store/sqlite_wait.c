/* SPDX-License-Identifier: MIT */
#include "store/sqlite_wait.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_NAME "pread64"

static bool installed;
static atomic_bool cannot;
static _Thread_local void (*tell)(void *context);
static _Thread_local void *told;
static _Thread_local unsigned left; /* reads that may be tried; behind the last, all are refused */
static _Thread_local bool refuses, refused;

/* Straight to the system: a reader's thread is never cancelled, and the library would prepare for it each time. */
static ssize_t read_now(int file, void *to, size_t len, off64_t at)
{
    struct iovec place = {.iov_base = to, .iov_len = len};
    ssize_t got = syscall(SYS_preadv2, file, &place, 1L, (long)at, (long)((uint64_t)at >> 32), RWF_NOWAIT);
    if (got < 0 && (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS || errno == EPERM))
        atomic_store(&cannot, true);
    return got;
}

/* What is short without waiting is the end of the file, or the page cache's: the second read knows which. */
static ssize_t read_at(int file, void *to, size_t len, off64_t at)
{
    if ((tell && !atomic_load_explicit(&cannot, memory_order_relaxed)) || refuses) {
        if ((!refuses || left-- > 0) && read_now(file, to, len, at) == (ssize_t)len)
            return (ssize_t)len;
        if (refuses) {
            refused = true;
            left = 0;
            errno = EAGAIN;
            return -1;
        }
        tell(told);
    }
    return pread64(file, to, len, at);
}

static void install(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    if (!vfs || vfs->iVersion < 3 || !vfs->xGetSystemCall(vfs, READ_NAME))
        return;
    installed = vfs->xSetSystemCall(vfs, READ_NAME, (sqlite3_syscall_ptr)read_at) == SQLITE_OK;
}

bool sqlite_wait_can(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    return installed && !atomic_load_explicit(&cannot, memory_order_relaxed);
}

void sqlite_wait_tell(void (*waits)(void *context), void *context)
{
    tell = waits;
    told = context;
}

bool sqlite_wait_refuse(unsigned reads)
{
    bool was = refused;
    left = reads;
    refuses = reads > 0;
    refused = false;
    return was;
}
