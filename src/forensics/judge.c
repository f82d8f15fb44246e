/* SPDX-License-Identifier: MIT */
#include "forensics/judge.h"

#include "forensics/database.h"

#include <stdarg.h>
#include <stdio.h>

/* Bytes of the sentences about one operation. */
#define SCRATCH_BYTES_MAX (64u << 20)
/* Retries of one call that are no matter (CONTRACT section 7). */
#define RETRIES_MAX 3
/* One request with more runs than this is a batch that commits piece by piece. */
#define BATCH_RUNS 3
/* How far a gap may lie beyond the limit that caused it: the time to notice and to send again. */
#define LIMIT_SLACK_US INT64_C(2000000)
/* A repeat at once, on another connection, was made by a library and not by a clock. */
#define AT_ONCE_US INT64_C(1000000)
/* A proxy that waits for one server's answer turns to the next within this time. */
#define FAILOVER_US INT64_C(120000000)
/* A receipt read this soon after the commit may have been on its way before it. */
#define RECEIPT_SLACK_US INT64_C(1000000)

/* A sentence that lasts until the next operation; what is kept of it is copied. */
static struct slice say(struct judge *j, struct slice text)
{
    struct slice out = {0};
    if (!arena_copy(&j->scratch, text, &out))
        j->d->failed = true;
    return out;
}

static struct slice sayf(struct judge *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static struct slice sayf(struct judge *j, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return say(j, slice_of(text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1));
}

/* What is found out about one repeat: post `b` after post `a`. */
struct repeat {
    const struct event *a, *b;
    uint32_t a_number, b_number;
    const struct call *call; /* a's */
    enum label label;
    enum certainty certainty;
    bool lawful, quiet; /* quiet: another occasion, nothing to tell */
    enum finding_code code;
    struct slice text;
    struct between between;
    int64_t gap_us; /* MOMENT_NONE: not known */
};

static int64_t gap_of(const struct event *a, const struct event *b)
{
    return a->us == MOMENT_NONE || b->us == MOMENT_NONE ? MOMENT_NONE : b->us - a->us;
}

static void print_gap(struct buffer *out, int64_t us)
{
    if (us == MOMENT_NONE)
        buffer_text(out, "at an unknown time after");
    else if (us < 1000000)
        buffer_format(out, "%.1f ms after", (double)us / 1e3);
    else
        buffer_format(out, "%.1f s after", (double)us / 1e6);
}

/* The limits programs come with, in seconds; a gap just past one of them is likely no chance. */
static int64_t usual_limit(int64_t gap_us)
{
    static const int seconds[] = {1, 2, 3, 5, 10, 15, 20, 30, 60, 90, 100, 120, 180, 300, 600};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        int64_t us = seconds[i] * INT64_C(1000000);
        if (gap_us >= us && gap_us - us <= us / 20 + 200000)
            return us;
    }
    return 0;
}

static bool past_limit(int64_t gap_us, int64_t limit_us)
{
    return limit_us && gap_us != MOMENT_NONE && gap_us >= limit_us - limit_us / 100 &&
           gap_us <= limit_us + limit_us / 20 + LIMIT_SLACK_US;
}

/* ---- one repeat ---- */

/* Why sending again was lawful, or what made it unlawful, for repeats by the caller's own retry code. */
static void judge_declared(struct judge *j, struct repeat *r)
{
    const struct between *s = &r->between;
    struct buffer t = {0};
    unsigned a = r->a->attempt ? r->a->attempt : 1, b = r->b->attempt ? r->b->attempt : a + 1;
    r->label = LABEL_DECLARED_RETRY;
    r->certainty = r->b->attempt ? CERTAIN : LIKELY;
    r->code = FINDING_RETRY_UNASKED;
    if (s->told_not_received || s->told_failed) {
        r->lawful = true;
        buffer_format(&t, "attempt %u was sent after the receipt query said %s", b,
                      s->told_not_received ? "NOT_RECEIVED" : "FAILED");
    } else if (s->told_success || (s->succeeded && !s->timeout)) {
        r->code = FINDING_RETRY_AFTER_SUCCESS;
        buffer_format(&t, "attempt %u was sent although %s SUCCESS", b,
                      s->told_success ? "the receipt query said" : "the answer before it was a");
    } else if (s->rejected && !s->timeout) {
        r->code = FINDING_RETRY_POINTLESS;
        buffer_format(&t, "attempt %u was sent after the definite answer %u", b, s->answer->status);
    } else if ((s->not_executed || s->failed) && !s->timeout && !s->reset) {
        r->lawful = true;
        buffer_format(&t, "attempt %u was sent after attempt %u was proved not to have taken effect", b, a);
    } else {
        const char *why =
            s->asked ? "with a receipt query that did not say NOT_RECEIVED" : "with no receipt query between";
        if (s->timeout)
            buffer_format(&t, "attempt %u was sent after a timeout %s", b, why);
        else if (s->reset)
            buffer_format(&t, "attempt %u was sent after the connection broke %s", b, why);
        else if (s->server_error)
            buffer_format(&t, "attempt %u was sent after the answer %u %s", b, s->answer->status, why);
        else
            buffer_format(&t, "attempt %u was sent with no ending of attempt %u in the logs, %s", b, a, why);
        if (!s->timeout && !s->reset && !s->server_error)
            r->certainty = LIKELY;
    }
    r->text = say(j, buffer_view(&t));
    buffer_fini(&t);
}

