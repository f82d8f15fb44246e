/* SPDX-License-Identifier: MIT
 *
 * samekey diagnose: from logs to the cause of a duplicate (CONTRACT section 8). The work is src/forensics's; here are the
 * flags, the progress bar and where the report goes. The report goes to stdout, what could not be read to stderr.
 */
#include "cli/command.h"

#include "base/duration.h"
#include "forensics/diagnose.h"
#include "forensics/report.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_CLEAN = 0,
    EXIT_FINDINGS_BIT = 1,
    EXIT_UNREADABLE_BIT = 2,
    EXIT_USAGE = 64,
    EXIT_INPUT = 66,
    EXIT_MEMORY = 71,
    EXIT_OUTPUT = 74
};

enum { NAMED_MAX = 64, MEMORY_MIN = 1 << 20 };

struct options {
    const char *format, *facts, *pattern, *html, *folder, *db, *table, *column;
    size_t memory_bytes;
    const char *zone[NAMED_MAX], *ends[NAMED_MAX], *map[NAMED_MAX];
    size_t zones, end_count, maps;
    bool help, all;
};

static int usage(const char *what, const char *which)
{
    fprintf(stderr, "samekey diagnose: %s%s\nTry: samekey diagnose --help\n", what, which);
    return EXIT_USAGE;
}

static void print_help(FILE *out)
{
    fputs(
        "usage: samekey diagnose [OPTION]... FILE...\n\n"
        "Reads logs of any system, in any order, and says which operations ran twice, who repeated them and "
        "whether\n"
        "that was lawful. FILE may be - (standard input) and may be compressed by gzip or zstd.\n\n"
        "  --format F         text (default), json or html\n"
        "  --html FILE        write the HTML report there too\n"
        "  --all              in text: name every finding, not the first of each kind\n"
        "  --map FIELD=NAME   the log calls this field NAME (members of members: req.cid); may be repeated\n"
        "  --pattern RE       lines look like this PCRE2 pattern; its named groups are fields\n"
        "  --tz FILE=ZONE     times without a zone in FILE are local to ZONE (Europe/Berlin, +08:00, UTC)\n"
        "  --end-time FILE    times in FILE are the ends of requests\n"
        "  --facts FILE       what is known about the programs: a JSON object of names and sentences\n"
        "  --tmp FOLDER       where temporary files go ($TMPDIR, else /var/tmp)\n\n"
        "Fields: ",
        out);
    for (int f = 0, column = 8; f < FIELD_COUNT; f++) {
        int n = (int)strlen(field_name((enum field)f)) + 2;
        if (column + n > 110) {
            fputs("\n        ", out);
            column = 8;
        }
        fprintf(out, "%s%s", field_name((enum field)f), f + 1 < FIELD_COUNT ? ", " : "\n\n");
        column += n;
    }
    fputs("Exit: 0 clean; bit 1 findings, bit 2 lines that could not be read; 64 usage; 66 a file cannot be "
          "read; 74 one cannot be written.\n",
          out);
}

static bool take(const char **list, size_t *count, const char *what)
{
    assert(optarg); /* every such flag requires one */
    if (*count == NAMED_MAX) {
        usage("too many of ", what);
        return false;
    }
    list[(*count)++] = optarg;
    return true;
}

