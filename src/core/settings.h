/* SPDX-License-Identifier: MIT
 *
 * The settings of samekey: what an operator may choose, with bounds, defaults and contradictions (CONTRACT
 * section 7). settings.def has one row for each; the two structs below, their parser and their documentation
 * come from it.
 *
 * What is always true:
 *  (1) A struct settings holds a value within its bounds for every row, from settings_new() on.
 *  (2) Every text in it is its own and never NULL; an empty text means "not set".
 *  (3) settings_check() passes the defaults: with one route that has a path and an upstream, nothing is
 * refused.
 *
 * Reading a file is not done here (gateway/conf.h): this is pure, texts in, numbers and sentences out.
 */
#ifndef SAMEKEY_CORE_SETTINGS_H
#define SAMEKEY_CORE_SETTINGS_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/duration.h" /* DURATION_FOREVER: a LIFE setting spelled `forever` */
#include "base/slice.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of the choices, in the order of their row's options. */
enum mode { MODE_GUARD, MODE_OBSERVE, MODE_OFF };
enum upstream_order { UPSTREAM_ORDER_ROUND, UPSTREAM_ORDER_LISTED };
enum key_missing { KEY_MISSING_REFUSE, KEY_MISSING_PASS };
enum swapped_keys { SWAPPED_KEYS_OFF, SWAPPED_KEYS_WARN, SWAPPED_KEYS_BLOCK };
enum server_error { SERVER_ERROR_UNKNOWN, SERVER_ERROR_FAILED };
enum accepted { ACCEPTED_PENDING, ACCEPTED_SUCCESS };
enum redirect_303 { REDIRECT_303_UNKNOWN, REDIRECT_303_SUCCESS };
enum on_failed { ON_FAILED_NOTHING, ON_FAILED_COMPENSATE };
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Several texts; `items` is NULL when there are none. */
struct text_list {
    char **items;
    size_t count;
};

/* How the upstream is asked about a call (CONTRACT sections 3 and 4). */
enum receipt_kind { RECEIPT_NONE, RECEIPT_HTTP, RECEIPT_SAMEKEY, RECEIPT_SQL };
struct receipt_source {
    enum receipt_kind kind;
    char *text;   /* as the operator wrote it */
    char *method; /* of RECEIPT_HTTP: GET, HEAD is refused since it has no body; else "" */
    char *path; /* of RECEIPT_HTTP: starts with / and has {call_id} once; of RECEIPT_SQL: the address; else ""
                 */
};

enum setting_scope { SETTING_SCOPE_GLOBAL, SETTING_SCOPE_ROUTE };
enum setting_change { SETTING_CHANGE_RELOAD, SETTING_CHANGE_RESTART };
enum setting_type {
    SETTING_TEXT,
    SETTING_LIST,
    SETTING_TEMPLATE,
    SETTING_DURATION,
    SETTING_LIFE,
    SETTING_SIZE,
    SETTING_COUNT,
    SETTING_PERCENT,
    SETTING_BOOL,
    SETTING_JITTER,
    SETTING_RECEIPT,
    SETTING_CHOICE,
};

/* One number for each row: SETTING_ID_listen, SETTING_ID_retry_budget_percent, ... (by field name). */
enum setting_id {
#define SETTING(scope, type, name, field, low, high, preset, change, sentence) SETTING_ID_##field,
#define CHOICE(scope, tag, name, field, options, preset, change, sentence)     SETTING_ID_##field,
#include "core/settings.def"
#undef SETTING
#undef CHOICE
    SETTING_ID_COUNT
};

/* One row of the table. */
struct setting {
    const char *name;
    enum setting_scope scope;
    enum setting_type type;
    size_t offset; /* of its field in struct settings or struct route_settings */
    int64_t low, high;
    const char *options; /* of a choice: "guard|observe|off"; else "" */
    const char *preset;
    enum setting_change change;
    const char *sentence;
};

/* Where a value came from, for `--print-config` and for error messages. */
enum setting_source { SETTING_SOURCE_DEFAULT, SETTING_SOURCE_FILE, SETTING_SOURCE_FLAG };
struct setting_origin {
    enum setting_source source;
    int line; /* of the file; 0 when it is not from the file */
};

#define FIELD_TEXT(field)     char *field;
#define FIELD_LIST(field)     struct text_list field;
#define FIELD_TEMPLATE(field) char *field;
#define FIELD_DURATION(field) int64_t field;
#define FIELD_LIFE(field)     int64_t field;
#define FIELD_SIZE(field)     int64_t field;
#define FIELD_COUNT(field)    int64_t field;
#define FIELD_PERCENT(field)  int64_t field;
#define FIELD_BOOL(field)     bool field;
#define FIELD_JITTER(field)   double field##_low, field##_high;
#define FIELD_RECEIPT(field)  struct receipt_source field;

/* The settings inside one route "NAME" { }. Field names are the settings' names with their unit behind. */
struct route_settings {
    char *name;
    int line; /* where the file opens the section; 0 for a route made from flags */
    struct setting_origin origins[SETTING_ID_COUNT];
#define ROW_GLOBAL(...)
#define ROW_ROUTE(...) __VA_ARGS__
#define SETTING(scope, type, name, field, low, high, preset, change, sentence)                               \
    ROW_##scope(FIELD_##type(field))
#define CHOICE(scope, tag, name, field, options, preset, change, sentence) ROW_##scope(enum tag field;)
#include "core/settings.def"
#undef ROW_GLOBAL
#undef ROW_ROUTE
};

