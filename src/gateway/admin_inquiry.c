/* SPDX-License-Identifier: MIT
 *
 * One request at the admin listener past the question who asks: its parameters, its body, its way to the store and back,
 * its answer. Whatever callers wrote is data here: it leaves as JSON with its type, and browsers are told not to guess.
 */
#include "base/civil.h"
#include "base/hex.h"
#include "base/json_text.h"
#include "gateway/admin_parts.h"
#include "gateway/answer.h"
#include "gateway/visit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static const char json_lines[] = "Content-Type: application/json\r\nCache-Control: no-store\r\n"
                                 "X-Content-Type-Options: nosniff\r\n";

struct inquiry *inquiry_hold(struct inquiry *q)
{
    q->holds++;
    return q;
}

void inquiry_drop(struct inquiry *q)
{
    assert(q->holds > 0);
    if (--q->holds)
        return;
    if (q->state_free)
        q->state_free(q->state);
    json_decref(q->json);
    buffer_fini(&q->body);
    arena_fini(&q->arena);
    q->admin->shard->visits--;
    outlets_release(q->outlets);
    free(q);
}

/* ---- answers ------------------------------------------------------------------------------------------------ */

static struct request *take_request(struct inquiry *q)
{
    struct request *request = q->request;
    q->request = NULL;
    return request;
}

void inquiry_answer(struct inquiry *q, int status, struct buffer *document)
{
    struct request *request = q->request;
    if (document->failed) {
        inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "there is no memory for the answer");
        return;
    }
    take_request(q);
    if (request)
        request_answer(request, status, slice_text(json_lines), buffer_view(document));
}

static void refuse(struct inquiry *q, enum problem problem, const char *parameter, const char *detail,
                   enum call_state state)
{
    struct problem_facts facts = {
        .detail = slice_text(detail),
        .parameter = slice_text(parameter),
        .state = state,
        .next = problem == PROBLEM_STORE_UNAVAILABLE ? NEXT_RETRY_SAME_CALL : NEXT_FIX_REQUEST,
        .retry_after_s = problem == PROBLEM_STORE_UNAVAILABLE ? 1
                         : problem == PROBLEM_RATE_LIMITED    ? 5
                                                              : -1,
    };
    struct request *request = take_request(q);
    if (!request)
        return;
    metrics_add(q->admin->shard->counts, METRIC_refusals, 0, (size_t)problem, 1);
    admin_problem(request, problem, &facts);
}

void inquiry_refuse(struct inquiry *q, enum problem problem, const char *parameter, const char *detail)
{
    refuse(q, problem, parameter, detail, STATE_NOT_RECEIVED);
}

void inquiry_refuse_state(struct inquiry *q, enum problem problem, const char *detail, enum call_state state)
{
    refuse(q, problem, NULL, detail, state);
}

/* ---- the store ---------------------------------------------------------------------------------------------- */

void *inquiry_state(struct inquiry *q, size_t size)
{
    assert(!q->state);
    q->state = calloc(1, size);
    q->state_free = free;
    if (!q->state)
        inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "there is no memory for the answer");
    return q->state;
}

struct job *inquiry_job(struct inquiry *q, enum store_kind kind, void (*then)(struct job *job))
{
    struct job *job = job_new(q->admin->shard, kind, inquiry_hold(q), then);
    if (job)
        return job;
    inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "there is no memory for the answer");
    inquiry_drop(q);
    return NULL;
}

void inquiry_done(struct job *job)
{
    struct inquiry *q = job->owner;
    job_free(job);
    inquiry_drop(q);
}

bool inquiry_read_well(struct inquiry *q, const struct job *job)
{
    if (!q->request)
        return false;
    if (job->op.status == STATUS_OK)
        return true;
    metrics_add(q->admin->shard->counts, METRIC_store_errors, 0, 0, 1);
    inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "the store cannot be read now; nothing was changed");
    return false;
}

/* ---- parameters --------------------------------------------------------------------------------------------- */

