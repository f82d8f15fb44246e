/* SPDX-License-Identifier: MIT
 *
 * samekey calls: the caller's own journal. What is open, what one call knows, finishing what is open, and forgetting.
 */
#include "cli/telling.h"
#include "cli/command.h"

#include "base/buffer.h"
#include "base/civil.h"
#include "base/json_text.h"
#include "caller/journal.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct calls_command {
    const char *journal; /* "": the default */
    bool all, json, verbose, force, help;
    const char *action, *call_id;
};

static void print_help(FILE *to)
{
    fputs("usage: samekey calls [list|show ID|resume [ID]|forget ID] [FLAGS]\n\n"
          "The calls that `samekey call` wrote down before it sent them.\n\n"
          "  list          the calls without an ending (the default)\n"
          "  show ID       all that is known of one, as JSON\n"
          "  resume [ID]   finish one, or all that are open, each under its own callId, after asking its "
          "receipt\n"
          "  forget ID     remove an ended one; an open one only with --force, since it may have taken "
          "effect\n\n"
          "  --journal PATH       the journal ($XDG_STATE_HOME/samekey/journal.db)\n"
          "  --all                list ended ones too\n"
          "  --format text|json   of list and resume (text)\n"
          "  --force              see forget\n"
          "  -v, --verbose        say each step of a resumption on standard error\n\n"
          "A call that was taken up 5 times without an ending is MANUAL: `resume` alone leaves it to a "
          "person;\n"
          "`resume ID` still tries. exit: 0, 3, 4, 64, 74 as `samekey call`; 66 no such call.\n",
          to);
}

/* The journal's own word for where an entry stands. */
static const char *standing(const struct journal_entry *e)
{
    if (!journal_ended(e) && e->state != STATE_FAILED && e->rounds >= JOURNAL_ROUNDS_MAX)
        return "MANUAL";
    return state_text(e->state);
}

static struct journal *open_journal(const struct calls_command *c)
{
    struct buffer path = {0};
    struct journal *journal = NULL;
    const char *why = "no memory";
    if (*c->journal)
        buffer_text(&path, c->journal);
    else if (journal_default_path(&path) != STATUS_OK)
        why = "neither XDG_STATE_HOME nor HOME is set; name one with --journal";
    if (path.len == 0 || journal_open(&journal, buffer_cstring(&path), NULL, &why) != STATUS_OK)
        fprintf(stderr, "samekey calls: the journal %s: %s\n", buffer_cstring(&path), why);
    buffer_fini(&path);
    return journal;
}

/* ---- list --------------------------------------------------------------------------------------------------- */

struct listing {
    const struct calls_command *command;
    size_t count;
};

static bool list_entry(void *context, const struct journal_entry *e)
{
    struct listing *l = context;
    struct buffer line = {0}, time = {0};
    civil_print_rfc3339(e->created_ms, &time);
    if (l->command->json) {
        buffer_text(&line, l->count ? ",\n{\"call_id\":" : "{\"call_id\":");
        json_text(&line, e->call_id);
        buffer_text(&line, ",\"key\":");
        json_text_or_null(&line, e->has_key ? e->key : slice_of("", 0));
        buffer_text(&line, ",\"method\":");
        json_text(&line, e->method);
        buffer_text(&line, ",\"url\":");
        json_text(&line, e->url);
        buffer_format(&line, ",\"state\":\"%s\",\"final\":", standing(e));
        json_bool(&line, e->final);
        buffer_text(&line, ",\"reason\":");
        json_text_or_null(&line, slice_text(reason_text(e->reason)));
        buffer_format(&line, ",\"attempts\":%d,\"rounds\":%d,\"created_at\":", e->attempt_count, e->rounds);
        json_text(&line, buffer_view(&time));
        buffer_byte(&line, '}');
    } else {
        buffer_format(&line, "%s  %-10s %2d attempt%s %2d round%s  %.*s  %.*s %.*s", buffer_cstring(&time),
                      standing(e), e->attempt_count, e->attempt_count == 1 ? " " : "s", e->rounds,
                      e->rounds == 1 ? " " : "s", (int)e->call_id.len, e->call_id.data, (int)e->method.len,
                      e->method.data, (int)e->url.len, e->url.data);
        if (e->has_key)
            buffer_format(&line, "  key %.*s", (int)e->key.len, e->key.data);
        buffer_byte(&line, '\n');
    }
    fwrite(line.data, 1, line.len, stdout);
    l->count++;
    bool good = !line.failed && !time.failed;
    buffer_fini(&line);
    buffer_fini(&time);
    return good;
}

