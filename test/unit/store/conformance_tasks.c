/* SPDX-License-Identifier: MIT
 *
 * The part of the conformance suite about compensation tasks: store/tasks.h, by the number of the guarantee. Included by
 * conformance.c, whose words it uses.
 */

static struct task_page page; /* too large for a stack */

/* A call that ended UNKNOWN, with its task due now. */
static int64_t unknown_call(const char *call_id, const char *key)
{
    struct store_op op = {0};
    int64_t id = claim(call_id, key, "f1");
    ask_end(&op, id, 1, STATE_UNKNOWN, NULL);
    op.make_task = true;
    op.task_due_ms = now_ms;
    run(&op);
    assert_true(op.done);
    store_op_fini(&op);
    return id;
}

static bool take_as(struct store_op *op, struct task_work *work, const char *owner)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    memset(work, 0, sizeof *work);
    op->kind = STORE_TASK_TAKE;
    op->work = work;
    work->task.owner = slice_text(owner);
    work->task.lease_end_ms = now_ms + 30000;
    run(op);
    assert_int_equal(op->status, STATUS_OK);
    return op->done;
}

/* Asks for the round of a task as it was taken. */
static void ask_round(struct store_op *op, struct task_work *work, const struct task_row *taken,
                      const char *owner, enum task_status status)
{
    struct task_row next = {
        .id = taken->id, .fence = taken->fence, .owner = slice_text(owner), .status = status};
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    memset(work, 0, sizeof *work);
    op->kind = STORE_TASK_ROUND;
    op->work = work;
    work->task = next;
    work->task.due_ms = now_ms + 1000;
    work->round.asked = slice_text("ask");
    work->round.answer = slice_text("NOT_RECEIVED");
    work->round.ours = slice_text("UNKNOWN");
    work->round.decision = slice_text("wait");
    work->round.evidence = slice_text("no such call there");
}

/* Asks a row to end by a receipt, inside another operation. */
static void ask_ending(struct store_op *op, int64_t call, enum call_state state)
{
    op->id = call;
    op->from_states = IN(UNKNOWN);
    op->row.state = state;
    op->row.final = true;
    op->row.reason = REASON_RECEIPT;
    op->row.result_expires_ms = op->row.key_expires_ms = now_ms + LIFE_MS;
    op->row.tombstone_expires_ms = now_ms + 3 * LIFE_MS;
}

static void read_task(struct store_op *op, int64_t id, int64_t call)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    memset(&page, 0, sizeof page);
    op->kind = STORE_TASK_READ;
    op->id = id;
    op->row.id = call;
    op->page = &page;
    run(op);
    assert_int_equal(op->status, STATUS_OK);
}

/* ---- (9) one taker, and only it writes ---- */

static void a_due_task_is_taken_once_and_brings_its_call(void **state)
{
    (void)state;
    struct store_op op = {0}, other = {0};
    struct task_work work, others;
    int64_t a = unknown_call("A", "k1");
    now_ms -= 1;
    assert_false(take_as(&op, &work, "first"));
    now_ms += 1;
    assert_true(take_as(&op, &work, "first"));
    assert_int_equal(work.now.call, a);
    assert_int_equal(work.now.status, TASK_RUNNING);
    assert_int_equal(work.now.cause, TASK_CAUSE_UNKNOWN);
    assert_int_equal(work.now.round, 1);
    assert_int_equal(work.now.lease_end_ms, now_ms + 30000);
    EXPECT_TEXT(work.now.owner, "first");
    EXPECT_TEXT(op.rows.call.call_id, "A");
    assert_int_equal(op.rows.holder.id, a);
    assert_false(work.kept.has);
    assert_false(take_as(&other, &others, "first"));
    store_op_fini(&op), store_op_fini(&other);
}

