/* SPDX-License-Identifier: MIT
 *
 * Who a request is: callId, key, tenant, credential, trace and budget, read by a route's rules (CONTRACT section 2), and
 * the refusals in the order of section 5.
 */
#include "../base/check.h"

#include "core/deadline.h"
#include "core/digest.h"
#include "gateway/conf.h"
#include "gateway/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HEADERS_MAX 16
#define WINDOW_MS   INT64_C(1772366400000) /* 2026-03-01T12:00:00Z */

/* A gateway's configuration, and one request at a time. */
struct desk {
    struct setup *setup;
    struct hasher hasher;
    struct arena arena;
    struct header list[HEADERS_MAX];
    struct request_head head;
    struct route_match match;
    struct identity_inputs in;
    char text[1024];
};

static void open_desk(struct desk *d, const char *conf)
{
    char file[] = "/tmp/samekey-test-identity-XXXXXX";
    int fd = mkstemp(file);
    struct settings *settings = NULL;
    struct buffer said = {0};
    assert_true(fd >= 0);
    assert_int_equal(write(fd, conf, strlen(conf)), strlen(conf));
    close(fd);
    if (conf_load(&settings, file, NULL, &said) != STATUS_OK)
        fail_msg("%s", buffer_cstring(&said));
    unlink(file);
    memset(d, 0, sizeof *d);
    if (setup_new(&d->setup, settings, &said) != STATUS_OK)
        fail_msg("%s", buffer_cstring(&said));
    buffer_fini(&said);
    assert_int_equal(hasher_init(&d->hasher), STATUS_OK);
    arena_init(&d->arena, 1 << 20);
}

static void close_desk(struct desk *d)
{
    setup_release(d->setup);
    hasher_fini(&d->hasher);
    arena_fini(&d->arena);
}

/* `headers` is one "Name: value" a line. */
static void arrive(struct desk *d, const char *method, const char *target, const char *headers,
                   const char *body)
{
    snprintf(d->text, sizeof d->text, "%s", headers);
    arena_clear(&d->arena);
    d->head = (struct request_head){
        .method = slice_text(method), .target = slice_text(target), .headers = {d->list, 0}};
    const char *question = strchr(target, '?');
    d->head.path = slice_of(target, question ? (size_t)(question - target) : strlen(target));
    d->head.query = slice_text(question ? question + 1 : "");
    for (char *line = d->text; *line;) {
        char *stop = strchr(line, '\n');
        size_t len = stop ? (size_t)(stop - line) : strlen(line);
        char *colon = memchr(line, ':', len);
        assert_true(colon && d->head.headers.count < HEADERS_MAX);
        d->list[d->head.headers.count++] =
            (struct header){slice_of(line, (size_t)(colon - line)),
                            slice_trim(slice_of(colon + 1, len - (size_t)(colon - line) - 1))};
        line += len + (stop ? 1 : 0);
    }
    assert_int_equal(routes_match(d->setup->routes, d->head.method, d->head.target, &d->match), STATUS_OK);
    d->in = (struct identity_inputs){.setup = d->setup,
                                     .lane = &d->setup->lanes[d->match.route_index],
                                     .match = &d->match,
                                     .head = &d->head,
                                     .body = slice_text(body),
                                     .hasher = &d->hasher,
                                     .arena = &d->arena};
}

/* Reads it whole; the slug of its problem, or "". */
static const char *read_it(struct desk *d, struct identity *id)
{
    enum problem problem = identity_read_head(id, &d->in);
    if (!problem)
        problem = identity_read_body(id, &d->in, WINDOW_MS);
    if (problem)
        assert_non_null(id->why);
    return problem ? problem_slug(problem) : "";
}

static void wants(struct desk *d, struct identity *id, const char *headers, const char *body,
                  const char *slug)
{
    arrive(d, "POST", "/orders", headers, body);
    assert_string_equal(read_it(d, id), slug);
}

static void is(struct slice s, const char *text)
{
    if (!slice_is(s, text))
        fail_msg("'%.*s' is not '%s'", (int)s.len, s.data, text);
}

#define ROUTE_TOP(name)                                                                                      \
    "route \"" name "\" {\n path = {\"/" name                                                                \
    "\"}\n upstream = {\"http://127.0.0.1:9\"}\n receipt = samekey\n"

