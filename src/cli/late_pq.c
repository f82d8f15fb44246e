/* SPDX-License-Identifier: MIT
 *
 * libpq, loaded at its first call; see late.h. */
#include "cli/late.h"

#include <libpq-fe.h>

static struct late pq = {.file = SAMEKEY_PQ_SONAME, .lock = PTHREAD_MUTEX_INITIALIZER};

/* Connections. */
LATE(&pq, PGconn *, PQconnectdb, (const char *text), text)
LATE(&pq, PGconn *, PQconnectdbParams, (const char *const *names, const char *const *values, int expand),
     names, values, expand)
LATE(&pq, PGconn *, PQconnectStartParams, (const char *const *names, const char *const *values, int expand),
     names, values, expand)
LATE(&pq, PostgresPollingStatusType, PQconnectPoll, (PGconn * conn), conn)
LATE(&pq, PQconninfoOption *, PQconninfoParse, (const char *text, char **why), text, why)
LATE(&pq, void, PQconninfoFree, (PQconninfoOption * options), options)
LATE(&pq, void, PQfinish, (PGconn * conn), conn)
LATE(&pq, int, PQsocket, (const PGconn *conn), conn)
LATE(&pq, int, PQsetnonblocking, (PGconn * conn, int on), conn, on)
LATE(&pq, ConnStatusType, PQstatus, (const PGconn *conn), conn)
LATE(&pq, PGTransactionStatusType, PQtransactionStatus, (const PGconn *conn), conn)
LATE(&pq, char *, PQerrorMessage, (const PGconn *conn), conn)
LATE(&pq, PQnoticeReceiver, PQsetNoticeReceiver, (PGconn * conn, PQnoticeReceiver receiver, void *context),
     conn, receiver, context)
LATE(&pq, PGcancel *, PQgetCancel, (PGconn * conn), conn)
LATE(&pq, int, PQcancel, (PGcancel * cancel, char *why, int size), cancel, why, size)
LATE(&pq, void, PQfreeCancel, (PGcancel * cancel), cancel)
LATE(&pq, void, PQfreemem, (void *text), text)

/* Questions. */
LATE(&pq, PGresult *, PQexec, (PGconn * conn, const char *sql), conn, sql)
LATE(&pq, int, PQsendQuery, (PGconn * conn, const char *sql), conn, sql)
LATE(&pq, int, PQsendQueryParams,
     (PGconn * conn, const char *sql, int count, const Oid *types, const char *const *values,
      const int *lengths, const int *formats, int format),
     conn, sql, count, types, values, lengths, formats, format)
LATE(&pq, int, PQsendPrepare, (PGconn * conn, const char *name, const char *sql, int count, const Oid *types),
     conn, name, sql, count, types)
LATE(&pq, int, PQsendQueryPrepared,
     (PGconn * conn, const char *name, int count, const char *const *values, const int *lengths,
      const int *formats, int format),
     conn, name, count, values, lengths, formats, format)
LATE(&pq, int, PQenterPipelineMode, (PGconn * conn), conn)
LATE(&pq, int, PQexitPipelineMode, (PGconn * conn), conn)
LATE(&pq, int, PQpipelineSync, (PGconn * conn), conn)
LATE(&pq, int, PQflush, (PGconn * conn), conn)
LATE(&pq, int, PQconsumeInput, (PGconn * conn), conn)
LATE(&pq, int, PQisBusy, (PGconn * conn), conn)
LATE(&pq, int, PQsetSingleRowMode, (PGconn * conn), conn)

/* Answers. */
LATE(&pq, PGresult *, PQgetResult, (PGconn * conn), conn)
LATE(&pq, ExecStatusType, PQresultStatus, (const PGresult *result), result)
LATE(&pq, char *, PQresultErrorMessage, (const PGresult *result), result)
LATE(&pq, char *, PQresultErrorField, (const PGresult *result, int field), result, field)
LATE(&pq, char *, PQcmdStatus, (PGresult * result), result)
LATE(&pq, int, PQntuples, (const PGresult *result), result)
LATE(&pq, int, PQnfields, (const PGresult *result), result)
LATE(&pq, char *, PQfname, (const PGresult *result, int column), result, column)
LATE(&pq, char *, PQgetvalue, (const PGresult *result, int row, int column), result, row, column)
LATE(&pq, int, PQgetlength, (const PGresult *result, int row, int column), result, row, column)
LATE(&pq, int, PQgetisnull, (const PGresult *result, int row, int column), result, row, column)
LATE(&pq, void, PQclear, (PGresult * result), result)
