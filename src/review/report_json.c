/* SPDX-License-Identifier: MIT */
#include "review/report.h"

#include <jansson.h>
#include <stdlib.h>

/* A text of any bytes as a JSON string; NULL (JSON null) for NULL. */
static json_t *text_json(const char *text)
{
    if (!text)
        return json_null();
    struct buffer clean = {0};
    review_report_clean(&clean, slice_text(text), 8192);
    json_t *json = clean.failed ? NULL : json_stringn(clean.data ? clean.data : "", clean.len);
    buffer_fini(&clean);
    return json;
}

static json_t *line_json(const struct source *s, unsigned line)
{
    struct buffer clean = {0};
    review_report_clean(&clean, slice_trim(source_line(s, line)), 400);
    json_t *json = clean.failed ? NULL : json_stringn(clean.data ? clean.data : "", clean.len);
    buffer_fini(&clean);
    return json;
}

static json_t *number_json(bool known, int64_t value)
{
    if (!known)
        return json_null();
    return value == SPAN_FOREVER ? json_string("forever") : json_integer(value);
}

/* Takes json whole, also when it fails. */
static enum status dump(struct buffer *out, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_ENSURE_ASCII) : NULL;
    if (text) {
        buffer_text(out, text);
        buffer_byte(out, '\n');
    }
    free(text);
    json_decref(json);
    return text && !out->failed ? STATUS_OK : STATUS_NO_MEMORY;
}

static json_t *finding_json(const struct finding *f)
{
    const struct rule *rule = rule_get(f->rule);
    return json_pack("{s:s, s:s, s:s, s:i, s:o, s:I, s:o, s:o, s:o, s:s, s:s, s:o}", "rule", rule->id, "slug",
                     rule->slug, "level", rule_level_name(rule->level), "question", rule->question, "file",
                     text_json(f->source->path), "line", (json_int_t)f->line, "place", text_json(f->place),
                     "detail", text_json(f->detail), "text", line_json(f->source, f->line), "danger",
                     rule->danger, "remedy", rule->remedy, "silenced", text_json(f->silenced));
}

static json_t *policy_json(const struct review_policy *p)
{
    int64_t worst = 0;
    bool known = policy_worst_case(p, &worst);
    struct buffer figures = {0};
    policy_figures(&figures, p);
    json_t *json =
        json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "format", p->format, "name",
                  text_json(p->name), "file", text_json(p->source->path), "line", (json_int_t)p->line,
                  "attempts", number_json(p->attempts.known, p->attempts.value), "worst_case_ms",
                  number_json(known, worst), "budget_ms", number_json(p->budget_ms.known, p->budget_ms.value),
                  "key_life_ms", number_json(p->key_life_ms.known, p->key_life_ms.value), "figures",
                  text_json(buffer_cstring(&figures)));
    buffer_fini(&figures);
    return json;
}

enum status review_report_json(struct buffer *out, const struct review *r)
{
    json_t *findings = json_array(), *policies = json_array(), *problems = json_array(),
           *notes = json_array();
    bool ok = true;
    for (size_t i = 0; i < r->finding_count; i++)
        ok = json_array_append_new(findings, finding_json(&r->findings[i])) == 0 && ok;
    for (size_t i = 0; i < r->policy_count; i++)
        ok = json_array_append_new(policies, policy_json(r->policies[i])) == 0 && ok;
    for (size_t i = 0; i < r->problem_count; i++) {
        const struct review_problem *p = &r->problems[i];
        json_t *problem = json_pack("{s:o, s:o, s:o}", "file", text_json(p->path), "line",
                                    number_json(p->line > 0, p->line), "what", text_json(p->what));
        ok = json_array_append_new(problems, problem) == 0 && ok;
    }
    for (size_t i = 0; i < r->note_count; i++)
        ok = json_array_append_new(notes, text_json(r->notes[i])) == 0 && ok;
    json_t *all = json_pack("{s:o, s:o, s:o, s:o, s:I}", "findings", findings, "policies", policies,
                            "problems", problems, "notes", notes, "dropped", (json_int_t)r->findings_dropped);
    if (!ok) {
        json_decref(all);
        return STATUS_NO_MEMORY;
    }
    return dump(out, all);
}

/* ---- SARIF ---- */

