/* SPDX-License-Identifier: MIT
 *
 * Files that nobody should have to read: huge, binary, endless, looping, deep. Each ends in a problem that says what it
 * is, in bounded time and memory; none passes as reviewed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "review/report.h"

#define SECONDS_MAX 10

static char folder[] = "/tmp/samekey-bounds-XXXXXX";
static char path_text[512];

static const char *path_of(const char *name)
{
    snprintf(path_text, sizeof path_text, "%s/%s", folder, name);
    return path_text;
}

static void write_file(const char *name, const char *text, size_t times)
{
    FILE *f = fopen(path_of(name), "w");
    assert_non_null(f);
    for (size_t i = 0; i < times; i++)
        fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* The file is refused with these words, quickly. */
static void refused(const char *name, const char *words)
{
    struct review r = {0};
    time_t start = time(NULL);
    assert_null(review_file(&r, path_of(name), FORMAT_AUTO, NULL));
    assert_int_equal(review_finish(&r, false), STATUS_OK);
    assert_true(time(NULL) - start < SECONDS_MAX);
    assert_true(r.problem_count >= 1);
    if (!strstr(r.problems[0].what, words))
        print_error("%s: %s\n", name, r.problems[0].what);
    assert_non_null(strstr(r.problems[0].what, words));
    assert_true(r.pool.bytes < (size_t)64 << 20);
    review_fini(&r);
}

/* The file is read, in bounded time and memory. */
static void read_in_bounds(const char *name)
{
    struct review r = {0};
    struct buffer out = {0};
    time_t start = time(NULL);
    review_file(&r, path_of(name), FORMAT_AUTO, NULL);
    review_finish(&r, true);
    review_report_text(&out, &r, false);
    assert_false(out.failed);
    assert_true(time(NULL) - start < SECONDS_MAX);
    assert_true(r.pool.bytes <= POOL_BYTES_MAX);
    buffer_fini(&out);
    review_fini(&r);
}

static void fifty_megabytes(void **state)
{
    (void)state;
    int fd = open(path_of("huge.yaml"), O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 50 << 20), 0);
    close(fd);
    refused("huge.yaml", "larger than 4 MiB");
}

static void a_binary(void **state)
{
    (void)state;
    FILE *f = fopen(path_of("program"), "w");
    fwrite("\x7f"
           "ELF\0\0\0\1",
           1, 8, f);
    fclose(f);
    refused("program", "not a text file");
}

static void wrong_yaml_and_json(void **state)
{
    struct review r = {0};
    (void)state;
    write_file("wrong.yaml", "virtual_hosts:\n- name: a\n  routes: [\n    - b: }\n", 1);
    refused("wrong.yaml", "not YAML");
    write_file("wrong.json", "{\"methodConfig\": [\n  {\"name\": 1,}\n]}\n", 1);
    review_file(&r, path_of("wrong.json"), FORMAT_AUTO, NULL);
    assert_int_equal(r.problem_count, 1);
    assert_int_equal(r.problems[0].line, 2);
    assert_non_null(strstr(r.problems[0].what, "not JSON"));
    review_fini(&r);
    write_file("twice.json", "{\"methodConfig\": [], \"methodConfig\": []}\n", 1);
    refused("twice.json", "not JSON");
    write_file("wrong.conf", "server {\n  listen 80;\n", 1);
    refused("wrong.conf", "not closed");
}

static void an_include_loop(void **state)
{
    (void)state;
    write_file("a.conf", "http {\n  include b.conf;\n}\n", 1);
    write_file("b.conf", "server { listen 80; }\ninclude ./a.conf;\n", 1);
    struct review r = {0};
    review_file(&r, path_of("a.conf"), FORMAT_AUTO, NULL);
    assert_int_equal(r.problem_count, 1);
    assert_non_null(strstr(r.problems[0].what, "include loop"));
    assert_int_equal(r.problems[0].line, 2);
    review_fini(&r);
}

/* Each file includes the next twice: 2 to the 20th readings, were there no bound. */
static void an_include_bomb(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        char name[32], text[128];
        snprintf(name, sizeof name, "bomb%d.conf", i);
        snprintf(text, sizeof text, "include bomb%d.conf;\ninclude bomb%d.conf;\nserver { listen 80; }\n",
                 i + 1, i + 1);
        write_file(name, text, 1);
    }
    struct review r = {0};
    review_file(&r, path_of("bomb0.conf"), FORMAT_AUTO, NULL);
    assert_true(r.problem_count >= 1);
    assert_true(r.files <= FILES_MAX);
    review_fini(&r);
}

