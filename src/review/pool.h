/* SPDX-License-Identifier: MIT
 *
 * Memory that lives as long as one review and is freed at once. A failed allocation is remembered, so that the
 * readers, which allocate in many small steps, check once at the end. The sum is bounded: a small hostile file
 * must not become gigabytes.
 */
#ifndef SAMEKEY_REVIEW_POOL_H
#define SAMEKEY_REVIEW_POOL_H

#include "base/slice.h"

#include <stdarg.h>

/* Bytes one review may allocate in all. */
#define POOL_BYTES_MAX ((size_t)256 << 20)

struct pool_block;

struct pool {
    struct pool_block *blocks;
    size_t bytes;
    bool failed; /* an allocation failed or POOL_BYTES_MAX was reached */
};

/* Zeroed memory, aligned for any type; NULL with failed set. */
void *pool_alloc(struct pool *p, size_t bytes);

/* A NUL-terminated copy; "" with failed set. */
const char *pool_copy(struct pool *p, struct slice s);

/* A formatted text; "" with failed set. */
const char *pool_format(struct pool *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *pool_vformat(struct pool *p, const char *format, va_list args);

/* Frees everything that came from it. */
void pool_fini(struct pool *p);

#endif
