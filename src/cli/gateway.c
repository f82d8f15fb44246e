/* SPDX-License-Identifier: MIT
 *
 * samekey gateway: flags into settings, then the gateway itself. Everything that flags can say, the file can say too.
 */
#include "cli/command.h"

#include "gateway/conf.h"
#if __has_include("gateway/gateway.h")
#include "gateway/gateway.h"
#define GATEWAY_RUNS 1
#else
#define GATEWAY_RUNS 0
#endif

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_FINE = 0, EXIT_USAGE = 64, EXIT_UNAVAILABLE = 69, EXIT_MEMORY = 71, EXIT_CONFIGURATION = 78 };

/* Flags that set something at most. */
enum { FLAGS_MAX = 256 };

/* Values of long options without a letter. */
enum { OPTION_SETTING = 1000, OPTION_SET, OPTION_PRINT, OPTION_CHECK, OPTION_DOCUMENT, OPTION_RESTORED };

/* Flags that are settings under their own names: the ones a first start needs. */
static const struct {
    const char *name, *argument, *sentence;
} SETTINGS[] = {
    {"upstream", "URL", "the service behind the gateway; may be repeated"},
    {"listen", "ADDRESS", "where callers connect (0.0.0.0:8080); may be repeated"},
    {"admin", "ADDRESS", "the admin listener (127.0.0.1:8081)"},
    {"store", "STORE", "where receipts are kept: sqlite:PATH"},
    {"tenant", "TEMPLATE", "who a request belongs to: {header.X-Tenant}"},
    {"credential", "TEMPLATE", "the stable principal behind a request: {header.X-User}"},
    {"receipt", "SOURCE", "how the service is asked: http GET /receipts/{call_id}, samekey, none"},
};
enum { SETTING_FLAGS = sizeof(SETTINGS) / sizeof(SETTINGS[0]) };

static void print_help(FILE *to)
{
    fputs("usage: samekey gateway -c FILE [FLAGS]\n"
          "       samekey gateway --upstream URL [FLAGS]\n\n"
          "Stands in front of an HTTP service: every write with a callId and a key runs once, has a receipt, "
          "and is\n"
          "answered again from that receipt when it is repeated.\n\n"
          "  -c, --config FILE       the configuration\n",
          to);
    for (size_t i = 0; i < SETTING_FLAGS; i++)
        fprintf(to, "  --%-8s %-11s  %s\n", SETTINGS[i].name, SETTINGS[i].argument, SETTINGS[i].sentence);
    fputs("  --set NAME=VALUE        any setting; ROUTE.NAME=VALUE for one route; wins over the file\n"
          "  --restored              the store's file comes from a backup: calls made before now may be "
          "missing in it\n"
          "  --check                 read everything, start nothing\n"
          "  --print-config          print every setting in force and where it came from, start nothing\n"
          "  --print-settings-doc    print the page of all settings\n\n"
          "Without a file there is one route: `default`, path /{*}, key_missing = pass.\n"
          "Exit: 0; 64 usage; 69 store or address unavailable; 78 bad configuration.\n",
          to);
}

static int print_document(void)
{
    struct buffer page = {0};
    settings_document(&page);
    int code = page.failed ? EXIT_MEMORY : EXIT_FINE;
    fwrite(page.data, 1, page.len, stdout);
    buffer_fini(&page);
    return code;
}

/* What was asked for besides the settings. */
struct wishes {
    const char *file;
    bool print, check, document, help, restored;
};

