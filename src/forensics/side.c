/* SPDX-License-Identifier: MIT */
#include "forensics/side.h"

#include "base/civil.h"
#include "forensics/database.h"
#include "forensics/input.h"
#include "forensics/text_line.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Rows between two looks at the progress. */
#define PROGRESS_ROWS 20000
/* Lines of a file that are looked at to guess how many there are, and how much smaller a compressed one is. */
#define GUESS_LINES  1000
#define GUESS_PACKED 8
/* How long a database may count for a progress bar. */
#define COUNT_MS 1000

/* A gateway's own receipts, the states by their numbers (core/state.def). */
#define STORE_SQL                                                                                            \
    "SELECT key, tenant, CASE state WHEN 1 THEN 'RECEIVED' WHEN 2 THEN 'PROCESSING' WHEN 3 THEN 'SUCCESS' "  \
    "WHEN 4 THEN 'FAILED' ELSE 'UNKNOWN' END AS state, call_id, reversed_by AS reversed, updated_ms AS "     \
    "updated FROM call"

/* The same of a store in PostgreSQL, whose texts are bytes. */
#define POSTGRES_STORE_SQL                                                                                   \
    "SELECT convert_from(key, 'UTF8') AS key, convert_from(tenant, 'UTF8') AS tenant, "                      \
    "(ARRAY['UNKNOWN', 'RECEIVED', 'PROCESSING', 'SUCCESS', 'FAILED', 'UNKNOWN'])[state + 1] AS state, "     \
    "convert_from(call_id, 'UTF8') AS call_id, convert_from(reversed_by, 'UTF8') AS reversed, updated_ms "   \
    "AS updated FROM samekey_store.call"

static const char *const column_names[] = {"key",    "tenant",   "state",  "call_id",
                                           "amount", "reversed", "updated"};

/* Other names the columns go by. */
static const struct {
    enum side_column column;
    const char *name;
} aliases[] = {
    {COLUMN_KEY, "idempotency_key"}, {COLUMN_KEY, "idempotent_key"},   {COLUMN_TENANT, "tenant_id"},
    {COLUMN_STATE, "status"},        {COLUMN_CALL, "callid"},          {COLUMN_CALL, "callId"},
    {COLUMN_AMOUNT, "total"},        {COLUMN_REVERSED, "reversed_by"}, {COLUMN_REVERSED, "refunded"},
    {COLUMN_UPDATED, "updated_at"},
};

const char *side_column_name(enum side_column column)
{
    return column_names[column];
}

struct reading {
    struct reconcile *r;
    enum side side;
    struct side_source *source;
    struct spill *to;
    const struct input *in; /* of a file */
    struct buffer scratch;
    struct moment_cache cache;
    bool columns_known; /* of a query: the same for all its rows */
    int column[DATABASE_COLUMNS_MAX];
};

static int column_of(const struct side_source *s, struct slice name)
{
    for (int c = 0; c < COLUMN_COUNT; c++)
        if (s->column[c] ? slice_is(name, s->column[c]) : slice_is_nocase(name, column_names[c]))
            return c;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!s->column[aliases[i].column] && slice_is_nocase(name, aliases[i].name))
            return (int)aliases[i].column;
    return -1;
}

struct slice side_amount(struct slice text, struct buffer *scratch)
{
    struct slice s = slice_trim(text), none = {0};
    size_t at = scratch->len;
    bool minus = s.len && s.data[0] == '-';
    if (s.len && (s.data[0] == '-' || s.data[0] == '+'))
        s.data++, s.len--;
    const char *point = s.len ? memchr(s.data, '.', s.len) : NULL;
    size_t whole = point ? (size_t)(point - s.data) : s.len, begin = 0, end = s.len;
    if (s.len == 0 || (point && s.len == 1))
        return none;
    for (size_t i = 0; i < s.len; i++)
        if (i != whole && (s.data[i] < '0' || s.data[i] > '9'))
            return none;
    while (begin < whole && s.data[begin] == '0')
        begin++;
    while (end > whole && (s.data[end - 1] == '0' || s.data[end - 1] == '.'))
        end--;
    if (minus && end > begin)
        buffer_byte(scratch, '-');
    if (begin == whole)
        buffer_byte(scratch, '0');
    buffer_append(scratch, s.data + begin, end - begin);
    return scratch->failed ? none : slice_of(scratch->data + at, scratch->len - at);
}

