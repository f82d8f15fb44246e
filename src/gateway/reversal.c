/* SPDX-License-Identifier: MIT */
#include "gateway/reversal.h"

#include "base/arena.h"
#include "core/id.h"
#include "core/key.h"

static bool join(struct arena *arena, const char *before, struct slice text, struct slice *out)
{
    struct buffer all = {0};
    buffer_text(&all, before);
    buffer_slice(&all, text);
    bool good = !all.failed && arena_copy(arena, buffer_view(&all), out);
    buffer_fini(&all);
    return good;
}

enum status reversal_row(struct call_row *row, const struct call_row *of, const struct lane *lane,
                         struct shard *shard, struct arena *arena)
{
    char id[CALLID_BYTES_MAX + 1];
    size_t len = callid_make(shard->ids, shard_store_now(shard), id);
    struct slice undone = of->original_call_id.len ? of->original_call_id : of->call_id;
    *row = (struct call_row){
        .has_key = true,
        .call_id_made = true,
        .has_credential = of->has_credential,
        .credential = of->credential,
        .state = STATE_RECEIVED,
        .proof = lane->proof,
        .fence = 1,
        .window_ms = of->window_ms,
        .result_expires_ms = INT64_MAX,
        .key_expires_ms = INT64_MAX,
        .tombstone_expires_ms = INT64_MAX,
    };
    /* No route's scope begins so, and no caller's key can meet it there. */
    bool good = arena_copy(arena, slice_of(id, len), &row->call_id) &&
                arena_copy(arena, of->tenant, &row->tenant) && arena_copy(arena, of->route, &row->route) &&
                join(arena, " reversal of ", of->scope, &row->scope) &&
                join(arena, "reversal:", undone, &row->key) && arena_copy(arena, undone, &row->reverses) &&
                arena_copy(arena, of->business_ref, &row->business_ref) &&
                arena_copy(arena, of->trace_id, &row->trace_id) &&
                arena_copy(arena, slice_text(shard->owner), &row->owner);
    if (!good)
        return STATUS_NO_MEMORY;
    row->call_digest = digest_call(&shard->print.hasher, row->tenant, row->call_id);
    row->operation_digest = digest_operation(&shard->print.hasher, row->tenant, row->scope, row->key);
    return STATUS_OK;
}
