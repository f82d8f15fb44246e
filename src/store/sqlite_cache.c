/* SPDX-License-Identifier: MIT */
#include "store/sqlite_cache.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>

/* The first byte of a page of a B-tree (https://sqlite.org/fileformat2.html, section 1.6). Another page that begins so is
 * kept for nothing. */
enum { INNER_OF_INDEX = 2, INNER_OF_TABLE = 5 };

/* SQLite's name for what a cache is; `under` is the one of its own. */
struct sqlite3_pcache {
    sqlite3_pcache *under;
    bool keeps_inner;
};

static sqlite3_pcache_methods2 under;
static bool installed;
static _Thread_local bool keeps_inner;

static int cache_init(void *unused)
{
    (void)unused;
    return under.xInit(under.pArg);
}

static void cache_shutdown(void *unused)
{
    (void)unused;
    under.xShutdown(under.pArg);
}

static sqlite3_pcache *cache_create(int page_bytes, int extra_bytes, int purgeable)
{
    sqlite3_pcache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->keeps_inner = keeps_inner;
    c->under = under.xCreate(page_bytes, extra_bytes, purgeable);
    if (c->under)
        return c;
    free(c);
    return NULL;
}

static void cache_size(sqlite3_pcache *c, int pages)
{
    under.xCachesize(c->under, pages);
}

static int cache_count(sqlite3_pcache *c)
{
    return under.xPagecount(c->under);
}

static sqlite3_pcache_page *cache_fetch(sqlite3_pcache *c, unsigned key, int create)
{
    return under.xFetch(c->under, key, create);
}

static void cache_unpin(sqlite3_pcache *c, sqlite3_pcache_page *page, int discard)
{
    if (c->keeps_inner && !discard && under.xPagecount(c->under) > SQLITE_CACHE_LEAVES) {
        unsigned char kind = *(const unsigned char *)page->pBuf;
        discard = kind != INNER_OF_INDEX && kind != INNER_OF_TABLE;
    }
    under.xUnpin(c->under, page, discard);
}

static void cache_rekey(sqlite3_pcache *c, sqlite3_pcache_page *page, unsigned from, unsigned to)
{
    under.xRekey(c->under, page, from, to);
}

static void cache_truncate(sqlite3_pcache *c, unsigned limit)
{
    under.xTruncate(c->under, limit);
}

static void cache_destroy(sqlite3_pcache *c)
{
    under.xDestroy(c->under);
    free(c);
}

static void cache_shrink(sqlite3_pcache *c)
{
    under.xShrink(c->under);
}

static void install(void)
{
    static const sqlite3_pcache_methods2 methods = {
        1,           NULL,        cache_init,  cache_shutdown, cache_create,  cache_size,  cache_count,
        cache_fetch, cache_unpin, cache_rekey, cache_truncate, cache_destroy, cache_shrink};
    installed = sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &under) == SQLITE_OK &&
                sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods) == SQLITE_OK;
}

bool sqlite_cache_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    return installed;
}

void sqlite_cache_keep_inner(bool keep)
{
    keeps_inner = keep;
}
