/* SPDX-License-Identifier: MIT
 *
 * What two or more settings say together: the contradictions and warnings of CONTRACT section 7, and the settings of
 * features that do not exist yet, refused by name so that nobody believes in a guard that is not there.
 */
#include "core/settings.h"

#include "core/backoff.h"
#include "core/deadline.h"
#include "core/fingerprint.h"
#include "core/settings_shape.h"
#include "core/template.h"

#define DAY_MS INT64_C(86400000)

/* a x n, held at DURATION_FOREVER. */
static int64_t times(int64_t a, int64_t n)
{
    return n != 0 && a > DURATION_FOREVER / n ? DURATION_FOREVER : a * n;
}

int64_t settings_waits_longest_ms(const struct route_settings *r)
{
    struct backoff b = {r->backoff_base_ms, r->backoff_cap_ms, r->jitter_low, r->jitter_high};
    int64_t sum = 0;
    for (unsigned n = 0; n < (unsigned)r->retries; n++)
        sum = deadline_add(sum, backoff_longest_ms(&b, n));
    return sum;
}

int64_t settings_call_longest_ms(const struct route_settings *r)
{
    int64_t sum = times(r->attempt_timeout_ms, r->retries + 1);
    sum = deadline_add(sum, settings_waits_longest_ms(r));
    if (r->receipt.kind != RECEIPT_NONE)
        sum = deadline_add(sum, times(r->receipt_timeout_ms, r->retries));
    return sum;
}

int64_t settings_compensation_longest_ms(const struct route_settings *r)
{
    struct backoff gaps = {r->round_gap_ms, r->round_gap_max_ms, 1, r->jitter_high > 1 ? r->jitter_high : 1};
    int64_t sum = 0;
    for (unsigned n = 0; n < (unsigned)r->rounds; n++)
        sum = deadline_add(sum, backoff_longest_ms(&gaps, n));
    /* A round asks once and may send once. */
    return deadline_add(sum, times(r->attempt_timeout_ms + r->receipt_timeout_ms, r->rounds));
}

struct checker {
    const struct settings *settings;
    const struct route_settings *route; /* NULL while the top of the file is checked */
    settings_problem_fn *report;
    void *context;
    size_t errors;
    struct buffer text;
};

/* Reports a problem about a setting of the present scope; the message is what was appended to c->text. */
static void told(struct checker *c, enum settings_severity severity, const char *code, enum setting_id id)
{
    const struct setting *row = id < SETTING_ID_COUNT ? &settings_table[id] : NULL;
    const struct setting_origin *origins = c->route ? c->route->origins : c->settings->origins;
    int line = row ? origins[id].line : 0;
    if (line == 0 && c->route && (!row || origins[id].source != SETTING_SOURCE_FLAG))
        line = c->route->line;
    struct settings_problem problem = {
        severity, code, row, c->route ? c->route->name : NULL, line, buffer_cstring(&c->text)};
    if (severity == SETTINGS_ERROR)
        c->errors++;
    if (c->report)
        c->report(c->context, &problem);
    buffer_clear(&c->text);
}

static void add_duration(struct checker *c, const char *before, int64_t ms, const char *after)
{
    buffer_text(&c->text, before);
    duration_print(ms, &c->text);
    buffer_text(&c->text, after);
}

static void check_template(struct checker *c, enum setting_id id, const char *text, enum template_use use)
{
    struct template t = {0};
    struct template_error error = {0};
    enum status status = template_compile(&t, slice_text(text), use, &error);
    if (status == STATUS_INVALID || status == STATUS_FULL) {
        buffer_format(&c->text, "at byte %zu of \"%s\": %s", error.position + 1, text, error.message);
        told(c, SETTINGS_ERROR, "template-invalid", id);
    }
    template_fini(&t);
}

/* Whether a key of this route names a time window, so that its old keys never come again. */
static bool key_has_window(const struct route_settings *r)
{
    struct template t = {0};
    struct template_error error = {0};
    bool has = strcmp(r->key, "header") != 0 &&
               template_compile(&t, slice_text(r->key), TEMPLATE_FOR_KEY, &error) == STATUS_OK &&
               template_has_window(&t);
    template_fini(&t);
    return has;
}

/* Numbers and `localhost` only: a name that merely begins like 127.0.0.1 may resolve to anything. */
static bool is_loopback(const char *address)
{
    static const char *const near[] = {"localhost:", "[::1]:", "unix:"};
    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++)
        if (strncmp(address, near[i], strlen(near[i])) == 0)
            return true;
    return strncmp(address, "127.", 4) == 0 && address[strspn(address, "0123456789.")] == ':';
}

