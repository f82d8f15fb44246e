/* SPDX-License-Identifier: MIT
 *
 * samekey check: reviews policies and configuration files before they go live. The work is src/review's; here are the
 * flags, and the bridge over which the gateway's own settings code reads samekey.conf for it. Findings go to stdout,
 * what could not be read to stderr.
 */
#include "cli/command.h"

#include "gateway/conf.h"
#include "review/own.h"
#include "review/report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_NOTHING = 0,
    EXIT_FINDINGS = 1,
    EXIT_USAGE = 64,
    EXIT_UNREADABLE = 66,
    EXIT_MEMORY = 71,
    EXIT_OUTPUT = 74
};

/* Bytes of one name in --path. */
enum { PATH_PART_MAX = 4096 };

struct options {
    enum review_format as;
    const char *format, *path, *explain;
    bool page, help;
};

static void print_help(FILE *out)
{
    fputs("usage: samekey check [--as FORMAT] [--format text|json|sarif] FILE...\n"
          "       samekey check --path OUTER,...,INNER     the files are the layers of one call path\n"
          "       samekey check --explain RULE|all\n\n"
          "Reads retry, timeout and key settings and says which of them run an operation twice.\n\n"
          "  --as FORMAT      read every FILE as this kind instead of telling it by content:\n"
          "                   ",
          out);
    for (int f = 1; f < FORMAT_COUNT; f++)
        fprintf(out, "%s%s",
                f == 1   ? ""
                : f == 8 ? ",\n                   "
                         : ", ",
                review_format_name((enum review_format)f));
    fputs(
        "\n  --format F       text (default), json, or sarif (SARIF 2.1.0)\n"
        "  --path LIST      comma-separated, outermost first; FILE#NAME takes only the policies\n"
        "                   whose name contains NAME\n"
        "  --explain RULE   what a rule means, by id or name\n"
        "  --page           the documentation page of all rules (docs/check.md)\n\n"
        "Exit: 0 nothing found, 1 findings, 64 usage, 66 a file could not be read or is of no known kind.\n",
        out);
}

static int usage(const char *text, const char *value)
{
    fprintf(stderr, "samekey check: %s%s; see `samekey help check`\n", text, value);
    return EXIT_USAGE;
}

/* ---- samekey.conf ---- */

struct bridge {
    struct review *review;
    const struct source *source;
};

static void take_problem(void *context, const char *file, const struct settings_problem *problem)
{
    struct bridge *b = context;
    (void)file;
    own_problem(b->review, b->source, problem);
}

static void read_own(struct review *r, const struct source *s)
{
    struct bridge b = {r, s};
    struct buffer errors = {0};
    struct settings *settings = NULL;
    size_t before = r->finding_count;
    enum status status = conf_review(s->path, take_problem, &b);
    if (status == STATUS_OK && conf_load(&settings, s->path, NULL, &errors) == STATUS_OK)
        own_policies(r, s, settings);
    else if (status == STATUS_NO_MEMORY)
        r->pool.failed = true;
    else if (status != STATUS_INVALID || r->finding_count == before)
        review_problem(r, s->path, 0, "the gateway's settings cannot be read");
    conf_free(settings);
    buffer_fini(&errors);
}

static void read_file(struct review *r, const char *path, enum review_format as, const char *label)
{
    const struct source *s = review_file(r, path, as, label);
    if (s && s->format == FORMAT_SAMEKEY)
        read_own(r, s);
}

static bool read_layers(struct review *r, const char *list, enum review_format as)
{
    while (*list) {
        char part[PATH_PART_MAX];
        size_t n = strcspn(list, ",");
        if (n == 0 || n >= sizeof part)
            return false;
        memcpy(part, list, n);
        part[n] = '\0';
        char *label = strchr(part, '#');
        if (label)
            *label++ = '\0';
        read_file(r, part, as, label);
        list += n;
        if (*list == ',' && !*++list)
            return false;
    }
    return true;
}

/* ---- output ---- */

