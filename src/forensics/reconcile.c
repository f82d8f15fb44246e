/* SPDX-License-Identifier: MIT */
#include "forensics/reconcile.h"

#include "base/json_text.h"
#include "forensics/side.h"

#include <stdlib.h>

/* Comparing a record costs about this part of what reading it costs (measured: bench/reconcile_bench). */
#define COMPARE_COST 0.3

/* Bytes of what is listed. */
#define LISTED_BYTES_MAX (16u << 20)

const struct difference_kind *difference_kind(enum difference_code code)
{
    static const struct difference_kind kinds[] = {
#define DIFFERENCE(id, code, harm, what, remedy) {code, harm, what, remedy},
#include "forensics/difference.def"
#undef DIFFERENCE
    };
    return &kinds[code];
}

const char *side_name(enum side side)
{
    static const char *const names[] = {"receipts", "rows", "provider"};
    return names[side];
}

void reconcile_init(struct reconcile *r)
{
    memset(r, 0, sizeof *r);
    r->read_bytes = RECONCILE_READ_BYTES;
    arena_init(&r->arena, LISTED_BYTES_MAX);
}

void reconcile_fini(struct reconcile *r)
{
    arena_fini(&r->arena);
    free(r->difference);
    buffer_fini(&r->error);
}

uint64_t reconcile_differences(const struct reconcile *r)
{
    uint64_t n = 0;
    for (int i = 0; i < DIFFERENCE_COUNT; i++)
        n += r->count[i];
    return n;
}

/* ---- one key ---- */

struct tally {
    const struct event *receipt, *row, *provider; /* the one that speaks for its side, or NULL */
    size_t receipts, rows, rows_reversed, provided, provided_reversed;
    bool success, open, failed, reversed;
};

static void count_side(struct tally *t, const struct event *e)
{
    bool reversed = (e->flags & SIDE_REVERSED) != 0;
    switch ((enum event_kind)e->kind) {
    case KIND_RECEIPT_WRITTEN: {
        static const int weight[] = {0, 0, 2, 2,
                                     4, 1, 3}; /* SUCCESS speaks before UNKNOWN, open ones, FAILED */
        t->receipts++;
        t->reversed = t->reversed || reversed;
        t->success = t->success || e->state == EVENT_STATE_SUCCESS;
        t->failed = t->failed || e->state == EVENT_STATE_FAILED;
        t->open = t->open || weight[e->state] == 2 || weight[e->state] == 3;
        if (!t->receipt || weight[e->state] > weight[t->receipt->state])
            t->receipt = e;
        break;
    }
    case KIND_EFFECT:
        t->rows_reversed += reversed;
        t->rows += !reversed;
        if (!reversed || !t->row)
            t->row = e;
        break;
    default:
        t->provided_reversed += reversed;
        t->provided += !reversed;
        if (!reversed || !t->provider)
            t->provider = e;
        break;
    }
}

static enum status found(struct reconcile *r, enum difference_code code, const struct tally *t,
                         struct slice key, const char *text)
{
    r->count[code]++;
    if (r->listed == RECONCILE_LISTED_MAX)
        return STATUS_OK;
    if (r->listed == r->capacity) {
        size_t capacity = r->capacity ? r->capacity * 2 : 64;
        struct difference *grown = realloc(r->difference, capacity * sizeof *grown);
        if (!grown)
            return STATUS_NO_MEMORY;
        r->difference = grown;
        r->capacity = capacity;
    }
    struct difference d = {.code = code};
    if (!arena_copy(&r->arena, key, &d.key) || !arena_copy(&r->arena, slice_text(text), &d.text) ||
        !arena_copy(&r->arena, t->receipt ? t->receipt->text[TEXT_CALL] : slice_of("", 0), &d.call))
        return STATUS_NO_MEMORY;
    r->difference[r->listed++] = d;
    return STATUS_OK;
}

