/* SPDX-License-Identifier: MIT
 *
 * samekey simulate: what a policy does, before production does it. Each experiment is a row of EXPERIMENTS and a table
 * of flags from which both the parsing and the help are made. Results go to stdout and are the same for the same flags;
 * talk and the progress bar go to stderr. Nothing is coloured, so NO_COLOR has nothing to switch off.
 */
#include "cli/command.h"

#include "sim/article.h"
#include "sim/jitter.h"
#include "sim/number.h"
#include "sim/plan.h"
#include "sim/progress.h"
#include "sim/storm.h"
#include "sim/world.h"

#include <assert.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXIT_FINE = 0, EXIT_INVARIANT = 1, EXIT_USAGE = 64, EXIT_MEMORY = 71, EXIT_OUTPUT = 74 };
enum { FLAGS_MAX = 40 };
static const double DAY_S = 86400, YEARS_S = 100 * 366 * 86400.0;

enum flag_kind {
    FLAG_REAL,    /* double */
    FLAG_COUNT,   /* unsigned */
    FLAG_WHOLE,   /* uint64_t; high 0: all 64 bits */
    FLAG_SECONDS, /* double, seconds */
    FLAG_MILLIS,  /* double, milliseconds; bounds in seconds */
    FLAG_RANGE,   /* two doubles */
    FLAG_TEXT,    /* const char *, borrowed from argv */
    FLAG_SWITCH,  /* bool */
};

struct flag {
    const char *name; /* without the dashes */
    enum flag_kind kind;
    void *target, *second;
    double low, high;
    const char *argument, *sentence;
};

/* Flags that every experiment has. */
struct common {
    const char *format, *svg;
    bool help;
};

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV };

static void print_help(const char *experiment, const char *sentence, const struct flag *flags)
{
    printf("usage: samekey simulate %s [FLAGS]\n\n%s\n\n", experiment, sentence);
    for (const struct flag *f = flags; f->name; f++) {
        char left[64];
        snprintf(left, sizeof left, "--%s %s", f->name, f->argument ? f->argument : "");
        printf("  %-26s %s\n", left, f->sentence);
    }
}

static enum status set_flag(const struct flag *f, const char *text, char *message)
{
    char name[64];
    uint64_t whole = 0;
    enum status status = STATUS_OK;
    snprintf(name, sizeof name, "--%s", f->name);
    switch (f->kind) {
    case FLAG_REAL:
        return number_real(f->target, name, text, f->low, f->high, message);
    case FLAG_COUNT:
        status = number_whole(&whole, name, text, (uint64_t)f->low, (uint64_t)f->high, message);
        if (!status)
            *(unsigned *)f->target = (unsigned)whole;
        return status;
    case FLAG_WHOLE:
        return number_whole(f->target, name, text, (uint64_t)f->low,
                            f->high > 0 ? (uint64_t)f->high : UINT64_MAX, message);
    case FLAG_SECONDS:
        return number_duration(f->target, name, text, f->low, f->high, message);
    case FLAG_MILLIS: {
        double seconds = 0;
        status = number_duration(&seconds, name, text, f->low, f->high, message);
        if (!status)
            *(double *)f->target = seconds * 1000;
        return status;
    }
    case FLAG_RANGE:
        return number_range(f->target, f->second, name, text, message);
    case FLAG_TEXT:
        *(const char **)f->target = text;
        return STATUS_OK;
    case FLAG_SWITCH:
        *(bool *)f->target = true;
        return STATUS_OK;
    }
    return STATUS_INVALID;
}

/* Reads the flags into their targets. Returns EXIT_FINE, or EXIT_USAGE after saying why on stderr. */
static int parse(int argc, char **argv, const struct flag *flags)
{
    struct option options[FLAGS_MAX + 1] = {{0}};
    size_t count = 0;
    for (; flags[count].name; count++) {
        assert(count < FLAGS_MAX);
        options[count].name = flags[count].name;
        options[count].has_arg = flags[count].kind == FLAG_SWITCH ? no_argument : required_argument;
    }
    optind = 0; /* glibc: start anew, whatever main has read */
    opterr = 0;
    for (;;) {
        int index = -1;
        int got = getopt_long(argc, argv, ":", options, &index);
        if (got == -1)
            break;
        char message[NUMBER_MESSAGE_BYTES];
        if (got == ':')
            snprintf(message, sizeof message, "%s needs a value", argv[optind - 1]);
        else if (got == '?')
            snprintf(message, sizeof message, "%.80s is not a flag of 'simulate %s'", argv[optind - 1],
                     argv[0]);
        else if (!set_flag(&flags[index], optarg, message))
            continue;
        fprintf(stderr, "samekey simulate: %s\n", message);
        return EXIT_USAGE;
    }
    if (optind < argc) {
        fprintf(stderr, "samekey simulate: unexpected argument '%.80s'\n", argv[optind]);
        return EXIT_USAGE;
    }
    return EXIT_FINE;
}

