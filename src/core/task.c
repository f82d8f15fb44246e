/* SPDX-License-Identifier: MIT */
#include "core/task.h"

static const struct {
    enum task_status status;
    const char *text, *sentence;
} statuses[] = {
#define TASK(name, number, text, open, sentence) {TASK_##name, text, sentence},
#include "core/task.def"
#undef TASK
};
#define STATUSES (sizeof statuses / sizeof *statuses)

const char *task_status_text(enum task_status status)
{
    for (size_t i = 0; i < STATUSES; i++)
        if (statuses[i].status == status)
            return statuses[i].text;
    return "";
}

const char *task_status_sentence(enum task_status status)
{
    for (size_t i = 0; i < STATUSES; i++)
        if (statuses[i].status == status)
            return statuses[i].sentence;
    return "";
}

bool task_status_parse(struct slice text, enum task_status *out)
{
    for (size_t i = 0; i < STATUSES; i++)
        if (slice_is(text, statuses[i].text)) {
            *out = statuses[i].status;
            return true;
        }
    return false;
}

const char *task_cause_text(enum task_cause cause)
{
    switch (cause) {
    case TASK_CAUSE_UNKNOWN:
        return "unknown";
    case TASK_CAUSE_CONTRADICTED:
        return "contradicted";
    case TASK_CAUSE_FAILED:
        return "failed";
    case TASK_CAUSE_REVERSAL:
        return "reversal";
    }
    return "";
}

const char *task_tell_text(enum task_tell tell)
{
    switch (tell) {
    case TASK_TELL_NONE:
        return "none";
    case TASK_TELL_OWED:
        return "owed";
    case TASK_TELL_DONE:
        return "done";
    case TASK_TELL_GIVEN_UP:
        return "given_up";
    }
    return "";
}
