/* SPDX-License-Identifier: MIT
 *
 * samekey's own policies: the settings that core/settings has read and checked, in the common form of the review,
 * and its complaints as findings. Reading the file is the gateway's work; the command joins the two.
 */
#ifndef SAMEKEY_REVIEW_OWN_H
#define SAMEKEY_REVIEW_OWN_H

#include "core/settings.h"
#include "review/review.h"

/* Adds one policy for each route that guards or observes, and what only a whole configuration shows. `s` is the
 * file's source (review_file() with FORMAT_SAMEKEY). Texts are copied; the settings may be freed afterwards. */
void own_policies(struct review *r, const struct source *s, const struct settings *settings);

/* Adds a finding (errors and warnings) or a note for a problem of the settings. */
void own_problem(struct review *r, const struct source *s, const struct settings_problem *problem);

#endif
