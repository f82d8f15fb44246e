/* SPDX-License-Identifier: MIT */
#include "gateway/console.h"

const struct console_asset *console_find(struct slice path)
{
    for (size_t i = 0; i < console_assets_count; i++) {
        if (slice_is(path, console_assets[i].path))
            return &console_assets[i];
    }
    return NULL;
}