static void a_round_is_a_row_and_the_next_is_due_later(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work, next;
    unknown_call("A", "k1");
    assert_true(take_as(&op, &work, "first"));
    struct task_row taken = work.now;
    struct store_op write = {0};
    ask_round(&write, &next, &taken, "first", TASK_PENDING);
    run(&write);
    assert_true(write.done);
    assert_int_equal(next.now.status, TASK_PENDING);
    EXPECT_TEXT(next.now.last_answer, "NOT_RECEIVED");
    /* Written twice, as after a lost answer: it is there once. */
    run(&write);
    assert_true(write.done);
    assert_false(take_as(&op, &work, "first"));
    now_ms += 1000;
    assert_true(take_as(&op, &work, "first"));
    assert_int_equal(work.now.round, 2);
    taken = work.now;
    ask_round(&write, &next, &taken, "first", TASK_MANUAL);
    next.task.tell = TASK_TELL_OWED;
    next.task.tell_due_ms = now_ms;
    run(&write);
    assert_true(write.done);
    read_task(&op, taken.id, 0);
    assert_int_equal(page.count, 1);
    assert_int_equal(page.tasks[0].status, TASK_MANUAL);
    EXPECT_TEXT(page.tasks[0].call_id, "A");
    assert_int_equal(page.tasks[0].call_state, STATE_UNKNOWN);
    assert_int_equal(page.round_count, 2);
    assert_int_equal(page.rounds[0].n, 1);
    assert_int_equal(page.rounds[1].n, 2);
    EXPECT_TEXT(page.rounds[1].evidence, "no such call there");
    EXPECT_TEXT(page.rounds[0].owner, "first");
    /* MANUAL is due to nobody. */
    now_ms += LIFE_MS / 2;
    assert_false(take_as(&op, &work, "first"));
    store_op_fini(&op), store_op_fini(&write);
}

static void a_round_that_was_cut_short_is_a_row_and_its_owner_is_out(void **state)
{
    (void)state;
    struct store_op op = {0}, write = {0};
    struct task_work work, next;
    int64_t a = unknown_call("A", "k1");
    assert_true(take_as(&op, &work, "first"));
    struct task_row lost = {.id = work.now.id, .fence = work.now.fence};
    now_ms += 30000; /* its lease is over */
    assert_true(take_as(&op, &work, "first"));
    assert_int_equal(work.now.round, 2);
    assert_true(work.now.fence > lost.fence);
    ask_round(&write, &next, &lost, "first", TASK_PENDING);
    run(&write);
    assert_int_equal(write.status, STATUS_CONFLICT);
    assert_false(write.done);
    /* So is a process that died: the next one goes on at once. */
    reopen_as("second");
    now_ms += 30000;
    assert_true(take_as(&op, &work, "second"));
    assert_int_equal(work.now.round, 3);
    read_task(&op, 0, a);
    assert_int_equal(page.round_count, 2);
    EXPECT_TEXT(page.rounds[0].answer, "interrupted");
    EXPECT_TEXT(page.rounds[1].answer, "interrupted");
    assert_int_equal(page.rounds[1].n, 2);
    store_op_fini(&op), store_op_fini(&write);
}

/* ---- (10) a round and what it decided are one ---- */

static void a_round_settles_its_call_in_the_same_commit(void **state)
{
    (void)state;
    struct store_op op = {0}, write = {0};
    struct task_work work, next;
    int64_t a = unknown_call("A", "k1");
    assert_true(take_as(&op, &work, "first"));
    struct task_row taken = work.now;
    ask_round(&write, &next, &taken, "first", TASK_RESOLVED);
    next.end_call = true;
    ask_ending(&write, a, STATE_SUCCESS);
    run(&write);
    assert_true(write.done);
    assert_int_equal(write.rows.call.state, STATE_SUCCESS);
    expect_state("A", STATE_SUCCESS, true, REASON_RECEIPT);
    read_task(&op, 0, a);
    assert_int_equal(page.tasks[0].status, TASK_RESOLVED);
    assert_int_equal(page.round_count, 1);
    store_op_fini(&op), store_op_fini(&write);
}

