/* SPDX-License-Identifier: MIT
 *
 * samekey compensations list|show|resolve|run: the follow-up of calls whose ending is not clear, over the gateway's admin
 * address. A task is settled by hand only with who says so and on what evidence; many are settled only after a dry run has
 * named them.
 */
#include "cli/command.h"

#include "base/json_text.h"
#include "cli/desk.h"

#include <curl/curl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_FINE = 0, EXIT_REFUSED = 1, EXIT_USAGE = 64 };

#define PAGE_ITEMS  "200"
#define ITEMS_SHOWN 50
#define PAGES_MAX   100000 /* so that a gateway that answers nonsense ends somewhere */

enum verb { VERB_LIST, VERB_SHOW, VERB_RESOLVE, VERB_RUN };

struct wishes {
    struct desk desk;
    enum verb verb;
    const char *id;
    const char *status, *route, *tenant, *since, *until;
    const char *outcome, *evidence, *operator, * set;
    size_t limit;
    bool all, yes, json, help;
};

static void print_help(FILE *to)
{
    fputs(
        "usage: samekey compensations list [--status S] [--route R] [--tenant T] [--since T] [--until T]\n"
        "                                  [--limit N | --all] [FLAGS]\n"
        "       samekey compensations show ID [FLAGS]\n"
        "       samekey compensations run ID --operator NAME [FLAGS]\n"
        "       samekey compensations resolve ID --outcome SUCCESS|FAILED --evidence TEXT --operator NAME "
        "[FLAGS]\n"
        "       samekey compensations resolve [--status S] [--route R] [--tenant T] [--since T] [--until T]\n"
        "                                  --outcome SUCCESS|FAILED --evidence TEXT --operator NAME [--set S "
        "--yes] "
        "[FLAGS]\n\n"
        "The follow-up of calls whose ending is not clear, asked of the gateway's admin address.\n\n"
        "  list                  the tasks, newest first\n"
        "  show ID               one task with its rounds, and what people changed\n"
        "  run ID                its next round is due now; a MANUAL one gets one round more\n"
        "  resolve ID            settles it by hand: the call ends so, for good, and the evidence is kept\n"
        "  resolve without ID    shows all that the filter names and changes nothing; once more with the "
        "--set it\n"
        "                        printed and --yes it settles exactly these\n\n"
        "  --status S            PENDING, RUNNING, RESOLVED, REVERSED, MANUAL or CLOSED (resolve: MANUAL, or "
        "PENDING)\n"
        "  --route R, --tenant T of the call\n"
        "  --since T, --until T  made at or after, before, such as 2026-03-01T12:00:00Z\n"
        "  --limit N, --all      how many to list (50)\n"
        "  --outcome O           SUCCESS or FAILED\n"
        "  --evidence TEXT       why it is known, such as 'ledger of 1 March, line 17'\n"
        "  --operator NAME       who says so\n"
        "  --at ADDRESS          the admin address: HOST:PORT, a URL or unix:/PATH (" DESK_DEFAULT ")\n"
        "  -c FILE               take address and token file from the gateway's configuration\n"
        "  --token-file FILE     file whose first line is the token (or " DESK_TOKEN_ENV ")\n"
        "  --format text|json    for people (text) or the documents as they came (json)\n\n"
        "Exit: 0 done; 1 refused, not found, not all settled, or nobody answered; 64 usage.\n",
        to);
}

static int usage(const char *message)
{
    fprintf(stderr, "samekey compensations: %s\n`samekey help compensations` tells its flags.\n", message);
    return EXIT_USAGE;
}

static int failed(struct wishes *w)
{
    fprintf(stderr, "samekey compensations: %s\n", buffer_cstring(&w->desk.why));
    return EXIT_REFUSED;
}

/* ---- flags -------------------------------------------------------------------------------------------------- */

