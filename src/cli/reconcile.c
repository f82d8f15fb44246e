/* SPDX-License-Identifier: MIT
 *
 * samekey reconcile: receipts against business rows (CONTRACT section 8). A run only reads. What may be corrected goes
 * into a plan (--plan); a second run applies the plan (--apply), each correction by the gateway's own report endpoint, so
 * that its rules about final endings hold for a correction too. The report goes to stdout, talk to stderr.
 */
#include "cli/command.h"

#include "base/duration.h"
#include "base/json_text.h"
#include "core/id.h"
#include "forensics/reconcile.h"

#include <curl/curl.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_AGREE = 0,
    EXIT_DIFFER = 1,
    EXIT_USAGE = 64,
    EXIT_CANNOT_ASK = 69,
    EXIT_MEMORY = 71,
    EXIT_OUTPUT = 74
};

#define MEMORY_MIN      (1 << 20)
#define ANSWER_MS       10000
#define TOKEN_BYTES_MAX 4096

struct options {
    const char *from[SIDE_COUNT], *sql[SIDE_COUNT];
    const char *column[RECONCILE_COLUMNS_MAX];
    size_t columns;
    const char *route, *format, *folder, *plan, *apply, *at, *token_file;
    int64_t grace_ms, every_ms, runs, memory_bytes;
    bool all, help;
};

static int usage(const char *what, const char *which)
{
    fprintf(stderr, "samekey reconcile: %s%s\nTry: samekey reconcile --help\n", what, which);
    return EXIT_USAGE;
}

static void print_help(void)
{
    fputs("usage: samekey reconcile --receipts FROM --rows FROM [--provider FROM] [OPTION]...\n"
          "       samekey reconcile --apply PLAN --at URL --token-file FILE\n\n"
          "Holds receipts against business rows and says where they disagree. Changes nothing.\n\n"
          "FROM is a gateway's store (sqlite:PATH, postgres://...), a database with a query, or a CSV or "
          "JSON lines file (- "
          "is standard\n"
          "input; gzip and zstd are read).\n\n"
          "  --receipts-sql SQL, --rows-sql SQL, --provider-sql SQL\n"
          "                     what to select from SQLite or PostgreSQL (postgres://...): a column named "
          "key, and where\n"
          "                     there are any: state, call_id, amount, reversed, tenant, updated\n"
          "  --column SIDE.COLUMN=NAME\n"
          "                     a column of that side goes by another name: rows.key=order_no\n"
          "  --route R          only receipts of this route (a gateway's store)\n"
          "  --grace D          receipts changed in the last D are not judged (1m)\n"
          "  --plan FILE        write down which receipts may be corrected, each with its evidence\n"
          "  --apply PLAN       correct them at the gateway (--at its admin or public address)\n"
          "  --token-file FILE  the gateway's report token\n"
          "  --every D          run again each D, until stopped; --runs N: at most N times\n"
          "  --format F         text (default) or json;  --all: name every difference\n"
          "  --memory SIZE      records kept in memory before temporary files are used (at most 96m)\n"
          "  --tmp FOLDER       where temporary files go ($TMPDIR, else /var/tmp)\n\n"
          "Exit: 0 they agree (or everything was applied), 1 they differ, 64 usage, 69 a side cannot be "
          "asked,\n74 a file cannot be written.\n",
          stdout);
}