static int refuse(const char *message)
{
    fprintf(stderr, "samekey simulate: %s\n", message);
    return EXIT_USAGE;
}

static int read_format(const struct common *common, enum format *out)
{
    static const char *const names[] = {[FORMAT_TEXT] = "text", [FORMAT_JSON] = "json", [FORMAT_CSV] = "csv"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(common->format, names[i]) == 0) {
            *out = (enum format)i;
            return EXIT_FINE;
        }
    fprintf(stderr, "samekey simulate: --format is '%.40s'; it must be text, json or csv\n", common->format);
    return EXIT_USAGE;
}

/* Says what a status of the simulation itself means; EXIT_FINE for STATUS_OK. */
static int failed(enum status status, uint64_t seed)
{
    switch (status) {
    case STATUS_OK:
        return EXIT_FINE;
    case STATUS_NO_MEMORY:
        fprintf(stderr, "samekey simulate: out of memory\n");
        return EXIT_MEMORY;
    default:
        fprintf(stderr,
                "samekey simulate: an invariant broke; the same flags and --seed %llu show it again\n",
                (unsigned long long)seed);
        return EXIT_INVARIANT;
    }
}

static int write_out(const struct buffer *b, const char *path)
{
    FILE *file = path ? fopen(path, "w") : stdout;
    bool ok = file && !b->failed && fwrite(b->data, 1, b->len, file) == b->len;
    if (file == stdout)
        ok = ok && fflush(file) == 0;
    else if (file)
        ok = fclose(file) == 0 && ok;
    if (ok)
        return EXIT_FINE;
    fprintf(stderr, "samekey simulate: cannot write %s: ", path ? path : "the result");
    perror(NULL);
    return EXIT_OUTPUT;
}

/* The result first, so that it is seen even if the chart cannot be written. Takes both buffers. */
static int deliver(struct buffer *result, struct buffer *svg, const struct common *common)
{
    int code = write_out(result, NULL);
    if (!code && common->svg)
        code = write_out(svg, common->svg);
    buffer_fini(result);
    buffer_fini(svg);
    return code;
}

#define COMMON_FLAGS(common)                                                                                 \
    {"format", FLAG_TEXT, &(common).format, NULL, 0, 0, "F", "text (default), json or csv"},                 \
        {"help", FLAG_SWITCH, &(common).help, NULL, 0, 0, NULL, "this page"},                                \
    {                                                                                                        \
        .name = NULL                                                                                         \
    }
#define SVG_FLAG(common)                                                                                     \
    {                                                                                                        \
        "svg", FLAG_TEXT, &(common).svg, NULL, 0, 0, "FILE", "also write a chart"                            \
    }

