/* SPDX-License-Identifier: MIT
 *
 * Admission: places and the queue in the order of asking, the rate, retries in flight, the budget, and the breakers'
 * tickets, which always come back. At the end, threads that ask, wait, withdraw and leave at once.
 */
#include "../net/harness.h"

#include "base/prng.h"
#include "gateway/admission.h"

#define NOW     INT64_C(1000000)
#define OPEN_MS 5000

static struct route_settings settings(void)
{
    return (struct route_settings){.concurrency = 2,
                                   .queue = 3,
                                   .retries_in_flight = 2,
                                   .retry_budget_percent = 20,
                                   .retry_budget_floor = 0,
                                   .breaker_failures_percent = 50,
                                   .breaker_calls = 4,
                                   .breaker_window_ms = 10000,
                                   .breaker_open_ms = OPEN_MS,
                                   .breaker_probes = 1,
                                   .upstream_order = UPSTREAM_ORDER_ROUND};
}

static struct admission *made(const struct route_settings *s, size_t origins)
{
    struct admission *a = NULL;
    assert_int_equal(admission_new(&a, s, origins, NOW), STATUS_OK);
    return a;
}

static enum admit ask(struct admission *a, const char *tenant, int64_t now, struct pass *pass,
                      struct waiter *w, int64_t *retry)
{
    return admission_enter(a, slice_text(tenant), now, pass, w, true, retry);
}

static void counts(struct admission *a, int64_t at_work, int64_t waiting)
{
    struct admission_counts c;
    admission_counts(a, NOW, &c);
    assert_int_equal(c.at_work, at_work);
    assert_int_equal(c.waiting, waiting);
}

/* One who waits, and what came of it. */
struct guest {
    struct waiter waiter;
    struct pass pass;
    int called; /* the how-manieth letter of its loop; 0: not yet */
};
static int letters;

static void on_letter(struct letter *letter)
{
    struct guest *g = LIST_ENTRY(LIST_ENTRY(letter, struct waiter, letter), struct guest, waiter);
    g->called = ++letters;
    net_loop_stop(g->waiter.loop);
}

static void on_bound(struct net_timer *timer)
{
    (void)timer;
    fail_msg("no letter came within the bound");
}

/* Runs the loop until a letter was opened. */
static void await_letter(struct net_loop *loop)
{
    struct net_timer bound = {0};
    net_timer_arm(loop, &bound, clock_monotonic_ms() + WAIT_S * 1000, on_bound);
    net_loop_run(loop);
    net_timer_disarm(loop, &bound);
}

static void seat(struct guest *g, struct net_loop *loop)
{
    memset(g, 0, sizeof *g);
    g->waiter.loop = loop;
    g->waiter.letter.open = on_letter;
}

static void places_and_the_queue(void **state)
{
    (void)state;
    struct route_settings s = settings();
    struct admission *a = made(&s, 1);
    struct net_loop *loop = NULL;
    struct guest g[7];
    int64_t retry = 0;
    assert_int_equal(net_loop_new(&loop), STATUS_OK);
    letters = 0;
    for (int i = 0; i < 7; i++)
        seat(&g[i], loop);
    static const enum admit wanted[] = {ADMIT_YES, ADMIT_YES, ADMIT_WAIT, ADMIT_WAIT, ADMIT_WAIT, ADMIT_FULL};
    for (int i = 0; i < 6; i++)
        assert_int_equal(ask(a, "t", NOW, &g[i].pass, &g[i].waiter, &retry), wanted[i]);
    assert_true(retry >= 1);
    assert_true(g[0].pass.place && g[0].pass.admitted && !g[2].pass.place && !g[5].pass.place);
    counts(a, 2, 3);
    /* One in the middle goes away; the others keep their order. */
    assert_true(admission_withdraw(a, &g[3].waiter));
    assert_false(admission_withdraw(a, &g[3].waiter));
    counts(a, 2, 2);
    admission_leave(a, &g[0].pass, NOW);
    admission_leave(a, &g[0].pass, NOW); /* giving back twice gives back once */
    assert_true(g[2].pass.place &&
                !g[2].pass.admitted); /* the place changed hands: nobody could come between */
    counts(a, 2, 1);
    assert_false(admission_withdraw(a, &g[2].waiter)); /* too late: its letter is on the way */
    admission_leave(a, &g[1].pass, NOW);
    assert_true(g[4].pass.place);
    counts(a, 2, 0);
    assert_int_equal(ask(a, "t", NOW, &g[6].pass, &g[6].waiter, &retry), ADMIT_WAIT);
    for (int i = 0; i < 50 && (!g[2].called || !g[4].called); i++)
        await_letter(loop);
    assert_true(g[2].called && g[2].called < g[4].called && !g[6].called && !g[3].called);
    /* A place from the queue still needs an upstream. */
    assert_int_equal(admission_pick(a, NOW, &g[2].pass, &retry), ADMIT_YES);
    assert_true(g[2].pass.admitted);
    assert_true(admission_withdraw(a, &g[6].waiter));
    admission_leave(a, &g[2].pass, NOW);
    admission_leave(a, &g[4].pass, NOW);
    counts(a, 0, 0);
    net_loop_free(loop);
    admission_free(a);
    admission_free(NULL);
}

