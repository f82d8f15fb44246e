/* SPDX-License-Identifier: MIT
 *
 * What must never be, judged from outside after every step:
 *
 *  (1) An operation takes effect at most once: a key, or without a key a callId. (Once its tombstone may be gone, a new
 *      call may run it again: that is what tombstone_life says.)
 *  (2) A callId bears one key, and attempt and fencing numbers only rise.
 *  (3) After an attempt that may have run nothing more is sent before a receipt query said NOT_RECEIVED or FAILED open,
 *      unless the callee keeps no receipts and runs a key once.
 *  (4) An answer that says SUCCESS has its effect, for that very request; one that says FAILED has none, then or later;
 *      one that says NOT_EXECUTED has none.
 *  (5) What was answered as an ending stays so: no other ending, no "unknown", no other bytes.
 *  (6) safe_new_key is true only where nothing ran and nothing that was sent before runs later.
 *  (7) The file agrees: what was on the wire has its row, and what was answered stands.
 *  (8) When the faults have stopped, every row comes to SUCCESS or FAILED, or is UNKNOWN with a task that is MANUAL.
 *  (9) A call has one round at a time, and no more than the rules and people gave it; a round sends only what is still
 *      wanted. What the callee was heard to have fenced never takes effect.
 */
#include "sim/world_disk.h"
#include "sim/world_inside.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

const char *answer_kind_text(enum answer_kind kind)
{
    static const char *const texts[] = {"SUCCESS", "FAILED", "NOT_EXECUTED", "PENDING", "UNKNOWN", "REFUSED"};
    return texts[kind];
}

void judge_break(struct world *w, const char *format, ...)
{
    if (w->result->broken)
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(w->result->what, sizeof w->result->what, format, list);
    va_end(list);
    w->result->broken = true;
    SAY(w, "judge", "BROKEN: %s", w->result->what);
}

/* Whether what is known since `low_wall_ms` was the lowest clock may have passed its tombstone. */
static bool may_be_forgotten(const struct world *w, int64_t low_wall_ms)
{
    return low_wall_ms != INT64_MAX && w->high_wall_ms >= low_wall_ms + w->rules.tombstone_life_ms;
}

/* A call that shares another's effect has that one's lives. */
static bool call_may_be_forgotten(const struct world *w, const struct world_call *c)
{
    const struct operation *o = &w->operations.list[c->operation];
    return may_be_forgotten(w, c->low_wall_ms) ||
           (o->has_key && (o->renewed || may_be_forgotten(w, o->low_wall_ms)));
}

static void lower(int64_t *low, int64_t now)
{
    if (now < *low)
        *low = now;
}

void judge_clock(struct world *w)
{
    int64_t now = world_wall(w);
    for (uint32_t i = 0; i < w->operations.count; i++)
        if (w->operations.list[i].low_wall_ms != INT64_MAX)
            lower(&w->operations.list[i].low_wall_ms, now);
    for (uint32_t i = 0; i < w->calls.count; i++)
        if (w->calls.list[i].low_wall_ms != INT64_MAX)
            lower(&w->calls.list[i].low_wall_ms, now);
    if (now > w->high_wall_ms)
        w->high_wall_ms = now;
}

/* ---- the wire ----------------------------------------------------------------------------------------------- */

/* A callId that tells its own time is refused when the store does not reach back so far, so it never runs again. Where
 * the gateway's clock was set, its times and the callId's are not of one clock, and that does not hold. */
static bool never_again(const struct world *w, const struct world_call *c)
{
    return c->id_time_ms && !w->rules.clock;
}

/* The store may have forgotten the call, and the callId is taken as new: what was known of it does not hold. */
static void forget(struct world *w, struct world_call *c)
{
    if (!call_may_be_forgotten(w, c) || (never_again(w, c) && c->effects))
        return;
    c->doubt = c->on_wire = c->fenced = false;
    c->effects = 0;
    c->last_attempt = 0;
    c->last_fence = 0;
    c->ended = ENDED_NOT;
    c->answer_hash = 0;
    c->low_wall_ms = INT64_MAX;
}

