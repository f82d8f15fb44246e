/* SPDX-License-Identifier: MIT
 *
 * The store's threads under load from many others: every operation answered once, one winner for a key, watches
 * answered with the ending or given back by a cancel, nothing lost at the stop.
 */
#include "core/digest.h"
#include "scratch.h"
#include "store/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

#include <cmocka.h>

#define PRODUCERS 8
#define CALLS     150 /* of each producer */
#define WAIT_S    60  /* a bound, never a wait */

static struct store *store;
static struct worker *worker;

/* An operation whose maker waits for it. */
struct asked {
    struct store_op op;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int answers;
    atomic_int *order; /* counts answers over several operations */
    int place;
};

static void on_answered(struct store_op *op)
{
    struct asked *a = op->user;
    pthread_mutex_lock(&a->lock);
    a->answers++;
    if (a->order)
        a->place = atomic_fetch_add(a->order, 1);
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void asked_init(struct asked *a)
{
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->op.answered = on_answered;
    a->op.user = a;
}

static void asked_fini(struct asked *a)
{
    store_op_fini(&a->op);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
}

static bool await(struct asked *a)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&a->lock);
    int rc = 0;
    while (!a->answers && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&a->changed, &a->lock, &until);
    bool answered = a->answers == 1;
    a->answers = 0;
    pthread_mutex_unlock(&a->lock);
    return answered;
}

static bool submit_and_wait(struct asked *a)
{
    return worker_submit(worker, &a->op) == STATUS_OK && await(a);
}

/* Digests that only have to differ. */
static void digest_of(struct digest *digest, const char *kind, const char *text)
{
    uint64_t h[2] = {14695981039346656037u, 88172645463325252u};
    for (const char *p = kind; *p; p++)
        h[0] = (h[0] ^ (unsigned char)*p) * 1099511628211u;
    for (const char *p = text; *p; p++)
        h[0] = (h[0] ^ (unsigned char)*p) * 1099511628211u,
        h[1] = (h[1] + (unsigned char)*p) * 6364136223846793005u;
    memcpy(digest->bytes, h, sizeof h);
}

static void make_claim(struct store_op *op, const char *call_id, const char *key)
{
    memset(&op->row, 0, sizeof op->row);
    op->kind = STORE_CLAIM;
    op->row.tenant = slice_text("t");
    op->row.scope = op->row.route = slice_text("orders");
    op->row.call_id = slice_text(call_id);
    op->row.key = slice_text(key);
    op->row.has_key = true;
    digest_of(&op->row.call_digest, "call", call_id);
    digest_of(&op->row.operation_digest, "operation", key);
    op->row.owner = slice_text("me");
    op->row.state = STATE_PROCESSING;
    op->row.fence = 1;
}

static void make_end(struct store_op *op, int64_t id, const char *body)
{
    memset(&op->row, 0, sizeof op->row);
    op->kind = STORE_END;
    op->id = id;
    op->fence = 1;
    op->from_states = 1u << STATE_PROCESSING;
    op->row.state = STATE_SUCCESS;
    op->row.final = op->row.has_result = op->row.body_kept = true;
    op->row.result_status = 200;
    op->row.result_body = slice_text(body);
}

static void start(size_t queue_max, size_t watches_max)
{
    char url[200];
    struct buffer error = {0};
    scratch_remove("worker.db");
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("worker.db"));
    struct store_settings settings = {.url = url, .owner = "me", .tail_entries = 16};
    assert_int_equal(store_open(&store, &settings, &error), STATUS_OK);
    struct worker_settings threads = {
        .queue_max = queue_max, .watches_max = watches_max, .batch_max = 64, .readers = 2};
    assert_int_equal(worker_start(&worker, store, &threads, &error), STATUS_OK);
    buffer_fini(&error);
}

static int stop(void **state)
{
    (void)state;
    worker_stop(worker);
    worker = NULL;
    store_close(store);
    store = NULL;
    scratch_remove("worker.db");
    return 0;
}

static int64_t claim_now(const char *call_id, const char *key)
{
    struct asked a;
    asked_init(&a);
    make_claim(&a.op, call_id, key);
    assert_true(submit_and_wait(&a));
    assert_true(a.op.done);
    int64_t id = a.op.rows.call.id;
    asked_fini(&a);
    return id;
}

static void end_now(int64_t id, const char *body)
{
    struct asked a;
    asked_init(&a);
    make_end(&a.op, id, body);
    assert_true(submit_and_wait(&a));
    assert_true(a.op.done);
    asked_fini(&a);
}

/* ---- many producers ---- */

static atomic_int won[CALLS], wrong;