static bool both_differ(const struct event *a, const struct event *b, enum event_text t)
{
    return a->text[t].len && b->text[t].len && !slice_equal(a->text[t], b->text[t]);
}

static bool both_same(const struct event *a, const struct event *b, enum event_text t)
{
    return a->text[t].len && slice_equal(a->text[t], b->text[t]);
}

/* The same callId and no higher attempt number: who sent it again behind the caller's back? */
static void judge_hidden(struct judge *j, struct repeat *r)
{
    const struct between *s = &r->between;
    const struct event *a = r->a, *b = r->b;
    struct buffer t = {0};
    const char *proxy = facts_proxy(j->facts, b), *whose = NULL;
    bool says_so = j->op.proxied > 0; /* a proxy's own line names several servers */
    bool through = both_same(a, b, TEXT_VIA) || proxy || says_so;
    bool one_peer = both_same(a, b, TEXT_PEER) || both_same(a, b, TEXT_VIA);
    int64_t limit = facts_limit(j->facts, b, &whose);
    bool ended = s->server_error || s->reset || s->timeout || s->not_executed || says_so;
    print_gap(&t, r->gap_us);
    if (both_differ(a, b, TEXT_NODE) && one_peer && (ended || through) && r->gap_us != MOMENT_NONE &&
        r->gap_us < FAILOVER_US) {
        r->label = LABEL_PROXY_FAILOVER;
        r->code = FINDING_PROXY_FAILOVER;
        r->certainty = through && ended ? CERTAIN : LIKELY;
        buffer_text(&t, " the first, ");
        if (proxy || b->text[TEXT_VIA].len)
            buffer_format(&t, "%s passed it to ", proxy ? proxy : "the proxy");
        else
            buffer_format(&t, "the same peer passed it to ");
        buffer_slice(&t, b->text[TEXT_NODE]);
        if (s->server_error || s->not_executed)
            buffer_format(&t, " after a %u of ", s->answer ? s->answer->status : 0);
        else
            buffer_text(&t, " after no answer of ");
        buffer_slice(&t, a->text[TEXT_NODE]);
        if (b->attempt)
            buffer_text(&t, "; the attempt number stayed the same");
    } else if (both_differ(a, b, TEXT_CONNECTION) && b->nth == 1 && a->nth > 1 && r->gap_us != MOMENT_NONE &&
               (s->reset || (!s->answer && r->gap_us < AT_ONCE_US))) {
        r->label = LABEL_CONNECTION_RESEND;
        r->code = FINDING_CONNECTION_RESEND;
        r->certainty = s->reset ? CERTAIN : LIKELY;
        buffer_format(&t, " the first, which was request %u of connection ", a->nth);
        buffer_slice(&t, a->text[TEXT_CONNECTION]);
        buffer_format(&t, "%s, it came again as the first of connection ",
                      s->reset ? " when that was reset" : "");
        buffer_slice(&t, b->text[TEXT_CONNECTION]);
    } else {
        r->label = LABEL_HIDDEN_RETRY;
        r->code = FINDING_HIDDEN_RETRY;
        r->certainty = past_limit(r->gap_us, limit) ? CERTAIN : LIKELY;
        buffer_text(&t, " the try before it, the same callId came again");
        if (a->attempt && a->attempt == b->attempt)
            buffer_format(&t, " with the attempt number still %u", b->attempt);
        if (both_differ(a, b, TEXT_CONNECTION))
            buffer_text(&t, " on a new connection");
        if (past_limit(r->gap_us, limit))
            buffer_format(&t, ": the limit of %s (%.0f s) fired", whose, (double)limit / 1e6);
        else if (usual_limit(r->gap_us))
            buffer_format(&t, ", just past a usual limit of %.0f s", (double)usual_limit(r->gap_us) / 1e6);
    }
    r->text = say(j, buffer_view(&t));
    buffer_fini(&t);
}

static void judge_same_call(struct judge *j, struct repeat *r)
{
    const struct event *a = r->a, *b = r->b;
    if (b->flags & EVENT_REDELIVERED) {
        r->label = LABEL_DECLARED_RETRY;
        r->certainty = CERTAIN;
        r->lawful = j->op.committed <= 1;
        r->code = FINDING_REDELIVERED;
        r->text =
            say(j, slice_text(r->lawful
                                  ? "the broker delivered the message again and said so"
                                  : "the broker delivered the message again and the consumer ran it again"));
    } else if (a->attempt && b->attempt ? b->attempt > a->attempt
                                        : r->between.told_not_received || r->between.told_failed) {
        judge_declared(j, r);
    } else {
        judge_hidden(j, r);
    }
}

/* Every run of a key came a like time after the one before, or whole minutes after: a schedule. */
static bool is_schedule(const struct operation *op, int64_t gap_us)
{
    if (gap_us >= INT64_C(50000000)) {
        int64_t off = gap_us % INT64_C(60000000);
        if (off < INT64_C(1000000) || off > INT64_C(59000000))
            return true;
    }
    if (op->posts < 4)
        return false;
    double sum = 0, squares = 0;
    size_t n = 0;
    for (size_t i = 1; i < op->posts; i++) {
        int64_t gap = gap_of(operation_event(op, op->post[i - 1]), operation_event(op, op->post[i]));
        if (gap == MOMENT_NONE)
            return false;
        sum += (double)gap;
        squares += (double)gap * (double)gap;
        n++;
    }
    double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    return variance < 0.01 * mean * mean;
}

