/* SPDX-License-Identifier: MIT
 *
 * Records through memory and through disk, in chunks of any size: the same records, in order, each exactly once; and
 * groups come back whole however little memory there is.
 */
#include "forensics/group.h"
#include "forensics/side.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { GROUPS = 500, EVENTS_EACH = 7 };

static void fill(struct spill *s)
{
    for (uint32_t n = 0; n < EVENTS_EACH; n++) {
        for (uint32_t i = 0; i < GROUPS; i++) {
            char name[32];
            struct event e = {.us = n, .line = i * EVENTS_EACH + n + 1, .kind = KIND_OTHER, .took_ms = -1};
            int len = snprintf(name, sizeof name, "key-%u", i);
            e.text[TEXT_KEY] = slice_of(name, (size_t)len);
            e.group = event_digest(e.text[TEXT_KEY], 1);
            size_t before = spill_at(s, e.group)->len;
            event_write(spill_at(s, e.group), &e);
            assert_int_equal(spill_wrote(s, e.group, spill_at(s, e.group)->len - before), STATUS_OK);
        }
    }
}

struct seen {
    unsigned char line[GROUPS * EVENTS_EACH + 1];
    size_t groups, events;
};

static enum status take(void *context, struct group *g)
{
    struct seen *seen = context;
    assert_int_equal(g->count, EVENTS_EACH);
    for (size_t i = 0; i < g->count; i++) {
        assert_int_equal(g->event[i].us, i);
        assert_true(slice_equal(g->event[i].text[TEXT_KEY], g->event[0].text[TEXT_KEY]));
        seen->line[g->event[i].line]++;
        seen->events++;
    }
    seen->groups++;
    return STATUS_OK;
}

static void test_groups_come_back_whole(void **state)
{
    static const struct {
        size_t memory, part;
    } cases[] = {{1 << 30, 1 << 30}, {1 << 14, 1 << 30}, {1 << 12, 1 << 14}, {1, 1 << 12}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct spill s;
        static struct seen seen;
        memset(&seen, 0, sizeof seen);
        spill_init(&s, NULL, cases[c].memory);
        fill(&s);
        assert_int_equal(s.spilled, c > 0);
        for (size_t p = 0; p < SPILL_PARTS; p++) {
            assert_int_equal(group_each(&s, p, cases[c].part, NULL, take, &seen), STATUS_OK);
            spill_forget(&s, p);
        }
        assert_int_equal(seen.groups, GROUPS);
        assert_int_equal(seen.events, GROUPS * EVENTS_EACH);
        for (size_t i = 1; i < sizeof seen.line; i++)
            assert_int_equal(seen.line[i], 1);
        spill_fini(&s);
    }
}

static void test_a_folder_that_is_not_there(void **state)
{
    struct spill s;
    struct event e = {.us = 1, .took_ms = -1};
    (void)state;
    spill_init(&s, "/nonexistent/folder", 1);
    event_write(spill_at(&s, 0), &e);
    assert_int_equal(spill_wrote(&s, 0, spill_at(&s, 0)->len), STATUS_IO);
    assert_int_equal(errno, ENOENT);
    spill_fini(&s);
}

static void test_an_event_comes_back_as_it_went(void **state)
{
    struct buffer b = {0};
    struct event back, e = {.us = -5,
                            .place = 7,
                            .group = UINT64_MAX,
                            .raw = 9,
                            .line = 3,
                            .nth = 4,
                            .took_ms = 12,
                            .file = 2,
                            .origin = 5,
                            .status = 503,
                            .attempt = 65535,
                            .retries = 6,
                            .kind = KIND_EFFECT,
                            .flags = 255,
                            .state = EVENT_STATE_UNKNOWN};
    char full[EVENT_TEXT_BYTES_MAX];
    (void)state;
    memset(full, 'x', sizeof full);
    for (int t = 0; t < TEXT_COUNT; t++)
        e.text[t] = slice_of(full, t % 2 ? sizeof full : (size_t)t);
    event_write(&b, &e);
    assert_int_equal(event_read(&back, b.data), b.len);
    assert_int_equal(event_record_size(b.data), b.len);
    assert_true(event_record_group(b.data) == UINT64_MAX);
    assert_true(back.us == e.us && back.place == 7 && back.raw == 9 && back.status == 503 &&
                back.attempt == 65535 && back.flags == 255 && back.state == EVENT_STATE_UNKNOWN &&
                back.took_ms == 12 && back.retries == 6);
    for (int t = 0; t < TEXT_COUNT; t++)
        assert_true(slice_equal(back.text[t], e.text[t]));
    buffer_fini(&b);
}

static void test_amounts(void **state)
{
    static const char *const same[][2] = {
        {"100.00", "100"}, {"+0100.0", "100"}, {"-0.50", "-.5"},
        {"0", "-0.00"},    {" 7 ", "7."},      {"12345678901234567890.10", "12345678901234567890.1"}};
    static const char *const none[] = {"", "-", ".", "1,5", "1.2.3", "1e3", "ten", "0x10", "1 2"};
    struct buffer b = {0};
    (void)state;
    buffer_reserve(&b, 4096);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct slice x = side_amount(slice_text(same[i][0]), &b), y = side_amount(slice_text(same[i][1]), &b);
        if (!x.len || !slice_equal(x, y))
            fail_msg("%s is %s", same[i][0], same[i][1]);
    }
    assert_false(slice_equal(side_amount(slice_text("1.01"), &b), side_amount(slice_text("1.010001"), &b)));
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(side_amount(slice_text(none[i]), &b).len, 0);
    buffer_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_come_back_whole),
        cmocka_unit_test(test_a_folder_that_is_not_there),
        cmocka_unit_test(test_an_event_comes_back_as_it_went),
        cmocka_unit_test(test_amounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
