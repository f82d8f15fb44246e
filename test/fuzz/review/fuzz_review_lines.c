/* SPDX-License-Identifier: MIT
 *
 * Any bytes through the readers of lines, one after the other.
 */
#include "fuzz_review.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum review_format formats[] = {FORMAT_NGINX,  FORMAT_HAPROXY,  FORMAT_SHELL,
                                                 FORMAT_CELERY, FORMAT_RABBITMQ, FORMAT_PROPERTIES,
                                                 FORMAT_AUTO};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        fuzz_review(slice_of((const char *)data, size), formats[i]);
    return 0;
}