static int list(const struct calls_command *c)
{
    struct journal *journal = open_journal(c);
    struct listing l = {.command = c};
    if (!journal)
        return CALLER_JOURNAL;
    if (c->json)
        fputs("{\"calls\":[", stdout);
    enum status status = journal_each(journal, !c->all, list_entry, &l);
    if (c->json)
        fputs("]}\n", stdout);
    else if (l.count == 0)
        fputs(c->all ? "The journal is empty.\n" : "No call is open.\n", stderr);
    journal_close(journal);
    if (status != STATUS_OK)
        fputs("samekey calls: the journal cannot be read\n", stderr);
    return status == STATUS_OK ? CALLER_SUCCESS : CALLER_JOURNAL;
}

/* ---- show, forget ------------------------------------------------------------------------------------------- */

static int open_handle(const struct calls_command *c, struct samekey **handle, struct samekey_error *error)
{
    struct samekey_config config;
    samekey_config_init(&config);
    config.journal = c->journal;
    config.error = error;
    return samekey_open(handle, &config);
}

static int show(const struct calls_command *c)
{
    struct samekey *handle = NULL;
    struct samekey_result *result = NULL;
    struct samekey_error error = {0};
    int status = open_handle(c, &handle, &error);
    if (status == SAMEKEY_OK) {
        status = samekey_lookup(handle, c->call_id, &result);
        snprintf(error.text, sizeof error.text, "the journal has no call %.140s, or cannot be read",
                 c->call_id);
    }
    if (status == SAMEKEY_OK)
        fputs(samekey_result_json(result), stdout);
    int code = status == SAMEKEY_OK ? CALLER_SUCCESS : caller_refused(&error, status);
    samekey_result_free(result);
    samekey_close(handle);
    return code;
}

static int forget(const struct calls_command *c)
{
    struct journal *journal = open_journal(c);
    struct journal_entry entry;
    struct arena memory;
    int code = CALLER_SUCCESS;
    if (!journal)
        return CALLER_JOURNAL;
    arena_init(&memory, JOURNAL_ENTRY_BYTES_MAX);
    enum status status = journal_find_call(journal, slice_text(c->call_id), &memory, &entry);
    bool open =
        status == STATUS_OK && !journal_ended(&entry) && (entry.maybe_ran || entry.state == STATE_PROCESSING);
    if (open && !c->force) {
        fprintf(stderr,
                "samekey calls: %s is open and may have taken effect; forgetting it would let its key be "
                "sent under "
                "a new callId. Resume it, or say --force.\n",
                c->call_id);
        code = CALLER_UNKNOWN;
    } else if (status == STATUS_OK) {
        status = journal_forget(journal, slice_text(c->call_id));
    }
    if (status == STATUS_NOT_FOUND)
        fprintf(stderr, "samekey calls: the journal has no call %s\n", c->call_id);
    else if (status != STATUS_OK)
        fputs("samekey calls: the journal cannot be written\n", stderr);
    arena_fini(&memory);
    journal_close(journal);
    return status == STATUS_OK ? code : status == STATUS_NOT_FOUND ? CALLER_NO_CALL : CALLER_JOURNAL;
}

/* ---- resume ------------------------------------------------------------------------------------------------- */

struct resumption {
    struct samekey *handle;
    const struct calls_command *command;
    struct caller_talk talk;
    size_t count;
    int worst;
};

static int resume_one(struct resumption *r, const char *call_id)
{
    struct samekey_options options;
    struct samekey_result *result = NULL;
    struct samekey_error error = {0};
    samekey_options_init(&options);
    options.error = &error;
    options.progress = r->talk.verbose || r->talk.terminal ? caller_talk_progress : NULL;
    options.cancelled = caller_cancelled;
    options.context = &r->talk;
    int status = samekey_resume(r->handle, call_id, &options, &result);
    if (status != SAMEKEY_OK)
        return caller_refused(&error, status);
    bool manual = samekey_result_state(result) == SAMEKEY_UNKNOWN &&
                  samekey_result_rounds(result) >= JOURNAL_ROUNDS_MAX;
    int code;
    if (r->command->json) {
        code = caller_finish(result, CALLER_JSON, stdout, &r->talk);
    } else {
        FILE *nowhere = fopen("/dev/null", "w");
        code = caller_finish(result, CALLER_BODY, nowhere ? nowhere : stderr, &r->talk);
        if (nowhere)
            fclose(nowhere);
        printf("%s %s\n", call_id, manual ? "MANUAL" : samekey_state_text(samekey_result_state(result)));
    }
    if (manual)
        fprintf(
            stderr,
            "samekey calls: MANUAL: %s was taken up %d times without an ending; ask the service's people\n",
            call_id, samekey_result_rounds(result));
    samekey_result_free(result);
    return code;
}

