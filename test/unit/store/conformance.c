/* SPDX-License-Identifier: MIT
 *
 * The conformance suite of stores: what store.h promises, by the number of the guarantee, over whatever store the
 * program that includes this file opens in bench_open(). A story names its calls A, B, C; their digests are the real
 * ones, their clock is the test's own.
 *
 * The including program defines:
 *   static enum status bench_open(struct store **out, const char *owner, struct buffer *error);  the same store again
 *   static void bench_clean(void);                                                            an empty one, next time
 *   CONFORMANCE_SHARED as 1, if several processes may write the store at once.
 */
#include "core/digest.h"
#include "store/secret.h"
#include "store/store.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static enum status bench_open(struct store **out, const char *owner, struct buffer *error);
static void bench_clean(void);

#ifndef CONFORMANCE_SHARED
#define CONFORMANCE_SHARED                                                                                   \
    0 /* 1: several processes write the store, and a lease is judged by its end alone */
#endif

#define LIFE_MS   1000000
#define OPS_MAX   64
#define IN(state) (1u << STATE_##state)

static int64_t now_ms = 1710000000000;
static struct hasher hasher;
static struct store *store;

static int64_t test_clock(void *context)
{
    (void)context;
    return now_ms;
}

static void open_as(const char *owner)
{
    struct buffer error = {0};
    enum status status = bench_open(&store, owner, &error);
    if (status != STATUS_OK)
        fail_msg("%s", buffer_cstring(&error));
    buffer_fini(&error);
}

static void reopen_as(const char *owner)
{
    store_close(store);
    open_as(owner);
}

static int begin(void **state)
{
    (void)state;
    assert_int_equal(hasher_init(&hasher), STATUS_OK);
    bench_clean();
    open_as("first");
    return 0;
}

static int finish(void **state)
{
    (void)state;
    store_close(store);
    store = NULL;
    hasher_fini(&hasher);
    bench_clean();
    return 0;
}

/* ---- asking ---- */

static void run(struct store_op *op)
{
    struct store_op *list[] = {op};
    store_batch(store, list, 1);
}

static void identify(struct call_row *row, const char *call_id, const char *key, const char *print)
{
    memset(row, 0, sizeof *row);
    row->tenant = slice_text("t1");
    row->route = row->scope = slice_text("orders");
    row->call_id = slice_text(call_id);
    row->call_digest = digest_call(&hasher, row->tenant, row->call_id);
    if (key) {
        row->key = slice_text(key);
        row->has_key = true;
        row->operation_digest = digest_operation(&hasher, row->tenant, row->scope, row->key);
    }
    if (print) {
        row->has_fingerprint = true;
        row->fingerprint_version = 1;
        memset(row->fingerprint.bytes, print[0], sizeof row->fingerprint.bytes);
        row->fingerprint.bytes[31] = (uint8_t)print[strlen(print) - 1];
    }
    row->owner = slice_text("first");
}

static void ask_claim(struct store_op *op, const char *call_id, const char *key, const char *print)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    op->kind = STORE_CLAIM;
    identify(&op->row, call_id, key, print);
    op->row.state = STATE_PROCESSING;
    op->row.fence = 1;
    op->row.attempt_count = 1;
    op->row.lease_end_ms = now_ms + 60000;
    op->row.first_attempt_ms = now_ms;
}

/* Claims, and gives the new row's id; 0 if the claim was not done. */
static int64_t claim(const char *call_id, const char *key, const char *print)
{
    struct store_op op = {0};
    ask_claim(&op, call_id, key, print);
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    int64_t id = op.done ? op.rows.call.id : 0;
    store_op_fini(&op);
    return id;
}

static void ask_end(struct store_op *op, int64_t id, int64_t fence, enum call_state state, const char *body)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    op->kind = STORE_END;
    op->id = id;
    op->fence = fence;
    op->from_states = IN(PROCESSING);
    op->row.state = state;
    op->row.final = state == STATE_SUCCESS;
    if (body) {
        op->row.has_result = op->row.body_kept = true;
        op->row.result_status = 201;
        op->row.result_headers = slice_text("content-type: text/plain\r\n");
        op->row.result_body = slice_text(body);
    }
    op->row.result_expires_ms = now_ms + LIFE_MS;
    op->row.key_expires_ms = now_ms + LIFE_MS;
    op->row.tombstone_expires_ms = now_ms + 3 * LIFE_MS;
}

static void end(int64_t id, int64_t fence, enum call_state state, const char *body)
{
    struct store_op op = {0};
    ask_end(&op, id, fence, state, body);
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_true(op.done);
    store_op_fini(&op);
}

static void look(struct store_op *op, const char *call_id)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    op->kind = STORE_LOOKUP;
    identify(&op->row, call_id, NULL, NULL);
    run(op);
    assert_int_equal(op->status, STATUS_OK);
}

static void expect_state(const char *call_id, enum call_state state, bool final, enum reason reason)
{
    struct store_op op = {0};
    look(&op, call_id);
    assert_int_equal(op.rows.call.state, state);
    assert_int_equal(op.rows.call.final, final);
    assert_int_equal(op.rows.call.reason, reason);
    store_op_fini(&op);
}

static void ask_take(struct store_op *op, const char *call_id, const char *key, const char *print)
{
    ask_claim(op, call_id, key, print);
    op->kind = STORE_TAKE;
}

static size_t purge(size_t limit)
{
    struct store_op op = {.kind = STORE_PURGE, .limit = limit};
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    size_t count = op.count;
    assert_true(count <= limit);
    store_op_fini(&op);
    return count;
}

#define EXPECT_TEXT(given, text)                                                                             \
    do {                                                                                                     \
        struct slice is_ = (given);                                                                          \
        assert_int_equal(is_.len, strlen(text));                                                             \
        assert_memory_equal(is_.data, text, is_.len);                                                        \
    } while (0)

/* ---- (1) what was answered is on disk ---- */

static void claims_and_endings_outlive_the_store(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1"), b = claim("B", "k2", "f2");
    end(a, 1, STATE_SUCCESS, "done");
    reopen_as("second");
    struct store_op op = {0};
    look(&op, "A");
    assert_int_equal(op.rows.call.id, a);
    EXPECT_TEXT(op.rows.call.result_body, "done");
    assert_int_equal(op.rows.holder.id, a);
    look(&op, "B");
    assert_int_equal(op.rows.call.id, b);
    assert_int_equal(op.rows.call.state, STATE_PROCESSING);
    store_op_fini(&op);
    assert_true(claim("C", "k3", "f3") > b);
    assert_int_equal(claim("A2", "k1", "f1"), 0);
}

