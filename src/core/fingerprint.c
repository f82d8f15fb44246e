/* SPDX-License-Identifier: MIT */
#include "core/fingerprint.h"

#include "core/json_value.h"

#define RULES_ARENA_BYTES ((size_t)64 << 10)
#define BOUNDARY_MAX      200 /* bytes; RFC 2046 section 5.1.1 allows 70, senders use a few more */

/* ---- rules ---- */

/* Takes the next item off a comma-separated list, trimmed. */
static bool next_item(struct slice *list, struct slice *item)
{
    if (!list->data)
        return false;
    const char *comma = list->len ? memchr(list->data, ',', list->len) : NULL;
    size_t len = comma ? (size_t)(comma - list->data) : list->len;
    *item = slice_trim(slice_of(list->data, len));
    *list = comma ? slice_of(comma + 1, list->len - len - 1) : slice_of(NULL, 0);
    return true;
}

struct path_list {
    struct slice path[CANON_PATHS_MAX]; /* with `json.` in front */
    size_t count;
};

/* Adds one path in order; one that is there already is left out. */
static enum status add_path(struct path_list *l, struct slice text, const char **why)
{
    struct slice bare;
    struct canon_path parsed;
    if (json_path_strip(text, &bare) != STATUS_OK) {
        *why = "a path into the body begins with `json.`, as in json.amount";
        return STATUS_INVALID;
    }
    enum status status = canon_path_parse(bare, &parsed);
    if (status != STATUS_OK) {
        *why = status == STATUS_FULL ? "the path has more than 16 names"
                                     : "the path has an empty name, or a space, comma or quote in one";
        return status;
    }
    size_t at = l->count;
    for (; at > 0; at--) {
        struct slice other = l->path[at - 1];
        size_t common = other.len < text.len ? other.len : text.len;
        int order = memcmp(other.data, text.data, common);
        if (order == 0 && other.len == text.len)
            return STATUS_OK;
        if (order < 0 || (order == 0 && other.len < text.len))
            break;
    }
    if (l->count == CANON_PATHS_MAX) {
        *why = "there are more than 32 paths";
        return STATUS_FULL;
    }
    memmove(&l->path[at + 1], &l->path[at], (l->count - at) * sizeof l->path[0]);
    l->path[at] = text;
    l->count++;
    return STATUS_OK;
}

static void write_list(struct buffer *out, const char *name, const struct path_list *l)
{
    if (l->count == 0)
        return;
    if (out->len)
        buffer_byte(out, ' ');
    buffer_text(out, name);
    for (size_t i = 0; i < l->count; i++) {
        buffer_byte(out, i ? ',' : '=');
        buffer_slice(out, l->path[i]);
    }
}

/* The paths as canon wants them; their text is the rules' own. */
static struct canon_path *parse_list(struct arena *memory, struct slice list, size_t count)
{
    struct canon_path *paths = arena_take(memory, count * sizeof *paths);
    struct slice item, bare;
    for (size_t i = 0; paths && i < count && next_item(&list, &item); i++) {
        /* They were parsed before they were written. */
        if (json_path_strip(item, &bare) != STATUS_OK || canon_path_parse(bare, &paths[i]) != STATUS_OK)
            return NULL;
    }
    return paths;
}

static struct slice list_behind(struct slice text, const char *name)
{
    size_t len = strlen(name);
    const char *at = text.len ? memmem(text.data, text.len, name, len) : NULL;
    if (!at)
        return slice_of(NULL, 0);
    at += len;
    size_t left = (size_t)(text.data + text.len - at);
    const char *space = memchr(at, ' ', left);
    return slice_of(at, space ? (size_t)(space - at) : left);
}

static enum status build(struct fingerprint_rules *r, const struct path_list *compare,
                         const struct path_list *ignore, const char **why)
{
    struct fingerprint_rules made = {0};
    arena_init(&made.memory, RULES_ARENA_BYTES);
    made.text.max = FINGERPRINT_RULES_MAX;
    write_list(&made.text, "compare", compare);
    write_list(&made.text, "ignore", ignore);
    struct canon_path *compare_paths = NULL, *ignore_paths = NULL;
    if (made.text.failed) {
        *why = "the rules are longer than 4096 bytes in all";
        fingerprint_rules_fini(&made);
        return STATUS_FULL;
    }
    /* A path holds no space, and `compare=` stands first: neither name can be found inside a path. */
    struct slice text = buffer_view(&made.text);
    if (compare->count)
        compare_paths = parse_list(&made.memory, list_behind(text, "compare="), compare->count);
    if (ignore->count) {
        struct slice list = compare->count ? list_behind(text, " ignore=") : list_behind(text, "ignore=");
        ignore_paths = parse_list(&made.memory, list, ignore->count);
    }
    if ((compare->count && !compare_paths) || (ignore->count && !ignore_paths)) {
        fingerprint_rules_fini(&made);
        return STATUS_NO_MEMORY;
    }
    made.rules = (struct canon_rules){.ignore = ignore_paths,
                                      .ignore_count = ignore->count,
                                      .compare = compare_paths,
                                      .compare_count = compare->count};
    *r = made;
    return STATUS_OK;
}

