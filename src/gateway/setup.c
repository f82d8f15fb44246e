/* SPDX-License-Identifier: MIT */
#include "gateway/setup.h"

#include "core/json_value.h"
#include "core/settings_shape.h"
#include "gateway/conf.h"
#include "gateway/tell_send.h"

#include <stdio.h>
#include <stdlib.h>

static bool compile(struct template *t, const char *text, enum template_use use, const char *where,
                    const char *setting, struct buffer *errors)
{
    struct template_error error;
    if (template_compile(t, slice_text(text), use, &error) == STATUS_OK)
        return true;
    buffer_format(errors, "%s: %s = \"%s\": at byte %zu: %s\n", where, setting, text, error.position,
                  error.message);
    return false;
}

static bool read_token(const char *path, struct buffer *token, const char *setting, struct buffer *errors)
{
    struct buffer why = {0};
    bool good = !*path || conf_token(path, token, &why) == STATUS_OK;
    if (!good)
        buffer_format(errors, "%s = \"%s\": %s\n", setting, path, buffer_cstring(&why));
    buffer_fini(&why);
    return good;
}

/* A number is compared in its normal form, as the answer's is: `0.0` means 0. */
static bool success_number(struct success_rule *rule)
{
    struct json_value number;
    struct buffer text = {0};
    bool good = true;
    if (json_find(rule->value, slice_of("", 0), &number) == STATUS_OK && number.kind == JSON_NUMBER) {
        good = json_value_normal(&number, &text) == STATUS_OK && text.len < sizeof rule->number;
        if (good) {
            memcpy(rule->number, text.data, text.len);
            rule->value = slice_of(rule->number, text.len);
        }
    }
    buffer_fini(&text);
    return good;
}

static bool compile_success(struct success_rule *rule, const char *text, const char *where,
                            struct buffer *errors)
{
    struct slice all = slice_trim(slice_text(text));
    if (!all.len)
        return true;
    const char *equals = memchr(all.data, '=', all.len);
    if (equals) {
        size_t left = (size_t)(equals - all.data);
        struct slice path = slice_trim(slice_of(all.data, left));
        struct slice value = slice_trim(slice_of(equals + 1, all.len - left - 1));
        if (value.len >= 2 && value.data[0] == '"' && value.data[value.len - 1] == '"')
            value = slice_of(value.data + 1, value.len - 2);
        if (path.len > 5 && memcmp(path.data, "json.", 5) == 0 && value.len) {
            rule->set = true;
            rule->path = slice_of(path.data + 5, path.len - 5);
            rule->value = value;
            return success_number(rule);
        }
    }
    buffer_format(errors, "%s: success_when = \"%s\": write it as json.PATH = VALUE, such as json.code = 0\n",
                  where, text);
    return false;
}

static void make_policy(struct lane *lane)
{
    const struct route_settings *s = lane->s;
    bool receipts = s->receipt.kind != RECEIPT_NONE;
    lane->policy = (struct call_policy){
        .retries = (int)s->retries,
        .spares = (int)lane->origin_count - 1,
        .attempt_timeout_ms = s->attempt_timeout_ms,
        .backoff = {s->backoff_base_ms, s->backoff_cap_ms, s->jitter_low, s->jitter_high},
        .retry_after_max_ms = s->retry_after_max_ms,
        .has_receipts = receipts,
        .runs_once =
            s->receipt.kind == RECEIPT_SAMEKEY || s->receipt.kind == RECEIPT_SQL || s->callee_idempotent,
        .can_fence = s->receipt.kind == RECEIPT_SAMEKEY || s->receipt.kind == RECEIPT_SQL ||
                     lane->fence_method.len > 0,
        .receipt_timeout_ms = s->receipt_timeout_ms,
        .receipt_queries = (int)s->receipt_queries,
        .resend_after_ms = s->resend_after_ms,
        .upstream_key_life_ms = s->upstream_key_life_ms,
        .ask_past_deadline = true,
    };
    lane->outcome_rules = (struct outcome_rules){
        .server_error_failed = s->server_error == SERVER_ERROR_FAILED,
        .accepted_success = s->accepted == ACCEPTED_SUCCESS,
        .redirect_303_success = s->redirect_303 == REDIRECT_303_SUCCESS,
    };
    lane->proof = s->receipt.kind == RECEIPT_NONE  ? PROOF_NONE
                  : s->receipt.kind == RECEIPT_SQL ? PROOF_TRANSACTION
                                                   : PROOF_BESIDE;
}