void judge_asked(struct world *w, uint32_t call)
{
    lower(&w->calls.list[call].low_wall_ms, world_wall(w));
}

void judge_sent(struct world *w, const struct message *m)
{
    struct world_call *c = &w->calls.list[m->call];
    w->result->attempts++;
    SAY(w, "gateway", "sends attempt %d of %s, key %s", m->attempt, c->id, m->has_key ? m->key : "none");
    if (c->ended != ENDED_NOT || (c->on_wire && m->attempt <= c->last_attempt))
        forget(w, c);
    if (c->on_wire && strcmp(c->wire_key, m->has_key ? m->key : "") != 0)
        judge_break(w, "%s went out with key '%s' and then with '%s'", c->id, c->wire_key, m->key);
    else if (c->on_wire && m->attempt <= c->last_attempt)
        judge_break(w, "attempt %d of %s was sent after attempt %d", m->attempt, c->id, c->last_attempt);
    else if (c->on_wire && m->fence < c->last_fence)
        judge_break(w, "%s was sent with fencing number %lld after %lld", c->id, (long long)m->fence,
                    (long long)c->last_fence);
    else if (c->doubt && (w->rules.policy.has_receipts || !w->rules.policy.runs_once))
        judge_break(
            w,
            "attempt %d of %s was sent although attempt %d may have run and no receipt answer came between",
            m->attempt, c->id, c->last_attempt);
    else if (m->by_round && !w->rules.still_wanted)
        judge_break(w, "attempt %d of %s was sent by a round, and it is not still wanted", m->attempt, c->id);
    else if (c->ended != ENDED_NOT)
        judge_break(w, "attempt %d of %s was sent although it was answered as %s", m->attempt, c->id,
                    c->ended == ENDED_SUCCESS ? "SUCCESS" : "FAILED");
    c->on_wire = true;
    c->last_attempt = m->attempt;
    c->last_fence = m->fence;
    snprintf(c->wire_key, sizeof c->wire_key, "%s", m->has_key ? m->key : "");
    /* From the first byte on it may have run; its ending may prove otherwise. */
    c->doubt = true;
    c->doubt_since_ms = w->now_ms;
    lower(&c->low_wall_ms, world_wall(w));
}

void judge_attempt(struct world *w, struct message *m, enum outcome outcome)
{
    struct world_call *c = &w->calls.list[m->call];
    if (m->judged || m->attempt != c->last_attempt)
        return;
    m->judged = true;
    SAY(w, "gateway", "attempt %d of %s ended: %s", m->attempt, c->id, outcome_json(outcome));
    /* What an earlier attempt left in doubt needs its receipt answer before this one was sent, so it has none now. */
    if (outcome != OUTCOME_UNKNOWN && outcome != OUTCOME_PENDING)
        c->doubt = false;
    else
        c->doubt_since_ms = w->now_ms;
}

void judge_receipt(struct world *w, uint32_t call, enum receipt_answer answer, enum query_owner who,
                   bool fence, int64_t asked_ms)
{
    struct world_call *c = &w->calls.list[call];
    SAY(w, "gateway", "%s %s: %s", fence ? "fence at the callee of" : "receipt of", c->id,
        receipt_answer_text(answer));
    if (fence && answer == RECEIPT_ANSWER_FAILED_FINAL)
        c->fenced = true;
    /* An answer from before the attempt in doubt had ended says nothing about that, and one that somebody else asked
     * for is not known to whoever sends. */
    if (asked_ms < c->doubt_since_ms || who != QUERY_RUN)
        return;
    if (answer == RECEIPT_ANSWER_NOT_RECEIVED || answer == RECEIPT_ANSWER_FAILED_OPEN)
        c->doubt = false;
    else if (answer == RECEIPT_ANSWER_RUNNING)
        c->doubt = true;
}