static bool resume_entry(void *context, const struct journal_entry *e)
{
    struct resumption *r = context;
    char call_id[SAMEKEY_CALL_ID_SIZE];
    int code;
    snprintf(call_id, sizeof call_id, "%.*s", (int)e->call_id.len, e->call_id.data);
    r->count++;
    if (strcmp(standing(e), "MANUAL") == 0) {
        fprintf(
            stderr,
            "samekey calls: MANUAL: %s was taken up %d times without an ending; it is a person's work now\n",
            call_id, e->rounds);
        printf("%s MANUAL\n", call_id);
        code = CALLER_UNKNOWN;
    } else {
        code = resume_one(r, call_id);
    }
    if (code > r->worst)
        r->worst = code;
    return !caller_cancelled(NULL);
}

static int resume(const struct calls_command *c)
{
    struct samekey_error error = {0};
    struct resumption r = {.command = c};
    int status = open_handle(c, &r.handle, &error);
    if (status != SAMEKEY_OK)
        return caller_refused(&error, status);
    caller_talk_init(&r.talk, c->verbose);
    caller_catch_signals();
    if (c->call_id) {
        r.worst = resume_one(&r, c->call_id);
    } else {
        struct journal *journal = open_journal(c);
        enum status read = journal ? journal_each(journal, true, resume_entry, &r) : STATUS_IO;
        journal_close(journal);
        if (read != STATUS_OK)
            r.worst = CALLER_JOURNAL;
        else if (r.count == 0)
            fputs("No call is open.\n", stderr);
    }
    samekey_close(r.handle);
    return r.worst;
}

/* ---- arguments ---------------------------------------------------------------------------------------------- */

static bool usage(const char *sentence)
{
    fprintf(stderr, "samekey calls: %s; `samekey help calls` says how\n", sentence);
    return false;
}

static bool read_arguments(struct calls_command *c, int argc, char **argv)
{
    static const struct option table[] = {{"journal", required_argument, NULL, 'j'},
                                          {"all", no_argument, NULL, 'a'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"force", no_argument, NULL, 'F'},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    optind = 1;
    for (int flag; (flag = getopt_long(argc, argv, "vh", table, NULL)) != -1;) {
        if (flag == 'j')
            c->journal = optarg;
        else if (flag == 'a')
            c->all = true;
        else if (flag == 'F')
            c->force = true;
        else if (flag == 'v')
            c->verbose = true;
        else if (flag == 'h')
            c->help = true;
        else if (flag == 'f' && (strcmp(optarg, "json") == 0 || strcmp(optarg, "text") == 0))
            c->json = strcmp(optarg, "json") == 0;
        else
            return flag == 'f' ? usage("--format is text or json") : false;
    }
    int left = argc - optind;
    c->action = left > 0 ? argv[optind] : "list";
    c->call_id = left > 1 ? argv[optind + 1] : NULL;
    if (c->help)
        return true;
    bool needs = strcmp(c->action, "show") == 0 || strcmp(c->action, "forget") == 0;
    bool takes = needs || strcmp(c->action, "resume") == 0;
    if (!takes && strcmp(c->action, "list") != 0)
        return usage("it is list, show, resume or forget");
    if (left > (takes ? 2 : 1) || (needs && !c->call_id))
        return usage(needs ? "one callId is needed" : "there are too many arguments");
    return true;
}

int command_calls(int argc, char **argv)
{
    struct calls_command c = {.journal = ""};
    if (!read_arguments(&c, argc, argv))
        return CALLER_USAGE;
    if (c.help) {
        print_help(stdout);
        return CALLER_SUCCESS;
    }
    if (strcmp(c.action, "show") == 0)
        return show(&c);
    if (strcmp(c.action, "forget") == 0)
        return forget(&c);
    return strcmp(c.action, "resume") == 0 ? resume(&c) : list(&c);
}
