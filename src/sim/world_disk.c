/* SPDX-License-Identifier: MIT */
#include "sim/world_disk.h"

#include "base/buffer.h"
#include "sim/lost_pages.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILES_MAX = 8,
    NAME_BYTES = 64,
    REGIONS_MAX = 64,
    SECTOR_BYTES = 512,
    SHM_LOCKS = SQLITE_SHM_NLOCK,
    CUT_SOON = 60
};

/* One change since the file's last sync. The bytes before and after it stand one behind the other in `memory`. */
struct change {
    int64_t offset, size_before;
    size_t len, at;
    bool truncation; /* to `offset`; the bytes before are those cut off */
};

struct disk_file {
    char name[NAME_BYTES];
    bool exists;
    unsigned char *bytes;
    size_t size, capacity;
    struct change *changes;
    size_t change_count, change_capacity;
    struct buffer memory;
    struct lost_pages lost; /* by syncs that failed */
    /* What the processes of this machine share about it; gone with them. */
    void *regions[REGIONS_MAX];
    int region_count, mapped;
    int shm_shared[SHM_LOCKS];
    bool shm_exclusive[SHM_LOCKS];
    int shared;                    /* handles at SHARED or above */
    const void *reserved, *taking; /* the handle at RESERVED or above, and the one at PENDING or above */
};

struct handle {
    sqlite3_file base;
    struct disk_file *file;
    int level;
    bool maps;
    unsigned shm_shared, shm_exclusive; /* bit masks of its own locks */
};

static struct {
    sqlite3_vfs vfs;
    bool registered;
    struct disk_file files[FILES_MAX];
    struct prng random;
    enum disk_trouble trouble;
    uint64_t left, failures;
    bool lasting, off;
} disk;

const char *disk_trouble_text(enum disk_trouble trouble)
{
    static const char *const texts[DISK_TROUBLES] = {"is well",        "fails to write", "tears a write",
                                                     "fails to sync",  "is full",        "fails to open",
                                                     "loses its power"};
    return texts[trouble];
}

/* Whether the event that could meet `trouble` is met by it. */
static bool meets(enum disk_trouble trouble)
{
    if (disk.trouble != trouble || disk.left == 0 || --disk.left > 0)
        return false;
    if (disk.lasting)
        disk.left = 1;
    disk.failures++;
    return true;
}

static bool dead(void)
{
    if (!disk.off && meets(DISK_POWER_CUT))
        disk.off = true;
    return disk.off;
}

/* ---- the bytes ---------------------------------------------------------------------------------------------- */

static void set_size(struct disk_file *f, size_t size)
{
    if (size > f->capacity) {
        size_t capacity = f->capacity ? f->capacity : 65536;
        while (capacity < size)
            capacity *= 2;
        unsigned char *more = realloc(f->bytes, capacity);
        if (!more)
            abort(); /* a simulation without memory has no result */
        f->bytes = more;
        f->capacity = capacity;
    }
    if (size > f->size)
        memset(f->bytes + f->size, 0, size - f->size);
    f->size = size;
}

static struct change *note(struct disk_file *f, int64_t offset, size_t len)
{
    if (f->change_count == f->change_capacity) {
        f->change_capacity = f->change_capacity ? f->change_capacity * 2 : 64;
        struct change *more = realloc(f->changes, f->change_capacity * sizeof *more);
        if (!more)
            abort();
        f->changes = more;
    }
    struct change *c = &f->changes[f->change_count++];
    *c = (struct change){.offset = offset, .size_before = (int64_t)f->size, .len = len, .at = f->memory.len};
    return c;
}

static void forget_changes(struct disk_file *f)
{
    f->change_count = 0;
    buffer_clear(&f->memory);
}

/* The bytes as they are on disk, of `f->size` and more where the file was cut since; the caller frees them. */
static unsigned char *safe_bytes(const struct disk_file *f)
{
    const unsigned char *memory = (const unsigned char *)f->memory.data;
    size_t size = f->size;
    for (size_t i = 0; i < f->change_count; i++) {
        size_t before = (size_t)f->changes[i].size_before,
               end = (size_t)f->changes[i].offset + f->changes[i].len;
        size = before > size ? before : size;
        size = end > size ? end : size;
    }
    unsigned char *safe = calloc(1, size + 1);
    if (!safe)
        abort();
    memcpy(safe, f->bytes, f->size);
    for (size_t i = f->change_count; i-- > 0;)
        memcpy(safe + f->changes[i].offset, memory + f->changes[i].at, f->changes[i].len);
    return safe;
}

