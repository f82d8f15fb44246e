/* SPDX-License-Identifier: MIT */
#include "forensics/text_line.h"

#include "forensics/moment.h"

static const struct field_guess from_time = {FIELD_TIME, 0};

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '@';
}

/* The text between quotes from p (behind the opening quote), unescaped if need be; *next is behind the closing one.
 * False: it is not closed. */
static bool quoted(const char *p, const char *end, struct buffer *scratch, struct slice *out,
                   const char **next)
{
    const char *q = p;
    bool escaped = false;
    while (q < end && *q != '"') {
        if (*q == '\\' && q + 1 < end) {
            escaped = true;
            q++;
        }
        q++;
    }
    if (q >= end)
        return false;
    *next = q + 1;
    *out = slice_of(p, (size_t)(q - p));
    if (!escaped)
        return true;
    size_t at = scratch->len;
    for (const char *c = p; c < q; c++) {
        if (*c == '\\' && c + 1 < q) {
            c++;
            buffer_byte(scratch, *c == 'n' ? '\n' : *c == 't' ? '\t' : *c);
        } else {
            buffer_byte(scratch, *c);
        }
    }
    if (!scratch->failed)
        *out = slice_of(scratch->data + at, scratch->len - at);
    return true;
}

/* All name=value of the text. Returns how many there were; *lead is where the first begins. */
static size_t pairs(const struct field_map *map, const char *p, const char *end, struct buffer *scratch,
                    struct fields *out, const char **lead)
{
    size_t count = 0;
    const char *begin = p;
    *lead = end;
    for (const char *at = p; (at = memchr(at, '=', (size_t)(end - at))) != NULL;) {
        const char *name = at;
        while (name > begin && name_byte(name[-1]))
            name--;
        struct slice value;
        const char *next;
        if (name == at) {
            at++;
            continue;
        }
        if (at + 1 < end && at[1] == '"') {
            if (!quoted(at + 2, end, scratch, &value, &next))
                value = slice_of(at + 2, (size_t)(end - at - 2)), next = end;
        } else {
            next = at + 1;
            while (next < end && *next != ' ' && *next != '\t')
                next++;
            value = slice_of(at + 1, (size_t)(next - at - 1));
            while (value.len && strchr(",;)]", value.data[value.len - 1]))
                value.len--;
        }
        if (count++ == 0)
            *lead = name;
        if (value.len && !slice_is(value, "-"))
            fields_put(out, field_find(map, slice_of(name, (size_t)(at - name))), value);
        begin = at = next;
    }
    return count;
}

/* The words that say how grave a line is; they tell nothing about what happened. */
static struct slice without_level(struct slice s)
{
    static const char *const levels[] = {"DEBUG", "INFO",  "NOTICE",   "WARNING",
                                         "WARN",  "ERROR", "CRITICAL", "FATAL"};
    for (bool again = true; again;) {
        again = false;
        while (s.len && strchr(" \t[]:-", s.data[0]))
            s.data++, s.len--;
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
            size_t n = strlen(levels[i]);
            if (s.len >= n && slice_is_nocase(slice_of(s.data, n), levels[i]) &&
                (s.len == n || !name_byte(s.data[n]))) {
                s = slice_of(s.data + n, s.len - n);
                again = true;
                break;
            }
        }
    }
    return slice_trim(s);
}

