/* SPDX-License-Identifier: MIT
 *
 * One handle with a journal in eight threads: each key is sent once, threads of one key get one ending, and what each
 * thread reads is its own. Runs under ThreadSanitizer too.
 */
#include "service.h"

#include <samekey/samekey.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

#define THREADS 8
#define CALLS   12

static struct service service;
static char folder[64];

struct job {
    struct samekey *handle;
    int number;
    bool shared; /* all threads use the same keys */
    int successes;
    char ids[CALLS][SAMEKEY_CALL_ID_SIZE];
};

static void *work(void *context)
{
    struct job *job = context;
    char url[100], key[60];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/orders", service.port);
    for (int i = 0; i < CALLS; i++) {
        struct samekey_options options;
        struct samekey_result *result;
        snprintf(key, sizeof key, "%s-%d-%d", job->shared ? "shared" : "own", job->shared ? 0 : job->number,
                 i);
        samekey_options_init(&options);
        options.url = url;
        options.key = key;
        options.body = "the body";
        options.body_len = 8;
        options.receipt = "{origin}/receipts/{call_id}";
        options.backoff_base_ms = 1;
        if (samekey_call(job->handle, &options, &result) != SAMEKEY_OK)
            return NULL;
        job->successes += samekey_result_state(result) == SAMEKEY_SUCCESS;
        snprintf(job->ids[i], sizeof job->ids[i], "%s", samekey_result_call_id(result));
        samekey_result_free(result);
    }
    return job;
}

static void run_threads(struct job jobs[THREADS], struct samekey *handle, bool shared)
{
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
        jobs[t] = (struct job){.handle = handle, .number = t, .shared = shared};
        assert_int_equal(pthread_create(&threads[t], NULL, work, &jobs[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        void *done;
        pthread_join(threads[t], &done);
        assert_non_null(done);
        assert_int_equal(jobs[t].successes, CALLS);
    }
}

static struct samekey *open_handle(void)
{
    struct samekey *handle;
    struct samekey_config config;
    char journal[100];
    snprintf(journal, sizeof journal, "%s/journal.db", folder);
    samekey_config_init(&config);
    config.journal = journal;
    config.breaker_failures = 0; /* every attempt here is left without an answer */
    assert_int_equal(samekey_open(&handle, &config), SAMEKEY_OK);
    return handle;
}

static void each_key_is_sent_once(void **state)
{
    struct job *jobs = calloc(THREADS, sizeof *jobs);
    struct samekey *handle = open_handle();
    (void)state;
    service_posts(&service);
    run_threads(jobs, handle, false);
    assert_int_equal(service_posts(&service), THREADS * CALLS);
    samekey_close(handle);
    free(jobs);
}

static void threads_of_one_key_get_one_ending(void **state)
{
    struct job *jobs = calloc(THREADS, sizeof *jobs);
    struct samekey *handle = open_handle();
    (void)state;
    service_posts(&service);
    run_threads(jobs, handle, true);
    assert_int_equal(service_posts(&service), CALLS);
    for (int t = 1; t < THREADS; t++) {
        for (int i = 0; i < CALLS; i++)
            assert_string_equal(jobs[t].ids[i], jobs[0].ids[i]);
    }
    samekey_close(handle);
    free(jobs);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/samekey-threads-XXXXXX");
    return mkdtemp(folder) ? service_start(&service) : -1;
}

static int tear_down(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    service_stop(&service);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_is_sent_once),
        cmocka_unit_test(threads_of_one_key_get_one_ending),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