static void a_call_that_ended_otherwise_is_not_ended_again(void **state)
{
    (void)state;
    struct store_op op = {0}, write = {0};
    struct task_work work, next;
    int64_t a = unknown_call("A", "k1");
    assert_true(take_as(&op, &work, "first"));
    struct task_row taken = {.id = work.now.id, .fence = work.now.fence};
    ask_end(&op, a, 0, STATE_FAILED, NULL);
    op.any_fence = op.row.final = true;
    op.from_states = IN(UNKNOWN);
    run(&op);
    assert_true(op.done);
    ask_round(&write, &next, &taken, "first", TASK_RESOLVED);
    next.end_call = true;
    ask_ending(&write, a, STATE_SUCCESS);
    run(&write);
    assert_int_equal(write.status, STATUS_CONFLICT);
    assert_int_equal(write.rows.call.state, STATE_FAILED);
    read_task(&op, taken.id, 0);
    assert_int_equal(page.tasks[0].status, TASK_RESOLVED);
    assert_int_equal(page.round_count, 0);
    /* What the round saw may still be written down. */
    ask_round(&write, &next, &taken, "first", TASK_RESOLVED);
    run(&write);
    assert_true(write.done);
    read_task(&op, taken.id, 0);
    assert_int_equal(page.round_count, 1);
    store_op_fini(&op), store_op_fini(&write);
}

/* ---- (12) people ---- */

static void ask_resolve(struct store_op *op, struct task_work *work, int64_t task, enum call_state outcome)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    memset(work, 0, sizeof *work);
    op->kind = STORE_TASK_RESOLVE;
    ask_ending(op, task, outcome);
    op->work = work;
    work->audit.who = slice_text("mei");
    work->audit.what = slice_text("resolve");
    work->audit.evidence = slice_text("the ledger has it");
}

static void a_person_settles_with_evidence(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    int64_t a = unknown_call("A", "k1");
    read_task(&op, 0, a);
    int64_t task = page.tasks[0].id;
    ask_resolve(&op, &work, task, STATE_SUCCESS);
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_true(op.done);
    assert_int_equal(work.now.status, TASK_RESOLVED);
    EXPECT_TEXT(work.now.call_id, "A");
    expect_state("A", STATE_SUCCESS, true, REASON_PERSON);
    read_task(&op, task, 0);
    assert_int_equal(page.audit_count, 1);
    EXPECT_TEXT(page.audits[0].who, "mei");
    EXPECT_TEXT(page.audits[0].evidence, "the ledger has it");
    EXPECT_TEXT(page.audits[0].call_id, "A");
    assert_int_equal(page.audits[0].at_ms, now_ms);
    /* Settled is settled. */
    ask_resolve(&op, &work, task, STATE_FAILED);
    run(&op);
    assert_int_equal(op.status, STATUS_CONFLICT);
    assert_int_equal(op.rows.call.state, STATE_SUCCESS);
    ask_resolve(&op, &work, task + 100, STATE_FAILED);
    run(&op);
    assert_int_equal(op.status, STATUS_NOT_FOUND);
    store_op_fini(&op);
}

static void nobody_settles_what_is_at_work(void **state)
{
    (void)state;
    struct store_op op = {0}, taken = {0};
    struct task_work work, held;
    int64_t a = unknown_call("A", "k1");
    assert_true(take_as(&taken, &held, "first"));
    ask_resolve(&op, &work, held.now.id, STATE_FAILED);
    run(&op);
    assert_int_equal(op.status, STATUS_CONFLICT);
    assert_int_equal(work.now.status, TASK_RUNNING);
    struct task_row was = held.now;
    struct store_op write = {0};
    struct task_work next;
    ask_round(&write, &next, &was, "first", TASK_PENDING);
    run(&write);
    /* The caller's repeat runs the call. */
    ask_take(&op, "A", "k1", "f1");
    op.expect_call_id = op.expect_holder_id = a;
    op.expect_call_fence = op.expect_holder_fence = 1;
    run(&op);
    assert_true(op.done);
    ask_resolve(&op, &work, was.id, STATE_FAILED);
    run(&op);
    assert_int_equal(op.status, STATUS_CONFLICT);
    assert_int_equal(op.rows.call.state, STATE_PROCESSING);
    read_task(&op, 0, a);
    assert_int_equal(page.audit_count, 0);
    store_op_fini(&op), store_op_fini(&taken), store_op_fini(&write);
}