enum status text_line_read(struct json_shape *shape, const struct field_map *map, struct slice line,
                           struct buffer *scratch, struct fields *out)
{
    struct moment_cache cache = {0};
    struct moment m;
    size_t taken = 0;
    buffer_clear(scratch);
    if (!buffer_reserve(scratch, line.len + 1)) /* slices into it must stay while more is added */
        return STATUS_NO_MEMORY;
    out->present = 0;
    bool timed = moment_prefix(line, NULL, &cache, &m, &taken) == STATUS_OK;
    const char *p = line.data + taken, *end = line.data + line.len, *lead;
    if (timed && p < end && name_byte(*p))
        timed = false, p = line.data;
    const char *brace = line.len && end[-1] == '}' ? memchr(p, '{', (size_t)(end - p)) : NULL;
    bool object =
        brace && json_line_read(shape, map, slice_of(brace, (size_t)(end - brace)), out) == STATUS_OK;
    if (!object)
        out->present = 0;
    size_t count = object ? 1 : pairs(map, p, end, scratch, out, &lead);
    if (object)
        lead = brace;
    if (!timed && count == 0)
        return STATUS_INVALID;
    struct slice first = slice_of(line.data, taken);
    if (timed && first.len && first.data[0] == '[')
        first = slice_of(first.data + 1, first.len - 2);
    if (timed && !fields_has(out, FIELD_TIME))
        fields_put(out, from_time, first);
    struct slice message = without_level(slice_of(p, (size_t)(lead - p)));
    if (message.len)
        fields_put(out, (struct field_guess){FIELD_EVENT, 5}, message);
    return scratch->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

/* ---- access logs ---- */

static void put(struct fields *out, enum field field, struct slice value)
{
    if (value.len && !slice_is(value, "-"))
        fields_put(out, (struct field_guess){(uint8_t)field, 1}, value);
}

/* The text up to the next space; p goes behind the spaces. */
static struct slice word(const char **p, const char *end)
{
    const char *begin = *p;
    while (*p < end && **p != ' ')
        ++*p;
    struct slice w = slice_of(begin, (size_t)(*p - begin));
    while (*p < end && **p == ' ')
        ++*p;
    return w;
}

static bool next_quoted(const char **p, const char *end, struct buffer *scratch, struct slice *out)
{
    if (*p == end || **p != '"' || !quoted(*p + 1, end, scratch, out, p))
        return false;
    while (*p < end && **p == ' ')
        ++*p;
    return true;
}

static bool bracketed(const char **p, const char *end, struct slice *out)
{
    const char *close = *p < end && **p == '[' ? memchr(*p, ']', (size_t)(end - *p)) : NULL;
    if (!close)
        return false;
    *out = slice_of(*p + 1, (size_t)(close - *p - 1));
    *p = close + 1;
    while (*p < end && **p == ' ')
        ++*p;
    return true;
}

static bool number(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] < '0' || s.data[i] > '9')
            return false;
    return s.len > 0;
}

static bool time_at(struct slice s)
{
    struct moment_cache cache = {0};
    struct moment m;
    return moment_parse(s, NULL, &cache, &m) == STATUS_OK;
}

/* [time] "POST /x HTTP/1.1" 200 UF 12 34 567 566 "xff" "agent" "request id" "authority" "upstream" */
static bool envoy(const char *p, const char *end, struct buffer *scratch, struct fields *out)
{
    struct slice time, request, more[5] = {{0}};
    if (!bracketed(&p, end, &time) || !next_quoted(&p, end, scratch, &request))
        return false;
    struct slice status = word(&p, end), flags = word(&p, end);
    (void)flags;
    word(&p, end);
    word(&p, end);
    struct slice took = word(&p, end);
    if (!number(status) || !number(took) || !time_at(time))
        return false;
    word(&p, end);
    for (size_t i = 0; i < 5 && next_quoted(&p, end, scratch, &more[i]); i++) {
    }
    put(out, FIELD_TIME, time);
    put(out, FIELD_REQUEST_LINE, request);
    put(out, FIELD_STATUS, status);
    put(out, FIELD_TOOK_MS, took);
    put(out, FIELD_PEER, more[0]);
    put(out, FIELD_AGENT, more[1]);
    put(out, FIELD_REQUEST_ID, more[2]);
    put(out, FIELD_UPSTREAM, more[4]);
    return true;
}

