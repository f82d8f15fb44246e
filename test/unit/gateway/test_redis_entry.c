/* SPDX-License-Identifier: MIT
 *
 * Entries of the cache in front of the store: what is sealed comes out as it went in, and nothing else is opened: no byte
 * changed, none cut, not under another call's name, not with another secret, not past its life.
 */
#include "../base/check.h"

#include "gateway/redis_entry.h"

#define NOW_MS INT64_C(1772366400000)

static const uint8_t ours[REDIS_SECRET_BYTES] = {1, 2, 3}, theirs[REDIS_SECRET_BYTES] = {1, 2, 4};
static struct redis_seal seal;

static struct rows ended(void)
{
    struct rows rows = {.now_ms = NOW_MS, .covers_since_ms = NOW_MS - 7};
    rows.call = (struct call_row){
        .id = INT64_MAX - 3,
        .call_digest = {{1, 2, 3, 4}},
        .operation_digest = {{5, 6, 7, 255}},
        .has_key = true,
        .has_credential = true,
        .credential = {{9, 0, 9}},
        .has_fingerprint = true,
        .fingerprint = {{0, 1, 254}},
        .fingerprint_version = 3,
        .fingerprint_rules = slice_text("ignore=a"),
        .state = STATE_SUCCESS,
        .final = true,
        .reason = REASON_SHARED,
        .proof = PROOF_BESIDE,
        .fence = 12,
        .attempt_count = 2,
        .attempts = slice_text("[]"),
        .has_result = true,
        .result_status = 201,
        .body_kept = true,
        .original = 17,
        .original_call_id = slice_text("c-0"),
        .reverses = slice_text("c-r"),
        .tenant = slice_text("T1"),
        .route = slice_text("orders"),
        .scope = slice_text("POST /orders"),
        .call_id = slice_text("c-1"),
        .key = slice_text("k-1"),
        .key_spelling = slice_text("\"k-1\""),
        .business_ref = slice_text("o-1"),
        .trace_id = slice_text("0123456789abcdef"),
        .result_headers = slice_text("A: b\r\n"),
        .result_body = slice_of("\0\xff{}", 4),
        .created_ms = NOW_MS - 30,
        .updated_ms = NOW_MS - 20,
        .ended_ms = NOW_MS - 10,
        .window_ms = -1,
        .first_attempt_ms = NOW_MS - 29,
        .result_expires_ms = NOW_MS + 1000,
        .key_expires_ms = NOW_MS + 5000,
        .tombstone_expires_ms = INT64_MAX,
    };
    return rows;
}

static void sealed(const struct rows *rows, struct buffer *out)
{
    int64_t kept_ms = -1;
    assert_int_equal(redis_entry_seal(&seal, rows, 1000000, out, &kept_ms), STATUS_OK);
    assert_int_equal(kept_ms, 1000);
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    struct rows in = ended(), out;
    struct buffer entry = {0};
    sealed(&in, &entry);
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &in.call.call_digest, NOW_MS + 999, &out),
                     STATUS_OK);
    assert_int_equal(out.now_ms, NOW_MS + 999);
    assert_int_equal(out.covers_since_ms, in.covers_since_ms);
    assert_int_equal(out.holder.id, 0);
    /* The receipt document speaks of nearly every field; the rest is compared one by one. */
    struct buffer told = {0}, expected = {0};
    in.now_ms = out.now_ms;
    receipt_document(&expected, &in, slice_text("c-1"));
    receipt_document(&told, &out, slice_text("c-1"));
    assert_string_equal(buffer_cstring(&told), buffer_cstring(&expected));
    const struct call_row *a = &in.call, *b = &out.call;
    assert_int_equal(a->id, b->id);
    assert_true(digest_equal(&a->operation_digest, &b->operation_digest));
    assert_true(digest_equal(&a->credential, &b->credential));
    assert_true(digest32_equal(&a->fingerprint, &b->fingerprint));
    assert_int_equal(a->fingerprint_version, b->fingerprint_version);
    assert_true(slice_equal(a->fingerprint_rules, b->fingerprint_rules));
    assert_true(slice_equal(a->tenant, b->tenant) && slice_equal(a->scope, b->scope));
    assert_true(slice_equal(a->key_spelling, b->key_spelling));
    assert_true(slice_equal(a->result_headers, b->result_headers) &&
                slice_equal(a->result_body, b->result_body));
    assert_true(b->has_key && b->has_credential && b->has_fingerprint && b->final && b->has_result &&
                b->body_kept);
    assert_false(b->call_id_made || b->maybe_ran);
    assert_int_equal(a->window_ms, b->window_ms);
    assert_int_equal(a->key_expires_ms, b->key_expires_ms);
    assert_int_equal(a->tombstone_expires_ms, b->tombstone_expires_ms);
    assert_int_equal(a->original, b->original);
    assert_int_equal(a->fence, b->fence);
    buffer_fini(&told);
    buffer_fini(&expected);
    buffer_fini(&entry);
}

