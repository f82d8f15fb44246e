/* SPDX-License-Identifier: MIT
 *
 * Header lines of answers: which of an upstream's go on, which a replay bears, and which are ours alone (CONTRACT sections
 * 2 and 5).
 */
#include "../base/check.h"

#include "gateway/answer.h"

#define CALL "ord-1"

static struct header field(const char *name, const char *value)
{
    return (struct header){slice_text(name), slice_text(value)};
}

static void our_own_lines(void **state)
{
    (void)state;
    struct buffer out = {0};
    struct answer_facts f = {.call_id = SLICE_LITERAL(CALL), .outcome = OUTCOME_SUCCESS};
    answer_own_lines(&out, &f);
    check_text(&out, "X-Call-Id: ord-1\r\nX-Call-Id-Source: caller\r\nCall-Outcome: success\r\n"
                     "Link: </.samekey/receipts/ord-1>; rel=\"receipt\"\r\n");
    f = (struct answer_facts){.call_id = SLICE_LITERAL(CALL),
                              .call_id_made = true,
                              .outcome = OUTCOME_NOT_EXECUTED,
                              .replayed = true,
                              .original = SLICE_LITERAL("ord-0"),
                              .suspect = SLICE_LITERAL("ord-9")};
    answer_own_lines(&out, &f);
    check_text(&out,
               "X-Call-Id: ord-1\r\nX-Call-Id-Source: gateway\r\nCall-Outcome: not-executed\r\n"
               "Idempotent-Replayed: true\r\nX-Original-Call-Id: ord-0\r\nX-Suspected-Duplicate: ord-9\r\n"
               "Link: </.samekey/receipts/ord-1>; rel=\"receipt\"\r\n");
    static const struct {
        enum outcome outcome;
        const char *line;
    } words[] = {{OUTCOME_REJECTED, "Call-Outcome: rejected\r\n"},
                 {OUTCOME_FAILED, "Call-Outcome: failed\r\n"},
                 {OUTCOME_PENDING, "Call-Outcome: pending\r\n"},
                 {OUTCOME_UNKNOWN, "Call-Outcome: unknown\r\n"},
                 {OUTCOME_NONE, ""}};
    for (size_t i = 0; i < COUNT(words); i++) {
        f = (struct answer_facts){.outcome = words[i].outcome};
        answer_own_lines(&out, &f);
        check_text(&out, words[i].line);
    }
    buffer_fini(&out);
}

/* A script in a browser sees only what is exposed: every header that we may send must be named. */
static void exposure_names_all_of_ours(void **state)
{
    (void)state;
    struct buffer out = {0};
    struct answer_facts f = {.expose = true};
    answer_own_lines(&out, &f);
    struct header cors = {slice_text("Connection"), buffer_view(&out)};
    assert_true(strncmp(buffer_cstring(&out), "Access-Control-Expose-Headers: ", 31) == 0);
    assert_true(strcmp(buffer_cstring(&out) + out.len - 2, "\r\n") == 0);
    cors.value = slice_of(out.data + 31, out.len - 33);
    struct headers h = {&cors, 1};
    static const char *const ours[] = {
        "X-Call-Id",          "X-Call-Id-Source",      "Call-Outcome", "Idempotent-Replayed",
        "X-Original-Call-Id", "X-Suspected-Duplicate", "Link",         "Retry-After"};
    for (size_t i = 0; i < COUNT(ours); i++)
        assert_true(headers_has_token(&h, "Connection", ours[i]));
    buffer_fini(&out);
}

