/* SPDX-License-Identifier: MIT
 *
 * The fields of a line, whatever its format: which names mean what (field.def), and the values found in one line.
 */
#ifndef SAMEKEY_FORENSICS_FIELD_H
#define SAMEKEY_FORENSICS_FIELD_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

enum field {
#define FIELD(id, name, text) FIELD_##id,
#define ALIAS(id, rank, name)
#include "forensics/field.def"
#undef FIELD
#undef ALIAS
    FIELD_COUNT,
    FIELD_NONE = FIELD_COUNT
};

/* Which field a name is, and how far it is to be believed: 0 was told by --map, 1 is the best guess. */
struct field_guess {
    uint8_t field; /* enum field; FIELD_NONE: nothing we look for */
    uint8_t rank;
};

/* The values of one line. value[f] is to be read only where the bit of f is set; it borrows from the line. */
struct fields {
    uint64_t present;
    struct slice value[FIELD_COUNT];
    uint8_t rank[FIELD_COUNT];
};

#define FIELD_BIT(f) (UINT64_C(1) << (f))

static inline bool fields_has(const struct fields *f, enum field id)
{
    return (f->present & FIELD_BIT(id)) != 0;
}

/* The value, or an empty slice. */
static inline struct slice fields_get(const struct fields *f, enum field id)
{
    return fields_has(f, id) ? f->value[id] : slice_of("", 0);
}

/* Keeps the value unless a better-ranked one is there. */
static inline void fields_put(struct fields *f, struct field_guess guess, struct slice value)
{
    if (guess.field == FIELD_NONE || (fields_has(f, guess.field) && f->rank[guess.field] <= guess.rank))
        return;
    f->present |= FIELD_BIT(guess.field);
    f->rank[guess.field] = guess.rank;
    f->value[guess.field] = value;
}

/* What the user said with --map: field names on the left, names in the logs on the right. */
struct field_map {
    struct field_map_entry {
        enum field field;
        struct slice
            name; /* as in the log; members of members joined by dots; borrowed from the command line */
    } entry[32];
    size_t count;
};

/* Takes `field=NAME`. text stays borrowed. STATUS_INVALID: no such field or no name. STATUS_FULL: too many. */
enum status field_map_add(struct field_map *map, const char *text);

/* The field of a name, by the map first, then by the aliases. A member of a member (a.b.c) is known by its whole
 * path and, where that is unmistakable, by its last part. */
struct field_guess field_find(const struct field_map *map, struct slice name);

/* The name of a field for --map and for the report. */
const char *field_name(enum field field);
const char *field_meaning(enum field field);

#endif
