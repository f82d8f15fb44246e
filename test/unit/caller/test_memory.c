/* SPDX-License-Identifier: MIT
 *
 * Every n-th allocation fails, for a whole call with journal, doubtful attempt and receipt: the library's own, jansson's
 * and libcurl's. Each time: a defined status, nothing lost, and "nothing was sent" only where nothing was.
 */
#include "service.h"

#include <samekey/samekey.h>

#include <curl/curl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
/* ---- allocations that fail ---------------------------------------------------------------------------------- */

static long fail_at;   /* the n-th from now, 0: none */
static bool fail_ever; /* and all after it */
static long made;      /* since then */
static bool counting;
static pid_t
    watched; /* the thread whose allocations count is the main one; name look-ups have threads of their own */

#define LIVE_MAX 65536
static void *live[LIVE_MAX];
static long live_count;

static bool denied(void)
{
    if (!counting || gettid() != watched)
        return false;
    made++;
    return fail_at && (made == fail_at || (fail_ever && made > fail_at));
}

static void remember(void *p)
{
    size_t at = ((size_t)p >> 4) % LIVE_MAX;
    if (!p || !counting || gettid() != watched)
        return;
    while (live[at] && live[at] != (void *)-1)
        at = (at + 1) % LIVE_MAX;
    live[at] = p;
    live_count++;
}

static void forget(void *p)
{
    size_t at = ((size_t)p >> 4) % LIVE_MAX;
    if (!p || live_count == 0)
        return;
    for (size_t i = 0; i < LIVE_MAX && live[at]; i++, at = (at + 1) % LIVE_MAX) {
        if (live[at] == p) {
            live[at] = (void *)-1;
            live_count--;
            return;
        }
    }
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);
extern char __executable_start, etext;

/* Only what is compiled into this program: the library, and the test, which allocates nothing while it counts. */
static bool ours(const void *from)
{
    return (const char *)from >= &__executable_start && (const char *)from < &etext;
}

static void *take(size_t size, bool mine)
{
    if (mine && denied())
        return NULL;
    void *p = __libc_malloc(size);
    if (mine)
        remember(p);
    return p;
}

static void *take_zero(size_t count, size_t size, bool mine)
{
    if (mine && denied())
        return NULL;
    void *p = __libc_calloc(count, size);
    if (mine)
        remember(p);
    return p;
}

static void *take_more(void *old, size_t size, bool mine)
{
    if (mine && denied())
        return NULL;
    void *p = __libc_realloc(old, size);
    if (mine && p) {
        forget(old);
        remember(p);
    }
    return p;
}

void *malloc(size_t size)
{
    return take(size, ours(__builtin_return_address(0)));
}

void *calloc(size_t count, size_t size)
{
    return take_zero(count, size, ours(__builtin_return_address(0)));
}

void *realloc(void *old, size_t size)
{
    return take_more(old, size, ours(__builtin_return_address(0)));
}

void free(void *p)
{
    forget(p);
    __libc_free(p);
}

/* jansson's and libcurl's count as the library's. */
static void *other_malloc(size_t size)
{
    return take(size, true);
}

static void *other_calloc(size_t count, size_t size)
{
    return take_zero(count, size, true);
}

static void *other_realloc(void *p, size_t size)
{
    return take_more(p, size, true);
}

static char *other_strdup(const char *text)
{
    char *copy = take(strlen(text) + 1, true);
    return copy ? strcpy(copy, text) : NULL;
}

static void other_free(void *p)
{
    free(p);
}

/* ---- the test ----------------------------------------------------------------------------------------------- */

static struct service service;
static char folder[64];

/* One life of a handle with one call. Returns samekey_open()'s or samekey_call()'s status; *end is the call's state. */
static int one_life(int number, int *end)
{
    static struct samekey_header headers[] = {{"Content-Type", "text/plain"}, {"Authorization", "Bearer t"}};
    char journal[100], url[100], key[40];
    struct samekey_config config;
    struct samekey_options options;
    struct samekey *handle = NULL;
    struct samekey_result *result = NULL;
    struct samekey_error error = {0};
    snprintf(journal, sizeof journal, "%s/journal.db", folder);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/orders?x=1", service.port);
    snprintf(key, sizeof key, "k-%d", number);
    samekey_config_init(&config);
    config.journal = journal;
    config.breaker_failures = 0;
    config.error = &error;
    *end = 0;
    int status = samekey_open(&handle, &config);
    if (status == SAMEKEY_OK) {
        samekey_options_init(&options);
        options.url = url;
        options.key = key;
        options.headers = headers;
        options.header_count = 2;
        options.body = "the body";
        options.body_len = 8;
        options.business_ref = "order-1";
        options.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        options.receipt = "{origin}/receipts/{call_id}";
        options.backoff_base_ms = 1;
        options.backoff_cap_ms = 1;
        options.resend_after_ms = 60000; /* nothing is sent twice here */
        options.deadline_ms = 600;
        options.attempt_timeout_ms = 300;
        options.error = &error;
        status = samekey_call(handle, &options, &result);
        if (status == SAMEKEY_OK) {
            *end = samekey_result_state(result);
            samekey_result_json(result);
            samekey_result_header(result, "x-a", 0);
        }
        samekey_result_free(result);
    }
    samekey_close(handle);
    if (status != SAMEKEY_OK)
        assert_true(error.text[0] != 0);
    return status;
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    int number = 0, refused = 0, doubtful = 0, end;
    json_set_alloc_funcs(other_malloc, other_free);
    assert_int_equal(curl_global_init_mem(CURL_GLOBAL_DEFAULT, other_malloc, other_free, other_realloc,
                                          other_strdup, other_calloc),
                     CURLE_OK);
    watched = gettid();
    assert_int_equal(one_life(number++, &end), SAMEKEY_OK); /* makes what is made once */
    assert_int_equal(end, SAMEKEY_SUCCESS);
    assert_int_equal(service_posts(&service), 1);
    for (int ever = 0; ever < 2; ever++) {
        for (long n = 1;; n++) {
            made = 0;
            fail_at = n;
            fail_ever = ever;
            live_count = 0;
            memset(live, 0, sizeof live);
            counting = true;
            int status = one_life(number++, &end);
            counting = false;
            fail_at = 0;
            int posts = service_posts(&service);
            if (live_count != 0)
                fail_msg("allocation %ld%s: %ld not freed", n, ever ? " and all after" : "", live_count);
            if (status != SAMEKEY_OK && posts != 0)
                fail_msg("allocation %ld: status %d says that nothing was sent, and %d were", n, status,
                         posts);
            assert_in_range(posts, 0, 1);
            if (status == SAMEKEY_OK && end == SAMEKEY_SUCCESS)
                assert_int_equal(posts, 1);
            if (end == SAMEKEY_FAILED)
                assert_int_equal(posts, 0);
            refused += status != SAMEKEY_OK;
            doubtful += end == SAMEKEY_UNKNOWN;
            if (made < n)
                break;
            assert_true(n < 20000);
            if (ever && n > 400)
                n += 7; /* the tail again and again */
        }
    }
    print_message("%d calls: %d refused, %d left in doubt\n", number, refused, doubtful);
    assert_true(refused > 50 && doubtful > 0);
    curl_global_cleanup();
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/samekey-memory-XXXXXX");
    return mkdtemp(folder) ? service_start(&service) : -1;
}

static int remove_folder(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    service_stop(&service);
    return system(command);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else
int main(void)
{
    return 0; /* a sanitizer has an allocator of its own; the plain build runs this */
}
#endif
