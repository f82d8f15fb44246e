/* SPDX-License-Identifier: MIT */
#include "net/shim.h"

#include <limits.h>

#define CHUNK_DIGITS_MAX     15u  /* hexadecimal digits: 2^60 bytes, no overflow anywhere behind us */
#define CHUNK_LINE_BYTES_MAX 256u /* size and extensions of one chunk */
#define LENGTH_DIGITS_MAX    18u  /* decimal digits of a Content-Length: below INT64_MAX */

enum {
    IS_TOKEN = 1,  /* RFC 9110 section 5.6.2: tchar */
    IS_VALUE = 2,  /* RFC 9110 section 5.5: a byte of a field value, with SP, HTAB and obs-text */
    IS_TARGET = 4, /* a visible byte of a request target; no '#', which never travels */
    IS_HOST = 8,   /* RFC 3986 section 3.2.2: host and port; no user information */
};

#define V (IS_VALUE)
#define G (IS_VALUE | IS_TARGET)
#define H (IS_VALUE | IS_TARGET | IS_HOST)
#define T (IS_VALUE | IS_TARGET | IS_TOKEN)
#define A (IS_VALUE | IS_TARGET | IS_TOKEN | IS_HOST)
static const unsigned char byte_class[256] = {
    ['\t'] = V,        [' '] = V, ['!'] = A,           ['"'] = G,  ['#'] = IS_VALUE | IS_TOKEN,
    ['$'] = A,         ['%'] = A, ['&'] = A,           ['\''] = A, ['('] = H,
    [')'] = H,         ['*'] = A, ['+'] = A,           [','] = G,  ['-'] = A,
    ['.'] = A,         ['/'] = G, ['0' ... '9'] = A,   [':'] = H,  [';'] = H,
    ['<'] = G,         ['='] = H, ['>'] = G,           ['?'] = G,  ['@'] = G,
    ['A' ... 'Z'] = A, ['['] = H, ['\\'] = G,          [']'] = H,  ['^'] = T,
    ['_'] = A,         ['`'] = T, ['a' ... 'z'] = A,   ['{'] = G,  ['|'] = T,
    ['}'] = G,         ['~'] = A, [0x80 ... 0xff] = V,
};
#undef V
#undef G
#undef H
#undef T
#undef A

static bool is_all(struct slice s, unsigned wanted)
{
    unsigned all = wanted;
    for (size_t i = 0; i < s.len; i++)
        all &= byte_class[(unsigned char)s.data[i]];
    return all == wanted;
}

static size_t run_of(struct slice s, unsigned wanted)
{
    size_t n = 0;
    while (n < s.len && (byte_class[(unsigned char)s.data[n]] & wanted))
        n++;
    return n;
}

static enum shim_verdict refuse(struct shim *s, int status, const char *reason)
{
    s->refused_status = status;
    s->refused_reason = reason;
    return SHIM_REFUSED;
}

void shim_start(struct shim *s, bool response, size_t bytes_max, size_t count_max)
{
    memset(s, 0, sizeof *s);
    s->response = response;
    s->bytes_max = bytes_max;
    s->count_max = count_max;
    s->content_length = -1;
}

static enum shim_verdict read_version(struct shim *s, struct slice version)
{
    if (slice_is(version, "HTTP/1.1"))
        s->minor = 1;
    else if (slice_is(version, "HTTP/1.0"))
        s->minor = 0;
    else if (version.len >= 5 && memcmp(version.data, "HTTP/", 5) == 0)
        return refuse(s, 505, "The HTTP version is neither 1.0 nor 1.1.");
    else
        return refuse(s, 400, "The first line does not name an HTTP version where it should.");
    return SHIM_MORE;
}

/* RFC 9112 section 3: method SP request-target SP HTTP-version. */
static enum shim_verdict read_request_line(struct shim *s, struct slice line)
{
    size_t method = run_of(line, IS_TOKEN);
    if (method == 0 || method == line.len || line.data[method] != ' ')
        return refuse(s, 400, "The request line does not begin with a method and a space.");
    struct slice rest = slice_of(line.data + method + 1, line.len - method - 1);
    size_t target = run_of(rest, IS_TARGET);
    if (target == 0)
        return refuse(s, 400, "The request line has no target.");
    if (target == rest.len)
        return refuse(s, 400, "The request line names no HTTP version.");
    if (rest.data[target] != ' ')
        return refuse(s, 400, "The request target holds a byte that is not allowed there.");
    return read_version(s, slice_of(rest.data + target + 1, rest.len - target - 1));
}

