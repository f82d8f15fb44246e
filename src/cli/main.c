/* SPDX-License-Identifier: MIT
 *
 * samekey: one program, its commands in one table. Here only the command is chosen; each explains itself.
 */
#include "cli/command.h"

#include "core/settings.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_FINE = 0, EXIT_USAGE = 64, EXIT_OUTPUT = 74 };

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *sentence;
} COMMANDS[] = {
#define COMMAND(name, function, sentence) {name, function, sentence},
#include "cli/command.def"
#undef COMMAND
};

enum { COMMAND_COUNT = sizeof(COMMANDS) / sizeof(COMMANDS[0]) };

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
    return NULL;
}

static void print_help(FILE *to)
{
    fputs("samekey makes remote calls safe to retry: a call runs once, and has a receipt.\n\n"
          "usage: samekey COMMAND [...]\n"
          "       samekey help COMMAND\n"
          "       samekey --version\n\n",
          to);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-13s %s\n", COMMANDS[i].name, COMMANDS[i].sentence);
}

static int unknown(const char *name)
{
    const char *names[COMMAND_COUNT];
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = COMMANDS[i].name;
    const char *nearest = settings_nearest(slice_text(name), names, COMMAND_COUNT);
    fprintf(stderr, "samekey: there is no command '%.60s'", name);
    if (nearest)
        fprintf(stderr, "; did you mean '%s'?", nearest);
    fputs("\n`samekey help` lists all commands.\n", stderr);
    return EXIT_USAGE;
}

/* What was printed counts only when it arrived: a full disk must not look like an answer. */
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    perror("samekey: the result cannot be written");
    return EXIT_OUTPUT;
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stdout);
        return EXIT_FINE;
    }
    const struct command *command = find(argv[1]);
    char flag[] = "--help";
    char *arguments[] = {argv[1], flag, NULL};
    return command ? command->run(2, arguments) : unknown(argv[1]);
}

int main(int argc, char **argv)
{
    /* A reader that went away is an error of the write, told where it happens. */
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("samekey " SAMEKEY_VERSION);
        return finish(EXIT_FINE);
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return finish(help(argc - 1, argv + 1));
    const struct command *command = find(argv[1]);
    return command ? finish(command->run(argc - 1, argv + 1)) : unknown(argv[1]);
}
