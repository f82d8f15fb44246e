/* SPDX-License-Identifier: MIT
 *
 * What the store answers when its disk fails: the same short story is told again and again, with the first, the second,
 * the third write (sync, opening) failing, once and for ever after, until a telling meets no fault. After each: what was
 * answered OK is there, what was answered IO is not and stays away after a crash, and the store works on without a
 * restart. Then power cuts in the middle of work, and kills of a whole process.
 */
#include "conformance.c"
#include "scratch.h"
#include "store/sqlite.h"

#include "../../support/faulty_vfs.c"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* A short tail: identities are on their way to the index in every batch. */
static enum status bench_open(struct store **out, const char *owner, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("faulty.db"));
    struct store_settings settings = {
        .url = url, .owner = owner, .now_ms = test_clock, .vfs = FAULTY_VFS, .tail_entries = 4};
    return store_open(out, &settings, error);
}

static void bench_clean(void)
{
    faulty_vfs_anew();
    scratch_remove("faulty.db");
}

static const char *const afters[] = {"", ", then the power goes", ", then a kill"};
static const char *const kind_names[] = {"none", "full", "write", "torn write", "sync", "open", "any"};

/* As the worker does: the first `split` operations in a batch of their own, the others run before it is synced. */
static void batch_in_halves(struct store_op **ops, size_t count, size_t split)
{
    enum batch_begun first = store_batch_begin(store, ops, split), second = BATCH_AGAIN;
    if (first == BATCH_BEGUN) {
        second = store_batch_begin(store, ops + split, count - split);
        store_batch_end(store);
    } else {
        store_batch(store, ops, split);
    }
    if (second == BATCH_BEGUN)
        store_batch_end(store);
    else
        store_batch(store, ops + split, count - split);
}

/* ---- one batch under every fault ---- */

struct story {
    enum call_state told; /* what a reader said of A before what came after */
    int64_t a, b;
    enum status claimed, ended;
};

#define HELD 150

static int in_doubt; /* times that a reader said nothing */

/* What stands is what was answered. */
static void expect_as_answered(const struct story *s)
{
    struct store_op op = {0};
    look(&op, "C");
    if (s->claimed == STATUS_OK)
        assert_int_equal(op.rows.call.state, STATE_PROCESSING);
    else if (s->claimed == STATUS_IO || s->claimed == STATUS_NO_MEMORY)
        assert_int_equal(op.rows.call.id, 0);
    else
        assert_int_equal(s->claimed, STATUS_UNKNOWN);
    look(&op, "A");
    if (s->ended == STATUS_OK)
        EXPECT_TEXT(op.rows.call.result_body, "A's answer");
    else if (s->ended == STATUS_IO || s->ended == STATUS_NO_MEMORY)
        assert_int_equal(op.rows.call.state, STATE_PROCESSING);
    else
        assert_int_equal(s->ended, STATUS_UNKNOWN);
    if (s->told == STATE_SUCCESS)
        EXPECT_TEXT(op.rows.call.result_body, "A's answer");
    look(&op, "B");
    EXPECT_TEXT(op.rows.call.result_body, "B's answer");
    store_op_fini(&op);
}

static enum call_state state_of(const char *call_id)
{
    struct store_op op = {0};
    look(&op, call_id);
    enum call_state state = op.rows.call.state;
    store_op_fini(&op);
    return state;
}

static void look_through(struct store_reader *reader, const char *call_id)
{
    struct store_op op = {.kind = STORE_LOOKUP};
    identify(&op.row, call_id, NULL, NULL);
    store_reader_run(reader, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.rows.call.state, STATE_SUCCESS);
    store_op_fini(&op);
}

