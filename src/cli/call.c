/* SPDX-License-Identifier: MIT
 *
 * samekey call: one safe call from a shell, a cron job or another language. The library does all of it; here are the
 * flags, as one table from which parsing and help are made, and the talk on stderr.
 */
#include "cli/telling.h"
#include "cli/command.h"

#include "base/buffer.h"
#include "base/duration.h"
#include "core/backoff.h"
#include "core/template.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADERS_MAX = 100 };
#define DATA_BYTES_MAX ((size_t)64 << 20) /* of a request body */

enum flag {
    FLAG_KEY = 256,
    FLAG_CALL_ID,
    FLAG_PREFIX,
    FLAG_NODE,
    FLAG_BUSINESS_REF,
    FLAG_TRACEPARENT,
    FLAG_DATA,
    FLAG_ATTEMPT_TIMEOUT,
    FLAG_DEADLINE,
    FLAG_RETRIES,
    FLAG_BACKOFF_BASE,
    FLAG_BACKOFF_CAP,
    FLAG_JITTER,
    FLAG_RECEIPT,
    FLAG_RECEIPT_HEADER,
    FLAG_RECEIPT_MAP,
    FLAG_RECEIPT_TIMEOUT,
    FLAG_RECEIPT_QUERIES,
    FLAG_RESEND_AFTER,
    FLAG_CALLEE_IDEMPOTENT,
    FLAG_SERVER_ERROR,
    FLAG_ACCEPTED,
    FLAG_EXPECT_CONTINUE,
    FLAG_HTTP2,
    FLAG_CA_FILE,
    FLAG_JOURNAL,
    FLAG_NO_JOURNAL,
    FLAG_NO_JOURNAL_BODY,
    FLAG_FORMAT,
};

static const struct flag_row {
    int flag;
    const char *name;
    const char *argument; /* NULL: none */
    const char *sentence;
} FLAGS[] = {
    {FLAG_KEY, "key", "KEY",
     "names the operation, which takes effect once; {date} {hour} {minute} are filled in"},
    {FLAG_CALL_ID, "call-id", "ID", "this callId instead of a new one"},
    {FLAG_PREFIX, "prefix", "P", "what new callIds begin with (call)"},
    {FLAG_NODE, "node", "NODE", "what new callIds end with (the host's name)"},
    {FLAG_BUSINESS_REF, "business-ref", "REF", "the order or payment it is about, as X-Business-Ref"},
    {FLAG_TRACEPARENT, "traceparent", "T", "the trace it belongs to ($TRACEPARENT)"},
    {FLAG_DATA, "data", "X|@FILE|-", "the request's body: a text, a file, or standard input"},
    {'H', "header", "LINE", "a header line, 'Name: value'; may be given again"},
    {FLAG_ATTEMPT_TIMEOUT, "attempt-timeout", "TIME", "for one attempt (3s)"},
    {FLAG_DEADLINE, "deadline", "TIME", "over all attempts, waits and queries (30s)"},
    {FLAG_RETRIES, "retries", "N", "attempts after the first (3)"},
    {FLAG_BACKOFF_BASE, "backoff-base", "TIME", "the first wait (500ms); it doubles"},
    {FLAG_BACKOFF_CAP, "backoff-cap", "TIME", "the longest wait (4s)"},
    {FLAG_JITTER, "jitter", "LO:HI", "what a wait is multiplied by, at random (0.5:1)"},
    {FLAG_RECEIPT, "receipt", "TEMPLATE|none",
     "where the receipt is asked ({origin}/.samekey/receipts/{call_id})"},
    {FLAG_RECEIPT_HEADER, "receipt-header", "LINE",
     "a header line of the queries, instead of the request's own"},
    {FLAG_RECEIPT_MAP, "receipt-map", "MAP", "a service's own words for states: DONE=SUCCESS,GONE=FAILED"},
    {FLAG_RECEIPT_TIMEOUT, "receipt-timeout", "TIME", "for one query (1s)"},
    {FLAG_RECEIPT_QUERIES, "receipt-queries", "N", "queries after one attempt (5)"},
    {FLAG_RESEND_AFTER, "resend-after", "TIME",
     "how long a request may still be travelling (the attempt timeout)"},
    {FLAG_CALLEE_IDEMPOTENT, "callee-idempotent", NULL, "the service runs a key once, whatever arrives"},
    {FLAG_SERVER_ERROR, "server-error", "failed|unknown",
     "what a 5xx but 502, 503, 504 and 52x means (unknown)"},
    {FLAG_ACCEPTED, "accepted", "pending|success", "what a 202 means (pending)"},
    {FLAG_EXPECT_CONTINUE, "expect-continue", NULL, "hold the body back until the service says 100"},
    {FLAG_HTTP2, "http2", NULL, "speak HTTP/2"},
    {FLAG_CA_FILE, "ca-file", "FILE", "trust these certificates instead of the system's"},
    {FLAG_JOURNAL, "journal", "PATH", "the journal ($XDG_STATE_HOME/samekey/journal.db)"},
    {FLAG_NO_JOURNAL, "no-journal", NULL, "write nothing down: a killed call cannot be taken up again"},
    {FLAG_NO_JOURNAL_BODY, "no-journal-body", NULL, "do not write the request's body down"},
    {FLAG_FORMAT, "format", "body|json", "what goes to standard output (body)"},
    {'o', "output", "FILE", "write there instead"},
    {'v', "verbose", NULL, "say each step on standard error"},
    {'h', "help", NULL, "this"},
};
enum { FLAG_COUNT = sizeof FLAGS / sizeof *FLAGS };