static bool says_yes(struct slice s)
{
    return s.len && !slice_is(s, "0") && !slice_is_nocase(s, "false") && !slice_is_nocase(s, "f") &&
           !slice_is_nocase(s, "no") && !slice_is_nocase(s, "null");
}

static enum event_kind kind_of(enum side side)
{
    return side == SIDE_RECEIPTS ? KIND_RECEIPT_WRITTEN : side == SIDE_ROWS ? KIND_EFFECT : KIND_ANSWERED;
}

static void tell_progress(const struct reading *x)
{
    uint64_t bytes = x->in ? input_bytes_read(x->in) : 0, all = x->in ? input_bytes_all(x->in) : 0;
    if (bytes && all) /* what is to come is as long as what came */
        x->source->expected = (uint64_t)((double)x->source->read * (double)all / (double)bytes);
    reconcile_progress(x->r, side_name(x->side), x->source->read, 0);
}

static enum status take_values(struct reading *x, const struct slice value[COLUMN_COUNT], uint32_t line)
{
    struct side_source *s = x->source;
    struct event e = {.us = MOMENT_NONE, .line = line, .took_ms = -1, .kind = (uint8_t)kind_of(x->side)};
    struct moment m;
    s->read++;
    if (s->read % PROGRESS_ROWS == 0)
        tell_progress(x);
    if (!value[COLUMN_KEY].len) {
        s->without_key++;
        return STATUS_OK;
    }
    if (x->r->fresh_ms && x->side == SIDE_RECEIPTS && value[COLUMN_UPDATED].len &&
        moment_parse(value[COLUMN_UPDATED], NULL, &x->cache, &m) == STATUS_OK &&
        m.us / 1000 >= x->r->fresh_ms) {
        s->skipped++;
        return STATUS_OK;
    }
    buffer_clear(&x->scratch);
    if (!buffer_reserve(&x->scratch, 1024 + value[COLUMN_AMOUNT].len))
        return STATUS_NO_MEMORY;
    e.text[TEXT_KEY] = value[COLUMN_KEY];
    e.text[TEXT_NODE] = value[COLUMN_TENANT];
    e.text[TEXT_CALL] = value[COLUMN_CALL];
    if (x->side == SIDE_RECEIPTS) {
        e.state = (uint8_t)event_state_find(value[COLUMN_STATE]);
        if (e.state == EVENT_STATE_ABSENT) {
            s->unreadable++;
            return STATUS_OK;
        }
    } else if (slice_is_nocase(value[COLUMN_STATE], "reversed") ||
               slice_is_nocase(value[COLUMN_STATE], "refunded") ||
               slice_is_nocase(value[COLUMN_STATE], "cancelled")) {
        e.flags |= SIDE_REVERSED;
    }
    if (says_yes(value[COLUMN_REVERSED]))
        e.flags |= SIDE_REVERSED;
    e.text[TEXT_WHAT] = side_amount(value[COLUMN_AMOUNT], &x->scratch);
    if (slice_trim(value[COLUMN_AMOUNT]).len && !e.text[TEXT_WHAT].len)
        s->no_amount++; /* what cannot be compared must not pass for equal in silence */
    for (int t = 0; t < TEXT_COUNT; t++) {
        if (e.text[t].len > EVENT_TEXT_BYTES_MAX) { /* no key or callId of ours is that long */
            s->unreadable++;
            return STATUS_OK;
        }
    }
    /* Keys are per tenant where the rows have one; else the rows know only one tenant. */
    bool scoped = x->r->side[SIDE_ROWS].has[COLUMN_TENANT];
    e.group = event_digest(e.text[TEXT_KEY], event_digest(scoped ? e.text[TEXT_NODE] : slice_of("", 0), 21));
    struct buffer *to = spill_at(x->to, e.group);
    size_t before = to->len;
    event_write(to, &e);
    return spill_wrote(x->to, e.group, to->len - before);
}

static enum status take_row(void *context, const struct row *row)
{
    struct reading *x = context;
    struct slice value[COLUMN_COUNT] = {{0}};
    for (size_t i = 0; i < row->columns; i++) {
        if (!x->columns_known)
            x->column[i] = column_of(x->source, row->name[i]);
        if (x->column[i] < 0)
            continue;
        value[x->column[i]] = row->value[i];
        x->source->has[x->column[i]] = true;
    }
    x->columns_known = true;
    if (!x->source->has[COLUMN_KEY]) {
        buffer_text(&x->r->error, "no column of the query is called key (SELECT order_no AS key, ...)");
        return STATUS_INVALID;
    }
    return take_values(x, value, 0);
}

