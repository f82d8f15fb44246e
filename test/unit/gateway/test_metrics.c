/* SPDX-License-Identifier: MIT */
#include "gateway/metrics.h"

#include "core/problem.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct metrics *make(const char *const *routes, size_t n)
{
    struct settings *s = NULL;
    struct metrics *m = NULL;
    struct buffer why = {0};
    assert_int_equal(settings_new(&s), STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        struct route_settings *r;
        assert_int_equal(settings_add_route(s, slice_text(routes[i]), 1, &r, &why), STATUS_OK);
    }
    assert_int_equal(metrics_new(&m, s), STATUS_OK);
    settings_free(s);
    return m;
}

static const char *const two[] = {"orders", "items"};

static void threads_are_summed(void **state)
{
    (void)state;
    struct metrics *m = make(two, 2);
    struct metrics_loop *a, *b;
    struct buffer text = {0};
    assert_int_equal(metrics_loop_new(m, &a), STATUS_OK);
    assert_int_equal(metrics_loop_new(m, &b), STATUS_OK);
    metrics_add(a, METRIC_calls, 0, OUTCOME_SUCCESS, 2);
    metrics_add(b, METRIC_calls, 0, OUTCOME_SUCCESS, 3);
    metrics_add(b, METRIC_calls, 1, OUTCOME_UNKNOWN, 1);
    metrics_add(a, METRIC_connections, 0, 0, 5);
    metrics_add(b, METRIC_connections, 0, 0, -2);
    metrics_add(a, METRIC_refusals, 0, PROBLEM_KEY_REUSED, 7);
    metrics_set(m, METRIC_unknown_calls, 0, 0, 9);
    metrics_set(m, METRIC_unknown_calls, 0, 0, 4);
    metrics_write(m, &text);
    const char *out = buffer_cstring(&text);
    assert_non_null(strstr(out, "\nsamekey_calls_total{route=\"orders\",outcome=\"success\"} 5\n"));
    assert_non_null(strstr(out, "\nsamekey_calls_total{route=\"items\",outcome=\"unknown\"} 1\n"));
    assert_non_null(strstr(out, "\nsamekey_calls_total{route=\"items\",outcome=\"not_executed\"} 0\n"));
    assert_non_null(strstr(out, "\nsamekey_connections 3\n"));
    assert_non_null(strstr(out, "\nsamekey_refusals_total{problem=\"key-reused\"} 7\n"));
    assert_non_null(strstr(out, "\nsamekey_unknown_calls 4\n"));
    metrics_free(m);
    buffer_fini(&text);
}

static void histograms_are_cumulative(void **state)
{
    (void)state;
    struct metrics *m = make(two, 2);
    struct metrics_loop *a;
    struct buffer text = {0};
    assert_int_equal(metrics_loop_new(m, &a), STATUS_OK);
    metrics_observe(a, METRIC_request_seconds, 0.001);
    metrics_observe(a, METRIC_request_seconds, 0.0011);
    metrics_observe(a, METRIC_request_seconds, 400);
    metrics_observe(a, METRIC_request_seconds, -1);
    metrics_observe(a, METRIC_batch_size, 32);
    metrics_write(m, &text);
    const char *out = buffer_cstring(&text);
    assert_non_null(strstr(out, "\nsamekey_request_seconds_bucket{le=\"0.001\"} 1\n"));
    assert_non_null(strstr(out, "\nsamekey_request_seconds_bucket{le=\"0.0025\"} 2\n"));
    assert_non_null(strstr(out, "\nsamekey_request_seconds_bucket{le=\"30\"} 2\n"));
    assert_non_null(strstr(out, "\nsamekey_request_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(out, "\nsamekey_request_seconds_sum 400.0021\n"));
    assert_non_null(strstr(out, "\nsamekey_request_seconds_count 3\n"));
    assert_non_null(strstr(out, "\nsamekey_store_batch_size_bucket{le=\"32\"} 1\n"));
    assert_non_null(strstr(out, "\nsamekey_store_batch_size_sum 32\n"));
    metrics_free(m);
    buffer_fini(&text);
}

static void what_is_out_of_range_counts_nowhere(void **state)
{
    (void)state;
    struct metrics *m = make(two, 2);
    struct metrics_loop *a;
    struct buffer before = {0}, after = {0};
    assert_int_equal(metrics_loop_new(m, &a), STATUS_OK);
    metrics_write(m, &before);
    metrics_add(a, METRIC_calls, 100000, OUTCOME_SUCCESS, 1);
    metrics_add(a, METRIC_calls, 0, 1000, 1);
    metrics_add(NULL, METRIC_calls, 0, OUTCOME_SUCCESS, 1);
    metrics_write(m, &after);
    assert_string_equal(buffer_cstring(&before), buffer_cstring(&after));
    metrics_free(m);
    buffer_fini(&before);
    buffer_fini(&after);
}

static void reloads_keep_a_route_where_it_was_and_are_bounded(void **state)
{
    (void)state;
    struct metrics *m = make(two, 2);
    assert_int_equal(metrics_route(m, slice_text("items")), 1);
    assert_int_equal(metrics_route(m, slice_text("orders")), 0);
    assert_int_equal(metrics_route(m, slice_text("new")), 2);
    assert_int_equal(metrics_route(m, slice_text("new")), 2);
    size_t last = 0, before = 0;
    for (int i = 0; i < 1000; i++) {
        char name[20];
        snprintf(name, sizeof(name), "r%d", i);
        before = last;
        last = metrics_route(m, slice_text(name));
    }
    assert_int_equal(last, before);
    metrics_free(m);
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || s[i] == '_'))
            return false;
    return n > 0;
}

/* What promtool would look at: help and type before the series of one family, names by the conventions. */
static void the_text_follows_the_format(void **state)
{
    (void)state;
    struct metrics *m = make(two, 2);
    struct buffer text = {0};
    char family[100] = "", type[20] = "";
    size_t families = 0;
    metrics_write(m, &text);
    assert_int_equal(buffer_cstring(&text)[text.len - 1], '\n');
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_int_equal(sscanf(line + 7, "%99s", family), 1);
            assert_true(line[strlen(line) - 1] == '.');
            families++;
            continue;
        }
        if (strncmp(line, "# TYPE ", 7) == 0) {
            char name[100];
            assert_int_equal(sscanf(line + 7, "%99s %19s", name, type), 2);
            assert_string_equal(name, family);
            size_t n = strlen(name);
            assert_int_equal(strcmp(type, "counter") == 0, n > 6 && strcmp(name + n - 6, "_total") == 0);
            continue;
        }
        assert_int_equal(strncmp(line, family, strlen(family)), 0);
        size_t n = strcspn(line, "{ ");
        assert_true(is_name(line, n));
        const char *value = strrchr(line, ' ');
        char *rest;
        strtod(value + 1, &rest);
        assert_int_equal(*rest, '\0');
    }
    assert_int_equal(families, METRIC_COUNT);
    metrics_free(m);
    buffer_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_summed),
        cmocka_unit_test(histograms_are_cumulative),
        cmocka_unit_test(what_is_out_of_range_counts_nowhere),
        cmocka_unit_test(reloads_keep_a_route_where_it_was_and_are_bounded),
        cmocka_unit_test(the_text_follows_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
