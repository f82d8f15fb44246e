/* SPDX-License-Identifier: MIT */
#include "core/cache_address.h"

#include <string.h>

static bool take_prefix(struct slice *s, const char *prefix)
{
    size_t n = strlen(prefix);
    if (s->len < n || memcmp(s->data, prefix, n) != 0)
        return false;
    *s = slice_of(s->data + n, s->len - n);
    return true;
}

/* Splits at the first (or last) `c`: true, with what stands before and behind it. */
static bool split(struct slice s, char c, bool last, struct slice *before, struct slice *behind)
{
    size_t at = s.len;
    for (size_t i = 0; i < s.len && (last || at == s.len); i++)
        if (s.data[i] == c)
            at = i;
    if (at == s.len)
        return false;
    *before = slice_of(s.data, at);
    *behind = slice_of(s.data + at + 1, s.len - at - 1);
    return true;
}

static bool number(struct slice s, int most, int *out)
{
    int n = 0;
    if (s.len == 0 || s.len > 5)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9')
            return false;
        n = n * 10 + (s.data[i] - '0');
    }
    *out = n;
    return n <= most;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool decode(struct slice s, char *out, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '%') {
            int high = i + 2 < s.len ? hex(s.data[i + 1]) : -1, low = i + 2 < s.len ? hex(s.data[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (!c || n == most)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

static bool copy(struct slice s, char *out, size_t most)
{
    if (s.len == 0 || s.len > most || memchr(s.data, '\0', s.len))
        return false;
    memcpy(out, s.data, s.len);
    out[s.len] = '\0';
    return true;
}

/* USER:PASSWORD@ in front of the place, where there is one. */
static bool take_login(struct slice *s, struct cache_address *a, struct buffer *why)
{
    struct slice login, rest, user, password, place;
    struct slice authority = split(*s, '/', false, &place, &rest) ? place : *s;
    if (!split(authority, '@', true, &login, &rest))
        return true;
    rest.len = s->len - login.len - 1;
    if (!split(login, ':', false, &user, &password) || password.len == 0 ||
        !decode(user, a->user, CACHE_PASSWORD_BYTES_MAX) ||
        !decode(password, a->password, CACHE_PASSWORD_BYTES_MAX)) {
        buffer_text(why,
                    "before the @ stands USER:PASSWORD or :PASSWORD, percent-encoded (@ is %40, / is %2F)");
        return false;
    }
    *s = rest;
    return true;
}

static bool read_host(struct slice s, struct cache_address *a)
{
    struct slice host, port;
    if (s.len && s.data[0] == '[') {
        const char *end = memchr(s.data, ']', s.len);
        if (!end)
            return false;
        host = slice_of(s.data + 1, (size_t)(end - s.data) - 1);
        port = slice_of(end + 1, s.len - host.len - 2);
        if (port.len && port.data[0] != ':')
            return false;
        port = port.len ? slice_of(port.data + 1, port.len - 1) : slice_text("6379");
    } else if (!split(s, ':', false, &host, &port)) {
        host = s;
        port = slice_text("6379");
    }
    for (size_t i = 0; i < host.len; i++)
        if (host.data[i] <= ' ' || host.data[i] == '/' || host.data[i] == 127)
            return false;
    return copy(host, a->host, CACHE_HOST_BYTES_MAX) && number(port, 65535, &a->port) && a->port > 0;
}

static bool read_tcp(struct slice s, struct cache_address *a, struct buffer *why)
{
    struct slice place, db;
    if (!take_login(&s, a, why))
        return false;
    if (split(s, '/', false, &place, &db) && db.len && !number(db, CACHE_DB_MAX, &a->db)) {
        buffer_text(why, "behind the / stands the number of a database, such as redis://127.0.0.1:6379/1");
        return false;
    }
    if (read_host(split(s, '/', false, &place, &db) ? place : s, a))
        return true;
    buffer_text(why, "a cache is redis://HOST[:PORT][/DB], such as redis://127.0.0.1:6379, or unix:/PATH");
    return false;
}

static bool read_unix(struct slice s, struct cache_address *a, struct buffer *why)
{
    struct slice path, query;
    if (take_prefix(&s, "//") && !take_login(&s, a, why))
        return false;
    if (!split(s, '?', false, &path, &query)) {
        path = s;
    } else if (!take_prefix(&query, "db=") || !number(query, CACHE_DB_MAX, &a->db)) {
        buffer_text(why, "behind the path only ?db=NUMBER may stand");
        return false;
    }
    if (path.len && path.data[0] == '/' && copy(path, a->path, CACHE_PATH_BYTES_MAX))
        return true;
    buffer_text(why, "the path of a unix socket begins with / and has at most 107 bytes");
    return false;
}

enum status cache_address_parse(struct cache_address *out, struct slice text, struct buffer *why)
{
    struct cache_address a = {0};
    bool good;
    if (take_prefix(&text, "redis://")) {
        good = read_tcp(text, &a, why);
    } else if (take_prefix(&text, "unix:")) {
        good = read_unix(text, &a, why);
    } else {
        buffer_text(
            why, take_prefix(&text, "rediss:")
                     ? "TLS to Redis is not available; use redis:// to a local TLS proxy such as stunnel"
                     : "a cache is redis://HOST[:PORT][/DB] or unix:/PATH, such as redis://127.0.0.1:6379");
        good = false;
    }
    if (!good)
        return STATUS_INVALID;
    *out = a;
    return STATUS_OK;
}