static bool take_flag(struct wishes *w, int c, const char **problem)
{
    char *end;
    unsigned long n;
    switch (c) {
    case 'a':
        w->desk.at = optarg;
        return true;
    case 'c':
        w->desk.conf = optarg;
        return true;
    case 'k':
        w->desk.token_file = optarg;
        return true;
    case 's':
        w->status = optarg;
        return true;
    case 'r':
        w->route = optarg;
        return true;
    case 't':
        w->tenant = optarg;
        return true;
    case 'S':
        w->since = optarg;
        return true;
    case 'U':
        w->until = optarg;
        return true;
    case 'n':
        n = strtoul(optarg, &end, 10);
        *problem = *end || n < 1 || n > 1000000 ? "--limit takes a number from 1 to 1000000" : NULL;
        w->limit = n;
        return !*problem;
    case 'A':
        w->all = true;
        return true;
    case 'o':
        w->outcome = optarg;
        *problem = strcmp(optarg, "SUCCESS") != 0 && strcmp(optarg, "FAILED") != 0
                       ? "--outcome is SUCCESS or FAILED"
                       : NULL;
        return !*problem;
    case 'e':
        w->evidence = optarg;
        return true;
    case 'O':
        w->operator= optarg;
        return true;
    case 'T':
        w->set = optarg;
        return true;
    case 'y':
        w->yes = true;
        return true;
    case 'f':
        w->json = strcmp(optarg, "json") == 0;
        *problem = !w->json && strcmp(optarg, "text") != 0 ? "--format is text or json" : NULL;
        return !*problem;
    case 'h':
        w->help = true;
        return true;
    default:
        *problem = "what was given is not one of its flags";
        return false;
    }
}

/* What each verb needs and must not have; NULL: fine. */
static const char *check_wishes(const struct wishes *w)
{
    bool filter = w->status || w->route || w->tenant || w->since || w->until;
    if ((w->verb == VERB_SHOW || w->verb == VERB_RUN) && !w->id)
        return "which task? Give its number, as list shows it";
    if (w->verb == VERB_LIST && w->id)
        return "list takes no number; show does";
    if (w->verb == VERB_RUN && !w->operator)
        return "who asks for it? Give --operator NAME";
    if (w->verb != VERB_RESOLVE)
        return w->outcome || w->evidence || w->yes || w->set
                   ? "--outcome, --evidence, --set and --yes belong to resolve"
                   : NULL;
    if (!w->outcome || !w->evidence || !w->operator)
        return "a verdict needs --outcome, --evidence and --operator";
    if (!w->id && !filter)
        return "which tasks? Give one number, or a filter: --status, --route, --tenant, --since, --until";
    if (w->id && (filter || w->set || w->yes))
        return "a number and a filter do not go together";
    return w->yes && !w->set ? "--yes needs the --set that the dry run printed" : NULL;
}

static int read_flags(struct wishes *w, int argc, char **argv)
{
    static const struct option options[] = {{"at", required_argument, NULL, 'a'},
                                            {"token-file", required_argument, NULL, 'k'},
                                            {"status", required_argument, NULL, 's'},
                                            {"route", required_argument, NULL, 'r'},
                                            {"tenant", required_argument, NULL, 't'},
                                            {"since", required_argument, NULL, 'S'},
                                            {"until", required_argument, NULL, 'U'},
                                            {"limit", required_argument, NULL, 'n'},
                                            {"all", no_argument, NULL, 'A'},
                                            {"outcome", required_argument, NULL, 'o'},
                                            {"evidence", required_argument, NULL, 'e'},
                                            {"operator", required_argument, NULL, 'O'},
                                            {"set", required_argument, NULL, 'T'},
                                            {"yes", no_argument, NULL, 'y'},
                                            {"format", required_argument, NULL, 'f'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    static const char *const verbs[] = {"list", "show", "resolve", "run"};
    const char *problem = NULL;
    w->limit = ITEMS_SHOWN;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "c:h", options, NULL)) != -1;)
        if (!take_flag(w, c, &problem))
            return usage(problem);
    if (w->help)
        return EXIT_FINE;
    const char *verb = optind < argc ? argv[optind++] : "list";
    size_t i = 0;
    while (i < 4 && strcmp(verb, verbs[i]) != 0)
        i++;
    if (i == 4)
        return usage("it does list, show, resolve or run");
    w->verb = (enum verb)i;
    if (optind < argc)
        w->id = argv[optind++];
    if (optind < argc)
        return usage("one task at a time");
    if (w->id && strspn(w->id, "0123456789") != strlen(w->id))
        return usage("a task is named by its number, as list shows it");
    problem = check_wishes(w);
    return problem ? usage(problem) : EXIT_FINE;
}

/* ---- printing ----------------------------------------------------------------------------------------------- */

static void print_line(const char *label, const char *text)
{
    if (!*text)
        return;
    printf("  %-12s ", label);
    desk_print(text);
    putchar('\n');
}

