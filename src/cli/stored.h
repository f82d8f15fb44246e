/* SPDX-License-Identifier: MIT
 *
 * `samekey receipt --store`: a call's receipt straight from the store, with no gateway asked, and its answer from the
 * archive where the store has dropped it. Nothing is written anywhere.
 */
#ifndef SAMEKEY_CLI_STORED_H
#define SAMEKEY_CLI_STORED_H

#include "base/buffer.h"

#include <stdbool.h>

struct stored {
    const char *store;   /* URL; NULL: the archive alone is asked */
    const char *archive; /* folder; NULL: none */
    const char *tenant;  /* its name, not a header; "" for calls without one */
    const char *call_id;
};

/* Appends the receipt document, one line of JSON. false: nothing was learned about the call, `why` says what is wrong. A store
 * that knows the call decides; the archive adds what it does not keep any more: the answer, or all of a call that is not
 * in this store. `note` gets a sentence where an answer was looked for in the archive and is not there. */
bool stored_read(const struct stored *asked, struct buffer *document, struct buffer *note,
                 struct buffer *why);

#endif
