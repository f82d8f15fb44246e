/* SPDX-License-Identifier: MIT
 *
 * Any bytes as YAML or JSON through the readers of trees, one after the other.
 */
#include "fuzz_review.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum review_format formats[] = {FORMAT_ENVOY,  FORMAT_ISTIO, FORMAT_GRPC,
                                                 FORMAT_SPRING, FORMAT_MCP,   FORMAT_AUTO};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        fuzz_review(slice_of((const char *)data, size), formats[i]);
    return 0;
}