/* ---- headers --------------------------------------------------------------------------------------------------- */

static void call_id_and_key_of_the_headers(void **state)
{
    (void)state;
    struct desk d;
    struct identity id;
    open_desk(&d, ROUTE_TOP("orders") "}\n");
    wants(&d, &id, "X-Call-Id: ord-1\nIdempotency-Key: \"k-1\"", "", "");
    is(id.call_id, "ord-1");
    is(id.key, "k-1");
    is(id.key_spelling, "\"k-1\"");
    is(id.scope, "orders /orders");
    is(id.route, "orders");
    assert_true(id.has_key && !id.has_credential && !id.has_trace && !id.call_id_made);
    assert_int_equal(id.tenant.len, 0);
    assert_int_equal(id.budget_ms, DEADLINE_NO_BUDGET);
    assert_int_equal(id.id_time_ms, 0);
    wants(&d, &id, "Idempotency-Key: k-1", "", "");
    is(id.key, "k-1");
    assert_int_equal(id.key_spelling.len, 0);
    assert_int_equal(id.call_id.len, 0); /* to be made */
    /* The header repeated with one value is one key, in either spelling. */
    wants(&d, &id, "idempotency-key: k-1\nIDEMPOTENCY-KEY: \"k-1\"\nx-call-id: c\nX-CALL-ID: c", "", "");
    is(id.key, "k-1");
    is(id.call_id, "c");
    wants(&d, &id, "X-Call-Id: ord-1710000000000-a3f91c07b2e4-node07\nIdempotency-Key: k", "", "");
    assert_true(id.id_time_ms == INT64_C(1710000000000));
    close_desk(&d);
}

static void what_the_headers_may_not_say(void **state)
{
    (void)state;
    struct desk d;
    struct identity id;
    static const struct {
        const char *headers, *slug;
    } table[] = {
        {"", "key-missing"},
        {"X-Call-Id: c-1", "key-missing"}, /* a callId does not replace a required key */
        {"Idempotency-Key: a\nIdempotency-Key: b", "key-invalid"},
        {"Idempotency-Key: a\nIdempotency-Key: A", "key-invalid"}, /* case matters */
        {"Idempotency-Key:", "key-invalid"},
        {"Idempotency-Key: \"\"", "key-invalid"},
        {"Idempotency-Key: a b", "key-invalid"},
        {"Idempotency-Key: caf\xc3\xa9", "key-invalid"},
        {"Idempotency-Key: \"open", "key-invalid"},
        {"Idempotency-Key: k\nX-Call-Id:", "call-id-invalid"},
        {"Idempotency-Key: k\nX-Call-Id: a b", "call-id-invalid"},
        {"Idempotency-Key: k\nX-Call-Id: a/b", "call-id-invalid"},
        {"Idempotency-Key: k\nX-Call-Id: a\nX-Call-Id: b", "call-id-invalid"},
        {"Idempotency-Key: k\nX-Call-Id: caf\xc3\xa9", "call-id-invalid"},
        {"X-Call-Id: a,b", "call-id-invalid"}, /* told before the missing key */
        {"Idempotency-Key: k\nIdempotency-Key: k\nIdempotency-Key: k\nIdempotency-Key: k\nIdempotency-Key: "
         "k\n"
         "Idempotency-Key: k\nIdempotency-Key: k\nIdempotency-Key: k\nIdempotency-Key: k",
         "key-invalid"},
    };
    open_desk(&d, ROUTE_TOP("orders") "}\n");
    for (size_t i = 0; i < COUNT(table); i++)
        wants(&d, &id, table[i].headers, "", table[i].slug);
    /* The bounds: 128 bytes of callId, 255 of key. */
    for (int over = 0; over < 2; over++) {
        char headers[600];
        snprintf(headers, sizeof headers, "X-Call-Id: %0*d\nIdempotency-Key: k", 128 + over, 7);
        wants(&d, &id, headers, "", over ? "call-id-invalid" : "");
        snprintf(headers, sizeof headers, "Idempotency-Key: %0*d", 255 + over, 7);
        wants(&d, &id, headers, "", over ? "key-invalid" : "");
    }
    close_desk(&d);
    /* A pass route takes a call without a key, not one with a wrong key. */
    open_desk(&d, ROUTE_TOP("orders") " key_missing = pass\n}\n");
    wants(&d, &id, "", "", "");
    assert_false(id.has_key);
    wants(&d, &id, "Idempotency-Key: a b", "", "key-invalid");
    wants(&d, &id, "Idempotency-Key:", "", "key-invalid");
    close_desk(&d);
}