/* Of an ending that nobody knows to be on disk readers say nothing; what they say stands. */
static enum call_state what_a_reader_says(struct store_reader *reader)
{
    struct store_op op = {.kind = STORE_LOOKUP};
    identify(&op.row, "A", NULL, NULL);
    store_reader_run(reader, &op);
    enum call_state told = op.status == STATUS_OK ? op.rows.call.state : STATE_PROCESSING;
    if (op.status != STATUS_OK)
        in_doubt++;
    assert_true(op.status == STATUS_OK || op.status == STATUS_IO);
    store_op_fini(&op);
    return told;
}

enum after { AFTER_NOTHING, AFTER_POWER_CUT, AFTER_KILL, AFTERS };
#define SPLITS 3 /* none, behind the claim, behind the ending */

/* Tells the story with the n-th event failing, in one batch or with `split` in two; false when nothing failed any more. */
static bool tell(enum fault kind, int64_t n, bool forever, enum after after, size_t split, struct story *s)
{
    struct store_op claims = {0}, ends = {0}, again = {0}, looks = {0};
    struct store_op *list[] = {&claims, &ends, &again, &looks};
    bench_clean();
    open_as("first");
    s->a = claim("A", "k1", "f1");
    s->b = claim("B", "k2", "f2");
    end(s->b, 1, STATE_SUCCESS, "B's answer");
    /* As in a gateway: with a reader the log and its index outlive the writer's connection. */
    struct store_reader *reader;
    struct buffer error = {0};
    assert_int_equal(store_reader_open(&reader, store, &error), STATUS_OK);
    look_through(reader, "B");
    ask_claim(&claims, "C", "k3", "f3");
    ask_end(&ends, s->a, 1, STATE_SUCCESS, "A's answer");
    ask_claim(&again, "D", "k2", "f2");
    looks.kind = STORE_LOOKUP;
    identify(&looks.row, "B", NULL, NULL);
    faulty_vfs_arm(kind, n, forever);
    if (split)
        batch_in_halves(list, 4, split);
    else
        store_batch(store, list, 4);
    store_idle(store);
    bool failed = faulty_vfs_failures() > 0;
    faulty_vfs_arm(FAULT_NONE, 0, false);
    s->claimed = claims.status;
    s->ended = ends.status;
    assert_false(again.done);
    if (looks.status == STATUS_OK)
        EXPECT_TEXT(looks.rows.call.result_body, "B's answer");
    store_op_fini(&claims), store_op_fini(&ends), store_op_fini(&again), store_op_fini(&looks);
    s->told = what_a_reader_says(reader);

    if (after != AFTER_NOTHING) {
        /* Right after the answers the power goes, or the process: "not written" must not come back from the log. */
        faulty_vfs_power_off();
        store_reader_free(reader);
        reader = NULL;
        store_close(store);
        faulty_vfs_power_on(after == AFTER_KILL ? FAULTY_VFS_KEEP : (uint64_t)n * 31 + (uint64_t)kind);
        open_as("first");
    } else {
        store_idle(store);
        look_through(reader, "B");
    }
    expect_as_answered(s);
    assert_int_equal(claim("D", "k2", "f2"), 0);
    assert_true(claim("E", "k5", "f5")); /* it works on */
    store_reader_free(reader);
    reopen_as("first");
    expect_as_answered(s);
    expect_state("E", STATE_PROCESSING, false, REASON_NONE);
    store_close(store);
    store = NULL;
    return failed;
}

static void every_fault_of_a_batch_is_answered_truly(void **state)
{
    (void)state;
    int answers[STATUS_NO_MEMORY + 1] = {0};
    for (int kind = FAULT_FULL; kind < FAULT_KINDS; kind++)
        for (int way = 0; way < 2 * AFTERS * SPLITS; way++) {
            struct story s;
            int64_t n = 1;
            size_t split = (size_t)(way / 2 / AFTERS);
            enum after after = (enum after)(way / 2 % AFTERS);
            while (n < 200 && tell((enum fault)kind, n, way & 1, after, split, &s)) {
                answers[s.claimed]++;
                n++;
            }
            assert_true(n < 200);
            print_message("    %-10s %s%s%s: %d points\n", kind_names[kind], way & 1 ? "for ever" : "once",
                          afters[after], split ? ", two batches" : "", (int)n - 1);
        }
    assert_true(in_doubt > 0);
    print_message("    answered OK %d, IO %d, UNKNOWN %d\n", answers[STATUS_OK], answers[STATUS_IO],
                  answers[STATUS_UNKNOWN]);
    assert_true(answers[STATUS_IO] > 0);
    assert_int_equal(answers[STATUS_INVALID] + answers[STATUS_FULL] + answers[STATUS_NOT_FOUND], 0);
}

