/* SPDX-License-Identifier: MIT */
#include "forensics/gather.h"

#include "base/json_text.h"
#include "forensics/input.h"
#include "forensics/join.h"

#include <errno.h>
#include <stdlib.h>

/* Lines between two looks at the progress. */
#define PROGRESS_LINES 65536
/* From this rank on a name of the event (msg, message, log) may hold a whole line. */
#define WRAPPED_RANK 4

const char *line_format_text(enum line_format format)
{
    static const char *const text[] = {"nothing to read", "JSON lines", "text with name=value", "CSV",
                                       "access log",      "pattern"};
    return text[format];
}

/* One file while it is read. */
struct reading {
    struct gather *g;
    struct log_file *file;
    struct input *in;
    uint16_t index;
    struct json_shape *shape, *inner_shape; /* inner: of lines within lines */
    struct buffer inner;
    struct csv csv;
    struct buffer scratch, event_scratch;
    struct moment_cache cache;
    struct event_words words;
    uint32_t joining; /* the number of the line that halves are tried for; 0 while files are read */
    uint64_t last_origin_digest;
    uint16_t last_origin;
};

enum status gather_init(struct gather *g, char *const *paths, size_t count, const char *folder,
                        size_t memory_bytes)
{
    memset(g, 0, sizeof *g);
    g->folder = folder;
    spill_init(&g->by_group, folder, memory_bytes);
    spill_init(&g->by_call, folder, memory_bytes / 2);
    if (count > GATHER_FILES_MAX)
        return STATUS_FULL;
    g->file = calloc(count ? count : 1, sizeof *g->file);
    g->origin = calloc(GATHER_ORIGINS_MAX, sizeof *g->origin);
    g->half = calloc(2 * count + 1, sizeof *g->half);
    if (!g->file || !g->origin || !g->half)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        g->file[i].path = paths[i];
    g->file_count = count;
    return STATUS_OK;
}

void gather_fini(struct gather *g)
{
    for (size_t i = 0; i < g->file_count; i++) {
        free(g->file[i].error);
        for (int f = 0; f < FIELD_COUNT; f++)
            free(g->file[i].field_as[f]);
    }
    for (size_t i = 0; i < g->origin_count; i++) {
        free(g->origin[i].file);
        free(g->origin[i].node);
    }
    for (size_t i = 0; i < g->halves; i++)
        free(g->half[i].text);
    free(g->half);
    free(g->file);
    free(g->origin);
    pattern_free(g->pattern);
    spill_fini(&g->by_group);
    spill_fini(&g->by_call);
}

/* ---- whose clock ---- */

static char *copy(struct slice s)
{
    return strndup(s.data ? s.data : "", s.len);
}

/* The last one collects what is over the bound. STATUS_NO_MEMORY. */
static enum status find_origin(struct reading *r, struct slice file, struct slice node, uint16_t *out)
{
    struct gather *g = r->g;
    uint64_t digest = event_digest(file, event_digest(node, 3));
    if (digest == r->last_origin_digest && g->origin_count) {
        *out = r->last_origin;
        return STATUS_OK;
    }
    const size_t slots = sizeof g->origin_slot / sizeof *g->origin_slot;
    size_t at = (size_t)(digest % slots);
    for (; g->origin_slot[at]; at = (at + 1) % slots) {
        struct log_origin *o = &g->origin[g->origin_slot[at] - 1];
        if (slice_is(file, o->file) && slice_is(node, o->node))
            break;
    }
    if (!g->origin_slot[at]) {
        if (g->origin_count < GATHER_ORIGINS_MAX) {
            struct log_origin *o = &g->origin[g->origin_count];
            o->file = copy(file);
            o->node = copy(node);
            if (!o->file || !o->node)
                return STATUS_NO_MEMORY;
            g->origin_count++;
        }
        g->origin_slot[at] = (uint32_t)g->origin_count;
        if (g->origin_count == GATHER_ORIGINS_MAX) {
            *out = GATHER_ORIGINS_MAX - 1;
            g->origin_slot[at] = 0;
            return STATUS_OK;
        }
    }
    r->last_origin_digest = digest;
    r->last_origin = (uint16_t)(g->origin_slot[at] - 1);
    *out = r->last_origin;
    return STATUS_OK;
}

