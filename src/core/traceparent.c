/* SPDX-License-Identifier: MIT */
#include "core/traceparent.h"

#include "base/hex.h"

#define FLAGS_KNOWN                                                                                          \
    0x03 /* sampled, random trace id: the others must not be passed on by who does not know them */

static bool all_zero(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return any == 0;
}

enum status traceparent_parse(struct slice value, struct traceparent *out)
{
    value = slice_trim(value);
    struct traceparent t;
    uint8_t version = 0;
    const char *p = value.data;
    if (value.len < TRACEPARENT_BYTES || p[2] != '-' || p[35] != '-' || p[52] != '-')
        return STATUS_INVALID;
    if (!hex_read(slice_of(p, 2), &version, 1) || version == 0xff)
        return STATUS_INVALID;
    /* Version 00 ends here; a later one may go on behind a dash. */
    if (value.len > TRACEPARENT_BYTES && (version == 0 || p[TRACEPARENT_BYTES] != '-'))
        return STATUS_INVALID;
    if (!hex_read(slice_of(p + 3, 32), t.trace_id, 16) || !hex_read(slice_of(p + 36, 16), t.parent_id, 8) ||
        !hex_read(slice_of(p + 53, 2), &t.flags, 1))
        return STATUS_INVALID;
    if (all_zero(t.trace_id, 16) || all_zero(t.parent_id, 8))
        return STATUS_INVALID;
    *out = t;
    return STATUS_OK;
}

static void put_bits(uint64_t bits, uint8_t out[8])
{
    for (int i = 7; i >= 0; i--) {
        out[i] = (uint8_t)bits;
        bits >>= 8;
    }
}

/* Sixty-four zeros are as likely as any number, and mean "invalid" on the wire. */
static uint64_t not_zero(uint64_t bits)
{
    return bits ? bits : 1;
}

void traceparent_new(const uint64_t random[3], struct traceparent *out)
{
    put_bits(random[0], out->trace_id);
    put_bits(not_zero(random[1]), out->trace_id + 8);
    put_bits(not_zero(random[2]), out->parent_id);
    out->flags = 0x02;
}

void traceparent_child(const struct traceparent *t, uint64_t random, struct traceparent *out)
{
    struct traceparent child = *t;
    put_bits(not_zero(random), child.parent_id);
    child.flags &= FLAGS_KNOWN;
    *out = child;
}

void traceparent_print(const struct traceparent *t, char out[TRACEPARENT_BYTES + 1])
{
    memcpy(out, "00-", 3);
    hex_write(out + 3, t->trace_id, 16);
    out[35] = '-';
    hex_write(out + 36, t->parent_id, 8);
    out[52] = '-';
    hex_write(out + 53, &t->flags, 1);
    out[TRACEPARENT_BYTES] = '\0';
}

void traceparent_trace_id(const struct traceparent *t, char out[33])
{
    hex_write(out, t->trace_id, 16);
    out[32] = '\0';
}
