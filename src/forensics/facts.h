/* SPDX-License-Identifier: MIT
 *
 * What the user knows about the programs in the logs (--facts): a JSON object of names and sentences, such as
 * {"batch-sdk/1.9": "default read timeout 60 s", "edge-1": "the proxy at 10.0.0.5"}. A time limit and an address are
 * read out of the sentence. With a fact, a conclusion that was likely is certain.
 */
#ifndef SAMEKEY_FORENSICS_FACTS_H
#define SAMEKEY_FORENSICS_FACTS_H

#include "base/buffer.h"
#include "base/status.h"
#include "forensics/event.h"

#define FACTS_MAX 256

struct facts {
    struct fact {
        char *name, *text;    /* owned */
        int64_t limit_us;     /* 0: none is told */
        struct slice address; /* in text; empty: none */
    } fact[FACTS_MAX];
    size_t count;
};

/* STATUS_IO: cannot be read; STATUS_INVALID: not an object of texts; STATUS_FULL: more than FACTS_MAX. *error says what. */
enum status facts_load(struct facts *f, const char *path, struct buffer *error);

/* The time limit of whoever sent this request, in microseconds; 0: not known. *name is whose. NULL facts: 0. */
int64_t facts_limit(const struct facts *f, const struct event *e, const char **name);

/* The name of the proxy this request came through, or NULL. */
const char *facts_proxy(const struct facts *f, const struct event *e);

void facts_fini(struct facts *f);

#endif