static void trace_budget_and_business_reference(void **state)
{
    (void)state;
    struct desk d;
    struct identity id;
    open_desk(&d, ROUTE_TOP("orders") "}\n");
    wants(&d, &id,
          "Idempotency-Key: k\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n"
          "X-Call-Budget-Ms: 1500\nX-Business-Ref: order 42",
          "", "");
    assert_true(id.has_trace);
    is(id.trace_id, "0af7651916cd43dd8448eb211c80319c");
    assert_int_equal(id.budget_ms, 1500);
    is(id.business_ref, "order 42");
    /* What cannot be read is as if it were not there; none of it is a reason to refuse. */
    static const char *const odd[] = {"-1", "1.5", "soon", "", "1e3", "+5", "0x10"};
    for (size_t i = 0; i < COUNT(odd); i++) {
        char headers[200];
        snprintf(headers, sizeof headers, "Idempotency-Key: k\nX-Call-Budget-Ms: %s\ntraceparent: 00-%s",
                 odd[i], odd[i]);
        wants(&d, &id, headers, "", "");
        assert_int_equal(id.budget_ms, DEADLINE_NO_BUDGET);
        assert_false(id.has_trace);
    }
    char headers[400];
    snprintf(headers, sizeof headers, "Idempotency-Key: k\nX-Business-Ref: %0256d", 1);
    wants(&d, &id, headers, "", "");
    assert_int_equal(id.business_ref.len, 0);
    close_desk(&d);
}

/* ---- tenant and credential --------------------------------------------------------------------------------------- */

static void tenants_and_credentials(void **state)
{
    (void)state;
    struct desk d;
    struct identity id, other;
    open_desk(&d,
              "tenant = \"{header.X-Tenant}\"\ncredential = \"{header.X-User}\"\n" ROUTE_TOP("orders") "}\n");
    wants(&d, &id, "X-Tenant: acme\nX-User: ann\nIdempotency-Key: k", "", "");
    is(id.tenant, "acme");
    assert_true(id.has_credential);
    wants(&d, &other, "X-Tenant: acme\nX-User: bob\nIdempotency-Key: k", "", "");
    is(other.tenant, "acme");
    assert_false(digest_equal(&id.credential, &other.credential));
    wants(&d, &other, "x-user: ann\nx-tenant: acme\nIdempotency-Key: k2", "", "");
    assert_true(digest_equal(&id.credential, &other.credential));
    static const struct {
        const char *headers, *slug;
    } table[] = {
        {"X-User: ann\nIdempotency-Key: k", "tenant-missing"},
        {"X-Tenant:\nX-User: ann\nIdempotency-Key: k", "tenant-missing"},
        {"X-Tenant: a\nX-Tenant: b\nX-User: ann\nIdempotency-Key: k", "tenant-missing"}, /* which one? */
        {"X-Tenant: acme\nIdempotency-Key: k", "credential-missing"},
        {"X-Tenant: acme\nX-User:\nIdempotency-Key: k", "credential-missing"},
        {"X-Tenant: acme\nX-User: ann\nX-User: bob\nIdempotency-Key: k", "credential-missing"},
        /* The order of section 5: callId, tenant, credential, key. */
        {"X-Call-Id: a b", "call-id-invalid"},
        {"Idempotency-Key: a b", "tenant-missing"},
        {"X-Tenant: acme\nIdempotency-Key: a b", "credential-missing"},
        {"X-Tenant: acme\nX-User: ann\nIdempotency-Key: a b", "key-invalid"},
    };
    for (size_t i = 0; i < COUNT(table); i++)
        wants(&d, &id, table[i].headers, "", table[i].slug);
    /* The receipt API wants to know no more than this. */
    arrive(&d, "POST", "/orders", "X-Tenant: acme\nX-User: ann", "");
    d.in.lane = NULL;
    d.in.match = NULL;
    memset(&id, 0, sizeof id);
    assert_int_equal(identity_read_principal(&id, &d.in), PROBLEM_NONE);
    is(id.tenant, "acme");
    close_desk(&d);
    /* With a credential alone, it is the tenant, and is not stored as it is. */
    open_desk(&d, "credential = \"{header.Authorization}\"\n" ROUTE_TOP("orders") "}\n");
    wants(&d, &id, "Authorization: Bearer s3cret\nIdempotency-Key: k", "", "");
    assert_int_equal(id.tenant.len, 32);
    assert_null(memmem(id.tenant.data, id.tenant.len, "s3cret", 6));
    char tenant[33];
    snprintf(tenant, sizeof tenant, "%.*s", (int)id.tenant.len, id.tenant.data);
    wants(&d, &other, "Authorization: Bearer other\nIdempotency-Key: k", "", "");
    assert_false(slice_is(other.tenant, tenant));
    wants(&d, &other, "Authorization: Bearer s3cret\nIdempotency-Key: k9", "", "");
    assert_true(slice_is(other.tenant, tenant));
    close_desk(&d);
}

