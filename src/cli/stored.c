/* SPDX-License-Identifier: MIT */
#include "cli/stored.h"

#include "core/receipt.h"
#include "store/archive.h"
#include "store/store.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What the archive tells beside the receipt. */
static const char *const archive_members[] = {"archived_at", "archived_by",      "tenant",
                                              "scope",       "call_digest",      "operation_digest",
                                              "fingerprint", "credential_digest"};

static bool look_up(const struct stored *asked, struct store_op *op, struct buffer *why)
{
    struct hasher hasher;
    struct store *store = NULL;
    struct store_reader *reader = NULL;
    struct store_settings settings = {.url = asked->store, .owner = "receipt", .read_only = true};
    bool read = false;
    op->kind = STORE_LOOKUP;
    op->row.tenant = slice_text(asked->tenant);
    op->row.call_id = slice_text(asked->call_id);
    if (hasher_init(&hasher) != STATUS_OK) {
        buffer_text(why, "no memory");
        return false;
    }
    op->row.call_digest = digest_call(&hasher, op->row.tenant, op->row.call_id);
    hasher_fini(&hasher);
    if (store_open(&store, &settings, why) != STATUS_OK)
        return false;
    if (store_reader_open(&reader, store, why) == STATUS_OK) {
        store_reader_run(reader, op);
        read = op->status == STATUS_OK;
        if (!read)
            buffer_text(why, "the store cannot be read");
    }
    /* The rows point into the operation's memory, not into the reader's. */
    store_reader_free(reader);
    store_close(store);
    return read;
}

static bool put(struct buffer *document, json_t *root)
{
    char *text = json_dumps(root, JSON_COMPACT);
    if (text) {
        buffer_clear(document);
        buffer_text(document, text);
        buffer_byte(document, '\n');
    }
    free(text);
    return text && !document->failed;
}

static bool from_archive(const struct stored *asked, const struct rows *rows, struct buffer *document,
                         struct buffer *note)
{
    const struct call_row *row = &rows->call;
    struct slice effect = row->original ? row->original_call_id : slice_text(asked->call_id);
    struct buffer line = {0}, why = {0};
    json_t *root = NULL, *archived = NULL;
    bool done = false;
    int64_t ended_ms = row->original ? 0 : row->ended_ms;
    enum status status =
        archive_find(asked->archive, slice_text(asked->tenant), effect, ended_ms, &line, &why);
    if (status != STATUS_OK) {
        buffer_format(note, "the answer is not in the archive %s%s%s", asked->archive, why.len ? ": " : "",
                      why.len ? buffer_cstring(&why) : "");
        goto done;
    }
    archived = json_loadb(line.data, line.len, JSON_ALLOW_NUL, NULL);
    if (row->id) {
        root = json_loadb(document->data, document->len, JSON_ALLOW_NUL, NULL);
        json_t *result = json_object_get(archived, "result");
        if (root && result && json_object_set(root, "result", result) == 0)
            done = put(document, root);
    } else if (archived) {
        for (size_t i = 0; i < sizeof archive_members / sizeof *archive_members; i++)
            json_object_del(archived, archive_members[i]);
        done = put(document, archived);
    }
    if (!done)
        buffer_text(note, "there is no memory for the answer in the archive");
done:
    json_decref(root);
    json_decref(archived);
    buffer_fini(&line);
    buffer_fini(&why);
    return done;
}

bool stored_read(const struct stored *asked, struct buffer *document, struct buffer *note, struct buffer *why)
{
    struct store_op op = {0};
    bool read = !asked->store || look_up(asked, &op, why);
    const struct call_row *row = &op.rows.call;
    if (read && asked->store)
        receipt_document(document, &op.rows, slice_text(asked->call_id));
    bool wanted = !row->id || (row->has_result && !row->body_kept);
    if (read && asked->archive && wanted) {
        bool found = from_archive(asked, &op.rows, document, note);
        if (!found && !asked->store) {
            buffer_slice(why, buffer_view(note));
            read = false;
        }
        if (!row->id) /* the store's own word stands then */
            buffer_clear(note);
    }
    if (read && document->failed) {
        buffer_text(why, "no memory");
        read = false;
    }
    store_op_fini(&op);
    return read;
}
