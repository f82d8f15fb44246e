/* SPDX-License-Identifier: MIT */
#include "faulty_vfs.h"

#include "base/prng.h"
#include "sim/lost_pages.c"

#include <assert.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 256
#define FILES_MAX  16

/* One change of a file since its last sync, and what stood there before. */
struct undo {
    struct undo *older;
    sqlite3_int64 offset, size_before;
    size_t len;
    unsigned char before[];
};

/* A file by its path: several connections may have it open. */
struct disk_file {
    char path[PATH_BYTES];
    struct undo *undo; /* the newest first */
    struct lost_pages lost;
};

struct faulty_file {
    sqlite3_file base;
    struct disk_file *disk;
    sqlite3_file *real; /* behind this struct */
};

static struct {
    sqlite3_vfs vfs, *real;
    struct disk_file files[FILES_MAX];
    enum fault kind;
    int64_t left; /* events until one fails */
    bool forever, off;
    int64_t failures, cut_after;
} disk;

/* Before each change. */
static void change(void)
{
    if (disk.failures && disk.cut_after && --disk.cut_after == 0)
        disk.off = true;
}

static bool fails(enum fault kind)
{
    if (disk.off)
        return true;
    bool mine =
        disk.kind == kind || (disk.kind == FAULT_ANY && kind != FAULT_FULL && kind != FAULT_TORN_WRITE);
    if (!mine || disk.left == 0 || (--disk.left > 0))
        return false;
    if (disk.forever)
        disk.left = 1;
    disk.failures++;
    return true;
}

static struct faulty_file *of(sqlite3_file *file)
{
    return (struct faulty_file *)file;
}

static void forget(struct disk_file *file)
{
    struct undo *u;
    while ((u = file->undo) != NULL) {
        file->undo = u->older;
        free(u);
    }
}

static unsigned char *read_all(sqlite3_file *real, sqlite3_int64 size, sqlite3_int64 room)
{
    unsigned char *bytes = calloc(1, (size_t)room + 1);
    assert(bytes && size <= room);
    if (size)
        real->pMethods->xRead(real, bytes, (int)size, 0);
    return bytes;
}

static void fail_writes(struct faulty_file *f)
{
    sqlite3_int64 size = 0, room = 0;
    f->real->pMethods->xFileSize(f->real, &size);
    room = size;
    for (const struct undo *u = f->disk->undo; u; u = u->older)
        if (u->offset + (sqlite3_int64)u->len > room)
            room = u->offset + (sqlite3_int64)u->len;
    unsigned char *bytes = read_all(f->real, size, room), *safe = read_all(f->real, size, room);
    for (const struct undo *u = f->disk->undo; u; u = u->older)
        memcpy(safe + u->offset, u->before, u->len);
    lost_pages_failed(&f->disk->lost);
    for (sqlite3_int64 at = 0; at < size; at += LOST_PAGE_BYTES) {
        size_t len = (size_t)(size - at < LOST_PAGE_BYTES ? size - at : LOST_PAGE_BYTES);
        if (memcmp(safe + at, bytes + at, len) != 0)
            lost_pages_add(&f->disk->lost, at, safe + at, len);
    }
    free(bytes);
    free(safe);
    forget(f->disk);
}

static void remember(struct faulty_file *f, sqlite3_int64 offset, sqlite3_int64 len)
{
    if (!f->disk)
        return;
    struct undo *u = calloc(1, sizeof *u + (size_t)len);
    assert(u);
    u->offset = offset;
    u->len = (size_t)len;
    f->real->pMethods->xFileSize(f->real, &u->size_before);
    if (len)
        f->real->pMethods->xRead(f->real, u->before, (int)len, offset); /* a short read leaves zeros */
    u->older = f->disk->undo;
    f->disk->undo = u;
    lost_pages_write(&f->disk->lost, offset, (size_t)len);
}

static int do_close(sqlite3_file *file)
{
    return of(file)->real->pMethods->xClose(of(file)->real);
}

static int do_read(sqlite3_file *file, void *to, int len, sqlite3_int64 offset)
{
    return of(file)->real->pMethods->xRead(of(file)->real, to, len, offset);
}

