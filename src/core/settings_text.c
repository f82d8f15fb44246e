/* SPDX-License-Identifier: MIT
 *
 * Settings as text: a value as the file spells it, the effective configuration, and the
 * reference page. What is written here is read back to the same value by settings_set().
 */
#include "core/settings.h"

#include "core/settings_shape.h"

/* A factor in thousandths is enough for people; the parser takes up to six digits. */
static void write_factor(struct buffer *out, double factor)
{
    int64_t millionths = (int64_t)(factor * 1e6 + 0.5);
    buffer_number(out, millionths / 1000000);
    int64_t rest = millionths % 1000000;
    if (rest == 0)
        return;
    char digits[8];
    size_t n = 6;
    for (size_t i = 6; i > 0; i--) {
        digits[i - 1] = (char)('0' + rest % 10);
        rest /= 10;
    }
    while (n > 1 && digits[n - 1] == '0')
        n--;
    buffer_byte(out, '.');
    buffer_append(out, digits, n);
}

/* In double quotes, as the file needs it: a `$` could begin the name of an environment variable. */
static void write_quoted(struct buffer *out, struct slice text)
{
    buffer_byte(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '"' || text.data[i] == '\\' || text.data[i] == '$')
            buffer_byte(out, '\\');
        buffer_byte(out, text.data[i]);
    }
    buffer_byte(out, '"');
}

void settings_value_text(struct buffer *out, const struct settings *s, const struct route_settings *route,
                         const struct setting *row)
{
    const char *field = (route ? (const char *)route : (const char *)s) + row->offset;
    const int64_t *number = (const int64_t *)(const void *)field;
    switch (row->type) {
    case SETTING_TEXT:
    case SETTING_TEMPLATE:
        write_quoted(out, slice_text(*(char *const *)(const void *)field));
        break;
    case SETTING_LIST: {
        const struct text_list *list = (const void *)field;
        buffer_byte(out, '{');
        for (size_t i = 0; i < list->count; i++) {
            buffer_text(out, i ? ", " : "");
            write_quoted(out, slice_text(list->items[i]));
        }
        buffer_byte(out, '}');
        break;
    }
    case SETTING_DURATION:
    case SETTING_LIFE:
        duration_print(*number, out);
        break;
    case SETTING_SIZE:
        size_print(*number, out);
        break;
    case SETTING_COUNT:
    case SETTING_PERCENT:
        buffer_number(out, *number);
        break;
    case SETTING_BOOL:
        buffer_text(out, *(const bool *)(const void *)field ? "true" : "false");
        break;
    case SETTING_JITTER: {
        const double *factors = (const double *)(const void *)field;
        buffer_byte(out, '"');
        write_factor(out, factors[0]);
        buffer_byte(out, ':');
        write_factor(out, factors[1]);
        buffer_byte(out, '"');
        break;
    }
    case SETTING_RECEIPT:
        write_quoted(out, slice_text(((const struct receipt_source *)(const void *)field)->text));
        break;
    case SETTING_CHOICE: {
        int chosen;
        memcpy(&chosen, field, sizeof(chosen));
        const char *word = row->options;
        for (int i = 0; i < chosen; i++)
            word = strchr(word, '|') + 1;
        buffer_append(out, word, strcspn(word, "|"));
        break;
    }
    }
}

static void write_origin(struct buffer *out, const struct settings *s, struct setting_origin origin)
{
    switch (origin.source) {
    case SETTING_SOURCE_DEFAULT:
        buffer_text(out, "default");
        break;
    case SETTING_SOURCE_FILE:
        buffer_format(out, "%s:%d", s->file, origin.line);
        break;
    case SETTING_SOURCE_FLAG:
        buffer_text(out, "flag");
        break;
    }
}

/* Values start and origins stand in one column where they can. */
#define NAME_COLUMN   24
#define ORIGIN_COLUMN 64

static void pad(struct buffer *out, size_t from, size_t column)
{
    while (out->len - from < column && !out->failed)
        buffer_byte(out, ' ');
}

/* The parameter of PostgreSQL's URLs that holds a password too. */
static void write_parameters(struct buffer *out, const char *text, const char *end)
{
    static const char word[] = "password=";
    const size_t len = sizeof word - 1;
    while (text < end) {
        if ((size_t)(end - text) >= len && memcmp(text, word, len) == 0) {
            buffer_text(out, "password=***");
            for (text += len; text < end && *text != '&' && *text != '"';)
                text++;
        } else {
            buffer_byte(out, *text++);
        }
    }
}