/* ---- one line ---- */

static bool blank(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] != ' ' && s.data[i] != '\t' && s.data[i] != '\0')
            return false;
    return true;
}

/* The rest of a stack trace or of a wrapped message: it belongs to the line before and is no event. */
static bool continues(struct slice s)
{
    return s.data[0] == ' ' || s.data[0] == '\t' || (s.len > 9 && memcmp(s.data, "Traceback", 9) == 0);
}

static void tell_format(struct reading *r, struct slice line)
{
    struct fields f;
    bool starts;
    if (r->g->pattern)
        r->file->format = FORMAT_PATTERN;
    else if (line.data[0] == '{')
        r->file->format = FORMAT_JSON;
    else if (access_line_read(&r->g->map, line, &r->scratch, &starts, &f) == STATUS_OK)
        r->file->format = FORMAT_ACCESS;
    else if (r->file->lines == 0 && line.data[line.len - 1] != '}' &&
             csv_header(&r->csv, &r->g->map, line) == STATUS_OK)
        r->file->format = FORMAT_CSV;
    else if (text_line_read(r->shape, &r->g->map, line, &r->scratch, &f) == STATUS_OK)
        r->file->format = FORMAT_TEXT;
}

enum reading_of { READ_EVENT, READ_NOTHING, READ_DAMAGED };

/* Containers and journals wrap what a program wrote into a member of a line of theirs: Docker's {"log":"...","time":...},
 * journalctl -o json. Where the outer line names no call, the text is read as the line it was; what only the outer line
 * knows is kept. */
static enum status unwrap(struct reading *r, struct fields *f, bool *time_ends)
{
    const uint64_t names = FIELD_BIT(FIELD_CALL) | FIELD_BIT(FIELD_KEY) | FIELD_BIT(FIELD_BUSINESS) |
                           FIELD_BIT(FIELD_REQUEST_ID) | FIELD_BIT(FIELD_METHOD) |
                           FIELD_BIT(FIELD_REQUEST_LINE);
    struct slice text = slice_trim(fields_get(f, FIELD_EVENT));
    struct fields inner;
    bool starts = true;
    while (text.len && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r'))
        text.len--;
    if ((f->present & names) || !text.len || f->rank[FIELD_EVENT] < WRAPPED_RANK ||
        !(memchr(text.data, '{', text.len) || memchr(text.data, '=', text.len) ||
          memchr(text.data, '"', text.len)))
        return STATUS_OK;
    if (!r->inner_shape && !(r->inner_shape = calloc(1, sizeof *r->inner_shape)))
        return STATUS_NO_MEMORY;
    buffer_clear(&r->inner);
    buffer_slice(&r->inner, text);
    if (r->inner.failed)
        return STATUS_NO_MEMORY;
    text = buffer_view(&r->inner);
    enum status status = text.data[0] == '{'
                             ? json_line_read(r->inner_shape, &r->g->map, text, &inner)
                             : access_line_read(&r->g->map, text, &r->scratch, &starts, &inner);
    if (status == STATUS_INVALID && text.data[0] != '{') {
        starts = true;
        status = text_line_read(r->inner_shape, &r->g->map, text, &r->scratch, &inner);
    }
    if (status != STATUS_OK || !(inner.present & names))
        return status == STATUS_NO_MEMORY ? status : STATUS_OK;
    uint64_t outer = f->present & ~inner.present & ~FIELD_BIT(FIELD_EVENT);
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (outer & FIELD_BIT(i))
            fields_put(&inner, (struct field_guess){(uint8_t)i, f->rank[i]}, f->value[i]);
    }
    *f = inner;
    *time_ends = *time_ends || !starts;
    return STATUS_OK;
}

