/* SPDX-License-Identifier: MIT */
#include "gateway/admission.h"

#include "core/budget.h"
#include "core/rate.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define BUCKETS 1024 /* of each of the two tables; a power of two */

struct tenant_rate {
    struct list chain, age; /* in its bucket; in the order of use */
    uint64_t name;
    struct rate rate;
};

struct client_retries {
    struct list chain;
    uint64_t name;
    int64_t running;
};

struct admission {
    pthread_mutex_t mutex;
    int64_t concurrency, queue, rate, retries_in_flight;
    int64_t places_used, waiting_count;
    struct list waiting;
    struct budget budget;
    bool round;
    size_t origins, turn;
    struct breaker *breakers; /* one for each upstream */
    struct list tenants[BUCKETS], tenants_by_age;
    size_t tenant_count;
    struct list clients[BUCKETS];
};

/* FNV-1a; the tables are bounded, so a collision costs a shared bucket of tokens and nothing else. */
uint64_t admission_client(struct slice name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (unsigned char)name.data[i]) * UINT64_C(0x100000001b3);
    return h;
}

enum status admission_new(struct admission **out, const struct route_settings *r, size_t origins,
                          int64_t now_ms)
{
    struct admission *a = calloc(1, sizeof *a);
    struct breaker *breakers = calloc(origins ? origins : 1, sizeof *breakers);
    if (!a || !breakers) {
        free(a);
        free(breakers);
        return STATUS_NO_MEMORY;
    }
    pthread_mutex_init(&a->mutex, NULL);
    a->concurrency = r->concurrency;
    a->queue = r->queue;
    a->rate = r->rate;
    a->retries_in_flight = r->retries_in_flight;
    a->round = r->upstream_order == UPSTREAM_ORDER_ROUND;
    a->origins = origins;
    a->breakers = breakers;
    struct breaker_rule rule = {(unsigned)r->breaker_failures_percent, (unsigned)r->breaker_calls,
                                r->breaker_window_ms, r->breaker_open_ms,
                                (unsigned)(r->breaker_probes ? r->breaker_probes : 1)};
    for (size_t i = 0; i < origins; i++)
        breaker_init(&breakers[i], &rule, now_ms);
    budget_init(&a->budget, (unsigned)r->retry_budget_percent, (unsigned)r->retry_budget_floor, now_ms);
    list_init(&a->waiting);
    list_init(&a->tenants_by_age);
    for (size_t i = 0; i < BUCKETS; i++) {
        list_init(&a->tenants[i]);
        list_init(&a->clients[i]);
    }
    *out = a;
    return STATUS_OK;
}

void admission_free(struct admission *a)
{
    if (!a)
        return;
    struct list *l;
    while ((l = list_pop_front(&a->tenants_by_age)))
        free(LIST_ENTRY(l, struct tenant_rate, age));
    for (size_t i = 0; i < BUCKETS; i++) {
        while ((l = list_pop_front(&a->clients[i])))
            free(LIST_ENTRY(l, struct client_retries, chain));
    }
    pthread_mutex_destroy(&a->mutex);
    free(a->breakers);
    free(a);
}

/* One token of this tenant's rate; without memory for a new tenant it is let through. */
static bool take_rate(struct admission *a, struct slice tenant, int64_t now_ms, int64_t *retry_ms)
{
    if (a->rate == 0)
        return true;
    uint64_t name = admission_client(tenant);
    struct list *bucket = &a->tenants[name % BUCKETS];
    struct tenant_rate *t = NULL;
    for (struct list *l = bucket->next; l != bucket && !t; l = l->next) {
        struct tenant_rate *each = LIST_ENTRY(l, struct tenant_rate, chain);
        if (each->name == name)
            t = each;
    }
    if (!t) {
        if (a->tenant_count >= ADMISSION_TENANTS_MAX) {
            t = LIST_ENTRY(a->tenants_by_age.next, struct tenant_rate, age);
            list_remove(&t->chain);
            list_remove(&t->age);
        } else {
            t = malloc(sizeof *t);
            if (!t)
                return true;
            a->tenant_count++;
            list_init(&t->age);
        }
        t->name = name;
        rate_init(&t->rate, (uint32_t)a->rate, now_ms);
        list_push_back(bucket, &t->chain);
    }
    list_remove(&t->age);
    list_push_back(&a->tenants_by_age, &t->age);
    if (rate_take(&t->rate, now_ms))
        return true;
    *retry_ms = rate_wait_ms(&t->rate, now_ms);
    return false;
}

/* Finds an upstream whose breaker lets an attempt through, in the route's order, beginning after `skip` where it is
 * given (SIZE_MAX: none). */
static bool pick(struct admission *a, int64_t now_ms, struct pass *pass, size_t skip, int64_t *retry_ms)
{
    size_t first = skip != SIZE_MAX ? skip + 1 : a->round ? a->turn++ : 0;
    int64_t soonest = INT64_MAX;
    for (size_t i = 0; i < a->origins; i++) {
        size_t origin = (first + i) % a->origins;
        if (breaker_admit(&a->breakers[origin], now_ms, &pass->ticket)) {
            pass->origin = origin;
            pass->admitted = true;
            return true;
        }
        int64_t wait = breaker_wait_ms(&a->breakers[origin], now_ms);
        soonest = wait < soonest ? wait : soonest;
    }
    *retry_ms = soonest == INT64_MAX ? 1000 : soonest;
    return false;
}