enum status fingerprint_rules_compile(struct fingerprint_rules *r, struct slice compare,
                                      const struct slice *ignore, size_t ignore_count, const char **why,
                                      struct slice *where)
{
    struct path_list compared = {.count = 0}, ignored = {.count = 0};
    const char *sentence = NULL;
    struct slice item = compare;
    enum status status = STATUS_OK;
    compare = slice_trim(compare);
    if (compare.len && !slice_is(compare, "body"))
        while (status == STATUS_OK && next_item(&compare, &item))
            status = add_path(&compared, item, &sentence);
    for (size_t i = 0; status == STATUS_OK && i < ignore_count; i++) {
        item = slice_trim(ignore[i]);
        status = add_path(&ignored, item, &sentence);
    }
    if (status == STATUS_OK)
        status = build(r, &compared, &ignored, &sentence);
    if (status != STATUS_OK && why)
        *why = sentence ? sentence : "out of memory";
    if (status != STATUS_OK && where)
        *where = item;
    return status;
}

struct slice fingerprint_rules_text(const struct fingerprint_rules *r)
{
    return buffer_view(&r->text);
}

enum status fingerprint_rules_parse(struct fingerprint_rules *r, struct slice text)
{
    struct path_list compared = {.count = 0}, ignored = {.count = 0};
    const char *sentence = NULL;
    struct slice rest = text, item;
    while (rest.len) {
        const char *space = memchr(rest.data, ' ', rest.len);
        struct slice word = slice_of(rest.data, space ? (size_t)(space - rest.data) : rest.len);
        rest = space ? slice_of(space + 1, rest.len - word.len - 1) : slice_of(NULL, 0);
        struct path_list *list = NULL;
        size_t name = 0;
        if (word.len > 8 && memcmp(word.data, "compare=", 8) == 0) {
            list = &compared;
            name = 8;
        } else if (word.len > 7 && memcmp(word.data, "ignore=", 7) == 0) {
            list = &ignored;
            name = 7;
        } else {
            return STATUS_INVALID;
        }
        struct slice items = slice_of(word.data + name, word.len - name);
        while (next_item(&items, &item))
            if (add_path(list, item, &sentence) != STATUS_OK)
                return STATUS_INVALID;
    }
    struct fingerprint_rules made;
    enum status status = build(&made, &compared, &ignored, &sentence);
    if (status != STATUS_OK)
        return status == STATUS_NO_MEMORY ? status : STATUS_INVALID;
    /* Only what we would write ourselves is ours: in this order, sorted, once each. */
    if (!slice_equal(fingerprint_rules_text(&made), text)) {
        fingerprint_rules_fini(&made);
        return STATUS_INVALID;
    }
    *r = made;
    return STATUS_OK;
}

void fingerprint_rules_fini(struct fingerprint_rules *r)
{
    if (!r)
        return;
    buffer_fini(&r->text);
    arena_fini(&r->memory);
    r->rules = (struct canon_rules){0};
}

/* ---- content types ---- */

static struct slice media_type(struct slice content_type)
{
    const char *semicolon = content_type.len ? memchr(content_type.data, ';', content_type.len) : NULL;
    return slice_trim(
        slice_of(content_type.data, semicolon ? (size_t)(semicolon - content_type.data) : content_type.len));
}

static bool is_json(struct slice type)
{
    if (slice_is_nocase(type, "application/json"))
        return true;
    return type.len > 5 && memchr(type.data, '/', type.len) &&
           slice_is_nocase(slice_of(type.data + type.len - 5, 5), "+json");
}

static bool is_multipart(struct slice type)
{
    return type.len > 10 && slice_is_nocase(slice_of(type.data, 10), "multipart/");
}