/* SQLite may have only so many percent of the memory that it has: a batch meets the end of it at ever later points, and
 * so does the connection that is opened anew. */
static void memory_that_runs_out_is_answered_truly(void **state)
{
    (void)state;
    int answers[STATUS_NO_MEMORY + 1] = {0};
    for (int percent = 2; percent <= 140; percent += 2) {
        struct story s;
        struct store_op claims = {0}, ends = {0};
        struct store_op *list[] = {&claims, &ends};
        bench_clean();
        open_as("first");
        s.a = claim("A", "k1", "f1");
        s.b = claim("B", "k2", "f2");
        end(s.b, 1, STATE_SUCCESS, "B's answer");
        ask_claim(&claims, "C", "k3", "f3");
        ask_end(&ends, s.a, 1, STATE_SUCCESS, "A's answer");
        sqlite3_hard_heap_limit64(sqlite3_memory_used() * percent / 100);
        store_batch(store, list, 2);
        sqlite3_hard_heap_limit64(0);
        s.claimed = claims.status;
        s.ended = ends.status;
        answers[s.claimed]++;
        store_op_fini(&claims), store_op_fini(&ends);
        expect_as_answered(&s);
        assert_true(claim("E", "k5", "f5"));
        reopen_as("first");
        expect_as_answered(&s);
        store_close(store);
        store = NULL;
    }
    print_message("    answered OK %d, IO %d, NO_MEMORY %d\n", answers[STATUS_OK], answers[STATUS_IO],
                  answers[STATUS_NO_MEMORY]);
    assert_true(answers[STATUS_OK] > 0 && answers[STATUS_NO_MEMORY] + answers[STATUS_IO] > 0);
    bench_clean();
}

static void every_fault_of_opening_is_a_sentence(void **state)
{
    (void)state;
    int refused = 0;
    for (int kind = FAULT_FULL; kind < FAULT_KINDS; kind++)
        for (int64_t n = 1; n < 200; n++) {
            struct buffer error = {0};
            bench_clean();
            faulty_vfs_arm((enum fault)kind, n, true);
            enum status status = bench_open(&store, "first", &error);
            bool failed = faulty_vfs_failures() > 0;
            faulty_vfs_arm(FAULT_NONE, 0, false);
            if (status == STATUS_OK)
                store_close(store);
            else
                assert_int_equal(status, STATUS_IO), assert_true(error.len > 20), refused++;
            buffer_fini(&error);
            open_as("first"); /* whatever was left behind does not hinder the next one */
            assert_true(claim("A", "k1", "f1"));
            store_close(store);
            store = NULL;
            if (!failed)
                break;
        }
    assert_true(refused > 10);
    bench_clean();
}