static void nobody_passes_the_queue(void **state)
{
    (void)state;
    struct route_settings s = settings();
    s.concurrency = 1;
    s.queue = 1;
    struct admission *a = made(&s, 1);
    struct net_loop *loop = NULL;
    struct guest first, second, third;
    int64_t retry;
    assert_int_equal(net_loop_new(&loop), STATUS_OK);
    seat(&first, loop);
    seat(&second, loop);
    seat(&third, loop);
    assert_int_equal(ask(a, "t", NOW, &first.pass, &first.waiter, &retry), ADMIT_YES);
    assert_int_equal(ask(a, "t", NOW, &second.pass, &second.waiter, &retry), ADMIT_WAIT);
    admission_leave(a, &first.pass, NOW);
    /* The letter has not been opened yet, and the place is the second's already. */
    assert_int_equal(ask(a, "t", NOW, &third.pass, &third.waiter, &retry), ADMIT_WAIT);
    admission_leave(a, &second.pass, NOW);
    assert_true(third.pass.place);
    admission_leave(a, &third.pass, NOW);
    counts(a, 0, 0);
    for (int i = 0; i < 50 && (!second.called || !third.called); i++)
        await_letter(loop);
    /* Without a queue, a full house says so. */
    s.queue = 0;
    struct admission *bare = made(&s, 1);
    assert_int_equal(ask(bare, "t", NOW, &first.pass, &first.waiter, &retry), ADMIT_YES);
    assert_int_equal(ask(bare, "t", NOW, &second.pass, &second.waiter, &retry), ADMIT_FULL);
    admission_leave(bare, &first.pass, NOW);
    admission_free(bare);
    net_loop_free(loop);
    admission_free(a);
}

/* ---- the rate -------------------------------------------------------------------------------------------------- */

static void a_rate_for_each_tenant(void **state)
{
    (void)state;
    struct route_settings s = settings();
    s.rate = 2;
    struct admission *a = made(&s, 1);
    struct pass pass = {0};
    struct waiter w = {0};
    int64_t retry = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(a, "ann", NOW, &pass, &w, &retry), ADMIT_YES);
        admission_leave(a, &pass, NOW);
    }
    assert_int_equal(ask(a, "ann", NOW, &pass, &w, &retry), ADMIT_RATE);
    assert_int_equal(retry, 500);
    assert_false(pass.place || pass.admitted || w.waiting);
    assert_int_equal(ask(a, "bob", NOW, &pass, &w, &retry), ADMIT_YES); /* not his */
    admission_leave(a, &pass, NOW);
    assert_int_equal(ask(a, "", NOW, &pass, &w, &retry), ADMIT_YES);
    admission_leave(a, &pass, NOW);
    /* Who was counted when it queued is not counted again. */
    assert_int_equal(admission_enter(a, slice_text("ann"), NOW, &pass, &w, false, &retry), ADMIT_YES);
    admission_leave(a, &pass, NOW);
    assert_int_equal(ask(a, "ann", NOW + 500, &pass, &w, &retry), ADMIT_YES);
    admission_leave(a, &pass, NOW + 500);
    assert_int_equal(ask(a, "ann", NOW + 500, &pass, &w, &retry), ADMIT_RATE);
    counts(a, 0, 0);
    admission_free(a);
}

