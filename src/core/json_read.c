/* SPDX-License-Identifier: MIT
 *
 * The reader is a small machine: `expect` says what may come next, a bit per open level whether it is an
 * object.
 *
 *     VALUE ──scalar, or closed──▶ AFTER ──`,`──▶ VALUE (in a list) or NAME (in an object)
 *       │ `[`                        │ closing
 *       ├──▶ ITEM_OR_END             ▼
 *       │ `{`                      AFTER (one level up), or DONE at the top
 *       └──▶ NAME_OR_END ──name `:`──▶ VALUE
 */
#include "core/json_read.h"

#include "base/hex.h"

#include <assert.h>

enum { EXPECT_VALUE, EXPECT_ITEM_OR_END, EXPECT_NAME_OR_END, EXPECT_NAME, EXPECT_AFTER };

/* What a byte is inside a string. */
enum { PLAIN, QUOTE, BACKSLASH, CONTROL, WIDE };

static const unsigned char string_class[256] = {
    [0 ... 0x1f] = CONTROL,
    ['"'] = QUOTE,
    ['\\'] = BACKSLASH,
    [0x80 ... 0xff] = WIDE,
};

void json_read_init(struct json_reader *r, struct slice text)
{
    *r = (struct json_reader){.data = text.data, .len = text.len};
}

static enum json_token fault(struct json_reader *r, size_t position, const char *sentence)
{
    r->fault = sentence;
    r->position = position;
    return JSON_READ_FAULT;
}

/* The bytes of the UTF-8 character at data (RFC 3629: shortest form, no surrogates, to U+10FFFF), 0 if it is
 * none. */