/* RFC 9112 section 4: HTTP-version SP status-code SP [reason]; the last space is often left out. */
static enum shim_verdict read_status_line(struct shim *s, struct slice line)
{
    if (line.len < 12 || line.data[8] != ' ')
        return refuse(s, 502, "The answer does not begin with a status line.");
    if (read_version(s, slice_of(line.data, 8)) == SHIM_REFUSED)
        return SHIM_REFUSED;
    for (size_t i = 9; i < 12; i++) {
        if (line.data[i] < '0' || line.data[i] > '9')
            return refuse(s, 502, "The status is not three digits.");
        s->status = s->status * 10 + (line.data[i] - '0');
    }
    if (s->status < 100 || (line.len > 12 && line.data[12] != ' '))
        return refuse(s, 502, "The status is not three digits from 100 on.");
    if (!is_all(slice_of(line.data + 12, line.len - 12), IS_VALUE))
        return refuse(s, 502, "The reason phrase holds a control byte.");
    return SHIM_MORE;
}

static enum shim_verdict read_length(struct shim *s, struct slice value)
{
    if (s->lengths++)
        return refuse(s, 400, "There are two Content-Length fields.");
    if (value.len == 0 || value.len > LENGTH_DIGITS_MAX)
        return refuse(s, 400, "The Content-Length is not a number of 1 to 18 digits.");
    int64_t n = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return refuse(s, 400, "The Content-Length is not a plain decimal number.");
        n = n * 10 + (value.data[i] - '0');
    }
    s->content_length = n;
    return SHIM_MORE;
}

static enum shim_verdict read_coding(struct shim *s, struct slice value)
{
    if (s->codings++)
        return refuse(s, 400, "There are two Transfer-Encoding fields.");
    if (!slice_is_nocase(value, "chunked"))
        return refuse(s, 501, "The only transfer coding known here is chunked.");
    s->chunked = true;
    return SHIM_MORE;
}

static enum shim_verdict read_field(struct shim *s, struct slice line)
{
    if (++s->fields > s->count_max)
        return refuse(s, 431, "There are too many header fields.");
    size_t name = run_of(line, IS_TOKEN);
    if (name == 0)
        return refuse(s, 400, "A header line begins with a space or another byte that no field name has.");
    if (name == line.len || line.data[name] != ':')
        return refuse(s, 400, "A field name is not followed directly by a colon.");
    struct slice value = slice_of(line.data + name + 1, line.len - name - 1);
    if (!is_all(value, IS_VALUE))
        return refuse(s, 400, "A field value holds a control byte.");
    switch (name) { /* most fields are told apart by their length alone */
    case 4:
        if (slice_is_nocase(slice_of(line.data, name), "host")) {
            if (s->hosts++)
                return refuse(s, 400, "There are two Host fields.");
            if (!s->response && !is_all(slice_trim(value), IS_HOST))
                return refuse(s, 400, "The Host field is not one host.");
        }
        break;
    case 14:
        if (slice_is_nocase(slice_of(line.data, name), "content-length"))
            return read_length(s, slice_trim(value));
        break;
    case 17:
        if (slice_is_nocase(slice_of(line.data, name), "transfer-encoding"))
            return read_coding(s, slice_trim(value));
        break;
    default:
        break;
    }
    return SHIM_MORE;
}

static enum shim_verdict end_head(struct shim *s)
{
    if (!s->response && s->minor == 1 && s->hosts == 0)
        return refuse(s, 400, "There is no Host field."); /* RFC 9112 section 3.2 */
    if (s->lengths && s->codings)
        return refuse(s, 400, "There are both Content-Length and Transfer-Encoding.");
    if (s->codings && s->minor == 0)
        return refuse(s, 400, "HTTP/1.0 has no Transfer-Encoding."); /* RFC 9112 section 6.1 */
    return SHIM_END;
}

enum shim_verdict shim_head(struct shim *s, const char *head, size_t len, size_t *end)
{
    for (;;) {
        const char *line = head + s->line;
        const char *lf = s->line < len ? memchr(line, '\n', len - s->line) : NULL;
        size_t seen = lf ? (size_t)(lf - head) + 1 : len;
        if (seen > s->bytes_max)
            return refuse(s, 431, "The request line and header fields are too long.");
        if (!lf)
            return SHIM_MORE;
        if (lf == line || lf[-1] != '\r')
            return refuse(s, 400, "A line ends with LF without CR.");
        struct slice text = slice_of(line, (size_t)(lf - line) - 1);
        bool first = s->line == 0;
        s->line = seen;
        enum shim_verdict verdict = SHIM_MORE;
        if (s->started && text.len)
            verdict = read_field(s, text);
        else if (s->started) {
            verdict = end_head(s);
            *end = seen;
        } else if (text.len || !first || s->response) {
            s->started = true;
            verdict = s->response ? read_status_line(s, text) : read_request_line(s, text);
        } /* else: one empty line before a request is skipped (RFC 9112 section 2.2) */
        if (verdict != SHIM_MORE)
            return verdict;
    }
}

enum {
    CHUNK_SIZE = 0,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    TRAILER_END_LF
};