/* A file's length and its cuts are saved all the same: they are the file system's own, in its journal. */
static void fail_changes(struct disk_file *f)
{
    unsigned char *safe = safe_bytes(f);
    lost_pages_failed(&f->lost);
    for (size_t at = 0; at < f->size; at += LOST_PAGE_BYTES) {
        size_t len = f->size - at < LOST_PAGE_BYTES ? f->size - at : LOST_PAGE_BYTES;
        if (memcmp(safe + at, f->bytes + at, len) != 0)
            lost_pages_add(&f->lost, (int64_t)at, safe + at, len);
    }
    free(safe);
    forget_changes(f);
}

static void put(struct disk_file *f, const unsigned char *from, size_t len, int64_t offset)
{
    size_t end = (size_t)offset + len;
    struct change *c = note(f, offset, len);
    if (end > f->size)
        set_size(f, end);
    (void)c;
    buffer_append(&f->memory, f->bytes + offset, len); /* before: zeros where the file was shorter */
    memcpy(f->bytes + offset, from, len);
    buffer_append(&f->memory, from, len);
    lost_pages_write(&f->lost, offset, len);
}

static void cut(struct disk_file *f, int64_t size)
{
    size_t gone = f->size > (size_t)size ? f->size - (size_t)size : 0;
    struct change *c = note(f, size, gone);
    c->truncation = true;
    buffer_append(&f->memory, f->bytes + (gone ? size : 0), gone);
    set_size(f, (size_t)size);
}

/* Of what a sync failed to save, a dirty page may have been written since, and another one by the sync that failed. */
static void lose_pages(struct disk_file *f, enum disk_loss loss)
{
    for (size_t i = 0; i < f->lost.count; i++) {
        const struct lost_page *page = &f->lost.pages[i];
        size_t at = (size_t)page->offset;
        if (at < f->size && (loss == DISK_LOSES_ALL || prng_below(&disk.random, 2)))
            memcpy(f->bytes + at, page->was, f->size - at < LOST_PAGE_BYTES ? f->size - at : LOST_PAGE_BYTES);
    }
    lost_pages_clear(&f->lost);
}

/* Back to what was safe, and forward again with what the loss leaves. */
static void lose(struct disk_file *f, enum disk_loss loss)
{
    const unsigned char *memory = (const unsigned char *)f->memory.data;
    for (size_t i = f->change_count; i-- > 0;) {
        const struct change *c = &f->changes[i];
        set_size(f, (size_t)c->size_before);
        for (size_t k = 0; k < c->len && (size_t)c->offset + k < f->size; k++)
            f->bytes[(size_t)c->offset + k] = memory[c->at + k];
    }
    size_t kept = loss == DISK_LOSES_LAST ? prng_below(&disk.random, f->change_count + 1) : f->change_count;
    for (size_t i = 0; loss != DISK_LOSES_ALL && i < kept; i++) {
        const struct change *c = &f->changes[i];
        bool sectors = loss == DISK_LOSES_SECTORS, whole = !sectors || prng_below(&disk.random, 3) == 0;
        if (c->truncation) {
            if (whole)
                set_size(f, (size_t)c->offset);
            continue;
        }
        for (size_t from = 0; from < c->len;) {
            size_t to = from + SECTOR_BYTES - ((size_t)c->offset + from) % SECTOR_BYTES;
            to = to < c->len ? to : c->len;
            if (whole || prng_below(&disk.random, 2)) {
                if ((size_t)c->offset + to > f->size)
                    set_size(f, (size_t)c->offset + to);
                memcpy(f->bytes + c->offset + from, memory + c->at + c->len + from, to - from);
            }
            from = to;
        }
    }
    forget_changes(f);
    lose_pages(f, loss);
}