static bool parse(struct options *o, int argc, char **argv)
{
    static const struct option flags[] = {{"receipts", required_argument, NULL, 0x100 + SIDE_RECEIPTS},
                                          {"rows", required_argument, NULL, 0x100 + SIDE_ROWS},
                                          {"provider", required_argument, NULL, 0x100 + SIDE_PROVIDER},
                                          {"receipts-sql", required_argument, NULL, 0x200 + SIDE_RECEIPTS},
                                          {"rows-sql", required_argument, NULL, 0x200 + SIDE_ROWS},
                                          {"provider-sql", required_argument, NULL, 0x200 + SIDE_PROVIDER},
                                          {"column", required_argument, NULL, 'c'},
                                          {"route", required_argument, NULL, 'r'},
                                          {"grace", required_argument, NULL, 'g'},
                                          {"plan", required_argument, NULL, 'p'},
                                          {"apply", required_argument, NULL, 'A'},
                                          {"at", required_argument, NULL, '@'},
                                          {"token-file", required_argument, NULL, 'k'},
                                          {"every", required_argument, NULL, 'e'},
                                          {"runs", required_argument, NULL, 'n'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"all", no_argument, NULL, 'a'},
                                          {"memory", required_argument, NULL, 'M'},
                                          {"tmp", required_argument, NULL, 't'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int c;
    optind = 0; /* getopt starts anew: the program's own flags were read with it */
    while ((c = getopt_long(argc, argv, "h", flags, NULL)) != -1) {
        enum status status = STATUS_OK;
        const char *forms = "";
        if (c >= 0x200 && c < 0x200 + SIDE_COUNT) {
            o->sql[c - 0x200] = optarg;
            continue;
        }
        if (c >= 0x100 && c < 0x100 + SIDE_COUNT) {
            o->from[c - 0x100] = optarg;
            continue;
        }
        switch (c) {
        case 'c':
            if (o->columns == RECONCILE_COLUMNS_MAX)
                status = STATUS_FULL;
            else
                o->column[o->columns++] = optarg;
            break;
        case 'r':
            o->route = optarg;
            break;
        case 'g':
            status = duration_parse(slice_text(optarg), &o->grace_ms);
            forms = " (" DURATION_FORMS ")";
            break;
        case 'p':
            o->plan = optarg;
            break;
        case 'A':
            o->apply = optarg;
            break;
        case '@':
            o->at = optarg;
            break;
        case 'k':
            o->token_file = optarg;
            break;
        case 'e':
            status = duration_parse(slice_text(optarg), &o->every_ms);
            forms = " (" DURATION_FORMS ")";
            if (o->every_ms < 1)
                status = STATUS_INVALID;
            break;
        case 'n':
            o->runs = strtoll(optarg, NULL, 10);
            status = o->runs > 0 ? STATUS_OK : STATUS_INVALID;
            break;
        case 'f':
            o->format = optarg;
            status = strcmp(optarg, "text") == 0 || strcmp(optarg, "json") == 0 ? STATUS_OK : STATUS_INVALID;
            break;
        case 'a':
            o->all = true;
            break;
        case 'M':
            status = size_parse(slice_text(optarg), &o->memory_bytes);
            forms = " (a size from 1m to 96m)";
            if (o->memory_bytes < MEMORY_MIN || o->memory_bytes > RECONCILE_READ_BYTES)
                status = STATUS_INVALID;
            break;
        case 't':
            o->folder = optarg;
            break;
        case 'h':
            o->help = true;
            break;
        default:
            return false; /* getopt has said what is wrong */
        }
        if (status != STATUS_OK) {
            fprintf(stderr, "samekey reconcile: -%c does not take %s%s\n", c, optarg, forms);
            return false;
        }
    }
    return true;
}

/* rows.key=order_no */
static bool take_column(struct reconcile *r, const char *text)
{
    const char *equals = strchr(text, '=');
    for (int s = 0; s < SIDE_COUNT; s++) {
        size_t n = strlen(side_name((enum side)s));
        if (!equals || strncmp(text, side_name((enum side)s), n) != 0 || text[n] != '.')
            continue;
        for (int c = 0; c < COLUMN_COUNT; c++) {
            struct slice name = slice_of(text + n + 1, (size_t)(equals - text) - n - 1);
            if (slice_is(name, side_column_name((enum side_column)c))) {
                r->side[s].column[c] = equals + 1;
                return equals[1] != '\0';
            }
        }
    }
    return false;
}

/* ---- progress ---- */

struct bar {
    struct timespec begin, last;
    double share;
    bool drawn;
};

static double since(const struct timespec *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - t->tv_sec) + (double)(now.tv_nsec - t->tv_nsec) / 1e9;
}

static void draw(void *context, const char *what, uint64_t done, double share)
{
    struct bar *b = context;
    if (since(&b->begin) < 0.5 || (b->drawn && since(&b->last) < 0.1))
        return;
    clock_gettime(CLOCK_MONOTONIC, &b->last);
    double elapsed = since(&b->begin);
    if (share >= 0) /* a guess that was mended moves no bar backwards */
        share = b->share = share > b->share ? share : b->share;
    fprintf(stderr, "\r%s: %llu, %.0f s", what, (unsigned long long)done, elapsed);
    if (share >= 0)
        fprintf(stderr, ", %.0f %% of all", share * 100);
    if (share > 0.01)
        fprintf(stderr, ", %.0f s left", elapsed / share - elapsed);
    fputs("\033[K", stderr);
    fflush(stderr);
    b->drawn = true;
}

/* ---- one run ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int run_once(const struct options *o)
{
    struct reconcile r;
    struct bar bar = {0};
    char draft[4096];
    int code = EXIT_AGREE;
    reconcile_init(&r);
    for (int s = 0; s < SIDE_COUNT; s++) {
        r.side[s].from = o->from[s];
        r.side[s].sql = o->sql[s];
    }
    r.route = o->route;
    r.folder = o->folder;
    r.read_bytes = (size_t)o->memory_bytes;
    r.fresh_ms = o->grace_ms ? now_ms() - o->grace_ms : 0;
    for (size_t i = 0; i < o->columns; i++) {
        if (!take_column(&r, o->column[i])) {
            reconcile_fini(&r);
            return usage("--column is SIDE.COLUMN=NAME, as rows.key=order_no, not ", o->column[i]);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &bar.begin);
    if (isatty(STDERR_FILENO)) {
        r.progress = draw;
        r.progress_context = &bar;
    }
    if (o->plan) { /* written beside its place and moved there whole: half a plan is never applied */
        struct stat there;
        if (lstat(o->plan, &there) == 0 &&
            !S_ISREG(there.st_mode)) { /* moving would put a file in its place */
            fprintf(stderr, "samekey reconcile: %s is not a regular file, and a plan takes its place\n",
                    o->plan);
            reconcile_fini(&r);
            return EXIT_OUTPUT;
        }
        if (snprintf(draft, sizeof draft, "%s.part", o->plan) >= (int)sizeof draft ||
            !(r.plan = fopen(draft, "we"))) {
            fprintf(stderr, "samekey reconcile: %s cannot be written\n", o->plan);
            reconcile_fini(&r);
            return EXIT_OUTPUT;
        }
    }
    enum status status = reconcile_run(&r);
    if (bar.drawn)
        fputs("\r\033[K", stderr);
    if (status == STATUS_NO_MEMORY) {
        fputs("samekey reconcile: not enough memory\n", stderr);
        code = EXIT_MEMORY;
    } else if (status != STATUS_OK) {
        fprintf(stderr, "samekey reconcile: %s\n", buffer_cstring(&r.error));
        code = r.disk_failed ? EXIT_OUTPUT : EXIT_CANNOT_ASK;
    } else {
        if (strcmp(o->format, "json") == 0)
            reconcile_json(&r, stdout);
        else
            reconcile_text(&r, stdout, o->all);
        code = reconcile_differences(&r) ? EXIT_DIFFER : EXIT_AGREE;
        if (fflush(stdout) != 0 || ferror(stdout))
            code = EXIT_OUTPUT;
    }
    if (r.plan) {
        bool good = !ferror(r.plan) && fflush(r.plan) == 0 && fsync(fileno(r.plan)) == 0;
        good = fclose(r.plan) == 0 && good && status == STATUS_OK && rename(draft, o->plan) == 0;
        if (!good)
            unlink(draft);
        if (!good && code <= EXIT_DIFFER) {
            fprintf(stderr, "samekey reconcile: %s cannot be written\n", o->plan);
            code = EXIT_OUTPUT;
        }
    }
    reconcile_fini(&r);
    return code;
}

