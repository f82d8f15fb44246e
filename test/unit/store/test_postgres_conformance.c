/* SPDX-License-Identifier: MIT
 *
 * The conformance suite on a PostgreSQL of its own. The clock of the stories is the database's: the schema's function
 * now_ms() is replaced by one that reads a table, which is written whenever a story has moved its clock. The whole suite
 * is run with prepared statements and without, as behind a pooler.
 */
#include "store/store.h"

static void clocked_batch(struct store *store, struct store_op **ops, size_t count);
static enum status clocked_raise(struct store *store, int64_t covers_since_ms);
#define store_batch              clocked_batch
#define store_raise_covers_since clocked_raise
#define CONFORMANCE_SHARED       1
#include "lists.c"
#undef store_batch
#undef store_raise_covers_since
#include "postgres_server.h"

static int64_t told_ms;
static PGconn *side;

static void side_sql(const char *sql)
{
    PGresult *result = PQexec(side, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(side));
    PQclear(result);
}

static void tell_clock(void)
{
    char sql[120];
    if (told_ms == now_ms)
        return;
    snprintf(sql, sizeof sql, "UPDATE public.clock SET ms = %lld", (long long)now_ms);
    side_sql(sql);
    told_ms = now_ms;
}

static void clocked_batch(struct store *s, struct store_op **ops, size_t count)
{
    tell_clock();
    store_batch(s, ops, count);
}

static enum status clocked_raise(struct store *s, int64_t covers_since_ms)
{
    tell_clock();
    return store_raise_covers_since(s, covers_since_ms);
}

static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    struct store_settings settings = {.url = server_url, .owner = owner, .now_ms = test_clock};
    tell_clock();
    return store_open(out, &settings, error);
}

/* Empty as a new one is: the tables that a store made stay, with the clock's function in them. */
static void bench_clean(void)
{
    char sql[600];
    snprintf(
        sql, sizeof sql,
        "TRUNCATE samekey_store.call, samekey_store.open_call, samekey_store.compensation, samekey_store.due,"
        " samekey_store.compensation_round, samekey_store.kept, samekey_store.audit,"
        " samekey_store.writer; UPDATE samekey_store.meta SET covers_since_ms = %lld, refuse_before_ms = "
        "%lld",
        (long long)now_ms, (long long)(now_ms - 600000));
    side_sql(sql);
}

/* The schema is made by a first opening; from then on its clock is the stories'. */
static void prepare(void)
{
    struct buffer error = {0};
    struct store_settings settings = {.url = server_url, .owner = "maker", .now_ms = test_clock};
    struct store *first;
    side = PQconnectdb(server_url);
    if (store_open(&first, &settings, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", buffer_cstring(&error));
        exit(1);
    }
    store_close(first);
    side_sql("CREATE TABLE public.clock(ms bigint); INSERT INTO public.clock VALUES(0);"
             "CREATE OR REPLACE FUNCTION samekey_store.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS"
             " 'SELECT ms FROM public.clock'");
}

int main(void)
{
    if (!server_installed()) {
        fprintf(stderr, "SKIPPED: PostgreSQL is not installed, so its store was not tested (scripts/deps "
                        "test installs it)\n");
        return 0;
    }
    server_make();
    prepare();
    const struct CMUnitTest pages[] = {LISTS};
    int failed = cmocka_run_group_tests_name("PostgreSQL", conformance, NULL, NULL);
    failed += cmocka_run_group_tests_name("lists in PostgreSQL", pages, NULL, NULL);
    PQfinish(side);
    server_clean();
    return failed;
}
