/* SPDX-License-Identifier: MIT */
#include "core/settings_shape.h"

#include "core/cache_address.h"

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* RFC 9110 section 5.6.2 */
static bool is_token(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_alnum(s.data[i]) && !(s.data[i] && strchr("!#$%&'*+-.^_`|~", s.data[i])))
            return false;
    return s.len > 0;
}

static bool starts_with(struct slice s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.len >= n && memcmp(s.data, prefix, n) == 0;
}

static struct slice skip(struct slice s, size_t n)
{
    return slice_of(s.data + n, s.len - n);
}

/* Decimal 1 to 65535, or 0 to 65535 where a listener may let the system choose. */
static bool is_port(struct slice s, bool zero)
{
    unsigned long n = 0;
    if (s.len == 0 || s.len > 5)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9')
            return false;
        n = n * 10 + (unsigned long)(s.data[i] - '0');
    }
    return n <= 65535 && (zero || n > 0);
}

/* HOST or [IPv6], then :PORT where there is one. */
static bool is_authority(struct slice s, bool port_needed, bool zero)
{
    size_t i = 0;
    if (s.len && s.data[0] == '[') {
        while (i < s.len && s.data[i] != ']') {
            if (i > 0 && !is_alnum(s.data[i]) && s.data[i] != ':' && s.data[i] != '.')
                return false;
            i++;
        }
        if (i < 3 || i == s.len)
            return false;
        i++;
    } else {
        while (i < s.len && s.data[i] != ':') {
            if (!is_alnum(s.data[i]) && s.data[i] != '-' && s.data[i] != '.' && s.data[i] != '_')
                return false;
            i++;
        }
        if (i == 0)
            return false;
    }
    if (i == s.len)
        return !port_needed;
    return s.data[i] == ':' && is_port(skip(s, i + 1), zero);
}

static bool shape_address(struct slice s, struct buffer *why)
{
    if (starts_with(s, "unix:")) {
        /* The size of sun_path on Linux, without its NUL. */
        if (s.len > 6 && s.data[5] == '/' && s.len - 5 <= 107)
            return true;
        buffer_text(why, "a unix socket is unix: and an absolute path of at most 107 bytes, such as "
                         "unix:/run/samekey/gw.sock");
        return false;
    }
    if (is_authority(s, true, true))
        return true;
    buffer_text(why, "an address is HOST:PORT, [IPv6]:PORT or unix:/PATH, such as 127.0.0.1:8080");
    return false;
}

static bool shape_upstream(struct slice s, struct buffer *why)
{
    struct slice rest = starts_with(s, "http://")    ? skip(s, 7)
                        : starts_with(s, "https://") ? skip(s, 8)
                                                     : slice_of(NULL, 0);
    if (rest.len && rest.data[rest.len - 1] == '/')
        rest.len--;
    if (is_authority(rest, false, false))
        return true;
    buffer_text(
        why, "an upstream is http://HOST[:PORT] or https://HOST[:PORT], without a path (the caller's path is "
             "sent as it is) and without user or password");
    return false;
}

static bool shape_store(struct slice s, struct buffer *why)
{
    if (starts_with(s, "sqlite:") && s.len > 7)
        return true;
    if ((starts_with(s, "postgres://") && s.len > strlen("postgres://")) ||
        (starts_with(s, "postgresql://") && s.len > strlen("postgresql://")))
        return true;
    if (starts_with(s, "redis:"))
        buffer_text(why, "Redis is a cache in front of a store, never the store: name it in `cache`");
    else
        buffer_text(why, "a store is sqlite:PATH, such as sqlite:/var/lib/samekey/receipts.db, or "
                         "postgres://USER@HOST/DATABASE");
    return false;
}

static bool shape_cache(struct slice s, struct buffer *why)
{
    struct cache_address address;
    return s.len == 0 || cache_address_parse(&address, s, why) == STATUS_OK;
}

/* The pattern syntax itself is checked where patterns are compiled; here only what every path must be. */
static bool shape_path(struct slice s, struct buffer *why)
{
    if (s.len && s.data[0] == '/')
        return true;
    buffer_text(why, "a path pattern starts with /, such as /orders/{id}");
    return false;
}

