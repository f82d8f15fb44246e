/* SPDX-License-Identifier: MIT
 *
 * Answers from any upstream, in two cuts: the verdict must not depend on how the bytes arrive, an accepted head keeps the
 * promises of the strict reader, and the body that comes out is what the framing says.
 * The first byte of the input is the size of the pieces, and its highest bit says that HEAD was asked.
 */
#include "net/message.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX  2000
#define FIELDS_MAX 20

struct outcome {
    enum shim_verdict verdict;
    bool head_done;
    size_t used, body_bytes;
    uint64_t body_hash;
};

static struct outcome read_in_pieces(struct message *m, const char *text, size_t len, size_t step,
                                     bool to_head)
{
    struct outcome o = {.body_hash = 1469598103934665603u};
    message_start(m, true, BYTES_MAX, FIELDS_MAX);
    m->no_body = to_head;
    size_t end = 0;
    while (o.verdict == SHIM_MORE && (end < len || o.used < end)) {
        end = len - end < step ? len : end + step;
        while (o.verdict == SHIM_MORE && o.used < end) {
            size_t taken = 0;
            struct slice piece = {NULL, 0};
            o.verdict = o.head_done ? message_body(m, text + o.used, end - o.used, &taken, &piece)
                                    : message_head(m, text + o.used, end - o.used, &taken);
            if (o.verdict == SHIM_REFUSED)
                break;
            if (taken == 0 || taken > end - o.used)
                abort();
            o.used += taken;
            for (size_t i = 0; i < piece.len; i++)
                o.body_hash = (o.body_hash ^ (unsigned char)piece.data[i]) * 1099511628211u;
            o.body_bytes += piece.len;
            if (!o.head_done && o.verdict == SHIM_END) {
                o.head_done = true;
                o.verdict = m->body == SHIM_BODY_NONE ? SHIM_END : SHIM_MORE;
            }
        }
    }
    return o;
}

static void check_head(const struct message *m)
{
    struct headers h = {m->list, m->count};
    if (m->head.len > BYTES_MAX || h.count > FIELDS_MAX || m->shim.status < 100 || m->shim.status > 999)
        abort();
    if (headers_count(&h, "content-length") + headers_count(&h, "transfer-encoding") > 1)
        abort();
    bool empty = m->no_body || m->shim.status < 200 || m->shim.status == 204 || m->shim.status == 304;
    if (empty && m->body != SHIM_BODY_NONE)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct message whole, cut;
    if (size < 1)
        return 0;
    size_t step = (size_t)data[0] % 32 + 1;
    const char *text = (const char *)data + 1;
    struct outcome a = read_in_pieces(&whole, text, size - 1, size, data[0] > 127),
                   b = read_in_pieces(&cut, text, size - 1, step, data[0] > 127);
    if (a.head_done)
        check_head(&whole);
    /* Where a refusal falls may differ by the cut, what is accepted may not. */
    if (a.verdict != b.verdict || a.head_done != b.head_done)
        abort();
    if (a.verdict == SHIM_END &&
        (a.used != b.used || a.body_hash != b.body_hash || a.body_bytes != b.body_bytes))
        abort();
    if (a.verdict == SHIM_END && whole.body == SHIM_BODY_LENGTH &&
        a.body_bytes != (size_t)whole.shim.content_length)
        abort();
    if (a.head_done && a.verdict == SHIM_MORE &&
        message_ends_at_close(&whole) != (whole.body == SHIM_BODY_UNTIL_CLOSE))
        abort();
    return 0;
}
