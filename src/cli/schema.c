/* SPDX-License-Identifier: MIT
 *
 * samekey schema: prints the guard's SQL, for psql, sqlite3 or a service's own migrations.
 */
#include "cli/command.h"

#include "guard/schema.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_FINE = 0, EXIT_USAGE = 64 };

static void print_help(FILE *to)
{
    fputs("usage: samekey schema postgres|sqlite\n\n"
          "Prints the tables and functions of the guard: receipts inside a service's own transaction.\n"
          "Installing them again changes nothing.\n\n"
          "  samekey schema postgres | psql -1 -v ON_ERROR_STOP=1 DATABASE\n"
          "  samekey schema sqlite | sqlite3 -bail FILE\n\n"
          "Exit: 0; 64 usage.\n",
          to);
}

int command_schema(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'h') {
            print_help(stdout);
            return EXIT_FINE;
        }
        fputs("`samekey help schema` tells its flags.\n", stderr);
        return EXIT_USAGE;
    }
    const char *which = argc - optind == 1 ? argv[optind] : "";
    if (strcmp(which, "postgres") == 0) {
        fputs(guard_schema_postgres, stdout);
    } else if (strcmp(which, "sqlite") == 0) {
        fputs(guard_schema_sqlite, stdout);
    } else {
        fputs("samekey schema: say which database: postgres or sqlite\n", stderr);
        return EXIT_USAGE;
    }
    return EXIT_FINE;
}
