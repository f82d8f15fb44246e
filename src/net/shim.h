/* SPDX-License-Identifier: MIT
 *
 * A strict reader of HTTP/1.1 framing that walks before llhttp. It knows only what decides where a message ends
 * and who it is for; whatever could be read in two ways stops here, whatever the parser behind it thinks.
 *
 * Always true:
 *  (1) It looks at each byte of a head once per call to shim_head() that ends its line, allocates nothing, and
 *      keeps no pointer.
 *  (2) A head over bytes_max bytes or count_max fields is refused, as soon as that is seen.
 *  (3) Line ends are CRLF and nothing else (RFC 9112 section 2.2 allows a lenient reader; two lenient readers in
 *      a row are how requests are smuggled).
 */
#ifndef SAMEKEY_NET_SHIM_H
#define SAMEKEY_NET_SHIM_H

#include "base/slice.h"

#include <stdint.h>

enum shim_verdict {
    SHIM_MORE = 0, /* all bytes were read, more are needed */
    SHIM_END,      /* the head (or the body) ends here */
    SHIM_REFUSED,  /* see refused_status and refused_reason */
};

enum shim_body {
    SHIM_BODY_NONE = 0,
    SHIM_BODY_LENGTH,
    SHIM_BODY_CHUNKED,
    SHIM_BODY_UNTIL_CLOSE, /* answers only */
};

struct shim {
    bool response;
    size_t bytes_max, count_max;
    /* The head. */
    size_t line;   /* offset of the first byte of the line being read */
    size_t fields; /* header fields, later trailer fields, so far */
    unsigned hosts, lengths, codings;
    bool started;           /* the first line was read */
    int minor;              /* of HTTP/1.x */
    int status;             /* of an answer */
    int64_t content_length; /* bytes, or -1 */
    bool chunked;
    /* The body. */
    enum shim_body body;
    int state;     /* of the chunk reader */
    uint64_t left; /* bytes of this chunk, or of the body */
    size_t line_bytes, trailer_bytes;
    unsigned digits;
    /* Why it was refused: the status to answer a request with, and a sentence. */
    int refused_status;
    const char *refused_reason;
};

/* Starts a message. bytes_max: of the head; count_max: header fields. */
void shim_start(struct shim *s, bool response, size_t bytes_max, size_t count_max);

/* Reads a head. `head` holds all its bytes so far, from the first on; the caller calls again with more of them
 * after SHIM_MORE. SHIM_END: *end is the length of the head with its empty line. */
enum shim_verdict shim_head(struct shim *s, const char *head, size_t len, size_t *end);

/* After SHIM_END of the head: how the body is framed (RFC 9112 section 6.3). no_body: an answer to HEAD. */
enum shim_body shim_body_start(struct shim *s, bool no_body);

/* Reads a part of the body: either one run of content or one run of framing, never both. *taken is its length,
 * *content says which. SHIM_END: the body ends with it. */
enum shim_verdict shim_body_next(struct shim *s, const char *data, size_t len, size_t *taken, bool *content);

#endif
