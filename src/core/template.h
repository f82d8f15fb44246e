/* SPDX-License-Identifier: MIT
 *
 * Templates: `order:{json.order_no}:create`, `{header.X-Tenant}`, `/receipts/{call_id}`. Compiled once, with
 * the configuration, where every mistake is told with its place and its remedy; rendered per call.
 *
 * Parts: {json.PATH} {header.NAME} {path.NAME} {query.NAME} {args.PATH} {method} {call_id} {key} {origin},
 * and the time windows {date} {hour} {minute}, each with an offset if wanted: {date:+08:00}. `{{` and `}}`
 * are braces. Windows are `2026-03-01`, `2026-03-01T12`, `2026-03-01T12-30`. {uuid}, {timestamp} and {random}
 * are refused: a key that is new on every attempt protects nothing.
 *
 * Rendering never makes one key of two different inputs. In a key, of every part the bytes that are not
 * visible ASCII, and `%`, `:`, `"`, `\` and the first byte of the fixed text between the part and the next,
 * are written as %XX. So a part ends where its separator begins, and can be read back. Two parts need a
 * separator between them that begins with neither a letter, a digit nor `%` (compile refuses others). A part
 * missing, null, empty or not a scalar is an error: `order::` would be one key for everybody who left it out.
 * A key over 255 bytes is refused, not shortened.
 */
#ifndef SAMEKEY_CORE_TEMPLATE_H
#define SAMEKEY_CORE_TEMPLATE_H

#include "base/buffer.h"
#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define TEMPLATE_PARTS_MAX 16
#define TEMPLATE_TEXT_MAX  2048 /* bytes of a template */
#define TEMPLATE_PART_MAX  8192 /* bytes of one part's value before it is written */

/* What the text is for decides how parts are written. */
enum template_use {
    TEMPLATE_FOR_KEY,  /* the rule above */
    TEMPLATE_FOR_TEXT, /* tenant, credential, business reference, callId: as it is */
    TEMPLATE_FOR_URL,  /* all but A-Z a-z 0-9 - . _ ~ as %XX; {origin} as it is */
};

enum template_source {
    TEMPLATE_JSON,
    TEMPLATE_HEADER,
    TEMPLATE_PATH,
    TEMPLATE_QUERY,
    TEMPLATE_ARGS,
    TEMPLATE_METHOD,
    TEMPLATE_CALL_ID,
    TEMPLATE_KEY,
    TEMPLATE_ORIGIN,
    TEMPLATE_DATE,
    TEMPLATE_HOUR,
    TEMPLATE_MINUTE,
};

struct template_part {
    struct slice before; /* fixed text in front of the part, braces resolved */
    enum template_source source;
    struct slice name;  /* behind the dot: `order_no`, `X-Tenant` */
    struct slice label; /* as written, without braces, for messages: `json.order_no` */
    int offset_minutes; /* of a window */
    char stop;          /* first byte of the fixed text between this part and the next, 0 for the last */
};

/* Start it as zero bytes; owns its text. */
struct template
{
    enum template_use use;
    size_t count;
    struct template_part parts[TEMPLATE_PARTS_MAX];
    struct slice after; /* fixed text behind the last part */
    struct buffer text;
};

/* What is wrong with a template's text: where (byte, from 0) and a sentence with the remedy. */
struct template_error {
    size_t position;
    char message[200];
};

/* STATUS_INVALID with *error filled: the text breaks a rule. STATUS_FULL with *error filled: a bound. t is
 * untouched unless STATUS_OK; end it then with template_fini. */
enum status template_compile(struct template *t, struct slice text, enum template_use use,
                             struct template_error *error);

/* Looks up one part and adds its text to out. Returns false when it is missing, null or no scalar (what was
 * added is then dropped). Is never asked for windows. `name` of the sources without one is empty. */
typedef bool template_lookup(void *context, enum template_source source, struct slice name,
                             struct buffer *out);

struct template_inputs {
    template_lookup *lookup;
    void *context;
    int64_t
        window_ms; /* unix milliseconds for {date} {hour} {minute}: the first claim's, by the store's clock */
};

/* Adds the rendered text to out. STATUS_NOT_FOUND: a part is missing, null, empty or no scalar; *missing (if
 * not NULL) is its label, borrowed from t. STATUS_FULL: a part over TEMPLATE_PART_MAX bytes, or a key over
 * 255. STATUS_INVALID: a TEMPLATE_FOR_TEXT value holds a control byte. STATUS_NO_MEMORY. Unless STATUS_OK,
 * out has its old length. */
enum status template_render(const struct template *t, const struct template_inputs *in, struct buffer *out,
                            struct slice *missing);

/* Whether it holds {date}, {hour} or {minute}: then the window is fixed at the first claim. */
bool template_has_window(const struct template *t);

/* Whether it reads this source: a template without TEMPLATE_JSON needs no body. */
bool template_uses(const struct template *t, enum template_source source);

/* Frees the text. NULL and zero bytes are accepted. */
void template_fini(struct template *t);

#endif