/* ---- applying a plan ---- */

static size_t take_bytes(char *data, size_t size, size_t n, void *context)
{
    struct buffer *b = context;
    b->max = 1 << 20;
    buffer_append(b, data, size * n);
    return b->failed ? 0 : size * n;
}

/* PUT of one correction. Returns the status, or 0 with a reason in why. */
static long put(const struct options *o, const char *token, json_t *fix, char *why, size_t why_size)
{
    struct buffer url = {0}, body = {0}, answer = {0}, header = {0};
    const char *call = json_string_value(json_object_get(fix, "call_id"));
    const char *tenant = json_string_value(json_object_get(fix, "tenant"));
    const char *evidence = json_string_value(json_object_get(fix, "evidence"));
    char problem[CURL_ERROR_SIZE] = "";
    long status = 0;
    CURL *curl = curl_easy_init();
    char *tenant_text = curl && tenant ? curl_easy_escape(curl, tenant, 0) : NULL;
    size_t at = strlen(o->at);
    while (at && o->at[at - 1] == '/')
        at--;
    buffer_append(&url, o->at, at);
    buffer_format(&url, "/.samekey/receipts/%s", call);
    if (tenant_text && *tenant_text)
        buffer_format(&url, "?tenant=%s", tenant_text);
    buffer_text(&body, "{\"state\":\"SUCCESS\",\"operator\":\"samekey reconcile\",\"evidence\":");
    json_text(&body, slice_text(evidence));
    buffer_byte(&body, '}');
    buffer_format(&header, "Authorization: Bearer %s", token);
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *longer = headers ? curl_slist_append(headers, buffer_cstring(&header)) : NULL;
    headers = longer ? longer : headers;
    if (!curl || !longer || url.failed || body.failed || header.failed) {
        snprintf(why, why_size, "not enough memory");
    } else {
        curl_easy_setopt(curl, CURLOPT_URL, buffer_cstring(&url));
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PUT");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body.len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, buffer_cstring(&body));
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
        curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
        CURLcode rc = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        if (rc != CURLE_OK) {
            status = 0;
            snprintf(why, why_size, "%s", *problem ? problem : curl_easy_strerror(rc));
        } else if (status != 200) {
            json_t *said = json_loadb(answer.data ? answer.data : "", answer.len, 0, NULL);
            const char *detail = json_string_value(json_object_get(said, "detail"));
            const char *title = json_string_value(json_object_get(said, "title"));
            snprintf(why, why_size, "%ld %s", status, detail ? detail : title ? title : "");
            json_decref(said);
        }
    }
    curl_slist_free_all(headers);
    curl_free(tenant_text);
    curl_easy_cleanup(curl);
    buffer_fini(&url);
    buffer_fini(&body);
    buffer_fini(&answer);
    buffer_fini(&header);
    return status;
}