static int simulate_article(int argc, char **argv)
{
    struct article_parameters p;
    struct article_row rows[ARTICLE_STRATEGIES_MAX];
    struct common common = {.format = "text"};
    const char *strategies = NULL;
    char message[NUMBER_MESSAGE_BYTES];
    enum format format = FORMAT_TEXT;
    article_defaults(&p);
    const struct flag flags[] = {
        {"calls", FLAG_WHOLE, &p.calls, NULL, 1, (double)ARTICLE_CALLS_MAX, "N", "calls (200)"},
        {"fail", FLAG_REAL, &p.fail, NULL, 0, 1, "P", "chance of a definite failure (0.3)"},
        {"timeout", FLAG_REAL, &p.timeout, NULL, 0, 1, "P", "chance of a timeout after the effect (0.1)"},
        {"attempts", FLAG_COUNT, &p.attempts, NULL, 1, ARTICLE_ATTEMPTS_MAX, "N",
         "attempts of a call, at most (4)"},
        {"fixed-delay", FLAG_SECONDS, &p.fixed_delay_s, NULL, 0, DAY_S, "T", "wait of 'fixed' (0.5s)"},
        {"base", FLAG_SECONDS, &p.base_s, NULL, 0, DAY_S, "T", "first exponential wait (0.5s)"},
        {"cap", FLAG_SECONDS, &p.cap_s, NULL, 0, DAY_S, "T", "longest wait before jitter (4s)"},
        {"jitter", FLAG_RANGE, &p.jitter_low, &p.jitter_high, 0, 0, "LO:HI", "factor of a wait (0.5:1)"},
        {"seed", FLAG_WHOLE, &p.seed, NULL, 0, 0, "N", "seed, 64 bits (42)"},
        {"strategies", FLAG_TEXT, &strategies, NULL, 0, 0, "LIST", "rows, in order; 'all' for every one"},
        SVG_FLAG(common),
        COMMON_FLAGS(common),
    };
    int code = parse(argc, argv, flags);
    if (code)
        return code;
    if (common.help) {
        print_help(
            "article",
            "The article's experiment: calls that fail or time out by lot, one row per way of retrying.",
            flags);
        printf("\nstrategies:\n");
        for (int s = 0; s < ARTICLE_STRATEGY_COUNT; s++)
            printf("  %-20s %s\n", article_name((enum article_strategy)s),
                   article_sentence((enum article_strategy)s));
        return EXIT_FINE;
    }
    code = read_format(&common, &format);
    if (code)
        return code;
    if ((strategies && article_strategies(&p, strategies, message)) || article_check(&p, message))
        return refuse(message);
    struct progress progress;
    progress_begin(&progress);
    enum status status = article_run(&p, rows, &progress);
    progress_end(&progress);
    if (status)
        return failed(status, p.seed);
    struct buffer result = {0}, svg = {0};
    (format == FORMAT_JSON  ? article_json
     : format == FORMAT_CSV ? article_csv
                            : article_text)(&result, &p, rows);
    if (common.svg)
        article_svg(&svg, &p, rows);
    return deliver(&result, &svg, &common);
}

static int simulate_jitter(int argc, char **argv)
{
    struct jitter_parameters p;
    struct common common = {.format = "text"};
    char message[NUMBER_MESSAGE_BYTES];
    enum format format = FORMAT_TEXT;
    jitter_defaults(&p);
    const struct flag flags[] = {
        {"clients", FLAG_WHOLE, &p.clients, NULL, 1, JITTER_CLIENTS_MAX, "N", "clients that compete (100)"},
        {"steps", FLAG_WHOLE, &p.steps, NULL, 1, JITTER_STEPS_MAX, "N",
         "points of the curve up to that number (10)"},
        {"runs", FLAG_WHOLE, &p.runs, NULL, 1, (double)JITTER_RUNS_MAX, "N",
         "runs to take the mean of (100)"},
        {"base", FLAG_MILLIS, &p.base_ms, NULL, 0, DAY_S, "T", "base of the waits (5ms)"},
        {"cap", FLAG_MILLIS, &p.cap_ms, NULL, 0, DAY_S, "T", "longest wait (2000ms)"},
        {"delay", FLAG_MILLIS, &p.delay_mean_ms, NULL, 0, DAY_S, "T", "network, mean of one way (10ms)"},
        {"delay-deviation", FLAG_MILLIS, &p.delay_deviation_ms, NULL, 0, DAY_S, "T",
         "its standard deviation (2ms)"},
        {"seed", FLAG_WHOLE, &p.seed, NULL, 0, 0, "N", "seed, 64 bits (42)"},
        SVG_FLAG(common),
        COMMON_FLAGS(common),
    };
    int code = parse(argc, argv, flags);
    if (code)
        return code;
    if (common.help) {
        print_help("jitter", "Clients compete for one row; who waits how, and what it costs.", flags);
        return EXIT_FINE;
    }
    code = read_format(&common, &format);
    if (code)
        return code;
    if (jitter_check(&p, message))
        return refuse(message);
    struct jitter_result *r = calloc(1, sizeof *r);
    struct progress progress;
    progress_begin(&progress);
    enum status status = r ? jitter_run(&p, r, &progress) : STATUS_NO_MEMORY;
    progress_end(&progress);
    code = failed(status, p.seed);
    if (!code) {
        struct buffer result = {0}, svg = {0};
        (format == FORMAT_JSON  ? jitter_json
         : format == FORMAT_CSV ? jitter_csv
                                : jitter_text)(&result, &p, r);
        if (common.svg)
            jitter_svg(&svg, &p, r);
        code = deliver(&result, &svg, &common);
    }
    free(r);
    return code;
}

