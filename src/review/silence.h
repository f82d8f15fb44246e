/* SPDX-License-Identifier: MIT
 *
 * Comments that silence findings: `# samekey-ignore SK101: reason` on the line or alone on the line before,
 * `samekey-ignore-file` for the whole file, in JSON as a member "$comment". Without a reason nothing is
 * silenced; a comment that silences nothing is itself a finding.
 */
#ifndef SAMEKEY_REVIEW_SILENCE_H
#define SAMEKEY_REVIEW_SILENCE_H

#include "review/review.h"

/* Marks the findings of all sources that a comment silences, and adds SK901 and SK902. */
void silence_apply(struct review *r);

#endif