/* What to select of the side. False: it is no gateway's store, and nobody said. */
static bool query_of(const struct reconcile *r, enum side side, struct database *db, struct buffer *sql)
{
    if (r->side[side].sql) {
        buffer_text(sql, r->side[side].sql);
        return true;
    }
    if (!database_is_store(db))
        return false;
    bool bytes = database_is_postgres(db);
    buffer_text(sql, bytes ? POSTGRES_STORE_SQL : STORE_SQL);
    if (r->route) {
        buffer_text(sql, bytes ? " WHERE convert_from(route, 'UTF8') = '" : " WHERE route = '");
        for (const char *p = r->route; *p; p++) {
            if (*p == '\'')
                buffer_byte(sql, '\'');
            buffer_byte(sql, *p);
        }
        buffer_byte(sql, '\'');
    }
    return true;
}

static enum status read_database(struct reading *x)
{
    struct database *db;
    struct buffer sql = {0};
    enum status status = database_open(&db, x->source->from, &x->r->error);
    if (status != STATUS_OK)
        return status;
    if (query_of(x->r, x->side, db, &sql)) {
        status = database_rows(db, buffer_cstring(&sql), take_row, x, &x->r->error);
    } else {
        buffer_format(&x->r->error, "it is no gateway's store: say with --%s-sql what to select",
                      side_name(x->side));
        status = STATUS_INVALID;
    }
    buffer_fini(&sql);
    database_close(db);
    return status;
}

/* ---- files ---- */