/* Reads argv. Returns 0, or the exit code. NAME of --set is cut off its argument, in argv. */
static int read_flags(int argc, char **argv, struct wishes *wishes, struct conf_flag *flags, size_t *count)
{
    struct option options[SETTING_FLAGS + 9] = {{"config", required_argument, NULL, 'c'},
                                                {"set", required_argument, NULL, OPTION_SET},
                                                {"print-config", no_argument, NULL, OPTION_PRINT},
                                                {"check", no_argument, NULL, OPTION_CHECK},
                                                {"print-settings-doc", no_argument, NULL, OPTION_DOCUMENT},
                                                {"restored", no_argument, NULL, OPTION_RESTORED},
                                                {"help", no_argument, NULL, 'h'}};
    static char names[SETTING_FLAGS][24];
    for (size_t i = 0; i < SETTING_FLAGS; i++) {
        options[7 + i] = (struct option){SETTINGS[i].name, required_argument, NULL, OPTION_SETTING};
        snprintf(names[i], sizeof(names[i]), "--%s", SETTINGS[i].name);
    }
    optind = 1;
    for (int c, which = 0; (c = getopt_long(argc, argv, "c:h", options, &which)) != -1;) {
        char *sign;
        if ((c == OPTION_SETTING || c == OPTION_SET) && *count == FLAGS_MAX) {
            fprintf(stderr, "samekey gateway: more than %d settings as flags; put them into a file\n",
                    FLAGS_MAX);
            return EXIT_USAGE;
        }
        switch (c) {
        case 'c':
            if (wishes->file) {
                fputs("samekey gateway: -c is given twice; there is one configuration\n", stderr);
                return EXIT_USAGE;
            }
            wishes->file = optarg;
            break;
        case OPTION_SETTING:
            flags[(*count)++] = (struct conf_flag){options[which].name, optarg, names[which - 7]};
            break;
        case OPTION_SET:
            sign = strchr(optarg, '=');
            if (!sign || sign == optarg) {
                fprintf(stderr, "samekey gateway: --set takes NAME=VALUE, not '%.60s'\n", optarg);
                return EXIT_USAGE;
            }
            *sign = '\0';
            flags[(*count)++] = (struct conf_flag){optarg, sign + 1, "--set"};
            break;
        case OPTION_RESTORED:
            wishes->restored = true;
            break;
        case OPTION_PRINT:
            wishes->print = true;
            break;
        case OPTION_CHECK:
            wishes->check = true;
            break;
        case OPTION_DOCUMENT:
            wishes->document = true;
            break;
        case 'h':
            wishes->help = true;
            break;
        default:
            fputs("`samekey help gateway` tells its flags; other settings are given with --set NAME=VALUE.\n",
                  stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "samekey gateway: '%.60s' is one argument too many; the file is given with -c\n",
                argv[optind]);
        return EXIT_USAGE;
    }
    return 0;
}

int command_gateway(int argc, char **argv)
{
    struct wishes wishes = {0};
    struct conf_flag items[FLAGS_MAX];
    size_t count = 0;
    int code = read_flags(argc, argv, &wishes, items, &count);
    if (code)
        return code;
    if (wishes.help) {
        print_help(stdout);
        return EXIT_FINE;
    }
    if (wishes.document)
        return print_document();
    if (!wishes.file && count == 0) {
        fputs("samekey gateway: give a configuration with -c FILE, or a service with --upstream URL\n",
              stderr);
        return EXIT_USAGE;
    }

    const struct conf_flags flags = {items, count};
    struct settings *settings = NULL;
    struct buffer said = {0};
    enum status status = conf_load(&settings, wishes.file, &flags, &said);
    if (said.len)
        fwrite(said.data, 1, said.len, stderr);
    buffer_fini(&said);
    if (status == STATUS_NO_MEMORY) {
        fputs("samekey gateway: no memory\n", stderr);
        return EXIT_MEMORY;
    }
    if (status != STATUS_OK)
        return EXIT_CONFIGURATION;

    if (wishes.print) {
        struct buffer text = {0};
        settings_print(&text, settings);
        fwrite(text.data, 1, text.len, stdout);
        code = text.failed ? EXIT_MEMORY : EXIT_FINE;
        buffer_fini(&text);
    } else if (wishes.check) {
        fprintf(stderr, "samekey gateway: the configuration is good; %zu route%s\n", settings->route_count,
                settings->route_count == 1 ? "" : "s");
    } else {
#if GATEWAY_RUNS
        code = gateway_main(settings, wishes.file, &flags, wishes.restored);
        settings = NULL; /* taken over */
#else
        fputs("samekey gateway: this build has no gateway in it\n", stderr);
        code = EXIT_UNAVAILABLE;
#endif
    }
    conf_free(settings);
    return code;
}