static int write_out(FILE *to, struct buffer *text)
{
    bool ok = !text->failed && fwrite(text->data ? text->data : "", 1, text->len, to) == text->len &&
              fflush(to) == 0;
    return ok ? 0 : text->failed ? EXIT_MEMORY : EXIT_OUTPUT;
}

static int explain(const char *name)
{
    struct buffer out = {0};
    enum rule_id id = rule_find(slice_text(name));
    bool all = strcmp(name, "all") == 0;
    if (!all && id == RULE_COUNT)
        return usage("no such rule: ", name);
    for (int i = 0; i < RULE_COUNT; i++) {
        if (!all && (enum rule_id)i != id)
            continue;
        if (out.len)
            buffer_byte(&out, '\n');
        rule_explain(&out, (enum rule_id)i);
    }
    int code = write_out(stdout, &out);
    buffer_fini(&out);
    return code;
}

static int page(void)
{
    struct buffer out = {0};
    rule_page(&out);
    int code = write_out(stdout, &out);
    buffer_fini(&out);
    return code;
}

static int report(struct review *r, const char *format)
{
    struct buffer out = {0}, talk = {0};
    enum status status = STATUS_OK;
    if (strcmp(format, "json") == 0)
        status = review_report_json(&out, r);
    else if (strcmp(format, "sarif") == 0)
        status = review_report_sarif(&out, r);
    else
        review_report_text(&out, r, isatty(STDOUT_FILENO) && !getenv("NO_COLOR"));
    review_report_talk(&talk, r);
    int code = status == STATUS_OK ? write_out(stdout, &out) : EXIT_MEMORY;
    write_out(stderr, &talk);
    buffer_fini(&out);
    buffer_fini(&talk);
    if (code)
        return code;
    return r->problem_count ? EXIT_UNREADABLE : review_open_findings(r) ? EXIT_FINDINGS : EXIT_NOTHING;
}

static bool parse(struct options *o, int argc, char **argv, int *code)
{
    static const struct option flags[] = {{"as", required_argument, NULL, 'a'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"path", required_argument, NULL, 'p'},
                                          {"explain", required_argument, NULL, 'e'},
                                          {"page", no_argument, NULL, 'P'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int c;
    optind = 0; /* getopt starts anew: the program's own flags were read with it */
    *code = EXIT_USAGE;
    while ((c = getopt_long(argc, argv, "h", flags, NULL)) != -1) {
        switch (c) {
        case 'a':
            o->as = review_format_find(slice_text(optarg));
            if (o->as == FORMAT_COUNT) {
                usage("--as does not know ", optarg);
                return false;
            }
            break;
        case 'f':
            o->format = optarg;
            if (strcmp(optarg, "text") != 0 && strcmp(optarg, "json") != 0 && strcmp(optarg, "sarif") != 0) {
                usage("--format is text, json or sarif, not ", optarg);
                return false;
            }
            break;
        case 'p':
            o->path = optarg;
            break;
        case 'e':
            o->explain = optarg;
            break;
        case 'P':
            o->page = true;
            break;
        case 'h':
            o->help = true;
            break;
        default:
            return false; /* getopt has said what is wrong */
        }
    }
    return true;
}

int command_check(int argc, char **argv)
{
    struct options o = {.as = FORMAT_AUTO, .format = "text"};
    struct review r = {0};
    int code;
    if (!parse(&o, argc, argv, &code))
        return code;
    if (o.help) {
        print_help(stdout);
        return EXIT_NOTHING;
    }
    if (o.explain)
        return explain(o.explain);
    if (o.page)
        return page();
    if (o.path ? optind < argc : optind == argc)
        return usage(o.path ? "--path takes the place of FILE arguments" : "no FILE given", "");
    if (o.path && !read_layers(&r, o.path, o.as)) {
        review_fini(&r);
        return usage("--path is a comma-separated list of files, not ", o.path);
    }
    for (int i = optind; i < argc; i++)
        read_file(&r, argv[i], o.as, NULL);
    if (review_finish(&r, o.path != NULL) != STATUS_OK) {
        fputs("samekey check: not enough memory for this review\n", stderr);
        code = EXIT_MEMORY;
    } else {
        code = report(&r, o.format);
    }
    review_fini(&r);
    return code;
}
