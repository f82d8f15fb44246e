/* SPDX-License-Identifier: MIT
 *
 * Who this process is, for the callIds it makes: the host's name, and a maker whose tag no other living process of the
 * same node has (core/id.h). The one place that asks the system for these.
 */
#ifndef SAMEKEY_GATEWAY_NODE_H
#define SAMEKEY_GATEWAY_NODE_H

#include "base/slice.h"
#include "base/status.h"
#include "core/id.h"

/* Bytes of a node's name at most; a longer host name is cut. */
#define NODE_BYTES_MAX 32

/*
 * Writes the host's name up to its first dot, with every byte that a callId may not have as `-`, and a NUL.
 * A host without a name is `node`. Returns the length, 1 or more.
 */
size_t node_name(char out[NODE_BYTES_MAX + 1]);

/* The same for a given name; for tests. */
size_t node_clean(struct slice name, char out[NODE_BYTES_MAX + 1]);

/*
 * Starts a callId maker for this process; an empty node takes node_name(). STATUS_INVALID: prefix or node breaks the
 * rules of callIds. STATUS_IO: the system gave no random bytes.
 */
enum status node_callid_maker(struct callid_maker *m, struct slice prefix, struct slice node);

#endif
