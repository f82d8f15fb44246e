/* SPDX-License-Identifier: MIT */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "forensics/text_line.h"

#include <pcre2.h>
#include <stdlib.h>

/* Steps of one match at most: a pattern that backtracks without end costs its line, not the run. */
#define PATTERN_STEPS_MAX 100000

struct pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    size_t count;
    struct {
        uint32_t group;
        struct field_guess guess;
    } group[FIELD_COUNT];
};

static void find_groups(struct pattern *p, const struct field_map *map)
{
    uint32_t count = 0, size = 0;
    PCRE2_SPTR table;
    pcre2_pattern_info(p->code, PCRE2_INFO_NAMECOUNT, &count);
    pcre2_pattern_info(p->code, PCRE2_INFO_NAMEENTRYSIZE, &size);
    pcre2_pattern_info(p->code, PCRE2_INFO_NAMETABLE, &table);
    for (uint32_t i = 0; i < count && p->count < FIELD_COUNT; i++, table += size) {
        const char *name = (const char *)(table + 2);
        struct field_guess guess = {FIELD_NONE, 0};
        for (int f = 0; f < FIELD_COUNT; f++)
            if (strcmp(name, field_name((enum field)f)) == 0)
                guess.field = (uint8_t)f;
        if (guess.field == FIELD_NONE)
            guess = field_find(map, slice_text(name));
        if (guess.field == FIELD_NONE)
            continue;
        p->group[p->count].group = (uint32_t)(table[0] << 8 | table[1]);
        p->group[p->count++].guess = guess;
    }
}

enum status pattern_compile(struct pattern **out, const struct field_map *map, const char *text,
                            struct buffer *error)
{
    int code;
    PCRE2_SIZE at;
    struct pattern *p = calloc(1, sizeof *p);
    if (!p)
        return STATUS_NO_MEMORY;
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
    if (!p->code) {
        PCRE2_UCHAR why[200];
        pcre2_get_error_message(code, why, sizeof why);
        buffer_format(error, "%s, at character %zu", (const char *)why, (size_t)at + 1);
        pattern_free(p);
        return STATUS_INVALID;
    }
    find_groups(p, map);
    if (p->count == 0) {
        buffer_text(error, "no named group is a field: write (?<time>...), (?<call_id>...) and so on");
        pattern_free(p);
        return STATUS_INVALID;
    }
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without it, matching is only slower */
    p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
    p->context = pcre2_match_context_create(NULL);
    if (!p->match || !p->context) {
        pattern_free(p);
        return STATUS_NO_MEMORY;
    }
    pcre2_set_match_limit(p->context, PATTERN_STEPS_MAX);
    *out = p;
    return STATUS_OK;
}

enum status pattern_read(struct pattern *p, struct slice line, struct fields *out)
{
    out->present = 0;
    if (line.len == 0)
        return STATUS_INVALID;
    int n = pcre2_match(p->code, (PCRE2_SPTR)line.data, line.len, 0, 0, p->match, p->context);
    if (n < 0)
        return STATUS_INVALID;
    PCRE2_SIZE *ends = pcre2_get_ovector_pointer(p->match);
    for (size_t i = 0; i < p->count; i++) {
        uint32_t g = p->group[i].group;
        if (g >= (uint32_t)n || ends[2 * g] == PCRE2_UNSET || ends[2 * g] > ends[2 * g + 1])
            continue;
        struct slice value = slice_of(line.data + ends[2 * g], ends[2 * g + 1] - ends[2 * g]);
        if (value.len && !slice_is(value, "-"))
            fields_put(out, p->group[i].guess, value);
    }
    return STATUS_OK;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_match_context_free(p->context);
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    free(p);
}
