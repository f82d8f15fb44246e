/* SPDX-License-Identifier: MIT
 *
 * Parameters in PostgreSQL's binary form. An array is: dimensions, whether it holds NULLs, the type of its elements,
 * then length and lower bound of its one dimension, then each element behind its length (-1: NULL). Bytes go in as they
 * are: nothing is escaped, nothing is read as text in some encoding.
 */
#include "store/postgres.h"

#include <endian.h>

#define OID_BYTES   17
#define OID_NUMBER  20
#define OID_BYTESS  1001
#define OID_NUMBERS 1016
#define OID_DIGEST  2950 /* uuid: sixteen bytes, whatever they are */
#define OID_DIGESTS 2951
#define ITEMS_AT    12 /* where the length of the dimension stands */

static void put32(struct buffer *b, uint32_t value)
{
    uint32_t wire = htobe32(value);
    buffer_append(b, &wire, sizeof wire);
}

static void put64(struct buffer *b, int64_t value)
{
    uint64_t wire = htobe64((uint64_t)value);
    buffer_append(b, &wire, sizeof wire);
}

void pg_args_clear(struct pg_args *args)
{
    for (int i = 0; i < args->count; i++)
        buffer_clear(&args->values[i]);
    args->count = 0;
}

void pg_args_fini(struct pg_args *args)
{
    for (int i = 0; i < PG_ARGS_MAX; i++)
        buffer_fini(&args->values[i]);
    args->count = 0;
}

static int next(struct pg_args *args, Oid type)
{
    int at = args->count++;
    buffer_clear(&args->values[at]);
    args->types[at] = type;
    args->items[at] = 0;
    return at;
}

int pg_arg_number(struct pg_args *args, int64_t value)
{
    int at = next(args, OID_NUMBER);
    put64(&args->values[at], value);
    return at;
}

int pg_arg_bytes(struct pg_args *args, struct slice bytes)
{
    int at = next(args, OID_BYTES);
    buffer_reserve(&args->values[at], 1); /* an empty value is not NULL */
    buffer_slice(&args->values[at], bytes);
    return at;
}

int pg_arg_digest(struct pg_args *args, const struct digest *digest)
{
    int at = next(args, OID_DIGEST);
    buffer_append(&args->values[at], digest->bytes, sizeof digest->bytes);
    return at;
}

static int array(struct pg_args *args, Oid type, Oid item)
{
    int at = next(args, type);
    struct buffer *b = &args->values[at];
    put32(b, 1), put32(b, 1), put32(b, item), put32(b, 0), put32(b, 1);
    return at;
}

int pg_arg_numbers(struct pg_args *args)
{
    return array(args, OID_NUMBERS, OID_NUMBER);
}

int pg_arg_many_bytes(struct pg_args *args)
{
    return array(args, OID_BYTESS, OID_BYTES);
}

int pg_arg_digests(struct pg_args *args)
{
    return array(args, OID_DIGESTS, OID_DIGEST);
}

static void count(struct pg_args *args, int at)
{
    struct buffer *b = &args->values[at];
    uint32_t wire = htobe32((uint32_t)++args->items[at]);
    if (!b->failed)
        memcpy(b->data + ITEMS_AT, &wire, sizeof wire);
}

void pg_add_number(struct pg_args *args, int at, int64_t value)
{
    put32(&args->values[at], sizeof value);
    put64(&args->values[at], value);
    count(args, at);
}

void pg_add_kept(struct pg_args *args, int at, struct slice bytes)
{
    put32(&args->values[at], (uint32_t)bytes.len);
    buffer_slice(&args->values[at], bytes);
    count(args, at);
}

void pg_add_bytes(struct pg_args *args, int at, struct slice bytes)
{
    if (bytes.len) {
        pg_add_kept(args, at, bytes);
        return;
    }
    put32(&args->values[at], UINT32_MAX);
    count(args, at);
}

void pg_add_digest(struct pg_args *args, int at, const struct digest *digest, bool has)
{
    pg_add_bytes(args, at, slice_of((const char *)digest->bytes, has ? sizeof digest->bytes : 0));
}

int64_t pg_number(const PGresult *result, int row, int column)
{
    const char *value = PQgetvalue(result, row, column);
    uint64_t eight;
    uint32_t four;
    uint16_t two;
    switch (PQgetisnull(result, row, column) ? 0 : PQgetlength(result, row, column)) {
    case 1:
        return *value;
    case 2:
        memcpy(&two, value, sizeof two);
        return (int16_t)be16toh(two);
    case 4:
        memcpy(&four, value, sizeof four);
        return (int32_t)be32toh(four);
    case 8:
        memcpy(&eight, value, sizeof eight);
        return (int64_t)be64toh(eight);
    default:
        return 0;
    }
}

struct slice pg_bytes(const PGresult *result, int row, int column)
{
    if (PQgetisnull(result, row, column))
        return slice_of(NULL, 0);
    return slice_of(PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column));
}
