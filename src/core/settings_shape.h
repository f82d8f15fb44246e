/* SPDX-License-Identifier: MIT
 *
 * The form of single texts among the settings: addresses, patterns, methods, header lines. One rule a setting; what
 * needs two settings to judge is in settings_check.
 */
#ifndef SAMEKEY_CORE_SETTINGS_SHAPE_H
#define SAMEKEY_CORE_SETTINGS_SHAPE_H

#include "core/settings.h"

/*
 * Whether `text`, one value of the setting `id`, has that setting's form. If not, one sentence with the remedy is
 * added to `why`. Settings without a rule of their own take every text without control bytes.
 */
bool settings_shape(enum setting_id id, struct slice text, struct buffer *why);

/*
 * Takes a receipt source apart: `none`, `samekey`, `http METHOD PATH`, `sql ADDRESS`. The parts are borrowed from
 * `text`. False with a sentence in `why`: out is not set.
 */
struct receipt_shape {
    enum receipt_kind kind;
    struct slice method, path;
};
bool settings_receipt_shape(struct slice text, struct receipt_shape *out, struct buffer *why);

/* Takes `METHOD /PATH` apart; both are borrowed from `text`. False when out of form. */
bool settings_request_split(struct slice text, struct slice *method, struct slice *path);

/* Takes the next `FOREIGN=STATE` off a receipt_map. 1: taken; 0: nothing is left; -1: out of form. */
int settings_map_next(struct slice *rest, struct slice *foreign, struct slice *state);

/* Takes NAME: VALUE apart; the value is trimmed. False when out of form. */
bool settings_header_split(struct slice line, struct slice *name, struct slice *value);

#endif