static void judge_new_call(struct judge *j, struct repeat *r)
{
    const struct between *s = &r->between;
    struct buffer t = {0};
    const char *whose = NULL;
    int64_t limit = facts_limit(j->facts, r->a, &whose);
    bool said_unknown = s->done && s->done->state == EVENT_STATE_UNKNOWN;
    bool said_failed = s->done && s->done->state == EVENT_STATE_FAILED;
    bool said_success = s->done && s->done->state == EVENT_STATE_SUCCESS;
    r->label = LABEL_NEW_CALL;
    r->code = FINDING_NEW_CALL;
    r->certainty = CERTAIN;
    if (said_success || (s->succeeded && !said_unknown && !said_failed)) {
        r->quiet = r->lawful =
            r->gap_us == MOMENT_NONE || r->gap_us > SAME_OCCASION_US || is_schedule(&j->op, r->gap_us);
        r->certainty = LIKELY;
        print_gap(&t, r->gap_us);
        buffer_text(&t,
                    " the first call, which had succeeded, a new callId was made for the same business key");
    } else if (s->told_not_received || s->told_failed ||
               ((s->rejected || s->not_executed || s->failed) && !s->timeout)) {
        r->lawful = true;
        buffer_text(&t, "a new callId was made after the first call was proved not to have taken effect");
    } else if (said_failed) {
        r->lawful = !s->effect && j->op.committed < 2;
        buffer_text(
            &t,
            r->lawful
                ? "a new callId was made after the first call ended FAILED"
                : "a new callId was made after the first call was reported FAILED, though it took effect");
    } else if (said_unknown || s->timeout || s->reset || s->server_error) {
        buffer_text(&t, "a new callId was made for the same business key while the first was UNKNOWN");
    } else if (r->gap_us != MOMENT_NONE && r->gap_us <= DOUBLE_DISPATCH_US) {
        r->label = LABEL_DOUBLE_DISPATCH;
        r->code = FINDING_DOUBLE_DISPATCH;
        print_gap(&t, r->gap_us);
        buffer_text(&t, " the first, a second callId was sent for the same business key");
        if (both_same(r->a, r->b, TEXT_CONNECTION))
            buffer_text(&t, " on the same connection");
        buffer_text(&t, ": far below any timeout");
    } else {
        r->certainty = past_limit(r->gap_us, limit) ? CERTAIN : LIKELY;
        buffer_text(&t,
                    "a new callId was made for the same business key while the first was still running, ");
        print_gap(&t, r->gap_us);
        buffer_text(&t, " it");
        if (past_limit(r->gap_us, limit))
            buffer_format(&t, ": just past the limit of %s (%.0f s)", whose, (double)limit / 1e6);
        else if (r->gap_us != MOMENT_NONE && usual_limit(r->gap_us))
            buffer_format(&t, ", just past a usual limit of %.0f s", (double)usual_limit(r->gap_us) / 1e6);
    }
    r->text = say(j, buffer_view(&t));
    buffer_fini(&t);
}

/* Requests known only by who asked for what: another request for the same is a repeat only where the first one's ending
 * was not known. */
static void judge_nameless(struct judge *j, struct repeat *r)
{
    const struct between *s = &r->between;
    bool unclear = (s->server_error || s->timeout || s->reset || !s->answer) && !s->succeeded;
    r->label = LABEL_HIDDEN_RETRY;
    r->code = FINDING_HIDDEN_RETRY;
    r->certainty = LIKELY;
    r->quiet = r->lawful = !unclear || r->gap_us == MOMENT_NONE || r->gap_us > SAME_OCCASION_US || !s->answer;
    if (!r->quiet)
        r->text =
            say(j, slice_text("the same client asked for the same again after an unclear ending; the lines "
                              "have no callId, so whether it was one intention cannot be told"));
}

/* The post this one repeats: the one before it of the same call, else the one before it of any. */
static bool find_repeat(struct judge *j, size_t i, struct repeat *r)
{
    const struct operation *op = &j->op;
    uint32_t b = op->post[i], a = UINT32_MAX;
    for (size_t k = i; k-- > 0 && i - k < 64;) {
        if (op->call_of[op->post[k]] == op->call_of[b]) {
            a = op->post[k];
            break;
        }
    }
    if (a == UINT32_MAX && i > 0)
        a = op->post[i - 1];
    if (a == UINT32_MAX)
        return false;
    *r = (struct repeat){
        .a = operation_event(op, a), .b = operation_event(op, b), .a_number = a, .b_number = b};
    r->call = &op->call[op->call_of[a]];
    r->gap_us = gap_of(r->a, r->b);
    operation_between(op, r->call, a, b, &r->between);
    const struct call *later = &op->call[op->call_of[b]];
    if (op->weak)
        judge_nameless(j, r);
    else if (r->call == later || r->call->weak || later->weak || !r->call->id.len || !later->id.len)
        judge_same_call(j, r);
    else
        judge_new_call(j, r);
    return true;
}

/* ---- evidence ---- */

static void note_lines(const struct operation *op, uint32_t from, uint32_t to, struct line_refs *lines)
{
    for (uint32_t i = from; i <= to && i < op->group->count; i++) {
        const struct event *e = operation_event(op, i);
        if (e->kind != KIND_OTHER && e->kind != KIND_DAMAGED)
            line_refs_add(lines, e);
    }
}