static void check_top(struct checker *c)
{
    const struct settings *s = c->settings;
    if (s->listen.count == 0) {
        buffer_text(&c->text, "there is no address to listen on; give one, such as {\"127.0.0.1:8080\"}");
        told(c, SETTINGS_ERROR, "listen-missing", SETTING_ID_listen);
    }
    if (s->admin[0] && !is_loopback(s->admin) && !s->admin_token_file[0]) {
        buffer_format(
            &c->text,
            "the admin address %s can be reached from other machines and admin_token_file is not set; set "
            "it, or listen on 127.0.0.1",
            s->admin);
        told(c, SETTINGS_ERROR, "admin-open", SETTING_ID_admin);
    }
    for (size_t i = 0; i < s->listen.count; i++)
        if (strcmp(s->listen.items[i], s->admin) == 0) {
            buffer_format(&c->text,
                          "admin and listen both want %s; give the admin listener an address of its own",
                          s->admin);
            told(c, SETTINGS_ERROR, "address-twice", SETTING_ID_admin);
        }
    if (s->trace[0] && !(strncmp(s->trace, "file:/", 6) == 0 || strncmp(s->trace, "http://", 7) == 0 ||
                         strncmp(s->trace, "https://", 8) == 0)) {
        buffer_format(
            &c->text,
            "%s is no place for traces; give file:/PATH or a collector's http://HOST:4318/v1/traces",
            s->trace);
        told(c, SETTINGS_ERROR, "trace-invalid", SETTING_ID_trace);
    }
    bool forever = false;
    for (size_t i = 0; i < s->route_count; i++)
        forever = forever || s->routes[i]->key_life_ms == DURATION_FOREVER;
    if (s->archive[0] && !forever) {
        buffer_text(&c->text,
                    "archive is set and no route has key_life = forever, so nothing new goes there; "
                    "set key_life, or leave archive out");
        told(c, SETTINGS_WARNING, "archive-unused", SETTING_ID_archive);
    }
    if (s->tenant[0])
        check_template(c, SETTING_ID_tenant, s->tenant, TEMPLATE_FOR_TEXT);
    if (s->credential[0])
        check_template(c, SETTING_ID_credential, s->credential, TEMPLATE_FOR_TEXT);
    if (!s->tenant[0] && !s->credential[0]) {
        buffer_text(&c->text,
                    "neither tenant nor credential is set: all callers are one principal, and anyone who "
                    "knows a callId can read its answer; set one where callers do not trust each other");
        told(c, SETTINGS_WARNING, "one-principal", SETTING_ID_tenant);
    }
    if (s->route_count == 0) {
        buffer_text(&c->text, "there is no route; add one, route \"NAME\" { path = {\"/...\"} upstream = "
                              "{\"http://...\"} }, or start with --upstream URL");
        told(c, SETTINGS_ERROR, "route-missing", SETTING_ID_COUNT);
    }
}

static void check_identity(struct checker *c)
{
    const struct route_settings *r = c->route;
    if (r->path.count == 0) {
        buffer_text(&c->text,
                    "the route has no path; give one, such as {\"/orders\"}, or {\"/{*}\"} for everything");
        told(c, SETTINGS_ERROR, "path-missing", SETTING_ID_path);
    }
    if (r->upstream.count == 0) {
        buffer_text(&c->text, "the route has no upstream; give one, such as {\"http://127.0.0.1:9000\"}");
        told(c, SETTINGS_ERROR, "upstream-missing", SETTING_ID_upstream);
    }
    if (r->methods.count == 0 && r->mode != MODE_OFF) {
        buffer_text(&c->text,
                    "the list is empty, so nothing would be guarded; name a method, or write mode = off");
        told(c, SETTINGS_ERROR, "methods-missing", SETTING_ID_methods);
    }
    if (strcmp(r->call_id, "header") != 0)
        check_template(c, SETTING_ID_call_id, r->call_id, TEMPLATE_FOR_TEXT);
    if (strcmp(r->key, "header") != 0)
        check_template(c, SETTING_ID_key, r->key, TEMPLATE_FOR_KEY);
    if (r->business_ref[0])
        check_template(c, SETTING_ID_business_ref, r->business_ref, TEMPLATE_FOR_TEXT);
    if (r->receipt.kind == RECEIPT_HTTP)
        check_template(c, SETTING_ID_receipt, r->receipt.path, TEMPLATE_FOR_URL);

    struct fingerprint_rules rules = {0};
    struct slice ignored[SETTINGS_LIST_MAX], where = {"", 0};
    const char *why = NULL;
    for (size_t i = 0; i < r->ignore.count; i++)
        ignored[i] = slice_text(r->ignore.items[i]);
    enum status status =
        fingerprint_rules_compile(&rules, slice_text(r->compare), ignored, r->ignore.count, &why, &where);
    if (status == STATUS_INVALID || status == STATUS_FULL) {
        bool in_compare = where.data >= r->compare && where.data <= r->compare + strlen(r->compare);
        buffer_format(&c->text, "%s (`%.*s`)", why ? why : "it is out of form", (int)where.len, where.data);
        told(c, SETTINGS_ERROR, "compare-invalid", in_compare ? SETTING_ID_compare : SETTING_ID_ignore);
    }
    fingerprint_rules_fini(&rules);
}