/* Everybody claims the same keys; whoever wins one ends it, the others watch the winner's row. */
static void *produce(void *argument)
{
    int me = (int)(intptr_t)argument;
    struct asked a;
    asked_init(&a);
    for (int i = 0; i < CALLS; i++) {
        char call_id[32], key[32], body[32];
        int n = (i + me * 7) % CALLS;
        snprintf(call_id, sizeof call_id, "call-%d-%d", me, n);
        snprintf(key, sizeof key, "key-%d", n);
        snprintf(body, sizeof body, "by %d", me);
        make_claim(&a.op, call_id, key);
        if (!submit_and_wait(&a) || a.op.status != STATUS_OK) {
            atomic_fetch_add(&wrong, 1);
            break;
        }
        if (a.op.done) {
            atomic_fetch_add(&won[n], 1);
            make_end(&a.op, a.op.rows.call.id, body);
            if (!submit_and_wait(&a) || !a.op.done)
                atomic_fetch_add(&wrong, 1);
            continue;
        }
        a.op.id = a.op.rows.holder.id;
        a.op.kind = STORE_WATCH;
        if (!submit_and_wait(&a) || a.op.status != STATUS_OK || a.op.rows.call.state != STATE_SUCCESS ||
            !a.op.rows.call.body_kept || a.op.rows.call.result_body.len < 4)
            atomic_fetch_add(&wrong, 1);
        a.op.kind = STORE_LOOKUP;
        digest_of(&a.op.row.call_digest, "call", call_id);
        if (!submit_and_wait(&a) || a.op.rows.call.id)
            atomic_fetch_add(&wrong, 1);
    }
    asked_fini(&a);
    return NULL;
}

static void one_winner_for_each_key_among_many_threads(void **state)
{
    (void)state;
    pthread_t threads[PRODUCERS];
    start(1000, 1000);
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, produce, (void *)(intptr_t)i), 0);
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(atomic_load(&won[i]), 1);
    assert_int_equal(worker_queued(worker), 0);
}

/* ---- watches ---- */

#define WATCHERS 40

static void all_watchers_of_a_row_get_its_ending_in_order(void **state)
{
    (void)state;
    static struct asked watch[WATCHERS];
    atomic_int order = 0;
    start(100, WATCHERS);
    int64_t id = claim_now("A", "k1"), other = claim_now("B", "k2");
    for (int i = 0; i < WATCHERS; i++) {
        asked_init(&watch[i]);
        watch[i].order = &order;
        watch[i].op.kind = STORE_WATCH;
        watch[i].op.id = id;
        assert_int_equal(worker_submit(worker, &watch[i].op), STATUS_OK);
    }
    struct asked more;
    asked_init(&more);
    more.op.kind = STORE_WATCH;
    more.op.id = id;
    assert_int_equal(worker_submit(worker, &more.op), STATUS_FULL);
    end_now(other, "other");
    assert_int_equal(watch[0].answers, 0); /* another row's end wakes nobody */
    end_now(id, "the answer");
    for (int i = 0; i < WATCHERS; i++) {
        assert_true(await(&watch[i]));
        assert_int_equal(watch[i].place, i);
        assert_int_equal(watch[i].op.status, STATUS_OK);
        assert_int_equal(watch[i].op.rows.call.state, STATE_SUCCESS);
        assert_int_equal(watch[i].op.rows.call.result_body.len, strlen("the answer"));
        assert_memory_equal(watch[i].op.rows.call.result_body.data, "the answer", strlen("the answer"));
        assert_int_equal(watch[i].op.rows.holder.id, id);
        asked_fini(&watch[i]);
    }
    assert_true(submit_and_wait(&more)); /* an ended row is answered at once */
    assert_int_equal(more.op.rows.call.state, STATE_SUCCESS);
    more.op.id = id + 1000;
    assert_true(submit_and_wait(&more));
    assert_int_equal(more.op.status, STATUS_NOT_FOUND);
    asked_fini(&more);
}

static void watchers_get_an_answer_that_is_not_stored(void **state)
{
    (void)state;
    struct asked watch, op;
    start(100, 10);
    int64_t id = claim_now("A", "k1");
    asked_init(&watch);
    watch.op.kind = STORE_WATCH;
    watch.op.id = id;
    assert_int_equal(worker_submit(worker, &watch.op), STATUS_OK);
    asked_init(&op);
    make_end(&op.op, id, "429 come later");
    op.op.row.state = STATE_FAILED;
    op.op.row.final = false;
    op.op.row.result_status = 429;
    op.op.answer_only = true;
    assert_true(submit_and_wait(&op));
    assert_true(await(&watch));
    assert_int_equal(watch.op.rows.call.result_status, 429);
    assert_memory_equal(watch.op.rows.call.result_body.data, "429 come later", 14);
    op.op.kind = STORE_READ;
    op.op.id = id;
    assert_true(submit_and_wait(&op));
    assert_false(op.op.rows.call.has_result);
    asked_fini(&op);
    asked_fini(&watch);
}

