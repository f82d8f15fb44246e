/* SPDX-License-Identifier: MIT
 *
 * What the two halves of the PostgreSQL guard share: a statement with parameters, sent unnamed.
 */
#ifndef SAMEKEY_GUARD_POSTGRES_H_INSIDE
#define SAMEKEY_GUARD_POSTGRES_H_INSIDE

#include "guard/answer.h"

#include <libpq-fe.h>

enum { POSTGRES_PARAMS_MAX = 7, POSTGRES_INT_TEXT = 12 };

/* Parameters in the order they are added. Borrowed until the statement ran. */
struct postgres_params {
    int count;
    const char *values[POSTGRES_PARAMS_MAX];
    int lengths[POSTGRES_PARAMS_MAX], formats[POSTGRES_PARAMS_MAX];
};
void postgres_text(struct postgres_params *params, const char *text); /* NULL is NULL */
void postgres_bytes(struct postgres_params *params, const void *bytes, size_t len);

/* Runs one statement and gives its result, with columns as text, when it has exactly one row of `columns`. NULL: the
 * error says why; SAMEKEY_GUARD_DATABASE or _NO_MEMORY in *status. */
PGresult *postgres_ask(PGconn *conn, const char *sql, const struct postgres_params *params, int columns,
                       int *status, struct samekey_guard_error *error);

#endif
