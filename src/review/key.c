/* SPDX-License-Identifier: MIT */
#include "review/key.h"

static const struct {
    const char *word, *why;
} volatile_words[] = {
    {"uuid", "a UUID is new each time it is made"},
    {"randomuuid", "a UUID is new each time it is made"},
    {"uuidgen", "a UUID is new each time it is made"},
    {"guid", "a GUID is new each time it is made"},
    {"ulid", "a ULID is new each time it is made"},
    {"random", "a random number is new each time"},
    {"rand", "a random number is new each time"},
    {"srandom", "a random number is new each time"},
    {"urandom", "a random number is new each time"},
    {"nonce", "a nonce is new each time"},
    {"timestamp", "the time differs between two tries"},
    {"ts", "the time differs between two tries"},
    {"time", "the time differs between two tries"},
    {"now", "the time differs between two tries"},
    {"msec", "the time differs between two tries"},
    {"millis", "the time differs between two tries"},
    {"currenttimemillis", "the time differs between two tries"},
    {"time_iso8601", "the time differs between two tries"},
    {"time_local", "the time differs between two tries"},
    {"start_time", "the time differs between two tries"},
    {"request_time", "the time differs between two tries"},
    {"sent_at", "the time of sending differs between two tries"},
    {"epoch", "the time differs between two tries"},
    {"epochseconds", "the time differs between two tries"},
    {"epochrealtime", "the time differs between two tries"},
    {"request_id", "a request id is new for each request"},
    {"x-request-id", "a request id is new for each request"},
    {"http_x_request_id", "a request id is new for each request"},
    {"unique-id", "a request id is new for each request"},
    {"stream_id", "a stream id is new for each request"},
    {"trace_id", "a trace is not the operation, and a retry may open a new one"},
    {"traceparent", "a trace is not the operation, and each hop rewrites it"},
    {"connection", "a connection's number changes with every connection"},
    {"connection_id", "a connection's number changes with every connection"},
    {"connection_requests", "a connection's counter changes with every request"},
    {"pid", "a process id changes with every start"},
    {"seq", "a counter gives the next try another number"},
    {"sequence", "a counter gives the next try another number"},
    {"counter", "a counter gives the next try another number"},
    {"serial", "a counter gives the next try another number"},
    {"increment", "a counter gives the next try another number"},
    {"auto_increment", "an auto-increment id is new for each row"},
    {"autoincrement", "an auto-increment id is new for each row"},
    {"auto_id", "an auto-increment id is new for each row"},
    {"row_id", "an auto-increment id is new for each row"},
    {"rowid", "an auto-increment id is new for each row"},
    {"nextval", "a sequence gives the next try another number"},
};

bool key_header(struct slice name)
{
    return slice_is_nocase(name, "Idempotency-Key") || slice_is_nocase(name, "X-Idempotency-Key") ||
           slice_is_nocase(name, "Idempotent-Key") || slice_is_nocase(name, "X-Idempotent-Key");
}