/* The settings at the top of the file, and its routes in the order of the file. */
struct settings {
    struct arena memory; /* of everything in here, this struct too */
    char *file;          /* the path it was read from; "" when there is none */
    struct setting_origin origins[SETTING_ID_COUNT];
    struct route_settings **routes;
    size_t route_count;
#define ROW_GLOBAL(...) __VA_ARGS__
#define ROW_ROUTE(...)
#include "core/settings.def"
#undef ROW_GLOBAL
#undef ROW_ROUTE
#undef SETTING
#undef CHOICE
};

#undef FIELD_TEXT
#undef FIELD_LIST
#undef FIELD_TEMPLATE
#undef FIELD_DURATION
#undef FIELD_LIFE
#undef FIELD_SIZE
#undef FIELD_COUNT
#undef FIELD_PERCENT
#undef FIELD_BOOL
#undef FIELD_JITTER
#undef FIELD_RECEIPT

/* Bytes of one configuration in memory at most. */
#define SETTINGS_BYTES_MAX (64u << 20)
/* Routes in one configuration at most. */
#define SETTINGS_ROUTES_MAX 1000
/* Texts in one list setting at most. */
#define SETTINGS_LIST_MAX 256
/* Bytes of a route's name at most; it is part of a key's scope and a label of every metric. */
#define SETTINGS_ROUTE_NAME_MAX 64

/* The rows, SETTING_ID_COUNT of them, in the order of settings.def. */
extern const struct setting settings_table[SETTING_ID_COUNT];

/* The row of that name, or NULL. */
const struct setting *settings_find(struct slice name);

/* The row of that scope whose name is nearest to a misspelt one, or NULL when none is near. */
const struct setting *settings_suggest(struct slice name, enum setting_scope scope);

/* The word of `words` (count of them) nearest to a misspelt one, or NULL when none is near. */
const char *settings_nearest(struct slice word, const char *const *words, size_t count);

/* Makes settings with every default and no route. *out is yours: settings_free(). STATUS_NO_MEMORY. */
enum status settings_new(struct settings **out);

/* Frees them with all their routes; NULL is accepted. */
void settings_free(struct settings *s);

/* Sets the path they were read from. STATUS_NO_MEMORY: as before. */
enum status settings_name_file(struct settings *s, struct slice path);

/*
 * Adds a route with every default. *out stays the settings' own. Names are 1 to SETTINGS_ROUTE_NAME_MAX bytes
 * of letters, digits, `_`, `-` and `.`. STATUS_INVALID (the reason is added to `why`), STATUS_CONFLICT when
 * the name is taken, STATUS_FULL, STATUS_NO_MEMORY: nothing was added.
 */
enum status settings_add_route(struct settings *s, struct slice name, int line, struct route_settings **out,
                               struct buffer *why);

/* The route of that name, or NULL. */
struct route_settings *settings_route(const struct settings *s, struct slice name);

/*
 * Sets one value from its text, or a list from its texts. `route` is NULL exactly for a global setting.
 * STATUS_INVALID: out of form or bounds; the value is as before and one sentence with the bounds and the
 * remedy is added to `why` (no name, no line: the caller knows them). STATUS_NO_MEMORY.
 */
enum status settings_set(struct settings *s, struct route_settings *route, const struct setting *row,
                         const struct slice *texts, size_t count, struct setting_origin origin,
                         struct buffer *why);

/* Works out the values that follow from others (resend_after, where nobody set it). Call it after the last
 * set. */
void settings_settle(struct settings *s);

/* What is wrong, or worth a word, with a whole configuration. */
enum settings_severity {
    SETTINGS_ERROR,   /* nothing starts */
    SETTINGS_WARNING, /* it starts and says so */
    SETTINGS_NOTE,    /* `samekey check` says so */
};
struct settings_problem {
    enum settings_severity severity;
    const char *code;          /* short and stable, for `check` and tests: "deadline-too-short" */
    const struct setting *row; /* the setting to change first, or NULL */
    const char *route;         /* the route's name, or NULL */
    int line;                  /* of that setting, else of its route, else 0 */
    const char *message;       /* the sentence, with both numbers and the remedy; borrowed */
};
typedef void settings_problem_fn(void *context, const struct settings_problem *problem);

/*
 * Reports every contradiction and warning of CONTRACT section 7, and every feature that does not exist yet,
 * by name. Returns the number of errors. The settings are not changed.
 */
size_t settings_check(const struct settings *s, settings_problem_fn *report, void *context);

/* The arithmetic of CONTRACT section 7, in ms; DURATION_FOREVER where a sum would not fit. */
int64_t settings_waits_longest_ms(const struct route_settings *r);
int64_t settings_call_longest_ms(const struct route_settings *r);
int64_t settings_compensation_longest_ms(const struct route_settings *r);

/*
 * What a foreign receipt state means by the route's receipt_map. STATUS_OK: *state is one of our state names,
 * borrowed from the route. STATUS_NOT_FOUND: the map does not name it.
 */
enum status settings_receipt_state(const struct route_settings *r, struct slice foreign, struct slice *state);

/* Adds one value as the file would spell it; `route` is NULL exactly for a global setting. */
void settings_value_text(struct buffer *out, const struct settings *s, const struct route_settings *route,
                         const struct setting *row);

/* The same for eyes: passwords in URLs are ***, and of headers that authenticate only the names are given. */
void settings_value_shown(struct buffer *out, const struct settings *s, const struct route_settings *route,
                          const struct setting *row);

/* Adds a text that may be or hold SCHEME://USER:PASSWORD@..., with *** for the password (what stands between the first
 * colon and the last @ in front of the path) and for the value of a parameter password=. */
void settings_url_shown(struct buffer *out, struct slice text);

/* Adds the whole configuration, readable as a configuration file, with each value's origin as a comment. */
void settings_print(struct buffer *out, const struct settings *s);

/* Adds docs/configuration.md: every row with type, bounds, default and sentence. */
void settings_document(struct buffer *out);

#endif