/* A path as a URI reference (RFC 3986 section 2): everything but the unreserved characters and "/" is escaped. */
static json_t *uri_json(const char *path)
{
    struct buffer uri = {0};
    if (path[0] == '/')
        buffer_text(&uri, "file://");
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     *p == '-' || *p == '.' || *p == '_' || *p == '~' || *p == '/';
        if (plain)
            buffer_byte(&uri, (char)*p);
        else
            buffer_format(&uri, "%%%02X", *p);
    }
    json_t *json = json_string(buffer_cstring(&uri));
    buffer_fini(&uri);
    return json;
}

static json_t *sarif_rule(enum rule_id id)
{
    const struct rule *rule = rule_get(id);
    struct buffer help = {0};
    rule_explain(&help, id);
    json_t *json =
        json_pack("{s:s, s:s, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:[s]}}", "id", rule->id, "name",
                  rule->slug, "shortDescription", "text", rule->title, "fullDescription", "text",
                  rule->danger, "help", "text", buffer_cstring(&help), "defaultConfiguration", "level",
                  rule_level_name(rule->level), "properties", "tags", rule_question(rule->question));
    buffer_fini(&help);
    return json;
}

static json_t *sarif_result(const struct finding *f)
{
    const struct rule *rule = rule_get(f->rule);
    struct buffer message = {0};
    buffer_format(&message, "%s.", rule->title);
    if (f->detail[0]) {
        buffer_text(&message, " Seen: ");
        review_report_clean(&message, slice_text(f->detail), 400);
        buffer_byte(&message, '.');
    }
    buffer_format(&message, " %s %s", rule->danger, rule->remedy);
    json_t *json = json_pack("{s:s, s:i, s:s, s:{s:s}, s:[{s:{s:{s:o}, s:{s:I, s:{s:o}}}}]}", "ruleId",
                             rule->id, "ruleIndex", (int)f->rule, "level", rule_level_name(rule->level),
                             "message", "text", buffer_cstring(&message), "locations", "physicalLocation",
                             "artifactLocation", "uri", uri_json(f->source->path), "region", "startLine",
                             (json_int_t)f->line, "snippet", "text", line_json(f->source, f->line));
    buffer_fini(&message);
    if (json && f->silenced)
        json_object_set_new(
            json, "suppressions",
            json_pack("[{s:s, s:o}]", "kind", "inSource", "justification", text_json(f->silenced)));
    return json;
}

static json_t *sarif_notification(const struct review_problem *p)
{
    json_t *json = json_pack("{s:s, s:{s:o}, s:[{s:{s:{s:o}}}]}", "level", "error", "message", "text",
                             text_json(p->what), "locations", "physicalLocation", "artifactLocation", "uri",
                             uri_json(p->path));
    if (json && p->line) {
        json_t *place =
            json_object_get(json_array_get(json_object_get(json, "locations"), 0), "physicalLocation");
        json_object_set_new(place, "region", json_pack("{s:I}", "startLine", (json_int_t)p->line));
    }
    return json;
}

enum status review_report_sarif(struct buffer *out, const struct review *r)
{
    json_t *rules = json_array(), *results = json_array(), *notifications = json_array();
    bool ok = true;
    for (int i = 0; i < RULE_COUNT; i++)
        ok = json_array_append_new(rules, sarif_rule((enum rule_id)i)) == 0 && ok;
    for (size_t i = 0; i < r->finding_count; i++)
        ok = json_array_append_new(results, sarif_result(&r->findings[i])) == 0 && ok;
    for (size_t i = 0; i < r->problem_count; i++)
        ok = json_array_append_new(notifications, sarif_notification(&r->problems[i])) == 0 && ok;
    json_t *all = json_pack("{s:s, s:s, s:[{s:{s:{s:s, s:s, s:o}}, s:[{s:b, s:o}], s:o}]}", "$schema",
                            "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs",
                            "tool", "driver", "name", "samekey check", "version", SAMEKEY_VERSION, "rules",
                            rules, "invocations", "executionSuccessful", r->problem_count == 0,
                            "toolExecutionNotifications", notifications, "results", results);
    if (!ok) {
        json_decref(all);
        return STATUS_NO_MEMORY;
    }
    return dump(out, all);
}