/* One correction: the call, what it becomes, and why that is proved. */
static enum status plan(struct reconcile *r, const struct tally *t, struct slice key)
{
    struct buffer b = {0}, why = {0};
    if (!t->receipt->text[TEXT_CALL].len)
        return STATUS_OK;
    buffer_format(&why, "reconcile: the receipt said %s and exactly one row with this key stands",
                  event_state_text((enum event_state)t->receipt->state));
    if (r->side[SIDE_PROVIDER].from)
        buffer_text(&why, "; the provider has it once");
    buffer_text(&b, "{\"call_id\":");
    json_text(&b, t->receipt->text[TEXT_CALL]);
    buffer_text(&b, ",\"tenant\":");
    json_text_or_null(&b, t->receipt->text[TEXT_NODE]);
    buffer_text(&b, ",\"key\":");
    json_text(&b, key);
    buffer_text(&b, ",\"from\":");
    json_text(&b, slice_text(event_state_text((enum event_state)t->receipt->state)));
    buffer_text(&b, ",\"to\":\"SUCCESS\",\"evidence\":");
    json_text(&b, buffer_view(&why));
    buffer_text(&b, "}\n");
    enum status status = b.failed || why.failed ? STATUS_NO_MEMORY : STATUS_OK;
    r->corrections++;
    if (status == STATUS_OK && r->plan && fwrite(b.data, 1, b.len, r->plan) != b.len) {
        buffer_text(&r->error, "the plan cannot be written");
        status = STATUS_IO;
    }
    buffer_fini(&b);
    buffer_fini(&why);
    return status;
}

static bool amounts_differ(const struct event *a, const struct event *b)
{
    return a && b && a->text[TEXT_WHAT].len && b->text[TEXT_WHAT].len &&
           !slice_equal(a->text[TEXT_WHAT], b->text[TEXT_WHAT]);
}

