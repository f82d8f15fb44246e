/* SPDX-License-Identifier: MIT */
#include "gateway/settle.h"

#include "core/deadline.h"

bool row_keep(struct call_row *row, struct arena *arena)
{
    struct slice *texts[] = {
        &row->tenant,           &row->route,    &row->scope,        &row->call_id,  &row->key,
        &row->business_ref,     &row->trace_id, &row->key_spelling, &row->attempts, &row->owner,
        &row->fingerprint_rules};
    bool good = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!arena_copy(arena, *texts[i], texts[i])) {
            *texts[i] = (struct slice){0};
            good = false;
        }
    }
    row_drop_result(row);
    return good;
}

void row_drop_result(struct call_row *row)
{
    row->result_headers = row->result_body = row->original_call_id = (struct slice){0};
    row->reverses = row->reversed_by = (struct slice){0};
    row->has_result = row->body_kept = false;
}

int64_t tombstone_end(const struct route_settings *s, int64_t now_ms)
{
    int64_t key_end = deadline_add(now_ms, s->key_life_ms), end = deadline_add(now_ms, s->tombstone_life_ms);
    return key_end > end ? key_end : end;
}

void row_set_lives(struct call_row *row, const struct route_settings *s, int64_t now_ms)
{
    bool open = row->state == STATE_UNKNOWN; /* it never expires */
    row->ended_ms = row->updated_ms = now_ms;
    row->result_expires_ms = open ? INT64_MAX : deadline_add(now_ms, s->result_life_ms);
    row->key_expires_ms = open ? INT64_MAX : deadline_add(now_ms, s->key_life_ms);
    row->tombstone_expires_ms = open ? INT64_MAX : tombstone_end(s, now_ms);
}

void row_freeze_document(struct call_row *row, int64_t now_ms, struct arena *arena)
{
    struct rows told = {.call = *row, .now_ms = now_ms};
    struct buffer document = {0};
    told.call.has_result = false; /* an ending that is written again must not wrap what it froze before */
    receipt_document(&document, &told, row->call_id);
    row->has_result = true;
    row->result_status = 200;
    row->result_headers = slice_text("Content-Type: application/json\r\n");
    row->body_kept = !document.failed && arena_copy(arena, buffer_view(&document), &row->result_body);
    buffer_fini(&document);
}

void row_settle(struct call_row *row, const struct route_settings *s, const struct receipt_reading *reading,
                int64_t now_ms, struct arena *arena)
{
    bool success = reading->answer == RECEIPT_ANSWER_SUCCESS;
    row->state = success ? STATE_SUCCESS : STATE_FAILED;
    row->final = true;
    row->reason = REASON_RECEIPT;
    row->maybe_ran = false;
    row->has_result = row->body_kept = false;
    row_set_lives(row, s, now_ms);
    if (reading->has_result && (int64_t)reading->result_body.len <= s->result_bytes_max) {
        row->has_result = true;
        row->result_status = reading->result_status;
        row->body_kept = arena_copy(arena, buffer_view(&reading->result_headers), &row->result_headers) &&
                         arena_copy(arena, buffer_view(&reading->result_body), &row->result_body);
    } else if (success) {
        row_freeze_document(row, now_ms, arena);
    }
}
