/* SPDX-License-Identifier: MIT
 *
 * The standard reason phrases (RFC 9110 section 15 and the IANA registry).
 */
#ifndef SAMEKEY_NET_STATUS_TEXT_H
#define SAMEKEY_NET_STATUS_TEXT_H

/* The phrase of a status; "Unknown" for one without. */
const char *status_text(int status);

#endif
