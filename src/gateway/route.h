/* SPDX-License-Identifier: MIT
 *
 * Which route a request belongs to. All patterns of all routes are compiled into one table, once; a match
 * walks the path's segments.
 *
 *   pattern    /orders              literal segments
 *              /orders/{id}/cancel  {x} takes one whole segment, never an empty one
 *              /files/{*}           {*} takes the rest, the empty rest too; only as the last segment
 *
 * What is always true:
 * (1) The most literal pattern wins: compared segment by segment from the left, a literal beats {x}, and {x}
 *     beats {*}.
 * (2) Two patterns that differ only in the names of their segments are a configuration error, so (1) never ties.
 * (3) Each pattern is its own scope: `scope` is "ROUTE PATTERN".
 * (4) A guard cannot be walked around by spelling. With a method that some route guards, a path that an upstream
 *     might read as another one (see route_path_plain) matches nothing; and so does a path that would be another,
 *     guarded pattern's if letter case, a slash at the end and path parameters (`;x`) did not count. Such a
 *     request gets `no-route`, 404. Two things keep ordinary traffic alive: methods that no route guards (GET,
 *     HEAD and OPTIONS always) can dodge nothing and are matched as written; and where /{*} is the only pattern,
 *     every reading is its.
 * (5) Patterns that differ only in letter case or in a slash at the end are a configuration error too, for (4).
 */
#ifndef SAMEKEY_GATEWAY_ROUTE_H
#define SAMEKEY_GATEWAY_ROUTE_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"
#include "core/settings.h"

#include <stdbool.h>
#include <stddef.h>

/* Segments of one pattern or path at most; a longer path matches only through {*}. */
#define ROUTE_SEGMENTS_MAX 32
/* Captured segments of one pattern at most. */
#define ROUTE_CAPTURES_MAX 16
/* Bytes of one segment of a pattern at most. */
#define ROUTE_SEGMENT_BYTES_MAX 255
/* Patterns over all routes at most. */
#define ROUTE_PATTERNS_MAX 4096

/* Name and value of a captured segment; `*` is the name of the rest. Both are borrowed. */
struct route_capture {
    struct slice name;  /* from the route table */
    struct slice value; /* from the path, as received, still percent-encoded */
};

/* Where a request goes. */
struct route_match {
    const struct route_settings *route;
    size_t route_index;   /* of `route` in the settings, for counters and metrics */
    size_t pattern_index; /* of the pattern, over all routes: 0 .. routes_pattern_count()-1 */
    struct slice pattern; /* as configured */
    struct slice scope;   /* "ROUTE PATTERN": the route part of a key's scope; borrowed from the table */
    bool guarded;         /* mode is guard or observe and the method is one of the route's */
    size_t capture_count;
    struct route_capture captures[ROUTE_CAPTURES_MAX + 1]; /* the rest too */
};

struct routes;

/*
 * Compiles the routes of `s`, which must outlive the table. Each error (a pattern out of form, a duplicate,
 * too many) is told to `report`, which may be NULL. STATUS_INVALID when there was one: *out is not set.
 * STATUS_NO_MEMORY.
 */
enum status routes_compile(struct routes **out, const struct settings *s, settings_problem_fn *report,
                           void *context);

/* Frees the table; NULL is accepted. */
void routes_free(struct routes *r);

size_t routes_pattern_count(const struct routes *r);

/*
 * Whether a path (without query) is spelt in the one way that everybody reads alike. It is not with: no slash at
 * the start, an empty segment (`//`), a segment `.` or `..` (also with path parameters, `..;x`), a segment of path
 * parameters alone (`;x`), a backslash, `#`, a control byte, a space or a byte over 0x7e, an incomplete
 * percent-encoding, and an encoded `/`, `\`, `.`, `%`, `;`, `?`, `#`, control, letter, digit, `-`, `_` or `~`
 * (letters and the like never need one, RFC 3986 section 6.2.2.2). A slash at the end is plain.
 */
bool route_path_plain(struct slice path);

/*
 * Finds the route of a request. `target` is the request target as received, with or without a query.
 * STATUS_OK: *m is filled, and borrows from the table and from `target`. STATUS_NOT_FOUND: no pattern fits, or
 * rule (4) forbids it; *m is as before. Matching is case-sensitive.
 */
enum status routes_match(const struct routes *r, struct slice method, struct slice target,
                         struct route_match *m);

#endif
