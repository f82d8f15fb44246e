/* SPDX-License-Identifier: MIT
 *
 * One value looked up in a JSON text by path: `order.items.0.sku` is the member `order`, in it the member
 * `items`, in it the first of the list, in it the member `sku`. (`json.` in front, as templates and settings
 * write it, is taken off by who reads them; json_path_strip does it.) Member names that hold a dot cannot be
 * named. The whole text is read, so a value is only found in a text that is JSON to its end; a member on the
 * path given twice is refused, since callee and gateway could read different ones.
 */
#ifndef SAMEKEY_CORE_JSON_VALUE_H
#define SAMEKEY_CORE_JSON_VALUE_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

enum json_kind { JSON_NULL, JSON_TRUE, JSON_FALSE, JSON_NUMBER, JSON_STRING, JSON_LIST, JSON_OBJECT };

struct json_value {
    enum json_kind kind;
    struct slice raw; /* as written, borrowed from the text; a string's with its quotes */
};

/* Finds the value at path; the empty path is the whole. STATUS_NOT_FOUND: the text is JSON and has no such
 * value. STATUS_INVALID: not JSON, or a member on the path twice. */
enum status json_find(struct slice text, struct slice path, struct json_value *out);

/* Adds a scalar's text: a string without quotes and escapes, a number exactly as written, `true` or `false`.
 * STATUS_NOT_FOUND, with nothing added: null, a list or an object. STATUS_NO_MEMORY: the buffer failed. */
enum status json_value_text(const struct json_value *v, struct buffer *out);

/* The same with a number in its normal form, so that one number is one text however it was written: 100, 1e2 and 100.0
 * are `100`; 0.10 is `0.1`; -0 is `0`. A number of more than JSON_PLAIN_DIGITS places is `DIGITSeEXPONENT`, never expanded.
 * STATUS_INVALID, with nothing added: an exponent of more than 15 digits. */
#define JSON_PLAIN_DIGITS 40
enum status json_value_normal(const struct json_value *v, struct buffer *out);

/* Takes `json.` off the front. STATUS_INVALID: it is not there, or nothing follows it. */
enum status json_path_strip(struct slice text, struct slice *path);

#endif
