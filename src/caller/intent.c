/* SPDX-License-Identifier: MIT */
#include "caller/intent.h"

#include "base/base64.h"
#include "base/civil.h"
#include "core/fingerprint.h"
#include "core/id.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_LIFE_MS INT64_C(86400000)

void intent_error(struct samekey_error *error, int status, const char *format, ...)
{
    if (!error)
        return;
    va_list list;
    va_start(list, format);
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, list);
    va_end(list);
}

void samekey_options_init_sized(struct samekey_options *options, size_t size)
{
    struct samekey_options defaults = {
        .size = size,
        .method = "POST",
        .retries = 3,
        .attempt_timeout_ms = 3000,
        .deadline_ms = 30000,
        .backoff_base_ms = 500,
        .backoff_cap_ms = 4000,
        .jitter_low = 0.5,
        .jitter_high = 1,
        .retry_after_max_ms = 300000,
        .upstream_key_life_ms = KEY_LIFE_MS,
        .receipt_timeout_ms = 1000,
        .receipt_queries = 5,
        .resend_after_ms = -1,
        .result_bytes_max = INT64_C(16) << 20,
    };
    memset(options, 0, size);
    memcpy(options, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

/* ---- checks ------------------------------------------------------------------------------------------------- */

/* RFC 9110 section 5.6.2. */
static bool is_token(struct slice s)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && !memchr(others, c, sizeof others - 1))
            return false;
    }
    return true;
}

/* RFC 9110 section 5.5: no byte that could end the line or be read as something else. */
static bool is_field_value(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return false;
    }
    return true;
}

static bool starts_nocase(struct slice s, const char *prefix)
{
    size_t len = strlen(prefix);
    return s.len >= len && slice_is_nocase(slice_of(s.data, len), prefix);
}

static bool is_ours(struct slice name)
{
    static const char *const ours[] = {"X-Call-Id",        "Idempotency-Key", "X-Call-Attempt",
                                       "X-Call-Budget-Ms", "traceparent",     "X-Business-Ref",
                                       "X-Call-Fence",     "Content-Length",  "Transfer-Encoding",
                                       "Expect",           "Connection"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (slice_is_nocase(name, ours[i]))
            return true;
    }
    return false;
}

struct making {
    struct intent *intent;
    struct samekey_error *error;
    bool out_of_memory;
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct making *m, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (m->error) {
        m->error->status = SAMEKEY_INVALID;
        vsnprintf(m->error->text, sizeof m->error->text, format, list);
    }
    va_end(list);
    return false;
}

static bool keep(struct making *m, struct slice s, struct slice *out)
{
    if (arena_copy(&m->intent->memory, s, out))
        return true;
    m->out_of_memory = true;
    return false;
}

static bool keep_text(struct making *m, const char *text, struct slice *out)
{
    *out = slice_of("", 0);
    return !text || keep(m, slice_text(text), out);
}

/* ---- parts -------------------------------------------------------------------------------------------------- */