static struct slice json_text_of(const json_t *v, struct buffer *b)
{
    size_t at = b->len;
    if (json_is_string(v))
        buffer_append(b, json_string_value(v), json_string_length(v));
    else if (json_is_integer(v))
        buffer_format(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        buffer_format(b, "%.15g", json_real_value(v));
    else if (json_is_true(v))
        buffer_text(b, "true");
    return slice_of(b->data ? b->data + at : NULL, b->len - at);
}

static enum status take_json(struct reading *x, struct slice line, uint32_t number, struct buffer *texts)
{
    json_t *tree = json_loadb(line.data, line.len, JSON_REJECT_DUPLICATES, NULL), *v;
    const char *name;
    struct slice value[COLUMN_COUNT] = {{0}};
    enum status status = STATUS_OK;
    if (!json_is_object(tree)) {
        x->source->unreadable++;
        json_decref(tree);
        return STATUS_OK;
    }
    buffer_clear(texts);
    if (!buffer_reserve(texts, line.len * 2 + 1024))
        status = STATUS_NO_MEMORY;
    json_object_foreach(tree, name, v)
    {
        int c = status == STATUS_OK ? column_of(x->source, slice_text(name)) : -1;
        if (c < 0)
            continue;
        value[c] = json_text_of(v, texts);
        x->source->has[c] = x->source->has[c] || value[c].len;
    }
    json_decref(tree);
    return status == STATUS_OK ? take_values(x, value, number) : status;
}

/* CSV here is what spreadsheets and \copy write: RFC 4180 with a header; a value has no line end in it. */
struct columns {
    char delimiter;
    size_t count;
    int column[CSV_COLUMNS_MAX];
};

static bool split(struct slice line, char delimiter, struct buffer *scratch, struct slice *out, size_t max,
                  size_t *count)
{
    const char *p = line.data, *end = p + line.len;
    bool more = true;
    for (*count = 0; more; ++*count) {
        if (*count == max || !csv_value(&p, end, delimiter, scratch, &out[*count], &more))
            return false;
    }
    return true;
}

static enum status take_header(struct reading *x, struct slice line, struct buffer *texts, struct columns *c)
{
    struct slice name[CSV_COLUMNS_MAX];
    size_t best = 0;
    c->delimiter = ',';
    for (const char *d = ",;\t|"; *d; d++) {
        size_t n = 0;
        for (size_t i = 0; i < line.len; i++)
            n += line.data[i] == *d;
        if (n > best)
            best = n, c->delimiter = *d;
    }
    buffer_clear(texts);
    if (!buffer_reserve(texts, line.len + 1))
        return STATUS_NO_MEMORY;
    bool good = split(line, c->delimiter, texts, name, CSV_COLUMNS_MAX, &c->count);
    for (size_t i = 0; good && i < c->count; i++) {
        c->column[i] = column_of(x->source, slice_trim(name[i]));
        if (c->column[i] >= 0)
            x->source->has[c->column[i]] = true;
    }
    if (good && x->source->has[COLUMN_KEY])
        return STATUS_OK;
    buffer_format(&x->r->error, "the header names no column key (--column %s.key=NAME)", side_name(x->side));
    return STATUS_INVALID;
}

static enum status read_lines(struct reading *x)
{
    struct input *in;
    struct input_line line;
    struct buffer texts = {0};
    struct columns columns = {0};
    uint32_t number = 0;
    enum status status = input_open(&in, x->source->from);
    if (status != STATUS_OK) {
        buffer_text(&x->r->error, strerror(errno));
        return status;
    }
    x->in = in;
    while (status == STATUS_OK && input_next(in, &line)) {
        number++;
        if (line.text.len == 0)
            continue;
        if (line.text.data[0] == '{') {
            status = take_json(x, line.text, number, &texts);
        } else if (columns.count == 0) {
            status = take_header(x, line.text, &texts, &columns);
        } else {
            struct slice cell[CSV_COLUMNS_MAX], value[COLUMN_COUNT] = {{0}};
            size_t count;
            buffer_clear(&texts);
            if (!buffer_reserve(&texts, line.text.len + 1)) {
                status = STATUS_NO_MEMORY;
            } else if (!split(line.text, columns.delimiter, &texts, cell, CSV_COLUMNS_MAX, &count) ||
                       count != columns.count) {
                x->source->unreadable++;
            } else {
                for (size_t i = 0; i < count; i++)
                    if (columns.column[i] >= 0)
                        value[columns.column[i]] = cell[i];
                status = take_values(x, value, number);
            }
        }
    }
    if (status == STATUS_OK && input_error(in)) {
        buffer_text(&x->r->error, input_error(in));
        status = STATUS_IO;
    }
    x->in = NULL;
    input_close(in);
    buffer_fini(&texts);
    return status;
}

/* Whether the source is a database: a URL, or a file that begins as SQLite's do. */
static bool is_database(const struct side_source *s)
{
    char head[16] = {0};
    if (s->sql || strstr(s->from, "://") || strncmp(s->from, "sqlite:", 7) == 0)
        return true;
    struct stat file; /* what was read of a pipe would be gone */
    bool regular = strcmp(s->from, "-") != 0 && stat(s->from, &file) == 0 && S_ISREG(file.st_mode);
    FILE *f = regular ? fopen(s->from, "re") : NULL;
    if (!f)
        return false;
    bool is = fread(head, 1, sizeof head, f) == sizeof head && memcmp(head, "SQLite format 3", 16) == 0;
    fclose(f);
    return is;
}

/* The number of lines of a file of `size` bytes; the reading corrects it. */
static uint64_t guess_lines(const char *path, uint64_t size)
{
    struct input *in;
    struct input_line line;
    uint64_t lines = 0, bytes = 0;
    if (input_open(&in, path) != STATUS_OK)
        return 0;
    while (lines < GUESS_LINES && input_next(in, &line)) {
        lines++;
        bytes += line.text.len + 1;
    }
    if (lines == GUESS_LINES && input_packed(in))
        lines = size * GUESS_PACKED / (bytes / lines);
    else if (lines == GUESS_LINES)
        lines = size / (bytes / lines);
    input_close(in);
    return lines;
}

void side_expect(struct reconcile *r, enum side side)
{
    struct side_source *source = &r->side[side];
    struct buffer sql = {0}, error = {0};
    struct database *db;
    struct stat file;
    if (!source->from)
        return;
    if (!is_database(source)) {
        if (stat(source->from, &file) == 0 && S_ISREG(file.st_mode))
            source->expected = guess_lines(source->from, (uint64_t)file.st_size);
    } else if (database_open(&db, source->from, &error) ==
               STATUS_OK) { /* else the reading will say what is wrong */
        if (query_of(r, side, db, &sql))
            source->expected = database_rows_expected(db, buffer_cstring(&sql), COUNT_MS);
        database_close(db);
    }
    buffer_fini(&sql);
    buffer_fini(&error);
}

enum status side_read(struct reconcile *r, enum side side, struct spill *to)
{
    struct reading x = {.r = r, .side = side, .source = &r->side[side], .to = to};
    enum status status = is_database(x.source) ? read_database(&x) : read_lines(&x);
    buffer_fini(&x.scratch);
    return status;
}
