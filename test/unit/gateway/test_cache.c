/* SPDX-License-Identifier: MIT
 *
 * The cache of ended receipts: what it keeps, for how long, and that what comes out is what went in, whatever happened to
 * the memory it came from.
 */
#include "../base/check.h"

#include "base/prng.h"
#include "gateway/cache.h"

#include <stdio.h>
#include <stdlib.h>

#define NOW_MS  INT64_C(1772366400000) /* the store's clock */
#define MONO_MS INT64_C(5000)          /* the monotonic one */
#define LARGE   ((size_t)1 << 20)
#define FOREVER INT64_MAX

static struct digest digest_of(uint32_t n)
{
    struct digest d = {{0}};
    memcpy(d.bytes, &n, sizeof n);
    return d;
}

static struct rows ended(uint32_t n, struct slice text)
{
    struct rows rows = {.now_ms = NOW_MS, .covers_since_ms = 17};
    rows.call = (struct call_row){.id = n + 1,
                                  .call_digest = digest_of(n),
                                  .state = STATE_SUCCESS,
                                  .final = true,
                                  .has_result = true,
                                  .body_kept = true,
                                  .result_status = 201,
                                  .result_expires_ms = FOREVER};
    struct call_row *r = &rows.call;
    r->tenant = r->route = r->scope = r->call_id = r->key = r->business_ref = r->trace_id = r->key_spelling =
        text;
    r->fingerprint_rules = r->attempts = r->result_headers = r->result_body = r->original_call_id =
        r->reverses = text;
    r->owner = text;
    rows.holder = rows.call;
    rows.suspect = rows.call;
    return rows;
}

static bool has(struct cache *c, uint32_t n, int64_t now)
{
    struct rows rows;
    struct digest d = digest_of(n);
    return cache_get(c, &d, now, &rows);
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    struct cache *c = NULL;
    struct digest one = digest_of(1);
    struct rows got = {.now_ms = -1};
    assert_int_equal(cache_new(&c, LARGE), STATUS_OK);
    assert_false(cache_get(c, &one, MONO_MS, &got));
    assert_int_equal(got.now_ms, -1); /* untouched */
    char *memory = strdup("text of the store");
    struct rows rows = ended(1, slice_text(memory));
    cache_put(c, &rows, MONO_MS);
    memset(memory, 'x', strlen(memory));
    free(memory);
    assert_true(cache_get(c, &one, MONO_MS, &got));
    const struct call_row *r = &got.call;
    const struct slice texts[] = {r->tenant,
                                  r->route,
                                  r->scope,
                                  r->call_id,
                                  r->key,
                                  r->trace_id,
                                  r->key_spelling,
                                  r->attempts,
                                  r->result_headers,
                                  r->result_body,
                                  r->reverses,
                                  r->business_ref,
                                  r->original_call_id,
                                  r->fingerprint_rules};
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_true(slice_is(texts[i], "text of the store"));
    assert_int_equal(r->owner.len, 0);
    assert_int_equal(r->id, 2);
    assert_int_equal(r->result_status, 201);
    assert_int_equal(got.covers_since_ms, 17);
    /* Who holds the key, and who is suspected, changes: that is the store's to say. */
    assert_int_equal(got.holder.id, 0);
    assert_int_equal(got.suspect.id, 0);
    cache_free(c);
    cache_free(NULL);
}

static void only_endings_for_good_are_kept(void **state)
{
    (void)state;
    struct cache *c = NULL;
    assert_int_equal(cache_new(&c, LARGE), STATUS_OK);
    static const enum call_state states[] = {STATE_NOT_RECEIVED, STATE_RECEIVED, STATE_PROCESSING,
                                             STATE_SUCCESS,      STATE_FAILED,   STATE_UNKNOWN};
    for (uint32_t i = 0; i < COUNT(states); i++) {
        for (uint32_t final = 0; final < 2; final++) {
            struct rows rows = ended(10 * i + final, slice_text("t"));
            rows.call.state = states[i];
            rows.call.final = final;
            cache_put(c, &rows, MONO_MS);
            assert_int_equal(has(c, 10 * i + final, MONO_MS),
                             final && (states[i] == STATE_SUCCESS || states[i] == STATE_FAILED));
        }
    }
    struct rows none = ended(900, slice_text("t"));
    none.call.id = 0;
    cache_put(c, &none, MONO_MS);
    assert_false(has(c, 900, MONO_MS));
    cache_free(c);
}

static void nothing_is_served_past_its_time(void **state)
{
    (void)state;
    struct cache *c = NULL;
    assert_int_equal(cache_new(&c, LARGE), STATUS_OK);
    struct rows rows = ended(1, slice_text("t"));
    cache_put(c, &rows, MONO_MS);
    assert_true(has(c, 1, MONO_MS + 59999));
    assert_false(has(c, 1, MONO_MS + 60000)); /* CONTRACT section 5: at most 60 s */
    assert_false(has(c, 1, MONO_MS));         /* and it is gone */
    /* A hit does not make it younger. */
    cache_put(c, &rows, MONO_MS);
    for (int64_t t = 0; t < 60000; t += 10000)
        assert_true(has(c, 1, MONO_MS + t));
    assert_false(has(c, 1, MONO_MS + 60000));
    /* A result that expires sooner goes sooner. */
    rows.call.result_expires_ms = NOW_MS + 700;
    cache_put(c, &rows, MONO_MS);
    assert_true(has(c, 1, MONO_MS + 699));
    assert_false(has(c, 1, MONO_MS + 700));
    rows.call.result_expires_ms = NOW_MS;
    cache_put(c, &rows, MONO_MS);
    assert_false(has(c, 1, MONO_MS));
    rows.call.result_expires_ms = 0;
    cache_put(c, &rows, MONO_MS);
    assert_false(has(c, 1, MONO_MS));
    cache_free(c);
}