static bool read_token(const char *path, char token[TOKEN_BYTES_MAX])
{
    FILE *f = fopen(path, "re");
    bool good = f && fgets(token, TOKEN_BYTES_MAX, f);
    if (f)
        fclose(f);
    if (good)
        token[strcspn(token, "\r\n")] = '\0';
    return good && *token;
}

static int apply(const struct options *o)
{
    char token[TOKEN_BYTES_MAX], *line = NULL, why[300];
    size_t size = 0, number = 0, applied = 0, refused = 0;
    int code = EXIT_AGREE;
    if (!o->at || !o->token_file)
        return usage("--apply needs --at URL and --token-file FILE", "");
    if (!read_token(o->token_file, token)) {
        fprintf(stderr, "samekey reconcile: %s holds no token\n", o->token_file);
        return EXIT_CANNOT_ASK;
    }
    FILE *plan = fopen(o->apply, "re");
    if (!plan) {
        fprintf(stderr, "samekey reconcile: %s cannot be read\n", o->apply);
        return EXIT_CANNOT_ASK;
    }
    while (code != EXIT_CANNOT_ASK && getline(&line, &size, plan) > 0) {
        json_t *fix = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *call = json_string_value(json_object_get(fix, "call_id"));
        const char *to = json_string_value(json_object_get(fix, "to"));
        number++;
        if (!call || callid_check(slice_text(call)) != STATUS_OK || !to || strcmp(to, "SUCCESS") != 0 ||
            !json_is_string(json_object_get(fix, "evidence"))) {
            printf("line %zu: no correction of ours\n", number);
            refused++;
        } else {
            long status = put(o, token, fix, why, sizeof why);
            if (status == 200) {
                printf("%s: SUCCESS (%s)\n", call, json_string_value(json_object_get(fix, "evidence")));
                applied++;
            } else {
                printf("%s: not changed: %s\n", call, why);
                refused++;
                if (status == 0 || status == 401 || status == 403)
                    code = EXIT_CANNOT_ASK; /* the others would fare no better */
            }
        }
        json_decref(fix);
    }
    free(line);
    fclose(plan);
    printf("%zu corrected, %zu not\n", applied, refused);
    return code == EXIT_AGREE && refused ? EXIT_DIFFER : code;
}

/* ---- the command ---- */

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

int command_reconcile(int argc, char **argv)
{
    struct options o = {.format = "text", .grace_ms = 60000, .memory_bytes = RECONCILE_READ_BYTES};
    if (!parse(&o, argc, argv))
        return EXIT_USAGE;
    if (o.help) {
        print_help();
        return EXIT_AGREE;
    }
    if (optind < argc)
        return usage("what is this? ", argv[optind]);
    if (o.apply)
        return apply(&o);
    if (!o.from[SIDE_RECEIPTS] || !o.from[SIDE_ROWS])
        return usage("--receipts and --rows say what to compare", "");
    if (o.runs && !o.every_ms)
        return usage("--runs goes with --every", "");
    if (o.every_ms) { /* a run that was begun is ended, and no other follows */
        struct sigaction action = {.sa_handler = stop};
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
    }
    int code = run_once(&o);
    if (!o.every_ms || code == EXIT_USAGE)
        return code;
    for (int64_t n = 1; !stopped && (!o.runs || n < o.runs); n++) {
        struct timespec wait = {(time_t)(o.every_ms / 1000), (long)(o.every_ms % 1000) * 1000000};
        if (nanosleep(&wait, NULL) != 0 || stopped)
            break;
        int next = run_once(&o);
        code = next > code ? next : code; /* the gravest of all runs */
    }
    return code;
}
