/* SPDX-License-Identifier: MIT
 *
 * The process's one maker of callIds. The time and counter of an id must strictly rise over the whole process, since its
 * tag is the process's; two makers of one process would meet at full speed. So this is the library's single piece of
 * process-wide state: one atomic number, no setting, nothing that one handle could change for another. A child made by
 * fork() notices its new process id and begins anew.
 */
#ifndef SAMEKEY_CALLER_IDS_H
#define SAMEKEY_CALLER_IDS_H

#include "core/id.h"

/* Makes `<prefix>-<unix ms>-<12 hex>-<node>`. Any number of threads. STATUS_INVALID: prefix or node is empty, holds a byte
 * that no callId has, they are longer than CALLID_NAMES_BYTES_MAX together, or the prefix itself looks like such an id.
 * STATUS_IO: the system gives no random bytes. */
enum status ids_make(struct slice prefix, struct slice node, int64_t unix_ms, char out[CALLID_BYTES_MAX + 1]);

/* The host's name as a node: bytes that no callId has become `-`; "node" where it has no name. */
#define IDS_NODE_BYTES_MAX 63
void ids_host_node(char out[IDS_NODE_BYTES_MAX + 1]);

#endif