static void tenants_are_forgotten_in_the_order_of_use(void **state)
{
    (void)state;
    struct route_settings s = settings();
    s.rate = 1;
    struct admission *a = made(&s, 1);
    struct pass pass = {0};
    struct waiter w = {0};
    int64_t retry;
    char name[32];
    assert_int_equal(ask(a, "early", NOW, &pass, &w, &retry), ADMIT_YES);
    admission_leave(a, &pass, NOW);
    for (int i = 0; i < ADMISSION_TENANTS_MAX - 1; i++) {
        snprintf(name, sizeof name, "tenant-%d", i);
        assert_int_equal(ask(a, name, NOW, &pass, &w, &retry), ADMIT_YES);
        admission_leave(a, &pass, NOW);
    }
    assert_int_equal(ask(a, "early", NOW, &pass, &w, &retry), ADMIT_RATE); /* all are still known */
    assert_int_equal(ask(a, "tenant-0", NOW, &pass, &w, &retry), ADMIT_RATE);
    for (int i = 0; i < ADMISSION_TENANTS_MAX - 2; i++) {
        snprintf(name, sizeof name, "new-%d", i);
        assert_int_equal(ask(a, name, NOW, &pass, &w, &retry), ADMIT_YES);
        admission_leave(a, &pass, NOW);
    }
    assert_int_equal(ask(a, "early", NOW, &pass, &w, &retry), ADMIT_RATE);
    assert_int_equal(ask(a, "tenant-1", NOW, &pass, &w, &retry), ADMIT_YES); /* forgotten, so full again */
    admission_leave(a, &pass, NOW);
    admission_free(a);
}

/* ---- breakers -------------------------------------------------------------------------------------------------- */

static void open_the_breaker(struct admission *a, int64_t now)
{
    struct waiter w = {0};
    int64_t retry;
    for (int i = 0; i < 4; i++) {
        struct pass pass = {0};
        assert_int_equal(ask(a, "t", now, &pass, &w, &retry), ADMIT_YES);
        bool changed = admission_report(a, &pass, now, BREAKER_BAD, 0);
        assert_int_equal(changed, i == 3);
        assert_false(admission_report(a, &pass, now, BREAKER_BAD, 0)); /* once */
        admission_leave(a, &pass, now);
    }
}

static void an_open_breaker_lets_nothing_through(void **state)
{
    (void)state;
    struct route_settings s = settings();
    struct admission *a = made(&s, 1);
    struct pass pass = {0}, probe = {0};
    struct waiter w = {0};
    int64_t retry = 0;
    struct admission_counts c;
    open_the_breaker(a, NOW);
    admission_counts(a, NOW, &c);
    assert_true(c.breaker_open);
    assert_int_equal(ask(a, "t", NOW + 1, &pass, &w, &retry), ADMIT_BREAKER);
    assert_in_range(retry, 1, OPEN_MS);
    assert_false(pass.place || pass.admitted);
    counts(a, 0, 0);
    /* One probe at a time; and who leaves without a word gives its ticket back. */
    int64_t later = NOW + OPEN_MS + 1;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(a, "t", later, &probe, &w, &retry), ADMIT_YES);
        assert_int_equal(ask(a, "t", later, &pass, &w, &retry), ADMIT_BREAKER);
        admission_leave(a, &probe, later);
    }
    assert_int_equal(ask(a, "t", later, &probe, &w, &retry), ADMIT_YES);
    assert_true(admission_report(a, &probe, later, BREAKER_GOOD, 0));
    admission_leave(a, &probe, later);
    admission_counts(a, later, &c);
    assert_false(c.breaker_open);
    counts(a, 0, 0);
    admission_free(a);
}

