/* SPDX-License-Identifier: MIT */
#include "core/key.h"

static enum status refuse(const char **why, const char *sentence)
{
    if (why)
        *why = sentence;
    return STATUS_INVALID;
}

static bool visible(char c)
{
    return c >= 0x21 && c <= 0x7e;
}

enum status key_check(struct slice bare, const char **why)
{
    if (bare.len == 0)
        return refuse(why, "the key is empty");
    if (bare.len > KEY_BYTES_MAX)
        return refuse(why, "the key is longer than 255 bytes");
    for (size_t i = 0; i < bare.len; i++)
        if (!visible(bare.data[i]))
            return refuse(why,
                          "a key holds visible ASCII only: no space, no control byte, no byte above 0x7E");
    return STATUS_OK;
}

/* RFC 8941 section 4.2.5: between the quotes only `\"` and `\\` are escapes. */
static enum status unquote(struct slice value, struct key *out, const char **why)
{
    size_t len = 0, i = 1;
    for (; i < value.len && value.data[i] != '"'; i++) {
        char c = value.data[i];
        if (c == '\\') {
            if (++i == value.len || (value.data[i] != '"' && value.data[i] != '\\'))
                return refuse(why, "in a quoted key a backslash stands before a quote or a backslash only");
            c = value.data[i];
        }
        if (len == KEY_BYTES_MAX)
            return refuse(why, "the key is longer than 255 bytes");
        out->bytes[len++] = c;
    }
    if (i == value.len)
        return refuse(why, "the quoted key has no closing quote");
    if (i + 1 != value.len)
        return refuse(why, "something follows the closing quote of the key");
    out->len = len;
    return STATUS_OK;
}

enum status key_parse(struct slice value, struct key *out, const char **why)
{
    struct key key;
    value = slice_trim(value);
    if (value.len && value.data[0] == '"') {
        enum status status = unquote(value, &key, why);
        if (status != STATUS_OK)
            return status;
        if (key_check(key_view(&key), why) != STATUS_OK)
            return STATUS_INVALID;
    } else {
        if (key_check(value, why) != STATUS_OK)
            return STATUS_INVALID;
        memcpy(key.bytes, value.data, value.len);
        key.len = value.len;
    }
    memcpy(out->bytes, key.bytes, key.len);
    out->bytes[key.len] = '\0';
    out->len = key.len;
    return STATUS_OK;
}

enum status key_parse_all(const struct slice *values, size_t count, struct key *out, const char **why)
{
    struct key first, other;
    if (count == 0)
        return STATUS_NOT_FOUND;
    if (key_parse(values[0], &first, why) != STATUS_OK)
        return STATUS_INVALID;
    for (size_t i = 1; i < count; i++) {
        if (key_parse(values[i], &other, why) != STATUS_OK)
            return STATUS_INVALID;
        if (!slice_equal(key_view(&first), key_view(&other)))
            return refuse(why, "the key header was sent with two different keys");
    }
    *out = first;
    return STATUS_OK;
}
