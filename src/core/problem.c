/* SPDX-License-Identifier: MIT */
#include "core/problem.h"

#include "base/json_text.h"
#include "core/id.h"

static const struct {
    const char *slug;
    int status;
    enum outcome outcome;
    bool about_other;
    const char *title;
} table[PROBLEM_COUNT] = {
    [PROBLEM_NONE] = {"none", 200, OUTCOME_NONE, false, ""},
#define PROBLEM(name, slug, status, outcome, about_other, title)                                             \
    [PROBLEM_##name] = {slug, status, OUTCOME_##outcome, about_other, title},
#include "core/problem.def"
#undef PROBLEM
};

const char *problem_slug(enum problem problem)
{
    return table[problem].slug;
}

enum problem problem_find(struct slice slug)
{
    for (int i = PROBLEM_NONE + 1; i < PROBLEM_COUNT; i++) {
        if (slice_is(slug, table[i].slug))
            return (enum problem)i;
    }
    return PROBLEM_NONE;
}

int problem_status(enum problem problem)
{
    return table[problem].status;
}

enum outcome problem_outcome(enum problem problem)
{
    return table[problem].outcome;
}

bool problem_about_other(enum problem problem)
{
    return table[problem].about_other;
}

int problem_answer_status(enum problem problem, const struct problem_facts *facts)
{
    if (facts->status)
        return facts->status;
    if (facts->waited && (problem == PROBLEM_OUTCOME_UNKNOWN || problem == PROBLEM_CALL_IN_PROGRESS))
        return 504;
    return table[problem].status;
}

void problem_document(struct buffer *out, enum problem problem, const struct problem_facts *f)
{
    buffer_format(out, "{\"type\":\"urn:samekey:%s\",\"title\":\"%s\",\"status\":%d,\"detail\":",
                  table[problem].slug, table[problem].title, problem_answer_status(problem, f));
    json_text(out, f->detail.len ? f->detail : slice_text(table[problem].title));
    buffer_text(out, ",\"call_id\":");
    json_text_or_null(out, f->call_id);
    buffer_text(out, ",\"original_call_id\":");
    json_text_or_null(out, f->original_call_id);
    buffer_format(out, ",\"state\":\"%s\",\"safe_new_key\":", state_text(f->state));
    json_bool(out, f->safe_new_key && !table[problem].about_other);
    buffer_format(out, ",\"next_action\":\"%s\",\"retry_after_s\":", next_action_text(f->next));
    if (f->retry_after_s >= 0)
        buffer_number(out, f->retry_after_s);
    else
        buffer_text(out, "null");
    buffer_text(out, ",\"receipt\":");
    if (f->with_receipt && callid_check(f->call_id) == STATUS_OK) { /* nothing else gets into a path */
        buffer_text(out, "\"/.samekey/receipts/");
        buffer_slice(out, f->call_id);
        buffer_byte(out, '"');
    } else {
        buffer_text(out, "null");
    }
    if (f->parameter.len) {
        buffer_text(out, ",\"parameter\":");
        json_text(out, f->parameter);
    }
    buffer_text(out, "}\n");
}