static void a_person_asks_for_one_round_more(void **state)
{
    (void)state;
    struct store_op op = {0}, write = {0};
    struct task_work work, next;
    unknown_call("A", "k1");
    assert_true(take_as(&op, &work, "first"));
    struct task_row taken = work.now;
    ask_round(&write, &next, &taken, "first", TASK_MANUAL);
    next.task.tell = TASK_TELL_OWED;
    run(&write);
    int64_t task = taken.id;
    store_op_fini(&op);
    memset(&op, 0, sizeof op);
    memset(&work, 0, sizeof work);
    op.kind = STORE_TASK_RUN;
    op.id = task;
    op.work = &work;
    work.audit.who = slice_text("mei");
    work.audit.what = slice_text("run");
    run(&op);
    assert_true(op.done);
    assert_int_equal(work.now.status, TASK_PENDING);
    assert_int_equal(work.now.granted, 1);
    assert_int_equal(work.now.tell, TASK_TELL_NONE);
    assert_true(take_as(&op, &work, "first"));
    assert_int_equal(work.now.round, 2);
    /* At least as much as the asker says is granted to a MANUAL task, and nothing to one that still has rounds. */
    ask_round(&write, &next, &work.now, "first", TASK_MANUAL);
    run(&write);
    for (int wish = 7; wish < 9; wish++) {
        store_op_fini(&op);
        memset(&op, 0, sizeof op);
        memset(&work, 0, sizeof work);
        op.kind = STORE_TASK_RUN;
        op.id = task;
        op.work = &work;
        work.task.granted = wish;
        work.audit.who = slice_text("mei");
        work.audit.what = slice_text("run");
        run(&op);
        assert_int_equal(work.now.granted, 7);
    }
    read_task(&op, task, 0);
    assert_int_equal(page.audit_count, 3);
    store_op_fini(&op), store_op_fini(&write);
}

static void changes_are_listed_newest_first(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work = {0};
    for (int i = 0; i < 3; i++) {
        op.kind = STORE_AUDIT;
        op.work = &work;
        work.audit.who = slice_text(i == 1 ? "li" : "mei");
        work.audit.what = slice_text("erase");
        work.audit.tenant = slice_text(i == 1 ? "t2" : "t1");
        run(&op);
        assert_true(op.done);
        store_op_fini(&op);
        memset(&op, 0, sizeof op);
    }
    memset(&page, 0, sizeof page);
    op.kind = STORE_AUDIT_LIST;
    op.page = &page;
    page.limit = 2;
    run(&op);
    assert_int_equal(page.audit_count, 2);
    EXPECT_TEXT(page.audits[1].who, "li");
    assert_true(page.next_before_id > 0);
    page.before_id = page.next_before_id;
    run(&op);
    assert_int_equal(page.audit_count, 1);
    assert_int_equal(page.next_before_id, 0);
    page.before_id = 0;
    page.has_tenant = true;
    page.tenant = slice_text("t2");
    run(&op);
    assert_int_equal(page.audit_count, 1);
    EXPECT_TEXT(page.audits[0].who, "li");
    store_op_fini(&op);
}

/* ---- lists ---- */

