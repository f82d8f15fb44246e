/* SPDX-License-Identifier: MIT
 *
 * GET /v1/suspects: clients that swap keys, most often first.
 */
#include "base/json_text.h"
#include "gateway/admin_parts.h"
#include "gateway/suspects.h"

struct copies {
    struct suspect list[SUSPECTS_MAX];
};

static void examples(struct buffer *out, const struct suspect *s)
{
    member_begin(out, "examples", '[');
    size_t kept = s->example_count < SUSPECT_EXAMPLES_MAX ? s->example_count : SUSPECT_EXAMPLES_MAX;
    for (size_t i = 0; i < kept; i++) { /* the newest first */
        const struct suspect_example *e = &s->examples[(s->example_count - 1 - i) % SUSPECT_EXAMPLES_MAX];
        buffer_text(out, i ? ",{" : "{");
        member_time(out, "at", e->at_ms);
        member_text(out, "route", slice_text(e->route));
        member_text(out, "problem", slice_text(problem_slug(e->problem)));
        member_text(out, "call_id", slice_text(e->call_id));
        member_text(out, "key", slice_text(e->key));
        member_text(out, "other_call_id", slice_text(e->other_call_id));
        member_text(out, "other_key", slice_text(e->other_key));
        buffer_byte(out, '}');
    }
    buffer_byte(out, ']');
}

static void members(struct buffer *out, const struct suspect *s)
{
    char mark[CREDENTIAL_MARK_BYTES];
    if (s->has_credential)
        credential_mark(&s->credential, mark);
    member_text(out, "client", slice_text(s->has_credential ? mark : s->address));
    member_text(out, "kind", slice_text(s->has_credential ? "credential" : "address"));
    member_tenant(out, slice_text(s->tenant));
    member_number(out, "count", s->count);
    member_number(out, "suspected_duplicate", s->duplicates);
    member_number(out, "call_id_reused", s->ids_reused);
    member_number(out, "key_reused", s->keys_reused);
    member_begin(out, "routes", '[');
    for (size_t i = 0; i < SUSPECT_ROUTES_MAX && s->routes[i][0]; i++) {
        if (i)
            buffer_byte(out, ',');
        json_text(out, slice_text(s->routes[i]));
    }
    buffer_byte(out, ']');
    member_time(out, "first_at", s->first_ms);
    member_time(out, "last_at", s->last_ms);
    examples(out, s);
}

void admin_suspects(struct inquiry *q)
{
    struct copies *copies = inquiry_params(q, NULL, 0) ? inquiry_state(q, sizeof *copies) : NULL;
    if (!copies)
        return;
    struct buffer out = {0};
    size_t count = suspects_copy(q->admin->shard->suspects, copies->list);
    buffer_byte(&out, '{');
    member_time(&out, "since", q->admin->started_ms);
    member_begin(&out, "items", '[');
    for (size_t i = 0; i < count; i++) {
        buffer_text(&out, i ? ",{" : "{");
        members(&out, &copies->list[i]);
        buffer_byte(&out, '}');
    }
    buffer_text(&out, "]}\n");
    inquiry_answer(q, 200, &out);
    buffer_fini(&out);
}
