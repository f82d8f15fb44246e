/* SPDX-License-Identifier: MIT
 *
 * Reading the configuration: one file (libconfuse), then flags over it, then the checks of core/settings. All
 * errors are told, each with file, line, name, bounds and remedy; after one error nothing starts (CONTRACT
 * section 7).
 *
 * Any thread may load; libconfuse keeps its scanner in globals, so one load waits for another.
 */
#ifndef SAMEKEY_GATEWAY_CONF_H
#define SAMEKEY_GATEWAY_CONF_H

#include "base/buffer.h"
#include "base/status.h"
#include "core/settings.h"

#include <stdbool.h>
#include <stddef.h>

/* Bytes of a configuration file at most. */
#define CONF_FILE_BYTES_MAX (4 * 1024 * 1024)

/* One `name=value` of the command line. A list setting named by several flags gets all their values. */
struct conf_flag {
    const char *name;   /* a setting's name, or ROUTE.NAME for one route only */
    const char *value;  /* as the file would spell it, without quotes */
    const char *option; /* how the user wrote it, for messages: "--upstream", "--set" */
};

/* What the command line says. A route setting without a route's name holds for every route. */
struct conf_flags {
    const struct conf_flag *items;
    size_t count;
};

/*
 * Reads `path` (NULL: no file) and the flags. Without a file one route `default` is made: path /{*},
 * key_missing = pass, receipt = none. STATUS_OK: *out is yours (conf_free) and `errors` holds the warnings,
 * one a line. STATUS_INVALID: `errors` holds every error and warning, one a line. STATUS_NOT_FOUND,
 * STATUS_IO: the file cannot be read. STATUS_NO_MEMORY. *out is set only with STATUS_OK. Keep `path` and
 * `flags` for a reload by SIGHUP.
 */
enum status conf_load(struct settings **out, const char *path, const struct conf_flags *flags,
                      struct buffer *errors);

/* Called for every problem that conf_review() finds; `file` is never NULL: the path, or "command line". */
typedef void conf_problem_fn(void *context, const char *file, const struct settings_problem *problem);

/* As conf_load(), for `samekey check`: tells errors, warnings and notes one by one, and gives no settings. */
enum status conf_review(const char *path, conf_problem_fn *report, void *context);

/*
 * Reads a token file: its first line without spaces around it, 16 bytes at least (CONF_TOKEN_BYTES_MIN), so that
 * nobody guards an API with an empty file. STATUS_IO, STATUS_INVALID: one sentence is added to `why`.
 */
enum status conf_token(const char *path, struct buffer *token, struct buffer *why);
#define CONF_TOKEN_BYTES_MIN 16
#define CONF_TOKEN_BYTES_MAX 256

/* Frees settings made by conf_load(); NULL is accepted. */
void conf_free(struct settings *s);

/*
 * What of a new configuration a running gateway cannot take over by SIGHUP: adds one line for each RESTART
 * setting that differs, and one for each route name that went or came (a new scope). Returns the number of
 * lines.
 */
size_t conf_changes(const struct settings *before, const struct settings *after, struct buffer *lines);

#endif