/* With a log long enough that a pause moves it: a connection that could not be opened must not pass for an empty store. */
static void what_is_there_is_never_denied(void **state)
{
    (void)state;
    char call[16], key[16];
    int refused = 0;
    for (int kind = FAULT_FULL; kind < FAULT_KINDS; kind++)
        for (int64_t n = 1; n < 7; n++)
            for (int idles = 0; idles < 3; idles++) {
                struct store_op op = {0};
                bench_clean();
                open_as("first");
                for (int i = 0; i < HELD; i++) {
                    snprintf(call, sizeof call, "c%d", i);
                    snprintf(key, sizeof key, "k%d", i);
                    assert_true(claim(call, key, "f1"));
                }
                faulty_vfs_arm((enum fault)kind, n, true);
                ask_claim(&op, "X", "kX", "f1");
                run(&op);
                for (int i = 0; i < idles; i++)
                    store_idle(store);
                faulty_vfs_arm(FAULT_NONE, 0, false);
                for (int i = 0; i < 4; i++) {
                    ask_claim(&op, "c3", NULL, NULL);
                    op.kind = STORE_LOOKUP;
                    run(&op);
                    assert_true(op.status == STATUS_OK ? op.rows.call.id == 4 : op.status == STATUS_IO);
                    refused += op.status == STATUS_IO;
                    ask_claim(&op, "other", "k3", "f1");
                    run(&op);
                    assert_false(op.done);
                }
                assert_int_equal(op.status, STATUS_OK); /* it works on */
                store_op_fini(&op);
                store_close(store);
                store = NULL;
            }
    assert_true(refused > 0);
    bench_clean();
}

/* The sync of an ending fails and the process dies: the next one finds it in the log, since the system still shows it, and
 * tells of it. The power goes after that. */
static void what_a_start_tells_stands(void **state)
{
    (void)state;
    int told = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct store_op op = {0}, *list[] = {&op};
        bench_clean();
        open_as("first");
        ask_end(&op, claim("A", "k1", "f1"), 1, STATE_SUCCESS, "A's answer");
        faulty_vfs_arm(FAULT_SYNC, 1, true);
        store_batch(store, list, 1);
        assert_int_equal(op.status, STATUS_UNKNOWN);
        store_op_fini(&op);
        faulty_vfs_power_off();
        store_close(store);
        faulty_vfs_power_on(FAULTY_VFS_KEEP);
        open_as("first");
        enum call_state before = state_of("A");
        told += before == STATE_SUCCESS;
        faulty_vfs_power_off();
        store_close(store);
        faulty_vfs_power_on(seed);
        open_as("first");
        assert_int_equal(state_of("A"), before);
        store_close(store);
        store = NULL;
    }
    assert_int_equal(told, 40);
    bench_clean();
}

#define ENDED_MAX 12

/* A sync of a batch fails, the store mends what that left, and the power goes in the middle of it. The file has been written
 * over out of a log that is on disk, or not at all. */
