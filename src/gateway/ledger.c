/* SPDX-License-Identifier: MIT */
#include "gateway/ledger.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A question takes milliseconds; more connections than these would be the service's database paying for our retries. */
#define LEDGER_THREADS_MAX   4u
#define LEDGER_QUESTIONS_MAX 1024u /* waiting */

struct ledger {
    pthread_mutex_t mutex;
    pthread_cond_t came;
    struct list queue; /* of ledger_ask.link */
    size_t queued;
    unsigned threads, idle;
    bool stopping, sqlite;
    pthread_t thread[LEDGER_THREADS_MAX];
    char address[];
};

static bool begins(struct slice s, const char *with)
{
    size_t len = strlen(with);
    return s.len > len && memcmp(s.data, with, len) == 0;
}

bool ledger_address_good(struct slice address)
{
    return begins(address, "postgres://") || begins(address, "postgresql://") || begins(address, "sqlite:");
}

enum status ledger_new(struct ledger **out, const char *address)
{
    if (!ledger_address_good(slice_text(address)))
        return STATUS_INVALID;
    bool sqlite = begins(slice_text(address), "sqlite:");
    if (sqlite)
        address += strlen("sqlite:");
    size_t len = strlen(address);
    struct ledger *l = calloc(1, sizeof *l + len + 1);
    if (!l)
        return STATUS_NO_MEMORY;
    memcpy(l->address, address, len + 1);
    l->sqlite = sqlite;
    list_init(&l->queue);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->came, NULL);
    if (!sqlite) {
        /* The program loads libpq at the first call: now, not when the first question hangs on it. */
        struct ledger_link none = {.address = l->address};
        ledger_postgres_close(&none);
    }
    *out = l;
    return STATUS_OK;
}

static void *work(void *context)
{
    struct ledger *l = context;
    struct ledger_link link = {.address = l->address};
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        while (list_empty(&l->queue) && !l->stopping) {
            l->idle++;
            pthread_cond_wait(&l->came, &l->mutex);
            l->idle--;
        }
        if (list_empty(&l->queue))
            break;
        struct ledger_ask *ask = LIST_ENTRY(list_pop_front(&l->queue), struct ledger_ask, link);
        l->queued--;
        pthread_mutex_unlock(&l->mutex);
        if (clock_monotonic_ms() >= ask->deadline_ms)
            memcpy(ask->why, "it waited too long for a connection",
                   sizeof "it waited too long for a connection");
        else if (l->sqlite)
            ledger_sqlite_ask(&link, ask);
        else
            ledger_postgres_ask(&link, ask);
        mailbox_post(ask->loop, &ask->letter);
        pthread_mutex_lock(&l->mutex);
    }
    pthread_mutex_unlock(&l->mutex);
    if (l->sqlite)
        ledger_sqlite_close(&link);
    else
        ledger_postgres_close(&link);
    return NULL;
}

enum status ledger_ask(struct ledger *l, struct ledger_ask *ask)
{
    ask->answered = false;
    ask->why[0] = '\0';
    pthread_mutex_lock(&l->mutex);
    assert(!l->stopping);
    bool taken = l->queued < LEDGER_QUESTIONS_MAX;
    if (taken && l->queued >= l->idle && l->threads < LEDGER_THREADS_MAX &&
        pthread_create(&l->thread[l->threads], NULL, work, l) == 0)
        l->threads++;
    taken = taken && l->threads > 0;
    if (taken) {
        list_push_back(&l->queue, &ask->link);
        l->queued++;
        pthread_cond_signal(&l->came);
    }
    pthread_mutex_unlock(&l->mutex);
    return taken ? STATUS_OK : STATUS_FULL;
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->mutex);
    assert(list_empty(&l->queue));
    l->stopping = true;
    pthread_cond_broadcast(&l->came);
    pthread_mutex_unlock(&l->mutex);
    for (unsigned i = 0; i < l->threads; i++)
        pthread_join(l->thread[i], NULL);
    pthread_cond_destroy(&l->came);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}