static int simulate_storm(int argc, char **argv)
{
    struct storm_parameters p;
    struct common common = {.format = "text"};
    const char *arrivals = "even";
    bool ascii = false;
    char message[NUMBER_MESSAGE_BYTES];
    enum format format = FORMAT_TEXT;
    storm_defaults(&p);
    const double rate_max = 100000;
    const struct flag flags[] = {
        {"rate", FLAG_REAL, &p.rate, NULL, 0.1, rate_max, "N", "calls a second (40)"},
        {"spike", FLAG_REAL, &p.spike_rate, NULL, 0.1, rate_max, "N", "calls a second in the spike (80)"},
        {"spike-start", FLAG_SECONDS, &p.spike_start_s, NULL, 0, STORM_SECONDS_MAX, "T",
         "when it begins (18s)"},
        {"spike-length", FLAG_SECONDS, &p.spike_length_s, NULL, 0, STORM_SECONDS_MAX, "T",
         "how long it lasts (5s)"},
        {"length", FLAG_SECONDS, &p.length_s, NULL, 1, STORM_SECONDS_MAX, "T",
         "time in which calls arrive (60s)"},
        {"capacity", FLAG_REAL, &p.capacity, NULL, 0.1, rate_max, "N",
         "requests the server does a second (49)"},
        {"timeout", FLAG_SECONDS, &p.timeout_s, NULL, 0.001, 3600, "T", "of an attempt (3s)"},
        {"tries", FLAG_COUNT, &p.tries, NULL, 1, STORM_TRIES_MAX, "N", "attempts of a call, at most (3)"},
        {"fixed-delay", FLAG_SECONDS, &p.fixed_delay_s, NULL, 0, 3600, "T", "wait of 'fixed' (0.5s)"},
        {"base", FLAG_SECONDS, &p.base_s, NULL, 0, 3600, "T", "first exponential wait (5s)"},
        {"cap", FLAG_SECONDS, &p.cap_s, NULL, 0, 3600, "T", "longest wait before jitter (30s)"},
        {"jitter", FLAG_RANGE, &p.jitter_low, &p.jitter_high, 0, 0, "LO:HI", "factor of a wait (0.5:1)"},
        {"budget", FLAG_COUNT, &p.budget_percent, NULL, 0, 1000, "N",
         "retries allowed per hundred calls (10)"},
        {"queue-limit", FLAG_WHOLE, &p.queue_limit, NULL, 1, 1e9, "N",
         "waiting requests before refusal (100)"},
        {"arrivals", FLAG_TEXT, &arrivals, NULL, 0, 0, "HOW", "even (default) or poisson"},
        {"layers", FLAG_COUNT, &p.layers, NULL, 1, STORM_LAYERS_MAX, "N",
         "services in a chain that each retry (3)"},
        {"layer-tries", FLAG_COUNT, &p.layer_tries, NULL, 1, STORM_TRIES_MAX, "N",
         "what each of them tries (4)"},
        {"seed", FLAG_WHOLE, &p.seed, NULL, 0, 0, "N", "seed, 64 bits (42)"},
        {"ascii", FLAG_SWITCH, &ascii, NULL, 0, 0, NULL, "plot with ASCII characters only"},
        SVG_FLAG(common),
        COMMON_FLAGS(common),
    };
    int code = parse(argc, argv, flags);
    if (code)
        return code;
    if (common.help) {
        print_help("storm", "A load spike passes: which retry policies recover, and which stay collapsed.",
                   flags);
        printf("\nstrategies:\n");
        for (int s = 0; s < STORM_STRATEGY_COUNT; s++)
            printf("  %-16s %s\n", storm_name((enum storm_strategy)s),
                   storm_sentence((enum storm_strategy)s));
        return EXIT_FINE;
    }
    code = read_format(&common, &format);
    if (code)
        return code;
    p.poisson = strcmp(arrivals, "poisson") == 0;
    if (!p.poisson && strcmp(arrivals, "even") != 0)
        return refuse("--arrivals must be even or poisson");
    if (storm_check(&p, message))
        return refuse(message);
    struct storm_run *runs = calloc(STORM_STRATEGY_COUNT, sizeof *runs);
    struct progress progress;
    progress_begin(&progress);
    enum status status = runs ? STATUS_OK : STATUS_NO_MEMORY;
    for (int s = 0; !status && s < STORM_STRATEGY_COUNT; s++) {
        progress_tell(&progress, (double)s / STORM_STRATEGY_COUNT);
        status = storm_run(&p, (enum storm_strategy)s, &runs[s]);
    }
    progress_end(&progress);
    code = failed(status, p.seed);
    if (!code) {
        struct buffer result = {0}, svg = {0};
        if (format == FORMAT_TEXT)
            storm_text(&result, &p, runs, ascii);
        else
            (format == FORMAT_JSON ? storm_json : storm_csv)(&result, &p, runs);
        if (common.svg)
            storm_svg(&svg, &p, runs);
        code = deliver(&result, &svg, &common);
    }
    free(runs);
    return code;
}

