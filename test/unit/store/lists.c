/* SPDX-License-Identifier: MIT
 *
 * What store.h promises of STORE_LIST, over whatever store the program that includes this file opens: every filter and
 * every pair of filters, at several page sizes and bounds, against a model that simply looks at all rows; and that pages stay
 * good while rows come. The including program defines bench_open() and bench_clean() as for conformance.c.
 */
#include "conformance.c"

#define LIST_ROWS 1500

struct fact {
    int64_t id, created_ms;
    enum call_state state;
    char tenant[8], route[8], call_id[32], key[32], ref[32], trace[40];
};

static struct fact facts[LIST_ROWS];
static size_t fact_count;
static struct store_list list;

static void add_fact(enum call_state state)
{
    struct fact *f = &facts[fact_count];
    size_t i = fact_count++;
    now_ms += 1000;
    f->created_ms = now_ms;
    f->state = state;
    snprintf(f->tenant, sizeof f->tenant, "%s", i % 5 == 0 ? "" : i % 5 == 1 ? "t2" : "t1");
    snprintf(f->route, sizeof f->route, "%s", i % 200 == 7 ? "seldom" : "orders");
    snprintf(f->call_id, sizeof f->call_id, "call-%zu", i);
    if (i % 3)
        snprintf(f->key, sizeof f->key, "key-%zu", i);
    if (i % 4 == 0)
        snprintf(f->ref, sizeof f->ref, "ref %zu", i / 40);
    snprintf(f->trace, sizeof f->trace, "%032zx", i / 6);
    struct store_op op = {.kind = STORE_CLAIM};
    struct call_row *row = &op.row;
    row->tenant = slice_text(f->tenant);
    row->route = row->scope = slice_text(f->route);
    row->call_id = slice_text(f->call_id);
    row->call_digest = digest_call(&hasher, row->tenant, row->call_id);
    row->key = slice_text(f->key);
    row->has_key = row->key.len > 0;
    if (row->has_key)
        row->operation_digest = digest_operation(&hasher, row->tenant, row->scope, row->key);
    row->business_ref = slice_text(f->ref);
    row->trace_id = slice_text(f->trace);
    row->owner = slice_text("first");
    row->state = STATE_PROCESSING;
    row->fence = row->attempt_count = 1;
    row->lease_end_ms = now_ms + 60000;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_true(op.done);
    f->id = op.rows.call.id;
    store_op_fini(&op);
    if (state == STATE_PROCESSING)
        return;
    op = (struct store_op){0};
    ask_end(&op, f->id, 1, state, state == STATE_SUCCESS ? "body" : NULL);
    op.row.final = state != STATE_UNKNOWN;
    op.row.result_expires_ms = op.row.key_expires_ms = op.row.tombstone_expires_ms = INT64_MAX;
    run(&op);
    assert_true(op.done);
    store_op_fini(&op);
}

static void fill(size_t rows)
{
    while (rows-- > 0)
        add_fact(fact_count % 97 == 13    ? STATE_FAILED
                 : fact_count % 131 == 17 ? STATE_UNKNOWN
                 : fact_count % 400 == 5  ? STATE_PROCESSING
                                          : STATE_SUCCESS);
}

/* Sketches up to `blocks` blocks; all: SIZE_MAX. */
static void sketch(size_t blocks)
{
    struct store_op op = {.kind = STORE_SKETCH, .limit = blocks < 2 ? blocks : 2};
    size_t done = 0;
    do {
        run(&op);
        assert_int_equal(op.status, STATUS_OK);
        done += op.count;
        assert_true(op.count <= op.limit);
    } while (op.more && done < blocks);
    store_op_fini(&op);
}

static bool fits(const struct fact *f, const struct store_list *l)
{
    return (!l->states || l->states >> f->state & 1) && (!l->has_tenant || slice_is(l->tenant, f->tenant)) &&
           (!l->route.len || slice_is(l->route, f->route)) &&
           (!l->call_id.len || slice_is(l->call_id, f->call_id)) &&
           (!l->key.len || slice_is(l->key, f->key)) &&
           (!l->business_ref.len || slice_is(l->business_ref, f->ref)) &&
           (!l->trace_id.len || slice_is(l->trace_id, f->trace)) &&
           (!l->since_ms || f->created_ms >= l->since_ms) && (!l->until_ms || f->created_ms < l->until_ms);
}

static void list_page(struct store_op *op)
{
    store_op_fini(op);
    memset(op, 0, sizeof *op);
    op->kind = STORE_LIST;
    op->list = &list;
    run(op);
    assert_int_equal(op->status, STATUS_OK);
    assert_true(list.count <= list.limit);
}

static void same(const struct fact *f, const struct call_row *row)
{
    assert_int_equal(row->id, f->id);
    assert_int_equal(row->state, f->state);
    assert_int_equal(row->created_ms, f->created_ms);
    assert_true(slice_is(row->tenant, f->tenant) && slice_is(row->route, f->route));
    assert_true(slice_is(row->call_id, f->call_id) && slice_is(row->key, f->key));
    assert_true(slice_is(row->business_ref, f->ref) && slice_is(row->trace_id, f->trace));
    assert_int_equal(row->result_status, f->state == STATE_SUCCESS ? 201 : 0);
    assert_int_equal(row->attempt_count, 1);
    assert_int_equal(row->result_body.len, 0);
}