static void tasks_are_listed_by_status_in_pages(void **state)
{
    (void)state;
    struct store_op op = {0}, write = {0};
    struct task_work work, next;
    char name[8], key[8];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "C%d", i);
        snprintf(key, sizeof key, "k%d", i);
        unknown_call(name, key);
        now_ms += 10;
    }
    assert_true(take_as(&op, &work, "first")); /* the oldest */
    struct task_row taken = work.now;
    ask_round(&write, &next, &taken, "first", TASK_MANUAL);
    run(&write);
    store_op_fini(&op);
    memset(&op, 0, sizeof op);
    memset(&page, 0, sizeof page);
    op.kind = STORE_TASK_LIST;
    op.page = &page;
    page.limit = 3;
    run(&op);
    assert_int_equal(page.count, 3);
    EXPECT_TEXT(page.tasks[0].call_id, "C4");
    EXPECT_TEXT(page.tasks[0].route, "orders");
    page.before_id = page.next_before_id;
    run(&op);
    assert_int_equal(page.count, 2);
    assert_int_equal(page.next_before_id, 0);
    page.before_id = 0;
    page.statuses = 1u << TASK_MANUAL;
    run(&op);
    assert_int_equal(page.count, 1);
    EXPECT_TEXT(page.tasks[0].call_id, "C0");
    page.statuses = 0;
    page.until_ms = now_ms - 30;
    run(&op);
    assert_int_equal(page.count, 2);
    page.until_ms = 0;
    page.look_max = 2;
    page.route = slice_text("none");
    run(&op);
    assert_int_equal(page.count, 0);
    assert_true(page.next_before_id > 0);
    op.kind = STORE_TASK_COUNTS;
    run(&op);
    assert_int_equal(page.by_status[TASK_PENDING], 4);
    assert_int_equal(page.by_status[TASK_MANUAL], 1);
    assert_int_equal(page.unknown, 5);
    assert_int_equal(page.oldest_unknown_ms, now_ms - 50);
    store_op_fini(&op), store_op_fini(&write);
}

static void a_person_is_told_by_one_teller_at_a_time(void **state)
{
    (void)state;
    struct store_op op = {0}, write = {0};
    struct task_work work, next;
    unknown_call("A", "k1");
    assert_true(take_as(&op, &work, "first"));
    struct task_row taken = work.now;
    ask_round(&write, &next, &taken, "first", TASK_MANUAL);
    next.task.tell = TASK_TELL_OWED;
    next.task.tell_due_ms = now_ms;
    run(&write);
    for (int i = 0; i < 2; i++) {
        store_op_fini(&op);
        memset(&op, 0, sizeof op);
        memset(&work, 0, sizeof work);
        op.kind = STORE_TELL_TAKE;
        op.work = &work;
        work.task.tell_due_ms = now_ms + 500;
        run(&op);
        assert_int_equal(op.done, i == 0);
        if (i == 0) {
            assert_int_equal(work.now.id, taken.id);
            assert_int_equal(work.now.tell_tries, 1);
            EXPECT_TEXT(op.rows.call.call_id, "A");
        }
    }
    /* The first teller died: after its time another tells. */
    now_ms += 500;
    work.task.tell_due_ms = now_ms + 500;
    run(&op);
    assert_true(op.done);
    assert_int_equal(work.now.tell_tries, 2);
    for (int tries = 1; tries <= 2; tries++) {
        store_op_fini(&op);
        memset(&op, 0, sizeof op);
        memset(&work, 0, sizeof work);
        op.kind = STORE_TELL_DONE;
        op.id = taken.id;
        op.work = &work;
        work.task.tell = TASK_TELL_DONE;
        work.task.tell_tries = tries;
        run(&op);
        assert_int_equal(op.done, tries == 2);
    }
    op.kind = STORE_TELL_TAKE;
    now_ms += 10000;
    run(&op);
    assert_false(op.done);
    store_op_fini(&op), store_op_fini(&write);
}

/* ---- (11) reversal, and what is kept for it ---- */

static void ask_reverse(struct store_op *op, int64_t call, const char *call_id,
                        const struct kept_request *keep)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    op->kind = STORE_REVERSE;
    identify(&op->row, call_id, "undo", NULL);
    op->row.scope = slice_text("orders reversal");
    op->row.operation_digest = digest_operation(&hasher, op->row.tenant, op->row.scope, op->row.key);
    op->row.reverses = slice_text("A");
    op->id = call;
    op->from_states = IN(SUCCESS);
    op->keep = keep;
}

