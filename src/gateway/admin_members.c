/* SPDX-License-Identifier: MIT
 *
 * The members that documents of the admin API share.
 */
#include "base/civil.h"
#include "base/hex.h"
#include "base/json_text.h"
#include "gateway/admin_parts.h"

static void name_member(struct buffer *out, const char *name)
{
    if (out->len && out->data[out->len - 1] != '{')
        buffer_byte(out, ',');
    buffer_byte(out, '"');
    buffer_text(out, name);
    buffer_text(out, "\":");
}

void member_text(struct buffer *out, const char *name, struct slice text)
{
    name_member(out, name);
    json_text_or_null(out, text);
}

void member_bool(struct buffer *out, const char *name, bool value)
{
    name_member(out, name);
    json_bool(out, value);
}

void member_time(struct buffer *out, const char *name, int64_t unix_ms)
{
    name_member(out, name);
    if (unix_ms <= 0 || unix_ms > CIVIL_MS_MAX) {
        buffer_text(out, "null");
        return;
    }
    buffer_byte(out, '"');
    civil_print_rfc3339(unix_ms, out);
    buffer_byte(out, '"');
}

void member_number(struct buffer *out, const char *name, int64_t n)
{
    name_member(out, name);
    buffer_number(out, n);
}

void member_id(struct buffer *out, const char *name, int64_t id)
{
    name_member(out, name);
    if (!id) {
        buffer_text(out, "null");
        return;
    }
    buffer_byte(out, '"');
    buffer_number(out, id);
    buffer_byte(out, '"');
}

void member_begin(struct buffer *out, const char *name, char bracket)
{
    name_member(out, name);
    buffer_byte(out, bracket);
}

void credential_mark(const struct digest *credential, char text[CREDENTIAL_MARK_BYTES])
{
    hex_write(text, credential->bytes, (CREDENTIAL_MARK_BYTES - 1) / 2);
    text[CREDENTIAL_MARK_BYTES - 1] = '\0';
}

void member_tenant(struct buffer *out, struct slice tenant)
{
    name_member(out, "tenant");
    json_text(out, tenant);
}

void call_members(struct buffer *out, const struct call_row *row)
{
    member_id(out, "id", row->id);
    member_text(out, "call_id", row->call_id);
    member_text(out, "call_id_source", slice_text(row->call_id_made ? "gateway" : "caller"));
    member_tenant(out, row->tenant);
    member_text(out, "route", row->route);
    member_text(out, "key", row->key);
    member_text(out, "business_ref", row->business_ref);
    member_text(out, "trace_id", row->trace_id);
    member_text(out, "state", slice_text(state_text(row->state)));
    member_bool(out, "final", row->final);
    member_text(out, "reason", slice_text(reason_text(row->reason)));
    member_bool(out, "maybe_ran", row->maybe_ran);
    member_number(out, "attempt_count", row->attempt_count);
    if (row->result_status)
        member_number(out, "result_status", row->result_status);
    else
        member_text(out, "result_status", slice_of("", 0));
    member_text(out, "original_call_id", row->original_call_id);
    member_text(out, "reverses", row->reverses);
    member_text(out, "reversed_by", row->reversed_by);
    member_time(out, "created_at", row->created_ms);
    member_time(out, "updated_at", row->updated_ms);
    member_time(out, "ended_at", row->ended_ms);
}

void list_end(struct buffer *out, int64_t next_before_id, int64_t reached_ms)
{
    buffer_byte(out, ']');
    member_id(out, "next_cursor", next_before_id);
    member_time(out, "reached", reached_ms);
    buffer_text(out, "}\n");
}
