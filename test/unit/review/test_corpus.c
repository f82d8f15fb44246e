/* SPDX-License-Identifier: MIT
 *
 * Every configuration under test/review against the findings written beside it: NAME.expect holds one "LINE RULE"
 * (or "FILE:LINE RULE") for each, and nothing else may be found. A folder under test/review/path is one call path:
 * `layers` names its files, outermost first, `expect` the findings. Our own samekey.conf needs the gateway's settings
 * code and is played by test/review/test_check.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "review/review.h"

#define CORPUS    SAMEKEY_SOURCE_DIR "/test/review"
#define CASES_MIN 80

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of a text in order, joined again: what two lists are compared by. */
static char *sorted(char *text)
{
    char *lines[512], *save = NULL, *out = calloc(1, strlen(text) + 2);
    size_t count = 0;
    for (char *l = strtok_r(text, "\n", &save); l && count < 512; l = strtok_r(NULL, "\n", &save))
        lines[count++] = l;
    qsort(lines, count, sizeof *lines, compare_lines);
    for (size_t i = 0; i < count; i++)
        strcat(strcat(out, lines[i]), "\n");
    return out;
}

static char *read_text(const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    return text;
}

/* What was found, as the expectations write it; `alone` is the file whose lines need no name. */
static char *found(const struct review *r, const char *folder, const char *alone)
{
    struct buffer out = {0};
    for (size_t i = 0; i < r->finding_count; i++) {
        const struct finding *f = &r->findings[i];
        const char *name = f->source->path + strlen(folder) + 1;
        if (f->silenced)
            continue;
        if (!alone || strcmp(name, alone) != 0)
            buffer_format(&out, "%s:", name);
        buffer_format(&out, "%u %s\n", f->line, rule_get(f->rule)->id);
    }
    char *text = strdup(buffer_cstring(&out));
    buffer_fini(&out);
    return text;
}

static void compare(const struct review *r, const char *folder, const char *alone, const char *expect_path)
{
    for (size_t i = 0; i < r->problem_count; i++)
        print_error("%s:%u: %s\n", r->problems[i].path, r->problems[i].line, r->problems[i].what);
    assert_int_equal(r->problem_count, 0);
    char *seen = found(r, folder, alone), *got = sorted(seen), *want = sorted(read_text(expect_path));
    if (strcmp(got, want) != 0)
        print_error("%s\nwanted:\n%sfound:\n%s", expect_path, want, got);
    assert_string_equal(got, want);
    free(seen);
    free(got);
    free(want);
}

static int play_folder(const char *name)
{
    char folder[512], path[1024];
    int played = 0;
    snprintf(folder, sizeof folder, CORPUS "/%s", name);
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 8 || strcmp(e->d_name + n - 7, ".expect") != 0)
            continue;
        char file[256];
        snprintf(file, sizeof file, "%.*s", (int)(n - 7), e->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, file);
        struct review r = {0};
        review_file(&r, path, FORMAT_AUTO, NULL);
        assert_int_equal(review_finish(&r, false), STATUS_OK);
        strcat(path, ".expect");
        compare(&r, folder, file, path);
        review_fini(&r);
        played++;
    }
    closedir(d);
    return played;
}

static void each_file_gives_exactly_its_findings(void **state)
{
    static const char *const folders[] = {"nginx",  "haproxy",    "envoy",    "istio",  "ingress", "grpc",
                                          "spring", "properties", "rabbitmq", "celery", "shell",   "mcp"};
    (void)state;
    int played = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        played += play_folder(folders[i]);
    assert_true(played >= CASES_MIN);
}

static void each_path_gives_exactly_its_findings(void **state)
{
    (void)state;
    int played = 0;
    DIR *d = opendir(CORPUS "/path");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        char folder[512], path[1024], layers[1024], *save = NULL;
        struct review r = {0};
        snprintf(folder, sizeof folder, CORPUS "/path/%.200s", e->d_name);
        snprintf(path, sizeof path, "%s/layers", folder);
        snprintf(layers, sizeof layers, "%s", read_text(path));
        for (char *l = strtok_r(layers, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
            char *label = strchr(l, '#');
            if (label)
                *label++ = '\0';
            snprintf(path, sizeof path, "%s/%s", folder, l);
            review_file(&r, path, FORMAT_AUTO, label);
        }
        assert_int_equal(review_finish(&r, true), STATUS_OK);
        snprintf(path, sizeof path, "%s/expect", folder);
        compare(&r, folder, NULL, path);
        review_fini(&r);
        played++;
    }
    closedir(d);
    assert_true(played >= 5);
}

/* Reading a file as its kind, or finding its kind, comes to the same. */
static void the_kind_is_told_by_content(void **state)
{
    static const struct {
        const char *folder;
        enum review_format format;
    } kinds[] = {{"nginx", FORMAT_NGINX},   {"haproxy", FORMAT_HAPROXY}, {"envoy", FORMAT_ENVOY},
                 {"grpc", FORMAT_GRPC},     {"spring", FORMAT_SPRING},   {"properties", FORMAT_PROPERTIES},
                 {"celery", FORMAT_CELERY}, {"shell", FORMAT_SHELL},     {"rabbitmq", FORMAT_RABBITMQ},
                 {"mcp", FORMAT_MCP}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[1024];
        snprintf(path, sizeof path, CORPUS "/%s", kinds[i].folder);
        DIR *d = opendir(path);
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
            if (e->d_name[0] == '.' || strstr(e->d_name, ".expect") || e->d_type == DT_DIR)
                continue;
            snprintf(path, sizeof path, CORPUS "/%s/%.200s", kinds[i].folder, e->d_name);
            struct review r = {0};
            const struct source *s = review_file(&r, path, FORMAT_AUTO, NULL);
            if (!s || s->format != (int)kinds[i].format)
                print_error("%s is told as %s\n", path,
                            s ? review_format_name((enum review_format)s->format) : "nothing");
            assert_non_null(s);
            assert_int_equal(s->format, kinds[i].format);
            review_fini(&r);
        }
        closedir(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_gives_exactly_its_findings),
        cmocka_unit_test(each_path_gives_exactly_its_findings),
        cmocka_unit_test(the_kind_is_told_by_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
