/* SPDX-License-Identifier: MIT */
#include "forensics/event.h"

#include <assert.h>

static const struct {
    const char *text;
    int order;
} kinds[] = {
#define KIND(id, order, text) {text, order},
#define WORD(id, name)
#include "forensics/kind.def"
#undef KIND
#undef WORD
};

static const struct {
    const char *name;
    uint8_t kind;
} exact[] = {
#define KIND(id, order, text)
#define WORD(id, name) {name, KIND_##id},
#include "forensics/kind.def"
#undef KIND
#undef WORD
};

/* Words in free text, the telling ones first; `with` must be there too. */
static const struct {
    const char *word, *with;
    uint8_t kind;
} spoken[] = {
    {"rolled back", NULL, KIND_ROLLBACK},
    {"rollback", NULL, KIND_ROLLBACK},
    {"receipt", "timed out", KIND_RECEIPT_TIMEOUT},
    {"receipt", "timeout", KIND_RECEIPT_TIMEOUT},
    {"receipt", "query", KIND_RECEIPT_QUERY},
    {"receipt", "asking", KIND_RECEIPT_QUERY},
    {"receipt", "written", KIND_RECEIPT_WRITTEN},
    {"receipt", "stored", KIND_RECEIPT_WRITTEN},
    {"unique constraint", NULL, KIND_KEY_CONFLICT},
    {"duplicate key", NULL, KIND_KEY_CONFLICT},
    {"timed out", NULL, KIND_TIMEOUT},
    {"timeout", NULL, KIND_TIMEOUT},
    {"connection reset", NULL, KIND_RESET},
    {"broken pipe", NULL, KIND_RESET},
    {"connection refused", NULL, KIND_REFUSED},
    {"replay", NULL, KIND_REPLAY},
    {"refunded", NULL, KIND_REVERSED},
    {"reversed", NULL, KIND_REVERSED},
    {"committed", NULL, KIND_EFFECT},
    {"effect", NULL, KIND_EFFECT},
    {"order created", NULL, KIND_EFFECT},
    {"charged", NULL, KIND_EFFECT},
    {"cache", "hit", KIND_CACHE_ASKED},
    {"cache", "miss", KIND_CACHE_ASKED},
    {"sending", NULL, KIND_SENT},
    {"retrying", NULL, KIND_SENT},
    {"request received", NULL, KIND_REQUEST},
    {"handling request", NULL, KIND_REQUEST},
    {"message received", NULL, KIND_REQUEST},
    {"delivery", NULL, KIND_REQUEST},
};

static const struct {
    const char *word;
    uint8_t state;
} states[] = {
    {"NONE", EVENT_STATE_NOT_RECEIVED},      {"NOT_RECEIVED", EVENT_STATE_NOT_RECEIVED},
    {"NOT_FOUND", EVENT_STATE_NOT_RECEIVED}, {"RECEIVED", EVENT_STATE_RECEIVED},
    {"PROCESSING", EVENT_STATE_PROCESSING},  {"PENDING", EVENT_STATE_PROCESSING},
    {"RUNNING", EVENT_STATE_PROCESSING},     {"SUCCESS", EVENT_STATE_SUCCESS},
    {"SUCCEEDED", EVENT_STATE_SUCCESS},      {"DONE", EVENT_STATE_SUCCESS},
    {"COMPLETED", EVENT_STATE_SUCCESS},      {"FAILED", EVENT_STATE_FAILED},
    {"FAILURE", EVENT_STATE_FAILED},         {"UNKNOWN", EVENT_STATE_UNKNOWN},
};

const char *event_kind_text(enum event_kind kind)
{
    return kinds[kind].text;
}

int event_kind_order(enum event_kind kind)
{
    return kinds[kind].order;
}

const char *event_state_text(enum event_state state)
{
    static const char *const text[] = {"",        "NOT_RECEIVED", "RECEIVED", "PROCESSING",
                                       "SUCCESS", "FAILED",       "UNKNOWN"};
    return text[state];
}

enum event_state event_state_find(struct slice word)
{
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (slice_is_nocase(word, states[i].word))
            return (enum event_state)states[i].state;
    return EVENT_STATE_ABSENT;
}

