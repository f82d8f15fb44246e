/* SPDX-License-Identifier: MIT
 *
 * The `traceparent` header (W3C Trace Context). The trace id goes through unchanged; each attempt is a child
 * with a parent id of its own. Versions above 00 are read by their first four fields and sent on as 00, as
 * the specification asks of one who knows only 00. Upper-case digits, zero ids and version ff are invalid; an
 * invalid header is as none.
 */
#ifndef SAMEKEY_CORE_TRACEPARENT_H
#define SAMEKEY_CORE_TRACEPARENT_H

#include "base/slice.h"
#include "base/status.h"

#include <stdint.h>

#define TRACEPARENT_BYTES 55 /* 00-32 hex-16 hex-2 hex */

struct traceparent {
    uint8_t trace_id[16];
    uint8_t parent_id[8];
    uint8_t flags; /* bit 0: sampled; bit 1: the trace id is random */
};

/* STATUS_INVALID: not a traceparent; *out is as before. */
enum status traceparent_parse(struct slice value, struct traceparent *out);

/* A new trace from 192 random bits; not sampled. Zero ids are avoided whatever the bits. */
void traceparent_new(const uint64_t random[3], struct traceparent *out);

/* The child of t: same trace and flags (only those version 00 knows), parent id from 64 random bits. */
void traceparent_child(const struct traceparent *t, uint64_t random, struct traceparent *out);

/* Writes 55 bytes and a NUL. */
void traceparent_print(const struct traceparent *t, char out[TRACEPARENT_BYTES + 1]);

/* Writes the trace id's 32 hex digits and a NUL. */
void traceparent_trace_id(const struct traceparent *t, char out[33]);

#endif
