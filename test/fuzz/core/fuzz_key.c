/* SPDX-License-Identifier: MIT
 *
 * Any bytes as an idempotency key and as a callId. A key that is read obeys the rule, and its quoted spelling
 * is the same key; the time of an id is only read from one that is accepted.
 */
#include "base/buffer.h"
#include "core/id.h"
#include "core/key.h"

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
    struct slice text = slice_of((const char *)data, size);
    struct key key, again;
    const char *why = NULL;
    if (key_parse(text, &key, &why) == STATUS_OK) {
        must(key_check(key_view(&key), NULL) == STATUS_OK);
        struct buffer quoted = {0};
        buffer_byte(&quoted, '"');
        for (size_t i = 0; i < key.len; i++) {
            if (key.bytes[i] == '"' || key.bytes[i] == '\\')
                buffer_byte(&quoted, '\\');
            buffer_byte(&quoted, key.bytes[i]);
        }
        buffer_byte(&quoted, '"');
        must(key_parse(buffer_view(&quoted), &again, &why) == STATUS_OK);
        must(slice_equal(key_view(&key), key_view(&again)));
        buffer_fini(&quoted);
    } else {
        must(why != NULL);
    }
    int64_t ms = -1;
    enum status checked = callid_check(text);
    if (callid_time(text, &ms) == STATUS_OK)
        must(checked == STATUS_OK && ms >= 0);
    if (size >= 2) {
        /* The bytes as prefix and node of a maker: what it makes is accepted and holds the time. */
        size_t cut = data[0] % size;
        struct callid_maker maker;
        char id[CALLID_BYTES_MAX + 1];
        if (callid_maker_init(&maker, slice_of(text.data + 1, cut),
                              slice_of(text.data + 1 + cut, size - 1 - cut), 1, 2, 1000) == STATUS_OK) {
            size_t len = callid_make(&maker, INT64_C(1772366400000), id);
            must(callid_check(slice_of(id, len)) == STATUS_OK);
            must(callid_time(slice_of(id, len), &ms) == STATUS_OK);
        }
    }
    return 0;
}
