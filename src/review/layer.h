/* SPDX-License-Identifier: MIT
 *
 * Several files read as the layers of one call path, outermost first (`check --path`). Each layer answers with
 * its worst policy: most attempts, shortest patience towards the inside, longest time towards the outside.
 */
#ifndef SAMEKEY_REVIEW_LAYER_H
#define SAMEKEY_REVIEW_LAYER_H

#include "review/review.h"

/* Adds the findings of rules SK701 to SK704. */
void layer_judge(struct review *r);

#endif