struct call_command {
    struct samekey_config config;
    struct samekey_options options;
    struct samekey_header headers[HEADERS_MAX], receipt_headers[HEADERS_MAX];
    size_t receipt_header_count;
    struct buffer key, data, lines[2 * HEADERS_MAX];
    size_t line_count;
    const char *key_text, *data_text, *output;
    enum caller_format format;
    bool verbose, help;
};

static void print_help(FILE *to)
{
    fputs("usage: samekey call [METHOD] URL [FLAGS]\n\n"
          "Makes one call that is safe to run again: after a timeout the receipt is asked before anything is "
          "sent a\n"
          "second time, and the same command run again goes on with the same callId. METHOD is POST if not "
          "given.\n\n",
          to);
    for (size_t i = 0; i < FLAG_COUNT; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s--%s %s",
                 FLAGS[i].flag < 256 ? (char[]){'-', (char)FLAGS[i].flag, ',', ' ', 0} : "", FLAGS[i].name,
                 FLAGS[i].argument ? FLAGS[i].argument : "");
        fprintf(to, "  %-30s %s\n", left, FLAGS[i].sentence);
    }
    fputs("\nexit: 0 it took effect (SUCCESS). 3 it did not (FAILED). 4 not known, or still running: run the "
          "same command\n"
          "again, never with another key. 64 usage, or the key is bound to another request. 73 the result "
          "cannot be\n"
          "written. 74 the journal cannot be written; nothing was sent.\n",
          to);
}

static bool wrong(const char *flag, const char *sentence)
{
    fprintf(stderr, "samekey call: --%s: %s\n", flag, sentence);
    return false;
}

static bool read_time(const struct flag_row *row, const char *text, int64_t *out)
{
    int64_t ms;
    if (duration_parse(slice_text(text), &ms) != STATUS_OK || ms == DURATION_FOREVER)
        return wrong(row->name, "a time is " DURATION_FORMS);
    *out = ms;
    return true;
}

static bool read_count(const struct flag_row *row, const char *text, int *out)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < 0 || n > 1000)
        return wrong(row->name, "a whole number is needed");
    *out = (int)n;
    return true;
}

static bool read_word(const struct flag_row *row, const char *text, const char *off, const char *on,
                      unsigned bit, unsigned *flags)
{
    if (strcmp(text, on) == 0)
        *flags |= bit;
    else if (strcmp(text, off) == 0)
        *flags &= ~bit;
    else
        return wrong(row->name, row->argument);
    return true;
}

static bool read_header(struct call_command *c, const struct flag_row *row, const char *text,
                        struct samekey_header *list, size_t *count)
{
    const char *colon = strchr(text, ':');
    if (!colon || colon == text)
        return wrong(row->name, "a header line is 'Name: value'");
    if (*count == HEADERS_MAX)
        return wrong(row->name, "there are more than 100 of them");
    struct buffer *name = &c->lines[c->line_count++];
    buffer_append(name, text, (size_t)(colon - text));
    list[(*count)++] = (struct samekey_header){buffer_cstring(name), colon + 1};
    return true;
}

