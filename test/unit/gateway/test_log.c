/* SPDX-License-Identifier: MIT */
#include "gateway/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NOW INT64_C(1710000000123)

static const struct slice call = SLICE_LITERAL("ord-1");

/* A log on a temporary file, and what stands in it after the log has ended. */
struct fixture {
    int fd;
    struct log_writer *writer;
    struct log *log;
};

static void begin(struct fixture *f, enum log_level level, size_t bytes_max)
{
    char path[] = "/tmp/samekey-test-log-XXXXXX";
    f->fd = mkstemp(path);
    assert_true(f->fd >= 0);
    unlink(path);
    assert_int_equal(log_writer_start(&f->writer, f->fd, bytes_max), STATUS_OK);
    assert_int_equal(log_open(&f->log, f->writer, level), STATUS_OK);
}

static uint64_t end(struct fixture *f, struct buffer *text)
{
    log_close(f->log);
    uint64_t lost = log_writer_stop(f->writer, 5000);
    off_t size = lseek(f->fd, 0, SEEK_END);
    char *room = buffer_reserve(text, (size_t)size + 1);
    assert_int_equal(pread(f->fd, room, (size_t)size, 0), size);
    text->len += (size_t)size;
    close(f->fd);
    return lost;
}

static void a_line_is_json_and_begins_with_the_call_id(void **state)
{
    (void)state;
    struct fixture f;
    struct buffer text = {0};
    begin(&f, LOG_LEVEL_INFO, 65536);
    log_event(f.log, LOG_LEVEL_INFO, NOW, call, "call_ended", LOG_STRING("route", "a\"b\\c\n\x01\xff"),
              LOG_NUMBER("attempts", -3), LOG_BOOL("final", true), LOG_STRING("key", ""));
    assert_int_equal(end(&f, &text), 0);
    assert_int_equal(
        strncmp(buffer_cstring(&text), "{\"call_id\":\"ord-1\",\"time\":\"2024-03-09T16:00:00.123Z\",", 50),
        0);
    assert_int_equal(text.data[text.len - 1], '\n');
    json_t *line = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, "level")), "info");
    assert_string_equal(json_string_value(json_object_get(line, "event")), "call_ended");
    assert_string_equal(json_string_value(json_object_get(line, "route")), "a\"b\\c\n\x01\xef\xbf\xbd");
    assert_int_equal(json_integer_value(json_object_get(line, "attempts")), -3);
    assert_true(json_is_true(json_object_get(line, "final")));
    assert_true(json_is_null(json_object_get(line, "key")));
    json_decref(line);
    buffer_fini(&text);
}

static int made;
static struct slice expensive(void)
{
    made++;
    return slice_text("x");
}

static void a_level_that_is_off_costs_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct buffer text = {0};
    begin(&f, LOG_LEVEL_WARNING, 65536);
    made = 0;
    log_event(f.log, LOG_LEVEL_INFO, NOW, call, "quiet", LOG_TEXT("a", expensive()));
    log_event(NULL, LOG_LEVEL_ERROR, NOW, call, "nowhere", LOG_TEXT("a", expensive()));
    assert_int_equal(made, 0);
    log_event(f.log, LOG_LEVEL_ERROR, NOW, slice_text(NULL), "loud");
    log_set_level(f.log, LOG_LEVEL_DEBUG);
    log_event(f.log, LOG_LEVEL_DEBUG, NOW, call, "detail", LOG_TEXT("a", expensive()));
    assert_int_equal(made, 1);
    assert_int_equal(end(&f, &text), 0);
    assert_null(strstr(buffer_cstring(&text), "quiet"));
    assert_non_null(strstr(text.data, "{\"call_id\":null,"));
    assert_non_null(strstr(text.data, "detail"));
    buffer_fini(&text);
}