static void who_comes_out_of_the_queue_meets_the_breaker_too(void **state)
{
    (void)state;
    struct route_settings s = settings();
    s.concurrency = 1;
    struct admission *a = made(&s, 1);
    struct net_loop *loop = NULL;
    struct guest at_work, waits;
    int64_t retry;
    assert_int_equal(net_loop_new(&loop), STATUS_OK);
    seat(&at_work, loop);
    seat(&waits, loop);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(a, "t", NOW, &at_work.pass, &at_work.waiter, &retry), ADMIT_YES);
        admission_report(a, &at_work.pass, NOW, BREAKER_BAD, 0);
        admission_leave(a, &at_work.pass, NOW);
    }
    assert_int_equal(ask(a, "t", NOW, &at_work.pass, &at_work.waiter, &retry), ADMIT_YES);
    assert_int_equal(ask(a, "t", NOW, &waits.pass, &waits.waiter, &retry), ADMIT_WAIT);
    assert_true(admission_report(a, &at_work.pass, NOW, BREAKER_BAD, 0));
    admission_leave(a, &at_work.pass, NOW);
    await_letter(loop);
    assert_true(waits.called && waits.pass.place);
    assert_int_equal(admission_pick(a, NOW, &waits.pass, &retry), ADMIT_BREAKER);
    assert_true(waits.pass.place && !waits.pass.admitted && retry >= 1);
    admission_leave(a, &waits.pass, NOW);
    counts(a, 0, 0);
    net_loop_free(loop);
    admission_free(a);
}

static void upstreams_in_turn_or_in_order(void **state)
{
    (void)state;
    struct route_settings s = settings();
    struct pass pass = {0};
    struct waiter w = {0};
    int64_t retry;
    struct admission *round = made(&s, 3);
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(ask(round, "t", NOW, &pass, &w, &retry), ADMIT_YES);
        assert_int_equal(pass.origin, i % 3);
        admission_leave(round, &pass, NOW);
    }
    admission_free(round);
    s.upstream_order = UPSTREAM_ORDER_LISTED;
    struct admission *listed = made(&s, 3);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ask(listed, "t", NOW, &pass, &w, &retry), ADMIT_YES);
        assert_int_equal(pass.origin, 0);
        admission_report(listed, &pass, NOW, BREAKER_BAD, 0);
        admission_leave(listed, &pass, NOW);
    }
    /* The first is ill: the second; a failed connection prefers another than the last, and comes round. */
    assert_int_equal(ask(listed, "t", NOW, &pass, &w, &retry), ADMIT_YES);
    assert_int_equal(pass.origin, 1);
    static const size_t next[] = {2, 1, 2, 1};
    for (size_t i = 0; i < 4; i++) {
        admission_report(listed, &pass, NOW, BREAKER_NEUTRAL, 0);
        assert_int_equal(admission_retry(listed, 1, NOW, &pass, true, false, &retry), RETRY_YES);
        assert_int_equal(pass.origin, next[i]);
        admission_retry_done(listed, 1);
    }
    admission_leave(listed, &pass, NOW);
    counts(listed, 0, 0);
    admission_free(listed);
}

/* ---- retries --------------------------------------------------------------------------------------------------- */

static void calls(struct admission *a, int n)
{
    struct pass pass = {0};
    struct waiter w = {0};
    int64_t retry;
    for (int i = 0; i < n; i++) {
        assert_int_equal(ask(a, "t", NOW, &pass, &w, &retry), ADMIT_YES);
        admission_leave(a, &pass, NOW);
    }
}

/* Asks for one retry and gives its ticket back. */
static enum retry_leave retry_once(struct admission *a, uint64_t client, bool costs, bool done)
{
    struct pass pass = {.place = false};
    int64_t retry;
    enum retry_leave leave = admission_retry(a, client, NOW, &pass, false, costs, &retry);
    assert_int_equal(pass.admitted, leave == RETRY_YES);
    admission_leave(a, &pass, NOW);
    if (leave == RETRY_YES && done)
        admission_retry_done(a, client);
    return leave;
}

static void retries_in_flight_for_each_client(void **state)
{
    (void)state;
    struct route_settings s = settings();
    struct admission *a = made(&s, 1);
    uint64_t ann = admission_client(slice_text("ann")), bob = admission_client(slice_text("bob"));
    assert_true(ann != bob && ann == admission_client(slice_text("ann")));
    for (int round = 0; round < 3; round++) {
        assert_int_equal(retry_once(a, ann, false, false), RETRY_YES);
        assert_int_equal(retry_once(a, ann, false, false), RETRY_YES);
        assert_int_equal(retry_once(a, ann, false, false), RETRY_BUDGET);
        assert_int_equal(retry_once(a, bob, false, true), RETRY_YES);
        admission_retry_done(a, ann);
        assert_int_equal(retry_once(a, ann, false, true), RETRY_YES);
        admission_retry_done(a, ann);
    }
    admission_free(a);
}

