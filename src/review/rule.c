/* SPDX-License-Identifier: MIT */
#include "review/rule.h"

#include <assert.h>

#define ERROR   RULE_LEVEL_ERROR
#define WARNING RULE_LEVEL_WARNING
static const struct rule rules[RULE_COUNT] = {
#define RULE(name, id, slug, level, question, title, danger, remedy, wrong, right)                           \
    [RULE_##name] = {id, slug, level, question, title, danger, remedy, wrong, right},
#include "review/rules.def"
};
#undef ERROR
#undef WARNING

static const struct {
    const char *name, *reads;
} readers[] = {
#define READER(constant, name, reads) {name, reads},
#include "review/readers.def"
};

const struct rule *rule_get(enum rule_id id)
{
    assert(id < RULE_COUNT);
    return &rules[id];
}

enum rule_id rule_find(struct slice name)
{
    for (int i = 0; i < RULE_COUNT; i++)
        if (slice_is_nocase(name, rules[i].id) || slice_is_nocase(name, rules[i].slug))
            return (enum rule_id)i;
    return RULE_COUNT;
}

const char *rule_level_name(enum rule_level level)
{
    return level == RULE_LEVEL_ERROR ? "error" : "warning";
}

const char *rule_question(int question)
{
    switch (question) {
    case 1:
        return "Is each failure classed as definite, success or unknown?";
    case 2:
        return "Is there a key, and is it the same over all retries?";
    case 3:
        return "Do attempts, timeouts, waits and queries fit the caller's budget?";
    case 4:
        return "Is there jitter, or do many clients come back in the same second?";
    case 5:
        return "How long does a key live, and how does the storage grow and shrink?";
    case 6:
        return "Does the caller's error say whether the ending is definite or unknown?";
    case 7:
        return "Do the layers of one call path fit together?";
    case 8:
        return "Does the gateway accept its configuration?";
    default:
        return "Do the comments that silence findings say why?";
    }
}

void rule_explain(struct buffer *out, enum rule_id id)
{
    const struct rule *r = rule_get(id);
    buffer_format(out, "%s %s (%s)\n%s\n\n", r->id, r->slug, rule_level_name(r->level), r->title);
    buffer_format(out, "Question: %s\nDanger:   %s\nRemedy:   %s\n\n", rule_question(r->question), r->danger,
                  r->remedy);
    buffer_format(out, "Wrong:    %s\nRight:    %s\n\n", r->wrong, r->right);
    buffer_format(out, "Silence:  # samekey-ignore %s: your reason\n", r->id);
}

void rule_page(struct buffer *out)
{
    buffer_text(out, "# samekey check\n\n"
                     "<!-- Made by `samekey check --page` from src/review/rules.def and readers.def. "
                     "Edit those. -->\n\n"
                     "Most duplicates are configured, not coded. `samekey check FILE...` reads the files "
                     "people already have and\nasks them the questions to ask before going live.\n\n");
    buffer_text(out,
                "```\nsamekey check [--as FORMAT] [--format text|json|sarif] FILE...\n"
                "samekey check --path client.yaml,gateway.conf,nginx.conf   # outermost layer first\n"
                "samekey check --explain RULE|all\nsamekey check --page\n```\n\n"
                "Exit codes: 0 nothing found, 1 findings, 64 usage, 66 a file could not be read or is of no "
                "known kind.\nA file that cannot be read is never passed over in silence.\n\n"
                "A layer of `--path` may be written `FILE#NAME`: only the policies whose name contains NAME "
                "are then\nread as that layer.\n\n"
                "## What can be read\n\nThe kind is told by content; `--as` overrides.\n\n"
                "| `--as` | reads |\n|---|---|\n");
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        buffer_format(out, "| `%s` | %s |\n", readers[i].name, readers[i].reads);
    buffer_text(out, "\n## Silencing a finding\n\n"
                     "In a comment on the line, or alone on the line before it, with a reason:\n\n"
                     "```\nretry-on all-retryable-errors  # samekey-ignore SK101: reads only, see runbook\n"
                     "# samekey-ignore-file SK401: one client only\n```\n\n"
                     "JSON has no comments: a member `\"$comment\": \"samekey-ignore SK403: reason\"` on the "
                     "line before does the same.\nWithout a reason the finding stays, and SK901 is added.\n");
    int question = 0;
    for (int i = 0; i < RULE_COUNT; i++) {
        const struct rule *r = &rules[i];
        if (r->question != question) {
            question = r->question;
            if (question <= 6)
                buffer_format(out, "\n## Question %d: %s\n", question, rule_question(question));
            else
                buffer_format(out, "\n## %s\n", rule_question(question));
        }
        buffer_format(out, "\n### %s %s\n\n*%s.* %s.\n\n%s\n\n**Remedy.** %s\n\n", r->id, r->slug,
                      r->level == RULE_LEVEL_ERROR ? "Error" : "Warning", r->title, r->danger, r->remedy);
        buffer_format(out, "```\nwrong:  %s\nright:  %s\n```\n", r->wrong, r->right);
    }
}