/* ---- templates ------------------------------------------------------------------------------------------------- */

static void key_and_call_id_of_the_body(void **state)
{
    (void)state;
    struct desk d;
    struct identity id;
    open_desk(
        &d,
        ROUTE_TOP("orders") " call_id = \"{json.meta.call_id}\"\n"
                            " key = \"order:{json.order_no}:{header.X-Kind}:{query.shop}:{date:+08:00}\"\n"
                            " business_ref = \"{json.order_no}\"\n}\n");
    arrive(&d, "POST", "/orders?a=b&shop=7&c", "X-Kind: create\nX-Call-Id: ord-9",
           "{\"order_no\":42,\"meta\":{\"call_id\":\"ord-9\"}}");
    assert_string_equal(read_it(&d, &id), "");
    is(id.call_id, "ord-9");
    is(id.key, "order:42:create:7:2026-03-01");
    is(id.business_ref, "42");
    assert_true(id.has_key);
    assert_int_equal(id.key_spelling.len, 0);
    static const struct {
        const char *target, *body, *slug;
    } table[] = {
        {"/orders?shop=7", "{\"order_no\":42}", ""}, /* no callId: one is made */
        {"/orders?shop=7", "{\"order_no\":42,\"meta\":{\"call_id\":null}}", ""},
        {"/orders?shop=7", "{\"order_no\":42,\"meta\":{\"call_id\":\"a b\"}}", "call-id-invalid"},
        {"/orders?shop=7", "{\"order_no\":42,\"meta\":{\"call_id\":\"a\\u0001\"}}", "call-id-invalid"},
        {"/orders", "{\"order_no\":42}", "key-missing"},
        {"/orders?shop=", "{\"order_no\":42}", "key-missing"},
        {"/orders?shop=7", "{\"order_no\":null}", "key-missing"},
        {"/orders?shop=7", "{\"order_no\":\"\"}", "key-missing"},
        {"/orders?shop=7", "{\"order_no\":[42]}", "key-missing"},
        {"/orders?shop=7", "{}", "key-missing"},
        {"/orders?shop=7", "", "key-missing"},
        {"/orders?shop=7", "{\"order_no\":\"caf\xc3\xa9 a:b\"}", ""},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        arrive(&d, "POST", table[i].target, "X-Kind: create", table[i].body);
        const char *got = read_it(&d, &id);
        if (strcmp(got, table[i].slug) != 0)
            fail_msg("%s %s: '%s', not '%s'", table[i].target, table[i].body, got, table[i].slug);
    }
    /* A part stays a part, whatever bytes it has. */
    is(id.key, "order:caf%C3%A9%20a%3Ab:create:7:2026-03-01");
    /* The header names the call where the body does not, and must not name another one. */
    arrive(&d, "POST", "/orders?shop=7", "X-Kind: create\nX-Call-Id: ord-8", "{\"order_no\":42}");
    assert_string_equal(read_it(&d, &id), "");
    is(id.call_id, "ord-8");
    arrive(&d, "POST", "/orders?shop=7", "X-Kind: create\nX-Call-Id: ord-8",
           "{\"order_no\":42,\"meta\":{\"call_id\":\"ord-9\"}}");
    assert_string_equal(read_it(&d, &id), "call-id-invalid");
    char body[800];
    snprintf(body, sizeof body, "{\"order_no\":\"%0400d\"}", 1);
    arrive(&d, "POST", "/orders?shop=7", "X-Kind: create", body);
    assert_string_equal(read_it(&d, &id), "key-invalid");
    /* A callId that is there must be right, also when it is far too long to be one. */
    snprintf(body, sizeof body, "{\"order_no\":1,\"meta\":{\"call_id\":\"%0129d\"}}", 1);
    arrive(&d, "POST", "/orders?shop=7", "X-Kind: create", body);
    assert_string_equal(read_it(&d, &id), "call-id-invalid");
    struct buffer huge = {0};
    buffer_text(&huge, "{\"order_no\":1,\"meta\":{\"call_id\":\"");
    for (int i = 0; i < 20000; i++)
        buffer_byte(&huge, 'x');
    buffer_text(&huge, "\"}}");
    arrive(&d, "POST", "/orders?shop=7", "X-Kind: create", buffer_cstring(&huge));
    assert_string_equal(read_it(&d, &id), "call-id-invalid");
    buffer_fini(&huge);
    /* The template's key names the operation; what the caller sent goes up as it is. */
    arrive(&d, "POST", "/orders?shop=7", "X-Kind: create\nIdempotency-Key: mine", "{\"order_no\":42}");
    assert_string_equal(read_it(&d, &id), "");
    is(id.key, "order:42:create:7:2026-03-01");
    is(id.key_spelling, "mine");
    close_desk(&d);
}

