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
 *  (1) The most literal pattern wins: compared segment by segment from the left, a literal beats {x}, {x}
 * beats {*}. (2) Two patterns that differ only in the names of their segments are a configuration error, so
 * (1) never ties. (3) Each pattern is its own scope: `scope` is "ROUTE PATTERN-WITH-{}-NAMES-AS-WRITTEN". (4)
 * A path that an upstream might read as another one (see route_path_check) matches nothing: a guard cannot be
 *      walked around by spelling. Such a request gets `no-route`, 404, before anything else looks at it.
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
    struct route_capture captures[ROUTE_CAPTURES_MAX];
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

/* What route_path_check() found. */
enum route_path {
    ROUTE_PATH_PLAIN,
    ROUTE_PATH_DOUBTFUL, /* may be read as another path upstream: matches nothing */
};

/*
 * Judges the spelling of a path (without query). Doubtful are: no leading slash, an empty segment (`//`), a
 * segment
 * `.` or `..` also with percent-encoded dots, and one with a path parameter on dots (`..;x`), a backslash, a
 * control byte, a byte over 0x7e, `#`, an incomplete percent-encoding, and the encodings of `/`, `\`, `.`,
 * `%`, `;`, of NUL and other controls, and of a letter, digit, `-`, `_` or `~`, which never need one (RFC
 * 3986 section 6.2.2). A trailing slash is plain: it makes an empty last segment, and {*} alone takes it.
 */
enum route_path route_path_check(struct slice path);

/*
 * Finds the route of a request. `target` is the request target as received, with or without a query.
 * STATUS_OK: *m is filled, and borrows from the table and from `target`. STATUS_NOT_FOUND: no pattern fits,
 * or the path is doubtful. Matching is case-sensitive; a path that equals a guarded pattern but for the case
 * of its letters, or but for one trailing slash or a path parameter (`;x`), is doubtful too and found by
 * nothing that would let it pass unguarded.
 */
enum status routes_match(const struct routes *r, struct slice method, struct slice target,
                         struct route_match *m);

#endif
