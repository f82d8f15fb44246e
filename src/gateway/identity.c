/* SPDX-License-Identifier: MIT */
#include "gateway/identity.h"

#include "base/hex.h"
#include "core/deadline.h"
#include "core/id.h"
#include "core/json_value.h"
#include "core/key.h"

#define KEY_HEADERS_MAX 8 /* repeated Idempotency-Key fields that are looked at */

/* The value of a query parameter as received; false: not there. */
static bool query_value(struct slice query, struct slice name, struct slice *out)
{
    while (query.len) {
        const char *stop = memchr(query.data, '&', query.len);
        size_t len = stop ? (size_t)(stop - query.data) : query.len;
        struct slice pair = slice_of(query.data, len);
        query.data += stop ? len + 1 : len;
        query.len -= stop ? len + 1 : len;
        const char *equals = memchr(pair.data, '=', pair.len);
        struct slice key = slice_of(pair.data, equals ? (size_t)(equals - pair.data) : pair.len);
        if (slice_equal(key, name)) {
            *out = equals ? slice_of(equals + 1, pair.len - key.len - 1) : slice_of("", 0);
            return true;
        }
    }
    return false;
}

struct lookup {
    const struct identity_inputs *in;
    const struct identity *id;
};

/* A header given twice with different values names nobody: the service behind might read the other one. */
static bool header_once(const struct headers *headers, struct slice name, struct buffer *out)
{
    const struct header *first = NULL;
    for (size_t i = 0; i < headers->count; i++) {
        const struct header *h = &headers->list[i];
        if (!slice_equal_nocase(h->name, name))
            continue;
        if (first && !slice_equal(first->value, h->value))
            return false;
        first = h;
    }
    if (first)
        buffer_slice(out, first->value);
    return first != NULL;
}

static bool look_up(void *context, enum template_source source, struct slice name, struct buffer *out)
{
    const struct lookup *l = context;
    const struct identity_inputs *in = l->in;
    switch (source) {
    case TEMPLATE_JSON: {
        struct json_value value;
        return json_find(in->body, name, &value) == STATUS_OK && json_value_normal(&value, out) == STATUS_OK;
    }
    case TEMPLATE_HEADER:
        return header_once(&in->head->headers, name, out);
    case TEMPLATE_PATH:
        for (size_t i = 0; in->match && i < in->match->capture_count; i++) {
            if (slice_equal(in->match->captures[i].name, name)) {
                buffer_slice(out, in->match->captures[i].value);
                return true;
            }
        }
        return false;
    case TEMPLATE_QUERY: {
        struct slice value;
        if (!query_value(in->head->query, name, &value))
            return false;
        buffer_slice(out, value);
        return true;
    }
    case TEMPLATE_METHOD:
        buffer_slice(out, in->head->method);
        return true;
    case TEMPLATE_CALL_ID:
        buffer_slice(out, l->id->call_id);
        return true;
    case TEMPLATE_KEY:
        buffer_slice(out, l->id->key);
        return true;
    case TEMPLATE_ARGS:
    case TEMPLATE_ORIGIN:
    case TEMPLATE_DATE:
    case TEMPLATE_HOUR:
    case TEMPLATE_MINUTE:
        return false;
    }
    return false;
}

/* Renders into the arena. STATUS_NOT_FOUND names the missing part in id->where. */
static enum status render(const struct template *t, struct identity *id, const struct identity_inputs *in,
                          int64_t window_ms, struct slice *out)
{
    struct lookup lookup = {in, id};
    struct template_inputs inputs = {look_up, &lookup, window_ms};
    struct buffer text = {0};
    enum status status = template_render(t, &inputs, &text, &id->where);
    if (status == STATUS_OK && !arena_copy(in->arena, buffer_view(&text), out))
        status = STATUS_NO_MEMORY;
    buffer_fini(&text);
    return status;
}

static enum problem read_call_id(struct identity *id, struct slice text)
{
    if (callid_check(text) != STATUS_OK) {
        id->why = "a callId is 1 to 128 bytes of A-Z a-z 0-9 . _ : -";
        return PROBLEM_CALL_ID_INVALID;
    }
    id->call_id = text;
    (void)callid_time(text, &id->id_time_ms);
    return PROBLEM_NONE;
}

static enum problem read_header_call_id(struct identity *id, const struct identity_inputs *in)
{
    bool found = false;
    for (size_t i = 0; i < in->head->headers.count; i++) {
        const struct header *h = &in->head->headers.list[i];
        if (!slice_is_nocase(h->name, "X-Call-Id"))
            continue;
        if (found && !slice_equal(id->call_id, h->value)) {
            id->why = "X-Call-Id is given twice with different values";
            return PROBLEM_CALL_ID_INVALID;
        }
        enum problem problem = read_call_id(id, h->value);
        if (problem)
            return problem;
        found = true;
    }
    return PROBLEM_NONE;
}

