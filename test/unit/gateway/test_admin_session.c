/* SPDX-License-Identifier: MIT
 *
 * Sessions: found by their cookie alone, ended by their life, by silence and by somebody; the second secret is another
 * one; the cookie is found among others.
 */
#include "gateway/admin_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct sessions s;

static int begin(void **state)
{
    (void)state;
    memset(&s, 0, sizeof s);
    return 0;
}

static struct session start(int64_t now_ms)
{
    const struct session *made = session_begin(&s, ROLE_OPERATOR, 7, now_ms);
    assert_non_null(made);
    return *made;
}

static void a_session_is_found_by_its_cookie_and_owned_by_its_secret(void **state)
{
    (void)state;
    struct session a = start(0), b = start(0);
    assert_string_not_equal(a.cookie, b.cookie);
    assert_string_not_equal(a.cookie, a.csrf);
    assert_int_equal(strlen(a.cookie), 64);
    const struct session *found = session_find(&s, slice_text(b.cookie), 1);
    assert_non_null(found);
    assert_string_equal(found->csrf, b.csrf);
    assert_true(session_owns(found, slice_text(b.csrf)));
    assert_false(session_owns(found, slice_text(a.csrf)));
    assert_false(session_owns(found, slice_text(b.cookie)));
    assert_false(session_owns(found, slice_of(b.csrf, 63)));
    assert_null(session_find(&s, slice_text(b.csrf), 1));
    assert_null(session_find(&s, slice_of("", 0), 1));
    session_end(&s, slice_text(b.cookie));
    assert_null(session_find(&s, slice_text(b.cookie), 1));
    assert_non_null(session_find(&s, slice_text(a.cookie), 1));
}

static void a_session_ends_by_silence_and_by_its_life(void **state)
{
    (void)state;
    struct session a = start(0);
    int64_t now = 0;
    assert_null(session_find(&s, slice_text(a.cookie), SESSION_IDLE_MS));
    while (now + SESSION_IDLE_MS / 2 < SESSION_LIFE_MS) {
        now += SESSION_IDLE_MS / 2;
        assert_non_null(session_find(&s, slice_text(a.cookie), now));
    }
    assert_null(session_find(&s, slice_text(a.cookie), SESSION_LIFE_MS));
}

static void the_longest_silent_makes_room(void **state)
{
    (void)state;
    struct session all[SESSIONS_MAX];
    for (int i = 0; i < SESSIONS_MAX; i++)
        all[i] = start(i);
    assert_non_null(session_find(&s, slice_text(all[0].cookie), 1000)); /* the second is now the silent one */
    struct session late = start(1001);
    assert_null(session_find(&s, slice_text(all[1].cookie), 1002));
    assert_non_null(session_find(&s, slice_text(all[0].cookie), 1002));
    assert_non_null(session_find(&s, slice_text(late.cookie), 1002));
}

static void the_cookie_is_found_among_others(void **state)
{
    (void)state;
    static const struct {
        const char *header, *value;
    } rows[] = {
        {SESSION_COOKIE "=abc", "abc"},
        {"theme=dark; " SESSION_COOKIE "=abc; x=y", "abc"},
        {"theme=dark;" SESSION_COOKIE "=abc", "abc"},
        {"x" SESSION_COOKIE "=abc", ""},
        {SESSION_COOKIE "2=abc", ""},
        {SESSION_COOKIE "=", ""},
        {"; ;; =", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(slice_is(session_cookie(slice_text(rows[i].header)), rows[i].value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_session_is_found_by_its_cookie_and_owned_by_its_secret, begin),
        cmocka_unit_test_setup(a_session_ends_by_silence_and_by_its_life, begin),
        cmocka_unit_test_setup(the_longest_silent_makes_room, begin),
        cmocka_unit_test_setup(the_cookie_is_found_among_others, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