static bool make_url(struct making *m, const char *text)
{
    struct intent *p = m->intent;
    struct slice url = slice_text(text);
    if (url.len > INTENT_URL_BYTES_MAX)
        return refuse(m, "the URL is longer than 8000 bytes");
    for (size_t i = 0; i < url.len; i++) {
        if ((unsigned char)url.data[i] <= 0x20 || url.data[i] == 0x7F)
            return refuse(m, "the URL holds a space or a control byte; write it as %%20%s", "");
        if (url.data[i] == '#') {
            url.len = i; /* a fragment never goes on a wire (RFC 9110 section 4.2.5) */
            break;
        }
    }
    size_t scheme = starts_nocase(url, "http://") ? 7 : starts_nocase(url, "https://") ? 8 : 0;
    if (!scheme)
        return refuse(m, "the URL must begin with http:// or https://: %s", text);
    size_t host = scheme, end = scheme;
    while (end < url.len && !strchr("/?", url.data[end])) {
        if (url.data[end] == '@')
            host = end + 1;
        end++;
    }
    if (end == host)
        return refuse(m, "the URL has no host: %s", text);
    struct buffer origin = {0};
    buffer_text(&origin, scheme == 7 ? "http://" : "https://");
    for (size_t i = host; i < end; i++) {
        char c = url.data[i];
        buffer_byte(&origin, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
    }
    bool kept = !origin.failed && keep(m, buffer_view(&origin), &p->origin) && keep(m, url, &p->url);
    m->out_of_memory = m->out_of_memory || origin.failed;
    buffer_fini(&origin);
    if (!kept)
        return false;
    p->target = slice_of(p->url.data + end, p->url.len - end);
    if (p->target.len == 0)
        p->target = slice_text("/");
    return true;
}

/* Copies header lines; `request` ones are checked for ours and looked at for the body's type. */
static bool make_headers(struct making *m, const struct samekey_header *from, size_t count, bool request,
                         struct intent_header **out, size_t *out_count)
{
    struct intent *p = m->intent;
    if (count > INTENT_HEADERS_MAX)
        return refuse(m, "more than 100 headers");
    struct intent_header *list = arena_take_zero(&p->memory, (count + 1) * sizeof *list);
    if (!list) {
        m->out_of_memory = true;
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct slice name = slice_text(from[i].name), value = slice_trim(slice_text(from[i].value));
        if (!is_token(name))
            return refuse(m, "a header's name is not a token: %s", from[i].name ? from[i].name : "");
        if (!is_field_value(value))
            return refuse(m, "the header %s holds a control byte", from[i].name);
        if (request && is_ours(name))
            return refuse(m, "the header %s is set by samekey; use its option", from[i].name);
        if (!keep(m, name, &list[i].name) || !keep(m, value, &list[i].value))
            return false;
        if (request && slice_is_nocase(name, "Content-Type"))
            p->content_type = list[i].value;
        if (request && slice_is_nocase(name, "Content-Encoding"))
            p->content_encoding = list[i].value;
    }
    *out = list;
    *out_count = count;
    return true;
}

static bool make_identity(struct making *m, const struct samekey_options *o)
{
    struct intent *p = m->intent;
    if (o->key) {
        const char *why = NULL;
        if (key_parse(slice_text(o->key), &p->key, &why) != STATUS_OK)
            return refuse(m, "the key is invalid: %s", why ? why : "it breaks the rules for keys");
        if (!keep(m, slice_trim(slice_text(o->key)), &p->key_spelling))
            return false;
        p->has_key = true;
    }
    if (o->call_id) {
        if (callid_check(slice_text(o->call_id)) != STATUS_OK)
            return refuse(m, "the callId must be 1 to 128 bytes of A-Z a-z 0-9 . _ : -: %s", o->call_id);
        if (!keep_text(m, o->call_id, &p->call_id))
            return false;
    }
    if (o->traceparent) {
        if (traceparent_parse(slice_text(o->traceparent), &p->trace) != STATUS_OK)
            return refuse(m, "not a traceparent: %s", o->traceparent);
        p->has_trace = true;
    }
    if (o->business_ref && !is_field_value(slice_text(o->business_ref)))
        return refuse(m, "the business reference holds a control byte");
    if (!keep_text(m, o->prefix, &p->prefix) || !keep_text(m, o->business_ref, &p->business_ref))
        return false;
    if (p->prefix.len && callid_check(p->prefix) != STATUS_OK)
        return refuse(m, "the prefix must be of A-Z a-z 0-9 . _ : -: %s", o->prefix);
    return true;
}

static bool in_bounds(int64_t value, int64_t low, int64_t high)
{
    return value >= low && value <= high;
}

static bool make_policy(struct making *m, const struct samekey_options *o)
{
    struct intent *p = m->intent;
    if (!in_bounds(o->retries, 0, INTENT_RETRIES_MAX))
        return refuse(m, "retries must be 0 to 20");
    if (!in_bounds(o->attempt_timeout_ms, DEADLINE_ATTEMPT_MIN_MS, INTENT_ATTEMPT_MS_MAX))
        return refuse(m, "the attempt timeout must be 50 ms to 24 h");
    if (!in_bounds(o->deadline_ms, DEADLINE_ATTEMPT_MIN_MS, INTENT_DEADLINE_MS_MAX))
        return refuse(m, "the deadline must be 50 ms to 7 d");
    if (!in_bounds(o->backoff_base_ms, 1, INTENT_ATTEMPT_MS_MAX) ||
        !in_bounds(o->backoff_cap_ms, o->backoff_base_ms, INTENT_ATTEMPT_MS_MAX))
        return refuse(m, "the backoff must be 1 ms or more, and its cap not below its base");
    if (!(o->jitter_low >= 0 && o->jitter_low <= o->jitter_high && o->jitter_high <= BACKOFF_JITTER_MAX))
        return refuse(m, "the jitter must be two factors in order, 0 to 10");
    if (!in_bounds(o->receipt_timeout_ms, 1, INTENT_ATTEMPT_MS_MAX) ||
        !in_bounds(o->receipt_queries, 1, INTENT_QUERIES_MAX))
        return refuse(m, "receipt_timeout must be 1 ms or more, and receipt_queries 1 to 50");
    if (!in_bounds(o->resend_after_ms, -1, INTENT_DEADLINE_MS_MAX) ||
        !in_bounds(o->retry_after_max_ms, 0, INTENT_DEADLINE_MS_MAX) || o->upstream_key_life_ms < 0 ||
        o->result_bytes_max < 0)
        return refuse(m, "a time or a size is out of bounds");
    bool asked = !slice_is(p->receipt, "none");
    p->policy = (struct call_policy){
        .retries = o->retries,
        .attempt_timeout_ms = o->attempt_timeout_ms,
        .backoff = {o->backoff_base_ms, o->backoff_cap_ms, o->jitter_low, o->jitter_high},
        .retry_after_max_ms = o->retry_after_max_ms,
        .has_receipts = asked,
        .runs_once = (o->flags & SAMEKEY_CALLEE_IDEMPOTENT) || (o->flags & SAMEKEY_RECEIPTS_RUN_ONCE) ||
                     p->receipt_samekey,
        .can_fence = p->receipt_samekey,
        .has_identity = true, /* the callId is always the caller's here: we are the caller */
        .never_after_doubt = !p->has_key && (p->call_id.len == 0 || (o->flags & SAMEKEY_RESEND_NEEDS_KEY)),
        .receipt_timeout_ms = o->receipt_timeout_ms,
        .receipt_queries = o->receipt_queries,
        .resend_after_ms = o->resend_after_ms < 0 ? o->attempt_timeout_ms : o->resend_after_ms,
        .upstream_key_life_ms = o->upstream_key_life_ms,
        .shorten_attempts = true,
    };
    p->deadline_ms = o->deadline_ms;
    p->rules = (struct outcome_rules){
        .server_error_failed = o->flags & SAMEKEY_SERVER_ERROR_FAILED,
        .accepted_success = o->flags & SAMEKEY_ACCEPTED_SUCCESS,
        .redirect_303_success = o->flags & SAMEKEY_REDIRECT_303_SUCCESS,
    };
    p->result_bytes_max = (size_t)o->result_bytes_max;
    p->flags = o->flags;
    p->progress = o->progress;
    p->cancelled = o->cancelled;
    p->context = o->context;
    return true;
}

static bool ends_with(struct slice s, const char *end)
{
    size_t len = strlen(end);
    return s.len >= len && memcmp(s.data + s.len - len, end, len) == 0;
}

static bool make_receipt(struct making *m, const struct samekey_options *o)
{
    struct intent *p = m->intent;
    if (!keep_text(m, o->receipt ? o->receipt : INTENT_RECEIPT_DEFAULT, &p->receipt) ||
        !keep_text(m, o->receipt_map, &p->receipt_map))
        return false;
    if (!slice_is(p->receipt, "none") && p->url.len) {
        struct template_error fault;
        enum status status = template_compile(&p->receipt_template, p->receipt, TEMPLATE_FOR_URL, &fault);
        if (status == STATUS_NO_MEMORY) {
            m->out_of_memory = true;
            return false;
        }
        if (status != STATUS_OK)
            return refuse(m, "the receipt's URL: %s", fault.message);
        if (!template_uses(&p->receipt_template, TEMPLATE_CALL_ID))
            return refuse(m, "the receipt's URL must hold {call_id}: %s", o->receipt);
        p->receipt_samekey = ends_with(p->receipt, "/.samekey/receipts/{call_id}");
    }
    if (o->receipt_headers)
        return make_headers(m, o->receipt_headers, o->receipt_header_count, false, &p->receipt_headers,
                            &p->receipt_header_count);
    /* The same credentials, and whatever else names a tenant; but not to a stranger's address. */
    if (!starts_nocase(p->receipt, "{origin}"))
        return true;
    p->receipt_headers = arena_take_zero(&p->memory, (p->header_count + 1) * sizeof *p->receipt_headers);
    if (!p->receipt_headers) {
        m->out_of_memory = true;
        return false;
    }
    for (size_t i = 0; i < p->header_count; i++) {
        if (!starts_nocase(p->headers[i].name, "Content-"))
            p->receipt_headers[p->receipt_header_count++] = p->headers[i];
    }
    return true;
}

enum status intent_make(struct intent *out, const struct samekey_options *options,
                        struct samekey_error *error)
{
    struct samekey_options o;
    struct making m = {.intent = out, .error = error};
    memset(out, 0, sizeof *out);
    if (options->size < offsetof(struct samekey_options, url) + sizeof options->url) {
        intent_error(error, SAMEKEY_INVALID, "the options were not made by samekey_options_init()");
        return STATUS_INVALID;
    }
    /* A program compiled with an older header has fewer members: those keep their defaults. */
    samekey_options_init_sized(&o, sizeof o);
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    arena_init(&out->memory, INTENT_BYTES_MAX);
    out->body = slice_of(o.body, o.body ? o.body_len : 0);
    bool made = false;
    if (!is_token(slice_text(o.method)))
        refuse(&m, "the method is not a token: %s", o.method ? o.method : "");
    else if (!o.url && !o.receipt)
        refuse(&m, "without a URL the receipt must be given, or \"none\"");
    else
        made = keep_text(&m, o.method, &out->method) && (!o.url || make_url(&m, o.url)) &&
               make_headers(&m, o.headers, o.headers ? o.header_count : 0, true, &out->headers,
                            &out->header_count) &&
               make_identity(&m, &o) && make_receipt(&m, &o) && keep_text(&m, o.ca_file, &out->ca_file) &&
               make_policy(&m, &o);
    if (made && out->url.len && template_uses(&out->receipt_template, TEMPLATE_KEY) && !out->has_key)
        made = refuse(&m, "the receipt's URL holds {key}, and the call has none");
    if (made)
        return STATUS_OK;
    if (m.out_of_memory)
        intent_error(error, SAMEKEY_NO_MEMORY, "no memory; nothing was sent");
    intent_fini(out);
    memset(out, 0, sizeof *out);
    return m.out_of_memory ? STATUS_NO_MEMORY : STATUS_INVALID;
}

void intent_fini(struct intent *intent)
{
    if (!intent)
        return;
    template_fini(&intent->receipt_template);
    arena_fini(&intent->memory);
}

/* ---- digests ------------------------------------------------------------------------------------------------ */

enum status intent_fingerprint(const struct intent *intent, struct digest32 *out)
{
    struct fingerprinter f;
    struct canon_fault fault;
    struct fingerprint_input in = {intent->method, intent->target, intent->content_type,
                                   intent->content_encoding, intent->body};
    if (fingerprinter_init(&f) != STATUS_OK)
        return STATUS_NO_MEMORY;
    enum status status = fingerprint_make(&f, FINGERPRINT_VERSION, NULL, &in, out, &fault);
    if (status == STATUS_INVALID || status == STATUS_FULL) {
        in.content_type = slice_text("application/octet-stream");
        status = fingerprint_make(&f, FINGERPRINT_VERSION, NULL, &in, out, &fault);
    }
    fingerprinter_fini(&f);
    return status;
}

enum status intent_operation(const struct intent *intent, struct digest *out)
{
    struct hasher h;
    if (hasher_init(&h) != STATUS_OK)
        return STATUS_NO_MEMORY;
    *out = digest_operation(&h, slice_of("", 0), intent->url, key_view(&intent->key));
    hasher_fini(&h);
    return STATUS_OK;
}

enum status intent_call_digest(struct slice call_id, struct digest *out)
{
    struct hasher h;
    if (hasher_init(&h) != STATUS_OK)
        return STATUS_NO_MEMORY;
    *out = digest_call(&h, slice_of("", 0), call_id);
    hasher_fini(&h);
    return STATUS_OK;
}

/* ---- receipts ----------------------------------------------------------------------------------------------- */

struct lookup {
    const struct intent *intent;
    struct slice call_id;
};

static bool look_up(void *context, enum template_source source, struct slice name, struct buffer *out)
{
    const struct lookup *l = context;
    (void)name;
    switch (source) {
    case TEMPLATE_ORIGIN:
        buffer_slice(out, l->intent->origin);
        return true;
    case TEMPLATE_CALL_ID:
        buffer_slice(out, l->call_id);
        return true;
    case TEMPLATE_KEY:
        buffer_slice(out, key_view(&l->intent->key));
        return l->intent->has_key;
    case TEMPLATE_METHOD:
        buffer_slice(out, l->intent->method);
        return true;
    default:
        return false;
    }
}

static void append_escaped(struct buffer *out, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            (c && strchr("-._~", c)))
            buffer_byte(out, (char)c);
        else
            buffer_format(out, "%%%02X", c);
    }
}

