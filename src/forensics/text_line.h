/* SPDX-License-Identifier: MIT
 *
 * Lines that are not JSON: a time in front and name=value pairs behind (logfmt, key=value, Python's logging, a JSON
 * object behind a prefix); CSV under a header; the access logs of nginx and Apache (combined), HAProxy and Envoy; and
 * whatever a PCRE2 pattern with named groups describes. Each reader fills the same fields.
 */
#ifndef SAMEKEY_FORENSICS_TEXT_LINE_H
#define SAMEKEY_FORENSICS_TEXT_LINE_H

#include "base/buffer.h"
#include "forensics/field.h"
#include "forensics/json_line.h"

#define CSV_COLUMNS_MAX 128

/* Time, pairs, message. STATUS_INVALID: neither a time nor a pair is there. Values borrow from the line; quoted ones are
 * taken without their quotes and, where they have escapes, unescaped into scratch (which is cleared first). */
enum status text_line_read(struct json_shape *shape, const struct field_map *map, struct slice line,
                           struct buffer *scratch, struct fields *out);

/* An access log line. STATUS_INVALID: it is not one. `starts` says whether its time is the request's beginning (HAProxy,
 * Envoy) and not its end (nginx, Apache). */
enum status access_line_read(const struct field_map *map, struct slice line, struct buffer *scratch,
                             bool *starts, struct fields *out);

/* The columns of a CSV file. */
struct csv {
    char delimiter;
    size_t count;
    struct field_guess column[CSV_COLUMNS_MAX];
};

/* Takes the header. STATUS_INVALID: fewer than two columns, or none of them known. */
enum status csv_header(struct csv *csv, const struct field_map *map, struct slice line);

/* One row (RFC 4180 without line ends in values). STATUS_INVALID: an open quote, or another number of columns. */
enum status csv_line_read(const struct csv *csv, struct slice line, struct buffer *scratch,
                          struct fields *out);

/* The value at *p, which then is behind its delimiter; *more is false behind the last one. A quoted value is unquoted into
 * scratch, which must have room for it. False: a quote is open, or something follows a closed one. */
bool csv_value(const char **p, const char *end, char delimiter, struct buffer *scratch, struct slice *out,
               bool *more);

/* A pattern given by --pattern. */
struct pattern;

/* Compiles it. STATUS_INVALID: *error says why, with the place; or no named group is a field. */
enum status pattern_compile(struct pattern **out, const struct field_map *map, const char *text,
                            struct buffer *error);
enum status pattern_read(struct pattern *p, struct slice line, struct fields *out);
void pattern_free(struct pattern *p);

#endif
