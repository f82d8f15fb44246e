/* SPDX-License-Identifier: MIT */
#include "core/id.h"

#include "base/hex.h"

#include <assert.h>

#define MS_DIGITS    13
#define HEX_DIGITS   12
#define COUNTER_BITS 24
#define COUNTER_MASK ((UINT64_C(1) << COUNTER_BITS) - 1)
#define MS_MAX       INT64_C(9999999999999) /* what 13 digits hold: the year 2286 */
/* The state's milliseconds stay this far below 2^40, so that a clock that jumped decades ahead leaves room
 * for 2^50 more ids before the state could overflow. */
#define STATE_MS_MAX ((INT64_C(1) << 40) - (INT64_C(1) << 26))

static bool id_byte(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
}

static bool id_bytes(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!id_byte(s.data[i]))
            return false;
    return true;
}

enum status callid_check(struct slice id)
{
    return id.len >= 1 && id.len <= CALLID_BYTES_MAX && id_bytes(id) ? STATUS_OK : STATUS_INVALID;
}

/* Reads `-<13 digits>-<12 hex>-` at data, which has CALLID_OWN_BYTES bytes. */
static bool own_form(const char *data, int64_t *unix_ms)
{
    int64_t ms = 0;
    if (data[0] != '-' || data[1 + MS_DIGITS] != '-' || data[CALLID_OWN_BYTES - 1] != '-')
        return false;
    for (int i = 1; i <= MS_DIGITS; i++) {
        if (data[i] < '0' || data[i] > '9')
            return false;
        ms = ms * 10 + (data[i] - '0');
    }
    for (int i = 0; i < HEX_DIGITS; i++)
        if (hex_digit(data[MS_DIGITS + 2 + i], false) < 0)
            return false;
    *unix_ms = ms;
    return true;
}

enum status callid_time(struct slice id, int64_t *unix_ms)
{
    if (callid_check(id) != STATUS_OK || id.len < CALLID_OWN_BYTES + 2)
        return STATUS_NOT_FOUND;
    /* Prefix and node may hold dashes, so the middle is looked for: the first that fits, with a byte on each
     * side. */
    for (size_t at = 1; at + CALLID_OWN_BYTES < id.len; at++)
        if (own_form(id.data + at, unix_ms))
            return STATUS_OK;
    return STATUS_NOT_FOUND;
}

uint32_t callid_tag(uint32_t pid, uint64_t salt)
{
    /* An odd factor and a sum modulo 2^24: each can be undone, so no two pids meet. */
    uint32_t factor = (uint32_t)(salt >> 24) | 1;
    return (pid * factor + (uint32_t)salt) & (uint32_t)COUNTER_MASK;
}

static size_t write_id(const struct callid_maker *m, int64_t unix_ms, uint32_t counter, char *out)
{
    char *p = out;
    memcpy(p, m->prefix, m->prefix_len);
    p += m->prefix_len;
    *p++ = '-';
    for (int i = MS_DIGITS - 1; i >= 0; i--) {
        p[i] = (char)('0' + unix_ms % 10);
        unix_ms /= 10;
    }
    p += MS_DIGITS;
    *p++ = '-';
    const uint8_t bytes[6] = {(uint8_t)(m->tag >> 16),  (uint8_t)(m->tag >> 8),  (uint8_t)m->tag,
                              (uint8_t)(counter >> 16), (uint8_t)(counter >> 8), (uint8_t)counter};
    hex_write(p, bytes, sizeof bytes);
    p += HEX_DIGITS;
    *p++ = '-';
    memcpy(p, m->node, m->node_len);
    p += m->node_len;
    *p = '\0';
    return (size_t)(p - out);
}

enum status callid_maker_init(struct callid_maker *m, struct slice prefix, struct slice node, uint32_t tag,
                              uint32_t random_start, int64_t now_ms)
{
    if (prefix.len == 0 || node.len == 0 || prefix.len > CALLID_NAMES_BYTES_MAX ||
        node.len > CALLID_NAMES_BYTES_MAX - prefix.len || !id_bytes(prefix) || !id_bytes(node))
        return STATUS_INVALID;
    struct callid_maker made = {.prefix_len = prefix.len, .node_len = node.len, .tag = tag & COUNTER_MASK};
    memcpy(made.prefix, prefix.data, prefix.len);
    memcpy(made.node, node.data, node.len);

    /* A prefix that looks like an id of ours would be read instead of the real time: try it. */
    char trial[CALLID_BYTES_MAX + 1];
    int64_t read_ms = -1;
    size_t len = write_id(&made, MS_MAX, 0, trial);
    if (callid_time(slice_of(trial, len), &read_ms) != STATUS_OK || read_ms != MS_MAX)
        return STATUS_INVALID;

    memcpy(m->prefix, made.prefix, sizeof m->prefix);
    memcpy(m->node, made.node, sizeof m->node);
    m->prefix_len = made.prefix_len;
    m->node_len = made.node_len;
    m->tag = made.tag;
    m->epoch_ms = now_ms < 0 ? 0 : now_ms;
    atomic_init(&m->state, random_start & COUNTER_MASK);
    return STATUS_OK;
}

size_t callid_make(struct callid_maker *m, int64_t now_ms, char out[CALLID_BYTES_MAX + 1])
{
    int64_t since = now_ms > m->epoch_ms ? now_ms - m->epoch_ms : 0;
    if (since > STATE_MS_MAX)
        since = STATE_MS_MAX;
    uint64_t last = atomic_load_explicit(&m->state, memory_order_relaxed), next;
    do {
        /* The clock's millisecond with the counter going on, if that is ahead of what was used; else one more
         * than what was used, which carries into the millisecond when the counter is full. */
        uint64_t by_clock = (uint64_t)since << COUNTER_BITS | ((last + 1) & COUNTER_MASK);
        next = (uint64_t)since > last >> COUNTER_BITS ? by_clock : last + 1;
        assert(next > last);
    } while (!atomic_compare_exchange_weak_explicit(&m->state, &last, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    int64_t unix_ms = m->epoch_ms + (int64_t)(next >> COUNTER_BITS);
    return write_id(m, unix_ms > MS_MAX ? MS_MAX : unix_ms, (uint32_t)(next & COUNTER_MASK), out);
}