static void a_cancelled_watch_comes_back_once(void **state)
{
    (void)state;
    struct asked watch;
    start(100, 10);
    int64_t id = claim_now("A", "k1");
    asked_init(&watch);
    for (int round = 0; round < 200; round++) {
        watch.op.kind = STORE_WATCH;
        watch.op.id = id;
        assert_int_equal(worker_submit(worker, &watch.op), STATUS_OK);
        if (round % 2) { /* every other one stands before it is cancelled */
            char name[32];
            snprintf(name, sizeof name, "X-%d", round);
            (void)claim_now(name, name);
        }
        worker_cancel(worker, &watch.op);
        assert_true(await(&watch));
        assert_int_equal(watch.op.status, STATUS_NOT_FOUND);
    }
    asked_fini(&watch);
}

/* Cancels race with endings: whichever comes first, the answer comes once. */
static void a_cancel_and_an_ending_at_once_give_one_answer(void **state)
{
    (void)state;
    struct asked watch, ending;
    int ended = 0, given_back = 0;
    start(100, 10);
    for (int round = 0; round < 150; round++) {
        char call_id[32];
        snprintf(call_id, sizeof call_id, "race-%d", round);
        int64_t id = claim_now(call_id, call_id);
        asked_init(&watch);
        asked_init(&ending);
        watch.op.kind = STORE_WATCH;
        watch.op.id = id;
        make_end(&ending.op, id, "x");
        assert_int_equal(worker_submit(worker, &watch.op), STATUS_OK);
        assert_int_equal(worker_submit(worker, &ending.op), STATUS_OK);
        for (volatile int spin = 0; spin < round * 2000; spin++)
            ;
        worker_cancel(worker, &watch.op);
        assert_true(await(&watch));
        assert_true(await(&ending));
        if (watch.op.status == STATUS_OK)
            ended++, assert_int_equal(watch.op.rows.call.state, STATE_SUCCESS);
        else
            given_back++, assert_int_equal(watch.op.status, STATUS_NOT_FOUND);
        asked_fini(&watch);
        asked_fini(&ending);
    }
    assert_int_equal(ended + given_back, 150);
}

/* ---- bounds and the stop ---- */

static void a_full_queue_refuses_at_once_and_the_stop_answers_all(void **state)
{
    (void)state;
    static struct asked asked[200];
    static char names[200][16];
    struct asked watch;
    int taken = 0, refused = 0;
    start(20, 10);
    int64_t id = claim_now("A", "k1");
    asked_init(&watch);
    watch.op.kind = STORE_WATCH;
    watch.op.id = id;
    assert_int_equal(worker_submit(worker, &watch.op), STATUS_OK);
    for (int i = 0; i < 200; i++) {
        snprintf(names[i], sizeof names[i], "q-%d", i);
        asked_init(&asked[i]);
        make_claim(&asked[i].op, names[i], names[i]);
        enum status status = worker_submit(worker, &asked[i].op);
        asked[i].place = status == STATUS_OK;
        taken += status == STATUS_OK;
        refused += status == STATUS_FULL;
    }
    assert_int_equal(taken + refused, 200);
    assert_true(taken >= 20);
    assert_true(refused > 0);
    worker_stop(worker);
    worker = NULL;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(asked[i].answers, asked[i].place);
        if (asked[i].place)
            assert_true(asked[i].op.done);
        asked_fini(&asked[i]);
    }
    assert_int_equal(watch.answers, 1);
    assert_int_equal(watch.op.status, STATUS_NOT_FOUND);
    asked_fini(&watch);
    struct store_stats stats;
    store_stats(store, &stats);
    assert_int_equal(stats.rows, taken + 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_winner_for_each_key_among_many_threads, stop),
        cmocka_unit_test_teardown(all_watchers_of_a_row_get_its_ending_in_order, stop),
        cmocka_unit_test_teardown(watchers_get_an_answer_that_is_not_stored, stop),
        cmocka_unit_test_teardown(a_cancelled_watch_comes_back_once, stop),
        cmocka_unit_test_teardown(a_cancel_and_an_ending_at_once_give_one_answer, stop),
        cmocka_unit_test_teardown(a_full_queue_refuses_at_once_and_the_stop_answers_all, stop),
    };
    scratch_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clean();
    return failed;
}
