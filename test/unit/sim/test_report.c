/* SPDX-License-Identifier: MIT */
#include "sim/article.h"
#include "sim/chart.h"
#include "sim/jitter.h"
#include "sim/number.h"
#include "sim/plan.h"
#include "sim/storm.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* What each experiment says in one form, from a small run. */
struct said {
    struct buffer text, json, csv, svg;
};

static struct jitter_result jitter;
static struct storm_run storms[STORM_STRATEGY_COUNT];

static void say_article(struct said *said)
{
    struct article_parameters p;
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    char message[NUMBER_MESSAGE_BYTES];
    article_defaults(&p);
    p.seed = INT64_MAX; /* larger ones are JSON too, but this parser has no type for them */
    assert_int_equal(article_strategies(&p, "all", message), STATUS_OK);
    assert_int_equal(article_run(&p, rows, NULL), STATUS_OK);
    article_text(&said->text, &p, rows);
    article_json(&said->json, &p, rows);
    article_csv(&said->csv, &p, rows);
    article_svg(&said->svg, &p, rows);
}

static void say_jitter(struct said *said)
{
    struct jitter_parameters p;
    jitter_defaults(&p);
    p.clients = p.steps = 4;
    p.runs = 2;
    assert_int_equal(jitter_run(&p, &jitter, NULL), STATUS_OK);
    jitter_text(&said->text, &p, &jitter);
    jitter_json(&said->json, &p, &jitter);
    jitter_csv(&said->csv, &p, &jitter);
    jitter_svg(&said->svg, &p, &jitter);
}

static void say_storm(struct said *said)
{
    struct storm_parameters p;
    storm_defaults(&p);
    for (int s = 0; s < STORM_STRATEGY_COUNT; s++)
        assert_int_equal(storm_run(&p, (enum storm_strategy)s, &storms[s]), STATUS_OK);
    storm_text(&said->text, &p, storms, true);
    storm_json(&said->json, &p, storms);
    storm_csv(&said->csv, &p, storms);
    storm_svg(&said->svg, &p, storms);
}

static void say_plan(struct said *said)
{
    struct plan_parameters p;
    struct plan_result r;
    plan_defaults(&p);
    plan_make(&p, &r);
    plan_text(&said->text, &p, &r);
    plan_json(&said->json, &p, &r);
    plan_csv(&said->csv, &p, &r);
}

