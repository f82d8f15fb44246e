/* SPDX-License-Identifier: MIT
 *
 * The identities of the newest rows, in memory. Callids and keys are random, so writing each into the index on disk
 * at once would dirty two pages a call: measured, most of what a commit costs. Instead they wait here, and go to the
 * index later in the order of their digests, many to a page.
 *
 *   claim ──▶ young ──(full)──▶ sealed, sorted ──a few a batch──▶ tables of identities (sqlite_identity.c)
 *
 * Always true:
 *  (1) An identity is in a table, or here, or (after a crash between the two) in both with one meaning.
 *  (2) Nothing here is the only record: every entry stands in its row, and rows newer than the last that was merged
 *      are read again at the start (sqlite.c), so a crash loses none.
 *  (3) The writer's thread alone changes it, under the lock; it reads without. Readers lock, and compare `epoch`
 *      around all they read: it changes when identities left for a table or all was read anew.
 *
 * The unique indexes of the tables stay the last line: merging a digest that another row has there is damage, and stops
 * the store (sqlite_identity.c).
 */
#ifndef SAMEKEY_STORE_TAIL_H
#define SAMEKEY_STORE_TAIL_H

#include "core/digest.h"

#include <pthread.h>
#include <stdbool.h>

#define TAIL_ENTRIES 65536 /* of one generation, which is then sealed, unless told otherwise: 32 bytes each */

struct tail_entry {
    struct digest digest;
    int64_t id; /* 0: removed */
};

struct tail_generation {
    struct tail_entry *entries;
    uint32_t *slots; /* 1 + index of an entry, 0: empty; open addressing */
    uint32_t count, capacity;
};

struct tail {
    pthread_mutex_t lock;
    struct tail_generation young, sealed;
    uint32_t *order;       /* of the sealed entries, by digest */
    uint32_t merged;       /* of `order`, those given out by tail_next() */
    int64_t sealed_newest; /* rows up to this id have no entry in `young` */
    uint64_t epoch;
    uint32_t limit; /* entries of a full generation */
    bool ready;     /* false: not read from the disk yet; then readers must not answer */
};

/* `limit`: entries of a full generation, at least 1. */
enum status tail_init(struct tail *t, uint32_t limit);
void tail_fini(struct tail *t);
/* Takes over all of `from`, which is then empty, in one step for readers. From then on `t` is ready. */
void tail_replace(struct tail *t, struct tail *from);

/* The row of a digest, 0 if it is not here. For the writer's thread. */
int64_t tail_find(const struct tail *t, const struct digest *digest);
/* Rows of the digests whose first DIGEST_CALL_PREFIX bytes are those of `digest`, at most `max`; looks at every entry.
 * For the writer's thread. */
size_t tail_prefix(const struct tail *t, const struct digest *digest, int64_t *ids, size_t max);
/* The same as tail_find() for any thread; false: not ready. */
bool tail_read(struct tail *t, const struct digest *digest, int64_t *id);
/* The epoch now; false: not ready. */
bool tail_epoch(struct tail *t, uint64_t *epoch);

/* Adds a digest that is not here. STATUS_NO_MEMORY: as before. */
enum status tail_add(struct tail *t, const struct digest *digest, int64_t id);
/* Changes the row of a digest where it is here; 0 removes it. */
void tail_change(struct tail *t, const struct digest *digest, int64_t id);

/* Seals the young generation if it is full and the one before is merged. `newest` is the newest row's id.
 * STATUS_NO_MEMORY: not sealed, the young one goes on growing. */
enum status tail_seal(struct tail *t, int64_t newest);
/* The next sealed entry in order of digests, or NULL. Borrowed until the next call. */
const struct tail_entry *tail_next(struct tail *t);
/* True when every sealed entry was given out and none dropped yet. */
bool tail_merged(const struct tail *t);
/* Forgets the sealed generation, whose entries are committed in the table. */
void tail_drop(struct tail *t);

#endif