static int do_write(sqlite3_file *file, const void *from, int len, sqlite3_int64 offset)
{
    struct faulty_file *f = of(file);
    change();
    if (fails(FAULT_FULL))
        return disk.off ? SQLITE_IOERR_WRITE : SQLITE_FULL;
    if (fails(FAULT_WRITE))
        return SQLITE_IOERR_WRITE;
    bool torn = fails(FAULT_TORN_WRITE);
    remember(f, offset, len);
    int rc = f->real->pMethods->xWrite(f->real, from, torn ? len / 2 : len, offset);
    return torn ? SQLITE_IOERR_WRITE : rc;
}

static int do_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct faulty_file *f = of(file);
    sqlite3_int64 old = 0;
    change();
    if (fails(FAULT_WRITE))
        return SQLITE_IOERR_TRUNCATE;
    f->real->pMethods->xFileSize(f->real, &old);
    remember(f, size, old > size ? old - size : 0);
    return f->real->pMethods->xTruncate(f->real, size);
}

static int do_sync(sqlite3_file *file, int flags)
{
    struct faulty_file *f = of(file);
    (void)flags; /* a sync costs nothing here: the power cut is ours, not the machine's */
    bool failed = fails(FAULT_SYNC);
    if (failed && f->disk && !disk.off)
        fail_writes(f);
    if (!failed && f->disk) { /* what was cut off is gone now */
        sqlite3_int64 size = 0;
        f->real->pMethods->xFileSize(f->real, &size);
        lost_pages_cut(&f->disk->lost, size);
        forget(f->disk);
        lost_pages_synced(&f->disk->lost);
    }
    return failed ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}

static int do_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return of(file)->real->pMethods->xFileSize(of(file)->real, size);
}

static int do_lock(sqlite3_file *file, int level)
{
    return of(file)->real->pMethods->xLock(of(file)->real, level);
}

static int do_unlock(sqlite3_file *file, int level)
{
    return of(file)->real->pMethods->xUnlock(of(file)->real, level);
}

static int do_reserved(sqlite3_file *file, int *result)
{
    return of(file)->real->pMethods->xCheckReservedLock(of(file)->real, result);
}

static int do_control(sqlite3_file *file, int what, void *argument)
{
    if (what == SQLITE_FCNTL_SIZE_HINT || what == SQLITE_FCNTL_CHUNK_SIZE)
        return SQLITE_OK; /* growth must be ours to take back */
    return of(file)->real->pMethods->xFileControl(of(file)->real, what, argument);
}

static int do_sector(sqlite3_file *file)
{
    return of(file)->real->pMethods->xSectorSize(of(file)->real);
}

static int do_traits(sqlite3_file *file)
{
    return of(file)->real->pMethods->xDeviceCharacteristics(of(file)->real);
}

static int do_shm_map(sqlite3_file *file, int part, int size, int extend, void volatile **to)
{
    return of(file)->real->pMethods->xShmMap(of(file)->real, part, size, extend, to);
}

static int do_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return of(file)->real->pMethods->xShmLock(of(file)->real, offset, n, flags);
}

static void do_shm_barrier(sqlite3_file *file)
{
    of(file)->real->pMethods->xShmBarrier(of(file)->real);
}

static int do_shm_unmap(sqlite3_file *file, int remove)
{
    return of(file)->real->pMethods->xShmUnmap(of(file)->real, remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = do_close,
    .xRead = do_read,
    .xWrite = do_write,
    .xTruncate = do_truncate,
    .xSync = do_sync,
    .xFileSize = do_size,
    .xLock = do_lock,
    .xUnlock = do_unlock,
    .xCheckReservedLock = do_reserved,
    .xFileControl = do_control,
    .xSectorSize = do_sector,
    .xDeviceCharacteristics = do_traits,
    .xShmMap = do_shm_map,
    .xShmLock = do_shm_lock,
    .xShmBarrier = do_shm_barrier,
    .xShmUnmap = do_shm_unmap,
};

static struct disk_file *file_of(const char *path)
{
    for (int i = 0; i < FILES_MAX; i++) {
        struct disk_file *file = &disk.files[i];
        if (!file->path[0])
            strncpy(file->path, path, PATH_BYTES - 1);
        if (strcmp(file->path, path) == 0)
            return file;
    }
    abort(); /* too many files for this disk */
}

static int do_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    struct faulty_file *f = of(file);
    (void)vfs;
    memset(f, 0, sizeof *f);
    if (fails(FAULT_OPEN))
        return SQLITE_CANTOPEN;
    f->real = (sqlite3_file *)(void *)(f + 1);
    f->disk = name ? file_of(name) : NULL;
    int rc = disk.real->xOpen(disk.real, name, f->real, flags, out_flags);
    if (f->real->pMethods)
        f->base.pMethods = &methods;
    return rc;
}