void judge_effect(struct world *w, const struct message *m)
{
    struct world_call *c = &w->calls.list[m->call];
    struct operation *o = &w->operations.list[c->operation];
    c->effects++;
    c->ever = true;
    if (c->ended == ENDED_FAILED || c->fenced)
        forget(w, c);
    if (c->fenced)
        judge_break(w, "%s took effect after the callee had fenced it", c->id);
    else if (c->ended == ENDED_FAILED)
        judge_break(w, "%s took effect after it was answered as FAILED", c->id);
    /* Without a key every call is an operation of its own. */
    unsigned *effects = o->has_key ? &o->effects : &c->effects;
    int64_t *low = o->has_key ? &o->low_wall_ms : &c->low_wall_ms;
    if (o->has_key)
        o->effects++;
    if (*effects > 1 && may_be_forgotten(w, *low) && !(never_again(w, c) && c->effects > 1)) {
        *effects = 1;
        o->renewed = true;
        *low = INT64_MAX;
        c->effects = 1;
    }
    if (*effects > 1)
        judge_break(w, "%s took effect a second time, by attempt %d of %s, sent %lld ms before",
                    o->has_key ? o->key : c->id, m->attempt, c->id, (long long)(w->now_ms - m->sent_ms));
    if (o->safe_since_ms >= 0 && m->sent_ms < o->safe_since_ms && !may_be_forgotten(w, *low))
        judge_break(w, "%s took effect by a request sent before safe_new_key was told", c->id);
    o->effect_body = m->body;
    lower(low, world_wall(w));
    lower(&c->low_wall_ms, world_wall(w));
}

/* ---- what callers are told ---------------------------------------------------------------------------------- */

static uint64_t hash_of(struct slice s)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < s.len; i++)
        hash = (hash ^ (unsigned char)s.data[i]) * 1099511628211u;
    return hash | 1;
}

static bool took_effect(const struct world *w, const struct world_call *c)
{
    const struct operation *o = &w->operations.list[c->operation];
    return o->has_key ? o->effects > 0 : c->ever;
}

static void judge_ending(struct world *w, struct world_call *c, enum ended_as ending)
{
    struct operation *o = &w->operations.list[c->operation];
    if (ending == ENDED_SUCCESS && !took_effect(w, c))
        judge_break(w, "%s is told as SUCCESS and nothing took effect", c->id);
    else if (ending == ENDED_SUCCESS && o->has_key && o->effect_body != c->body && !o->renewed &&
             !may_be_forgotten(w, o->low_wall_ms))
        judge_break(w, "%s is told as SUCCESS, but what took effect on %s is another request", c->id, o->key);
    else if (ending == ENDED_FAILED && c->effects && !call_may_be_forgotten(w, c))
        judge_break(w, "%s is told as FAILED and it took effect", c->id);
    else if (c->ended != ENDED_NOT && c->ended != ending && !call_may_be_forgotten(w, c))
        judge_break(w, "%s was told as %s and is now told as %s", c->id,
                    c->ended == ENDED_SUCCESS ? "SUCCESS" : "FAILED",
                    ending == ENDED_SUCCESS ? "SUCCESS" : "FAILED");
    if (c->ended == ENDED_NOT)
        c->ended_at_ms = w->now_ms;
    c->ended = ending;
    lower(&c->low_wall_ms, world_wall(w));
}

void judge_answer(struct world *w, uint32_t call, enum answer_kind kind, struct slice body, int64_t asked_ms)
{
    struct world_call *c = &w->calls.list[call];
    w->result->answers++;
    if (c->alias_of) {
        if (kind != ANSWER_REFUSED)
            judge_break(w, "%s came with another key, and is answered %s", c->id, answer_kind_text(kind));
        return;
    }
    switch (kind) {
    case ANSWER_SUCCESS:
        judge_ending(w, c, ENDED_SUCCESS);
        if (!body.len)
            return;
        if (c->answer_hash && c->answer_hash != hash_of(body) && !call_may_be_forgotten(w, c))
            judge_break(w, "%s is answered with other bytes than before", c->id);
        c->answer_hash = hash_of(body);
        return;
    case ANSWER_FAILED:
        judge_ending(w, c, ENDED_FAILED);
        return;
    case ANSWER_NOT_EXECUTED:
        if (c->effects && !call_may_be_forgotten(w, c))
            judge_break(w, "%s is told as not executed and it took effect", c->id);
        return;
    case ANSWER_PENDING:
    case ANSWER_UNKNOWN:
        if (c->ended != ENDED_NOT && asked_ms > c->ended_at_ms && !call_may_be_forgotten(w, c))
            judge_break(w, "%s was told as %s and is now told as %s", c->id,
                        c->ended == ENDED_SUCCESS ? "SUCCESS" : "FAILED", answer_kind_text(kind));
        return;
    case ANSWER_REFUSED:
        return;
    }
}