static void add_timeline(struct judge *j, struct finding *f)
{
    const struct group *g = j->op.group;
    size_t n = g->count < DIAGNOSIS_EVENTS_MAX ? g->count : DIAGNOSIS_EVENTS_MAX;
    if (j->d->findings.count >= DIAGNOSIS_FINDINGS_MAX / 10)
        return; /* a report with more timelines is read by nobody */
    f->timeline = arena_take(&j->d->arena, n * sizeof *f->timeline);
    if (!f->timeline) {
        j->d->failed = true;
        return;
    }
    f->timeline_count = n;
    for (size_t i = 0; i < n; i++) {
        const struct event *e = &g->event[i];
        f->timeline[i] = (struct moment_of){.us = e->us,
                                            .ref = {e->file, e->line},
                                            .status = e->status,
                                            .attempt = e->attempt,
                                            .kind = e->kind,
                                            .state = e->state,
                                            .node = diagnosis_copy(j->d, e->text[TEXT_NODE]),
                                            .call = diagnosis_copy(j->d, e->text[TEXT_CALL]),
                                            .exec = diagnosis_copy(j->d, e->text[TEXT_EXEC])};
    }
}

static void find(struct judge *j, enum finding_code code, enum certainty certainty, struct slice text,
                 const struct line_refs *lines)
{
    struct diagnosis *d = j->d;
    d->by_code[code]++;
    d->finding_count++;
    if (d->findings.count >= DIAGNOSIS_FINDINGS_MAX) {
        d->findings.left_out++;
        return;
    }
    struct finding f = {.code = code,
                        .certainty = certainty,
                        .key = diagnosis_copy(d, j->op.key),
                        .text = diagnosis_copy(d, text),
                        .lines = diagnosis_lines(d, lines)};
    add_timeline(j, &f);
    diagnosis_add_finding(d, &f);
}

/* ---- steps 1 and 4: the repeats ---- */

struct verdict {
    enum label label;
    enum certainty certainty;
    bool lawful, any, quiet;
    struct slice text;  /* of the gravest repeat */
    struct slice cause; /* of the first unlawful one, else of the last lawful one */
    struct line_refs lines;
};

static struct slice caller_of(const struct event *e)
{
    static const enum event_text who[] = {TEXT_AGENT, TEXT_VIA, TEXT_PEER, TEXT_NODE};
    for (size_t i = 0; i < sizeof who / sizeof *who; i++)
        if (e->text[who[i]].len)
            return e->text[who[i]];
    return slice_text("unnamed caller");
}

static enum status judge_repeats(struct judge *j, struct verdict *v)
{
    const struct operation *op = &j->op;
    bool told[FINDING_COUNT] = {false};
    *v = (struct verdict){.label = LABEL_SINGLE, .certainty = CERTAIN, .lawful = true};
    bool all_quiet = op->posts > 1, unlawful = false;
    struct {
        bool any;
        enum certainty certainty;
        struct slice text;
        struct line_refs lines;
    } found[FINDING_COUNT];
    memset(found, 0, sizeof found);
    for (size_t i = 1; i < op->posts; i++) {
        struct repeat r;
        if (!find_repeat(j, i, &r))
            continue;
        if (r.quiet)
            continue;
        all_quiet = false;
        uint32_t nth = 0;
        if (r.call == &op->call[op->call_of[r.b_number]] && r.label != LABEL_DOUBLE_DISPATCH) {
            for (size_t k = 0; k <= i; k++)
                nth += op->call_of[op->post[k]] == op->call_of[r.b_number];
            int64_t wait = r.gap_us;
            const struct event *end = r.between.timeout ? r.between.timeout : r.between.answer;
            if (end && end->us != MOMENT_NONE && r.b->us != MOMENT_NONE)
                wait = r.b->us - end->us;
            enum status status =
                policy_note(&j->policy, j->d, caller_of(r.b), nth, wait == MOMENT_NONE ? -1 : wait, r.b);
            if (status != STATUS_OK)
                return status;
        }
        note_lines(op, r.a_number, r.b_number, &v->lines);
        bool graver =
            !v->any || (unlawful ? !r.lawful && r.label > v->label : !r.lawful || r.label > v->label);
        if (graver) {
            v->label = r.label;
            v->text = r.text;
            v->lawful = r.lawful;
        }
        if (!v->any || (r.label == v->label && r.certainty > v->certainty) || graver)
            v->certainty = r.certainty;
        if (!unlawful)
            v->cause = r.text;
        v->any = true;
        unlawful = unlawful || !r.lawful;
        if (r.lawful)
            continue;
        found[r.code].certainty = told[r.code] && found[r.code].certainty == LIKELY ? LIKELY : r.certainty;
        if (!told[r.code])
            found[r.code].text = r.text;
        told[r.code] = found[r.code].any = true;
        note_lines(op, r.a_number, r.b_number, &found[r.code].lines);
    }
    v->quiet = all_quiet;
    for (int c = 0; c < FINDING_COUNT; c++)
        if (found[c].any)
            find(j, (enum finding_code)c, found[c].certainty, found[c].text, &found[c].lines);
    return STATUS_OK;
}