static void the_budget_is_a_share_of_the_calls(void **state)
{
    (void)state;
    struct route_settings s = settings();
    struct admission *a = made(&s, 1);
    assert_int_equal(retry_once(a, 1, true, true), RETRY_BUDGET); /* no call yet, and no floor */
    calls(a, 10);
    for (int i = 0; i < 2; i++)
        assert_int_equal(retry_once(a, 1, true, true), RETRY_YES);
    assert_int_equal(retry_once(a, 1, true, true), RETRY_BUDGET);
    for (int i = 0; i < 5; i++)
        assert_int_equal(retry_once(a, 1, false, true), RETRY_YES); /* another upstream at once costs none */
    calls(a, 5);
    /* A retry that the client's limit or the breaker refuses takes nothing out of the budget. */
    assert_int_equal(retry_once(a, 2, false, false), RETRY_YES);
    assert_int_equal(retry_once(a, 2, false, false), RETRY_YES);
    assert_int_equal(retry_once(a, 2, true, true), RETRY_BUDGET);
    assert_int_equal(retry_once(a, 1, true, true), RETRY_YES);
    assert_int_equal(retry_once(a, 1, true, true), RETRY_BUDGET);
    admission_retry_done(a, 2);
    admission_retry_done(a, 2);
    counts(a, 0, 0);
    admission_free(a);
}

static void a_breaker_that_refuses_a_retry_costs_no_budget(void **state)
{
    (void)state;
    struct route_settings s = settings();
    struct admission *a = made(&s, 1);
    calls(a, 6);
    open_the_breaker(a, NOW); /* ten calls: two retries */
    for (int i = 0; i < 20; i++)
        assert_int_equal(retry_once(a, 1, true, true), RETRY_BREAKER);
    struct pass pass = {0};
    int64_t retry, later = NOW + OPEN_MS + 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(admission_retry(a, 1, later, &pass, false, true, &retry), RETRY_YES);
        admission_leave(a, &pass, later);
        admission_retry_done(a, 1);
    }
    assert_int_equal(admission_retry(a, 1, later, &pass, false, true, &retry), RETRY_BUDGET);
    admission_free(a);
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

#define THREADS        4
#define CALLS_A_THREAD 1500

struct house {
    struct admission *a;
    pthread_barrier_t all_here;
    int64_t concurrency;
    atomic_int at_work, most, waited, withdrawn, too_late, full, refused, retried;
};

struct worker {
    struct house *house;
    uint64_t seed;
    pthread_t thread;
};

struct errand {
    struct waiter waiter;
    struct pass pass;
    bool called;
};

static void on_errand_letter(struct letter *letter)
{
    struct errand *e = LIST_ENTRY(LIST_ENTRY(letter, struct waiter, letter), struct errand, waiter);
    e->called = true;
    net_loop_stop(e->waiter.loop);
}

static void on_errand_bound(struct net_timer *timer)
{
    (void)timer;
    abort(); /* a place was lost */
}

static void await_errand(struct net_loop *loop, struct errand *e)
{
    struct net_timer bound = {0};
    net_timer_arm(loop, &bound, clock_monotonic_ms() + 6 * WAIT_S * 1000, on_errand_bound);
    while (!e->called)
        net_loop_run(loop);
    net_timer_disarm(loop, &bound);
}

