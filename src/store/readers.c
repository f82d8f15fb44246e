/* SPDX-License-Identifier: MIT */
#include "store/readers.h"

#include "store/driver.h"

#include <pthread.h>
#include <stdlib.h>

struct reader {
    struct readers *readers;
    struct store_reader *reader; /* NULL: not opened yet */
    pthread_t thread;
    pthread_cond_t wake;
    bool started, spare;
    bool asleep, waiting; /* under the lock */
};

struct readers {
    struct store *store;
    struct readers_settings settings;
    pthread_mutex_t lock;
    struct list queue;
    struct reader *all;
    unsigned count;
    unsigned running;
    size_t take; /* fewer at a time, as long as those that are taken have to wait */
    bool stopping;
};

/* One more runs, where something is queued and one may: the caller signals it. One that is open, if there is one; or none
 * else, with `opened`. Under the lock. */
static struct reader *one_more(struct readers *r, bool opened)
{
    struct reader *found = NULL;
    if (list_empty(&r->queue) || r->running >= r->settings.at_once)
        return NULL;
    for (struct reader *each = r->all; each < r->all + r->count; each++)
        if (each->asleep && (each->reader || !opened) && (!found || (each->reader && !found->reader)))
            found = each;
    if (found) {
        found->asleep = false;
        r->running++;
    }
    return found;
}

static void wake(struct reader *sleeper)
{
    if (sleeper)
        pthread_cond_signal(&sleeper->wake);
}

/* The store's word that the reader waits for the disk from now on. */
static void on_wait(void *context)
{
    struct reader *me = context;
    struct readers *r = me->readers;
    if (me->waiting) /* nobody else writes it while it runs */
        return;
    pthread_mutex_lock(&r->lock);
    me->waiting = true;
    r->running--;
    struct reader *other = one_more(r, false);
    pthread_mutex_unlock(&r->lock);
    wake(other);
}

/* Takes what is queued; one whose work is not small goes alone. Under the lock. */
static size_t take(struct readers *r, struct store_op *ops[READERS_TAKE])
{
    size_t count = 0;
    while (count < r->take && !list_empty(&r->queue)) {
        struct store_op *op = LIST_ENTRY(r->queue.next, struct store_op, link);
        bool small = op->kind == STORE_LOOKUP || op->kind == STORE_READ || op->kind == STORE_CLAIM;
        if (!small && count)
            break;
        list_remove(&op->link);
        ops[count++] = op;
        if (!small)
            break;
    }
    return count;
}

/* Under the lock, which is released while they run. */
static void run(struct reader *me, struct store_op **ops, size_t count)
{
    struct readers *r = me->readers;
    struct reader *other = one_more(r, false);
    pthread_mutex_unlock(&r->lock);
    wake(other);
    store_reader_run_all(me->reader, ops, count);
    r->settings.give_back(r->settings.context, ops, count);
    pthread_mutex_lock(&r->lock);
    if (me->waiting) {
        me->waiting = false;
        r->running++;
        r->take = r->take > 1 ? r->take / 2 : 1;
    } else if (count == r->take && r->take < READERS_TAKE) {
        r->take *= 2;
    }
}

/* A spare one that cannot be opened sleeps again, and what is queued waits for the others. Under the lock, which is
 * released meanwhile. */
static bool is_open(struct reader *me)
{
    struct readers *r = me->readers;
    struct buffer error = {0};
    if (me->reader)
        return true;
    pthread_mutex_unlock(&r->lock);
    (void)store_reader_open(&me->reader, r->store, &error);
    buffer_fini(&error);
    store_reader_tell_waits(me->reader, on_wait, me);
    pthread_mutex_lock(&r->lock);
    return me->reader != NULL;
}

static void *read_loop(void *argument)
{
    struct reader *me = argument;
    struct readers *r = me->readers;
    struct store_op *ops[READERS_TAKE];
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (me->asleep && !r->stopping)
            pthread_cond_wait(&me->wake, &r->lock);
        bool enough = me->spare && r->running > r->settings.at_once && !r->stopping;
        size_t count = !enough && !list_empty(&r->queue) && is_open(me) ? take(r, ops) : 0;
        if (count) {
            run(me, ops, count);
            continue;
        }
        if (r->stopping)
            break;
        r->running--;
        me->asleep = true;
        wake(one_more(r, true)); /* for what was queued while this one was counted and could not be opened */
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum status readers_start(struct readers **out, struct store *store, const struct readers_settings *settings,
                          struct buffer *error)
{
    enum status status = STATUS_NO_MEMORY;
    unsigned count = settings->at_once + READERS_SPARE;
    struct readers *r = calloc(1, sizeof *r);
    if (r)
        r->all = calloc(count, sizeof *r->all);
    if (!r || !r->all) {
        free(r);
        buffer_text(error, "There is no memory for the store's threads.");
        return status;
    }
    r->store = store;
    r->settings = *settings;
    r->take = READERS_TAKE;
    r->running = settings->at_once; /* until they find nothing queued */
    pthread_mutex_init(&r->lock, NULL);
    list_init(&r->queue);
    for (status = STATUS_OK; status == STATUS_OK && r->count < count; r->count++) {
        struct reader *each = &r->all[r->count];
        each->readers = r;
        each->spare = each->asleep = r->count >= settings->at_once;
        pthread_cond_init(&each->wake, NULL);
        if (!each->spare)
            status = store_reader_open(&each->reader, store, error);
        if (status != STATUS_OK)
            continue;
        if (each->reader)
            store_reader_tell_waits(each->reader, on_wait, each);
        each->started = pthread_create(&each->thread, NULL, read_loop, each) == 0;
        if (!each->started) {
            buffer_text(error, "The store's threads cannot be started: raise the limit of threads.");
            status = STATUS_IO;
        }
    }
    if (status == STATUS_OK)
        *out = r;
    else
        readers_stop(r);
    return status;
}

void readers_submit(struct readers *r, struct list *ops)
{
    struct list *l;
    pthread_mutex_lock(&r->lock);
    while ((l = list_pop_front(ops)) != NULL)
        list_push_back(&r->queue, l);
    struct reader *sleeper = one_more(r, false);
    pthread_mutex_unlock(&r->lock);
    wake(sleeper); /* which wakes the next, if more may run */
}

void readers_stop(struct readers *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    for (unsigned i = 0; i < r->count; i++)
        pthread_cond_signal(&r->all[i].wake);
    pthread_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->count; i++)
        if (r->all[i].started)
            pthread_join(r->all[i].thread, NULL);
    for (unsigned i = 0; i < r->count; i++) { /* nobody signals any more */
        store_reader_free(r->all[i].reader);
        pthread_cond_destroy(&r->all[i].wake);
    }
    pthread_mutex_destroy(&r->lock);
    free(r->all);
    free(r);
}
