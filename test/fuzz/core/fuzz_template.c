/* SPDX-License-Identifier: MIT
 *
 * The first line is a template, the rest is what its parts stand for, cut at line ends and used in turn. A
 * key that is rendered is a key; a key template of two parts is rendered with the same text cut at another
 * place and must not give the same key.
 */
#include "core/fingerprint.h"
#include "core/key.h"
#include "core/template.h"

#include <stdint.h>
#include <stdlib.h>

static void must(bool holds)
{
    if (!holds)
        abort();
}

struct values {
    struct slice left;
};

static struct slice take_line(struct slice *text)
{
    const char *end = text->len ? memchr(text->data, '\n', text->len) : NULL;
    struct slice line = slice_of(text->data, end ? (size_t)(end - text->data) : text->len);
    size_t used = line.len + (end != NULL);
    *text = slice_of(text->len ? text->data + used : NULL, text->len - used);
    return line;
}

static bool lookup(void *context, enum template_source source, struct slice name, struct buffer *out)
{
    struct values *v = context;
    (void)source;
    (void)name;
    buffer_slice(out, take_line(&v->left));
    return true;
}

/* Two parts of the template get the two sides of a cut. */
struct cut {
    struct slice text;
    size_t at;
    unsigned asked;
};

static bool lookup_cut(void *context, enum template_source source, struct slice name, struct buffer *out)
{
    struct cut *c = context;
    (void)source;
    (void)name;
    if (c->asked++ % 2 == 0)
        buffer_append(out, c->text.data, c->at);
    else
        buffer_append(out, c->text.data + c->at, c->text.len - c->at);
    return true;
}

static void try_cuts(const struct template *t, struct slice text)
{
    struct buffer keys[8] = {0};
    size_t count = 0;
    for (size_t at = 1; at < text.len && count < 8; at++) {
        struct cut cut = {text, at, 0};
        struct template_inputs in = {lookup_cut, &cut, 0};
        if (template_render(t, &in, &keys[count], NULL) != STATUS_OK)
            continue;
        for (size_t i = 0; i < count; i++)
            must(!slice_equal(buffer_view(&keys[i]), buffer_view(&keys[count])));
        count++;
    }
    for (size_t i = 0; i < 8; i++)
        buffer_fini(&keys[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of((const char *)data, size), text = take_line(&rest);
    for (int use = TEMPLATE_FOR_KEY; use <= TEMPLATE_FOR_URL; use++) {
        struct template t = {0};
        struct template_error error = {0};
        if (template_compile(&t, text, (enum template_use)use, &error) != STATUS_OK) {
            must(error.message[0] && error.position <= text.len);
            continue;
        }
        struct values v = {rest};
        struct template_inputs in = {lookup, &v, INT64_C(1772366400000)};
        struct buffer out = {0};
        if (template_render(&t, &in, &out, NULL) == STATUS_OK && use == TEMPLATE_FOR_KEY)
            must(out.len == 0 || key_check(buffer_view(&out), NULL) == STATUS_OK);
        if (use == TEMPLATE_FOR_KEY && t.count == 2 && t.parts[0].source < TEMPLATE_DATE &&
            t.parts[1].source < TEMPLATE_DATE)
            try_cuts(&t, rest);
        buffer_fini(&out);
        template_fini(&t);
    }
    /* The rules of a fingerprint are text from a row: read, written, read again. */
    struct fingerprint_rules rules = {0};
    if (fingerprint_rules_parse(&rules, text) == STATUS_OK) {
        must(slice_equal(fingerprint_rules_text(&rules), text));
        fingerprint_rules_fini(&rules);
    }
    return 0;
}