enum status intent_receipt_url(const struct intent *intent, struct slice call_id, int64_t since_unix_ms,
                               bool fence, struct buffer *out)
{
    struct lookup context = {intent, call_id};
    struct template_inputs in = {look_up, &context, since_unix_ms};
    struct slice missing;
    enum status status = template_render(&intent->receipt_template, &in, out, &missing);
    if (status != STATUS_OK)
        return status == STATUS_NO_MEMORY ? status : STATUS_INVALID;
    if (fence) {
        buffer_text(out, "/fence");
    } else if (intent->receipt_samekey) {
        /* So that a gateway which does not guard this request says so, instead of NOT_RECEIVED. */
        const char *question =
            intent->target.len ? memchr(intent->target.data, '?', intent->target.len) : NULL;
        buffer_text(out, "?method=");
        append_escaped(out, intent->method);
        buffer_text(out, "&path=");
        append_escaped(out, question ? slice_of(intent->target.data, (size_t)(question - intent->target.data))
                                     : intent->target);
        buffer_text(out, "&since=");
        struct buffer since = {0};
        civil_print_rfc3339(since_unix_ms, &since);
        append_escaped(out, buffer_view(&since));
        out->failed = out->failed || since.failed;
        buffer_fini(&since);
    }
    return out->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

/* ---- what a journal keeps ----------------------------------------------------------------------------------- */

void intent_headers_encode(const struct intent_header *headers, size_t count, struct buffer *out)
{
    for (size_t i = 0; i < count; i++) {
        buffer_slice(out, headers[i].name);
        buffer_text(out, ": ");
        buffer_slice(out, headers[i].value);
        buffer_text(out, "\r\n");
    }
}

enum status intent_headers_decode(struct slice lines, const struct samekey_header **out, size_t *count,
                                  struct arena *memory)
{
    size_t n = 0;
    for (size_t i = 0; i < lines.len; i++)
        n += lines.data[i] == '\n';
    struct samekey_header *list = arena_take_zero(memory, (n + 1) * sizeof *list);
    if (!list)
        return STATUS_NO_MEMORY;
    n = 0;
    while (lines.len) {
        const char *stop = memchr(lines.data, '\n', lines.len), *colon = memchr(lines.data, ':', lines.len);
        if (!stop || !colon || colon > stop || stop[-1] != '\r')
            return STATUS_INVALID;
        struct slice name, value;
        size_t len = (size_t)(stop - lines.data);
        if (!arena_copy(memory, slice_of(lines.data, (size_t)(colon - lines.data)), &name) ||
            !arena_copy(memory, slice_trim(slice_of(colon + 1, (size_t)(stop - colon) - 2)), &value))
            return STATUS_NO_MEMORY;
        list[n++] = (struct samekey_header){name.data, value.data};
        lines.data += len + 1;
        lines.len -= len + 1;
    }
    *out = list;
    *count = n;
    return STATUS_OK;
}

/* The members of the options that are whole numbers, as one table for both directions. */
#define POLICY_NUMBERS(X)                                                                                    \
    X(retries)                                                                                               \
    X(attempt_timeout_ms)                                                                                    \
    X(deadline_ms)                                                                                           \
    X(backoff_base_ms)                                                                                       \
    X(backoff_cap_ms)                                                                                        \
    X(retry_after_max_ms)                                                                                    \
    X(upstream_key_life_ms)                                                                                  \
    X(receipt_timeout_ms)                                                                                    \
    X(receipt_queries)                                                                                       \
    X(resend_after_ms)                                                                                       \
    X(result_bytes_max)

void intent_policy_encode(const struct intent *intent, struct buffer *out)
{
    const struct call_policy *p = &intent->policy;
    struct samekey_options o = {
        .retries = p->retries,
        .attempt_timeout_ms = p->attempt_timeout_ms,
        .deadline_ms = intent->deadline_ms,
        .backoff_base_ms = p->backoff.base_ms,
        .backoff_cap_ms = p->backoff.cap_ms,
        .retry_after_max_ms = p->retry_after_max_ms,
        .upstream_key_life_ms = p->upstream_key_life_ms,
        .receipt_timeout_ms = p->receipt_timeout_ms,
        .receipt_queries = p->receipt_queries,
        .resend_after_ms = p->resend_after_ms,
        .result_bytes_max = (int64_t)intent->result_bytes_max,
    };
    struct buffer lines = {0};
    intent_headers_encode(intent->receipt_headers, intent->receipt_header_count, &lines);
    json_t *root = json_object();
#define X(name) json_object_set_new(root, #name, json_integer((json_int_t)o.name));
    POLICY_NUMBERS(X)
#undef X
    json_object_set_new(root, "jitter_low", json_real(p->backoff.jitter_low));
    json_object_set_new(root, "jitter_high", json_real(p->backoff.jitter_high));
    json_object_set_new(root, "flags", json_integer((json_int_t)intent->flags));
    json_object_set_new(root, "receipt", json_stringn(intent->receipt.data, intent->receipt.len));
    json_object_set_new(root, "receipt_map", json_stringn(intent->receipt_map.data, intent->receipt_map.len));
    /* Header values may hold bytes that are not UTF-8 (RFC 9110 section 5.5). */
    struct buffer encoded = {0};
    base64_encode(buffer_view(&lines), &encoded);
    json_object_set_new(root, "receipt_headers", json_stringn(encoded.data ? encoded.data : "", encoded.len));
    json_object_set_new(root, "ca_file", json_stringn(intent->ca_file.data, intent->ca_file.len));
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (text && !lines.failed && !encoded.failed)
        buffer_text(out, text);
    else
        out->failed = true;
    free(text);
    json_decref(root);
    buffer_fini(&encoded);
    buffer_fini(&lines);
}

static bool text_member(json_t *root, const char *name, const char **out, struct arena *memory)
{
    json_t *value = json_object_get(root, name);
    struct slice copy;
    if (!json_is_string(value))
        return false;
    *out = NULL;
    if (json_string_length(value) == 0)
        return true;
    if (!arena_copy(memory, slice_of(json_string_value(value), json_string_length(value)), &copy))
        return false;
    *out = copy.data;
    return true;
}

enum status intent_policy_decode(struct slice text, struct samekey_options *o, struct arena *memory)
{
    json_t *root = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, NULL);
    json_t *flags = json_object_get(root, "flags");
    const char *encoded = NULL;
    struct buffer lines = {0};
    enum status status = STATUS_INVALID;
#define X(name)                                                                                              \
    if (json_is_integer(json_object_get(root, #name)))                                                       \
        o->name = (__typeof__(o->name))json_integer_value(json_object_get(root, #name));
    POLICY_NUMBERS(X)
#undef X
    /* A damaged policy is no policy: guessing could send again what must not be. */
    if (!json_is_integer(flags) || !text_member(root, "receipt", &o->receipt, memory) ||
        !text_member(root, "receipt_map", &o->receipt_map, memory) ||
        !text_member(root, "receipt_headers", &encoded, memory) ||
        !text_member(root, "ca_file", &o->ca_file, memory))
        goto done;
    o->jitter_low = json_number_value(json_object_get(root, "jitter_low"));
    o->jitter_high = json_number_value(json_object_get(root, "jitter_high"));
    o->flags = (unsigned)json_integer_value(flags);
    status = base64_decode(slice_text(encoded), &lines);
    if (status == STATUS_OK)
        status =
            intent_headers_decode(buffer_view(&lines), &o->receipt_headers, &o->receipt_header_count, memory);
done:
    buffer_fini(&lines);
    json_decref(root);
    return status;
}
