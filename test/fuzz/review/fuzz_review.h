/* SPDX-License-Identifier: MIT
 *
 * What must hold after any bytes went through a reader: every finding points at a line of its file, and the
 * reports can be made.
 */
#ifndef SAMEKEY_FUZZ_REVIEW_H
#define SAMEKEY_FUZZ_REVIEW_H

#include "review/report.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

static inline void must(bool holds)
{
    if (!holds)
        abort();
}

static inline void must_be_json(enum status status, struct buffer *text)
{
    must(status == STATUS_OK);
    json_t *json = json_loadb(text->data, text->len, JSON_REJECT_DUPLICATES, NULL);
    must(json != NULL);
    json_decref(json);
    buffer_fini(text);
}

static inline void fuzz_review(struct slice text, enum review_format format)
{
    struct review r = {0};
    struct buffer out = {0};
    const struct source *s = review_memory(&r, "input", text, format);
    must(s || r.problem_count > 0);
    if (review_finish(&r, true) == STATUS_OK) {
        for (size_t i = 0; i < r.finding_count; i++) {
            const struct finding *f = &r.findings[i];
            must(f->rule < RULE_COUNT && f->line >= 1 && f->line <= f->source->lines);
        }
        review_report_text(&out, &r, false);
        must(!out.failed);
        buffer_fini(&out);
        /* The documents are slow to make beside the reading, and the same code whatever the reader. */
        if (format == FORMAT_AUTO)
            must_be_json(review_report_json(&out, &r), &out);
    }
    review_fini(&r);
}

#endif