/* ---- one open file ------------------------------------------------------------------------------------------ */

static struct handle *of(sqlite3_file *file)
{
    return (struct handle *)file;
}

static int do_read(sqlite3_file *file, void *to, int len, sqlite3_int64 offset)
{
    struct disk_file *f = of(file)->file;
    if (disk.off)
        return SQLITE_IOERR_READ;
    size_t have = (size_t)offset < f->size ? f->size - (size_t)offset : 0;
    if (have >= (size_t)len) {
        memcpy(to, f->bytes + offset, (size_t)len);
        return SQLITE_OK;
    }
    if (have)
        memcpy(to, f->bytes + offset, have);
    memset((char *)to + have, 0, (size_t)len - have);
    return SQLITE_IOERR_SHORT_READ;
}

static int do_write(sqlite3_file *file, const void *from, int len, sqlite3_int64 offset)
{
    struct disk_file *f = of(file)->file;
    if (dead() || meets(DISK_WRITE_ERROR))
        return SQLITE_IOERR_WRITE;
    if (meets(DISK_FULL))
        return SQLITE_FULL;
    bool torn = meets(DISK_TORN_ERROR);
    put(f, from, torn ? (size_t)len / 2 : (size_t)len, offset);
    return torn ? SQLITE_IOERR_WRITE : SQLITE_OK;
}

static int do_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    if (dead() || meets(DISK_WRITE_ERROR))
        return SQLITE_IOERR_TRUNCATE;
    cut(of(file)->file, size);
    return SQLITE_OK;
}

static int do_sync(sqlite3_file *file, int flags)
{
    (void)flags;
    struct disk_file *f = of(file)->file;
    if (dead())
        return SQLITE_IOERR_FSYNC;
    if (meets(DISK_SYNC_ERROR)) {
        fail_changes(f);
        if (prng_below(&disk.random, 3) == 0) /* a disk that fails may be about to go */
            disk_arm(DISK_POWER_CUT, 1 + prng_below(&disk.random, CUT_SOON), false), disk.failures = 1;
        return SQLITE_IOERR_FSYNC;
    }
    forget_changes(f);
    lost_pages_cut(&f->lost, (int64_t)f->size); /* what was cut off is gone now */
    lost_pages_synced(&f->lost);
    return SQLITE_OK;
}

static int do_size(sqlite3_file *file, sqlite3_int64 *size)
{
    *size = (sqlite3_int64)of(file)->file->size;
    return SQLITE_OK;
}

/* The five levels of a rollback database: SQLite needs them around the log's creation and its end. */
static int do_lock(sqlite3_file *file, int level)
{
    struct handle *h = of(file);
    struct disk_file *f = h->file;
    if (h->level >= level)
        return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED) {
        if (f->taking && f->taking != h)
            return SQLITE_BUSY;
        f->shared++;
        h->level = level;
        return SQLITE_OK;
    }
    if (f->reserved && f->reserved != h)
        return SQLITE_BUSY;
    f->reserved = h;
    if (level == SQLITE_LOCK_RESERVED) {
        h->level = level;
        return SQLITE_OK;
    }
    f->taking = h;
    h->level = SQLITE_LOCK_PENDING;
    if (f->shared > 1)
        return SQLITE_BUSY;
    h->level = level;
    return SQLITE_OK;
}

static int do_unlock(sqlite3_file *file, int level)
{
    struct handle *h = of(file);
    struct disk_file *f = h->file;
    if (h->level <= level)
        return SQLITE_OK;
    if (f->reserved == h)
        f->reserved = NULL;
    if (f->taking == h)
        f->taking = NULL;
    if (level == SQLITE_LOCK_NONE)
        f->shared--;
    h->level = level;
    return SQLITE_OK;
}

static int do_reserved(sqlite3_file *file, int *result)
{
    *result = of(file)->file->reserved != NULL;
    return SQLITE_OK;
}

static int do_control(sqlite3_file *file, int what, void *argument)
{
    (void)file, (void)argument;
    /* The file grows by what is written and not in steps: a power cut must be able to take the growth back. */
    return what == SQLITE_FCNTL_SIZE_HINT || what == SQLITE_FCNTL_CHUNK_SIZE ? SQLITE_OK : SQLITE_NOTFOUND;
}