/* ---- (2) one winner, and its rows for the loser ---- */

static void two_claims_of_one_key_have_one_winner(void **state)
{
    (void)state;
    struct store_op a = {0}, b = {0}, c = {0}, *list[] = {&a, &b, &c};
    ask_claim(&a, "A", "k1", "f1");
    ask_claim(&b, "B", "k1", "f1");
    ask_claim(&c, "A", "k1", "f1");
    store_batch(store, list, 3);
    assert_true(a.done);
    assert_int_equal(a.rows.call.created_ms, now_ms);
    assert_int_equal(a.rows.call.window_ms, now_ms);
    assert_int_equal(a.rows.now_ms, now_ms);
    assert_false(b.done);
    assert_int_equal(b.rows.call.id, 0);
    assert_int_equal(b.rows.holder.id, a.rows.call.id);
    EXPECT_TEXT(b.rows.holder.call_id, "A");
    assert_false(c.done);
    assert_int_equal(c.rows.call.id, a.rows.call.id);
    assert_int_equal(c.rows.holder.id, a.rows.call.id);
    /* The loser left nothing behind: its callId is free for another key. */
    ask_claim(&b, "B", "k2", "f2");
    run(&b);
    assert_true(b.done);
    store_op_fini(&a), store_op_fini(&b), store_op_fini(&c);
}

static void a_callid_with_another_key_gets_its_row_and_the_keys_holder(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1"), b = claim("B", "k2", "f2");
    struct store_op op = {0};
    ask_claim(&op, "A", "k2", "f2");
    run(&op);
    assert_false(op.done);
    assert_int_equal(op.rows.call.id, a);
    assert_int_equal(op.rows.holder.id, b);
    store_op_fini(&op);
}

static void a_key_of_another_tenant_or_scope_is_another_key(void **state)
{
    (void)state;
    assert_true(claim("A", "k1", "f1"));
    struct store_op op = {0};
    ask_claim(&op, "A", "k1", "f1");
    op.row.tenant = slice_text("t2");
    op.row.call_digest = digest_call(&hasher, op.row.tenant, op.row.call_id);
    op.row.operation_digest = digest_operation(&hasher, op.row.tenant, op.row.scope, op.row.key);
    run(&op);
    assert_true(op.done);
    store_op_fini(&op);
}

/* A person knows the callId and not the tenant: one tenant's call is found, two are told apart from none. */
static void a_callid_is_found_without_its_tenant(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    assert_true(a && claim("B", "k2", "f1"));
    for (int two = 0; two < 2; two++) {
        op.kind = STORE_LOOKUP;
        op.any_tenant = true;
        op.row.call_id = slice_text("A");
        op.row.call_digest = digest_call(&hasher, slice_of("", 0), op.row.call_id);
        run(&op);
        assert_int_equal(op.status, two ? STATUS_CONFLICT : STATUS_OK);
        assert_int_equal(op.rows.call.id, two ? 0 : a);
        ask_claim(&op, "A", "k1", "f1");
        op.row.tenant = slice_text("t2");
        op.row.call_digest = digest_call(&hasher, op.row.tenant, op.row.call_id);
        op.row.operation_digest = digest_operation(&hasher, op.row.tenant, op.row.scope, op.row.key);
        run(&op);
        assert_int_equal(op.done, !two);
        store_op_fini(&op);
        memset(&op, 0, sizeof op);
    }
    op.kind = STORE_LOOKUP;
    op.any_tenant = true;
    op.row.call_id = slice_text("never");
    op.row.call_digest = digest_call(&hasher, slice_of("", 0), op.row.call_id);
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.rows.call.id, 0);
    store_op_fini(&op);
}

static void calls_without_a_key_hold_none(void **state)
{
    (void)state;
    assert_true(claim("A", NULL, "f1"));
    assert_true(claim("B", NULL, "f1"));
    assert_int_equal(claim("A", NULL, "f1"), 0);
}

static void two_texts_under_one_digest_are_refused(void **state)
{
    (void)state;
    claim("A", "k1", "f1");
    struct store_op op = {0};
    ask_claim(&op, "A", "k1", "f1");
    op.row.call_id = slice_text("other"); /* with A's digest */
    run(&op);
    assert_int_equal(op.status, STATUS_INVALID);
    assert_false(op.done);
    assert_int_equal(op.rows.call.id, 0);
    ask_claim(&op, "B", "k1", "f1");
    op.row.key = slice_text("k-other"); /* with k1's digest */
    run(&op);
    assert_int_equal(op.status, STATUS_INVALID);
    assert_int_equal(op.rows.holder.id, 0);
    store_op_fini(&op);
}

/* ---- (3) the fingerprint is in the loser's rows ---- */

static void the_loser_sees_the_fingerprint(void **state)
{
    (void)state;
    claim("A", "k1", "f1");
    struct store_op op = {0};
    ask_claim(&op, "B", "k1", "f2");
    run(&op);
    assert_false(op.done);
    assert_true(op.rows.holder.has_fingerprint);
    assert_int_equal(op.rows.holder.fingerprint_version, 1);
    assert_int_equal(op.rows.holder.fingerprint.bytes[31], '1');
    store_op_fini(&op);
}

/* ---- (4) only the current owner writes ---- */

static void an_old_fencing_number_writes_nothing(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1");
    static const enum store_kind kinds[] = {STORE_ATTEMPT, STORE_RENEW, STORE_END};
    struct store_op op = {0};
    for (size_t i = 0; i < 3; i++) {
        ask_end(&op, a, 2, STATE_SUCCESS, "forged");
        op.kind = kinds[i];
        run(&op);
        assert_int_equal(op.status, STATUS_CONFLICT);
        assert_false(op.done);
        assert_int_equal(op.rows.call.id, a);
        assert_int_equal(op.rows.call.fence, 1);
        assert_int_equal(op.rows.call.state, STATE_PROCESSING);
    }
    store_op_fini(&op);
    expect_state("A", STATE_PROCESSING, false, REASON_NONE);
}