static json_t *parsed(struct said *said)
{
    json_error_t error;
    json_t *root = json_loads(buffer_cstring(&said->json), JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s", error.line, error.text);
    assert_true(json_is_object(json_object_get(root, "parameters")));
    return root;
}

static void said_fini(struct said *said)
{
    buffer_fini(&said->text);
    buffer_fini(&said->json);
    buffer_fini(&said->csv);
    buffer_fini(&said->svg);
}

static size_t count(struct buffer *b, const char *needle)
{
    size_t n = 0;
    for (const char *at = buffer_cstring(b); (at = strstr(at, needle)); at++)
        n++;
    return n;
}

static void the_json_is_json_with_a_row_for_everything(void **state)
{
    (void)state;
    static const struct {
        void (*say)(struct said *);
        size_t rows;
    } experiments[] = {{say_article, ARTICLE_STRATEGY_COUNT},
                       {say_jitter, (size_t)JITTER_STRATEGY_COUNT * 4},
                       {say_storm, STORM_STRATEGY_COUNT}};
    for (size_t i = 0; i < sizeof experiments / sizeof experiments[0]; i++) {
        struct said said = {0};
        experiments[i].say(&said);
        json_t *root = parsed(&said);
        assert_int_equal(json_array_size(json_object_get(root, "rows")), experiments[i].rows);
        json_decref(root);
        said_fini(&said);
    }
    struct said said = {0};
    say_plan(&said);
    json_t *root = parsed(&said);
    json_t *plan = json_object_get(root, "plan");
    assert_true(json_number_value(json_object_get(plan, "worst_time_s")) == 18.5);
    assert_true(json_is_true(json_object_get(plan, "worst_fits_deadline")));
    json_decref(root);
    said_fini(&said);
}

static void the_csv_has_a_line_for_everything(void **state)
{
    (void)state;
    struct said said[4] = {{{0}, {0}, {0}, {0}}};
    say_article(&said[0]);
    say_jitter(&said[1]);
    say_storm(&said[2]);
    say_plan(&said[3]);
    assert_int_equal(count(&said[0].csv, "\n"), 1 + ARTICLE_STRATEGY_COUNT);
    assert_int_equal(count(&said[1].csv, "\n"), 1 + 4 * JITTER_STRATEGY_COUNT);
    assert_int_equal(count(&said[2].csv, "\n"), 1 + 60 * STORM_STRATEGY_COUNT);
    assert_true(count(&said[3].csv, "\n") > 20);
    for (size_t i = 0; i < 4; i++)
        said_fini(&said[i]);
}

static void a_terminal_without_unicode_gets_ascii(void **state)
{
    (void)state;
    struct said said = {0};
    say_storm(&said);
    for (const char *at = buffer_cstring(&said.text); *at; at++)
        assert_true((unsigned char)*at < 128);
    assert_int_equal(count(&said.text, "stays collapsed"), 2);
    assert_non_null(strstr(buffer_cstring(&said.text), "64 requests at the bottom"));
    said_fini(&said);
}

/* An XML parser that we did not write reads the charts. */
static void the_charts_are_xml_and_tell_units(void **state)
{
    (void)state;
    void (*const say[])(struct said *) = {say_article, say_jitter, say_storm};
    static const char *const labels[][3] = {
        {"share of calls (%)", "attempts per call", "mean wait per call (s)"},
        {"competing clients", "completion time (s)", "writes that reached"},
        {"time (s)", "per second", "requests waiting"}};
    for (size_t i = 0; i < sizeof say / sizeof say[0]; i++) {
        struct said said = {0};
        say[i](&said);
        for (size_t l = 0; l < 3; l++)
            assert_non_null(strstr(buffer_cstring(&said.svg), labels[i][l]));
        assert_null(strstr(buffer_cstring(&said.svg), "nan"));
        assert_null(strstr(buffer_cstring(&said.svg), "inf"));
        FILE *parser =
            popen("/usr/bin/python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.stdin.buffer)'", "w");
        assert_non_null(parser);
        assert_int_equal(fwrite(said.svg.data, 1, said.svg.len, parser), said.svg.len);
        assert_int_equal(pclose(parser), 0);
        said_fini(&said);
    }
}

static void texts_in_charts_are_escaped(void **state)
{
    (void)state;
    const double x[] = {0, 1}, y[] = {0, 0};
    const struct chart_series series = {.name = "a<b & \"c\"", .x = x, .y = y, .count = 2, .markers = 1};
    const struct chart_panel panel = {.kind = CHART_LINES,
                                      .title = "<t>",
                                      .x_label = "x",
                                      .y_label = "y",
                                      .series = &series,
                                      .series_count = 1,
                                      .legend = true};
    struct buffer svg = {0};
    chart_write(&svg,
                &(struct chart_layout){.title = "&", .columns = 1, .panel_width = 400, .panel_height = 300},
                &panel, 1);
    assert_non_null(strstr(buffer_cstring(&svg), "a&lt;b &amp; &quot;c&quot;"));
    assert_non_null(strstr(buffer_cstring(&svg), "&lt;t&gt;"));
    assert_null(strstr(buffer_cstring(&svg), "nan")); /* all values alike is no division by zero */
    buffer_fini(&svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_json_is_json_with_a_row_for_everything),
        cmocka_unit_test(the_csv_has_a_line_for_everything),
        cmocka_unit_test(a_terminal_without_unicode_gets_ascii),
        cmocka_unit_test(the_charts_are_xml_and_tell_units),
        cmocka_unit_test(texts_in_charts_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