static void at_work(struct house *h, struct errand *e, struct prng *r)
{
    int here = atomic_fetch_add(&h->at_work, 1) + 1, most = atomic_load(&h->most);
    while (here > most && !atomic_compare_exchange_weak(&h->most, &most, here))
        ;
    if (here > h->concurrency)
        abort();
    int64_t retry;
    (void)admission_report(h->a, &e->pass, NOW, BREAKER_GOOD, 0);
    uint64_t client = prng_below(r, 3);
    if (prng_below(r, 3) == 0 &&
        admission_retry(h->a, client, NOW, &e->pass, true, prng_below(r, 2), &retry) == RETRY_YES) {
        atomic_fetch_add(&h->retried, 1);
        if (prng_below(r, 2))
            (void)admission_report(h->a, &e->pass, NOW, BREAKER_NEUTRAL, 0);
        admission_retry_done(h->a, client);
    }
    if (prng_below(r, 4) == 0)
        sched_yield();
    atomic_fetch_sub(&h->at_work, 1);
    admission_leave(h->a, &e->pass, NOW);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    struct house *h = w->house;
    struct net_loop *loop = NULL;
    struct prng r;
    prng_seed(&r, w->seed);
    if (net_loop_new(&loop) != STATUS_OK)
        abort();
    /* And at the end: ThreadSanitizer does not see libuv close a descriptor, and takes its number's next use for a race. */
    pthread_barrier_wait(&h->all_here);
    for (int i = 0; i < CALLS_A_THREAD; i++) {
        struct errand e = {.waiter.loop = loop};
        char tenant[8];
        int64_t retry;
        e.waiter.letter.open = on_errand_letter;
        snprintf(tenant, sizeof tenant, "t%d", (int)prng_below(&r, 50));
        switch (admission_enter(h->a, slice_text(tenant), NOW + i / 10, &e.pass, &e.waiter, true, &retry)) {
        case ADMIT_YES:
            at_work(h, &e, &r);
            break;
        case ADMIT_WAIT:
            if (prng_below(&r, 3) == 0) {
                sched_yield();
                if (admission_withdraw(h->a, &e.waiter)) {
                    atomic_fetch_add(&h->withdrawn, 1);
                    break;
                }
                atomic_fetch_add(&h->too_late, 1);
            }
            await_errand(loop, &e);
            atomic_fetch_add(&h->waited, 1);
            if (admission_pick(h->a, NOW, &e.pass, &retry) == ADMIT_YES)
                at_work(h, &e, &r);
            else
                admission_leave(h->a, &e.pass, NOW);
            break;
        case ADMIT_FULL:
            atomic_fetch_add(&h->full, 1);
            sched_yield();
            break;
        case ADMIT_RATE:
        case ADMIT_BREAKER:
            atomic_fetch_add(&h->refused, 1);
            break;
        }
    }
    pthread_barrier_wait(&h->all_here);
    net_loop_free(loop);
    return NULL;
}

static void threads_never_lose_or_double_a_place(void **state)
{
    (void)state;
    struct route_settings s = settings();
    s.concurrency = 2;
    s.queue = 1;
    s.rate = 1000;
    struct house h = {.a = made(&s, 2), .concurrency = s.concurrency};
    struct worker workers[THREADS];
    assert_int_equal(pthread_barrier_init(&h.all_here, NULL, THREADS), 0);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.house = &h, .seed = 1 + i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&h.all_here);
    print_message("most at work %d, waited %d, withdrawn %d, too late %d, full %d, refused %d, retried %d\n",
                  h.most, h.waited, h.withdrawn, h.too_late, h.full, h.refused, h.retried);
    assert_int_equal(h.at_work, 0);
    assert_in_range(h.most, 1, s.concurrency);
    counts(h.a, 0, 0);
    /* Every ticket came back, and every retry: all is as at the start. */
    struct pass pass[2] = {{0}};
    struct waiter w = {0};
    int64_t retry;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ask(h.a, "new", NOW + 1000, &pass[i], &w, &retry), ADMIT_YES);
    for (uint64_t client = 0; client < 3; client++) {
        for (int i = 0; i < 2; i++)
            assert_int_equal(retry_once(h.a, client, false, false), RETRY_YES);
        assert_int_equal(retry_once(h.a, client, false, false), RETRY_BUDGET);
    }
    for (int i = 0; i < 2; i++)
        admission_leave(h.a, &pass[i], NOW + 1000);
    admission_free(h.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_the_queue),
        cmocka_unit_test(nobody_passes_the_queue),
        cmocka_unit_test(a_rate_for_each_tenant),
        cmocka_unit_test(tenants_are_forgotten_in_the_order_of_use),
        cmocka_unit_test(an_open_breaker_lets_nothing_through),
        cmocka_unit_test(who_comes_out_of_the_queue_meets_the_breaker_too),
        cmocka_unit_test(upstreams_in_turn_or_in_order),
        cmocka_unit_test(retries_in_flight_for_each_client),
        cmocka_unit_test(the_budget_is_a_share_of_the_calls),
        cmocka_unit_test(a_breaker_that_refuses_a_retry_costs_no_budget),
        cmocka_unit_test(threads_never_lose_or_double_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