/* The boundary parameter (RFC 9110 section 5.6.6), unquoted into out; 0 if there is none. */
static size_t boundary_of(struct slice content_type, char out[BOUNDARY_MAX])
{
    struct slice left = content_type;
    const char *semicolon = memchr(left.data, ';', left.len);
    while (semicolon) {
        left = slice_trim(slice_of(semicolon + 1, (size_t)(left.data + left.len - semicolon - 1)));
        const char *equals = left.len ? memchr(left.data, '=', left.len) : NULL;
        if (!equals)
            return 0;
        bool wanted = slice_is_nocase(slice_of(left.data, (size_t)(equals - left.data)), "boundary");
        size_t at = (size_t)(equals - left.data) + 1, len = 0;
        bool quoted = at < left.len && left.data[at] == '"';
        for (at += quoted; at < left.len; at++) {
            char c = left.data[at];
            if (quoted ? c == '"' : c == ';' || c == ' ' || c == '\t')
                break;
            if (quoted && c == '\\' && ++at < left.len)
                c = left.data[at];
            if (wanted && len == BOUNDARY_MAX)
                return 0;
            if (wanted)
                out[len++] = c;
        }
        if (wanted)
            return quoted && at >= left.len ? 0 : len;
        semicolon = at < left.len ? memchr(left.data + at, ';', left.len - at) : NULL;
    }
    return 0;
}

/* ---- multipart ---- */

/* Takes the next part of a body that is cut at its delimiters; `left` begins behind a delimiter's
 * `--boundary`. Returns 1 with a part, 0 at the proper end, -1 for a body that does not follow its boundary.
 */
static int next_part(struct slice *left, struct slice delimiter, struct slice *head, struct slice *content)
{
    if (left->len >= 2 && memcmp(left->data, "--", 2) == 0)
        return left->len == 2 || (left->len == 4 && memcmp(left->data + 2, "\r\n", 2) == 0) ? 0 : -1;
    if (left->len < 2 || memcmp(left->data, "\r\n", 2) != 0)
        return -1;
    /* From the CRLF of the delimiter's own line, which is also the one in front of an empty part's next
     * delimiter. */
    const char *end = memmem(left->data, left->len, delimiter.data, delimiter.len);
    if (!end)
        return -1;
    struct slice part = slice_of(left->data, (size_t)(end - left->data));
    const char *blank = memmem(part.data, part.len, "\r\n\r\n", 4);
    if (!blank)
        return -1;
    *head = slice_of(part.data, (size_t)(blank - part.data) + 2);
    size_t used = head->len + 2;
    *content = slice_of(part.data + used, part.len - used);
    *left = slice_of(end + delimiter.len, left->len - part.len - delimiter.len);
    return 1;
}

/* Adds the parts; false, with nothing added, if the body does not follow its boundary. */
static bool add_multipart(struct hasher *h, struct slice body, struct slice content_type)
{
    char text[4 + BOUNDARY_MAX] = "\r\n--";
    size_t len = boundary_of(content_type, text + 4);
    if (len == 0)
        return false;
    struct slice delimiter = slice_of(text, 4 + len), head, content;
    if (body.len < 2 + len || memcmp(body.data, text + 2, 2 + len) != 0)
        return false;
    struct slice behind = slice_of(body.data + 2 + len, body.len - 2 - len), left = behind;
    int found = 0;
    while ((found = next_part(&left, delimiter, &head, &content)) > 0)
        continue;
    if (found < 0)
        return false;
    hasher_add(h, "m", 1);
    while (next_part(&behind, delimiter, &head, &content) > 0) {
        hasher_part(h, head);
        hasher_part(h, content);
    }
    return true;
}

/* ---- the fingerprint ---- */

enum status fingerprinter_init(struct fingerprinter *f)
{
    f->canon = (struct canon){0};
    return hasher_init(&f->hasher);
}

void fingerprinter_fini(struct fingerprinter *f)
{
    if (!f)
        return;
    hasher_fini(&f->hasher);
    canon_fini(&f->canon);
}

enum status fingerprint_make(struct fingerprinter *f, int version, const struct fingerprint_rules *rules,
                             const struct fingerprint_input *in, struct digest32 *out,
                             struct canon_fault *fault)
{
    static const struct slice kind = SLICE_LITERAL("samekey fingerprint 1");
    if (version != FINGERPRINT_VERSION)
        return STATUS_NOT_FOUND;
    struct hasher *h = &f->hasher;
    hasher_begin(h);
    hasher_part(h, kind);
    hasher_part(h, in->method);
    hasher_part(h, in->target);

    struct slice encoding = slice_trim(in->content_encoding), type = media_type(in->content_type);
    bool readable = encoding.len == 0 || slice_is_nocase(encoding, "identity");
    if (in->body.len == 0) {
        hasher_add(h, "0", 1);
    } else if (readable && is_json(type)) {
        hasher_add(h, "j", 1);
        enum status status = canon_add(&f->canon, in->body, rules ? &rules->rules : NULL, h, fault);
        if (status != STATUS_OK)
            return status;
    } else if (!readable || !is_multipart(type) || !add_multipart(h, in->body, in->content_type)) {
        hasher_add(h, "b", 1);
        hasher_part(h, in->body);
    }
    hasher_end(h, out);
    return STATUS_OK;
}