static void the_owner_writes_attempts_and_leases(void **state)
{
    (void)state;
    struct store_op op = {0};
    ask_claim(&op, "A", "k1", "f1");
    op.row.first_attempt_ms = 0;
    run(&op);
    int64_t a = op.rows.call.id;
    ask_end(&op, a, 1, STATE_PROCESSING, NULL);
    op.kind = STORE_ATTEMPT;
    op.row.attempt_count = 2;
    op.row.attempts = slice_text("[1]");
    op.row.maybe_ran = true;
    op.row.lease_end_ms = now_ms + 5;
    op.row.first_attempt_ms = now_ms - 1;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_true(op.done);
    op.row.first_attempt_ms = now_ms + 1;
    run(&op);
    op.kind = STORE_RENEW;
    op.row.lease_end_ms = now_ms + 77;
    run(&op);
    assert_true(op.done);
    look(&op, "A");
    assert_int_equal(op.rows.call.attempt_count, 2);
    EXPECT_TEXT(op.rows.call.attempts, "[1]");
    assert_true(op.rows.call.maybe_ran);
    assert_int_equal(op.rows.call.first_attempt_ms, now_ms - 1);
    assert_int_equal(op.rows.call.lease_end_ms, now_ms + 77);
    store_op_fini(&op);
}

static void an_outsider_raises_the_number_and_the_owner_is_out(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1");
    struct store_op op = {0};
    ask_end(&op, a, 0, STATE_SUCCESS, "reported");
    op.any_fence = true;
    op.row.reason = REASON_REPORTED;
    run(&op);
    assert_true(op.done);
    ask_end(&op, a, 1, STATE_UNKNOWN, NULL);
    run(&op);
    assert_int_equal(op.status, STATUS_CONFLICT);
    assert_int_equal(op.rows.call.fence, 2);
    assert_int_equal(op.rows.call.state, STATE_SUCCESS);
    EXPECT_TEXT(op.rows.call.result_body, "reported");
    store_op_fini(&op);
}

/* ---- (5) endings do not change, bytes come back ---- */

static void an_ended_row_is_never_written_again(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_SUCCESS, "first");
    struct store_op op = {0};
    for (int outsider = 0; outsider < 2; outsider++) {
        ask_end(&op, a, 1, STATE_FAILED, "second");
        op.any_fence = outsider;
        op.from_states = ~0u;
        run(&op);
        assert_int_equal(op.status, STATUS_CONFLICT);
        EXPECT_TEXT(op.rows.call.result_body, "first");
    }
    store_op_fini(&op);
    expect_state("A", STATE_SUCCESS, true, REASON_NONE);
}

static void every_field_comes_back_as_it_went_in(void **state)
{
    (void)state;
    static const char raw[] = "\0\xff\r\n\x80 body \0 with zeros";
    struct store_op op = {0};
    ask_claim(&op, "A", "k1", "f1");
    struct call_row *row = &op.row;
    row->call_id_made = row->has_credential = true;
    memset(row->credential.bytes, 7, sizeof row->credential.bytes);
    row->key_spelling = slice_text("\"k1\"");
    row->business_ref = slice_text("order \xc3\xa9 42");
    row->trace_id = slice_text("trace");
    row->fingerprint_rules = slice_text("ignore=json.sent_at");
    row->reverses = slice_text("Z");
    row->proof = PROOF_BESIDE;
    run(&op);
    assert_true(op.done);
    int64_t a = op.rows.call.id;
    EXPECT_TEXT(op.rows.call.business_ref, "order \xc3\xa9 42");
    ask_end(&op, a, 1, STATE_SUCCESS, "");
    op.row.result_body = slice_of(raw, sizeof raw);
    op.row.result_headers = slice_text("x: 1\r\nx: 2\r\n");
    op.row.attempts = slice_text("[{}]");
    op.row.maybe_ran = true;
    op.row.reason = REASON_RECEIPT;
    op.row.key_expires_ms = INT64_MAX;
    run(&op);
    assert_true(op.done);
    now_ms += 10;
    reopen_as("second");
    look(&op, "A");
    row = &op.rows.call;
    assert_true(row->call_id_made && row->has_credential && row->has_key && row->maybe_ran && row->body_kept);
    assert_int_equal(row->credential.bytes[15], 7);
    EXPECT_TEXT(row->tenant, "t1");
    EXPECT_TEXT(row->scope, "orders");
    EXPECT_TEXT(row->key, "k1");
    EXPECT_TEXT(row->key_spelling, "\"k1\"");
    EXPECT_TEXT(row->business_ref, "order \xc3\xa9 42");
    EXPECT_TEXT(row->trace_id, "trace");
    EXPECT_TEXT(row->fingerprint_rules, "ignore=json.sent_at");
    EXPECT_TEXT(row->reverses, "Z");
    EXPECT_TEXT(row->owner, "first");
    EXPECT_TEXT(row->attempts, "[{}]");
    EXPECT_TEXT(row->result_headers, "x: 1\r\nx: 2\r\n");
    assert_int_equal(row->result_body.len, sizeof raw);
    assert_memory_equal(row->result_body.data, raw, sizeof raw);
    assert_int_equal(row->result_status, 201);
    assert_int_equal(row->proof, PROOF_BESIDE);
    assert_int_equal(row->reason, REASON_RECEIPT);
    assert_int_equal(row->ended_ms, now_ms - 10);
    assert_true(row->key_expires_ms == INT64_MAX);
    store_op_fini(&op);
}

static void an_empty_body_is_a_kept_body(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_SUCCESS, "");
    struct store_op op = {0};
    look(&op, "A");
    assert_true(op.rows.call.has_result && op.rows.call.body_kept);
    assert_int_equal(op.rows.call.result_body.len, 0);
    store_op_fini(&op);
}

