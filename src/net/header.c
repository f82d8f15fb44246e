/* SPDX-License-Identifier: MIT
 *
 * Look-ups go through the list: requests carry a dozen fields, and a table would cost more to fill than it saves.
 */
#include "net/header.h"

struct slice headers_get(const struct headers *h, const char *name, bool *found)
{
    struct slice wanted = slice_text(name);
    for (size_t i = 0; i < h->count; i++) {
        if (slice_equal_nocase(h->list[i].name, wanted)) {
            if (found)
                *found = true;
            return h->list[i].value;
        }
    }
    if (found)
        *found = false;
    return slice_of(NULL, 0);
}

size_t headers_count(const struct headers *h, const char *name)
{
    struct slice wanted = slice_text(name);
    size_t count = 0;
    for (size_t i = 0; i < h->count; i++)
        count += slice_equal_nocase(h->list[i].name, wanted);
    return count;
}

bool headers_has_token(const struct headers *h, const char *name, const char *token)
{
    struct slice wanted = slice_text(name), sought = slice_text(token);
    for (size_t i = 0; i < h->count; i++) {
        if (!slice_equal_nocase(h->list[i].name, wanted))
            continue;
        struct slice rest = h->list[i].value;
        while (rest.len) {
            const char *comma = memchr(rest.data, ',', rest.len);
            size_t len = comma ? (size_t)(comma - rest.data) : rest.len;
            if (slice_equal_nocase(slice_trim(slice_of(rest.data, len)), sought))
                return true;
            size_t step = comma ? len + 1 : len;
            rest = slice_of(rest.data + step, rest.len - step);
        }
    }
    return false;
}