static int do_sector(sqlite3_file *file)
{
    (void)file;
    return SECTOR_BYTES;
}

static int do_traits(sqlite3_file *file)
{
    (void)file;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE; /* as SQLite takes every Unix disk to be */
}

static int do_shm_map(sqlite3_file *file, int region, int size, int extend, void volatile **to)
{
    struct handle *h = of(file);
    struct disk_file *f = h->file;
    *to = NULL;
    if (region >= REGIONS_MAX)
        return SQLITE_IOERR_SHMMAP;
    if (!h->maps) {
        h->maps = true;
        f->mapped++;
    }
    while (f->region_count <= region) {
        if (!extend)
            return SQLITE_OK;
        f->regions[f->region_count] = calloc(1, (size_t)size);
        if (!f->regions[f->region_count])
            return SQLITE_NOMEM;
        f->region_count++;
    }
    *to = f->regions[region];
    return SQLITE_OK;
}

static int do_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    struct handle *h = of(file);
    struct disk_file *f = h->file;
    unsigned mask = ((1u << n) - 1) << offset;
    if (flags & SQLITE_SHM_UNLOCK) {
        for (int i = offset; i < offset + n; i++) {
            unsigned bit = 1u << i;
            if (h->shm_exclusive & bit)
                f->shm_exclusive[i] = false;
            else if (h->shm_shared & bit)
                f->shm_shared[i]--;
        }
        h->shm_exclusive &= ~mask;
        h->shm_shared &= ~mask;
        return SQLITE_OK;
    }
    bool exclusive = flags & SQLITE_SHM_EXCLUSIVE;
    for (int i = offset; i < offset + n; i++) {
        bool own = h->shm_shared & 1u << i;
        if (f->shm_exclusive[i] || (exclusive && f->shm_shared[i] > own))
            return SQLITE_BUSY;
    }
    for (int i = offset; i < offset + n; i++) {
        unsigned bit = 1u << i;
        if (exclusive)
            f->shm_exclusive[i] = true, h->shm_exclusive |= bit;
        else if (!(h->shm_shared & bit))
            f->shm_shared[i]++, h->shm_shared |= bit;
    }
    return SQLITE_OK;
}

static void do_shm_barrier(sqlite3_file *file)
{
    (void)file;
}

static int do_shm_unmap(sqlite3_file *file, int remove)
{
    struct handle *h = of(file);
    struct disk_file *f = h->file;
    (void)remove;
    if (!h->maps)
        return SQLITE_OK;
    do_shm_lock(file, 0, SHM_LOCKS, SQLITE_SHM_UNLOCK);
    h->maps = false;
    if (--f->mapped == 0) { /* the last process's memory */
        while (f->region_count)
            free(f->regions[--f->region_count]);
    }
    return SQLITE_OK;
}

static int do_close(sqlite3_file *file)
{
    do_shm_unmap(file, 0);
    return do_unlock(file, SQLITE_LOCK_NONE);
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

/* ---- the folder --------------------------------------------------------------------------------------------- */

static struct disk_file *find(const char *name)
{
    for (int i = 0; i < FILES_MAX; i++)
        if (disk.files[i].name[0] && strcmp(disk.files[i].name, name) == 0)
            return &disk.files[i];
    return NULL;
}

static struct disk_file *make(const char *name)
{
    struct disk_file *f = find(name);
    if (f)
        return f;
    for (int i = 0; i < FILES_MAX; i++) {
        if (!disk.files[i].name[0]) {
            strncpy(disk.files[i].name, name, NAME_BYTES - 1);
            return &disk.files[i];
        }
    }
    return NULL;
}

static int do_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    struct handle *h = of(file);
    (void)vfs;
    memset(h, 0, sizeof *h);
    if (!name || disk.off || meets(DISK_OPEN_ERROR))
        return SQLITE_CANTOPEN;
    struct disk_file *f = flags & SQLITE_OPEN_CREATE ? make(name) : find(name);
    if (!f || (!f->exists && !(flags & SQLITE_OPEN_CREATE)))
        return SQLITE_CANTOPEN;
    f->exists = true; /* an entry of a folder is safe at once: a lost write is the case that hurts more */
    h->file = f;
    h->base.pMethods = &methods;
    if (out_flags)
        *out_flags = flags;
    return SQLITE_OK;
}