void identity_begin_trace(struct identity *id, struct prng *random, struct arena *arena)
{
    uint64_t bits[3];
    char text[33];
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        bits[i] = prng_next(random);
    traceparent_new(bits, &id->trace);
    id->trace.flags |= 1; /* it is begun to be seen */
    traceparent_trace_id(&id->trace, text);
    memset(id->trace.parent_id, 0, sizeof id->trace.parent_id);
    id->has_trace = arena_copy(arena, slice_of(text, 32), &id->trace_id);
}

enum problem identity_read_principal(struct identity *id, const struct identity_inputs *in)
{
    const struct setup *setup = in->setup;
    struct slice credential = {0};
    id->tenant = slice_of("", 0);
    if (setup->has_tenant &&
        (render(&setup->tenant, id, in, 0, &id->tenant) != STATUS_OK || !id->tenant.len)) {
        id->why = "this gateway keeps tenants apart, and the request does not name its tenant";
        return PROBLEM_TENANT_MISSING;
    }
    if (!setup->has_credential)
        return PROBLEM_NONE;
    if (render(&setup->credential, id, in, 0, &credential) != STATUS_OK || !credential.len) {
        id->why = "this gateway keeps credentials apart, and the request has none";
        return PROBLEM_CREDENTIAL_MISSING;
    }
    struct digest32 sum;
    hasher_begin(in->hasher);
    hasher_part(in->hasher, slice_text("credential"));
    hasher_part(in->hasher, credential);
    hasher_end(in->hasher, &sum);
    id->has_credential = true;
    memcpy(id->credential.bytes, sum.bytes, sizeof id->credential.bytes);
    if (!setup->has_tenant) {
        /* With a credential alone, it is the tenant; its digest stands for it, so that no credential is stored. */
        char *hex = arena_take(in->arena, 2 * sizeof id->credential.bytes);
        if (!hex)
            return PROBLEM_OVERLOADED;
        hex_write(hex, id->credential.bytes, sizeof id->credential.bytes);
        id->tenant = slice_of(hex, 2 * sizeof id->credential.bytes);
    }
    return PROBLEM_NONE;
}

static enum problem read_header_key(struct identity *id, const struct identity_inputs *in)
{
    struct slice values[KEY_HEADERS_MAX] = {{0}};
    size_t count = 0;
    for (size_t i = 0; i < in->head->headers.count; i++) {
        const struct header *h = &in->head->headers.list[i];
        if (!slice_is_nocase(h->name, "Idempotency-Key"))
            continue;
        if (count == KEY_HEADERS_MAX) {
            id->why = "Idempotency-Key is repeated too often";
            return PROBLEM_KEY_INVALID;
        }
        values[count++] = h->value;
    }
    struct key key;
    enum status status = key_parse_all(values, count, &key, &id->why);
    if (status == STATUS_NOT_FOUND) {
        if (in->lane->s->key_missing == KEY_MISSING_PASS)
            return PROBLEM_NONE;
        id->why = "send an Idempotency-Key that names the business action, the same on every retry; a callId "
                  "does not "
                  "replace it";
        return PROBLEM_KEY_MISSING;
    }
    if (status != STATUS_OK)
        return PROBLEM_KEY_INVALID;
    if (!arena_copy(in->arena, key_view(&key), &id->key))
        return PROBLEM_OVERLOADED;
    id->has_key = true;
    if (!slice_equal(values[0], id->key))
        id->key_spelling = values[0];
    return PROBLEM_NONE;
}

enum problem identity_read_head(struct identity *id, const struct identity_inputs *in)
{
    memset(id, 0, sizeof *id);
    id->budget_ms = DEADLINE_NO_BUDGET;
    id->scope = in->match->scope;
    id->route = slice_text(in->lane->s->name);
    enum problem problem = PROBLEM_NONE;
    if (in->lane->call_id_in_header)
        problem = read_header_call_id(id, in);
    if (!problem)
        problem = identity_read_principal(id, in);
    if (!problem && in->lane->key_in_header)
        problem = read_header_key(id, in);
    if (problem)
        return problem;
    bool found;
    struct slice value = headers_get(&in->head->headers, "traceparent", &found);
    if (found && traceparent_parse(value, &id->trace) == STATUS_OK) {
        char trace_id[33];
        traceparent_trace_id(&id->trace, trace_id);
        id->has_trace = arena_copy(in->arena, slice_of(trace_id, 32), &id->trace_id);
    }
    value = headers_get(&in->head->headers, "X-Call-Budget-Ms", &found);
    if (found)
        (void)deadline_parse_budget(value, &id->budget_ms); /* one that cannot be read caps nothing */
    if (!in->lane->has_business_ref) {
        value = headers_get(&in->head->headers, "X-Business-Ref", &found);
        if (found && value.len <= 255)
            id->business_ref = value;
    }
    return PROBLEM_NONE;
}

/* The route reads the callId from the body. A caller that also sends the header must mean the same call by both; one that
 * sends only the header has named it there. */