/* A piece of a query, percent-decoded into the arena. */
static bool decode(struct inquiry *q, struct slice raw, bool plus_is_space, struct slice *out)
{
    char *text = arena_take(&q->arena, raw.len + 1);
    size_t n = 0;
    if (!text)
        return false;
    for (size_t i = 0; i < raw.len; i++) {
        char c = raw.data[i];
        if (c == '%') {
            int high = i + 2 < raw.len ? hex_digit(raw.data[i + 1], true) : -1;
            int low = high >= 0 ? hex_digit(raw.data[i + 2], true) : -1;
            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        text[n++] = c;
    }
    *out = slice_of(text, n);
    return true;
}

bool param_number(struct slice text, int64_t least, int64_t most, int64_t *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = text.data[i] - '0';
        if (digit < 0 || digit > 9 || n > (INT64_MAX - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    if (!text.len || n < least || n > most)
        return false;
    *out = n;
    return true;
}

const char *param_read(const struct param *p, struct slice text)
{
    enum call_state state;
    enum task_status status;
    int64_t n;
    switch (p->kind) {
    case PARAM_TEXT:
    case PARAM_WORD:
        *(struct slice *)p->to = text;
        return NULL;
    case PARAM_TIME:
        if (civil_parse_rfc3339(text, &n) != STATUS_OK || n <= 0)
            return "must be a time such as 2026-03-01T12:00:00Z";
        *(int64_t *)p->to = n;
        return NULL;
    case PARAM_LIMIT:
        if (!param_number(text, 1, STORE_PAGE_MAX, &n))
            return "must be a number from 1 to 200";
        *(size_t *)p->to = (size_t)n;
        return NULL;
    case PARAM_CURSOR:
        if (!param_number(text, 1, INT64_MAX, &n))
            return "must be the next_cursor of the page before";
        *(int64_t *)p->to = n;
        return NULL;
    case PARAM_STATE:
        if (!state_parse(text, &state) || state == STATE_NOT_RECEIVED)
            return "must be RECEIVED, PROCESSING, SUCCESS, FAILED or UNKNOWN";
        *(unsigned *)p->to = 1u << state;
        return NULL;
    case PARAM_STATUS:
        if (!task_status_parse(text, &status))
            return "must be PENDING, RUNNING, RESOLVED, REVERSED, MANUAL or CLOSED";
        *(unsigned *)p->to = 1u << status;
        return NULL;
    }
    return "cannot be read";
}

static void refuse_param(struct inquiry *q, struct slice name, const char *what)
{
    char shown[64], detail[256];
    size_t len = name.len < sizeof shown - 1 ? name.len : sizeof shown - 1;
    memcpy(shown, name.data, len);
    shown[len] = '\0';
    snprintf(detail, sizeof detail, "the parameter %s %s", shown, what);
    inquiry_refuse(q, PROBLEM_REQUEST_INVALID, shown, detail);
}

bool inquiry_params(struct inquiry *q, const struct param *params, size_t count)
{
    struct slice query = request_head(q->request)->query;
    unsigned seen = 0;
    assert(count < 32);
    for (size_t i = 0; i < count; i++)
        if (params[i].kind == PARAM_LIMIT)
            *(size_t *)params[i].to = LIST_LIMIT_DEFAULT;
    while (query.len) {
        const char *stop = memchr(query.data, '&', query.len);
        size_t len = stop ? (size_t)(stop - query.data) : query.len, i = 0;
        struct slice pair = slice_of(query.data, len), value = {0};
        query = slice_of(query.data + len + (stop != NULL), query.len - len - (stop != NULL));
        if (!pair.len)
            continue;
        const char *equals = memchr(pair.data, '=', pair.len);
        if (equals) {
            value = slice_of(equals + 1, pair.len - (size_t)(equals + 1 - pair.data));
            pair.len = (size_t)(equals - pair.data);
        }
        while (i < count && !slice_is(pair, params[i].name))
            i++;
        if (i == count) {
            refuse_param(q, pair, "is not known here");
            return false;
        }
        const char *what = NULL;
        if (seen & 1u << i)
            what = "is given twice";
        else if (value.len > INQUIRY_TEXT_MAX)
            what = "is longer than 2048 bytes";
        else if (!decode(q, value, params[i].kind == PARAM_TEXT, &value))
            what = "has a % that is not followed by two hexadecimal digits";
        else if (value.len ||
                 params[i].given) /* an empty one is as if it were not there, unless empty is a value */
            what = param_read(&params[i], value);
        seen |= 1u << i;
        if (what) {
            refuse_param(q, pair, what);
            return false;
        }
        if (params[i].given)
            *params[i].given = true;
    }
    return true;
}

/* ---- the body ----------------------------------------------------------------------------------------------- */

/* Nothing that can be seen: spaces, controls, and the wide, fixed and invisible spaces of Unicode. `text` is UTF-8. */
static bool is_blank(struct slice text)
{
    static const char *const spaces[] = {
        "\xc2\xa0",     "\xc2\xad",     "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83",
        "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89",
        "\xe2\x80\x8a", "\xe2\x80\x8b", "\xe2\x80\x8c", "\xe2\x80\x8d", "\xe2\x80\xa8", "\xe2\x80\xa9",
        "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe2\x81\xa0", "\xe3\x80\x80", "\xef\xbb\xbf"};
    while (text.len) {
        size_t skip = (unsigned char)text.data[0] <= ' ' ? 1 : 0;
        for (size_t i = 0; !skip && i < sizeof spaces / sizeof *spaces; i++) {
            size_t len = strlen(spaces[i]);
            if (text.len >= len && memcmp(text.data, spaces[i], len) == 0)
                skip = len;
        }
        if (!skip)
            return false;
        text = slice_of(text.data + skip, text.len - skip);
    }
    return true;
}

bool inquiry_text(struct inquiry *q, const char *name, struct slice *out)
{
    json_t *member = json_object_get(q->json, name);
    char detail[160];
    struct slice text = json_is_string(member)
                            ? slice_of(json_string_value(member), json_string_length(member))
                            : slice_of("", 0);
    if (!is_blank(text) && text.len <= INQUIRY_TEXT_MAX && arena_copy(&q->arena, text, out))
        return true;
    snprintf(detail, sizeof detail,
             "the body needs \"%s\", a text that is not blank and has at most %d bytes", name,
             INQUIRY_TEXT_MAX);
    inquiry_refuse(q, PROBLEM_REQUEST_INVALID, name, detail);
    return false;
}

bool inquiry_members(struct inquiry *q, const json_t *object, const char *within, const char *const *names)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const char *const *known = names;
        while (*known && strcmp(*known, name) != 0)
            known++;
        if (!*known) {
            char detail[160];
            snprintf(detail, sizeof detail, "%s has a member %.64s, which is not known", within, name);
            inquiry_refuse(q, PROBLEM_REQUEST_INVALID, name, detail);
            return false;
        }
    }
    return true;
}

static void act(struct inquiry *q)
{
    if (!q->request)
        return;
    if (q->body.len) {
        json_error_t error;
        q->json = json_loadb(q->body.data, q->body.len, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(q->json)) {
            char detail[256];
            snprintf(detail, sizeof detail, "the body must be a JSON object%s%.120s", q->json ? "" : ": ",
                     q->json ? "" : error.text);
            inquiry_refuse(q, PROBLEM_BODY_INVALID, NULL, detail);
            return;
        }
    }
    q->act(q);
}

static void on_body(struct guest *guest, struct slice piece)
{
    struct inquiry *q = LIST_ENTRY(guest, struct inquiry, guest);
    if (!q->request)
        return;
    if (piece.len > INQUIRY_BODY_MAX - q->body.len)
        inquiry_refuse(q, PROBLEM_BODY_TOO_LARGE, NULL, "a body here is at most 64 KiB");
    else
        buffer_slice(&q->body, piece);
}

static void on_body_end(struct guest *guest)
{
    act(LIST_ENTRY(guest, struct inquiry, guest));
}

static void on_drain(struct guest *guest)
{
    (void)guest;
}

static void on_finished(struct guest *guest, bool gone)
{
    struct inquiry *q = LIST_ENTRY(guest, struct inquiry, guest);
    (void)gone;
    q->request = NULL;
    inquiry_drop(q);
}

static bool is_json(struct slice type)
{
    static const char json[] = "application/json";
    size_t len = sizeof json - 1;
    return type.len >= len && slice_is_nocase(slice_of(type.data, len), json) &&
           (type.len == len || type.data[len] == ';' || type.data[len] == ' ');
}

void inquiry_begin(struct admin *admin, struct request *request, const struct access *access, struct slice id,
                   void (*how)(struct inquiry *q))
{
    struct inquiry *q = calloc(1, sizeof *q);
    const struct request_head *head = request_head(request);
    if (!q) {
        request_abort(request);
        return;
    }
    q->guest = (struct guest){on_body, on_body_end, on_drain, on_finished};
    q->admin = admin;
    q->outlets = outlets_hold(admin->shard->outlets);
    q->request = request;
    q->holds = 1;
    q->access = *access;
    q->act = how;
    arena_init(&q->arena, INQUIRY_ARENA_MAX);
    admin->shard->visits++;
    request_set_user(request, &q->guest);
    if (!arena_copy(&q->arena, id, &q->id))
        inquiry_refuse(q, PROBLEM_STORE_UNAVAILABLE, NULL, "there is no memory for the answer");
    else if (head->has_body && head->content_length != 0 &&
             !is_json(headers_get(&head->headers, "Content-Type", NULL)))
        inquiry_refuse(q, PROBLEM_BODY_INVALID, "Content-Type",
                       "send the body as Content-Type: application/json");
    else if (head->has_body)
        request_read_body(request);
    else
        act(q);
}

struct slice inquiry_peer(struct inquiry *q)
{
    struct slice peer = {0};
    if (q->request)
        (void)arena_copy(&q->arena, request_peer(q->request), &peer);
    return peer;
}

const struct lane *inquiry_lane(const struct inquiry *q, struct slice route)
{
    const struct setup *setup = q->outlets->setup;
    for (size_t i = 0; i < setup->settings->route_count; i++)
        if (slice_is(route, setup->lanes[i].s->name))
            return &setup->lanes[i];
    return NULL;
}