static bool read_flag(struct call_command *c, const struct flag_row *row, const char *text)
{
    struct samekey_options *o = &c->options;
    switch (row->flag) {
    case FLAG_KEY:
        c->key_text = text;
        return true;
    case FLAG_CALL_ID:
        o->call_id = text;
        return true;
    case FLAG_PREFIX:
        o->prefix = text;
        return true;
    case FLAG_NODE:
        c->config.node = text;
        return true;
    case FLAG_BUSINESS_REF:
        o->business_ref = text;
        return true;
    case FLAG_TRACEPARENT:
        o->traceparent = text;
        return true;
    case FLAG_DATA:
        c->data_text = text;
        return true;
    case 'H':
        return read_header(c, row, text, c->headers, &o->header_count);
    case FLAG_ATTEMPT_TIMEOUT:
        return read_time(row, text, &o->attempt_timeout_ms);
    case FLAG_DEADLINE:
        return read_time(row, text, &o->deadline_ms);
    case FLAG_RETRIES:
        return read_count(row, text, &o->retries);
    case FLAG_BACKOFF_BASE:
        return read_time(row, text, &o->backoff_base_ms);
    case FLAG_BACKOFF_CAP:
        return read_time(row, text, &o->backoff_cap_ms);
    case FLAG_JITTER:
        return backoff_parse_jitter(slice_text(text), &o->jitter_low, &o->jitter_high) == STATUS_OK ||
               wrong(row->name, "two factors, as 0.5:1");
    case FLAG_RECEIPT:
        o->receipt = text;
        return true;
    case FLAG_RECEIPT_HEADER:
        o->receipt_headers = c->receipt_headers;
        return read_header(c, row, text, c->receipt_headers, &o->receipt_header_count);
    case FLAG_RECEIPT_MAP:
        o->receipt_map = text;
        return true;
    case FLAG_RECEIPT_TIMEOUT:
        return read_time(row, text, &o->receipt_timeout_ms);
    case FLAG_RECEIPT_QUERIES:
        return read_count(row, text, &o->receipt_queries);
    case FLAG_RESEND_AFTER:
        return read_time(row, text, &o->resend_after_ms);
    case FLAG_CALLEE_IDEMPOTENT:
        o->flags |= SAMEKEY_CALLEE_IDEMPOTENT;
        return true;
    case FLAG_SERVER_ERROR:
        return read_word(row, text, "unknown", "failed", SAMEKEY_SERVER_ERROR_FAILED, &o->flags);
    case FLAG_ACCEPTED:
        return read_word(row, text, "pending", "success", SAMEKEY_ACCEPTED_SUCCESS, &o->flags);
    case FLAG_EXPECT_CONTINUE:
        o->flags |= SAMEKEY_EXPECT_CONTINUE;
        return true;
    case FLAG_HTTP2:
        o->flags |= SAMEKEY_HTTP2;
        return true;
    case FLAG_CA_FILE:
        o->ca_file = text;
        return true;
    case FLAG_JOURNAL:
        c->config.journal = text;
        return *text || wrong(row->name, "a path is needed");
    case FLAG_NO_JOURNAL:
        c->config.journal = NULL;
        return true;
    case FLAG_NO_JOURNAL_BODY:
        o->flags |= SAMEKEY_NO_JOURNAL_BODY;
        return true;
    case FLAG_FORMAT:
        c->format = strcmp(text, "json") == 0 ? CALLER_JSON : CALLER_BODY;
        return strcmp(text, "json") == 0 || strcmp(text, "body") == 0 || wrong(row->name, "body or json");
    case 'o':
        c->output = text;
        return true;
    case 'v':
        c->verbose = true;
        return true;
    default:
        c->help = true;
        return true;
    }
}

static bool no_source(void *context, enum template_source source, struct slice name, struct buffer *out)
{
    (void)context;
    (void)source;
    (void)name;
    (void)out;
    return false;
}

/* Fills the time windows of a key in. The journal keeps the filled form, so a call that is taken up on another day keeps
 * its key by `samekey calls resume`. */
static bool render_key(struct call_command *c)
{
    struct template key = {0};
    struct template_error fault;
    struct timespec now;
    struct slice missing;
    if (!strpbrk(c->key_text, "{}")) {
        c->options.key = c->key_text;
        return true;
    }
    if (template_compile(&key, slice_text(c->key_text), TEMPLATE_FOR_KEY, &fault) != STATUS_OK)
        return wrong("key", fault.message);
    clock_gettime(CLOCK_REALTIME, &now);
    struct template_inputs in = {no_source, NULL, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000};
    enum status status = template_render(&key, &in, &c->key, &missing);
    if (status == STATUS_NOT_FOUND)
        fprintf(stderr, "samekey call: --key: {%.*s} is not known here; {date}, {hour} and {minute} are\n",
                (int)missing.len, missing.data);
    else if (status != STATUS_OK)
        wrong("key", "it is longer than 255 bytes");
    template_fini(&key);
    c->options.key = buffer_cstring(&c->key);
    return status == STATUS_OK;
}