static void a_symlink_loop_and_odd_files(void **state)
{
    char one[512], two[512];
    (void)state;
    snprintf(one, sizeof one, "%s/one", folder);
    snprintf(two, sizeof two, "%s/two", folder);
    assert_int_equal(symlink(one, two), 0);
    assert_int_equal(symlink(two, one), 0);
    refused("one", "loop of symbolic links");
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    refused("pipe", "not a regular file");
    refused(".", "a directory");
    refused("nothing", "No such file");
    struct review r = {0};
    assert_null(review_file(&r, "/dev/zero", FORMAT_AUTO, NULL));
    assert_int_equal(r.problem_count, 1);
    review_fini(&r);
}

static void unknown_kinds_are_said_so(void **state)
{
    (void)state;
    write_file("passwd", "root:x:0:0:root:/root:/bin/bash\n", 1);
    refused("passwd", "not a kind of file");
    write_file("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n", 1);
    refused("deployment.yaml", "no kind that is known");
    write_file("empty", "", 1);
    refused("empty", "not a kind of file");
}

static void deep_and_wide_files(void **state)
{
    (void)state;
    write_file("deep.json", "[", 1000000);
    refused("deep.json", "not JSON");
    write_file("deep.yaml", "? - ", 500000);
    read_in_bounds("deep.yaml");
    write_file("deep.conf", "server {", 400000);
    refused("deep.conf", "nested too deeply");
    write_file("nested.sh", "curl -d x \"$(", 200000);
    read_in_bounds("nested.sh");
    write_file("loops.sh", "while true; do curl -d x http://a\n", 100000);
    read_in_bounds("loops.sh");
    write_file("many.conf",
               "server { location / { proxy_pass http://a; proxy_next_upstream error non_idempotent; } }\n",
               40000);
    read_in_bounds("many.conf");
    write_file("many.properties", "resilience4j.retry.instances.a.max-attempts=3\n", 80000);
    read_in_bounds("many.properties");
    write_file("lines.cfg", "\n", SOURCE_LINES_MAX + 1);
    refused("lines.cfg", "more than");
}

/* Nine aliases of nine aliases of …: nine to the twelfth nodes, were they copied. */
static void a_billion_laughs(void **state)
{
    (void)state;
    FILE *f = fopen(path_of("laughs.yaml"), "w");
    fputs("a: &a [x, x, x, x, x, x, x, x, x]\n", f);
    for (int i = 1; i < 13; i++) {
        fprintf(f, "%c: &%c [", 'a' + i, 'a' + i);
        for (int k = 0; k < 9; k++)
            fprintf(f, "%s*%c", k ? ", " : "", 'a' + i - 1);
        fputs("]\n", f);
    }
    fputs("spring: {x: *m}\nstatic_resources: *m\n", f);
    fclose(f);
    read_in_bounds("laughs.yaml");
}

/* What comes from a file must not steer a terminal or break a document. */
static void bytes_are_cleaned(void **state)
{
    static const char text[] = "server { location /\x1b[31m\xff\xc2\x9b { proxy_pass http://a;\n"
                               "proxy_next_upstream error non_idempotent; } }\n";
    struct review r = {0};
    struct buffer out = {0};
    (void)state;
    review_memory(&r, "a\x1b.conf", slice_text(text), FORMAT_NGINX);
    assert_int_equal(review_finish(&r, false), STATUS_OK);
    assert_int_equal(r.finding_count, 1);
    review_report_text(&out, &r, false);
    assert_null(memchr(out.data, '\x1b', out.len));
    assert_null(memchr(out.data, '\xff', out.len));
    assert_null(memmem(out.data, out.len, "\xc2\x9b", 2));
    buffer_clear(&out);
    assert_int_equal(review_report_json(&out, &r), STATUS_OK);
    buffer_clear(&out);
    assert_int_equal(review_report_sarif(&out, &r), STATUS_OK);
    buffer_fini(&out);
    review_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_megabytes),           cmocka_unit_test(a_binary),
        cmocka_unit_test(wrong_yaml_and_json),       cmocka_unit_test(an_include_loop),
        cmocka_unit_test(an_include_bomb),           cmocka_unit_test(a_symlink_loop_and_odd_files),
        cmocka_unit_test(unknown_kinds_are_said_so), cmocka_unit_test(deep_and_wide_files),
        cmocka_unit_test(a_billion_laughs),          cmocka_unit_test(bytes_are_cleaned),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
