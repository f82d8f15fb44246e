/* SPDX-License-Identifier: MIT
 *
 * Celery: settings (`task_acks_late = True`, `app.conf.…`, dictionaries, CELERY_ names) and task decorators, read
 * from Python line by line. It is not a Python parser: it looks for the names of settings with a literal value
 * behind them, which is how these files are written, and believes nothing it cannot read.
 */
#include "review/reader.h"

#include <ctype.h>

/* Characters of one decorator. */
#define DECORATOR_BYTES_MAX 8192u

struct setting {
    struct slice value;
    unsigned line;
    bool known;
};

enum {
    S_MAX_RETRIES,
    S_AUTORETRY_FOR,
    S_RETRY_BACKOFF,
    S_RETRY_BACKOFF_MAX,
    S_RETRY_JITTER,
    S_RETRY_DELAY,
    S_COUNTDOWN,
    S_ACKS_LATE,
    S_REJECT_LOST,
    S_TIME_LIMIT,
    S_VISIBILITY,
    SETTINGS
};

static const struct {
    const char *name;
    int setting;
} names[] = {
    {"max_retries", S_MAX_RETRIES},
    {"autoretry_for", S_AUTORETRY_FOR},
    {"retry_backoff", S_RETRY_BACKOFF},
    {"retry_backoff_max", S_RETRY_BACKOFF_MAX},
    {"retry_jitter", S_RETRY_JITTER},
    {"default_retry_delay", S_RETRY_DELAY},
    {"countdown", S_COUNTDOWN},
    {"acks_late", S_ACKS_LATE},
    {"task_acks_late", S_ACKS_LATE},
    {"CELERY_ACKS_LATE", S_ACKS_LATE},
    {"CELERY_TASK_ACKS_LATE", S_ACKS_LATE},
    {"reject_on_worker_lost", S_REJECT_LOST},
    {"task_reject_on_worker_lost", S_REJECT_LOST},
    {"CELERY_TASK_REJECT_ON_WORKER_LOST", S_REJECT_LOST},
    {"time_limit", S_TIME_LIMIT},
    {"task_time_limit", S_TIME_LIMIT},
    {"CELERY_TASK_TIME_LIMIT", S_TIME_LIMIT},
    {"CELERYD_TASK_TIME_LIMIT", S_TIME_LIMIT},
    {"visibility_timeout", S_VISIBILITY},
};

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The literal after `=` or `:`: up to a comma or bracket outside brackets and quotes. */
static struct slice literal(struct slice rest)
{
    int depth = 0;
    char quote = 0;
    size_t i = 0;
    for (; i < rest.len; i++) {
        char c = rest.data[i];
        if (quote) {
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (strchr("([{", c)) {
            depth++;
        } else if (strchr(")]}", c)) {
            if (--depth < 0)
                break;
        } else if (depth == 0 && (c == ',' || c == '#')) {
            break;
        }
    }
    return slice_trim(slice_of(rest.data, i));
}

/* Takes the settings of a piece of text into `to`; `line` is where it begins. */
static void take(struct setting to[SETTINGS], struct slice text, unsigned line)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\n')
            line++;
        if (text.data[i] == '#') {
            while (i + 1 < text.len && text.data[i + 1] != '\n')
                i++;
            continue;
        }
        if (!name_char(text.data[i]))
            continue;
        size_t from = i;
        while (i < text.len && name_char(text.data[i]))
            i++;
        struct slice name = slice_of(text.data + from, i - from);
        size_t at = i;
        if (at < text.len && (text.data[at] == '"' || text.data[at] == '\''))
            at++;
        while (at < text.len && text.data[at] == ' ')
            at++;
        bool assigned = at < text.len && (text.data[at] == '=' || text.data[at] == ':') &&
                        !(at + 1 < text.len && text.data[at + 1] == '=');
        i = i ? i - 1 : i;
        if (!assigned)
            continue;
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (slice_is(name, names[n].name))
                to[names[n].setting] =
                    (struct setting){literal(slice_of(text.data + at + 1, text.len - at - 1)), line, true};
    }
}

static bool truth(struct setting s)
{
    return s.known && slice_is(s.value, "True");
}

