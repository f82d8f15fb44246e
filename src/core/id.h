/* SPDX-License-Identifier: MIT
 *
 * callIds: which ones we accept, the time inside our own, and the maker of new ones (CONTRACT section 2).
 *
 * Ours look like `ord-1710000000000-a3f91c07b2e4-node07`: prefix, unix milliseconds (13 digits), 6 hex of the
 * process's tag, 6 hex of its counter, node. What makes an id never come twice:
 *
 * (1) Within one maker, whatever the threads, the rate and the clock: (ms, counter) strictly increases. Both
 *     live in one 64-bit atomic. When the counter's 24 bits are used up within a millisecond, or the clock
 *     goes back, the used millisecond runs ahead of the clock instead of repeating a pair.
 * (2) Between processes of one node that live at the same time: their tags differ. callid_tag() is one-to-one
 *     in the process id, and two living processes of one pid namespace never have the same process id.
 *     Containers have namespaces of their own, so the salt names the namespace and the boot; two namespaces
 *     under one node name share a tag with chance 2^-24 per pair of processes, and must then also meet in
 *     millisecond and counter. Give containers different node names (the host name is the default) and this
 *     goes away.
 * (3) Between a process and a later one with the same process id: time has moved on, unless the clock was set
 *     back over the life of the first; then the random start of the counter (2^-24 for each id made in the
 *     doubled milliseconds) stands between them. Between nodes: the node names differ.
 *
 * A child made by fork() shares its parent's state and must make a maker of its own.
 */
#ifndef SAMEKEY_CORE_ID_H
#define SAMEKEY_CORE_ID_H

#include "base/slice.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

#define CALLID_BYTES_MAX       128
#define CALLID_OWN_BYTES       28  /* of ours, without prefix and node: three dashes, 13 digits, 12 hex */
#define CALLID_NAMES_BYTES_MAX 100 /* prefix and node together */

/* STATUS_OK for 1 to 128 bytes of A-Z a-z 0-9 . _ : - and STATUS_INVALID otherwise. */
enum status callid_check(struct slice id);

/* Reads the unix milliseconds out of an id of our own form, whoever made it. STATUS_NOT_FOUND: not of that
 * form. */
enum status callid_time(struct slice id, int64_t *unix_ms);

/* The tag of a process, 24 bits: one-to-one in pid (below 2^24; Linux stays below 2^22) for one salt. The
 * shell makes the salt from what all processes of a pid namespace share and others do not: boot id, pid
 * namespace, node name. */
uint32_t callid_tag(uint32_t pid, uint64_t salt);

struct callid_maker {
    char prefix[CALLID_NAMES_BYTES_MAX + 1];
    char node[CALLID_NAMES_BYTES_MAX + 1];
    size_t prefix_len, node_len;
    uint32_t tag;
    int64_t epoch_ms;        /* the state's milliseconds count from here */
    _Atomic(uint64_t) state; /* 40 bits of milliseconds, 24 bits of counter: the last pair used */
};

/* Starts a maker. prefix and node: callId bytes, 1 or more each, 100 together at most. tag and random_start:
 * 24 bits each, the first from callid_tag(), the second from the system's random source. now_ms is the wall
 * clock. STATUS_INVALID: prefix or node breaks the rule, or the prefix itself looks like one of our ids, so
 * that the time could not be read back. Must not be called while another thread makes ids. */
enum status callid_maker_init(struct callid_maker *m, struct slice prefix, struct slice node, uint32_t tag,
                              uint32_t random_start, int64_t now_ms);

/* Makes the next id; now_ms is the wall clock. Writes it with a NUL and returns its length. Any number of
 * threads. */
size_t callid_make(struct callid_maker *m, int64_t now_ms, char out[CALLID_BYTES_MAX + 1]);

#endif