static size_t utf8_length(const unsigned char *data, size_t len)
{
    unsigned char a = data[0];
    size_t need = a >= 0xf0 ? 4 : a >= 0xe0 ? 3 : 2;
    if (a < 0xc2 || a > 0xf4 || len < need)
        return 0;
    unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte */
    if (a == 0xe0)
        low = 0xa0;
    else if (a == 0xed)
        high = 0x9f;
    else if (a == 0xf0)
        low = 0x90;
    else if (a == 0xf4)
        high = 0x8f;
    if (data[1] < low || data[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if (data[i] < 0x80 || data[i] > 0xbf)
            return 0;
    return need;
}

/* Four hexadecimal digits; -1 if they are none. */
static int hex4(const char *p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i], true);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Reads the escape at r->position (a backslash) and moves behind it. */
static bool read_escape(struct json_reader *r)
{
    size_t at = r->position;
    if (at + 1 >= r->len) {
        fault(r, r->len, "the string does not end");
        return false;
    }
    static const char escapes[] = {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'};
    if (memchr(escapes, r->data[at + 1], sizeof escapes)) {
        r->position = at + 2;
        return true;
    }
    if (r->data[at + 1] != 'u') {
        fault(r, at, "there is no such escape");
        return false;
    }
    int unit = at + 6 <= r->len ? hex4(r->data + at + 2) : -1;
    if (unit < 0) {
        fault(r, at, "\\u needs four hexadecimal digits");
        return false;
    }
    r->position = at + 6;
    if (unit < 0xd800 || unit > 0xdfff)
        return true;
    bool second = unit <= 0xdbff && at + 12 <= r->len && r->data[at + 6] == '\\' && r->data[at + 7] == 'u';
    int low = second ? hex4(r->data + at + 8) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
        fault(r, at, "half of a surrogate pair is no character");
        return false;
    }
    r->position = at + 12;
    return true;
}

/* Reads the string whose quote is at r->position. */
static bool read_string(struct json_reader *r)
{
    size_t begin = ++r->position;
    r->escaped = false;
    for (;;) {
        size_t at = r->position;
        while (at < r->len && string_class[(unsigned char)r->data[at]] == PLAIN)
            at++;
        r->position = at;
        if (at == r->len) {
            fault(r, at, "the string does not end");
            return false;
        }
        switch (string_class[(unsigned char)r->data[at]]) {
        case QUOTE:
            r->text = slice_of(r->data + begin, at - begin);
            r->position = at + 1;
            return true;
        case BACKSLASH:
            r->escaped = true;
            if (!read_escape(r))
                return false;
            break;
        case CONTROL:
            fault(r, at, "a control byte in a string must be escaped");
            return false;
        default: {
            size_t wide = utf8_length((const unsigned char *)r->data + at, r->len - at);
            if (wide == 0) {
                fault(r, at, "the bytes are not UTF-8");
                return false;
            }
            r->position = at + wide;
        }
        }
    }
}

static size_t skip_digits(const struct json_reader *r, size_t at)
{
    while (at < r->len && r->data[at] >= '0' && r->data[at] <= '9')
        at++;
    return at;
}

static bool read_number(struct json_reader *r)
{
    size_t begin = r->position, at = begin + (r->data[begin] == '-');
    size_t digits = skip_digits(r, at);
    if (digits == at || (r->data[at] == '0' && digits > at + 1)) {
        fault(r, at, "a number begins with one digit that is not a needless 0");
        return false;
    }
    at = digits;
    if (at < r->len && r->data[at] == '.') {
        digits = skip_digits(r, at + 1);
        if (digits == at + 1) {
            fault(r, digits, "a digit must follow the point");
            return false;
        }
        at = digits;
    }
    if (at < r->len && (r->data[at] == 'e' || r->data[at] == 'E')) {
        at++;
        if (at < r->len && (r->data[at] == '+' || r->data[at] == '-'))
            at++;
        digits = skip_digits(r, at);
        if (digits == at) {
            fault(r, digits, "the exponent has no digit");
            return false;
        }
        at = digits;
    }
    r->text = slice_of(r->data + begin, at - begin);
    r->position = at;
    return true;
}

static bool in_object(const struct json_reader *r)
{
    unsigned level = r->depth - 1;
    return r->object_bits[level / 64] >> (level % 64) & 1;
}

static enum json_token open_level(struct json_reader *r, bool object)
{
    if (r->depth == JSON_DEPTH_MAX)
        return fault(r, r->position, "lists and objects are nested too deeply");
    unsigned level = r->depth++;
    uint64_t bit = UINT64_C(1) << (level % 64);
    if (object)
        r->object_bits[level / 64] |= bit;
    else
        r->object_bits[level / 64] &= ~bit;
    r->position++;
    r->expect = object ? EXPECT_NAME_OR_END : EXPECT_ITEM_OR_END;
    return object ? JSON_READ_OBJECT_BEGIN : JSON_READ_LIST_BEGIN;
}

static enum json_token close_level(struct json_reader *r, enum json_token token)
{
    r->depth--;
    r->position++;
    r->expect = EXPECT_AFTER;
    return token;
}

static void skip_white(struct json_reader *r)
{
    while (r->position < r->len) {
        char c = r->data[r->position];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            break;
        r->position++;
    }
}

static enum json_token read_word(struct json_reader *r, const char *word, enum json_token token)
{
    size_t len = strlen(word);
    if (r->len - r->position < len || memcmp(r->data + r->position, word, len) != 0)
        return fault(r, r->position, "there is no such value");
    r->position += len;
    r->expect = EXPECT_AFTER;
    return token;
}

static enum json_token read_name(struct json_reader *r)
{
    r->start = r->position;
    if (r->data[r->position] != '"')
        return fault(r, r->position, "a member's name in quotes must stand here");
    if (!read_string(r))
        return JSON_READ_FAULT;
    skip_white(r);
    if (r->position == r->len || r->data[r->position] != ':')
        return fault(r, r->position, "a colon must follow a member's name");
    r->position++;
    r->expect = EXPECT_VALUE;
    return JSON_READ_NAME;
}

static enum json_token read_value(struct json_reader *r)
{
    char c = r->data[r->position];
    r->start = r->position;
    switch (c) {
    case '{':
        return open_level(r, true);
    case '[':
        return open_level(r, false);
    case '"':
        if (!read_string(r))
            return JSON_READ_FAULT;
        r->expect = EXPECT_AFTER;
        return JSON_READ_STRING;
    case 't':
        return read_word(r, "true", JSON_READ_TRUE);
    case 'f':
        return read_word(r, "false", JSON_READ_FALSE);
    case 'n':
        return read_word(r, "null", JSON_READ_NULL);
    default:
        if (c != '-' && (c < '0' || c > '9'))
            return fault(r, r->position, "a value must stand here");
        if (!read_number(r))
            return JSON_READ_FAULT;
        r->expect = EXPECT_AFTER;
        return JSON_READ_NUMBER;
    }
}

enum json_token json_read_next(struct json_reader *r)
{
    if (r->fault)
        return JSON_READ_FAULT;
    skip_white(r);
    if (r->expect == EXPECT_AFTER) {
        if (r->depth == 0) {
            if (r->position < r->len)
                return fault(r, r->position, "bytes follow the end of the value");
            return JSON_READ_END;
        }
        bool object = in_object(r);
        char c = r->position < r->len ? r->data[r->position] : '\0';
        if (c == (object ? '}' : ']'))
            return close_level(r, object ? JSON_READ_OBJECT_END : JSON_READ_LIST_END);
        if (c != ',')
            return fault(r, r->position,
                         object ? "a comma or } must stand here" : "a comma or ] must stand here");
        r->position++;
        r->expect = object ? EXPECT_NAME : EXPECT_VALUE;
        skip_white(r);
    }
    if (r->position == r->len)
        return fault(r, r->position, "the text ends too early");
    switch (r->expect) {
    case EXPECT_NAME_OR_END:
        if (r->data[r->position] == '}')
            return close_level(r, JSON_READ_OBJECT_END);
        return read_name(r);
    case EXPECT_NAME:
        return read_name(r);
    case EXPECT_ITEM_OR_END:
        if (r->data[r->position] == ']')
            return close_level(r, JSON_READ_LIST_END);
        return read_value(r);
    default:
        return read_value(r);
    }
}

static size_t write_utf8(unsigned code, char *p)
{
    if (code < 0x80) {
        p[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        p[0] = (char)(0xc0 | code >> 6);
        p[1] = (char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        p[0] = (char)(0xe0 | code >> 12);
        p[1] = (char)(0x80 | (code >> 6 & 63));
        p[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    p[0] = (char)(0xf0 | code >> 18);
    p[1] = (char)(0x80 | (code >> 12 & 63));
    p[2] = (char)(0x80 | (code >> 6 & 63));
    p[3] = (char)(0x80 | (code & 63));
    return 4;
}

void json_unescape(struct slice text, struct buffer *out)
{
    /* Unescaping never makes a text longer. */
    char *p = text.len ? buffer_reserve(out, text.len) : NULL;
    if (!p)
        return;
    const char *begin = p, *at = text.data, *end = at + text.len;
    while (at < end) {
        const char *backslash = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((backslash ? backslash : end) - at);
        memcpy(p, at, plain);
        p += plain;
        if (!backslash)
            break;
        at = backslash + 2;
        switch (backslash[1]) {
        case 'b':
            *p++ = '\b';
            break;
        case 'f':
            *p++ = '\f';
            break;
        case 'n':
            *p++ = '\n';
            break;
        case 'r':
            *p++ = '\r';
            break;
        case 't':
            *p++ = '\t';
            break;
        case 'u': {
            unsigned code = (unsigned)hex4(at);
            at += 4;
            if (code >= 0xd800 && code <= 0xdbff) {
                code = 0x10000 + ((code - 0xd800) << 10) + ((unsigned)hex4(at + 2) - 0xdc00);
                at += 6;
            }
            p += write_utf8(code, p);
            break;
        }
        default:
            *p++ = backslash[1];
        }
    }
    out->len += (size_t)(p - begin);
}