static void newer_rows_take_the_place_of_older_ones(void **state)
{
    (void)state;
    struct cache *c = NULL;
    struct rows got;
    struct digest one = digest_of(1);
    assert_int_equal(cache_new(&c, LARGE), STATUS_OK);
    struct rows rows = ended(1, slice_text("first"));
    cache_put(c, &rows, MONO_MS);
    rows = ended(1, slice_text("second"));
    cache_put(c, &rows, MONO_MS);
    assert_true(cache_get(c, &one, MONO_MS, &got));
    assert_true(slice_is(got.call.result_body, "second"));
    /* A reversal that has begun is told by the store, and the older copy does not stand in its way. */
    rows.call.reversed_by = slice_text("undo-1");
    cache_put(c, &rows, MONO_MS);
    assert_false(has(c, 1, MONO_MS));
    rows.call.reversed_by = (struct slice){0};
    cache_put(c, &rows, MONO_MS);
    cache_drop(c, &one);
    assert_false(has(c, 1, MONO_MS));
    cache_drop(c, &one);
    cache_free(c);
}

static void the_longest_unused_goes_first(void **state)
{
    (void)state;
    struct cache *c = NULL;
    static char body[2000];
    memset(body, 'b', sizeof body);
    assert_int_equal(cache_new(&c, LARGE), STATUS_OK);
    struct rows keep = ended(0, slice_text("keep me"));
    cache_put(c, &keep, MONO_MS);
    for (uint32_t n = 1; n < 2000; n++) {
        struct rows rows = ended(n, slice_of(body, sizeof body));
        cache_put(c, &rows, MONO_MS);
        assert_true(has(c, n, MONO_MS));
        assert_true(has(c, 0, MONO_MS)); /* used all the time */
    }
    uint32_t held = 0;
    for (uint32_t n = 0; n < 2000; n++)
        held += has(c, n, MONO_MS);
    assert_in_range(held, 20, LARGE / (14 * sizeof body) + 1);
    assert_false(has(c, 1, MONO_MS));
    assert_true(has(c, 1999, MONO_MS));
    /* One large answer does not push everybody else out. */
    char *huge = calloc(1, LARGE);
    struct rows rows = ended(5000, slice_text("t"));
    rows.call.result_body = slice_of(huge, LARGE / 2);
    cache_put(c, &rows, MONO_MS);
    assert_false(has(c, 5000, MONO_MS));
    assert_true(has(c, 1999, MONO_MS));
    free(huge);
    cache_free(c);
    assert_int_equal(cache_new(&c, 0), STATUS_OK);
    rows = ended(1, slice_text("t"));
    cache_put(c, &rows, MONO_MS);
    assert_false(has(c, 1, MONO_MS));
    cache_free(c);
}

/* Against a model that remembers everything: the cache may forget, and must never serve what it should not. */
static void it_may_forget_and_never_lies(void **state)
{
    (void)state;
    enum { CALLS = 300 };
    static int64_t until[CALLS], version[CALLS];
    struct prng r;
    struct cache *c = NULL;
    int64_t now = MONO_MS, hits = 0;
    prng_seed(&r, 11);
    assert_int_equal(cache_new(&c, 400000), STATUS_OK);
    for (int64_t step = 1; step < 200000; step++) {
        uint32_t n = (uint32_t)prng_below(&r, CALLS);
        struct digest d = digest_of(n);
        now += (int64_t)prng_below(&r, 20);
        switch (prng_below(&r, 8)) {
        case 0: {
            char text[32];
            snprintf(text, sizeof text, "%lld", (long long)step);
            struct rows rows = ended(n, slice_text(text));
            int64_t life = (int64_t)prng_below(&r, 100000);
            rows.call.result_expires_ms = NOW_MS + life;
            cache_put(c, &rows, now);
            until[n] = now + (life < 60000 ? life : 60000);
            version[n] = step;
            break;
        }
        case 1:
            cache_drop(c, &d);
            version[n] = 0;
            break;
        default: {
            struct rows rows;
            if (!cache_get(c, &d, now, &rows))
                break;
            hits++;
            assert_true(version[n] != 0 && now < until[n]);
            assert_int_equal(rows.call.id, n + 1);
            char text[32];
            snprintf(text, sizeof text, "%lld", (long long)version[n]);
            assert_true(slice_is(rows.call.result_body, text));
        }
        }
    }
    assert_true(hits > 10000);
    cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(only_endings_for_good_are_kept),
        cmocka_unit_test(nothing_is_served_past_its_time),
        cmocka_unit_test(newer_rows_take_the_place_of_older_ones),
        cmocka_unit_test(the_longest_unused_goes_first),
        cmocka_unit_test(it_may_forget_and_never_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