static void an_operation_is_reversed_once(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    struct kept_request keep = {.has = true,
                                .method = slice_text("POST"),
                                .target = slice_text("/cancel"),
                                .lines = slice_text("A: b\r\n")};
    int64_t a = claim("A", "k1", "f1");
    ask_reverse(&op, a, "R0", &keep);
    run(&op);
    assert_false(op.done); /* it runs: there is nothing to undo yet */
    end(a, 1, STATE_SUCCESS, "done");
    for (int i = 1; i <= 3; i++) {
        ask_reverse(&op, a, i == 1 ? "R1" : "R2", &keep);
        run(&op);
        assert_int_equal(op.status, STATUS_OK);
        assert_int_equal(op.done, i == 1);
        assert_int_equal(op.rows.call.id, a);
        EXPECT_TEXT(op.rows.call.reversed_by, "R1");
        EXPECT_TEXT(op.rows.call.result_body, "done");
    }
    look(&op, "R1");
    assert_int_equal(op.rows.call.state, STATE_RECEIVED);
    EXPECT_TEXT(op.rows.call.reverses, "A");
    look(&op, "R2");
    assert_int_equal(op.rows.call.id, 0);
    assert_true(take_as(&op, &work, "first"));
    assert_int_equal(work.now.cause, TASK_CAUSE_REVERSAL);
    EXPECT_TEXT(op.rows.call.call_id, "R1");
    assert_true(work.kept.has);
    EXPECT_TEXT(work.kept.target, "/cancel");
    assert_int_equal(work.kept.body.len, 0);
    store_op_fini(&op);
}

/* Begins the reversal of a FAILED call. */
static void ask_undo(struct store_op *op, int64_t call, const char *call_id, const struct kept_request *keep)
{
    ask_reverse(op, call, call_id, keep);
    op->from_states = IN(FAILED);
    run(op);
    assert_int_equal(op->status, STATUS_OK);
}

static void a_failed_call_is_undone_only_while_its_key_is_its_own(void **state)
{
    (void)state;
    struct store_op op = {0}, other = {0};
    struct kept_request keep = {
        .has = true, .method = slice_text("POST"), .target = slice_text("/cancel"), .lines = slice_text("")};
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_FAILED, "no");
    look(&op, "A");
    int64_t fence = op.rows.call.fence;
    ask_undo(&op, a, "R1", &keep);
    assert_true(op.done);
    other.kind = STORE_TAKE; /* who decided before the reversal began takes nothing */
    identify(&other.row, "B", "k1", "f1");
    other.expect_holder_id = a;
    other.expect_holder_fence = fence;
    run(&other);
    assert_false(other.done);
    assert_int_equal(other.rows.holder.id, a);
    EXPECT_TEXT(other.rows.holder.reversed_by, "R1");
    store_op_fini(&other);
    int64_t c = claim("C", "k2", "f1");
    end(c, 1, STATE_FAILED, "no");
    look(&op, "C");
    memset(&other, 0, sizeof other);
    other.kind = STORE_TAKE;
    identify(&other.row, "D", "k2", "f1");
    other.expect_holder_id = c;
    other.expect_holder_fence = op.rows.call.fence;
    run(&other);
    assert_true(other.done);
    ask_undo(&op, c, "R2", &keep);
    assert_false(op.done);
    assert_int_equal(op.rows.call.id, c);
    assert_int_equal(op.rows.call.reversed_by.len, 0);
    look(&op, "R2");
    assert_int_equal(op.rows.call.id, 0);
    store_op_fini(&op), store_op_fini(&other);
}

static void a_reversal_is_sent_as_it_was_kept(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    struct kept_request keep = {.has = true,
                                .method = slice_text("POST"),
                                .target = slice_text("/orders"),
                                .lines = slice_text("Authorization: x\r\n"),
                                .body = slice_text("{}"),
                                .reversal = slice_text("DELETE /orders/1")};
    int64_t plain = claim("A", "k1", "f1");
    end(plain, 1, STATE_SUCCESS, "done");
    ask_reverse(&op, plain, "R0", NULL);
    run(&op);
    assert_int_equal(op.status, STATUS_NOT_FOUND);
    look(&op, "R0");
    assert_int_equal(op.rows.call.id, 0);
    ask_claim(&op, "B", "k2", "f1");
    op.keep = &keep;
    run(&op);
    int64_t b = op.rows.call.id;
    ask_end(&op, b, 1, STATE_SUCCESS, "done");
    op.drop_kept = true;
    run(&op);
    assert_true(op.done);
    ask_reverse(&op, b, "R1", NULL);
    run(&op);
    assert_true(op.done);
    assert_true(take_as(&op, &work, "first"));
    EXPECT_TEXT(op.rows.call.call_id, "R1");
    assert_true(work.kept.has);
    EXPECT_TEXT(work.kept.method, "DELETE");
    EXPECT_TEXT(work.kept.target, "/orders/1");
    EXPECT_TEXT(work.kept.lines, "Authorization: x\r\n");
    assert_int_equal(work.kept.body.len, 0);
    store_op_fini(&op);
}