static void an_upstreams_lines_for_the_caller(void **state)
{
    (void)state;
    struct header list[] = {
        field("Content-Type", "application/json"),
        field("content-length", "12"),
        field("Set-Cookie", "a=b"),
        field("Set-Cookie", "c=d"),
        field("Date", "now"),
        field("Connection", "close, X-Private"),
        field("X-Private", "hop"),
        field("x-private", "hop too"),
        field("Keep-Alive", "5"),
        field("Transfer-Encoding", "chunked"),
        field("Trailer", "X-T"),
        field("Upgrade", "h2c"),
        field("TE", "trailers"),
        field("Proxy-Authenticate", "Basic"),
        field("Proxy-Authorization", "x"),
        field("Proxy-Connection", "close"),
        field("X-CALL-ID", "other"),
        field("X-Call-Id-Source", "upstream"),
        field("call-outcome", "failed"),
        field("Idempotent-Replayed", "true"),
        field("X-Original-Call-Id", "other"),
        field("X-Suspected-Duplicate", "other"),
        field("Link", "</next>; rel=\"next\""),
        field("Location", "/orders/1"),
        field("ETag", "\"1\""),
        field("Last-Modified", "then"),
        field("Retry-After", "3"),
        field("Content-Encoding", "gzip"),
        field("X-Kept", "by the route"),
        field("X-Other", "1"),
        field("WWW-Authenticate", "Bearer"),
        field("Empty", ""),
    };
    struct headers h = {list, COUNT(list)};
    char kept_name[] = "x-kept", cookie[] = "Set-Cookie", date[] = "Date", ours[] = "Call-Outcome",
         length[] = "Content-Length";
    char *names[] = {kept_name, cookie, date, ours, length};
    struct text_list own = {names, COUNT(names)}, none = {NULL, 0};
    struct buffer out = {0};
    answer_upstream_lines(&out, &h);
    check_text(&out,
               "Content-Type: application/json\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n"
               "Link: </next>; rel=\"next\"\r\nLocation: /orders/1\r\nETag: \"1\"\r\nLast-Modified: then\r\n"
               "Retry-After: 3\r\nContent-Encoding: gzip\r\nX-Kept: by the route\r\nX-Other: 1\r\n"
               "WWW-Authenticate: Bearer\r\nEmpty: \r\n");
    answer_kept_lines(&out, &h, &none);
    check_text(&out,
               "Content-Type: application/json\r\nLink: </next>; rel=\"next\"\r\nLocation: /orders/1\r\n"
               "ETag: \"1\"\r\nLast-Modified: then\r\nRetry-After: 3\r\nContent-Encoding: gzip\r\n");
    /* The route may add to the list, but never cookies, dates, hop-by-hop fields or ours. */
    answer_kept_lines(&out, &h, &own);
    check_text(&out,
               "Content-Type: application/json\r\nLink: </next>; rel=\"next\"\r\nLocation: /orders/1\r\n"
               "ETag: \"1\"\r\nLast-Modified: then\r\nRetry-After: 3\r\nContent-Encoding: gzip\r\n"
               "X-Kept: by the route\r\n");
    struct headers empty = {NULL, 0};
    answer_upstream_lines(&out, &empty);
    answer_kept_lines(&out, &empty, &own);
    assert_int_equal(out.len, 0);
    buffer_fini(&out);
}

/* A field that Connection names is hop-by-hop, also where it would be kept, and however long its name is. */
static void connection_names_what_stays_here(void **state)
{
    (void)state;
    static char name[301];
    memset(name, 'n', 300);
    struct header list[] = {field("Connection", "ETag ,Content-Type"),
                            field("Connection", name),
                            field("etag", "1"),
                            field("Content-Type", "x"),
                            field(name, "long"),
                            field("Location", "/1")};
    struct headers h = {list, COUNT(list)};
    struct text_list none = {NULL, 0};
    struct buffer out = {0};
    answer_upstream_lines(&out, &h);
    check_text(&out, "Location: /1\r\n");
    answer_kept_lines(&out, &h, &none);
    check_text(&out, "Location: /1\r\n");
    buffer_fini(&out);
}

static void which_names_are_kept(void **state)
{
    (void)state;
    struct text_list none = {NULL, 0};
    static const char *const kept[] = {"Content-Type", "CONTENT-LANGUAGE", "content-disposition",
                                       "Content-X",    "location",         "etag",
                                       "LINK",         "last-modified",    "retry-after"};
    static const char *const not_kept[] = {
        "Content-Length", "content-length", "Content-", "Contents", "Set-Cookie", "set-cookie2",
        "Date",           "Server",         "Age",      "Vary",     "",           "X-Call-Id"};
    for (size_t i = 0; i < COUNT(kept); i++)
        assert_true(field_is_kept(slice_text(kept[i]), &none));
    for (size_t i = 0; i < COUNT(not_kept); i++)
        assert_false(field_is_kept(slice_text(not_kept[i]), &none));
    static const char *const ours[] = {"x-call-id",           "X-CALL-ID-SOURCE",   "call-outcome",
                                       "idempotent-replayed", "x-original-call-id", "x-suspected-duplicate"};
    for (size_t i = 0; i < COUNT(ours); i++)
        assert_true(field_is_ours(slice_text(ours[i])));
    assert_false(field_is_ours(slice_text("Link"))); /* ours is a line of its own beside theirs */
    assert_false(field_is_ours(slice_text("X-Call-Id-")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_own_lines),
        cmocka_unit_test(exposure_names_all_of_ours),
        cmocka_unit_test(an_upstreams_lines_for_the_caller),
        cmocka_unit_test(connection_names_what_stays_here),
        cmocka_unit_test(which_names_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
