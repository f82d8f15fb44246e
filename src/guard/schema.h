/* SPDX-License-Identifier: MIT
 *
 * The guard's SQL, byte for byte as sql/guard.postgres.sql and sql/guard.sqlite.sql have it, ended by a NUL. Made at
 * build time (cmake/guard.cmake), so what `samekey schema` prints and what the libraries install is one text.
 */
#ifndef SAMEKEY_GUARD_SCHEMA_H
#define SAMEKEY_GUARD_SCHEMA_H

extern const char guard_schema_postgres[];
extern const char guard_schema_sqlite[];

#endif
