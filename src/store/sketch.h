/* SPDX-License-Identifier: MIT
 *
 * A sketch of one block of calls: a Bloom filter over the texts that people search by. It answers "not in this block"
 * for sure, or "may be". With one sketch for SKETCH_ROWS calls a search reads some kilobytes instead of all rows, and
 * claims and endings pay for no index.
 *
 * Always true: a text that was added is never denied. A text that was not is taken for one about once in 700 times
 * when all rows of a block have different texts (4 texts a row, 15 bits each, 6 probes), which costs a look.
 *
 * Sketches are kept on disk: the hash below is part of the format.
 */
#ifndef SAMEKEY_STORE_SKETCH_H
#define SAMEKEY_STORE_SKETCH_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

#define SKETCH_BYTES 1920 /* two fit a page of 4096 bytes */
#define SKETCH_ROWS  256

/* What a text is: the same text as a key and as a trace id are two terms. The numbers are part of the format. */
enum sketch_kind {
    SKETCH_TENANT = 1,
    SKETCH_ROUTE = 2,
    SKETCH_CALL_ID = 3,
    SKETCH_KEY = 4,
    SKETCH_BUSINESS_REF = 5,
    SKETCH_TRACE_ID = 6,
    SKETCH_STATE = 7, /* the text is the state's; of rows that may still change, every state's */
};

struct sketch {
    uint8_t bits[SKETCH_BYTES]; /* starts as zero bytes */
};

void sketch_add(struct sketch *sketch, enum sketch_kind kind, struct slice text);

/* A term made ready, so that many sketches can be asked for one price. */
struct sketch_term {
    uint64_t first, step;
};
struct sketch_term sketch_term(enum sketch_kind kind, struct slice text);
/* False: certainly not in it. `bits` has SKETCH_BYTES bytes. */
bool sketch_may_have(const uint8_t *bits, const struct sketch_term *term);

#endif
