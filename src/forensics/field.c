/* SPDX-License-Identifier: MIT */
#include "forensics/field.h"

/* A longer name is none of ours. */
#define NAME_BYTES_MAX 64
/* From this rank on a name is too common to be believed deep inside a nested object. */
#define COMMON_RANK 3

static const struct {
    const char *name, *meaning;
} names[] = {
#define FIELD(id, name, text) {name, text},
#define ALIAS(id, rank, name)
#include "forensics/field.def"
#undef FIELD
#undef ALIAS
};

static const struct alias {
    const char *name;
    struct field_guess guess;
} aliases[] = {
#define FIELD(id, name, text)
#define ALIAS(id, rank, name) {name, {FIELD_##id, rank}},
#include "forensics/field.def"
#undef FIELD
#undef ALIAS
};

const char *field_name(enum field field)
{
    return names[field].name;
}

const char *field_meaning(enum field field)
{
    return names[field].meaning;
}

enum status field_map_add(struct field_map *map, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals[1] == '\0')
        return STATUS_INVALID;
    struct slice left = slice_of(text, (size_t)(equals - text));
    for (int f = 0; f < FIELD_COUNT; f++) {
        if (!slice_is(left, names[f].name))
            continue;
        if (map->count == sizeof map->entry / sizeof *map->entry)
            return STATUS_FULL;
        map->entry[map->count].field = (enum field)f;
        map->entry[map->count++].name = slice_text(equals + 1);
        return STATUS_OK;
    }
    return STATUS_INVALID;
}

/* Small letters and digits only. False: too long, or nothing is left. */
static bool plain(struct slice name, char *out, size_t *len)
{
    size_t n = 0;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c + 32);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')))
            continue;
        if (n == NAME_BYTES_MAX)
            return false;
        out[n++] = c;
    }
    *len = n;
    return n > 0;
}

static struct field_guess by_alias(struct slice name)
{
    char text[NAME_BYTES_MAX];
    size_t len;
    struct field_guess none = {FIELD_NONE, UINT8_MAX};
    if (!plain(name, text, &len))
        return none;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (slice_is(slice_of(text, len), aliases[i].name))
            return aliases[i].guess;
    return none;
}

struct field_guess field_find(const struct field_map *map, struct slice name)
{
    for (size_t i = 0; map && i < map->count; i++)
        if (slice_equal(map->entry[i].name, name))
            return (struct field_guess){(uint8_t)map->entry[i].field, 0};
    const char *dot = name.len ? memrchr(name.data, '.', name.len) : NULL;
    struct field_guess guess = by_alias(name);
    if (guess.field != FIELD_NONE || !dot)
        return guess;
    guess = by_alias(slice_of(dot + 1, name.len - (size_t)(dot + 1 - name.data)));
    if (guess.rank >= COMMON_RANK || guess.field == FIELD_TIME || guess.field == FIELD_EVENT)
        return (struct field_guess){FIELD_NONE, UINT8_MAX};
    guess.rank = (uint8_t)(guess.rank + COMMON_RANK);
    return guess;
}