/* "METHOD /PATH": the path is a template, whose own text is compiled. */
static bool compile_request(struct template *t, struct slice *method, const char *text, const char *where,
                            const char *setting, struct buffer *errors)
{
    struct slice path;
    char copy[TEMPLATE_TEXT_MAX];
    if (!*text)
        return true;
    if (!settings_request_split(slice_text(text), method, &path) || path.len >= sizeof copy) {
        buffer_format(errors, "%s: %s = \"%s\": write METHOD /PATH\n", where, setting, text);
        return false;
    }
    memcpy(copy, path.data, path.len);
    copy[path.len] = '\0';
    return compile(t, copy, TEMPLATE_FOR_URL, where, setting, errors);
}

static bool compile_lane(struct lane *lane, const struct route_settings *s, size_t index,
                         struct buffer *errors)
{
    char where[SETTINGS_ROUTE_NAME_MAX + 16];
    snprintf(where, sizeof where, "route \"%s\"", s->name);
    lane->s = s;
    lane->index = lane->series = index;
    lane->call_id_in_header = strcmp(s->call_id, "header") == 0;
    lane->key_in_header = strcmp(s->key, "header") == 0;
    lane->has_business_ref = *s->business_ref != '\0';
    bool good = true;
    if (!lane->call_id_in_header)
        good &= compile(&lane->call_id, s->call_id, TEMPLATE_FOR_TEXT, where, "call_id", errors);
    if (!lane->key_in_header)
        good &= compile(&lane->key, s->key, TEMPLATE_FOR_KEY, where, "key", errors);
    if (lane->has_business_ref)
        good &=
            compile(&lane->business_ref, s->business_ref, TEMPLATE_FOR_TEXT, where, "business_ref", errors);
    if (s->receipt.kind == RECEIPT_HTTP)
        good &= compile(&lane->receipt_path, s->receipt.path, TEMPLATE_FOR_URL, where, "receipt", errors);
    good &= compile_request(&lane->fence_path, &lane->fence_method, s->receipt_fence, where, "receipt_fence",
                            errors);
    good &=
        compile_request(&lane->reversal_path, &lane->reversal_method, s->reversal, where, "reversal", errors);
    lane->keeps_requests = s->still_wanted || lane->reversal_method.len;
    struct slice ignore[SETTINGS_LIST_MAX];
    for (size_t i = 0; i < s->ignore.count; i++)
        ignore[i] = slice_text(s->ignore.items[i]);
    const char *why = NULL;
    struct slice place = {0};
    if (fingerprint_rules_compile(&lane->rules, slice_text(s->compare), ignore, s->ignore.count, &why,
                                  &place) != STATUS_OK) {
        buffer_format(errors, "%s: compare, ignore: \"%.*s\": %s\n", where, (int)place.len,
                      place.data ? place.data : "", why ? why : "not a path");
        good = false;
    }
    good &= compile_success(&lane->success, s->success_when, where, errors);
    lane->origin_count = s->upstream.count;
    lane->origins = calloc(lane->origin_count ? lane->origin_count : 1, sizeof *lane->origins);
    if (!lane->origins)
        return false;
    for (size_t i = 0; i < lane->origin_count; i++) {
        struct buffer error = {0};
        if (origin_parse(slice_text(s->upstream.items[i]), &lane->origins[i], &error) != STATUS_OK) {
            buffer_format(errors, "%s: upstream = \"%s\": %s\n", where, s->upstream.items[i],
                          buffer_cstring(&error));
            good = false;
        }
        buffer_fini(&error);
    }
    if (!good)
        return false;
    make_policy(lane);
    tell_ready(s->notify);
    if (s->receipt.kind == RECEIPT_SQL && ledger_new(&lane->ledger, s->receipt.path) != STATUS_OK)
        return false;
    return admission_new(&lane->admission, s, lane->origin_count, clock_monotonic_ms()) == STATUS_OK;
}