static void check_time(struct checker *c)
{
    const struct route_settings *r = c->route;
    int64_t waits = settings_waits_longest_ms(r), call = settings_call_longest_ms(r);
    bool asks = r->receipt.kind != RECEIPT_NONE;
    if (call > r->deadline_ms) {
        add_duration(c, "deadline ", r->deadline_ms, " cannot hold the longest call, ");
        add_duration(c, "", call, ": ");
        buffer_format(&c->text, "%lld attempts of ", (long long)r->retries + 1);
        add_duration(c, "", r->attempt_timeout_ms, "");
        add_duration(c, ", waits of ", waits, "");
        if (asks) {
            buffer_format(&c->text, " and %lld receipt queries of ", (long long)r->retries);
            add_duration(c, "", r->receipt_timeout_ms, "");
        }
        add_duration(c, "; raise deadline to ", call, " or lower attempt_timeout or retries");
        told(c, SETTINGS_ERROR, "deadline-too-short", SETTING_ID_deadline_ms);
    }
    if (r->connect_timeout_ms > r->attempt_timeout_ms) {
        add_duration(c, "connect_timeout ", r->connect_timeout_ms, " is longer than the whole attempt, ");
        add_duration(c, "", r->attempt_timeout_ms, "; lower it or raise attempt_timeout");
        told(c, SETTINGS_ERROR, "connect-too-long", SETTING_ID_connect_timeout_ms);
    }
    if (r->lease_ms < r->attempt_timeout_ms) {
        add_duration(c, "lease ", r->lease_ms, " is shorter than one attempt, ");
        add_duration(c, "", r->attempt_timeout_ms,
                     ": a call would lose its owner while it runs; raise lease to at ");
        add_duration(c, "least ", r->attempt_timeout_ms, "");
        told(c, SETTINGS_ERROR, "lease-too-short", SETTING_ID_lease_ms);
    }
    if (r->backoff_cap_ms < r->backoff_base_ms) {
        add_duration(c, "backoff_cap ", r->backoff_cap_ms, " is less than backoff_base ");
        add_duration(c, "", r->backoff_base_ms, "; raise the cap or lower the base");
        told(c, SETTINGS_ERROR, "backoff-crossed", SETTING_ID_backoff_cap_ms);
    }
    if (r->round_gap_max_ms < r->round_gap_ms) {
        add_duration(c, "round_gap_max ", r->round_gap_max_ms, " is less than round_gap ");
        add_duration(c, "", r->round_gap_ms, "; raise the maximum or lower the gap");
        told(c, SETTINGS_ERROR, "rounds-crossed", SETTING_ID_round_gap_max_ms);
    }
    if (r->breaker_probes == 0) {
        buffer_text(&c->text,
                    "with 0 probes an open breaker could never close; give at least 1, or turn the breaker "
                    "off with breaker_failures = 0");
        told(c, SETTINGS_ERROR, "no-probes", SETTING_ID_breaker_probes);
    }
}

static void check_lives(struct checker *c)
{
    const struct route_settings *r = c->route;
    int64_t compensation = settings_compensation_longest_ms(r);
    int64_t need = deadline_add(deadline_add(r->deadline_ms, compensation), r->tolerated_delay_ms);
    if (r->key_life_ms < need) {
        add_duration(c, "key_life ", r->key_life_ms, " is shorter than a call can still be repeated, ");
        add_duration(c, "", need, ": ");
        add_duration(c, "deadline ", r->deadline_ms, ", ");
        buffer_format(&c->text, "%lld rounds of compensation ", (long long)r->rounds);
        add_duration(c, "", compensation, ", tolerated_delay ");
        add_duration(c, "", r->tolerated_delay_ms, "; raise key_life to at least ");
        add_duration(c, "", need, " or lower the others");
        told(c, SETTINGS_ERROR, "key-life-too-short", SETTING_ID_key_life_ms);
    } else if (r->key_life_ms < DAY_MS) {
        add_duration(c, "key_life ", r->key_life_ms,
                     " is under 24h: a caller that comes back the next day runs its ");
        buffer_text(&c->text, "operation again once the tombstone is gone; 7d is usual");
        told(c, SETTINGS_WARNING, "key-life-short", SETTING_ID_key_life_ms);
    }
    if (r->key_life_ms != DURATION_FOREVER && r->tombstone_life_ms < r->key_life_ms) {
        add_duration(c, "tombstone_life ", r->tombstone_life_ms, " is shorter than key_life ");
        add_duration(c, "", r->key_life_ms,
                     ": a key must be remembered at least as long as it lives; raise it to ");
        add_duration(c, "", r->key_life_ms, " or more");
        told(c, SETTINGS_ERROR, "tombstone-too-short", SETTING_ID_tombstone_life_ms);
    }
    if (r->result_life_ms < r->key_life_ms) {
        add_duration(c, "result_life ", r->result_life_ms, " is less than key_life ");
        add_duration(c, "", r->key_life_ms,
                     ": in between, a repeat learns that it is done (result-not-kept) but not ");
        buffer_text(&c->text, "the answer; raise result_life where callers need the answer");
        told(c, SETTINGS_WARNING, "result-life-short", SETTING_ID_result_life_ms);
    }
    if (r->key_life_ms != DURATION_FOREVER && r->tombstone_life_ms != DURATION_FOREVER &&
        !key_has_window(r)) {
        add_duration(c, "after tombstone_life ", r->tombstone_life_ms,
                     " an old key could run again; a time window ");
        buffer_text(&c->text, "in the key, such as {date}, rules that out, and so does key_life = forever");
        told(c, SETTINGS_NOTE, "key-may-return", SETTING_ID_tombstone_life_ms);
    }
}