static bool parse(struct options *o, int argc, char **argv, int *code)
{
    static const struct option flags[] = {{"format", required_argument, NULL, 'f'},
                                          {"html", required_argument, NULL, 'H'},
                                          {"all", no_argument, NULL, 'a'},
                                          {"map", required_argument, NULL, 'm'},
                                          {"pattern", required_argument, NULL, 'p'},
                                          {"tz", required_argument, NULL, 'z'},
                                          {"end-time", required_argument, NULL, 'e'},
                                          {"facts", required_argument, NULL, 'k'},
                                          {"db", required_argument, NULL, 'D'},
                                          {"table", required_argument, NULL, 'T'},
                                          {"column", required_argument, NULL, 'C'},
                                          {"memory", required_argument, NULL, 'M'},
                                          {"tmp", required_argument, NULL, 't'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int c;
    optind = 0; /* getopt starts anew: the program's own flags were read with it */
    *code = EXIT_USAGE;
    while ((c = getopt_long(argc, argv, "h", flags, NULL)) != -1) {
        bool good = true;
        switch (c) {
        case 'f':
            o->format = optarg;
            if (strcmp(optarg, "text") != 0 && strcmp(optarg, "json") != 0 && strcmp(optarg, "html") != 0) {
                usage("--format is text, json or html, not ", optarg);
                return false;
            }
            break;
        case 'H':
            o->html = optarg;
            break;
        case 'a':
            o->all = true;
            break;
        case 'm':
            good = take(o->map, &o->maps, "--map");
            break;
        case 'p':
            o->pattern = optarg;
            break;
        case 'z':
            good = take(o->zone, &o->zones, "--tz");
            break;
        case 'e':
            good = take(o->ends, &o->end_count, "--end-time");
            break;
        case 'k':
            o->facts = optarg;
            break;
        case 't':
            o->folder = optarg;
            break;
        case 'D':
            o->db = optarg;
            break;
        case 'T':
            o->table = optarg;
            break;
        case 'C':
            o->column = optarg;
            break;
        case 'M': {
            int64_t bytes;
            if (size_parse(slice_text(optarg), &bytes) != STATUS_OK || bytes < MEMORY_MIN ||
                bytes > DIAGNOSE_READ_BYTES) {
                usage("--memory is a size from 1m to 160m, not ", optarg);
                return false;
            }
            o->memory_bytes = (size_t)bytes;
            break;
        }
        case 'h':
            o->help = true;
            break;
        default:
            good = false; /* getopt has said what is wrong */
        }
        if (!good)
            return false;
    }
    return true;
}

/* A file is named as it is on the command line, or by the end of its path. */
static struct log_file *file_named(struct gather *g, const char *name, size_t len)
{
    assert(name);
    for (size_t i = 0; i < g->file_count; i++) {
        const char *path = g->file[i].path;
        size_t n = strlen(path);
        if (n >= len && memcmp(path + n - len, name, len) == 0 && (n == len || path[n - len - 1] == '/'))
            return &g->file[i];
    }
    return NULL;
}

static int apply(const struct options *o, struct gather *g)
{
    struct buffer error = {0};
    int code = 0;
    for (size_t i = 0; i < o->maps && !code; i++)
        if (field_map_add(&g->map, o->map[i]) != STATUS_OK)
            code = usage("--map is FIELD=NAME, with a FIELD that --help lists, not ", o->map[i]);
    for (size_t i = 0; i < o->zones && !code; i++) {
        const char *equals = strrchr(o->zone[i], '=');
        struct log_file *f = equals ? file_named(g, o->zone[i], (size_t)(equals - o->zone[i])) : NULL;
        if (!f)
            code = usage("--tz is FILE=ZONE for one of the files, not ", o->zone[i]);
        else if (zone_parse(equals + 1, &f->zone) != STATUS_OK)
            code = usage("no such time zone: ", equals + 1);
    }
    for (size_t i = 0; i < o->end_count && !code; i++) {
        struct log_file *f = file_named(g, o->ends[i], strlen(o->ends[i]));
        if (f)
            f->time_ends = true;
        else
            code = usage("--end-time names none of the files: ", o->ends[i]);
    }
    if (o->pattern && !code) {
        enum status status = pattern_compile(&g->pattern, &g->map, o->pattern, &error);
        if (status == STATUS_INVALID)
            code = usage("--pattern: ", buffer_cstring(&error));
        else if (status != STATUS_OK)
            code = EXIT_MEMORY;
    }
    buffer_fini(&error);
    return code;
}

/* ---- progress, for a person at a terminal ---- */

struct bar {
    struct timespec begin, last;
    bool drawn;
};

static double since(const struct timespec *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - t->tv_sec) + (double)(now.tv_nsec - t->tv_nsec) / 1e9;
}

static void draw(void *context, const char *what, double share)
{
    struct bar *b = context;
    double elapsed = since(&b->begin);
    if (elapsed < 0.5 || (b->drawn && since(&b->last) < 0.1))
        return;
    clock_gettime(CLOCK_MONOTONIC, &b->last);
    int done = (int)(share * 30);
    fprintf(stderr, "\r%s [", what);
    for (int i = 0; i < 30; i++)
        fputc(i < done ? '#' : '.', stderr);
    fprintf(stderr, "] %3.0f %%  ", share * 100);
    if (share > 0.01)
        fprintf(stderr, "%.0f s left \033[K", elapsed / share - elapsed);
    fflush(stderr);
    b->drawn = true;
}

/* ---- the end ---- */

static int tell_files(const struct gather *g)
{
    int code = 0;
    for (size_t i = 0; i < g->file_count; i++) {
        const struct log_file *f = &g->file[i];
        if (!f->error)
            continue;
        fprintf(stderr, "samekey diagnose: %s: %s\n", f->path, f->error);
        if (!f->opened)
            code = EXIT_INPUT;
        else
            code = code ? code : EXIT_UNREADABLE_BIT;
    }
    return code;
}

static int write_report(const struct options *o, const struct report *r)
{
    if (o->html) {
        FILE *out = fopen(o->html, "we");
        if (out)
            report_html(r, out);
        bool bad = !out || ferror(out);
        if ((out && fclose(out) != 0) || bad) {
            fprintf(stderr, "samekey diagnose: %s: cannot be written\n", o->html);
            return EXIT_OUTPUT;
        }
    }
    if (strcmp(o->format, "json") == 0)
        report_json(r, stdout);
    else if (strcmp(o->format, "html") == 0)
        report_html(r, stdout);
    else
        report_text(r, stdout, isatty(STDOUT_FILENO) && !getenv("NO_COLOR"), o->all);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : EXIT_OUTPUT;
}

int command_diagnose(int argc, char **argv)
{
    struct options o = {.format = "text", .memory_bytes = DIAGNOSE_READ_BYTES};
    struct facts facts = {0};
    struct buffer error = {0};
    struct bar bar = {0};
    struct diagnose x;
    int code;
    if (!parse(&o, argc, argv, &code))
        return code;
    if (o.help) {
        print_help(stdout);
        return EXIT_CLEAN;
    }
    if (optind == argc)
        return usage("no FILE given", "");
    if ((o.db || o.table || o.column) && !(o.db && o.table && o.column))
        return usage("--db, --table and --column go together", "");
    enum status status = diagnose_init(&x, argv + optind, (size_t)(argc - optind), o.folder, o.memory_bytes);
    if (status == STATUS_FULL)
        code = usage("too many files at once", "");
    else
        code = status == STATUS_OK ? apply(&o, &x.gather) : EXIT_MEMORY;
    if (!code && o.facts && facts_load(&facts, o.facts, &error) != STATUS_OK) {
        fprintf(stderr, "samekey diagnose: %s\n", buffer_cstring(&error));
        code = EXIT_INPUT;
    }
    if (code)
        goto done;
    x.facts = o.facts ? &facts : NULL;
    x.db = o.db;
    x.table = o.table;
    x.column = o.column;
    clock_gettime(CLOCK_MONOTONIC, &bar.begin);
    if (isatty(STDERR_FILENO)) {
        x.progress = draw;
        x.progress_context = &bar;
    }
    status = diagnose_run(&x);
    if (bar.drawn)
        fputs("\r\033[K", stderr);
    if (status != STATUS_OK && x.error.len) {
        fprintf(stderr, "samekey diagnose: --db: %s\n", buffer_cstring(&x.error));
        code = EXIT_INPUT;
        goto done;
    }
    if (status != STATUS_OK) {
        if (status == STATUS_IO)
            spill_complain(x.gather.by_group.error ? &x.gather.by_group : &x.gather.by_call, &error);
        else
            buffer_text(&error, "not enough memory for these logs");
        fprintf(stderr, "samekey diagnose: %s\n", buffer_cstring(&error));
        code = status == STATUS_IO ? EXIT_OUTPUT : EXIT_MEMORY;
        goto done;
    }
    int files = tell_files(&x.gather);
    const struct diagnosis *d = &x.diagnosis;
    if (d->events && !d->call_ids && !d->business_keys && !d->keys.count)
        fputs(
            "samekey diagnose: no line names a callId, a key or a request, so nothing could be judged; --map "
            "call_id=NAME (key=NAME, ...) says what the log calls them\n",
            stderr);
    code = write_report(&o, &(struct report){&x.diagnosis, &x.gather, &x.clocks});
    if (code)
        goto done;
    code = files == EXIT_INPUT ? EXIT_INPUT
                               : files | (x.diagnosis.finding_count ? EXIT_FINDINGS_BIT : 0) |
                                     (x.diagnosis.unreadable ? EXIT_UNREADABLE_BIT : 0);
done:
    diagnose_fini(&x);
    facts_fini(&facts);
    buffer_fini(&error);
    return code;
}
