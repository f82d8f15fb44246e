/* SPDX-License-Identifier: MIT
 *
 * The rules over one policy: a pure function from the common form to findings. What only one kind of file can
 * say (an error page, a dropped header) its reader finds by itself.
 */
#ifndef SAMEKEY_REVIEW_JUDGE_H
#define SAMEKEY_REVIEW_JUDGE_H

#include "review/review.h"

void judge_policy(struct review *r, const struct review_policy *p);

#endif
