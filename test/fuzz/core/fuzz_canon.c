/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a JSON body. What must hold: no crash; a body that has a form keeps it under other white space
 * around it, in a list and out; looking up never finds a value in a text that has no form.
 */
#include "core/canon.h"
#include "core/json_value.h"

#include <stdint.h>
#include <stdlib.h>

static void must(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct canon first, second;
    struct canon_path ignore, compare;
    struct canon_fault fault = {0};
    struct slice text = slice_of((const char *)data, size), form, other;
    struct json_value value;

    enum status status = canon_form(&first, text, NULL, &form, &fault);
    if (status == STATUS_INVALID)
        must(fault.message && fault.position <= size);

    struct buffer wrapped = {0};
    buffer_text(&wrapped, "\n[ ");
    buffer_slice(&wrapped, text);
    buffer_text(&wrapped, "\t]");
    if (status == STATUS_OK) {
        enum status inside = canon_form(&second, buffer_view(&wrapped), NULL, &other, &fault);
        /* One level deeper may be one too many. */
        if (inside == STATUS_OK)
            must(other.len == form.len + 2 && memcmp(other.data + 1, form.data, form.len) == 0);
        must(json_find(text, slice_of(NULL, 0), &value) == STATUS_OK);
    }
    if (json_find(text, slice_text("a.0"), &value) == STATUS_OK) {
        struct buffer out = {0};
        json_value_text(&value, &out);
        buffer_fini(&out);
    }
    must(canon_path_parse(slice_text("a.*"), &ignore) == STATUS_OK);
    must(canon_path_parse(slice_text("a"), &compare) == STATUS_OK);
    struct canon_rules rules = {&ignore, 1, &compare, 1};
    enum status ruled = canon_form(&second, text, &rules, &other, &fault);
    must(ruled == status); /* rules never make a bad body good */
    buffer_fini(&wrapped);
    return 0;
}