static void check_policy(struct checker *c)
{
    const struct route_settings *r = c->route;
    if (r->rounds < 3 || r->rounds > 5) {
        buffer_format(&c->text,
                      "rounds %lld is outside 3 to 5: fewer give up before an outage is over, more keep a "
                      "person waiting",
                      (long long)r->rounds);
        told(c, SETTINGS_WARNING, "rounds-unusual", SETTING_ID_rounds);
    }
    if (r->retries > 3) {
        buffer_format(&c->text,
                      "retries %lld is more than 3: further attempts seldom help and load a service that "
                      "is already in trouble; 3 is usual",
                      (long long)r->retries);
        told(c, SETTINGS_WARNING, "retries-many", SETTING_ID_retries);
    }
    if (r->retries > 0 && r->receipt.kind == RECEIPT_NONE && r->mode == MODE_GUARD) {
        buffer_format(&c->text,
                      "retries %lld without a receipt source: after an unclear attempt nobody can be asked, "
                      "so %s; set receipt if the service can tell what became of a callId",
                      (long long)r->retries,
                      r->callee_idempotent
                          ? "samekey repeats on the promise of callee_idempotent alone"
                          : "such a call ends UNKNOWN and only attempts that never ran are repeated");
        told(c, SETTINGS_WARNING, "retries-without-receipt", SETTING_ID_receipt);
    }
}

/* What follows a call that did not end clearly. */
static void check_compensation(struct checker *c)
{
    const struct route_settings *r = c->route;
    struct slice method, path;
    if (r->reversal[0] && settings_request_split(slice_text(r->reversal), &method, &path)) {
        char text[TEMPLATE_TEXT_MAX];
        size_t len = path.len < sizeof text ? path.len : sizeof text - 1;
        memcpy(text, path.data, len);
        text[len] = '\0';
        check_template(c, SETTING_ID_reversal, text, TEMPLATE_FOR_URL);
    }
    if (r->receipt_fence[0] && r->receipt.kind != RECEIPT_HTTP) {
        buffer_text(&c->text,
                    "receipt_fence belongs to receipt = \"http ...\"; a samekey is fenced without it, and "
                    "without receipts there is nobody to fence: leave it out");
        told(c, SETTINGS_ERROR, "fence-without-receipts", SETTING_ID_receipt_fence);
    }
    if (strncmp(r->notify, "http", 4) == 0 && !c->settings->notify_secret_file[0]) {
        buffer_text(&c->text,
                    "a webhook must be signed: name a file with a secret in notify_secret_file at the top, "
                    "or use command /PATH");
        told(c, SETTINGS_ERROR, "notify-unsigned", SETTING_ID_notify);
    }
    if (r->on_failed == ON_FAILED_COMPENSATE && r->receipt.kind == RECEIPT_NONE) {
        buffer_text(&c->text,
                    "nobody can be asked what became of a FAILED call on a route without receipts: each goes "
                    "to a person; set receipt, or on_failed = nothing");
        told(c, SETTINGS_WARNING, "compensate-without-receipts", SETTING_ID_on_failed);
    }
}

size_t settings_check(const struct settings *s, settings_problem_fn *report, void *context)
{
    struct checker c = {.settings = s, .report = report, .context = context};
    check_top(&c);
    for (size_t i = 0; i < s->route_count; i++) {
        c.route = s->routes[i];
        check_identity(&c);
        check_time(&c);
        check_lives(&c);
        check_policy(&c);
        check_compensation(&c);
    }
    size_t errors = c.errors;
    buffer_fini(&c.text);
    return errors;
}
