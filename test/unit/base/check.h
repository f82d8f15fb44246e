/* SPDX-License-Identifier: MIT
 *
 * What the unit tests of base and core share: cmocka in its right order, and comparing a buffer with a text.
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buffer.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* The buffer holds exactly this text; it is emptied for the next check. */
static inline void check_text(struct buffer *b, const char *expected)
{
    assert_string_equal(buffer_cstring(b), expected);
    assert_int_equal(b->len, strlen(expected));
    buffer_clear(b);
}

#endif
