/* SPDX-License-Identifier: MIT */
#include "review/review.h"

#include "review/judge.h"
#include "review/layer.h"
#include "review/reader.h"
#include "review/silence.h"

#include <stdlib.h>

static const char *const format_names[FORMAT_COUNT] = {
    [FORMAT_AUTO] = "auto",
#define READER(constant, name, reads) [FORMAT_##constant] = name,
#include "review/readers.def"
};

enum review_format review_format_find(struct slice name)
{
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (slice_is_nocase(name, format_names[i]))
            return (enum review_format)i;
    return FORMAT_COUNT;
}

const char *review_format_name(enum review_format format)
{
    return format_names[format];
}

/* Room for one more member; the run is marked incomplete when there is none. */
static bool grow(struct review *r, void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    size_t more = *room ? *room * 2 : 16;
    void **place = array;
    void *bigger = realloc(*place, more * size);
    if (!bigger) {
        r->pool.failed = true;
        return false;
    }
    *place = bigger;
    *room = more;
    return true;
}

void review_find(struct review *r, enum rule_id rule, const struct source *source, unsigned line,
                 const char *place, const char *format, ...)
{
    for (size_t i = 0; i < r->finding_count; i++) {
        const struct finding *f = &r->findings[i];
        if (f->line == line && f->rule == rule && strcmp(f->source->path, source->path) == 0)
            return;
    }
    if (r->finding_count == FINDINGS_MAX) {
        r->findings_dropped++;
        return;
    }
    if (!grow(r, &r->findings, r->finding_count, &r->finding_room, sizeof *r->findings))
        return;
    va_list args;
    va_start(args, format);
    const char *detail = pool_vformat(&r->pool, format, args);
    va_end(args);
    if (line == 0)
        line = 1;
    r->findings[r->finding_count++] =
        (struct finding){.rule = rule, .source = source, .line = line, .place = place, .detail = detail};
}

void review_problem(struct review *r, const char *path, unsigned line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *what = pool_vformat(&r->pool, format, args);
    va_end(args);
    path = pool_copy(&r->pool, slice_text(path));
    for (size_t i = 0; i < r->problem_count; i++)
        if (r->problems[i].line == line && strcmp(r->problems[i].path, path) == 0 &&
            strcmp(r->problems[i].what, what) == 0)
            return;
    if (grow(r, &r->problems, r->problem_count, &r->problem_room, sizeof *r->problems))
        r->problems[r->problem_count++] = (struct review_problem){path, line, what};
}

void review_note(struct review *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *what = pool_vformat(&r->pool, format, args);
    va_end(args);
    for (size_t i = 0; i < r->note_count; i++)
        if (strcmp(r->notes[i], what) == 0)
            return;
    if (grow(r, &r->notes, r->note_count, &r->note_room, sizeof *r->notes))
        r->notes[r->note_count++] = what;
}

static struct review_policy *add_policy(struct review *r, const struct source *s)
{
    if (r->policy_count == POLICIES_MAX) {
        review_problem(r, s->path, 0, "more than %u policies in all; the rest was not judged", POLICIES_MAX);
        return NULL;
    }
    if (!grow(r, &r->policies, r->policy_count, &r->policy_room, sizeof *r->policies))
        return NULL;
    struct review_policy *p = pool_alloc(&r->pool, sizeof *p);
    if (p)
        r->policies[r->policy_count++] = p;
    return p;
}

struct review_policy *review_policy_new(struct review *r, enum review_format format,
                                        const struct source *source, unsigned line, const char *name)
{
    struct review_policy *p = add_policy(r, source);
    if (p) {
        p->format = format_names[format];
        p->source = source;
        p->line = line;
        p->name = name;
    }
    return p;
}

void review_own_policy(struct review *r, const struct review_policy *facts)
{
    struct review_policy *p = add_policy(r, facts->source);
    if (p) {
        *p = *facts;
        p->format = format_names[FORMAT_SAMEKEY];
    }
}