/* A proxy that says itself that it asked several servers. */
static void judge_proxies(struct judge *j, struct verdict *v)
{
    const struct group *g = j->op.group;
    if (j->op.proxied == 0)
        return;
    struct line_refs lines = {0};
    struct slice text = {0};
    for (size_t i = 0; i < g->count; i++) {
        const struct event *e = &g->event[i];
        if (e->kind != KIND_PROXY || !memchr(e->text[TEXT_UPSTREAM].data, ',', e->text[TEXT_UPSTREAM].len))
            continue;
        line_refs_add(&lines, e);
        if (!text.len)
            text = sayf(j, "the proxy asked %.*s and got %.*s", (int)e->text[TEXT_UPSTREAM].len,
                        e->text[TEXT_UPSTREAM].data, (int)e->text[TEXT_UPSTREAM_STATUS].len,
                        e->text[TEXT_UPSTREAM_STATUS].data);
    }
    for (size_t i = 0; i < g->count; i++)
        if (g->event[i].kind == KIND_REQUEST)
            line_refs_add(&lines, &g->event[i]);
    if (v->label < LABEL_PROXY_FAILOVER) {
        v->label = LABEL_PROXY_FAILOVER;
        v->certainty = CERTAIN;
        v->lawful = false;
        v->text = v->cause = text;
        v->lines = lines;
    } else if (j->op.posts > 1) {
        return; /* told already, by the requests themselves */
    }
    v->any = true;
    find(j, FINDING_PROXY_FAILOVER, CERTAIN, text, &lines);
}

static void judge_layers(struct judge *j, const struct verdict *v)
{
    const struct operation *op = &j->op;
    const struct group *g = op->group;
    for (size_t c = 0; c < op->calls; c++) {
        const struct call *call = &op->call[c];
        const struct event *first = NULL, *second = NULL;
        for (size_t i = call->first; i < call->first + call->count && !second; i++) {
            const struct event *e = &g->event[op->order[i]];
            if (e->kind != KIND_SENT || e->attempt < 2)
                continue;
            if (!first)
                first = e;
            else if (both_differ(first, e, TEXT_NODE))
                second = e;
        }
        if (second) {
            struct line_refs lines = {0};
            line_refs_add(&lines, first);
            line_refs_add(&lines, second);
            find(j, FINDING_STACKED, CERTAIN,
                 sayf(j, "%.*s and %.*s both retry it", (int)first->text[TEXT_NODE].len,
                      first->text[TEXT_NODE].data, (int)second->text[TEXT_NODE].len,
                      second->text[TEXT_NODE].data),
                 &lines);
        }
        if (call->posts > RETRIES_MAX + 1 && call->id.len && !call->weak)
            find(j, FINDING_MANY_RETRIES, CERTAIN, sayf(j, "%u tries of one call", call->posts), &v->lines);
    }
}

/* ---- step 2: runs and keys ---- */

static struct slice runs_cause(struct judge *j, const struct verdict *v, bool *likely)
{
    const struct operation *op = &j->op;
    const struct call *first = NULL, *second = NULL;
    for (size_t i = 0; i < op->runs; i++) {
        if (op->run[i].rolled_back || op->run[i].reversed)
            continue;
        const struct call *c = &op->call[op->call_of[op->run[i].event]];
        if (!first)
            first = c;
        else if (!second || second == first)
            second = c;
    }
    if (v->any && !v->quiet && v->cause.len)
        return v->cause;
    if (first == second || !first->id.len || !second->id.len) {
        *likely = true;
        return sayf(j, "the service ran one request %zu times", op->committed);
    }
    *likely = true;
    return say(j, slice_text("two callIds ran the same business key"));
}

static void judge_runs(struct judge *j, const struct verdict *v)
{
    struct operation *op = &j->op;
    struct diagnosis *d = j->d;
    if (op->committed < 2 || op->weak)
        return;
    if (v->quiet && op->posts >= op->committed)
        return; /* other occasions, one run each */
    if (op->posts <= 1 && !op->proxied && !op->posts_unseen && op->committed > BATCH_RUNS)
        return;
    if (op->posts_unseen && !op->run_ids)
        return; /* lines that speak of an effect, and nothing that tells runs apart */
    bool likely = !op->run_ids;
    struct slice cause = runs_cause(j, v, &likely);
    d->double_run_count++;
    if (d->double_runs.count >= DIAGNOSIS_FINDINGS_MAX) {
        d->double_runs.left_out++;
        d->by_code[FINDING_RAN_TWICE]++;
        d->finding_count++;
        d->findings.left_out++;
        return;
    }
    struct double_run r = {.key = diagnosis_copy(d, op->key), .cause = diagnosis_copy(d, cause)};
    r.certainty = likely ? LIKELY : CERTAIN;
    size_t n = op->committed < 64 ? op->committed : 64;
    r.exec = arena_take(&d->arena, n * sizeof *r.exec);
    r.call = arena_take(&d->arena, n * sizeof *r.call);
    if (!r.exec || !r.call) {
        d->failed = true;
        return;
    }
    struct line_refs lines = {0};
    for (size_t i = 0; i < op->runs && r.execs < n; i++) {
        if (op->run[i].rolled_back || op->run[i].reversed)
            continue;
        const struct event *e = operation_event(op, op->run[i].event);
        line_refs_add(&lines, e);
        r.exec[r.execs++] = diagnosis_copy(d, e->text[TEXT_EXEC]);
        bool known = !e->text[TEXT_CALL].len;
        for (size_t c = 0; c < r.calls && !known; c++)
            known = slice_equal(r.call[c], e->text[TEXT_CALL]);
        if (!known)
            r.call[r.calls++] = diagnosis_copy(d, e->text[TEXT_CALL]);
    }
    /* The order in which two runs committed says nothing; their names are put in order so that reports compare. */
    for (size_t i = 1; i < r.execs; i++)
        for (size_t k = i; k > 0; k--) {
            struct slice a = r.exec[k - 1], b = r.exec[k];
            size_t m = a.len < b.len ? a.len : b.len;
            int c = m ? memcmp(a.data, b.data, m) : 0;
            if (c < 0 || (c == 0 && a.len <= b.len))
                break;
            r.exec[k - 1] = b;
            r.exec[k] = a;
        }
    for (size_t i = 0; i < v->lines.count; i++) {
        struct event e = {.file = v->lines.ref[i].file, .line = v->lines.ref[i].line};
        line_refs_add(&lines, &e);
    }
    r.lines = diagnosis_lines(d, &lines);
    diagnosis_add_double_run(d, &r);
    find(j, FINDING_RAN_TWICE, r.certainty,
         diagnosis_format(d, "it took effect %zu times: %.*s", op->committed, (int)r.cause.len, r.cause.data),
         &lines);
}