static enum status compare(void *context, struct group *g)
{
    struct reconcile *r = context;
    struct tally t = {0};
    bool asked = r->side[SIDE_PROVIDER].from != NULL;
    char text[512];
    for (size_t i = 0; i < g->count; i++)
        count_side(&t, &g->event[i]);
    struct slice key = g->event[0].text[TEXT_KEY];
    uint64_t before = reconcile_differences(r);
    enum status status = STATUS_OK;
    r->keys++;
#define FOUND(code, ...)                                                                                     \
    do {                                                                                                     \
        snprintf(text, sizeof text, __VA_ARGS__);                                                            \
        if (status == STATUS_OK)                                                                             \
            status = found(r, DIFFERENCE_##code, &t, key, text);                                             \
    } while (0)
    const char *state = t.receipt ? event_state_text((enum event_state)t.receipt->state) : "";
    if (t.rows > 1)
        FOUND(TWO_ROWS, "%zu rows stand", t.rows);
    if (t.provided > 1)
        FOUND(PROVIDER_TWICE, "the provider has it %zu times", t.provided);
    if (t.reversed && t.rows)
        FOUND(AFTER_REVERSAL, "the receipt is reversed, %zu row%s stand%s", t.rows, t.rows > 1 ? "s" : "",
              t.rows > 1 ? "" : "s");
    if (t.success && !t.reversed && !t.rows && !t.rows_reversed)
        FOUND(NO_ROW, "receipt SUCCESS, no row");
    if (asked && !t.reversed && !t.provided && !t.provided_reversed && (t.success || t.rows))
        FOUND(NO_EFFECT, "%s%s%s, nothing at the provider", t.receipt ? "receipt " : "", state,
              t.rows ? ", row" : "");
    if (t.provided && !t.receipts && !t.rows && !t.rows_reversed)
        FOUND(PROVIDER_ALONE, "only the provider has it");
    if (t.rows && t.receipts && !t.success && !t.open)
        FOUND(FAILED_ROW, "receipt %s, row", state);
    if (t.rows && !t.receipts)
        FOUND(NO_RECEIPT, "row, no receipt");
    if (t.open && !t.success && t.rows) {
        FOUND(OPEN_DONE, "receipt %s, row", state);
        if (status == STATUS_OK && t.rows == 1 && !t.reversed && (!asked || t.provided == 1) && !t.failed)
            status = plan(r, &t, key);
    }
    if (t.open && !t.success && !t.rows && !t.rows_reversed)
        FOUND(STILL_OPEN, "receipt %s, no row", state);
    if (amounts_differ(t.receipt, t.row))
        FOUND(AMOUNT, "receipt %.*s, row %.*s", (int)t.receipt->text[TEXT_WHAT].len,
              t.receipt->text[TEXT_WHAT].data, (int)t.row->text[TEXT_WHAT].len, t.row->text[TEXT_WHAT].data);
    if (amounts_differ(t.row ? t.row : t.receipt, t.provider))
        FOUND(AMOUNT, "%s %.*s, provider %.*s", t.row ? "row" : "receipt",
              (int)(t.row ? t.row : t.receipt)->text[TEXT_WHAT].len,
              (t.row ? t.row : t.receipt)->text[TEXT_WHAT].data, (int)t.provider->text[TEXT_WHAT].len,
              t.provider->text[TEXT_WHAT].data);
#undef FOUND
    if (status == STATUS_OK && reconcile_differences(r) == before)
        r->agree++;
    return status;
}

static int order(const void *left, const void *right)
{
    const struct difference *a = left, *b = right;
    if (a->code != b->code)
        return a->code < b->code ? -1 : 1;
    size_t n = a->key.len < b->key.len ? a->key.len : b->key.len;
    int c = n ? memcmp(a->key.data, b->key.data, n) : 0;
    return c ? c : a->key.len < b->key.len ? -1 : a->key.len > b->key.len;
}

void reconcile_progress(const struct reconcile *r, const char *what, uint64_t done, double compared)
{
    uint64_t read = 0, expected = 0;
    bool known = true;
    if (!r->progress)
        return;
    for (int s = 0; s < SIDE_COUNT; s++) {
        const struct side_source *x = &r->side[s];
        read += x->read;
        expected += x->expected > x->read ? x->expected : x->read;
        known = known && (!x->from || x->expected || compared > 0);
    }
    double share =
        expected ? ((double)read / (double)expected + compared * COMPARE_COST) / (1 + COMPARE_COST) : 1;
    r->progress(r->progress_context, what, done, known ? share : -1);
}

enum status reconcile_run(struct reconcile *r)
{
    /* Rows first: a row that is read has its receipt by then, in whatever order the two were written. */
    static const enum side sides[] = {SIDE_ROWS, SIDE_PROVIDER, SIDE_RECEIPTS};
    struct spill all;
    enum status status = STATUS_OK;
    spill_init(&all, r->folder, r->read_bytes);
    for (size_t i = 0; i < SIDE_COUNT && r->progress; i++)
        side_expect(r, sides[i]);
    for (size_t i = 0; i < SIDE_COUNT && status == STATUS_OK; i++) {
        if (!r->side[sides[i]].from)
            continue;
        status = side_read(r, sides[i], &all);
        r->side[sides[i]].expected = r->side[sides[i]].read;
        if (status != STATUS_OK && status != STATUS_NO_MEMORY && !all.error) {
            struct buffer error = {0};
            buffer_format(&error, "%s (%s): %s", side_name(sides[i]), r->side[sides[i]].from,
                          buffer_cstring(&r->error));
            buffer_fini(&r->error);
            r->error = error;
        }
    }
    size_t part_bytes = r->read_bytes < RECONCILE_PART_BYTES ? r->read_bytes : RECONCILE_PART_BYTES;
    for (size_t p = 0; p < SPILL_PARTS && status == STATUS_OK; p++) {
        status = group_each(&all, p, part_bytes, NULL, compare, r);
        spill_forget(&all, p);
        reconcile_progress(r, "comparing", r->keys, (double)(p + 1) / SPILL_PARTS);
    }
    if (all.error) {
        r->disk_failed = true;
        buffer_clear(&r->error);
        spill_complain(&all, &r->error);
    }
    spill_fini(&all);
    if (r->listed)
        qsort(r->difference, r->listed, sizeof *r->difference, order);
    return status;
}

/* ---- reports ---- */

void reconcile_text(const struct reconcile *r, FILE *out, bool all)
{
    enum { SHOWN = 5 };
    for (int s = 0; s < SIDE_COUNT; s++) {
        const struct side_source *x = &r->side[s];
        if (!x->from)
            continue;
        fprintf(out, "%s: %llu read", side_name((enum side)s), (unsigned long long)x->read);
        if (x->without_key)
            fprintf(out, ", %llu without a key", (unsigned long long)x->without_key);
        if (x->unreadable)
            fprintf(out, ", %llu unreadable", (unsigned long long)x->unreadable);
        if (x->no_amount)
            fprintf(out, ", %llu with an amount that is no decimal number and is not compared",
                    (unsigned long long)x->no_amount);
        if (x->skipped)
            fprintf(out, ", %llu too fresh to be judged", (unsigned long long)x->skipped);
        fputc('\n', out);
    }
    fprintf(out, "%llu keys: %llu agree, %llu differences\n", (unsigned long long)r->keys,
            (unsigned long long)r->agree, (unsigned long long)reconcile_differences(r));
    for (size_t i = 0, shown = 0; i < r->listed; i++) {
        const struct difference *d = &r->difference[i];
        const struct difference_kind *k = difference_kind(d->code);
        if (i == 0 || r->difference[i - 1].code != d->code) {
            shown = 0;
            fprintf(out, "\n%s: %s (%llu)\n  Remedy: %s\n", k->code, k->what,
                    (unsigned long long)r->count[d->code], k->remedy);
        }
        if (!all && shown == SHOWN)
            fprintf(out, "  ... and %llu more (--all)\n", (unsigned long long)(r->count[d->code] - SHOWN));
        if (shown++ >= SHOWN && !all)
            continue;
        fputs("  ", out);
        for (size_t c = 0; c < d->key.len; c++)
            fputc((unsigned char)d->key.data[c] < 0x20 || d->key.data[c] == 0x7f ? '?' : d->key.data[c], out);
        fprintf(out, ": %.*s", (int)d->text.len, d->text.data);
        if (d->call.len)
            fprintf(out, " (%.*s)", (int)d->call.len, d->call.data);
        fputc('\n', out);
    }
    if (r->corrections)
        fprintf(out, "\n%llu receipts can be corrected%s\n", (unsigned long long)r->corrections,
                r->plan ? ": they are in the plan" : " (--plan FILE writes them down)");
}

void reconcile_json(const struct reconcile *r, FILE *out)
{
    struct buffer b = {0};
    buffer_text(&b, "{\"sides\":{");
    for (int s = 0, n = 0; s < SIDE_COUNT; s++) {
        const struct side_source *x = &r->side[s];
        if (x->from)
            buffer_format(&b,
                          "%s\"%s\":{\"read\":%llu,\"without_key\":%llu,\"unreadable\":%llu,\"no_amount\":%"
                          "llu,\"too_fresh\":%llu}",
                          n++ ? "," : "", side_name((enum side)s), (unsigned long long)x->read,
                          (unsigned long long)x->without_key, (unsigned long long)x->unreadable,
                          (unsigned long long)x->no_amount, (unsigned long long)x->skipped);
    }
    buffer_format(
        &b, "},\n \"keys\":%llu,\"agree\":%llu,\"differences\":%llu,\"corrections\":%llu,\n \"counts\":{",
        (unsigned long long)r->keys, (unsigned long long)r->agree,
        (unsigned long long)reconcile_differences(r), (unsigned long long)r->corrections);
    for (int i = 0; i < DIFFERENCE_COUNT; i++)
        buffer_format(&b, "%s\"%s\":%llu", i ? "," : "", difference_kind((enum difference_code)i)->code,
                      (unsigned long long)r->count[i]);
    buffer_text(&b, "},\n \"findings\":[");
    for (size_t i = 0; i < r->listed; i++) {
        const struct difference *d = &r->difference[i];
        buffer_format(&b, "%s\n  {\"code\":\"%s\",\"key\":", i ? "," : "", difference_kind(d->code)->code);
        json_text(&b, d->key);
        buffer_text(&b, ",\"call_id\":");
        json_text_or_null(&b, d->call);
        buffer_text(&b, ",\"text\":");
        json_text(&b, d->text);
        buffer_text(&b, ",\"remedy\":");
        json_text(&b, slice_text(difference_kind(d->code)->remedy));
        buffer_byte(&b, '}');
    }
    buffer_format(&b, "],\n \"left_out\":%llu}\n",
                  (unsigned long long)(reconcile_differences(r) - r->listed));
    fwrite(b.data ? b.data : "", 1, b.len, out);
    buffer_fini(&b);
}
