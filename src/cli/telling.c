/* SPDX-License-Identifier: MIT */
#include "cli/telling.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

void caller_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int caller_cancelled(void *context)
{
    (void)context;
    return caught != 0;
}

void caller_talk_init(struct caller_talk *talk, bool verbose)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    bool terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    *talk = (struct caller_talk){
        .verbose = verbose,
        .terminal = terminal && !verbose,
        .colour = terminal && !(no_colour && *no_colour),
    };
}

static void seconds(int64_t ms, char out[32])
{
    snprintf(out, 32, "%lld.%03lld s", (long long)(ms / 1000), (long long)(ms % 1000));
}

static void describe(const struct samekey_progress *p, char *out, size_t size)
{
    char wait[32];
    seconds(p->wait_ms < 0 ? 0 : p->wait_ms, wait);
    switch (p->what) {
    case SAMEKEY_PROGRESS_RESUMED:
        snprintf(out, size, "resumed   %s: %s", p->call_id, p->text);
        break;
    case SAMEKEY_PROGRESS_JOINED:
        snprintf(out, size, "waiting   %s", p->text);
        break;
    case SAMEKEY_PROGRESS_SENDING:
        snprintf(out, size, "send      attempt %d of %s", p->attempt, p->call_id);
        break;
    case SAMEKEY_PROGRESS_ATTEMPT_ENDED:
        snprintf(out, size, "attempt   %d %s: %s", p->attempt, samekey_outcome_text(p->outcome), p->text);
        break;
    case SAMEKEY_PROGRESS_REFUSED:
        snprintf(out, size, "not sent  %s", p->text);
        break;
    case SAMEKEY_PROGRESS_ASKING:
        snprintf(out, size, "ask       the receipt of %s", p->call_id);
        break;
    case SAMEKEY_PROGRESS_ANSWERED:
        snprintf(out, size, "receipt   %s%s%s", samekey_answer_text(p->answer), *p->text ? ": " : "",
                 p->text);
        break;
    case SAMEKEY_PROGRESS_WAITING:
        snprintf(out, size, "wait      %s", wait);
        break;
    case SAMEKEY_PROGRESS_FENCING:
        snprintf(out, size, "fence     %s, so that it can never run", p->call_id);
        break;
    default:
        out[0] = 0;
    }
}

void caller_talk_progress(void *context, const struct samekey_progress *p)
{
    struct caller_talk *talk = context;
    char line[512];
    describe(p, line, sizeof line);
    if (talk->verbose && line[0])
        fprintf(stderr, "[%6lld] %s\n", (long long)p->elapsed_ms, line);
    if (talk->terminal) {
        fprintf(stderr, "\r\033[K%.100s", line);
        fflush(stderr);
        talk->line_open = line[0] != 0;
    }
}

static void close_line(struct caller_talk *talk)
{
    if (talk->line_open)
        fputs("\r\033[K", stderr);
    talk->line_open = false;
}

int caller_refused(const struct samekey_error *error, int status)
{
    fprintf(stderr, "samekey: %s\n", error->text[0] ? error->text : samekey_status_text(status));
    switch (status) {
    case SAMEKEY_INVALID:
    case SAMEKEY_KEY_REUSED:
        return CALLER_USAGE;
    case SAMEKEY_NO_MEMORY:
        return CALLER_MEMORY;
    case SAMEKEY_JOURNAL:
        return CALLER_JOURNAL;
    case SAMEKEY_NOT_FOUND:
        return CALLER_NO_CALL;
    default:
        return CALLER_INSIDE;
    }
}

static int exit_code(const struct samekey_result *r)
{
    int state = samekey_result_state(r);
    return state == SAMEKEY_SUCCESS  ? CALLER_SUCCESS
           : state == SAMEKEY_FAILED ? CALLER_FAILED
                                     : CALLER_UNKNOWN;
}

static void say_ending(const struct samekey_result *r, const struct caller_talk *talk)
{
    static const char *const colours[] = {[SAMEKEY_PROCESSING] = "33",
                                          [SAMEKEY_SUCCESS] = "32",
                                          [SAMEKEY_FAILED] = "31",
                                          [SAMEKEY_UNKNOWN] = "33"};
    int state = samekey_result_state(r);
    if (samekey_result_resumed(r))
        fprintf(
            stderr,
            samekey_result_resumed(r) == 1
                ? "samekey: resumed call %s, made earlier\n"
                : "samekey: resumed call %s, made earlier: this is its ending, and nothing was sent now\n",
            samekey_result_call_id(r));
    if (state != SAMEKEY_SUCCESS || talk->verbose || samekey_result_resumed(r))
        fprintf(stderr, talk->colour ? "samekey: \033[%3$sm%1$s\033[0m: %2$s\n" : "samekey: %1$s: %2$s\n",
                samekey_state_text(state), samekey_result_sentence(r), colours[state]);
    if (samekey_result_journal_failed(r))
        fputs("samekey: the ending could not be written to the journal; the same command will ask the "
              "receipt again\n",
              stderr);
    if (!samekey_result_body_kept(r))
        fputs("samekey: the answer is complete, but too long to have been kept\n", stderr);
}

int caller_finish(const struct samekey_result *r, enum caller_format format, FILE *to,
                  struct caller_talk *talk)
{
    size_t len;
    const void *body = samekey_result_body(r, &len);
    close_line(talk);
    say_ending(r, talk);
    if (format == CALLER_JSON)
        fputs(samekey_result_json(r), to);
    else if (len)
        fwrite(body, 1, len, to);
    if (fflush(to) == 0 && !ferror(to))
        return exit_code(r);
    fprintf(stderr, "samekey: the call ended %s, and its result cannot be written\n",
            samekey_state_text(samekey_result_state(r)));
    clearerr(to); /* or main would give the code that says "nothing was sent" */
    return CALLER_OUTPUT;
}
