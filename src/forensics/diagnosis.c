/* SPDX-License-Identifier: MIT */
#include "forensics/diagnosis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Bytes of all texts of a diagnosis. */
#define DIAGNOSIS_BYTES_MAX (192u << 20)

const struct finding_kind *finding_kind(enum finding_code code)
{
    static const struct finding_kind kinds[] = {
#define FINDING(id, code, step, harm, layer, what, remedy) {code, step, harm, layer, what, remedy},
#include "forensics/finding.def"
#undef FINDING
    };
    return &kinds[code];
}

const char *certainty_text(enum certainty c)
{
    return c == CERTAIN ? "certain" : "likely";
}

const char *label_text(enum label label)
{
    static const char *const text[] = {"single",         "declared-retry",    "new-call",
                                       "hidden-retry",   "connection-resend", "proxy-failover",
                                       "double-dispatch"};
    return text[label];
}

void line_refs_add(struct line_refs *refs, const struct event *e)
{
    for (size_t i = 0; i < refs->count; i++)
        if (refs->ref[i].file == e->file && refs->ref[i].line == e->line)
            return;
    if (refs->count == DIAGNOSIS_LINES_MAX) {
        refs->left_out++;
        return;
    }
    refs->ref[refs->count++] = (struct line_ref){e->file, e->line};
}

void diagnosis_init(struct diagnosis *d)
{
    memset(d, 0, sizeof *d);
    arena_init(&d->arena, DIAGNOSIS_BYTES_MAX);
}

void diagnosis_fini(struct diagnosis *d)
{
    arena_fini(&d->arena);
    free(d->findings.item);
    free(d->keys.item);
    free(d->calls.item);
    free(d->double_runs.item);
}

struct slice diagnosis_copy(struct diagnosis *d, struct slice s)
{
    struct slice out = {0};
    if (!arena_copy(&d->arena, s, &out))
        d->failed = true;
    return out;
}

struct slice diagnosis_format(struct diagnosis *d, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    return diagnosis_copy(d, slice_of(text, len));
}

static int refs_order(const void *left, const void *right)
{
    const struct line_ref *a = left, *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

struct line_refs *diagnosis_lines(struct diagnosis *d, const struct line_refs *refs)
{
    struct line_refs *out = arena_take(&d->arena, sizeof *out);
    if (!out) {
        d->failed = true;
        return NULL;
    }
    *out = *refs;
    qsort(out->ref, out->count, sizeof *out->ref, refs_order);
    return out;
}

static void *grown(struct diagnosis *d, void *item, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return item;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *out = realloc(item, wanted * size);
    if (!out) {
        d->failed = true;
        return item;
    }
    *capacity = wanted;
    return out;
}

#define ADD(d, list, value)                                                                                  \
    do {                                                                                                     \
        (d)->list.item =                                                                                     \
            grown((d), (d)->list.item, (d)->list.count, &(d)->list.capacity, sizeof *(d)->list.item);        \
        if ((d)->list.count < (d)->list.capacity)                                                            \
            (d)->list.item[(d)->list.count++] = (value);                                                     \
    } while (0)

void diagnosis_add_finding(struct diagnosis *d, const struct finding *f)
{
    if (d->findings.count >= DIAGNOSIS_FINDINGS_MAX)
        d->findings.left_out++;
    else
        ADD(d, findings, *f);
}

void diagnosis_add_key(struct diagnosis *d, const struct key_entry *k)
{
    ADD(d, keys, *k);
}

void diagnosis_add_call(struct diagnosis *d, const struct call_entry *c)
{
    ADD(d, calls, *c);
}

void diagnosis_add_double_run(struct diagnosis *d, const struct double_run *r)
{
    if (d->double_runs.count >= DIAGNOSIS_FINDINGS_MAX)
        d->double_runs.left_out++;
    else
        ADD(d, double_runs, *r);
}

/* ---- order ---- */

static int by_text(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : a.len < b.len ? -1 : a.len > b.len;
}

static int findings_order(const void *left, const void *right)
{
    const struct finding *a = left, *b = right;
    int harm = finding_kind(a->code)->harm - finding_kind(b->code)->harm;
    if (harm)
        return harm;
    if (a->code != b->code)
        return a->code < b->code ? -1 : 1;
    if (a->certainty != b->certainty)
        return a->certainty < b->certainty ? -1 : 1;
    int c = by_text(a->key, b->key);
    return c ? c : by_text(a->text, b->text);
}

static int keys_order(const void *left, const void *right)
{
    const struct key_entry *a = left, *b = right;
    return by_text(a->key, b->key);
}

static int calls_order(const void *left, const void *right)
{
    const struct call_entry *a = left, *b = right;
    int c = by_text(a->call, b->call);
    return c ? c : by_text(a->key, b->key);
}

static int runs_order(const void *left, const void *right)
{
    const struct double_run *a = left, *b = right;
    return by_text(a->key, b->key);
}

#define SORT(list, order)                                                                                    \
    do {                                                                                                     \
        if ((list).count)                                                                                    \
            qsort((list).item, (list).count, sizeof *(list).item, (order));                                  \
    } while (0)

void diagnosis_sort(struct diagnosis *d)
{
    SORT(d->findings, findings_order);
    SORT(d->keys, keys_order);
    SORT(d->calls, calls_order);
    SORT(d->double_runs, runs_order);
}