static enum problem read_body_call_id(struct identity *id, const struct identity_inputs *in,
                                      int64_t window_ms)
{
    struct slice text;
    enum status status = render(&in->lane->call_id, id, in, window_ms, &text);
    if (status == STATUS_NO_MEMORY)
        return PROBLEM_OVERLOADED;
    if (status != STATUS_OK && status != STATUS_NOT_FOUND) {
        id->why = "the callId in this request is too long, or holds control bytes";
        return PROBLEM_CALL_ID_INVALID;
    }
    enum problem problem = read_header_call_id(id, in);
    if (problem || status == STATUS_NOT_FOUND)
        return problem;
    if (id->call_id.len && !slice_equal(id->call_id, text)) {
        id->why = "X-Call-Id and the body name two different callIds";
        return PROBLEM_CALL_ID_INVALID;
    }
    return read_call_id(id, text);
}

/* What would undo the call. A request that lacks a part of it can run, and cannot be undone by us. */
static void read_reversal(struct identity *id, const struct identity_inputs *in, int64_t window_ms)
{
    const struct lane *lane = in->lane;
    struct slice path, where = id->where;
    if (!lane->reversal_method.len)
        return;
    if (render(&lane->reversal_path, id, in, window_ms, &path) == STATUS_OK) {
        size_t len = lane->reversal_method.len + 1 + path.len;
        char *text = arena_take(in->arena, len);
        if (text) {
            memcpy(text, lane->reversal_method.data, lane->reversal_method.len);
            text[lane->reversal_method.len] = ' ';
            memcpy(text + lane->reversal_method.len + 1, path.data, path.len);
            id->reversal = slice_of(text, len);
        }
    }
    id->where = where;
}

enum problem identity_read_body(struct identity *id, const struct identity_inputs *in, int64_t window_ms)
{
    const struct lane *lane = in->lane;
    if (!lane->call_id_in_header && !id->call_id.len) {
        enum problem problem = read_body_call_id(id, in, window_ms);
        if (problem)
            return problem;
    }
    if (!lane->key_in_header) {
        struct slice text;
        enum status status = render(&lane->key, id, in, window_ms, &text);
        if (status == STATUS_OK) {
            if (key_check(text, &id->why) != STATUS_OK)
                return PROBLEM_KEY_INVALID;
            id->key = text;
            id->has_key = true;
            /* A key that the caller sent goes upstream as it is; the template's is for a caller that sent none. */
            bool found;
            struct slice own = headers_get(&in->head->headers, "Idempotency-Key", &found);
            if (found && own.len && own.len <= KEY_BYTES_MAX + 2)
                id->key_spelling = own;
        } else if (status == STATUS_NO_MEMORY) {
            return PROBLEM_OVERLOADED;
        } else if (status != STATUS_NOT_FOUND) {
            id->why = "the key that the route's template makes of this request is too long";
            return PROBLEM_KEY_INVALID;
        } else if (lane->s->key_missing == KEY_MISSING_REFUSE) {
            id->why = "a part of the route's key template is missing, null or empty in this request";
            return PROBLEM_KEY_MISSING;
        }
    }
    if (lane->has_business_ref) {
        struct slice text;
        if (render(&lane->business_ref, id, in, window_ms, &text) == STATUS_OK && text.len <= 255)
            id->business_ref = text;
    }
    read_reversal(id, in, window_ms);
    return PROBLEM_NONE;
}

void identity_digest(struct identity *id, struct hasher *hasher)
{
    id->call_digest = digest_call(hasher, id->tenant, id->call_id);
    if (id->has_key)
        id->operation = digest_operation(hasher, id->tenant, id->scope, id->key);
}

void identity_row(const struct identity *id, const struct lane *lane, const struct digest32 *fingerprint,
                  const char *owner, int64_t now_ms, int64_t window_ms, struct call_row *row)
{
    *row = (struct call_row){
        .call_digest = id->call_digest,
        .operation_digest = id->operation,
        .has_key = id->has_key,
        .call_id_made = id->call_id_made,
        .tenant = id->tenant,
        .route = id->route,
        .scope = id->scope,
        .call_id = id->call_id,
        .key = id->key,
        .key_spelling = id->key_spelling,
        .business_ref = id->business_ref,
        .trace_id = id->trace_id,
        .has_credential = id->has_credential,
        .credential = id->credential,
        .has_fingerprint = true,
        .fingerprint = *fingerprint,
        .fingerprint_version = FINGERPRINT_VERSION,
        .fingerprint_rules = fingerprint_rules_text(&lane->rules),
        .state = STATE_PROCESSING,
        .proof = lane->proof,
        .owner = slice_text(owner),
        .fence = 1,
        .attempt_count = 1,
        .lease_end_ms = deadline_add(now_ms, lane->s->lease_ms),
        .first_attempt_ms = now_ms,
        .window_ms = window_ms,
        .result_expires_ms = INT64_MAX,
        .key_expires_ms = INT64_MAX,
        .tombstone_expires_ms = INT64_MAX,
    };
}
