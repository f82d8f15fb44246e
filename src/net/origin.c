/* SPDX-License-Identifier: MIT */
#include "net/client.h"

#include <stdlib.h>

static enum status fail(struct slice text, struct buffer *error, const char *what)
{
    buffer_format(error, "%.*s: %s", text.len < 200 ? (int)text.len : 200, text.data ? text.data : "", what);
    return STATUS_INVALID;
}

static bool starts(struct slice s, const char *prefix)
{
    size_t len = strlen(prefix);
    return s.len >= len && slice_is_nocase(slice_of(s.data, len), prefix);
}

/* Bytes of a name or an address without brackets; everything else in an authority is refused. */
static bool is_host(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '-' && c != '.' && c != '_' && c != ':' && c != '%')
            return false;
    }
    return s.len > 0;
}

enum status origin_parse(struct slice text, struct origin *out, struct buffer *error)
{
    struct origin o = {0};
    if (starts(text, "unix:")) {
        struct slice path = slice_of(text.data + 5, text.len - 5);
        if (path.len == 0 || path.data[0] != '/' || path.len > 107 || memchr(path.data, 0, path.len))
            return fail(text, error, "unix: is followed by an absolute path of at most 107 bytes");
        o.is_unix = true;
        memcpy(o.host, path.data, path.len);
        *out = o;
        return STATUS_OK;
    }
    o.tls = starts(text, "https://");
    if (!o.tls && !starts(text, "http://"))
        return fail(text, error, "not http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH");
    size_t scheme = o.tls ? 8 : 7;
    struct slice rest = slice_of(text.data + scheme, text.len - scheme), host, port = {NULL, 0};
    if (rest.len && rest.data[rest.len - 1] == '/')
        rest.len--;
    if (rest.len && memchr(rest.data, '/', rest.len))
        return fail(text, error, "a path is not allowed here");
    if (rest.len && rest.data[0] == '[') {
        const char *end = memchr(rest.data, ']', rest.len);
        if (!end)
            return fail(text, error, "the bracket of the address is not closed");
        host = slice_of(rest.data + 1, (size_t)(end - rest.data) - 1);
        rest = slice_of(end + 1, rest.len - host.len - 2);
        if (rest.len && rest.data[0] != ':')
            return fail(text, error, "only a port may follow the address");
    } else {
        const char *colon = rest.len ? memchr(rest.data, ':', rest.len) : NULL;
        host = slice_of(rest.data, colon ? (size_t)(colon - rest.data) : rest.len);
        rest = slice_of(rest.data + host.len, rest.len - host.len);
    }
    if (!is_host(host) || host.len >= sizeof o.host)
        return fail(text, error, "the host is not a name or an address");
    if (rest.len)
        port = slice_of(rest.data + 1, rest.len - 1);
    int number = 0;
    for (size_t i = 0; i < port.len; i++) {
        if (port.data[i] < '0' || port.data[i] > '9' || i > 4)
            return fail(text, error, "the port is not a number from 1 to 65535");
        number = number * 10 + (port.data[i] - '0');
    }
    if (rest.len && (number < 1 || number > 65535))
        return fail(text, error, "the port is not a number from 1 to 65535");
    memcpy(o.host, host.data, host.len);
    if (port.len)
        memcpy(o.port, port.data, port.len);
    else
        memcpy(o.port, o.tls ? "443" : "80", o.tls ? 4 : 3);
    *out = o;
    return STATUS_OK;
}