static bool shape_method(struct slice s, struct buffer *why)
{
    static const char *const safe[] = {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"};
    bool upper = is_token(s);
    for (size_t i = 0; i < s.len; i++)
        upper = upper && !(s.data[i] >= 'a' && s.data[i] <= 'z');
    if (!upper) {
        buffer_text(why, "a method is a word in capital letters, such as POST");
        return false;
    }
    for (size_t i = 0; i < sizeof(safe) / sizeof(safe[0]); i++)
        if (slice_is(s, safe[i])) {
            buffer_format(
                why, "%s always passes through and cannot be guarded; name methods that write, such as POST",
                safe[i]);
            return false;
        }
    return true;
}

/* Parts of a callId (CONTRACT section 2), without the dash that joins them. */
static bool shape_id_part(struct slice s, struct buffer *why)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_alnum(s.data[i]) && s.data[i] != '.' && s.data[i] != '_' && s.data[i] != '-') {
            buffer_text(why, "only letters, digits, `.`, `_` and `-` may be part of a callId");
            return false;
        }
    return true;
}

bool settings_header_split(struct slice line, struct slice *name, struct slice *value)
{
    const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
    if (!colon)
        return false;
    struct slice n = slice_of(line.data, (size_t)(colon - line.data));
    if (!is_token(n))
        return false;
    *name = n;
    *value = slice_trim(skip(line, n.len + 1));
    return true;
}

static bool shape_receipt_header(struct slice s, struct buffer *why)
{
    static const char *const ours[] = {"Host",       "Content-Length", "Transfer-Encoding",
                                       "Connection", "Keep-Alive",     "Upgrade",
                                       "TE",         "Trailer"};
    struct slice name, value;
    if (!settings_header_split(s, &name, &value)) {
        buffer_text(why, "a header line is NAME: VALUE, such as Authorization: Bearer abc");
        return false;
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (slice_is_nocase(name, ours[i])) {
            buffer_format(why, "%s belongs to the connection and is set by samekey; leave it out", ours[i]);
            return false;
        }
    return true;
}

static bool shape_replay_header(struct slice s, struct buffer *why)
{
    static const char *const never[] = {
        "Set-Cookie",          "Date", "Connection", "Keep-Alive",        "Proxy-Authenticate",
        "Proxy-Authorization", "TE",   "Trailer",    "Transfer-Encoding", "Upgrade",
        "Proxy-Connection"};
    if (!is_token(s)) {
        buffer_text(why, "name one header, such as X-Order-Version");
        return false;
    }
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        if (slice_is_nocase(s, never[i])) {
            buffer_format(why,
                          "%s is never replayed (it belongs to one answer or one connection); leave it out",
                          never[i]);
            return false;
        }
    return true;
}

/* A member of the body: json.NAME[.NAME...]. */
static bool is_member(struct slice s)
{
    if (!starts_with(s, "json.") || s.len == 5)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] == ' ' || s.data[i] == ',' || s.data[i] == '{' || s.data[i] == '}' ||
            (s.data[i] == '.' && (i + 1 == s.len || s.data[i + 1] == '.')))
            return false;
    return true;
}

/* What a condition asks for: a text in double quotes, or a word. Signs of other languages are no part of a word: `== 0`
 * or `0 && json.b` would be compared as they stand, and no answer would ever be a success. */
static bool is_condition_value(struct slice s)
{
    bool quoted = s.len > 2 && s.data[0] == '"' && s.data[s.len - 1] == '"';
    if (quoted)
        s = slice_of(s.data + 1, s.len - 2);
    for (size_t i = 0; i < s.len; i++)
        if (!s.data[i] || strchr(quoted ? "\"" : " \t\"'=&|!<>", s.data[i]))
            return false;
    return s.len > 0;
}