static void print_json(json_t *document)
{
    char *text = json_dumps(document, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (text)
        puts(text);
    free(text);
}

static void print_item(const json_t *item)
{
    const json_t *rounds = json_object_get(item, "rounds");
    char progress[48];
    if (json_is_integer(rounds))
        snprintf(progress, sizeof progress, "%lld/%lld",
                 (long long)json_integer_value(json_object_get(item, "round")),
                 (long long)json_integer_value(rounds));
    else
        snprintf(progress, sizeof progress, "%lld",
                 (long long)json_integer_value(json_object_get(item, "round")));
    printf("%-6s %-9s %-6s %.19s  ", desk_text(item, "id"), desk_text(item, "status"), progress,
           desk_text(item, "created_at"));
    desk_print(desk_text(item, "route"));
    printf("  ");
    desk_print(desk_text(item, "call_id"));
    if (*desk_text(item, "key")) {
        printf("  key ");
        desk_print(desk_text(item, "key"));
    }
    if (*desk_text(item, "last_answer")) {
        printf("  last answer ");
        desk_print(desk_text(item, "last_answer"));
    }
    putchar('\n');
}

static void print_items(const json_t *items)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)items, i, item) print_item(item);
}

static void print_task(const json_t *task)
{
    size_t i;
    json_t *each;
    printf("task %s: %s\n", desk_text(task, "id"), desk_text(task, "status"));
    print_line("", desk_text(task, "status_sentence"));
    print_line("call", desk_text(task, "call_id"));
    print_line("state", desk_text(task, "call_state"));
    print_line("tenant", desk_text(task, "tenant"));
    print_line("route", desk_text(task, "route"));
    print_line("key", desk_text(task, "key"));
    print_line("business ref", desk_text(task, "business_ref"));
    print_line("trace", desk_text(task, "trace_id"));
    print_line("made", desk_text(task, "created_at"));
    print_line("next round", desk_text(task, "due_at"));
    print_line("reversal", desk_text(task, "reversal_call_id"));
    json_array_foreach(json_object_get(task, "history"), i, each)
    {
        printf("  round %-6lld %.19s  ", (long long)json_integer_value(json_object_get(each, "round")),
               desk_text(each, "at"));
        desk_print(desk_text(each, "action"));
        printf(": ");
        desk_print(desk_text(each, "answer"));
        if (*desk_text(each, "decision")) {
            printf(" -> ");
            desk_print(desk_text(each, "decision"));
        }
        if (*desk_text(each, "detail")) {
            printf(" (");
            desk_print(desk_text(each, "detail"));
            putchar(')');
        }
        putchar('\n');
    }
    json_array_foreach(json_object_get(task, "audit"), i, each)
    {
        printf("  %-12s %.19s  ", desk_text(each, "action"), desk_text(each, "at"));
        desk_print(desk_text(each, "outcome"));
        printf(" by ");
        desk_print(desk_text(each, "operator"));
        if (*desk_text(each, "evidence")) {
            printf(": ");
            desk_print(desk_text(each, "evidence"));
        }
        putchar('\n');
    }
}

/* ---- what it does ------------------------------------------------------------------------------------------- */

static int list(struct wishes *w)
{
    json_t *items = json_array();
    const char *cursor = NULL;
    char kept[32];
    int code = EXIT_FINE;
    for (int pages = 0; code == EXIT_FINE && pages < PAGES_MAX; pages++) {
        struct buffer path = {0};
        struct desk_answer answer;
        buffer_text(&path, "/v1/compensations");
        desk_query(&path, "status", w->status);
        desk_query(&path, "route", w->route);
        desk_query(&path, "tenant", w->tenant);
        desk_query(&path, "since", w->since);
        desk_query(&path, "until", w->until);
        desk_query(&path, "limit", PAGE_ITEMS);
        desk_query(&path, "cursor", cursor);
        if (!desk_ask(&w->desk, buffer_cstring(&path), NULL, &answer)) {
            code = failed(w);
        } else {
            json_array_extend(items, json_object_get(answer.document, "items"));
            snprintf(kept, sizeof kept, "%s", desk_text(answer.document, "next_cursor"));
            cursor = *kept ? kept : NULL;
        }
        json_decref(answer.document);
        buffer_fini(&path);
        if (!cursor || (!w->all && json_array_size(items) >= w->limit))
            break;
    }
    size_t cut = w->all ? 0 : json_array_size(items);
    while (cut > w->limit)
        json_array_remove(items, --cut);
    if (code == EXIT_FINE && w->json) {
        json_t *document = json_pack("{s:O}", "items", items);
        print_json(document);
        json_decref(document);
    } else if (code == EXIT_FINE) {
        print_items(items);
        if (!json_array_size(items))
            fputs("There is no such task.\n", stderr);
    }
    json_decref(items);
    return code;
}

