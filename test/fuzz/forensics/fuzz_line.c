/* SPDX-License-Identifier: MIT
 *
 * Log readers on any bytes: every format reads the line, an event is made of what it found, written, read back, and is
 * the same. The first byte chooses nothing: all readers see every input.
 */
#include "forensics/event.h"
#include "forensics/text_line.h"

#include <stdlib.h>

static struct json_shape *shape;
static struct event_words words;

static void use(const struct fields *f)
{
    static struct buffer scratch, record;
    struct event e = {0}, back;
    struct moment_cache cache = {0};
    struct moment m;
    if (fields_has(f, FIELD_TIME))
        (void)moment_parse(f->value[FIELD_TIME], NULL, &cache, &m);
    if (event_make(&e, f, &words, &scratch) != EVENT_KEPT)
        return;
    buffer_clear(&record);
    event_write(&record, &e);
    if (record.failed)
        return;
    if (event_read(&back, record.data) != record.len)
        abort();
    for (int t = 0; t < TEXT_COUNT; t++)
        if (!slice_equal(e.text[t], back.text[t]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct buffer scratch;
    struct fields f;
    struct csv csv;
    bool starts;
    if (!shape && !(shape = calloc(1, sizeof *shape)))
        return 0;
    struct slice line = slice_of((const char *)data, size);
    if (json_line_read(shape, NULL, line, &f) == STATUS_OK || f.present)
        use(&f);
    if (text_line_read(shape, NULL, line, &scratch, &f) == STATUS_OK)
        use(&f);
    if (access_line_read(NULL, line, &scratch, &starts, &f) == STATUS_OK)
        use(&f);
    const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
    struct slice head = slice_of((const char *)data, newline ? (size_t)(newline - data) : size);
    if (csv_header(&csv, NULL, head) == STATUS_OK && newline) {
        struct slice row = slice_of((const char *)newline + 1, size - head.len - 1);
        if (csv_line_read(&csv, row, &scratch, &f) == STATUS_OK)
            use(&f);
    }
    return 0;
}
