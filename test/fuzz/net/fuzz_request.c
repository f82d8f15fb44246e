/* SPDX-License-Identifier: MIT
 *
 * Requests from anywhere, in two cuts: the verdict must not depend on how the bytes arrive, an accepted head keeps the
 * promises of the strict reader, and the body that comes out is what the framing says.
 * The first byte of the input is the size of the pieces.
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

static struct outcome read_in_pieces(struct message *m, const char *text, size_t len, size_t step)
{
    struct outcome o = {.body_hash = 1469598103934665603u};
    message_start(m, false, BYTES_MAX, FIELDS_MAX);
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
    const char *head = m->head.data;
    size_t hosts = headers_count(&h, "host"), lengths = headers_count(&h, "content-length"),
           codings = headers_count(&h, "transfer-encoding");
    if (m->head.len > BYTES_MAX || h.count > FIELDS_MAX || hosts > 1 || lengths + codings > 1 ||
        (m->shim.minor == 1 && hosts != 1) || m->method.len == 0 || m->target.len == 0)
        abort();
    for (size_t i = 0; i < m->head.len; i++) {
        unsigned char c = (unsigned char)head[i];
        bool cr = c == '\r', lf = c == '\n';
        if ((cr && (i + 1 == m->head.len || head[i + 1] != '\n')) || (lf && (i == 0 || head[i - 1] != '\r')))
            abort();
        if ((c < 32 && !cr && !lf && c != '\t') || c == 127)
            abort();
    }
    for (size_t i = 0; i < h.count; i++) {
        const char *colon = h.list[i].name.data + h.list[i].name.len;
        if (h.list[i].name.len == 0 || *colon != ':')
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct message whole, cut;
    if (size < 1)
        return 0;
    size_t step = (size_t)data[0] % 32 + 1;
    const char *text = (const char *)data + 1;
    struct outcome a = read_in_pieces(&whole, text, size - 1, size),
                   b = read_in_pieces(&cut, text, size - 1, step);
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
    return 0;
}