static void judge_keys(struct judge *j)
{
    enum { KEYS_MAX = 8 };
    const struct group *g = j->op.group;
    struct slice keys[KEYS_MAX];
    struct line_refs lines = {0};
    size_t count = 0;
    if (j->op.weak)
        return;
    for (size_t i = 0; i < g->count && count < KEYS_MAX; i++) {
        struct slice key = g->event[i].text[TEXT_KEY];
        bool known = key.len == 0;
        for (size_t k = 0; k < count && !known; k++)
            known = slice_equal(keys[k], key);
        if (known)
            continue;
        keys[count++] = key;
        line_refs_add(&lines, &g->event[i]);
    }
    if (count < 2)
        return;
    /* Two keys under one callId are one intention's. Under one business key they may be two actions on it (create,
     * cancel), unless what differs is volatile. */
    bool one_call = false;
    for (size_t c = 0; c < j->op.calls && !one_call; c++) {
        struct slice first = {0};
        for (size_t i = j->op.call[c].first; i < j->op.call[c].first + j->op.call[c].count; i++) {
            struct slice key = g->event[j->op.order[i]].text[TEXT_KEY];
            if (first.len && key.len && !slice_equal(first, key) && j->op.call[c].id.len)
                one_call = true;
            if (key.len)
                first = key;
        }
    }
    struct volatile_part part = key_volatile_part(keys, count);
    if (part.what)
        find(j, FINDING_KEY_VOLATILE, one_call ? CERTAIN : LIKELY,
             sayf(j, "%zu keys for one intention differ by %s (%.*s in %.*s)", count, part.what,
                  (int)part.example.len, part.example.data, (int)keys[0].len, keys[0].data),
             &lines);
    else if (one_call)
        find(j, FINDING_KEY_CHANGED, CERTAIN,
             sayf(j, "%zu keys under one callId, %.*s and %.*s among them", count, (int)keys[0].len,
                  keys[0].data, (int)keys[1].len, keys[1].data),
             &lines);
}

static void judge_cache(struct judge *j)
{
    const struct operation *op = &j->op;
    for (size_t c = 0; c < op->calls; c++) {
        const struct event *effect = NULL;
        bool asked_before = false;
        for (size_t i = op->call[c].first; i < op->call[c].first + op->call[c].count; i++) {
            const struct event *e = operation_event(op, op->order[i]);
            if (e->kind == KIND_EFFECT && !effect)
                effect = e;
            if (e->kind != KIND_CACHE_ASKED)
                continue;
            if (!effect)
                asked_before = true;
            else if (!asked_before) {
                struct line_refs lines = {0};
                line_refs_add(&lines, effect);
                line_refs_add(&lines, e);
                find(j, FINDING_CACHE_LATE, CERTAIN,
                     say(j, slice_text("the effect was committed and then the cache was asked")), &lines);
                return;
            }
        }
    }
}

/* ---- step 3: receipts ---- */

static void judge_receipt(struct judge *j, const struct call *call)
{
    const struct operation *op = &j->op;
    const struct event *effect = NULL, *written = NULL, *open = NULL, *lost = NULL;
    bool mended = false;
    for (size_t i = call->first; i < call->first + call->count; i++) {
        const struct event *e = operation_event(op, op->order[i]);
        if (e->kind == KIND_EFFECT && !effect)
            effect = e;
        if (e->kind == KIND_ROLLBACK && effect && slice_equal(e->text[TEXT_EXEC], effect->text[TEXT_EXEC]))
            effect = NULL;
        if (e->kind != KIND_RECEIPT_ANSWER && e->kind != KIND_RECEIPT_WRITTEN)
            continue;
        if (e->kind == KIND_RECEIPT_WRITTEN && !written)
            written = e;
        if (e->state == EVENT_STATE_SUCCESS) {
            mended = true;
        } else if (effect && e->us != MOMENT_NONE && effect->us != MOMENT_NONE &&
                   e->us - effect->us >= RECEIPT_SLACK_US) {
            mended = false;
            if (e->state == EVENT_STATE_NOT_RECEIVED && !lost)
                lost = e;
            else if ((e->state == EVENT_STATE_PROCESSING || e->state == EVENT_STATE_RECEIVED) && !open)
                open = e;
        }
    }
    if (mended || !effect || (!lost && !open))
        return;
    struct line_refs lines = {0};
    line_refs_add(&lines, effect);
    if (written)
        line_refs_add(&lines, written);
    line_refs_add(&lines, lost ? lost : open);
    const char *order = !written ? "no line tells of the receipt being written"
                        : written->us < effect->us
                            ? "the receipt was written before the effect and not after it"
                            : "the receipt was written after the effect, apart from it";
    find(j, lost ? FINDING_RECEIPT_LOST : FINDING_RECEIPT_OPEN, written ? CERTAIN : LIKELY,
         sayf(j, "the effect was committed and %.1f s later the receipt said %s; %s",
              (double)((lost ? lost : open)->us - effect->us) / 1e6,
              event_state_text((enum event_state)(lost ? lost : open)->state), order),
         &lines);
}