/* Folded multiplication, eight bytes a round. Not for secrets: a log that was made to collide only muddles itself. */
uint64_t event_digest(struct slice s, uint64_t seed)
{
    const uint64_t k1 = UINT64_C(0x9e3779b97f4a7c15), k2 = UINT64_C(0xd6e8feb86659fd93);
    uint64_t h = seed ^ (s.len * k1);
    const char *p = s.data;
    size_t n = s.len;
    while (n >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        unsigned __int128 m = (unsigned __int128)(h ^ v) * k1;
        h = (uint64_t)m ^ (uint64_t)(m >> 64);
        p += 8;
        n -= 8;
    }
    uint64_t v = 0;
    if (n)
        memcpy(&v, p, n);
    unsigned __int128 m = (unsigned __int128)(h ^ v ^ k2) * k2;
    h = (uint64_t)m ^ (uint64_t)(m >> 64);
    return h ^ h >> 29;
}

/* ---- from fields ---- */

static uint64_t number_of(struct slice s, uint64_t max)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.len && s.data[i] >= '0' && s.data[i] <= '9'; i++) {
        n = n * 10 + (uint64_t)(s.data[i] - '0');
        if (n > max)
            return max;
    }
    return n;
}

static bool says(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

static bool find_exact(struct slice name, uint8_t *kind)
{
    char plain[64];
    size_t n = 0;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        c = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')))
            continue;
        if (n == sizeof plain)
            return false;
        plain[n++] = c;
    }
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        if (slice_is(slice_of(plain, n), exact[i].name)) {
            *kind = exact[i].kind;
            return true;
        }
    }
    return false;
}

/* A name like attempt.sent or call_done within a sentence. */
static bool find_named(struct slice text, uint8_t *kind)
{
    for (size_t at = 0; at < text.len;) {
        size_t end = at;
        bool joined = false;
        for (; end < text.len && text.data[end] != ' '; end++)
            joined = joined ||
                     (end > at && (text.data[end] == '.' || text.data[end] == '_' || text.data[end] == '-'));
        if (joined && find_exact(slice_of(text.data + at, end - at), kind))
            return true;
        at = end + 1;
    }
    return false;
}