static void results_may_stay_be_too_large_or_only_be_told(void **state)
{
    (void)state;
    struct store_op op = {0};
    /* Too large: the status is known, the body is not kept. */
    int64_t a = claim("A", "k1", "f1");
    ask_end(&op, a, 1, STATE_SUCCESS, "large");
    op.row.body_kept = false;
    run(&op);
    look(&op, "A");
    assert_true(op.rows.call.has_result);
    assert_false(op.rows.call.body_kept);
    assert_int_equal(op.rows.call.result_body.len, 0);
    /* An answer that is only told leaves no result. */
    int64_t b = claim("B", "k2", "f2");
    ask_end(&op, b, 1, STATE_FAILED, "429");
    op.answer_only = true;
    run(&op);
    look(&op, "B");
    assert_false(op.rows.call.has_result);
    /* status 0: what is stored stays. */
    int64_t c = claim("C", "k3", "f3");
    ask_end(&op, c, 1, STATE_UNKNOWN, "202");
    run(&op);
    ask_end(&op, c, 1, STATE_SUCCESS, NULL);
    op.from_states = IN(UNKNOWN);
    op.any_fence = true;
    run(&op);
    assert_true(op.done);
    look(&op, "C");
    EXPECT_TEXT(op.rows.call.result_body, "202");
    store_op_fini(&op);
}

/* ---- taking ---- */

static void a_failed_call_runs_again_and_its_old_owner_is_out(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_FAILED, "503");
    struct store_op op = {0};
    ask_take(&op, "A", "k1", "f1");
    op.expect_call_id = op.expect_holder_id = a;
    op.expect_call_fence = op.expect_holder_fence = 1;
    op.row.owner = slice_text("second");
    run(&op);
    assert_true(op.done);
    assert_int_equal(op.rows.call.state, STATE_PROCESSING);
    assert_int_equal(op.rows.call.fence, 2);
    EXPECT_TEXT(op.rows.call.owner, "second");
    assert_false(op.rows.call.has_result);
    assert_int_equal(op.rows.call.ended_ms, 0);
    run(&op); /* the same expectation again: somebody was first */
    assert_false(op.done);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.rows.call.fence, 2);
    ask_end(&op, a, 1, STATE_SUCCESS, "late");
    run(&op);
    assert_int_equal(op.status, STATUS_CONFLICT);
    end(a, 2, STATE_SUCCESS, "second");
    store_op_fini(&op);
}

static void a_new_call_takes_the_slot_of_a_failed_one(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1");
    struct store_op op = {0};
    ask_take(&op, "B", "k1", "f1");
    op.expect_holder_id = a;
    op.expect_holder_fence = 1;
    run(&op);
    assert_false(op.done); /* A still runs */
    assert_int_equal(op.rows.holder.id, a);
    end(a, 1, STATE_FAILED, NULL);
    run(&op);
    assert_true(op.done);
    int64_t b = op.rows.call.id;
    assert_true(b && b != a);
    look(&op, "A");
    assert_int_equal(op.rows.call.id, a);
    assert_int_equal(op.rows.holder.id, b);
    /* Now A cannot run: the slot is B's. */
    ask_take(&op, "A", "k1", "f1");
    op.expect_call_id = a, op.expect_call_fence = 1;
    op.expect_holder_id = b, op.expect_holder_fence = 1;
    run(&op);
    assert_false(op.done);
    /* B failed too: A takes it back. */
    end(b, 1, STATE_FAILED, NULL);
    run(&op);
    assert_true(op.done);
    assert_int_equal(op.rows.call.id, a);
    look(&op, "B");
    assert_int_equal(op.rows.holder.id, a);
    store_op_fini(&op);
    reopen_as("first");
    look(&op, "B");
    assert_int_equal(op.rows.holder.id, a);
    store_op_fini(&op);
}

static void success_running_and_final_rows_are_not_taken(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    ask_take(&op, "A", "k1", "f1");
    op.expect_call_id = op.expect_holder_id = a;
    op.expect_call_fence = op.expect_holder_fence = 1;
    run(&op);
    assert_false(op.done);
    end(a, 1, STATE_SUCCESS, "x");
    run(&op);
    assert_false(op.done);
    int64_t b = claim("B", "k2", "f2");
    ask_end(&op, b, 1, STATE_FAILED, "422");
    op.row.final = true;
    run(&op);
    ask_take(&op, "B", "k2", "f2");
    op.expect_call_id = op.expect_holder_id = b;
    op.expect_call_fence = op.expect_holder_fence = 1;
    run(&op);
    assert_false(op.done);
    /* ... but a new call may have the key of the refused one. */
    ask_take(&op, "C", "k2", "f3");
    op.expect_holder_id = b, op.expect_holder_fence = 1;
    run(&op);
    assert_true(op.done);
    store_op_fini(&op);
}

static void unknown_is_taken_only_by_its_own_call(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_UNKNOWN, NULL);
    ask_take(&op, "B", "k1", "f1");
    op.expect_holder_id = a, op.expect_holder_fence = 1;
    run(&op);
    assert_false(op.done);
    assert_int_equal(op.rows.holder.state, STATE_UNKNOWN);
    ask_take(&op, "A", "k1", "f1");
    op.expect_call_id = op.expect_holder_id = a;
    op.expect_call_fence = op.expect_holder_fence = 1;
    run(&op);
    assert_true(op.done);
    store_op_fini(&op);
}

/* ---- attaching ---- */

static void an_attached_call_has_the_effects_result(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1");
    struct store_op op = {0};
    ask_claim(&op, "B", "k1", "f1");
    op.kind = STORE_ATTACH;
    op.expect_holder_id = a;
    run(&op);
    assert_false(op.done); /* it has not taken effect yet */
    end(a, 1, STATE_SUCCESS, "order 42");
    run(&op);
    assert_true(op.done);
    assert_int_equal(op.rows.call.state, STATE_SUCCESS);
    assert_int_equal(op.rows.call.reason, REASON_SHARED);
    assert_int_equal(op.rows.call.original, a);
    EXPECT_TEXT(op.rows.call.original_call_id, "A");
    EXPECT_TEXT(op.rows.call.result_body, "order 42");
    assert_int_equal(op.rows.call.result_status, 201);
    run(&op);
    assert_false(op.done); /* it is there already */
    reopen_as("first");
    look(&op, "B");
    EXPECT_TEXT(op.rows.call.result_body, "order 42");
    EXPECT_TEXT(op.rows.call.call_id, "B");
    assert_int_equal(op.rows.holder.id, a);
    assert_true(op.rows.call.tombstone_expires_ms == op.rows.holder.tombstone_expires_ms);
    store_op_fini(&op);
}