static int do_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs, (void)sync;
    struct disk_file *f = find(name);
    if (dead())
        return SQLITE_IOERR_DELETE;
    if (!f || !f->exists)
        return SQLITE_IOERR_DELETE_NOENT;
    f->exists = false;
    f->size = 0;
    forget_changes(f);
    lost_pages_clear(&f->lost);
    return SQLITE_OK;
}

static int do_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    (void)vfs, (void)flags;
    const struct disk_file *f = find(name);
    *result = f && f->exists;
    return SQLITE_OK;
}

static int do_full(sqlite3_vfs *vfs, const char *name, int len, char *out)
{
    (void)vfs;
    if (strlen(name) >= (size_t)len)
        return SQLITE_CANTOPEN;
    memcpy(out, name, strlen(name) + 1);
    return SQLITE_OK;
}

static int do_randomness(sqlite3_vfs *vfs, int len, char *out)
{
    (void)vfs;
    for (int i = 0; i < len; i++)
        out[i] = (char)prng_next(&disk.random);
    return len;
}

/* Nobody else runs while a busy connection waits, so waiting would not help. */
static int do_sleep(sqlite3_vfs *vfs, int micros)
{
    (void)vfs;
    return micros;
}

static int do_time(sqlite3_vfs *vfs, double *days)
{
    (void)vfs;
    *days = 2460000.5;
    return SQLITE_OK;
}

static int do_last_error(sqlite3_vfs *vfs, int len, char *out)
{
    (void)vfs, (void)len, (void)out;
    return 0;
}

enum status disk_begin(uint64_t seed)
{
    if (!disk.registered) {
        disk.vfs = (sqlite3_vfs){
            .iVersion = 1,
            .szOsFile = (int)sizeof(struct handle),
            .mxPathname = NAME_BYTES - 1,
            .zName = WORLD_DISK_VFS,
            .xOpen = do_open,
            .xDelete = do_delete,
            .xAccess = do_access,
            .xFullPathname = do_full,
            .xRandomness = do_randomness,
            .xSleep = do_sleep,
            .xCurrentTime = do_time,
            .xGetLastError = do_last_error,
        };
        if (sqlite3_vfs_register(&disk.vfs, 0) != SQLITE_OK)
            return STATUS_IO;
        disk.registered = true;
    }
    prng_seed(&disk.random, seed);
    sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, (int)(seed & 0x7fffffff) | 1, NULL);
    for (int i = 0; i < FILES_MAX; i++) {
        struct disk_file *f = &disk.files[i];
        assert(!f->mapped && !f->shared);
        f->name[0] = '\0';
        memset(f->name, 0, sizeof f->name);
        f->exists = false;
        f->size = 0;
        forget_changes(f);
        lost_pages_clear(&f->lost);
    }
    disk.off = false;
    disk_arm(DISK_WELL, 0, false);
    return STATUS_OK;
}

void disk_end(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        struct disk_file *f = &disk.files[i];
        free(f->bytes);
        free(f->changes);
        buffer_fini(&f->memory);
        lost_pages_fini(&f->lost);
        memset(f, 0, sizeof *f);
    }
}

void disk_arm(enum disk_trouble trouble, uint64_t n, bool lasting)
{
    disk.trouble = trouble;
    disk.left = n;
    disk.lasting = lasting;
    disk.failures = 0;
}

uint64_t disk_failures(void)
{
    return disk.failures;
}

bool disk_is_off(void)
{
    return disk.off;
}

void disk_power_off(void)
{
    disk.off = true;
}

void disk_power_on(enum disk_loss loss)
{
    for (int i = 0; i < FILES_MAX; i++) {
        assert(!disk.files[i].mapped && !disk.files[i].shared);
        if (loss != DISK_LOSES_NOTHING)
            lose(&disk.files[i], loss);
    }
    disk.off = false;
    disk_arm(DISK_WELL, 0, false);
}
