/* SPDX-License-Identifier: MIT */
#include "caller/response.h"

#include "core/retry_after.h"

#include <jansson.h>
#include <string.h>

#define RETRY_AFTER_LINES_MAX 8

bool response_header(const struct response *reply, const char *name, size_t n, struct slice *value)
{
    struct slice rest = buffer_view(&reply->headers);
    while (rest.len) {
        const char *stop = memchr(rest.data, '\n', rest.len);
        size_t len = stop ? (size_t)(stop - rest.data) + 1 : rest.len;
        struct slice line = slice_of(rest.data, len);
        rest.data += len;
        rest.len -= len;
        while (line.len && (line.data[line.len - 1] == '\n' || line.data[line.len - 1] == '\r'))
            line.len--;
        const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
        if (!colon || !slice_is_nocase(slice_of(line.data, (size_t)(colon - line.data)), name))
            continue;
        if (n--)
            continue;
        *value = slice_trim(slice_of(colon + 1, line.len - (size_t)(colon - line.data) - 1));
        return true;
    }
    return false;
}

static enum problem problem_of(const char *type)
{
    static const char urn[] = "urn:samekey:";
    if (!type || strncmp(type, urn, sizeof urn - 1) != 0)
        return PROBLEM_NONE;
    for (int i = 1; i < PROBLEM_COUNT; i++) {
        if (strcmp(type + sizeof urn - 1, problem_slug((enum problem)i)) == 0)
            return (enum problem)i;
    }
    return PROBLEM_NONE;
}

static void read_problem(const struct response *reply, struct response_words *out)
{
    struct slice type;
    if (!response_header(reply, "Content-Type", 0, &type) || type.len < 24 ||
        !slice_is_nocase(slice_of(type.data, 24), "application/problem+json") || !reply->body_kept)
        return;
    json_t *root = json_loadb(reply->body.data ? reply->body.data : "", reply->body.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    out->problem = problem_of(json_string_value(json_object_get(root, "type")));
    if (out->problem != PROBLEM_NONE) {
        json_t *safe = json_object_get(root, "safe_new_key");
        out->has_safe_new_key = json_is_boolean(safe);
        out->safe_new_key = json_is_true(safe) && !problem_about_other(out->problem);
        const char *next = json_string_value(json_object_get(root, "next_action"));
        for (int i = NEXT_NONE; next && i <= NEXT_ASK_OPERATOR; i++) {
            if (strcmp(next, next_action_text((enum next_action)i)) == 0)
                out->next_action = i;
        }
    }
    json_decref(root);
}

void response_read(const struct response *reply, struct slice call_id, int64_t unix_now_ms,
                   struct response_words *out)
{
    struct slice value, lines[RETRY_AFTER_LINES_MAX];
    *out = (struct response_words){.retry_after_ms = -1, .next_action = -1};
    for (size_t n = 0; response_header(reply, "Call-Outcome", n, &value); n++) {
        enum outcome said = outcome_parse_header(value);
        if (said == OUTCOME_NONE)
            continue; /* no word of ours: it says nothing */
        out->outcome = out->has_outcome && out->outcome != said ? OUTCOME_UNKNOWN : said;
        out->has_outcome = true;
    }
    for (size_t n = 0; response_header(reply, "X-Call-Id", n, &value); n++)
        out->other_call_id = out->other_call_id || !slice_equal(value, call_id);
    size_t count = 0;
    while (count < RETRY_AFTER_LINES_MAX && response_header(reply, "Retry-After", count, &value))
        lines[count++] = value;
    int64_t wait;
    if (retry_after_longest(lines, count, unix_now_ms, &wait) == STATUS_OK)
        out->retry_after_ms = wait;
    read_problem(reply, out);
}

bool response_receipt_safe_new_key(struct slice document, bool *safe)
{
    json_t *root = json_loadb(document.data ? document.data : "", document.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    json_t *value = json_object_get(root, "safe_new_key");
    bool said = json_is_boolean(value);
    if (said)
        *safe = json_is_true(value);
    json_decref(root);
    return said;
}

void response_clear(struct response *reply)
{
    reply->status = 0;
    reply->body_bytes = 0;
    reply->body_kept = true;
    buffer_clear(&reply->headers);
    buffer_clear(&reply->body);
}

void response_fini(struct response *reply)
{
    if (!reply)
        return;
    buffer_fini(&reply->headers);
    buffer_fini(&reply->body);
}