static void route_problem(void *context, const struct settings_problem *problem)
{
    struct buffer *errors = context;
    if (problem->route)
        buffer_format(errors, "route \"%s\": ", problem->route);
    buffer_format(errors, "%s\n", problem->message);
}

/* Frees all but the settings. */
static void setup_dismantle(struct setup *setup)
{
    size_t count = setup->settings->route_count;
    for (size_t i = 0; setup->lanes && i < count; i++) {
        struct lane *lane = &setup->lanes[i];
        template_fini(&lane->call_id);
        template_fini(&lane->key);
        template_fini(&lane->business_ref);
        template_fini(&lane->receipt_path);
        template_fini(&lane->fence_path);
        template_fini(&lane->reversal_path);
        fingerprint_rules_fini(&lane->rules);
        free(lane->origins);
        admission_free(lane->admission);
        ledger_free(lane->ledger);
    }
    free(setup->lanes);
    routes_free(setup->routes);
    template_fini(&setup->tenant);
    template_fini(&setup->credential);
    buffer_fini(&setup->admin_token);
    buffer_fini(&setup->admin_read_token);
    buffer_fini(&setup->report_token);
    buffer_fini(&setup->notify_secret);
    free(setup);
}

enum status setup_new(struct setup **out, struct settings *settings, struct buffer *errors)
{
    struct setup *setup = calloc(1, sizeof *setup);
    if (!setup)
        return STATUS_NO_MEMORY;
    atomic_init(&setup->holds, 1);
    setup->settings = settings;
    setup->has_tenant = *settings->tenant != '\0';
    setup->has_credential = *settings->credential != '\0';
    setup->lanes = calloc(settings->route_count ? settings->route_count : 1, sizeof *setup->lanes);
    bool good = setup->lanes != NULL;
    if (good && setup->has_tenant)
        good = compile(&setup->tenant, settings->tenant, TEMPLATE_FOR_TEXT, "top", "tenant", errors) && good;
    if (good && setup->has_credential)
        good = compile(&setup->credential, settings->credential, TEMPLATE_FOR_TEXT, "top", "credential",
                       errors) &&
               good;
    for (size_t i = 0; setup->lanes && i < settings->route_count; i++)
        good = compile_lane(&setup->lanes[i], settings->routes[i], i, errors) && good;
    good = routes_compile(&setup->routes, settings, route_problem, errors) == STATUS_OK && good;
    good = read_token(settings->admin_token_file, &setup->admin_token, "admin_token_file", errors) && good;
    good = read_token(settings->admin_read_token_file, &setup->admin_read_token, "admin_read_token_file",
                      errors) &&
           good;
    good = read_token(settings->report_token_file, &setup->report_token, "report_token_file", errors) && good;
    good =
        read_token(settings->notify_secret_file, &setup->notify_secret, "notify_secret_file", errors) && good;
    if (!good) {
        setup_dismantle(setup);
        return STATUS_INVALID;
    }
    *out = setup;
    return STATUS_OK;
}

struct setup *setup_hold(struct setup *setup)
{
    atomic_fetch_add_explicit(&setup->holds, 1, memory_order_relaxed);
    return setup;
}

void setup_release(struct setup *setup)
{
    if (!setup || atomic_fetch_sub_explicit(&setup->holds, 1, memory_order_acq_rel) != 1)
        return;
    struct settings *settings = setup->settings;
    setup_dismantle(setup);
    conf_free(settings);
}
