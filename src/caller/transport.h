/* SPDX-License-Identifier: MIT
 *
 * One exchange by libcurl, and the evidence of what it did. libcurl's own words are not evidence: it re-sends a write by
 * itself on a reused connection that died, counts bytes that nobody read, and calls a reply cut in its head a success
 * (measured with 7.88.1). So:
 *
 *  (1) A write goes on a wire at most once for each transport_send(): a PREREQ callback counts and refuses the second
 *      time; a body is read by a function that cannot seek; a write without a body gets a connection of its own.
 *  (2) Not executed means: the PREREQ callback was never called. Every other end without a complete answer may have run,
 *      but for HTTP/2's REFUSED_STREAM and a body that was held back for a 100 that never came.
 *  (3) A complete answer has its whole head, and a body whose end was marked: by its length, by chunks or by the stream's
 *      end. A body that only the close of the connection ends cannot be told from a cut one.
 *
 * Lines (a connection pool with its one transfer) are taken and given back by threads; connections are kept and used
 * again. Asking for receipts has lines of its own, so that a query never waits for, or hides, what a call's line did.
 */
#ifndef SAMEKEY_CALLER_TRANSPORT_H
#define SAMEKEY_CALLER_TRANSPORT_H

#include "base/slice.h"
#include "base/status.h"
#include "caller/intent.h"
#include "caller/response.h"
#include "core/outcome.h"

#define TRANSPORT_IDLE_LINES 16  /* kept with their connections, for calls and for queries each */
#define TRANSPORT_DETAIL_MAX 256 /* bytes of libcurl's words */
#define RECEIPT_BYTES_MAX    ((size_t)4 << 20) /* of a receipt document; a longer one is not believed */

struct transport;

/* STATUS_IO: libcurl cannot be started. STATUS_NO_MEMORY. */
enum status transport_open(struct transport **out);
void transport_close(struct transport *t); /* NULL is accepted */

/* A request; all borrowed. */
struct transport_request {
    struct slice method, url;
    const struct intent_header *headers;
    size_t header_count;
    const struct intent_header *control; /* more headers: ours, of this attempt */
    size_t control_count;
    struct slice body;
    int64_t timeout_ms;
    size_t body_bytes_max; /* of the reply */
    struct slice ca_file;
    unsigned flags; /* enum samekey_flag: EXPECT_CONTINUE, HTTP2, QUICK_EXIT */
    bool query;     /* a receipt query: read only, and on lines of its own */
    int (*cancelled)(void *context);
    void *context;
};

/* Makes one exchange. Always fills *evidence; its detail points into `detail`. *reply is cleared first and filled with
 * what came. Out of memory before anything left: EVIDENCE_OWN_REFUSAL. */
void transport_send(struct transport *t, const struct transport_request *rq, struct evidence *evidence,
                    struct response *reply, char detail[TRANSPORT_DETAIL_MAX]);

#endif