static void parts_of_the_path(void **state)
{
    (void)state;
    struct desk d;
    struct identity id;
    open_desk(&d,
              "route \"orders\" {\n path = {\"/orders/{id}/cancel\"}\n upstream = {\"http://127.0.0.1:9\"}\n"
              " receipt = samekey\n key = \"cancel:{path.id}\"\n}\n");
    arrive(&d, "POST", "/orders/a%20b/cancel", "", "");
    assert_string_equal(read_it(&d, &id), "");
    is(id.key, "cancel:a%2520b"); /* as received, and one part */
    is(id.scope, "orders /orders/{id}/cancel");
    close_desk(&d);
}

/* ---- digests --------------------------------------------------------------------------------------------------- */

static void parts_never_run_into_each_other(void **state)
{
    (void)state;
    struct hasher h;
    assert_int_equal(hasher_init(&h), STATUS_OK);
    static const struct {
        const char *tenant, *scope, *key;
    } ids[] = {{"a", "b", "c"}, {"ab", "", "c"}, {"", "ab", "c"}, {"a", "bc", ""},
               {"", "", "abc"}, {"abc", "", ""}, {"a", "b", "C"}};
    struct identity read[COUNT(ids)];
    for (size_t i = 0; i < COUNT(ids); i++) {
        read[i] = (struct identity){.tenant = slice_text(ids[i].tenant),
                                    .scope = slice_text(ids[i].scope),
                                    .key = slice_text(ids[i].key),
                                    .call_id = slice_text(ids[i].key),
                                    .has_key = true};
        identity_digest(&read[i], &h);
        for (size_t k = 0; k < i; k++)
            assert_false(digest_equal(&read[i].operation, &read[k].operation));
        assert_false(digest_equal(&read[i].operation, &read[i].call_digest));
    }
    /* A callId is the tenant's, on whatever route. */
    struct identity same = {
        .tenant = slice_text("a"), .scope = slice_text("other"), .call_id = slice_text("c")};
    identity_digest(&same, &h);
    assert_true(digest_equal(&same.call_digest, &read[0].call_digest));
    same.tenant = slice_text("b");
    identity_digest(&same, &h);
    assert_false(digest_equal(&same.call_digest, &read[0].call_digest));
    hasher_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_id_and_key_of_the_headers),      cmocka_unit_test(what_the_headers_may_not_say),
        cmocka_unit_test(trace_budget_and_business_reference), cmocka_unit_test(tenants_and_credentials),
        cmocka_unit_test(key_and_call_id_of_the_body),         cmocka_unit_test(parts_of_the_path),
        cmocka_unit_test(parts_never_run_into_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