static int simulate_plan(int argc, char **argv)
{
    struct plan_parameters p;
    struct plan_result r;
    struct common common = {.format = "text"};
    char message[NUMBER_MESSAGE_BYTES];
    enum format format = FORMAT_TEXT;
    plan_defaults(&p);
    const double bytes_max = 1e12;
    uint64_t result_bytes = (uint64_t)p.result_bytes, row_bytes = (uint64_t)p.row_bytes,
             tombstone_bytes = (uint64_t)p.tombstone_bytes;
    const struct flag flags[] = {
        {"rate", FLAG_REAL, &p.rate, NULL, 0.001, 1e9, "N", "calls a second (100)"},
        {"fail", FLAG_REAL, &p.fail, NULL, 0, 1, "P", "chance that an attempt fails for certain (0.3)"},
        {"timeout", FLAG_REAL, &p.timeout, NULL, 0, 1, "P", "chance that an attempt ends unknown (0.1)"},
        {"attempts", FLAG_COUNT, &p.attempts, NULL, 1, PLAN_ATTEMPTS_MAX, "N",
         "attempts of a call, at most (4)"},
        {"life", FLAG_SECONDS, &p.life_s, NULL, 1, YEARS_S, "T", "of a receipt with its answer (7d)"},
        {"tombstone-life", FLAG_SECONDS, &p.tombstone_s, NULL, 1, YEARS_S, "T",
         "until a call is forgotten (30d)"},
        {"bytes", FLAG_WHOLE, &result_bytes, NULL, 0, bytes_max, "N", "of a kept answer (1024)"},
        {"row-bytes", FLAG_WHOLE, &row_bytes, NULL, 1, bytes_max, "N", "of a receipt with its indexes (700)"},
        {"tombstone-bytes", FLAG_WHOLE, &tombstone_bytes, NULL, 1, bytes_max, "N", "of a tombstone (120)"},
        {"latency", FLAG_SECONDS, &p.latency_s, NULL, 0, 3600, "T", "of an answered attempt (100ms)"},
        {"attempt-timeout", FLAG_SECONDS, &p.attempt_timeout_s, NULL, 0.001, DAY_S, "T", "(3s)"},
        {"receipt-timeout", FLAG_SECONDS, &p.receipt_timeout_s, NULL, 0.001, DAY_S, "T", "(1s)"},
        {"deadline", FLAG_SECONDS, &p.deadline_s, NULL, 0.001, DAY_S, "T", "of a call (30s)"},
        {"base", FLAG_SECONDS, &p.base_s, NULL, 0, DAY_S, "T", "first wait (0.5s)"},
        {"cap", FLAG_SECONDS, &p.cap_s, NULL, 0, DAY_S, "T", "longest wait before jitter (4s)"},
        {"jitter", FLAG_RANGE, &p.jitter_low, &p.jitter_high, 0, 0, "LO:HI", "factor of a wait (0.5:1)"},
        {"queries", FLAG_COUNT, &p.receipt_queries, NULL, 1, 1000, "N",
         "receipt queries after one attempt (5)"},
        {"query-miss", FLAG_REAL, &p.receipt_miss, NULL, 0, 1, "P",
         "chance that a query brings nothing (0.05)"},
        {"commit-group", FLAG_REAL, &p.commit_group, NULL, 1, 1e6, "N", "rows in one commit (32)"},
        {"disk-commits", FLAG_REAL, &p.disk_commits, NULL, 1, 1e9, "N",
         "commits a second one store can do (1000)"},
        {"shards", FLAG_COUNT, &p.shards, NULL, 1, 1e6, "N", "stores (as many as needed)"},
        COMMON_FLAGS(common),
    };
    int code = parse(argc, argv, flags);
    if (code)
        return code;
    if (common.help) {
        print_help("plan", "Capacity on paper: storage, commits, time and amplification of a policy.", flags);
        return EXIT_FINE;
    }
    code = read_format(&common, &format);
    if (code)
        return code;
    p.result_bytes = (double)result_bytes;
    p.row_bytes = (double)row_bytes;
    p.tombstone_bytes = (double)tombstone_bytes;
    if (plan_check(&p, message))
        return refuse(message);
    plan_make(&p, &r);
    struct buffer result = {0}, svg = {0};
    (format == FORMAT_JSON ? plan_json : format == FORMAT_CSV ? plan_csv : plan_text)(&result, &p, &r);
    return deliver(&result, &svg, &common);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What broke, how to see it again, and the smallest that still breaks. */
static int tell_broken(struct world_parameters p, struct world_result *result, bool minimise)
{
    struct buffer text = {0};
    if (minimise) {
        unsigned runs = world_minimise(&p, result);
        fprintf(stderr, "samekey simulate: made smaller in %u runs\n", runs);
    }
    enum status status = world_run(&p, &text, result);
    if (status)
        return failed(status, p.seed);
    buffer_format(&text, "BROKEN seed %llu: %s\nagain: samekey simulate world --seed %llu --steps %llu",
                  (unsigned long long)p.seed, result->what, (unsigned long long)p.seed,
                  (unsigned long long)p.steps);
    if (p.callers)
        buffer_format(&text, " --callers %u", p.callers);
    if (p.faults != WORLD_ALL_FAULTS) {
        buffer_text(&text, " --without ");
        for (int i = 0, first = 1; i < WORLD_FAULTS; i++)
            if (!(p.faults & 1u << i)) {
                buffer_format(&text, "%s%s", first ? "" : ",", world_fault_text((enum world_fault)i));
                first = 0;
            }
    }
    if (p.bug)
        buffer_format(&text, " --bug %s", world_bug_text(p.bug));
    buffer_text(&text, "\n");
    int code = write_out(&text, NULL);
    buffer_fini(&text);
    return code ? code : EXIT_INVARIANT;
}

static int simulate_world(int argc, char **argv)
{
    struct world_parameters p;
    struct world_result r;
    struct common common = {.format = "text"};
    const char *without = NULL, *bug = NULL;
    uint64_t seeds = 0;
    double for_s = 0;
    bool minimise = false, transcript = false;
    enum format format = FORMAT_TEXT;
    world_defaults(&p);
    const struct flag flags[] = {
        {"seed", FLAG_WHOLE, &p.seed, NULL, 0, 0, "N", "the first seed, 64 bits (42)"},
        {"steps", FLAG_WHOLE, &p.steps, NULL, 1, WORLD_STEPS_MAX, "N",
         "events before the faults stop (5000)"},
        {"seeds", FLAG_WHOLE, &seeds, NULL, 1, 1e12, "N", "worlds, one seed after the other (1)"},
        {"for", FLAG_SECONDS, &for_s, NULL, 0, DAY_S, "T", "as many seeds as fit into this time"},
        {"transcript", FLAG_SWITCH, &transcript, NULL, 0, 0, NULL,
         "print every event, also of a seed that holds"},
        {"minimise", FLAG_SWITCH, &minimise, NULL, 0, 0, NULL, "look for less that still breaks"},
        {"without", FLAG_TEXT, &without, NULL, 0, 0, "LIST", "faults that do not happen"},
        {"callers", FLAG_COUNT, &p.callers, NULL, 1, 1000, "N", "callers, at most (as the seed says)"},
        {"bug", FLAG_TEXT, &bug, NULL, 0, 0, "NAME", "a mistake to make (a build with SAMEKEY_PLANTED_BUGS)"},
        COMMON_FLAGS(common),
    };
    int code = parse(argc, argv, flags);
    if (code)
        return code;
    if (common.help) {
        print_help(
            "world",
            "Callers, gateway, network, callee and disk in virtual time; the real core and the real store.",
            flags);
        printf("\nfaults:\n");
        for (int i = 0; i < WORLD_FAULTS; i++)
            printf("  %-10s %s\n", world_fault_text((enum world_fault)i),
                   world_fault_sentence((enum world_fault)i));
        return EXIT_FINE;
    }
    code = read_format(&common, &format);
    if (code)
        return code;
    unsigned off = 0;
    if (without && world_faults_parse(without, &off))
        return refuse("--without names a fault that is none; --help lists them");
    p.faults &= ~off;
    if (bug && world_bug_parse(bug, &p.bug))
        return refuse("--bug needs a build with SAMEKEY_PLANTED_BUGS, and a mistake that it knows");
    if (format == FORMAT_CSV)
        return refuse("world has no table: --format text or json");
    if (!seeds)
        seeds = for_s > 0 ? UINT64_MAX : 1;
    struct progress progress;
    struct buffer text = {0};
    progress_begin(&progress);
    double start = seconds_now(), took = 0;
    uint64_t done = 0, steps = 0, attempts = 0, effects = 0, crashes = 0, commits = 0, first = p.seed;
    for (; done < seeds && (for_s <= 0 || took < for_s); done++) {
        struct world_parameters one = p;
        one.seed = first + done;
        enum status status = world_run(&one, transcript ? &text : NULL, &r);
        if (status || r.broken) {
            progress_end(&progress);
            buffer_fini(&text);
            return status ? failed(status, one.seed) : tell_broken(one, &r, minimise);
        }
        steps += r.steps, attempts += r.attempts, effects += r.effects, crashes += r.crashes,
            commits += r.commits;
        took = seconds_now() - start;
        progress_tell(&progress, for_s > 0 ? took / for_s : (double)(done + 1) / (double)seeds);
    }
    progress_end(&progress);
    if (format == FORMAT_JSON)
        buffer_format(
            &text,
            "{\"first_seed\": %llu, \"seeds\": %llu, \"steps\": %llu, \"attempts\": %llu, \"effects\": %llu,"
            " \"crashes\": %llu, \"commits\": %llu, \"broken\": false}\n",
            (unsigned long long)first, (unsigned long long)done, (unsigned long long)steps,
            (unsigned long long)attempts, (unsigned long long)effects, (unsigned long long)crashes,
            (unsigned long long)commits);
    else
        buffer_format(&text,
                      "%llu seeds from %llu hold: %llu steps, %llu attempts, %llu effects, %llu crashes, "
                      "%llu commits\n",
                      (unsigned long long)done, (unsigned long long)first, (unsigned long long)steps,
                      (unsigned long long)attempts, (unsigned long long)effects, (unsigned long long)crashes,
                      (unsigned long long)commits);
    fprintf(stderr, "samekey simulate: %.1f seeds a second, %.0f steps a second\n", (double)done / took,
            (double)steps / took);
    code = write_out(&text, NULL);
    buffer_fini(&text);
    return code;
}

static const struct {
    const char *name, *sentence;
    int (*run)(int argc, char **argv);
} EXPERIMENTS[] = {
    {"article", "calls that fail by lot, one row per way of retrying", simulate_article},
    {"jitter", "clients that compete for one row", simulate_jitter},
    {"storm", "a load spike, and who recovers from it", simulate_storm},
    {"plan", "capacity on paper", simulate_plan},
    {"world", "callers, gateway, network, callee and disk that fail: what must never be", simulate_world},
};

static void print_experiments(FILE *to)
{
    fprintf(to, "usage: samekey simulate EXPERIMENT [FLAGS]   (--help tells an experiment's flags)\n\n");
    for (size_t i = 0; i < sizeof EXPERIMENTS / sizeof EXPERIMENTS[0]; i++)
        fprintf(to, "  %-10s %s\n", EXPERIMENTS[i].name, EXPERIMENTS[i].sentence);
}

int command_simulate(int argc, char **argv)
{
    if (argc < 2) {
        print_experiments(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_experiments(stdout);
        return EXIT_FINE;
    }
    for (size_t i = 0; i < sizeof EXPERIMENTS / sizeof EXPERIMENTS[0]; i++)
        if (strcmp(argv[1], EXPERIMENTS[i].name) == 0)
            return EXPERIMENTS[i].run(argc - 1, argv + 1);
    fprintf(stderr, "samekey simulate: '%.40s' is not an experiment\n", argv[1]);
    print_experiments(stderr);
    return EXIT_USAGE;
}