static bool shape_success_when(struct slice s, struct buffer *why)
{
    const char *sign = s.len ? memchr(s.data, '=', s.len) : NULL;
    if (s.len == 0)
        return true;
    if (sign) {
        size_t n = (size_t)(sign - s.data);
        struct slice path = slice_trim(slice_of(s.data, n));
        bool member = is_member(path);
        for (size_t i = 0; member && i < path.len; i++)
            member = path.data[i] && !strchr("\t\"'&|!<>", path.data[i]);
        if (member && is_condition_value(slice_trim(skip(s, n + 1))))
            return true;
    }
    buffer_text(
        why,
        "a condition is json.PATH = VALUE, one member and its value, such as json.code = 0; it has one `=` "
        "and nothing like `==`, `!=`, `&&` or `||`, and a value with blanks or signs stands in double "
        "quotes");
    return false;
}

int settings_map_next(struct slice *rest, struct slice *foreign, struct slice *state)
{
    struct slice s = slice_trim(*rest);
    if (s.len == 0)
        return 0;
    const char *comma = memchr(s.data, ',', s.len);
    size_t n = comma ? (size_t)(comma - s.data) : s.len;
    struct slice pair = slice_trim(slice_of(s.data, n));
    const char *sign = pair.len ? memchr(pair.data, '=', pair.len) : NULL;
    if (!sign)
        return -1;
    *foreign = slice_trim(slice_of(pair.data, (size_t)(sign - pair.data)));
    *state = slice_trim(skip(pair, (size_t)(sign - pair.data) + 1));
    *rest = comma ? skip(s, n + 1) : slice_of(NULL, 0);
    return foreign->len && state->len ? 1 : -1;
}

static bool shape_receipt_map(struct slice s, struct buffer *why)
{
    static const char *const states[] = {"RECEIVED", "PROCESSING", "SUCCESS",
                                         "FAILED",   "UNKNOWN",    "NOT_RECEIVED"};
    struct slice foreign, state;
    int got;
    while ((got = settings_map_next(&s, &foreign, &state)) == 1) {
        bool known = false;
        for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
            known = known || slice_is(state, states[i]);
        if (!known) {
            buffer_format(why,
                          "`%.*s` is not a state; use RECEIVED, PROCESSING, SUCCESS, FAILED, UNKNOWN or "
                          "NOT_RECEIVED",
                          (int)state.len, state.data);
            return false;
        }
    }
    if (got == 0)
        return true;
    buffer_text(why, "write pairs with commas between, such as DONE=SUCCESS, OPEN=PROCESSING");
    return false;
}

bool settings_receipt_shape(struct slice text, struct receipt_shape *out, struct buffer *why)
{
    struct slice s = slice_trim(text);
    struct receipt_shape shape = {RECEIPT_NONE, {"", 0}, {"", 0}};
    if (s.len == 0 || slice_is(s, "none")) {
        *out = shape;
        return true;
    }
    if (slice_is(s, "samekey")) {
        shape.kind = RECEIPT_SAMEKEY;
        *out = shape;
        return true;
    }
    if (slice_is(s, "sql") || starts_with(s, "sql ")) {
        shape.kind = RECEIPT_SQL;
        shape.path = slice_trim(skip(s, 3));
        if ((starts_with(shape.path, "postgres://") && shape.path.len > strlen("postgres://")) ||
            (starts_with(shape.path, "postgresql://") && shape.path.len > strlen("postgresql://")) ||
            (starts_with(shape.path, "sqlite:") && shape.path.len > strlen("sqlite:"))) {
            *out = shape;
            return true;
        }
        buffer_text(why, "write `sql postgres://USER@HOST/DATABASE` or `sql sqlite:PATH`: where the "
                         "service's guard keeps its "
                         "receipts");
        return false;
    }
    if (starts_with(s, "http ")) {
        s = slice_trim(skip(s, 5));
        const char *space = s.len ? memchr(s.data, ' ', s.len) : NULL;
        if (space) {
            shape.kind = RECEIPT_HTTP;
            shape.method = slice_of(s.data, (size_t)(space - s.data));
            shape.path = slice_trim(skip(s, shape.method.len));
            bool read = slice_is(shape.method, "GET") || slice_is(shape.method, "POST");
            size_t places = 0;
            bool plain = shape.path.len && shape.path.data[0] == '/';
            for (size_t i = 0; i < shape.path.len; i++) {
                struct slice here = skip(shape.path, i);
                char c = shape.path.data[i];
                if (starts_with(here, "{call_id}"))
                    places++;
                plain = plain && c > ' ' && c < 0x7f && c != '#' && c != '\\';
            }
            if (read && plain && places == 1) {
                *out = shape;
                return true;
            }
        }
        buffer_text(why, "write `http GET /PATH` with {call_id} once in the path, such as http GET "
                         "/receipts/{call_id}; the method is GET or POST");
        return false;
    }
    buffer_text(why, "a receipt source is `http GET /receipts/{call_id}`, `sql postgres://HOST/DATABASE`, "
                     "`samekey` or `none`");
    return false;
}