static struct fact seconds(struct setting x, const struct source *s)
{
    int64_t ms;
    struct fact none = {0};
    return x.known && span_parse(&ms, x.value, 1000) ? fact_at(ms, s, x.line) : none;
}

static bool mentions(struct slice text, const char *word)
{
    return text.len && memmem(text.data, text.len, word, strlen(word)) != NULL;
}

static void judge_exceptions(struct review *r, struct source *s, struct review_policy *p, struct setting list)
{
    bool all = mentions(list.value, "(Exception") || mentions(list.value, "[Exception") ||
               mentions(list.value, " Exception") || mentions(list.value, "BaseException");
    bool definite = all || mentions(list.value, "ValueError") || mentions(list.value, "RequestException") ||
                    mentions(list.value, "HTTPError");
    bool connect_only = mentions(list.value, "ConnectTimeout") ||
                        mentions(list.value, "ConnectionRefusedError") ||
                        mentions(list.value, "NewConnectionError");
    bool silence = mentions(list.value, "ReadTimeout") || mentions(list.value, "ConnectionError") ||
                   mentions(list.value, "OSError") || mentions(list.value, "IOError") ||
                   (mentions(list.value, "Timeout") && !connect_only);
    p->repeats_on = pool_copy(&r->pool, list.value);
    if (all || silence || mentions(list.value, "RequestException") || mentions(list.value, "HTTPError"))
        p->repeats_unknown = fact_at(1, s, list.line);
    if (definite && policy_may_mutate(p))
        review_find(r, RULE_DEFINITE_REPEATED, s, list.line, p->name, "repeats after %s", p->repeats_on);
}

static void judge_waits(struct source *s, struct review_policy *p, const struct setting x[SETTINGS])
{
    bool backoff = x[S_RETRY_BACKOFF].known && !slice_is(x[S_RETRY_BACKOFF].value, "False");
    if (backoff) {
        struct fact base = seconds(x[S_RETRY_BACKOFF], s), cap = seconds(x[S_RETRY_BACKOFF_MAX], s);
        unsigned line = x[S_RETRY_BACKOFF].line;
        bool jitter = !x[S_RETRY_JITTER].known || !slice_is(x[S_RETRY_JITTER].value, "False");
        p->wait_base_ms = base.known ? base : fact_at(1000, s, line);
        p->wait_cap_ms = cap.known ? cap : fact_at(600000, s, line);
        p->wait_growth_percent = fact_at(200, s, line);
        p->jitter_low_percent = fact_at(jitter ? 0 : 100, s, jitter ? line : x[S_RETRY_JITTER].line);
        p->jitter_high_percent = fact_at(100, s, line);
        return;
    }
    struct fact wait = seconds(x[x[S_COUNTDOWN].known ? S_COUNTDOWN : S_RETRY_DELAY], s);
    if (!wait.known && (x[S_COUNTDOWN].known || x[S_RETRY_DELAY].known))
        return; /* computed; this reader does not run Python */
    p->wait_base_ms = wait.known ? wait : fact_at(180000, s, p->line); /* Celery's default_retry_delay */
    p->jitter_low_percent = fact_at(100, s, wait.known ? wait.line : p->attempts.line);
    p->jitter_high_percent = fact_at(100, s, p->line);
}

static void judge_lost(struct review *r, struct source *s, const struct setting x[SETTINGS], const char *name)
{
    if (truth(x[S_ACKS_LATE]) && truth(x[S_REJECT_LOST]))
        review_find(r, RULE_ENDLESS_RETRIES, s, x[S_REJECT_LOST].line, name,
                    "a task that kills its worker is delivered again without end");
}