static enum reading_of read_fields(struct reading *r, struct slice line, struct fields *f, bool *time_ends)
{
    const struct field_map *map = &r->g->map;
    struct log_file *file = r->file;
    bool header = false, starts = false;
    if (file->format == FORMAT_UNTOLD) {
        tell_format(r, line);
        header = file->format == FORMAT_CSV;
    }
    f->present = 0;
    enum status status = STATUS_INVALID;
    if (file->format == FORMAT_PATTERN)
        status = pattern_read(r->g->pattern, line, f);
    else if (line.data[0] == '{')
        status = json_line_read(r->shape, map, line, f);
    else if (file->format == FORMAT_CSV)
        status = header ? STATUS_OK : csv_line_read(&r->csv, line, &r->scratch, f);
    else if (file->format == FORMAT_ACCESS) {
        status = access_line_read(map, line, &r->scratch, &starts, f);
        *time_ends = *time_ends || (status == STATUS_OK && !starts);
    } else if (file->format == FORMAT_TEXT) {
        status = text_line_read(r->shape, map, line, &r->scratch, f);
        if (status != STATUS_OK && continues(line))
            return READ_NOTHING;
    }
    if (status == STATUS_OK && line.data[0] == '{' && file->format != FORMAT_PATTERN)
        status = unwrap(r, f, time_ends);
    if (status != STATUS_OK)
        return READ_DAMAGED;
    return header ? READ_NOTHING : READ_EVENT;
}

static void note_unreadable(struct reading *r)
{
    struct log_file *file = r->file;
    if (file->unreadable < GATHER_NAMED_LINES)
        file->named[file->unreadable] = r->joining ? r->joining : (uint32_t)file->physical;
    file->unreadable++;
    r->g->unreadable++;
}

static void read_time(struct reading *r, const struct fields *f, struct event *e)
{
    struct moment m;
    e->us = MOMENT_NONE;
    if (!fields_has(f, FIELD_TIME) ||
        moment_parse(f->value[FIELD_TIME], &r->file->zone, &r->cache, &m) != STATUS_OK) {
        r->file->without_time++;
        return;
    }
    e->us = m.us;
    if (m.fine)
        e->flags |= EVENT_FINE;
    if (m.wrong_local) {
        e->flags |= EVENT_UNPLACED;
        r->file->unplaced++;
    }
}

static enum status keep(struct reading *r, struct event *e)
{
    struct gather *g = r->g;
    struct slice token = e->text[TEXT_BUSINESS];
    bool business = token.len > 0;
    if (!business)
        token = e->text[TEXT_CALL].len ? e->text[TEXT_CALL] : e->text[TEXT_KEY];
    e->group = event_digest(token, business                 ? JOIN_SEED_BUSINESS
                                   : e->text[TEXT_CALL].len ? JOIN_SEED_CALL
                                                            : JOIN_SEED_KEY);
    struct spill *s = business ? &g->by_group : &g->by_call;
    struct buffer *to = spill_at(s, e->group);
    size_t before = to->len;
    event_write(to, e);
    return spill_wrote(s, e->group, to->len - before);
}

/* Puts a damaged first or last line aside, to be tried with the halves of other files. */
static bool put_aside(struct reading *r, const struct input_line *line)
{
    struct gather *g = r->g;
    bool begins = !line->ended && line->text.data[0] == '{';
    bool ends = r->file->physical == 1 && line->ended && line->text.data[line->text.len - 1] == '}';
    if (r->joining || (!begins && !ends) || g->file_count < 2)
        return false;
    char *text = copy(line->text);
    if (!text)
        return false;
    g->half[g->halves++] =
        (struct half_line){r->index, begins, (uint32_t)r->file->physical, text, line->text.len};
    return true;
}

