/* SPDX-License-Identifier: MIT
 *
 * samekey id: callIds for callers that have no library of ours. They never come twice (core/id.h says why).
 */
#include "cli/command.h"

#include "base/buffer.h"
#include "gateway/node.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EXIT_FINE = 0, EXIT_USAGE = 64, EXIT_SYSTEM = 71, EXIT_OUTPUT = 74 };

/* callIds of one command at most; whoever needs more calls it again. */
#define COUNT_MAX 100000000L

static void print_help(FILE *to)
{
    fputs("usage: samekey id [-n N] [--prefix P] [--node X]\n\n"
          "Prints new callIds, one a line: PREFIX-MILLISECONDS-12HEX-NODE. Make one for each call you "
          "intend, keep it,\n"
          "and send it with every retry of that call.\n\n"
          "  -n N          how many (1)\n"
          "  --prefix P    first part, such as ord (call)\n"
          "  --node X      last part (this host's name)\n\n"
          "Exit: 0; 64 usage.\n",
          to);
}

int command_id(int argc, char **argv)
{
    static const struct option options[] = {{"count", required_argument, NULL, 'n'},
                                            {"prefix", required_argument, NULL, 'p'},
                                            {"node", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *prefix = "call", *node = "";
    long count = 1;
    char *end;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "n:h", options, NULL)) != -1;) {
        switch (c) {
        case 'n':
            errno = 0;
            count = strtol(optarg, &end, 10);
            if (errno || *end || end == optarg || count < 1 || count > COUNT_MAX) {
                fprintf(stderr, "samekey id: -n takes a number from 1 to %ld\n", COUNT_MAX);
                return EXIT_USAGE;
            }
            break;
        case 'p':
            prefix = optarg;
            break;
        case 'o':
            node = optarg;
            break;
        case 'h':
            print_help(stdout);
            return EXIT_FINE;
        default:
            fputs("`samekey help id` tells its flags.\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "samekey id: '%.60s' is one argument too many\n", argv[optind]);
        return EXIT_USAGE;
    }
    struct callid_maker maker;
    enum status status = node_callid_maker(&maker, slice_text(prefix), slice_text(node));
    if (status == STATUS_IO) {
        fputs("samekey id: the system gave no random bytes\n", stderr);
        return EXIT_SYSTEM;
    }
    if (status != STATUS_OK) {
        fprintf(stderr,
                "samekey id: prefix and node are made of letters, digits, `.`, `_`, `:` and `-`, have %d "
                "bytes together "
                "at most, and the prefix does not look like a callId itself\n",
                CALLID_NAMES_BYTES_MAX);
        return EXIT_USAGE;
    }
    for (long i = 0; i < count; i++) {
        char id[CALLID_BYTES_MAX + 2];
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        size_t n = callid_make(&maker, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, id);
        id[n] = '\n';
        if (fwrite(id, 1, n + 1, stdout) != n + 1) {
            perror("samekey id");
            return EXIT_OUTPUT;
        }
    }
    return EXIT_FINE;
}
