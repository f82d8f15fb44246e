/* SPDX-License-Identifier: MIT
 *
 * The web console's files, inside the program (CONTRACT section 5: console at `/` of the admin listener). They are
 * bundled from console/ when the program is built and never change while it runs; a build without npm has none, and
 * the admin listener says so at the address.
 */
#ifndef SAMEKEY_GATEWAY_CONSOLE_H
#define SAMEKEY_GATEWAY_CONSOLE_H

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>

struct console_asset {
    const char *path;           /* as a browser asks for it, e.g. "/console.js" */
    const char *type;           /* Content-Type */
    const char *etag;           /* with its quotes; named by the content before compression */
    const unsigned char *bytes; /* what is sent */
    size_t size;                /* of bytes */
    bool gzip;                  /* bytes are compressed: send Content-Encoding: gzip */
};

/* The table that console/build.mjs (or, without npm, CMake) writes. Use console_find(). */
extern const struct console_asset console_assets[];
extern const size_t console_assets_count;

/* The file at this path (without a query), or NULL when there is none; NULL for "/" too in a build without a console. */
const struct console_asset *console_find(struct slice path);

#endif