/* HAProxy's captured request headers, {a|b}, have no names: they go by capture.1, capture.2 for --map. */
static void captures(const struct field_map *map, const char *p, const char *end, struct fields *out)
{
    const char *open = memchr(p, '{', (size_t)(end - p));
    const char *close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
    char name[16] = "capture.1";
    for (char n = '1'; close && n <= '9'; n++) {
        const char *bar = memchr(open + 1, '|', (size_t)(close - open - 1));
        const char *stop = bar ? bar : close;
        struct slice value = slice_of(open + 1, (size_t)(stop - open - 1));
        name[sizeof "capture." - 1] = n;
        if (value.len && !slice_is(value, "-"))
            fields_put(out, field_find(map, slice_text(name)), value);
        open = bar;
        if (!bar)
            break;
    }
}

/* 10.0.0.1:3331 [01/Mar/2026:10:00:00.123] fe be/srv 0/0/1/69/70 200 2750 - - ---- 1/1/1/1/0 0/0 {h} "POST /x" name=value... */
static bool haproxy(const struct field_map *map, const char *p, const char *end, struct buffer *scratch,
                    struct fields *out)
{
    const char *tag = memmem(p, (size_t)(end - p), "]: ", 3);
    const char *first_quote = memchr(p, '"', (size_t)(end - p));
    if (tag && (!first_quote || tag < first_quote))
        p = tag + 3;
    struct slice peer = word(&p, end), time, request;
    if (!bracketed(&p, end, &time) || !time_at(time))
        return false;
    word(&p, end); /* frontend */
    struct slice server = word(&p, end), timers = word(&p, end), status = word(&p, end);
    const char *slash = timers.len ? memrchr(timers.data, '/', timers.len) : NULL;
    if (!slash || !memchr(server.data, '/', server.len) || status.len != 3)
        return false;
    struct slice took = slice_of(slash + 1, timers.len - (size_t)(slash + 1 - timers.data));
    if (took.len && took.data[0] == '+')
        took.data++, took.len--;
    for (int i = 0; i < 4; i++)
        word(&p, end); /* bytes, cookies, how it ended */
    struct slice counts = word(&p, end);
    slash = counts.len ? memrchr(counts.data, '/', counts.len) : NULL;
    if (!slash)
        return false;
    struct slice retries = slice_of(slash + 1, counts.len - (size_t)(slash + 1 - counts.data));
    if (retries.len && retries.data[0] == '+')
        retries.data++, retries.len--;
    const char *quote = memchr(p, '"', (size_t)(end - p));
    if (!quote)
        return false;
    captures(map, p, quote, out);
    p = quote;
    if (!next_quoted(&p, end, scratch, &request))
        return false;
    const char *colon = peer.len ? memrchr(peer.data, ':', peer.len) : NULL;
    if (colon)
        peer.len = (size_t)(colon - peer.data);
    put(out, FIELD_TIME, time);
    put(out, FIELD_PEER, peer);
    put(out, FIELD_UPSTREAM, server);
    put(out, FIELD_TOOK_MS, took);
    put(out, FIELD_STATUS, status);
    put(out, FIELD_RETRIES, retries);
    put(out, FIELD_REQUEST_LINE, request);
    const char *lead;
    pairs(map, p, end, scratch, out, &lead);
    return true;
}

/* 10.0.0.1 - user [01/Mar/2026:10:00:00 +0000] "POST /x HTTP/1.1" 201 12 "referer" "agent" name=value... */
static bool combined(const struct field_map *map, const char *p, const char *end, struct buffer *scratch,
                     struct fields *out)
{
    struct slice peer = word(&p, end), time, request, referer, agent = {0};
    word(&p, end);
    word(&p, end);
    if (!bracketed(&p, end, &time) || !next_quoted(&p, end, scratch, &request) || !time_at(time))
        return false;
    struct slice status = word(&p, end);
    word(&p, end);
    if (!number(status))
        return false;
    if (next_quoted(&p, end, scratch, &referer))
        next_quoted(&p, end, scratch, &agent);
    put(out, FIELD_PEER, peer);
    put(out, FIELD_TIME, time);
    put(out, FIELD_REQUEST_LINE, request);
    put(out, FIELD_STATUS, status);
    put(out, FIELD_AGENT, agent);
    const char *lead;
    pairs(map, p, end, scratch, out, &lead);
    return true;
}