static void a_failed_call_attaches_to_the_one_that_succeeded(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_FAILED, "503");
    ask_take(&op, "B", "k1", "f1");
    op.expect_holder_id = a, op.expect_holder_fence = 1;
    run(&op);
    int64_t b = op.rows.call.id;
    end(b, 1, STATE_SUCCESS, "B's");
    ask_claim(&op, "A", "k1", "f1");
    op.kind = STORE_ATTACH;
    op.expect_call_id = a, op.expect_call_fence = 1, op.expect_holder_id = b;
    run(&op);
    assert_true(op.done);
    assert_int_equal(op.rows.call.id, a);
    assert_int_equal(op.rows.call.fence, 2);
    EXPECT_TEXT(op.rows.call.result_body, "B's");
    EXPECT_TEXT(op.rows.call.original_call_id, "B");
    store_op_fini(&op);
}

/* Who attaches has seen whether the effect is being undone: if that has changed meanwhile, it looks again. */
static void nobody_attaches_to_an_effect_whose_reversal_he_has_not_seen(void **state)
{
    (void)state;
    struct store_op op = {0}, undo = {0};
    struct kept_request keep = {
        .has = true, .method = slice_text("POST"), .target = slice_text("/cancel"), .lines = slice_text("")};
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_SUCCESS, "order 42");
    undo = (struct store_op){.kind = STORE_REVERSE, .id = a, .from_states = IN(SUCCESS), .keep = &keep};
    identify(&undo.row, "R", "undo", NULL);
    run(&undo);
    assert_true(undo.done);
    ask_claim(&op, "B", "k1", "f1");
    op.kind = STORE_ATTACH;
    op.expect_holder_id = a;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_false(op.done);
    assert_int_equal(op.rows.call.id, 0);
    assert_int_equal(op.rows.holder.id, a);
    EXPECT_TEXT(op.rows.holder.reversed_by, "R");
    op.row.reversed_by = slice_text("another");
    run(&op);
    assert_false(op.done);
    op.row.reversed_by = slice_text("R"); /* it has seen it */
    run(&op);
    assert_true(op.done);
    assert_int_equal(op.rows.call.original, a);
    store_op_fini(&op), store_op_fini(&undo);
}

/* ---- fences ---- */

static void ask_fence(struct store_op *op, const char *call_id)
{
    ask_claim(op, call_id, NULL, NULL);
    op->kind = STORE_FENCE;
    op->row.result_expires_ms = op->row.key_expires_ms = now_ms + LIFE_MS;
    op->row.tombstone_expires_ms = now_ms + 3 * LIFE_MS;
    run(op);
    assert_int_equal(op->status, STATUS_OK);
}

static void a_fence_stops_what_has_not_run(void **state)
{
    (void)state;
    struct store_op op = {0};
    ask_fence(&op, "A"); /* before its call */
    assert_true(op.done);
    assert_int_equal(op.rows.call.reason, REASON_FENCED);
    assert_int_equal(claim("A", "k1", "f1"), 0);
    expect_state("A", STATE_FAILED, true, REASON_FENCED);
    assert_true(claim("A2", "k1", "f1")); /* the key is free */

    int64_t b = claim("B", "k2", "f2");
    ask_fence(&op, "B");
    assert_false(op.done); /* it runs */
    assert_int_equal(op.rows.call.state, STATE_PROCESSING);
    assert_int_equal(op.rows.holder.id, b);
    end(b, 1, STATE_FAILED, NULL);
    ask_fence(&op, "B");
    assert_true(op.done);
    assert_int_equal(op.rows.call.fence, 2);
    ask_take(&op, "B", "k2", "f2");
    op.expect_call_id = op.expect_holder_id = b;
    op.expect_call_fence = op.expect_holder_fence = 1;
    run(&op);
    assert_false(op.done); /* whoever had read it before the fence */

    ask_claim(&op, "C", "k3", "f3");
    op.row.state = STATE_RECEIVED;
    run(&op);
    ask_fence(&op, "C");
    assert_true(op.done);
    assert_int_equal(op.rows.holder.state, STATE_FAILED);

    int64_t d = claim("D", "k4", "f4");
    end(d, 1, STATE_SUCCESS, "x");
    ask_fence(&op, "D");
    assert_false(op.done);
    assert_int_equal(op.rows.call.state, STATE_SUCCESS);
    store_op_fini(&op);
}

/* ---- (6) leases ---- */

static void rows_of_an_earlier_process_expire_and_own_rows_do_not(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1"), b = claim("B", "k2", "f2"), c = claim("C", "k3", "f3");
    end(c, 1, STATE_SUCCESS, "x");
    struct store_op op = {.kind = STORE_EXPIRE, .limit = 100};
    now_ms += CONFORMANCE_SHARED
                  ? 59999
                  : 1000000; /* the lease's last moment; or the clock jumps, and the owner lives */
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.count, 0);
    now_ms++;
    reopen_as("second");
    op.limit = 1;
    run(&op);
    assert_int_equal(op.count, 1);
    assert_true(op.expired[0] == a);
    op.limit = 100;
    run(&op);
    assert_int_equal(op.count, 1);
    assert_true(op.expired[0] == b);
    run(&op);
    assert_int_equal(op.count, 0);
    look(&op, "A");
    assert_int_equal(op.rows.call.state, STATE_UNKNOWN);
    assert_int_equal(op.rows.call.reason, REASON_LEASE_EXPIRED);
    assert_int_equal(op.rows.call.fence, 2);
    assert_true(op.rows.call.maybe_ran);
    ask_end(&op, a, 1, STATE_SUCCESS, "late");
    run(&op);
    assert_int_equal(op.status, STATUS_CONFLICT);
    store_op_fini(&op);
}

static void open_calls_are_listed_in_order(void **state)
{
    (void)state;
    int64_t a = claim("A", "k1", "f1"), b = claim("B", "k2", "f2"), c = claim("C", "k3", "f3");
    end(a, 1, STATE_UNKNOWN, NULL);
    end(b, 1, STATE_SUCCESS, "x");
    struct store_op op = {.kind = STORE_OPEN_CALLS, .limit = 1};
    run(&op);
    assert_int_equal(op.count, 1);
    assert_true(op.expired[0] == a);
    op.id = a;
    op.limit = 10;
    run(&op);
    assert_int_equal(op.count, 1);
    assert_true(op.expired[0] == c);
    op.id = 0;
    op.row.owner = slice_text("nobody");
    run(&op);
    assert_int_equal(op.count, 0);
    store_op_fini(&op);
}

