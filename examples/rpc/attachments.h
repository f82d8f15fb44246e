/* SPDX-License-Identifier: MIT
 *
 * The wire of this example: a frame is one line, `name=value;name=value`, as a small RPC framework might carry
 * attachments. Names are those of samekey's message headers: x-call-id, x-idempotency-key, x-call-attempt.
 */
#ifndef EXAMPLE_ATTACHMENTS_H
#define EXAMPLE_ATTACHMENTS_H

#include <stdio.h>
#include <string.h>

#define FRAME_BYTES_MAX 1024

/* Copies the value of a name into out; 0 if the frame has none that fits. */
static inline int attachment(const char *frame, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    for (const char *p = frame; p && *p; p = strchr(p, ';') ? strchr(p, ';') + 1 : NULL) {
        if (strncmp(p, name, len) == 0 && p[len] == '=') {
            size_t n = strcspn(p + len + 1, ";\n");
            if (n >= size)
                return 0;
            memcpy(out, p + len + 1, n);
            out[n] = 0;
            return 1;
        }
    }
    return 0;
}

#endif