enum shim_body shim_body_start(struct shim *s, bool no_body)
{
    bool none = no_body || (s->response && (s->status < 200 || s->status == 204 || s->status == 304));
    s->state = CHUNK_SIZE;
    s->left = 0;
    s->digits = 0;
    s->fields = 0;
    s->line_bytes = s->trailer_bytes = 0;
    if (none || (!s->chunked && s->content_length == 0))
        s->body = SHIM_BODY_NONE;
    else if (s->chunked)
        s->body = SHIM_BODY_CHUNKED;
    else if (s->content_length > 0) {
        s->body = SHIM_BODY_LENGTH;
        s->left = (uint64_t)s->content_length;
    } else
        s->body = s->response ? SHIM_BODY_UNTIL_CLOSE : SHIM_BODY_NONE;
    return s->body;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* One byte of framing (RFC 9112 section 7.1). */
static enum shim_verdict chunk_byte(struct shim *s, char c)
{
    unsigned class = byte_class[(unsigned char)c];
    switch (s->state) {
    case CHUNK_SIZE:
        if (hex_value(c) >= 0) {
            if (++s->digits > CHUNK_DIGITS_MAX)
                return refuse(s, 400, "A chunk size has too many digits.");
            s->left = s->left * 16 + (uint64_t)hex_value(c);
            return SHIM_MORE;
        }
        if (s->digits == 0 || (c != ';' && c != '\r'))
            return refuse(s, 400, "A chunk size is not a plain hexadecimal number.");
        s->state = c == ';' ? CHUNK_EXTENSION : CHUNK_SIZE_LF;
        s->line_bytes = 0;
        return SHIM_MORE;
    case CHUNK_EXTENSION:
        if (++s->line_bytes > CHUNK_LINE_BYTES_MAX)
            return refuse(s, 400, "A chunk extension is too long.");
        if (c == '\r')
            s->state = CHUNK_SIZE_LF;
        else if (!(class & IS_VALUE))
            return refuse(s, 400, "A chunk extension holds a control byte.");
        return SHIM_MORE;
    case CHUNK_SIZE_LF:
        if (c != '\n')
            return refuse(s, 400, "A chunk size line does not end with CRLF.");
        s->state = s->left ? CHUNK_DATA : TRAILER_START;
        s->digits = 0;
        return SHIM_MORE;
    case CHUNK_DATA_CR:
        if (c != '\r')
            return refuse(s, 400, "A chunk is longer than its size.");
        s->state = CHUNK_DATA_LF;
        return SHIM_MORE;
    case CHUNK_DATA_LF:
        if (c != '\n')
            return refuse(s, 400, "A chunk does not end with CRLF.");
        s->state = CHUNK_SIZE;
        return SHIM_MORE;
    default:
        break;
    }
    if (++s->trailer_bytes > s->bytes_max)
        return refuse(s, 431, "The trailer is too long.");
    switch (s->state) {
    case TRAILER_START:
        if (c == '\r')
            s->state = TRAILER_END_LF;
        else if (class & IS_TOKEN)
            s->state = TRAILER_NAME;
        else
            return refuse(s, 400, "A trailer line does not begin with a field name.");
        if (s->state == TRAILER_NAME && ++s->fields > s->count_max)
            return refuse(s, 431, "There are too many trailer fields.");
        return SHIM_MORE;
    case TRAILER_NAME:
        if (c == ':')
            s->state = TRAILER_VALUE;
        else if (!(class & IS_TOKEN))
            return refuse(s, 400, "A trailer field name is not followed directly by a colon.");
        return SHIM_MORE;
    case TRAILER_VALUE:
        if (c == '\r')
            s->state = TRAILER_LF;
        else if (!(class & IS_VALUE))
            return refuse(s, 400, "A trailer field holds a control byte.");
        return SHIM_MORE;
    case TRAILER_LF:
        s->state = TRAILER_START;
        break;
    default: /* TRAILER_END_LF */
        break;
    }
    if (c != '\n')
        return refuse(s, 400, "A trailer line does not end with CRLF.");
    return s->state == TRAILER_END_LF ? SHIM_END : SHIM_MORE;
}

enum shim_verdict shim_body_next(struct shim *s, const char *data, size_t len, size_t *taken, bool *content)
{
    *taken = 0;
    *content = s->body != SHIM_BODY_CHUNKED || s->state == CHUNK_DATA;
    if (*content) {
        if (s->body == SHIM_BODY_UNTIL_CLOSE) {
            *taken = len;
            return SHIM_MORE;
        }
        *taken = (uint64_t)len < s->left ? len : (size_t)s->left;
        s->left -= *taken;
        if (s->left)
            return SHIM_MORE;
        if (s->body == SHIM_BODY_LENGTH)
            return SHIM_END;
        s->state = CHUNK_DATA_CR;
        return SHIM_MORE;
    }
    while (*taken < len && s->state != CHUNK_DATA) {
        enum shim_verdict verdict = chunk_byte(s, data[(*taken)++]);
        if (verdict != SHIM_MORE)
            return verdict;
    }
    return SHIM_MORE;
}
