/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a date in each form, a duration and a size. What is read, is printed and read again as the
 * same.
 */
#include "base/civil.h"
#include "base/duration.h"

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
    struct buffer out = {0};
    int64_t ms = 0, again = 0;
    int minutes = 0;
    if (civil_parse_rfc3339(text, &ms) == STATUS_OK) {
        civil_print_rfc3339(ms, &out);
        must(civil_parse_rfc3339(buffer_view(&out), &again) == STATUS_OK && again == ms);
        buffer_clear(&out);
    }
    static const int64_t clocks[] = {0,        INT64_C(1772366400000), CIVIL_MS_MIN, CIVIL_MS_MAX, INT64_MAX,
                                     INT64_MIN};
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        if (civil_parse_http(text, clocks[i], &ms) == STATUS_OK) {
            must(ms >= CIVIL_MS_MIN && ms <= CIVIL_MS_MAX + 1000); /* a leap second may end the last year */
            if (ms <= CIVIL_MS_MAX) {
                civil_print_http(ms, &out);
                must(civil_parse_http(buffer_view(&out), clocks[i], &again) == STATUS_OK && again == ms);
                buffer_clear(&out);
            }
        }
    }
    if (civil_parse_offset(text, &minutes) == STATUS_OK)
        must(minutes > -1440 && minutes < 1440);
    if (duration_parse(text, &ms) == STATUS_OK) {
        duration_print(ms, &out);
        must(duration_parse(buffer_view(&out), &again) == STATUS_OK && again == ms);
        buffer_clear(&out);
    }
    if (size_parse(text, &ms) == STATUS_OK) {
        size_print(ms, &out);
        must(size_parse(buffer_view(&out), &again) == STATUS_OK && again == ms);
    }
    buffer_fini(&out);
    return 0;
}