static bool keep_source(struct review *r, struct source *s)
{
    if (!grow(r, &r->sources, r->source_count, &r->source_room, sizeof *r->sources))
        return false;
    r->sources[r->source_count++] = s;
    return true;
}

static void load_failed(struct review *r, const char *path, enum status status, const char *why)
{
    review_problem(r, path, 0, "%s", status == STATUS_NO_MEMORY ? "not enough memory" : why);
}

struct source *review_include(struct review *r, const struct source *parent, unsigned line, const char *path,
                              bool optional)
{
    const char *why = "";
    if (parent->depth + 1 > INCLUDE_DEPTH_MAX) {
        review_problem(r, parent->path, line, "includes nested deeper than %u", INCLUDE_DEPTH_MAX);
        return NULL;
    }
    if (r->files >= FILES_MAX) {
        review_problem(r, parent->path, line, "more than %u files", FILES_MAX);
        return NULL;
    }
    struct source *s;
    enum status status = source_load(&s, &why, &r->pool, path);
    if (status == STATUS_NOT_FOUND && optional) {
        review_note(r, "%s:%u: included file %s is not there and was not read", parent->path, line, path);
        return NULL;
    }
    if (status != STATUS_OK) {
        review_problem(r, parent->path, line, "included file %s: %s", path,
                       status == STATUS_NO_MEMORY ? "not enough memory" : why);
        return NULL;
    }
    for (const struct source *up = parent; up; up = up->parent) {
        if (up->device == s->device && up->inode == s->inode) {
            review_problem(r, parent->path, line, "include loop: %s includes itself", up->path);
            return NULL;
        }
    }
    s->parent = parent;
    s->depth = parent->depth + 1;
    r->files++;
    return keep_source(r, s) ? s : NULL;
}

static const struct source *read_source(struct review *r, struct source *s, enum review_format format)
{
    r->files++;
    if (!keep_source(r, s))
        return NULL;
    return reader_read(r, s, format) == STATUS_OK ? s : NULL;
}

const struct source *review_file(struct review *r, const char *path, enum review_format format,
                                 const char *label)
{
    const char *why = "";
    struct source *s;
    if (r->files >= FILES_MAX) {
        review_problem(r, path, 0, "more than %u files", FILES_MAX);
        return NULL;
    }
    enum status status = source_load(&s, &why, &r->pool, path);
    if (status != STATUS_OK) {
        load_failed(r, path, status, why);
        return NULL;
    }
    s->label = label ? pool_copy(&r->pool, slice_text(label)) : NULL;
    return read_source(r, s, format);
}

const struct source *review_memory(struct review *r, const char *path, struct slice text,
                                   enum review_format format)
{
    const char *why = "";
    struct source *s;
    enum status status = source_from_memory(&s, &why, &r->pool, path, text);
    if (status != STATUS_OK) {
        load_failed(r, path, status, why);
        return NULL;
    }
    return read_source(r, s, format);
}

static int compare_findings(const void *x, const void *y)
{
    const struct finding *a = x, *b = y;
    int order = strcmp(a->source->path, b->source->path);
    if (order)
        return order;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return (int)a->rule - (int)b->rule;
}

enum status review_finish(struct review *r, bool layered)
{
    for (size_t i = 0; i < r->policy_count; i++)
        judge_policy(r, r->policies[i]);
    if (layered)
        layer_judge(r);
    silence_apply(r);
    if (r->finding_count)
        qsort(r->findings, r->finding_count, sizeof *r->findings, compare_findings);
    return r->pool.failed ? STATUS_NO_MEMORY : STATUS_OK;
}

size_t review_open_findings(const struct review *r)
{
    size_t n = r->findings_dropped;
    for (size_t i = 0; i < r->finding_count; i++)
        n += r->findings[i].silenced == NULL;
    return n;
}

void review_fini(struct review *r)
{
    free(r->findings);
    free(r->policies);
    free(r->problems);
    free(r->notes);
    free(r->sources);
    pool_fini(&r->pool);
    *r = (struct review){0};
}