static void a_reversals_own_ending_settles_its_task(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct kept_request keep = {.has = true, .method = slice_text("POST"), .target = slice_text("/cancel")};
    for (int undone = 0; undone < 2; undone++) {
        const char *name = undone ? "A" : "B", *undo = undone ? "RA" : "RB";
        int64_t call = claim(name, name, "f1");
        end(call, 1, STATE_SUCCESS, "done");
        ask_reverse(&op, call, undo, &keep);
        op.row.key = slice_text(undo);
        op.row.operation_digest = digest_operation(&hasher, op.row.tenant, op.row.scope, op.row.key);
        run(&op);
        assert_true(op.done);
        look(&op, undo);
        int64_t reversal = op.rows.call.id, fence = op.rows.call.fence;
        ask_take(&op, undo, undo, NULL);
        op.row.scope = slice_text("orders reversal");
        op.row.operation_digest = digest_operation(&hasher, op.row.tenant, op.row.scope, op.row.key);
        op.expect_call_id = op.expect_holder_id = reversal;
        op.expect_call_fence = op.expect_holder_fence = fence;
        run(&op);
        assert_true(op.done);
        ask_end(&op, reversal, fence + 1, STATE_UNKNOWN, NULL);
        op.make_task = true;
        run(&op);
        ask_end(&op, reversal, fence + 1, undone ? STATE_SUCCESS : STATE_FAILED, NULL);
        op.row.final = true;
        op.from_states = IN(UNKNOWN);
        run(&op);
        assert_true(op.done);
        read_task(&op, 0, reversal);
        assert_int_equal(page.tasks[0].status, undone ? TASK_REVERSED : TASK_MANUAL);
        assert_int_equal(page.tasks[0].tell, undone ? TASK_TELL_NONE : TASK_TELL_OWED);
    }
    store_op_fini(&op);
}

static void a_shared_effect_is_reversed_at_its_own_call(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct kept_request keep = {.has = true, .method = slice_text("POST"), .target = slice_text("/cancel")};
    int64_t a = claim("A", "k1", "f1");
    end(a, 1, STATE_SUCCESS, "done");
    ask_claim(&op, "B", "k1", "f1");
    op.kind = STORE_ATTACH;
    op.expect_holder_id = a;
    run(&op);
    assert_true(op.done);
    int64_t b = op.rows.call.id;
    ask_reverse(&op, b, "R1", &keep);
    run(&op);
    assert_true(op.done);
    assert_int_equal(op.rows.call.id, b);
    EXPECT_TEXT(op.rows.call.reversed_by, "R1");
    look(&op, "A");
    EXPECT_TEXT(op.rows.call.reversed_by, "R1");
    ask_reverse(&op, a, "R2", &keep);
    run(&op);
    assert_false(op.done);
    store_op_fini(&op);
}