static int do_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    if (disk.off)
        return SQLITE_IOERR_DELETE;
    struct disk_file *file = file_of(name);
    forget(file); /* an entry of a folder is on disk at once: the case that hurts more is a lost write */
    lost_pages_clear(&file->lost);
    return disk.real->xDelete(disk.real, name, sync);
}

static int do_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    (void)vfs;
    return disk.real->xAccess(disk.real, name, flags, result);
}

static int do_full(sqlite3_vfs *vfs, const char *name, int len, char *out)
{
    (void)vfs;
    return disk.real->xFullPathname(disk.real, name, len, out);
}

void faulty_vfs_register(void)
{
    disk.real = sqlite3_vfs_find(NULL);
    disk.vfs = *disk.real;
    disk.vfs.zName = FAULTY_VFS;
    disk.vfs.pNext = NULL;
    disk.vfs.szOsFile = (int)sizeof(struct faulty_file) + disk.real->szOsFile;
    disk.vfs.xOpen = do_open;
    disk.vfs.xDelete = do_delete;
    disk.vfs.xAccess = do_access;
    disk.vfs.xFullPathname = do_full;
    int rc = sqlite3_vfs_register(&disk.vfs, 0);
    assert(rc == SQLITE_OK);
    (void)rc;
}

void faulty_vfs_arm(enum fault kind, int64_t n, bool forever)
{
    disk.kind = kind;
    disk.left = n;
    disk.forever = forever;
    disk.failures = 0;
}

void faulty_vfs_anew(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        forget(&disk.files[i]);
        lost_pages_fini(&disk.files[i].lost);
    }
    disk.cut_after = 0;
    faulty_vfs_arm(FAULT_NONE, 0, false);
}

int64_t faulty_vfs_failures(void)
{
    return disk.failures;
}

void faulty_vfs_cut_after(int64_t n)
{
    disk.cut_after = n;
}

bool faulty_vfs_is_off(void)
{
    return disk.off;
}

void faulty_vfs_power_off(void)
{
    disk.off = true;
}

/* Takes back what `keep` bytes of the change do not survive. */
static void take_back(int fd, const struct undo *u, size_t keep)
{
    size_t had = u->size_before > u->offset ? (size_t)(u->size_before - u->offset) : 0;
    if (had > u->len)
        had = u->len;
    if (keep < had && pwrite(fd, u->before + keep, had - keep, u->offset + (off_t)keep) < 0)
        abort();
    if (keep == 0 && ftruncate(fd, u->size_before) != 0)
        abort();
}

static void lose(struct disk_file *file, struct prng *prng)
{
    int fd = file->undo || file->lost.count ? open(file->path, O_RDWR) : -1;
    if (fd < 0)
        return;
    for (const struct undo *u = file->undo; u; u = u->older) {
        uint64_t fate = prng_below(prng, 4); /* kept, torn, or (two in four) lost */
        if (fate > 0)
            take_back(fd, u, fate == 1 ? u->len / 2 : 0);
    }
    off_t size = lseek(fd, 0, SEEK_END);
    for (size_t i = 0; i < file->lost.count; i++) {
        const struct lost_page *lost = &file->lost.pages[i];
        size_t left = size > lost->offset ? (size_t)(size - lost->offset) : 0;
        size_t len = left < LOST_PAGE_BYTES ? left : LOST_PAGE_BYTES;
        if (len && prng_below(prng, 2) && pwrite(fd, lost->was, len, lost->offset) < 0)
            abort();
    }
    close(fd);
    forget(file);
    lost_pages_clear(&file->lost);
}

void faulty_vfs_power_on(uint64_t seed)
{
    struct prng prng;
    prng_seed(&prng, seed);
    for (int i = 0; i < FILES_MAX && seed != FAULTY_VFS_KEEP; i++)
        lose(&disk.files[i], &prng);
    disk.off = false;
    faulty_vfs_arm(FAULT_NONE, 0, false);
}