enum status access_line_read(const struct field_map *map, struct slice line, struct buffer *scratch,
                             bool *starts, struct fields *out)
{
    const char *p = line.data, *end = line.data + line.len;
    buffer_clear(scratch);
    if (!buffer_reserve(scratch, line.len + 1)) /* slices into it must stay while more is added */
        return STATUS_NO_MEMORY;
    out->present = 0;
    if (line.len == 0)
        return STATUS_INVALID;
    *starts = true;
    if (*p == '[' && envoy(p, end, scratch, out))
        return STATUS_OK;
    out->present = 0;
    if (haproxy(map, p, end, scratch, out))
        return STATUS_OK;
    out->present = 0;
    *starts = false;
    return combined(map, p, end, scratch, out) ? STATUS_OK : STATUS_INVALID;
}

/* ---- CSV ---- */

bool csv_value(const char **p, const char *end, char delimiter, struct buffer *scratch, struct slice *out,
               bool *more)
{
    if (*p < end && **p == '"') {
        size_t at = scratch->len;
        for (++*p;; ++*p) {
            if (*p >= end)
                return false;
            if (**p == '"' && (*p + 1 >= end || (*p)[1] != '"'))
                break;
            if (**p == '"')
                ++*p;
            buffer_byte(scratch, **p);
        }
        ++*p;
        if (scratch->failed)
            return false;
        *out = slice_of(scratch->data + at, scratch->len - at);
    } else {
        const char *stop = *p < end ? memchr(*p, delimiter, (size_t)(end - *p)) : NULL;
        *out = slice_of(*p, (size_t)((stop ? stop : end) - *p));
        *p = stop ? stop : end;
    }
    *more = *p < end;
    if (*more && **p != delimiter)
        return false;
    ++*p;
    return true;
}

enum status csv_header(struct csv *csv, const struct field_map *map, struct slice line)
{
    struct csv c = {.delimiter = ','};
    struct buffer scratch = {0};
    size_t known = 0;
    bool more = true, fits = true;
    const char *p = line.data, *end = p + line.len;
    size_t best = 0;
    for (const char *d = ",;\t|"; *d; d++) {
        size_t n = 0;
        for (const char *q = p; q < end; q++)
            n += *q == *d;
        if (n > best)
            best = n, c.delimiter = *d;
    }
    buffer_reserve(&scratch, line.len + 1);
    while (more && fits) {
        struct slice name;
        fits = c.count < CSV_COLUMNS_MAX && csv_value(&p, end, c.delimiter, &scratch, &name, &more);
        if (!fits)
            break;
        c.column[c.count] = field_find(map, slice_trim(name));
        known += c.column[c.count++].field != FIELD_NONE;
    }
    buffer_fini(&scratch);
    if (!fits || c.count < 2 || known == 0)
        return STATUS_INVALID;
    *csv = c;
    return STATUS_OK;
}

enum status csv_line_read(const struct csv *csv, struct slice line, struct buffer *scratch,
                          struct fields *out)
{
    const char *p = line.data, *end = p + line.len;
    bool more = true;
    size_t n = 0;
    buffer_clear(scratch);
    if (!buffer_reserve(scratch, line.len + 1))
        return STATUS_NO_MEMORY;
    out->present = 0;
    while (more) {
        struct slice value;
        if (n == csv->count || !csv_value(&p, end, csv->delimiter, scratch, &value, &more))
            return STATUS_INVALID;
        if (value.len)
            fields_put(out, csv->column[n], value);
        n++;
    }
    return n == csv->count ? STATUS_OK : STATUS_INVALID;
}