static enum status take_line(struct reading *r, const struct input_line *line)
{
    struct gather *g = r->g;
    struct log_file *file = r->file;
    struct event e;
    struct fields f;
    bool time_ends = file->time_ends;
    if (!r->joining)
        file->physical++;
    if (blank(line->text) && !line->cut)
        return STATUS_OK;
    enum reading_of of = line->cut ? READ_DAMAGED : read_fields(r, line->text, &f, &time_ends);
    if (of == READ_NOTHING)
        return STATUS_OK;
    if (of == READ_EVENT && !line->ascii && !utf8_valid(line->text))
        of = READ_DAMAGED;
    if (of == READ_DAMAGED && !line->cut && put_aside(r, line))
        return STATUS_OK;
    file->lines++;
    g->lines++;
    if (of == READ_DAMAGED) {
        note_unreadable(r);
        if (line->cut)
            return STATUS_OK;
    } else {
        g->events++;
        file->seen |= f.present;
    }
    e.flags = 0;
    read_time(r, &f, &e);
    if (time_ends)
        e.flags |= EVENT_TIME_ENDS;
    if (event_make(&e, &f, &r->words, &r->event_scratch) != EVENT_KEPT)
        return STATUS_OK;
    if (of == READ_DAMAGED)
        e.kind = KIND_DAMAGED;
    struct slice origin =
        fields_has(&f, FIELD_ORIGIN_FILE) ? f.value[FIELD_ORIGIN_FILE] : slice_text(file->path);
    enum status status = find_origin(r, origin, e.text[TEXT_NODE], &e.origin);
    if (status != STATUS_OK)
        return status;
    g->origin[e.origin].events++;
    if (e.flags & EVENT_UNPLACED)
        g->origin[e.origin].unplaced = true;
    e.raw = (uint32_t)event_digest(line->text, 4);
    e.line = r->joining ? r->joining : (uint32_t)file->physical;
    e.file = r->index;
    return keep(r, &e);
}

/* ---- files ---- */

/* By which names the fields went, for the report. */
static void note_names(struct log_file *file, const struct json_shape *shape)
{
    for (size_t i = 0; shape && i < JSON_NAME_CACHE; i++) {
        const struct json_name *n = &shape->cache[i];
        if (n->len && n->guess.field != FIELD_NONE && !file->field_as[n->guess.field])
            file->field_as[n->guess.field] = strndup(n->name, n->len);
    }
}

static void reading_fini(struct reading *r)
{
    json_shape_fini(r->shape);
    json_shape_fini(r->inner_shape);
    free(r->shape);
    free(r->inner_shape);
    buffer_fini(&r->inner);
    buffer_fini(&r->scratch);
    buffer_fini(&r->event_scratch);
}

static enum status read_file(struct gather *g, size_t index)
{
    struct reading r = {.g = g, .file = &g->file[index], .index = (uint16_t)index};
    struct input_line line;
    enum status status = input_open(&r.in, r.file->path);
    if (status != STATUS_OK) {
        r.file->error = status == STATUS_NO_MEMORY ? NULL : strdup(strerror(errno));
        return r.file->error ? STATUS_OK : STATUS_NO_MEMORY;
    }
    r.file->opened = true;
    r.shape = calloc(1, sizeof *r.shape);
    status = r.shape ? STATUS_OK : STATUS_NO_MEMORY;
    uint64_t lines = 0;
    while (status == STATUS_OK && input_next(r.in, &line)) {
        status = take_line(&r, &line);
        if (++lines % PROGRESS_LINES == 0 && g->progress && g->bytes_all)
            g->progress(g->progress_context,
                        (double)(g->bytes_read + input_bytes_read(r.in)) / (double)g->bytes_all);
    }
    g->bytes_read += input_bytes_read(r.in);
    if (status == STATUS_OK && input_error(r.in)) {
        r.file->error = strdup(input_error(r.in));
        status = r.file->error ? STATUS_OK : STATUS_NO_MEMORY;
    }
    note_names(r.file, r.inner_shape);
    note_names(r.file, r.shape);
    reading_fini(&r);
    input_close(r.in);
    return status;
}

