/* SPDX-License-Identifier: MIT
 *
 * The calls of one trace together, for samekey receipt --trace.
 */
#ifndef SAMEKEY_CLI_TRACE_H
#define SAMEKEY_CLI_TRACE_H

#include <stdbool.h>

struct desk;

/* Asks the admin address for the trace's calls and prints them, the oldest first. Ends the desk. Returns the exit code: 0 all
 * SUCCESS; 3 one FAILED; 4 one UNKNOWN or running, or nobody answered; 5 none is known. */
int trace_show(struct desk *desk, const char *trace_id, const char *tenant, bool json);

#endif