static void calls_without_an_ending_are_found_among_many(void **state)
{
    (void)state;
    char name[32];
    size_t open = 0;
    struct store_op op = {0};
    for (int i = 0; i < 1500; i++) {
        snprintf(name, sizeof name, "call-%d", i);
        int64_t id = claim(name, name, "f1");
        if (i % 400 == 7)
            open++;
        else
            end(id, 1, i % 400 == 9 ? STATE_FAILED : STATE_SUCCESS, NULL);
    }
    /* Some old calls run again, and then a new one is claimed. */
    for (int i = 9; i < 1500; i += 400) {
        snprintf(name, sizeof name, "call-%d", i);
        look(&op, name);
        int64_t old = op.rows.call.id;
        ask_take(&op, name, name, "f1");
        op.expect_call_id = op.expect_holder_id = old;
        op.expect_call_fence = op.expect_holder_fence = 1;
        run(&op);
        assert_true(op.done);
        open++;
    }
    assert_true(claim("last", "last", "f1"));
    open++;
    reopen_as("second");
    memset(&op.row, 0, sizeof op.row);
    op.kind = STORE_OPEN_CALLS;
    op.id = 0;
    op.limit = 100;
    run(&op);
    assert_int_equal(op.count, open);
    op.kind = STORE_EXPIRE;
    now_ms += 60000; /* the leases are over */
    run(&op);
    assert_int_equal(op.count, open);
    expect_state("call-9", STATE_UNKNOWN, false, REASON_LEASE_EXPIRED);
    expect_state("last", STATE_UNKNOWN, false, REASON_LEASE_EXPIRED);
    store_op_fini(&op);
}

/* ---- suspects ---- */

static void the_same_request_under_another_key_is_seen_while_it_is_unresolved(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    for (int restart = 0; restart < 2; restart++) {
        ask_claim(&op, "B", "k2", "f1");
        op.want_suspect = op.block_suspect = true;
        run(&op);
        assert_false(op.done);
        assert_int_equal(op.rows.suspect.id, a);
        EXPECT_TEXT(op.rows.suspect.call_id, "A");
        assert_int_equal(op.rows.call.id, 0);
        op.peek = true;
        run(&op);
        assert_int_equal(op.rows.suspect.id, a);
        reopen_as("first");
    }
    ask_claim(&op, "B", "k2", "f9"); /* another request */
    op.want_suspect = op.block_suspect = true;
    run(&op);
    assert_true(op.done);
    ask_claim(&op, "C", "k3", "f1"); /* warn: it runs, and is seen */
    op.want_suspect = true;
    run(&op);
    assert_true(op.done);
    assert_int_equal(op.rows.suspect.id, a);
    int64_t c = op.rows.call.id;
    ask_claim(&op, "A", "k1", "f1"); /* a known call is no suspect of itself */
    op.want_suspect = op.block_suspect = true;
    run(&op);
    assert_int_equal(op.rows.call.id, a);
    assert_int_equal(op.rows.suspect.id, 0);
    end(a, 1, STATE_UNKNOWN, NULL);
    end(c, 1, STATE_SUCCESS, "x");
    ask_claim(&op, "D", "k4", "f1");
    op.want_suspect = op.block_suspect = true;
    run(&op);
    assert_int_equal(op.rows.suspect.id, a); /* UNKNOWN is unresolved */
    ask_end(&op, a, 0, STATE_FAILED, NULL);
    op.any_fence = true, op.from_states = IN(UNKNOWN);
    run(&op);
    assert_true(op.done);
    ask_claim(&op, "D", "k4", "f1");
    op.want_suspect = op.block_suspect = true;
    run(&op);
    assert_true(op.done);
    store_op_fini(&op);
}