static bool read_data(struct call_command *c)
{
    const char *text = c->data_text;
    if (!text)
        return true;
    if (text[0] != '@' && strcmp(text, "-") != 0) {
        c->options.body = text;
        c->options.body_len = strlen(text);
        return true;
    }
    FILE *from = text[0] == '@' ? fopen(text + 1, "rb") : stdin;
    if (!from)
        return wrong("data", strerror(errno));
    c->data.max = DATA_BYTES_MAX;
    char *room;
    size_t len = 0;
    do {
        room = buffer_reserve(&c->data, 65536);
        len = room ? fread(room, 1, 65536, from) : 0;
        c->data.len += len;
    } while (room && len);
    bool good = room && !ferror(from);
    if (from != stdin)
        fclose(from);
    c->options.body = c->data.data;
    c->options.body_len = c->data.len;
    return good || wrong("data", "it cannot be read, or is longer than 64 MiB");
}

/* A body that looks like JSON is called so, where no header says what it is. */
static void guess_type(struct call_command *c)
{
    const char *body = c->options.body;
    size_t at = 0;
    for (size_t i = 0; i < c->options.header_count; i++) {
        if (slice_is_nocase(slice_text(c->headers[i].name), "Content-Type"))
            return;
    }
    while (at < c->options.body_len && strchr(" \t\r\n", body[at]) && body[at])
        at++;
    if (at < c->options.body_len && (body[at] == '{' || body[at] == '[') &&
        c->options.header_count < HEADERS_MAX)
        c->headers[c->options.header_count++] = (struct samekey_header){"Content-Type", "application/json"};
}

static bool read_arguments(struct call_command *c, int argc, char **argv)
{
    struct option table[FLAG_COUNT + 1];
    for (size_t i = 0; i < FLAG_COUNT; i++)
        table[i] = (struct option){FLAGS[i].name, FLAGS[i].argument ? required_argument : no_argument, NULL,
                                   FLAGS[i].flag};
    table[FLAG_COUNT] = (struct option){0};
    optind = 1;
    for (int flag; (flag = getopt_long(argc, argv, "H:o:vh", table, NULL)) != -1;) {
        size_t i = 0;
        while (i < FLAG_COUNT && FLAGS[i].flag != flag)
            i++;
        if (i == FLAG_COUNT || !read_flag(c, &FLAGS[i], optarg))
            return false; /* getopt has said what is wrong */
    }
    if (c->help)
        return true;
    if (argc - optind < 1 || argc - optind > 2) {
        fputs("samekey call: a URL is needed, and before it a method at most; `samekey help call` lists the "
              "flags\n",
              stderr);
        return false;
    }
    if (argc - optind == 2)
        c->options.method = argv[optind];
    c->options.url = argv[argc - 1];
    if (!c->options.traceparent && getenv("TRACEPARENT") && *getenv("TRACEPARENT"))
        c->options.traceparent = getenv("TRACEPARENT");
    c->options.headers = c->headers;
    if ((c->key_text && !render_key(c)) || !read_data(c))
        return false;
    guess_type(c);
    return true;
}

static int make_call(struct call_command *c)
{
    struct samekey *handle = NULL;
    struct samekey_result *result = NULL;
    struct samekey_error error = {0};
    struct caller_talk talk;
    FILE *to = stdout;
    int code;
    caller_talk_init(&talk, c->verbose);
    c->config.error = c->options.error = &error;
    c->options.progress = talk.verbose || talk.terminal ? caller_talk_progress : NULL;
    c->options.cancelled = caller_cancelled;
    c->options.context = &talk;
    c->options.flags |= SAMEKEY_RESEND_NEEDS_KEY | SAMEKEY_QUICK_EXIT;
    if (c->output && !(to = fopen(c->output, "wb"))) {
        fprintf(stderr, "samekey call: %s: %s; nothing was sent\n", c->output, strerror(errno));
        return CALLER_OUTPUT;
    }
    int status = samekey_open(&handle, &c->config);
    if (status == SAMEKEY_OK) {
        caller_catch_signals();
        status = samekey_call(handle, &c->options, &result);
    }
    code =
        status == SAMEKEY_OK ? caller_finish(result, c->format, to, &talk) : caller_refused(&error, status);
    if (to != stdout && fclose(to) != 0)
        code = CALLER_OUTPUT;
    samekey_result_free(result);
    samekey_close(handle);
    return code;
}

int command_call(int argc, char **argv)
{
    struct call_command *c = calloc(1, sizeof *c);
    int code = CALLER_USAGE;
    if (!c) {
        fputs("samekey call: no memory; nothing was sent\n", stderr);
        return CALLER_MEMORY;
    }
    samekey_config_init(&c->config);
    samekey_options_init(&c->options);
    c->config.journal = "";
    if (read_arguments(c, argc, argv)) {
        if (c->help) {
            print_help(stdout);
            code = CALLER_SUCCESS;
        } else {
            code = make_call(c);
        }
    }
    buffer_fini(&c->key);
    buffer_fini(&c->data);
    for (size_t i = 0; i < c->line_count; i++)
        buffer_fini(&c->lines[i]);
    free(c);
    return code;
}