/* An operation that succeeded and whose effect no line tells of is odd only in logs that tell of effects. */
static void note_effect(struct judge *j)
{
    const struct operation *op = &j->op;
    struct line_refs lines = {0};
    bool success = false;
    for (size_t i = 0; i < op->group->count; i++) {
        const struct event *e = operation_event(op, (uint32_t)i);
        if ((e->kind == KIND_RECEIPT_ANSWER || e->kind == KIND_RECEIPT_WRITTEN || e->kind == KIND_DONE) &&
            e->state == EVENT_STATE_SUCCESS) {
            success = true;
            line_refs_add(&lines, e);
        }
    }
    if (op->runs) {
        j->with_effect += success && op->committed;
        if (!success || op->committed)
            return;
    }
    if (!success)
        return;
    size_t kept = sizeof j->no_effect / sizeof *j->no_effect;
    if (j->no_effect_count < kept)
        j->no_effect[j->no_effect_count] =
            (struct no_effect){diagnosis_copy(j->d, op->key), {0}, diagnosis_lines(j->d, &lines)};
    j->no_effect_count++;
}

/* ---- verdicts ---- */

static void add_note(struct buffer *notes, const char *text)
{
    if (notes->len)
        buffer_text(notes, "; ");
    buffer_text(notes, text);
}

static void judge_call(struct judge *j, const struct call *call)
{
    const struct operation *op = &j->op;
    struct diagnosis *d = j->d;
    struct between s;
    struct buffer notes = {0};
    size_t copies = 0, replays = 0, damaged = 0, committed = 0, rolled_back = 0, logged_again = 0;
    bool receipt_success = false, receipt_failed = false;
    operation_between(op, call, UINT32_MAX, UINT32_MAX, &s);
    for (size_t i = call->first; i < call->first + call->count; i++) {
        const struct event *e = operation_event(op, op->order[i]);
        copies += e->copies;
        replays += e->kind == KIND_REPLAY;
        damaged += e->kind == KIND_DAMAGED;
        if (e->kind == KIND_RECEIPT_ANSWER || e->kind == KIND_RECEIPT_WRITTEN) {
            receipt_success = receipt_success || e->state == EVENT_STATE_SUCCESS;
            receipt_failed = e->state == EVENT_STATE_FAILED;
        }
        if (i > call->first && e->kind == KIND_EFFECT && e->text[TEXT_EXEC].len)
            for (size_t k = call->first; k < i && i - call->first < 64; k++) {
                const struct event *before = operation_event(op, op->order[k]);
                if (before->kind == KIND_EFFECT && slice_equal(before->text[TEXT_EXEC], e->text[TEXT_EXEC])) {
                    logged_again++;
                    break;
                }
            }
    }
    for (size_t i = 0; i < op->runs; i++) {
        const struct call *c = &op->call[op->call_of[op->run[i].event]];
        if (c != call && !(op->calls == 2 &&
                           !c->id.len)) /* an effect without a callId belongs to the only call there is */
            continue;
        committed += !op->run[i].rolled_back;
        rolled_back += op->run[i].rolled_back;
    }
    bool said_unknown = s.done && s.done->state == EVENT_STATE_UNKNOWN;
    bool said_failed = s.done && s.done->state == EVENT_STATE_FAILED;
    bool said_success = s.done && s.done->state == EVENT_STATE_SUCCESS;
    struct call_entry c = {.verdict = EVENT_STATE_UNKNOWN};
    if (committed || receipt_success || said_success || replays || (s.succeeded && s.answer))
        c.verdict = EVENT_STATE_SUCCESS;
    else if (said_failed || receipt_failed || s.rejected || s.failed || s.not_executed)
        c.verdict = EVENT_STATE_FAILED;
    if (c.verdict == EVENT_STATE_SUCCESS && (said_unknown || said_failed))
        add_note(&notes, committed
                             ? (said_unknown ? "it ended UNKNOWN at its caller, but its effect is in the log"
                                             : "it ended FAILED at its caller, but its effect is in the log")
                             : "its caller's last word is not SUCCESS, but a receipt or an answer is");
    if (c.verdict == EVENT_STATE_UNKNOWN)
        add_note(&notes, s.timeout ? "it timed out and neither an effect nor a receipt is in the log"
                                   : "no line says how it ended");
    if (copies)
        add_note(&notes, copies == 1 ? "one of its lines was shipped twice"
                                     : "several of its lines were shipped twice");
    if (logged_again)
        add_note(&notes, "one execution was logged more than once");
    if (replays)
        buffer_format(&notes, "%s%zu replay%s", notes.len ? "; " : "", replays, replays > 1 ? "s" : "");
    if (rolled_back && committed)
        add_note(&notes, "the first run was rolled back");
    else if (rolled_back)
        add_note(&notes, "its run was rolled back");
    if (damaged)
        buffer_format(&notes, "%s%zu of its lines could not be read, so this verdict lacks what they said",
                      notes.len ? "; " : "", damaged);
    d->call_ids++;
    d->verdicts[c.verdict]++;
    bool clean = c.verdict != EVENT_STATE_UNKNOWN && !notes.len;
    uint64_t max = clean ? DIAGNOSIS_CLEAN_MAX : DIAGNOSIS_CLEAN_MAX + DIAGNOSIS_FINDINGS_MAX;
    if (d->calls.count < max) {
        c.call = diagnosis_copy(d, call->id);
        c.key = diagnosis_copy(d, op->key);
        c.notes = diagnosis_copy(d, buffer_view(&notes));
        diagnosis_add_call(d, &c);
    } else {
        d->calls.left_out++;
    }
    buffer_fini(&notes);
}