/* Asks one question and prints the task it answers. */
static int one(struct wishes *w, const char *path, json_t *body)
{
    struct desk_answer answer;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    int code = desk_ask(&w->desk, path, text, &answer) ? EXIT_FINE : failed(w);
    if (w->json && answer.document)
        print_json(answer.document);
    else if (code == EXIT_FINE)
        print_task(answer.document);
    json_decref(answer.document);
    json_decref(body);
    free(text);
    return code;
}

static json_t *verdict(const struct wishes *w)
{
    return json_pack("{s:s, s:s, s:s}", "outcome", w->outcome, "evidence", w->evidence, "operator",
                     w->operator);
}

static void set_text(json_t *object, const char *name, const char *text)
{
    if (text)
        json_object_set_new(object, name, json_string(text));
}

static void tell_bulk(const struct wishes *w, const json_t *document)
{
    size_t i;
    json_t *each;
    long long count = json_integer_value(json_object_get(document, "count"));
    const json_t *items = json_object_get(document, w->yes ? "problems" : "items");
    if (w->yes) {
        printf("%lld of %lld settled as %s, %lld were settled or at work already, %lld failed.\n",
               (long long)json_integer_value(json_object_get(document, "resolved")), count, w->outcome,
               (long long)json_integer_value(json_object_get(document, "skipped")),
               (long long)json_integer_value(json_object_get(document, "failed")));
        json_array_foreach((json_t *)items, i, each)
        {
            printf("  %s ", desk_text(each, "id"));
            desk_print(desk_text(each, "call_id"));
            printf(": ");
            desk_print(desk_text(each, "detail"));
            putchar('\n');
        }
        return;
    }
    print_items(items);
    if (count > (long long)json_array_size(items))
        printf("... and %lld more\n", count - (long long)json_array_size(items));
    printf("%lld tasks would be settled as %s. Nothing was changed.\n", count, w->outcome);
    if (count)
        printf("To settle exactly these, the same with: --set %s --yes\n", desk_text(document, "set"));
}

static int resolve_many(struct wishes *w)
{
    json_t *body = verdict(w), *filter = json_object();
    struct desk_answer answer;
    set_text(filter, "status", w->status);
    set_text(filter, "route", w->route);
    set_text(filter, "tenant", w->tenant);
    set_text(filter, "since", w->since);
    set_text(filter, "until", w->until);
    json_object_set_new(body, "filter", filter);
    json_object_set_new(body, "dry_run", json_boolean(!w->yes));
    set_text(body, "set", w->yes ? w->set : NULL);
    char *text = json_dumps(body, JSON_COMPACT);
    int code = desk_ask(&w->desk, "/v1/compensations/resolve", text, &answer) ? EXIT_FINE : failed(w);
    if (w->json && answer.document)
        print_json(answer.document);
    else if (code == EXIT_FINE)
        tell_bulk(w, answer.document);
    if (code == EXIT_FINE && w->yes &&
        json_integer_value(json_object_get(answer.document, "resolved")) !=
            json_integer_value(json_object_get(answer.document, "count")))
        code = EXIT_REFUSED;
    json_decref(answer.document);
    json_decref(body);
    free(text);
    return code;
}

static int act(struct wishes *w)
{
    char path[128];
    switch (w->verb) {
    case VERB_LIST:
        return list(w);
    case VERB_SHOW:
        snprintf(path, sizeof path, "/v1/compensations/%.64s", w->id);
        return one(w, path, NULL);
    case VERB_RUN:
        snprintf(path, sizeof path, "/v1/compensations/%.64s/run", w->id);
        return one(w, path, json_pack("{s:s}", "operator", w->operator));
    case VERB_RESOLVE:
        if (!w->id)
            return resolve_many(w);
        snprintf(path, sizeof path, "/v1/compensations/%.64s/resolve", w->id);
        return one(w, path, verdict(w));
    }
    return EXIT_USAGE;
}

int command_compensations(int argc, char **argv)
{
    struct wishes w = {0};
    int code = read_flags(&w, argc, argv);
    if (code == EXIT_FINE && w.help) {
        print_help(stdout);
    } else if (code == EXIT_FINE) {
        curl_global_init(CURL_GLOBAL_DEFAULT);
        code = desk_open(&w.desk) ? act(&w) : failed(&w);
        curl_global_cleanup();
    }
    desk_close(&w.desk);
    return code;
}
