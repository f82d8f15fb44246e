/* SPDX-License-Identifier: MIT
 *
 * Asking a gateway's admin listener (docs/admin-api.md) from the command line: where it is, with which token, and one
 * question at a time. What it answers is text of callers; who prints it goes through desk_print().
 */
#ifndef SAMEKEY_CLI_DESK_H
#define SAMEKEY_CLI_DESK_H

#include "base/buffer.h"

#include <jansson.h>
#include <stdbool.h>

#define DESK_DEFAULT   "http://127.0.0.1:8081"
#define DESK_TOKEN_ENV "SAMEKEY_ADMIN_TOKEN_FILE"

struct desk { /* starts as zero bytes */
    const char
        *at; /* --at: ADDRESS:PORT, http://…, https://… or unix:/PATH; NULL: of the file, or the default */
    const char *conf;       /* -c: the gateway's configuration, for its address and token */
    const char *token_file; /* --token-file; NULL: of the environment, or of the configuration */
    struct buffer base;     /* what paths are added to */
    struct buffer socket;   /* of unix:/PATH */
    struct buffer token;    /* empty: none is sent */
    struct buffer why;      /* after a failure, what was wrong, in a sentence */
};

/* One answer. */
struct desk_answer {
    long status;
    json_t *document; /* an object, or NULL */
};

/* Works out the address and reads the token. False: `why` says what is wrong with the flags or files. */
bool desk_open(struct desk *desk);
/* Asks once. `body` (a JSON text) makes it a POST; NULL: GET. True: an answer of 2xx with a document that is the caller's
 * (json_decref). False: `why` says why; an answer that refused has its document in `answer` all the same. */
bool desk_ask(struct desk *desk, const char *path, const char *body, struct desk_answer *answer);
void desk_close(struct desk *desk);

/* Adds name=VALUE to a path, percent-encoded, behind '?' or '&'; nothing for NULL. */
void desk_query(struct buffer *path, const char *name, const char *value);
/* A text member; "" where it is none. */
const char *desk_text(const json_t *document, const char *name);
/* Prints somebody else's text: control bytes could rewrite what stands above. */
void desk_print(const char *text);

#endif
