/* SPDX-License-Identifier: MIT
 *
 * What is stored of a call's content is dropped when a person asks for it (STORE_ERASE): the answer's headers and body,
 * and the header lines and body of a kept request. What the call was and how it ended stays, so that a repeat of it is
 * still known, and so does the rendered reversal, without which the effect could not be undone any more.
 */
#include "store/sqlite.h"

int sqlite_erase(struct sqlite_store *s, struct store_op *op)
{
    int rc = row_read(&s->writer, op->id, &op->rows.call, &op->memory);
    const struct call_row *row = &op->rows.call;
    if (rc == SQLITE_OK && !row->id)
        op->status = STATUS_NOT_FOUND;
    else if (rc == SQLITE_OK && !row->final)
        op->status = STATUS_CONFLICT; /* its bodies are still needed */
    if (rc != SQLITE_OK || op->status != STATUS_OK)
        return rc;
    const int64_t owner = row->original ? row->original : row->id; /* whose result it is */
    rc = connection_run(&s->writer, SQL_BODY_GONE, 1, &owner);
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_KEPT_ERASE, 1, &row->id);
    if (rc == SQLITE_OK)
        rc = connection_run(&s->writer, SQL_KEPT_ERASE, 1, &owner);
    if (rc == SQLITE_OK) {
        struct audit_row audit = op->work->audit;
        struct rows found = op->rows;
        rows_settle(&found, &op->memory);
        audit.call = row->id;
        audit.tenant = found.call.tenant;
        audit.call_id = found.call.call_id;
        rc = audit_write(s, &audit);
    }
    if (rc == SQLITE_OK) {
        op->rows.call.body_kept = false;
        op->rows.call.result_headers = op->rows.call.result_body = slice_of(NULL, 0);
        op->done = true;
    }
    return rc;
}
