/* SPDX-License-Identifier: MIT
 *
 * One repeat: who sent the request again, and was that lawful? The same callId with a higher attempt number was sent by the
 * caller's own retry code; with the same number by something behind its back; another callId is another call.
 */
#include "forensics/judge_inside.h"

/* How far a gap may lie beyond the limit that caused it: the time to notice and to send again. */
#define LIMIT_SLACK_US INT64_C(2000000)
/* A repeat at once, on another connection, was made by a library and not by a clock. */
#define AT_ONCE_US INT64_C(1000000)
/* A proxy that waits for one server's answer turns to the next within this time. */
#define FAILOVER_US INT64_C(120000000)

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
    r->text = judge_say(j, buffer_view(&t));
    buffer_fini(&t);
}

bool repeat_both_differ(const struct event *a, const struct event *b, enum event_text t)
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
    /* A proxy's own line names several servers, or counts retries, and two servers had it. */
    bool says_so = j->op.proxied > 0 || j->op.retried;
    bool through = both_same(a, b, TEXT_VIA) || proxy || says_so;
    bool one_peer = both_same(a, b, TEXT_PEER) || both_same(a, b, TEXT_VIA);
    int64_t limit = facts_limit(j->facts, b, &whose);
    bool ended = s->server_error || s->reset || s->timeout || s->not_executed || says_so;
    print_gap(&t, r->gap_us);
    if (repeat_both_differ(a, b, TEXT_NODE) && one_peer && (ended || through) && r->gap_us != MOMENT_NONE &&
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
    } else if (repeat_both_differ(a, b, TEXT_CONNECTION) && b->nth == 1 && a->nth > 1 &&
               r->gap_us != MOMENT_NONE && (s->reset || (!s->answer && r->gap_us < AT_ONCE_US))) {
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
        if (repeat_both_differ(a, b, TEXT_CONNECTION))
            buffer_text(&t, " on a new connection");
        if (past_limit(r->gap_us, limit))
            buffer_format(&t, ": the limit of %s (%.0f s) fired", whose, (double)limit / 1e6);
        else if (usual_limit(r->gap_us))
            buffer_format(&t, ", just past a usual limit of %.0f s", (double)usual_limit(r->gap_us) / 1e6);
    }
    r->text = judge_say(j, buffer_view(&t));
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
        r->text = judge_say(
            j,
            slice_text(r->lawful ? "the broker delivered the message again and said so"
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
    r->text = judge_say(j, buffer_view(&t));
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
        r->text = judge_say(
            j, slice_text("the same client asked for the same again after an unclear ending; the lines "
                          "have no callId, so whether it was one intention cannot be told"));
}

/* The post this one repeats: the one before it of the same call, else the one before it of any. */
bool repeat_find(struct judge *j, size_t i, struct repeat *r)
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
