/* SPDX-License-Identifier: MIT
 *
 * callIds at full speed: 8 threads in each of 4 processes with one node's name, every thread by a handle of its own. No
 * two are equal. SAMEKEY_IDS says how many in all (200,000; the long form, 10 million, is scripts/soak.d/50-caller).
 */
#include "caller/ids.h"

#include <samekey/samekey.h>

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PROCESSES 4
#define THREADS   8

/* An id without prefix and node: 26 bytes, as two numbers. */
struct middle {
    uint64_t ms, rest;
};

struct job {
    struct middle *out;
    size_t count;
};

static void *make(void *context)
{
    struct job *job = context;
    struct samekey *handle;
    struct samekey_config config;
    char id[SAMEKEY_CALL_ID_SIZE];
    samekey_config_init(&config);
    config.node = "node07";
    config.prefix = "ord";
    if (samekey_open(&handle, &config) != SAMEKEY_OK)
        return NULL;
    for (size_t i = 0; i < job->count; i++) {
        int used = 0;
        if (samekey_make_id(handle, NULL, id) != SAMEKEY_OK ||
            sscanf(id, "ord-%13" SCNu64 "-%12" SCNx64 "-node07%n", &job->out[i].ms, &job->out[i].rest,
                   &used) != 2 ||
            id[used] != 0 || used != 37)
            return NULL;
    }
    samekey_close(handle);
    return job;
}

static void work(struct middle *out, size_t count)
{
    pthread_t threads[THREADS];
    struct job jobs[THREADS];
    for (int t = 0; t < THREADS; t++) {
        jobs[t] = (struct job){out + (size_t)t * count, count};
        if (pthread_create(&threads[t], NULL, make, &jobs[t]) != 0)
            _exit(1);
    }
    for (int t = 0; t < THREADS; t++) {
        void *done;
        pthread_join(threads[t], &done);
        if (!done)
            _exit(2);
    }
}

static int compare(const void *a, const void *b)
{
    const struct middle *x = a, *y = b;
    return x->ms != y->ms ? (x->ms < y->ms ? -1 : 1) : x->rest != y->rest ? (x->rest < y->rest ? -1 : 1) : 0;
}

static void no_two_are_equal(void **state)
{
    const char *wanted = getenv("SAMEKEY_IDS");
    size_t each = (wanted ? (size_t)strtoull(wanted, NULL, 10) : 200000) / (PROCESSES * THREADS);
    size_t count = each * PROCESSES * THREADS;
    struct timespec begin, end;
    char id[SAMEKEY_CALL_ID_SIZE];
    struct samekey *parent;
    (void)state;
    struct middle *all =
        mmap(NULL, count * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    /* The parent has made ids before it forks: its children must not go on from its state. */
    assert_int_equal(samekey_open(&parent, NULL), SAMEKEY_OK);
    assert_int_equal(samekey_make_id(parent, NULL, id), SAMEKEY_OK);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pid_t children[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p] == 0) {
            work(all + (size_t)p * each * THREADS, each);
            _exit(0);
        }
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        waitpid(children[p], &status, 0);
        assert_int_equal(status, 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    qsort(all, count, sizeof *all, compare);
    for (size_t i = 1; i < count; i++)
        assert_true(compare(&all[i - 1], &all[i]) != 0);
    print_message("%zu callIds, all different, %.0f a second\n", count, (double)count / seconds);
    munmap(all, count * sizeof *all);
    samekey_close(parent);
}

static void names_that_no_call_id_may_hold(void **state)
{
    char id[CALLID_BYTES_MAX + 1], long_name[120];
    (void)state;
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    static const char *const bad[] = {"", "a b", "a/b", "\xc3\xa4", "ord-1710000000000-a3f91c07b2e4-x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ids_make(slice_text(bad[i]), slice_text("n"), 1, id), STATUS_INVALID);
    assert_int_equal(ids_make(slice_text("p"), slice_text(""), 1, id), STATUS_INVALID);
    assert_int_equal(ids_make(slice_text("p"), slice_text(long_name), 1, id), STATUS_INVALID);
    assert_int_equal(ids_make(slice_text("p"), slice_text("n-1"), 1710000000000, id), STATUS_OK);
    int64_t ms;
    assert_int_equal(callid_time(slice_text(id), &ms), STATUS_OK);
    char host[IDS_NODE_BYTES_MAX + 1];
    ids_host_node(host);
    assert_int_equal(callid_check(slice_text(host)), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_are_equal),
        cmocka_unit_test(names_that_no_call_id_may_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