void judge_standing(struct world *w, uint32_t call, const struct rows *rows, int64_t asked_ms)
{
    struct world_call *c = &w->calls.list[call];
    struct operation *o = &w->operations.list[c->operation];
    struct standing standing;
    receipt_standing(rows, &standing);
    SAY(w, "gateway", "receipt of %s: %s%s%s", c->id, state_text(standing.state),
        standing.final ? ", final" : "", standing.safe_new_key ? ", a new key is safe" : "");
    if (standing.state == STATE_SUCCESS)
        judge_ending(w, c, ENDED_SUCCESS);
    else if (standing.state == STATE_FAILED && standing.final)
        judge_ending(w, c, ENDED_FAILED);
    else if (c->ended != ENDED_NOT && asked_ms > c->ended_at_ms && !call_may_be_forgotten(w, c))
        judge_break(w, "%s was told as %s and its receipt is %s", c->id,
                    c->ended == ENDED_SUCCESS ? "SUCCESS" : "FAILED", state_text(standing.state));
    if (standing.executed == 0 && c->effects && !call_may_be_forgotten(w, c))
        judge_break(w, "the receipt of %s says that it did not run, and it took effect", c->id);
    if (standing.executed == 1 && !took_effect(w, c))
        judge_break(w, "the receipt of %s says that it ran, and nothing took effect", c->id);
    if (standing.safe_new_key) {
        if (o->has_key && o->effects && !may_be_forgotten(w, o->low_wall_ms))
            judge_break(w, "the receipt of %s calls a new key safe, and %s took effect", c->id, o->key);
        o->safe_since_ms = w->now_ms;
    }
}

/* ---- rounds ------------------------------------------------------------------------------------------------- */

void judge_round_begins(struct world *w, uint32_t call, uint64_t round)
{
    struct world_call *c = &w->calls.list[call];
    /* A clock that is set forward ends leases that still run. */
    if (c->round && !w->rules.clock)
        judge_break(w, "a round of %s begins while another is at work", c->id);
    c->round = round;
    w->result->rounds++;
}

void judge_round_over(struct world *w, uint32_t call, uint64_t round)
{
    if (w->calls.list[call].round == round)
        w->calls.list[call].round = 0;
}

void judge_round_acts(struct world *w, uint32_t call, const char *what, int n, int granted)
{
    const struct world_call *c = &w->calls.list[call];
    SAY(w, "gateway", "round %d of %s: %s", n, c->id, what);
    if (n > w->rules.rounds + granted)
        judge_break(w, "round %d of %s is begun, and %d are allowed", n, c->id, w->rules.rounds + granted);
}

void judge_round_ends(struct world *w, uint32_t call, bool success)
{
    judge_ending(w, &w->calls.list[call], success ? ENDED_SUCCESS : ENDED_FAILED);
}

/* ---- the file ----------------------------------------------------------------------------------------------- */

static uint32_t call_named(const struct world *w, const char *id)
{
    for (uint32_t i = 0; i < w->calls.count; i++)
        if (!w->calls.list[i].alias_of && strcmp(w->calls.list[i].id, id) == 0)
            return i;
    return WORLD_NONE;
}