enum admit admission_enter(struct admission *a, struct slice tenant, int64_t now_ms, struct pass *pass,
                           struct waiter *waiter, bool count_rate, int64_t *retry_ms)
{
    enum admit result = ADMIT_YES;
    pthread_mutex_lock(&a->mutex);
    *retry_ms = 1000;
    if (count_rate && !take_rate(a, tenant, now_ms, retry_ms)) {
        result = ADMIT_RATE;
    } else if (a->places_used < a->concurrency && a->waiting_count == 0) {
        if (pick(a, now_ms, pass, SIZE_MAX, retry_ms)) {
            a->places_used++;
            pass->place = true;
            budget_call(&a->budget, now_ms);
        } else {
            result = ADMIT_BREAKER;
        }
    } else if (a->waiting_count >= a->queue) {
        result = ADMIT_FULL;
    } else {
        waiter->waiting = true;
        waiter->pass = pass;
        list_push_back(&a->waiting, &waiter->link);
        a->waiting_count++;
        result = ADMIT_WAIT;
    }
    pthread_mutex_unlock(&a->mutex);
    return result;
}

enum admit admission_pick(struct admission *a, int64_t now_ms, struct pass *pass, int64_t *retry_ms)
{
    pthread_mutex_lock(&a->mutex);
    bool yes = pick(a, now_ms, pass, SIZE_MAX, retry_ms);
    if (yes)
        budget_call(&a->budget, now_ms);
    pthread_mutex_unlock(&a->mutex);
    return yes ? ADMIT_YES : ADMIT_BREAKER;
}

bool admission_withdraw(struct admission *a, struct waiter *waiter)
{
    pthread_mutex_lock(&a->mutex);
    bool was_waiting = waiter->waiting;
    if (was_waiting) {
        list_remove(&waiter->link);
        waiter->waiting = false;
        a->waiting_count--;
    }
    pthread_mutex_unlock(&a->mutex);
    return was_waiting;
}

static struct client_retries *find_client(struct admission *a, uint64_t name, bool make)
{
    struct list *bucket = &a->clients[name % BUCKETS];
    for (struct list *l = bucket->next; l != bucket; l = l->next) {
        struct client_retries *c = LIST_ENTRY(l, struct client_retries, chain);
        if (c->name == name)
            return c;
    }
    struct client_retries *c = make ? calloc(1, sizeof *c) : NULL;
    if (c) {
        c->name = name;
        list_push_back(bucket, &c->chain);
    }
    return c;
}

enum retry_leave admission_retry(struct admission *a, uint64_t client, int64_t now_ms, struct pass *pass,
                                 bool next_origin, bool costs_budget, int64_t *retry_ms)
{
    enum retry_leave result = RETRY_YES;
    pthread_mutex_lock(&a->mutex);
    *retry_ms = 1000;
    struct client_retries *c = find_client(a, client, true);
    if (!c || c->running >= a->retries_in_flight || (costs_budget && !budget_has(&a->budget, now_ms))) {
        result = RETRY_BUDGET;
    } else if (!pick(a, now_ms, pass, next_origin && a->origins > 1 ? pass->origin : SIZE_MAX, retry_ms)) {
        result = RETRY_BREAKER;
    } else {
        if (costs_budget)
            (void)budget_take(&a->budget, now_ms);
        c->running++;
    }
    if (c && c->running == 0) {
        list_remove(&c->chain);
        free(c);
    }
    pthread_mutex_unlock(&a->mutex);
    return result;
}

void admission_retry_done(struct admission *a, uint64_t client)
{
    pthread_mutex_lock(&a->mutex);
    struct client_retries *c = find_client(a, client, false);
    assert(c && c->running > 0);
    if (--c->running == 0) {
        list_remove(&c->chain);
        free(c);
    }
    pthread_mutex_unlock(&a->mutex);
}

bool admission_report(struct admission *a, struct pass *pass, int64_t now_ms, enum breaker_verdict verdict,
                      double random)
{
    if (!pass->admitted)
        return false;
    pthread_mutex_lock(&a->mutex);
    pass->admitted = false;
    bool changed = breaker_report(&a->breakers[pass->origin], now_ms, pass->ticket, verdict, random);
    pthread_mutex_unlock(&a->mutex);
    return changed;
}

void admission_leave(struct admission *a, struct pass *pass, int64_t now_ms)
{
    (void)admission_report(a, pass, now_ms, BREAKER_NEUTRAL, 0);
    if (!pass->place)
        return;
    struct waiter *next = NULL;
    pthread_mutex_lock(&a->mutex);
    pass->place = false;
    struct list *l = list_pop_front(&a->waiting);
    if (l) {
        /* The place changes hands without being free in between. */
        next = LIST_ENTRY(l, struct waiter, link);
        a->waiting_count--;
        next->waiting = false;
        next->pass->place = true;
        mailbox_post(next->loop, &next->letter);
    } else {
        a->places_used--;
    }
    pthread_mutex_unlock(&a->mutex);
}

void admission_counts(struct admission *a, int64_t now_ms, struct admission_counts *out)
{
    pthread_mutex_lock(&a->mutex);
    out->at_work = a->places_used;
    out->waiting = a->waiting_count;
    out->breakers_open = 0;
    for (size_t i = 0; i < a->origins; i++)
        out->breakers_open += breaker_state_now(&a->breakers[i], now_ms) != BREAKER_CLOSED;
    out->breaker_open = out->breakers_open > 0;
    pthread_mutex_unlock(&a->mutex);
}