static void a_power_cut_while_it_is_mended_takes_no_answer(void **state)
{
    (void)state;
    static char body[ENDED_MAX][5000];
    bool over = false;
    int cuts = 0;
    for (int64_t n = 1; !over && n < 400; n++) {
        over = true;
        for (uint64_t seed = 1; seed <= 4; seed++) {
            struct store_op ops[ENDED_MAX] = {0}, later = {0}, *list[ENDED_MAX], *one[] = {&later};
            char name[16];
            bench_clean();
            open_as("first");
            for (int i = 0; i < 2 * ENDED_MAX; i++) {
                snprintf(name, sizeof name, "N%d", i);
                int64_t id = claim(name, name, "f1");
                if (i % 2)
                    end(id, 1, STATE_SUCCESS, name);
            }
            /* Moved, and the log begun anew, as in any long run. */
            assert_int_equal(sqlite3_exec(((struct sqlite_store *)store)->writer.db,
                                          "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL),
                             SQLITE_OK);
            end(claim("M", "M", "f1"), 1, STATE_SUCCESS,
                "M's answer"); /* its head is synced inside a commit */
            for (int i = 0; i < ENDED_MAX; i++) {
                memset(body[i], 'A' + i, sizeof body[i] - 1);
                snprintf(name, sizeof name, "N%d", 2 * i);
                ask_end(&ops[i], 2 * i + 1, 1, STATE_SUCCESS, body[i]);
                list[i] = &ops[i];
            }
            faulty_vfs_arm(FAULT_SYNC, 1, false);
            faulty_vfs_cut_after(n);
            store_batch(store, list, ENDED_MAX);
            ask_claim(&later, "later", "later", "f1");
            store_batch(store, one, 1);
            bool went = faulty_vfs_is_off();
            over = over && !went;
            cuts += went;
            faulty_vfs_power_off();
            store_close(store);
            faulty_vfs_cut_after(0);
            faulty_vfs_power_on(seed * 31 + (uint64_t)n);
            open_as("first");
            struct sqlite_store *s = (struct sqlite_store *)store;
            sqlite3_stmt *check;
            assert_int_equal(sqlite3_prepare_v2(s->writer.db, "PRAGMA integrity_check", -1, &check, NULL),
                             SQLITE_OK);
            assert_int_equal(sqlite3_step(check), SQLITE_ROW);
            assert_string_equal((const char *)sqlite3_column_text(check, 0), "ok");
            sqlite3_finalize(check);
            for (int i = 1; i < 2 * ENDED_MAX; i += 2) {
                snprintf(name, sizeof name, "N%d", i);
                assert_int_equal(state_of(name), STATE_SUCCESS);
            }
            for (int i = 0; i < ENDED_MAX; i++) {
                snprintf(name, sizeof name, "N%d", 2 * i);
                if (ops[i].status == STATUS_OK)
                    assert_int_equal(state_of(name), STATE_SUCCESS);
                store_op_fini(&ops[i]);
            }
            assert_int_equal(state_of("M"), STATE_SUCCESS);
            store_op_fini(&later);
            store_close(store);
            store = NULL;
        }
    }
    print_message("    %d cuts\n", cuts);
    assert_true(over && cuts > 60);
    bench_clean();
}

/* ---- power cuts ---- */

#define CUTS  60
#define NAMES 400

static void what_was_answered_survives_power_cuts(void **state)
{
    (void)state;
    struct prng prng;
    static char names[NAMES][16];
    static int answered[NAMES]; /* 0: not, 1: claimed, 2: ended */
    static int64_t ids[NAMES];
    static struct store_op ops[OPS_MAX];
    int next = 0, kept = 0;
    prng_seed(&prng, 7);
    memset(answered, 0, sizeof answered);
    bench_clean();
    open_as("first");
    for (int cut = 0; cut < CUTS && next < NAMES - OPS_MAX; cut++) {
        /* Some batches are answered; the power goes in the middle of a later one, or between two. */
        faulty_vfs_arm(FAULT_ANY, 1 + (int64_t)prng_below(&prng, 40), true);
        for (int batch = 0; batch < 12 && next < NAMES - 8; batch++) {
            struct store_op *list[OPS_MAX];
            int of[OPS_MAX];
            size_t count = 0;
            for (int i = 0; i < next && count < 3; i++)
                if (answered[i] == 1 && prng_below(&prng, 2)) {
                    ask_end(&ops[count], ids[i], 1, STATE_SUCCESS, names[i]);
                    of[count] = i, list[count] = &ops[count], count++;
                }
            size_t claims = 1 + prng_below(&prng, 3);
            for (size_t i = 0; i < claims; i++, next++, count++) {
                snprintf(names[next], sizeof names[next], "p-%d", next);
                ask_claim(&ops[count], names[next], names[next], "f1");
                of[count] = next, list[count] = &ops[count];
            }
            if (faulty_vfs_failures() > 0)
                faulty_vfs_power_off();
            if (count > 1 && prng_below(&prng, 2))
                batch_in_halves(list, count, 1 + prng_below(&prng, (uint32_t)count - 1));
            else
                store_batch(store, list, count);
            if (prng_below(&prng, 4) == 0)
                store_idle(store);
            for (size_t i = 0; i < count; i++) {
                if (ops[i].status == STATUS_OK && ops[i].done && ops[i].kind == STORE_CLAIM)
                    answered[of[i]] = 1, ids[of[i]] = ops[i].rows.call.id;
                else if (ops[i].status == STATUS_OK && ops[i].done)
                    answered[of[i]] = 2;
            }
            if (faulty_vfs_failures() > 0)
                break;
        }
        faulty_vfs_power_off();
        store_close(store);
        faulty_vfs_power_on(prng_next(&prng));
        open_as("first");
        for (int i = 0; i < next; i++) {
            struct store_op op = {0};
            look(&op, names[i]);
            if (answered[i]) {
                assert_true(op.rows.call.id == ids[i]);
                assert_true(op.rows.holder.id == ids[i]);
                kept++;
            }
            if (answered[i] == 2)
                EXPECT_TEXT(op.rows.call.result_body, names[i]);
            if (!answered[i] && op.rows.call.id)
                answered[i] = 1,
                ids[i] = op.rows.call.id; /* written, its answer lost: it stays from now on */
            if (answered[i] == 1 && op.rows.call.state == STATE_SUCCESS)
                answered[i] = 2;
            store_op_fini(&op);
        }
    }
    print_message("    %d calls over %d power cuts\n", next, CUTS);
    assert_true(next > 100 && kept > 1000);
    for (int i = 0; i < OPS_MAX; i++)
        store_op_fini(&ops[i]), memset(&ops[i], 0, sizeof ops[i]);
    store_close(store);
    store = NULL;
    bench_clean();
}

/* Batches that have begun and not ended when the power goes: each is there as a whole or not, none without the one before
 * it, and what had ended stays. */
static void what_has_only_begun_is_there_from_its_beginning_or_not(void **state)
{
    (void)state;
    int seen[3] = {0};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct store_op first[2] = {0}, second[2] = {0};
        struct store_op *a[] = {&first[0], &first[1]}, *b[] = {&second[0], &second[1]};
        bench_clean();
        open_as("first");
        int64_t id = claim("A", "k1", "f1");
        ask_claim(&first[0], "B", "k2", "f2");
        ask_claim(&first[1], "C", "k3", "f3");
        ask_end(&second[0], id, 1, STATE_SUCCESS, "A's answer");
        ask_claim(&second[1], "D", "k2", "f2"); /* B's key */
        assert_int_equal(store_batch_begin(store, a, 2), BATCH_BEGUN);
        if (seed % 2)
            store_batch_end(store);
        assert_int_equal(store_batch_begin(store, b, 2), BATCH_BEGUN);
        assert_false(second[1].done);
        faulty_vfs_power_off();
        for (uint64_t i = seed % 2; i < 2; i++)
            store_batch_end(store); /* the sync fails: nobody is told OK */
        for (int i = 0; i < 2; i++) {
            assert_int_equal(first[i].status, seed % 2 ? STATUS_OK : STATUS_UNKNOWN);
            assert_true(second[i].status != STATUS_OK);
            store_op_fini(&first[i]), store_op_fini(&second[i]);
        }
        store_close(store);
        faulty_vfs_power_on(seed * 77);
        open_as("first");
        struct store_op op = {0};
        look(&op, "B");
        bool one = op.rows.call.id != 0;
        look(&op, "C");
        assert_int_equal(op.rows.call.id != 0, one);
        look(&op, "A");
        bool two = op.rows.call.state == STATE_SUCCESS;
        assert_true(op.rows.call.id == id);
        assert_true(one || (!two && seed % 2 == 0));
        look(&op, "D");
        assert_int_equal(op.rows.call.id, 0);
        seen[one + two]++;
        store_op_fini(&op);
        store_close(store);
        store = NULL;
    }
    print_message("    %d times nothing, %d times the first, %d times both\n", seen[0], seen[1], seen[2]);
    assert_true(seen[0] && seen[1]);
    bench_clean();
}

