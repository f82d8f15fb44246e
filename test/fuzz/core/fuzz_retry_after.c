/* SPDX-License-Identifier: MIT
 *
 * Any bytes as Retry-After, at several times of the clock: never a negative wait, never a wait from a value
 * with a sign or a fraction.
 */
#include "core/retry_after.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t clocks[] = {0, INT64_C(1772366400000), INT64_C(253402300799999), INT64_MAX, -1};
    struct slice value = slice_of((const char *)data, size);
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        int64_t wait = -1;
        enum status status = retry_after_parse(value, clocks[i], &wait);
        if ((status == STATUS_OK) != (wait >= 0))
            abort();
        struct slice bare = slice_trim(value);
        if (status == STATUS_OK &&
            (bare.data[0] == '-' || bare.data[0] == '+' || memchr(bare.data, '.', bare.len)))
            abort();
    }
    return 0;
}