bool settings_request_split(struct slice text, struct slice *method, struct slice *path)
{
    struct slice s = slice_trim(text);
    const char *space = s.len ? memchr(s.data, ' ', s.len) : NULL;
    if (!space)
        return false;
    *method = slice_of(s.data, (size_t)(space - s.data));
    *path = slice_trim(skip(s, method->len));
    for (size_t i = 0; i < method->len; i++)
        if (method->data[i] < 'A' || method->data[i] > 'Z')
            return false;
    bool plain = path->len && path->data[0] == '/';
    for (size_t i = 0; plain && i < path->len; i++)
        plain = path->data[i] > ' ' && path->data[i] < 0x7f && path->data[i] != '#' && path->data[i] != '\\';
    return method->len && plain;
}

static bool shape_reversal(struct slice s, struct buffer *why)
{
    struct slice method, path;
    if (s.len == 0 || settings_request_split(s, &method, &path))
        return true;
    buffer_text(why, "a reversal is METHOD /PATH with parts of the request in braces, such as POST "
                     "/orders/{json.order_no}/cancel");
    return false;
}

static bool shape_receipt_fence(struct slice s, struct buffer *why)
{
    struct slice method, path;
    size_t places = 0;
    bool good = s.len == 0 || settings_request_split(s, &method, &path);
    for (size_t i = 0; good && s.len && i < path.len; i++)
        places += starts_with(skip(path, i), "{call_id}");
    if (good && (s.len == 0 || (places == 1 && !slice_is(method, "GET"))))
        return true;
    buffer_text(why,
                "write METHOD /PATH with {call_id} once in the path, such as POST /receipts/{call_id}/fence; "
                "the method is not GET");
    return false;
}

static bool shape_notify(struct slice s, struct buffer *why)
{
    if (s.len == 0 ||
        ((starts_with(s, "http://") || starts_with(s, "https://")) && !memchr(s.data, ' ', s.len)) ||
        (starts_with(s, "command /") && s.len > 9))
        return true;
    buffer_text(why, "write https://HOST/PATH, or command /PATH/OF/PROGRAM");
    return false;
}

bool settings_shape(enum setting_id id, struct slice text, struct buffer *why)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] < 0x20 || text.data[i] == 0x7f) {
            buffer_text(why, "the text has a control byte; write it on one line, without tabs");
            return false;
        }
    switch (id) {
    case SETTING_ID_listen:
        return shape_address(text, why);
    case SETTING_ID_admin:
        return text.len == 0 || shape_address(text, why);
    case SETTING_ID_upstream:
        return shape_upstream(text, why);
    case SETTING_ID_store:
        return shape_store(text, why);
    case SETTING_ID_cache:
        return shape_cache(text, why);
    case SETTING_ID_path:
        return shape_path(text, why);
    case SETTING_ID_methods:
        return shape_method(text, why);
    case SETTING_ID_node:
    case SETTING_ID_call_id_prefix:
        return shape_id_part(text, why);
    case SETTING_ID_reversal:
        return shape_reversal(text, why);
    case SETTING_ID_receipt_fence:
        return shape_receipt_fence(text, why);
    case SETTING_ID_notify:
        return shape_notify(text, why);
    case SETTING_ID_receipt_header:
        return shape_receipt_header(text, why);
    case SETTING_ID_replay_headers:
        return shape_replay_header(text, why);
    case SETTING_ID_success_when:
        return shape_success_when(text, why);
    case SETTING_ID_receipt_map:
        return shape_receipt_map(text, why);
    default:
        return true;
    }
}
