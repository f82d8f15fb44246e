/* SPDX-License-Identifier: MIT
 *
 * Claims of this process that were answered STATUS_UNKNOWN: the disk would not say whether they are written. If one is,
 * its row runs and nobody works on it, as that of a process that has died. So they are noted here, outside of what is
 * read anew after a failure, and STORE_EXPIRE makes those that are there UNKNOWN.
 *
 * Always true: a noted row that runs under the noted fence has no owner that works. The same id, or the same fence of a
 * row, can be given again where the first was lost: whoever gives it takes the note away.
 */
#include "store/sqlite.h"

#include <stdlib.h>

/* Without memory for a note the row waits for the next start, as if the process had died here. */
void orphans_leave(struct sqlite_store *s, struct store_op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct store_op *op = ops[i];
        if (!op->done || (op->kind != STORE_CLAIM && op->kind != STORE_TAKE) ||
            op->rows.call.state != STATE_PROCESSING)
            continue;
        if (s->orphan_count == s->orphan_capacity) {
            size_t capacity = s->orphan_capacity ? s->orphan_capacity * 2 : 64;
            struct orphan *more = realloc(s->orphans, capacity * sizeof *more);
            if (!more)
                return;
            s->orphans = more;
            s->orphan_capacity = capacity;
        }
        s->orphans[s->orphan_count++] = (struct orphan){.id = op->rows.call.id, .fence = op->rows.call.fence};
    }
}

void orphans_forget(struct sqlite_store *s, int64_t id)
{
    for (size_t i = 0; i < s->orphan_count;)
        if (s->orphans[i].id == id)
            s->orphans[i] = s->orphans[--s->orphan_count];
        else
            i++;
}