static void look_up(struct slice name, uint8_t *kind, uint8_t *guessed)
{
    char lower[256];
    size_t m = 0;
    *guessed = 0;
    if (find_exact(name, kind) || find_named(name, kind))
        return;
    for (; m < name.len && m < sizeof lower; m++) {
        char c = name.data[m];
        lower[m] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    *guessed = 1;
    for (size_t i = 0; i < sizeof spoken / sizeof *spoken; i++) {
        if (says(lower, m, spoken[i].word) && (!spoken[i].with || says(lower, m, spoken[i].with))) {
            *kind = spoken[i].kind;
            return;
        }
    }
    *kind = KIND_OTHER;
}

static uint8_t kind_by_name(struct slice name, struct event_words *words, uint8_t *guessed)
{
    uint64_t digest = event_digest(name, 1) | 1;
    size_t at = digest >> 32 & 127;
    if (words->cache[at].digest != digest) {
        look_up(name, &words->cache[at].kind, &words->cache[at].guessed);
        words->cache[at].digest = digest;
    }
    *guessed = words->cache[at].guessed;
    return words->cache[at].kind;
}

/* "POST /x HTTP/1.1" into method and path. */
static void split_request(struct event *e, struct slice line)
{
    const char *a = memchr(line.data, ' ', line.len);
    if (!a)
        return;
    const char *end = line.data + line.len, *b = memchr(a + 1, ' ', (size_t)(end - a - 1));
    e->text[TEXT_METHOD] = slice_of(line.data, (size_t)(a - line.data));
    e->text[TEXT_PATH] = slice_of(a + 1, (size_t)((b ? b : end) - a - 1));
}

static bool changes_nothing(struct slice method)
{
    return slice_is(method, "GET") || slice_is(method, "HEAD") || slice_is(method, "OPTIONS") ||
           slice_is(method, "TRACE");
}

/* GET /receipts/ID is somebody asking for a receipt. */
static bool asks_receipt(struct event *e)
{
    struct slice path = e->text[TEXT_PATH];
    const char *at = path.len ? memmem(path.data, path.len, "/receipts/", 10) : NULL;
    if (!at || !slice_is(e->text[TEXT_METHOD], "GET"))
        return false;
    struct slice id = slice_of(at + 10, path.len - (size_t)(at + 10 - path.data));
    for (size_t i = 0; i < id.len; i++)
        if (id.data[i] == '?' || id.data[i] == '/')
            id.len = i;
    if (id.len && !e->text[TEXT_CALL].len)
        e->text[TEXT_CALL] = id;
    e->kind = KIND_RECEIPT_ANSWER;
    if (e->state == EVENT_STATE_ABSENT)
        e->state = e->status == 404 ? EVENT_STATE_NOT_RECEIVED : EVENT_STATE_ABSENT;
    return true;
}

static void keep_text(struct event *e, enum event_text t, const struct fields *f, enum field field)
{
    if (fields_has(f, field))
        e->text[t] = f->value[field];
}

static void decide_kind(struct event *e, const struct fields *f, struct event_words *words)
{
    uint8_t guessed = 0;
    e->kind = KIND_OTHER;
    if (fields_has(f, FIELD_EVENT)) {
        e->kind = kind_by_name(f->value[FIELD_EVENT], words, &guessed);
        e->text[TEXT_WHAT] = f->value[FIELD_EVENT];
    }
    struct slice how = fields_get(f, FIELD_HOW);
    if (slice_is(fields_get(f, FIELD_EVENT), "answered"))
        e->kind = slice_is(how, "replay") ? KIND_REPLAY : KIND_OTHER;
    if (e->kind == KIND_OTHER && e->text[TEXT_METHOD].len) {
        guessed = 0;
        e->kind = fields_has(f, FIELD_UPSTREAM) ? KIND_PROXY : e->status ? KIND_ACCESS : KIND_REQUEST;
    } else if (e->kind == KIND_OTHER && e->status && e->text[TEXT_CALL].len && !how.len) {
        guessed = 0;
        e->kind = KIND_ANSWERED; /* whatever it calls that: a status without a request is an answer */
    }
    if (guessed && e->kind != KIND_OTHER)
        e->flags |= EVENT_GUESSED;
    if (e->kind == KIND_OTHER && fields_has(f, FIELD_REDELIVERED))
        e->kind = KIND_REQUEST;
}

/* One attempt's outcome says how it ended; without it the status does. */
static void note_outcome(struct event *e, struct slice outcome)
{
    if (slice_is(outcome, "success"))
        e->state = EVENT_STATE_SUCCESS;
    else if (slice_is(outcome, "failed") || slice_is(outcome, "rejected"))
        e->state = EVENT_STATE_FAILED;
    else if (slice_is(outcome, "not_executed") || slice_is(outcome, "not-executed"))
        e->state = EVENT_STATE_NOT_RECEIVED;
    else if (slice_is(outcome, "pending"))
        e->state = EVENT_STATE_PROCESSING;
    else if (slice_is(outcome, "unknown"))
        e->state = EVENT_STATE_UNKNOWN;
}

static void shorten(struct event *e, struct buffer *scratch)
{
    for (int t = 0; t < TEXT_COUNT; t++) {
        if (e->text[t].len <= EVENT_TEXT_BYTES_MAX)
            continue;
        size_t at = scratch->len;
        buffer_append(scratch, e->text[t].data, EVENT_TEXT_BYTES_MAX - 20);
        buffer_format(scratch, "...%016llx", (unsigned long long)event_digest(e->text[t], 7));
        if (!scratch->failed)
            e->text[t] = slice_of(scratch->data + at, scratch->len - at);
    }
}

static struct slice who_asked_what(const struct event *e, struct buffer *scratch)
{
    size_t at = scratch->len;
    buffer_slice(scratch, e->text[TEXT_METHOD]);
    buffer_byte(scratch, ' ');
    buffer_slice(scratch, e->text[TEXT_PATH]);
    buffer_text(scratch, " from ");
    buffer_slice(scratch, e->text[TEXT_PEER]);
    return slice_of(scratch->data + at, scratch->len - at);
}

enum event_use event_make(struct event *e, const struct fields *f, struct event_words *words,
                          struct buffer *scratch)
{
    buffer_clear(scratch);
    if (!buffer_reserve(scratch, 4096))
        return EVENT_READ_ONLY;
    memset(e->text, 0, sizeof e->text);
    e->place = 0;
    e->state = EVENT_STATE_ABSENT;
    e->took_ms = -1;
    keep_text(e, TEXT_BUSINESS, f, FIELD_BUSINESS);
    keep_text(e, TEXT_KEY, f, FIELD_KEY);
    keep_text(e, TEXT_CALL, f, FIELD_CALL);
    keep_text(e, TEXT_EXEC, f, FIELD_EXEC);
    keep_text(e, TEXT_CONNECTION, f, FIELD_CONNECTION);
    keep_text(e, TEXT_PEER, f, FIELD_PEER);
    keep_text(e, TEXT_NODE, f, FIELD_NODE);
    keep_text(e, TEXT_AGENT, f, FIELD_AGENT);
    keep_text(e, TEXT_VIA, f, FIELD_VIA);
    keep_text(e, TEXT_UPSTREAM, f, FIELD_UPSTREAM);
    keep_text(e, TEXT_UPSTREAM_STATUS, f, FIELD_UPSTREAM_STATUS);
    keep_text(e, TEXT_METHOD, f, FIELD_METHOD);
    keep_text(e, TEXT_PATH, f, FIELD_PATH);
    if (fields_has(f, FIELD_REQUEST_LINE) && !e->text[TEXT_METHOD].len)
        split_request(e, f->value[FIELD_REQUEST_LINE]);
    e->status = (uint16_t)number_of(fields_get(f, FIELD_STATUS), 999);
    e->attempt = (uint16_t)number_of(fields_get(f, FIELD_ATTEMPT), UINT16_MAX);
    e->nth = (uint32_t)number_of(fields_get(f, FIELD_NTH), UINT32_MAX);
    e->retries = (uint16_t)number_of(fields_get(f, FIELD_RETRIES), UINT16_MAX);
    if (fields_has(f, FIELD_STATE))
        e->state = (uint8_t)event_state_find(f->value[FIELD_STATE]);
    if (fields_has(f, FIELD_OUTCOME) && e->state == EVENT_STATE_ABSENT)
        note_outcome(e, f->value[FIELD_OUTCOME]);
    if (fields_has(f, FIELD_TOOK_MS))
        e->took_ms = (int32_t)number_of(f->value[FIELD_TOOK_MS], INT32_MAX);
    else if (fields_has(f, FIELD_TOOK_S)) {
        struct slice s = f->value[FIELD_TOOK_S];
        const char *dot = memchr(s.data, '.', s.len);
        uint64_t ms = number_of(s, INT32_MAX / 1000) * 1000;
        for (int i = 1, unit = 100; dot && i <= 3 && dot + i < s.data + s.len; i++, unit /= 10)
            ms += (uint64_t)unit * (uint64_t)(dot[i] >= '0' && dot[i] <= '9' ? dot[i] - '0' : 0);
        e->took_ms = (int32_t)ms;
    }
    if (fields_has(f, FIELD_SHIPPED))
        e->flags |= EVENT_SHIPPED;
    if (slice_is_nocase(fields_get(f, FIELD_REDELIVERED), "true"))
        e->flags |= EVENT_REDELIVERED;
    if (fields_has(f, FIELD_ORIGIN_OFFSET) && fields_has(f, FIELD_ORIGIN_FILE))
        e->place =
            event_digest(f->value[FIELD_ORIGIN_FILE], event_digest(f->value[FIELD_ORIGIN_OFFSET], 2)) | 1;
    decide_kind(e, f, words);
    if (e->kind == KIND_ATTEMPT_ENDED)
        e->flags |= EVENT_TIME_ENDS;
    if (!e->text[TEXT_CALL].len && fields_has(f, FIELD_REQUEST_ID)) {
        e->text[TEXT_CALL] = f->value[FIELD_REQUEST_ID];
        e->flags |= EVENT_WEAK_CALL;
    }
    if (!asks_receipt(e) && changes_nothing(e->text[TEXT_METHOD]))
        return EVENT_READ_ONLY;
    if (!e->text[TEXT_BUSINESS].len && fields_has(f, FIELD_FINGERPRINT) && !e->text[TEXT_KEY].len)
        e->text[TEXT_BUSINESS] = f->value[FIELD_FINGERPRINT];
    bool named = e->text[TEXT_BUSINESS].len || e->text[TEXT_KEY].len ||
                 (e->text[TEXT_CALL].len && !(e->flags & EVENT_WEAK_CALL));
    if (!named && (e->kind == KIND_ACCESS || e->kind == KIND_PROXY) && e->text[TEXT_PEER].len) {
        e->text[TEXT_BUSINESS] = who_asked_what(e, scratch);
        e->flags |= EVENT_WEAK_KEY;
        named = true;
    }
    if (!named && !e->text[TEXT_CALL].len)
        return EVENT_READ_ONLY;
    shorten(e, scratch);
    return EVENT_KEPT;
}

/* ---- records ---- */

struct head {
    uint32_t size, line;
    uint64_t group, place;
    int64_t us;
    uint32_t raw, nth;
    int32_t took_ms;
    uint16_t file, origin, status, attempt, retries;
    uint8_t kind, flags, state;
    uint8_t len[TEXT_COUNT];
    uint8_t pad;
};
static_assert(sizeof(struct head) == 72, "a record's head has no holes");

void event_write(struct buffer *out, const struct event *e)
{
    struct head h = {.line = e->line,
                     .group = e->group,
                     .place = e->place,
                     .us = e->us,
                     .raw = e->raw,
                     .nth = e->nth,
                     .took_ms = e->took_ms,
                     .file = e->file,
                     .origin = e->origin,
                     .status = e->status,
                     .attempt = e->attempt,
                     .retries = e->retries,
                     .kind = e->kind,
                     .flags = e->flags,
                     .state = e->state};
    size_t size = sizeof h;
    for (int t = 0; t < TEXT_COUNT; t++) {
        assert(e->text[t].len <= EVENT_TEXT_BYTES_MAX);
        h.len[t] = (uint8_t)e->text[t].len;
        size += h.len[t];
    }
    size = (size + 7) & ~(size_t)7;
    h.size = (uint32_t)size;
    char *p = buffer_reserve(out, size);
    if (!p)
        return;
    out->len += size;
    memcpy(p, &h, sizeof h);
    p += sizeof h;
    for (int t = 0; t < TEXT_COUNT; t++) {
        if (h.len[t])
            memcpy(p, e->text[t].data, h.len[t]);
        p += h.len[t];
    }
}

size_t event_read(struct event *e, const char *p)
{
    struct head h;
    memcpy(&h, p, sizeof h);
    e->us = h.us;
    e->place = h.place;
    e->group = h.group;
    e->raw = h.raw;
    e->line = h.line;
    e->nth = h.nth;
    e->took_ms = h.took_ms;
    e->file = h.file;
    e->origin = h.origin;
    e->status = h.status;
    e->attempt = h.attempt;
    e->retries = h.retries;
    e->copies = 0;
    e->kind = h.kind;
    e->flags = h.flags;
    e->state = h.state;
    p += sizeof h;
    for (int t = 0; t < TEXT_COUNT; t++) {
        e->text[t] = slice_of(p, h.len[t]);
        p += h.len[t];
    }
    return h.size;
}

uint32_t event_record_size(const char *p)
{
    uint32_t size;
    memcpy(&size, p + offsetof(struct head, size), sizeof size);
    return size;
}

uint64_t event_record_group(const char *p)
{
    uint64_t group;
    memcpy(&group, p + offsetof(struct head, group), sizeof group);
    return group;
}

void event_record_regroup(char *p, uint64_t group)
{
    memcpy(p + offsetof(struct head, group), &group, sizeof group);
}