static void a_kept_request_goes_when_its_call_is_settled(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    for (int undo = 0; undo < 2; undo++) {
        struct kept_request keep = {.has = true,
                                    .method = slice_text("POST"),
                                    .target = slice_text("/orders"),
                                    .lines = slice_text("Authorization: x\r\n"),
                                    .body = slice_text("{}"),
                                    .reversal = slice_text(undo ? "POST /orders/1/cancel" : "")};
        const char *name = undo ? "B" : "A";
        ask_claim(&op, name, name, "f1");
        op.keep = &keep;
        run(&op);
        int64_t id = op.rows.call.id;
        ask_end(&op, id, 1, STATE_UNKNOWN, NULL);
        op.make_task = true;
        run(&op);
        assert_true(take_as(&op, &work, "first"));
        assert_true(work.kept.has);
        EXPECT_TEXT(work.kept.body, "{}");
        EXPECT_TEXT(work.kept.lines, "Authorization: x\r\n");
        struct task_row taken = {.id = work.now.id, .fence = work.now.fence};
        struct task_work next;
        struct store_op write = {0};
        ask_round(&write, &next, &taken, "first", TASK_RESOLVED);
        next.end_call = true;
        ask_ending(&write, id, STATE_SUCCESS);
        run(&write);
        assert_true(write.done);
        /* Asked for through a task made anew. */
        store_op_fini(&op);
        op = (struct store_op){.kind = STORE_TASK, .id = id, .task_cause = TASK_CAUSE_CONTRADICTED};
        run(&op);
        assert_true(take_as(&op, &work, "first"));
        assert_int_equal(work.now.cause, TASK_CAUSE_CONTRADICTED);
        assert_false(work.kept.has);
        EXPECT_TEXT(work.kept.reversal, undo ? "POST /orders/1/cancel" : "");
        EXPECT_TEXT(work.kept.lines, undo ? "Authorization: x\r\n" : "");
        store_op_fini(&write);
    }
    store_op_fini(&op);
}

/* Nobody may send it again: what its caller was not asked to leave here is not kept here. */
static void a_kept_request_goes_when_its_call_is_abandoned(void **state)
{
    (void)state;
    struct store_op op = {0};
    struct task_work work;
    struct kept_request keep = {.has = true,
                                .method = slice_text("POST"),
                                .target = slice_text("/orders"),
                                .lines = slice_text("Authorization: x\r\n"),
                                .body = slice_text("{}")};
    ask_claim(&op, "A", "k1", "f1");
    op.keep = &keep;
    run(&op);
    int64_t a = op.rows.call.id;
    end(a, 1, STATE_FAILED, NULL);
    now_ms += LIFE_MS;
    assert_int_equal(purge(10), 1);
    expect_state("A", STATE_FAILED, true, REASON_ABANDONED);
    store_op_fini(&op);
    op = (struct store_op){.kind = STORE_TASK, .id = a, .task_cause = TASK_CAUSE_CONTRADICTED};
    run(&op);
    assert_true(take_as(&op, &work, "first"));
    assert_int_equal(work.now.call, a);
    assert_false(work.kept.has);
    assert_int_equal(work.kept.lines.len, 0);
    store_op_fini(&op);
}

/* Another process takes what is at work only when its lease is over, where both may live; the one that was late then
 * writes neither its round nor the ending that it found. */
static void a_round_is_taken_over_when_its_gateway_is_gone_and_not_before(void **state)
{
    (void)state;
    struct store_op op = {0}, write = {0};
    struct task_work work, late, next;
    int64_t a = unknown_call("A", "k1");
    assert_true(take_as(&op, &late, "first"));
    struct task_row was = {.id = late.now.id, .fence = late.now.fence};
    reopen_as("second");
    now_ms += 29999;
    if (CONFORMANCE_SHARED)
        assert_false(take_as(&op, &work, "second"));
    now_ms += 1;
    assert_true(take_as(&op, &work, "second"));
    assert_int_equal(work.now.call, a);
    assert_int_equal(work.now.round, 2);
    assert_int_equal(op.rows.call.id, a);
    struct task_row taken = {.id = work.now.id, .fence = work.now.fence};
    ask_round(&write, &next, &was, "first", TASK_RESOLVED);
    next.end_call = true;
    ask_ending(&write, a, STATE_SUCCESS);
    run(&write);
    assert_int_equal(write.status, STATUS_CONFLICT);
    expect_state("A", STATE_UNKNOWN, false, REASON_NONE);
    ask_round(&write, &next, &taken, "second", TASK_RESOLVED);
    next.end_call = true;
    ask_ending(&write, a, STATE_SUCCESS);
    run(&write);
    assert_int_equal(write.status, STATUS_OK);
    assert_true(write.done);
    look(&op, "A");
    assert_int_equal(op.rows.call.state, STATE_SUCCESS);
    store_op_fini(&op), store_op_fini(&write);
}