static void judge_row(struct world *w, struct world_call *c, enum call_state state, bool final, int task,
                      int beyond, bool last)
{
    if (c->ended == ENDED_SUCCESS && state != STATE_SUCCESS && !call_may_be_forgotten(w, c))
        judge_break(w, "%s was told as SUCCESS and stands in the file as %s", c->id, state_text(state));
    else if (c->ended == ENDED_FAILED && (state != STATE_FAILED || !final) && !call_may_be_forgotten(w, c))
        judge_break(w, "%s was told as FAILED and stands in the file as %s%s", c->id, state_text(state),
                    final ? "" : ", not final");
    else if (state == STATE_SUCCESS && !took_effect(w, c))
        judge_break(w, "%s stands in the file as SUCCESS and nothing took effect", c->id);
    else if (state == STATE_FAILED && c->effects && !call_may_be_forgotten(w, c))
        judge_break(w, "%s stands in the file as FAILED and it took effect", c->id);
    else if (last && (state == STATE_PROCESSING || state == STATE_RECEIVED))
        judge_break(w, "%s is %s for ever", c->id, state_text(state));
    else if (last && state == STATE_UNKNOWN && task != TASK_MANUAL)
        judge_break(w, "%s is UNKNOWN and nobody will follow it up", c->id);
    else if (last && (task == TASK_PENDING || task == TASK_RUNNING))
        judge_break(w, "%s is %s and is followed up for ever", c->id, state_text(state));
    else if (beyond)
        judge_break(w, "the file has %d rounds of %s beyond those allowed", beyond, c->id);
}

/* By a connection of its own, so that nothing the store remembers can hide what the file says. */
void judge_file(struct world *w, bool last)
{
    static const char sql[] =
        "SELECT c.call_id, c.state, c.final, ifnull((SELECT t.status FROM compensation t WHERE t.call = "
        "c.id), -1),"
        " (SELECT count(*) FROM compensation t JOIN compensation_round r ON r.task = t.id WHERE t.call = c.id"
        " AND r.asked IS NOT NULL AND r.n > t.granted + ?1) FROM call c ORDER BY c.id";
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_open_v2("world.db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, WORLD_DISK_VFS);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int(stmt, 1, w->rules.rounds);
    bool *seen = calloc(w->calls.count + 1, sizeof *seen);
    if (!seen)
        w->failed = true;
    uint32_t guess = 0;
    while (seen && rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(stmt, 0);
        while (guess < w->calls.count &&
               (w->calls.list[guess].alias_of || strcmp(w->calls.list[guess].id, id) != 0))
            guess++;
        uint32_t call = guess < w->calls.count ? guess : call_named(w, id);
        guess = call == WORLD_NONE ? 0 : call;
        if (call == WORLD_NONE) {
            judge_break(w, "the file knows %s, which nobody ever called", id);
        } else {
            seen[call] = true;
            judge_row(w, &w->calls.list[call], (enum call_state)sqlite3_column_int(stmt, 1),
                      sqlite3_column_int(stmt, 2) != 0, sqlite3_column_int(stmt, 3),
                      sqlite3_column_int(stmt, 4), last);
        }
        rc = SQLITE_OK;
    }
    for (uint32_t i = 0; seen && rc == SQLITE_DONE && i < w->calls.count; i++) {
        const struct world_call *c = &w->calls.list[i];
        if (!seen[i] && (c->on_wire || c->ended != ENDED_NOT) && !call_may_be_forgotten(w, c))
            judge_break(w, "%s was %s and the file does not know it", c->id,
                        c->on_wire ? "sent" : "answered");
    }
    if (rc != SQLITE_DONE && rc != SQLITE_OK && last)
        judge_break(w, "the file cannot be read: %s", sqlite3_errstr(rc));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    free(seen);
}

unsigned judge_open_tasks(struct world *w)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    unsigned count = 0;
    int rc = sqlite3_open_v2("world.db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, WORLD_DISK_VFS);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "SELECT count(*) FROM compensation WHERE status IN (0, 1)", -1, &stmt,
                                NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
        count = (unsigned)sqlite3_column_int(stmt, 0);
    else
        judge_break(w, "the file cannot be read: %s", sqlite3_errstr(rc));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return count;
}