/* Whether two halves are one line. */
static bool fits(struct reading *r, const struct half_line *a, const struct half_line *b,
                 struct buffer *whole)
{
    struct fields f;
    if (!a->begins || b->begins || a->file == b->file)
        return false;
    buffer_clear(whole);
    buffer_append(whole, a->text, a->len);
    buffer_append(whole, b->text, b->len);
    return !whole->failed && json_line_read(r->shape, &r->g->map, buffer_view(whole), &f) == STATUS_OK;
}

static enum status take_half(struct reading *r, const struct half_line *half, struct slice text)
{
    struct input_line line = {.text = text, .ended = true};
    r->index = (uint16_t)half->file;
    r->file = &r->g->file[half->file];
    r->joining = half->number;
    if (r->file->format == FORMAT_UNTOLD)
        r->file->format = FORMAT_JSON;
    return take_line(r, &line);
}

/* The file next in the order of names, upwards or downwards; file_count: none. */
static size_t neighbour(const struct gather *g, size_t file, bool upwards)
{
    size_t best = g->file_count;
    for (size_t i = 0; i < g->file_count; i++) {
        int c = strverscmp(g->file[i].path, g->file[file].path);
        if (i == file || (upwards ? c <= 0 : c >= 0))
            continue;
        int d = best == g->file_count ? 0 : strverscmp(g->file[i].path, g->file[best].path);
        if (best == g->file_count || (upwards ? d < 0 : d > 0))
            best = i;
    }
    return best;
}

/* The half that half i is joined with in this pass, or `halves`. */
static size_t partner(struct reading *r, size_t i, int pass, struct buffer *whole)
{
    const struct gather *g = r->g;
    size_t found = g->halves;
    if (!g->half[i].len || !g->half[i].begins)
        return found;
    size_t next = pass < 2 ? neighbour(g, g->half[i].file, pass == 0) : g->file_count;
    for (size_t k = 0; k < g->halves; k++) {
        if (!g->half[k].len || (pass < 2 && g->half[k].file != next) ||
            !fits(r, &g->half[i], &g->half[k], whole))
            continue;
        if (found != g->halves)
            return g->halves;
        found = k;
    }
    for (size_t k = 0; pass == 2 && found != g->halves && k < g->halves; k++)
        if (k != i && g->half[k].len && fits(r, &g->half[k], &g->half[found], whole))
            return g->halves;
    return found;
}

static enum status join_halves(struct gather *g)
{
    struct reading r = {.g = g, .shape = calloc(1, sizeof *r.shape)};
    struct buffer whole = {0};
    enum status status = r.shape ? STATUS_OK : STATUS_NO_MEMORY;
    /* Halves of many lines fit each other. Pieces of one log are named in order, upwards (part1, part2) or downwards
     * (app.log.1, app.log); what is left is joined only where nothing else fits either half. */
    for (int pass = 0; pass < 3 && status == STATUS_OK; pass++) {
        for (size_t i = 0; i < g->halves && status == STATUS_OK; i++) {
            size_t k = partner(&r, i, pass, &whole);
            if (k == g->halves)
                continue;
            fits(&r, &g->half[i], &g->half[k], &whole);
            status = take_half(&r, &g->half[i], buffer_view(&whole));
            g->half[i].len = g->half[k].len = 0;
        }
    }
    for (size_t i = 0; i < g->halves && status == STATUS_OK; i++)
        if (g->half[i].len)
            status = take_half(&r, &g->half[i], slice_of(g->half[i].text, g->half[i].len));
    reading_fini(&r);
    buffer_fini(&whole);
    return status;
}

enum status gather_run(struct gather *g)
{
    for (size_t i = 0; i < g->file_count; i++)
        g->bytes_all += input_size(g->file[i].path);
    for (size_t i = 0; i < g->file_count; i++) {
        enum status status = read_file(g, i);
        if (status != STATUS_OK)
            return status;
    }
    enum status status = join_halves(g);
    return status == STATUS_OK ? join_calls(&g->by_call, &g->by_group) : status;
}
