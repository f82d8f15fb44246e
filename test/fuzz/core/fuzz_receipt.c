/* SPDX-License-Identifier: MIT
 *
 * Any bytes as the answer of somebody's receipt endpoint. The first line is the receipt_map, the rest is the body. What is
 * believed names the asked call; what is not says why; a result is whole and safe to hand on as header lines. The same
 * bytes as a stored row's texts make a document that is JSON and that our own reader believes.
 */
#include "core/receipt.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void lines_are_clean(struct slice lines)
{
    while (lines.len) {
        const char *stop = memchr(lines.data, '\n', lines.len);
        must(stop && stop > lines.data && stop[-1] == '\r');
        size_t len = (size_t)(stop - lines.data) + 1;
        const char *colon = memchr(lines.data, ':', len);
        must(colon && colon > lines.data && !memchr(lines.data, '\r', len - 2) &&
             !memchr(lines.data, '\0', len));
        lines.data += len;
        lines.len -= len;
    }
}

static void read_back(struct slice bytes)
{
    struct rows rows = {.now_ms = 2000000, .covers_since_ms = 1000};
    rows.call = (struct call_row){.id = 1,
                                  .state = STATE_SUCCESS,
                                  .final = true,
                                  .call_id = SLICE_LITERAL("c-1"),
                                  .key = bytes,
                                  .route = bytes,
                                  .business_ref = bytes,
                                  .has_result = true,
                                  .body_kept = true,
                                  .result_status = 200,
                                  .result_headers = bytes,
                                  .result_body = bytes};
    struct attempt a = {.n = 1, .outcome = OUTCOME_UNKNOWN, .evidence = bytes}, again[ATTEMPTS_MAX];
    struct buffer attempts = {0}, memory = {0}, out = {0};
    size_t count = 0;
    attempts_encode(&attempts, &a, 1);
    must(attempts_decode(buffer_view(&attempts), again, &count, &memory) == STATUS_OK && count == 1);
    rows.call.attempts = buffer_view(&attempts);
    receipt_document(&out, &rows, bytes);
    struct receipt_reading r;
    receipt_read(&r, 200, buffer_view(&out), rows.call.call_id, 5000, slice_text(""));
    must(r.answer == RECEIPT_ANSWER_SUCCESS);
    if (r.has_result)
        must(slice_equal(buffer_view(&r.result_body), bytes));
    receipt_reading_fini(&r);
    buffer_fini(&attempts);
    buffer_fini(&memory);
    buffer_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice bytes = slice_of((const char *)data, size);
    const char *stop = size ? memchr(data, '\n', size) : NULL;
    struct slice map = slice_of(bytes.data, stop ? (size_t)(stop - bytes.data) : 0);
    struct slice body = stop ? slice_of(stop + 1, size - map.len - 1) : bytes;
    struct receipt_reading r;
    receipt_read(&r, 200, body, slice_text("ord-1"), 1772366400000, map);
    must((r.answer == RECEIPT_ANSWER_QUERY_FAILED) == (r.why[0] != '\0'));
    if (r.answer != RECEIPT_ANSWER_QUERY_FAILED) {
        json_t *root = json_loadb(body.data, body.len, JSON_ALLOW_NUL, NULL);
        const char *id = json_string_value(json_object_get(root, "call_id"));
        const char *other = json_string_value(json_object_get(root, "callId"));
        must(id || other);
        must((!id || strcmp(id, "ord-1") == 0) && (!other || strcmp(other, "ord-1") == 0));
        json_decref(root);
    }
    if (r.has_result) {
        must(r.answer == RECEIPT_ANSWER_SUCCESS || r.answer == RECEIPT_ANSWER_FAILED_FINAL);
        must(r.result_status >= 200 && r.result_status <= 599);
        lines_are_clean(buffer_view(&r.result_headers));
    }
    receipt_reading_fini(&r);
    struct attempt attempts[ATTEMPTS_MAX];
    struct buffer memory = {0};
    size_t count = 0;
    if (attempts_decode(body, attempts, &count, &memory) == STATUS_OK)
        must(count <= ATTEMPTS_MAX);
    buffer_fini(&memory);
    read_back(bytes);
    return 0;
}