void settings_url_shown(struct buffer *out, struct slice text)
{
    const char *end = text.data + text.len, *scheme = NULL, *colon = NULL, *at = NULL;
    static const char ends[] = "/?#\""; /* of the part of a URL in which a password may stand */
    for (size_t i = 0; i + 2 < text.len && !scheme; i++)
        if (memcmp(text.data + i, "://", 3) == 0)
            scheme = text.data + i + 3;
    for (const char *c = scheme; c && c < end && !memchr(ends, *c, sizeof ends - 1); c++) {
        if (*c == ':' && !colon)
            colon = c;
        if (*c == '@')
            at = c;
    }
    if (colon && at && colon < at) {
        buffer_append(out, text.data, (size_t)(colon + 1 - text.data));
        buffer_text(out, "***");
        write_parameters(out, at, end);
    } else if (scheme) {
        write_parameters(out, text.data, end);
    } else {
        buffer_slice(out, text);
    }
}

/* The names of header lines; what authenticates us elsewhere is nobody's reading. */
static void write_hidden(struct buffer *out, const struct text_list *lines)
{
    buffer_byte(out, '{');
    for (size_t i = 0; i < lines->count; i++) {
        struct slice name = {"", 0}, value;
        (void)settings_header_split(slice_text(lines->items[i]), &name, &value);
        buffer_format(out, "%s\"%.*s: (hidden)\"", i ? ", " : "", (int)name.len, name.data);
    }
    buffer_byte(out, '}');
}

void settings_value_shown(struct buffer *out, const struct settings *s, const struct route_settings *route,
                          const struct setting *row)
{
    if (route && row == &settings_table[SETTING_ID_receipt_header]) {
        write_hidden(out, &route->receipt_header);
    } else if (!route && row == &settings_table[SETTING_ID_trace_header]) {
        write_hidden(out, &s->trace_header);
    } else {
        struct buffer whole = {0};
        settings_value_text(&whole, s, route, row);
        settings_url_shown(out, buffer_view(&whole));
        buffer_fini(&whole);
    }
}

static void print_row(struct buffer *out, const struct settings *s, const struct route_settings *route,
                      const struct setting *row)
{
    size_t start = out->len;
    const struct setting_origin *origins = route ? route->origins : s->origins;
    buffer_format(out, "%s%s", route ? "    " : "", row->name);
    pad(out, start, NAME_COLUMN);
    buffer_text(out, " = ");
    settings_value_shown(out, s, route, row);
    pad(out, start, ORIGIN_COLUMN);
    buffer_text(out, " # ");
    write_origin(out, s, origins[row - settings_table]);
    buffer_byte(out, '\n');
}

void settings_print(struct buffer *out, const struct settings *s)
{
    for (size_t i = 0; i < SETTING_ID_COUNT; i++)
        if (settings_table[i].scope == SETTING_SCOPE_GLOBAL)
            print_row(out, s, NULL, &settings_table[i]);
    for (size_t k = 0; k < s->route_count; k++) {
        const struct route_settings *r = s->routes[k];
        buffer_format(out, "\nroute \"%s\" {\n", r->name);
        for (size_t i = 0; i < SETTING_ID_COUNT; i++)
            if (settings_table[i].scope == SETTING_SCOPE_ROUTE)
                print_row(out, s, r, &settings_table[i]);
        buffer_text(out, "}\n");
    }
}

static const char *type_text(enum setting_type type)
{
    switch (type) {
    case SETTING_TEXT:
        return "text";
    case SETTING_LIST:
        return "list";
    case SETTING_TEMPLATE:
        return "template";
    case SETTING_DURATION:
        return "duration";
    case SETTING_LIFE:
        return "duration or forever";
    case SETTING_SIZE:
        return "size";
    case SETTING_COUNT:
        return "count";
    case SETTING_PERCENT:
        return "percent";
    case SETTING_BOOL:
        return "bool";
    case SETTING_JITTER:
        return "jitter";
    case SETTING_RECEIPT:
        return "receipt source";
    case SETTING_CHOICE:
        return "choice";
    }
    return "";
}