static void a_peek_only_looks(void **state)
{
    (void)state;
    struct buffer error = {0};
    struct store_reader *reader;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    assert_int_equal(store_reader_open(&reader, store, &error), STATUS_OK);
    ask_claim(&op, "B", "k1", "f1");
    op.peek = true;
    store_reader_run(reader, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_false(op.done);
    assert_int_equal(op.rows.holder.id, a);
    ask_claim(&op, "B", "k2", "f1");
    op.peek = op.want_suspect = true;
    store_reader_run(reader, &op);
    assert_int_equal(op.rows.holder.id, 0);
    assert_int_equal(op.rows.suspect.id, a);
    look(&op, "B");
    assert_int_equal(op.rows.call.id, 0);
    store_reader_free(reader);
    store_op_fini(&op);
    buffer_fini(&error);
}

static void a_reader_sees_what_is_committed(void **state)
{
    (void)state;
    struct buffer error = {0};
    struct store_reader *reader;
    struct store_op op = {0};
    assert_int_equal(store_reader_open(&reader, store, &error), STATUS_OK);
    int64_t a = claim("A", "k1", "f1");
    for (int i = 0; i < 2; i++) {
        op.kind = STORE_LOOKUP;
        identify(&op.row, "A", NULL, NULL);
        store_reader_run(reader, &op);
        assert_int_equal(op.status, STATUS_OK);
        assert_int_equal(op.rows.call.id, a);
        assert_int_equal(op.rows.holder.id, a);
        assert_int_equal(op.rows.call.state, i ? STATE_SUCCESS : STATE_PROCESSING);
        assert_int_equal(op.rows.now_ms, now_ms);
        if (!i)
            end(a, 1, STATE_SUCCESS, "x");
    }
    op.kind = STORE_READ;
    op.id = a;
    store_reader_run(reader, &op);
    EXPECT_TEXT(op.rows.call.call_id, "A");
    op.id = a + 1000;
    store_reader_run(reader, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.rows.call.id, 0);
    store_reader_free(reader);
    store_op_fini(&op);
    buffer_fini(&error);
}

/* Reads that are asked together say what each alone would. */
static void reads_that_come_together_are_told_apart(void **state)
{
    (void)state;
    struct store_reader *reader;
    struct buffer error = {0};
    struct store_op ops[5] = {0}, *all[5];
    int64_t a = claim("A", "k1", "f1"), b = claim("B", "k2", "f2");
    end(a, 1, STATE_SUCCESS, "A's");
    end(b, 1, STATE_SUCCESS, "B's");
    for (size_t i = 0; i < 5; i++)
        all[i] = &ops[i];
    ops[0].kind = ops[1].kind = ops[3].kind = STORE_LOOKUP;
    identify(&ops[0].row, "B", "k2", NULL);
    identify(&ops[1].row, "nobody", NULL, NULL);
    ops[2].kind = STORE_READ;
    ops[2].id = a;
    identify(&ops[3].row, "A", NULL, NULL);
    ops[3].row.call_id = slice_text("another text under its digest");
    ops[4].kind = STORE_CLAIM;
    ops[4].peek = true;
    identify(&ops[4].row, "C", "k1", "f1");
    assert_int_equal(store_reader_open(&reader, store, &error), STATUS_OK);
    for (int again = 0; again < 2; again++) {
        store_reader_run_all(reader, all, 5);
        assert_int_equal(ops[0].status, STATUS_OK);
        assert_int_equal(ops[0].rows.call.id, b);
        EXPECT_TEXT(ops[0].rows.call.result_body, "B's");
        assert_int_equal(ops[0].rows.holder.id, b);
        assert_int_equal(ops[1].status, STATUS_OK);
        assert_int_equal(ops[1].rows.call.id, 0);
        assert_true(ops[1].rows.covers_since_ms > 0);
        assert_int_equal(ops[2].status, STATUS_OK);
        EXPECT_TEXT(ops[2].rows.call.result_body, "A's");
        assert_int_equal(ops[3].status, STATUS_INVALID);
        assert_int_equal(ops[3].rows.call.id, 0);
        assert_int_equal(ops[4].status, STATUS_OK);
        assert_false(ops[4].done);
        assert_int_equal(ops[4].rows.call.id, 0);
        assert_int_equal(ops[4].rows.holder.id, a);
        EXPECT_TEXT(ops[4].rows.holder.call_id, "A");
    }
    store_reader_free(reader);
    for (size_t i = 0; i < 5; i++)
        store_op_fini(&ops[i]);
    buffer_fini(&error);
}

/* ---- (8) purging ---- */

static int64_t covers_since(void)
{
    struct store_op op = {0};
    look(&op, "nobody");
    int64_t covers = op.rows.covers_since_ms;
    store_op_fini(&op);
    return covers;
}

static void lives_end_one_after_the_other(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t created = now_ms, covered = covers_since();
    int64_t a = claim("A", "k1", "f1"), b = claim("B", "k2", "f2"), c = claim("C", "k3", "f3");
    end(a, 1, STATE_SUCCESS, "body");
    end(b, 1, STATE_FAILED, NULL);
    end(c, 1, STATE_UNKNOWN, NULL);
    assert_int_equal(purge(100), 0);
    now_ms = created + LIFE_MS - 1;
    assert_int_equal(purge(100), 0);
    now_ms = created + LIFE_MS;
    assert_int_equal(purge(100), 2);
    look(&op, "A");
    assert_int_equal(op.rows.call.state, STATE_SUCCESS);
    assert_true(op.rows.call.has_result);
    assert_false(op.rows.call.body_kept);
    expect_state("B", STATE_FAILED, true, REASON_ABANDONED);
    assert_int_equal(claim("A2", "k1", "f1"), 0); /* the tombstone holds the key */
    assert_int_equal(purge(100), 0);
    reopen_as("first");
    now_ms = created + 3 * LIFE_MS - 1;
    assert_int_equal(purge(100), 0);
    assert_true(covers_since() == covered);
    now_ms++;
    assert_int_equal(purge(100), 2);
    look(&op, "A");
    assert_int_equal(op.rows.call.id, 0);
    assert_int_equal(op.rows.covers_since_ms, created + 1);
    expect_state("C", STATE_UNKNOWN, false, REASON_NONE); /* never expires */
    reopen_as("first");
    assert_int_equal(covers_since(), created + 1);
    /* An id made before that is not run; a younger one is. */
    ask_claim(&op, "A", "k1", "f1");
    op.id_time_ms = created;
    run(&op);
    assert_false(op.done);
    assert_int_equal(op.rows.call.id, 0);
    assert_int_equal(op.rows.covers_since_ms, created + 1);
    op.id_time_ms = created + 1;
    run(&op);
    assert_true(op.done);
    assert_true(op.rows.call.id > c);
    store_op_fini(&op);
}

static void purging_goes_in_steps_and_forgets_nothing(void **state)
{
    (void)state;
    char name[32], key[32];
    const size_t rows = 600;
    for (size_t i = 0; i < rows; i++) {
        snprintf(name, sizeof name, "call-%zu", i);
        snprintf(key, sizeof key, "key-%zu", i);
        int64_t id = claim(name, key, "f1");
        end(id, 1, STATE_SUCCESS, "body");
        now_ms += 100; /* over a minute in all: several notes */
    }
    int64_t newest = now_ms - 100;
    now_ms = newest + LIFE_MS + 3 * LIFE_MS;
    size_t touched = 0, steps = 0, count;
    while ((count = purge(50)) > 0 && steps++ < 100)
        touched += count;
    assert_int_equal(touched, rows);
    struct store_stats stats;
    store_stats(store, &stats);
    assert_int_equal(stats.rows, 0);
    assert_true(claim("call-1", "key-1", "f1") > (int64_t)rows); /* an id is never given twice */
    reopen_as("first");
    store_stats(store, &stats);
    assert_int_equal(stats.rows, 1);
    assert_true(claim("call-2", "key-2", "f1") > (int64_t)rows + 1);
}

static void a_taken_slot_stays_when_its_first_holder_goes(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t created = now_ms, a = claim("A", "k1", "f1");
    end(a, 1, STATE_FAILED, NULL);
    now_ms += LIFE_MS;
    assert_int_equal(purge(10), 1); /* abandoned */
    ask_take(&op, "B", "k1", "f1");
    op.expect_holder_id = a, op.expect_holder_fence = 2;
    run(&op);
    assert_true(op.done);
    int64_t b = op.rows.call.id;
    now_ms = created + 3 * LIFE_MS;
    assert_int_equal(purge(10), 1);
    look(&op, "B");
    assert_int_equal(op.rows.holder.id, b);
    assert_int_equal(claim("C", "k1", "f1"), 0);
    store_op_fini(&op);
}

/* ---- what the store covers ---- */

static void a_new_store_takes_ids_made_a_little_earlier(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t created = covers_since();
    assert_int_equal(created, now_ms);
    ask_claim(&op, "A", "k1", "f1");
    op.id_time_ms = created - 5000;
    run(&op);
    assert_true(op.done);
    ask_claim(&op, "B", "k2", "f2");
    op.id_time_ms = created - 24 * 3600 * 1000;
    run(&op);
    assert_false(op.done);
    assert_true(op.rows.covers_since_ms > op.id_time_ms);
    store_op_fini(&op);
}

static void a_restore_raises_what_is_covered(void **state)
{
    (void)state;
    struct store_op op = {0};
    now_ms += 100000;
    assert_int_equal(store_raise_covers_since(store, now_ms), STATUS_OK);
    assert_int_equal(covers_since(), now_ms);
    assert_int_equal(store_raise_covers_since(store, now_ms - 50), STATUS_OK);
    reopen_as("first");
    assert_int_equal(covers_since(), now_ms);
    ask_claim(&op, "A", "k1", "f1");
    op.id_time_ms = now_ms - 1;
    run(&op);
    assert_false(op.done);
    store_op_fini(&op);
}

/* ---- the secret ---- */

static void a_store_has_one_secret_until_it_is_restored(void **state)
{
    (void)state;
    uint8_t first[STORE_SECRET_BYTES] = {0}, again[STORE_SECRET_BYTES], zero[STORE_SECRET_BYTES] = {0};
    assert_int_equal(store_secret(store, first), STATUS_OK);
    assert_memory_not_equal(first, zero, sizeof first);
    assert_int_equal(store_secret(store, again), STATUS_OK);
    assert_memory_equal(first, again, sizeof first);
    reopen_as("second");
    assert_int_equal(store_secret(store, again), STATUS_OK);
    assert_memory_equal(first, again, sizeof first);
    assert_int_equal(store_raise_covers_since(store, now_ms + 1), STATUS_OK);
    assert_int_equal(store_secret(store, again), STATUS_OK);
    assert_memory_not_equal(first, again, sizeof first);
    memcpy(first, again, sizeof first);
    assert_int_equal(store_raise_covers_since(store, now_ms),
                     STATUS_OK); /* the bound was that high already */
    assert_int_equal(store_secret(store, again), STATUS_OK);
    assert_memory_not_equal(first, again, sizeof first);
}

#include "conformance_tasks.c"

#define STORY(name) cmocka_unit_test_setup_teardown(name, begin, finish)
static const struct CMUnitTest conformance[] = {
    STORY(claims_and_endings_outlive_the_store),
    STORY(two_claims_of_one_key_have_one_winner),
    STORY(a_callid_with_another_key_gets_its_row_and_the_keys_holder),
    STORY(a_key_of_another_tenant_or_scope_is_another_key),
    STORY(a_callid_is_found_without_its_tenant),
    STORY(calls_without_a_key_hold_none),
    STORY(two_texts_under_one_digest_are_refused),
    STORY(the_loser_sees_the_fingerprint),
    STORY(an_old_fencing_number_writes_nothing),
    STORY(the_owner_writes_attempts_and_leases),
    STORY(an_outsider_raises_the_number_and_the_owner_is_out),
    STORY(an_ended_row_is_never_written_again),
    STORY(every_field_comes_back_as_it_went_in),
    STORY(an_empty_body_is_a_kept_body),
    STORY(results_may_stay_be_too_large_or_only_be_told),
    STORY(a_failed_call_runs_again_and_its_old_owner_is_out),
    STORY(a_new_call_takes_the_slot_of_a_failed_one),
    STORY(success_running_and_final_rows_are_not_taken),
    STORY(unknown_is_taken_only_by_its_own_call),
    STORY(an_attached_call_has_the_effects_result),
    STORY(a_failed_call_attaches_to_the_one_that_succeeded),
    STORY(nobody_attaches_to_an_effect_whose_reversal_he_has_not_seen),
    STORY(a_fence_stops_what_has_not_run),
    STORY(rows_of_an_earlier_process_expire_and_own_rows_do_not),
    STORY(open_calls_are_listed_in_order),
    STORY(calls_without_an_ending_are_found_among_many),
    STORY(the_same_request_under_another_key_is_seen_while_it_is_unresolved),
    STORY(a_peek_only_looks),
    STORY(a_reader_sees_what_is_committed),
    STORY(reads_that_come_together_are_told_apart),
    STORY(lives_end_one_after_the_other),
    STORY(purging_goes_in_steps_and_forgets_nothing),
    STORY(a_taken_slot_stays_when_its_first_holder_goes),
    STORY(a_new_store_takes_ids_made_a_little_earlier),
    STORY(a_restore_raises_what_is_covered),
    STORY(a_store_has_one_secret_until_it_is_restored),
    STORY(a_due_task_is_taken_once_and_brings_its_call),
    STORY(a_round_is_a_row_and_the_next_is_due_later),
    STORY(a_round_that_was_cut_short_is_a_row_and_its_owner_is_out),
    STORY(a_round_settles_its_call_in_the_same_commit),
    STORY(a_call_that_ended_otherwise_is_not_ended_again),
    STORY(a_person_settles_with_evidence),
    STORY(nobody_settles_what_is_at_work),
    STORY(a_person_asks_for_one_round_more),
    STORY(changes_are_listed_newest_first),
    STORY(tasks_are_listed_by_status_in_pages),
    STORY(a_person_is_told_by_one_teller_at_a_time),
    STORY(an_operation_is_reversed_once),
    STORY(a_failed_call_is_undone_only_while_its_key_is_its_own),
    STORY(a_reversal_is_sent_as_it_was_kept),
    STORY(a_reversals_own_ending_settles_its_task),
    STORY(a_shared_effect_is_reversed_at_its_own_call),
    STORY(a_kept_request_goes_when_its_call_is_settled),
    STORY(a_kept_request_goes_when_its_call_is_abandoned),
    STORY(a_round_is_taken_over_when_its_gateway_is_gone_and_not_before),
};
