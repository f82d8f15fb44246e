/* SPDX-License-Identifier: MIT
 *
 * One JSON object a line, read without building a tree. Logs of one writer have the same members in the same order, so
 * the reader remembers, place by place, which field the last line's member was, and compares one name instead of
 * looking up hundreds. What is rare (an escape in a value we need, nesting beyond JSON_LINE_DEPTH_MAX) goes to jansson.
 *
 * Always true: (1) a line said to be whole has balanced braces, closed strings, a value for each name and nothing behind;
 * (2) of a damaged line the fields before the damage are kept.
 */
#ifndef SAMEKEY_FORENSICS_JSON_LINE_H
#define SAMEKEY_FORENSICS_JSON_LINE_H

#include "base/buffer.h"
#include "forensics/field.h"

#define JSON_LINE_DEPTH_MAX 8  /* objects within objects that are looked into */
#define JSON_LINE_NAME_MAX  80 /* bytes of a name, or of a path of names, that can be a field */

enum { JSON_SHAPE_MEMBERS = 64, JSON_NAME_CACHE = 256 };

/* What was learned from earlier lines. Zero it to begin; one for each file. */
struct json_shape {
    struct json_name {
        uint8_t len; /* 0: free */
        struct field_guess guess;
        char name[JSON_LINE_NAME_MAX];
    } member[JSON_SHAPE_MEMBERS], cache[JSON_NAME_CACHE];
    struct buffer unescaped; /* values of the line last read that had escapes */
};

/* Reads one line. STATUS_INVALID: damaged; `out` has the fields before the damage. Values borrow from the line, or from
 * shape until the next line. STATUS_NO_MEMORY. */
enum status json_line_read(struct json_shape *shape, const struct field_map *map, struct slice line,
                           struct fields *out);

void json_shape_fini(struct json_shape *shape);

#endif