/* A `|` would end the cell of a table. */
static void write_cell(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            buffer_byte(out, '\\');
        buffer_byte(out, *text);
    }
}

static void document_bounds(struct buffer *out, const struct setting *row)
{
    switch (row->type) {
    case SETTING_DURATION:
    case SETTING_LIFE:
        duration_print(row->low, out);
        buffer_text(out, " to ");
        duration_print(row->high, out);
        break;
    case SETTING_SIZE:
        size_print(row->low, out);
        buffer_text(out, " to ");
        size_print(row->high, out);
        break;
    case SETTING_COUNT:
    case SETTING_PERCENT:
    case SETTING_JITTER:
        buffer_format(out, "%lld to %lld", (long long)row->low, (long long)row->high);
        break;
    case SETTING_CHOICE:
        buffer_byte(out, '`');
        write_cell(out, row->options);
        buffer_byte(out, '`');
        break;
    case SETTING_BOOL:
        buffer_text(out, "`true`, `false`");
        break;
    case SETTING_LIST:
        buffer_format(out, "%d items of %lld bytes", SETTINGS_LIST_MAX, (long long)row->high);
        break;
    default:
        buffer_format(out, "%lld bytes", (long long)row->high);
        break;
    }
}

static void document_scope(struct buffer *out, enum setting_scope scope)
{
    buffer_text(out, "| setting | type | bounds | default | change | |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < SETTING_ID_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        if (row->scope != scope)
            continue;
        buffer_format(out, "| `%s` | %s | ", row->name, type_text(row->type));
        document_bounds(out, row);
        if (row->preset[0])
            buffer_format(out, " | `%s` | ", row->preset);
        else
            buffer_text(out, " | (empty) | ");
        buffer_text(out, row->change == SETTING_CHANGE_RELOAD ? "reload | " : "restart | ");
        write_cell(out, row->sentence);
        buffer_text(out, " |\n");
    }
}

void settings_document(struct buffer *out)
{
    buffer_text(
        out, "# Configuration\n\n"
             "This page is made from the settings table by `samekey gateway --print-settings-doc`; change "
             "`src/core/settings.def`, not this page.\n\n"
             "```\n"
             "listen = {\"127.0.0.1:8080\"}\n"
             "store  = \"sqlite:/var/lib/samekey/receipts.db\"\n\n"
             "route \"orders\" {                       # the name is the scope of its keys: renaming it is a "
             "new scope\n"
             "    path     = {\"/orders\", \"/orders/{id}/cancel\"}\n"
             "    upstream = {\"http://127.0.0.1:9000\"}\n"
             "    receipt  = \"http GET /receipts/{call_id}\"\n"
             "    deadline = 30s   retries = 3\n"
             "}\n"
             "```\n\n"
             "* A list stands in braces. A text with anything but letters, digits and `. _ - : /` stands in "
             "double quotes; "
             "in them `\\\"` is a quote, and `${NAME}` is the environment variable NAME, which must be set "
             "(it may be empty); "
             "`${NAME:-TEXT}` is TEXT where it is not, and `\\$` the sign itself.\n"
             "* `#` and `//` begin a comment, `/* */` hold one.\n"
             "* Durations are whole numbers with `ms`, `s`, `m`, `h` or `d`, and `forever` where the table "
             "says so. Sizes "
             "are bytes, or have `k`, `m` or `g` behind them, in powers of 1024.\n"
             "* Every setting can be given as a flag too: `--set NAME=VALUE`, and `--set ROUTE.NAME=VALUE` "
             "for one route; "
             "a list is given by repeating the flag. Flags win over the file.\n"
             "* *reload*: SIGHUP is enough. *restart*: the gateway keeps the old value until it is started "
             "again, and says "
             "so.\n"
             "* One mistake anywhere and nothing starts; all mistakes are told at once, with file and line. "
             "`samekey gateway --check -c FILE` only reads. `samekey gateway --print-config -c FILE` shows "
             "every value and "
             "where it came from.\n\n"
             "## Settings at the top of the file\n\n");
    document_scope(out, SETTING_SCOPE_GLOBAL);
    buffer_text(out, "\n## Settings of a route\n\n");
    document_scope(out, SETTING_SCOPE_ROUTE);
}