/* ---- kills ---- */

#define KILLS       20
#define KILL_MS_MAX 30

static enum status open_real(struct store **out, struct buffer *error)
{
    char url[200];
    snprintf(url, sizeof url, "sqlite:%s", scratch_path("killed.db"));
    struct store_settings settings = {.url = url, .owner = "first", .now_ms = test_clock, .tail_entries = 8};
    return store_open(out, &settings, error);
}

struct said {
    int32_t round, n, what; /* 1: claimed, 2: ended */
};

/* Claims and ends, and says on the pipe what was answered. Never returns. */
static void work_until_killed(int round, int out)
{
    struct buffer error = {0};
    struct store_op op = {0};
    if (open_real(&store, &error) != STATUS_OK)
        _exit(3);
    for (int n = 0;; n++) {
        char name[32];
        snprintf(name, sizeof name, "%d-%d", round, n);
        ask_claim(&op, name, name, "f1");
        run(&op);
        if (op.status != STATUS_OK || !op.done)
            _exit(4);
        struct said said = {round, n, 1};
        if (write(out, &said, sizeof said) != sizeof said)
            _exit(5);
        ask_end(&op, op.rows.call.id, 1, STATE_SUCCESS, name);
        run(&op);
        said.what = 2;
        if (op.status != STATUS_OK || !op.done || write(out, &said, sizeof said) != sizeof said)
            _exit(6);
        if (n % 16 == 0)
            store_idle(store);
    }
}