static void list_key(struct judge *j, const struct verdict *v)
{
    const struct operation *op = &j->op;
    struct diagnosis *d = j->d;
    if (op->posts == 0 || (op->weak && (v->quiet || !v->any)))
        return;
    d->by_label[v->label]++;
    bool clean = v->lawful;
    if (d->keys.count >= (clean ? DIAGNOSIS_CLEAN_MAX : DIAGNOSIS_CLEAN_MAX + DIAGNOSIS_FINDINGS_MAX)) {
        d->keys.left_out++;
        return;
    }
    struct line_refs lines = v->lines;
    if (lines.count == 0)
        for (size_t i = 0; i < op->posts; i++)
            line_refs_add(&lines, operation_event(op, op->post[i]));
    bool by_proxy = operation_event(op, op->post[0])->kind == KIND_PROXY;
    struct key_entry k = {.key = diagnosis_copy(d, op->key),
                          .posts = (uint32_t)op->posts + (by_proxy ? op->proxied : 0),
                          .label = v->label,
                          .certainty = v->certainty,
                          .lawful = v->lawful,
                          .text = diagnosis_copy(d, v->text),
                          .lines = diagnosis_lines(d, &lines)};
    diagnosis_add_key(d, &k);
}

enum status judge_group(struct judge *j, struct group *group)
{
    struct diagnosis *d = j->d;
    struct verdict v;
    d->shipped_twice += group->shipped_twice;
    d->left_out_events += group->left_out;
    arena_clear(&j->scratch);
    enum status status = operation_make(&j->op, group);
    if (status != STATUS_OK)
        return status;
    const struct operation *op = &j->op;
    for (size_t i = 0; i < group->count; i++) {
        d->replays += group->event[i].kind == KIND_REPLAY;
        j->receipts_seen = j->receipts_seen || group->event[i].kind == KIND_RECEIPT_ANSWER;
    }
    d->business_keys += op->keyed && !op->weak;
    status = judge_repeats(j, &v);
    if (status != STATUS_OK)
        return status;
    judge_proxies(j, &v);
    if (op->posts > 1)
        judge_layers(j, &v);
    judge_runs(j, &v);
    judge_keys(j);
    judge_cache(j);
    list_key(j, &v);
    for (size_t c = 0; c < op->calls; c++) {
        if (op->call[c].id.len && !op->weak)
            judge_call(j, &op->call[c]);
        judge_receipt(j, &op->call[c]);
    }
    note_effect(j);
    return d->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

static void find_in_table(struct judge *j, enum finding_code code, struct slice key, struct slice text)
{
    struct diagnosis *d = j->d;
    static const struct line_refs none;
    struct finding f = {
        .code = code, .certainty = CERTAIN, .key = key, .text = text, .lines = diagnosis_lines(d, &none)};
    d->by_code[code]++;
    d->finding_count++;
    diagnosis_add_finding(d, &f);
}

void judge_key_column(struct judge *j, const char *table, const char *column, const struct key_column *k)
{
    struct slice key = diagnosis_format(j->d, "%s.%s", table, column);
    if (!k->unique)
        find_in_table(j, FINDING_NO_UNIQUE_INDEX, key,
                      diagnosis_format(j->d, "no index makes it unique%s%.*s", k->near_misses.len ? ": " : "",
                                       (int)k->near_misses.len,
                                       k->near_misses.data ? k->near_misses.data : ""));
    if (k->duplicates)
        find_in_table(j, FINDING_KEY_TWICE_IN_TABLE, key,
                      diagnosis_format(j->d, "%llu keys are there more than once: %.*s",
                                       (unsigned long long)k->duplicates, (int)k->examples.len,
                                       k->examples.data ? k->examples.data : ""));
}

enum status judge_end(struct judge *j)
{
    struct diagnosis *d = j->d;
    size_t kept = sizeof j->no_effect / sizeof *j->no_effect;
    if (j->no_effect_count && j->no_effect_count <= j->with_effect / 10 + 1 && j->with_effect >= 3) {
        for (size_t i = 0; i < j->no_effect_count && i < kept; i++) {
            struct finding f = {.code = FINDING_RECEIPT_NO_ROW,
                                .certainty = LIKELY,
                                .key = j->no_effect[i].key,
                                .text = diagnosis_format(d,
                                                         "SUCCESS, and no line tells of its effect, while "
                                                         "%llu other operations' effects are in the logs",
                                                         (unsigned long long)j->with_effect),
                                .lines = j->no_effect[i].lines};
            diagnosis_add_finding(d, &f);
        }
        d->by_code[FINDING_RECEIPT_NO_ROW] += j->no_effect_count;
        d->finding_count += j->no_effect_count;
    }
    policy_judge(&j->policy, d);
    diagnosis_sort(d);
    return d->failed ? STATUS_NO_MEMORY : STATUS_OK;
}

void judge_init(struct judge *j, struct diagnosis *d, const struct facts *facts)
{
    memset(j, 0, sizeof *j);
    j->d = d;
    j->facts = facts;
    arena_init(&j->scratch, SCRATCH_BYTES_MAX);
}

void judge_fini(struct judge *j)
{
    arena_fini(&j->scratch);
    operation_fini(&j->op);
    policy_fini(&j->policy);
}