static void long_texts_are_shortened_and_stay_json(void **state)
{
    (void)state;
    struct fixture f;
    struct buffer text = {0};
    char *long_text = malloc(100001);
    assert_non_null(long_text);
    for (size_t i = 0; i < 100000; i += 2)
        memcpy(long_text + i, "\xc3\xa9", 3);
    begin(&f, LOG_LEVEL_INFO, 65536);
    log_event(f.log, LOG_LEVEL_INFO, NOW, call, "long", LOG_TEXT("a", slice_of(long_text, 100000)),
              LOG_TEXT("b", slice_of(long_text + 1, 99999)), LOG_TEXT("c", slice_of(long_text, 100000)));
    assert_int_equal(end(&f, &text), 0);
    assert_true(text.len <= LOG_LINE_BYTES_MAX);
    json_t *line = json_loadb(text.data, text.len, 0, NULL);
    assert_non_null(line);
    assert_int_equal(json_string_length(json_object_get(line, "a")), LOG_TEXT_BYTES_MAX + 3);
    json_decref(line);
    free(long_text);
    buffer_fini(&text);
}

static int64_t monotonic_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* stderr is a pipe that nobody reads: calls go on, lines are lost and counted, and the end comes in time. */
static void a_reader_that_sleeps_holds_nobody(void **state)
{
    (void)state;
    struct log_writer *w = NULL;
    struct log *log = NULL;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(log_writer_start(&w, ends[1], 65536), STATUS_OK);
    assert_int_equal(log_open(&log, w, LOG_LEVEL_INFO), STATUS_OK);
    int64_t before = monotonic_ms();
    for (int i = 0; i < 20000; i++)
        log_event(log, LOG_LEVEL_INFO, NOW, call, "flood", LOG_NUMBER("n", i));
    assert_true(monotonic_ms() - before < 5000);
    assert_true(log_writer_dropped(w) > 0);

    /* The reader wakes up: whole lines come, then one that says how many are missing. */
    struct buffer text = {0};
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    bool told = false;
    for (int64_t until = monotonic_ms() + 5000; !told && monotonic_ms() < until;) {
        char *room = buffer_reserve(&text, 65536);
        ssize_t n = read(ends[0], room, 65536);
        if (n > 0)
            text.len += (size_t)n;
        else
            log_event(log, LOG_LEVEL_INFO, NOW, call, "after");
        told = strstr(buffer_cstring(&text), "\"event\":\"log_dropped\",\"lines\":") != NULL;
    }
    assert_true(told);
    for (char *line = strtok(text.data, "\n"), *next; line; line = next) {
        next = strtok(NULL, "\n");
        json_t *json = json_loads(line, 0, NULL);
        if (next)
            assert_non_null(json);
        json_decref(json);
    }
    for (int i = 0; i < 20000; i++)
        log_event(log, LOG_LEVEL_INFO, NOW, call, "flood", LOG_NUMBER("n", i));
    before = monotonic_ms();
    log_close(log);
    assert_true(log_writer_stop(w, 200) > 0);
    assert_true(monotonic_ms() - before < 5000);
    close(ends[0]);
    close(ends[1]);
    buffer_fini(&text);
}

static void *shout(void *argument)
{
    struct log *log = argument;
    for (int i = 0; i < 2000; i++)
        log_event(log, LOG_LEVEL_INFO, NOW, call, "shout", LOG_NUMBER("n", i));
    log_close(log);
    return NULL;
}

static void many_threads_keep_their_lines_whole_and_in_order(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct fixture f;
    struct buffer text = {0};
    pthread_t threads[THREADS];
    begin(&f, LOG_LEVEL_INFO, 16 << 20);
    for (int i = 0; i < THREADS; i++) {
        struct log *log = NULL;
        assert_int_equal(log_open(&log, f.writer, LOG_LEVEL_INFO), STATUS_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, shout, log), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(end(&f, &text), 0);
    size_t lines = 0;
    (void)buffer_cstring(&text);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
        assert_int_equal(line[0], '{');
        assert_int_equal(line[strlen(line) - 1], '}');
        lines++;
    }
    assert_int_equal(lines, THREADS * 2000);
    buffer_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_json_and_begins_with_the_call_id),
        cmocka_unit_test(a_level_that_is_off_costs_nothing),
        cmocka_unit_test(long_texts_are_shortened_and_stay_json),
        cmocka_unit_test(a_reader_that_sleeps_holds_nobody),
        cmocka_unit_test(many_threads_keep_their_lines_whole_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
