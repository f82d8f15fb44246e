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

#include <pthread.h>

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

/* ---- what is special here ---- */

static long long count_of(const char *sql)
{
    PGresult *result = PQexec(side, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(side));
    long long number = atoll(PQgetvalue(result, 0, 0));
    PQclear(result);
    return number;
}

static bool day_there(int64_t ms)
{
    char sql[120];
    snprintf(sql, sizeof sql, "SELECT (to_regclass('samekey_store.result_%lld') IS NOT NULL)::int",
             (long long)(ms / 86400000));
    return count_of(sql) != 0;
}

static void bodies_go_with_the_table_of_their_day(void **state)
{
    (void)state;
    struct store_op op = {0};
    now_ms = (now_ms / 86400000 + 100) * 86400000 + 3600000;
    int64_t a = claim("A", "k1", "f1"), expires = now_ms + 2 * 86400000;
    ask_end(&op, a, 1, STATE_SUCCESS, "body");
    op.row.result_expires_ms = expires;
    op.row.tombstone_expires_ms = op.row.key_expires_ms = expires + 30LL * 86400000;
    run(&op);
    assert_true(op.done && day_there(expires));
    reopen_as("first");
    now_ms = expires - 1;
    assert_int_equal(purge(10), 0);
    assert_true(day_there(expires));
    now_ms = expires + 2 * 86400000; /* its day is over, and the one after it */
    reopen_as("first");
    assert_int_equal(purge(10), 1);
    assert_false(day_there(expires));
    look(&op, "A");
    assert_true(op.rows.call.has_result && !op.rows.call.body_kept);
    assert_int_equal(claim("A2", "k1", "f1"), 0); /* the key is as unique as ever */
    store_op_fini(&op);
}

static void a_body_that_never_expired_goes_to_its_day_when_its_call_is_settled(void **state)
{
    (void)state;
    struct store_op op = {0};
    int64_t a = claim("A", "k1", "f1");
    ask_end(&op, a, 1, STATE_UNKNOWN, "202");
    op.row.result_expires_ms = op.row.key_expires_ms = op.row.tombstone_expires_ms = INT64_MAX;
    run(&op);
    assert_true(op.done);
    assert_int_equal(count_of("SELECT count(*) FROM samekey_store.result_2000000"), 1);
    ask_end(&op, a, 0, STATE_SUCCESS, NULL);
    op.any_fence = true;
    op.from_states = IN(UNKNOWN);
    run(&op);
    assert_true(op.done);
    assert_int_equal(count_of("SELECT count(*) FROM samekey_store.result_2000000"), 0);
    look(&op, "A");
    EXPECT_TEXT(op.rows.call.result_body, "202");
    store_op_fini(&op);
}

#define RACE_KEYS 300

struct racer {
    struct store *store;
    const char *owner;
    bool backwards;
    int won[RACE_KEYS];
};

/* Claims the keys in batches, each under a callId of its own. */
static void *race(void *argument)
{
    struct racer *racer = argument;
    static const size_t many = 30;
    struct store_op *ops = calloc(many, sizeof *ops), *batch[30];
    char names[30][2][32];
    struct hasher own;
    if (!ops || hasher_init(&own) != STATUS_OK)
        abort();
    for (size_t first = 0; first < RACE_KEYS; first += many) {
        for (size_t i = 0; i < many; i++) {
            size_t key = racer->backwards ? first + many - 1 - i : first + i;
            snprintf(names[i][0], sizeof names[i][0], "%s-%zu", racer->owner, key);
            snprintf(names[i][1], sizeof names[i][1], "race-%zu", key);
            struct call_row *row = &ops[i].row;
            store_op_fini(&ops[i]);
            memset(&ops[i], 0, sizeof ops[i]);
            ops[i].kind = STORE_CLAIM;
            row->tenant = row->route = row->scope = slice_text("race");
            row->call_id = slice_text(names[i][0]);
            row->key = slice_text(names[i][1]);
            row->has_key = true;
            row->call_digest = digest_call(&own, row->tenant, row->call_id);
            row->operation_digest = digest_operation(&own, row->tenant, row->scope, row->key);
            row->owner = slice_text(racer->owner);
            row->state = STATE_PROCESSING;
            row->fence = row->attempt_count = 1;
            row->lease_end_ms = INT64_MAX;
            batch[i] = &ops[i];
        }
        store_batch(racer->store, batch, many);
        for (size_t i = 0; i < many; i++) {
            size_t key = racer->backwards ? first + many - 1 - i : first + i;
            if (ops[i].status != STATUS_OK || (!ops[i].done && !ops[i].rows.holder.id))
                racer->won[key] = -1;
            else
                racer->won[key] = ops[i].done;
        }
    }
    for (size_t i = 0; i < many; i++)
        store_op_fini(&ops[i]);
    free(ops);
    hasher_fini(&own);
    return NULL;
}

static void gateways_that_claim_the_same_keys_at_once_have_one_winner_each(void **state)
{
    (void)state;
    static const char *const owners[] = {"a", "b", "c", "d"};
    struct racer racers[4] = {0};
    pthread_t threads[4];
    struct buffer error = {0};
    for (size_t i = 0; i < 4; i++) {
        racers[i].owner = owners[i];
        racers[i].backwards = i % 2;
        assert_int_equal(bench_open(&racers[i].store, owners[i], &error), STATUS_OK);
    }
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (size_t key = 0; key < RACE_KEYS; key++) {
        int winners = 0;
        for (size_t i = 0; i < 4; i++) {
            assert_true(racers[i].won[key] >= 0);
            winners += racers[i].won[key];
        }
        assert_int_equal(winners, 1);
    }
    for (size_t i = 0; i < 4; i++)
        store_close(racers[i].store);
    buffer_fini(&error);
}

/* What runs elsewhere ends elsewhere: a reader is told which of the rows it asks about have. */
static void a_reader_is_told_what_has_ended(void **state)
{
    (void)state;
    struct store_reader *reader;
    struct buffer error = {0};
    int64_t ids[3] = {claim("A", "k1", "f1"), claim("B", "k2", "f2"), 12345}, ended[3];
    size_t count = 0;
    assert_int_equal(store_reader_open(&reader, store, &error), STATUS_OK);
    end(ids[1], 1, STATE_UNKNOWN, NULL);
    assert_int_equal(store_reader_ended(reader, ids, 3, ended, &count), STATUS_OK);
    assert_int_equal(count, 2);
    assert_true((ended[0] == ids[1] && ended[1] == ids[2]) || (ended[1] == ids[1] && ended[0] == ids[2]));
    store_reader_free(reader);
    buffer_fini(&error);
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
    const struct CMUnitTest special[] = {
        STORY(bodies_go_with_the_table_of_their_day),
        STORY(a_body_that_never_expired_goes_to_its_day_when_its_call_is_settled),
        STORY(gateways_that_claim_the_same_keys_at_once_have_one_winner_each),
        STORY(a_reader_is_told_what_has_ended),
    };
    int failed = cmocka_run_group_tests_name("PostgreSQL", conformance, NULL, NULL);
    failed += cmocka_run_group_tests_name("special to PostgreSQL", special, NULL, NULL);
    failed += cmocka_run_group_tests_name("lists in PostgreSQL", pages, NULL, NULL);
    PQfinish(side);
    server_clean();
    return failed;
}