static void no_changed_byte_and_no_cut_is_believed(void **state)
{
    (void)state;
    struct rows in = ended(), out;
    struct buffer entry = {0};
    sealed(&in, &entry);
    for (size_t i = 0; i < entry.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            entry.data[i] = (char)(entry.data[i] ^ 1 << bit);
            assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &in.call.call_digest, NOW_MS, &out),
                             STATUS_INVALID);
            entry.data[i] = (char)(entry.data[i] ^ 1 << bit);
        }
    }
    for (size_t len = 0; len < entry.len; len++)
        assert_int_equal(
            redis_entry_open(&seal, slice_of(entry.data, len), &in.call.call_digest, NOW_MS, &out),
            STATUS_INVALID);
    buffer_byte(&entry, '\0');
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &in.call.call_digest, NOW_MS, &out),
                     STATUS_INVALID);
    buffer_fini(&entry);
}

static void an_entry_is_one_calls_of_one_store(void **state)
{
    (void)state;
    struct rows in = ended(), out;
    struct digest other = in.call.call_digest;
    struct redis_seal foreign;
    struct buffer entry = {0};
    char name[REDIS_NAME_BYTES], foreign_name[REDIS_NAME_BYTES];
    sealed(&in, &entry);
    other.bytes[15] ^= 1;
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &other, NOW_MS, &out), STATUS_INVALID);
    assert_int_equal(redis_seal_init(&foreign, theirs), STATUS_OK);
    assert_int_equal(redis_entry_open(&foreign, buffer_view(&entry), &in.call.call_digest, NOW_MS, &out),
                     STATUS_INVALID);
    redis_entry_name(&seal, &in.call.call_digest, name);
    redis_entry_name(&foreign, &in.call.call_digest, foreign_name);
    assert_int_equal(strlen(name), REDIS_NAME_BYTES - 1);
    assert_string_not_equal(name, foreign_name);
    redis_seal_fini(&foreign);
    buffer_fini(&entry);
}

static void its_life_is_in_it(void **state)
{
    (void)state;
    struct rows in = ended(), out;
    struct buffer entry = {0};
    int64_t kept_ms;
    sealed(&in, &entry); /* ends with the result's life */
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &in.call.call_digest, NOW_MS + 1000, &out),
                     STATUS_NOT_FOUND);
    buffer_clear(&entry);
    assert_int_equal(redis_entry_seal(&seal, &in, 300, &entry, &kept_ms),
                     STATUS_OK); /* or with the cache's */
    assert_int_equal(kept_ms, 300);
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &in.call.call_digest, NOW_MS + 299, &out),
                     STATUS_OK);
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &in.call.call_digest, NOW_MS + 300, &out),
                     STATUS_NOT_FOUND);
    buffer_fini(&entry);
}

static void only_endings_are_wanted(void **state)
{
    (void)state;
    struct rows rows = ended();
    assert_true(redis_entry_wanted(&rows));
    static const enum call_state open[] = {STATE_NOT_RECEIVED, STATE_RECEIVED, STATE_PROCESSING,
                                           STATE_UNKNOWN};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        rows.call.state = open[i];
        assert_false(redis_entry_wanted(&rows));
    }
    rows = ended();
    rows.call.state = STATE_FAILED;
    assert_true(redis_entry_wanted(&rows));
    rows.call.final = false;
    assert_false(redis_entry_wanted(&rows));
    rows = ended();
    rows.call.reversed_by = slice_text("c-2");
    assert_false(redis_entry_wanted(&rows));
    rows = ended();
    rows.call.result_expires_ms = NOW_MS;
    assert_false(redis_entry_wanted(&rows));
    rows = ended();
    rows.call.id = 0;
    assert_false(redis_entry_wanted(&rows));
    /* Even sealed by somebody who has the secret, what is no ending is not opened. */
    struct rows out;
    struct buffer entry = {0};
    rows = ended();
    rows.call.state = STATE_PROCESSING;
    sealed(&rows, &entry);
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &rows.call.call_digest, NOW_MS, &out),
                     STATUS_INVALID);
    buffer_fini(&entry);
}

static void what_is_too_long_is_not_kept(void **state)
{
    (void)state;
    static char body[REDIS_ENTRY_BYTES_MAX];
    struct rows in = ended(), out;
    struct buffer entry = {0};
    int64_t kept_ms;
    in.call.result_body = slice_of(body, sizeof body);
    assert_int_equal(redis_entry_seal(&seal, &in, 1000, &entry, &kept_ms), STATUS_FULL);
    assert_int_equal(entry.len, 0);
    in.call.result_body.len -= 1024;
    assert_int_equal(redis_entry_seal(&seal, &in, 1000, &entry, &kept_ms), STATUS_OK);
    assert_true(entry.len <= REDIS_ENTRY_BYTES_MAX);
    assert_int_equal(redis_entry_open(&seal, buffer_view(&entry), &in.call.call_digest, NOW_MS, &out),
                     STATUS_OK);
    buffer_fini(&entry);
}

static int setup(void **state)
{
    (void)state;
    return redis_seal_init(&seal, ours) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    redis_seal_fini(&seal);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(no_changed_byte_and_no_cut_is_believed),
        cmocka_unit_test(an_entry_is_one_calls_of_one_store),
        cmocka_unit_test(its_life_is_in_it),
        cmocka_unit_test(only_endings_are_wanted),
        cmocka_unit_test(what_is_too_long_is_not_kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