static void task_read(struct review *r, struct source *s, const struct setting x[SETTINGS], unsigned line,
                      const char *name)
{
    judge_lost(r, s, x, name);
    if (!x[S_AUTORETRY_FOR].known && !x[S_MAX_RETRIES].known)
        return;
    struct review_policy *p = review_policy_new(r, FORMAT_CELERY, s, line, name);
    int64_t retries;
    if (!p)
        return;
    if (reader_reads_only(slice_text(name + strlen("task "))))
        p->mutating = fact_at(0, s, line);
    struct setting max = x[S_MAX_RETRIES];
    if (max.known && slice_is(max.value, "None"))
        p->attempts = fact_at(ATTEMPTS_ENDLESS, s, max.line);
    else if (max.known && number_parse(&retries, max.value) && retries >= 0)
        p->attempts = fact_at(span_add(retries, 1), s, max.line);
    else if (!max.known)
        p->attempts = fact_at(4, s, x[S_AUTORETRY_FOR].line); /* Celery's default is 3 retries */
    p->attempt_timeout_ms = seconds(x[S_TIME_LIMIT], s);
    if (x[S_AUTORETRY_FOR].known) {
        judge_exceptions(r, s, p, x[S_AUTORETRY_FOR]);
        judge_waits(s, p, x);
    }
}

static bool decorator(struct slice line)
{
    static const char *const starts[] = {"@app.task(", "@shared_task(", "@celery.task(", "@task(",
                                         "@celery_app.task("};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t n = strlen(starts[i]);
        if (line.len >= n && memcmp(line.data, starts[i], n) == 0)
            return true;
    }
    return false;
}

/* From the decorator's first line to its closing bracket; *end is the last line. */
static struct slice decorator_text(const struct source *s, unsigned line, unsigned *end)
{
    size_t from = s->starts[line - 1], i = from;
    int depth = 0;
    char quote = 0;
    for (; i < s->len && i - from < DECORATOR_BYTES_MAX; i++) {
        char c = s->text[i];
        if (quote)
            quote = c == quote || c == '\n' ? 0 : quote;
        else if (c == '"' || c == '\'')
            quote = c;
        else if (strchr("([{", c))
            depth++;
        else if (strchr(")]}", c) && --depth == 0)
            break;
    }
    *end = source_line_at(s, i < s->len ? i : s->len - 1);
    return slice_of(s->text + from, i - from);
}

static const char *task_name(struct review *r, const struct source *s, unsigned line)
{
    for (unsigned i = line + 1; i <= s->lines && i < line + 10; i++) {
        struct slice text = slice_trim(source_line(s, i));
        const char *def = text.len ? memmem(text.data, text.len, "def ", 4) : NULL;
        if (!def)
            continue;
        size_t n = 0, left = text.len - (size_t)(def + 4 - text.data);
        while (n < left && name_char(def[4 + n]))
            n++;
        return pool_format(&r->pool, "task %.*s", (int)n, def + 4);
    }
    return "task ?";
}

bool celery_read(struct review *r, struct source *s)
{
    struct setting global[SETTINGS] = {{{0}, 0, false}};
    for (unsigned i = 1; i <= s->lines; i++) {
        struct slice line = slice_trim(source_line(s, i));
        if (decorator(line)) {
            struct setting own[SETTINGS] = {{{0}, 0, false}};
            unsigned end;
            struct slice text = decorator_text(s, i, &end);
            take(own, text, i);
            task_read(r, s, own, i, task_name(r, s, end));
            i = end;
            continue;
        }
        struct setting here[SETTINGS] = {{{0}, 0, false}};
        take(here, line, i);
        bool call = mentions(line, ".retry(");
        if (call && here[S_MAX_RETRIES].known && slice_is(here[S_MAX_RETRIES].value, "None"))
            review_find(r, RULE_ENDLESS_RETRIES, s, i, "self.retry", "max_retries=None");
        static const int globals[] = {S_ACKS_LATE, S_REJECT_LOST, S_TIME_LIMIT, S_VISIBILITY};
        for (size_t k = 0; k < sizeof globals / sizeof *globals; k++)
            if (here[globals[k]].known)
                global[globals[k]] = here[globals[k]];
    }
    judge_lost(r, s, global, "celery settings");
    struct fact lease = seconds(global[S_VISIBILITY], s);
    if (lease.known) {
        struct review_policy *p = review_policy_new(r, FORMAT_CELERY, s, lease.line, "celery settings");
        if (p) {
            p->redelivery_ms = lease;
            /* Only a late acknowledgement leaves the message with the broker while the task runs. */
            if (truth(global[S_ACKS_LATE])) {
                p->lease_ms = lease;
                p->attempt_timeout_ms = seconds(global[S_TIME_LIMIT], s);
            }
        }
    }
    return true;
}