bool key_call_id_header(struct slice name)
{
    return slice_is_nocase(name, "X-Call-Id");
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static const char *word_reason(struct slice word, enum key_dialect dialect)
{
    if (slice_is_nocase(word, "date") && (dialect == KEY_SHELL || dialect == KEY_HAPROXY))
        return "the time differs between two tries";
    for (size_t i = 0; i < sizeof volatile_words / sizeof *volatile_words; i++)
        if (slice_is_nocase(word, volatile_words[i].word))
            return volatile_words[i].why;
    return NULL;
}

static const char *words_reason(struct slice inside, enum key_dialect dialect, struct slice *part)
{
    for (size_t i = 0; i < inside.len;) {
        size_t from = i;
        while (i < inside.len && word_char(inside.data[i]))
            i++;
        struct slice word = slice_of(inside.data + from, i - from);
        const char *why = word.len ? word_reason(word, dialect) : NULL;
        if (why) {
            *part = word;
            return why;
        }
        if (i < inside.len)
            i++;
    }
    return NULL;
}

/* The next placeholder at or after *at: its inside in *inside, *at behind it. */
static bool placeholder_next(struct slice t, enum key_dialect dialect, size_t *at, struct slice *inside)
{
    for (size_t i = *at; i < t.len; i++) {
        char open = t.data[i], close = 0;
        size_t from = i + 1;
        bool dollar = open == '$' && (dialect == KEY_NGINX || dialect == KEY_SHELL);
        if (dialect == KEY_BRACES && open == '{') {
            close = '}';
        } else if (dialect == KEY_ENVOY && open == '%') {
            close = '%';
        } else if (dialect == KEY_SHELL && open == '`') {
            close = '`';
        } else if (dialect == KEY_HAPROXY && open == '%' && from < t.len && t.data[from] == '[') {
            close = ']';
            from++;
        } else if (dollar && from < t.len && t.data[from] == '{') {
            close = '}';
            from++;
        } else if (dollar && dialect == KEY_SHELL && from < t.len && t.data[from] == '(') {
            close = ')';
            from++;
        } else if (dollar || (dialect == KEY_HAPROXY && open == '%')) {
            size_t end = from;
            if (dollar && end < t.len && t.data[end] == '$') { /* $$ is the process id */
                *inside = slice_text("pid");
                *at = end + 1;
                return true;
            }
            while (end < t.len && word_char(t.data[end]) && t.data[end] != '-')
                end++;
            if (end == from)
                continue;
            *inside = slice_of(t.data + from, end - from);
            *at = end;
            return true;
        } else {
            continue;
        }
        size_t end = from, depth = 1;
        char again = close == ')' ? '(' : close == ']' ? '[' : close == '}' ? '{' : 0;
        for (; end < t.len; end++) {
            if (again && t.data[end] == again)
                depth++;
            else if (t.data[end] == close && --depth == 0)
                break;
        }
        *inside = slice_of(t.data + from, end - from);
        *at = end < t.len ? end + 1 : end;
        return true;
    }
    return false;
}

/* HAProxy's one-letter log variables that are new for each request. */
static bool haproxy_log_variable(struct slice inside)
{
    static const char *const names[] = {"ID", "rt", "pid", "t", "T", "Tl", "Ts", "tr", "trg", "ms", "rc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_is(inside, names[i]))
            return true;
    return false;
}

const char *key_volatile(struct slice template, enum key_dialect dialect, struct slice *part)
{
    size_t at = 0;
    struct slice inside;
    while (placeholder_next(template, dialect, &at, &inside)) {
        if (dialect == KEY_HAPROXY && haproxy_log_variable(inside)) {
            *part = inside;
            return "the variable is new for each request";
        }
        const char *why = words_reason(inside, dialect, part);
        if (why)
            return why;
    }
    return NULL;
}

bool key_constant(struct slice template, enum key_dialect dialect)
{
    size_t at = 0;
    struct slice inside;
    return !placeholder_next(template, dialect, &at, &inside);
}

void key_judge(struct review *r, const struct source *s, unsigned line, const char *place,
               struct slice header, struct slice template, enum key_dialect dialect, bool hop)
{
    struct slice part;
    bool call_id = key_call_id_header(header);
    if (!call_id && !key_header(header))
        return;
    if (template.len == 0) {
        if (hop)
            review_find(r, RULE_KEY_DROPPED, s, line, place, "%.*s is taken away", (int)header.len,
                        header.data);
        return;
    }
    const char *why = key_volatile(template, dialect, &part);
    if (call_id && hop && (why || key_constant(template, dialect)))
        review_find(r, RULE_CALL_ID_REWRITTEN, s, line, place, "%.*s becomes %.*s", (int)header.len,
                    header.data, (int)(template.len < 80 ? template.len : 80), template.data);
    else if (!call_id && why)
        review_find(r, RULE_KEY_VOLATILE, s, line, place, "%.*s: %s", (int)(part.len < 80 ? part.len : 80),
                    part.data, why);
    else if (!call_id && hop && key_constant(template, dialect))
        review_find(r, RULE_KEY_CONSTANT, s, line, place, "%.*s is always %.*s", (int)header.len, header.data,
                    (int)(template.len < 80 ? template.len : 80), template.data);
}
