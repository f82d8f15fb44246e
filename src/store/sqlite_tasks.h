/* SPDX-License-Identifier: MIT
 *
 * What the files about compensation tasks share: texts in and out, a task's row, and its call's. Nobody else includes
 * this.
 *
 *   sqlite_tasks.c       tasks and their rounds, who is told
 *   sqlite_people.c      what people change, and that they did
 *   sqlite_reversal.c    kept requests, and the reversal that is made of one
 *   sqlite_task_pages.c  the pages that people read
 *
 * While rows are gathered, texts are offsets into the operation's memory, which may still move; each operation makes
 * its own of them pointers at its end. rows.call and rows.holder stay offsets for rows_settle().
 */
#ifndef SAMEKEY_STORE_SQLITE_TASKS_H
#define SAMEKEY_STORE_SQLITE_TASKS_H

#include "store/sqlite.h"

/* Bytes, or a column's, behind those already gathered: an offset. */
struct slice text_keep(struct buffer *memory, const void *data, size_t len);
struct slice text_column(sqlite3_stmt *stmt, int at, struct buffer *memory);
/* Makes a pointer of an offset. */
void text_point(struct slice *text, const struct buffer *memory);
/* An empty text is NULL. Parameters count from 1. */
void text_bind(sqlite3_stmt *stmt, int at, struct slice text);

/* From a row of TASK_COLUMNS. */
void task_decode(sqlite3_stmt *stmt, struct task_row *task, struct buffer *memory);
void task_point(struct task_row *task, const struct buffer *memory);
/* Reads one task by the number a statement asks for; task->id 0: there is none. */
int task_read(struct connection *c, enum statement which, int64_t number, struct task_row *task,
              struct buffer *memory);
/* What people see of the call beside its task: texts are offsets into `memory`. `call` has pointers. */
void task_tell_call(struct task_row *task, const struct call_row *call, struct buffer *memory);
int task_status(struct sqlite_store *s, int64_t id, enum task_status status);
/* The call of an operation's task into rows.call, with who holds its key into rows.holder. */
int task_call(struct sqlite_store *s, struct connection *c, struct store_op *op, int64_t id);
/* Ends the call inside the operation, as an outsider; op->status CONFLICT and rows.call where it stands otherwise. */
int task_end_call(struct sqlite_store *s, struct store_op *op, int64_t call, unsigned from_states);

/* sqlite_people.c */
int person_resolve(struct sqlite_store *s, struct store_op *op);
int person_run(struct sqlite_store *s, struct store_op *op);
int audit_write(struct sqlite_store *s, const struct audit_row *audit);
void audit_decode(sqlite3_stmt *stmt, struct audit_row *audit, struct buffer *memory);
void audit_point(struct audit_row *audit, const struct buffer *memory);
/* Task op->id as it stands into work->now, with what people see of its call, and rows. */
int person_told(struct sqlite_store *s, struct store_op *op);

/* sqlite_reversal.c */
int kept_read(struct connection *c, int64_t call, struct kept_request *kept, struct buffer *memory);
void kept_point(struct kept_request *kept, const struct buffer *memory);
int reversal_make(struct sqlite_store *s, struct store_op *op);

#endif