/* Walks all pages of the filter in `list` and compares them with the model. Returns the pages. */
static size_t walk(size_t limit, size_t look_max)
{
    struct store_op op = {0};
    size_t at = fact_count, pages = 0;
    list.limit = limit;
    list.look_max = look_max;
    list.before_id = 0;
    do {
        list_page(&op);
        assert_true(++pages < 10000);
        for (size_t i = 0; i < list.count; i++) {
            do
                assert_true(at-- > 0);
            while (!fits(&facts[at], &list));
            same(&facts[at], &list.rows[i]);
        }
        assert_true(!list.next_before_id || !list.before_id || list.next_before_id < list.before_id);
        list.before_id = list.next_before_id;
    } while (list.next_before_id);
    while (at-- > 0)
        assert_false(fits(&facts[at], &list)); /* nothing was left out */
    store_op_fini(&op);
    return pages;
}

#define FILTERS 10
static void set_filter(unsigned which, const struct fact *like)
{
    switch (which) {
    case 0:
        list.states = 1u << STATE_FAILED;
        break;
    case 1:
        list.states = 1u << STATE_UNKNOWN;
        break;
    case 2:
        list.states = 1u << STATE_PROCESSING | 1u << STATE_SUCCESS;
        break;
    case 3:
        list.has_tenant = true;
        list.tenant = slice_text(like->tenant);
        break;
    case 4:
        list.route = slice_text("seldom");
        break;
    case 5:
        list.call_id = slice_text(like->call_id);
        break;
    case 6:
        list.key = slice_text(like->key[0] ? like->key : "key-that-never-was");
        break;
    case 7:
        list.business_ref = slice_text("ref 3");
        break;
    case 8:
        list.trace_id = slice_text(like->trace);
        break;
    default:
        list.since_ms = like->created_ms - 300000;
        list.until_ms = like->created_ms + 1;
    }
}

static void every_filter_at_every_size(void)
{
    static const size_t likes[] = {0, 100, 257, 900, LIST_ROWS - 1};
    for (unsigned a = 0; a < FILTERS; a++)
        for (unsigned b = a; b < FILTERS; b++) {
            const struct fact *like = &facts[likes[(a + b) % 5]];
            memset(&list, 0, sizeof list);
            set_filter(a, like);
            set_filter(b, like);
            walk(200, 0);
            walk(1, 0);
            walk(7, 40);
        }
    memset(&list, 0, sizeof list);
    assert_true(walk(200, 0) >= LIST_ROWS / 200);
    walk(50, 30);
}

static void lists_are_what_a_look_at_all_rows_finds(void **state)
{
    (void)state;
    memset(&list, 0, sizeof list);
    fact_count = 0;
    assert_int_equal(walk(50, 0), 1); /* of nothing */
    fill(LIST_ROWS);
    every_filter_at_every_size(); /* nothing is sketched */
    sketch(3);
    every_filter_at_every_size(); /* some is */
    sketch(SIZE_MAX);
    every_filter_at_every_size();
    reopen_as("second");
    every_filter_at_every_size();
}

/* What a sketch says must stay true when the calls in it go on. */
static void a_call_that_ends_after_its_sketch_is_found(void **state)
{
    (void)state;
    struct store_op op = {0};
    fact_count = 0;
    fill(600);
    sketch(SIZE_MAX);
    for (size_t i = 0; i < fact_count; i++) {
        if (facts[i].state != STATE_UNKNOWN)
            continue;
        ask_end(&op, facts[i].id, 0, STATE_FAILED, NULL);
        op.any_fence = op.row.final = true;
        op.from_states = IN(UNKNOWN);
        op.row.result_expires_ms = op.row.key_expires_ms = op.row.tombstone_expires_ms = INT64_MAX;
        run(&op);
        assert_true(op.done);
        facts[i].state = STATE_FAILED;
    }
    store_op_fini(&op);
    memset(&list, 0, sizeof list);
    list.states = 1u << STATE_FAILED;
    walk(50, 0);
    list.states = 1u << STATE_UNKNOWN;
    walk(50, 0);
}

static void pages_stay_good_while_rows_come(void **state)
{
    (void)state;
    struct store_op op = {0};
    fact_count = 0;
    fill(500);
    memset(&list, 0, sizeof list);
    list.limit = 60;
    size_t at = fact_count;
    do {
        list_page(&op);
        for (size_t i = 0; i < list.count; i++)
            same(&facts[--at], &list.rows[i]);
        list.before_id = list.next_before_id;
        fill(20);
        sketch(SIZE_MAX);
    } while (list.next_before_id);
    assert_int_equal(at, 0);
    store_op_fini(&op);
}

static void a_page_does_bounded_work_and_says_how_far_it_came(void **state)
{
    (void)state;
    struct store_op op = {0};
    fact_count = 0;
    fill(400);
    memset(&list, 0, sizeof list);
    list.key = slice_text("key-1");
    list.limit = 10;
    list.look_max = 50;
    list_page(&op);
    if (list.count == 0) { /* a store with an index may have found it */
        assert_true(list.next_before_id > 0);
        assert_true(list.reached_ms > facts[0].created_ms &&
                    list.reached_ms <= facts[fact_count - 1].created_ms);
    }
    assert_true(walk(10, 50) >= 1);
    list.limit = 0;
    op.kind = STORE_LIST;
    op.list = &list;
    run(&op);
    assert_int_equal(op.status, STATUS_INVALID);
    list.limit = STORE_PAGE_MAX + 1;
    run(&op);
    assert_int_equal(op.status, STATUS_INVALID);
    store_op_fini(&op);
}

#define LISTS                                                                                                \
    cmocka_unit_test_setup_teardown(lists_are_what_a_look_at_all_rows_finds, begin, finish),                 \
        cmocka_unit_test_setup_teardown(a_call_that_ends_after_its_sketch_is_found, begin, finish),          \
        cmocka_unit_test_setup_teardown(pages_stay_good_while_rows_come, begin, finish),                     \
        cmocka_unit_test_setup_teardown(a_page_does_bounded_work_and_says_how_far_it_came, begin, finish)