static void what_was_answered_survives_kill_9(void **state)
{
    (void)state;
    struct prng prng;
    int checked = 0;
    prng_seed(&prng, (uint64_t)time(NULL));
    scratch_remove("killed.db");
    for (int round = 0; round < KILLS; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            work_until_killed(round, ends[1]);
        close(ends[1]);
        /* From its first answer on, at any moment. */
        struct pollfd first = {.fd = ends[0], .events = POLLIN};
        assert_int_equal(poll(&first, 1, 10000), 1);
        struct timespec nap = {.tv_nsec = (long)prng_below(&prng, KILL_MS_MAX * 1000000)};
        nanosleep(&nap, NULL);
        kill(child, SIGKILL);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        struct buffer error = {0};
        if (open_real(&store, &error) != STATUS_OK)
            fail_msg("%s", buffer_cstring(&error));
        struct said said;
        while (read(ends[0], &said, sizeof said) == sizeof said) {
            char name[32];
            struct store_op op = {0};
            snprintf(name, sizeof name, "%d-%d", said.round, said.n);
            look(&op, name);
            assert_true(op.rows.call.id && op.rows.holder.id == op.rows.call.id);
            if (said.what == 2)
                EXPECT_TEXT(op.rows.call.result_body, name);
            store_op_fini(&op);
            checked++;
        }
        close(ends[0]);
        store_close(store);
        store = NULL;
    }
    scratch_remove("killed.db");
    print_message("    %d answers checked after %d kills\n", checked, KILLS);
    assert_true(checked >= KILLS);
}

static int group_begin(void **state)
{
    (void)state;
    faulty_vfs_register();
    return hasher_init(&hasher) == STATUS_OK ? 0 : -1;
}

static int group_end(void **state)
{
    (void)state;
    hasher_fini(&hasher);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_of_a_batch_is_answered_truly),
        cmocka_unit_test(memory_that_runs_out_is_answered_truly),
        cmocka_unit_test(every_fault_of_opening_is_a_sentence),
        cmocka_unit_test(what_is_there_is_never_denied),
        cmocka_unit_test(what_a_start_tells_stands),
        cmocka_unit_test(a_power_cut_while_it_is_mended_takes_no_answer),
        cmocka_unit_test(what_was_answered_survives_power_cuts),
        cmocka_unit_test(what_has_only_begun_is_there_from_its_beginning_or_not),
        cmocka_unit_test(what_was_answered_survives_kill_9),
    };
    (void)conformance;
    scratch_make();
    int failed = cmocka_run_group_tests(tests, group_begin, group_end);
    bench_clean();
    scratch_clean();
    return failed;
}
